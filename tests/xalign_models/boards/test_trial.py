"""A trial finds planted offsets of languages, in parallel text and in a collection, and says when nothing helps."""

from __future__ import annotations

import html
import json
import re
import shlex

import numpy as np
import pytest

from xalign_models.boards.trial import _scores
from xalign_models.results.reading import read_results

LANGUAGES = ("deu", "eng", "fra")
DIM = 24


@pytest.fixture
def planted_text(workdir, write_vectors):
    """Text with its vectors: a meaning per row, an offset per language of the given length."""

    def write(offset, form="parallel", rows=130, across=True):
        rng = np.random.default_rng(0)
        meaning = rng.normal(size=(rows, DIM))
        texts = {code: [f"{code} sentence number {i}" for i in range(rows)] for code in LANGUAGES}
        names = [text for code in LANGUAGES for text in texts[code]]
        moved = [meaning + 0.1 * rng.normal(size=meaning.shape) + offset * rng.normal(size=DIM) for _ in LANGUAGES]
        vectors = [np.concatenate(moved)]
        folder = workdir / "it's my text"
        folder.mkdir()
        if form == "parallel":
            for code, lines in texts.items():
                (folder / f"{code}.txt").write_text("\n".join(lines) + "\n")
        else:
            (folder / "qrels").mkdir()
            documents, queries, qrels = [], [], []
            for number, code in enumerate(LANGUAGES):
                for i, text in enumerate(texts[code]):
                    documents.append({"_id": f"{code}{i}", "text": text, "lang": code})
                    queries.append({"_id": f"q{code}{i}", "text": f"what is {text}?", "lang": code})
                    names.append(queries[-1]["text"])
                    qrels += [f"q{code}{i}\t{other}{i}\t1" for other in LANGUAGES if across or other == code]
                vectors.append(moved[number] + 0.1 * rng.normal(size=meaning.shape))
            for name, records in (("corpus", documents), ("queries", queries)):
                (folder / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
            (folder / "qrels" / "test.tsv").write_text("\n".join(qrels) + "\n")
        stored = np.concatenate(vectors).astype(np.float32)
        return folder, f"vectors:{write_vectors(workdir / 'stored.npz', names, stored)}"

    return write


@pytest.mark.slow
@pytest.mark.parametrize(("form", "metric"), [("parallel", "P@1"), ("collection", "nDCG@10")])
def test_a_trial_finds_planted_offsets_and_writes_all_it_names(xalign, workdir, planted_text, form, metric):
    text, model = planted_text(2.0, form)
    status, out, _ = xalign("try", model, text, "-o", "my out", "--json")
    assert status == 0
    trial = json.loads(out)
    scores = {score["name"]: score for score in trial["scores"]}
    across = scores["across languages"]
    assert across["after"] > across["before"] + 0.1
    assert across["interval"][0] > 0
    assert trial["recommendation"]["chosen"]["method"]
    assert ("same language" in scores) == (form == "collection")
    assert {"deu-Latn", "eng-Latn", "fra-Latn"} <= scores.keys()
    page = (workdir / "my out" / "report.html").read_text()
    assert f"{metric} across languages from {100 * across['before']:.1f} to {100 * across['after']:.1f}" in page
    assert "{{" not in page
    assert not re.search(r"<script|src=|https?://", page)
    assert (workdir / "my out" / "model" / "modules.json").is_file()
    snippet, *commands = re.findall(r"(?s)<(?:pre|code)>(.*?)</(?:pre|code)>", page)
    assert "load('my out/model')" in html.unescape(snippet)
    run, gate, again = (shlex.split(line) for line in html.unescape("\n".join(commands)).splitlines())
    assert again == ["xalign", "try", model, str(text), "-o", "my out"]
    assert xalign(*run[1:])[0] == 0
    assert xalign(*gate[1:])[0] == 0
    (result,) = (workdir / "new" / "results").glob("*/*/Own*.json")
    scores = json.loads(result.read_text())
    for entry in scores["scores"]["test"]:
        entry["main_score"] /= 2
    result.write_text(json.dumps(scores))
    assert xalign(*gate[1:])[0] == 1


def test_a_trial_says_when_no_alignment_helps(xalign, workdir, planted_text):
    text, model = planted_text(0.0)
    status, out, _ = xalign("try", model, text, "-o", "out")
    assert status == 0
    assert re.search(r"No alignment helps here: the model keeps its P@1 of [\d.]+ across languages\.", out)
    assert not (workdir / "out" / "model").exists()
    assert json.loads((workdir / "out" / "results" / "baseline.json").read_text())["scores"]


def test_judgements_within_languages_alone_are_scored_and_do_not_choose(xalign, workdir, planted_text):
    text, model = planted_text(2.0, "collection", across=False)
    status, out, err = xalign("try", model, text, "-o", "out", "--json")
    assert status == 0
    assert any("No query has a relevant document in another language" in line for line in err)
    scores = {score["name"] for score in json.loads(out)["scores"]}
    assert scores == {"same language", "deu-Latn", "eng-Latn", "fra-Latn"}
    sentence = re.search(r'class="answer">(.*?)<', (workdir / "out" / "report.html").read_text())[1]
    assert " within a language" in sentence
    assert "across" not in sentence


@pytest.mark.parametrize("n", [1, 2, 3, 50])
def test_the_interval_of_a_change_is_agresti_and_mins(put, tmp_path, n) -> None:
    rng = np.random.default_rng(n)
    ranks = {"xalign/plain__tiny": np.full(n, 9), "xalign/lsar__tiny": np.where(rng.random(n) < 0.6, 1, 9)}
    ranks["xalign/lsar__tiny"][0] = 1
    for name, found in ranks.items():
        put(name, "T", {"de": float(np.mean(found == 1))}, ranks={"de": found})
    tables = read_results(tmp_path).tables
    (score, *_) = _scores(*(tables[name, "T"] for name in ranks))
    won = int((ranks["xalign/lsar__tiny"] == 1).sum())
    reach = 1.96 * np.sqrt(won + 1 - won**2 / (n + 2))
    assert score.interval == pytest.approx(((won - reach) / (n + 2), (won + reach) / (n + 2)), abs=1e-4)


@pytest.mark.parametrize(
    ("languages", "rows", "why"), [(("deu",), 90, "two files named"), (("deu", "eng"), 20, "fewer than 30 rows")]
)
def test_a_trial_of_too_little_text_is_refused_in_one_line(
    xalign, workdir, write_text, tiny_model, languages, rows, why
):
    text = write_text(workdir / "text", rows, languages)
    status, out, err = xalign("try", tiny_model, text)
    assert status == 2
    assert out == ""
    assert why in err[-1]


def test_a_place_that_cannot_be_written_is_refused_before_the_work(xalign, workdir, write_text):
    text = write_text(workdir / "text", 90, ("deu", "eng"))
    (workdir / "report").write_text("")
    status, out, (line,) = xalign("try", "no-model", text, "-o", "report")
    assert (status, out) == (2, "")
    assert "--output report/model cannot be written (Not a directory)" in line


def test_hostile_names_do_not_reach_the_page_as_markup(xalign, workdir, write_text, tiny_model):
    text = write_text(workdir / "<img src=x>", 130, ("deu", "eng"))
    assert xalign("try", tiny_model, text, "-o", "out")[0] == 0
    assert "<img" not in (workdir / "out" / "report.html").read_text()
