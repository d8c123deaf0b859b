"""LiRA, from a configuration to the directory of a trained model."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize

from xalign_models import assets
from xalign_models.backbones import loading, policy
from xalign_models.backbones.checkpoint import open_directory
from xalign_models.configuration import to_mapping
from xalign_models.corpora import ENGLISH
from xalign_models.errors import FileError, ModelError
from xalign_models.files import read_json
from xalign_models.generation.critics import MOST_TOKENS, Critic, parse_critic
from xalign_models.generation.translators import Translations, TranslatorSpec, make_translator
from xalign_models.generation.translators.base import Kind
from xalign_models.generation.translators.models import EXTRA
from xalign_models.models.metadata import published_datasets
from xalign_models.models.names import find_spec
from xalign_models.models.saving import save
from xalign_models.specs import BackboneSpec, Dtype, ModelSpec
from xalign_models.training.lira.arca import Arca, history
from xalign_models.training.lira.candidates import CandidateSource, at_k, translate
from xalign_models.training.lira.config import Ablation, ArcaConfig, Design, LasrConfig, LiraConfig, Paths
from xalign_models.training.lira.data import Split, foreign_texts, rated, searches
from xalign_models.training.lira.lasr import Lasr
from xalign_models.training.lira.module import LiRA, language_prompts, restore
from xalign_models.training.plan import FLOPS, TRAINED, Row, frozen_dtype, size_of, writing
from xalign_models.training.processes import is_main_process, is_sharded, process_count, share_of
from xalign_models.training.session import InOrder, Log, train_once, training_device
from xalign_models.training.trainer import Trainer, arguments

Stage = TypeVar("Stage", Arca, Lasr)

HINT = "lower the learning rates, or raise tau"
TOKENS = 40
"""Tokens of a text in a plan."""
CHECKPOINT_STEPS = 50
"""Optimisation steps between checkpoints; a killed training loses at most this many."""


def plan(config: LiraConfig, texts: int) -> list[Row]:
    """Texts or steps, time and memory of translators, critic and both stages. Raises AssetError if a model is missing.

    Args:
        config: The configuration.
        texts: Number of distinct texts to translate; each has :data:`TOKENS` tokens.
    """
    design, arca, lasr, rows = config.design, config.arca, config.lasr, list[Row]()
    for spec in map(TranslatorSpec.parse, design.translators):
        if spec.kind in (Kind.LLM, Kind.MT) and not spec.model.startswith("openai:"):
            tokens = 2 * TOKENS + int(dict(spec.options).get("extra", EXTRA))
            rows.append(writing(str(spec), spec.model, texts, tokens))
    if design.critic and not (model := parse_critic(design.critic)[1]).startswith("openai:"):
        rows.append(writing(design.critic, model, texts * max(1, len(design.translators)), MOST_TOKENS))
    encoder = size_of(find_spec(design.multilingual).backbone.model, encoder=True)
    reader = find_spec(design.english).backbone
    english, width = size_of(reader.model), 2 if frozen_dtype(reader, design.dtype) is Dtype.BFLOAT16 else 4
    read, weights = arca.batch_size * TOKENS, 4 * encoder.parameters + width * english.parameters
    steps = arca.epochs * -(-len(foreign_texts(arca).train) // arca.batch_size)
    trained = TRAINED * (encoder.parameters - encoder.table) if arca.encoder_rate else 0
    memory = weights + trained + 2 * encoder.activations(read)
    steps = steps if arca.max_steps is None else arca.max_steps
    rows.append(Row.of("stage arca", steps, encoder.flops(read, 3) / FLOPS, memory))
    pairs, queries = len(rated(lasr).train), len(searches(lasr).train)
    steps = lasr.epochs * max(-(-pairs // lasr.ranking_batch), -(-queries // lasr.retrieval_batch))
    fused = 2 * (lasr.ranking_batch + lasr.retrieval_batch) * 2 * design.bins
    streams = (encoder.flops(texts * TOKENS) + english.flops(texts * TOKENS)) / FLOPS
    steps = steps if lasr.max_steps is None else lasr.max_steps
    seconds = english.flops(fused, 2) / FLOPS + streams / max(1, steps)
    rows.append(Row.of("stage lasr", steps, seconds, weights + width / 2 * english.activations(fused)))
    return rows


def untrained(config: LiraConfig, output: Path) -> ModelSpec:
    """Write the untrained model, the baseline of the trained ones."""
    fields = {"stage": "untrained", "design": to_mapping(config.design), "seed": config.arca.seed}
    identity = _identity(fields, config.design)
    spec = _spec(names(config.design), output, "")
    datasets = published_datasets(config.design.multilingual, config.design.english)
    train_once(spec, identity, output, datasets, lambda: _model(LiRA.begin(config.design, config.arca.seed)), None)
    return spec


def train_arca(config: LiraConfig, output: Path, device: str | None = None) -> ModelSpec:
    """Train stage 1 from the two checkpoints; missing translations are made first.

    Returns:
        The spec of the trained model, whose fusion is still untrained.

    Raises:
        ModelError: The checkpoints in the training folder belong to another training, or the loss is not finite.
        DataError: A corpus is missing.
    """
    arca = config.arca
    text = foreign_texts(arca)

    def fit(model: SentenceTransformer, folder: Path) -> Log:
        def objective(module: LiRA) -> Arca:
            own, place = module.source, str(module.network.device)
            extra = [Translations(make_translator(name, place)) for name in arca.extra]  # for the training text alone
            source = CandidateSource((*own.translations, *extra), own.scores, online=process_count() == 1)
            translate([*text.train, *text.held_out], source)
            parts = (text.train, text.held_out)
            train, held_out = (source([row.text for row in part], [row.lang for row in part]) for part in parts)
            return Arca(module, train, held_out, arca)

        rates = {"actor": arca.actor_rate, "encoder": arca.encoder_rate, "adaptor": arca.adaptor_rate}
        log, _ = _fit(model, folder, device, arca, {"batch_size": len(text.train)}, objective, rates)
        _unshard(model[0], begin)
        model[0].history = history(log)
        return log

    fields = {"stage": "arca", "design": to_mapping(config.design), "arca": to_mapping(arca)}
    identity = _identity(fields, config.design, text) | {"candidates": _candidates(config.design, arca.extra, device)}
    begin = partial(LiRA.begin, config.design, arca.seed)
    datasets = text.datasets | published_datasets(config.design.multilingual, config.design.english)
    spec = _spec(names(config.design), output, config.arca_label)
    train_once(spec, identity, output, datasets, lambda: _model(begin()), None if arca.max_steps == 0 else fit)
    return spec


def train_lasr(config: LiraConfig, source: Path, output: Path, device: str | None = None) -> ModelSpec:
    """Train stage 2 from the directory of stage 1, with its design except for the streams that the fusion reads.

    Raises:
        ModelError: ``source`` is not a LiRA, the checkpoints in the training folder belong to another training, or the
            loss is not finite.
        DataError: A corpus is missing.
    """
    lasr = config.lasr
    ranking, retrieval = rated(lasr), searches(lasr)
    label, backbones = lasr_name(config, source)

    def begin() -> LiRA:
        module = open_lira(source)
        module.network.design = dataclasses.replace(module.design, paths=config.design.paths)
        return module

    def fit(model: SentenceTransformer, folder: Path) -> Log:
        def objective(module: LiRA) -> Lasr:
            pairs = (row for split in (ranking, retrieval) for row in (*split.train, *split.held_out))
            translate([text for row in pairs for text in row[:2] if text.lang != ENGLISH], module.source)
            return Lasr(module, ranking, retrieval, lasr)

        rows = {"ranking_batch": len(ranking.train), "retrieval_batch": len(retrieval.train)}
        log, trained = _fit(model, folder, device, lasr, rows, objective, {"gate": lasr.gate_rate})
        trained.finish()
        _unshard(model[0], begin)
        return log

    start_fingerprint = assets.directory_fingerprint(source)
    fields = {"stage": "lasr", "from": start_fingerprint, "paths": str(config.design.paths), "lasr": to_mapping(lasr)}
    identity = _identity(fields, None, ranking, retrieval)
    datasets = {*ranking.datasets, *retrieval.datasets, *_card(source)["training_datasets"]}
    spec = _spec(backbones, output, label)
    train_once(spec, identity, output, datasets, lambda: _model(begin()), None if lasr.max_steps == 0 else fit)
    return spec


def open_lira(directory: Path) -> LiRA:
    """The module of a saved LiRA.

    Raises:
        ModelError: The directory holds no LiRA.
    """
    files = assets.Inspected(directory)
    first = open_directory(files, "cpu")[0] if policy.has_own_modules(files) else None
    if not isinstance(first, LiRA):
        raise _no_lira(directory)
    return first


def variant(
    source: Path,
    output: Path,
    label: str,
    *,
    pass_at: int | None = None,
    online: bool | None = None,
    translators: Sequence[str] | None = None,
    paths: str | None = None,
) -> ModelSpec:
    """Write a trained LiRA that translates or fuses differently: the same weights under another name.

    Args:
        source: Directory of a LiRA.
        output: Directory to write to.
        label: Suffix of the name, e.g. ``pass1``.
        pass_at: Number of candidates from language models; other translators fill the rest.
        online: Whether to translate texts that the journals lack, or to fail.
        translators: Translators in place of the model's own.
        paths: ``both``, ``multilingual`` or ``english``.

    Raises:
        ModelError: ``source`` is not a LiRA, or has too few language models.
    """
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
    save(model, output, training=training)
    return spec


def _no_lira(directory: Path) -> ModelError:
    return ModelError(f"{directory} is not a LiRA; train one with `xalign train lira --stage arca`.")


def _card(directory: Path) -> dict[str, Any]:
    try:
        card = read_json(directory / assets.CARD)
        return {**card, "training": {**card["training"]}}
    except (FileError, KeyError, TypeError):
        raise _no_lira(directory) from None


def lasr_name(config: LiraConfig, source: Path) -> tuple[str, str]:
    """Label, with the ablations of both stages, and backbones of the model that stage 2 trains from ``source``.

    Raises:
        ModelError: ``source`` is not a LiRA, or the ablation belongs to stage 1.
    """
    backbone = ModelSpec.from_dict(_card(source)["spec"]).backbone
    earlier = (backbone.tuned or "").partition("arca")[2]
    label = config.label.removeprefix("lira")
    if label != earlier and config.ablation not in (None, Ablation.QUEUE, Ablation.MULTILINGUAL):
        raise ModelError(
            f"--ablate {config.ablation} concerns stage arca: train that stage with it, then pass its directory with "
            "--from."
        )
    return f"lira{earlier}{label if label != earlier else ''}", backbone.name


def names(design: Design) -> str:
    """Names of the two backbones, as part of a model's name."""
    return "__".join(find_spec(name).backbone.name for name in (design.multilingual, design.english))


