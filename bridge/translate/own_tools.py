"""The definitions of the bridge's own tools, and the arguments of tools that send a message. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bridge.text.jsonvalues import JsonObject

MESSAGE_FIELDS: Final[JsonObject] = {
    "message": {"type": "string", "description": "What to tell the agent, in words"},
    "data": {"type": "object", "description": "Structured data to go with the message"},
    "files": {
        "type": "array",
        "description": "Files to go with the message, each with either url or base64",
        "items": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "mediaType": {"type": "string", "description": "For example image/png"},
                "url": {"type": "string", "description": "Where the agent can get the file"},
                "base64": {"type": "string", "description": "The content itself"},
            },
        },
    },
    "context": {
        "type": "string",
        "description": "Continues an earlier conversation: the context that a result of this agent came with",
    },
}
AGENT_HINTS: Final[JsonObject] = {"openWorldHint": True}

_HANDLE: Final[JsonObject] = {"type": "string", "description": "The handle that an earlier result gave"}


def object_schema(fields: JsonObject, required: Sequence[str]) -> JsonObject:
    """The schema of an object with these fields and no others."""
    return {
        "type": "object",
        "properties": fields,
        "required": [*required],
        "additionalProperties": False,
    }


def follow_ups(longest_wait_seconds: int) -> tuple[JsonObject, ...]:
    """The follow-up tools, for clients without tasks or elicitation."""
    return (
        _own_tool(
            "task_result",
            "Asks for the result of an agent's task that was still running, or that asked something. Waits for it when"
            " it is not there yet.",
            {
                "handle": _HANDLE,
                "wait_seconds": {
                    "type": "integer",
                    "minimum": 0,
                    "maximum": longest_wait_seconds,
                    "description": "How long to wait for it",
                },
            },
            ["handle"],
            {"readOnlyHint": True},
        ),
        _own_tool(
            "task_reply",
            "Answers what an agent asked in the middle of its task. If the person does not want to answer, give"
            " `action` and no message.",
            {
                "handle": _HANDLE,
                "message": {"type": "string", "description": "The answer, in words. Needed without action"},
                "data": MESSAGE_FIELDS["data"],
                "action": {
                    "type": "string",
                    "enum": ["decline", "cancel"],
                    "description": "In place of an answer: the person declines, or cancels. Where the agent takes no"
                    " such answer, its task is canceled",
                },
            },
            ["handle"],
            {},
        ),
        _own_tool(
            "task_cancel",
            "Cancels an agent's task.",
            {"handle": _HANDLE},
            ["handle"],
            {"destructiveHint": True, "idempotentHint": True},
        ),
    )


def page_tool(name: str) -> JsonObject:
    """The tool that gives pages of long texts, for hosts whose models cannot read resources."""
    return _own_tool(
        name,
        "Gives more of a long text of which an earlier result gave the beginning and a link.",
        {
            "link": {"type": "string", "description": "The link that the earlier result gave"},
            "first_byte": {
                "type": "integer",
                "minimum": 0,
                "description": "Where to begin, as the earlier result says",
            },
        },
        ["link"],
        {"readOnlyHint": True},
    )


def search_tools(found_most: int) -> tuple[JsonObject, ...]:
    """The two tools that replace the skills when there are too many skills to list."""
    return (
        _own_tool(
            "find_skill",
            "Finds skills of the agents that can be reached here, each with the arguments that call_skill takes for"
            " it.",
            {
                "query": {"type": "string", "description": "Words that say what is to be done"},
                "limit": {"type": "integer", "minimum": 1, "maximum": found_most},
            },
            ["query"],
            {"readOnlyHint": True},
        ),
        _own_tool(
            "call_skill",
            "Calls a skill that find_skill found.",
            {
                "skill": {"type": "string", "description": "The skill, as find_skill names it"},
                "arguments": {"type": "object", "description": "As the skill's inputSchema says"},
            },
            ["skill"],
            {},
        ),
    )


def _own_tool(
    name: str, description: str, fields: JsonObject, required: Sequence[str], hints: JsonObject
) -> JsonObject:
    return {
        "name": name,
        "description": description,
        "inputSchema": object_schema(fields, required),
        "annotations": {**AGENT_HINTS, **hints},
    }
