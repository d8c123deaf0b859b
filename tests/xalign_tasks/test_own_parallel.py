"""Own text as a task: its languages, its revision, and what is said when it is not usable."""

from __future__ import annotations

import json
import shutil

import pytest

from xalign_models.corpora.own_text import own
from xalign_models.errors import DataError
from xalign_models.plugins import TASKS
from xalign_models.specs import AlignmentSpec, BackboneSpec, ModelSpec
from xalign_tasks.own_parallel import OwnParallel


def test_the_languages_are_those_of_the_files(workdir, planted, monkeypatch):
    folder = planted.write(workdir / "own", range(5), ("de", "tur_Latn", "eng"))
    task = OwnParallel(path=folder)
    assert len(task.hf_subsets) == 6
    assert task.metadata.eval_langs["deu_Latn-tur_Latn"] == ["deu-Latn", "tur-Latn"]
    monkeypatch.setenv("XALIGN_OWN", str(folder))
    named = OwnParallel()
    assert named.metadata == OwnParallel.metadata  # making a task opens no text
    named.identify()
    assert named.metadata == task.metadata
    assert OwnParallel.metadata.eval_langs.keys() == {"deu_Latn-eng_Latn", "eng_Latn-deu_Latn"}


def test_a_table_and_a_directory_score_alike(workdir, planted, make_encoder):
    folder = planted.write(workdir / "own", range(9), ("deu", "eng"))
    table = workdir / "own.jsonl"
    table.write_text("".join(json.dumps({"deu": f"deu {i}", "eng": f"eng {i}"}) + "\n" for i in range(9)))
    encoder = make_encoder(planted())
    found = [OwnParallel(path=path).evaluate(encoder, encode_kwargs={}) for path in (folder, table)]
    assert found[0] == found[1]
    assert found[0]["deu_Latn-eng_Latn"]["precision_at_1"] == 1


def test_the_revision_follows_the_text_and_not_its_place(workdir, planted):
    folder = planted.write(workdir / "own", range(5))
    revision = OwnParallel(path=folder).metadata.revision
    assert OwnParallel(path=shutil.copytree(folder, workdir / "moved")).metadata.revision == revision
    (workdir / "moved" / "deu.txt").write_text("deu 1\n")
    assert OwnParallel(path=workdir / "moved").metadata.revision != revision


@pytest.mark.parametrize(
    ("spoil", "match"),
    [
        (lambda folder: (folder / "deu.txt").write_text("one line\n"), "deu-Latn 1, eng-Latn 5, fra-Latn 5"),
        (lambda folder: (folder / "nonsense.txt").write_text("x\n"), "'nonsense' does not name a language"),
        (lambda folder: (folder / "de.txt").write_text("x\n"), "same language"),
        (lambda folder: (folder / "deu.txt").write_bytes(b"\xff\xfe\x00"), "not UTF-8"),
        (shutil.rmtree, "does not exist"),
    ],
)
def test_unusable_text_is_refused_when_scored(workdir, planted, make_encoder, spoil, match):
    folder = planted.write(workdir / "own", range(5))
    spoil(folder)
    with pytest.raises(DataError, match=match):
        OwnParallel(path=folder).evaluate(make_encoder(planted()), encode_kwargs={})


def test_without_text_it_says_how_to_give_it(workdir):
    with pytest.raises(DataError, match=r"--data own=DIR.*XALIGN_OWN=DIR"):
        OwnParallel().load_data()


def fitted_encoder(make_encoder, planted, corpus, **fields):
    """A model whose card says that it was fitted on this text."""
    spec = ModelSpec(BackboneSpec("tiny", "tiny"), AlignmentSpec("centered", "centered", corpora=(corpus,), **fields))
    encoder = make_encoder(planted())
    kwargs = {"spec": spec.to_dict()}
    encoder.mteb_model_meta = encoder.mteb_model_meta.model_copy(update={"loader_kwargs": kwargs})
    return encoder


def test_a_model_is_not_scored_on_rows_that_it_was_fitted_on_unless_asked(workdir, planted, make_encoder, monkeypatch):
    folder = planted.write(workdir / "own", range(40))
    whole, half, test = (OwnParallel(path=path) for path in (folder, f"fit:{folder}", f"test:{folder}"))
    size = len(half.corpus.texts("deu-Latn"))
    assert 0 < size < 40
    encoder = fitted_encoder(make_encoder, planted, f"own:fit:{folder}")
    for task, rows in ((whole, size), (half, size)):
        with pytest.raises(DataError, match=f"was fitted on {rows} of these rows; fit it on own:fit:DIR and score"):
            task.evaluate(encoder, encode_kwargs={})
    assert test.evaluate(encoder, encode_kwargs={}).keys() == set(test.hf_subsets)
    with pytest.raises(DataError, match="was fitted on 3 of these rows"):
        whole.evaluate(fitted_encoder(make_encoder, planted, f"own:{folder}", limit=3), encode_kwargs={})
    monkeypatch.setenv("XALIGN_SCORE_FITTED", "1")
    assert whole.evaluate(encoder, encode_kwargs={})
    other = planted.write(workdir / "other", range(100, 120))
    monkeypatch.delenv("XALIGN_SCORE_FITTED")
    assert whole.evaluate(fitted_encoder(make_encoder, planted, f"own:{other}"), encode_kwargs={})


def test_rows_of_a_registered_corpus_are_found_in_own_text(workdir, planted, make_encoder, monkeypatch):
    published = own(planted.write(workdir / "published", range(20)))
    monkeypatch.setattr("xalign_tasks.own.load", lambda name, local: {"published": published}[name])
    task = OwnParallel(path=planted.write(workdir / "mine", range(15, 40)))
    with pytest.raises(DataError, match="was fitted on 5 of these rows"):
        task.evaluate(fitted_encoder(make_encoder, planted, "published"), encode_kwargs={})


def test_a_text_that_is_no_longer_named_has_no_task(tmp_path, monkeypatch):
    for names in (("news",), ("talks", "subtitles")):
        monkeypatch.setenv("XALIGN_OWN", ",".join(f"{name}={tmp_path}" for name in names))
        own = [task for task in TASKS if task.startswith("OwnParallel-")]
        assert own == [f"OwnParallel-{name}" for name in names]


def test_the_dagger_is_on_the_half_that_was_fitted_on_and_not_on_the_other(
    xalign, workdir, tiny_model, write_text, monkeypatch
):
    text = write_text(workdir / "own", 60)
    fit = ("fit", "centered", "--backbone", tiny_model, "--corpus", f"own:fit:{text}", "-o", "aligned")
    assert xalign(*fit)[0] == 0
    for half, marked in (("test", False), ("fit", True)):
        run = ("run", "-m", "aligned", "-t", "OwnParallel", "--data", f"own={half}:{text}", "-o", half)
        if marked:
            status, _, err = xalign(*run)
            assert status == 2
            assert "of these rows" in "".join(err)
            monkeypatch.setenv("XALIGN_SCORE_FITTED", "1")
        status, out, _ = xalign(*run)
        assert status == 0
        assert ("†" in out) == marked
