"""Training sets: local ones in their publishers' layouts under ``$XALIGN_DATA``, and the paper's sets on the hub."""

import gzip
import re
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from xalign_models import assets
from xalign_models.corpora import read_lines
from xalign_models.corpora.base import MOST
from xalign_models.errors import DataError
from xalign_models.files import require_regular
from xalign_models.paths import data_dir

Row = TypeVar("Row")
TrainingRow = tuple[str, ...]
"""(text,), or (query, passage, hard negative, ...)."""


@dataclass(frozen=True)
class TrainingSource:
    """A training set.

    Attributes:
        name: Name in configurations.
        pairs: Whether rows are pairs, with or without hard negatives, rather than single texts.
        trains: mteb's names of the data sets with its text: the ``training_datasets`` of models trained on it.
        read: Reads a maximum number of rows (None for all), drawn with a seed, without the set's own test rows.
    """

    name: str
    pairs: bool
    trains: tuple[str, ...]
    read: Callable[[int | None, int], list[TrainingRow]]


def draw(rows: Sequence[Row], limit: int | None, seed: int) -> list[Row]:
    """At most ``limit`` rows, drawn without replacement, in a random order that depends only on the seed."""
    order = np.random.default_rng(seed).permutation(len(rows))
    return [rows[i] for i in order[:limit]]


WORDS = range(6, 61)
"""Numbers of words that a WikiText sentence may have."""
_TOKENS = (
    (r" @(.)@ ", r"\1"),
    (r" ([.,;:!?%)\]}])", r"\1"),
    (r"([(\[{$£]) ", r"\1"),
    (r" '(s|t|re|ve|d|ll|m)\b", r"'\1"),
    (r" n't\b", "n't"),
    (r'" ([^"]*) "', r'"\1"'),
)
_BRACKETS = {"-lrb-": "(", "-rrb-": ")", "-lsb-": "[", "-rsb-": "]", "``": '"', "''": '"'}


def detokenise(text: str) -> str:
    """Undo most of the tokenisation of WikiText and the Penn Treebank."""
    words = (_BRACKETS.get(word, word) for word in text.split())
    text = " ".join(words)
    for pattern, replacement in _TOKENS:
        text = re.sub(pattern, replacement, text)
    return text


def _wikitext2(root: Path) -> list[TrainingRow]:
    """Sentences of the running text, except sentences with unknown words and very short or long ones."""
    lines = [line.strip() for name in ("valid", "test") for line in read_lines(root / f"{name}.txt")]
    paragraphs = [line for line in lines if line and not line.startswith("=")]
    sentences = (sentence.strip() for line in paragraphs for sentence in re.split(r"(?<= [.!?]) ", line))
    return [(detokenise(text),) for text in sentences if "<unk>" not in text and len(text.split()) in WORDS]


def _squad(root: Path) -> list[TrainingRow]:
    # dev-*.txt is SQuAD's development set, whose questions are part of XQuAD: evaluation text
    questions, sentences = (read_lines(root / f"{side}-test.txt") for side in ("tgt", "src"))
    if len(questions) != len(sentences):
        raise DataError(f"{root}: tgt-test.txt and src-test.txt differ in their number of lines.")
    return [(detokenise(query), detokenise(answer)) for query, answer in zip(questions, sentences, strict=True)]


def _unpacked(path: Path) -> str:
    try:
        with gzip.open(require_regular(path)) as file:
            if len(content := file.read(MOST + 1)) > MOST:
                raise DataError(f"{path} unpacks to more than {MOST} bytes.")
        return content.decode("utf-8")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read: {error}.") from None


def _captions(root: Path) -> list[TrainingRow]:
    """Two of an image's five captions, rotating from image to image."""
    files = [root / "task2" / "raw" / f"train.{number}.en.gz" for number in range(1, 6)]
    columns = [_unpacked(file).splitlines() for file in files]
    images = list(zip(*columns, strict=True))
    return [(image[i % 5].strip(), image[(i + 1) % 5].strip()) for i, image in enumerate(images)]


def _sts_benchmark(root: Path) -> list[TrainingRow]:
    """Training pairs with the same or nearly the same meaning: a score of 4 or 5."""
    rows = [line.split("\t") for line in read_lines(root / "sts-train.csv")]
    return [(row[5], row[6]) for row in rows if float(row[4]) >= 4]


def _sick(root: Path) -> list[TrainingRow]:
    """Training pairs whose first text entails the second, or with a relatedness of at least 4.5."""
    rows = [line.split("\t") for line in read_lines(root / "SICK_train.txt")[1:]]
    return [(row[1], row[2]) for row in rows if row[4].strip() == "ENTAILMENT" or float(row[3]) >= 4.5]


def _read(
    folder: str, where: str, parse: Callable[[Path], list[TrainingRow]], limit: int | None, seed: int
) -> list[TrainingRow]:
    root = data_dir()
    if root is None or not (root / folder).is_dir():
        raise DataError(
            f"Training set {folder!r} is missing: set XALIGN_DATA to a folder that has {folder}/ in the layout of "
            f"{where}."
        )
    try:
        return draw(parse(root / folder), limit, seed)
    except (IndexError, ValueError) as error:
        raise DataError(f"{root / folder} is not in the layout of {where} ({error}).") from None


