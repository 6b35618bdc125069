"""Checks of streams. Spec: A2A 1.0 sections 3.1.2, 3.3.4, 7.6.1, 9.4.2, 11.7."""

from __future__ import annotations

from typing import Any, Final

import anyio

from tests.a2a_checks.bindings import STREAM, SUBSCRIBE
from tests.a2a_checks.errors import Fault, Kind
from tests.a2a_checks.folding import content_of, folded
from tests.a2a_checks.occasions import ANSWERS, ASKS, COMPLETES, LOGIN, LONG, SAYS, Occasions, need_streams
from tests.a2a_checks.shapes import STREAM_RESPONSE, TERMINAL
from tests.a2a_checks.table import (
    BOTH,
    ONLY_HTTP_JSON,
    Check,
    Level,
    Need,
    NotTried,
    Section,
    need,
    require,
)
from tests.a2a_checks.talk import UNKNOWN_TASK, Talk, state_in, state_of


async def _events(talk: Talk, agent: Occasions, purpose: str = COMPLETES) -> list[Any]:
    """All events of one message's stream, which has to close."""
    need_streams(talk)
    async with talk.stream(STREAM, agent.send(purpose)) as stream:
        return await stream.all()


async def _task_events(talk: Talk, agent: Occasions, purpose: str = COMPLETES) -> list[Any]:
    events = await _events(talk, agent, purpose)
    first = events[0]
    need(not isinstance(first, dict) or "message" not in first, "the answer is a Message")
    require(isinstance(first, dict) and isinstance(first.get("task"), dict), "a Task first", first)
    return events


async def is_an_event_stream(talk: Talk, agent: Occasions) -> None:
    need_streams(talk)
    async with talk.stream(STREAM, agent.send()) as stream:
        (await stream.first()).value()
        fine = stream.head.status == 200 and stream.head.media_type == "text/event-stream"
        require(fine, "200 text/event-stream", stream.head.shown())
        await stream.rest()


async def begins_with_the_task(talk: Talk, agent: Occasions) -> None:
    await _task_events(talk, agent)


async def goes_on_with_updates(talk: Talk, agent: Occasions) -> None:
    events = await _task_events(talk, agent)
    if len(events) > 1 and "task" in events[-1] and state_in(events[-1]) in TERMINAL:
        events.pop()  # section 11.7: a last snapshot may be sent again
    for event in events[1:]:
        require("statusUpdate" in event or "artifactUpdate" in event, "updates after the Task", event)


async def holds_one_thing(talk: Talk, agent: Occasions) -> None:
    for event in await _events(talk, agent):
        held = [name for name in STREAM_RESPONSE.choice if isinstance(event, dict) and name in event]
        require(len(held) == 1, "exactly one of task, message, statusUpdate, artifactUpdate", event)


async def closes_at_the_end(talk: Talk, agent: Occasions) -> None:
    events = await _task_events(talk, agent)
    states = [state_in(event) for event in events if state_in(event)]
    need(states[-1:] != ["TASK_STATE_INPUT_REQUIRED"], "the task asks for input")
    require(bool(states) and states[-1] in TERMINAL, "a terminal state last", states)
    ends = [number for number, event in enumerate(events) if state_in(event) in TERMINAL]
    late = [event for event in events[ends[0] + 1 :] if "task" not in event]
    require(not late, "nothing after the terminal state", late)


async def is_one_message(talk: Talk, agent: Occasions) -> None:
    events = await _events(talk, agent, SAYS)
    need("message" in events[0], "the answer is a task")
    require(len(events) == 1, "one Message, then the end", events)


async def names_its_task(talk: Talk, agent: Occasions) -> None:
    first, *updates = await _task_events(talk, agent)
    task = first.get("task") or {}
    for event in updates:
        update = event.get("statusUpdate") or event.get("artifactUpdate") or {}
        if "task" not in event:
            same = update.get("taskId") == task.get("id") and update.get("contextId") == task.get("contextId")
            require(same, f"taskId {task.get('id')}, contextId {task.get('contextId')}", event)


async def adds_up_to_the_task(talk: Talk, agent: Occasions) -> None:
    events = await _task_events(talk, agent)
    task = await agent.now(events[0]["task"])
    need(bool(task.get("artifacts")), "the task has no artifacts")
    told, kept = content_of(folded(events)), content_of(task["artifacts"])
    require(told == kept, f"the artifacts that GetTask gives: {kept}", told)
    states = [state_in(event) for event in events if state_in(event)]
    require(states[-1] == state_of(task), f"the state that GetTask gives: {state_of(task)}", states)


async def gives_artifacts(talk: Talk, agent: Occasions) -> None:
    events = await _task_events(talk, agent)
    need(state_in(events[-1]) == "TASK_STATE_COMPLETED", "the task does not complete")
    require(bool(folded(events)), "the result as an artifact", events)


async def closes_when_it_asks(talk: Talk, agent: Occasions) -> None:
    need_streams(talk)
    async with talk.stream(STREAM, agent.send(ASKS)) as stream:
        event = (await stream.first()).value()
        while event is not None and state_in(event) not in TERMINAL | {"TASK_STATE_INPUT_REQUIRED"}:
            event = await stream.next()
        need(event is not None and state_in(event) not in TERMINAL, "the task asks for nothing")
        require(await stream.next() is None, "the end of the stream", "an event")


