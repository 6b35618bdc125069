"""The lock: what is written, and a file that may be hostile."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from bridge.errors import UsageError
from bridge.pinned.lock import LOCK_BYTES, Lock, PinnedSource, lock_beside, lock_text, read_lock, write_lock

LOCK = Lock(
    {
        "tool_servers.b": PinnedSource({"tools": {"z": {"description": "\u202e"}, "a": {}}}, "b 1.0"),
        "agents.a": PinnedSource({"skills": {"s": {"name": "S"}}}),
    }
)


def test_a_lock_comes_back_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "bridge.lock"
    assert read_lock(path) is None
    write_lock(path, LOCK)
    assert read_lock(path) == LOCK
    assert [file.name for file in tmp_path.iterdir()] == ["bridge.lock"], "no temporary file is left"


def test_a_lock_is_sorted_and_shows_hidden_characters() -> None:
    turned = Lock(dict(reversed(LOCK.sources.items())))
    text = lock_text(LOCK)
    assert text == lock_text(turned)
    assert text.isascii()
    assert "\\u202e" in text
    assert text.index('"a": {}') < text.index('"z"')


def test_the_lock_lies_beside_its_configuration() -> None:
    assert lock_beside(Path("/etc/bridge.toml")) == Path("/etc/bridge.lock")
    assert lock_beside(Path("/etc/team.toml")) == Path("/etc/team.lock")


NESTED = "[" * 200 + "]" * 200


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not JSON, or only part of it was written"),
        (lock_text(LOCK)[:-40], "only part of it was written"),
        ("[]", "it has no `format`"),
        ("{}", "it has no `format`"),
        ('{"format": 2}', "another release"),
        ('{"format": 1, "servers": {}}', "neither `tool_servers` nor `agents`"),
        ('{"format": 1, "agents": []}', "agents is no object"),
        ('{"format": 1, "agents": {"a": {"skils": {}}}}', "none of tools, prompts, templates, skills"),
        ('{"format": 1, "agents": {"a": {"skills": {"s": "SECRET"}}}}', "is no object"),
        ('{"format": 1, "agents": {"a": {"version": 3}}}', "is no text"),
        (f'{{"format": 1, "agents": {NESTED}}}', "deeper"),
        ("[" * 200_000, "it is not JSON"),
        ("\ud800".encode("utf-8", "surrogatepass").decode("latin-1"), "not JSON"),
    ],
)
def test_a_file_that_is_no_lock_is_refused_without_its_contents(
    tmp_path: Path, text: str, words: str
) -> None:
    path = tmp_path / "bridge.lock"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(UsageError, match="is no lock of this bridge") as raised:
        read_lock(path)
    assert words in str(raised.value)
    assert "SECRET" not in str(raised.value)
    assert "mcp-a2a pin" in str(raised.value)


def test_a_lock_that_is_too_large_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bridge.lock"
    with path.open("wb") as out:
        out.truncate(LOCK_BYTES + 1)
    with pytest.raises(UsageError, match="larger than"):
        read_lock(path)


@pytest.mark.skipif(sys.platform == "win32", reason="links and pipes of POSIX")
def test_a_lock_that_is_a_link_is_read_and_never_written(tmp_path: Path) -> None:
    there, path = tmp_path / "there.lock", tmp_path / "bridge.lock"
    write_lock(there, LOCK)
    path.symlink_to(there)
    assert read_lock(path) == LOCK, "mounted files of a cluster are links"
    before = there.read_bytes()
    with pytest.raises(UsageError, match="is a link or no regular file"):
        write_lock(path, Lock())
    assert there.read_bytes() == before
    there.unlink()
    with pytest.raises(UsageError, match="leads nowhere"):
        read_lock(path)


@pytest.mark.skipif(sys.platform == "win32", reason="links and pipes of POSIX")
def test_a_lock_that_is_a_pipe_or_a_folder_never_hangs(tmp_path: Path) -> None:
    pipe, folder = tmp_path / "a.lock", tmp_path / "b.lock"
    os.mkfifo(pipe)
    folder.mkdir()
    for path in (pipe, folder):
        with pytest.raises(UsageError, match="cannot read"):
            read_lock(path)
        with pytest.raises(UsageError, match="no regular file"):
            write_lock(path, LOCK)


def test_only_known_fields_stand_in_the_file() -> None:
    written: dict[str, Any] = json.loads(lock_text(LOCK))
    assert written.keys() == {"format", "tool_servers", "agents"}
    assert written["tool_servers"]["b"].keys() == {"version", "tools"}
