"""Few-shot contrastive alignment: LoRA matrices on every linear layer, from a backbone's spec to the trained model."""

import dataclasses
from functools import partial
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.sampler import NoDuplicatesBatchSampler

from xalign_models import corpora
from xalign_models.backbones import adapters, loading
from xalign_models.configuration import to_mapping
from xalign_models.corpora import Corpus
from xalign_models.errors import DataError, ModelError
from xalign_models.languages import TaggedText
from xalign_models.models import building
from xalign_models.specs import Dtype, ModelSpec, digest
from xalign_models.training import objective
from xalign_models.training.contrastive.config import ContrastiveConfig
from xalign_models.training.objective import MEASURED, Retrieval
from xalign_models.training.plan import frozen_dtype
from xalign_models.training.processes import share_of
from xalign_models.training.session import InTurns, Log, check_batches, train_once, training_device
from xalign_models.training.trainer import Trainer, arguments

Pairs = list[tuple[TaggedText, TaggedText]]


def training_pairs(corpus: Corpus, config: ContrastiveConfig) -> tuple[Pairs, Pairs]:
    """Pairs to train on and pairs to hold out.

    Training pairs are (anchor, positive) of the first rows, for each language: pivot to language, then language to
    pivot. Held-out pairs are (text, pivot) of the following rows, as many per language as the corpus allows, without
    rows that share a text with a training row of any language.

    Raises:
        DataError: The corpus has no translations, or too few rows.
        LanguageError: The corpus does not have the language.
    """
    pairs, later, held_out = Pairs(), list[Pairs](), Pairs()
    for language in config.languages:
        sides = zip(*corpus.pair(language, config.pivot), strict=True)
        rows = [(TaggedText(a, language), TaggedText(b, config.pivot)) for a, b in sides if a.strip() and b.strip()]
        if len(rows) < config.samples:
            raise DataError(
                f"samples {config.samples}: corpus {corpus.name!r} has {len(rows)} rows of {language} with "
                f"{config.pivot}; ask for at most that many."
            )
        subset = rows[: config.samples]
        pairs += [(pivot, text) for text, pivot in subset] + subset
        later.append(rows[config.samples :])
    trained = {text for pair in pairs for text in pair}
    for rows in later:
        held_out += [row for row in rows if not trained & {*row}][: max(1, MEASURED // len(config.languages))]
    return pairs, held_out


CHECKPOINT_STEPS = 5
"""Optimisation steps between checkpoints; a killed training loses at most this many."""


def train(spec: ModelSpec, config: ContrastiveConfig, output: Path, device: str | None = None) -> ModelSpec:
    """Train LoRA weights on a backbone and write the model as a sentence-transformers directory.

    Returns:
        The spec of the trained model.

    Raises:
        ModelError: The backbone cannot be trained, the checkpoints belong to another training, or the loss
            is not finite.
        DataError: The corpus is missing or has fewer rows.
    """
    if spec.alignment or spec.backbone.tuned:
        raise ModelError(f"--backbone: {spec.name} is already aligned or trained; give its backbone.")
    dtype = frozen_dtype(spec.backbone, config.dtype)
    config = dataclasses.replace(config, dtype=dtype)
    loaded = ModelSpec(dataclasses.replace(spec.backbone, dtype=dtype))
    device = training_device(device)
    share_of(config.accumulation, "accumulation")
    corpus = corpora.load(config.pairs)
    pairs, held_out = training_pairs(corpus, config)

    def build() -> SentenceTransformer:
        model = building.build(loaded, device="cpu")  # the trainer moves it to the device of its process
        add_lora(model, config)
        return model

    tuned = ModelSpec(dataclasses.replace(spec.backbone, tuned=f"contrastive-{config.samples}"))
    backbone = loading.open_backbone(loaded.backbone)
    identity = {
        "backbone": backbone.fingerprint,
        "prompts": digest(backbone.prompts),
        "text": corpus.fingerprint([*config.languages, config.pivot]),
        **to_mapping(config),
    }
    improve = None if config.max_steps == 0 else partial(fit, pairs, held_out, config, device)
    train_once(tuned, identity, output, corpus.trains, build, improve)
    return tuned


class _DistinctTexts(NoDuplicatesBatchSampler):
    """Batches without repeated texts, whatever their language tags: a repeated text would be its own negative."""

    def __init__(self, dataset: Any, **options: Any) -> None:
        from datasets import Dataset

        columns = {name: [entry["text"] for entry in dataset[name]] for name in dataset.column_names}
        super().__init__(Dataset.from_dict(columns), **options)


def add_lora(model: SentenceTransformer, config: ContrastiveConfig) -> None:
    """Freeze the model and put trainable LoRA matrices on every linear layer of its transformer, in place.

    Raises:
        ModelError: The backbone has no transformer that peft can adapt.
    """
    if not model.has_peft_compatible_model():
        raise ModelError("--backbone: only transformers can be trained, and this model is not one.")
    model.requires_grad_(False)
    adapters.add_lora(
        model.transformers_model, rank=config.rank, alpha=config.alpha, dropout=config.dropout, seed=config.seed
    )


def contrastive_loss(model: SentenceTransformer, config: ContrastiveConfig) -> torch.nn.Module:
    r"""Eq. 1: ``l_i = -log(exp(cos(h_i, h_i+) / tau) / sum_j exp(cos(h_i, h_j+) / tau))``, its mean over a batch.

    Only anchors are scored against positives; the other direction is a separate pair.
    """
    mini_batch = config.batch_size if config.cached else None
    return objective.contrastive_loss(model, config.tau, mini_batch, gather=config.cached)


def fit(
    pairs: Pairs, held_out: Pairs, config: ContrastiveConfig, device: str, model: SentenceTransformer, folder: Path
) -> Log:
    """Train a model's LoRA matrices on (anchor, positive) in place, resuming from the last checkpoint in ``folder``.

    Returns:
        The log, see :data:`~xalign_models.training.records.LOG`.

    Raises:
        ModelError: The loss is not finite, or the processes cannot share the batches of a step.
        DataError: All pairs share texts with each other.
    """
    from datasets import Dataset, DatasetDict

    sides = enumerate(("anchor", "positive"))
    rows = Dataset.from_dict({side: [pair[i]._asdict() for pair in pairs] for i, side in sides})
    batches = share_of(config.accumulation, "accumulation")
    size = config.batch_size * (config.accumulation if config.cached else 1)
    sampler = _DistinctTexts(rows, batch_size=size, drop_last=False, generator=torch.Generator(), seed=config.seed)
    check_batches(sampler, config.pairs)
    prompt = model.prompts.get(model.default_prompt_name or "") or None
    measured = [(text._asdict(), translation._asdict()) for text, translation in held_out]
    args = arguments(
        folder,
        device,
        epochs=config.passes,
        max_steps=config.max_steps,
        per_device_train_batch_size=size,
        gradient_accumulation_steps=1 if config.cached else batches,
        batch_sampler=_DistinctTexts,
        multi_dataset_batch_sampler=partial(InTurns, whole=not config.cached),
        prompts=prompt,
        learning_rate=config.learning_rate,
        lr_scheduler_type=config.scheduler,
        warmup_steps=config.warmup,
        weight_decay=config.weight_decay,
        max_grad_norm=config.max_grad_norm,
        seed=config.seed,
        bf16=config.dtype is Dtype.BFLOAT16,  # the LoRA matrices stay float32, and are multiplied in bfloat16
        save_steps=CHECKPOINT_STEPS,
    )
    trainer = Trainer(
        model,
        hint="lower learning_rate, raise tau or set dtype to float32",
        parts={"lora": [weight for weight in model.parameters() if weight.requires_grad]},
        instruments=Retrieval(model, measured, config.tau, prompt=prompt),
        args=args,
        train_dataset=DatasetDict(pairs=rows),
        loss=partial(contrastive_loss, config=config),
    )
    return trainer.run()
