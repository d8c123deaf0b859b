"""Any Hugging Face encoder as the first module of a sentence-transformers model that knows each text's language."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path, PurePosixPath
from typing import Any, Self

import torch
from sentence_transformers.sentence_transformer.modules import Transformer

from xalign_models import assets
from xalign_models.assets.inspection import inspected
from xalign_models.backbones.adapters import ADAPTER, load_adapter, name_base
from xalign_models.backbones.borrowed import has_adapter, is_built_in, load_encoder_only
from xalign_models.backbones.checkpoint import open_transformer
from xalign_models.backbones.compiled import compile_layers
from xalign_models.backbones.graphs import Graph
from xalign_models.backbones.grouping import similar_lengths
from xalign_models.backbones.inputs import prompt_of, split_inputs
from xalign_models.backbones.int8 import to_int8
from xalign_models.backbones.packing import keep_content, packed_attention, unshare
from xalign_models.backbones.templates import SLOT, prompted
from xalign_models.backbones.tf32 import products
from xalign_models.backbones.weights import (
    encoder_class,
    require_fit,
    require_size,
    require_types,
    require_vocabulary,
    state_dict,
)
from xalign_models.errors import ModelError


class CheckedTransformer(Transformer):
    """sentence-transformers' Transformer, which refuses weights that do not match the configuration.

    ``model_kwargs={"graph": "onnx/model.onnx"}`` replaces the weights by an exported graph of the directory.
    """

    graph: str | None = None

    def __init__(
        self, model_name_or_path: str, *args: Any, config_kwargs: dict[str, Any] | None = None, **kwargs: Any
    ) -> None:
        self._layers = (config_kwargs or {}).get("num_hidden_layers")  # the model is cut there on purpose
        super().__init__(model_name_or_path, *args, config_kwargs=config_kwargs, **kwargs)
        directory = inspected(model_name_or_path).directory  # where a temporary copy was made from
        require_vocabulary(self.tokenizer, str(directory))
        self.tokenizer.name_or_path = str(directory)

    def _load_model(
        self,
        model_name_or_path: str,
        transformer_task: Any,
        config: Any,
        backend: str,
        is_peft_model: bool,
        **model_kwargs: Any,
    ) -> Any:
        source, folder = model_name_or_path, str(model_kwargs.get("subfolder") or "")
        files = inspected(source)
        if graph := model_kwargs.pop("graph", None):
            self.graph = graph
            return Graph(files.directory / folder, graph, config)
        if is_peft_model:  # opened one after the other: transformers reports on the adapter alone
            name = (PurePosixPath(folder) / ADAPTER).as_posix()
            base = assets.resolve(files.json(name, dict)["base_model_name_or_path"])
            source, model_kwargs["revision"] = base.path_or_id, base.revision
            files = inspected(source)
        model_kwargs |= {"output_loading_info": True, "ignore_mismatched_sizes": True, "use_safetensors": True}
        loaded: Any = None
        if Path(source).is_dir():
            require_types(files, folder)
            require_size(config, files, folder)
            quantised = getattr(config, "quantization_config", None)
            if is_built_in(config) and not quantised and not model_kwargs.get("trust_remote_code"):
                loaded = self._load_weights(config, state_dict(files, folder), transformer_task, **model_kwargs)
        model, info = loaded or super()._load_model(source, transformer_task, config, backend, False, **model_kwargs)
        require_fit(info, str(files.directory), self._layers)
        model.name_or_path = model.config.name_or_path = str(files.directory)
        if is_peft_model:
            load_adapter(model, Path(model_name_or_path))
        return model

    def _load_weights(
        self, config: Any, weights: Mapping[str, torch.Tensor], task: str, **options: Any
    ) -> tuple[Any, Any] | None:
        """An encoder with weights that were read already, and transformers' loading info; None for another task."""
        if task != "feature-extraction":
            return None
        options = {name: value for name, value in options.items() if name not in {"revision", "subfolder"}}
        loaded: tuple[Any, Any] | None = load_encoder_only(self, config, state_dict=weights, **options)
        if loaded is None:
            kind = encoder_class(config)
            config = config if isinstance(config, kind.config_class) else config.get_text_config()
            loaded = kind.from_pretrained(None, config=config, state_dict=weights, **options)
        return loaded


