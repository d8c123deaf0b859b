"""The page's data are the measured scores, packed with a loss of at most a twentieth of a point."""

from __future__ import annotations

import base64
import json
import zlib

import numpy as np
import pytest

from tests.xalign_models.page.conftest import numbers_in
from xalign_models.atlas.table import MISSING
from xalign_models.boards.leaderboard import leaderboard
from xalign_models.page.gathering import page_data
from xalign_models.results.reading import read_results

PLAIN, LSAR = "xalign/plain__tiny", "xalign/lsar__tiny"
PAIRS = {
    f"{a}-{b}": 0.1 * i + 0.01 * j
    for i, a in enumerate(("deu_Latn", "eng_Latn", "tha_Thai"), 1)
    for j, b in enumerate(("deu_Latn", "eng_Latn", "tha_Thai"), 1)
    if a != b
}


def unpacked(data, block) -> np.ndarray:
    return numbers_in(zlib.decompress(base64.b64decode(data["packed"][block["name"]])))


def block(data, kind, heading=""):
    return next(one for one in data["blocks"] if one["kind"] == kind and one["heading"] == heading)


def test_scores_by_language_come_back(put, tmp_path) -> None:
    scores = {"deu-Latn": 0.123, "arb-Arab": 1.0, "zho-Hant": -0.5}
    languages = {one: [one] for one in scores}
    put(PLAIN, "T", scores, languages=languages, metric="cosine_spearman")
    put(LSAR, "T", {"deu-Latn": 0.456}, baseline=PLAIN, languages=languages)
    data = page_data(read_results(tmp_path))
    found = block(data, "languages")
    labels = [data["labels"][label][0] for label in found["labels"]]
    values = unpacked(data, found).reshape(2, 3)
    for name, expected in ((PLAIN, scores), (LSAR, {"deu-Latn": 0.456})):
        row = found["rows"].index([one["name"] for one in data["rows"]].index(name))
        for label, value in zip(labels, values[row], strict=True):
            assert value == (MISSING if label not in expected else pytest.approx(1000 * expected[label], abs=0.5))
    assert [one[1:4] for one in data["labels"]] == [
        ["Standard Arabic", "العربية", "rtl"],
        ["German", "Deutsch", "ltr"],
        ["Chinese (Traditional)", "中文（繁體）", "ltr"],
    ]


def test_each_task_is_packed_by_itself(put, tmp_path) -> None:
    for number, task in enumerate("AB"):
        put(PLAIN, task, {"deu-Latn": 0.1 + 0.5 * number, "eng-Latn": 0.2}, languages={"deu-Latn": [], "eng-Latn": []})
    data = page_data(read_results(tmp_path))
    for number, expected in enumerate(([100, 200], [600, 200])):
        (found,) = (one for one in data["blocks"] if one["task"] == number)
        assert unpacked(data, found).tolist() == expected


def test_pairs_are_matrices_of_queries_by_candidates(put, tmp_path) -> None:
    put(PLAIN, "T", PAIRS)
    data = page_data(read_results(tmp_path))
    found = block(data, "pairs", "after")
    matrix = unpacked(data, found).reshape(3, 3)
    names = [data["labels"][label][0].replace("-", "_") for label in found["labels"]]
    for i, a in enumerate(names):
        for j, b in enumerate(names):
            assert matrix[i, j] == (MISSING if a == b else pytest.approx(1000 * PAIRS[f"{a}-{b}"], abs=0.5))
    assert [one["heading"] for one in data["blocks"] if one["kind"] == "languages"] == ["Into X", "From X"]


def test_a_model_with_fewer_pairs_is_compared_over_these(put, tmp_path) -> None:
    put(PLAIN, "T", PAIRS)
    fewer = {pair: score for pair, score in PAIRS.items() if "tha" not in pair}
    put(LSAR, "T", fewer, baseline=PLAIN)
    put("xalign/lir-1__tiny", "T", PAIRS, baseline=PLAIN, data="other text")
    data = page_data(read_results(tmp_path))
    names = [row["name"] for row in data["rows"]]
    found = block(data, "plain", "Into X")
    other_text, like = unpacked(data, found).reshape(2, 3)
    labels = [data["labels"][label][0] for label in found["labels"]]
    assert [names[row] for row in found["rows"]] == ["xalign/lir-1__tiny", LSAR]
    assert like[labels.index("deu-Latn")] == round(1000 * PAIRS["eng_Latn-deu_Latn"])
    assert like[labels.index("tha-Thai")] == MISSING
    assert (other_text == MISSING).all()


