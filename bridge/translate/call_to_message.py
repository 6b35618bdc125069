"""Turns the arguments of a tool call into a message to an agent. Pure. The other direction is `message_to_call.py`.

Spec: A2A 1.0 sections 4.1.4 (Message) and 3.4.1 (contexts).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from pydantic import JsonValue, ValidationError

from bridge.a2a.model.objects import Message, Part, Role
from bridge.errors import CallerError
from bridge.mcp.tools import Tool, tools_from
from bridge.text.jsonvalues import JsonObject, is_deeper
from bridge.translate.arguments import describe, problems_of, without_nulls
from bridge.translate.content import MAX_DATA_DEPTH
from bridge.translate.extensions.bridge import SKILL, URI
from bridge.translate.files import standard_base64
from bridge.translate.own_questions import ElicitAction
from bridge.translate.own_tools import follow_ups
from bridge.translate.skill_tools import AgentTool

_FOREIGN_SKILL: Final = "skillId"
"""The metadata key by which most agents without the extension find the skill."""
_JSON: Final = "application/json"
_REPLY: Final = next(tool for tool in follow_ups(1) if tool["name"] == "task_reply")


class BadArgumentsError(CallerError):
    """The arguments do not fit the tool's schema. The error's message names the faults."""


@dataclass(frozen=True, slots=True)
class MessageIds:
    """The conversation and task that a message belongs to."""

    message_id: str
    context_id: str | None = None
    task_id: str | None = None
    reference_task_ids: tuple[str, ...] = ()


def message_from_call(
    tool: AgentTool, arguments: JsonObject, conversation: MessageIds, *, skill_in_text: bool = False
) -> Message:
    """The message for a call. With `skill_in_text`, the text also names the skill, for agents that read only text.

    The arguments of an original tool are not checked here: the tool's own server checks them.

    Raises:
        BadArgumentsError: no message can be made from the arguments.
    """
    if tool.original is not None:
        data: JsonObject = {"skill": tool.skill_id, "arguments": arguments}
        message = _message([Part(data=data, media_type=_JSON)], conversation, {SKILL: tool.skill_id})
        return message.changed(extensions=(URI,))
    arguments = without_nulls(_checker(tool), arguments)
    _require_fitting(_checker(tool), arguments)
    chosen = tool.skill_id or arguments.get("skill")
    text = str(arguments["message"])
    if chosen is not None and skill_in_text:
        text = f"{text}\n\n(Skill: {chosen})"
    parts = [Part(text=text), *_data_parts(arguments), *_file_parts(arguments)]
    return _message(parts, conversation, skill_metadata(chosen))


def message_from_reply(
    arguments: JsonObject, conversation: MessageIds, skill_id: str | None = None
) -> Message:
    """The message for a call of task_reply. `skill_id` is the skill that the answer is for; the data cannot name
    another.

    Raises:
        BadArgumentsError: the arguments are not as its schema asks.
    """
    _require_fitting(_reply_tool(), arguments)
    if "message" not in arguments:
        raise BadArgumentsError("message: it is missing, and there is no action: what is the answer?")
    return _message(
        [Part(text=str(arguments["message"])), *_data_parts(arguments)],
        conversation,
        skill_metadata(skill_id),
    )


def refusal_in_reply(arguments: JsonObject, fields: frozenset[str]) -> str | None:
    """The no in the arguments of task_reply: its `action`, or data of exactly that shape when the question has no field
    of this name. `fields` are the names that the question asked for. None for an answer.

    Raises:
        BadArgumentsError: the arguments are not as its schema asks.
    """
    _require_fitting(_reply_tool(), arguments)
    action, data = arguments.get("action"), arguments.get("data")
    if action is None and isinstance(data, dict) and data.keys() == {"action"} and "action" not in fields:
        action = data["action"]
    return action if action in (ElicitAction.DECLINE, ElicitAction.CANCEL) else None


def context_in(arguments: JsonObject) -> str | None:
    """The sealed context that a call continues; None when it is absent or blank, which begins a new context."""
    context = arguments.get("context")
    return context.strip() or None if isinstance(context, str) else None


def arguments_in_words(arguments: JsonObject, otherwise: str = "") -> str:
    """Arguments as text, for agents that read only text: the value of a single one, else a line for each."""
    if len(arguments) == 1:
        return "".join(_value_in_words(value) for value in arguments.values())
    lines = [f"{name}: {_value_in_words(value)}" for name, value in arguments.items()]
    return "\n".join(lines) or otherwise


def _value_in_words(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def skill_metadata(skill_id: JsonValue) -> JsonObject:
    """The metadata that names a skill, under the extension's key and under the common one."""
    return {} if skill_id is None else {SKILL: skill_id, _FOREIGN_SKILL: skill_id}


def _message(parts: Sequence[Part], conversation: MessageIds, metadata: JsonObject) -> Message:
    return Message(
        message_id=conversation.message_id,
        role=Role.USER,
        parts=tuple(parts),
        context_id=conversation.context_id,
        task_id=conversation.task_id,
        reference_task_ids=conversation.reference_task_ids or None,
        metadata=metadata or None,
    )


@lru_cache(maxsize=512)
def _checker(tool: AgentTool) -> Tool:
    """The tool with the agent's own schema: the schema that hosts see may lack arguments that rules fill in."""
    return tools_from([{**tool.listed, "inputSchema": tool.input_schema}])[0][0]


@lru_cache(maxsize=1)
def _reply_tool() -> Tool:
    return tools_from([_REPLY])[0][0]


def _require_fitting(tool: Tool, arguments: JsonObject) -> None:
    problems = problems_of(tool, arguments)
    if problems:
        faults = "; ".join(describe(tool, problem) for problem in problems)
        raise BadArgumentsError(f"The arguments do not fit the schema of {tool.name}: {faults}")


def _data_parts(arguments: JsonObject) -> list[Part]:
    if "data" not in arguments:
        return []
    if is_deeper(arguments["data"], MAX_DATA_DEPTH):
        raise BadArgumentsError(
            f"data is nested deeper than {MAX_DATA_DEPTH} levels, which agents do not read"
        )
    return [Part(data=arguments["data"], media_type=_JSON)]


def _file_parts(arguments: JsonObject) -> list[Part]:
    files = arguments.get("files")
    return [_file_part(file, place) for place, file in enumerate(files if isinstance(files, list) else [])]


def _file_part(file: JsonValue, place: int) -> Part:
    assert isinstance(file, dict)  # as the schema says
    url, content = _text(file, "url"), _text(file, "base64")
    if (url is None) == (content is None):
        raise BadArgumentsError(f"files[{place}] needs either url or base64, and not both")
    if url is not None and not _may_go_out(url):
        raise BadArgumentsError(
            f"files[{place}].url is not a URL that an agent could open: give base64 instead"
        )
    try:
        return Part(
            url=url,
            raw=None if content is None else standard_base64("".join(content.split())),
            filename=_text(file, "name"),
            media_type=_text(file, "mediaType"),
        )
    except ValidationError as exc:
        raise BadArgumentsError(f"files[{place}].base64 is not base64") from exc


def _may_go_out(url: str) -> bool:
    try:
        return urlsplit(url).scheme not in ("", "file")
    except ValueError:
        return False


def _text(file: JsonObject, key: str) -> str | None:
    value = file.get(key)
    return value if isinstance(value, str) and value else None
