"""LiRA as the first module of a sentence-transformers model."""

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import torch
from safetensors.torch import load_file, save_file
from sentence_transformers.base.modules.input_module import InputModule
from sentence_transformers.util import batch_to_device
from torch import nn

from xalign_models.backbones import loading
from xalign_models.backbones.adapters import add_lora
from xalign_models.backbones.loading import prompt_in
from xalign_models.backbones.transformer import LanguageTransformer
from xalign_models.configuration import from_mapping, to_mapping
from xalign_models.corpora import ENGLISH
from xalign_models.errors import ModelError
from xalign_models.files import read_json
from xalign_models.generation.critics import Critic, Scores
from xalign_models.generation.journal import batched
from xalign_models.generation.translators import Translations, TranslatorSpec, make_translator
from xalign_models.languages import BEYOND_FLORES, FLORES_200, canonical
from xalign_models.models.names import find_spec
from xalign_models.specs import BackboneSpec, ModelSpec
from xalign_models.training.lira.candidates import Candidates, CandidateSource, at_k
from xalign_models.training.lira.config import Design
from xalign_models.training.lira.network import ArcaOutput, Features, Network
from xalign_models.training.plan import frozen_dtype
from xalign_models.training.processes import process_count, whole

WEIGHTS = "lira.safetensors"
HISTORY = "arca_epochs.json"
_NEW = ("adaptor.", "actor.", "fusion.", "centre", "gate")
_KEPT = ("pass_at", "online", "identities")
"""Attributes that the configuration keeps as they are."""
_TAG = "{}: [TEXT]"
_LANGUAGE = re.compile(r"([a-z]{3}-[A-Z][a-z]{3}): \[TEXT\]")


def language_prompts() -> tuple[tuple[str, str], ...]:
    """Prompts that name a text's language to the model; they do not become part of the text."""
    return (*((code, _TAG.format(code)) for code in (*FLORES_200, *BEYOND_FLORES)), ("default", ""))


