"""``lusifer:Hieuman/LUSIFER``: the authors' released LUSIFER, in their file format, as a backbone.

A release has two files. ``config.json`` names the two base checkpoints and LoRA's settings. ``model.safetensors`` has
all weights: both base models, their LoRA matrices, the connector, and the projection that follows the mean. Of a base
checkpoint only configuration and tokenizer are read. LoRA is merged into the weights in float32.

Two details differ from the authors' code: a truncated text keeps its end token, and a trained token, which the release
lacks, stands right after the last real token instead of after the padding.
"""

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedConfig
from transformers.initialization import no_init_weights

from xalign_models import assets
from xalign_models.backbones import policy
from xalign_models.backbones.checkpoint import open_config, open_transformer, opened, quiet
from xalign_models.backbones.sources import Source
from xalign_models.backbones.weights import require_fit, require_types
from xalign_models.claims import Claim
from xalign_models.errors import ModelError
from xalign_models.files import TensorHeader, is_number, read_json, safetensors_header
from xalign_models.paths import expanded
from xalign_models.specs import BackboneSpec, digest
from xalign_models.training.borrowed import BareTransformer
from xalign_models.training.lusifer.config import RELEASED
from xalign_models.training.lusifer.connector import Connector
from xalign_models.training.lusifer.module import Lusifer, modules_of

MAX_TOKENS = 512
"""Maximum number of tokens of a text in the authors' training and evaluation."""
_LEARNER, _ENCODER = "universal_learner", "encoder"
"""The authors' names for the encoder and the language model."""
_KINDS = {_LEARNER: "xlm-roberta", _ENCODER: "mistral"}
"""Base checkpoint -> ``model_type`` of its configuration."""
_LAYOUT: dict[str, tuple[Any, ...]] = {
    "connection_type": ("ff",),
    "encoder_backbone_type": ("mistral",),
    "num_added_tokens": (0, 1),
    "pooling_method": ("mean",),
    "universal_learner_backbone_type": ("xlm-r",),
}
"""Settings that describe the architecture -> supported values."""
_UNREAD = re.compile(rf"{_ENCODER}\.(base_model\.model\.)?lm_head\.weight|{_LEARNER}\.(.*\.)?pooler\..*")
"""Tensors that do not affect the vectors: the language model's head and the encoder's pooler."""


class ReleasedLusifer(Source):
    """``lusifer:DIRECTORY``, ``lusifer:org/name`` or ``lusifer:org/name@revision``, in the authors' format.

    Raises:
        ModelError: Nothing follows the colon.
    """

    settable = Source.settable | {"dtype", "max_tokens"}

    def __init__(self, model: str) -> None:
        scheme, _, place = model.partition(":")
        if not place:
            raise ModelError(f"{model}: write lusifer:DIRECTORY or lusifer:org/name, e.g. lusifer:Hieuman/LUSIFER.")
        directory = expanded(place)
        self._revision: str | None = None
        if directory.is_dir():
            place = str(directory.absolute())
        elif "@" in place:
            place, _, self._revision = place.partition("@")
        self._place = place
        super().__init__(f"{scheme}:{place}" + (f"@{self._revision}" if self._revision else ""))

    @property
    def name(self) -> str:
        """The directory's name, or the id on the hub."""
        return Path(self._place).name if Path(self._place).is_absolute() else self._place

    def fingerprint(self) -> str:
        """Digest of content or commits of release and bases. Raises AssetError or ModelError if a part is missing."""
        release = assets.resolve(self._place, self._revision)
        settings = read_settings(release)
        self._opened = release, {part: assets.resolve(Claim(settings[f"{part}_name_or_path"])) for part in _KINDS}
        return digest("lusifer", release.fingerprint, *[base.fingerprint for base in self._opened[1].values()])

    def confirm(self, fingerprint: str) -> None:
        """Refuse changed files of the release or its bases."""
        release, bases = self._opened
        for resolved in (release, *bases.values()):
            resolved.confirm()

    def prompts(self) -> Mapping[str, str]:
        """The prompts of the authors' evaluation."""
        return RELEASED

    def modules(self, spec: BackboneSpec, device: str) -> tuple[nn.Module, ...]:
        """The :class:`~xalign_models.training.lusifer.module.Lusifer`, the mean, and the projection's two layers.

        Raises:
            AssetError: The release, or configuration or tokenizer of a base checkpoint, cannot be loaded.
            ModelError: The files are not such a release, name code, or contain pickles.
        """
        with opened(self.model), quiet():
            release, bases = self._opened
            settings = read_settings(release)
            encoder = open_transformer(_Unfilled, bases[_LEARNER], str(spec.dtype))
            configs = {_LEARNER: encoder.model.config, _ENCODER: open_config(bases[_ENCODER])}
            for part, kind in _KINDS.items():
                if configs[part].model_type != kind:
                    raise ModelError(f"{self.model}: its {part} is a {configs[part].model_type}, not a {kind}.")
            file = _file(release, "model.safetensors")
            parts = _filled(file, configs, settings, getattr(torch, str(spec.dtype)), self.model)
            encoder.model = parts[_LEARNER]
            encoder.tokenizer.padding_side = "right"  # as in training
            with torch.random.fork_rng(devices=[]):  # the initial weights are replaced
                first = Lusifer(encoder, parts[_ENCODER], {}, tokens=settings["num_added_tokens"])
                modules: list[Any] = modules_of(first, projection=True)
            first.connector = parts["connector"]
            modules[2].linear, modules[3].linear = parts["projection"][0], parts["projection"][2]
            first.max_seq_length = min(filter(None, (spec.max_tokens or MAX_TOKENS, first.max_seq_length)))
            return tuple(module.to(device).eval().requires_grad_(False) for module in modules)


