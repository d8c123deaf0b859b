"""The atlas in the page: its numbers are the public results', and its form ranks models as ``xalign choose`` does."""

from __future__ import annotations

import json
import random
import re
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from tests.xalign_models.atlas.test_choose import APACHE, QUERIES
from tests.xalign_models.page.conftest import data_in, first_paint, numbers_in, packed_in, settle, show, texts
from xalign_models.atlas import KINDS, load_atlas
from xalign_models.atlas.choose import Wish, choose, named, understood
from xalign_models.atlas.measured import join
from xalign_models.atlas.scores import estimate, scores_of, with_models, with_table
from xalign_models.atlas.table import TASKS, Atlas, Column, PublishedModel
from xalign_models.errors import LanguageError
from xalign_models.languages import display_name
from xalign_models.page import write_page
from xalign_models.results.reading import Frame, Results, TaskScores

WISHES = [
    Wish(("swh-Latn", "tel-Telu", "yor-Latn")),
    Wish(("swh-Latn", "tel-Telu", "yor-Latn"), "retrieval"),
    Wish(("deu-Latn", "fra-Latn", "spa-Latn"), "sts", 6 * 10**8, "permissive", 768),
    Wish(("hin-Deva",), "bitext", 10**9),
    Wish(("nob-Latn", "dan-Latn"), "classification", licence="mit"),
    Wish(("swh-Latn",), "clustering"),
    Wish(("haw-Latn", "kat-Geor"), "retrieval"),
    Wish(("taq-Latn",)),
    Wish(("fra-Latn",), adjusted=True),
    Wish(("zho-Hans", "jpn-Jpan", "kor-Hang"), max_dimension=1024),
]
HOSTILE = "</script><script>document.title='pwned'</script><img src=x onerror=\"document.title='pwned'\">\u202e{{data}}"


def written(folder: Path, atlas: Atlas) -> Path:
    date = datetime(2026, 1, 1, tzinfo=UTC)
    frame, scores = Frame(("test",), ("deu-Latn",), (("deu-Latn",),)), {"main_score": np.array([0.5])}
    table = TaskScores("xalign/plain__tiny", "T", "r", "d", True, None, date, folder / "m", frame, scores)
    return write_page(Results(folder, {("xalign/plain__tiny", "T"): table}, {}), folder / "page", atlas=atlas)


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    return written(tmp_path_factory.mktemp("atlas"), load_atlas())


@pytest.fixture(scope="module")
def open_page(chromium, page):
    """The page, opened once for many questions."""
    chromium.get(page.as_uri())
    settle(chromium)
    return chromium


def ranked_in(driver, wish: Wish) -> dict:
    """The ranking that the page's script makes for a wish typed into its form."""
    state = {
        "wanted": ", ".join(wish.languages),
        "kind": wish.task or "",
        "size": str(wish.max_parameters or ""),
        "licence": wish.licence or "",
        "dimension": str(wish.max_dimension or ""),
        "adjusted": "1" if wish.adjusted else "",
    }
    return driver.execute_script(
        "const choice = chooseModels(readTable(), wishOf(arguments[0]));"
        "return { ...choice, next: choice.next.map((one) => ({ ...one, code: named(one.label)[0] })) }",
        state,
    )


def same(driver, atlas: Atlas, wish: Wish) -> None:
    expected, found = choose(atlas, wish), ranked_in(driver, wish)
    assert [one["about"]["name"] for one in found["candidates"]] == [one.model for one in expected.candidates]
    for field in ("score", "low", "high", "measured", "trained"):
        theirs = [one[field] for one in found["candidates"]]
        assert theirs == pytest.approx([getattr(one, field) for one in expected.candidates], abs=1e-9)
    assert [one["worst"][1] for one in found["candidates"]] == pytest.approx(
        [one.worst[1] for one in expected.candidates]
    )
    assert [count for _, count in found["coverage"]] == list(expected.coverage.values())
    assert found["cells"] == expected.scores
    doubts = [
        f"{one['about']['name']} on {TASKS[one['kind']]} in {display_name(one['code'])},"
        f" now {100 * one['low']:.0f} to {100 * one['high']:.0f}"
        for one in found["next"]
    ]
    assert doubts == list(expected.next)
    assert (found["cheapest"] or {"about": {"name": None}})["about"]["name"] == expected.cheapest


