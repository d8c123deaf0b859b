"""Runs go on where they stopped, encode nothing twice, and one model's trouble is not another's."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from unittest.mock import Mock

import mteb
import numpy as np
import pytest
from datasets import Dataset, DatasetDict
from mteb.abstasks.sts import AbsTaskSTS
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer

from xalign_models.alignments.pivot import FewPairsWarning
from xalign_models.backbones.raw import Counts
from xalign_models.errors import DataError, LanguageError, ModelError, ResultsError, Terminated
from xalign_models.evaluation import frame
from xalign_models.evaluation import run as running
from xalign_models.models import fitting
from xalign_models.models.building import build, load_encoder
from xalign_models.models.mteb import get_task
from xalign_models.models.names import find_spec
from xalign_models.models.saving import save
from xalign_models.plugins import Part
from xalign_models.results.items import read_outcomes
from xalign_models.specs import AlignmentSpec, ModelSpec
from xalign_models.store import open_store

PAIRS = {f"{a}_Latn-{b}_Latn" for a in ("deu", "eng", "fra") for b in ("deu", "eng", "fra") if a != b}


@pytest.fixture
def own(workdir, write_text, monkeypatch):
    monkeypatch.setenv("XALIGN_OWN", str(write_text(workdir / "own", 30)))
    return workdir / "own"


@pytest.fixture
def aligned(workdir, tiny_model, write_text):
    """Saves a model that is fitted on the given languages."""

    def make(method="centered", languages=("deu", "eng", "fra"), label=None):
        text = write_text(workdir / f"fit-{'-'.join(languages)}", 40, languages)
        alignment = AlignmentSpec(label or method, method, corpora=(f"own:{text}",))
        spec = find_spec(str(tiny_model))
        folder = workdir / f"{method}-{len(languages)}"
        save(build(ModelSpec(spec.backbone, alignment), device="cpu"), folder)
        return str(folder)

    return make


@pytest.fixture
def counts(monkeypatch):
    """The RawEncoders that a run makes, for their counts."""
    from xalign_models.backbones import raw

    made = []
    original = raw.RawEncoder.__init__

    def spy(self, *args, **kwargs):
        original(self, *args, **kwargs)
        made.append(self)

    monkeypatch.setattr(raw.RawEncoder, "__init__", spy)
    return lambda: sum(one.counts.encoded for one in made)


def run(models, tasks=("OwnParallel",), output="out", **kwargs):
    found = list(running.run(models, tasks, Path(output), device="cpu", store=open_store(), **kwargs))
    assert len(found) == len(models) * len(tasks)
    return found


def scores(outcome):
    """Rounded as mteb keeps them."""
    return {one["hf_subset"]: round(one["main_score"], 6) for one in outcome.result.scores["test"]}


def test_what_is_scored_is_not_scored_again(own, tiny_model, counts, workdir):
    (first,) = run([str(tiny_model)])
    assert (first.fresh, first.error, set(scores(first))) == (True, "", PAIRS)
    encoded = counts()
    (second,) = run([str(tiny_model)])
    assert not second.fresh
    assert scores(second) == scores(first)
    assert counts() == encoded == 90
    (folder,) = (workdir / "out" / "results" / "xalign__plain__tiny").iterdir()
    meta = json.loads((folder / "model_meta.json").read_text())
    assert meta["name"] == first.model == "xalign/plain__tiny"
    assert {len(array) for array in read_outcomes(folder / "items" / "OwnParallel.npz").values()} == {30}
    assert not (folder / "items" / "full").exists()


def test_a_task_that_mteb_made_finds_the_results_of_its_name(own, tiny_model, workdir):
    (named,) = run([str(tiny_model)])
    (made,) = run([str(tiny_model)], [get_task(Part("OwnParallel"))])
    assert not made.fresh
    assert scores(made) == scores(named)
    assert not list((workdir / "out").rglob("*.aside-*"))


class Pairs(AbsTaskSTS):
    """A task of the caller's, in two languages, whose columns have names of their own."""

    metadata = type(mteb.get_task("STS22.v2")).metadata.model_copy(
        update={"name": "Pairs", "eval_langs": {"de-en": ["deu-Latn", "eng-Latn"]}, "eval_splits": ["test"]}
    )
    column_names = ("left", "right")
    rows = {
        "left": [f"w{number} w{number + 1}" for number in range(20)],
        "right": [f"w{number + 40} w{number}" for number in range(20)],
        "score": [float(number * 7 % 20) for number in range(20)],
    }

    def load_data(self, **_):
        self.dataset, self.data_loaded = {"de-en": DatasetDict(test=Dataset.from_dict(self.rows))}, True


