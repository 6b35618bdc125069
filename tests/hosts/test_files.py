"""A host's file is written completely, with a backup, and never over a change by another program."""

from __future__ import annotations

import os
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bridge.errors import UsageError
from bridge.hosts import edit, files

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_each_backup_has_a_name_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text("one")
    first = files.write(files.read(path), "two", NOW)
    second = files.write(files.read(path), "three", NOW)
    assert (first, second) == (
        tmp_path / "mcp.json.20260301T120000.bak",
        tmp_path / "mcp.json.20260301T120000-2.bak",
    )
    assert [first.read_text(), second.read_text(), path.read_text()] == ["one", "two", "three"]
    assert len(names(tmp_path)) == 3


def test_no_more_than_five_backups_are_kept_and_nothing_else_is_touched(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text("0")
    others = ["mcp.json.20250101T000000.bak.txt", "mcp.json.bak", "other.json.20250101T000000.bak"]
    for other in others:
        (tmp_path / other).write_text("theirs")
    moments = [NOW, NOW, *(NOW + timedelta(seconds=number) for number in range(1, 11))]
    for number, moment in enumerate(moments, 1):
        files.write(files.read(path), str(number), moment)
    kept = sorted(set(names(tmp_path)) - {"mcp.json", *others})
    assert [(tmp_path / name).read_text() for name in kept] == ["7", "8", "9", "10", "11"]
    assert set(others) <= set(names(tmp_path))


def test_a_change_of_somebody_else_is_not_written_over(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    for before in (None, "one"):
        if before is not None:
            path.write_text(before)
        read = files.read(path)
        path.write_text("theirs")
        with pytest.raises(UsageError, match="has just been changed by another program: nothing was written"):
            files.write(read, "ours", NOW)
        assert path.read_text() == "theirs", before
        assert names(tmp_path) == ["mcp.json"]


def test_a_file_of_a_windows_editor_has_its_bytes_again_once_the_server_is_out(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    before = b'\xef\xbb\xbf{\r\n  "mcpServers": {\r\n    "a": {"command": "x"}\r\n  }\r\n}\r\n'
    path.write_bytes(before)
    slot = edit.ServerPlace("mcpServers", "ours")
    file = files.read(path)
    files.write(file, edit.with_server(file.text, slot, {"command": "y"}), NOW)
    between = path.read_bytes()
    assert between.startswith(b"\xef\xbb\xbf{\r\n")
    assert between.count(b"\n") == between.count(b"\r\n") > before.count(b"\n")
    file = files.read(path)
    files.write(file, edit.without_server(file.text, slot), NOW)
    assert path.read_bytes() == before


@pytest.mark.skipif(os.name != "posix", reason="permissions are those of POSIX")
@pytest.mark.parametrize(("shared", "mode"), [(False, 0o600), (True, 0o644)])
def test_a_new_file_has_the_permissions_of_its_kind(shared: bool, mode: int, tmp_path: Path) -> None:
    path = tmp_path / "made" / "mcp.json"
    assert files.write(files.read(path), "new", NOW, shared=shared) is None
    assert stat.S_IMODE(path.stat().st_mode) == mode


@pytest.mark.parametrize(
    ("content", "words"), [(b"{\xff}", r"is not UTF-8 \(byte 1\)"), (None, "cannot read .*: Is a directory")]
)
def test_an_unreadable_file_is_reported(content: bytes | None, words: str, tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_bytes(content) if content is not None else path.mkdir()
    with pytest.raises(UsageError, match=words):
        assert files.read(path).text


def test_a_folder_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"cannot read .*: Not a directory"):
        files.read(tmp_path / "file" / "mcp.json")
    with pytest.raises(UsageError, match="cannot write"):
        files.write(files.HostFile(tmp_path / "file" / "mcp.json", None), "x", NOW)
