"""The isomorphism matrices: their orientation and means by hand, the paper's as printed, what is missing."""

from __future__ import annotations

import json
import shlex
from itertools import permutations

import mteb
import numpy as np
import pytest

from xalign_models.analysis import Request
from xalign_models.errors import LanguageError, ModelError, ResultsError
from xalign_models.evaluation.cache import SafeResultCache
from xalign_models.languages import FLORES_200
from xalign_tasks.analyses.isomorphism import SEVEN, analyse
from xalign_tasks.isomorphism import IsomorphismStudy

SELF, EN = "xalign/plain__gemma-3-270m-q4-self-prompts", "xalign/plain__gemma-3-270m-q4-en-prompts"
THREE = ("deu-Latn", "eng-Latn", "fra-Latn")
# rows: queries in German, English, French; columns: searched
BEFORE = np.array([[0, 0.1, 0.2], [0.3, 0, 0.4], [0.5, 0.6, 0]])


@pytest.fixture
def put(tmp_path):
    """Writes a result: P@1 as given, P@5 and P@10 0.1 and 0.2 above it, all of them 0.15 higher after."""

    def write(model, values=BEFORE, languages=THREE, task="IsomorphismStudy", revision="local-1"):
        folder = tmp_path / "results" / model.replace("/", "__") / "1"
        folder.mkdir(parents=True, exist_ok=True)
        entries = [
            {
                "hf_subset": f"{languages[i].replace('-', '_')}-{languages[j].replace('-', '_')}",
                "languages": [languages[i], languages[j]],
                "main_score": 0.0,
                "sentences": 1012.0,
                **{
                    f"{stage}_precision_at_{k}": float(values[i, j]) + more + after
                    for stage, after in (("before", 0), ("after", 0.15))
                    for k, more in ((1, 0), (5, 0.1), (10, 0.2))
                },
            }
            for i, j in permutations(range(len(languages)), 2)
        ]
        data = {"task_name": task, "dataset_revision": revision, "scores": {"test": entries}}
        (folder / f"{task}.json").write_text(json.dumps(data))
        (folder / "model_meta.json").write_text(json.dumps({"name": model}))

    return write


def seven(put, *models, **options):
    values = np.random.default_rng(0).uniform(0, 0.6, (7, 7))
    for model in models:
        put(model, values, SEVEN, **options)


def rows(table, model):
    found = table[table["model"] == model]
    return {row[found.columns[1]]: row for row in found.to_dict("records")}


def test_rows_are_queries_columns_are_searched_and_means_are_labelled_as_printed(put, tmp_path):
    put(SELF)
    found = analyse(Request((SELF,), tmp_path, languages=THREE)).tables
    table = rows(found["precision-at-1"], "plain__gemma-3-270m-q4-self-prompts")
    assert list(table) == ["DE", "EN", "FR", "From X"]
    assert list(table["DE"])[1:] == ["P@1", "DE", "EN", "FR", "Into X"]
    assert table["DE"]["EN"] == "0.10 / 0.25"
    assert table["EN"]["DE"] == "0.30 / 0.45"
    assert table["FR"]["FR"] == "- / -"
    assert table["FR"]["Into X"] == "0.55 / 0.70"  # (0.5 + 0.6) / 2
    assert table["From X"]["EN"] == "0.35 / 0.50"  # (0.1 + 0.6) / 2
    assert table["From X"]["Into X"] == "0.35 / 0.50"
    assert rows(found["precision-at-5"], "plain__gemma-3-270m-q4-self-prompts")["DE"]["EN"] == "0.20 / 0.35"
    assert rows(found["precision-at-10"], "plain__gemma-3-270m-q4-self-prompts")["DE"]["EN"] == "0.30 / 0.45"
    first = found["directions"].iloc[0].to_dict()
    assert list(first.values()) == ["German", "English", 0.2, 0.35]


