"""Made-up text of every registered task in its publisher's layout, and what spoils it."""

from __future__ import annotations

import json
import re
import shutil
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from xalign_models.corpora import GETTEXT_LANGUAGES
from xalign_models.languages import canonical, from_iso639_1, from_lazada, from_sts17, to_flores
from xalign_tasks.isomorphism import IsomorphismStudy, IsomorphismStudyRaw
from xalign_tasks.language_identity import COMMON, SENTENCES, LanguageIdentity
from xalign_tasks.lareqa import MLQAR, XQuADR
from xalign_tasks.lareqa.task import XQuADRAsPublished
from xalign_tasks.mining import FloresMining, NTREXMining
from xalign_tasks.mteb_bitext import NTREXBitextMining
from xalign_tasks.orthogonality import OrthogonalityTask
from xalign_tasks.own_parallel import OwnParallel
from xalign_tasks.own_retrieval import OwnRetrieval
from xalign_tasks.parallel import FloresPrecision, GettextPrecision, NTREXPrecision, UDHRPrecision
from xalign_tasks.product_search import LazRetrieval, ProductSearchStandIn
from xalign_tasks.sts17 import _TRACKS, STS17CrossLingual
from xalign_tasks.stsb import CODES as STSB_CODES
from xalign_tasks.stsb import STSBCrossLingual, STSBSameLanguage
from xalign_tasks.tatoeba36 import Tatoeba36
from xalign_tasks.zero_shot import (
    AmazonReviewsZeroShot,
    AmazonStarsZeroShot,
    SIB200ZeroShot,
    TweetSentimentZeroShot,
    XNLIZeroShot,
)
from xalign_tasks.zero_shot.reviews import CATEGORIES, FOLDERS
from xalign_tasks.zero_shot.reviews import LANGUAGES as TWEETS
from xalign_tasks.zero_shot.sib200 import DEVTEST
from xalign_tasks.zero_shot.xnli import LANGUAGES as XNLI

DIM, ROWS = 16, 200


def content(meaning: str) -> np.ndarray:
    return np.random.default_rng(zlib.crc32(meaning.encode())).standard_normal(DIM)


@cache
def space(language: str) -> tuple[np.ndarray, np.ndarray]:
    """The map, no rotation, and the shift that a language's vectors have."""
    rng = np.random.default_rng(zlib.crc32(language.encode()))
    turns = (np.linalg.qr(rng.standard_normal((DIM, DIM)))[0] for _ in range(2))
    return next(turns) * np.exp(0.5 * rng.standard_normal(DIM)) @ next(turns), 3 * rng.standard_normal(DIM)


def write(path: Path, language: str, meanings: Any = range(ROWS), form: str = "{} {}\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(form.format(language, meaning) for meaning in meanings))
    return path


def swap(one: Path, other: Path) -> None:
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)


def shift(path: Path, column: int | None = None, start: int = 0) -> None:
    """Rotate rows, or one tab-separated column, by one, from row ``start`` on."""
    lines = path.read_text().splitlines()
    rows = [[line] if column is None else line.split("\t") for line in lines[start:]]
    moved = np.roll([row[column or 0] for row in rows], 1)
    for row, value in zip(rows, moved, strict=True):
        row[column or 0] = str(value)
    path.write_text("".join(line + "\n" for line in [*lines[:start], *("\t".join(row) for row in rows)]))


def edit(path: Path, change: Callable[[Any], Any]) -> None:
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


def rotate(records: list[dict[str, Any]], name: str) -> None:
    values = [record[name] for record in records]
    for record, value in zip(records, values[1:] + values[:1], strict=True):
        record[name] = value


@dataclass
class Case:
    """A task on made-up text.

    Attributes:
        make: The task, made when the text is there.
        write: Writes the text below a folder.
        corruptions: Name -> what spoils the text there.
        subsets: Those that are scored; None is all.
    """

    make: Callable[[], Any]
    write: Callable[[Path], None]
    corruptions: dict[str, Callable[[Path], None]] = field(default_factory=dict)
    subsets: list[str] | None = None


