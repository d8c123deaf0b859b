"""The page in a real browser: its numbers, keys, phones, hostile names, size and speed."""

from __future__ import annotations

import json
import re
import socket
import struct
import time
import urllib.request
import zlib
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from tests.xalign_models.page.conftest import data_in, first_paint, settle, show, texts
from xalign_models.boards.leaderboard import by_language, leaderboard
from xalign_models.page import write_page
from xalign_models.page.serving import server
from xalign_models.results.items import Items
from xalign_models.results.reading import Frame, Results, TaskScores, read_results
from xalign_models.tables.board import Board, Cell, Evidence, Row
from xalign_models.tables.formats import to_markdown

VIEWS = ("board", "differences", "languages", "pairs", "trade", "published", "items", "notes")
PLAIN, LSAR = "xalign/plain__tiny", "xalign/lsar__tiny"
HOSTILE = "</script><script>document.title='pwned'</script><img src=x onerror=\"document.title='pwned'\">\u202e{{data}}"


@pytest.fixture
def page(put, tmp_path) -> Path:
    """Two models and two tasks, one of them of pairs, with outcomes."""
    languages = ("deu_Latn", "eng_Latn", "arb_Arab", "jpn_Jpan")
    pairs = [f"{a}-{b}" for a in languages for b in languages if a != b]
    rng = np.random.default_rng(0)
    for model, base, chance in ((PLAIN, None, 0.4), (LSAR, PLAIN, 0.7), ("xalign/lir-1__tiny", PLAIN, 0.7)):
        for task in ("PairsTask", "OtherTask"):
            hits = {pair: rng.random(200) < chance for pair in pairs}
            scores = {pair: round(float(one.mean()), 6) for pair, one in hits.items()}
            ranks = {pair: np.where(one, 1, 4).astype(np.uint16) for pair, one in hits.items()}
            trained = ("OtherTask",) if model == LSAR else ()
            put(model, task, scores, baseline=base, ranks=ranks, trained=trained)
    return write_page(read_results(tmp_path), tmp_path / "page", {"PairsTask": {"domains": ["News"], "type": "Bitext"}})


def requested(driver) -> list[str]:
    """Addresses that the page asked for."""
    messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    return [one["params"]["request"]["url"] for one in messages if one["method"] == "Network.requestWillBeSent"]


def active(driver) -> str:
    return driver.execute_script("return document.activeElement.textContent.trim()")


def press(driver, *keys) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    for key in keys:
        ActionChains(driver).send_keys(key).perform()
        time.sleep(0.1)


def test_no_request_and_no_error_in_any_view(page, browser) -> None:
    driver = browser(page)
    for view in VIEWS:
        show(driver, f"view={view}")
        assert len(texts(driver, "#view")[0]) > 40, view
    assert {address.partition("#")[0] for address in requested(driver)} <= {page.as_uri(), "data:,", "about:blank"}
    assert [entry for entry in driver.get_log("browser") if entry["level"] != "DEBUG"] == []


def test_the_numbers_are_the_boards(page, tmp_path, browser) -> None:
    driver = browser(page)
    settle(driver)
    board = leaderboard(read_results(tmp_path))
    rows = [[row.label, *(row.cells[column] for column in board.columns)] for row in board.rows]
    shown = driver.execute_script(
        "return [...document.querySelectorAll('tbody tr:not(.group)')].map((row) => [...row.cells].map((one) =>"
        " [one.querySelector('b, bdi').textContent, one.className]))"
    )
    assert len(shown) == len(rows)
    for line, (label, *cells) in zip(shown, rows, strict=True):
        assert line[0][0] == label
        for (text, style), cell in zip(line[1:], cells, strict=True):
            assert text == f"{cell.score:.1f}" + "†" * cell.fitted
            assert ("best" in style.split(), "tied" in style.split()) == (cell.best, cell.tied)


