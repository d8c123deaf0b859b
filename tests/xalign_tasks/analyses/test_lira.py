"""The diagnostics of LiRA: norms and ratios against plain loops, bounds against the theory, scripted choices."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import huggingface_hub
import numpy as np
import pandas as pd
import pytest
import torch

from xalign_models.analysis import Request
from xalign_models.corpora import load
from xalign_models.errors import DataError, ModelError
from xalign_models.generation.translators import clean
from xalign_models.generation.translators.lookup import Corruption, corrupt
from xalign_models.plugins import ANALYSES
from xalign_models.training.lira import run
from xalign_models.training.lira.module import LiRA
from xalign_tasks.analyses import base, deviation, lengths, lipschitz, rkhs, selection
from xalign_tasks.analyses.base import Sentences, Study, statistics
from xalign_tasks.analyses.deviation import bound_printed, bound_safe

TEXTS = [f"w{i} w{2 * i} w{3 * i} w{i % 7}" + " w5" * (i % 4) for i in range(30)]


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Sentences:
    """Made-up sentences instead of STS22's."""
    found = Sentences("made-up", TEXTS, ["eng-Latn"] * len(TEXTS), "local-1")

    def load(*_: object) -> tuple[Sentences, Study]:
        study = Study({found.name: found.revision})
        study.notes.append("These are made up.")
        return found, study

    for module in (rkhs, lipschitz, deviation):
        monkeypatch.setattr(module, "load_sentences", load)
    return found


def test_norms_are_of_unnormalised_means(tiny_model: Path, given: Sentences, workdir: Path) -> None:
    from transformers import AutoModel, AutoTokenizer

    found = ANALYSES["rkhs"](Request((str(tiny_model),), results=Path(__file__).parents[3]))
    model, tokenizer = AutoModel.from_pretrained(tiny_model), AutoTokenizer.from_pretrained(tiny_model)
    table = model.get_input_embeddings().weight.detach().double()
    norms = {policy: [] for policy in rkhs.POLICIES}
    for text in TEXTS:
        ids = tokenizer(text)["input_ids"]
        norms["with special tokens"].append(float(table[ids].mean(0).norm()))
        norms["without special tokens"].append(float(table[ids[1:-1]].mean(0).norm()))
    ours = found.tables["statistics"].set_index("tokens")
    for policy, values in norms.items():
        row = ours.loc[policy]
        assert row["max"] == pytest.approx(max(values), rel=1e-5)
        assert row["mean"] == pytest.approx(np.mean(values), rel=1e-5)
        assert row["std"] == pytest.approx(np.std(values), rel=1e-5)
        assert row["p95"] == pytest.approx(np.quantile(values, 0.95), rel=1e-5)
        assert row["count"] == len(TEXTS)
    paper = found.tables["statistics"].set_index("model")
    assert paper.loc["Qwen3-Embedding-8B [paper]", "max"] == 0.6866
    lengths = found.tables["lengths"]
    assert set(lengths["tokens"]) == set(rkhs.POLICIES)
    assert lengths.groupby("tokens")["texts"].sum().tolist() == [len(TEXTS)] * 2
    assert any("made up" in one for one in found.notes)


def test_norms_are_taken_on_the_requested_device(
    tiny_model: Path, given: Sentences, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ModelError, match="--device tpu is not usable"):
        ANALYSES["rkhs"](Request((str(tiny_model),), device="tpu"))
    module = SimpleNamespace(history=[{"epoch": 0}], backbones={"english": SimpleNamespace(model=str(tiny_model))})
    monkeypatch.setattr(deviation, "open_lira", lambda path: module)
    with pytest.raises(ModelError, match="--device tpu is not usable"):
        ANALYSES["deviation"](Request((str(tiny_model),), device="tpu"))


