"""Shared code of the analyses of LSAR: raw vectors of Tatoeba's test sentences, and the removed subspace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from xalign_models import corpora
from xalign_models.alignments import LSAR
from xalign_models.analysis import Request
from xalign_models.backbones import loading
from xalign_models.backbones.raw import RawEncoder
from xalign_models.corpora import ENGLISH, Corpus
from xalign_models.errors import LanguageError, ModelError
from xalign_models.languages import display_name
from xalign_models.linalg.arrays import Float32
from xalign_models.models.building import fitted, raw_encoder
from xalign_models.models.catalogue import ALIGNMENTS
from xalign_models.models.names import find_spec
from xalign_models.published import published_table
from xalign_models.ranking.ranks import gold_ranks, normalise, precision_at
from xalign_models.specs import AlignmentSpec, BackboneSpec, ModelSpec
from xalign_tasks.tatoeba36 import LANGUAGES


@dataclass(frozen=True)
class Space:
    """A backbone's raw vectors and the LSAR fitted on them.

    Attributes:
        backbone: The backbone of the vectors.
        alignment: Text and settings of LSAR's fit.
        raw: The encoder of the vectors.
        lsar: The fitted alignment.
    """

    backbone: BackboneSpec
    alignment: AlignmentSpec
    raw: RawEncoder
    lsar: LSAR

    def embed(self, texts: Sequence[str], language: str) -> Float32:
        """Raw vectors (n, d) of texts of one language, with the prompt of the fit text."""
        prompt = loading.prompt_in(loading.open_backbone(self.backbone).prompts, language)
        return self.raw.encode(texts, prompt, f"{self.backbone.name} {language}")


def lsar_spec(name: str) -> tuple[BackboneSpec, AlignmentSpec]:
    """The backbone of a model, and its LSAR: the model's own, or for a plain backbone the default one.

    Raises:
        ModelError: The model is unknown or has another alignment.
    """
    spec = find_spec(name)
    alignment = spec.alignment or ALIGNMENTS[spec.data]["lsar"]
    if alignment.method != LSAR.method:
        raise ModelError(f"--model {name} has the alignment {alignment.label}; name a backbone or a model with lsar.")
    return spec.backbone, alignment


def open_space(request: Request, name: str) -> Space:
    """The space of a model; LSAR is fitted now unless an earlier fit is in the cache.

    Raises:
        ModelError: See :func:`lsar_spec`.
        XAlignError: Weights or fit text are missing.
    """
    backbone, alignment = lsar_spec(name)
    raw = raw_encoder(backbone, loading.pick_device(request.device), request.store)
    lsar = fitted(ModelSpec(backbone, alignment), raw)
    assert isinstance(lsar, LSAR)
    return Space(backbone, alignment, raw, lsar)


@dataclass(frozen=True)
class Tatoeba:
    """LASER's Tatoeba test, up to ``rows`` sentences of each language.

    Attributes:
        corpus: The text.
        languages: Canonical codes without English.
        rows: Maximum number of rows of a language, from its top.
    """

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

    @property
    def revisions(self) -> dict[str, str]:
        """The text's fingerprint, for :class:`xalign_models.analysis.Findings`."""
        return {"tatoeba": self.corpus.fingerprint(self.languages)}


def open_tatoeba(request: Request, languages: Sequence[str] = LANGUAGES) -> Tatoeba:
    """The test text in the requested languages, by default the LSAR paper's 36.

    Raises:
        DataError: The test is missing.
        LanguageError: The test lacks a language, or only English was asked for.
    """
    corpus = corpora.load("tatoeba")
    chosen = tuple(language for language in request.languages or languages if language != ENGLISH)
    if missing := sorted(set(chosen) - set(corpus.languages)):
        raise LanguageError(f"Tatoeba's test has no {', '.join(missing)}; it has {', '.join(corpus.languages)}.")
    if not chosen:
        raise LanguageError("--languages: name at least one language besides English.")
    return Tatoeba(corpus, chosen, request.rows)


def by_language(space: Space, tatoeba: Tatoeba) -> dict[str, Float32]:
    """Raw vectors of each language; English comes first, with a sample as large as the largest other language."""
    sides: dict[str, list[str]] = {}
    english: dict[str, None] = {}
    for language, texts, translations in tatoeba.pairs():
        sides[language] = texts
        english |= dict.fromkeys(translations)
    count = max(map(len, sides.values()))
    sample = list(english)[:: max(1, len(english) // count)][:count]  # from every language's English side
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
    """Percent of texts whose nearest neighbour by cosine is their translation; row i of both means the same.

    Returns:
        For English queries, the paper's direction, and for queries of the other language.
    """
    forward, backward = gold_ranks(normalise(a), normalise(english))
    return 100 * precision_at(backward)["precision_at_1"], 100 * precision_at(forward)["precision_at_1"]


def published_accuracy() -> pd.DataFrame:
    """The paper's averages over the 36 languages of Tatoeba: model, method, accuracy in percent, source."""
    table = published_table("lsar-table-01.csv")
    table = table[table["method"].isin(["Original", "Centered", "LSAR"]) | table["method"].str.startswith("LIR")]
    return pd.DataFrame(
        {
            "model": table["model"],
            "method": table["method"],
            "accuracy": table["value"],
            "languages": 36,
            "source": "published: LSAR paper, Table 1",
        }
    )
