"""Finds the spec of a model that the user names, without opening weights, text or network."""

import dataclasses
import os
import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xalign_models import assets
from xalign_models.assets import Inspected
from xalign_models.backbones.loading import Backbone
from xalign_models.backbones.sources import find_source
from xalign_models.claims import Claim, named
from xalign_models.errors import ModelError
from xalign_models.models import catalogue
from xalign_models.models.card import Card, read_card
from xalign_models.paths import cache_dir
from xalign_models.plugins import BACKBONES
from xalign_models.specs import BackboneSpec, ModelSpec, digest

_NAME = re.compile(r"[\w.+-]+/[\w.+-]+")


@dataclass(frozen=True)
class Located:
    """A model named by the user.

    Attributes:
        spec: The backbone and the alignment; None for a saved model without a card.
        card: The card of the directory, if the model is one.
    """

    spec: ModelSpec | None
    card: Card | None = None

    @property
    def saved(self) -> Card | None:
        """The card of a directory whose own modules are the model; None for other models."""
        return self.card if self.card is not None and self.card.saved else None

    @property
    def files(self) -> Inspected | None:
        """The backbone's files if they were read to locate a model that is not saved; they are not opened again."""
        if self.card is None or self.spec is None:
            return None
        return self.card.files if self.card.directory.samefile(assets.place(self.spec.backbone.model)) else None

    def open_backbone(self) -> Backbone:
        """The backbone of a model that is not saved."""
        assert self.spec is not None
        return Backbone(self.spec.backbone, self.files)

    @property
    def namespace(self) -> str:
        """Fingerprint of the raw vectors, equal for equal backbones. Raises XAlignError without weights."""
        if not self.saved:
            return self.open_backbone().fingerprint
        from xalign_models.backbones.pointer import pointed  # imports torch, which names do not need

        base = pointed(self.saved.files)
        return Backbone(base).fingerprint if base else self.saved.with_code(self.saved.backbone)

    @property
    def name(self) -> str:
        """The model's name in results.

        A directory never gets the name of a registered model, because its card could claim anything. The exception is
        a directory in the cache to which `xalign train` wrote the model.
        """
        if (card := self.saved) is None:
            assert self.spec is not None
            return self.spec.name
        short = card.content[:6]
        claimed = str(card.claims.get("name", ""))
        if not is_name(claimed):
            return f"local/{slug(card.directory.resolve().name)}-{short}"
        return f"{claimed}__{short}" if catalogue.find_registered(claimed) else claimed


def list_models() -> list[str]:
    """Names of registered models, models trained here and models that come with xalign, sorted.

    Examples:
        >>> import xalign_models
        >>> "xalign/lsar__all-MiniLM-L6-v2" in xalign_models.list_models()
        True
    """
    return sorted(known_specs())


def locate(model: str | Path, **overrides: Any) -> Located:
    """Locate a model by name, directory or hub id, and read the card of a directory.

    Args:
        model: ``xalign/lsar__multilingual-e5-small-q4``, the name of a backbone, a directory, or ``org/name``.
        **overrides: Fields of the backbone's spec that replace its own, e.g. ``layer=6``; None leaves a field alone.
            ``trust_remote_code`` names the models whose own code may run, each as ``MODEL`` or ``MODEL@COMMIT``.

    Raises:
        ModelError: The model is unknown, or a saved one got overrides.
    """
    if not isinstance(model, str | os.PathLike):
        raise ModelError(
            f"A model is given by its name, directory or hub id here, not by a value of type {type(model).__name__}."
        )
    model = os.fspath(model)
    changes = {field: value for field, value in overrides.items() if value is not None}
    changes |= trust_in(model, changes.pop("trust_remote_code", ()))
    located = _located(model)
    if not changes:
        return located
    known = [field.name for field in dataclasses.fields(BackboneSpec) if field.name != "name"]  # derived from others
    if unknown := sorted(changes.keys() - {*known}):
        raise ModelError(f"A backbone has no {', '.join(unknown)}; its fields are {', '.join(known)}.")
    if isinstance(prompts := changes.get("prompts"), Mapping):
        changes["prompts"] = tuple(sorted(prompts.items()))
    if located.saved or located.spec is None:
        raise ModelError(f"{model} is a saved model: its {', '.join(changes)} cannot be changed; fit it again.")
    # some fields have other words than their names
    words = {"backend": "", "precision": "", "truncate_dim": "dim", "vectors": "vectors-"}
    parts = {field: digest(value)[:6] if field == "prompts" else value for field, value in sorted(changes.items())}
    suffix = slug("-".join(f"{words.get(field, field)}{value}".replace("_", "") for field, value in parts.items()))
    spec = located.spec
    backbone = dataclasses.replace(spec.backbone, name=f"{spec.backbone.name}-{suffix}", **changes)
    return dataclasses.replace(located, spec=dataclasses.replace(spec, backbone=backbone))


def locate_all(models: Iterable[str], **overrides: Any) -> dict[str, Located]:
    """Locate the models of a run; arguments are those of :func:`locate`.

    Raises:
        ModelError: As for :func:`locate`, or two models have the same name in results and would share a board row.
    """
    located = {model: locate(model, **overrides) for model in models}
    known: dict[str, tuple[str, Located]] = {}
    for model, place in located.items():
        first, other = known.setdefault(place.name, (model, place))
        if len({(one.spec, one.saved and one.saved.content) for one in (other, place)}) > 1:
            raise ModelError(
                f"{first} and {model} have the same name in results, {place.name}. Rename one of them, or fit one with "
                "another --label."
            )
    return located


