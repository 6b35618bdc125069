"""What the bridge makes without validation is validated in the suite."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from bridge.a2a.model.objects import Message, Model, Part, Role, TaskState, TaskStatus, made
from tests.support import forked
from tests.support.command import environment
from tests.support.validated_again import VARIABLE, mistakes

PARTS = (Part(text="words"),)
_MAKES = """
from bridge.a2a.model.objects import Message, made
try:
    made(Message, message_id="")
except AssertionError:
    pass
"""


def _noted() -> str:
    return mistakes(Path(os.environ[VARIABLE]))


@pytest.mark.parametrize(
    ("model", "fields", "fault"),
    [
        (Message, {"message_id": "", "role": Role.USER, "parts": PARTS}, "is not valid"),
        (Message, {"message_id": "m", "role": Role.USER}, "is not valid"),
        (Message, {"message_id": "m", "role": Role.USER, "parts": [*PARTS]}, "Message.parts"),
        (Message, {"message_id": "m", "role": "ROLE_USER", "parts": PARTS}, "Message.role"),
        (
            Message,
            {"message_id": "m", "role": Role.USER, "parts": PARTS, "context_id": ""},
            "Message.context_id",
        ),
        (TaskStatus, {"state": TaskState.WORKING, "timestamp": "today"}, "is not valid"),
        (Part, {"text": "a", "url": "b"}, "is not valid"),
    ],
)
def test_what_is_made_with_a_mistake_fails_the_test(
    model: type[Model], fields: dict[str, Any], fault: str
) -> None:
    with pytest.raises(AssertionError, match=fault):
        made(model, **fields)
    assert fault in _noted()
    valid = made(Message, message_id="m", role=Role.USER, parts=PARTS)
    with pytest.raises(AssertionError, match="is not valid"):
        valid.changed(parts=())
    assert "is not valid" in _noted()


@pytest.mark.skipif(sys.platform != "linux", reason="the fork server is for Linux")
def test_a_program_that_is_forked_notes_its_mistakes(tmp_path: Path) -> None:
    (tmp_path / "makes.py").write_text(_MAKES)
    done = forked.run([sys.executable, "-m", "makes"], 60, text=True, cwd=tmp_path, env=environment(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "Message is not valid" in _noted()


def test_what_is_made_right_is_what_validation_makes() -> None:
    fields: dict[str, Any] = {"message_id": "m", "role": Role.USER, "parts": PARTS, "metadata": None}
    assert made(Message, **fields).to_json() == Message(**fields).to_json()
    assert made(Message, **fields) == Message(**fields)
