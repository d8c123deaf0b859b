"""The LAReQA protocol: mAP of finding a question's answers in all languages in one pool."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from mteb.types import PromptType

from xalign_models.corpora import Corpus
from xalign_models.errors import DataError
from xalign_models.languages import from_iso639_1, to_iso639_1
from xalign_models.paths import data_dir
from xalign_models.ranking.graded import TOP
from xalign_models.ranking.ranks import average_precision, one_target_precision, target_counts
from xalign_tasks.base import Scored, Scoring, task_metadata, without_normalisation
from xalign_tasks.files import FilesTask
from xalign_tasks.lareqa.bias import language_preference, language_shares, rank_agreement
from xalign_tasks.lareqa.reader import SENTENCE_END, Side, read_file, read_rows

HOME = "github.com/google-research-datasets/lareqa"


class LAReQA(FilesTask):
    """Mean average precision of questions in each language (a subset) against the sentences of all languages.

    All candidates of all languages form one pool, each encoded with its own language. Sentences that answer the
    question in any language are relevant. Scores are dot products; AP is scikit-learn's, so ties count against the
    model. Every subset has:

    - ``map`` (main): over its language's questions; the mean over subsets weighs languages equally,
      ``map_all_questions``, the same in every subset, weighs questions equally, as the papers do;
    - ``one_target_<language>``: a row of the limit-to-one-target heat map, the mAP when all answers except the one in
      <language> are removed from the pool;
    - ``one_target_same``, ``one_target_other``: that row's diagonal cell and the mean of the others, also called
      ``same`` and ``cross`` as in other tasks;
    - ``own_language_in_top_10``, ``english_in_top_10``, ``rank_agreement``, ``own_language_first``,
      ``lang_ndcg_at_10``, ``right_own_language`` and three similar: language bias, :mod:`xalign_tasks.lareqa.bias`.

    Attributes:
        expected: Canonical code -> numbers of questions and candidates of the published set; other files are refused.
        own_sentences: Whether sentences are split here and thus differ from the published ones.
        as_published: Whether a candidate is encoded with its paragraph after it, and vectors keep their lengths, as in
            the code behind the published numbers.
    """

    narrows = False
    expected: ClassVar[Mapping[str, tuple[int, int]]]
    own_sentences = False
    as_published: ClassVar[bool] = False

    def read(self, files: tuple[Path, ...]) -> Side:
        """A language's questions and candidates."""
        return read_file(files[0])

    def reading(self) -> str:
        """The pattern of sentence ends, if the files have no sentences."""
        return SENTENCE_END.pattern if self.own_sentences else ""

    def load_data(self, num_proc: int | None = None, **kwargs: Any) -> None:
        """Read all languages, the pool of every subset, and check that they are complete.

        Raises:
            DataError: A file is missing or malformed, or its numbers of questions and candidates are not as published.
        """
        if self.data_loaded:
            return
        corpus = self.open_corpus()
        sides = {language: corpus.rows(language) for language in self.expected}
        for language, side in sides.items():
            counts = {"questions": len(side.questions), "candidates": len(side.candidates)}
            for (kind, count), published in zip(counts.items(), self.expected[language], strict=True):
                if count != published and not (kind == "candidates" and self.own_sentences):
                    raise DataError(
                        f"{self.metadata.name}: {language} has {count} {kind}, the published set has {published}; "
                        f"download the files again from {HOME}."
                    )
        self.dataset = {language: dict.fromkeys(self.eval_splits, side) for language, side in sides.items()}
        self.data_loaded = True

    def score(self, scoring: Scoring, subsets: set[str]) -> Scored:
        """Scores of all subsets, whose questions share the pool, and the AP of each question."""
        sides: dict[str, Side] = {language: self.dataset[language][scoring.split] for language in self.expected}
        if self.as_published:
            scoring = replace(scoring, model=without_normalisation(scoring.model))

        def vectors(texts: Mapping[str, list[str]], kind: PromptType) -> npt.NDArray[np.float32]:
            """Vectors of all languages' texts in one call, each with its language."""
            flat = [text for of_language in texts.values() for text in of_language]
            codes = [language for language, of_language in texts.items() for _ in of_language]
            return self.embed(scoring, flat, codes, kind.value, prompt_type=kind)

        pool = vectors({code: self.candidates(side) for code, side in sides.items()}, PromptType.document)
        questions = vectors({code: list(side.questions.values()) for code, side in sides.items()}, PromptType.query)
        best = np.empty((len(questions), min(TOP, len(pool))), dtype=np.int64)
        counts = target_counts(questions, pool, pool_targets(sides), best)
        bias = self.bias(sides, counts, best)
        ap, one_target = average_precision(counts), one_target_precision(counts)
        scores, items, start = {}, {}, 0
        for language, side in sides.items():
            rows = slice(start, start + len(side.questions))
            start = rows.stop
            items[language] = ap[rows].astype(np.float32)
            precision = {"map": float(ap[rows].mean()), "map_all_questions": float(ap.mean())}
            row = heat_map_row(language, list(sides), one_target[rows])
            scores[language] = precision | row | bias[language]
        return scores, dict(sorted(items.items()))

    def candidates(self, side: Side) -> list[str]:
        """The texts to encode for a language's part of the pool."""
        if not self.as_published:
            return side.candidates
        return [f"{text} {context}" for text, context in zip(side.candidates, side.contexts, strict=True)]

    def bias(
        self, sides: Mapping[str, Side], counts: npt.NDArray[np.int64], best: npt.NDArray[np.int64]
    ) -> dict[str, dict[str, float]]:
        """Each language's measures of :mod:`xalign_tasks.lareqa.bias`, from its answers' ranks and best candidates."""
        question_languages, of_pool = (
            np.repeat(np.arange(len(sides)), [len(part) for part in parts])
            for parts in zip(*((side.questions, side.candidates) for side in sides.values()), strict=True)
        )
        bias = language_shares(question_languages, best, of_pool, list(sides))
        preference = language_preference(question_languages, counts, of_pool[best[:, 0]], list(sides))
        for language, values in preference.items():
            bias[language] |= values
        agreement = rank_agreement({language: list(side.questions) for language, side in sides.items()}, counts)
        for language, value in agreement.items():
            bias[language]["rank_agreement"] = value
        return bias


