"""Training sets: their rows, what evaluation sets hold of them, and hard negatives."""

from __future__ import annotations

import gzip
import json
import logging
import re
from types import SimpleNamespace

import numpy as np
import pytest

from xalign_models.errors import DataError, ModelError
from xalign_models.training.lusifer.config import DataConfig
from xalign_models.training.lusifer.data.base import detokenise, draw
from xalign_models.training.lusifer.data.mining import Miner, mine
from xalign_models.training.lusifer.data.sources import SOURCES, EvaluationText, evaluation_text, rows_of, squeeze

NOTHING = EvaluationText()


def test_rows_are_drawn_by_seed_alone():
    rows = [(str(i),) for i in range(50)]
    found = draw(rows, 10, 3)
    assert found == draw(rows, 10, 3) == draw(rows, None, 3)[:10] != draw(rows, 10, 4)
    assert len(set(found)) == 10
    assert sorted(draw(rows, None, 0)) == sorted(rows)


@pytest.mark.parametrize(
    ("name", "count", "sides"),
    [("wikitext-2", 40, 1), ("squad-nqg", 40, 2), ("multi30k", 40, 2), ("stsbenchmark", 13, 2), ("sick", 13, 2)],
)
def test_local_sets(english, name, count, sides):
    """Of the pairs' 20 scores 3 4 5 3 4 5 ...: STS keeps 13 of 4 and 5; SICK the entailed 10 and 3 more of 5."""
    rows = rows_of(DataConfig(name), NOTHING, 0)
    assert len(rows) == count == len(set(rows))
    assert {len(row) for row in rows} == {sides}
    assert SOURCES[name].pairs == (sides == 2)
    assert len(rows_of(DataConfig(name, samples=5), NOTHING, 0)) == 5


def test_captions_are_of_one_image(english):
    files = [english / "multi30k" / "task2" / "raw" / f"train.{i}.en.gz" for i in range(1, 6)]
    images = list(zip(*(gzip.decompress(file.read_bytes()).decode().splitlines() for file in files), strict=True))
    image_of = {text: i for i, image in enumerate(images) for text in image}
    for one, other in rows_of(DataConfig("multi30k"), NOTHING, 0):
        assert one != other
        assert image_of[one] == image_of[other]


def test_wikitext_has_whole_known_sentences(english):
    lines = " = Title = \n\n" + "w1 w2 w3 w4 <unk> w6 . w1 w2 w3 w4 w5 w6 w7 . w1 w2 . \n"
    for part in ("valid", "test"):
        (english / "wikitext2" / f"{part}.txt").write_text(lines)
    assert set(rows_of(DataConfig("wikitext-2"), NOTHING, 0)) == {("w1 w2 w3 w4 w5 w6 w7.",)}


@pytest.mark.parametrize(
    ("tokenised", "expected"),
    [
        ("a man , who was 24 @-@ year old , ran .", "a man, who was 24-year old, ran."),
        ("the -lrb- afc -rrb- won 1 @,@ 000 games", "the (afc) won 1,000 games"),
        ("levi 's stadium does n't exist ?", "levi's stadium doesn't exist?"),
        ("`` venite ''", '"venite"'),
    ],
)
def test_tokenised_text_is_written_as_usual(tokenised, expected):
    assert detokenise(tokenised) == expected


def test_what_evaluation_sets_hold_is_left_out(english, caplog):
    rows = rows_of(DataConfig("squad-nqg"), NOTHING, 0)
    (english / "sts17" / "STS2017.eval.v1.1").mkdir(parents=True)
    track = english / "sts17" / "STS2017.eval.v1.1" / "STS.input.track5.en-en.txt"
    track.write_text(f"{rows[0][0].upper()} !\tw1\n{rows[1][1].replace(' ', '  ')}\tw2\n")
    (english / "lareqa" / "xquad-r").mkdir(parents=True)
    paragraph = {"context": f"w0. {rows[2][1]}. w3", "qas": [{"question": rows[3][0]}]}
    (english / "lareqa" / "xquad-r" / "en.json").write_text(json.dumps({"data": [{"paragraphs": [paragraph]}]}))
    with caplog.at_level(logging.INFO):
        assert set(rows_of(DataConfig("squad-nqg"), evaluation_text(), 0)) == set(rows[4:])
    assert "removed 4 of 40 rows" in caplog.text


def test_pairs_that_are_compared_are_left_out_and_their_sentences_are_not(english):
    """SICK pairs the same sentences in training and in test, in other ways."""
    rows = rows_of(DataConfig("sick"), NOTHING, 0)
    (one, other), (third, _) = rows[:2]
    (english / "sick_en" / "SICK_test_annotated.txt").write_text(f"h\n1\t{other}\t{one}\n2\t{one}\t{third}\n")
    assert set(rows_of(DataConfig("sick"), evaluation_text(), 0)) == set(rows[1:])


