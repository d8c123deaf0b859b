"""The journal: nothing twice, nothing lost but a half-written line, several writers."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from xalign_models.generation.journal import Journal, batched


def record(number: int, **more: object) -> dict[str, object]:
    return {"lang": "deu-Latn", "text": f"made-up {number} ü\u2028", **more}


def test_records_come_back_and_the_first_counts(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "deep" / "j.jsonl", ("lang", "text"))
    assert len(journal) == 0 and journal.get("deu-Latn", "x") is None
    journal.append([record(1, value=1), record(2, value=None)])
    journal.append([record(1, value=9)])
    assert journal.get("deu-Latn", "made-up 1 ü\u2028") == record(1, value=1)
    assert ("deu-Latn", "made-up 2 ü\u2028") in journal and ("fra-Latn", "made-up 2 ü\u2028") not in journal
    again = Journal(journal.path, ("lang", "text"))
    assert len(again) == 2 and again.get("deu-Latn", "made-up 1 ü\u2028") == record(1, value=1)
    journal.append([])


@pytest.mark.parametrize("cut", [1, 10, 40])
def test_a_half_written_line_is_all_that_a_crash_loses(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "j.jsonl"
    Journal(path, ("text",)).append([record(i) for i in range(3)])
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    journal = Journal(path, ("text",))
    assert len(journal) == 2
    journal.append([record(2)])
    assert path.read_bytes() == whole


def test_a_full_disk_names_the_file_and_loses_no_whole_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    journal = Journal(tmp_path / "j.jsonl", ("text",))
    journal.append([record(1)])
    with monkeypatch.context() as patch, pytest.raises(OSError, match=r"No space left on device.*j\.jsonl"):
        patch.setattr(os, "fsync", full)
        journal.append([record(2)])
    journal.append([record(3)])
    assert {"made-up 1 ü\u2028", "made-up 3 ü\u2028"} <= {
        json.loads(line)["text"] for line in journal.path.read_bytes().splitlines()
    }


def test_a_file_of_one_half_line_becomes_empty(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    path.write_text('{"text": "a')
    assert len(Journal(path, ("text",))) == 0
    assert path.read_bytes() == b""
    path.write_bytes(b'{"text": "' + b"a" * 200_000)
    assert len(Journal(path, ("text",))) == 0


def test_a_killed_process_leaves_whole_batches(tmp_path: Path) -> None:
    script = (
        "import os, sys; from pathlib import Path; from xalign_models.generation.journal import Journal\n"
        "journal = Journal(Path(sys.argv[1]), ('text',))\n"
        "for batch in range(100):\n"
        "    journal.append([{'text': f'{batch} {i}'} for i in range(7)])\n"
        "    print(batch, flush=True)\n"
    )
    path = tmp_path / "j.jsonl"
    with subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        while process.stdout.readline().strip() != "3":
            pass
        process.kill()
    journal = Journal(path, ("text",))
    assert len(journal) >= 28
    assert all(json.loads(line) for line in path.read_text().splitlines())


def test_several_writers_see_each_other_after_refreshing(tmp_path: Path) -> None:
    one, other = (Journal(tmp_path / "j.jsonl", ("text",)) for _ in range(2))
    one.append([record(1)])
    other.append([record(2)])  # takes in what the first wrote, too
    assert len(other) == 2 and len(one) == 1
    one.refresh()
    assert len(one) == 2


@pytest.mark.parametrize("line", ["no JSON", "[1]", '{"lang": "x"}', "7", "[" * 100_000])
def test_a_damaged_line_is_counted_and_stops_nobody(tmp_path: Path, caplog, line: str) -> None:
    path = tmp_path / "j.jsonl"
    whole = [json.dumps({**record(number), "lang": "x"}) for number in (1, 2)]
    path.write_text(f"{whole[0]}\n{line}\n{whole[1]}\n")
    journal = Journal(path, ("lang", "text"))
    assert len(journal) == 2
    assert "j.jsonl: skipped 1 damaged lines" in caplog.text
    journal.append([{**record(3), "lang": "x"}])
    assert len(Journal(path, ("lang", "text"))) == 3


def test_batches_are_of_the_size() -> None:
    assert list(batched(range(5), 2)) == [(0, 1), (2, 3), (4,)]