def test_the_papers_matrices_stand_beside_the_models_of_the_same_mode_as_printed(put, tmp_path):
    seven(put, SELF, EN)
    found = analyse(Request((SELF, EN), tmp_path)).tables
    table = rows(found["precision-at-5"], "LLaMA2-7B self-prompts (paper)")
    assert [table["EN"][one] for one in ("EN", "AR", "DE", "Into X")] == [
        "- / -",
        "0.33 / 0.67",
        "0.82 / 0.96",
        "0.49 / 0.90",
    ]
    assert (table["JA"]["EN"], table["From X"]["JA"], table["From X"]["Into X"]) == (
        "0.04 / 0.33",
        "0.04 / 0.68",
        "0.25 / 0.71",
    )
    assert rows(found["precision-at-1"], "LLaMA2-7B en-prompts (paper)")["ES"]["DE"] == "0.94 / 0.91"
    paper = [f"LLaMA2-{size} {mode} (paper)" for mode in ("self-prompts", "en-prompts") for size in ("7B", "13B")]
    ours = [one.removeprefix("xalign/") for one in (SELF, EN)]
    assert set(found["precision-at-5"]["model"]) == {*ours, *paper}
    assert set(found["precision-at-10"]["model"]) == {*ours, paper[0], paper[2]}  # 13B has P@5 alone
    assert {column.rpartition(" ")[0] for column in found["directions"]} >= {*ours, *paper}
    alone = analyse(Request((EN,), tmp_path)).tables["precision-at-5"]["model"]
    assert set(alone) == {ours[1], *paper[2:]}


def test_the_summary_has_both_kinds_of_rows_and_all_published_means(put, tmp_path):
    seven(put, SELF, EN)
    seven(put, SELF, task="IsomorphismStudyRaw")
    findings = analyse(Request((SELF, EN), tmp_path))
    table = findings.tables["summary"].set_index(["model", "rows of the fit"])
    assert len(table) == 2 + 1 + 5
    ours = table.loc["plain__gemma-3-270m-q4-self-prompts", "own length"]
    assert ours["P@10 after"] - ours["P@1 before"] == pytest.approx(0.35, abs=1e-4)
    assert (ours["P@5 gain"], ours["P@1 gain"]) == (pytest.approx(0.15), pytest.approx(0.15))
    assert list(table.loc["LLaMA2-7B self-prompts (paper)", ""])[3:6] == [0.25, 0.71, 0.46]
    assert np.isnan(table.loc["LLaMA2-13B en-prompts (paper)", ""]["P@1 after"])
    assert any("IsomorphismStudyRaw" in note for note in findings.notes)  # one model lacks it
    assert any("1,012 sentences; in the paper 2,009" in note for note in findings.notes)


def test_published_means_are_not_put_beside_those_of_other_languages(put, tmp_path):
    put(SELF)
    findings = analyse(Request((SELF,), tmp_path, languages=THREE))
    assert set(findings.tables["summary"]["model"]) == {SELF.removeprefix("xalign/")}
    assert any("seven languages" in note for note in findings.notes)


@pytest.mark.parametrize("languages", [THREE, FLORES_200[:14]], ids=len)
def test_the_heat_maps_show_the_scores(put, tmp_path, languages):
    values = np.random.default_rng(0).uniform(0, 0.6, (len(languages), len(languages)))
    put(SELF, values, languages)
    (figure,) = analyse(Request((SELF,), tmp_path, languages=languages)).figures.values()
    before, after, bar = figure.axes
    np.fill_diagonal(values, np.nan)
    for axes, expected, stage in ((before, values + 0.1, "before"), (after, values + 0.25, "after")):
        np.testing.assert_allclose(np.ma.filled(axes.images[0].get_array(), np.nan), expected)
        assert axes.get_title() == f"{stage} the rotation, mean {np.nanmean(expected):.2f}"
        assert axes.get_xlabel() == "language searched"
    assert before.get_ylabel() == "language of the queries"
    assert "share" in bar.get_ylabel()
    names = [label.get_text() for label in before.get_yticklabels()]
    assert names == (["German", "English", "French"] if languages == THREE else list(languages))


