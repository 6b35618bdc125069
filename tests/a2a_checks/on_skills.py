"""Checks of how a message calls a skill, and of the form that its result comes in.

The specification leaves to the agent how words call a skill. What is checked is what can be counted on with any such
words: they count among those of others; two calls at once are none; a result comes in the form that is accepted.

Spec: A2A 1.0 sections 3.2.2 and 4.1.4.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from tests.a2a_checks.occasions import CALLS, CALLS_ANOTHER, GIVES_DATA, Occasions
from tests.a2a_checks.table import Check, Level, Need, Section, need, require
from tests.a2a_checks.talk import Talk, state_of

OTHERS_WORDS: Final = (
    {"text": "For context: below is a transcript of what another agent did."},
    {"text": "[root] called tool `transfer_to_agent` with parameters:\n{'agent_name': 'tools'}"},
)
"""As google-adk 2.13.0 sends them beside a person's words, a text part each."""
_CONTENTS: Final = ("text", "raw", "url", "data")
_ACCEPTS_JSON: Final = {"acceptedOutputModes": ["application/json"]}


async def runs_what_one_text_calls(talk: Talk, agent: Occasions) -> None:
    first, second = [_contents_of(await agent.completing(CALLS)) for _ in range(2)]
    always = [content for content in first if content in second]
    need(bool(always), "the same call gives another result each time")
    before, after = OTHERS_WORDS
    among = await agent.task(CALLS, parts=[before, *agent.message(CALLS)["parts"], after])
    said = _contents_of(among)
    require(all(content in said for content in always), f"{always}, as without others' words", said or among)


async def asks_which_call_is_meant(talk: Talk, agent: Occasions) -> None:
    parts: list[Mapping[str, Any]] = []
    for purpose in (CALLS, CALLS_ANOTHER):
        await agent.completing(purpose)
        parts += agent.message(purpose)["parts"]
    task = await agent.task(CALLS, parts=parts)
    require(state_of(task) == "TASK_STATE_INPUT_REQUIRED", "a question which call is meant", state_of(task))


async def says_a_result_once(talk: Talk, agent: Occasions) -> None:
    said = _values_in(_contents_of(await agent.completing(GIVES_DATA)))
    need(bool(said), "its result holds no JSON, neither as a text nor as data")
    again = [value for number, value in enumerate(said) if value in said[:number]]
    require(not again, "each value once, as a text or as data", f"twice: {again}")


async def gives_data_where_json_is_accepted(talk: Talk, agent: Occasions) -> None:
    said = _values_in(_contents_of(await agent.completing(GIVES_DATA)))
    need(bool(said), "its result holds no JSON, neither as a text nor as data")
    contents = _contents_of(await agent.task(GIVES_DATA, configuration=_ACCEPTS_JSON))
    data = [content["data"] for content in contents if "data" in content]
    require(all(value in data for value in said), f"{said} as data", contents)
    require(_values_in(contents) == data, "no text that says the data again", contents)


def _contents_of(task: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The contents of all parts of a task's artifacts, without what is said of them."""
    parts = (part for artifact in task.get("artifacts") or () for part in artifact["parts"])
    return [{name: part[name] for name in _CONTENTS if name in part} for part in parts]


def _values_in(contents: list[dict[str, Any]]) -> list[Any]:
    """The JSON objects and arrays that they say, as data or as a text."""
    values = (one["data"] if "data" in one else _json(one.get("text", "")) for one in contents)
    return [value for value in values if isinstance(value, dict | list)]


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _check(check_id: str, spec: str, sentence: str, run: Any, *needs: Need) -> Check:
    return Check(check_id, Section.SKILLS, spec, Level.SHOULD, sentence, run, needs)


CHECKS: Final = (
    _check(
        "skill-among-texts",
        "4.1.4",
        "A text part that calls a skill does so among the text parts of others",
        runs_what_one_text_calls,
        Need.CALLS,
    ),
    _check(
        "skill-two-calls",
        "4.1.4",
        "A message whose text parts call two skills is asked about",
        asks_which_call_is_meant,
        Need.CALLS,
        Need.CALLS_ANOTHER,
    ),
    _check(
        "output-once",
        "3.2.2",
        "Where no output mode is named, a result comes as a text or as data, and not as both",
        says_a_result_once,
        Need.GIVES_DATA,
    ),
    _check(
        "output-json",
        "3.2.2",
        "With acceptedOutputModes of application/json alone, a result comes as data",
        gives_data_where_json_is_accepted,
        Need.GIVES_DATA,
    ),
)
