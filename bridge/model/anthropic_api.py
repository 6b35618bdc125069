"""The Messages API of Anthropic: requests and answers as JSON. Pure.

Source: Anthropic API reference, "Messages", and "Tool use": tool_use and tool_result blocks, stop_reason, usage.
"""

from __future__ import annotations

from typing import Final

from pydantic import JsonValue

from bridge.model.dialogue import (
    Dialogue,
    ModelError,
    ModelReply,
    ToolUse,
    objects_in,
    tool_use,
    whole_number,
)
from bridge.text.jsonvalues import JsonObject

_VERSION: Final = "2023-06-01"
_COUNTS: Final = (
    "input_tokens",
    "output_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
)


def url_of(base: str) -> str:
    """The URL of requests."""
    return f"{base.removesuffix('/v1')}/v1/messages"


def headers_of(key: str | None) -> dict[str, str]:
    """The headers of requests."""
    return {"anthropic-version": _VERSION, **({} if key is None else {"x-api-key": key})}


def request_of(dialogue: Dialogue, model: str, answer_tokens: int, base: str) -> JsonObject:  # noqa: ARG001
    """The body of a request. `base` is there for the other API."""
    messages: list[JsonValue] = [{"role": "user", "content": dialogue.request}]
    for reply, outcome in dialogue.steps:
        use = outcome.use
        content: list[JsonValue] = [{"type": "text", "text": reply.words}] if reply.words else []
        content.append({"type": "tool_use", "id": use.id, "name": use.name, "input": use.arguments})
        result: JsonObject = {"type": "tool_result", "tool_use_id": use.id, "content": outcome.text}
        if outcome.is_error:
            result["is_error"] = True
        messages.append({"role": "assistant", "content": content})
        messages.append({"role": "user", "content": [result]})
    tools: list[JsonValue] = [
        {"name": tool.name, "description": tool.description, "input_schema": tool.schema}
        for tool in dialogue.tools
    ]
    choice: JsonObject = {"type": "auto", "disable_parallel_tool_use": True}
    return {
        "model": model,
        "system": dialogue.system,
        "messages": messages,
        "max_tokens": answer_tokens,
        "tools": tools,
        "tool_choice": choice if dialogue.may_call else {"type": "none"},
    }


def reply_from(answer: object) -> ModelReply:
    """The answer of a model.

    Raises:
        ModelError: it is no answer, or asks for a call that cannot be read.
    """
    if not isinstance(answer, dict) or not isinstance(answer.get("content"), list):
        raise ModelError("broken", "the answer has no content")
    words: list[str] = []
    uses: list[ToolUse] = []
    for index, block in enumerate(objects_in(answer["content"])):
        text = block.get("text")
        if block.get("type") == "text" and isinstance(text, str):
            words.append(text.strip())
        elif block.get("type") == "tool_use":
            uses.append(tool_use(block.get("id"), index, block.get("name"), block.get("input")))
    usage = answer.get("usage")
    counts = usage if isinstance(usage, dict) else {}
    tokens = sum(whole_number(counts.get(key)) for key in _COUNTS)
    is_cut = answer.get("stop_reason") in ("max_tokens", "refusal", "model_context_window_exceeded")
    return ModelReply("\n".join(filter(None, words)), tuple(uses), tokens or None, is_cut)