class _Unfilled(BareTransformer):
    """An encoder's tokenizer, and its model without weights, which come from the release."""

    def make_model(self, config: Any) -> Any:
        """The model with empty weights."""
        with torch.device("meta"), no_init_weights():
            return AutoModel.from_config(config, add_pooling_layer=False)


def read_settings(release: assets.ResolvedModel) -> dict[str, Any]:
    """The ``config.json`` of a release.

    Raises:
        ModelError: It is missing or unsupported, or the directory names code or has pickles.
        AssetError: It cannot be fetched.
    """
    policy.check(release.files)
    settings = read_json(_file(release, "config.json"))
    where = f"{release.path_or_id}: config.json"
    for key, choices in _LAYOUT.items():
        value = settings.get(key)
        if type(value) is not type(choices[0]) or value not in choices:
            known = " or ".join(map(repr, choices))
            raise ModelError(f"{where} has {value!r:.80} as {key}, not {known}; this LUSIFER is not supported.")
    for part in _KINDS:
        if not isinstance(settings.get(f"{part}_name_or_path"), str):
            raise ModelError(f"{where} has no {part}_name_or_path; this LUSIFER is not supported.")
        if not isinstance(settings.get(f"{part}_lora_name"), str | None):
            raise ModelError(f"{where} has a {part}_lora_name that is not a string.")
    rank, alpha = settings.get("loar_r"), settings.get("lora_alpha")  # the authors' spelling
    if type(rank) is not int or rank < 1 or not is_number(alpha):
        raise ModelError(f"{where} lacks the rank (loar_r) or the scale (lora_alpha) of LoRA.")
    return settings


def empty_parts(
    configs: Mapping[str, PreTrainedConfig], tokens: int, dtype: torch.dtype, device: str
) -> dict[str, Any]:
    """The modules with weights, by the authors' names, uninitialised; on the device ``meta`` they take no memory."""
    with torch.random.fork_rng(devices=[]), torch.device(device), no_init_weights():
        learner = AutoModel.from_config(configs[_LEARNER], dtype=dtype, add_pooling_layer=False)
        llm = AutoModel.from_config(configs[_ENCODER], dtype=dtype)
        llm.config.use_cache = False
        width, target = learner.config.hidden_size, llm.config.hidden_size
        connector = Connector(width, target, tokens=tokens).to(dtype)
        projection = nn.Sequential(nn.Linear(target, target), nn.ReLU(), nn.Linear(target, target)).to(dtype)
    return {_LEARNER: learner, _ENCODER: llm, "connector": connector, "projection": projection}


