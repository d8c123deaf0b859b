"""LUSIFER as the first module of a sentence-transformers model."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import torch
from safetensors.torch import load_file, save_file
from sentence_transformers.base.modules.input_module import InputModule
from sentence_transformers.sentence_transformer.modules import Dense, Pooling
from torch import Tensor, nn
from transformers import PreTrainedModel

from xalign_models.backbones.adapters import ADAPTER, load_lora, name_base
from xalign_models.backbones.batching import similar_lengths
from xalign_models.backbones.checkpoint import opened
from xalign_models.backbones.transformer import LanguageTransformer
from xalign_models.claims import Claim
from xalign_models.errors import ModelError
from xalign_models.training.lusifer.connector import Connector, join
from xalign_models.training.lusifer.decoder import attention
from xalign_models.training.lusifer.parts import Base, embeddings_of, load_encoder, load_llm

_WEIGHTS = "connector.safetensors"
PARTS = ("encoder", "llm")
"""The two checkpoints, by the names of their folders in a saved model."""


class Lusifer(InputModule):
    r"""A decoder-only language model that reads the last hidden states of a multilingual encoder through a connector.

    For a text of n tokens with encoder states X the language model's input is ``[C(X); t]``, n + 1 positions: the
    encoder's states mapped by the :class:`~xalign_models.training.lusifer.connector.Connector`, and its trainable
    token right after the last real one. Each position sees all others. The outputs are
    ``features["token_embeddings"]`` (b, n + 1, d_t) and their ``attention_mask``, for a mean over all real positions.

    The import path is part of the file format: do not move the class. A saved module has the weights of connector and
    LoRA and the identity of the two checkpoints, whose own weights never change.

    Args:
        encoder: The encoder; the model uses its tokenizer and its maximum length.
        llm: The language model, without its head.
        llm_base: Identity of the language model's checkpoint; the encoder's is ``encoder.base``.
        seed: Seed of the connector's initial weights.
        tokens: Number of the connector's trainable tokens, 1 or 0.
    """

    config_file_name = "lusifer_config.json"
    config_keys: list[str] = ["encoder_base", "llm_base", "max_seq_length"]

    def __init__(
        self, encoder: LanguageTransformer, llm: PreTrainedModel, llm_base: Base, seed: int = 0, tokens: int = 1
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.llm = llm
        self.llm_base = dict(llm_base)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            # a trained model's embeddings do not have the configuration's initializer_range
            rows = embeddings_of(llm, range(0, llm.config.vocab_size, 16)).detach().float()
            std = llm.config.initializer_range if rows.is_meta else float(rows.std())  # shapes alone have no values
            self.connector = Connector(encoder.get_embedding_dimension(), llm.config.hidden_size, std, tokens)

    @property
    def encoder_base(self) -> dict[str, str | None]:
        """Identity of the encoder's checkpoint."""
        return dict(self.encoder.base or {})

    @property
    def tokenizer(self) -> Any:
        """The encoder's tokenizer."""
        return self.encoder.tokenizer

    @property
    def max_seq_length(self) -> int | None:
        """Maximum number of tokens of a text, including the end token."""
        limit: int | None = self.encoder.max_seq_length
        return limit

    @max_seq_length.setter
    def max_seq_length(self, limit: int | None) -> None:
        self.encoder.max_seq_length = limit

    def get_embedding_dimension(self) -> int:
        """Dimension d_t of the embeddings."""
        return int(self.llm.config.hidden_size)

    def preprocess(self, inputs: Sequence[Any], prompt: str | None = None, **kwargs: Any) -> dict[str, Any]:
        """Tokenise texts or ``{"text": ..., "lang": ...}`` with the encoder's tokenizer."""
        return self.encoder.preprocess(inputs, prompt=prompt, **kwargs)

    def train(self, mode: bool = True) -> Self:
        """Training mode for trained parts; frozen parts use no dropout."""
        super().train(mode)
        for part, checkpointing in ((self.encoder, False), (self.llm, self.llm.is_activation_checkpointing)):
            # A frozen language model still keeps activations for the parts before it or, in training mode with
            # checkpointing, recomputes them.
            if not checkpointing and not any(weight.requires_grad for weight in part.parameters()):
                part.eval()
        return self

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """``features["token_embeddings"]`` (b, n + 1, d_t) and their mask."""
        mask = features["attention_mask"]
        lengths = mask.sum(dim=1) + self.connector.tokens
        real = torch.arange(int(lengths.max()), device=mask.device)[None] < lengths[:, None]
        padded: Tensor | None = None
        for rows, part in similar_lengths(features, self.llm) if self.training else [(slice(None), features)]:
            states = self._read(part)
            if padded is None:
                padded = states.new_zeros(*real.shape, states.shape[2])
            padded[rows, : states.shape[1]] = states
        return {**features, "token_embeddings": padded, "attention_mask": real.to(mask.dtype)}

    def _read(self, features: dict[str, Any]) -> Tensor:
        embeds, mask = join(self.soft_tokens(features))
        with attention(self.llm, causal=False) as keywords:
            states: Tensor = self.llm(
                inputs_embeds=embeds.to(self.llm.dtype), attention_mask=mask, **keywords
            ).last_hidden_state
        return states

    def soft_tokens(self, features: dict[str, Any]) -> list[tuple[Tensor, Tensor]]:
        """``C(X)`` of the real tokens, and t, as input of :func:`~xalign_models.training.lusifer.connector.join`."""
        mask = features["attention_mask"].bool()
        states = self.encoder(dict(features))["token_embeddings"]
        pieces = [(self.connector(states[mask]), mask)]
        if self.connector.tokens:
            pieces.append((self.connector.token.expand(len(mask), -1), mask.new_ones(len(mask), 1)))
        return pieces

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        """Write the connector, LoRA's weights and both configurations; the tokenizer is the encoder checkpoint's."""
        root = Path(output_path)
        self.save_config(output_path)
        save_file({name: weight.contiguous() for name, weight in self.connector.state_dict().items()}, root / _WEIGHTS)
        for name, (model, base) in self._parts().items():
            folder = root / name
            if getattr(model, "peft_config", None):
                model.save_pretrained(folder)
                name_base(folder, str(base["model"]))
            model.config.save_pretrained(folder)

    @classmethod
    def load(
        cls, model_name_or_path: str, subfolder: str = "", model_kwargs: dict[str, Any] | None = None, **kwargs: Any
    ) -> Self:
        """Load a saved module and its two checkpoints.

        Raises:
            AssetError: A checkpoint is unavailable.
            ModelError: The directory is missing, or a checkpoint has changed since the training.
        """
        root = Path(model_name_or_path, subfolder)
        config = cls.load_config(str(root)) if root.is_dir() else {}
        if not config:
            raise ModelError(f"{root} is not the directory of a LUSIFER model; download the model first.")
        dtype = str((model_kwargs or {}).get("torch_dtype") or "").removeprefix("torch.")
        with opened(str(root / _WEIGHTS)):
            weights = load_file(root / _WEIGHTS)
        saved = [config[f"{name}_base"] for name in PARTS]
        bases = [{**base, "model": Claim(base["model"]), "dtype": dtype or base["dtype"]} for base in saved]
        module = cls(load_encoder(bases[0]), load_llm(bases[1]), bases[1], tokens=int("token" in weights))
        module.max_seq_length = config["max_seq_length"]
        with opened(str(root / _WEIGHTS)):
            module.connector.load_state_dict(weights)
        for name, (model, _) in module._parts().items():
            if (root / name / ADAPTER).is_file():
                load_lora(model, root / name)
        return module

    def _parts(self) -> dict[str, tuple[Any, dict[str, str | None]]]:
        return {"encoder": (self.encoder.model, self.encoder_base), "llm": (self.llm, self.llm_base)}


def modules_of(first: Any, projection: bool = False) -> list[nn.Module]:
    """A model's modules: the first, the mean over real positions and (not in the paper) Linear, ReLU, Linear."""
    width: int = first.get_embedding_dimension()
    modules = [first, Pooling(width, pooling_mode="mean")]
    if projection:
        modules += [
            Dense(width, width, activation_function=nn.ReLU()),
            Dense(width, width, activation_function=nn.Identity()),
        ]
    return modules