def test_a_bilingual_task_of_the_callers_own_tells_the_language_of_each_side(workdir, aligned):
    saved = aligned()
    (found,) = run([saved], [Pairs()])
    encoder = load_encoder(saved, device="cpu")
    left, right = (
        encoder.encode_texts(Pairs.rows[side], [code] * 20)
        for side, code in zip(Pairs.column_names, ("de", "en"), strict=True)
    )
    expected = spearmanr((left * right).sum(axis=1), Pairs.rows["score"]).statistic
    assert scores(found) == {"de-en": pytest.approx(expected, abs=1e-5)}


@pytest.mark.slow
def test_what_is_scored_is_found_without_the_libraries_of_models(own, tiny_model):
    (first,) = run([str(tiny_model)])
    again = (
        "import sys\nfrom pathlib import Path\nfrom xalign_models.evaluation.run import run\n"
        f"(one,) = run([{str(tiny_model)!r}], ['OwnParallel'], Path('out'), device='cpu')\n"
        "print(one.fresh, len(one.result.scores['test']), {'transformers', 'sentence_transformers'} & {*sys.modules})"
    )
    said = subprocess.run([sys.executable, "-c", again], capture_output=True, text=True, check=True).stdout
    assert said.split("\n")[-2] == f"False {len(scores(first))} set()"


@pytest.mark.slow
@pytest.mark.parametrize("method", ["centered", "lsar"])  # fitted language by language, and all at once
def test_the_seconds_of_a_fit_are_on_record_without_those_of_encoding(
    own, tiny_model, aligned, write_text, monkeypatch, method
):
    seconds = iter([0, 6, 10, 16, 20, 26, 30, 48] if method == "centered" else [0, 18])
    monkeypatch.setattr(fitting, "perf_counter", lambda: next(seconds))
    text = write_text(own.parent / "fit", 40, ("deu", "eng", "fra"))
    spec = ModelSpec(find_spec(str(tiny_model)).backbone, AlignmentSpec(method, method, corpora=(f"own:{text}",)))

    def recorded(model, output):
        (outcome,) = run([model], output=output)
        (line,) = Path(output).rglob("run_settings.jsonl")
        assert outcome.error == ""
        return json.loads(line.read_text()).get("fit_seconds_per_language")

    assert recorded(load_encoder(spec, device="cpu"), "first") == 6
    assert recorded(load_encoder(spec, device="cpu"), "cached") == 6
    assert recorded(str(tiny_model), "plain") is None
    save(build(spec, device="cpu"), own.parent / "saved")
    assert recorded(str(own.parent / "saved"), "of-a-directory") is None


def test_few_pairs_are_said_once_for_all_languages(own, tiny_model, write_text):
    text = write_text(own.parent / "fit", 40, ("deu", "eng", "fra"))
    alignment = AlignmentSpec("procrustes", "procrustes", corpora=(f"own:{text}",), limit=4)
    encoder = load_encoder(ModelSpec(find_spec(str(tiny_model)).backbone, alignment), device="cpu")
    with pytest.warns(FewPairsWarning, match="procrustes: fewer pairs") as said:
        run([encoder])
    (one,) = (one.message for one in said if isinstance(one.message, FewPairsWarning))
    assert one.pairs == {"deu-Latn": 4, "fra-Latn": 4}


