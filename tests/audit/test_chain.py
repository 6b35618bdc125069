"""The chain of an audit: every change breaks it; a kill, a full disk and a rotation do not."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bridge.audit.batch import AuditWriteError
from bridge.audit.chain import TEXT_CHARACTERS, ChainHead, ChangedLineError, line_from, sealed
from bridge.audit.file import AuditFile, last_head
from bridge.audit.stream import AuditStream
from bridge.audit.verification import verified, verified_end
from bridge.errors import UsageError
from bridge.local.private_files import HAS_MODES
from tests.support.command import run_here
from tests.support.small_disk import NoSmallDiskError, small_disk

MANY = 1 << 30


def written(path: Path, *events: str, rotate_bytes: int = MANY) -> None:
    """Let a process write these events, one at a time."""
    with AuditFile(path, rotate_bytes) as audit:
        for event in events:
            audit.append([{"event": event}], lasting=False)


def events_in(path: Path) -> list[str]:
    return [json.loads(line)["event"] for line in path.read_text().splitlines()]


def test_a_line_is_the_same_bytes_whoever_writes_it() -> None:
    line, head = sealed({"who": "é", "ms": 1.50, "event": "call"}, ChainHead())
    assert line.decode() == (
        '{"event":"call","hash":"' + head.hash + '","ms":1.5,"prev":"' + "0" * 64 + '","seq":1,"who":"é"}'
    )
    assert line_from(line).head == head
    assert ChainHead.parse(str(head)) == head


def test_a_text_has_an_end_and_no_half_characters() -> None:
    line, _ = sealed({"who": "a\ud800" + "b" * 10_000}, ChainHead())
    who = line_from(line).entry["who"]
    assert isinstance(who, str)
    assert (who[:3], len(who)) == ("a?b", TEXT_CHARACTERS)


def test_a_line_with_another_spelling_counts_as_changed() -> None:
    line, _ = sealed({"event": "call"}, ChainHead())
    with pytest.raises(ChangedLineError):
        line_from(line.replace(b":", b": ", 1))


def test_each_process_continues_the_chain(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    written(path, "start", "call")
    written(path, "start")
    found = verified([path])
    assert (found.faults, found.lines, found.processes, found.last) == ([], 3, 2, last_head(path))
    if HAS_MODES:
        assert path.stat().st_mode & 0o777 == 0o600


Change = Callable[[list[str]], list[str]]
CHANGES: dict[str, tuple[Change, str]] = {
    "edit": (lambda lines: [lines[0], lines[1].replace('"b"', '"x"'), *lines[2:]], ":2: was changed"),
    "gap": (lambda lines: [lines[0], *lines[2:]], ":2: has the number 3 and follows line 1"),
    "swap": (
        lambda lines: [lines[0], lines[2], lines[1], lines[3]],
        ":2: has the number 3 and follows line 1",
    ),
    "twice": (lambda lines: [lines[0], *lines], ":2: has the number 1 and follows line 1"),
    "words": (
        lambda lines: [lines[0], "well\n", *lines[1:]],
        ":2: is a fragment that no later line reports",
    ),
    "half a pair": (
        lambda lines: [lines[0], '{"\\ud800":1,"hash":"","prev":"","seq":2}\n', *lines[1:]],
        ":2: has content that an audit never writes",
    ),
    "others": (lambda lines: [lines[0], "[1]\n", *lines[1:]], ":2: is not a line of an audit"),
    "none": (lambda _: [], "holds no line"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_chain_that_was_changed_is_broken(change: str, tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    written(path, "a", "b", "c", "d")
    edit, words = CHANGES[change]
    path.write_text("".join(edit(path.read_text().splitlines(keepends=True))))
    assert words in verified([path]).faults[0]


def test_a_rewritten_line_does_not_match_the_next_line(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    written(path, "a", "b", "c")
    first, _, last = path.read_bytes().splitlines()
    forged, _ = sealed({"event": "x"}, line_from(first).head)
    path.write_bytes(b"\n".join([first, forged, last, b""]))
    assert verified([path]).faults == [f"{path}:3: does not follow the line 2 that is before it"]


def test_only_a_head_that_was_kept_shows_a_cut_tail(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    written(path, "a", "b", "c")
    head = last_head(path)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:2]))
    assert verified([path]).faults == []
    assert verified([path], [head]).faults == ["line 3 is not in the files: the chain ends with line 2"]


def test_a_new_chain_does_not_match_a_kept_head(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    written(path, "a", "b")
    head = last_head(path)
    path.unlink()
    written(path, "a", "x", "c")
    assert verified([path], [head]).faults == [
        f"{path}:2: is not the line 2 whose head was kept: the chain was replaced"
    ]


def test_two_different_heads_of_a_line_are_a_fault(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    heads = []
    for event in ("b", "x"):
        path.unlink(missing_ok=True)
        written(path, "a", event)
        heads.append(last_head(path))
    assert verified([path], [heads[1], heads[1]]).faults == []
    for given in (heads, heads[::-1]):
        assert verified([path], given).faults == [
            f"{path}:2: is not the line 2 whose head was kept: the chain was replaced"
        ]


def test_a_rotation_carries_the_chain_from_file_to_file(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    written(path, "a", "b", "c", rotate_bytes=1)
    written(path, "d", rotate_bytes=1)
    rotated = [path.with_name(f"audit.jsonl.{number:012d}") for number in (1, 2, 3)]
    files = [path, *rotated]
    found = verified(files)
    assert (found.faults, found.lines, events_in(path)) == ([], 4, ["d"])
    assert verified([path, rotated[0], rotated[2]]).faults == [
        f"{rotated[2]}:1: has the number 3 and follows line 1"
    ]
    late = verified([path, rotated[2]])
    assert (late.faults, late.first) == ([], last_head(rotated[1]))


def test_a_process_killed_between_two_files_leaves_no_gap(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    written(path, "a", "b")
    rotated = path.rename(path.with_name("audit.jsonl.000000000002"))
    written(path, "c")
    assert verified([path, rotated]).faults == []


def test_a_file_that_another_program_rotates_is_left_for_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    with AuditFile(path, MANY) as audit:
        audit.append([{"event": "a"}], lasting=False)
        moved = path.rename(tmp_path / "audit.jsonl.1")
        audit.append([{"event": "b"}], lasting=True)
    assert (events_in(moved), events_in(path)) == (["a"], ["b"])
    assert verified([path, moved]).faults == []


@pytest.mark.parametrize("left", [b'{"event":"ca', b'{"ev\nent', b'{"event"\n', b"\0\0\0"])
def test_the_next_line_reports_a_torn_line(left: bytes, tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    written(path, "a", "b")
    with path.open("ab") as file:
        file.write(left)
    if not left.endswith(b"\n"):
        assert (verified([path]).torn, len(verified([path]).faults)) == (1, left.count(b"\n"))
    written(path, "c")
    found = verified([path])
    assert (found.faults, found.lines, found.torn) == ([], 3, left.removesuffix(b"\n").count(b"\n") + 1)
    last = json.loads(path.read_bytes().splitlines()[-1])
    assert (last["event"], last["torn_bytes"]) == ("c", len(left.removesuffix(b"\n")))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], lines[-1]]))
    assert "which is missing" in verified([path]).faults[0]


def test_a_line_without_a_newline_is_not_torn(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    written(path, "a", "b")
    path.write_bytes(path.read_bytes().removesuffix(b"\n"))
    written(path, "c")
    found = verified([path])
    assert (found.faults, found.torn, events_in(path)) == ([], 0, ["a", "b", "c"])


@pytest.mark.outside
def test_the_next_line_counts_lines_lost_on_a_full_disk(tmp_path: Path) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        with small_disk(folder, 1 << 20) as disk:
            path = folder / "audit.jsonl"
            with AuditFile(path, MANY) as audit:
                audit.append([{"event": "a"}], lasting=True)
                disk.fill(0)
                entries = [{"event": "lost", "text": "x" * 500} for _ in range(20)]
                for _ in range(2):
                    with pytest.raises(AuditWriteError):
                        audit.append(entries, lasting=True)  # type: ignore[arg-type]
                disk.free()
                audit.append([{"event": "b"}, {"event": "c"}], lasting=True, lost=40)
            found = verified([path])
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            assert (found.faults, found.lost, found.lines) == ([], 40, 3)
            assert [line.get("lost") for line in lines] == [None, 40, None]
    except NoSmallDiskError as exc:
        pytest.skip(str(exc))


def test_two_processes_do_not_write_one_file(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    with AuditFile(path, MANY), pytest.raises(UsageError, match="another bridge writes the audit"):
        AuditFile(path, MANY).__enter__()


def test_a_file_that_is_no_audit_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "photo.jpg"
    path.write_bytes(b"\xff" * 100_000)
    with pytest.raises(UsageError, match="does not end with a line of an audit"):
        AuditFile(path, MANY).__enter__()
    with pytest.raises(UsageError, match="is not a file"):
        AuditFile(Path(os.devnull), MANY).__enter__()


def test_a_chain_on_a_stream_is_verified_once_it_is_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "collected"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    with AuditStream(descriptor) as audit:
        audit.append([{"event": "start"}, {"event": "call"}], lasting=True)
    os.close(descriptor)
    assert (verified([path]).faults, verified([path]).last) == ([], audit.head)
    with pytest.raises(AuditWriteError):
        audit.append([{"event": "call"}], lasting=True)


def test_the_command_says_whether_a_chain_is_intact(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    written(path, "start", "call")
    head = run_here("audit", "head", str(path), state=tmp_path)
    assert (head.returncode, head.stdout) == (0, f"{last_head(path)}\n")
    lock = f"{path}.mcp-a2a-lock"
    whole = run_here("audit", "verify", "--head", head.stdout.strip(), str(path), lock, state=tmp_path)
    assert (whole.returncode, whole.stdout) == (
        0,
        f"the chain is whole: 2 lines of 1 process, head {last_head(path)}\n",
    )
    path.write_bytes(path.read_bytes().replace(b"call", b"null"))
    broken = run_here("audit", "verify", str(path), state=tmp_path)
    assert (broken.returncode, broken.stdout.startswith("the chain is broken: 1 line of")) == (1, True)
    assert "was changed" in broken.stderr


def test_a_command_without_a_head_or_an_audit_says_so(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_text("words\n")
    assert run_here("audit", "head", str(path), state=tmp_path).returncode == 2
    done = run_here("audit", "verify", "--head", "x", str(path), state=tmp_path)
    assert (done.returncode, "x is not a head" in done.stderr) == (2, True)


def test_the_end_of_an_audit_is_verified_without_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    written(path, *(f"call-{number}" for number in range(200)))
    size = path.stat().st_size
    end = verified_end(path, size // 10)
    assert end.faults == []
    assert 15 < end.lines < 20
    assert end.last == last_head(path)
    assert verified_end(path, size).lines == 200
    text = path.read_bytes()
    path.write_bytes(text.replace(b'call-3"', b'call-4"'))
    assert verified_end(path, size // 10).faults == []
    path.write_bytes(text.replace(b"call-195", b"call-196"))
    (fault,) = verified_end(path, size // 10).faults[:1]
    assert "was changed" in fault


@pytest.mark.parametrize("left", [b'{"event":"b', b'x\n{"event":"b'])
@pytest.mark.parametrize("cut", range(1, 16))
def test_a_partly_read_fragment_is_no_fault(left: bytes, cut: int, tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    written(path, "a")
    with path.open("ab") as file:
        file.write(left)
    behind = path.stat().st_size - cut
    written(path, "c")
    assert verified_end(path, path.stat().st_size - behind).faults == []


def test_the_end_of_what_is_no_audit_is_a_fault(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_bytes(b"x" * 1000)
    assert verified_end(path).faults
    assert verified_end(path, 100).faults