def files(one: str, other: str) -> dict[str, Callable[[Path], None]]:
    """The three corruptions of text that has a file per language."""
    return {
        "labels": lambda root: swap(root / one, root / other),
        "shifted": lambda root: shift(root / one),
        "replaced": lambda root: shutil.copy(root / other, root / one),
    }


PAIRS = ["deu_Latn-eng_Latn", "eng_Latn-deu_Latn", "fra_Latn-deu_Latn", "eng_Latn-fra_Latn"]
CODES = {"deu": "deu-Latn", "eng": "eng-Latn", "fra": "fra-Latn"}


def write_flores(root: Path) -> None:
    for code in CODES.values():
        write(root / "flores200_dataset" / "devtest" / f"{to_flores(code)}.devtest", code, range(1000, 1000 + ROWS))


def write_ntrex(root: Path) -> None:
    for name, code in CODES.items():
        kind = "src" if name == "eng" else "ref"
        write(root / "ntrex" / "NTREX-128" / f"newstest2019-{kind}.{name}.txt", code)


FLORES = files(*(f"flores200_dataset/devtest/{name}_Latn.devtest" for name in ("deu", "fra")))
NTREX = files(*(f"ntrex/NTREX-128/newstest2019-ref.{name}.txt" for name in ("deu", "fra")))


def write_tatoeba(root: Path) -> None:
    codes = "ara ben cmn deu fra hin ind ita jpn por rus spa tgl tha tur urd vie".split()
    assert {canonical(code) for code in codes} == set(COMMON)
    for number, code in enumerate(codes):
        meanings = range(1000 * number, 1000 * number + SENTENCES + 5)
        for side, language in ((code, canonical(code)), ("eng", "eng-Latn")):
            write(root / "tatoeba" / "v1" / f"tatoeba.{code}-eng.{side}", language, meanings)


TATOEBA = files("tatoeba/v1/tatoeba.deu-eng.deu", "tatoeba/v1/tatoeba.fra-eng.fra")


def write_pairs(root: Path) -> None:
    for name in ("deu", "fra"):
        write(root / "tatoeba_pairs" / f"eng-{name}.tsv", f"{name}-Latn", range(1500), "eng-Latn {1}\t{0} {1}\n")


def write_own(root: Path) -> None:
    for name, code in CODES.items():
        write(root / "own" / f"{name}.txt", code)


