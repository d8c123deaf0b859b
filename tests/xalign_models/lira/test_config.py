"""Configurations: presets, YAML, single changes, ablations, and what is wrong with a field."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from xalign_models.errors import ModelError
from xalign_models.lira.config import Ablation, Design, LasrConfig, LiraConfig, Paths
from xalign_models.lira.reading import from_mapping, presets, read_config, to_mapping


@pytest.mark.parametrize("name", ["small", "mini", "base", "large", "max"])
def test_presets_are_read(name: str) -> None:
    assert name in presets()
    config = read_config(name)
    assert len(config.design.translators) == (1 if name in ("mini", "small") else 3)
    again = from_mapping(LiraConfig, json.loads(json.dumps(to_mapping(config))))
    assert again == config


def test_the_papers_sizes_are_what_it_says() -> None:
    base, large, most = (read_config(name).design for name in ("base", "large", "max"))
    assert all(one.startswith("mt:") for one in base.translators)
    assert all(one.startswith("llm:") for one in (*large.translators, *most.translators))
    assert base.critic == large.critic == "generate:Qwen/Qwen3-1.7B"
    assert most.critic == "generate:Qwen/Qwen3-32B"
    assert {one.multilingual for one in (base, large, most)} == {"google/mt5-xl"}


def test_changes_are_as_in_yaml() -> None:
    config = read_config(
        "small",
        ["arca.epochs=3", "arca.encoder_rate=5e-4", "design.translators=[]", "design.sides=shared",
         "lasr.loss.k=5", "lasr.correlation.max_len=0", "arca.reward.similarity=2", "lasr.languages=deu-Latn"],
    )  # fmt: skip
    assert config.arca.epochs == 3 and config.arca.encoder_rate == 5e-4 and config.arca.reward.similarity == 2.0
    assert config.design.translators == () and config.design.sides == "shared"
    assert config.lasr.loss.k == 5 and config.lasr.correlation.max_len == 0
    assert config.lasr.languages == ("deu-Latn",)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("arca.epoch=3", r"arca\.epoch: no such field; there are .*epochs"),
        ("arca.epochs=many", r"arca\.epochs 'many': int was expected"),
        ("arca.epochs=0", r"arca\.epochs 0: at least 1"),
        ("arca.epochs=true", r"arca\.epochs True: int was expected"),
        ("arca.eta=big", r"arca\.eta 'big' is no float"),
        ("design.sides=both", r"design\.sides 'both' is no Sides; one of one_sided, shared"),
        ("design.translators=[gemma]", "--translators 'gemma'"),
        ("design.critic=gemma", "critic 'gemma'"),
        ("design.translators={a: 1}", r"design\.translators .*a list was expected"),
        ("design.bins=0", "bins 0"),
        ("lasr.loss=5", r"lasr\.loss: fields were expected"),
        ("lasr.loss.k=0", r"retrieval\.k 0"),
        ("arca.epochs.x=3", r"epochs has no fields"),
        ("arca", "write FIELD=VALUE"),
        ("lasr.held_out=1", "held_out"),
        ("arca.epochs=[", "not YAML"),
    ],
)
def test_what_is_wrong_is_named(change: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        read_config("small", [change])


def test_missing_and_broken_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"--config huge: neither a preset \(base, large, max, mini, small\)"):
        read_config("huge")
    (tmp_path / "x.yaml").write_text("design: [unclosed")
    with pytest.raises(ModelError, match="not YAML"):
        read_config(str(tmp_path / "x.yaml"))
    (tmp_path / "y.yaml").write_text("just text")
    with pytest.raises(ModelError, match="fields were expected|has no fields"):
        read_config(str(tmp_path / "y.yaml"))


def test_ablations_take_one_part_each() -> None:
    full = read_config("large")
    without = {one: read_config("large", ablation=one) for one in Ablation}
    assert without[Ablation.CRITIC].design.critic is None
    embeds = without[Ablation.EMBEDS]
    assert (embeds.design.embedding_critic, embeds.arca.eta, embeds.arca.reward.similarity) == (False, 0, 0)
    assert without[Ablation.TRANSLATIONS].design.translators == ()
    assert without[Ablation.MULTILINGUAL].design.paths is Paths.ENGLISH
    queue = without[Ablation.QUEUE].lasr
    assert (queue.correlation.max_len, queue.loss.max_len) == (0, 0)
    assert {one.label for one in without.values()} == {f"lira-no-{one}" for one in Ablation}
    assert full.label == "lira"


def test_no_data_and_doubled_translators_are_refused() -> None:
    with pytest.raises(ModelError, match="name data"):
        LasrConfig(ranking=(), retrieval=())
    with pytest.raises(ModelError, match="twice"):
        Design(translators=("reference:ntrex", "reference:ntrex"))
