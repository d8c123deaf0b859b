"""The plain table of all means, by hand."""

from __future__ import annotations

import pytest

from xalign_models.boards.leaderboard import detail, leaderboard
from xalign_models.boards.means import means_csv
from xalign_models.errors import ResultsError
from xalign_models.results.reading import read_results


def test_a_line_per_model_task_and_language(put, tmp_path) -> None:
    scores = {"aaa_Latn-bbb_Latn": 0.2, "bbb_Latn-aaa_Latn": 0.9, "aaa_Latn-ccc_Latn": 0.4}
    put("org/b", "Pairs", scores)
    put("org/a", "Single", {"fr": 0.25, "de": 0.123456})
    results = read_results(tmp_path)
    assert means_csv(results).splitlines() == [
        "model,task,language,score",
        "org/a,Single,mean,18.67",
        "org/a,Single,de,12.35",
        "org/a,Single,fr,25.00",
        "org/b,Pairs,mean,50.00",
        "org/b,Pairs,aaa-Latn,60.00",
        "org/b,Pairs,bbb-Latn,55.00",
        "org/b,Pairs,ccc-Latn,40.00",
    ]
    assert means_csv(results, languages=("ccc-Latn", "fra-Latn")).splitlines()[1:] == [
        "org/a,Single,mean,25.00",
        "org/a,Single,fr,25.00",
        "org/b,Pairs,mean,40.00",
        "org/b,Pairs,aaa-Latn,40.00",
        "org/b,Pairs,ccc-Latn,40.00",
    ]
    put("org/c", "@SUM(A1)", {"=cmd()": 0.5})
    assert means_csv(read_results(tmp_path), ["org/c"]).splitlines()[1:] == [
        "org/c,'@SUM(A1),mean,50.00",
        "org/c,'@SUM(A1),'=cmd(),50.00",
    ]
    assert len(means_csv(results, ["org/a"]).splitlines()) == 4
    with pytest.raises(ResultsError, match="org/c"):
        means_csv(results, ["org/c"])


@pytest.mark.parametrize(
    ("spoken", "near"),
    [
        ([("eng",)], "eng"),  # a task of a single subset
        ([("deu", "eng")], "deu"),
        ([("deu", "eng"), ("eng", "deu")], "deu"),  # both directions of a pair
        ([("eng",), ("deu", "eng"), ("fra", "eng")], "deu"),
    ],
)
def test_languages_are_obeyed_where_no_language_varies(put, tmp_path, spoken, near: str) -> None:
    names = {"-".join(codes): [f"{code}-Latn" for code in codes] for codes in spoken}
    put("org/a", "T", dict.fromkeys(names, 0.5), languages=names)
    results = read_results(tmp_path)
    assert not results.subsets("T", ["org/a"], ["swh-Latn"])
    left = results.subsets("T", ["org/a"], [f"{near}-Latn", "swh-Latn"])
    assert set(left) == {name for name in names if near in name}
    assert results.tables["org/a", "T"].values() == dict.fromkeys(names, 0.5)
    with pytest.raises(ResultsError, match="No subset has only languages of swh-Latn"):
        leaderboard(results, languages=["swh-Latn"])


def test_the_language_of_all_pairs_is_that_of_all_models(put, tmp_path) -> None:
    """A model with German alone has no score in French, as on the board."""
    put("org/a", "T", {"deu_Latn-eng_Latn": 0.9, "eng_Latn-deu_Latn": 0.7})
    put("org/b", "T", {"deu_Latn-eng_Latn": 0.5, "fra_Latn-eng_Latn": 0.3})
    results, chosen = read_results(tmp_path), ("fra-Latn", "eng-Latn")
    assert [row.name for row in leaderboard(results, languages=chosen).rows] == ["org/b"]
    assert [line.split(",")[0] for line in means_csv(results, languages=chosen).splitlines()[1:]] == ["org/b"] * 3
    assert list(detail(results, "T", languages=chosen).columns) == ["org/b"]