def test_models_of_one_backbone_share_its_vectors(own, tiny_model, aligned, counts):
    """The first model encodes; every other alignment of the same backbone takes its vectors from the store."""
    models = [aligned("centered"), aligned("lsar"), aligned("procrustes")]
    before = counts()
    found = run(models[:1])
    first = counts()
    assert first > before
    found += run(models[1:])
    assert [one.error for one in found] == [""] * 3
    assert counts() == first
    assert len({tuple(scores(one).values()) for one in found}) > 1


def test_without_items_none_are_kept(own, tiny_model, workdir):
    run([str(tiny_model)], items="none")
    assert not list((workdir / "out").rglob("items"))


def test_all_items_are_kept_where_asked_and_give_the_outcomes(own, tiny_model, workdir):
    run([str(tiny_model)], items="full")
    (folder,) = (workdir / "out").rglob("items")
    outcomes = read_outcomes(folder / "OwnParallel.npz")
    with np.load(folder / "full" / "OwnParallel.npz") as ranks:
        assert set(ranks.files) == set(outcomes) == PAIRS
        assert all(((ranks[one] == 1) == outcomes[one]).all() for one in PAIRS)


def test_a_truncated_result_is_set_aside_and_run_again(own, tiny_model, workdir):
    (first,) = run([str(tiny_model)])
    (path,) = (workdir / "out").rglob("OwnParallel.json")
    path.write_bytes(path.read_bytes()[:200])
    (again,) = run([str(tiny_model)])
    assert again.fresh
    assert scores(again) == scores(first)
    (aside,) = path.parent.glob("OwnParallel.json.aside-*")
    assert len(aside.read_bytes()) == 200
    json.loads(path.read_text())


@pytest.mark.parametrize("score", [float("nan"), 55.5])
def test_an_impossible_score_is_an_error_and_run_again(own, tiny_model, monkeypatch, score):
    from xalign_tasks.own_parallel import OwnParallel

    original = OwnParallel.evaluate

    def impossible(self, *args, **kwargs):
        result = original(self, *args, **kwargs)
        next(iter(result.values()))["main_score"] = score
        return result

    with monkeypatch.context() as patch:
        patch.setattr(OwnParallel, "evaluate", impossible)
        for _ in range(2):
            (outcome,) = run([str(tiny_model)])
            assert outcome.result is None
            assert outcome.error.startswith("impossible score of ")
    (outcome,) = run([str(tiny_model)])
    assert outcome.fresh
    assert outcome.result


def test_runs_of_other_languages_at_once_lose_nothing(workdir, planted, make_encoder, monkeypatch, caplog):
    """Each would write over the other's subsets, and remove its items, had it not to wait for it."""
    monkeypatch.setenv("XALIGN_OWN", str(planted.write(workdir / "own", range(30))))
    both = threading.Barrier(2)

    class Slow(planted):
        counts = Counts()

        def encode(self, *args, **kwargs):
            with suppress(threading.BrokenBarrierError):
                both.wait(timeout=0.5)  # for the other to be at work, too, if it may
            return super().encode(*args, **kwargs)

    def start(languages):
        tasks = [running.make_task("OwnParallel", languages)]
        return list(running.run([make_encoder(Slow())], tasks, Path("out"), device="cpu"))

    with ThreadPoolExecutor(2) as pool:
        outcomes = [outcome for found in pool.map(start, (("deu", "eng"), ("deu", "fra"))) for outcome in found]
    assert [outcome.error for outcome in outcomes] == ["", ""]
    wanted = {pair for pair in PAIRS if "deu" in pair}
    (result,) = (workdir / "out").rglob("OwnParallel.json")
    assert {entry["hf_subset"] for entry in json.loads(result.read_text())["scores"]["test"]} == wanted
    assert set(read_outcomes(result.parent / "items" / "OwnParallel.npz")) == wanted
    assert sum("this one waits" in message for message in caplog.messages) == 1
    assert not list((workdir / "out").rglob("*.lock"))


