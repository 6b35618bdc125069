"""The trace context of the current call and its hops, in the only context variables of the bridge.

An endpoint sets the variables once for a request, and every task that works on the request inherits them. A *hop* is a
request that an endpoint answers, or a request that the bridge sends to a peer. Listeners observe each hop from
beginning to end; without listeners no hop is made. A listener that makes spans gives each hop its own trace context.
Otherwise a request's trace context is passed on unchanged, or dropped if it is malformed.

Spec: W3C Trace Context 3.2 and 3.3, W3C Baggage 3; MCP 2026-07-28 basic (the keys of `_meta`).
"""

from __future__ import annotations

import re
import secrets
import time
from asyncio import CancelledError
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Literal, Protocol, Self

_TRACEPARENT: Final = "traceparent"
_TRACESTATE: Final = "tracestate"
_BAGGAGE: Final = "baggage"
NAMES: Final = (_TRACEPARENT, _TRACESTATE, _BAGGAGE)
"""The names of the parts of a trace context: HTTP headers, and keys of MCP's `_meta`."""
_OF_HEADERS: Final = {name.encode(): name for name in NAMES}

MAX_STATES: Final = 32
"""The most members of a tracestate (W3C Trace Context 3.3.1.1). A longer list is malformed."""
MAX_STATE_BYTES: Final = 512
"""The most bytes of a tracestate that are passed on: the minimum that 3.3.1.5 requires."""
_LONG_STATE: Final = 128
"""Members longer than this are dropped first if a tracestate is too long (3.3.1.5)."""
MAX_BAGGAGE: Final = 64
"""The most members of a baggage that are passed on: the minimum that W3C Baggage 3.3.2 requires."""
MAX_BAGGAGE_BYTES: Final = 8192
"""The most bytes of a baggage that are passed on: the minimum that W3C Baggage 3.3.2 requires."""

_READ_CHARACTERS: Final = 32 * 1024
"""The most characters of a baggage that are read, and of a tracestate: the bound of an HTTP head. In `_meta` and in the
metadata of a message both may be as long as a body, and parsing them would block the event loop for seconds."""

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
"""Called for each message between the bridge and a peer, with `>` for sent or `<` for received, and the JSON. HTTP
headers and credentials in a URL are left out."""


_FAILED: Final = "failed"
_REFUSALS: Final = frozenset({"unauthorized"})
"""The outcomes of a request to a peer that become the outcome of a failed caller's request, too."""


@dataclass(frozen=True, slots=True)
class TraceContext:
    """The trace that a request belongs to: each part valid, or None."""

    traceparent: str | None = None
    tracestate: str | None = None
    baggage: str | None = None

    @property
    def trace_id(self) -> str:
        """The id of the trace; empty if there is no trace."""
        return (self.traceparent or "")[3:35]

    @property
    def sealable(self) -> str:
        """Its traceparent, if it has version 00 and so a fixed length; else empty."""
        return self.traceparent if self.traceparent is not None and self.traceparent.startswith("00-") else ""


NO_TRACE: Final = TraceContext()
"""The context of a request without a trace."""


class HopListener(Protocol):
    """Observes hops. Its methods must not wait."""

    def began(self, hop: Hop) -> None:
        """Called when a request is admitted, or is about to be sent. The listener may replace `hop.context`."""

    def ended(self, hop: Hop) -> None:
        """Called when a hop has its outcome. A request that is refused before it is admitted ends without `began`."""

    def waited(self, hop: Hop, peer: str, seconds: float) -> None:
        """Called with the wait of a call for its turn at a peer. The peer speaks the other protocol."""


class IntentWriter(Protocol):
    """Records the intent of a request to an endpoint before the request is performed."""

    async def intend(self, hop: Hop) -> int:
        """Record what a hop is about to do, and return the number of the record; 0 if the hop needs none.

        Raises:
            AuditAwayError: the intent cannot be recorded now, so the request must not be performed.
        """
        ...


