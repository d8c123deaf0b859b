"""An update says what changed, and where the results come from."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace

import numpy as np
import pytest

from tests.xalign_models.atlas.made_up import LANGUAGES, atlas, column
from xalign_models.atlas.imported import Imported
from xalign_models.atlas.scores import estimate, with_table
from xalign_models.atlas.table import PublishedModel
from xalign_models.atlas.update import changes, provenance, refresh

QUALITY = np.linspace(-1.5, 1.5, 30)


def made(quality):
    table = atlas(column("T0", quality, noise=0.1), column("T1", quality, noise=0.1, seed=1))
    return with_table(table, estimate(table))


def test_new_models_and_moved_scores_are_named_by_language():
    before, columns = made(QUALITY[:25]), made(QUALITY).columns
    moved = columns[0].scores.copy()
    moved[3, LANGUAGES.index("swh-Latn")] += 0.05
    after = atlas(replace(columns[0], scores=moved), columns[1])
    after = with_table(after, estimate(after))
    found = {row["model"]: row for row in changes(before, after, "swh-Latn")}
    new = [f"org/m{number}" for number in range(25, 30)]
    assert {"org/m03", *new} <= found.keys()
    assert all(found[model]["before"] is None for model in new)
    assert found["org/m03"]["after"] - found["org/m03"]["before"] == pytest.approx(2.5, abs=0.6)
    assert not list(changes(after, after, "swh-Latn"))
    assert "org/m03" not in {row["model"] for row in changes(before, after, "deu-Latn")}


def test_what_was_not_measured_again_has_not_changed():
    """Other columns move the estimates of models that lack a task, and the digits that the table rounds."""
    columns = [column(f"T{number}", QUALITY, models=25 + 5 * number, noise=0.1, seed=number) for number in (0, 1)]
    other = column("C0", QUALITY[::-1], kind="clustering", noise=0.3, seed=2)
    before, after = (with_table(table, estimate(table)) for table in (atlas(*columns, other), atlas(*columns)))
    for language in LANGUAGES:
        assert {row["kind"] for row in changes(before, after, language)} == {"clustering"}


def test_a_model_that_nothing_describes_keeps_its_description(tmp_path, monkeypatch):
    about = [PublishedModel(f"org/m{number:02}", parameters=number + 1, licence="mit") for number in range(25)]
    before = atlas(column("T0", QUALITY[:25]), about=about)
    described = {"name": "org/m03", "n_parameters": 7}
    monkeypatch.setattr("xalign_models.atlas.update._registered", lambda names: [described])
    monkeypatch.setattr("xalign_models.atlas.update.read_public", lambda path: Imported((), ()))
    monkeypatch.setattr("xalign_models.atlas.update.derive", lambda *given: atlas(*before.columns))
    after, _ = refresh(tmp_path, before)
    assert after.models["org/m04"] == before.models["org/m04"]
    assert after.models["org/m03"].parameters is None


def test_provenance_is_read_off_the_data(tmp_path):
    text = "From github.com/some-one/results @ " + "a1" * 20 + " of 2026-01-02, CC0-1.0."
    (tmp_path / "SOURCE.md").write_text(text)
    expected = {"address": "https://github.com/some-one/results", "commit": "a1" * 20, "date": "2026-01-02"}
    assert provenance(tmp_path / "scores.parquet") == {**expected, "licence": "CC0-1.0"}
    (tmp_path / "SOURCE.md").unlink()
    unknown = {"commit": "", "date": "", "licence": ""}
    assert provenance(tmp_path / "scores.parquet") == {"address": "scores.parquet", **unknown}


def test_a_folder_has_a_provenance_without_git(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert provenance(tmp_path) == {"address": tmp_path.name, "commit": "", "date": "", "licence": ""}


def test_a_clones_provenance_is_its_commit(tmp_path):
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (
        ["init", "-q"],
        ["remote", "add", "origin", "https://example.org/r"],
        ["commit", "-qm", "x", "--allow-empty"],
    ):
        subprocess.run([*git, *words], check=True)
    (tmp_path / "LICENSE").write_text("CC0 1.0 Universal")
    found = provenance(tmp_path)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    assert (found["address"], found["commit"], found["licence"]) == ("https://example.org/r", head, "CC0-1.0")


@pytest.mark.realdata
@pytest.mark.slow
def test_an_update_names_the_models_that_came(public_scores, tmp_path, xalign):
    """The public results without their last 50 models, then with them."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    whole = pq.read_table(public_scores)
    names = sorted(set(whole.column("model").cast(pa.string()).to_pylist()))
    last = names[-50:]
    kept = pc.invert(pc.is_in(whole.column("model").cast(pa.string()), pa.array(last)))
    for name in ("SOURCE.md", "models.parquet"):
        (tmp_path / name).write_bytes((public_scores.parent / name).read_bytes())
    pq.write_table(whole.filter(kept), tmp_path / "scores.parquet")
    assert xalign("atlas", "update", tmp_path / "scores.parquet")[0] == 0
    status, out, _ = xalign("atlas", "update", public_scores, "-l", "Swahili", "--json")
    assert status == 0
    report = json.loads(out)
    assert report["source"]["commit"] == "f4cc6c8b365a3c779dbc708d6affe0b0355b2ddf"
    came = {row["model"] for row in report["changes"]["swh-Latn"] if row["before"] is None}
    assert came
    assert came <= {name.replace("__", "/", 1) for name in last}