@pytest.mark.parametrize("word", QUERIES)
def test_the_page_and_the_command_agree_on_a_query(open_page, word) -> None:
    driver = open_page
    languages = scores_of(load_atlas()).languages
    state = {"wanted": word, "kind": "", "size": "", "licence": "", "dimension": ""}
    wrong, codes = driver.execute_script(
        "const wish = wishOf(arguments[0]); return [wish.wrong, wish.languages.map((label) => named(label)[0])]", state
    )
    try:
        code = understood(word, languages)
    except LanguageError:
        assert wrong
        assert not codes
    else:
        assert codes == [code]
        same(driver, load_atlas(), Wish((code,), "retrieval"))


def test_the_form_ranks_as_the_command_does(page, browser) -> None:
    driver = browser(page)
    settle(driver)
    for wish in [*WISHES, *(Wish(("deu-Latn",), licence=text) for text in APACHE)]:
        same(driver, load_atlas(), wish)


def test_the_page_and_the_command_name_licences_alike(open_page) -> None:
    licences = [*APACHE, *{model.licence or "" for model in load_atlas().models.values()}]
    found = open_page.execute_script("return arguments[0].map(licenceName)", licences)
    assert found == [named(licence) for licence in licences]
    assert "" in found


def test_a_measured_model_is_ranked_among_the_published(tmp_path, browser) -> None:
    """A model with the scores of a published one takes the same place."""
    published = load_atlas()
    columns = list(published.columns)
    for place, column in enumerate(columns):
        if "BAAI/bge-m3" in column.row:
            row = column.row["BAAI/bge-m3"]
            own = replace(
                column, models=("xalign/mine",), revisions=("r",), versions=("",), scores=column.scores[[row]],
                measured=frozenset({"xalign/mine"}),
            )  # fmt: skip
            columns[place] = join(column, own)
    about = {**published.models, "xalign/mine": PublishedModel("xalign/mine")}
    merged = replace(published, columns=tuple(columns), models=about)
    atlas = with_table(merged, with_models(scores_of(published), published, merged, ["xalign/mine"]))
    driver = browser(written(tmp_path, atlas))
    settle(driver)
    for wish in (WISHES[1], Wish(("deu-Latn",), "bitext")):
        same(driver, atlas, wish)
        scores = {one["about"]["name"]: one["score"] for one in ranked_in(driver, wish)["candidates"]}
        assert scores["xalign/mine"] == pytest.approx(scores["BAAI/bge-m3"], abs=0.01)
    show(driver, "view=atlas")
    assert [name for name in texts(driver, "tbody th") if "measured here" in name] == ["xalign/minemeasured here"]


def test_names_codes_and_guesses_are_said(page, browser) -> None:
    driver = browser(page)
    show(driver, "view=choose&wanted=Swahili,te,Hawaiian,Klingonese&kind=retrieval")
    said = texts(driver, "#view")[0]
    assert "“klingonese” is not a language that this page knows" in said
    assert "A guess: no retrieval task has Hawaiian (haw-Latn)" in said
    expected = choose(load_atlas(), Wish(("swh-Latn", "tel-Telu", "haw-Latn"), "retrieval"))
    assert texts(driver, "#view tbody th")[0] == expected.candidates[0].model
    assert "xalign choose --languages swh-Latn,tel-Telu,haw-Latn --task=retrieval" in texts(driver, "#view code")
    assert expected.next
    for line, doubt in zip(texts(driver, "#view h2 ~ ul li"), expected.next, strict=True):
        assert line.split(" on ")[0] == doubt.split(" on ")[0]
        assert re.findall(r"\d+", line)[-2:] == re.findall(r"\d+", doubt)[-2:]


def test_the_view_opens_with_an_answer_for_the_browsers_languages(page, browser) -> None:
    driver = browser(page)
    driver.execute_cdp_cmd("Emulation.setUserAgentOverride", {"userAgent": "x", "acceptLanguage": "de-CH,sw"})
    driver.get("about:blank")
    driver.get(page.as_uri() + "#view=choose")
    settle(driver)
    driver.execute_cdp_cmd("Emulation.setUserAgentOverride", {"userAgent": ""})
    wish = Wish(("deu-Latn", "swh-Latn"))
    assert "your browser’s languages, German, Swahili" in texts(driver, "#view .lead")[0]
    assert texts(driver, "#view tbody th")[0] == choose(load_atlas(), wish).candidates[0].model


