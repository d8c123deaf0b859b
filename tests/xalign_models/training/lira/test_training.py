"""Both stages on random models and words: they learn, go on after an interruption, and leave models that load."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import xalign_models
from xalign_models.errors import DataError, ModelError
from xalign_models.models import building
from xalign_models.models.building import load_encoder
from xalign_models.models.names import find_spec
from xalign_models.training.lira import run
from xalign_models.training.lira.config import Ablation
from xalign_models.training.lira.module import HISTORY, LiRA
from xalign_models.training.records import LOG

Config = Callable[..., Any]


def log_of(directory: Path, kind: str) -> list[dict[str, Any]]:
    entries = [json.loads(line) for line in (directory / LOG).read_text().splitlines()]
    return [one for one in entries if one["kind"] == kind]


def weights_of(directory: Path) -> dict[str, torch.Tensor]:
    return run.open_lira(directory).network.state_dict()


@pytest.fixture
def arca(lira_config: Config, tmp_path: Path) -> Path:
    run.train_arca(lira_config(), tmp_path / "arca", "cpu")
    return tmp_path / "arca"


def test_arca_learns_and_its_epochs_are_kept(arca: Path) -> None:
    module = run.open_lira(arca)
    before, first, last = module.history
    assert [one["epoch"] for one in module.history] == [0, 1, 2]
    assert "loss" not in before and before["similarity"] < first["similarity"]
    assert last["loss"] < first["loss"] and last["similarity"] > first["similarity"]
    for entry in module.history:
        assert entry["mismatched"] < entry["similarity"] <= 1
        assert entry["epsilon_1"] > 0 and 0 <= entry["epsilon_2"] <= 2
        assert sum(entry["chosen"]) == pytest.approx(1) and len(entry["chosen"]) == 2
        assert entry["collapsed"] is False
    assert [one["rows"] for one in log_of(arca, "step")] == [9] * 12  # 54 texts of two languages, twice
    assert all(one["tokens"] > 9 for one in log_of(arca, "step"))
    spec = find_spec(str(arca))
    assert spec.name == "xalign/arca__tiny__writer" and spec.baseline == "xalign/plain__tiny__writer"
    untouched = [name for name, _ in module.network.encoder.named_parameters() if "word_embeddings" in name]
    assert not module.network.tuned & {f"encoder.{name}" for name in untouched}


@pytest.mark.slow
def test_lasr_learns_from_arca_on(arca: Path, lira_config: Config, tmp_path: Path) -> None:
    spec = run.train_lasr(lira_config("lasr.epochs=6", "lasr.rate=3e-3"), arca, tmp_path / "lira", "cpu")
    assert spec.name == "xalign/lira__tiny__writer"
    epochs = log_of(tmp_path / "lira", "measure")
    assert len(epochs) == 1 + 6 and {"pearson", "spearman", "accuracy"} <= set(epochs[-1])
    steps = log_of(tmp_path / "lira", "step")
    assert steps[-1]["retrieval_loss"] < steps[0]["retrieval_loss"]
    assert {"near_negatives", "waiting", "grad_norm_lora", "grad_norm_fusion"} <= set(steps[-1])
    assert all("tokens" not in step and step["rows"] for step in steps)  # none is encoded in training
    before, after = weights_of(arca), weights_of(tmp_path / "lira")
    for name in before:
        if name.startswith(("encoder.", "adaptor.", "actor.")):
            torch.testing.assert_close(after[name], before[name])
    assert any("lora_" in name for name in after)
    assert not torch.equal(after["fusion.projection.weight"], before["fusion.projection.weight"])
    card = json.loads((tmp_path / "lira" / "xalign.json").read_text())
    assert card["training"]["config"]["lasr"]["epochs"] == 6 and "OwnParallel" in card["training_datasets"]
    assert run.open_lira(tmp_path / "lira").history  # of stage 1


@pytest.mark.filterwarnings("error:An input array is constant")
def test_a_correlation_with_equal_scores_is_not_measured(arca: Path, lira_config: Config, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in Path("rated.jsonl").read_text().splitlines()]
    Path("same.jsonl").write_text("".join(json.dumps({**row, "score": 3}) + "\n" for row in rows))
    run.train_lasr(lira_config("lasr.ranking=['file:same.jsonl']", "lasr.max_steps=1"), arca, tmp_path / "l", "cpu")
    text = (tmp_path / "l" / LOG).read_text()
    assert "NaN" not in text and "nan" not in text
    assert all("accuracy" in one and "spearman" not in one for one in log_of(tmp_path / "l", "measure"))
    (verdict,) = log_of(tmp_path / "l", "verdict")
    assert verdict["text"].startswith("Held-out rows: accuracy")


def test_a_trained_model_loads_everywhere_and_gives_the_same(arca: Path, lira_text: Path) -> None:
    german = (lira_text / "deu.txt").read_text().splitlines()[:4]
    english = (lira_text / "eng.txt").read_text().splitlines()[:4]
    inputs = [{"text": one, "lang": "deu-Latn"} for one in german] + [{"text": one, "lang": "eng"} for one in english]
    model = xalign_models.load(str(arca), device="cpu")
    together = model.encode(inputs)
    assert together.shape == (8, 32)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-6)
    alone = np.concatenate([model.encode([one]) for one in inputs])
    np.testing.assert_allclose(together, alone, atol=1e-5)
    encoder = load_encoder(str(arca), device="cpu")
    assert encoder.mteb_model_meta.name == "xalign/arca__tiny__writer"
    assert encoder.mteb_model_meta.revision
    scored = encoder.encode_texts([*german, *english], ["deu"] * 4 + ["eng-Latn"] * 4)
    np.testing.assert_allclose(scored, together, atol=1e-5)
    unknown = encoder.encode_texts(english, [None] * 4)  # no language, no translation: the text itself, twice
    np.testing.assert_allclose(unknown, together[4:], atol=1e-5)


def test_the_mean_english_token_is_the_origin(arca: Path, lira_text: Path) -> None:
    """Of the translations in the training; with it, no two texts are alike for that they are English."""
    network, module = run.open_lira(arca).network, run.open_lira(arca)
    assert float(network.centre.norm()) > 0 and float(network.adaptor.gain) > 0
    with torch.inference_mode():
        bins = network.adaptor.multilingual(torch.randn(3, 2, 16))
        torch.testing.assert_close(bins.square().mean(-1).sqrt(), network.adaptor.gain.expand(3, 2), rtol=1e-3, atol=0)
        english = module.tokenize_english((lira_text / "eng.txt").read_text().splitlines())
        network.fit_centre([english])
        ids, mask = english["input_ids"], english["attention_mask"].bool() & (english["input_ids"] > 2)
        tokens = network.english.model.get_input_embeddings()(ids)[mask]
        torch.testing.assert_close(network.centre, tokens.mean(dim=0), rtol=1e-4, atol=1e-6)
        lengths = network.english_bins(english).square().mean(dim=-1)
        assert float(network.adaptor.gain) == pytest.approx(float(lengths.mean().sqrt()), rel=1e-4)
        network.fit_centre([])
        assert float(network.centre.norm()) == 0


def test_saving_again_gives_the_same_model(arca: Path, tmp_path: Path) -> None:
    again = run.variant(arca, tmp_path / "again", "again")
    assert again.name == "xalign/arca-again__tiny__writer"
    one, other = weights_of(arca), weights_of(tmp_path / "again")
    assert one.keys() == other.keys()
    for name, weight in one.items():
        torch.testing.assert_close(weight, other[name])


def test_variants_translate_and_fuse_in_another_way(arca: Path, tmp_path: Path, lira_text: Path) -> None:
    english = {"text": (lira_text / "deu.txt").read_text().splitlines()[0], "lang": "deu-Latn"}
    plain = xalign_models.load(str(arca), device="cpu").encode([english])
    run.variant(arca, tmp_path / "p0", "pass0", pass_at=0, translators=["llm:nowhere/at-all"])
    run.variant(arca, tmp_path / "en", "english", paths="english")
    for name in ("p0", "en"):
        assert not np.allclose(xalign_models.load(str(tmp_path / name), device="cpu").encode([english]), plain)
    with pytest.raises(ModelError, match="pass@1 needs 1 language models and 1 candidates per text; there are 0"):
        run.variant(arca, tmp_path / "p1", "pass1", pass_at=1)
    with pytest.raises(ModelError, match="is not a LiRA"):
        run.variant(tmp_path, tmp_path / "x", "x")


def test_offline_variants_name_what_is_missing(arca: Path, tmp_path: Path, writer: Path) -> None:
    run.variant(arca, tmp_path / "off", "offline", translators=[f"llm:{writer}"], online=False)
    with pytest.raises(DataError, match=r"Texts without a translation by llm:.*: 1, the first .*xalign translate"):
        xalign_models.load(str(tmp_path / "off"), device="cpu").encode([{"text": "neu", "lang": "deu-Latn"}])
    run.variant(arca, tmp_path / "on", "online", translators=[f"llm:{writer}"], online=True)
    model = xalign_models.load(str(tmp_path / "on"), device="cpu")
    assert model.encode([{"text": "neu", "lang": "deu-Latn"}]).shape == (1, 32)
    offline = xalign_models.load(str(tmp_path / "off"), device="cpu")  # the journal has it now
    np.testing.assert_allclose(
        offline.encode([{"text": "neu", "lang": "deu-Latn"}]), model.encode([{"text": "neu", "lang": "deu-Latn"}])
    )


def test_translators_that_changed_are_refused(arca: Path, workdir: Path) -> None:
    with (workdir / "made.jsonl").open("a") as handle:
        handle.write('{"text": "neu", "translation": "new"}\n')
    with pytest.raises(ModelError, match=r"file:made\.jsonl has changed since this model was trained"):
        xalign_models.load(str(arca), device="cpu").encode([{"text": "neu", "lang": "deu-Latn"}])


def interrupted(monkeypatch: pytest.MonkeyPatch, at: int, train: Callable[[], Any]) -> None:
    """Run a training that is killed at its ``at``-th step, each step having its checkpoint."""
    monkeypatch.setattr(run, "CHECKPOINT_STEPS", 1)
    from xalign_models.training.lira import arca as arcas
    from xalign_models.training.lira import lasr as lasrs

    for stage in (arcas.Arca, lasrs.Lasr):
        whole = stage.forward
        count = 0

        def forward(self: Any, features: Any, whole: Any = whole, **options: Any) -> Any:
            nonlocal count
            count += 1
            if count == at:
                raise KeyboardInterrupt
            return whole(self, features, **options)

        monkeypatch.setattr(stage, "forward", forward)
    with pytest.raises(KeyboardInterrupt):
        train()
    monkeypatch.undo()


def test_an_arca_that_was_killed_before_its_model_was_written_has_the_whole_log(
    arca: Path, lira_config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("xalign_models.training.session.save", killed)
        with pytest.raises(KeyboardInterrupt):
            run.train_arca(lira_config(), tmp_path / "again", "cpu")
    run.train_arca(lira_config(), tmp_path / "again", "cpu")
    for one, other in zip(run.open_lira(arca).history, run.open_lira(tmp_path / "again").history, strict=True):
        assert json.dumps({**one, "seconds": 0}, sort_keys=True) == json.dumps({**other, "seconds": 0}, sort_keys=True)


@pytest.mark.slow
@pytest.mark.parametrize("at", [1, 4, 8])
def test_an_interrupted_arca_goes_on_to_the_same_model(
    arca: Path, lira_config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workdir: Path, at: int
) -> None:
    environment = {
        name: str(workdir / name.removeprefix("XALIGN_").lower())
        for name in ("XALIGN_CACHE", "XALIGN_STORE", "XALIGN_DATA")
    }
    config = lira_config()
    interrupted(monkeypatch, at, lambda: run.train_arca(config, tmp_path / "again", "cpu"))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(workdir)
    run.train_arca(config, tmp_path / "again", "cpu")
    expected, found = weights_of(arca), weights_of(tmp_path / "again")
    for name, weight in expected.items():
        torch.testing.assert_close(found[name], weight, msg=name)
    for one, other in zip(run.open_lira(arca).history, run.open_lira(tmp_path / "again").history, strict=True):
        assert json.dumps({**one, "seconds": 0}, sort_keys=True) == json.dumps({**other, "seconds": 0}, sort_keys=True)
    assert not (tmp_path / ".again.training").exists()


@pytest.mark.slow
def test_an_interrupted_lasr_goes_on_to_the_same_model(
    arca: Path, lira_config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workdir: Path
) -> None:
    config = lira_config("lasr.refresh=2")
    run.train_lasr(config, arca, tmp_path / "whole", "cpu")
    interrupted(monkeypatch, 3, lambda: run.train_lasr(config, arca, tmp_path / "again", "cpu"))
    monkeypatch.setenv("XALIGN_CACHE", str(workdir / "cache"))
    monkeypatch.chdir(workdir)
    run.train_lasr(config, arca, tmp_path / "again", "cpu")
    expected, found = weights_of(tmp_path / "whole"), weights_of(tmp_path / "again")
    for name, weight in expected.items():
        torch.testing.assert_close(found[name], weight, msg=name)


def test_what_was_trained_so_is_not_trained_again_and_others_are_refused(
    arca: Path, lira_config: Config, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    left = arca.with_name(f".{arca.name}.training")
    left.mkdir()
    with caplog.at_level(logging.WARNING):
        run.train_arca(lira_config(), arca, "cpu")
    assert "exists with the same configuration" in caplog.text
    assert not left.exists()
    folder = tmp_path / ".other.training"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"stage": "arca", "arca": {"seed": 5}}))
    (folder / "checkpoint.pt").touch()
    with pytest.raises(ModelError, match=r"another training.*arca\.seed \(5 then, 0 now\)"):
        run.train_arca(lira_config(), tmp_path / "other", "cpu")


def test_batches_of_one_text_are_measured_among_others(lira_config: Config, tmp_path: Path) -> None:
    run.train_arca(lira_config("arca.batch_size=1", "arca.max_steps=3"), tmp_path / "a", "cpu")
    json.loads((tmp_path / "a" / HISTORY).read_text(), parse_constant=pytest.fail)
    assert all(entry["mismatched"] < entry["similarity"] for entry in run.open_lira(tmp_path / "a").history)
    (verdict,) = log_of(tmp_path / "a", "verdict")
    assert "nan" not in verdict["text"]


def test_other_translations_are_another_training(
    lira_config: Config, tmp_path: Path, workdir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = lira_config("arca.max_steps=0")
    for line in ("", json.dumps({"text": "new", "lang": "deu", "translation": "other"}) + "\n"):
        (workdir / "made.jsonl").write_text((workdir / "made.jsonl").read_text() + line)
        run.train_arca(config, tmp_path / "a", "cpu")
        assert "same configuration" not in caplog.text
    run.train_arca(config, tmp_path / "a", "cpu")
    assert "same configuration" in caplog.text


def test_another_seed_is_another_untrained_model(lira_config: Config, tmp_path: Path) -> None:
    first, other = (
        (run.untrained(lira_config(f"arca.seed={seed}"), tmp_path / "u"), weights_of(tmp_path / "u"))[1]
        for seed in (0, 1)
    )
    assert not torch.equal(first["actor.net.0.weight"], other["actor.net.0.weight"])


def test_without_any_translation_stage_one_has_nothing_to_learn(lira_config: Config, tmp_path: Path) -> None:
    config = lira_config("arca.extra=[]", ablation=Ablation.TRANSLATIONS)
    with pytest.raises(ModelError, match=r"No text of stage arca has a translation: .*arca\.extra"):
        run.train_arca(config, tmp_path / "a", "cpu")


def test_stage_two_is_called_after_what_stage_one_left_out(arca: Path, lira_config: Config, tmp_path: Path) -> None:
    for ablation in (Ablation.CRITIC, Ablation.EMBEDS, Ablation.TRANSLATIONS):
        with pytest.raises(ModelError, match=f"--ablate {ablation} concerns stage arca"):
            run.lasr_name(lira_config(ablation=ablation), arca)
    run.train_arca(lira_config("arca.max_steps=1", ablation=Ablation.CRITIC), tmp_path / "a", "cpu")
    assert run.lasr_name(lira_config(), tmp_path / "a") == ("lira-no-critic", "tiny__writer")
    other = lira_config("design.english=all-minilm-l6-v2", ablation=Ablation.QUEUE)
    assert run.lasr_name(other, tmp_path / "a") == ("lira-no-critic-no-queue", "tiny__writer")


def test_a_loss_that_is_not_finite_stops(lira_config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from xalign_models.training.lira import arca as arcas

    monkeypatch.setattr(arcas, "anchor_loss", lambda a, b: a.sum() * float("nan"))
    with pytest.raises(ModelError, match="not finite in step 1; lower the learning rates"):
        run.train_arca(lira_config(), tmp_path / "nan", "cpu")


@pytest.mark.slow
@pytest.mark.parametrize("ablation", list(Ablation))
def test_every_ablation_trains_both_stages(lira_config: Config, tmp_path: Path, ablation: Ablation) -> None:
    config = lira_config("arca.max_steps=2", "lasr.max_steps=2", ablation=ablation)
    run.train_arca(config, tmp_path / "a", "cpu")
    spec = run.train_lasr(config, tmp_path / "a", tmp_path / "l", "cpu")
    assert spec.name == f"xalign/lira-no-{ablation}__tiny__writer"
    assert xalign_models.load(str(tmp_path / "l"), device="cpu").encode(["w1"]).shape == (1, 32)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        ("design.centre=false",),
        ("design.sides=shared", "design.sentence=mean"),
        ("design.stream=states",),
        ("design.paths=multilingual",),
        ("lasr.rank=0", "lasr.average=false"),
        ("lasr.ranking=[]",),
        ("lasr.retrieval=[]", "lasr.ranking_batch=1"),
        ("arca.encoder_rate=0",),
        ("arca.train_embeddings=true",),
        ("arca.batch_size=1", "lasr.retrieval_batch=1"),
    ],
    ids=lambda changes: changes[0],
)
def test_every_way_of_training_runs(lira_config: Config, tmp_path: Path, changes: tuple[str, ...]) -> None:
    config = lira_config("arca.max_steps=2", "lasr.max_steps=2", *changes)
    run.train_arca(config, tmp_path / "a", "cpu")
    run.train_lasr(config, tmp_path / "a", tmp_path / "l", "cpu")
    model = xalign_models.load(str(tmp_path / "l"), device="cpu")
    assert bool(np.isfinite(model.encode([{"text": "w1 w2", "lang": "deu-Latn"}, ""])).all())


@pytest.mark.slow
def test_an_english_embedding_model_may_fuse(lira_config: Config, tiny_model: Path, tmp_path: Path) -> None:
    config = lira_config(f"design.english={tiny_model}", "arca.max_steps=2", "lasr.max_steps=2")
    run.train_arca(config, tmp_path / "a", "cpu")
    run.train_lasr(config, tmp_path / "a", tmp_path / "l", "cpu")
    module = run.open_lira(tmp_path / "l")
    assert isinstance(module, LiRA) and not module.network.fusion.causal
    assert module.get_embedding_dimension() == 16


def test_the_untrained_fusion_is_the_baseline(
    lira_config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "published_datasets", lambda *names: {"NLI"} if all(names) else set())
    spec = run.untrained(lira_config(), tmp_path / "u")
    assert spec.name == spec.baseline == "xalign/plain__tiny__writer"
    assert load_encoder(str(tmp_path / "u"), device="cpu").encode_texts(["w1"], ["eng"]).shape == (1, 32)
    assert json.loads((tmp_path / "u" / "xalign.json").read_text())["training"]["datasets"] == ["NLI"]


def test_checkpoints_that_changed_are_refused(lira_config: Config, tiny_model: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_model, tmp_path / "bert")
    run.untrained(lira_config(f"design.multilingual={tmp_path / 'bert'}"), tmp_path / "u")
    config = tmp_path / "bert" / "config.json"
    config.write_text(config.read_text().replace('"layer_norm_eps": 1e-12', '"layer_norm_eps": 1e-06'))
    with pytest.raises(ModelError, match="was trained on another"):
        run.open_lira(tmp_path / "u")


@pytest.mark.slow
def test_with_a_residual_english_keeps_its_vector_until_it_is_trained(
    lira_config: Config, tiny_model: Path, tmp_path: Path
) -> None:
    config = lira_config(
        f"design.english={tiny_model}", "design.residual=true", "lasr.rate=3e-2", "lasr.gate_rate=0.2",
        "lasr.max_steps=1", "arca.max_steps=2",
    )  # fmt: skip
    run.train_arca(config, tmp_path / "a", "cpu")
    english = [{"text": text, "lang": "eng-Latn"} for text in ("w1 w2", "w3 w4 w5", "w6")]
    own = building.load(str(tiny_model), device="cpu").encode([one["text"] for one in english])
    kept = building.load(str(tmp_path / "a"), device="cpu").encode(english)
    np.testing.assert_allclose(kept, own, atol=1e-5)
    run.train_lasr(config, tmp_path / "a", tmp_path / "l", "cpu")
    gate = run.open_lira(tmp_path / "l").network.gate
    np.testing.assert_allclose(gate.detach().abs().numpy(), 0.2, rtol=1e-3)  # Adam's first step is the gate's own rate
    moved = building.load(str(tmp_path / "l"), device="cpu").encode(english)
    assert np.abs(moved - own).max() > 1e-3
    german = building.load(str(tmp_path / "a"), device="cpu").encode([{"text": "w1 w2", "lang": "deu-Latn"}])
    assert np.isfinite(german).all()


@pytest.mark.parametrize(("kind", "pooling"), [("bge", "cls"), ("qwen", "lasttoken")])
def test_a_residual_is_the_published_models_own_vector(
    lira_config: Config, tiny_model: Path, make_writer: Callable[..., Path], tmp_path: Path, kind: str, pooling: str
) -> None:
    """With its pooling, its prompt and its padding side; a decoder without its head is causal all the same."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
    from transformers import AutoModel, AutoTokenizer

    folder = tiny_model
    if kind == "qwen":
        source, folder = make_writer("qwen3", head_dim=16), tmp_path / "headless"
        AutoModel.from_pretrained(source).save_pretrained(folder)  # the architecture is Qwen3Model
        AutoTokenizer.from_pretrained(source, padding_side="left").save_pretrained(folder)
    first = Transformer(str(folder))
    width = first.get_embedding_dimension()
    published = SentenceTransformer(
        modules=[first, Pooling(width, pooling), Normalize()],
        device="cpu",
        prompts={"default": "w7 w8 "},
        default_prompt_name="default",
    )
    published.save_pretrained(str(tmp_path / "english"), create_model_card=False)
    config = lira_config(f"design.english={tmp_path / 'english'}", "design.residual=true")
    run.untrained(config, tmp_path / "u")
    texts = ["w1 w2", "w3 w4 w5 w6", "w6"]
    kept = building.load(str(tmp_path / "u"), device="cpu").encode([{"text": one, "lang": "eng-Latn"} for one in texts])
    np.testing.assert_allclose(kept, published.encode(texts), atol=1e-5)
    assert run.open_lira(tmp_path / "u").network.fusion.causal == (kind == "qwen")