def write_collection(root: Path) -> None:
    """German queries, whose documents are English and French."""
    (root / "own" / "qrels").mkdir(parents=True)
    documents = [{"_id": f"{c}{i}", "text": f"{c} {i}", "lang": c} for c in ("eng-Latn", "fra-Latn") for i in range(60)]
    queries = [{"_id": f"q{i}", "text": f"deu-Latn {i}", "lang": "deu-Latn"} for i in range(60)]
    for name, rows in (("corpus", documents), ("queries", queries)):
        (root / "own" / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    qrels = "".join(f"q{i}\t{code}{i}\t1\n" for i in range(60) for code in ("eng-Latn", "fra-Latn"))
    (root / "own" / "qrels" / "test.tsv").write_text(qrels)


def write_gettext(root: Path) -> None:
    rows = [{code: f"{code} {i}" for code in GETTEXT_LANGUAGES} for i in range(ROWS)]
    (root / "gettext").mkdir(parents=True)
    (root / "gettext" / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def in_lines(path: str, change: Callable[[list[dict[str, Any]]], None]) -> Callable[[Path], None]:
    """A change to the rows of a file of JSON lines."""

    def corrupt(root: Path) -> None:
        rows = [json.loads(line) for line in (root / path).read_text().splitlines()]
        change(rows)
        (root / path).write_text("".join(json.dumps(row) + "\n" for row in rows))

    return corrupt


def rename(rows: list[dict[str, Any]], both: bool) -> None:
    for row in rows:
        row["deu-Latn"], row["fra-Latn"] = row["fra-Latn"], row["deu-Latn"] if both else row["fra-Latn"]


STS = {subset: tuple(from_sts17(subset)) for subset in _TRACKS}


def write_sts(root: Path) -> None:
    for number, (subset, track) in enumerate(_TRACKS.items()):
        first, second = STS[subset]
        meanings = [(str(1000 * number + i), str(1000 * number + i + 500)) for i in range(ROWS)]
        for folder in ("STS2017.eval.v1.1", "STS2017.gs"):
            (root / "sts17" / folder).mkdir(parents=True, exist_ok=True)
        rows = (f"{first} {a}\t{second} {b}\n" for a, b in meanings)
        (root / "sts17" / "STS2017.eval.v1.1" / f"STS.input.{track}.txt").write_text("".join(rows))
        vectors = ([content(one) / np.linalg.norm(content(one)) for one in pair] for pair in meanings)
        gold = (f"{2.5 + 2.5 * float(a @ b):.3f}\n" for a, b in vectors)
        (root / "sts17" / "STS2017.gs" / f"STS.gs.{track}.txt").write_text("".join(gold))


def write_stsb(root: Path) -> None:
    gold = []
    for i in range(ROWS):
        a, b = (content(str(meaning)) for meaning in (i, i + 500))
        gold.append(2.5 + 2.5 * float(a @ b) / np.linalg.norm(a) / np.linalg.norm(b))
    for code in STSB_CODES:
        language = from_iso639_1(code)
        rows = (f"{language} {i},{language} {i + 500},{score:.3f}\n" for i, score in enumerate(gold))
        path = root / "stsb_multi_mt" / "data" / f"stsb-{code}-test.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(rows))


def stsb() -> dict[str, Callable[[Path], None]]:
    german, french = (f"stsb_multi_mt/data/stsb-{code}-test.csv" for code in ("de", "fr"))

    def columns(change: Callable[[list[list[str]]], list[list[str]]]) -> Callable[[Path], None]:
        def corrupt(root: Path) -> None:
            rows = [line.split(",") for line in (root / german).read_text().splitlines()]
            (root / german).write_text("".join(",".join(row) + "\n" for row in change(rows)))

        return corrupt

    return {
        "labels": columns(lambda rows: [[a, b, rows[i - 1][2]] for i, (a, b, _) in enumerate(rows)]),
        "shifted": columns(lambda rows: [[rows[i - 1][0], b, score] for i, (_, b, score) in enumerate(rows)]),
        "replaced": lambda root: shutil.copy(root / french, root / german),
    }


CROSS = [subset for subset, (first, second) in STS.items() if first != second][:2]
STS_INPUT, STS_OTHER = (f"sts17/STS2017.eval.v1.1/STS.input.{_TRACKS[subset]}.txt" for subset in CROSS)

PARAGRAPHS, PER_PARAGRAPH = 12, 4
ASKED = {"de": "deu-Latn", "en": "eng-Latn", "es": "spa-Latn"}


def paragraphs(language: str) -> list[dict[str, Any]]:
    """Sentence s of paragraph p means 4 p + s; one question each means what the second and the last do."""
    found = []
    for p in range(PARAGRAPHS):
        sentences = [f"{language} {1000 + PER_PARAGRAPH * p + s}" for s in range(PER_PARAGRAPH)]
        starts = np.cumsum([0, *(len(one) + 1 for one in sentences)]).tolist()
        found.append(
            {
                "context": " ".join(sentences),
                "qas": [
                    {
                        "id": f"{p}-{s}",
                        "question": sentences[s],
                        "answers": [{"answer_start": starts[s] + len(language) + 1, "text": "1"}],
                    }
                    for s in (1, 3)
                ],
                "sentence_breaks": [[at, at + len(one)] for at, one in zip(starts, sentences, strict=False)],
                "sentences": sentences,
            }
        )
    return found


def lareqa(task: type[Any], folder: str) -> Case:
    class Small(task):
        expected = dict.fromkeys(ASKED.values(), (2 * PARAGRAPHS, PARAGRAPHS * PER_PARAGRAPH))
        needs = tuple(ASKED.values())
        metadata = task.metadata.model_copy(update={"eval_langs": {code: [code] for code in ASKED.values()}})

    def write_all(root: Path) -> None:
        for code, language in ASKED.items():
            path = root / "lareqa" / folder / f"{code}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({"data": [{"title": "", "paragraphs": paragraphs(language)}]}))

    def questions(name: str) -> Callable[[Path], None]:
        return lambda root: edit(
            root / "lareqa" / folder / "de.json",
            lambda value: rotate([one for p in value["data"][0]["paragraphs"] for one in p["qas"]], name),
        )

    def labels(root: Path) -> None:
        """The answers of a paragraph's two questions change places."""

        def change(value: Any) -> None:
            for p in value["data"][0]["paragraphs"]:
                rotate(p["qas"], "answers")

        edit(root / "lareqa" / folder / "de.json", change)

    german, spanish = (f"lareqa/{folder}/{code}.json" for code in ("de", "es"))
    return Case(
        Small,
        write_all,
        {"labels": labels, "shifted": questions("question"), "replaced": files(german, spanish)["replaced"]},
    )


def label(meaning: int) -> str:
    """What a linear classifier learns of a meaning."""
    return str(int(content(str(meaning))[0] > 0))


TRAIN, TEST = range(1000, 1200), range(5000, 5100)


def write_labelled(folder: Path, language: str) -> None:
    for part, meanings in (("train", TRAIN), ("test", TEST)):
        write(folder / f"{part}_text.txt", language, meanings)
        (folder / f"{part}_labels.txt").write_text("".join(f"{label(i)}\n" for i in meanings))


def labelled(folder: str, german: str, french: str) -> dict[str, Callable[[Path], None]]:
    found = files(f"{folder}/{german}/test_text.txt", f"{folder}/{french}/test_text.txt")
    return {**found, "labels": lambda root: shift(root / folder / german / "test_labels.txt")}


def write_tweets(root: Path) -> None:
    for code, name in TWEETS.items():
        write_labelled(root / "xlmt_sentiment" / "sentiment" / name, code)


def write_xnli(root: Path) -> None:
    """An entailed hypothesis means what its premise does, a contradictory one its opposite word, others anything."""
    for language, code in XNLI.items():
        path = root / "xnli" / "dev" / f"dev-{code}.tsv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            "".join(
                f"{language} {i}\t{language} {meaning}\t{label}\n"
                for i in range(1, 301)
                for meaning, label in ((i, "entailment"), (0, "contradiction"), (5000 + i, "neutral"))
            )
        )