def test_changed_text_is_scored_anew(own, tiny_model, write_text):
    (first,) = run([str(tiny_model)])
    write_text(own, 25, seed=5)
    (second,) = run([str(tiny_model)])
    assert second.fresh
    assert second.result.dataset_revision != first.result.dataset_revision
    (items,) = own.parent.rglob("OwnParallel.npz")
    assert {len(array) for array in read_outcomes(items).values()} == {25}


def test_languages_that_are_not_fitted_are_left_out_and_named(own, aligned, tiny_model):
    some, none, all_ = run(
        [aligned("centered", ("deu", "eng")), aligned("centered", ("spa", "eng", "tur"), "other"), str(tiny_model)]
    )
    assert some.unfitted == ("fra-Latn",)
    assert set(scores(some)) == {"deu_Latn-eng_Latn", "eng_Latn-deu_Latn"}
    assert none.result is None
    assert none.unfitted == ("deu-Latn", "fra-Latn")
    assert "not fitted for deu-Latn, fra-Latn" in none.error
    assert set(scores(all_)) == PAIRS  # the choice for one model does not narrow the next


def test_one_models_trouble_does_not_stop_the_others(own, tiny_model, make_model, workdir):
    broken = make_model(workdir / "broken", nan=True)
    found = run([str(broken), "no/such-model", str(tiny_model)], ["OwnParallel", "FloresPrecision"])
    assert [bool(one.result) for one in found] == [False, False, False, False, True, False]
    assert "is not finite" in found[0].error
    assert all("XALIGN_DATA" in found[i].error for i in (1, 5))
    assert {found[i].error for i in (2, 3)} == {found[2].error}
    assert found[2].model == "xalign/plain__no-such-model"
    assert all("\n" not in one.error for one in found)


@pytest.mark.parametrize(
    "error", [RuntimeError("size mismatch"), KeyError("x"), RecursionError(), MemoryError(), SystemExit(1)]
)
@pytest.mark.parametrize("where", ["loading", "encoding"])
def test_whatever_a_broken_model_raises_the_next_is_scored(
    own, tiny_model, make_model, workdir, monkeypatch, error, where
):
    broken = make_model(workdir / "broken")
    original = running.load_encoder

    def load(model, **options):
        if Path(model).name != "broken":
            return original(model, **options)
        if where == "loading":
            raise error
        encoder = original(model, **options)
        monkeypatch.setattr(encoder, "encode_texts", Mock(side_effect=error))
        return encoder

    monkeypatch.setattr(running, "load_encoder", load)
    outcomes = list(running.run([str(broken), str(tiny_model)], ["OwnParallel"], workdir, languages=None))
    assert [outcome.result is None for outcome in outcomes] == [True, False]
    assert type(error).__name__ in outcomes[0].error.replace("sys.exit(1)", "SystemExit")
    assert "\n" not in outcomes[0].error


@pytest.mark.parametrize("error", [Terminated(143), KeyboardInterrupt()])
@pytest.mark.parametrize("where", ["load_encoder", "mteb.evaluate"])
def test_what_tells_the_process_to_end_ends_a_run(own, tiny_model, workdir, monkeypatch, error, where):
    monkeypatch.setattr(f"{running.__name__}.{where}", Mock(side_effect=error))
    with pytest.raises(type(error)):
        run([str(tiny_model)])


def test_a_failed_task_does_not_narrow_the_next_model(workdir, tiny_model, aligned, monkeypatch):
    """mteb keeps the data of a task that failed; they were cut to the languages of the model that failed."""
    from xalign_tasks.sts17 import _TRACKS

    root = workdir / "data" / "sts17"
    for folder, line in (("STS2017.eval.v1.1/STS.input", "w1 w2\tw3 w{}\n"), ("STS2017.gs/STS.gs", "{}\n")):
        for track in _TRACKS.values():
            path = root / f"{folder}.{track}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(line.format(i) for i in range(5)))
    english = aligned("centered", ("eng", "spa"))
    original = running.load_encoder

    def broken_first(model, **kwargs):
        encoder = original(model, **kwargs)
        if model == english:
            encoder.raw.encode = Mock(side_effect=ModelError("broken"))
        return encoder

    monkeypatch.setattr(running, "load_encoder", broken_first)
    found = run([english, str(tiny_model)], ["STS17CrossLingual"])
    assert found[0].error == "broken"
    assert set(scores(found[1])) == set(_TRACKS)