def pool_targets(sides: Mapping[str, Side]) -> npt.NDArray[np.int64]:
    """(n, k): position in the pool of each question's answer in each of the k languages; -1 for no answer."""
    starts = np.cumsum([0, *(len(side.candidates) for side in sides.values())])
    return np.array(
        [
            [
                start + side.answers[question] if question in side.answers else -1
                for start, side in zip(starts, sides.values(), strict=False)
            ]
            for query_side in sides.values()
            for question in query_side.questions
        ]
    )


def heat_map_row(language: str, languages: list[str], one_target: npt.NDArray[np.float64]) -> dict[str, float]:
    """A question language's row of the limit-to-one-target heat map, and its mean off the diagonal.

    ``one_target`` is (n, k), from :func:`xalign_models.ranking.ranks.one_target_precision`; the k languages are the
    answers'.
    """
    cells = {
        answer: float(np.nanmean(column))
        for answer, column in zip(languages, one_target.T, strict=True)
        if not np.isnan(column).all()
    }
    elsewhere = [value for answer, value in cells.items() if answer != language]
    row = {f"one_target_{answer}": value for answer, value in cells.items()}
    row["one_target_same"] = row["same"] = cells[language]
    if elsewhere:
        row["one_target_other"] = row["cross"] = float(np.mean(elsewhere))
    return row


