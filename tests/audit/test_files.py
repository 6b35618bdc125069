"""The file of an audit under rotations, other programs, kills and full disks. No line is lost silently."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bridge.audit.batch import AuditWriteError
from bridge.audit.file import AuditFile
from bridge.audit.stream import AuditStream
from bridge.audit.verification import verified
from bridge.local.private_files import HAS_MODES
from tests.audit.test_chain import MANY, events_in, written

resource = pytest.importorskip("resource", reason="files have no limit of their size here")


@contextmanager
def largest_file(size_bytes: int) -> Iterator[None]:
    """Let this process write no file beyond a size: a write is cut off, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def all_of(path: Path) -> list[Path]:
    return [path, *path.parent.glob(f"{path.name}[.-][0-9]*")]


def test_a_line_torn_before_a_rotation_is_reported_in_its_own_file(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    written(path, "a")
    with path.open("ab") as file:
        file.write(b'{"event":"tor')
    written(path, "start", "b", rotate_bytes=1)
    (rotated,) = tmp_path.glob("audit.jsonl.0*")
    assert json.loads(rotated.read_bytes().splitlines()[-1])["torn_bytes"] == 13
    found = verified(all_of(path))
    assert (found.faults, found.torn, events_in(path)) == ([], 1, ["b"])


def test_text_at_the_end_of_an_earlier_file_is_a_fault(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    written(path, "a", "b", "c", rotate_bytes=1)
    old = tmp_path / "audit.jsonl.000000000001"
    with old.open("ab") as file:
        file.write(b"anything that was forged")
    assert verified(all_of(path)).faults == [f"{old}:2: is a fragment that no later line reports"]


def test_half_a_line_at_the_end_of_the_chain_is_no_fault_beside_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    written(path, "a")
    with path.open("ab") as file:
        file.write(b'{"event":"tor')
    path.rename(tmp_path / "audit.jsonl.1")
    path.touch()
    found = verified(all_of(path))
    assert (found.faults, found.torn, found.lines) == ([], 1, 1)


def test_the_emptied_file_reports_half_a_line_in_its_copy(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    written(path, "a")
    with path.open("ab") as file:
        file.write(b'{"event":"tor')
    with AuditFile(path, MANY) as audit:
        (tmp_path / "audit.jsonl.1").write_bytes(path.read_bytes())
        os.truncate(path, 0)
        audit.append([{"event": "b"}], lasting=False)
    found = verified(all_of(path))
    assert (found.faults, found.torn, found.lines) == ([], 1, 2)


@pytest.mark.parametrize("name", ["audit.jsonl.1", "audit.jsonl-20261124", "audit.jsonl.000000000002-1"])
def test_the_chain_continues_after_a_file_was_moved_while_no_bridge_ran(name: str, tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    written(path, "a", "b")
    with path.open("ab") as file:
        file.write(b'{"event":"tor')
    path.rename(tmp_path / name)
    written(path, "start")
    found = verified(all_of(path))
    assert (found.faults, found.lines, found.torn) == ([], 3, 1)


def test_no_file_that_was_rotated_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    written(path, "a", "b", "c", rotate_bytes=1)
    path.unlink()
    for rotated in tmp_path.glob("audit.jsonl.0*"):
        rotated.write_bytes(b"what is left of it\n")
    before = {one.name: one.read_bytes() for one in tmp_path.glob("audit.jsonl.0*")}
    written(path, "x", "y", "z", rotate_bytes=1)
    assert {name: (tmp_path / name).read_bytes() for name in before} == before
    assert {one.name for one in tmp_path.glob("audit.jsonl.0*-1")} == {
        "audit.jsonl.000000000001-1",
        "audit.jsonl.000000000002-1",
    }


@pytest.mark.skipif(not HAS_MODES, reason="modes say nothing here")
def test_a_file_from_another_program_becomes_private_when_it_is_used(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    with AuditFile(path, MANY) as audit:
        audit.append([{"event": "a"}], lasting=True)
        path.rename(tmp_path / "audit.jsonl.1")
        path.touch()
        path.chmod(0o644)
        audit.append([{"event": "b"}], lasting=True)
    assert path.stat().st_mode & 0o777 == 0o640
    assert verified(all_of(path)).faults == []


def test_a_truncated_file_is_continued_also_after_a_failed_write(
    tmp_path: Path,
) -> None:
    path = tmp_path / "audit.jsonl"
    with AuditFile(path, MANY) as audit:
        for _ in range(20):
            audit.append([{"event": "a"}], lasting=False)
        (tmp_path / "audit.jsonl.1").write_bytes(path.read_bytes())
        os.truncate(path, 0)
        with largest_file(100), pytest.raises(AuditWriteError):
            audit.append([{"event": "b"}], lasting=True)
        assert path.read_bytes() == b""
        audit.append([{"event": "c"}], lasting=True, lost=1)
    found = verified(all_of(path))
    assert (found.faults, found.lines, found.lost) == ([], 21, 1)


def test_foreign_text_in_the_file_damages_no_line_and_is_a_fault(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    with AuditFile(path, MANY) as audit:
        audit.append([{"event": "a"}], lasting=False)
        with path.open("ab") as file:
            file.write(b"words")
        audit.append([{"event": "b"}], lasting=False)
    found = verified([path])
    assert (found.lines, found.faults) == (2, [f"{path}:2: is a fragment that no later line reports"])


@pytest.mark.parametrize("room_bytes", [0, 1, 100, 140, 143, 144, 145, 146, 200, 290])
def test_a_stream_that_breaks_anywhere_keeps_its_chain(room_bytes: int, tmp_path: Path) -> None:
    path = tmp_path / "collected"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    stream, entries, lost = AuditStream(descriptor), [{"event": "a"}, {"event": "b"}], 0
    stream.append([{"event": "start"}], lasting=True)
    for _ in range(2):
        with largest_file(path.stat().st_size + room_bytes):
            try:
                stream.append(entries, lasting=True, lost=lost)  # type: ignore[arg-type]
            except AuditWriteError as exc:
                lost = 2 - len(exc.numbers) + (0 if exc.numbers else lost)
    stream.append([{"event": "later"}], lasting=True, lost=lost)
    os.close(descriptor)
    found = verified([path])
    assert (found.faults, found.lines + found.lost, found.last) == ([], 6, stream.head)


def test_an_unread_stream_is_given_up_and_continued_later(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    stream = AuditStream(writer, stalled_seconds=0.05)
    lost, number, words = 0, 0, ""
    while not lost:
        number += 1
        try:
            stream.append([{"event": "call", "number": number}], lasting=False)
        except AuditWriteError as exc:
            lost = 1 - len(exc.numbers)
            words = str(exc)
    assert "nobody has read it for 0.05 s" in words
    text = os.read(reader, 1 << 20)
    stream.append([{"event": "later"}], lasting=False, lost=lost)
    os.close(writer)
    while more := os.read(reader, 1 << 20):
        text += more
    os.close(reader)
    (tmp_path / "collected").write_bytes(text)
    found = verified([tmp_path / "collected"])
    assert (found.faults, found.lost, found.lines) == ([], 1, number)
