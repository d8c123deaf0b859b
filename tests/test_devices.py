"""What a device computes, against sentence-transformers and sums on the CPU; a GPU's cases are marked ``gpu``.

The tolerances are those that ``benchmarks/first_gpu_run.sh`` states in its report.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from tests.conftest import WORDS
from xalign_models import corpora
from xalign_models.models.building import load_encoder

NEAREST = {"float32": 1 - 1e-5, "tf32": 0.9999, "bfloat16": 0.999}
"""Least cosine with float32 on the CPU, by format."""
LOSS = 1e-3
"""Largest relative difference of a training's loss."""


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request):
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return request.param


@pytest.fixture(scope="module")
def texts():
    """240 texts of 1 to 60 words, in no order of length."""
    rng = np.random.default_rng(0)
    return [" ".join(rng.choice(WORDS, rng.integers(1, 61))) for _ in range(240)]


def least_cosine(found, expected):
    lengths = np.linalg.norm(found, axis=1) * np.linalg.norm(expected, axis=1)
    return float(((found * expected).sum(axis=1) / lengths).min())


@pytest.mark.parametrize("kind", NEAREST)
def test_vectors_are_those_of_sentence_transformers(tiny_model, texts, device, kind):
    if kind == "tf32" and device == "cpu":
        pytest.skip("tf32 needs an NVIDIA GPU")
    expected = SentenceTransformer(str(tiny_model), device="cpu").encode(texts, normalize_embeddings=True)
    fields = {"precision": "tf32"} if kind == "tf32" else {"dtype": kind}
    encoder = load_encoder(str(tiny_model), device=device, **fields)
    found = encoder.encode_texts(texts, [None] * len(texts))
    assert found.shape == expected.shape
    assert least_cosine(found, expected) >= NEAREST[kind]


@pytest.mark.gpu
@pytest.mark.parametrize("kind", NEAREST)
@pytest.mark.parametrize("name", ["multilingual-e5-small-q4", "smollm2-135m-q4-en-prompts"])
def test_vectors_of_real_models_are_those_of_the_cpu(take_assets, name, kind):
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    take_assets(name.removesuffix("-en-prompts"), "gettext")
    columns = corpora.load("gettext")
    texts = [text for language in columns.languages for text in columns.texts(language)[:12]]
    fields = {"dtype": "float32", "precision": "tf32"} if kind == "tf32" else {"dtype": kind}
    expected, found = (
        load_encoder(name, device=device, **chosen).encode_texts(texts, [None] * len(texts))
        for device, chosen in (("cpu", {"dtype": "float32"}), ("cuda", fields))
    )
    assert least_cosine(found, expected) >= NEAREST[kind]


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_compiled_layers_change_nothing_on_a_gpu(tiny_model, texts, kind):
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    options = {"device": "cuda", "dtype": kind}
    plain = load_encoder(str(tiny_model), **options).encode_texts(texts, [None] * len(texts))
    compiled = load_encoder(str(tiny_model), backend="compiled", **options).encode_texts(texts, [None] * len(texts))
    assert least_cosine(compiled, plain) >= NEAREST[kind]


@pytest.mark.slow
def test_a_training_has_the_losses_of_the_cpu(xalign, workdir, make_model, write_text, device):
    """Without dropout, whose random numbers differ from device to device."""
    model = make_model(workdir / "model", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    write_text(workdir / "text", 30, ("ar", "en", "es"))
    given = ("--backbone", model, "--pairs", "own:text", "--samples", 20)
    steps = (f"--set={field}" for field in ("batch_size=8", "rank=4", "dropout=0", "max_steps=3"))
    losses, command = [], ("train", "contrastive", *given, *steps)
    for place in ("cpu", device):
        assert xalign(*command, "--device", place, "--output", f"on-{place}")[0] == 0
        log = [json.loads(line) for line in (workdir / f"on-{place}" / "training_log.jsonl").read_text().splitlines()]
        losses.append([entry["loss"] for entry in log if entry["kind"] == "step"])
    assert len(losses[0]) == 3
    np.testing.assert_allclose(*losses, rtol=LOSS)


@pytest.mark.parametrize(
    ("cuda", "failing", "status", "run"),
    [(False, "", 3, []), (True, "tests", 1, ["tests"]), (True, "", 0, ["tests", "benchmarks"]),
     (True, "benchmarks", 1, ["tests", "benchmarks"])],
)  # fmt: skip
def test_the_first_gpu_run_compares_before_it_times(tmp_path, cuda, failing, status, run):
    script = Path(__file__).parents[1] / "benchmarks" / "first_gpu_run.sh"
    commands = {
        "python": f"exit {int(not cuda)}",
        "nvidia-smi": "echo a GPU",
        "pytest": f'echo "${{1%%/*}}" >> {tmp_path}/run; [[ ${{1%%/*}} != "{failing}" ]]',
    }
    for name, body in commands.items():
        (tmp_path / name).write_text(f"#!/usr/bin/env bash\n{body}\n")
        (tmp_path / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run([script, tmp_path / "out"], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    made = tmp_path / "run"
    assert (made.read_text().split() if made.exists() else []) == run
    assert (tmp_path / "out").exists() == cuda
