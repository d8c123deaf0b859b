"""Raw vectors for analyses: of each layer from one forward pass, and of Tatoeba next to LSAR's subspace."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn

from xalign_models import assets, corpora
from xalign_models.alignments import LSAR
from xalign_models.analysis import Request
from xalign_models.backbones import loading
from xalign_models.backbones.checkpoint import open_config
from xalign_models.backbones.raw import RawEncoder, key
from xalign_models.corpora import ENGLISH, Corpus
from xalign_models.device import pick_device
from xalign_models.errors import AssetError, LanguageError, ModelError
from xalign_models.generation.journal import batched
from xalign_models.languages import display_name
from xalign_models.linalg.arrays import Float32
from xalign_models.models.building import raw_encoder
from xalign_models.models.names import find_spec
from xalign_models.models.recipe import ROLES, Recipe
from xalign_models.published import published_table
from xalign_models.ranking.ranks import gold_ranks, normalise, precision_at
from xalign_models.specs import AlignmentSpec, BackboneSpec, ModelSpec
from xalign_models.store import EmbeddingStore
from xalign_tasks.analyses.base import Study, spread
from xalign_tasks.tatoeba36 import LANGUAGES

BATCH = 2048
"""Number of texts whose vectors are stored at a time."""


@dataclass(frozen=True)
class Vectors:
    """A backbone and the encoder of its raw vectors."""

    backbone: BackboneSpec
    raw: RawEncoder

    def embed(self, texts: Sequence[str], language: str) -> Float32:
        """Raw vectors (n, d) of texts of one language, with the language's prompt."""
        prompt = loading.prompt_in(loading.open_backbone(self.backbone).prompts, language)
        return self.raw.encode(texts, prompt, f"{self.backbone.name} {language}")

    def pairs(self, tatoeba: Tatoeba) -> Iterator[tuple[str, Float32, Float32]]:
        """(language, raw vectors of its sentences, raw vectors of their English translations)."""
        for language, side, english in tatoeba.pairs():
            yield language, self.embed(side, language), self.embed(english, ENGLISH)


def at_every_layer(spec: BackboneSpec) -> tuple[BackboneSpec, ...]:
    """The same backbone at layer 0 (the embeddings), 1, ..., the last.

    Raises:
        ModelError: The backbone is not a transformer.
        AssetError: The checkpoint is unavailable.
    """
    resolved = assets.resolve(spec.model, spec.revision)
    try:
        count = int(open_config(resolved).num_hidden_layers)
    except (AssetError, AttributeError):
        raise ModelError(f"{spec.name} has no layers to choose from; name a transformer.") from None
    return tuple(dataclasses.replace(spec, layer=layer) for layer in range(count + 1))


def vectors_by_layer(
    request: Request, backbone: BackboneSpec, texts: Mapping[str, Sequence[str]], *, roles: bool = False
) -> Iterator[Vectors]:
    """The vectors of each layer, the embeddings first, after one forward pass over ``texts`` (language to texts).

    With ``roles``, there is another pass for each prompt of queries or documents, on which a joint method is fitted.

    Raises:
        ModelError: The backbone is not a transformer.
        AssetError: The checkpoint is unavailable.
    """
    device, opened, layers = pick_device(request.device), loading.open_backbone(backbone), at_every_layer(backbone)
    known = loading.text_prompts(opened.prompts, opened.source.sides(), ROLES) if roles else (None,)
    for language, rows in texts.items():
        for prompt in dict.fromkeys(loading.prompt_in(opened.prompts, language, role) for role in known):
            fill(layers, rows, prompt, device, request.store, f"{backbone.name} {language}, all layers")
    for layer in layers:
        yield Vectors(layer, raw_encoder(layer, device, request.store))


class EveryLayer(nn.Module):
    """Pools each layer's (b, s, d); ``sentence_embedding`` is (b, (layers + 1) d), the embeddings first."""

    takes_packs = True

    def __init__(self, pooling: nn.Module) -> None:
        super().__init__()
        self.pooling = pooling

    def forward(self, features: dict[str, Any]) -> dict[str, Any]:
        """Pool ``features["all_layer_embeddings"]``."""
        layers = features["all_layer_embeddings"]
        pooled = [self.pooling({**features, "token_embeddings": layer})["sentence_embedding"] for layer in layers]
        return {**features, "sentence_embedding": torch.cat(pooled, dim=1)}