def _spec(names: str, output: Path, label: str) -> ModelSpec:
    return ModelSpec(BackboneSpec(names, str(output), prompts=language_prompts(), tuned=label))


def _fit(
    model: SentenceTransformer,
    folder: Path,
    device: str | None,
    config: ArcaConfig | LasrConfig,
    rows: Mapping[str, int],
    make: Callable[[LiRA], Stage],
    rates: Mapping[str, float],
) -> tuple[Log, Stage]:
    """Train a stage in place; each part's gradient is clipped separately, as if it had its own optimiser.

    ``rows`` are the numbers of rows of each sort, by the field of their batch size; ``make`` makes the objective of the
    model's first module, which is on the device; ``rates`` are the learning rates of individual parts.
    """
    stage = "arca" if isinstance(config, ArcaConfig) else "lasr"
    sorts = [(count, share_of(getattr(config, name), f"{stage}.{name}")) for name, count in rows.items()]
    args = arguments(
        folder,
        training_device(device),
        epochs=config.epochs,
        max_steps=config.max_steps,
        per_device_train_batch_size=sum(size for _, size in sorts),
        batch_sampler=partial(InOrder, sorts=sorts),
        learning_rate=getattr(config, "rate", 0.0),
        lr_scheduler_type="constant",
        max_grad_norm=config.clip,
        seed=config.seed,
        save_steps=CHECKPOINT_STEPS,
    )
    objective = make(model.to(args.device)[0])
    options = {"hint": HINT, "parts": objective.parts, "rates": rates, "clip_parts": True}
    trainer = Trainer.of(objective, model, {"row": range(sum(rows.values()))}, args=args, **options)
    return trainer.run(), objective