def test_the_chosen_languages_narrow_the_subsets(workdir, planted):
    folder = workdir / "data" / "flores200_dataset" / "devtest"
    folder.mkdir(parents=True)
    task = running.make_task("FloresPrecision", ["de", "eng_Latn", "tur"])
    assert len(task.hf_subsets) == 6
    assert len(running.make_task("FloresPrecision", None).hf_subsets) == 204 * 203
    assert len(running.make_task("FloresPrecision", running.CORE).hf_subsets) == 22 * 21
    assert len(running.make_task("Tatoeba36", running.CORE).hf_subsets) == 72
    assert len(running.make_task("Tatoeba36", ["deu-Latn", "eng-Latn"]).hf_subsets) == 2


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        (
            {"models": ["lzar__multilingual-e5-small-q4"]},
            ModelError,
            "Did you mean xalign/lsar__multilingual-e5-small-q4",
        ),
        ({"tasks": ["FlorsPrecision"]}, DataError, "Unknown task 'FlorsPrecision'. Did you mean FloresPrecision"),
        ({"languages": ["nonsense"], "tasks": ["FloresPrecision"]}, LanguageError, "nonsense"),
        ({"languages": ["epo"], "tasks": ["FloresPrecision"]}, LanguageError, "no subset in the chosen languages"),
        ({"output": "own/deu.txt"}, ResultsError, "Cannot write results"),
        ({"overrides": {"layer": -1}}, ModelError, "--layer -1"),
    ],
)
def test_what_does_not_exist_is_refused_before_anything_runs(own, tiny_model, change, error, match):
    arguments = {"models": [str(tiny_model)], "tasks": ["OwnParallel"], **change}
    with pytest.raises(error, match=match):
        run(**arguments)


def test_two_models_of_one_name_are_refused(own, aligned):
    """They would be one row of the board."""
    with pytest.raises(
        ModelError, match=r"centered-3 and .*centered-2 have the same name in results, xalign/centered__"
    ):
        run([aligned(), aligned(languages=("deu", "eng"))])


KILLED = """
import sys
import time
from pathlib import Path

from xalign_models.backbones import pipeline, raw
from xalign_models.evaluation.run import run
from xalign_models.store import open_store

launch = raw.RawEncoder.launch

def slowly(self, features):
    time.sleep(0.1)
    print("batch", flush=True)
    return launch(self, features)

raw.FLUSH = 1
raw.RawEncoder.launch = slowly
pipeline.token_budget = lambda first, device: 16  # batches of a few texts
for one in run([sys.argv[1]], ["OwnParallel"], Path("out"), device="cpu", store=open_store()):
    print("done", flush=True)
"""


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_results(own, tiny_model, workdir, counts, python):
    process = subprocess.Popen(
        [python, "-c", KILLED, str(tiny_model)], stdout=subprocess.PIPE, text=True, env={**os.environ}
    )
    try:
        seen = [process.stdout.readline().strip() for _ in range(6)]
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
    assert seen == ["batch"] * 6
    assert not list((workdir / "out").rglob("OwnParallel.json"))
    (resumed,) = run([str(tiny_model)])
    assert 0 < counts() < 90  # what was encoded before the kill is not encoded again
    (fresh,) = run([str(tiny_model)], output="elsewhere")
    assert scores(resumed) == scores(fresh)
    leftovers = [path for path in (workdir / "out").rglob("*") if path.name.startswith(".") or "part" in path.suffix]
    assert not leftovers


