"""The bridge's own questions to a client, in words and as data, and how the answers are read. Pure.

Spec: A2A 1.0 section 3.4.3 (input required).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from pydantic import JsonValue

from bridge.a2a.model.objects import Message, Part
from bridge.errors import echoed
from bridge.mcp.tools import Tool
from bridge.text.jsonvalues import JsonObject
from bridge.translate.arguments import (
    UNKNOWN_ARGUMENT,
    Problem,
    describe,
    form_for,
    resolved_properties,
    type_words,
)
from bridge.translate.extensions.bridge import ANSWER

if TYPE_CHECKING:  # an MCP server of agents understands no sentences
    from bridge.translate.message_to_call import UnclearCall

WHICH_SKILL: Final = "which-skill"
"""The key of the question which skill is meant."""
ARGUMENTS: Final = "arguments"
"""The key of the question that asks for missing or wrong arguments."""

_MAX_SKILLS: Final = 50
"""The most skills that a question describes in words, or with their schemas. The card has all skills."""

_MAX_HINT: Final = 200
"""The most characters of a description that a question repeats."""

_MAX_NAME: Final = 100
"""The most characters of an unknown name that are repeated."""

HELD_BACK: Final = (
    "Some skills of this agent are held back, because their definitions are new or have changed and its operator has"
    " not approved them."
)

_MAX_ECHO: Final = 10_000
"""The most characters of a given argument, as JSON, that are repeated in a question."""


class ElicitAction(StrEnum):
    """A client's reaction to a question."""

    ACCEPT = "accept"
    DECLINE = "decline"
    CANCEL = "cancel"


def ask_which_skill(
    unclear: UnclearCall, skills: Mapping[str, Tool], *, holds_back: bool = False
) -> tuple[Part, ...]:
    """The parts that ask for the skill: in words, and as data with the skills and their schemas. `holds_back` says that
    some skills are not offered because their definitions are not approved."""
    lines = [f"- {skill_id}: {_first_line(tool)}" for skill_id, tool in list(skills.items())[:_MAX_SKILLS]]
    if len(skills) > _MAX_SKILLS:
        lines.append(f"- and {len(skills) - _MAX_SKILLS} more, in the agent card")
    how = (
        'Answer with a data part {"skill": "...", "arguments": {...}}, or in text: '
        "skill name, then key=value pairs or a JSON object."
    )
    if not skills:
        lines, how = ["This agent has no skills at the moment."], ""
    described: list[JsonValue] = [
        {"id": skill_id, "description": _first_line(tool), **_schema_if(len(skills) <= _MAX_SKILLS, tool)}
        for skill_id, tool in skills.items()
    ]
    data: JsonObject = {
        "key": WHICH_SKILL,
        "skills": described,
        "example": {"skill": next(iter(skills), ""), "arguments": {}},
    }
    text = "\n".join(filter(None, [_lead(unclear), HELD_BACK if holds_back else "", *lines, how]))
    return Part(text=text), Part(data=data, media_type="application/json")


def arguments(
    skill_id: str, tool: Tool, known: JsonObject, problems: Sequence[Problem], *, is_said: bool = False
) -> tuple[Part, ...]:
    """The parts that ask for missing or wrong arguments: in words, and as data with a form. With `is_said`, a person
    named the skill in a sentence, and gets questions in words."""
    unknown = [problem.name for problem in problems if problem.message == UNKNOWN_ARGUMENT]
    needed = [problem for problem in problems if problem.message != UNKNOWN_ARGUMENT]
    lines = (
        [_question_for(skill_id, tool, problem, known) for problem in needed]
        if is_said
        else [f"To run {skill_id} I need:", *(f"- {describe(tool, problem)}" for problem in needed)]
        if needed
        else []
    )
    if unknown:
        names = ", ".join(map(echoed, unknown))
        without = "it" if len(unknown) == 1 else "them"
        lines.append(f"{skill_id} has no argument {names}. Your answer runs it without {without}.")
    text = "\n".join(lines)
    data: JsonObject = {
        "key": ARGUMENTS,
        "skill": skill_id,
        "schema": form_for(tool, problems),
        "errors": [{"property": problem.name, "message": problem.message} for problem in problems],
        "arguments": {name: value for name, value in known.items() if len(json.dumps(value)) <= _MAX_ECHO},
    }
    return Part(text=text), Part(data=data, media_type="application/json")


def _question_for(skill_id: str, tool: Tool, problem: Problem, known: JsonObject) -> str:
    """The question for one argument, in words."""
    schema = resolved_properties(tool.input_schema).get(problem.name)
    if schema is None or problem.name in known:
        return f"To run {skill_id} I need: {describe(tool, problem)}"
    title, description = schema.get("title"), schema.get("description")
    spelled = re.sub(r"[_\W]+|(?<=[a-z])(?=[A-Z])", " ", problem.name).strip().lower() or problem.name
    name = title.lower() if isinstance(title, str) and title else spelled
    is_amount = schema.get("type") in ("number", "integer") and name.endswith("s")
    question = f"How many {name}?" if is_amount else f"What is the {name}?"
    hint = description.strip().partition("\n")[0] if isinstance(description, str) else ""
    choices = type_words(schema, tool.input_schema)
    hints = [hint[:_MAX_HINT], *([choices] if choices.startswith("one of ") else [])]
    joined_hints = "; ".join(filter(None, hints))
    return f"{question} ({joined_hints})" if joined_hints else question


def action_of_message(message: Message, fields: frozenset[str]) -> ElicitAction:
    """Whether a message accepts, declines or cancels. `fields` are the names that the question asked for.

    A refusal is never guessed from words. It has to be in the metadata, or be data of the exact shape `{"action": ...}`
    when no field has that name.
    """
    action = (message.metadata or {}).get(ANSWER)
    if action is None and "action" not in fields:
        for part in message.parts:
            if part.kind == "data" and isinstance(part.data, dict) and set(part.data) == {"action"}:
                action = part.data["action"]
    return (
        ElicitAction(action)
        if isinstance(action, str) and action in set(ElicitAction)
        else ElicitAction.ACCEPT
    )


def _lead(unclear: UnclearCall) -> str:
    if unclear.several:
        named = ", ".join(skill_id[:_MAX_NAME] for skill_id in unclear.several[:_MAX_SKILLS])
        return f"The message asks for more than one call ({named}). Which one do you mean?"
    if len(unclear.fitting) > 1:
        named = ", ".join(skill_id[:_MAX_NAME] for skill_id in unclear.fitting[:_MAX_SKILLS])
        return f"The sentence fits more than one skill ({named}). Which one do you mean?"
    if unclear.fitting:
        named = unclear.fitting[0][:_MAX_NAME]
        return (
            f"The sentence may mean {named}, but it is not clear with which values. Which skill do you mean?"
        )
    if unclear.named is not None:
        return f"There is no skill {unclear.named[:_MAX_NAME]!r}."
    return "Which skill do you mean?"


def _schema_if(few: bool, tool: Tool) -> JsonObject:
    return {"inputSchema": tool.input_schema} if few else {}


def _first_line(tool: Tool) -> str:
    text = tool.text("description") or tool.text("title") or tool.name
    return text.strip().partition("\n")[0][:200]
