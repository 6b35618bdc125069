"""A model for the frameworks: an endpoint for chat completions on loopback that answers without any thinking.

It does what the last message of the user says: `fail` is an error, `wait` no answer, `recall` gives back all that
the user has said, `ask` calls a tool that asks a person, where there is one, and anything else gives back what is in
the message. Whatever is no text is given back as JSON, but for the text of a file in base64, which is decoded. A
message `delegate NAME {...}` calls the tool NAME with these arguments, and what the tool gave is the answer: so a
framework's own agent calls another.
"""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import AsyncIterator
from typing import Any, Final
from urllib.parse import unquote

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

FAILS_WITH: Final = "Out of paper"
BEFORE: Final = "Current Task:"
"""What CrewAI puts before the words of a task."""
ASKS: Final = "Which colour?"
_BASE64: Final = re.compile(r"(?:;base64,|\"file_data\": \")([A-Za-z0-9+/=]{4,})")
_DELEGATE: Final = re.compile(r"delegate (\w+) (\{.*\})", re.DOTALL)
Json = dict[str, Any]


async def completions(request: Request) -> Response:
    """POST /v1/chat/completions"""
    asked = await request.json()
    said = [words_of(message) for message in asked["messages"] if message["role"] == "user"]
    last = asked["messages"][-1]
    words = said[-1].strip().removeprefix(BEFORE).strip() if said else ""
    tools = [tool["function"]["name"] for tool in asked.get("tools") or ()]
    if last["role"] == "tool":
        return _answered(asked, {"content": words_of(last)})
    if words.startswith("fail"):
        error = {"message": FAILS_WITH, "type": "invalid_request_error", "code": "out_of_paper"}
        return JSONResponse({"error": error}, 400)
    if words.startswith("wait"):
        while (await request.receive())["type"] != "http.disconnect":
            pass
        return Response(status_code=503)
    if words.startswith("recall"):
        return _answered(asked, _in_words(" | ".join(said), tools))
    if words.startswith("ask") and "ask_person" in tools:
        return _answered(
            asked, {"content": None, "tool_calls": [_call("ask_person", json.dumps({"question": ASKS}))]}
        )
    if (wanted := _DELEGATE.search(words)) and tools:
        return _answered(asked, {"content": None, "tool_calls": [_call(*wanted.groups())]})
    return _answered(asked, _in_words(f"You said: {words}", tools))


def words_of(message: Json) -> str:
    """All that is in a message, as text."""
    content = message.get("content")
    if content is None or isinstance(content, str):
        return _decoded(content or "")
    return "\n".join(
        part["text"] if part.get("type") == "text" else _decoded(json.dumps(part)) for part in content
    )


def _decoded(text: str) -> str:
    found = [base64.b64decode(one + "=" * (-len(one) % 4)) for one in _BASE64.findall(text)]
    return " ".join([unquote(text), *(content.decode(errors="replace") for content in found)])


def _in_words(words: str, tools: list[str]) -> Json:
    """The answer, by the tool that BeeAI takes an answer from where there is one."""
    if "final_answer" in tools:
        return {"content": None, "tool_calls": [_call("final_answer", json.dumps({"response": words}))]}
    return {"content": words}


def _call(name: str, arguments: str) -> Json:
    return {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}


def _answered(asked: Json, message: Json) -> Response:
    ends = "tool_calls" if message.get("tool_calls") else "stop"
    head = {"id": "chatcmpl-1", "created": int(time.time()), "model": asked.get("model", "stub")}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    if asked.get("stream"):
        return StreamingResponse(_chunks(head, message, ends, usage), media_type="text/event-stream")
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": ends}
    return JSONResponse({**head, "object": "chat.completion", "choices": [choice], "usage": usage})


async def _chunks(head: Json, message: Json, ends: str, usage: Json) -> AsyncIterator[str]:
    """The answer word by word."""
    calls = [{"index": number, **call} for number, call in enumerate(message.get("tool_calls", ()))]
    words = re.findall(r"\S+\s*|\s+", message["content"] or "")
    deltas: list[Json] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": word} for word in words] + ([{"tool_calls": calls}] if calls else [])
    choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": ends})
    for choice in choices:
        yield _event({**head, "object": "chat.completion.chunk", "choices": [choice]})
    yield _event({**head, "object": "chat.completion.chunk", "choices": [], "usage": usage})
    yield "data: [DONE]\n\n"


def _event(chunk: Json) -> str:
    return f"data: {json.dumps(chunk)}\n\n"


def build_app() -> Starlette:
    """The endpoint."""
    return Starlette(routes=[Route("/v1/chat/completions", completions, methods=["POST"])])