def _source(
    name: str, folder: str, where: str, parse: Callable[[Path], list[TrainingRow]], *trains: str
) -> TrainingSource:
    return TrainingSource(name, parse is not _wikitext2, trains, partial(_read, folder, where, parse))


LOCAL = (
    _source("wikitext-2", "wikitext2", "WikiText-2 (valid.txt, test.txt)", _wikitext2, "WikiText"),
    _source(
        "squad-nqg", "squad_nqg", "the question generation split of SQuAD (github.com/xinyadu/nqg)", _squad, "SQuAD"
    ),
    _source("multi30k", "multi30k", "Multi30K (github.com/multi30k/dataset, data/task2/raw)", _captions, "Multi30k"),
    _source("stsbenchmark", "stsbenchmark_en", "the STS benchmark (sts-train.csv)", _sts_benchmark, "STSBenchmark"),
    _source("sick", "sick_en", "SICK (SICK_train.txt)", _sick, "SICK-R"),
)
"""Local training sets: sentences, questions, captions of one image, paraphrases and entailments."""


def _table(path: str, config: str | None, split: str, revision: str | None = None) -> Any:
    import datasets

    try:
        with assets.hub_or_cache(path):
            return datasets.load_dataset(path, config, split=split, revision=revision)
    except (OSError, ValueError) as error:
        raise DataError(
            f"Training set {path} is not available from the hub ({type(error).__name__}); use a machine that reaches "
            "the hub, or a configuration with local text, e.g. --config small."
        ) from None


def _columns(path: str, config: str | None, names: tuple[str, ...], limit: int | None, seed: int) -> list[TrainingRow]:
    table = _table(path, config, "train")
    chosen = table.select(draw(range(len(table)), limit, seed))
    return list(zip(*(chosen[name] for name in names), strict=True))


def _wikitext(limit: int | None, seed: int) -> list[TrainingRow]:
    table = _table("Salesforce/wikitext", "wikitext-103-raw-v1", "train")
    lines = (line.strip() for line in table["text"])
    return draw([(line,) for line in lines if line and not line.startswith("=")], limit, seed)


def _snli(limit: int | None, seed: int) -> list[TrainingRow]:
    """Entailments whose premise also has a contradiction, which serves as the hard negative."""
    table = _table("stanfordnlp/snli", None, "train")
    labels: dict[str, dict[int, str]] = {}
    for premise, hypothesis, label in zip(table["premise"], table["hypothesis"], table["label"], strict=True):
        labels.setdefault(premise, {}).setdefault(label, hypothesis)
    return draw([(text, by[0], by[2]) for text, by in labels.items() if {0, 2} <= by.keys()], limit, seed)


def _beir(path: str, revision: str, test: str, limit: int | None, seed: int) -> list[TrainingRow]:
    """Training queries, each with a relevant passage, without queries of the test split."""
    judged = _table(path, "default", "train", revision)
    ids = list(zip(judged["query-id"], judged["corpus-id"], judged["score"], strict=True))
    tested = set(_table(path, "default", test, revision)["query-id"])
    pairs = {query: passage for query, passage, score in ids if score > 0 and query not in tested}
    chosen = draw(list(pairs.items()), limit, seed)
    queries = _texts(_table(path, "queries", "queries", revision), (query for query, _ in chosen))
    passages = _texts(_table(path, "corpus", "corpus", revision), (passage for _, passage in chosen))
    return [(queries[query], passages[passage]) for query, passage in chosen if query in queries]


def _texts(table: Any, wanted_ids: Iterable[str]) -> dict[str, str]:
    ids = set(wanted_ids)
    rows = table.select([i for i, id_ in enumerate(table["_id"]) if id_ in ids])
    return {row["_id"]: f"{row.get('title') or ''} {row['text']}".strip() for row in rows}


def _hub(name: str, task: str, path: str, read: Callable[..., list[TrainingRow]], *options: Any) -> TrainingSource:
    return TrainingSource(name, True, (task,), partial(read, path, *options))


HUB = (
    TrainingSource("wikitext-103", False, ("WikiText",), _wikitext),
    _hub("msmarco", "MSMARCO", "mteb/msmarco", _beir, "c5a29a104738b98a9e76336939199e264163d4a0", "dev"),
    _hub("fever", "FEVER", "mteb/fever", _beir, "bea83ef9e8fb933d90a2f1d5515737465d613e12", "test"),
    _hub("hotpotqa", "HotpotQA", "mteb/hotpotqa", _beir, "ab518f4d6fcca38d87c25209f94beba119d02014", "test"),
    _hub("fiqa", "FiQA2018", "mteb/fiqa", _beir, "27a168819829fe9bcd655c2df245fb19452e8e06", "test"),
    _hub("nq", "NQ", "sentence-transformers/natural-questions", _columns, None, ("query", "answer")),
    _hub("paq", "PAQ", "sentence-transformers/paq", _columns, "pair", ("query", "answer")),
    _hub("squad", "SQuAD", "rajpurkar/squad", _columns, None, ("question", "context")),
    TrainingSource("snli", True, ("SNLI",), _snli),
)
"""The training sets of the paper's two stages, by hub id."""