def test_a_language_is_known_by_what_people_call_it(page, browser) -> None:
    driver = browser(page)
    settle(driver)
    state = {"wanted": "Arabic, العربية, ar, arb, Deutsch; german,  zho_Hant, constructor", "size": "", "dimension": ""}
    found = driver.execute_script(
        "const wish = wishOf(arguments[0]); return [wish.wrong, wish.languages.map((label) => named(label)[0])]", state
    )
    assert found == [
        ["“constructor” is not a language that this page knows; choose one from the list."],
        ["arb-Arab", "deu-Latn", "zho-Hant"],
    ]


def test_wrong_limits_are_said(page, browser) -> None:
    driver = browser(page)
    show(driver, "view=choose&wanted=de&size=big&dimension=wide")
    alerts = texts(driver, "[role=alert]")
    assert [line.split(" is ")[0] for line in alerts] == ["The size", "The dimension"]
    show(driver, "view=choose&wanted=de&size=1")
    assert "No model with scores for these languages fits" in texts(driver, "[role=alert]")[0]


def test_keys_fill_the_form_and_open_a_model(page, browser) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    driver = browser(page)
    show(driver, "view=choose")

    def press(*keys: str) -> None:
        for key in keys:
            ActionChains(driver).send_keys(key).perform()
            time.sleep(0.1)

    driver.execute_script("document.querySelector('[role=tab][aria-selected=true]').focus()")
    press(Keys.TAB, *"sw, te", Keys.TAB, Keys.TAB, Keys.ARROW_DOWN)
    show(driver, driver.execute_script("return location.hash.slice(1)"))
    expected = choose(load_atlas(), Wish(("swh-Latn", "tel-Telu"), "retrieval"))
    assert texts(driver, "#view tbody th")[0] == expected.candidates[0].model
    for _ in range(8):
        press(Keys.TAB)
        if driver.execute_script("return document.activeElement.textContent") == "model":
            break
    press(Keys.ARROW_DOWN, Keys.ENTER)
    assert expected.candidates[0].model in texts(driver, "dialog[open] h2")[0]
    assert "Longest text, in tokens" in texts(driver, "dialog[open]")[0]
    press(Keys.ESCAPE)
    assert not texts(driver, "dialog[open]")


def test_a_phone_never_scrolls_the_page_and_the_views_ask_no_host(page, browser) -> None:
    driver = browser(page, width=360, height=740)
    for address in ("view=choose", "view=choose&wanted=Swahili,te", "view=atlas", "view=atlas&language=0"):
        show(driver, address)
        assert driver.execute_script("return document.documentElement.scrollWidth") <= 360, address
    messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    asked = {one["params"]["request"]["url"] for one in messages if one["method"] == "Network.requestWillBeSent"}
    assert {address.partition("#")[0] for address in asked} <= {page.as_uri(), "data:,", "about:blank"}
    assert [entry for entry in driver.get_log("browser") if entry["level"] != "DEBUG"] == []


def test_hostile_names_are_harmless(tmp_path, browser) -> None:
    models = tuple(f"{HOSTILE}{number}" for number in range(12))
    counts = np.ones((1, len(KINDS)), dtype=np.int16)
    scores = np.full((12, 1, len(KINDS)), 0.5)
    texts_of = (HOSTILE,) * 12
    column = Column(
        HOSTILE, "bitext", HOSTILE, HOSTILE, HOSTILE, models, texts_of, texts_of, ("deu-Latn",), counts, scores
    )
    about = {name: PublishedModel(name, HOSTILE, 7, 3, 9, HOSTILE, True, 2, (HOSTILE,)) for name in models}
    atlas = Atlas(about, (column,), {}, 0, dict.fromkeys(("address", "commit", "date", "licence"), HOSTILE))
    atlas = with_table(atlas, estimate(atlas))
    driver = browser(written(tmp_path, atlas))
    for address in ("view=atlas", "view=atlas&language=0", "view=choose&wanted=de", f"view=choose&wanted={HOSTILE}"):
        show(driver, address)
        assert HOSTILE in texts(driver, "body")[0] or "is not a language" in texts(driver, "#view")[0]
        for row in driver.execute_script("return document.querySelectorAll('tbody td').length ? [0] : []"):
            driver.execute_script("document.querySelectorAll('tbody td')[arguments[0]].click()", row)
            settle(driver)
            assert HOSTILE in texts(driver, "dialog")[0]
        assert driver.title == "xalign board"
        assert driver.execute_script("return document.querySelectorAll('img, main script').length") == 0