def test_languages_that_are_asked_for_narrow_every_task_or_are_refused(own, workdir):
    pairs = running.make_task("OwnParallel", ("de", "eng"))
    assert set(pairs.hf_subsets) == {"deu_Latn-eng_Latn", "eng_Latn-deu_Latn"}
    assert len(running.make_task("OwnParallel", running.CORE).hf_subsets) == 6
    assert len(running.make_task("Tatoeba36", ("deu-Latn", "eng-Latn")).hf_subsets) < 36
    with pytest.raises(LanguageError, match=r"LanguageIdentity has no subset .*; add .* to --languages, for"):
        running.make_task("LanguageIdentity", ("deu-Latn", "eng-Latn"))
    assert running.make_task("LanguageIdentity", running.CORE).hf_subsets


@pytest.mark.parametrize("spoil", [lambda own: own.rename(own.with_name("gone")), lambda own: None])
def test_a_run_that_fails_on_other_text_leaves_the_result_in_place(own, tiny_model, workdir, monkeypatch, spoil):
    run([str(tiny_model)], items="full")
    before = {path: path.read_bytes() for path in (workdir / "out").rglob("*") if path.is_file()}
    (own / "deu.txt").write_text("another\n" * 30)
    spoil(own)
    monkeypatch.setattr(running.mteb, "evaluate", Mock(side_effect=OSError("no text")))
    (failed,) = run([str(tiny_model)], items="full")
    assert failed.error
    assert {path: path.read_bytes() for path in (workdir / "out").rglob("*") if path.is_file()} == before


def test_a_forgotten_text_leaves_the_result_in_place(own, tiny_model, workdir, monkeypatch):
    run([str(tiny_model)])
    (path,) = (workdir / "out").rglob("OwnParallel.json")
    monkeypatch.delenv("XALIGN_OWN")
    (failed,) = run([str(tiny_model)])
    assert "OwnParallel needs your text" in failed.error
    assert path.is_file()
    assert not list(path.parent.rglob("*.aside-*"))


def test_the_outcome_has_the_requested_subsets_and_the_file_all(own, tiny_model, workdir):
    run([str(tiny_model)])
    (path,) = (workdir / "out").rglob("OwnParallel.json")
    before = path.read_bytes()
    (again,) = run([str(tiny_model)], languages=["deu-Latn", "eng-Latn"])
    assert scores(again).keys() == {"deu_Latn-eng_Latn", "eng_Latn-deu_Latn"}
    assert path.read_bytes() == before
    (other,) = run([str(tiny_model)], output="other", languages=["deu-Latn", "eng-Latn"])
    (more,) = run([str(tiny_model)], output="other", languages=["deu-Latn", "fra-Latn"])
    assert (scores(other).keys(), more.fresh) == (scores(again).keys(), True)
    assert scores(more).keys() == {"deu_Latn-fra_Latn", "fra_Latn-deu_Latn"}
    (stored,) = json.loads(next((workdir / "other").rglob("OwnParallel.json")).read_text())["scores"].values()
    assert {one["hf_subset"] for one in stored} == scores(again).keys() | scores(more).keys()


@pytest.mark.parametrize("several", [list, tuple, set, iter, lambda values: (value for value in values), dict.fromkeys])
def test_models_and_tasks_may_be_any_iterable(own, tiny_model, workdir, several):
    found = frame.evaluate(several([str(tiny_model)]), several(["OwnParallel"]), output="out", device="cpu")
    assert set(found["subset"]) == PAIRS


def test_a_sentence_transformer_is_one_model(own, tiny_model, workdir, monkeypatch):
    model, ran = SentenceTransformer(str(tiny_model), device="cpu"), Mock(return_value=[])
    monkeypatch.setattr(frame, "run", ran)
    frame.evaluate(model, (one for one in ["OwnParallel"]), output="out", device="cpu")
    frame.evaluate(tiny_model, "OwnParallel", output="out", device="cpu")
    assert [(len(call.args[0]), call.args[1]) for call in ran.call_args_list] == [(1, ["OwnParallel"])] * 2
