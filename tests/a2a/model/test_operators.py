"""A task whose contents are withheld: its structure stays, with a mark in place of each content."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_core import from_json, to_json

from bridge.a2a.model.objects import Task
from bridge.a2a.model.operators import ANSWERED_BY, SKILL_KEY, WITHHELD, withheld_event, withheld_task

pytestmark = pytest.mark.proves("ops-contents")

WORDS = "(withheld: this bridge shows operators no contents)"


def mark(kind: str) -> dict[str, Any]:
    return {"text": WORDS, "metadata": {WITHHELD: kind}}


MESSAGE = {
    "messageId": "m",
    "contextId": "c",
    "taskId": "t",
    "role": "ROLE_USER",
    "parts": [
        {"text": "secret", "filename": "secret.txt"},
        {"raw": "c2VjcmV0", "mediaType": "x/secret"},
        {"url": "https://secret.example"},
        {"data": {"secret": 1}, "metadata": {"secret": 1}},
    ],
    "metadata": {"secret": 1, SKILL_KEY: "echo", ANSWERED_BY: "ops"},
    "extensions": ["urn:a"],
    "referenceTaskIds": ["t0"],
    "secretField": "secret",
}
SHOWN_MESSAGE = {
    **{key: one for key, one in MESSAGE.items() if key != "secretField"},
    "parts": [mark("text"), mark("raw"), mark("url"), mark("data")],
    "metadata": {SKILL_KEY: "echo", ANSWERED_BY: "ops", WITHHELD: ["secret", "secretField"]},
}
ARTIFACT = {
    "artifactId": "a",
    "name": "echo",
    "description": "secret",
    "parts": [{"text": "secret"}],
    "metadata": {SKILL_KEY: "echo"},
}
SHOWN_ARTIFACT = {**ARTIFACT, "description": WORDS, "parts": [mark("text")]}
STATUS = {"state": "TASK_STATE_WORKING", "message": MESSAGE, "timestamp": "2026-01-31T12:00:00.000Z"}
SHOWN_STATUS = {**STATUS, "message": SHOWN_MESSAGE}
TASK = {
    "id": "t",
    "contextId": "c",
    "status": STATUS,
    "artifacts": [ARTIFACT],
    "history": [MESSAGE],
    "metadata": {"secret": 1},
}
SHOWN_TASK = {
    **TASK,
    "status": SHOWN_STATUS,
    "artifacts": [SHOWN_ARTIFACT],
    "history": [SHOWN_MESSAGE],
    "metadata": {WITHHELD: ["secret"]},
}
IDS = {"taskId": "t", "contextId": "c"}
PIECE = {**IDS, "append": True, "lastChunk": False}


def test_a_withheld_task_keeps_its_structure_with_a_mark_for_each_content() -> None:
    assert withheld_task(Task.model_validate(TASK)).to_object() == SHOWN_TASK
    bare = Task.model_validate({"id": "t", "status": {"state": "TASK_STATE_WORKING"}})
    assert withheld_task(bare) == bare


@pytest.mark.parametrize(
    ("event", "shown"),
    [
        ({"task": TASK}, {"task": SHOWN_TASK}),
        ({"message": MESSAGE}, {"message": SHOWN_MESSAGE}),
        ({"statusUpdate": {**IDS, "status": STATUS}}, {"statusUpdate": {**IDS, "status": SHOWN_STATUS}}),
        (
            {"artifactUpdate": {**PIECE, "artifact": ARTIFACT}},
            {"artifactUpdate": {**PIECE, "artifact": SHOWN_ARTIFACT}},
        ),
    ],
    ids=["task", "message", "status", "artifact"],
)
def test_each_kind_of_event_keeps_its_structure_with_marks(
    event: dict[str, Any], shown: dict[str, Any]
) -> None:
    assert from_json(withheld_event(to_json(event))) == shown
