"""Which call the running code works for, in the only context variables of the bridge, and who watches its hops.

A face sets them once for a request; whatever runs on its behalf, in whichever task, inherits them. The bridge makes
no spans of its own: what a request says of its trace goes on to the other side as it came, or not at all when it is
malformed.

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
"""What the parts of a trace context are called, as HTTP headers and as keys of MCP's `_meta`."""

MAX_STATES: Final = 32
"""Members of a tracestate (W3C Trace Context 3.3.1.1). A longer list is malformed."""
MAX_STATE_BYTES: Final = 512
"""What has to be passed on of a tracestate at least, and is at most (3.3.1.5)."""
_LONG_STATE: Final = 128
"""Members beyond this go first when a tracestate is too long (3.3.1.5)."""
MAX_BAGGAGE: Final = 64
"""Members of a baggage that have to be passed on, and are at most (W3C Baggage 3.3.2)."""
MAX_BAGGAGE_BYTES: Final = 8192
"""Likewise."""

_IDS: Final = r"(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
_PARENT: Final = re.compile(rf"00-{_IDS}|(?!00|ff)[0-9a-f]{{2}}-{_IDS}(?:-[\x21-\x2b\x2d-\x7e]{{0,256}})?")
"""Version 00, or a later one, of which only the beginning is known (3.2.2.2 and 3.2.4)."""
_STATE: Final = re.compile(
    r"[a-z0-9][a-z0-9_\-*/@]{0,255}=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
)
_KEY: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_VALUE: Final = r"[\x21\x23-\x2b\x2d-\x3a\x3c-\x5b\x5d-\x7e]*"
_MEMBER: Final = re.compile(rf"{_KEY}[ \t]*=[ \t]*{_VALUE}(?:[ \t]*;[ \t]*{_KEY}(?:[ \t]*=[ \t]*{_VALUE})?)*")

OnHop = Callable[[str, str], None]
"""Takes what passes between the bridge and a peer: `>` and what was sent, or `<` and what came, as JSON. What a
message travels in is left out: headers, and what credentials add to a URL."""


@dataclass(frozen=True, slots=True)
class TraceContext:
    """The trace that a request belongs to: each part valid, or None."""

    traceparent: str | None = None
    tracestate: str | None = None
    baggage: str | None = None


NO_TRACE: Final = TraceContext()
"""A request that says nothing of one."""

call_id: ContextVar[str] = ContextVar("call_id", default="-")
"""A short random name for one request, in every log line about it."""

context: ContextVar[TraceContext] = ContextVar("context", default=NO_TRACE)
"""What the request said of its trace, for the other side."""


def begin(*told: Mapping[str, object]) -> None:
    """A request has come in; `told` is where it may say something of its trace, by `NAMES`, the first one first."""
    call_id.set(secrets.token_hex(4))
    context.set(context_from(*told) if any(told) else NO_TRACE)


def go_on(before: TraceContext) -> None:
    """The request goes on with what another began: it belongs to the same trace, unless it names one itself."""
    now = context.get()
    if now.traceparent is None:
        context.set(TraceContext(before.traceparent, before.tracestate, now.baggage or before.baggage))


def in_headers(values_of: Callable[[str], Sequence[str]]) -> dict[str, str]:
    """What headers say of a trace, by `NAMES`; `values_of` gives all lines of a header."""
    return {name: ",".join(values) for name in NAMES if (values := values_of(name))}


def context_from(*told: Mapping[str, object]) -> TraceContext:
    """The first trace that is named, and the first baggage, as far as they are well-formed.

    A tracestate belongs to the traceparent beside it, and is nothing without it.
    """
    of_trace, of_baggage = _first_with(_TRACEPARENT, told), _first_with(_BAGGAGE, told)
    parent, baggage = _text(of_trace, _TRACEPARENT), _baggage_from(_text(of_baggage, _BAGGAGE))
    if not _PARENT.fullmatch(parent):
        return TraceContext(baggage=baggage)
    return TraceContext(parent, _tracestate_from(_text(of_trace, _TRACESTATE)), baggage)


def told_to_peer(*, is_local: bool, baggage_keys: frozenset[str]) -> dict[str, str]:
    """What a peer is told of the trace, by `NAMES`: of the baggage only these keys, unless it is on this machine."""
    now = context.get()
    if now is NO_TRACE:
        return {}
    baggage = now.baggage
    if baggage is not None and not is_local:
        kept = [one for one in baggage.split(",") if one.partition("=")[0].rstrip(" \t") in baggage_keys]
        baggage = ",".join(kept) or None
    parts = zip(NAMES, (now.traceparent, now.tracestate, baggage), strict=True)
    return {name: value for name, value in parts if value is not None}


def _first_with(name: str, told: Iterable[Mapping[str, object]]) -> Mapping[str, object]:
    return next((one for one in told if isinstance(one.get(name), str)), {})


def _text(told: Mapping[str, object], name: str) -> str:
    said = told.get(name)
    return said.strip(" \t") if isinstance(said, str) else ""


def _members(text: str) -> list[str]:
    return [member for part in text.split(",") if (member := part.strip(" \t"))]


def _tracestate_from(text: str) -> str | None:
    """A list, cut to what is passed on; None for one that is malformed as a whole."""
    members = _members(text)
    if len(members) > MAX_STATES or not all(map(_STATE.fullmatch, members)):
        return None
    while _size_of(members) > MAX_STATE_BYTES:
        places = [place for place, member in enumerate(members) if len(member) > _LONG_STATE]
        del members[places[-1] if places else -1]
    return ",".join(members) or None


def _baggage_from(text: str) -> str | None:
    """The members that are well-formed, as many from the first on as are passed on."""
    kept = [member for member in _members(text) if _MEMBER.fullmatch(member)][:MAX_BAGGAGE]
    while _size_of(kept) > MAX_BAGGAGE_BYTES:
        del kept[-1]
    return ",".join(kept) or None


def _size_of(members: Sequence[str]) -> int:
    return sum(map(len, members)) + max(len(members) - 1, 0)
