"""A log of ranks survives a kill anywhere, and a log of something else is begun anew."""

from __future__ import annotations

import resource
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

from xalign_models.ranking.pairs import Sides
from xalign_tasks import pairs
from xalign_tasks.base import Scoring
from xalign_tasks.pairs import RankLog, scored_pairs


def ranks_of(seed):
    rng = np.random.default_rng(seed)
    return (*rng.integers(1, 300, (2, 1, 300)).astype(np.uint16), rng.standard_normal((2, 3)))


def assert_equal(found, expected):
    for part, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(part, other)


def write(path, identity="text 1"):
    log = RankLog(path, identity, (1, 300), 3)
    for i in range(3):
        log.append(("deu_Latn", f"l{i}_Latn"), *ranks_of(i))


@pytest.mark.parametrize("cut", [0, 1, 1000])
def test_a_log_cut_anywhere_keeps_its_whole_records_and_goes_on(tmp_path, cut, caplog):
    path = tmp_path / "items" / ".Task.ranks"
    write(path)
    path.write_bytes(path.read_bytes()[: -cut or None])
    log = RankLog(path, "text 1", (1, 300), 3)
    whole = 3 if not cut else 2
    assert list(log.read()) == [("deu_Latn", f"l{i}_Latn") for i in range(whole)]
    log.append(("x", "y"), *ranks_of(9))
    found = RankLog(path, "text 1", (1, 300), 3).read()
    assert len(found) == whole + 1
    assert_equal(found["x", "y"], ranks_of(9))
    assert_equal(found["deu_Latn", "l1_Latn"], ranks_of(1))
    assert not caplog.records


def test_a_log_of_something_else_is_begun_anew(tmp_path):
    path = tmp_path / "ranks"
    write(path)
    assert RankLog(path, "text 1", (2, 150), 3).read() == {}
    write(path)
    log = RankLog(path, "text 2", (1, 300), 3)
    assert log.read() == {}
    log.append(("x", "y"), *ranks_of(0))
    assert list(RankLog(path, "text 2", (1, 300), 3).read()) == [("x", "y")]


def test_a_disk_that_is_full_for_a_while_leaves_no_half_record(tmp_path):
    """A system writes what still fits and says how much that was."""
    path = tmp_path / "ranks"
    write(path)
    log, whole = RankLog(path, "text 1", (1, 300), 3), path.stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (whole + 100, before[1]))
    try:
        with pytest.raises(OSError, match="No space left on device.*ranks"):
            log.append(("x", "y"), *ranks_of(9))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert path.stat().st_size == whole
    log.append(("x", "y"), *ranks_of(9))
    assert_equal(log.read()["x", "y"], ranks_of(9))


def test_no_path_keeps_nothing():
    log = RankLog(None, "", (1, 300), 3)
    log.append(("x", "y"), *ranks_of(0))
    assert log.read() == {}


def test_a_damaged_record_is_computed_again_and_said_aloud(tmp_path, caplog):
    path = tmp_path / "ranks"
    write(path)
    data = bytearray(path.read_bytes())
    size = (len(data) - 32) // 3
    data[32 + size + size // 2] ^= 1  # a rank in the middle of the second record
    path.write_bytes(data)
    assert list(RankLog(path, "text 1", (1, 300), 3).read()) == [("deu_Latn", "l0_Latn"), ("deu_Latn", "l2_Latn")]
    assert "1 damaged" in caplog.text


@pytest.mark.parametrize("place", [0, -5, -1])  # of the record: its first byte, its last measure's, its checksum's
def test_damage_anywhere_in_a_record_is_noticed(tmp_path, place):
    path = tmp_path / "ranks"
    write(path)
    data = bytearray(path.read_bytes())
    size = (len(data) - 32) // 3
    data[32 + (place if place >= 0 else size + place)] ^= 1
    path.write_bytes(data)
    assert list(RankLog(path, "text 1", (1, 300), 3).read()) == [("deu_Latn", "l1_Latn"), ("deu_Latn", "l2_Latn")]


def test_runs_that_begin_at_once_share_a_log(tmp_path):
    path = tmp_path / "ranks"
    with ThreadPoolExecutor(8) as pool:
        for _ in range(20):
            path.unlink(missing_ok=True)

            def run(i):
                log = RankLog(path, "text 1", (1, 300), 3)
                log.read()
                log.append((f"a{i}", "b"), *ranks_of(i))
                log.read()

            list(pool.map(run, range(8)))
            found = RankLog(path, "text 1", (1, 300), 3).read()
            assert len(found) == 8
            for i in range(8):
                assert_equal(found[f"a{i}", "b"], ranks_of(i))


@pytest.mark.parametrize(("device", "one"), [("cuda:0,cuda:1", "cuda:0"), ("cuda:1", "cuda:1"), ("mps", "cpu")])
def test_pairs_are_ranked_on_one_of_a_models_devices(monkeypatch, device, one):
    ranked = []
    monkeypatch.setattr(pairs, "all_pairs", lambda *_, device: ranked.append(device) or ())
    task = SimpleNamespace(metadata=SimpleNamespace(name="Task", dataset={}))
    scoring = Scoring(SimpleNamespace(raw=SimpleNamespace(device=device)), "test", {})
    assert not [*scored_pairs(task, scoring, {"deu_Latn-eng_Latn"}, lambda _: Sides(np.eye(4)), (1, 4))]
    assert ranked == [one]
