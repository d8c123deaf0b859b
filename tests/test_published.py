"""The papers' tables in the package: complete, readable, and as consistent as the papers are."""

from __future__ import annotations

import csv
import json
import re

import pandas as pd
import pytest

from xalign_models.published import FOLDER as PUBLISHED
from xalign_models.published import published_on, published_table

INDEX = json.loads((PUBLISHED / "index.json").read_text(encoding="utf-8"))
FILES = {entry["file"]: entry for entry in INDEX["files"]}
COLUMNS = ["model", "task", "subset", "metric", "value", "unit"]
RANGES = {"percent": (0.0, 100.0), "fraction": (-1.0, 1.0), "number": (0.0, float("inf"))}
LANGUAGE = r"(?:[a-z]{3}-[A-Z][a-z]{3}|\*)"
OTHER_SUBSETS = r"average|all|query|document|STS22 sentence1|epoch \d+"
SUBSET = re.compile(rf"{LANGUAGE}(?:->{LANGUAGE})?|{OTHER_SUBSETS}")
EPSILON = 1e-9

with_averages = pytest.mark.parametrize("name", [name for name, entry in FILES.items() if entry["averages"]])


def matching(table: pd.DataFrame, row: dict[str, str]) -> pd.DataFrame:
    """The rows that have these values in these columns."""
    return table[(table[list(row)] == pd.Series(row)).all(axis=1)]


def averages(name: str) -> list[tuple[dict[str, str], float, float]]:
    """Every printed average of a table: its coordinates, the printed value and the mean of the cells it averages."""
    table, how = published_table(name), FILES[name]["averages"]
    by, over, found = how["by"], how["over"], []
    for key, group in table.groupby(by):
        where = dict(zip(by, key, strict=True))
        if over == "matrix":
            cells = group[(group["row"] != "From X") & (group["column"] != "Into X")]
            for _, printed in group.drop(cells.index).iterrows():
                of_row = cells["row"] == printed["row"] if printed["row"] != "From X" else True
                of_column = cells["column"] == printed["column"] if printed["column"] != "Into X" else True
                mean = cells["value"].where(of_row & pd.Series(of_column, index=cells.index)).mean()
                found.append(({**where, **printed[["row", "column"]]}, printed["value"], mean))
        else:
            at = {**where, over: how["label"]}
            (printed,) = matching(published_table(how.get("printed_in", name)), at)["value"]
            found.append((at, printed, group.loc[group[over] != how["label"], "value"].mean()))
    return found


def test_index_lists_every_file_and_every_file_is_listed() -> None:
    assert len(FILES) == len(INDEX["files"])
    ours = {"reproduction.csv"}  # what this project makes of the papers' claims
    assert {path.name for path in PUBLISHED.glob("*.csv")} == FILES.keys() | ours
    assert {entry["paper"] for entry in FILES.values()} == set(INDEX["papers"])


@pytest.mark.parametrize("name", FILES)
def test_table_is_well_formed(name: str) -> None:
    with (PUBLISHED / name).open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    assert header[: len(COLUMNS)] == COLUMNS
    assert {len(row) for row in rows} == {len(header)}
    table, entry = published_table(name), FILES[name]
    assert len(table) == entry["n_rows"]
    assert sorted(table["unit"].unique()) == entry["unit"]
    for unit, values in table.groupby("unit")["value"]:
        assert values.between(*RANGES[unit]).all()
    assert not (table[["model", "task", "subset", "metric"]] == "").any(axis=None)
    assert not table.drop(columns="value").duplicated().any()
    assert table["subset"].map(SUBSET.fullmatch).notna().all()


@with_averages
def test_printed_averages_agree_with_their_rows(name: str) -> None:
    """Half a last digit for the printed mean, half for the rounded cells; the listed exceptions and no others."""
    tolerance = 10.0 ** -FILES[name]["decimals"] + EPSILON
    wrong = [(at, printed, mean) for at, printed, mean in averages(name) if abs(printed - mean) > tolerance]
    listed = [item for item in FILES[name]["inconsistencies"] if "recomputed" in item]
    assert len(wrong) == len(listed)
    for item in listed:
        (found,) = [w for w in wrong if item["row"].items() <= w[0].items()]
        assert found[1] == item["printed"]
        assert found[2] == pytest.approx(item["recomputed"], abs=tolerance / 10)


@pytest.mark.parametrize("name", FILES)
def test_inconsistencies_name_one_printed_value(name: str) -> None:
    for item in FILES[name]["inconsistencies"]:
        (value,) = matching(published_table(name), item["row"])["value"]
        assert value == item["printed"]
        if "other" in item:
            assert item["other_file"] in FILES
            assert value != item["other"]


@pytest.mark.parametrize(
    ("short", "full", "n_shared"),
    [
        ("lsar-table-02.csv", ["lsar-table-07.csv"], 16),
        ("lsar-table-03.csv", ["lsar-table-13.csv", "lsar-table-14.csv", "lsar-table-15.csv"], 15),
        ("lsar-table-04.csv", ["lsar-table-12.csv"], 12),
        ("lira-table-02.csv", ["lusifer-table-02.csv"], 27),
    ],
)
def test_values_printed_twice_are_equal(short: str, full: list[str], n_shared: int) -> None:
    first, second = published_table(short), pd.concat(map(published_table, full))
    first, second = (table[table["task"] != "average"] for table in (first, second))
    keys = [column for column in first.columns.intersection(second.columns) if column != "value"]
    both = first.merge(second, on=keys, suffixes=("", "_again"))
    assert len(both) == n_shared
    differ = both[both["value"] != both["value_again"]]
    listed = [item for item in FILES[short]["inconsistencies"] if item.get("other_file") in full]
    assert len(differ) == len(listed)
    for item in listed:
        assert matching(differ, item["row"])["value_again"].tolist() == [item["other"]]


def test_tatoeba_tables_have_the_36_languages() -> None:
    first, *others = (set(published_table(f"lsar-table-{number}.csv")["subset"]) for number in range(17, 21))
    assert all(other == first for other in others)
    assert len(first) == 36
    assert {"arb-Arab", "zho-Hans", "swh-Latn", "pes-Arab", "tgl-Latn", "jpn-Jpan", "kor-Hang", "ell-Grek"} <= first


def test_numbers_on_a_task_are_in_percent() -> None:
    numbers = [one for one in published_on("FloresPrecision") if one.subset == "eng-Latn->arb-Arab"]
    assert any(one.metric == "precision_at_5" and one.value == pytest.approx(33) for one in numbers)  # printed as 0.33
    assert any("LSAR" in one.column and one.subset == "average" for one in published_on("Tatoeba36"))
    assert not list(published_on("GettextPrecision"))
