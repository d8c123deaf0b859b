"""The page of the committed results: size, first paint, and axe's findings in each view."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest

from tests.xalign_models.page.conftest import first_paint, settle, show
from xalign_models.atlas.measured import with_measured
from xalign_models.atlas.update import current
from xalign_models.page import write_page
from xalign_models.results.reading import read_results

pytestmark = pytest.mark.slow
AXE = """
const done = arguments[0];
for (const body of document.querySelectorAll("tbody")) {  // a table's rows are alike: 30 stand for all
  const rows = [...body.children], step = Math.ceil(rows.length / 30);
  rows.filter((_, number) => number % step).forEach((row) => row.remove());
}
axe.run(document, { resultTypes: ["violations"] }).then(({ violations }) =>
  done(violations.map(({ id, impact, nodes }) => [id, impact, nodes.length, nodes[0].html.slice(0, 200)])));
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    results = read_results(Path(__file__).parents[3])
    return write_page(results, tmp_path_factory.mktemp("committed"), atlas=with_measured(current(), results))


def test_it_is_small_and_opens_fast(page, browser) -> None:
    assert page.stat().st_size < 2_900_000
    driver = browser(page)
    paints = []
    for _ in range(3):
        driver.get("about:blank")
        driver.get(page.as_uri())
        paints.append(first_paint(driver))
        settle(driver)
    assert min(paints) < 1000


@pytest.mark.parametrize("width", [390, 1440])
def test_axe_finds_nothing_in_any_view(page, browser, width) -> None:
    axe = pytest.importorskip("selenium_axe_python", reason="selenium-axe-python is not installed")
    found = {}
    for dark in (False, True):
        driver = browser(page, width=width, height=844 if width < 600 else 900, dark=dark)
        settle(driver)
        driver.execute_script((files(axe) / "axe-core" / "axe.min.js").read_text(encoding="utf-8"))
        for view in driver.execute_script("return Object.keys(VIEWS)"):
            show(driver, f"view={view}")
            found[view, dark] = driver.execute_async_script(AXE)
        show(driver, "view=board")
        driver.execute_script("document.querySelector('tbody td').click()")
        settle(driver)
        found["dialog", dark] = driver.execute_async_script(AXE)
    assert {place: violations for place, violations in found.items() if violations} == {}