def test_subsets_say_their_languages(put, tmp_path) -> None:
    languages = {"ar-en": ["arb-Arab", "eng-Latn"], "pool": ["arb-Arab", "eng-Latn", "deu-Latn"]}
    put(PLAIN, "T", {"ar-en": 0.5, "pool": 0.5}, languages=languages)
    data = page_data(read_results(tmp_path))
    (found,) = data["blocks"]
    assert [[data["labels"][label][0] for label in one] for one in found["spoken"]] == [["arb-Arab", "eng-Latn"], []]


def outcomes(data) -> dict[tuple[str, str], np.ndarray]:
    """Hits by model and subset, unpacked as the page does."""
    found = {}
    for one in data["items"]:
        raw = np.frombuffer(zlib.decompress(base64.b64decode(data["packed"][one["name"]])), np.uint8)
        rows = np.bitwise_xor.accumulate(raw.reshape(len(one["rows"]), -1), axis=0)
        ends = np.cumsum(one["counts"])
        for row, bits in zip(one["rows"], np.unpackbits(rows, axis=1), strict=True):
            for names, hits in zip(one["subsets"], np.split(bits, ends)[:-1], strict=True):
                key = "-".join(data["labels"][name][0].replace("-", "_") for name in names)
                found[data["rows"][row]["name"], key] = hits
    return found


def put_outcomes(put, tasks=("T",), pairs=tuple(PAIRS)) -> dict[tuple[str, str], np.ndarray]:
    """Write two models' hits, 13 items a pair, and return them."""
    rng, hits = np.random.default_rng(0), {}
    for model, base in ((PLAIN, None), (LSAR, PLAIN)):
        hits |= {(model, pair): rng.random(13) < 0.5 for pair in pairs}
        scores = {pair: round(float(hits[model, pair].mean()), 6) for pair in pairs}
        ranks = {pair: np.where(hits[model, pair], 1, 4).astype(np.uint16) for pair in pairs}
        for task in tasks:
            put(model, task, scores, baseline=base, ranks=ranks)
    return hits


def test_single_outcomes_come_back(put, tmp_path) -> None:
    hits = put_outcomes(put)
    found = outcomes(page_data(read_results(tmp_path)))
    assert found.keys() == hits.keys()
    assert all((found[key] == hits[key]).all() for key in hits)


def test_single_outcomes_are_bounded(put, tmp_path, monkeypatch) -> None:
    """Only pairs with English of a task with many pairs, and no more tasks than fit; what fits is whole."""
    hits = put_outcomes(put, ("T", "U"))
    monkeypatch.setattr("xalign_models.page.outcomes.MOST_SUBSETS", 5)
    data = page_data(read_results(tmp_path))
    assert {one["task"] for one in data["items"]} == {0, 1}
    found = outcomes(data)
    assert found.keys() == {(model, pair) for model, pair in hits if "eng_Latn" in pair}
    assert all((found[key] == hits[key]).all() for key in found)
    size = len(data["packed"]["items-0"])
    for most, tasks in ((size, {0}), (size - 1, set())):
        monkeypatch.setattr("xalign_models.page.outcomes.MOST_OUTCOMES", most)
        assert {one["task"] for one in page_data(read_results(tmp_path))["items"]} == tasks


def test_grades_are_no_single_outcomes(put, tmp_path) -> None:
    grades = np.array([0.25, 0.75, 0.5])
    put(PLAIN, "T", {"eng-Latn": 0.5}, ranks={"eng-Latn": grades})
    assert page_data(read_results(tmp_path))["items"] == []


def test_a_study_has_its_own_before(put, tmp_path) -> None:
    folder = put(PLAIN, "T", PAIRS, metric="after_precision_at_5")
    path = folder / "T.json"
    result = json.loads(path.read_text())
    for entry in result["scores"]["test"]:
        entry["before_precision_at_5"] = entry["main_score"] / 2
    path.write_text(json.dumps(result))
    data = page_data(read_results(tmp_path))
    before, after = (unpacked(data, block(data, "pairs", heading))[1] for heading in ("before", "after"))
    assert before == pytest.approx(after / 2, abs=1)