class LanguageTransformer(CheckedTransformer):
    """sentence-transformers' Transformer, for inputs that carry their language and prompts that surround a text.

    An input is a text or ``{"text": ..., "lang": "deu-Latn"}``. The language is taken out before tokenisation and put
    into ``features["lang"]``, a list of one code (or None) per text, where an alignment finds it: it travels inside the
    input, so it is right however texts are sorted and batched.

    A prompt that contains ``[TEXT]`` surrounds the text, any other goes before it. Where a surrounded text is too long,
    the text is cut at its end and the prompt stays whole.

    Args:
        pool_special_tokens: Whether a pooling module after this one sees [CLS], [SEP] and the like.
        prompts: Prompt by canonical language code, for inputs that come without a prompt of the call's.
        base: The checkpoint that LoRA weights belong to, ``{"model", "revision", "fingerprint", "dtype"}``: a saved
            module has only those weights, and finds the others by it.
        default_lang: Language of texts that come without one; ``auto`` identifies it.
        int8: Whether linear layers multiply whole numbers; see :mod:`~xalign_models.backbones.int8`.
        tf32: Whether linear layers round float32 to TF32; see :mod:`~xalign_models.backbones.tf32`.
        compiled: Whether layers are compiled; see :mod:`~xalign_models.backbones.compiled`.
        graph: The directory's exported graph that is run in place of weights; see
            :mod:`~xalign_models.backbones.graphs`.
        **kwargs: Those of sentence-transformers' Transformer.
    """

    config_keys: list[str] = [
        *Transformer.config_keys,
        "pool_special_tokens",
        "prompts",
        "base",
        "default_lang",
        "int8",
        "tf32",
        "compiled",
        "graph",
    ]
    tf32 = compiled = False

    def __init__(
        self,
        *args: Any,
        pool_special_tokens: bool = True,
        prompts: Mapping[str, str] | None = None,
        base: Mapping[str, str | None] | None = None,
        default_lang: str | None = None,
        int8: bool = False,
        tf32: bool = False,
        compiled: bool = False,
        graph: str | None = None,
        **kwargs: Any,
    ) -> None:
        if graph:
            kwargs["model_kwargs"] = {**(kwargs.get("model_kwargs") or {}), "graph": graph}
        super().__init__(*args, **kwargs)
        if "text" in self.modality_config:  # a tokenizer's chat template would make a message of each text
            self.modality_config.pop("message", None)
            self.input_formatter.supported_modalities = list(self.modality_config)
        self.base = dict(base) if base else None
        self.pool_special_tokens = pool_special_tokens
        self.prompts = dict(prompts or {})
        self.default_lang = default_lang
        self._writable: set[str] = set()
        self.tf32, self.compiled = tf32, compiled
        self.int8 = False
        if int8:
            self.to_int8()

    @classmethod
    def adopt(cls, module: Transformer) -> Self:
        """The same module, weights and all, as one of ours (in place: nothing is loaded again)."""
        module.__class__ = cls
        module.pool_special_tokens, module.prompts, module.base, module._writable = True, {}, None, set()
        module.default_lang, module.int8 = None, False
        return module  # type: ignore[no-any-return]

    def to_int8(self) -> None:
        """Let linear layers multiply whole numbers, from now on and wherever the module is loaded again.

        Raises:
            ModelError: Its weights are not of float32.
        """
        to_int8(self.model)
        self.int8 = True

    def preprocess(self, inputs: Sequence[Any], prompt: str | None = None, **kwargs: Any) -> dict[str, Any]:
        """Tokenise; ``features["lang"]`` is there when any input names its language.

        Raises:
            LanguageError: The prompts are by language, and an input has none or one without a prompt.
            ModelError: The tokenizer cannot write a prompt, or a prompt alone is longer than the limit.
        """
        texts, languages = split_inputs(inputs, kwargs.pop("lang", None) or self.default_lang)
        if not prompt and self.prompts:
            texts = [
                self.fill(prompt_of(self.prompts, code), text) for code, text in zip(languages, texts, strict=True)
            ]
        elif prompt and SLOT in prompt:
            texts, prompt = [self.fill(prompt, text) for text in texts], None
        features: dict[str, Any] = super().preprocess(texts, prompt=prompt, **kwargs)
        if any(languages):
            features["lang"] = languages
        return features

    def fill(self, prompt: str, text: str) -> str:
        """The prompted text; a text that would not fit within ``max_seq_length`` tokens is cut at its end.

        Raises:
            ModelError: The tokenizer cannot write the prompt, or the prompt leaves no room.
        """
        limit, filled = self.max_seq_length, prompted(prompt, text)
        if SLOT not in prompt:
            return filled
        self._check_writable(prompt)
        if limit is None or len(filled.encode("utf-8", "replace")) + 4 <= limit:  # no token is shorter than a byte
            return filled
        while (excess := len(self.tokenizer(filled)["input_ids"]) - limit) > 0:
            ends = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
            if not ends:
                raise ModelError(f"--max-tokens {limit} leaves no room for a text in the prompt {prompt!r}.")
            text = text[: ends[max(0, len(ends) - excess)][0]]
            filled = prompted(prompt, text)
        return filled

    def _check_writable(self, prompt: str) -> None:
        if prompt in self._writable:
            return
        tokenizer = self.tokenizer
        ids = tokenizer(prompt.replace(SLOT, " "), add_special_tokens=False)["input_ids"]
        if tokenizer.unk_token_id is not None and tokenizer.unk_token_id in ids:
            raise ModelError(
                f"The tokenizer of {tokenizer.name_or_path} lacks characters of the prompt {prompt!r}; "
                "use a prompt that it can write, e.g. the English one, or none."
            )
        self._writable.add(prompt)

    def get_config_dict(self) -> dict[str, Any]:
        """What is saved; ``base`` only where its weights are not."""
        config: dict[str, Any] = super().get_config_dict()
        for key in ("graph", "tf32", "compiled"):  # younger than saved models
            if not config[key]:
                del config[key]
        return config if has_adapter(self.model) else {**config, "base": None}

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        """Write weights (of LoRA alone where there are such), tokenizer and configuration."""
        super().save(output_path, *args, **kwargs)
        if self.base and (Path(output_path) / ADAPTER).is_file():
            name_base(Path(output_path), str(self.base["model"]))

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **kwargs: Any) -> Self:
        """Load a saved module; LoRA weights are put on the checkpoint that they were trained on.

        They are rounded to its precision, in which training multiplied them too: no casts slow encoding.

        Raises:
            AssetError: That checkpoint cannot be had.
            ModelError: It has changed since.
        """
        config = cls.load_config(model_name_or_path, subfolder=subfolder) if Path(model_name_or_path).is_dir() else {}
        base = config.get("base")
        if not base:
            return super().load(model_name_or_path, subfolder=subfolder, **kwargs)  # type: ignore[no-any-return]
        checkpoint = assets.resolve(base["model"], base["revision"])
        if checkpoint.fingerprint != base["fingerprint"]:
            raise ModelError(f"{model_name_or_path} was trained on another {base['model']} than the one that is here.")
        dtype = (kwargs.get("model_kwargs") or {}).get("torch_dtype") or base["dtype"]
        module = open_transformer(cls, checkpoint, dtype, **config)
        load_adapter(module.model, Path(model_name_or_path) / subfolder)
        for adapter in module.model.peft_config.values():  # where peft looks when it saves
            adapter.base_model_name_or_path = checkpoint.path_or_id
        return module

    def _special_ids(self) -> list[int]:
        """Ids that stand for no content; [UNK] stands for some, unless it is the end token's second name."""
        tokenizer = self.tokenizer
        ends = (tokenizer.bos_token_id, tokenizer.eos_token_id)
        return [token for token in tokenizer.all_special_ids if token != tokenizer.unk_token_id or token in ends]

    def embed_tokens(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """sentence-transformers' own forward: ``features["token_embeddings"]`` (b, s, d) of the layer asked for.

        A batch that is trained on holds texts of all lengths together: those of similar length go through the model
        together, and their padding is left out. Otherwise batches are of similar length to begin with. (Not a matter of
        gradients: a cached loss embeds once without and once with them, and must draw the same dropout.)
        """
        if not self.training:
            return self._read(features, **kwargs)
        mask = features["attention_mask"]
        padded: torch.Tensor | None = None
        for rows, part in similar_lengths(features, self.model):
            columns = mask[rows].any(dim=0).nonzero()[:, 0]
            states = self._read(part, **kwargs)[self.module_output_name]
            if padded is None:
                padded = states.new_zeros(*mask.shape, states.shape[2])
            padded = padded.index_put((rows[:, None], columns[None]), states)
        features[self.module_output_name] = padded
        return features

    def attending(self) -> AbstractContextManager[dict[str, Any]]:
        """What every call of the model happens in, packed or padded; it gives keywords of the call. Here nothing."""
        return nullcontext({})

    def _read(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        if self.compiled:
            compile_layers(self.model)
        rounding = products(str(self.model.device)) if self.tf32 else nullcontext()
        with rounding, self.attending() as keywords:
            return super().forward(features, **kwargs, **keywords)  # type: ignore[no-any-return]

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Token embeddings; with ``pool_special_tokens=False`` the mask that pooling sees covers content only."""
        if "cu_seq_lens_q" in features:
            return self._forward_packed(features, **kwargs)
        features = self.embed_tokens(features, **kwargs)
        if not self.pool_special_tokens:
            special = torch.tensor(self._special_ids(), device=features["input_ids"].device)
            content = features["attention_mask"] * ~torch.isin(features["input_ids"], special)
            empty = content.sum(dim=1, keepdim=True) == 0  # an empty text has special tokens only: keep those
            features["attention_mask"] = torch.where(empty, features["attention_mask"], content)
        return features

    def _forward_packed(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        texts = features.pop("seq_idx")
        if getattr(self.model.config, "use_cache", False):
            kwargs = {**kwargs, "use_cache": False}
        with packed_attention(self.model):
            features = self._read(features, **kwargs)
        features["seq_idx"] = texts
        states = {self.module_output_name, "all_layer_embeddings"} & features.keys()
        unshare(features, *states)
        if not self.pool_special_tokens:
            keep_content(features, self._special_ids(), *states)
        return features
