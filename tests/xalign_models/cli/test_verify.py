"""``xalign verify`` and ``xalign reproduce`` say what they found in their exit status."""

from __future__ import annotations

import json

import pytest


@pytest.fixture
def result(xalign, workdir, tiny_model, write_text, monkeypatch):
    write_text(workdir / "own", 20)
    command = ("run", "-m", tiny_model, "-t", "OwnParallel", "--data", "own=own", "--json")
    assert xalign(*command)[0] == 0
    meta = next((workdir / "results").rglob("model_meta.json"))
    content = json.loads(meta.read_text())
    content["loader_kwargs"]["spec"]["backbone"]["model"] = str(tiny_model)  # results keep the folder's name alone
    meta.write_text(json.dumps(content))
    monkeypatch.setenv("XALIGN_OWN", str(workdir / "own"))
    return meta.with_name("OwnParallel.json")


def test_verify_exits_with_one_on_damage_and_zero_when_it_is_mended(xalign, result):
    status, out, err = xalign("verify")
    assert (status, err) == (0, [])
    assert out.splitlines()[0].split() == ["kind", "checked", "damaged", "mended"]
    result.write_bytes(result.read_bytes()[:-9])
    status, out, _ = xalign("verify", "--json")
    assert status == 1
    (problem,) = next(check["problems"] for check in json.loads(out) if check["kind"] == "results")
    assert "OwnParallel.json is damaged" in problem
    status, _, err = xalign("verify", "--clean")
    assert status == 0
    assert any(line.startswith("mended: ") for line in err)
    assert xalign("verify")[0] == 0
    assert xalign("verify", "nowhere")[0] == 1


@pytest.mark.parametrize("no_cache", [(), ("--no-cache",)])
def test_reproduce_compares(xalign, result, monkeypatch, workdir, no_cache):
    monkeypatch.setattr("xalign_models.evaluation.reproduction.SAMPLE", 4)
    status, out, err = xalign("reproduce", result, "--device", "cpu", *no_cache)
    assert status == 0, (out, err)
    assert "scores that are the same within 0.0001: 6 of 6" in out
    assert ("of 0 vectors of the store 0 were compared" in out) == bool(no_cache)


def test_reproduce_exits_with_one_where_a_score_differs(xalign, result):
    content = json.loads(result.read_text())
    content["scores"]["test"][0]["main_score"] -= 0.05
    result.write_text(json.dumps(content))
    status, out, _ = xalign("reproduce", result, "--device", "cpu")
    assert status == 1
    assert "scores that are the same within 0.0001: 5 of 6" in out
    assert content["scores"]["test"][0]["hf_subset"] in out


def test_an_audit_compares_the_rows_of_own_text_and_counts_in_plain_english(xalign, workdir, write_text, tiny_model):
    text = write_text(workdir / "own", 120)
    data = ("--data", f"own=test:{text}", "-t", "OwnParallel")
    status, out, err = xalign("audit", *data, "--corpus", f"own:fit:{text}", "--tolerance", "0.5")
    assert (status, err) == (0, [])
    assert "compared 3 languages with 1 text to fit on" in out
    status, out, _ = xalign("audit", *data, "--corpus", f"own:{text}", "--json")
    assert status == 1
    rows = json.loads(out)
    assert {row["share"] for row in rows} == {1.0} and not any(row["declared"] for row in rows)


def test_a_mistyped_folder_of_results_is_not_sound(xalign, workdir):
    assert xalign("verify", "-o", "nowhere") == (2, "", ["error: nowhere: no such folder."])
