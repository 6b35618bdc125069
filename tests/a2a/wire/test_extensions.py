"""Metadata is hidden until its extension is active."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_core import from_json, to_json

from bridge.a2a.wire.extensions import ExtensionFilter

pytestmark = pytest.mark.proves("a2a-4.6-extensions")

GATE = ExtensionFilter({"urn:x/block": "urn:x", "urn:y/more": "urn:y"})
HELD: dict[str, Any] = {
    "task": {
        "artifacts": [
            {
                "parts": [
                    {"text": "a", "metadata": {"urn:x/block": {"type": "text"}}},
                    {"text": "b", "metadata": {"urn:x/block": 1, "urn:y/more": 2, "own": {"deep": None}}},
                    {"data": {"metadata": {"urn:x/block": "the user's"}}},
                    {"text": "urn:x/block", "metadata": {"urn:z": {"metadata": {"urn:x/block": 1}}}},
                ]
            }
        ],
        "metadata": {"urn:x/block": 0, "urn:x/other": 1},
    }
}


def parts(*shown: Any, **task: Any) -> Any:
    rest = [HELD["task"]["artifacts"][0]["parts"][place] for place in (2, 3)]
    return {"task": {"artifacts": [{"parts": [*shown, *rest]}], **task}}


@pytest.mark.proves("a2a-4.6-extensions")
@pytest.mark.parametrize(
    ("extensions", "seen"),
    [
        (
            frozenset[str](),
            parts(
                {"text": "a"},
                {"text": "b", "metadata": {"own": {"deep": None}}},
                metadata={"urn:x/other": 1},
            ),
        ),
        (
            frozenset({"urn:y"}),
            parts(
                {"text": "a"},
                {"text": "b", "metadata": {"urn:y/more": 2, "own": {"deep": None}}},
                metadata={"urn:x/other": 1},
            ),
        ),
        (frozenset({"urn:x", "urn:y"}), HELD),
    ],
)
def test_only_active_extensions_show_their_metadata(extensions: frozenset[str], seen: Any) -> None:
    assert from_json(GATE.filtered(to_json(HELD), extensions)) == seen


@pytest.mark.parametrize("extensions", [frozenset[str](), frozenset({"urn:x", "urn:y"})])
def test_a_text_with_nothing_to_hide_is_not_parsed(extensions: frozenset[str]) -> None:
    text = to_json({"metadata": {"other": 1}, "text": "urn:x"})
    assert GATE.filtered(text, extensions) is text