def test_short_texts_within_a_passage_are_no_coincidence_of_note():
    text = EvaluationText(frozenset({"abc"}), squeeze("the quick brown fox jumps over the lazy dog and more"))
    assert text.holds("A b-C!")
    assert text.holds("Quick brown fox, jumps over the lazy dog")
    assert not text.holds("the quick")
    assert text.without([("abc", "x"), ("x", "y"), ("y", "A BC")]) == [("x", "y")]


def test_a_set_with_nothing_left_is_refused(english):
    (english / "squad_nqg" / "src-test.txt").write_text("\n" * 40)
    with pytest.raises(DataError, match="'squad-nqg' has no row left: of 40 rows, 40 are empty"):
        rows_of(DataConfig("squad-nqg"), NOTHING, 0)


def test_missing_or_malformed_sets_are_refused(english, monkeypatch):
    (english / "sick_en" / "SICK_train.txt").write_text("header\nonly one column\n")
    with pytest.raises(DataError, match="sick_en is not in the layout of SICK"):
        rows_of(DataConfig("sick"), NOTHING, 0)
    with pytest.raises(ModelError, match="no training set 'snips'; choose from wikitext-2"):
        rows_of(DataConfig("snips"), NOTHING, 0)
    monkeypatch.delenv("XALIGN_DATA")
    with pytest.raises(DataError, match="'squad_nqg' is missing: set XALIGN_DATA"):
        rows_of(DataConfig("squad-nqg"), NOTHING, 0)


@pytest.mark.parametrize("number", [1, 4])
@pytest.mark.parametrize(
    "content",
    [b"no gzip", gzip.compress(b"w1 w2\n")[:-9], b"\x1f\x8b\x08" + b"\0" * 7 + b"\xff" * 9, gzip.compress(b"\xff\n")],
    ids=["no gzip", "cut off", "garbled", "no UTF-8"],
)
def test_a_damaged_file_is_named(english, number, content):
    damaged = english / "multi30k" / "task2" / "raw" / f"train.{number}.en.gz"
    damaged.write_bytes(content)
    with pytest.raises(DataError, match=f"^{re.escape(str(damaged))} cannot be read: "):
        rows_of(DataConfig("multi30k"), NOTHING, 0)


@pytest.fixture
def on_hub(monkeypatch):
    """Tables by (path, config, split), as the hub would give them."""
    import datasets

    def put(tables):
        def load(path, config, *, split, revision):
            return datasets.Dataset.from_dict(tables[path, config, split])

        monkeypatch.setattr(datasets, "load_dataset", load)

    return put


def test_beir_sets_give_training_queries_that_no_test_has(on_hub):
    path = "mteb/fiqa"
    on_hub(
        {
            (path, "default", "train"): {
                "query-id": ["q1", "q1", "q2", "q3", "q4"],
                "corpus-id": ["d1", "d2", "d2", "d3", "d1"],
                "score": [0, 1, 1, 1, 1],
            },
            (path, "default", "test"): {"query-id": ["q3"], "corpus-id": ["d3"], "score": [1]},
            (path, "queries", "queries"): {"_id": ["q1", "q2", "q3", "q4"], "text": ["one", "two", "three", "four"]},
            (path, "corpus", "corpus"): {"_id": ["d1", "d2", "d3"], "title": ["A", "", "C"], "text": ["a", "b", "c"]},
        }
    )
    rows = SOURCES["fiqa"].read(None, 0)
    assert set(rows) == {("one", "b"), ("two", "b"), ("four", "A a")}
    assert len(SOURCES["fiqa"].read(2, 0)) == 2


def test_other_sets_of_the_hub(on_hub):
    on_hub({
        ("Salesforce/wikitext", "wikitext-103-raw-v1", "train"): {"text": ["", " = T = \n", " One . \n", "Two"]},
        ("stanfordnlp/snli", None, "train"): {
            "premise": ["p", "p", "p", "q", "r", "r"], "hypothesis": ["e", "n", "c", "e2", "e3", "x"],
            "label": [0, 1, 2, 0, 0, -1],
        },
        ("rajpurkar/squad", None, "train"): {"question": ["q1", "q2"], "context": ["c1", "c2"], "title": ["t", "t"]},
        ("sentence-transformers/paq", "pair", "train"): {"query": ["q"], "answer": ["a"]},
        ("sentence-transformers/natural-questions", None, "train"): {"query": ["n"], "answer": ["m"]},
    })  # fmt: skip
    assert set(SOURCES["wikitext-103"].read(None, 0)) == {("One .",), ("Two",)}
    assert SOURCES["snli"].read(None, 0) == [("p", "e", "c")]
    assert set(SOURCES["squad"].read(None, 0)) == {("q1", "c1"), ("q2", "c2")}
    assert (SOURCES["paq"].read(1, 0), SOURCES["nq"].read(1, 0)) == ([("q", "a")], [("n", "m")])