def write_udhr(root: Path) -> None:
    for name, code in CODES.items():
        (root / "udhr" / "paragraphs").mkdir(parents=True, exist_ok=True)
        rows = "".join(f"a01.{i}\t{code} {i}\n" for i in range(ROWS))
        (root / "udhr" / "paragraphs" / f"{name}.tsv").write_text(rows)


def write_stars(root: Path) -> None:
    for code in CODES.values():
        write_labelled(root / "stars" / code, code)


def write_sib(root: Path) -> None:
    base = root / "flores200_dataset"
    for code in CODES.values():
        write(base / "devtest" / f"{to_flores(code)}.devtest", code, TEST)
        rows = "".join(f"{i}\t{code} {meaning}\n" for i, meaning in enumerate(TRAIN))
        (base / "dev_sib").mkdir(exist_ok=True)
        (base / "dev_sib" / f"{to_flores(code)}.tsv").write_text(rows)
    parts = (("train", 0, TRAIN), ("test", DEVTEST, TEST))
    rows = (f"{start + i}\t{part}\t{label(one)}\n" for part, start, ones in parts for i, one in enumerate(ones))
    (base / "sib_labels.tsv").write_text("index_id\tsplit\tcategory\n" + "".join(rows))


def write_reviews(root: Path) -> None:
    for code, folder in FOLDERS.items():
        for category in CATEGORIES:
            for part, meanings in (("train", TRAIN), ("test", TEST)):
                items = (
                    f"<item><rating>{4 * int(label(i)) + 1}.0</rating><summary>{code}</summary><text>{i}</text></item>"
                    for i in meanings
                )
                path = root / "cls-acl10-unprocessed" / folder / category / f"{part}.review"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("<items>\n" + "\n".join(items) + "\n</items>\n")