def _unshard(module: LiRA, begin: Callable[[], LiRA]) -> None:
    """If weights are sharded, give the first process' module the whole trained weights in a new network."""
    if is_sharded(module):
        weights, lora = module.trained_weights(), module.network.lora
        if is_main_process():
            module.network = begin().network
            restore(module.network, weights, lora)


def _model(module: LiRA) -> SentenceTransformer:
    return SentenceTransformer(
        modules=[module, Normalize()],
        device="cpu",
        prompts=dict(language_prompts()),
        default_prompt_name="default",
        similarity_fn_name="cosine",
    )


def _candidates(design: Design, extra: Sequence[str], device: str | None) -> dict[str, str]:
    """Identities of translators and critic, by name: their weights or their text."""
    device = training_device(device)
    named = {name: make_translator(name, device).identity for name in (*design.translators, *extra)}
    return named | ({design.critic: Critic(design.critic, device).identity} if design.critic else {})


def _identity(fields: Mapping[str, Any], design: Design | None, *texts: Split) -> dict[str, Any]:
    """The fields that determine a training, as JSON preserves them."""
    parts = {} if design is None else {"multilingual": design.multilingual, "english": design.english}
    specs = {part: find_spec(name).backbone for part, name in parts.items()}
    backbones = {part: loading.open_backbone(spec).fingerprint for part, spec in specs.items()}
    return {**fields, "backbones": backbones, "text": {k: v for split in texts for k, v in split.fingerprints.items()}}
