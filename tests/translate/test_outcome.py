"""Failures of an MCP server as states, words and metadata of a task."""

from __future__ import annotations

import pytest

from bridge.a2a.model.objects import Part, TaskState
from bridge.translate.extensions.bridge import BLOCK, PEER
from bridge.translate.outcome import error_metadata, parts_of_failure, state_of_error

IMAGE = Part(raw="AAAA", media_type="image/png")
SAID = Part(text="it broke")
ADDED = Part(text="The tool failed and gave no words for it", metadata={BLOCK: {"type": "added"}})


@pytest.mark.proves("map-mcp-error")
@pytest.mark.parametrize(
    ("code", "state"),
    [
        (-32602, TaskState.REJECTED),
        (-32603, TaskState.FAILED),
        (-32601, TaskState.FAILED),
        (-32000, TaskState.FAILED),
        (0, TaskState.FAILED),
        (7, TaskState.FAILED),
    ],
)
def test_a_servers_error_fails_the_task_and_wrong_arguments_reject_it(code: int, state: TaskState) -> None:
    assert state_of_error(code) is state


@pytest.mark.proves("map-mcp-error")
def test_a_servers_error_is_kept_in_metadata_completely() -> None:
    assert error_metadata(-1, "no", None) == {PEER: {"error": {"code": -1, "message": "no"}}}
    assert error_metadata(-1, "no", {"a": [None]}) == {
        PEER: {"error": {"code": -1, "message": "no", "data": {"a": [None]}}}
    }


@pytest.mark.proves("map-is-error")
@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ((SAID, IMAGE), (SAID, IMAGE)),
        ((IMAGE, SAID), (IMAGE, SAID)),
        ((IMAGE,), (ADDED, IMAGE)),
        ((Part(text=""),), (ADDED, Part(text=""))),
        ((), (ADDED,)),
    ],
)
def test_a_failure_holds_the_tools_whole_output_and_at_least_one_text(
    parts: tuple[Part, ...], said: tuple[Part, ...]
) -> None:
    assert parts_of_failure(parts) == said