def test_the_whole_atlas_is_small_and_opens_fast(page, browser) -> None:
    assert page.stat().st_size < 3_000_000
    driver = browser(page)
    paints = []
    for address in ("", "#view=atlas", "#view=choose&wanted=sw,te,yo"):
        driver.get("about:blank")
        driver.get(page.as_uri() + address)
        paints.append(first_paint(driver))
        settle(driver)
    assert min(paints) < 1000
    assert driver.execute_script("return unpacked.size") == 1  # the table alone
    driver.get("about:blank")
    driver.get(page.as_uri() + "#view=atlas")
    settle(driver)
    assert driver.execute_script("return unpacked.size") == 1  # a task is read when it is looked at


@pytest.mark.realdata
def test_ten_numbers_of_ten_models_lead_from_the_page_to_the_public_results(page, public_scores) -> None:
    """Drawn with a fixed seed: model, revision, task, text and language as the page has them, and the mean of the rows.

    The languages of a row decide whether it belongs to a cell; nothing of the library reads the public results here.
    """
    import pandas as pd

    text = page.read_text("utf-8")
    data = data_in(text)
    atlas, labels = data["atlas"], [label[0] for label in data["labels"]]
    table = pd.read_parquet(public_scores)
    draw = random.Random(0)
    drawn: list[tuple[str, str]] = []
    while len(drawn) < 10:
        number = draw.randrange(len(atlas["columns"]))
        column = atlas["columns"][number]
        models, languages, values = (
            column["models"],
            column["languages"],
            numbers_in(packed_in(text, f"atlas-{number}")),
        )
        row, place, kind = draw.randrange(len(models)), draw.randrange(len(languages)), draw.randrange(len(KINDS))
        name, code = atlas["models"][models[row]]["name"], labels[languages[place]]
        count = values[5 * place + kind]
        value = values[5 * len(languages) + (kind * len(languages) + place) * len(models) + row]
        if count == 0 or value == np.iinfo(np.int16).min or name in {model for model, _ in drawn}:
            continue
        rows = table[
            (table["model"] == name.replace("/", "__"))
            & (table["revision"] == atlas["revisions"][column["revisions"][row]])
            & (table["task"] == column["task"])
            & (table["dataset_revision"].astype(object).fillna("") == column["text"])
            & (table["split"] == column["split"])
            & (table["mteb_version"].astype(object).fillna("") == atlas["versions"][column["versions"][row]])
        ]
        scores = [
            score
            for score, codes in zip(rows["main_score"], rows["languages"], strict=True)
            if belongs(codes.split(), code, KINDS[kind], column["kind"])
        ]
        assert len(scores) == count, (name, column["label"], code, KINDS[kind])
        assert value / 1000 == pytest.approx(np.mean(scores), abs=0.56e-3)  # tenths of a point of four digits
        drawn.append((name, column["label"]))
    assert len({label for _, label in drawn}) > 5


def belongs(codes: list[str], language: str, kind: str, task: str) -> bool:
    """Whether a subset in these languages counts for a language's cell, told from the documentation's table."""
    from xalign_models.results.languages import language_code

    first, last = language_code(codes[0]), language_code(codes[-1])
    if first == last:
        return kind == "same" and first == language
    if first[:3] == last[:3]:
        return False
    queries, candidates = (last, first) if task == "retrieval" else (first, last)
    ways = [(queries, candidates), (candidates, queries)] if task == "sts" else [(queries, candidates)]
    return any(
        language == (way[1] if kind.endswith("into") else way[0])
        and kind.startswith("english" if (way[0] if kind.endswith("into") else way[1]) == "eng-Latn" else "other")
        and kind != "same"
        for way in ways
    )