def tensors_of(
    parts: Mapping[str, nn.Module], settings: Mapping[str, Any], present: Collection[str]
) -> dict[tuple[str, str], dict[str, tuple[int, ...]]]:
    """The tensors of the file that form each weight, with their shapes.

    The weight of a layer with LoRA has three: ``base_layer.weight`` W (m, n), ``lora_A`` A (r, n) and ``lora_B`` B
    (m, r), which make ``W + alpha / r B A``.

    Args:
        parts: The modules, by name.
        settings: The release's configuration.
        present: Names of the file's tensors, which show the layers with LoRA.

    Returns:
        Tensors by part and name of the weight, in the order above.
    """
    rank = settings["loar_r"]
    peft = {part: "base_model.model." if settings.get(f"{part}_lora_name") else "" for part in _KINDS}
    prefixes = {
        (_LEARNER, ""): f"{_LEARNER}.{peft[_LEARNER]}",
        (_ENCODER, ""): f"{_ENCODER}.{peft[_ENCODER]}model.",
        ("connector", "inner."): "connection_module.ff.0.",
        ("connector", "outer."): "connection_module.ff.2.",
        ("connector", "token"): "connection_module.added_tokens",
        ("projection", ""): "output_projection.",
    }
    tensors = {}
    for part, module in parts.items():
        for name, weight in module.named_parameters():
            start = next(start for of, start in prefixes if of == part and name.startswith(start))
            shape = tuple(weight.shape) if weight.ndim > 1 or name != "token" else (1, *weight.shape)
            stem, _, kind = (prefixes[part, start] + name.removeprefix(start)).rpartition(".")
            if f"{stem}.base_layer.weight" not in present:
                tensors[part, name] = {f"{stem}.{kind}": shape}
                continue
            tensors[part, name] = {f"{stem}.base_layer.{kind}": shape}
            if kind == "weight":
                adapter = settings.get(f"{part}_lora_name")
                tensors[part, name] |= {
                    f"{stem}.lora_A.{adapter}.weight": (rank, shape[-1]),
                    f"{stem}.lora_B.{adapter}.weight": (shape[0], rank),
                }
    return tensors


def require_release(
    tensors: Mapping[tuple[str, str], Mapping[str, tuple[int, ...]]], header: Mapping[str, TensorHeader], model: str
) -> None:
    """Refuse a file with missing tensors, unknown tensors, or tensors of another shape.

    Raises:
        ModelError: The file does not fit; the message names the tensors.
    """
    wanted = {name: shape for made in tensors.values() for name, shape in made.items()}
    others = [(name, header[name].shape, wanted[name]) for name in wanted.keys() & header.keys()]
    info = {
        "missing_keys": wanted.keys() - header.keys(),
        "unexpected_keys": [name for name in header.keys() - wanted.keys() if not _UNREAD.fullmatch(name)],
        "mismatched_keys": [(name, there, shape) for name, there, shape in others if there != shape],
    }
    try:
        require_fit(info, model)
    except ModelError as error:
        raise ModelError(f"{error} Download config.json and model.safetensors of one revision again.") from None


def _filled(
    file: Path, configs: Mapping[str, PreTrainedConfig], settings: Mapping[str, Any], dtype: torch.dtype, model: str
) -> dict[str, Any]:
    """The modules with the file's weights; sizes are checked against the file before memory is allocated."""
    header, tokens = safetensors_header(file), settings["num_added_tokens"]
    tensors = tensors_of(empty_parts(configs, tokens, dtype, "meta"), settings, header)
    require_release(tensors, header, model)
    require_types(assets.Inspected(file.parent))
    parts = empty_parts(configs, tokens, dtype, "cpu")
    scale = settings["lora_alpha"] / settings["loar_r"]
    with safe_open(file, framework="pt") as stored, torch.no_grad():
        for (part, name), names in tensors.items():
            read: list[Tensor] = [stored.get_tensor(tensor) for tensor in names]
            weight = read[0]
            if len(read) > 1:
                weight = weight.float() + scale * (read[2].float() @ read[1].float())
            parameter = parts[part].get_parameter(name)
            parameter.copy_(weight.reshape(parameter.shape))
    return parts


def _file(release: assets.ResolvedModel, name: str) -> Path:
    if release.source == "hub":
        from huggingface_hub import hf_hub_download

        with opened(release.path_or_id):
            away = assets.hub_is_away()
            return Path(hf_hub_download(release.path_or_id, name, revision=release.revision, local_files_only=away))
    path = Path(release.path_or_id) / name
    if not path.is_file():
        raise ModelError(
            f"{release.path_or_id} has no {name}; a released LUSIFER is config.json and model.safetensors."
        )
    return path
