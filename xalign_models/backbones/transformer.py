"""Hugging Face encoders as the first module of a sentence-transformers model, for texts with a language."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path, PurePosixPath
from typing import Any, Self

import torch
from sentence_transformers.sentence_transformer.modules import Transformer

from xalign_models import assets
from xalign_models.assets.inspection import inspected
from xalign_models.backbones.adapters import ADAPTER, load_adapter, name_base
from xalign_models.backbones.batching import similar_lengths
from xalign_models.backbones.borrowed import has_adapter, load_encoder_only
from xalign_models.backbones.checkpoint import open_transformer
from xalign_models.backbones.compiled import compile_layers
from xalign_models.backbones.graphs import Graph
from xalign_models.backbones.inputs import SLOT, described, prompt_of, prompted, split_inputs
from xalign_models.backbones.int8 import to_int8
from xalign_models.backbones.packing import keep_content, packed_attention, unshare
from xalign_models.backbones.tf32 import products
from xalign_models.backbones.weights import require_fit, require_size, require_types, require_vocabulary, state_dict
from xalign_models.claims import Claim
from xalign_models.errors import ModelError


class CheckedTransformer(Transformer):
    """sentence-transformers' Transformer, which refuses weights that do not match the configuration."""

    graph: str | None = None

    def __init__(
        self, model_name_or_path: str, *args: Any, config_kwargs: dict[str, Any] | None = None, **kwargs: Any
    ) -> None:
        self._layers = (config_kwargs or {}).get("num_hidden_layers")  # later layers are left out on purpose
        super().__init__(model_name_or_path, *args, config_kwargs=config_kwargs, **kwargs)
        directory = inspected(model_name_or_path).directory  # the original of a temporary copy
        require_vocabulary(self.tokenizer, str(directory))
        self.tokenizer.name_or_path = str(directory)
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        self._lengths = backend and (backend.truncation, backend.padding)

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        """Write weights, tokenizer and configuration.

        Encoding leaves its own truncation and padding in a tokenizer; the saved file has the loaded settings.
        """
        if lengths := getattr(self, "_lengths", None):
            truncation, padding = lengths
            backend: Any = self.tokenizer.backend_tokenizer
            backend.enable_truncation(**truncation) if truncation else backend.no_truncation()
            backend.enable_padding(**padding) if padding else backend.no_padding()
        super().save(output_path, *args, **kwargs)

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
        if is_peft_model:  # opened one after the other: transformers reports only on the adapter
            name = (PurePosixPath(folder) / ADAPTER).as_posix()
            base = assets.resolve_base(files, name)
            source, model_kwargs["revision"] = base.path_or_id, base.revision
            files = inspected(source)
        model_kwargs |= {"output_loading_info": True, "ignore_mismatched_sizes": True, "use_safetensors": True}
        loaded: Any = None
        if Path(source).is_dir():
            require_types(files, folder)
            kind = require_size(config, files, folder)
            quantised, trusted = getattr(config, "quantization_config", None), model_kwargs.get("trust_remote_code")
            if kind and transformer_task == "feature-extraction" and not quantised and not trusted:
                given = {**model_kwargs, "state_dict": state_dict(files, folder)}  # the weights as checked
                for place in ("revision", "subfolder"):
                    given.pop(place, None)
                own = config if isinstance(config, kind.config_class) else config.get_text_config()
                loaded = load_encoder_only(self, config, **given) or kind.from_pretrained(None, config=own, **given)
        model, info = loaded or super()._load_model(source, transformer_task, config, backend, False, **model_kwargs)
        require_fit(info, str(files.directory), self._layers)
        model.name_or_path = model.config.name_or_path = str(files.directory)
        if is_peft_model:
            load_adapter(model, Path(model_name_or_path))
        return model


