"""Checks of the JSON itself: of all that the agent has said over a binding in the checks before these.

Spec: A2A 1.0 sections 4, 5.5, 5.6, 5.7.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tests.a2a_checks.bindings import GET, SEND
from tests.a2a_checks.occasions import Occasions
from tests.a2a_checks.shapes import LIST_RESPONSE, MILLISECONDS, TASK, Aspect, Shape, flaws_in
from tests.a2a_checks.table import Check, Level, Need, Section, need, require
from tests.a2a_checks.talk import Talk

WORDS: Final = "h\u00e9llo \u4e16\u754c \U0001f30d \u2028 \u0085"
"""Letters of every length in UTF-8, and two line ends of Unicode that are none in JSON or in events."""


async def _has_none(talk: Talk, agent: Occasions, *aspects: Aspect) -> None:
    (await talk.ask(SEND, agent.send())).value()
    flaws = [
        flaw
        for shape, value in talk.heard.values
        for flaw in flaws_in(value, shape)
        if flaw.aspect in aspects
    ]
    first = dict.fromkeys(str(flaw) for flaw in flaws)
    require(not flaws, "no fault", "; ".join(list(first)[:5]))


async def has_required_fields(talk: Talk, agent: Occasions) -> None:
    await _has_none(talk, agent, Aspect.REQUIRED)


async def has_the_types(talk: Talk, agent: Occasions) -> None:
    await _has_none(talk, agent, Aspect.TYPE)


async def has_camel_case(talk: Talk, agent: Occasions) -> None:
    await _has_none(talk, agent, Aspect.NAME)


async def has_the_protos_names(talk: Talk, agent: Occasions) -> None:
    await _has_none(talk, agent, Aspect.ENUM)


async def has_utc_times(talk: Talk, agent: Occasions) -> None:
    await _has_none(talk, agent, Aspect.TIME)


async def has_one_content(talk: Talk, agent: Occasions) -> None:
    await _has_none(talk, agent, Aspect.CHOICE)


async def has_base64(talk: Talk, agent: Occasions) -> None:
    await _has_none(talk, agent, Aspect.BASE64)


async def has_milliseconds(talk: Talk, agent: Occasions) -> None:
    (await talk.ask(SEND, agent.send())).value()
    times = [time for _, value in talk.heard.values for time in _times_in(value)]
    need(bool(times), "no timestamps have come")
    odd = [time for time in times if not MILLISECONDS.fullmatch(str(time))]
    require(not odd, "YYYY-MM-DDTHH:mm:ss.sssZ", odd[:3])


def _times_in(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for one in value:
            yield from _times_in(one)
    elif isinstance(value, dict):
        if isinstance(status := value.get("status"), dict) and "timestamp" in status:
            yield status["timestamp"]
        for name in ("task", "statusUpdate", "tasks"):
            yield from _times_in(value.get(name))


async def passes_unknown_fields_over(talk: Talk, agent: Occasions) -> None:
    params = agent.send(a2aChecksField={"of": ["no", 1]}, configuration={"a2aChecksField": True})
    first, *others = params["message"]["parts"]
    params["message"]["parts"] = [{**first, "a2aChecksField": None}, *others]
    (await talk.ask(SEND, {**params, "a2aChecksField": "x"})).value()


async def passes_nulls_over(talk: Talk, agent: Occasions) -> None:
    message = {**agent.message(), "contextId": None, "extensions": None}
    (await talk.ask(SEND, {"message": message, "configuration": None, "metadata": None})).value()


async def passes_empty_ids_over(talk: Talk, agent: Occasions) -> None:
    result = (await talk.ask(SEND, agent.send(contextId="", taskId=""))).value()
    inner = result.get("task") or result.get("message") or {}
    require(bool(inner.get("contextId")), "a context of the agent's", inner)


async def has_ids_of_their_own(talk: Talk, agent: Occasions) -> None:
    task = await agent.completed()
    for shape, value in [*talk.heard.values, (TASK, task)]:
        for task in _tasks_in(shape, value):
            ids = [artifact.get("artifactId") for artifact in task.get("artifacts") or ()]
            require(len(ids) == len(set(ids)), "an artifactId of its own for each artifact", ids)


async def names_the_context(talk: Talk, agent: Occasions) -> None:
    if not list(_said_by(talk)):
        await agent.asking()
    for message in _said_by(talk):
        require(bool(message.get("contextId")), "contextId in each message of the agent", message)


def _tasks_in(shape: Shape, value: Any) -> list[dict[str, Any]]:
    if shape is TASK:
        return [value]
    found = value.get("tasks") if shape is LIST_RESPONSE else [value.get("task")]
    return [task for task in found or () if isinstance(task, dict)]


def _said_by(talk: Talk) -> Iterator[dict[str, Any]]:
    for shape, value in talk.heard.values:
        yield from _said_in(shape, value)


def _said_in(shape: Shape, value: Any) -> Iterator[dict[str, Any]]:
    """The agent's own messages in a result: in the place of a task, in statuses, and in history."""
    said: list[Any] = [value.get("message")] if shape is not TASK else []
    for one in [*_tasks_in(shape, value), value.get("statusUpdate") or {}]:
        said += [(one.get("status") or {}).get("message"), *(one.get("history") or ())]
    yield from (one for one in said if isinstance(one, dict) and one.get("role") == "ROLE_AGENT")