def test_a_hub_that_cannot_be_reached_is_named(workdir):
    with pytest.raises(DataError, match=r"rajpurkar/squad is not available from the hub .*--config small"):
        SOURCES["squad"].read(3, 0)


def test_arguana_is_no_training_set():
    assert not [name for name in SOURCES if "arguana" in name.lower()]


@pytest.fixture
def planted_encoder(workdir, monkeypatch):
    """Vectors on a circle: the text ``q 30`` or ``p 30`` is the point at 30 degrees; records prompts and routes."""
    seen = []

    def encode_texts(texts, languages, prompt="", progress=None, side=""):
        seen.append((prompt, side))
        angles = np.deg2rad([float(text.split()[1]) for text in texts])
        return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)

    encoder = SimpleNamespace(
        raw=SimpleNamespace(device="cpu"),
        prompts={"query": "Q: ", "document": "P: "},
        encode_texts=encode_texts,
        mteb_model_meta=SimpleNamespace(revision="1"),
    )
    monkeypatch.setattr("xalign_models.models.building.load_encoder", lambda *_, **__: encoder)
    return seen


def test_hard_negatives_are_the_nearest_below_the_margin(planted_encoder):
    """q 0 is answered at 10 degrees (0.985): at 5%, 12 is too near and 20 (0.940) as well; 30 (0.866) is left."""
    rows = [("q 0", "p 10"), ("q 90", "p 90"), ("q 1", "p 12"), ("q 2", "p 20"), ("q 3", "p 30")]
    mined = {row[0]: row for row in mine(rows, Miner("any", 1, margin=0.05))}
    assert mined["q 0"] == ("q 0", "p 10", "p 30")
    assert mined["q 90"] == ("q 90", "p 90", "p 30")
    assert planted_encoder == [("P: ", "document"), ("Q: ", "query")]
    assert {row[0]: row for row in mine(rows, Miner("any", 1, margin=0.05))} == mined
    assert len(planted_encoder) == 2  # the second time it is found in the cache
    two = {row[0]: row for row in mine(rows, Miner("any", 2, margin=0.0))}
    assert two["q 0"] == ("q 0", "p 10", "p 12", "p 20")


def test_nothing_to_mine_is_refused(planted_encoder):
    with pytest.raises(DataError, match="no row has 2 passages"):
        mine([("q 0", "p 1"), ("q 2", "p 1")], Miner("any", 2))
    with pytest.raises(ModelError, match=r"^negatives 0"):
        Miner("any", 0)


@pytest.mark.realdata
def test_no_question_of_xquad_is_trained_on():
    from xalign_models.paths import data_dir

    root = data_dir()
    if root is None or not (root / "squad_nqg").is_dir() or not (root / "lareqa").is_dir():
        pytest.skip("XALIGN_DATA has no squad_nqg and lareqa")
    held = json.loads((root / "lareqa" / "xquad-r" / "en.json").read_text(encoding="utf-8"))
    questions = {
        re.sub(r"\W", "", one["question"]).lower()
        for article in held["data"]
        for paragraph in article["paragraphs"]
        for one in paragraph["qas"]
    }
    evaluated = evaluation_text()
    rows = rows_of(DataConfig("squad-nqg"), evaluated, 0)
    assert len(rows) > 11_000
    assert not questions & {re.sub(r"\W", "", question).lower() for question, _ in rows}
    captions = rows_of(DataConfig("multi30k"), evaluated, 0)
    assert 28_000 < len(captions) < 29_000  # STS17's sentences are such captions


def test_given_negatives_stand_before_those_that_are_mined(monkeypatch):
    """As SNLI's contradictions do, which mining used to throw away."""
    from xalign_models.training.lusifer import stages
    from xalign_models.training.lusifer.config import DataConfig, LusiferConfig, Stage
    from xalign_models.training.lusifer.data.mining import Miner

    given = [("q1", "p1", "contradiction 1"), ("q2", "p2", "contradiction 2")]
    monkeypatch.setattr(stages, "evaluation_text", lambda: None)
    monkeypatch.setattr(stages, "rows_of", lambda *_: given)
    monkeypatch.setattr(stages, "mine", lambda rows, *_: [(*row, "near", "nearer") for row in rows[:1]])
    stage = Stage("tuned", ("llm",), (DataConfig("snli"),), mining=Miner("any", 2))
    config = LusiferConfig(None, "writer", {1: None, 2: stage})
    assert stages.read(config, 2, "cpu").rows == {"snli": [("q1", "p1", "contradiction 1", "near")]}
