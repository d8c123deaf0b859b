"""From a configuration to the directory of a trained LiRA."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from xalign_models import assets, models
from xalign_models.backbones import loading
from xalign_models.configuration import to_mapping
from xalign_models.errors import FileError, ModelError
from xalign_models.files import read_json
from xalign_models.specs import BackboneSpec, ModelSpec
from xalign_models.training.lira.config import Ablation, ArcaConfig, Design, LasrConfig, LiraConfig
from xalign_models.training.lira.data import Split, foreign_texts, rated, searches
from xalign_models.training.processes import process_count
from xalign_models.training.session import train_once

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from xalign_models.training.lira.candidates import CandidateSource
    from xalign_models.training.lira.module import LiRA
    from xalign_models.training.objective import Objective

HINT = "lower the learning rates, or raise tau"
CHECKPOINT_STEPS = 50
"""Optimisation steps from one checkpoint to the next: the most that a killed training has to repeat."""


def untrained(config: LiraConfig, output: Path, device: str | None = None) -> ModelSpec:
    """Write the untrained model, the baseline of the trained ones."""
    identity = _identity({"stage": "untrained", "design": to_mapping(config.design)}, config.design)
    return _train(names(config.design), output, "", identity, (), lambda: _begin(config), None)


def train_arca(config: LiraConfig, output: Path, device: str | None = None) -> ModelSpec:
    """Train stage 1, from the two checkpoints; missing translations are made first.

    Args:
        config: Model and hyperparameters.
        output: Directory; an existing one is replaced at the end.
        device: cpu, cuda or mps; by default the best available.

    Returns:
        The spec of the trained model, whose fusion is still untrained.

    Raises:
        ModelError: The checkpoints in the training folder belong to another training, or the loss is not finite.
        DataError: A corpus is missing.
    """
    arca = config.arca
    text = foreign_texts(arca.text, arca.languages, arca.samples, arca.held_out)

    def fit(model: SentenceTransformer, folder: Path) -> list[dict[str, Any]]:
        from xalign_models.training.lira.arca import Arca, Examples, history

        args, module = _arguments(model, arca, "arca", folder, device, ("batch_size",))
        source = _with_extra(module, arca.extra)
        train, held_out = (Examples.of(part, source) for part in (text.train, text.held_out))
        objective = Arca(module, train, held_out, arca)
        rates = {"actor": arca.actor_rate, "encoder": arca.encoder_rate, "adaptor": arca.adaptor_rate}
        log = _learn(model, objective, objective.parts, rates, len(text.train), args, folder)
        module.history = history(log)
        return log

    fields = {"stage": "arca", "design": to_mapping(config.design), "arca": to_mapping(arca)}
    identity = _identity(fields, config.design, text)
    return _train(
        names(config.design),
        output,
        config.arca_label,
        identity,
        text.datasets,
        lambda: _begin(config),
        None if arca.max_steps == 0 else fit,
    )


def train_lasr(config: LiraConfig, source: Path, output: Path, device: str | None = None) -> ModelSpec:
    """Train stage 2, from the directory of stage 1.

    The design is stage 1's, but for the streams that the fusion reads.

    Args:
        config: Hyperparameters.
        source: What :func:`train_arca` wrote.
        output: Directory; an existing one is replaced at the end.
        device: cpu, cuda or mps; by default the best available.

    Raises:
        ModelError: ``source`` is no LiRA, the checkpoints in the training folder belong to another training, or the
            loss is not finite.
        DataError: A corpus is missing.
    """
    lasr = config.lasr
    ranking = rated(lasr.ranking, lasr.languages, lasr.ranking_samples, lasr.held_out, lasr.seed)
    retrieval = searches(lasr.retrieval, lasr.languages, lasr.samples, lasr.held_out, lasr.seed)
    label, backbones = lasr_name(config, source)
    card = _card(source)

    def begin() -> LiRA:
        module = open_lira(source)
        module.network.design = dataclasses.replace(module.design, paths=config.design.paths)
        return module

    def fit(model: SentenceTransformer, folder: Path) -> list[dict[str, Any]]:
        from xalign_models.training.lira.lasr import Lasr
        from xalign_models.training.sampling import InOrder

        args, module = _arguments(model, lasr, "lasr", folder, device, ("ranking_batch", "retrieval_batch"))
        sorts = [
            (len(ranking.train), lasr.ranking_batch // process_count()),
            (len(retrieval.train), lasr.retrieval_batch // process_count()),
        ]
        args.batch_sampler = partial(InOrder, sorts=sorts)
        objective = Lasr(module, ranking, retrieval, lasr)
        log = _learn(
            model, objective, objective.parts, {"gate": lasr.gate_rate}, sum(rows for rows, _ in sorts), args, folder
        )
        objective.finish()
        return log

    start_fingerprint = assets.directory_fingerprint(source)
    fields = {"stage": "lasr", "from": start_fingerprint, "paths": str(config.design.paths), "lasr": to_mapping(lasr)}
    identity = _identity(fields, None, ranking, retrieval)
    datasets = {*ranking.datasets, *retrieval.datasets, *card["training_datasets"]}
    return _train(backbones, output, label, identity, datasets, begin, None if lasr.max_steps == 0 else fit)


def open_lira(directory: Path) -> LiRA:
    """The module of a saved LiRA.

    Raises:
        ModelError: The directory holds no LiRA.
    """
    from xalign_models.training.lira.module import LiRA

    if not loading.has_own_modules(directory):
        raise ModelError(f"{directory} is no LiRA; train one with `xalign train lira --stage arca`.")
    first = loading.open_directory(directory, "cpu")[0]
    if not isinstance(first, LiRA):
        raise ModelError(f"{directory} is no LiRA; train one with `xalign train lira --stage arca`.")
    return first


def variant(source: Path, output: Path, label: str, *, pass_at: int | None = None, online: bool | None = None,
            translators: Sequence[str] | None = None, paths: str | None = None) -> ModelSpec:  # fmt: skip
    """Write a trained LiRA that translates or fuses differently: the same weights under another name.

    Args:
        source: Directory of a LiRA.
        output: Directory to write to.
        label: Added to the name, e.g. ``pass1``.
        pass_at: Candidates by language models; the rest by others.
        online: Whether to translate what the journals lack, or to fail.
        translators: Translators instead of its own.
        paths: ``both``, ``multilingual`` or ``english``.

    Raises:
        ModelError: ``source`` is no LiRA, or there are fewer language models.
    """
    from xalign_models.generation.translators import TranslatorSpec
    from xalign_models.training.lira.candidates import at_k
    from xalign_models.training.lira.config import Paths

    module, card = open_lira(source), _card(source)
    design = module.design
    if translators is not None:
        design = dataclasses.replace(design, translators=tuple(translators), slots=None)
    if paths is not None:
        design = dataclasses.replace(design, paths=Paths(paths))
    module.network.design = design
    module.pass_at = module.pass_at if pass_at is None else pass_at
    at_k([TranslatorSpec.parse(name) for name in design.translators], design.slots, module.pass_at)
    module.online = module.online if online is None else online
    spec = ModelSpec.from_dict(card["spec"])
    tuned = f"{spec.backbone.tuned or 'plain'}-{label}"
    spec = dataclasses.replace(spec, backbone=dataclasses.replace(spec.backbone, tuned=tuned))
    model = _model(module)
    model.xalign_spec = spec
    training = {**card["training"], "variant": {"label": label, "pass_at": pass_at, "online": module.online}}
    models.save(model, output, training=training)
    return spec


def _card(directory: Path) -> dict[str, Any]:
    try:
        card = read_json(directory / assets.CARD)
        return {**card, "training": {**card["training"]}}
    except (FileError, KeyError, TypeError):
        raise ModelError(f"{directory} is no LiRA; train one with `xalign train lira --stage arca`.") from None


def lasr_name(config: LiraConfig, source: Path) -> tuple[str, str]:
    """Label, with the ablations of both stages, and backbones of the model that stage 2 makes of ``source``.

    Raises:
        ModelError: ``source`` is no LiRA, or the ablation had to be chosen in stage 1.
    """
    backbone = ModelSpec.from_dict(_card(source)["spec"]).backbone
    earlier = (backbone.tuned or "").partition("arca")[2]
    label = config.label.removeprefix("lira")
    if label != earlier and config.ablation not in (None, Ablation.QUEUE, Ablation.MULTILINGUAL):
        raise ModelError(
            f"--ablate {config.ablation}: stage arca has settled that; train it with --ablate {config.ablation} and "
            "name its directory by --from."
        )
    return f"lira{earlier}{label if label != earlier else ''}", backbone.name


def names(design: Design) -> str:
    """Names of the two backbones, as part of a model's name."""
    return "__".join(models.find_spec(name).backbone.name for name in (design.multilingual, design.english))