def fill(
    layers: Sequence[BackboneSpec], texts: Sequence[str], prompt: str, device: str, store: EmbeddingStore, label: str
) -> int:
    """Store the vectors of texts at every layer of :func:`at_every_layer`, for each layer's own RawEncoder.

    Returns:
        Number of encoded texts; texts that the store has at every layer are skipped.
    """
    namespaces = [loading.open_backbone(layer).fingerprint for layer in layers]
    distinct = {key(prompt, text): text for text in texts}
    stored = [store.get(namespace, list(distinct)) for namespace in namespaces]
    missing = [hash_ for hash_, *vectors in zip(distinct, *stored, strict=True) if any(v is None for v in vectors)]
    raw = RawEncoder("", lambda: _modules(layers[-1], device), device)
    for keys in batched(missing, BATCH):
        rows = raw.encode([distinct[hash_] for hash_ in keys], prompt, label)
        for namespace, vectors in zip(namespaces, np.split(rows, len(layers), axis=1), strict=True):
            store.put(namespace, keys, vectors)
    return len(missing)


def _modules(last: BackboneSpec, device: str) -> tuple[nn.Module, ...]:
    first: Any
    first, pooling = loading.shared_modules(last, device)
    first.model.config.output_hidden_states = True
    return first, EveryLayer(pooling)


@dataclass(frozen=True)
class Space(Vectors):
    """A backbone's raw vectors and the LSAR fitted on them, with the text and settings of its fit."""

    alignment: AlignmentSpec
    lsar: LSAR


PAPERS_FIT = AlignmentSpec("lsar", "lsar", corpora=("lingua", "newstest"), limit=1000)
"""LSAR fitted on monolingual text, as in its paper."""


def lsar_spec(name: str) -> tuple[BackboneSpec, AlignmentSpec]:
    """The backbone of a model, and its LSAR: the model's own or, for a plain backbone, the paper's.

    Raises:
        ModelError: The model is unknown or has another alignment.
    """
    spec = find_spec(name)
    alignment = spec.alignment or PAPERS_FIT
    if alignment.method != LSAR.method:
        raise ModelError(f"--model {name} has the alignment {alignment.label}; name a backbone or a model with lsar.")
    return spec.backbone, alignment


def open_space(request: Request, name: str) -> Space:
    """The space of a model; LSAR is fitted now unless an earlier fit is in the cache."""
    backbone, alignment = lsar_spec(name)
    raw = raw_encoder(backbone, pick_device(request.device), request.store)
    lsar = Recipe(ModelSpec(backbone, alignment), raw).fitted
    assert isinstance(lsar, LSAR)
    return Space(backbone, raw, alignment, lsar)


@dataclass(frozen=True)
class Tatoeba:
    """LASER's Tatoeba test: the first ``rows`` sentences of each language, canonical codes without English."""

    corpus: Corpus
    languages: tuple[str, ...]
    rows: int | None

    def pairs(self) -> Iterator[tuple[str, list[str], list[str]]]:
        """(language, its sentences, their English translations)."""
        for language in self.languages:
            side, english = self.corpus.pair(language)
            yield language, side[: self.rows], english[: self.rows]

    @property
    def title(self) -> str:
        """Description of a mean over the test, for figures."""
        limit = f", first {self.rows} sentences of each" if self.rows else ""
        return f"Tatoeba, mean of {len(self.languages)} languages{limit}"

    def within(self, languages: Collection[str], source: str) -> tuple[Tatoeba, list[str]]:
        """The test restricted to ``languages``, and a note on the languages left out.

        Raises:
            LanguageError: No language remains, or ``languages`` lacks English.
        """
        shared = tuple(code for code in self.languages if code in languages)
        if not shared or ENGLISH not in languages:
            raise LanguageError(f"{source} {', '.join(sorted(languages))}; choose among these with --languages.")
        lacking = ", ".join(map(display_name, sorted(set(self.languages) - set(shared))))
        notes = [f"Left out, as the fit text lacks them: {lacking}."] if lacking else []
        return dataclasses.replace(self, languages=shared), notes