@pytest.mark.parametrize("width", [390, 1440])
def test_the_differences_explain_grey_and_their_axis_has_a_label_beside_its_ticks(page, browser, width) -> None:
    driver = browser(page, width=width)
    show(driver, "view=differences")
    assert "even where a single interval excludes zero" in texts(driver, "#view .lead")[0]
    (label, *ticks) = driver.execute_script(
        "const boxes = (wanted) => [...document.querySelectorAll('.chart svg text')].filter((one) =>"
        " /points against/.test(one.textContent) === wanted).map((one) => one.getBoundingClientRect().toJSON());"
        "return [...boxes(true), ...boxes(false)]"
    )
    assert ticks
    for tick in ticks:
        apart = label["top"] >= tick["bottom"] or label["bottom"] <= tick["top"]
        assert apart or label["left"] >= tick["right"] or label["right"] <= tick["left"]


def test_one_language_shows_that_language(page, tmp_path, browser) -> None:
    driver = browser(page)
    labels = driver.execute_script("return DATA.labels.map((label) => label[0])")
    show(driver, f"language={labels.index('arb-Arab')}")
    results = read_results(tmp_path)
    found = by_language("PairsTask", results.tables[LSAR, "PairsTask"].values())
    expected = 50 * (found["Into X"]["arb-Arab"] + found["From X"]["arb-Arab"])
    row = driver.execute_script(
        "return [...document.querySelectorAll('tbody tr')].find((row) => row.cells[0].textContent === 'lsar')"
        ".cells[2].querySelector('b').textContent"
    )
    assert float(row) == pytest.approx(expected, abs=0.11)
    assert "العربية" in texts(driver, "select option:checked")[-2]


def test_keys_reach_everything(page, browser) -> None:
    from selenium.webdriver.common.keys import Keys

    driver = browser(page)
    settle(driver)
    driver.execute_script("document.querySelector('[role=tab][aria-selected=true]').focus()")
    press(driver, Keys.ARROW_RIGHT)
    assert (active(driver), texts(driver, "[role=tab][aria-selected=true]")) == ("Differences", ["Differences"])
    press(driver, Keys.ARROW_LEFT)
    for _ in range(12):
        press(driver, Keys.TAB)
        if active(driver) == "model":
            break
    assert active(driver) == "model"
    press(driver, Keys.ARROW_RIGHT, Keys.ENTER)
    assert driver.execute_script("return document.querySelector('th[aria-sort=descending]').textContent") == active(
        driver
    )
    scores = [float(re.match(r"[\d.]+", text)[0]) for text in texts(driver, "tbody tr td:nth-child(2)")]
    assert scores == sorted(scores, reverse=True)
    press(driver, Keys.ARROW_DOWN, Keys.ENTER)
    assert driver.execute_script("return document.querySelector('dialog').open")
    assert "Model revision" in texts(driver, "dialog")[0]
    press(driver, Keys.ESCAPE)
    assert not driver.execute_script("return document.querySelector('dialog')?.open")


def test_a_phone_scrolls_tables_and_never_the_page(page, browser) -> None:
    driver = browser(page, width=360, height=740)
    for view in VIEWS:
        show(driver, f"view={view}")
        width = driver.execute_script("return document.documentElement.scrollWidth")
        assert width <= 360, view
    heights = driver.execute_script(
        "return [...document.querySelectorAll('button, select')].map((one) => one.offsetHeight)"
    )
    assert min(filter(None, heights)) >= 32  # wide enough for a finger


def test_a_phone_shows_the_first_number_in_the_upper_half_of_its_screen(page, browser) -> None:
    driver = browser(page, width=390, height=844)
    settle(driver)
    assert driver.execute_script("return document.querySelector('tbody td b').getBoundingClientRect().bottom") < 422