async def keeps_its_letters(talk: Talk, agent: Occasions) -> None:
    params = agent.send()
    params["message"]["metadata"] = {**params["message"].get("metadata", {}), "a2a-checks": WORDS}
    task = (await talk.result(SEND, params)).get("task")
    need(isinstance(task, dict), "the answer is a Message")
    found = await talk.result(GET, {"id": task["id"]})
    said = [
        one for one in found.get("history") or () if one.get("messageId") == params["message"]["messageId"]
    ]
    need(bool(said), "the task's history does not show the message")
    kept = (said[0].get("metadata") or {}).get("a2a-checks")
    require(kept == WORDS, repr(WORDS), kept)


def _check(
    check_id: str, spec: str, sentence: str, run: Any, *needs: Need, level: Level = Level.MUST
) -> Check:
    return Check(check_id, Section.JSON, spec, level, sentence, run, needs)


CHECKS: Final = (
    _check(
        "json-required",
        "5.7",
        "Every required field is there, and no required array is empty",
        has_required_fields,
    ),
    _check("json-types", "4", "Fields have the types of the proto", has_the_types),
    _check("json-camel-case", "5.5", "Fields are in camelCase", has_camel_case),
    _check("json-enums", "5.5", "Enum values are the proto's names", has_the_protos_names),
    _check("json-times", "5.6.1", "Timestamps are ISO 8601 in UTC with Z", has_utc_times),
    _check(
        "json-milliseconds",
        "5.6.1",
        "Timestamps have milliseconds",
        has_milliseconds,
        Need.TASK,
        level=Level.SHOULD,
    ),
    _check("json-one-of", "4.1.6", "A part is exactly one of text, raw, url and data", has_one_content),
    _check("json-base64", "4.1.6", "Bytes are base64", has_base64),
    _check(
        "json-unknown-fields",
        "5.7",
        "Fields that the agent does not know are passed over",
        passes_unknown_fields_over,
        level=Level.SHOULD,
    ),
    _check(
        "json-utf8", "14.1.1", "Letters come back as they were sent, in UTF-8", keeps_its_letters, Need.TASK
    ),
    _check(
        "json-null",
        "5.5",
        "A field that is null is one that is absent, as in ProtoJSON",
        passes_nulls_over,
        level=Level.SHOULD,
    ),
    _check(
        "json-empty-ids",
        "5.5",
        "An empty taskId or contextId is none, as in ProtoJSON",
        passes_empty_ids_over,
        level=Level.SHOULD,
    ),
    _check(
        "json-artifact-ids",
        "4.1.7",
        "Each artifact of a task has an id of its own",
        has_ids_of_their_own,
        Need.ARTIFACT,
    ),
    _check(
        "json-agent-context",
        "4.1.4",
        "Messages of the agent name their context",
        names_the_context,
        Need.ASKS,
    ),
)