@dataclass(slots=True, eq=False)
class Hop:
    """A request between a client and an endpoint, or between the bridge and a peer. The hop ends when its context is
    left."""

    side: Literal["server", "client"]
    protocol: Literal["a2a", "mcp"]
    listeners: tuple[HopListener, ...]
    context: TraceContext
    """The trace context for the hops that follow from this hop."""
    method: str = ""
    """The operation of A2A or the method of MCP; empty if it is not known yet."""
    face: str = ""
    peer: str = ""
    """The tool server or the agent, by its key in the configuration; empty if none is chosen yet."""
    skill: str = ""
    """The skill or tool, as listed, or the method of a request of MCP over A2A; empty if the request concerns none."""
    principal: str = ""
    is_authenticated: bool = False
    """Whether the principal has shown a credential, or owns this machine."""
    state: str = ""
    """The state of the request's task, or the kind of the result: `completed`, `input_required`. It is `canceled` if
    the request itself was canceled, whatever the state of its task."""
    error: str = ""
    """The kind of fault that ended the hop; empty if there was none."""
    peer_refused: str = ""
    """The outcome of the request to a peer that follows from this request, if the peer refused it."""
    answer: Literal["none", "begun", "whole"] = "none"
    """How much of a streamed answer has come. It is no fault if the reader stops after the answer has begun, or if the
    connection breaks after the whole answer."""
    task_id: str = ""
    context_id: str = ""
    owner: str = ""
    """The owner of the task, if an operator acts for somebody else; else empty."""
    target: str = ""
    """`host:port` of the receiver of push notifications that the request asks for."""
    subject: str = ""
    """The URI or the name that a request of MCP over A2A is about; else empty."""
    is_answer: bool = False
    """Whether the request answers the question of an earlier request."""
    gate: IntentWriter | None = None
    is_gated: bool = False
    """Whether the request still has to pass the gate. Nothing may go to a peer before."""
    intent: int = 0
    """The number of the intent that the gate has recorded for this request, or for the request that caused it; 0 if
    there is none."""
    earlier: TraceContext = NO_TRACE
    """The trace of the last turn of the same task."""
    began_ns: int = field(default_factory=time.time_ns)
    """The beginning, in nanoseconds since the epoch."""
    seconds: float = 0.0
    """The duration, after the hop has ended."""
    _since: float = field(default_factory=time.perf_counter)

    def begin(self) -> None:
        """Notify the listeners that the hop has begun."""
        for listener in self.listeners:
            listener.began(self)

    def admit(self, method: str, principal: str, *, is_authenticated: bool) -> None:
        """Begin the hop of an endpoint, and make the hops that follow part of its trace."""
        self.method, self.principal, self.is_authenticated = method, principal, is_authenticated
        self.begin()
        context.set(self.context)

    async def intend(self) -> None:
        """Pass the gate, if there is one. Nothing may be sent to a peer before.

        Raises:
            AuditAwayError: the request must not be performed now.
        """
        if self.gate is not None and self.is_gated:
            try:
                self.intent = await self.gate.intend(self)
            except BaseException:
                self.peer = ""  # nothing is sent to the peer
                raise
            self.is_gated = False

    def forget(self) -> None:
        """Forget the details of the request, which were set before it was known to be valid."""
        self.skill = self.subject = self.peer = self.task_id = self.context_id = ""
        self.is_answer = False

    def waited(self, peer: str, seconds: float) -> None:
        """Notify the listeners that the call waited for its turn."""
        for listener in self.listeners:
            listener.waited(self, peer, seconds)

    @property
    def outcome(self) -> str:
        """The fault if there is one, else the state. A call that failed because a peer refused a request has the
        outcome of that request."""
        if self.peer_refused and self.state == _FAILED:
            return self.peer_refused
        return self.error or self.state or "done"

    @property
    def trace_id(self) -> str:
        """The id of its trace; empty if there is none."""
        return self.context.trace_id

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, _: TracebackType | None
    ) -> None:
        if kind is not None and not self._was_left(kind):
            if kind is CancelledError:
                self.state = "canceled"  # before any answer: this is no fault
            elif not self.error:
                self.error = getattr(exc, "outcome", "") or kind.__name__
        self.seconds = time.perf_counter() - self._since
        if self.side == "client" and (taken := hop.get()) is not None:
            taken.peer_refused = self.error if self.error in _REFUSALS else ""
        for listener in self.listeners:
            listener.ended(self)

    def _was_left(self, kind: type[BaseException]) -> bool:
        """Whether the reader left a streamed answer by its own choice or at its end, so that the last state is the
        outcome."""
        return self.answer == "whole" or (
            self.answer == "begun" and issubclass(kind, CancelledError | GeneratorExit)
        )