class LiRA(InputModule):
    """Embeds a text: looks up or makes translations, chooses one, and fuses both paths.

    An input is a text or ``{"text": ..., "lang": "deu-Latn"}``. An English text is its own translation. Without a
    translation, the English path reads the text itself.

    The import path is part of the file format: do not move the class. A saved module has the trained weights and the
    identity of the two checkpoints that they belong to.

    Args:
        network: The trained parts.
        backbones: Specs of the two checkpoints, ``multilingual`` and ``english``.

    Attributes:
        pass_at: Number of candidates from language models; None uses all translators.
        online: Whether to translate texts that the journals lack; otherwise a missing translation is an error.
        history: Measurements of each epoch of stage 1.
        identities: Identities of the training's translators and critic, by name.
    """

    config_file_name = "lira_config.json"

    def __init__(self, network: Network, backbones: Mapping[str, BackboneSpec]) -> None:
        super().__init__()
        self.network, self.backbones = network, dict(backbones)
        self.pass_at: int | None = None
        self.online = True
        self.history: list[dict[str, Any]] = []
        self.identities: dict[str, str] = {}

    @classmethod
    def begin(cls, design: Design, seed: int = 0) -> Self:
        """An untrained model.

        Raises:
            XAlignError: A checkpoint is unavailable or unsuitable.
        """
        names = {"multilingual": design.multilingual, "english": design.english}
        specs = {part: find_spec(name) for part, name in names.items()}
        if aligned := [part for part, spec in specs.items() if spec.alignment]:
            raise ModelError(f"{aligned[0]} {names[aligned[0]]} is an aligned model; name its backbone.")
        backbones = {part: spec.backbone for part, spec in specs.items()}
        english = backbones["english"]
        backbones["english"] = dataclasses.replace(english, dtype=frozen_dtype(english, design.dtype))
        (encoder, _), (fusing, rest) = (_open(part, spec) for part, spec in backbones.items())
        return cls(Network(encoder, fusing, design, seed, rest), backbones)

    @property
    def design(self) -> Design:
        """Architecture of the model."""
        return self.network.design

    @cached_property
    def source(self) -> CandidateSource:
        """Translators and critic, with their journals.

        Raises:
            ModelError: A translator or the critic differs from the one used in training.
        """
        device = str(self.network.device)
        named = [TranslatorSpec.parse(name) for name in self.design.translators]
        specs = at_k(named, self.design.slots, self.pass_at)
        translations = [Translations(make_translator(spec, device)) for spec in specs]
        scores = Scores(Critic(self.design.critic, device)) if self.design.critic else None
        identities = {str(made.translator.spec): made.translator.identity for made in translations}
        identities |= {str(self.design.critic): scores.critic.identity} if scores else {}
        for name, identity in identities.items():
            if self.identities.setdefault(name, identity) != identity:
                raise ModelError(
                    f"{name} has changed since this model was trained: its weights or text differ. Restore them, "
                    "or train the model again."
                )
        return CandidateSource(translations, scores, online=self.online and process_count() == 1)

    def get_embedding_dimension(self) -> int:
        """Dimension d_m of the embeddings."""
        return int(self.network.english.get_embedding_dimension())

    def preprocess(self, inputs: Sequence[Any], prompt: str | None = None, **kwargs: Any) -> dict[str, Any]:
        """Look up or make the candidates of texts, and tokenise both.

        Raises:
            DataError: A translation is missing, and the model is not online.
        """
        tag = _LANGUAGE.fullmatch(prompt or "")
        texts = [item["text"] if isinstance(item, dict) else item for item in inputs]
        named = [item.get("lang") if isinstance(item, dict) else None for item in inputs]
        languages = [canonical(code) if code else tag and tag[1] for code in named]
        features = self.features_of(self.source(texts, languages))
        return {**features, "lang": languages} if any(languages) else features

    def tokenize_english(self, texts: Sequence[str]) -> Features:
        """Features of the English path."""
        return self.network.english.preprocess(list(texts))

    def features_of(self, candidates: Candidates) -> Features:
        """Features of texts for the encoder and of all their candidates for the English path, with mask and scores."""
        prompt = dict(self.backbones["multilingual"].prompts).get("default")
        flat = [text for row in candidates.texts for text in row]
        parts = {
            "candidates": self.tokenize_english(flat),
            "text": self.network.encoder.preprocess(list(candidates.originals), prompt=prompt),
        }
        if self.design.residual:
            own = self.network.english.preprocess(flat, prompt=self._english_prompt or None)
            if "prompt_length" in own:  # for a pooling that skips the prompt
                own["prompt_length"] = torch.full((len(flat),), own["prompt_length"])
            parts["own"] = own
        named = ((f"{part}.{name}", value) for part, features in parts.items() for name, value in features.items())
        tensors = {name: value for name, value in named if torch.is_tensor(value)}
        return {**tensors, "scores": candidates.scores, "candidate_mask": candidates.mask}

    @cached_property
    def _english_prompt(self) -> str:
        """The English model's own prompt for an English text without a task."""
        return prompt_in(loading.open_backbone(self.backbones["english"]).prompts, ENGLISH)

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """``features["sentence_embedding"]``, (n, d_m) of unit length."""
        features["sentence_embedding"] = self.network(*unpack(features), part_of(features, "own"))
        return features

    @torch.inference_mode()
    def actor_choice(self, candidates: Candidates, batch_size: int = 32) -> ArcaOutput:
        """The actor's log probability of each candidate of n texts; the streams in the output are empty."""
        choices = []
        for rows in batched(range(len(candidates.texts)), batch_size):
            features = self.features_of(candidates.rows(rows))
            choice = self.network.choose(*unpack(batch_to_device(features, self.network.device)))
            choices.append((choice.similarity.cpu(), choice.log_probabilities.cpu()))
        nothing = torch.zeros(0)
        return ArcaOutput(nothing, nothing, *(torch.cat(side) for side in zip(*choices, strict=True)))

    def get_config_dict(self) -> dict[str, Any]:
        """The configuration saved next to the weights."""
        parts = {"multilingual": self.network.encoder, "english": self.network.english}
        return {
            "design": to_mapping(self.design),
            "backbones": {part: to_mapping(spec) for part, spec in self.backbones.items()},
            "bases": {part: module.base for part, module in parts.items()},
            "lora": self.network.lora,
            **{name: getattr(self, name) for name in _KEPT},
        }

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        """Write the weights of new and tuned parts, the configuration and the measurements of stage 1."""
        root = Path(output_path)
        self.save_config(output_path)
        save_file(self.trained_weights(), root / WEIGHTS)
        if self.history:
            (root / HISTORY).write_text(json.dumps(self.history, indent=1) + "\n", encoding="utf-8")

    def trained_weights(self) -> dict[str, torch.Tensor]:
        """The weights of new and tuned parts by name, on the CPU; if they are sharded, all processes gather them."""
        return {
            name: whole(weight.detach()).cpu().contiguous()
            for name, weight in self.network.state_dict().items()
            if name.startswith(_NEW) or name in self.network.tuned
        }

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **kwargs: Any) -> Self:
        """Load a saved module and its two checkpoints.

        Raises:
            AssetError: A checkpoint is unavailable.
            ModelError: The directory is missing, or a checkpoint has changed since the training.
        """
        root = Path(model_name_or_path, subfolder)
        config = cls.load_config(str(root)) if root.is_dir() else {}
        if not config:
            raise ModelError(f"{root} is not the directory of a LiRA model; download the model first.")
        saved = config["backbones"]
        backbones = {part: ModelSpec.from_dict({"backbone": fields}).backbone for part, fields in saved.items()}
        (encoder, _), (english, rest) = (_open(part, spec, config["bases"][part]) for part, spec in backbones.items())
        network = Network(encoder, english, from_mapping(Design, config["design"]), rest=rest)
        restore(network, load_file(root / WEIGHTS), config["lora"])
        module = cls(network, backbones)
        for name in _KEPT:
            setattr(module, name, config[name])
        if (root / HISTORY).is_file():
            module.history = read_json(root / HISTORY, list)
        return module