def _train(
    names: str,
    output: Path,
    label: str,
    identity: Mapping[str, Any],
    datasets: Sequence[str] | set[str] | frozenset[str],
    begin: Callable[[], LiRA],
    fit: Callable[[SentenceTransformer, Path], list[dict[str, Any]]] | None,
) -> ModelSpec:
    from xalign_models.training.lira.module import language_prompts

    spec = ModelSpec(BackboneSpec(names, str(output), prompts=language_prompts(), tuned=label))
    train_once(spec, identity, output, datasets, lambda: _model(begin()), fit)
    return spec


def _arguments(
    model: SentenceTransformer,
    config: ArcaConfig | LasrConfig,
    stage: str,
    folder: Path,
    device: str | None,
    batches: Sequence[str],
) -> tuple[Any, LiRA]:
    """The trainer's arguments without the learning rates, and the module on their device."""
    from xalign_models.training.sampling import InOrder
    from xalign_models.training.trainer import arguments

    sizes = {name: getattr(config, name) for name in batches}
    for name, size in sizes.items():
        if size % process_count():
            raise ModelError(
                f"{stage}.{name} {size} cannot be shared by {process_count()} processes; launch a number that divides "
                "it."
            )
    steps = {"num_train_epochs": config.epochs} if config.max_steps is None else {"max_steps": config.max_steps}
    args = arguments(
        folder,
        loading.pick_device(device),
        per_device_train_batch_size=sum(sizes.values()) // process_count(),
        batch_sampler=InOrder,
        learning_rate=getattr(config, "rate", 0.0),
        lr_scheduler_type="constant",
        max_grad_norm=config.clip,
        seed=config.seed,
        save_steps=CHECKPOINT_STEPS,
        **steps,
    )
    return args, cast("LiRA", model.to(args.device)[0])