def _counts(text: str) -> dict[str, tuple[int, int]]:
    rows = [line.split() for line in text.splitlines()]
    return {from_iso639_1(code): (int(questions), int(candidates)) for code, questions, candidates in rows}


def _json_files(folder: Path, codes: tuple[str, ...], pattern: str) -> dict[str, tuple[Path, ...]] | None:
    files: dict[str, tuple[Path, ...]] = {code: (folder / pattern.format(to_iso639_1(code)),) for code in codes}
    return files if all(path.is_file() for paths in files.values() for path in paths) else None


class XQuADR(LAReQA):
    """XQuAD-R: the 1,190 questions of XQuAD in eleven languages, answered in each."""

    expected = _counts(
        "ar 1190 1222\nde 1190 1276\nel 1190 1234\nen 1190 1180\nes 1190 1215\nhi 1190 1244\nru 1190 1219\n"
        "th 1190 852\ntr 1190 1167\nvi 1190 1209\nzh 1190 1196"
    )
    needs = tuple(expected)
    metadata = task_metadata("XQuAD-R", needs)

    def files(self) -> dict[str, tuple[Path, ...]]:
        """LAReQA's own files."""
        root = data_dir()
        paths = _json_files(root / "lareqa" / "xquad-r", self.needs, "{}.json") if root else None
        if paths is None:
            raise DataError(
                "XQuAD-R is missing: set XALIGN_DATA to a folder that has lareqa/xquad-r/ with a file for each of "
                f"{', '.join(str(to_iso639_1(code)) for code in self.needs)}, as in {HOME}."
            )
        return paths


class XQuADRAsPublished(XQuADR):
    """XQuAD-R as in the code behind LSAR's numbers: each sentence with its paragraph, dot products of raw vectors.

    This code fits LSAR on only the eleven languages, like ``xalign fit lsar --languages ar,de,el,...``.
    """

    as_published = True
    metadata = task_metadata("XQuAD-R-as-published", XQuADR.needs)


class MLQAR(LAReQA):
    """MLQA-R: the questions of MLQA's development set, each asked and answered in two to four of seven languages.

    Read from LAReQA's own files if available (``lareqa/mlqa-r`` or ``mlqa-dev-r``), else built from MLQA's (``mlqa``)
    as LAReQA describes. LAReQA's sentence splitter is unpublished, so ours replaces it, and only the number of
    questions is checked.
    """

    expected = _counts("ar 517 2545\nde 512 2362\nen 1148 6264\nes 500 1787\nhi 507 2426\nvi 511 2828\nzh 504 2322")
    needs = tuple(expected)
    metadata = task_metadata("MLQA-R", needs)

    def files(self) -> dict[str, tuple[Path, ...]]:
        """LAReQA's own files, or MLQA's."""
        root, pattern = data_dir(), "dev-context-{0}-question-{0}.json"
        for folder in ("lareqa/mlqa-r", "lareqa/mlqa-dev-r", "mlqa/dev", "mlqa/MLQA_V1/dev"):
            self.own_sentences = folder.startswith("mlqa/")
            form = pattern if self.own_sentences else "{}.json"
            if root and (paths := _json_files(root / folder, self.needs, form)):
                return paths
        raise DataError(
            f"MLQA-R is missing: set XALIGN_DATA to a folder that has lareqa/mlqa-dev-r/ as in {HOME}, or mlqa/dev/ as "
            "in MLQA_V1.zip of github.com/facebookresearch/MLQA."
        )

    def hub_corpus(self, missing: DataError) -> Corpus:
        """MLQA's development set on the hub."""
        self.own_sentences = True
        name, dataset = self.metadata.name, self.metadata.dataset

        def rows(language: str) -> Side:
            config = "MLQA.{0}.{0}".format(to_iso639_1(language))
            return read_rows(self.hub_rows(config, "validation", missing), f"{dataset['path']} {config}")

        return Corpus(name, "files", (name,), self.needs, rows, lambda _: str(dataset["revision"]))
