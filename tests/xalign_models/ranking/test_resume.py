"""A log of ranks survives a kill anywhere, and a log of something else is begun anew."""

from __future__ import annotations

import numpy as np
import pytest

from xalign_models.ranking.resume import RankLog


def ranks_of(seed):
    return tuple(np.random.default_rng(seed).integers(1, 300, (2, 1, 300)).astype(np.uint16))


def write(path, identity="text 1"):
    log = RankLog(path, identity, (1, 300))
    for i in range(3):
        log.append(("deu_Latn", f"l{i}_Latn"), *ranks_of(i))
    log.close()


@pytest.mark.parametrize("cut", [0, 1, 1000])
def test_a_log_cut_anywhere_keeps_its_whole_records_and_goes_on(tmp_path, cut):
    path = tmp_path / "items" / ".Task.ranks"
    write(path)
    path.write_bytes(path.read_bytes()[: -cut or None])
    log = RankLog(path, "text 1", (1, 300))
    whole = 3 if not cut else 2
    assert list(log.read()) == [("deu_Latn", f"l{i}_Latn") for i in range(whole)]
    log.append(("x", "y"), *ranks_of(9))
    log.close()
    found = RankLog(path, "text 1", (1, 300)).read()
    assert len(found) == whole + 1
    np.testing.assert_array_equal(found["x", "y"], ranks_of(9))
    np.testing.assert_array_equal(found["deu_Latn", "l1_Latn"], ranks_of(1))


def test_a_log_of_something_else_is_begun_anew(tmp_path):
    path = tmp_path / "ranks"
    write(path)
    assert RankLog(path, "text 1", (2, 150)).read() == {}
    write(path)
    log = RankLog(path, "text 2", (1, 300))
    assert log.read() == {}
    log.append(("x", "y"), *ranks_of(0))
    log.close()
    assert list(RankLog(path, "text 2", (1, 300)).read()) == [("x", "y")]


def test_no_path_keeps_nothing():
    log = RankLog(None, "", (1, 300))
    log.append(("x", "y"), *ranks_of(0))
    assert log.read() == {}
    log.close()
