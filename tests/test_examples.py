"""The examples as a stranger runs them: copied into a new folder, each command in a process of its own."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
SEVERAL = """
import json, sys
from xalign_models.cli import main
for arguments in json.loads(sys.stdin.read()):
    sys.argv = ["xalign", *arguments]
    print("$", *arguments, flush=True)
    try:
        main()
    except SystemExit as left:
        print("exit", left.code or 0, flush=True)
"""


@pytest.fixture
def stranger(workdir, tiny_model, write_text, python):
    """Runs Python code in a new process, in a folder with the examples; returns (exit status, output, errors)."""
    for file in EXAMPLES.glob("*.py"):
        shutil.copy(file, workdir)
    write_text(workdir / "text", 60)
    write_text(workdir / "fit", 60, seed=1)

    def run(code, plugins="", given=""):
        environment = {**os.environ, "XALIGN_PLUGINS": plugins}
        done = subprocess.run(
            [python, "-c", code], input=given, capture_output=True, text=True, check=False, env=environment
        )
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.fixture
def xalign(stranger):
    """Runs commands one after the other in one process; returns what each printed."""

    def run(*commands, plugins=""):
        lines = json.dumps([[str(part) for part in command] for command in commands])
        _, out, err = stranger(SEVERAL, plugins, lines)
        statuses = [int(code) for code in re.findall(r"^exit (\d+)$", out, re.M)]
        assert statuses == [0] * len(commands), (out, err)
        return re.split(r"^\$ .*\n", out, flags=re.M)[1:], err

    return run


def fit(method, model, *more):
    return ["fit", method, "--backbone", model, "--corpus", "own:fit", "--limit", 40, "-o", f"{method}-model", *more]


def encode(model, file):
    return f"""
import numpy as np, xalign_models
texts = [{{"text": "w1 w2", "lang": "deu-Latn"}}, {{"text": "w3", "lang": "fra-Latn"}}]
np.save({file!r}, xalign_models.load({model!r}, device="cpu").encode(texts))
"""


@pytest.mark.slow
def test_a_method_is_listed_fitted_scored_put_on_the_board_and_gated(xalign, stranger, workdir, tiny_model):
    model, plugin = "whitening-model", ["--plugin", "whitening.py"]
    run = ["run", "-m", f"{tiny_model},{model}", "-t", "OwnParallel,NumberWords", "--data", "own=text"]
    (models, helped, _, _, board, *_), _ = xalign(
        ["models", "whitening__LaBSE", *plugin],  # behind the command; it holds for what follows in this process
        ["fit", "--help"],
        fit("whitening", tiny_model, "--param", "shrinkage=0.5"),
        ["--plugin", "numbers_task.py", *run],  # before it
        ["leaderboard", "--benchmark", "Example(numbers)", "--json"],
        ["gate", "--update"],
        ["gate"],
    )
    assert [line.split("\t")[0] for line in models.splitlines()[1:3]] == [
        "xalign/whitening__LaBSE",
        "xalign/whitening__LaBSE__gettext",
    ]
    assert "whitening" in helped
    assert "whitening-0.5" in board
    assert len(list((workdir / "results").rglob("NumberWords.json"))) == 2
    assert stranger(encode(model, "alone.npy"))[0] == 0  # an affine map needs no plug-in once it is fitted
    assert np.isfinite(np.load("alone.npy")).all()
    _, _, err = stranger(SEVERAL, given=json.dumps([[str(part) for part in fit("whitening", tiny_model)]]))
    assert err.splitlines()[-1].startswith("error: Unknown alignment 'whitening'.")


@pytest.mark.slow
def test_a_network_is_fitted_put_on_the_board_gated_saved_without_pickle_and_loaded(
    xalign, stranger, workdir, tiny_model
):
    (_, _, board, *_), _ = xalign(
        fit("mlp", tiny_model, "--param", "steps=20"),
        ["run", "-m", f"{tiny_model},mlp-model", "-t", "OwnParallel", "--data", "own=text"],
        ["leaderboard", "-t", "OwnParallel", "--json"],
        ["gate", "--update"],
        ["gate"],
        plugins="mlp_head.py",
    )
    assert "mlp" in board
    folder = workdir / "mlp-model"
    assert not [path for path in folder.rglob("*") if path.suffix in {".bin", ".pt", ".pkl", ".py"}]
    assert "xalign_plugins.mlp_head.MLPHead" in (folder / "modules.json").read_text()
    (saved,) = (path.parent for path in (workdir / "cache" / "alignments").rglob("alignment.json"))
    assert {path.name for path in saved.iterdir()} == {"alignment.json", "alignment.safetensors"}
    check = (
        encode("mlp-model", "loaded.npy")
        + f"""
from xalign_models import alignments
raw = xalign_models.load({str(tiny_model)!r}, device="cpu")
pooled = raw[1](raw[0](raw.preprocess(["w1 w2", "w3"])))["sentence_embedding"]
rows = alignments.load({str(saved)!r}).transform(pooled.detach().numpy())
np.save("expected.npy", rows / np.linalg.norm(rows, axis=1, keepdims=True))
"""
    )
    assert stranger(check, plugins="mlp_head.py")[::2] == (0, "")
    np.testing.assert_allclose(np.load("loaded.npy"), np.load("expected.npy"), atol=1e-5)
    _, out, _ = stranger(
        SEVERAL, given=json.dumps([["run", "-m", "mlp-model", "-t", "OwnParallel", "--data", "own=text"]])
    )
    assert out.endswith("exit 2\n")
    _, _, err = stranger(encode("mlp-model", "x.npy"))
    assert err.splitlines()[-1].endswith(
        "needs a plug-in that is not loaded: name its file, mlp_head.py, with --plugin."
    )


@pytest.mark.slow
def test_a_corpus_is_listed_and_marks_what_is_fitted_on_it(xalign, workdir, tiny_model):
    plugin = ["--plugin", "calendar_corpus.py"]
    (listed, _), _ = xalign(
        ["corpora", "--json", *plugin],
        ["fit", "centered", "--backbone", tiny_model, "--corpus", "calendar:months", "-o", "centred", *plugin],
    )
    assert {"corpus": "calendar", "kind": "parallel"}.items() <= json.loads(listed.partition("exit")[0])[-1].items()
    card = json.loads((workdir / "centred" / "xalign.json").read_text())
    assert card["training_datasets"] == ["Calendar"]
