"""Own queries, documents and judgements: what is read, the scores, and what is refused."""

from __future__ import annotations

import json
import math
import os

import numpy as np
import pytest
import pytrec_eval

from xalign_models.corpora.collection import read_collection
from xalign_models.errors import DataError
from xalign_models.plugins import TASKS
from xalign_models.specs import AlignmentSpec, BackboneSpec, ModelSpec
from xalign_tasks.own_retrieval import OwnRetrieval

QUERIES = [("q1", "was", "de"), ("q2", "what", "en"), ("q3", "wo", "de")]
DOCUMENTS = [("d1", "eins", "de"), ("d2", "one", "en"), ("d3", "two", "en"), ("d4", "zwei", "deu_Latn")]
QRELS = [("q1", "d1", 1), ("q1", "d2", 2), ("q2", "d3", 1), ("q3", "d4", 0), ("q3", "d2", 1)]


def write(folder, queries=QUERIES, documents=DOCUMENTS, qrels=QRELS, header="query-id\tcorpus-id\tscore\n"):
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    for name, rows in (("queries", queries), ("corpus", documents)):
        records = [{"_id": i, "text": text, **({"lang": lang} if lang else {})} for i, text, lang in rows]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    lines = "".join("\t".join(map(str, row)) + "\n" for row in qrels)
    (folder / "qrels" / "test.tsv").write_text(header + lines)
    return folder


def random_collection(folder, rng, queries=40, documents=60):
    """Queries and documents in three languages, with graded judgements."""
    langs = ["de", "en", "fr"]
    asked = [(f"q{i}", f"query {i}", langs[rng.integers(3)]) for i in range(queries)]
    stored = [(f"d{i}", f"text {i}", langs[rng.integers(3)]) for i in range(documents)]
    qrels = [
        (f"q{i}", f"d{j}", int(rng.integers(1, 4)))
        for i in range(queries)
        for j in rng.choice(documents, rng.integers(1, 15), replace=False)
    ]
    return write(folder, asked, stored, qrels), {i: lang for i, _, lang in asked + stored}


def test_a_half_is_fitted_on_no_query_of_the_other_half(tmp_path):
    asked = [(f"q{i}", f"query {i}", "de") for i in range(20)]
    stored = [(f"d{i}", f"query {i}" if i < 10 else f"text {i}", "de") for i in range(20)]
    folder = write(tmp_path, asked, stored, [(f"q{i}", f"d{i}", 1) for i in range(20)])
    fit, test = (read_collection(folder, part) for part in ("fit", "test"))
    texts = {text for collection in (fit, test) for text, _ in collection.queries.values()}
    assert len(texts) == 20
    for own, other in ((fit, test), (test, fit)):
        read = {*own.corpus("own").rows("deu-Latn")}
        assert not read & {text for text, _ in other.queries.values()}
        assert read >= {f"text {i}" for i in range(10, 20)} | {text for text, _ in own.queries.values()}
        assert len(own.documents) == 20
    assert {*read_collection(folder).corpus("own").rows("deu-Latn")} == {text for _, text, _ in asked + stored}


class Vectors:
    """An encoder with a vector for each text."""

    def __init__(self, vectors):
        self.vectors = vectors

    def encode(self, inputs, **_):
        return np.stack([self.vectors[text] for batch in inputs for text in batch["text"]])


@pytest.mark.parametrize("ties", [False, True])
def test_the_scores_are_trec_evals_on_a_pool_without_the_other_languages_relevant_documents(tmp_path, ties):
    rng = np.random.default_rng(3)
    folder, spoken = random_collection(tmp_path, rng)
    task = OwnRetrieval(path=folder)
    collection = task.collection
    texts = [text for text, _ in [*collection.queries.values(), *collection.documents.values()]]
    table = {text: rng.normal(size=6).astype(np.float32) for text in texts}
    if ties:
        table |= {f"text {i}": table["text 0"] for i in range(0, 60, 2)}
    scores = task.evaluate(Vectors(table), encode_kwargs={})
    unit = {text: row / np.linalg.norm(row) for text, row in table.items()}
    languages = {"de": "deu_Latn", "en": "eng_Latn", "fr": "fra_Latn"}
    assert len(scores) == 9
    for subset, found in scores.items():
        source, target = subset.split("-")
        relevant, results = {}, {}
        for query, grades in collection.relevant.items():
            kept = {d: int(g) for d, g in grades.items() if languages[spoken[d]] == target}
            if languages[spoken[query]] != source or not kept:
                continue
            pool = [d for d in collection.documents if d in kept or d not in grades]
            # trec_eval breaks ties by id; the worst order for the model puts relevant documents last
            scored = {d: float(unit[collection.queries[query][0]] @ unit[collection.documents[d][0]]) for d in pool}
            results[query] = {d: s - 1e-5 * (d in kept) for d, s in scored.items()}
            relevant[query] = kept
        if not ties:
            oracle = pytrec_eval.RelevanceEvaluator(relevant, {"ndcg_cut.10", "recall.10"}).evaluate(results)
            assert found["ndcg_at_10"] == pytest.approx(
                np.mean([row["ndcg_cut_10"] for row in oracle.values()]), abs=1e-6
            )
            assert found["recall_at_10"] == pytest.approx(
                np.mean([row["recall_10"] for row in oracle.values()]), abs=1e-6
            )
        firsts = [
            min(1 + sum(v >= results[q][d] + 1e-6 for o, v in results[q].items() if o != d) for d in relevant[q])
            for q in relevant
        ]
        assert found["mrr"] == pytest.approx(np.mean([1 / rank for rank in firsts]), abs=1e-6)
        assert ("same" in found) == (source == target) == ("cross" not in found)
    assert len({found["ndcg_at_10_all_languages"] for found in scores.values()}) == 1


