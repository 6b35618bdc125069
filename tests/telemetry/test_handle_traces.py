"""The trace in a handle: that of the turn that made the handle, if there is room; older handles have none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.agents_as_tools.handles import FarCall, FarQuestion, FarTask, Handles, agent_mark, tool_mark
from bridge.seal import Handle, HandleBinding, HandlePurpose, HandleTooLongError, Seal
from bridge.trace import NO_TRACE, TraceContext

NOW = 1_800_000_000
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
AGENT = agent_mark("https://agent.example/")
TASK = FarTask(AGENT, "6e0fb7d0-3d5b-4c7a-9a53-8a1f1f5f2f10", tool_mark("act"), PARENT)
SEAL = Seal([b"k" * 32])
HANDLES = Handles(SEAL, lambda: NOW)


def opened(task: FarTask) -> tuple[FarTask, FarTask, FarTask]:
    """The task in each of the three handles to it."""
    question = HANDLES.of_question(FarQuestion(task, "asked"), "ann", b"r")
    call, made = HANDLES.of_call(task, "tool", 60, "ann")
    found = HANDLES.call(call, "ann")
    assert (found.tool, found.created_seconds, found.ttl_seconds) == (made.tool, NOW, 60)
    return (
        HANDLES.task(HANDLES.of_task(task, "ann"), "ann"),
        HANDLES.question(question, "ann", b"r").task,
        found.task,
    )


@pytest.mark.parametrize("tool", [tool_mark("act"), ""], ids=["of a tool", "of none"])
def test_each_handle_to_a_task_holds_the_trace_of_the_turn_that_it_was_made_in(tool: str) -> None:
    task = replace(TASK, tool=tool)
    plain = replace(task, tool="")
    assert opened(task) == (task, plain, plain)
    assert {one.trace for one in opened(task)} == {TraceContext(PARENT)}


def test_a_handle_grows_by_no_more_than_the_bytes_of_a_trace() -> None:
    traced, untraced = HANDLES.of_task(TASK, "ann"), HANDLES.of_task(replace(TASK, traceparent=""), "ann")
    assert len(traced) - len(untraced) <= 35


def test_ids_that_leave_no_room_for_a_trace_are_sealed_without_it() -> None:
    longest = 0
    for length in range(200, 400):
        task = replace(TASK, task_id="x" * length)
        try:
            found = HANDLES.task(HANDLES.of_task(task, "ann"), "ann")
        except HandleTooLongError:
            break
        longest = length
        assert found in (task, replace(task, traceparent=""))
    assert found.traceparent == ""
    untraced = replace(TASK, task_id="x" * longest, traceparent="")
    assert HANDLES.task(HANDLES.of_task(untraced, "ann"), "ann") == untraced
    with pytest.raises(HandleTooLongError):
        HANDLES.of_task(replace(untraced, task_id="x" * (longest + 1)), "ann")


def test_a_handle_that_was_sealed_without_a_trace_still_opens() -> None:
    def sealed(purpose: HandlePurpose, request: bytes, *ids: str) -> str:
        return SEAL.seal(Handle(AGENT, ids, NOW + 60), HandleBinding(purpose, "ann", request))

    task_id = TASK.task_id
    plain = FarTask(AGENT, task_id)
    assert HANDLES.task(sealed(HandlePurpose.FOLLOW_UP, b"", task_id), "ann") == plain
    assert HANDLES.task(sealed(HandlePurpose.FOLLOW_UP, b"", task_id, "t"), "ann") == replace(plain, tool="t")
    asked = HANDLES.question(sealed(HandlePurpose.REQUEST_STATE, b"r", task_id, "q"), "ann", b"r")
    assert asked == FarQuestion(plain, "q")
    call = HANDLES.call(sealed(HandlePurpose.TASK_ID, b"", task_id, "t", str(NOW)), "ann")
    assert call == FarCall(plain, "t", NOW, 60)
    assert plain.trace is NO_TRACE