def test_the_order_stands_in_the_address_and_back_undoes_a_choice(page, browser) -> None:
    driver = browser(page)
    show(driver, "sort=up:OtherTask")

    def order() -> tuple[list[str], list[str]]:
        settle(driver)
        heads = "th[aria-sort=ascending], th[aria-sort=descending]"
        return [text.replace("\u200b", "") for text in texts(driver, heads)], texts(driver, "tbody th > bdi")

    heads, by_score = order()
    scores = [float(re.match(r"[\d.]+", text)[0]) for text in texts(driver, "tbody td:nth-child(2)")]
    assert (heads, scores) == (["OtherTask"], sorted(scores))
    for step in (1, 2):
        driver.execute_script("document.querySelector('th.corner').click()")
        assert order()[0] == ["model"]
        assert order()[1] == sorted(by_score, reverse=step == 2)
    driver.back()
    driver.back()
    assert order() == (["OtherTask"], by_score)
    driver.forward()
    assert order()[0] == ["model"]
    assert "sort=up%3Amodel" in driver.current_url
    driver.get(driver.current_url + "&")
    driver.refresh()
    assert order()[0] == ["model"]


def test_single_items_say_who_missed_what_in_which_language(page, tmp_path, browser) -> None:
    from selenium.webdriver.support.wait import WebDriverWait

    results, driver = read_results(tmp_path), browser(page)
    rows = [row["name"] for row in data_in(page.read_text("utf-8"))["rows"]]
    items, table = Items("main_score"), results.tables[LSAR, "PairsTask"]
    ours, theirs = items.outcomes(table), items.outcomes(results.tables[PLAIN, "PairsTask"])
    show(driver, f"view=items&task=PairsTask&model={rows.index(LSAR)}&item=7")
    lines = driver.execute_script(
        "return [...document.querySelectorAll('#view tbody tr')].map((row) => [...row.cells].map((it) => it.innerText))"
    )
    found = {name: cells for name, *cells in lines}
    assert len(found) == len(ours)
    for pair, name in (("deu_Latn-jpn_Jpan", "German → Japanese"), ("eng_Latn-arb_Arab", "English → Standard Arabic")):
        a, b = ~ours[pair], ~theirs[pair]
        said = {
            (1, 1): "missed by both",
            (1, 0): "missed by lsar alone",
            (0, 1): "missed by plain alone",
            (0, 0): "found",
        }
        counts = [200, *map(np.count_nonzero, (a & ~b, b & ~a, a & b))]
        assert found[name] == [*map(str, counts), said[a[7], b[7]]]
        alone = ", ".join(map(str, np.flatnonzero(a & ~b)))

        def opened(driver, name=name, alone=alone) -> bool:
            driver.execute_script(
                "const names = [...document.querySelectorAll('#view tbody th')];"
                "if (!document.querySelector('dialog[open]'))"
                "  names.find((one) => one.textContent === arguments[0])?.click()",
                name,
            )
            return texts(driver, "dialog[open] dd")[:1] == [alone]

        WebDriverWait(driver, 20).until(opened)  # under load, a click may meet a view that is drawn again
        driver.execute_script("document.querySelector('dialog').close()")
    show(driver, f"view=items&task=PairsTask&model={rows.index(LSAR)}&against=null&sort=up:missed")
    missed = [int(text) for text in texts(driver, "#view tbody td:nth-child(3)")]
    assert missed == sorted(np.count_nonzero(~hits) for hits in ours.values())


def test_dark_and_light(page, browser) -> None:
    ground = "return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).map(Number)"
    driver = browser(page, dark=True)
    assert max(driver.execute_script(ground)) < 60
    driver.execute_script("document.querySelector('.theme').click()")
    assert min(driver.execute_script(ground)) > 200


def test_the_trade_off_shows_the_seconds_of_a_fit_where_they_are_known(page, tmp_path, browser) -> None:
    (folder,) = (tmp_path / "results" / LSAR.replace("/", "__")).iterdir()
    settings = {"task": "PairsTask", "fit_seconds_per_language": 0.25}
    (folder / "run_settings.jsonl").write_text(json.dumps(settings) + "\n")
    driver = browser(write_page(read_results(tmp_path), page.parent))
    show(driver, "view=trade&task=PairsTask")
    assert texts(driver, ".wide option") == ["seconds to fit a language, measured (1 model)"]
    assert len(texts(driver, "#view figure svg:last-of-type path[fill]")) == 1  # neither plain nor lir-1 at zero
    show(driver, "view=trade&task=OtherTask")
    assert texts(driver, "#view") == ["No model in this choice says how large or how fast it is."]