def _learn(
    model: SentenceTransformer,
    objective: Objective,
    parts: Mapping[str, Any],
    rates: Mapping[str, float],
    rows: int,
    args: Any,
    folder: Path,
) -> list[dict[str, Any]]:
    """Run the trainer; each part's gradient is clipped separately, as if it had its own optimiser."""
    from xalign_models.training.trainer import Trainer

    trainer = Trainer.of(
        objective,
        model,
        {"row": range(rows)},
        folder=folder,
        hint=HINT,
        parts=parts,
        rates=rates,
        clip_parts=True,
        args=args,
    )
    return trainer.run()


def _model(module: LiRA) -> SentenceTransformer:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize

    from xalign_models.training.lira.module import language_prompts

    return SentenceTransformer(
        modules=[module, Normalize()],
        device="cpu",
        prompts=dict(language_prompts()),
        default_prompt_name="default",
        similarity_fn_name="cosine",
    )


def _begin(config: LiraConfig) -> LiRA:
    from xalign_models.training.lira.module import LiRA

    return LiRA.begin(config.design, config.arca.seed)


def _with_extra(module: LiRA, extra: Sequence[str]) -> CandidateSource:
    """The module's own candidates and those for the training text alone.

    Missing translations are made only in a single process; several would each make all of them.
    """
    from xalign_models.generation.translators import Translations, make_translator
    from xalign_models.training.lira.candidates import CandidateSource

    source, device = module.source, str(module.network.device)
    additional = [Translations(make_translator(name, device)) for name in extra]
    return CandidateSource((*source.translations, *additional), source.scores, online=process_count() == 1)


def _identity(fields: Mapping[str, Any], design: Design | None, *texts: Split) -> dict[str, Any]:
    """What determines a training, as it comes back from JSON."""
    backbones = {}
    if design is not None:
        for part in ("multilingual", "english"):
            spec = models.find_spec(getattr(design, part)).backbone
            backbones[part] = loading.open_backbone(spec).fingerprint
    return {**fields, "backbones": backbones, "text": {k: v for split in texts for k, v in split.fingerprints.items()}}
