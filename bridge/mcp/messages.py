"""The wire of MCP that both sides share: names of methods and extensions, and messages as lines of stdio.

A line above the limit is not kept whole. It may be the answer to a call, so its first and its last bytes are kept: one
of them holds the id.

Spec: MCP 2026-07-28 basic/transports (stdio)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Literal

from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from pydantic_core import PydanticSerializationError

from bridge.jsonvalues import JsonObject

ELICIT: Final[Literal["elicitation/create"]] = "elicitation/create"
"""The server asks the user something (client/elicitation)."""

TASKS_EXTENSION: Final = "io.modelcontextprotocol/tasks"
"""Calls that become tasks (ext-tasks)."""


ENDS_KEPT_BYTES: Final = 256
"""How much of both ends of a line above the limit is kept, to find the id in it."""


@dataclass(frozen=True, slots=True)
class OverlongLine:
    """Both ends of a line above the limit."""

    head: bytes
    tail: bytes


def state_of_result(result: JsonObject) -> str:
    """The state of a call that got this result, in the words that MCP has for tasks."""
    kind = result.get("resultType", "complete")
    if kind == "complete":
        return "failed" if result.get("isError") is True else "completed"
    return "input_required" if kind == "input_required" else "working"


class LineSplitter:
    """Splits chunks into lines, in time linear in their length."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._parts: list[bytes] = []
        self._size = 0
        self._head = b""

    def feed(self, chunk: bytes) -> Iterator[bytes | OverlongLine]:
        """The lines that end in a chunk. The iterator has to be exhausted."""
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            self._add(end)
            line = b"".join(self._parts)
            yield OverlongLine(self._head, line) if self._size > self._limit_bytes else line
            self._parts, self._size, self._head = [], 0, b""
        if rest:
            self._add(rest)

    def _add(self, part: bytes) -> None:
        self._parts.append(part)
        self._size += len(part)
        if self._size > self._limit_bytes:
            kept = b"".join(self._parts)
            self._head = self._head or kept[:ENDS_KEPT_BYTES]
            self._parts = [kept[-ENDS_KEPT_BYTES:]]


def message_in(line: bytes) -> SessionMessage | ValueError:
    """The message in a line. Returns a ValueError when there is none; it holds the line when that is no JSON."""
    with suppress(ValueError):
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    try:  # invalid UTF-8 is replaced
        text = line.decode("utf-8", "replace")
        return SessionMessage(jsonrpc_message_adapter.validate_json(text, by_name=False))
    except ValueError as exc:
        return exc


def line_of(message: SessionMessage) -> bytes:
    """The line that carries a message, with its end."""
    try:
        text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
    except PydanticSerializationError:  # half of a surrogate pair, which only an escape can carry
        text = json.dumps(message.message.model_dump(by_alias=True, exclude_unset=True))
    return text.encode() + b"\n"
