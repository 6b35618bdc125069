"""The trace context of the current call, in the only context variables of the bridge.

A face sets the variables once for a request, and every task that works on the request inherits them. The bridge makes
no spans of its own: it passes a request's trace context on unchanged, or drops it when it is malformed.

Spec: W3C Trace Context 3.2 and 3.3, W3C Baggage 3; MCP 2026-07-28 basic (the keys of `_meta`).
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

_TRACEPARENT: Final = "traceparent"
_TRACESTATE: Final = "tracestate"
_BAGGAGE: Final = "baggage"
NAMES: Final = (_TRACEPARENT, _TRACESTATE, _BAGGAGE)
"""The names of the parts of a trace context: HTTP headers, and keys of MCP's `_meta`."""
_OF_HEADERS: Final = {name.encode(): name for name in NAMES}

MAX_STATES: Final = 32
"""Members of a tracestate (W3C Trace Context 3.3.1.1). A longer list is malformed."""
MAX_STATE_BYTES: Final = 512
"""Bytes of a tracestate that are passed on: the minimum that 3.3.1.5 requires."""
_LONG_STATE: Final = 128
"""Members beyond this go first when a tracestate is too long (3.3.1.5)."""
MAX_BAGGAGE: Final = 64
"""Members of a baggage that are passed on: the minimum that W3C Baggage 3.3.2 requires."""
MAX_BAGGAGE_BYTES: Final = 8192
"""Bytes of a baggage that are passed on: the minimum that W3C Baggage 3.3.2 requires."""

_IDS: Final = r"(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
_PARENT: Final = re.compile(rf"00-{_IDS}|(?!00|ff)[0-9a-f]{{2}}-{_IDS}(?:-[\x21-\x2b\x2d-\x7e]{{0,256}})?")
"""Version 00, or a later version, of which only the first fields are known (3.2.2.2 and 3.2.4)."""
_STATE: Final = re.compile(
    r"[a-z0-9][a-z0-9_\-*/@]{0,255}=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
)
_KEY: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_VALUE: Final = r"[\x21\x23-\x2b\x2d-\x3a\x3c-\x5b\x5d-\x7e]*"
_MEMBER: Final = re.compile(rf"{_KEY}[ \t]*=[ \t]*{_VALUE}(?:[ \t]*;[ \t]*{_KEY}(?:[ \t]*=[ \t]*{_VALUE})?)*")

OnHop = Callable[[str, str], None]
"""Called for each message between the bridge and a peer: `>` for a sent or `<` for a received one, and its JSON.
HTTP headers, and credentials in a URL, are not part of it."""


@dataclass(frozen=True, slots=True)
class TraceContext:
    """The trace that a request belongs to: each part valid, or None."""

    traceparent: str | None = None
    tracestate: str | None = None
    baggage: str | None = None


NO_TRACE: Final = TraceContext()
"""The context of a request without one."""

call_id: ContextVar[str] = ContextVar("call_id", default="-")
"""A short random name of the request, in every log line about it."""

context: ContextVar[TraceContext] = ContextVar("context", default=NO_TRACE)
"""The trace context of the request, to be passed on to the other side."""


def begin(*carriers: Mapping[str, object]) -> None:
    """Begin the context of a new request. `carriers` are mappings that may hold the `NAMES`; earlier ones win."""
    call_id.set(secrets.token_hex(4))
    context.set(context_from(*carriers) if any(carriers) else NO_TRACE)


def go_on(before: TraceContext) -> None:
    """Let the request continue the trace of an earlier one, unless the request has a trace of its own."""
    now = context.get()
    if now.traceparent is None:
        context.set(TraceContext(before.traceparent, before.tracestate, now.baggage or before.baggage))


def in_headers(lines: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """The trace headers of a request, by `NAMES`. `lines` are all its header lines, with names in lower case."""
    found: dict[str, str] = {}
    for line, value in lines:
        if (name := _OF_HEADERS.get(line)) is not None:
            text = value.decode("latin-1")
            found[name] = f"{found[name]},{text}" if name in found else text
    return found


def context_from(*carriers: Mapping[str, object]) -> TraceContext:
    """The first traceparent and the first baggage in the carriers, as far as they are well-formed.

    A tracestate counts only beside its traceparent.
    """
    of_trace, of_baggage = _first_with(_TRACEPARENT, carriers), _first_with(_BAGGAGE, carriers)
    parent, baggage = _text(of_trace, _TRACEPARENT), _baggage_from(_text(of_baggage, _BAGGAGE))
    if not _PARENT.fullmatch(parent):
        return TraceContext(baggage=baggage)
    return TraceContext(parent, _tracestate_from(_text(of_trace, _TRACESTATE)), baggage)


def told_to_peer(*, is_local: bool, baggage_keys: frozenset[str]) -> dict[str, str]:
    """The trace context for a peer, by `NAMES`. A peer on another machine gets only these keys of the baggage."""
    now = context.get()
    if now is NO_TRACE:
        return {}
    baggage = now.baggage
    if baggage is not None and not is_local:
        kept = [one for one in baggage.split(",") if one.partition("=")[0].rstrip(" \t") in baggage_keys]
        baggage = ",".join(kept) or None
    parts = zip(NAMES, (now.traceparent, now.tracestate, baggage), strict=True)
    return {name: value for name, value in parts if value is not None}


def _first_with(name: str, carriers: Iterable[Mapping[str, object]]) -> Mapping[str, object]:
    return next((one for one in carriers if isinstance(one.get(name), str)), {})


def _text(carrier: Mapping[str, object], name: str) -> str:
    text = carrier.get(name)
    return text.strip(" \t") if isinstance(text, str) else ""


def _members(text: str) -> list[str]:
    return [member for part in text.split(",") if (member := part.strip(" \t"))]


def _tracestate_from(text: str) -> str | None:
    """A tracestate cut to the bounds; None when a member is malformed or there are too many."""
    members = _members(text)
    if len(members) > MAX_STATES or not all(map(_STATE.fullmatch, members)):
        return None
    while _size_of(members) > MAX_STATE_BYTES:
        places = [place for place, member in enumerate(members) if len(member) > _LONG_STATE]
        del members[places[-1] if places else -1]
    return ",".join(members) or None


def _baggage_from(text: str) -> str | None:
    """The first well-formed members of a baggage, cut to the bounds."""
    kept = [member for member in _members(text) if _MEMBER.fullmatch(member)][:MAX_BAGGAGE]
    while _size_of(kept) > MAX_BAGGAGE_BYTES:
        del kept[-1]
    return ",".join(kept) or None


def _size_of(members: Sequence[str]) -> int:
    return sum(map(len, members)) + max(len(members) - 1, 0)
