"""Checks of SendMessage. Spec: A2A 1.0 sections 3.1.1, 3.2.2, 3.3.2, 4.1.6, 5.7."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

import anyio

from tests.a2a_checks.bindings import CANCEL, LIST, SEND
from tests.a2a_checks.errors import A2A_REASONS, DOMAIN, ERROR_INFO, Fault, Kind
from tests.a2a_checks.occasions import LONG, Occasions
from tests.a2a_checks.shapes import INTERRUPTED, TERMINAL, without_defaults
from tests.a2a_checks.table import Check, Failed, Level, Need, Section, need, require
from tests.a2a_checks.talk import UNKNOWN_TASK, Talk, state_of

ODD_MODE: Final = "application/x-a2a-checks-unheard-of"
WRONG_FIELDS: Final[tuple[tuple[str, Any], ...]] = (
    ("parts", "hello"),
    ("role", "ROLE_NOBODY"),
    ("messageId", {}),
    ("metadata", 7),
)
LOOKING_SECONDS: Final = 0.02


async def blocks(talk: Talk, agent: Occasions) -> None:
    task = await agent.task()
    require(state_of(task) in TERMINAL | INTERRUPTED, "a terminal or interrupted state", state_of(task))


async def blocks_when_told_so(talk: Talk, agent: Occasions) -> None:
    task = await agent.task(configuration={"returnImmediately": False})
    require(state_of(task) in TERMINAL | INTERRUPTED, "a terminal or interrupted state", state_of(task))


async def returns_the_latest_state(talk: Talk, agent: Occasions) -> None:
    task = await agent.completed()
    found = await agent.now(task)
    one, two = without_defaults(found), without_defaults(task)
    same = all(one.get(name) == two.get(name) for name in ("id", "contextId", "artifacts"))
    require(same and state_of(found) == state_of(task), f"what GetTask gives: {found}", task)


async def returns_immediately(talk: Talk, agent: Occasions) -> None:
    task = await agent.working()
    state = state_of(await agent.now(task))
    require(state not in TERMINAL, "a task that is at work", state)


async def does_not_return_early(talk: Talk, agent: Occasions) -> None:
    """What ends a blocking send of a task that works long is its cancelation."""
    beside = await agent.working()
    answered = anyio.Event()

    async def send() -> None:
        await talk.ask(SEND, agent.send(LONG, contextId=beside["contextId"]))
        answered.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(send)
        task_id = await _other_task(talk, beside)
        with anyio.move_on_after(talk.silence_seconds):
            await answered.wait()
        require(not answered.is_set(), "no answer while the task works", "an answer")
        await talk.result(CANCEL, {"id": task_id})
        await answered.wait()


async def _other_task(talk: Talk, beside: Mapping[str, Any]) -> str:
    """The id of another task in the same context, as soon as there is one."""
    while True:
        page = await talk.result(LIST, {"contextId": beside["contextId"]})
        others = [task["id"] for task in page.get("tasks") or () if task["id"] != beside["id"]]
        if others:
            return str(others[0])
        await anyio.sleep(LOOKING_SECONDS)


async def takes_nothing_for_ended_tasks(talk: Talk, agent: Occasions) -> None:
    task = await agent.ended()
    await talk.refused(Kind.UNSUPPORTED_OPERATION, SEND, agent.send(taskId=task["id"]))


async def takes_nothing_for_unknown_tasks(talk: Talk, agent: Occasions) -> None:
    await talk.refused(Kind.TASK_NOT_FOUND, SEND, agent.send(taskId=UNKNOWN_TASK))


async def requires_fields(talk: Talk, agent: Occasions) -> None:
    whole = agent.message()
    for name in ("messageId", "role", "parts"):
        message = {key: value for key, value in whole.items() if key != name}
        await _is_invalid(talk, {"message": message}, f"a message without {name}")
    await _is_invalid(talk, {"message": {**whole, "parts": []}}, "a message without parts")
    await _is_invalid(talk, {}, "no message")


async def validates(talk: Talk, agent: Occasions) -> None:
    for name, value in WRONG_FIELDS:
        await _is_invalid(talk, {"message": {**agent.message(), name: value}}, f"{name}: {value!r}")
    await _is_invalid(talk, {"message": agent.message(), "configuration": "fast"}, "configuration: 'fast'")


async def wants_one_content(talk: Talk, agent: Occasions) -> None:
    for part in ({"text": "a", "url": "https://example.com/a"}, {"mediaType": "text/plain"}, "a text"):
        await _is_invalid(talk, {"message": agent.message(parts=[part])}, f"the part {part}")


async def _is_invalid(talk: Talk, params: Any, what: str) -> None:
    reply = await talk.probe(talk.request(SEND, params))
    try:
        talk.require_refusal(reply, Fault.INVALID_PARAMS)
    except Failed as exc:
        raise Failed(f"{exc.expected} for {what}", exc.came) from None


async def knows_what_it_cannot_take(talk: Talk, agent: Occasions) -> None:
    modes = [*(talk.card.fields.get("defaultInputModes") or ())]
    modes += [mode for skill in talk.card.skills for mode in skill.get("inputModes") or ()]
    need(not any(mode.startswith(("*", "application/*")) for mode in modes), "the agent takes everything")
    message = agent.message()
    odd = {"raw": base64.b64encode(b"odd").decode(), "mediaType": ODD_MODE, "filename": "odd.bin"}
    params = {"message": {**message, "parts": [*message["parts"], odd]}}
    await talk.refused(Kind.CONTENT_TYPE_NOT_SUPPORTED, SEND, params)


async def names_whose_reason_it_is(talk: Talk, agent: Occasions) -> None:
    await talk.probe(talk.request(SEND, {"message": agent.message(parts="hello")}))
    for refusal in talk.heard.refusals:
        info = refusal.typed(ERROR_INFO) or {}
        fine = info.get("domain") != DOMAIN or info.get("reason") in A2A_REASONS
        require(
            fine, f"another domain than {DOMAIN} beside a reason that A2A does not define", refusal.shown()
        )


def _check(
    check_id: str, spec: str, sentence: str, run: Any, *needs: Need, level: Level = Level.MUST
) -> Check:
    return Check(check_id, Section.OPERATIONS, spec, level, sentence, run, needs)


CHECKS: Final = (
    _check(
        "send-blocks", "3.2.2", "SendMessage waits for a terminal or interrupted state", blocks, Need.TASK
    ),
    _check(
        "send-blocks-when-told",
        "3.2.2",
        "With returnImmediately false it waits, too",
        blocks_when_told_so,
        Need.TASK,
    ),
    _check(
        "send-waits-long",
        "3.2.2",
        "It does not answer while the task works",
        does_not_return_early,
        Need.LONG,
    ),
    _check(
        "send-latest-state",
        "3.2.2",
        "It answers with the latest state and all artifacts",
        returns_the_latest_state,
        Need.ARTIFACT,
    ),
    _check(
        "send-immediately",
        "3.2.2",
        "With returnImmediately it answers once the task is made",
        returns_immediately,
        Need.LONG,
    ),
    _check(
        "send-to-ended",
        "3.1.1",
        "A message to a task that has ended is UnsupportedOperation",
        takes_nothing_for_ended_tasks,
        Need.TASK,
    ),
    _check(
        "send-to-unknown",
        "3.4.2",
        "A message to a task that does not exist is TaskNotFound",
        takes_nothing_for_unknown_tasks,
    ),
    _check("send-validates", "3.3.2", "Parameters of the wrong type are refused", validates),
    _check(
        "error-domain",
        "9.5",
        "The domain of A2A stands beside reasons of A2A alone",
        names_whose_reason_it_is,
        level=Level.SHOULD,
    ),
    _check(
        "send-one-content",
        "4.1.6",
        "A part that has not exactly one of text, raw, url, data is refused",
        wants_one_content,
    ),
    _check(
        "send-required-fields",
        "5.7",
        "Messages without a required field are refused",
        requires_fields,
        level=Level.SHOULD,
    ),
    _check(
        "send-content-type",
        "3.1.1",
        "A media type that nothing here takes is ContentTypeNotSupported",
        knows_what_it_cannot_take,
        Need.SOME_MODES,
    ),
)
