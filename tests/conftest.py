"""Fixtures that most tests need: a model of a few kilobytes, made-up parallel text, a cache, a known encoder."""

from __future__ import annotations

import gc
import logging
import math
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from tests.warm import Warm
from xalign_models.progress import Lines

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
sys.path.append(str(Path(__file__).parents[1]))  # for `benchmarks` and `tests`; behind the installed packages
settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared")  # other work on the machine must not fail a test
gc.disable()  # while tests are collected and libraries imported
CACHE = os.environ.get("XALIGN_CACHE")
WORDS = [f"w{i}" for i in range(100)]
LANGUAGES = ("deu", "eng", "fra")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests first in each worker's share, which xdist gives it at once: short ones balance the end.

    Tests that read the public scores need the published corpora as those with the mark do.
    """
    for item in items:
        if "public_scores" in getattr(item, "fixturenames", ()):
            item.add_marker("realdata")
    count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if count == 1:
        return
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    slow = [tests for tests in files.values() if any(test.get_closest_marker("slow") for test in tests)]
    slow_paths = {tests[0].path for tests in slow}
    rest = [item for item in items if item.path not in slow_paths]
    ordered: list[pytest.Item] = []
    for number in range(count):
        share = [item for tests in slow[number::count] for item in tests]
        room = max(0, len(items) // count - len(share))
        ordered += share + rest[:room]
        rest = rest[room:]
    items[:] = ordered + rest


def pytest_collection_finish() -> None:
    """Trainings and evaluations collect garbage often: they need not go through a million objects of imports."""
    gc.enable()
    gc.freeze()


@pytest.fixture(autouse=True)
def _environment(request: pytest.FixtureRequest) -> Iterator[None]:
    """Restores the environment after commands, and hides the published corpora from tests that do not ask for them.

    So a test that needs them without the mark ``realdata`` fails on every machine, not only on one without them. Like a
    command, each test begins with a minute in which no bar writes a line into a pipe.
    """
    Lines.last = time.time()
    with mock.patch.dict(os.environ):
        if not request.node.get_closest_marker("realdata"):
            os.environ.pop("XALIGN_DATA", None)
        yield


@pytest.fixture(scope="session")
def make_bert() -> Callable[..., Path]:
    """Writes a random BERT checkpoint that knows the given words; ``size`` overrides fields of its configuration."""

    def make(folder: Path, words: Sequence[str], **size: Any) -> Path:
        import torch
        from transformers import BertConfig, BertModel, BertTokenizerFast

        folder.mkdir(parents=True, exist_ok=True)
        (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]))
        BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
        tiny = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
        config = BertConfig(**{"vocab_size": 5 + len(words), "max_position_embeddings": 32, **tiny, **size})
        with torch.random.fork_rng():
            torch.manual_seed(0)
            BertModel(config).save_pretrained(folder)
        return folder

    return make


@pytest.fixture(scope="session")
def make_model(make_bert: Callable[..., Path]) -> Callable[..., Path]:
    """Writes a sentence-transformers directory: a random BERT, mean pooling, unit length."""

    def make(folder: Path, nan: bool = False, **size: Any) -> Path:
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

        bert = Transformer(
            str(make_bert(folder.with_name(f"{folder.name}-bert"), WORDS, initializer_range=0.5, **size))
        )
        if nan:
            bert.auto_model.embeddings.word_embeddings.weight.data[5:] = float("nan")
        model = SentenceTransformer(modules=[bert, Pooling(16, "mean"), Normalize()], device="cpu")
        model.save_pretrained(str(folder), create_model_card=False)
        return folder

    return make


@pytest.fixture(scope="session")
def tiny_model(make_model: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a 16-d model; never change it."""
    return make_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def write_text() -> Callable[..., Path]:
    """Writes a parallel corpus of random words: a file per language, rows different everywhere."""

    def write(folder: Path, rows: int, languages: Sequence[str] = LANGUAGES, seed: int = 0) -> Path:
        rng = np.random.default_rng(seed)
        folder.mkdir(parents=True, exist_ok=True)
        for language in languages:
            lines = (" ".join(rng.choice(WORDS, rng.integers(1, 9))) for _ in range(rows))
            (folder / f"{language}.txt").write_text("\n".join(lines) + "\n")
        return folder

    return write


@pytest.fixture(scope="session")
def public_scores() -> Path:
    """The public results by language, as a parquet file."""
    path = Path(os.environ.get("XALIGN_DATA", "-")) / "mteb_results" / "scores.parquet"
    if not path.is_file():
        pytest.skip("XALIGN_DATA has no mteb_results")
    return path


