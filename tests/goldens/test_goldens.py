"""What the bridge says on the wire is what was recorded, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.goldens.compared import difference, read, stray_files
from tests.goldens.conversations import CONVERSATIONS, recorded
from tests.goldens.placeholders import FIXED_TIME, with_placeholders


@pytest.mark.parametrize("name", CONVERSATIONS)
async def test_a_conversation_is_as_it_was_recorded(name: str, tmp_path: Path) -> None:
    found = difference(name, read(name), await recorded(name, tmp_path))
    if found:
        pytest.fail(found, pytrace=False)


def test_every_recording_is_of_a_conversation() -> None:
    assert stray_files() == []


def test_one_byte_that_changed_is_told_of() -> None:
    for name in CONVERSATIONS:
        kept = read(name)
        assert kept is not None
        changed_at = kept.index("\n", len(kept) // 2) - 1
        changed = f"{kept[:changed_at]}~{kept[changed_at + 1 :]}"
        told = difference(name, kept, changed)
        assert told.startswith(f"--- recordings/{name}.txt\n")
        assert any(line.startswith("+") and line.endswith("~") for line in told.splitlines())
        assert difference(name, kept, kept[:-1])
        assert difference(name, kept, kept) == ""


def test_a_recording_that_is_missing_is_told_of() -> None:
    assert "--write new" in difference("new", None, "# words\n")


def test_a_changed_place_in_a_long_line_is_shown() -> None:
    line = "x" * 5000
    told = difference("long", f"{line}a{line}", f"{line}b{line}")
    assert "xa" in told
    assert "xb" in told
    assert len(told) < 2000


def test_a_value_has_one_placeholder_wherever_it_stands() -> None:
    first, second = "0190a1b2-0000-7000-8000-00000000000a", "0190a1b2-0000-7000-8000-00000000000b"
    text = f'{{"id":"{first}","contextId":"{second}","at":"2027-01-01T00:00:00.000Z"}} /tasks/{first} {FIXED_TIME}'
    assert (
        with_placeholders(text)
        == f'{{"id":"{{task-1}}","contextId":"{{context-1}}","at":"{{time}}"}} /tasks/{{task-1}} {FIXED_TIME}'
    )


def test_a_time_of_another_shape_is_another_placeholder() -> None:
    assert with_placeholders("2027-01-01T00:00:00.123Z") == "{time}"
    assert with_placeholders("2027-01-01T01:02:03.123456Z") == "{time 0000-00-00T00:00:00.000000Z}"