def reviews(change: Callable[[str], str]) -> Callable[[Path], None]:
    def corrupt(root: Path) -> None:
        for category in CATEGORIES:
            path = root / "cls-acl10-unprocessed" / "de" / category / "test.review"
            path.write_text(change(path.read_text()))

    return corrupt


def shifted_texts(text: str) -> str:
    values = re.findall("<text>(.*?)</text>", text)
    moved = iter(values[1:] + values[:1])
    return re.sub("<text>.*?</text>", lambda _: f"<text>{next(moved)}</text>", text)


SHOPS = {name: from_lazada(name) for name in ("th", "vn")}


def shop(task: type[Any]) -> Case:
    titles = task.item_language

    def write_all(root: Path) -> None:
        for name, code in SHOPS.items():
            for file, rows in (
                ("queries", [{"id": f"q{i}", "text": f"{code} {i}"} for i in range(60)]),
                ("corpus", [{"id": f"i{i}", "text": f"{titles or code} {i}"} for i in range(60)]),
                ("qrels/test", [{"query-id": f"q{i}", "corpus-id": f"i{i}", "score": 1} for i in range(60)]),
            ):
                path = root / task.folder / name / f"{file}.jsonl"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    thai, vietnamese = (f"{task.folder}/{name}" for name in SHOPS)
    corruptions = {
        "labels": in_lines(f"{thai}/qrels/test.jsonl", lambda rows: rotate(rows, "corpus-id")),
        "shifted": in_lines(f"{thai}/corpus.jsonl", lambda rows: rotate(rows, "text")),
        "replaced": files(f"{thai}/queries.jsonl", f"{vietnamese}/queries.jsonl")["replaced"],
    }
    return Case(task, write_all, corruptions, list(SHOPS))