async def stays_open_for_a_login(talk: Talk, agent: Occasions) -> None:
    need_streams(talk)
    async with talk.stream(STREAM, agent.send(LOGIN)) as stream:
        event = (await stream.first()).value()
        while event is not None and state_in(event) not in TERMINAL | {"TASK_STATE_AUTH_REQUIRED"}:
            event = await stream.next()
        need(event is not None and state_in(event) not in TERMINAL, "the task asks for no login")
        with anyio.move_on_after(talk.silence_seconds):
            require(await stream.next() is not None, "an open stream", "its end")


async def refuses_as_send_does(talk: Talk, agent: Occasions) -> None:
    need_streams(talk)
    invalid = talk.request(STREAM, {"message": agent.message(parts="hello")})
    async with talk.stream_of(invalid, "") as stream:
        talk.require_refusal(await stream.first(), Fault.INVALID_PARAMS)
    await talk.refused(Kind.TASK_NOT_FOUND, STREAM, agent.send(taskId=UNKNOWN_TASK))


async def takes_nothing_for_ended_tasks(talk: Talk, agent: Occasions) -> None:
    need_streams(talk)
    task = await agent.ended()
    await talk.refused(Kind.UNSUPPORTED_OPERATION, STREAM, agent.send(taskId=task["id"]))


async def streams_answers(talk: Talk, agent: Occasions) -> None:
    need_streams(talk)
    task = await agent.asking()
    async with talk.stream(STREAM, agent.send(ANSWERS, taskId=task["id"])) as stream:
        first = (await stream.first()).value()
        same = "task" in first and first["task"].get("id") == task["id"]
        require(same, f"a stream that begins with the task {task['id']}", first)
        states = [state_in(event) for event in await stream.rest() if state_in(event)]
    state = state_of(await agent.now(task))
    require(not states or states[-1] == state, f"the state that GetTask gives last: {state}", states)


async def goes_on_without_its_stream(talk: Talk, agent: Occasions) -> None:
    need_streams(talk)
    async with talk.stream(STREAM, agent.send(LONG)) as stream:
        first = (await stream.first()).value()
        if "task" not in first:
            raise NotTried("the answer is a Message")
    state = state_of(await agent.now(first["task"]))
    require(state not in TERMINAL, "a task that goes on", state)


async def refuses_streams_undeclared(talk: Talk, agent: Occasions) -> None:
    need(talk.card.capabilities.get("streaming") is not True, "the agent declares streaming")
    await talk.refused(Kind.UNSUPPORTED_OPERATION, STREAM, agent.send())
    await talk.refused(Kind.UNSUPPORTED_OPERATION, SUBSCRIBE, {"id": UNKNOWN_TASK})


def _check(
    check_id: str,
    spec: str,
    sentence: str,
    run: Any,
    *needs: Need,
    level: Level = Level.MUST,
    bindings: tuple[str, ...] = BOTH,
) -> Check:
    return Check(check_id, Section.STREAMING, spec, level, sentence, run, needs, bindings)


_S: Final = Need.STREAMS

CHECKS: Final = (
    _check("stream-type", "9.4.2", "A stream is 200 with text/event-stream", is_an_event_stream, _S),
    _check(
        "stream-one-of",
        "3.2.3",
        "Each event is exactly one of Task, Message, status and artifact update",
        holds_one_thing,
        _S,
    ),
    _check(
        "stream-task-first", "3.1.2", "A stream begins with the Task", begins_with_the_task, _S, Need.TASK
    ),
    _check(
        "stream-updates", "3.1.2", "What follows the Task are updates", goes_on_with_updates, _S, Need.TASK
    ),
    _check(
        "stream-closes",
        "3.1.2",
        "A stream goes on to a terminal state, and closes there",
        closes_at_the_end,
        _S,
        Need.TASK,
    ),
    _check(
        "stream-message",
        "3.1.2",
        "A stream of a Message is that Message alone",
        is_one_message,
        _S,
        Need.SAYS,
    ),
    _check("stream-ids", "4.2", "Each update names its task and its context", names_its_task, _S, Need.TASK),
    _check(
        "stream-adds-up",
        "3.5.2",
        "The events, in their order, add up to what GetTask gives",
        adds_up_to_the_task,
        _S,
        Need.ARTIFACT,
    ),
    _check(
        "stream-artifacts",
        "3.7",
        "Results are in artifacts, not in messages",
        gives_artifacts,
        _S,
        Need.ARTIFACT,
        level=Level.SHOULD,
    ),
    _check(
        "stream-input-closes",
        "11.7",
        "A stream closes when the task asks for input",
        closes_when_it_asks,
        _S,
        Need.ASKS,
        level=Level.SHOULD,
        bindings=ONLY_HTTP_JSON,
    ),
    _check(
        "stream-auth-open",
        "7.6.1",
        "A stream stays open while the task asks for a login",
        stays_open_for_a_login,
        _S,
        Need.LOGIN,
        level=Level.SHOULD,
    ),
    _check("stream-refusals", "3.1.2", "A streaming send is refused as any other", refuses_as_send_does, _S),
    _check(
        "stream-to-ended",
        "3.1.2",
        "A streaming send to a task that has ended is UnsupportedOperation",
        takes_nothing_for_ended_tasks,
        _S,
        Need.TASK,
    ),
    _check(
        "stream-dropped",
        "3.5.2",
        "A task goes on when the stream that began it is closed",
        goes_on_without_its_stream,
        _S,
        Need.LONG,
    ),
    _check(
        "stream-undeclared",
        "3.3.4",
        "Without the capability, streams are UnsupportedOperation",
        refuses_streams_undeclared,
        Need.NO_STREAMS,
    ),
    _check(
        "stream-answer",
        "3.1.2",
        "A stream of an answer begins with the task that asked",
        streams_answers,
        _S,
        Need.ASKS,
        Need.ANSWERS,
    ),
)