def trust_in(model: str, trusted: str | bool | Collection[str]) -> dict[str, Any]:
    """Fields of a backbone's spec if ``trusted`` has the model, as ``MODEL`` or ``MODEL@COMMIT``; empty otherwise.

    Raises:
        ModelError: ``trusted`` does not list models by name, or the text after ``@`` is not a whole commit.
    """
    if isinstance(trusted, bool):
        raise ModelError("--trust-remote-code trusts models by name: give MODEL or MODEL@COMMIT.")
    for text in (trusted,) if isinstance(trusted, str) else trusted:
        name, _, commit = text.rpartition("@")
        if Path(text) == Path(model):
            return {"trust_remote_code": True}
        if name and Path(name) == Path(model):
            if not re.fullmatch(r"[0-9a-f]{40}", commit):
                raise ModelError(f"--trust-remote-code {text}: a commit has 40 hexadecimal digits.")
            return {"trust_remote_code": True, "revision": commit}
    return {}


def _located(model: str) -> Located:
    if not model:
        raise ModelError("The name of the model is empty.")
    if model in BACKBONES:
        return Located(ModelSpec(BACKBONES[model]))
    if folder := assets.packaged(model):
        return _in_directory(folder)
    if isinstance(model, Claim) and (known := _known(model)):  # even if a folder has this name
        return known
    if source := find_source(model):
        return Located(ModelSpec(BackboneSpec(slug(source.name), source.model, mteb_name=source.mteb_name)))
    model = named(model) if isinstance(model, Claim) else model
    if Path(model).is_dir():
        return _in_directory(Path(model))
    is_hub_id = "/" in model and not model.startswith("xalign/") and "__" not in model
    if is_hub_id or model in {asset.name for asset in assets.list_assets()}:
        return Located(ModelSpec(BackboneSpec(slug(model), model)))
    return _trained(model) or Located(catalogue.get_spec(model))


def _known(name: str) -> Located | None:
    """A model that was trained here, or a registered one."""
    return _trained(name) or ((spec := catalogue.find_registered(name)) and Located(spec)) or None


def _trained(name: str) -> Located | None:
    if is_name(f"xalign/{name.removeprefix('xalign/')}") and (trained := directory_of(name)).is_dir():
        located = _in_directory(trained)
        if located.card is not None and located.card.trained:
            return located
    return None


def _in_directory(directory: Path) -> Located:
    card = read_card(directory)
    if card.saved:
        return Located(card.spec, card)
    spec = card.spec if card.trained else None  # otherwise the files are the model, regardless of the card
    spec = spec or ModelSpec(BackboneSpec(slug(directory.resolve().name), str(directory.resolve())))
    if not is_name(spec.name):
        raise ModelError(f"{directory}: {assets.CARD} contains an invalid name ({spec.name[:80]!r}); remove it.")
    own = card.trained and directory.resolve() == directory_of(spec.name).resolve()  # where `xalign train` puts it
    if catalogue.find_registered(spec.name) and not own:  # a registered name is reserved
        backbone = dataclasses.replace(spec.backbone, name=f"{spec.backbone.name}-{card.content[:6]}")
        spec = dataclasses.replace(spec, backbone=backbone)
    return Located(spec, card)


def find_spec(model: str | Path, **overrides: Any) -> ModelSpec:
    """The spec of a registered name, of a directory that ``save`` wrote, or of any other backbone, unaligned.

    Arguments and errors are those of :func:`locate`.
    """
    located = locate(model, **overrides)
    if located.spec is not None:
        return located.spec
    directory = Path(model).resolve()  # loading the backbone refuses a saved model without a card
    return ModelSpec(BackboneSpec(slug(directory.name), str(directory)))


def directory_of(name: str) -> Path:
    """The default directory of a trained model of this name."""
    return cache_dir() / "models" / name.removeprefix("xalign/")


def trained_specs() -> dict[str, ModelSpec]:
    """The trained models in their default directories and those that come with xalign, by name."""
    folders = [*sorted(directory_of("").glob("*")), *sorted(assets.PACKAGED.iterdir())]
    cards = []
    for folder in filter(Path.is_dir, folders):
        with suppress(ModelError):  # a damaged model must not hide the others
            cards.append(read_card(folder))
    specs = {f"xalign/{card.directory.name}": card.spec for card in cards if card.trained}
    return {name: spec for name, spec in specs.items() if spec is not None and spec.name == name}


def known_specs() -> dict[str, ModelSpec]:
    """The specs of registered and trained models, by name."""
    return {**catalogue.specs(), **trained_specs()}


def label_of(method: str, params: Mapping[str, Any]) -> str:
    """The first part of a model's name unless the user gives one: the method and its parameters' values."""
    return slug("-".join([method, *map(str, params.values())]))


def is_name(text: str) -> bool:
    """Whether a text is a valid name of a model, ``org/model``, which becomes a path below the results."""
    return _NAME.fullmatch(text) is not None and not any(part in {".", ".."} for part in text.split("/"))


def slug(text: str) -> str:
    """A text as a valid part of a model's name: letters, digits, ``.``, ``-`` and single ``_``."""
    return re.sub(r"__+", "_", re.sub(r"[^\w.-]+", "-", text).strip("-")) or "model"
