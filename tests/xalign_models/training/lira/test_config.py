"""Configurations: the shipped ones, single changes, ablations, and what is wrong with a field."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from xalign_models.configuration import from_mapping, shipped, to_mapping
from xalign_models.errors import ModelError
from xalign_models.training.lira.config import Ablation, Design, LasrConfig, LiraConfig, Paths, load_config


@pytest.mark.parametrize("name", ["small", "mini", "base", "large", "max"])
def test_the_shipped_ones_are_read(name: str) -> None:
    assert name in shipped("xalign_models.training.lira")
    config = load_config([name])
    assert len(config.design.translators) == (1 if name in ("mini", "small") else 3)
    again = from_mapping(LiraConfig, json.loads(json.dumps(to_mapping(config))))
    assert again == config


def test_four_candidates_go_over_a_small_configuration() -> None:
    config = load_config(["mini", "candidates"])
    assert len(config.design.translators) == 4 and config.arca == load_config(["mini"]).arca
    assert all(one.startswith("llm:") for one in config.design.translators)


def test_the_papers_sizes_are_what_it_says() -> None:
    base, large, most = (load_config([name]).design for name in ("base", "large", "max"))
    assert all(one.startswith("mt:") for one in base.translators)
    for name in ("base", "large", "max"):
        config = load_config([name])
        assert (config.arca.batch_size, config.lasr.ranking_batch, config.lasr.retrieval_batch) == (1, 1, 1)
    assert all(one.startswith("llm:") for one in (*large.translators, *most.translators))
    assert base.critic == large.critic == "generate:Qwen/Qwen3-1.7B"
    assert most.critic == "generate:Qwen/Qwen3-32B"
    assert {one.multilingual for one in (base, large, most)} == {"google/mt5-xl"}


def test_changes_are_as_in_yaml() -> None:
    config = load_config(
        ["small"],
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
        ("arca.epochs=0", r"arca\.epochs 0: at least 1"),
        ("arca.clip=0", r"arca\.clip 0: it must be above 0"),
        ("design.sides=both", r"design\.sides 'both': one of 'one_sided' or 'shared'"),
        ("design.translators=[gemma]", "--translators 'gemma'"),
        ("design.critic=gemma", "critic 'gemma'"),
        ("design.bins=0", "bins 0"),
        ("lasr.loss.k=0", r"loss\.k 0"),
        ("lasr.held_out=1", "held_out"),
        ("arca.languages=no", "arca.languages False: it must be a valid array"),
        ("lasr.languages=0", "lasr.languages 0: it must be a valid array"),
        ("lasr.loss.threshold=.nan", "lasr.loss.threshold nan: give a number"),
        ("lasr.correlation.n_min=50", "lasr.correlation.n_min 50: history and batch together have at most 48 pairs"),
        (
            "lasr={ranking: [file:a], retrieval: [], ranking_batch: 4, correlation: {max_len: 0}}",
            "n_min 8: history and batch together have at most 4 pairs",
        ),
        ("arca={actor_rate: 0, encoder_rate: 0, adaptor_rate: 0}", "arca: all three rates are 0"),
    ],
)
def test_what_is_wrong_is_named(change: str, message: str) -> None:
    with pytest.raises(ModelError, match=f"^--config small: .*{message}"):
        load_config(["small"], [change])


def test_ablations_take_one_part_each() -> None:
    full = load_config(["large"])
    without = {one: load_config(["large"], ablation=one) for one in Ablation}
    assert without[Ablation.CRITIC].design.critic is None
    embeds = without[Ablation.EMBEDS]
    assert (embeds.design.embedding_critic, embeds.arca.eta, embeds.arca.reward.similarity) == (False, 0, 0)
    assert without[Ablation.TRANSLATIONS].design.translators == ()
    assert without[Ablation.MULTILINGUAL].design.paths is Paths.ENGLISH
    queue = without[Ablation.QUEUE].lasr
    assert (queue.correlation.max_len, queue.loss.max_len) == (0, 0)
    assert {one.label for one in without.values()} == {f"lira-no-{one}" for one in Ablation}
    assert full.label == "lira"


@pytest.mark.parametrize("one", Ablation)
def test_an_ablation_is_set_with_its_fields_or_not_at_all(one: Ablation, tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(f"ablation: {one}\n")
    for names, changes in ((["small"], [f"ablation={one}"]), (["small", str(tmp_path / "own.yaml")], [])):
        with pytest.raises(ModelError, match=f"^ablation={one} only names the model: use --ablate {one} instead"):
            load_config(names, changes)
        assert load_config(names, changes, ablation=one).ablation == one


def test_rates_of_zero_are_fine_where_nothing_is_trained() -> None:
    rates = [f"arca.{name}_rate=0" for name in ("actor", "encoder", "adaptor")]
    assert load_config(["small"], [*rates, "arca.max_steps=0"]).arca.actor_rate == 0
    for rate in range(3):
        load_config(["small"], rates[:rate] + rates[rate + 1 :])


def test_no_data_and_doubled_translators_are_refused() -> None:
    with pytest.raises(ModelError, match="name ranking data"):
        LasrConfig(ranking=(), retrieval=())
    with pytest.raises(ModelError, match="each may be named once"):
        Design(translators=("reference:ntrex", "reference:ntrex"))