def test_filters_and_links(page, browser) -> None:
    driver = browser(page)
    show(driver, "text=lir&task=PairsTask")
    assert texts(driver, "tbody tr:not(.group) th") == ["lir-1"]
    assert len(texts(driver, "thead th")) == 2
    show(driver, "domain=News")
    assert [text.replace("\u200b", "") for text in texts(driver, "thead th")] == ["model", "PairsTask"]
    show(driver, "view=pairs&task=PairsTask")
    assert len(texts(driver, ".matrices table")) == 2  # unaligned, aligned


def test_pairs_of_a_language_with_itself_are_shown_where_they_are_scored(put, tmp_path, browser) -> None:
    languages = ("deu_Latn", "eng_Latn", "arb_Arab")
    put(PLAIN, "Own", {f"{a}-{b}": 0.9 if a == b else 0.2 for a in languages for b in languages})
    put(PLAIN, "Pairs", {f"{a}-{b}": 0.2 for a in languages for b in languages if a != b})
    driver = browser(write_page(read_results(tmp_path), tmp_path / "page"))
    for task, shown in (("Own", "90"), ("Pairs", "")):
        show(driver, f"view=pairs&task={task}")
        cells = [texts(driver, f".matrices tbody tr:nth-child({i}) td:nth-of-type({i})") for i in (1, 2, 3)]
        assert cells == [[shown]] * 3


def test_hostile_names_are_harmless(tmp_path, browser) -> None:
    tables = {}
    for model, base in (
        (f"xalign/plain__{HOSTILE}", None),
        (f"xalign/{HOSTILE}__{HOSTILE}", f"xalign/plain__{HOSTILE}"),
    ):
        frame = Frame(("test",) * 3, tuple(f"{HOSTILE}{i}" for i in range(3)), ((HOSTILE,),) * 3)
        scores = dict.fromkeys(("main_score", "x"), np.full(3, 0.5))
        date = datetime(2026, 1, 1, tzinfo=UTC)
        tables[model, HOSTILE] = TaskScores(
            model, HOSTILE, HOSTILE, HOSTILE, True, base, date, tmp_path / "m", frame, scores
        )
    described = {HOSTILE: {"description": HOSTILE, "domains": [HOSTILE], "type": HOSTILE}}
    driver = browser(write_page(Results(tmp_path, tables, {}), tmp_path / "page", described))
    for view in VIEWS:
        show(driver, f"view={view}")
        assert HOSTILE in texts(driver, "body")[0]
        assert driver.title == "xalign board"
        assert driver.execute_script("return document.querySelectorAll('img, main script').length") == 0
    show(driver, "view=board")
    driver.execute_script("document.querySelector('tbody td').click()")
    settle(driver)
    assert HOSTILE in texts(driver, "dialog")[0]
    assert driver.title == "xalign board"


def test_the_policy_admits_the_pages_own_scripts_alone(page, browser) -> None:
    driver = browser(page)
    driver.execute_script(
        "const tag = document.createElement('script'); tag.textContent = \"document.title = 'pwned'\";"
        "document.body.append(tag); new Image().src = 'http://127.0.0.1:9/x'"
    )
    assert driver.title == "xalign board"
    refused = [entry["message"] for entry in driver.get_log("browser") if "Content Security Policy" in entry["message"]]
    assert len(refused) == 2


def test_a_local_port_serves_it(page, capfd) -> None:
    with server(page.parent) as serving:
        assert serving.server_address[0] == "127.0.0.1"
        thread = Thread(target=serving.serve_forever)
        thread.start()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{serving.server_address[1]}/") as answer:
                assert answer.read() == page.read_bytes()
            with socket.create_connection(serving.server_address[:2]) as hasty:
                hasty.sendall(b"GET / HTTP/1.0\r\n\r\n")
                hasty.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # hangs up at once
            time.sleep(0.3)
        finally:
            serving.shutdown()
            thread.join()
    assert capfd.readouterr() == ("", "")


