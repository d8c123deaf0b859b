"""`xalign translate` and `xalign train lira`: what they write, that they go on, and what they refuse, in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from xalign_models.assets import PACKAGED
from xalign_models.errors import DataError
from xalign_models.models.names import directory_of, find_spec, trained_specs
from xalign_models.training.lira.data import corpus_texts, file_texts, training_texts, with_prompts

Xalign = Callable[..., tuple[int, str, list[str]]]


def test_lines_are_translated_once(xalign: Xalign, workdir: Path, writer: Path) -> None:
    (workdir / "de.txt").write_text("guten Tag\nja\n\nja\n")
    arguments = ("translate", "--texts", "de.txt", "--languages", "de", "--translators", f"llm:{writer}", "-o", "made",
                 "--device", "cpu", "--json")  # fmt: skip
    status, out, _ = xalign(*arguments)
    assert status == 0
    (row,) = json.loads(out)
    assert (row["translated"], row["known"]) == (2, 0)
    lines = [json.loads(line) for line in Path(row["file"]).read_text().splitlines()]
    assert {one["text"] for one in lines} == {"guten Tag", "ja"} and {one["lang"] for one in lines} == {"deu-Latn"}
    _, out, _ = xalign(*arguments)
    (row,) = json.loads(out)
    assert (row["translated"], row["known"]) == (0, 2)


def test_a_critic_scores_what_is_contested_and_once(xalign: Xalign, workdir: Path, writer: Path) -> None:
    (workdir / "de.txt").write_text("guten Tag\nja\n")
    (workdir / "made.jsonl").write_text('{"text": "guten Tag", "translation": "good day", "lang": "de"}\n')
    (workdir / "other.jsonl").write_text(
        '{"text": "guten Tag", "translation": "good bye"}\n{"text": "ja", "translation": "yes"}\n'
    )
    arguments = ("translate", "--texts", "de.txt", "--languages", "de", "--translators",
                 "file:made.jsonl,file:other.jsonl", "--critic", f"expected_score:{writer}", "-o", "judged",
                 "--device", "cpu", "--dtype", "float32")  # fmt: skip
    for _ in range(2):
        status, _, err = xalign(*arguments)
        assert status == 0, err
        (path,) = (workdir / "judged").glob("expected_score-*.jsonl")
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert sorted(one["translation"] for one in lines) == ["good bye", "good day"]  # "yes" has no rival
        assert "score nothing" not in " ".join(err)
    status, _, err = xalign(*[one.replace("file:other.jsonl", "file:made.jsonl") for one in arguments])
    assert (status, len(err)) == (0, 1) and "The critic will score nothing: it compares" in err[0]


@pytest.mark.slow
def test_a_training_s_texts_are_translated_before_it(
    xalign: Xalign, lira_config: Callable[..., Any], writer: Path
) -> None:
    config = lira_config()
    texts = training_texts(config)
    assert {language for _, language in texts} == {"deu-Latn", "fra-Latn"}
    status, out, _ = xalign(
        "translate", "--config", "lira.yaml", "--set", f"design.translators=['llm:{writer}']", "--set",
        "arca.samples=3", "--set", "lasr.samples=3", "--device", "cpu", "--json",
    )  # fmt: skip
    assert status == 0
    (row,) = json.loads(out)  # references are looked up, and have no journal
    assert row["translator"] == f"llm:{writer}" and row["translated"] > 0
    status, _, err = xalign(
        "train", "lira", "--stage", "arca", "--config", "lira.yaml", "-o", "arca", "--device", "cpu", "--set",
        f"design.translators=['llm:{writer}']", "--set", "arca.samples=3", "--set", "arca.max_steps=1",
    )  # fmt: skip
    assert status == 0, err
    status, out, _ = xalign(
        "translate", "--model", "arca", "--texts", "own:text", "--rows", "3", "--device", "cpu", "--json"
    )
    (row,) = json.loads(out)
    assert status == 0 and (row["translated"], row["known"]) == (0, 6)


def test_a_corpus_s_texts_leave_english_out(workdir: Path, write_text: Callable[..., Path]) -> None:
    write_text(workdir / "text", 5)
    found = list(corpus_texts("own:text", [], 3))
    assert len(found) == 6 and {language for _, language in found} == {"deu-Latn", "fra-Latn"}
    assert {language for _, language in corpus_texts("own:text", ["deu-Latn"], None)} == {"deu-Latn"}


def test_json_lines_name_their_language(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"text": "a", "lang": "de"}\n\n{"text": "b"}\n')
    assert list(file_texts(path, [])) == [("a", "deu-Latn"), ("b", None)]
    assert list(file_texts(path, ["deu-Latn"])) == [("a", "deu-Latn")]
    path.write_text('{"text": null, "lang": "de"}\n')
    with pytest.raises(DataError, match=r"x\.jsonl, line 1.*text is not a string"):
        list(file_texts(path, []))
    path.write_bytes('{"text": "für"}'.encode("latin-1"))
    with pytest.raises(DataError, match=r"x\.jsonl"):
        list(file_texts(path, []))


def test_a_task_s_texts_reach_the_recorder(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from xalign_models.cli.lira import texts_to_translate
    from xalign_models.evaluation.recording import task_texts

    from xalign_tasks.product_search import ProductSearchStandIn  # isort: skip

    folder = workdir / "data" / ProductSearchStandIn.folder
    for name in ("bd", "th"):
        (folder / name / "qrels").mkdir(parents=True)
        for file, rows in (
            ("queries", [{"id": f"q{i}", "text": f"{name} query {i}"} for i in range(3)]),
            ("corpus", [{"id": f"i{i}", "text": f"title {i}"} for i in range(4)]),
            ("qrels/test", [{"query-id": f"q{i}", "corpus-id": f"i{i}", "score": 1} for i in range(3)]),
        ):
            (folder / name / f"{file}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = with_prompts(task_texts("ProductSearchStandIn", ["tha-Thai", "eng-Latn"]))
    assert {text for text, language in found if language == "tha-Thai"} == {f"th query {i}" for i in range(3)}
    assert {text for text, language in found if language == "eng-Latn"} == {f"title {i}" for i in range(4)}
    assert {language for _, language in texts_to_translate(["ProductSearchStandIn"], ["tha-Thai"], None, None)} == {
        "tha-Thai"
    }


@pytest.mark.slow
def test_both_stages_and_a_variant_by_command(xalign: Xalign, lira_config: Callable[..., Any]) -> None:
    lira_config()
    steps = ("--set", "arca.max_steps=1", "--set", "lasr.max_steps=1", "--device", "cpu", "--config", "lira.yaml")
    status, out, err = xalign("train", "lira", "--stage", "all", "-o", "m", "--ablate", "queue", "--seed", "3", *steps)
    assert status == 0, err
    assert "xalign/lira-no-queue__tiny__writer: m" in out and Path("m-arca/modules.json").is_file()
    card = json.loads(Path("m/xalign.json").read_text())
    assert card["training"]["config"]["lasr"]["seed"] == 3
    status, out, _ = xalign("train", "lira-variant", "m", "-o", "e", "--label", "english", "--paths", "english")
    assert status == 0 and "xalign/lira-no-queue-english__tiny__writer: e" in out
    status, out, _ = xalign("train", "lira-variant", "m", "-o", "t", "--label", "text", "--translators", "none")
    assert status == 0 and json.loads(Path("t/lira_config.json").read_text())["design"]["translators"] == []
    both = "file:made.jsonl,reference:own:text"
    status, _, _ = xalign("train", "lira-variant", "m", "-o", "b", "--label", "both", "--translators", both)
    assert status == 0 and json.loads(Path("b/lira_config.json").read_text())["design"]["translators"] == both.split(
        ","
    )
    status, out, _ = xalign("train", "lira", "--stage", "untrained", *steps)
    assert status == 0 and "xalign/plain__tiny__writer" in out
    assert find_spec("xalign/plain__tiny__writer").backbone.model == str(directory_of("xalign/plain__tiny__writer"))
    packaged = {f"xalign/{folder.name}" for folder in PACKAGED.iterdir()}
    assert trained_specs().keys() - packaged == {"xalign/plain__tiny__writer"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("translate", "--texts", "x.txt"), "Give --texts and --translators"),
        (("translate", "--texts", "x.txt", "--translators", "llm:a", "--set", "a=1"), "--set changes fields"),
        (("translate", "--texts", "x.txt", "--translators", "gemma"), "--translators 'gemma'"),
        (("translate", "--texts", "de.txt", "--translators", "reference:ntrex"), "give the language of its lines"),
        (("translate", "--texts", "de.txt", "--translators", "reference:ntrex", "--languages", "all"), "just one"),
        (("translate", "--texts", "NoTask", "--translators", "llm:a"), "Unknown task 'NoTask'"),
        (("train", "lira", "--stage", "lasr", "-o", "m"), "--from names the directory of arca's model"),
        (("train", "lira", "--stage", "arca", "--from", "x", "-o", "m"), "--from names the directory of arca's model"),
        (("train", "lira", "--stage", "lasr", "--from", "x", "-o", "m", "--config", "lira.yaml"), "x is not a LiRA"),
        (("train", "lira", "--stage", "arca", "-o", "m", "--ablate", "all"), "--ablate all: choose one of critic"),
        (("train", "lira", "--stage", "arca", "-o", "m", "--config", "huge"), "--config huge: no such file"),
        (("train", "lira", "--stage", "arca", "-o", "de.txt"), "exists and is not a model of xalign"),
        (("train", "lira-variant", "x", "-o", "m", "--label", "y"), "x is not a LiRA"),
        (
            ("train", "lira-variant", "x", "-o", "m", "--label", "y", "--paths", "z"),
            "'--paths': 'z' is not one of 'both', 'multilingual'",
        ),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, tuple) else "",
)
def test_wrong_input_ends_in_one_line(
    xalign: Xalign, lira_config: Callable[..., Any], arguments: tuple[str, ...], message: str
) -> None:
    lira_config()
    Path("de.txt").write_text("x\n")
    status, _, err = xalign(*arguments)
    assert status == 2
    last = err[-1]
    assert last.startswith("error: ") and message in last and not any("Traceback" in line for line in err)