class LanguageTransformer(CheckedTransformer):
    """sentence-transformers' Transformer, for inputs that carry their language and prompts that surround a text.

    An input is a text or ``{"text": ..., "lang": "deu-Latn"}``. The language is moved into ``features["lang"]``, a list
    of one code (or None) per text, for the alignment. As part of the input, it stays correct when texts are sorted and
    batched.

    A prompt that contains ``[TEXT]`` surrounds the text; any other prompt precedes it. If a surrounded text is too
    long, its end is cut off; the prompt stays whole.

    Args:
        pool_special_tokens: Whether a pooling module after this one sees [CLS], [SEP] and the like.
        prompts: Prompt by canonical language code, for calls without a prompt; ``default`` serves other languages.
        base: The checkpoint below LoRA weights, ``{"model", "revision", "fingerprint", "dtype"}``: a saved module
            contains only the LoRA weights, and loads the others from there.
        default_lang: Language of texts without one; ``auto`` identifies it.
        int8: Whether linear layers multiply integers; see :mod:`~xalign_models.backbones.int8`.
        tf32: Whether linear layers round float32 to TF32; see :mod:`~xalign_models.backbones.tf32`.
        compiled: Whether layers are compiled; see :mod:`~xalign_models.backbones.compiled`.
        graph: The directory's exported graph that replaces the weights; see :mod:`~xalign_models.backbones.graphs`.
        **kwargs: Arguments of sentence-transformers' Transformer.
    """

    config_keys: list[str] = [*Transformer.config_keys, "pool_special_tokens", "prompts", "base", "default_lang",
                              "int8", "tf32", "compiled", "graph"]  # fmt: skip
    tf32 = compiled = int8 = False
    pool_special_tokens = True
    base: dict[str, str | None] | None = None
    default_lang: str | None = None

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
        if "text" in self.modality_config:  # a tokenizer's chat template would turn each text into a message
            self.modality_config.pop("message", None)
            self.input_formatter.supported_modalities = list(self.modality_config)
        self.base = dict(base) if base else None
        self.pool_special_tokens = pool_special_tokens
        self.prompts = dict(prompts or {})
        self.default_lang = default_lang
        self._writable: set[str] = set()
        self.tf32, self.compiled = tf32, compiled
        if int8:
            self.to_int8()

    @classmethod
    def adopt(cls, module: Transformer) -> Self:
        """Turn a Transformer with its weights into this class, in place, without loading anything."""
        module.__class__ = cls
        module.prompts, module._writable = {}, set()
        return module  # type: ignore[no-any-return]

    def to_int8(self) -> None:
        """Make linear layers multiply integers, now and in saved copies.

        Raises:
            ModelError: The weights are not float32.
        """
        to_int8(self.model)
        self.int8 = True

    def preprocess(self, inputs: Sequence[Any], prompt: str | None = None, **kwargs: Any) -> dict[str, Any]:
        """Tokenise; sets ``features["prompt"]``, and ``features["lang"]`` if an input names its language.

        Raises:
            LanguageError: The prompts are by language, and an input has no language or its language has no prompt.
            ModelError: The tokenizer lacks characters of a prompt, or a prompt alone exceeds the limit.
        """
        texts, languages = split_inputs(inputs, kwargs.pop("lang", None) or self.default_lang)
        told = described(languages, prompt or self.prompts.get("default"))
        if not prompt and self.prompts:
            pairs = zip(languages, texts, strict=True)
            texts = [self.fill(prompt_of(self.prompts, code), text) for code, text in pairs]
        elif prompt and (SLOT in prompt or self.prompts):  # the base class would tokenise the prompt separately
            texts, prompt = [self.fill(prompt, text) for text in texts], None
        features: dict[str, Any] = super().preprocess(texts, prompt=prompt, **kwargs)
        features |= told
        return features

    def fill(self, prompt: str, text: str) -> str:
        """The prompted text; a text that exceeds ``max_seq_length`` tokens is cut at its end.

        Raises:
            ModelError: The tokenizer lacks characters of the prompt, or the prompt leaves no room for a text.
        """
        limit, filled = self.max_seq_length, prompted(prompt, text)
        if SLOT not in prompt:
            return filled
        if prompt not in self._writable:
            ids = self.tokenizer(prompt.replace(SLOT, " "), add_special_tokens=False)["input_ids"]
            if self.tokenizer.unk_token_id is not None and self.tokenizer.unk_token_id in ids:
                raise ModelError(
                    f"The tokenizer of {self.tokenizer.name_or_path} lacks characters of the prompt {prompt!r}; "
                    "use another prompt, e.g. the English one, or none."
                )
            self._writable.add(prompt)
        if limit is None or len(filled.encode("utf-8", "replace")) + 4 <= limit:  # no token is shorter than a byte
            return filled
        while (excess := len(self.tokenizer(filled)["input_ids"]) - limit) > 0:
            ends = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
            if not ends:
                raise ModelError(f"--max-tokens {limit} leaves no room for a text in the prompt {prompt!r}.")
            text = text[: ends[max(0, len(ends) - excess)][0]]
            filled = prompted(prompt, text)
        return filled

    def get_config_dict(self) -> dict[str, Any]:
        """The saved configuration; it includes ``base`` if the base's weights are not saved."""
        config: dict[str, Any] = super().get_config_dict()
        for key in ("graph", "tf32", "compiled"):  # saved only if set
            if not config[key]:
                del config[key]
        return config if has_adapter(self.model) else {**config, "base": None}

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        """Write weights (only LoRA's, if any), tokenizer and configuration."""
        super().save(output_path, *args, **kwargs)
        if self.base and (Path(output_path) / ADAPTER).is_file():
            name_base(Path(output_path), str(self.base["model"]))

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **kwargs: Any) -> Self:
        """Load a saved module; LoRA weights are added to the checkpoint that they were trained on.

        LoRA weights are rounded to the checkpoint's dtype, the one used in training, so encoding needs no casts.

        Raises:
            AssetError: The checkpoint is unavailable.
            ModelError: The checkpoint has changed since.
        """
        config = cls.load_config(model_name_or_path, subfolder=subfolder) if Path(model_name_or_path).is_dir() else {}
        base = config.get("base")
        if not base:
            return super().load(model_name_or_path, subfolder=subfolder, **kwargs)  # type: ignore[no-any-return]
        checkpoint = assets.resolve(Claim(base["model"]), base["revision"])
        if checkpoint.fingerprint != base["fingerprint"]:
            raise ModelError(
                f"{model_name_or_path} was trained on {base['model']}, which has changed since; train it again."
            )
        dtype = (kwargs.get("model_kwargs") or {}).get("torch_dtype") or base["dtype"]
        module = open_transformer(cls, checkpoint, dtype, **config)
        load_adapter(module.model, Path(model_name_or_path) / subfolder)
        for adapter in module.model.peft_config.values():  # peft looks there when it saves
            adapter.base_model_name_or_path = checkpoint.path_or_id
        return module

    def _special_ids(self) -> list[int]:
        """Ids of special tokens without content. [UNK] has content unless it doubles as the start or end token."""
        tokenizer = self.tokenizer
        ends = (tokenizer.bos_token_id, tokenizer.eos_token_id)
        return [token for token in tokenizer.all_special_ids if token != tokenizer.unk_token_id or token in ends]

    def embed_tokens(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Token embeddings of the requested layer, ``features["token_embeddings"]`` (b, s, d)."""
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
        """Context of each call of the model, packed or padded; yields keyword arguments, for subclasses to override."""
        return nullcontext({})

    def _read(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        if self.compiled:
            compile_layers(self.model)
        read = products(str(self.model.device))(self._attend) if self.tf32 else self._attend
        return read(features, **kwargs)

    def _attend(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        with self.attending() as keywords:  # torch.compile cannot break a graph within two contexts
            return super().forward(features, **kwargs, **keywords)  # type: ignore[no-any-return]

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Token embeddings; with ``pool_special_tokens=False`` the mask that pooling sees covers content only."""
        if "cu_seq_lens_q" in features:
            return self._forward_packed(features, **kwargs)
        features = self.embed_tokens(features, **kwargs)
        if not self.pool_special_tokens:
            special = torch.tensor(self._special_ids(), device=features["input_ids"].device)
            content = features["attention_mask"] * ~torch.isin(features["input_ids"], special)
            empty = content.sum(dim=1, keepdim=True) == 0  # an empty text has only special tokens: keep them
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