def test_what_is_bundled_is_small_licensed_and_calls_no_host() -> None:
    bundle = files("xalign_models.page") / "bundle"
    script, licences = ((bundle / name).read_text(encoding="utf-8") for name in ("vendor.js", "LICENSES.txt"))
    assert len(script) + len(licences) < 600_000
    assert set(re.findall(r"https?://([\w.]+)", script)) == {"www.w3.org"}  # namespaces
    for package in json.loads((bundle / "package.json").read_text(encoding="utf-8"))["dependencies"]:
        assert package in licences


RANDOM = np.random.default_rng(0).random(1_000_000)
LANGUAGES = tuple(f"q{a}{b}-Latn" for a in "abcdefghijklmnopqrst" for b in "uvwxyzabcd")
FRAME = Frame(("test",) * len(LANGUAGES), LANGUAGES, tuple((code,) for code in LANGUAGES))


@pytest.mark.slow
def test_a_hundred_models_sixty_tasks_two_hundred_languages(tmp_path, browser) -> None:
    tables = {}
    for number in range(100):
        base = f"xalign/plain__backbone-{number // 10}"
        model = f"xalign/method-{number % 10}__backbone-{number // 10}" if number % 10 else base
        for task in (f"TaskNumber{index:02}" for index in range(60)):
            date, baseline = datetime(2026, 1, 1, tzinfo=UTC), base if number % 10 else None
            start = zlib.crc32(f"{model} {task}".encode()) % (len(RANDOM) - len(LANGUAGES))
            scores = {"main_score": RANDOM[start : start + len(LANGUAGES)]}
            tables[model, task] = TaskScores(
                model, "r" * 40, task, "d" * 40, False, baseline, date, tmp_path / model, FRAME, scores
            )
    page = write_page(Results(tmp_path, tables, {}), tmp_path / "page")
    assert page.stat().st_size < 3_000_000
    driver = browser(page)
    paints = []
    for _ in range(3):
        driver.get("about:blank")
        driver.get(page.as_uri())
        paints.append(first_paint(driver))
    assert min(paints) < 1000
    settle(driver)
    assert len(texts(driver, "tbody td")) == 6000
    show(driver, "view=languages&task=TaskNumber42")
    assert len(texts(driver, "tbody tr:not(.group)")) == 100
    assert len(texts(driver, "tbody tr:nth-child(2) td")) == 200


def test_a_narrow_board_fits_the_column_of_a_readme(tmp_path, browser) -> None:
    """Eight rows and five tasks with names as long as ours, in GitHub's type and padding: 830 pixels at most."""
    cells = {task: Cell(98.76, -2.34, Evidence.CHANCE, best=True) for task in BROAD}
    group = "multilingual-e5-small-q4-layer6"
    board = Board("model", BROAD, [Row(group, f"method-{number}", "name", cells) for number in range(8)], [])
    lines = [line.strip("| ").split(" | ") for line in to_markdown(board, narrow=True).splitlines()]
    rows = "".join(
        f"<tr>{''.join(f'<td>{bold(cell)}</td>' for cell in line)}</tr>" for line in lines if "---" not in line[0]
    )
    style = "td { padding: 6px 13px; border: 1px solid } table { font: 16px/1.5 sans-serif; border-collapse: collapse }"
    (tmp_path / "narrow.html").write_text(
        f"<style>{style}</style><div style='width: 830px'><table>{rows}</table></div>"
    )
    driver = browser(tmp_path / "narrow.html")
    assert driver.execute_script("return document.querySelector('table').offsetWidth") <= 830
    heights = driver.execute_script(
        "return [...document.querySelectorAll('td:nth-child(2)')].map((one) => one.offsetHeight)"
    )
    assert max(heights[2:]) < 45  # a score and its difference stand in one line


BROAD = ["FloresPrecision", "NTREXPrecision", "SIB200ZeroShot", "STS17CrossLingual", "XQuAD-R"]


def bold(cell: str) -> str:
    return re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", cell)