def test_norms_need_input_embeddings(given: Sentences, workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = SimpleNamespace(modules=lambda device: (torch.nn.Identity(),))
    monkeypatch.setattr(rkhs.loading, "open_backbone", lambda spec: opened)
    with pytest.raises(ModelError, match="has no input embeddings"):
        ANALYSES["rkhs"](Request(("smollm2-135m-q4",)))


def test_ratios_are_distances_over_edits(tiny_model: Path, given: Sentences, workdir: Path) -> None:
    found = ANALYSES["lipschitz"](Request((str(tiny_model),), device="cpu"))
    table = found.tables["ratios"]
    assert table["edits"].tolist() == ["token"] * 6 + ["character"] * 6
    assert table["delta"].tolist() == list(lipschitz.DELTAS) * 2
    assert (table["max"] <= 2).all() and (table["count"] <= len(TEXTS)).all()
    assert (table["median"] <= table["p90"]).all() and (table["p90"] <= table["p99"]).all()
    again = ANALYSES["lipschitz"](Request((str(tiny_model),), device="cpu")).tables["ratios"]
    pd.testing.assert_frame_equal(table, again)


def test_ratios_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """An encoder whose vector turns by 0.01 per character: the ratio is the length of the chord over the edits."""

    def encode(texts: list[str], languages: Any, **_: Any) -> np.ndarray[Any, Any]:
        angles = np.array([0.01 * len(text) for text in texts])
        return np.stack([np.cos(angles), np.sin(angles)], axis=1)

    encoder: Any = SimpleNamespace(raw=SimpleNamespace(modules=[object()]), encode_texts=encode)
    text = Sentences("x", ["abcdef", "ghijkl m"], ["eng-Latn"] * 2, "1")
    frame = lipschitz.ratios(encoder, text)
    single = frame[(frame["edits"] == "character") & (frame["delta"] == 1)]
    assert set(single["distance"]) == {1}
    chord = 2 * np.sin(0.005)
    assert all(one == pytest.approx(chord) or one == pytest.approx(0, abs=1e-12) for one in single["ratio"])
    assert (frame["distance"] <= frame["delta"]).all()


def test_statistics_of_nothing_are_empty() -> None:
    assert statistics(np.array([]), rkhs.COLUMNS)["count"] == 0
    constant = pd.DataFrame({"norm": [1.0, 1.0], "length": [3, 3]})
    assert np.isnan(rkhs.by_length(constant)["correlation"].iloc[0])


def test_bounds_are_the_theorys() -> None:
    history = pd.DataFrame(
        [
            {"epoch": 1, "loss": 1.9, "epsilon_1": 0.8, "epsilon_2": 0.5},
            {"epoch": 2, "loss": 0.2, "epsilon_1": 0.2, "epsilon_2": -1e-9},
        ]
    )
    frame = deviation.bounded(history, 0.7)
    assert frame["bound_safe"].tolist() == pytest.approx([bound_safe(0.8, 0.5, 0.7), 0.2])
    assert frame["bound_printed"].tolist() == pytest.approx([bound_printed(0.8, 0.5, 0.7), 0.2])
    assert (frame["bound_safe"] >= frame["bound_printed"]).all()


@pytest.fixture
def trained(workdir: Path, tiny_model: Path, write_text: Callable[..., Path]) -> Path:
    """A LiRA whose stage 1 was trained for two epochs on random words."""
    from xalign_models.training.lira.config import load_config
    from xalign_models.training.lira.run import train_arca

    root = write_text(workdir / "text", 24)
    pairs = {one: (root / f"{one}.txt").read_text().splitlines() for one in ("deu", "eng")}
    for name, more in (("a", ""), ("b", " w1 w2 w3 w4")):
        rows = [{"text": text, "translation": english + more} for text, english in zip(*pairs.values(), strict=True)]
        (workdir / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (workdir / "c.yaml").write_text(
        f"design: {{multilingual: {tiny_model}, english: {tiny_model}, bins: 4,"
        " translators: ['file:a.jsonl', 'file:b.jsonl']}\n"
        "arca: {text: ['own:text'], epochs: 2, batch_size: 8, held_out: 0.2, encoder_rate: 1e-3}\n"
    )
    train_arca(load_config(["c.yaml"]), workdir / "arca", "cpu")
    return workdir / "arca"


def test_epochs_are_shown_with_their_bounds(trained: Path, given: Sentences) -> None:
    found = ANALYSES["deviation"](Request((str(trained),), results=Path(__file__).parents[3]))
    table = found.tables["epochs"]
    ours = table[table["model"] == "arca"]
    assert ours["epoch"].tolist() == [0, 1, 2]
    for _, row in ours.iterrows():
        assert row["bound_safe"] == pytest.approx(bound_safe(row["epsilon_1"], row["epsilon_2"], row["C"]))
    assert len(table[table["model"].str.endswith("[paper]")]) == 10
    assert list(found.figures) == ["epochs-arca"]
    assert found.figures["epochs-arca"].axes[0].get_title() == "similarity and loss"


def test_deviation_needs_a_trained_lira(tiny_model: Path, given: Sentences, workdir: Path) -> None:
    with pytest.raises(ModelError, match="is not a LiRA"):
        ANALYSES["deviation"](Request((str(tiny_model),)))


def preferences(module: LiRA, text: str, translations: list[str]) -> list[float]:
    """The actor's scores of one text's translations by eqs. 3 to 6, term by term; there is no critic."""
    network = module.network.eval()
    with torch.no_grad():
        reading = network.encoder.preprocess([text])
        mine = network.adaptor.multilingual(network.multilingual_bins(reading))[0].flatten()
        scores = []
        for translation in translations:
            theirs = network.english_bins(module.tokenize_english([translation]))[0].flatten()
            cosine = float(mine @ theirs / (mine.norm() * theirs.norm()))
            scores.append(float(network.actor.net(torch.tensor([0, 0, 0, cosine]))))
    return scores


def valid(text: str, translation: str) -> bool:
    return not clean(translation, text, "deu-Latn").problem


def test_choices_among_corruptions_and_by_chrf(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shares and means of the analysis are those of the actor's choices, text by text."""
    from sacrebleu import sentence_chrf

    monkeypatch.setattr(selection, "CORPUS", "own:text")
    found = ANALYSES["selection"](Request((str(trained),), rows=20, languages=("deu-Latn",)))
    module, (texts, english) = run.open_lira(trained), (side[:20] for side in load("own:text").pair("deu-Latn"))
    draw, picked = random.Random(selection.SEED), {"all": 0, **dict.fromkeys(map(str, Corruption), 0)}
    for i, (text, reference) in enumerate(zip(texts, english, strict=True)):
        worse = [corrupt(reference, how, english[(i + 1) % 20], draw) for how in Corruption]
        first, *others = preferences(module, text, [reference, *worse])
        picked["all"] += first > max(others) + 1e-6
        for how, score in zip(Corruption, others, strict=True):
            picked[str(how)] += first > score + 1e-6
    table = found.tables["corrupted"].set_index("against")["reference picked"]
    assert table.to_dict() == pytest.approx({name: 5 * count for name, count in picked.items()})
    assert table.max() > 0 and table["all"] == table.min()
    graded, chosen = found.tables["graded"].iloc[0], []
    for text, reference in zip(texts, english, strict=True):
        pair = [reference, f"{reference} w1 w2 w3 w4"]  # as the fixture's two files translate
        if all(valid(text, made) for made in pair):
            chosen.append(sentence_chrf(pair[int(np.argmax(preferences(module, text, pair)))], [reference]).score)
    assert graded["texts"] == len(chosen) > 5
    assert graded["chrF chosen"] == pytest.approx(np.mean(chosen)) and graded["chrF best"] == pytest.approx(100)
    assert graded["chrF mean"] < 100 and -1 <= graded["rank correlation"] <= 1
    assert graded["translators"] == 2


def test_an_actor_that_cannot_choose_picks_nothing(trained: Path) -> None:
    module = run.open_lira(trained)
    torch.nn.init.zeros_(module.network.actor.net[-1].weight)
    found = selection.against_corruptions(module, ["a b", "c d"], ["e f", "g h"])
    assert (found["reference picked"] == 0).all()


def test_missing_translations_are_said(trained: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "CORPUS", "own:text")
    run.variant(trained, Path("two"), "two", translators=[f"llm:{tiny_model}", f"llm:{tiny_model}?seed=1"])
    found = ANALYSES["selection"](Request(("two",), rows=4, languages=("deu-Latn",)))
    assert "graded" not in found.tables and any(": 4, the first " in one for one in found.notes)


@pytest.mark.usefixtures("made_up_tasks")
def test_shares_of_translators_are_the_actors_choices(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two files that translate one text alike, and another with a single word."""
    rows = [json.loads(line) for line in Path("a.jsonl").read_text().splitlines()]
    longer = [json.loads(line) for line in Path("b.jsonl").read_text().splitlines()]
    longer[0], longer[1] = rows[0], {**longer[1], "translation": "w1"}
    Path("c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in longer))
    run.variant(trained, Path("two"), "two", translators=["file:a.jsonl", "file:c.jsonl"])
    texts = [(row["text"], "deu-Latn") for row in rows] + [("an English text", "eng-Latn"), ("?", None)]
    monkeypatch.setattr(selection, "task_texts", lambda *_: texts)
    monkeypatch.setattr(selection, "BATCH", 5)
    found = ANALYSES["translators"](Request(("two",), tasks=("Made-up",)))
    table = found.tables["shares"]
    german = table[table["language"] == "deu-Latn"].set_index("translator")
    module, pairs = run.open_lira(Path("two")), zip(rows, longer, strict=True)
    made = [(row["text"], [row["translation"], other["translation"]]) for row, other in pairs]
    contested = [(text, two) for text, two in made if two[0] != two[1] and all(valid(text, one) for one in two)]
    firsts = [int(np.argmax(preferences(module, text, two))) == 0 for text, two in contested]
    assert set(german["texts"]) == {len(firsts)} and 5 < len(firsts) < len(rows)
    taken = german["taken"].reindex(["file:a.jsonl", "file:c.jsonl"], fill_value=0)
    assert taken.tolist() == pytest.approx([100 * np.mean(firsts), 100 - 100 * np.mean(firsts)])
    assert set(table["task"]) == {"Made-up"} and list(found.figures) == ["shares"]
    with pytest.raises(ModelError, match="is not a LiRA"):
        ANALYSES["translators"](Request((str(trained.parent / "text"),), tasks=("Made-up",)))


@pytest.mark.usefixtures("made_up_tasks")
def test_translators_need_two_candidates(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "task_texts", lambda *_: [("only", "eng-Latn")])
    with pytest.raises(DataError, match="no text of Made-up has two candidates"):
        ANALYSES["translators"](Request((str(trained),), tasks=("Made-up",)))


@pytest.mark.usefixtures("made_up_tasks")
def test_lengths_count_characters_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    sides = {"query": [("ab", "eng-Latn"), ("abcd", "deu-Latn")], "document": [("x" * n, None) for n in range(1, 102)]}
    monkeypatch.setattr(
        lengths, "task_sides", lambda name, languages: sides if name == "Search" else {"": sides["query"]}
    )
    found = ANALYSES["lengths"](Request(tasks=("Search", "Pairs")))
    table = found.tables["statistics"].set_index(["task", "side"])
    query, document = table.loc["Search", "query"], table.loc["Search", "document"]
    assert (query["min"], query["max"], query["mean"], query["std"], query["count"]) == (2, 4, 3, 1, 2)
    assert (document["median"], document["p5"], document["p95"], document["count"]) == (51, 6, 96, 101)
    assert table.loc["Pairs", "texts"]["mean"] == 3
    assert table.loc["LazRetrieval [paper]", "document"]["mean"] == 97.42
    assert set(found.figures) == {"Search", "Pairs"} and found.data == {"Search": "1", "Pairs": "1"}


@pytest.mark.parametrize("longest", [1, 40, 99, 101, 150, 1000])
def test_a_histogram_of_lengths_has_every_text(longest: int) -> None:
    (axis,) = lengths.draw("Search", {"query": np.arange(1.0, longest + 1)}).axes
    assert [outline.get_xy()[:, 0].max() > longest for outline in axis.patches] == [True]


def test_one_language_is_named_and_each_bar_has_its_chance() -> None:
    against = ["all", *map(str, Corruption)]
    table = pd.DataFrame({"against": against, "reference picked": 70.0, "model": "m", "language": "deu-Latn"})
    (axis,) = selection.draw(table).axes
    assert "German" in axis.get_title() and "mean" not in axis.get_title()
    (chance,) = (line for line in axis.collections if line.get_label() == "chance")
    places, heights = zip(*(segment.mean(axis=0) for segment in chance.get_segments()), strict=True)
    assert heights == pytest.approx([100 / len(against), *[50] * len(Corruption)])
    assert places == pytest.approx([bar.get_x() + bar.get_width() / 2 for bar in axis.patches])
    (axis,) = selection.draw(pd.concat([table, table.assign(language="arb-Arab")])).axes
    assert "mean of 2 languages" in axis.get_title()


def test_sentences_fall_back_to_what_is_here(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def sts17() -> Sentences:
        return Sentences(
            "STS17 sentence1",
            ["a", "b", "a", " ", "c"],
            ["eng-Latn", "deu-Latn", "eng-Latn", "eng-Latn", "eng-Latn"],
            "1",
        )

    monkeypatch.setattr(base, "sts22_sentences", lambda: (_ for _ in ()).throw(OSError("no hub")))
    monkeypatch.setattr(base, "sts17_sentences", sts17)
    found, study = base.load_sentences(Request(), 100)
    assert found.texts == ["a", "b", "c"] and "is unavailable" in study.notes[0] and study.data == {found.name: "1"}
    assert base.load_sentences(Request(languages=("deu-Latn",)), 100)[0].texts == ["b"]
    assert len(base.load_sentences(Request(rows=2), 100)[0].texts) == 2
    said = r"STS17 sentence1 replaces it.* has no tha-Thai; choose among deu-Latn, eng-Latn with --languages"
    for languages in (("tha-Thai",), ("deu-Latn", "tha-Thai")):
        with pytest.raises(DataError, match=said):
            base.load_sentences(Request(languages=languages), 100)


@pytest.mark.parametrize("count", [1, 100, 149, 150, 151, 200, 299, 300, 400])
def test_sentences_are_taken_from_every_track_alike(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    codes = [code for code in ("arb-Arab", "spa-Latn", "eng-Latn") for _ in range(100)]
    sentences = Sentences("tracks", [f"text {i}" for i in range(300)], codes, "1")
    monkeypatch.setattr(base, "sts22_sentences", lambda: sentences)
    found = base.load_sentences(Request(), count)[0]
    assert len(set(found.texts)) == len(found.texts) == min(count, 300)
    assert np.ptp([found.languages.count(code) for code in dict.fromkeys(codes)]) <= 1


def test_sentences_of_a_hub_that_is_away_are_not_waited_for(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def dataset_info(*_: object, **__: object) -> None:
        raise ConnectionError("no route")

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", dataset_info)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    begun = time.monotonic()
    with pytest.raises(OSError, match="Couldn't reach"):
        base.sts22_sentences()
    assert time.monotonic() - begun < 15  # datasets alone tries for 23 s