def open_tatoeba(request: Request) -> Tatoeba:
    """The test text in the requested languages, by default the LSAR paper's 36.

    Raises:
        DataError: The test is missing.
        LanguageError: The test lacks a language, or only English was asked for.
    """
    corpus = corpora.load("tatoeba")
    chosen = tuple(language for language in request.languages or LANGUAGES if language != ENGLISH)
    if missing := sorted(set(chosen) - set(corpus.languages)):
        raise LanguageError(f"Tatoeba's test has no {', '.join(missing)}; it has {', '.join(corpus.languages)}.")
    if not chosen:
        raise LanguageError("--languages: name at least one language besides English.")
    return Tatoeba(corpus, chosen, request.rows)


def each_space(request: Request, study: Study, *, fitted_only: bool = False) -> Iterator[tuple[Space, Tatoeba]]:
    """The space of each requested model with the test text; notes on them and the text's revision go to the study.

    Raises:
        LanguageError: No language remains.
        XAlignError: A model or text is unavailable.
    """
    for name in request.named():
        space, tatoeba = open_space(request, name), open_tatoeba(request)
        left_out: list[str] = []
        if fitted_only:
            tatoeba, left_out = tatoeba.within(space.lsar.languages_, "LIR and LSAR are fitted on")
        study.notes += [*describe(space, tatoeba), *left_out]
        study.record_corpora(space.alignment.corpora)
        study.data["tatoeba"] = tatoeba.corpus.fingerprint(tatoeba.languages)
        yield space, tatoeba


def by_language(space: Space, tatoeba: Tatoeba) -> dict[str, Float32]:
    """Raw vectors of each language; English comes first, with a sample as large as the largest other language."""
    sides: dict[str, list[str]] = {}
    english: dict[str, None] = {}
    for language, texts, translations in tatoeba.pairs():
        sides[language] = texts
        english |= dict.fromkeys(translations)
    sample = spread(list(english), max(map(len, sides.values())))  # from every language's English side
    return {language: space.embed(texts, language) for language, texts in {ENGLISH: sample, **sides}.items()}


def describe(space: Space, tatoeba: Tatoeba) -> list[str]:
    """Notes on the removed subspace, and on languages that LSAR was not fitted on."""
    text = " and ".join(space.alignment.corpora)
    limit = f", at most {space.alignment.limit} rows of each" if space.alignment.limit else ""
    count, rank = len(space.lsar.languages_), space.lsar.rank_
    notes = [f"{space.backbone.name}: LSAR of rank {rank}, fitted on {count} languages ({text}{limit})."]
    if unfitted := [display_name(language) for language in tatoeba.languages if language not in space.lsar.languages_]:
        notes.append(f"Not among the languages that LSAR was fitted on: {', '.join(unfitted)}.")
    return notes


def accuracy(a: Float32, english: Float32) -> tuple[float, float]:
    """Percent of texts whose nearest neighbour by cosine is their translation; row i of both has the same meaning.

    Returns:
        For English queries, the paper's direction, and for queries in the other language.
    """
    forward, backward = gold_ranks(normalise(a), normalise(english))
    return 100 * precision_at(backward)["precision_at_1"], 100 * precision_at(forward)["precision_at_1"]


def mean_accuracy(scores: Sequence[tuple[float, float]]) -> dict[str, float]:
    """The mean of :func:`accuracy` over languages, as columns of a table."""
    into, leaving = np.mean(scores, axis=0)
    return {"accuracy": into, "accuracy_other_to_english": leaving, "languages": len(scores)}


def published_accuracy() -> pd.DataFrame:
    """The paper's averages over the 36 languages of Tatoeba: model, method, accuracy in percent, source."""
    table = published_table("lsar-table-01.csv")
    table = table[table["method"].isin(["Original", "Centered", "LSAR"]) | table["method"].str.startswith("LIR")]
    rows = table[["model", "method", "value"]].rename(columns={"value": "accuracy"})
    return rows.assign(languages=36, source="published: LSAR paper, Table 1")