@pytest.fixture
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with a cache and a store of its own, no corpora, and a hub that cannot be reached."""
    import datasets
    import huggingface_hub.constants

    (tmp_path / "data").mkdir()
    for name in ("cache", "store", "data"):
        monkeypatch.setenv(f"XALIGN_{name.upper()}", str(tmp_path / name))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("XALIGN_OWN", raising=False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def take_assets(workdir: Path) -> Callable[..., None]:
    """Links installed packages into the cache of ``workdir``; a test whose packages are not installed is skipped."""

    def take(*names: str) -> None:
        from xalign_models import assets

        for name in names:
            with mock.patch.dict(os.environ):
                del os.environ["XALIGN_CACHE"]
                os.environ.update({"XALIGN_CACHE": CACHE} if CACHE else {})
                installed = assets.where(name)
            if installed is None:
                pytest.skip(f"the asset {name} is not installed: xalign assets install {name}")
            (workdir / "cache" / "assets").mkdir(parents=True, exist_ok=True)
            (workdir / "cache" / "assets" / name).symlink_to(installed)

    return take


@pytest.fixture
def xalign(
    workdir: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, list[str]]]:
    """Runs a command in this process: (exit status, standard output, lines of standard error)."""
    from xalign_models.cli import main
    from xalign_models.cli.survival import Survivor
    from xalign_models.progress import Lines

    monkeypatch.setattr(Survivor, "go_on", lambda self: None)  # the tests' process goes on by itself
    monkeypatch.setattr(Lines, "last", math.inf)  # the tests' process is older than a minute

    def run(*arguments: Any) -> tuple[int, str, list[str]]:
        capfd.readouterr()
        monkeypatch.setattr(sys, "argv", ["xalign", *map(str, arguments)])
        formatwarning = warnings.formatwarning
        with pytest.raises(SystemExit) as exit_:
            main()
        warnings.formatwarning = formatwarning
        logging.getLogger("xalign_models").setLevel(logging.NOTSET)
        for variable in ("XALIGN_OWN", "PYTHONSAFEPATH"):  # of --data, and of every command
            os.environ.pop(variable, None)
        captured = capfd.readouterr()
        return int(exit_.value.code or 0), captured.out, captured.err.splitlines()

    return run


@pytest.fixture(scope="session")
def warm(request: pytest.FixtureRequest) -> Warm:
    """Servers that all workers of xdist share."""
    if worker := getattr(request.config, "workerinput", None):
        return Warm(Path(tempfile.gettempdir()) / f"xalign{worker['testrunuid'][:8]}", os.getppid())
    return Warm(Path(tempfile.mkdtemp(prefix="xalign")), os.getpid())


@pytest.fixture
def python(warm: Warm) -> str:
    """A program like ``sys.executable`` that has the large libraries at once; see :mod:`tests.warm`."""
    return warm.serve()


@pytest.fixture
def launch(warm: Warm) -> Callable[..., str]:
    """Runs the command line in two processes on the CPU, sharded by a file of accelerate's if one is given.

    Returns what they print.
    """
    plain = ["torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-m", "--", "xalign_models.cli"]

    def run(*arguments: Any, sharded: Path | None = None) -> str:
        launcher = plain
        if sharded:
            launcher = [
                "accelerate.commands.launch", "--config_file", str(sharded), "--num_processes", "2",
                "--main_process_port", "0", "--mixed_precision", "no",
                "--fsdp_transformer_layer_cls_to_wrap", "BertLayer,LlamaDecoderLayer",
                str(Path(__file__).with_name("sharded.py")),
            ]  # fmt: skip
        done = subprocess.run(
            [program := warm.serve(2), "-m", *launcher, *map(str, arguments)],
            env={**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true", "PYTHON_EXEC": program},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture
def mesh() -> Iterator[Any]:
    """A device mesh for FSDP that has this process alone."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


@dataclass
class Planted:
    """Stands in for a RawEncoder: the text ``deu 7`` is meaning 7, turned and moved as ``deu`` is.

    Attributes:
        turn: Language to an orthogonal (d, d) matrix; the identity by default.
        shift: Language to (d,); zero by default.
        encoded: How often each text was encoded.
    """

    turn: dict[str, np.ndarray] = field(default_factory=dict)
    shift: dict[str, np.ndarray] = field(default_factory=dict)
    dim: int = 16
    namespace: str = "planted"
    device: str = "cpu"
    encoded: Counter[str] = field(default_factory=Counter)
    prompts: list[str] = field(default_factory=list)

    def encode(self, texts: Sequence[str], prompt: str = "", progress: str | None = None) -> np.ndarray:
        self.encoded.update(texts)
        self.prompts.append(prompt)
        return np.stack([self.vector(*text.split()) for text in texts]).astype(np.float32)

    def vector(self, language: str, meaning: str) -> np.ndarray:
        content = np.random.default_rng(int(meaning)).standard_normal(self.dim)
        return content @ self.turn.get(language, np.eye(self.dim)) + self.shift.get(language, 0)

    @staticmethod
    def write(folder: Path, meanings: range, languages: Sequence[str] = LANGUAGES) -> Path:
        """A parallel corpus of such texts."""
        folder.mkdir(parents=True, exist_ok=True)
        for language in languages:
            (folder / f"{language}.txt").write_text("".join(f"{language} {one}\n" for one in meanings))
        return folder


@pytest.fixture
def planted() -> type[Planted]:
    return Planted


@pytest.fixture
def make_encoder() -> Callable[..., Any]:
    """An XAlignEncoder of a raw encoder and, if given, a fitted alignment."""

    def make(raw: Any, alignment: Any = None, prompts: dict[str, str] | None = None, revision: str = "1") -> Any:
        from mteb.models.model_meta import ModelMeta, ScoringFunction
        from sentence_transformers.sentence_transformer.modules import Normalize

        from xalign_models.alignments.module import Aligned
        from xalign_models.models.encoder import XAlignEncoder

        meta = ModelMeta.create_empty(
            {"name": "test/planted", "revision": revision, "similarity_fn_name": ScoringFunction.COSINE}
        )
        tail = [Normalize()] if alignment is None else [Aligned.of(alignment), Normalize()]
        languages = alignment.languages_ if alignment is not None and alignment.language_dependent else None
        return XAlignEncoder(raw, tail, prompts or {}, languages, meta)

    return make