def test_each_cell_says_where_it_comes_from(put, tmp_path) -> None:
    folder = put(LSAR, "T", {"eng-Latn": 0.5}, revision="abc", data="text-1", date="2026-11-21T10:00:00+00:00")
    settings = {"task": "T", "hardware": "cpu x", "version": {"mteb": "2"}, "tokens_per_second": 12.5}
    settings["fit_seconds_per_language"] = 0.25
    (folder / "run_settings.jsonl").write_text(json.dumps({"task": "U"}) + "\n" + json.dumps(settings) + "\n")
    (folder / "model_meta.json").write_text(json.dumps({"name": LSAR, "n_parameters": 7, "embed_dim": 3}))
    data = page_data(read_results(tmp_path), {"T": {"domains": ["News"]}})
    cell = data["cells"][0][0]
    assert cell["model"].items() >= {"revision": "abc", "parameters": 7, "dimensions": 3}.items()
    assert cell["machine"] == {
        "hardware": "cpu x",
        "versions": {"mteb": "2"},
        "tokens_per_second": 12.5,
        "fit_seconds_per_language": 0.25,
    }
    assert (cell["data"], cell["date"]) == ("text-1", "2026-11-21 10:00 UTC")
    assert data["tasks"] == [{"name": "T", "domains": ["News"]}]


@pytest.mark.parametrize("score", [0.734476, 0.7225, 0.7235, 0.72449, 0.72451, 0.1])
def test_a_browser_rounds_scores_as_the_other_formats_do(put, tmp_path, score: float) -> None:
    """73.4476 is 73.4, and not 73.45 and then 73.5; 72.25 is 72.2 as in Python, and not 72.3 as in JavaScript."""
    put(PLAIN, "T", {"en": 0.5})
    put(LSAR, "T", {"en": score}, baseline=PLAIN)
    row = leaderboard(read_results(tmp_path)).rows[1].cells["T"]
    data = page_data(read_results(tmp_path))
    cell = data["cells"][1][0]
    for found, exact in ((cell["score"], row.score), (cell["difference"], row.difference)):
        assert f"{found:.1f}" == f"{exact:.1f}"
        assert not f"{found:.2f}".endswith("5")
        assert found == pytest.approx(exact, abs=0.051)


@pytest.mark.parametrize("damage", ["", "[]", "{", '{"task": "T"}\n{'])
def test_missing_and_damaged_settings_are_no_hindrance(put, tmp_path, damage: str) -> None:
    folder = put(LSAR, "T", {"eng-Latn": 0.5})
    (folder / "run_settings.jsonl").write_text(damage)
    data = page_data(read_results(tmp_path))
    assert data["cells"][0][0]["machine"] == {}
    assert data["cells"][0][0]["model"]["parameters"] is None


def test_rows_of_other_languages_and_studies_are_told_apart(put, tmp_path) -> None:
    """A second row of a model points to its first; a study belongs to the second board, and has the same backbone."""
    spec = {"name": "tiny", "model": "tiny"}
    trained = {**spec, "tuned": "contrastive"}
    put(PLAIN, "T", PAIRS, spec={"backbone": spec})
    put("xalign/contrastive__tiny", "T", PAIRS, spec={"backbone": trained})
    put("xalign/contrastive-seed-1__tiny", "T", PAIRS, spec={"backbone": {**trained, "tuned": "contrastive-seed-1"}})
    fewer = {pair: score for pair, score in PAIRS.items() if "tha" not in pair}
    put(LSAR, "T", fewer, baseline=PLAIN)
    put(LSAR, "U", {"deu": 0.5}, baseline=PLAIN)
    data = page_data(read_results(tmp_path))
    rows = [(row["name"].removeprefix("xalign/"), row["board"], row["apart"], row["first"]) for row in data["rows"]]
    assert rows == [
        ("plain__tiny", 0, False, 0),
        ("contrastive__tiny", 0, False, 1),
        ("lsar__tiny", 0, False, 2),
        ("lsar__tiny", 0, True, 2),
        ("contrastive-seed-1__tiny", 1, False, 4),
    ]
    assert [row["base"] for row in data["rows"]] == [0, 0, 0, 0, 0]
    assert "T over" in data["rows"][3]["note"]
    assert [title for title, _ in data["legend"]] == ["Models", "Studies"]
