"""Answers that are too large to be taken in: whose they are, and what the call gets instead, which is an error of ours.

Of an answer with too many bytes both ends are known, of one with too many values all of it, of which no value is
made. The connection goes on.
"""

from __future__ import annotations

import json
import re
from typing import Final

from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, RequestId

from bridge.jsonvalues import holds_more_values
from bridge.mcp.client.faults import LIMITED_BY, TOO_LARGE, VALUES_LIMITED_BY, error_of
from bridge.mcp.lines import ENDS_KEPT_BYTES, OverlongLine

_MEMBER: Final = re.compile(rb'[{,]\s*"([^"\\]*)"\s*:\s*')
_SCALAR: Final = re.compile(rb'("(?:[^"\\]|\\.)*"|-?\d+|true|false|null)\s*(?=[,}])')
_LAST_ID: Final = re.compile(
    rb'[{,]\s*"id"\s*:\s*("[^"\\]*"|-?\d+)\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$'
)


def answer_to_many_values(text: bytes, max_values: int) -> SessionMessage | ValueError | None:
    """What comes in the place of a message that holds too many values and keys; None for one that does not."""
    if not holds_more_values(text, max_values):
        return None
    request_id = id_of_cut_message(text[:ENDS_KEPT_BYTES], text[-ENDS_KEPT_BYTES:])
    most = f"{max_values} values and keys"
    if request_id is None:
        return ValueError(
            f"a message of more than {most}, in which no id of an answer is found: {VALUES_LIMITED_BY}"
        )
    return _too_large(request_id, f"the result holds more than {most}: {VALUES_LIMITED_BY}")


def answer_to_overlong(line: OverlongLine, limit_bytes: int) -> SessionMessage | ValueError:
    """What the call gets instead of an answer above the limit, or why it gets none."""
    request_id = id_of_cut_message(line.head, line.tail)
    if request_id is None:
        return ValueError(
            f"a line of more than {limit_bytes} bytes, in which no id of an answer is found: {LIMITED_BY}"
        )
    return _too_large(request_id, f"the result is larger than {limit_bytes} bytes: {LIMITED_BY}")


def _too_large(request_id: RequestId, words: str) -> SessionMessage:
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=request_id, error=error_of(TOO_LARGE, words)))


def id_of_cut_message(head: bytes, tail: bytes) -> RequestId | None:
    """Which request a message answers of which only the first and the last bytes are known, or None.

    Serializers put the id before the result or after it. A request of the server is not taken for an answer: its
    ids are its own.
    """
    members: dict[bytes, bytes] = {}
    head, at = head.lstrip(), 0
    while (member := _MEMBER.match(head, at)) is not None:
        value = _SCALAR.match(head, member.end())
        if value is None:
            break
        members[member[1]], at = value[1], value.end()
    if member is None or member[1] not in (b"result", b"error") or b"method" in members:
        return None
    last = _LAST_ID.search(tail)
    return _id_from(members.get(b"id") or (last[1] if last else b"null"))


def _id_from(text: bytes) -> RequestId | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, str | int) and not isinstance(value, bool) else None