def test_a_model_that_prefers_its_language_shows_in_the_share_of_the_first_ten(tmp_path):
    rng = np.random.default_rng(1)
    folder, _ = random_collection(tmp_path, rng, documents=90)
    task = OwnRetrieval(path=folder)
    axes = {"deu-Latn": 0, "eng-Latn": 1, "fra-Latn": 2}
    everything = [*task.collection.queries.values(), *task.collection.documents.values()]
    scores = task.evaluate(
        Vectors({t: 9 * np.eye(6)[axes[c]] + rng.normal(size=6) for t, c in everything}), encode_kwargs={}
    )
    for subset, found in scores.items():
        source, target = subset.split("-")
        assert found["language_in_top_10"] == pytest.approx(float(source == target))
        assert 0.1 < found["language_of_relevant"] < 0.6
        assert scores[f"{source}-{source}"]["same"] >= found["main_score"]


def test_the_halves_share_documents_and_no_query(tmp_path):
    folder, _ = random_collection(tmp_path, np.random.default_rng(0))
    whole, fit, test = (read_collection(folder, part) for part in ("", "fit", "test"))
    assert fit.queries.keys() | test.queries.keys() == whole.queries.keys()
    assert not fit.queries.keys() & test.queries.keys()
    assert fit.documents == test.documents
    assert len({whole.identity, fit.identity, test.identity}) == 3


def test_ids_titles_grades_and_languages_are_read(tmp_path):
    write(tmp_path)
    (tmp_path / "corpus.jsonl").write_text(
        '{"_id": 1, "title": "A", "text": "b", "lang": "de"}\n\n{"id": "2", "text": "c", "lang": "en"}\n'
    )
    (tmp_path / "qrels" / "test.tsv").write_text("q1\t1\t1.0\nq2\t2\t-1\n")
    found = read_collection(tmp_path)
    assert found.documents == {"1": ("A b", "deu-Latn"), "2": ("c", "eng-Latn")}
    assert found.relevant == {"q1": {"1": 1.0}}
    assert found.queries == {"q1": ("was", "deu-Latn")}


def test_white_space_around_ids_and_before_the_header_means_nothing(tmp_path):
    path = write(tmp_path, header="\n \nquery-id\tcorpus-id\tscore\n")
    before = read_collection(path).relevant
    for name in ("queries.jsonl", "corpus.jsonl"):
        (path / name).write_text((path / name).read_text().replace('"_id": "', '"_id": " '))
    found = read_collection(path)
    assert found.relevant == before
    assert found.queries.keys() <= before.keys()


def test_languages_are_found_and_rare_ones_are_errors(tmp_path):
    pytest.importorskip("py3langid")
    german = [
        "Der Hund schläft unter dem Tisch.",
        "Wann kommt der nächste Zug nach Köln an?",
        "Das Wetter ist heute schön.",
    ]
    english = [
        "The dog sleeps under the table.",
        "When does the next train to Cologne arrive?",
        "The weather is fine today.",
    ]
    rows = [(f"d{i}{j}", text, None) for i in range(20) for j, text in enumerate(german + english)]
    write(tmp_path, [("q", "Wo schläft der Hund?", None)], [*rows, ("x", "ok 12", None)], [("q", "d00", 1)])
    found = read_collection(tmp_path)
    assert {code for _, code in found.documents.values()} == {"deu-Latn", "eng-Latn"}
    assert found.documents["d00"][1] == "deu-Latn"
    assert found.documents["d03"][1] == "eng-Latn"