CASES: dict[type[Any], Case] = {
    FloresPrecision: Case(FloresPrecision, write_flores, FLORES, PAIRS),
    NTREXPrecision: Case(NTREXPrecision, write_ntrex, NTREX, PAIRS),
    FloresMining: Case(FloresMining, write_flores, FLORES, [PAIRS[0]]),
    NTREXMining: Case(NTREXMining, write_ntrex, NTREX, [PAIRS[0]]),
    UDHRPrecision: Case(
        UDHRPrecision, write_udhr, files("udhr/paragraphs/deu.tsv", "udhr/paragraphs/fra.tsv"), PAIRS
    ),
    STSBSameLanguage: Case(STSBSameLanguage, write_stsb, stsb(), ["de-de"]),
    STSBCrossLingual: Case(STSBCrossLingual, write_stsb, stsb(), ["de-en"]),
    XNLIZeroShot: Case(
        XNLIZeroShot, write_xnli,
        {
            "labels": lambda root: shift(root / "xnli/dev/dev-de.tsv", 2),
            "shifted": lambda root: shift(root / "xnli/dev/dev-de.tsv", 1),
            "replaced": lambda root: shutil.copy(root / "xnli/dev/dev-fr.tsv", root / "xnli/dev/dev-de.tsv"),
        },
        ["deu-Latn", "eng-Latn"],
    ),
    NTREXBitextMining: Case(NTREXBitextMining, write_ntrex, NTREX, PAIRS),
    Tatoeba36: Case(Tatoeba36, write_tatoeba, TATOEBA, PAIRS[:2]),
    STS17CrossLingual: Case(
        STS17CrossLingual, write_sts,
        {
            "labels": lambda root: shift(root / f"sts17/STS2017.gs/STS.gs.{_TRACKS[CROSS[0]]}.txt"),
            "shifted": lambda root: shift(root / STS_INPUT, 1),
            "replaced": lambda root: shutil.copy(root / STS_OTHER, root / STS_INPUT),
        },
        CROSS,
    ),
    # its languages have sentences of their own, so that no row has a counterpart to be shifted from
    LanguageIdentity: Case(
        LanguageIdentity, write_tatoeba, {key: TATOEBA[key] for key in ("labels", "replaced")}, ["common18"]
    ),
    OrthogonalityTask: Case(
        OrthogonalityTask, write_pairs,
        {
            **files("tatoeba_pairs/eng-deu.tsv", "tatoeba_pairs/eng-fra.tsv"),
            "shifted": lambda root: shift(root / "tatoeba_pairs/eng-deu.tsv", 1),
        },
        ["eng_Latn-deu_Latn"],
    ),
    **{
        task: Case(task, lambda root: (write_flores(root), write_ntrex(root)), FLORES, PAIRS)
        for task in (IsomorphismStudy, IsomorphismStudyRaw)
    },
    XQuADR: lareqa(XQuADR, "xquad-r"),
    XQuADRAsPublished: lareqa(XQuADRAsPublished, "xquad-r"),
    MLQAR: lareqa(MLQAR, "mlqa-r"),
    SIB200ZeroShot: Case(
        SIB200ZeroShot, write_sib,
        {**FLORES, "labels": lambda root: shift(root / "flores200_dataset/sib_labels.tsv", 2, 1 + len(TRAIN))},
        ["deu-Latn", "eng-Latn"],
    ),
    TweetSentimentZeroShot: Case(
        TweetSentimentZeroShot, write_tweets, labelled("xlmt_sentiment/sentiment", "german", "french"),
        ["deu-Latn", "eng-Latn"],
    ),
    AmazonReviewsZeroShot: Case(
        AmazonReviewsZeroShot, write_reviews,
        {
            "labels": reviews(lambda text: re.sub(r"([15])\.0<", lambda match: f"{6 - int(match[1])}.0<", text)),
            "shifted": reviews(shifted_texts),
            "replaced": reviews(lambda text: text.replace("deu-Latn", "fra-Latn")),
        },
        ["deu-Latn", "eng-Latn"],
    ),
    AmazonStarsZeroShot: Case(
        AmazonStarsZeroShot, write_stars, labelled("stars", "deu-Latn", "fra-Latn"), ["deu-Latn", "eng-Latn"]
    ),
    LazRetrieval: shop(LazRetrieval),
    ProductSearchStandIn: shop(ProductSearchStandIn),
    GettextPrecision: Case(
        GettextPrecision, write_gettext,
        {
            "labels": in_lines("gettext/corpus.jsonl", lambda rows: rename(rows, True)),
            "shifted": in_lines("gettext/corpus.jsonl", lambda rows: rotate(rows, "deu-Latn")),
            "replaced": in_lines("gettext/corpus.jsonl", lambda rows: rename(rows, False)),
        },
        PAIRS,
    ),
    OwnParallel: Case(OwnParallel, write_own, files("own/deu.txt", "own/fra.txt")),
    OwnRetrieval: Case(
        OwnRetrieval, write_collection,
        {
            "labels": in_lines("own/queries.jsonl", lambda rows: [row.update(lang="fra-Latn") for row in rows]),
            "shifted": lambda root: shift(root / "own/qrels/test.tsv", 1),
            "replaced": lambda root: shutil.copy(root / "own/queries.jsonl", root / "own/corpus.jsonl"),
        },
    ),
}  # fmt: skip
