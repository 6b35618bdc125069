"""The chat completions API of OpenAI, as other servers offer it, too: requests and answers as JSON. Pure.

Source: OpenAI API reference, "Create chat completion": tools, tool_calls, finish_reason, usage.
"""

from __future__ import annotations

import json
from typing import Final
from urllib.parse import urlsplit

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

_OWN_HOSTS: Final = ("openai.com", "azure.com")
"""The hosts whose newer models refuse `max_tokens`, the name that other servers know."""


def url_of(base: str) -> str:
    """The URL of requests."""
    return f"{base}/chat/completions"


def headers_of(key: str | None) -> dict[str, str]:
    """The headers of requests."""
    return {} if key is None else {"Authorization": f"Bearer {key}"}


def request_of(dialogue: Dialogue, model: str, answer_tokens: int, base: str) -> JsonObject:
    """The body of a request."""
    messages: list[JsonValue] = [
        {"role": "system", "content": dialogue.system},
        {"role": "user", "content": dialogue.request},
    ]
    for reply, outcome in dialogue.steps:
        use = outcome.use
        call = {"name": use.name, "arguments": json.dumps(use.arguments)}
        calls: list[JsonValue] = [{"id": use.id, "type": "function", "function": {**call}}]
        messages.append({"role": "assistant", "content": reply.words or None, "tool_calls": calls})
        messages.append({"role": "tool", "tool_call_id": use.id, "content": outcome.text})
    host = urlsplit(base).hostname or ""
    limit = "max_completion_tokens" if host.endswith(_OWN_HOSTS) else "max_tokens"
    tools: list[JsonValue] = [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": tool.schema},
        }
        for tool in dialogue.tools
    ]
    choice: JsonObject = {} if dialogue.may_call else {"tool_choice": "none"}
    return {"model": model, "messages": messages, limit: answer_tokens, "tools": tools, **choice}


def reply_from(answer: object) -> ModelReply:
    """The answer of a model.

    Raises:
        ModelError: it is no answer, or asks for a call that cannot be read.
    """
    choices = [*objects_in(answer.get("choices"))] if isinstance(answer, dict) else []
    message = choices[0].get("message") if choices else None
    if not isinstance(answer, dict) or not isinstance(message, dict):
        raise ModelError("broken", "the answer has no message")
    calls = message.get("tool_calls")
    uses = tuple(_use(call, index) for index, call in enumerate(objects_in(calls)))
    content = message.get("content")
    usage = answer.get("usage")
    counts = usage if isinstance(usage, dict) else {}
    tokens = whole_number(counts.get("total_tokens")) or sum(
        whole_number(counts.get(key)) for key in ("prompt_tokens", "completion_tokens")
    )
    return ModelReply(
        content.strip() if isinstance(content, str) else "",
        uses,
        tokens or None,
        choices[0].get("finish_reason") in ("length", "content_filter"),
    )


def _use(call: JsonObject, index: int) -> ToolUse:
    function = call.get("function")
    named = function if isinstance(function, dict) else {}
    return tool_use(call.get("id"), index, named.get("name"), named.get("arguments"))