def spoil_line(name, line):
    def spoil(folder):
        with (folder / name).open("a") as file:
            file.write(line + "\n")

    return spoil


@pytest.mark.parametrize(
    ("spoil", "match"),
    [
        (spoil_line("corpus.jsonl", "{"), r"corpus.jsonl, line 5 is damaged: not JSON"),
        (spoil_line("corpus.jsonl", "[1]"), "line 5 is damaged: an object was expected"),
        (spoil_line("corpus.jsonl", "[" * 100_000), "line 5 is damaged"),
        (spoil_line("corpus.jsonl", '{"_id": "d1", "text": "x"}'), "line 5: the id 'd1' is repeated"),
        (spoil_line("corpus.jsonl", '{"text": "x"}'), "line 5: no id in the field 'id'"),
        (spoil_line("corpus.jsonl", '{"_id": null, "text": "x"}'), "line 5: no id in the field '_id'"),
        (spoil_line("corpus.jsonl", '{"_id": true, "text": "x"}'), "the id 'True' in the field '_id' is neither text"),
        (
            spoil_line("corpus.jsonl", '{"_id": 1.0, "text": "x"}'),
            "line 5: the id '1.0' in the field '_id' is neither text",
        ),
        (
            spoil_line("corpus.jsonl", '{"_id": " ", "text": "x"}'),
            "line 5: the id ' ' in the field '_id' is neither text",
        ),
        (spoil_line("corpus.jsonl", '{"_id": " d1", "text": "x"}'), "line 5: the id 'd1' is repeated"),
        (spoil_line("corpus.jsonl", f'{{"_id": {"1" * 5000}, "text": "x"}}'), r"\(a number has too many digits\)"),
        (spoil_line("corpus.jsonl", '{"_id": "d9", "text": NaN}'), "line 5: no text"),
        (spoil_line("corpus.jsonl", '{"_id": "d9", "text": " "}'), "line 5: no text"),
        (spoil_line("corpus.jsonl", '{"_id": "d9", "text": "a\\u0000b"}'), "line 5 has a NUL byte"),
        (spoil_line("corpus.jsonl", '{"_id": "d9", "text": "\\ud800"}'), "half of a surrogate pair"),
        (
            spoil_line("corpus.jsonl", '{"_id": "d9", "text": "x", "lang": "qqqq"}'),
            "line 5: Unknown language code 'qqqq'",
        ),
        (
            spoil_line("corpus.jsonl", json.dumps({"_id": "d9", "text": "x" * 1_000_001})),
            "line 5 has more than 1,000,000",
        ),
        (spoil_line("qrels/test.tsv", "q9\td1\t1"), "line 7: the id 'q9' is not in queries.jsonl"),
        (spoil_line("qrels/test.tsv", "q1\td9\t1"), "line 7: the id 'd9' is not in corpus.jsonl"),
        (spoil_line("qrels/test.tsv", "q1\td3\tnan"), "line 7: the score 'nan' is not a number"),
        (spoil_line("qrels/test.tsv", "q1\td3\tinf"), "line 7: the score 'inf' is not a number"),
        (spoil_line("qrels/test.tsv", "q1\td3\t1e308"), "line 7: the score '1e308' is over 1,000,000; give lower"),
        (spoil_line("qrels/test.tsv", "q1\td1\t1"), "line 7 judges 'q1' and 'd1' twice"),
        (spoil_line("qrels/test.tsv", "q1 d1 1"), "line 7: 1 column;"),
        (
            lambda folder: (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n"),
            "no query has a relevant",
        ),
        (lambda folder: (folder / "qrels" / "test.tsv").rename(folder / "qrels" / "a.txt"), "it needs test.tsv"),
        (lambda folder: (folder / "corpus.jsonl").unlink(), "corpus.jsonl cannot be read: No such file"),
        (lambda folder: (folder / "queries.jsonl").write_bytes(b"\xff\xfe"), "is not UTF-8"),
    ],
)
def test_malformed_collections_are_refused_in_one_line(tmp_path, spoil, match):
    spoil(write(tmp_path))
    with pytest.raises(DataError, match=match) as caught:
        read_collection(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("target", ["queries.jsonl", "/dev/zero", "gone"])
def test_links_to_what_is_no_file_are_refused(tmp_path, target):
    write(tmp_path)
    (tmp_path / "queries.jsonl").unlink()
    (tmp_path / "queries.jsonl").symlink_to(target)
    with pytest.raises(DataError, match="queries.jsonl"):
        read_collection(tmp_path)


def test_the_form_of_the_text_decides_its_task(tmp_path, planted, monkeypatch):
    write(tmp_path / "support")
    planted.write(tmp_path / "news", range(5))
    monkeypatch.setenv("XALIGN_OWN", f"support={tmp_path}/support,news={tmp_path}/news,own={tmp_path}/support")
    assert {name for name in TASKS if name.startswith("Own")} == {
        "OwnParallel", "OwnRetrieval", "OwnParallel-news", "OwnRetrieval-support",
    }  # fmt: skip
    task = TASKS["OwnRetrieval-support"]()
    task.identify()
    assert task.metadata.eval_langs.keys() == {
        "deu_Latn-deu_Latn", "deu_Latn-eng_Latn", "eng_Latn-eng_Latn",
    }  # fmt: skip
    assert task.needs == ("deu-Latn", "eng-Latn")
    with pytest.raises(DataError, match="score OwnRetrieval"):
        TASKS["OwnParallel"]().load_data()
    monkeypatch.setenv("XALIGN_OWN", f"own={tmp_path}/news")
    with pytest.raises(DataError, match="score OwnParallel"):
        TASKS["OwnRetrieval"]().load_data()


def test_a_model_fitted_on_the_queries_is_refused_and_one_fitted_on_the_other_half_is_not(tmp_path, monkeypatch):
    folder, _ = random_collection(tmp_path, np.random.default_rng(0))
    test = OwnRetrieval(path=f"test:{folder}")
    rng = np.random.default_rng(0)
    everything = [*test.collection.queries.values(), *test.collection.documents.values()]
    model = Vectors({text: rng.normal(size=4) for text, _ in everything})

    def fitted_on(name):
        spec = ModelSpec(BackboneSpec("tiny", "tiny"), AlignmentSpec("centered", "centered", corpora=(name,)))
        model.mteb_model_meta = type(
            "Meta", (), {"name": "m", "revision": "r", "loader_kwargs": {"spec": spec.to_dict()}}
        )
        return test.evaluate(model, encode_kwargs={})

    assert all("fitted_share" not in found for found in fitted_on(f"own:fit:{folder}").values())
    with pytest.raises(DataError, match=rf"fitted on {len(test.collection.queries)} of these rows"):
        fitted_on(f"own:{folder}")
    monkeypatch.setenv("XALIGN_SCORE_FITTED", "1")
    assert {found["fitted_share"] for found in fitted_on(f"own:{folder}").values()} == {1.0}
    assert all(
        math.isfinite(value) for found in test.evaluate(model, encode_kwargs={}).values() for value in found.values()
    )


def test_the_commands_take_own_retrieval_as_any_other_task(xalign, workdir, tiny_model, planted):
    rng = np.random.default_rng(0)
    langs = {"de": "w1 w2 w3", "en": "w4 w5 w6"}
    stored = [(f"{c}{i}", f"{langs[c]} w{10 + i}", c) for c in langs for i in range(40)]
    asked = [(f"q{c}{i}", f"{langs[c]} w{10 + i} w{60 + rng.integers(30)}", c) for c in langs for i in range(40)]
    qrels = [(f"q{a}{i}", f"{b}{i}", 1) for a in langs for b in langs for i in range(40)]
    write(workdir / "search", asked, stored, qrels)
    status, out, _ = xalign("run", "-m", tiny_model, "-t", "OwnRetrieval", "--data", "own=search", "--json")
    assert status == 0
    pairs = {"deu_Latn-deu_Latn", "deu_Latn-eng_Latn", "eng_Latn-deu_Latn", "eng_Latn-eng_Latn"}
    assert json.loads(out)[0]["scores"]["test"].keys() == pairs
    assert xalign("gate", "--update")[0] == xalign("gate")[0] == 0
    assert "OwnRetrieval" in xalign("leaderboard", "-t", "OwnRetrieval")[1]
    data = ("--data", "own=test:search", "-t", "OwnRetrieval")
    status, out, _ = xalign("audit", *data, "--corpus", "own:fit:search", "--json")
    assert {row["language"] for row in json.loads(out)} == {"deu-Latn", "eng-Latn"}
    os.environ["XALIGN_OWN"] = "own=fit:search"
    options = ("--backbone", tiny_model, "--corpus", "own:test:search", "--judge", "OwnRetrieval", "--json")
    status, out, err = xalign("recommend", *options)
    assert (status, err) == (0, [])
    assert "OwnRetrieval" in json.loads(out)["reason"]
    write(workdir / "search", asked, stored, [*qrels, ("q", "d", 1)])
    status, out, err = xalign("run", "-m", tiny_model, "-t", "OwnRetrieval", "--data", "own=search")
    assert status == 2
    assert "Traceback" not in "".join(err)
    assert "test.tsv, line 162: the id 'q' is not in queries.jsonl" in err[-1]