def unpack(features: dict[str, Any]) -> tuple[Features, Features, torch.Tensor, torch.Tensor]:
    """The network's arguments, from a tokenised batch."""
    text, candidates = (part_of(features, part) for part in ("text", "candidates"))
    return text, candidates, features["scores"], features["candidate_mask"]


def part_of(features: dict[str, Any], part: str) -> Features:
    """The features of a part of a tokenised batch: ``text``, ``candidates`` or ``own``."""
    return {name.partition(".")[2]: value for name, value in features.items() if name.startswith(f"{part}.")}


def restore(network: Network, weights: Mapping[str, torch.Tensor], lora: Mapping[str, int] | None) -> None:
    """Load saved weights into a network, and add the LoRA matrices if the weights include them.

    Raises:
        ModelError: The weights belong to another network.
    """
    if lora is not None:
        grow(network, **lora)
    known = network.state_dict()
    if unknown := [name for name in weights if name not in known or known[name].shape != weights[name].shape]:
        raise ModelError(f"The weights of {unknown[0]} do not fit this LiRA.")
    if missing := [name for name in known if name.startswith(_NEW) and name not in weights]:
        raise ModelError(f"The weights of this LiRA are incomplete: {missing[0]} is missing.")
    network.load_state_dict(dict(weights), strict=False)
    network.tuned = {name for name in weights if name.startswith(("encoder.", "english."))}


def grow(network: Network, *, rank: int, alpha: int, seed: int = 0) -> None:
    """Add LoRA matrices to the fusing transformer, frozen."""
    add_lora(network.english.model, rank=rank, alpha=alpha, dropout=0.0, seed=seed)
    network.lora = {"rank": rank, "alpha": alpha}
    network.requires_grad_(False)


def _open(
    part: str, spec: BackboneSpec, base: Mapping[str, Any] | None = None
) -> tuple[LanguageTransformer, tuple[nn.Module, ...]]:
    """A backbone's transformer, and the modules that follow it."""
    first, *rest = loading.open_backbone(spec).modules("cpu")
    if not isinstance(first, LanguageTransformer) or not hasattr(first.model, "get_input_embeddings"):
        raise ModelError(f"{part} {spec.name} is not a transformer, so it has no stream of tokens.")
    if base is not None and (first.base or {}).get("fingerprint") != base["fingerprint"]:
        raise ModelError(f"This model was trained on another version of {spec.model} than the installed one.")
    first.prompts = {}
    return first, tuple(rest)