def test_what_is_missing_is_said_with_the_command_that_makes_it(put, tmp_path):
    with pytest.raises(ResultsError, match=r"IsomorphismStudy for any model.*`xalign run -m MODEL"):
        analyse(Request((), tmp_path))
    put(SELF)
    with pytest.raises(ResultsError, match="for gemma-3-270m-q4-self-prompts under") as caught:
        analyse(Request(("gemma-3-270m-q4-self-prompts",), tmp_path))  # there are three of the seven languages
    command = shlex.split(str(caught.value).split("`")[1])
    options = ["-t", "IsomorphismStudy", "--languages", ",".join(SEVEN), "-o", str(tmp_path)]
    assert command == ["xalign", "run", "-m", "gemma-3-270m-q4-self-prompts", *options]
    with pytest.raises(ResultsError, match=rf"for {EN} under"):
        analyse(Request((SELF, EN), tmp_path, languages=THREE))
    with pytest.raises(ModelError, match="no-such"):
        analyse(Request(("no-such",), tmp_path))
    with pytest.raises(LanguageError, match="at least two"):
        analyse(Request((SELF,), tmp_path, languages=THREE[:1]))


def test_a_name_without_xalign_and_no_name_at_all(put, tmp_path):
    put(SELF)
    put("intfloat/multilingual-e5-small")
    names = [SELF.removeprefix("xalign/"), "intfloat/multilingual-e5-small"]
    for models in (names, [*names, SELF], ()):
        found = analyse(Request(tuple(models), tmp_path, languages=THREE))
        assert set(found.tables["summary"]["model"]) == set(names)
        assert all("/" not in title for title in found.figures)


def test_by_default_models_that_lack_the_languages_are_left_out_and_named(put, tmp_path):
    seven(put, SELF)
    put(EN)  # in three of them
    findings = analyse(Request((), tmp_path))
    measured = [one for one in findings.tables["summary"]["model"] if "(paper)" not in one]
    assert measured == [SELF.removeprefix("xalign/")]
    assert findings.notes[-1] == f"Left out, not scored in all of these languages: {EN.removeprefix('xalign/')}."
    for request in (Request((), tmp_path, languages=THREE[:2]), Request((SELF,), tmp_path)):
        assert not any("Left out" in note for note in analyse(request).notes)
    with pytest.raises(ResultsError, match=f"for {EN} under"):
        analyse(Request((SELF, EN), tmp_path))


def test_other_text_is_said(put, tmp_path):
    put(SELF)
    put(EN, revision="local-2")
    notes = analyse(Request((SELF, EN), tmp_path, languages=THREE)).notes
    assert any("different revisions" in note for note in notes)


def test_from_planted_rotations_to_the_tables(workdir, planted, make_encoder):
    for folder, name, meanings in (
        ("ntrex/NTREX-128", "newstest2019-ref.{}.txt", range(100)),
        ("flores200_dataset/devtest", "{}_Latn.devtest", range(1000, 1200)),
    ):
        (workdir / "data" / folder).mkdir(parents=True)
        for file in planted.write(workdir / "text", meanings).iterdir():
            file.rename(workdir / "data" / folder / name.format(file.stem))
    turns = {
        one: np.linalg.qr(np.random.default_rng(seed).standard_normal((16, 16))).Q
        for seed, one in enumerate(("deu", "fra"))
    }
    task = IsomorphismStudy()
    task.hf_subsets = [f"{a}_Latn-{b}_Latn" for a, b in permutations(("deu", "eng", "fra"), 2)]
    mteb.evaluate(make_encoder(planted(turn=turns)), task, cache=SafeResultCache(workdir), show_progress_bar=False)
    found = analyse(Request(("test/planted",), workdir, languages=THREE))
    summary = found.tables["summary"].iloc[0]
    assert summary["P@1 before"] < 0.05
    assert summary["P@1 after"] == 1
    assert "200 sentences" in " ".join(found.notes)
