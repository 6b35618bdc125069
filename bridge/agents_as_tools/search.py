"""The two tools that stand for all skills where those would be too many to list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from bridge.errors import echoed
from bridge.jsonvalues import JsonObject
from bridge.mcp.server.face import IncomingCall
from bridge.translate.call_to_message import BadArgumentsError
from bridge.translate.skill_tools import AgentTool, find_skills, found_as_text

_FOUND: Final = 10
"""Skills that find_skill gives unless it is asked for another number."""


def found_skills(incoming: IncomingCall, tools: Sequence[AgentTool], most: int) -> JsonObject:
    """What find_skill answers.

    Raises:
        BadArgumentsError: the arguments are not as its schema asks.
    """
    query, limit = incoming.arguments.get("query", ""), incoming.arguments.get("limit", _FOUND)
    if not isinstance(query, str) or not isinstance(limit, int):
        raise BadArgumentsError("query: what the skill should do, in words; limit: a number")
    found = find_skills([tool for tool in tools if incoming.may_use(tool.name)], query, limit, most)
    structured: JsonObject = {"skills": [tool.listed for tool in found]}
    words = found_as_text(found) if found else "No skill was found."
    return {"content": [{"type": "text", "text": words}], "structuredContent": structured}


def call_of_skill(incoming: IncomingCall, tools: Sequence[AgentTool]) -> IncomingCall:
    """The call that call_skill stands for.

    Raises:
        BadArgumentsError: the arguments are not as its schema asks, or there is no such skill.
    """
    name, given = incoming.arguments.get("skill"), incoming.arguments.get("arguments", {})
    if not isinstance(name, str) or not isinstance(given, dict):
        raise BadArgumentsError("skill: the name of one that find_skill gave; arguments: an object")
    if not any(tool.name == name for tool in tools) or not incoming.may_use(name):
        raise BadArgumentsError(f"There is no skill {echoed(name)!r}; find_skill gives their names")
    return replace(incoming, name=name, arguments=given)