@dataclass(frozen=True, slots=True)
class Hops:
    """Makes the hops of a bridge, if there are listeners."""

    listeners: tuple[HopListener, ...] = ()
    gate: IntentWriter | None = None
    """The gate that each request to an endpoint has to pass; None admits all requests."""

    def taken(self, protocol: Literal["a2a", "mcp"], face: str) -> Hop | None:
        """The hop of a request that has arrived at an endpoint; None without listeners. Call it after `begin`."""
        if not self.listeners:
            return None
        now = Hop("server", protocol, self.listeners, context.get(), face=face, gate=self.gate)
        now.is_gated = self.gate is not None
        hop.set(now)
        return now

    @contextmanager
    def admitted(
        self,
        protocol: Literal["a2a", "mcp"],
        face: str,
        method: str,
        principal: str,
        *,
        is_authenticated: bool,
    ) -> Iterator[Hop | None]:
        """Yield the hop of a request whose sender is already known; None without listeners. Call it after `begin`.

        The hop ends with the context. An exception that has an `outcome` gives the hop this outcome.
        """
        hop = self.taken(protocol, face)
        if hop is None:
            yield None
            return
        with hop:
            hop.admit(method, principal, is_authenticated=is_authenticated)
            yield hop

    def sent(self, protocol: Literal["a2a", "mcp"], method: str, peer: str, skill: str = "") -> Hop | None:
        """The hop of a request that the bridge is about to send; None without listeners."""
        if not self.listeners:
            return None
        now = Hop("client", protocol, self.listeners, context.get(), method, peer=peer, skill=skill)
        if (taken := hop.get()) is not None:
            now.face, now.principal, now.is_authenticated = (
                taken.face,
                taken.principal,
                taken.is_authenticated,
            )
            now.task_id, now.intent = taken.task_id, taken.intent
        now.begin()
        return now


UNHEARD: Final = Hops()
"""Makes no hops."""

hop: ContextVar[Hop | None] = ContextVar("hop", default=None)
"""The hop of the endpoint that took the request; None without listeners."""

call_id: ContextVar[str] = ContextVar("call_id", default="-")
"""A short random name for the request, in every log line about it."""

context: ContextVar[TraceContext] = ContextVar("context", default=NO_TRACE)
"""The trace context of the request, which is passed on to peers."""


def label_hop(skill: str, peer: str = "") -> None:
    """Set the skill and the peer of the request's hop, if the request is traced."""
    if (request_hop := hop.get()) is not None:
        request_hop.skill, request_hop.peer = skill, peer


def begin(*carriers: Mapping[str, object]) -> None:
    """Begin the context of a new request. `carriers` are mappings that may hold the `NAMES`; earlier ones win."""
    call_id.set(secrets.token_hex(4))
    hop.set(None)
    context.set(context_from(*carriers) if any(carriers) else NO_TRACE)


def take_from(*carriers: Mapping[str, object]) -> None:
    """Take the trace of the request from these carriers, if the carriers of `begin` had no trace."""
    now = context.get()
    if now.traceparent is not None or not any(carriers):
        return
    carried = context_from(*carriers)
    if carried.traceparent is not None:
        now = TraceContext(carried.traceparent, carried.tracestate, now.baggage or carried.baggage)
        context.set(now)
        if (taken := hop.get()) is not None:
            taken.context = now


