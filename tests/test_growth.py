"""The costs against size are of what they say: all processes, distinct models, and exponents of powers."""

import re
import subprocess
import sys

import pandas as pd
import pytest

from docs.tools import growth
from xalign_models.results.reading import read_results


def test_the_time_of_child_processes_counts():
    code = "import time\nwhile time.process_time() < 0.4: pass"
    assert 0.4 <= growth.seconds(lambda: subprocess.run([sys.executable, "-c", code])) < 2


def test_copies_of_results_are_other_models_with_the_same_scores(tmp_path):
    committed, copied = (read_results(root) for root in (growth.ROOT, growth.results(2, tmp_path)))
    assert len(copied.models) == 2 * len(committed.models) > 0

    def values(results):
        return sorted((task, sorted(table.values().items())) for (_, task), table in results.tables.items())

    assert values(copied) == sorted(2 * values(committed))


@pytest.mark.parametrize("power", [1, 2])
def test_the_figure_names_exponents(power):
    sizes = [10 * 2**i for i in range(5)]
    rows = [{"doubled": what, "step": "s", "size": size, "seconds": size**power} for what in "abcd" for size in sizes]
    for axes in growth.draw(pd.DataFrame(rows)).axes:
        assert re.findall(r": (.*)", axes.get_legend().texts[0].get_text()) == [f"{power}.0"]
