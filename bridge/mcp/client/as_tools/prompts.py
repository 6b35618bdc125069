"""A prompt as a tool: its arguments are the schema, and its messages are the result. Pure, but for the request.

Spec: MCP 2026-07-28 server/prompts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from pydantic import JsonValue

from bridge.mcp.tools import MESSAGE_META, CallOfStandIn
from bridge.text.jsonvalues import JsonObject

PREFIX: Final = "prompt:"
"""What the name of a prompt's tool begins with."""
_KEPT: Final = ("title", "description", "icons", "_meta")
"""The fields that a prompt and a tool share."""


@dataclass(frozen=True, slots=True)
class PromptStandIn:
    """Stands for one prompt. Implements `StandIn`."""

    entry: JsonObject
    """The prompt as its server lists it."""
    kind: Literal["prompts"] = "prompts"
    method: str = "prompts/get"

    async def result(self, call: CallOfStandIn) -> JsonObject:
        """The prompt with these arguments, as the result of a tool."""
        params: JsonObject = {"name": self.entry["name"], **call.rounds}
        if call.arguments:
            params["arguments"] = call.arguments
        return result_of_messages(await call.ask(self.method, params))


def listed_prompt(entry: JsonObject) -> JsonObject:
    """The tool for a prompt, as tools/list would show it.

    Raises:
        ValueError: an argument has no name.
    """
    properties: JsonObject = {}
    required: list[JsonValue] = []
    arguments = entry.get("arguments")
    for argument in arguments if isinstance(arguments, list) else ():
        name = argument.get("name") if isinstance(argument, dict) else None
        if not isinstance(argument, dict) or not isinstance(name, str) or not name:
            raise ValueError("an argument of it has no name")
        words = {key: argument[key] for key in ("title", "description") if isinstance(argument.get(key), str)}
        properties[name] = {"type": "string", **words}
        if argument.get("required") is True:
            required.append(name)
    return {
        "name": f"{PREFIX}{entry['name']}",
        **{key: entry[key] for key in _KEPT if key in entry},
        "inputSchema": {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        },
        "annotations": {"readOnlyHint": True},
    }


def result_of_messages(answer: JsonObject) -> JsonObject:
    """The answer of prompts/get as the result of a tool: the content of each message, in order. The other fields of a
    message, such as its role, stand in `_meta` of its blocks. An answer without messages is returned as it is."""
    messages = answer.get("messages")
    if not isinstance(messages, list):
        return answer
    content = [block for message in messages for block in _blocks_of(message)]
    return {**{key: value for key, value in answer.items() if key != "messages"}, "content": content}


def _blocks_of(message: JsonValue) -> list[JsonValue]:
    if not isinstance(message, dict) or "content" not in message:
        return [message]
    content = message["content"]
    about = {key: value for key, value in message.items() if key != "content"}
    return [_about(block, about) for block in (content if isinstance(content, list) else [content])]


def _about(block: JsonValue, message: JsonObject) -> JsonValue:
    if not isinstance(block, dict):
        return block
    meta = block.get("_meta")
    return {**block, "_meta": {**(meta if isinstance(meta, dict) else {}), MESSAGE_META: message}}