def go_on(before: TraceContext, *, is_answer: bool = True) -> None:
    """Let the request continue the trace of an earlier request, unless it has its own trace.

    With `is_answer` it answers a question of the earlier request; otherwise it concerns the same task.
    """
    now, taken = context.get(), hop.get()
    if now.traceparent is None:
        now = TraceContext(before.traceparent, before.tracestate, now.baggage or before.baggage)
        context.set(now)
    if taken is not None:
        taken.context, taken.earlier, taken.is_answer = now, before, is_answer


def in_headers(lines: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """The trace headers of a request, by `NAMES`. `lines` are all its header lines, with names in lower case."""
    headers: dict[str, str] = {}
    for line, value in lines:
        if (name := _OF_HEADERS.get(line)) is not None:
            text = value.decode("latin-1")
            headers[name] = f"{headers[name]},{text}" if name in headers else text
    return headers


def context_from(*carriers: Mapping[str, object]) -> TraceContext:
    """The first traceparent and the first baggage in the carriers, if they are well-formed.

    A tracestate counts only in the carrier of the traceparent.
    """
    of_trace, of_baggage = _first_with(_TRACEPARENT, carriers), _first_with(_BAGGAGE, carriers)
    parent, baggage = _text(of_trace, _TRACEPARENT), _baggage_from(_text(of_baggage, _BAGGAGE))
    if not _PARENT.fullmatch(parent):
        return TraceContext(baggage=baggage)
    return TraceContext(parent, _tracestate_from(_text(of_trace, _TRACESTATE)), baggage)


def told_to_peer(hop: Hop | None = None, *, is_local: bool, baggage_keys: frozenset[str]) -> dict[str, str]:
    """The trace context for a peer, by `NAMES`: the context of the hop to the peer, if there is one.

    A peer on another machine gets only the `baggage_keys` of the baggage.
    """
    now = context.get() if hop is None else hop.context
    if now is NO_TRACE:
        return {}
    baggage = now.baggage
    if baggage is not None and not is_local:
        members = [
            member for member in baggage.split(",") if member.partition("=")[0].rstrip(" \t") in baggage_keys
        ]
        baggage = ",".join(members) or None
    parts = zip(NAMES, (now.traceparent, now.tracestate, baggage), strict=True)
    return {name: value for name, value in parts if value is not None}


def _first_with(name: str, carriers: Iterable[Mapping[str, object]]) -> Mapping[str, object]:
    return next((carrier for carrier in carriers if isinstance(carrier.get(name), str)), {})


def _text(carrier: Mapping[str, object], name: str) -> str:
    text = carrier.get(name)
    return text.strip(" \t") if isinstance(text, str) else ""


def _members(text: str) -> list[str]:
    return [member for part in text.split(",") if (member := part.strip(" \t"))]


def _tracestate_from(text: str) -> str | None:
    """A tracestate cut to the bounds; None if a member is malformed or there are too many."""
    if len(text) > _READ_CHARACTERS:
        return None
    members = _members(text)
    if len(members) > MAX_STATES or not all(map(_STATE.fullmatch, members)):
        return None
    while _size_of(members) > MAX_STATE_BYTES:
        places = [place for place, member in enumerate(members) if len(member) > _LONG_STATE]
        del members[places[-1] if places else -1]
    return ",".join(members) or None


def _baggage_from(text: str) -> str | None:
    """The first well-formed members of a baggage, cut to the bounds."""
    if len(text) > _READ_CHARACTERS:
        text = text[:_READ_CHARACTERS].rpartition(",")[0]
    members = [member for member in _members(text) if _MEMBER.fullmatch(member)][:MAX_BAGGAGE]
    while _size_of(members) > MAX_BAGGAGE_BYTES:
        del members[-1]
    return ",".join(members) or None


def _size_of(members: Sequence[str]) -> int:
    return sum(map(len, members)) + max(len(members) - 1, 0)
