"""English training sets in their publishers' own layouts under ``$XALIGN_DATA``."""

import gzip
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from xalign_models.corpora import read_lines
from xalign_models.corpora.base import MOST
from xalign_models.errors import DataError
from xalign_models.files import require_regular
from xalign_models.paths import data_dir
from xalign_models.training.lusifer.data.base import TrainingRow, TrainingSource, draw

WORDS = range(6, 61)
"""Numbers of words of the WikiText sentences to use."""
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
    """Sentences of the running text, without those that have unknown words or are very short or long."""
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
    with gzip.open(require_regular(path)) as file:
        if len(content := file.read(MOST + 1)) > MOST:
            raise DataError(f"{path} unpacks to more than {MOST} bytes.")
    return content.decode("utf-8")


def _captions(root: Path) -> list[TrainingRow]:
    """Two of an image's five captions, in rotation from image to image."""
    files = [root / "task2" / "raw" / f"train.{number}.en.gz" for number in range(1, 6)]
    columns = [_unpacked(file).splitlines() for file in files]
    images = list(zip(*columns, strict=True))
    return [(image[i % 5].strip(), image[(i + 1) % 5].strip()) for i, image in enumerate(images)]


def _sts_benchmark(root: Path) -> list[TrainingRow]:
    """Training pairs of the same or nearly the same meaning, with a score of 4 or 5."""
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
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise DataError(f"{root / folder} cannot be read: {error}.") from None
    except (IndexError, ValueError) as error:
        raise DataError(f"{root / folder} is not in the layout of {where} ({error}).") from None


def _source(
    name: str, folder: str, where: str, parse: Callable[[Path], list[TrainingRow]], *trains: str
) -> TrainingSource:
    return TrainingSource(name, parse is not _wikitext2, trains, partial(_read, folder, where, parse), where)


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
