"""The crafted directories, results and stores of the tests, counted by kind as docs/reliability.md states them."""

from __future__ import annotations

import re
from pathlib import Path

from tests.chaos import test_bounds, test_stores
from tests.xalign_models import test_claims
from tests.xalign_models.backbones import test_policy
from tests.xalign_models.evaluation import test_verification

COUNTS = {
    "directories that bring code or are damaged": len(test_policy.CRAFTED),
    "files that name a place": len(test_claims.CRAFTED),
    "models that ask for time or memory": len(test_bounds.MODELS),
    "results that ask for time or memory": len(test_bounds.RESULTS),
    "other files that ask for time or memory": len(test_bounds.FILES),
    "kept files with damage": len(test_verification.DAMAGE),
    "stores": len(test_stores.CRAFTED),
}


def test_the_documentation_counts_them_by_kind() -> None:
    text = (Path(__file__).parents[1] / "docs" / "reliability.md").read_text("utf-8")
    section = text.split("## Crafted files, counted\n")[1].split("\n## ")[0]
    rows = {kind: int(count) for kind, count in re.findall(r"^\| ([a-z ]+) \| (\d+) \|", section, re.MULTILINE)}
    assert rows == {**COUNTS, "all": sum(COUNTS.values())}
