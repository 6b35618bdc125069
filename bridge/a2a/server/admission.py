"""Admits requests to one agent, checks their callers again, and limits the number of streams.

A `RequestAdmission` stands for one request, from its arrival to the end of its answer. The request is admitted before
its body is read, and again after each wait, since the configured callers can change in between. A stream takes a slot
before it is opened, so that streams that are being opened are counted.

Spec: A2A 1.0 section 7.4."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

from starlette.datastructures import Headers

from bridge import trace
from bridge.a2a.model.errors import UNAVAILABLE, A2AError
from bridge.a2a.tasks.callers import pass_gate
from bridge.http.request_checks import FaceAddress
from bridge.identity.callers.principals import Principal, PrincipalNames
from bridge.identity.callers.verifiers import Access
from bridge.trace import UNHEARD, Hop, Hops, IntentWriter


class Endable(Protocol):
    """A stream that can be ended early."""

    def end(self) -> None:
        """Send no more of the stream."""


class AdmissionControl:
    """Admits requests to one agent, and counts its streams."""

    def __init__(
        self, access: Access, address: FaceAddress, face: str, streams_most: int, hops: Hops = UNHEARD
    ) -> None:
        """`face` is the agent's name in the rules of principals."""
        self.hops = hops
        self.access = access
        self.address = address
        self.face = face
        self.streams_most = streams_most
        self.listening: set[RequestAdmission] = set()
        """The requests that hold a slot for a stream."""

    def begin(self, headers: Headers, path: str) -> RequestAdmission:
        """Begin a request to the agent at this path, and its trace."""
        trace.begin(trace.in_headers(headers.raw))
        return RequestAdmission(self, headers, path, self.hops.taken("a2a", self.face))

    def end_streams_of(self, principals: PrincipalNames) -> None:
        """End the streams of these principals, who may no longer call. Their tasks go on."""
        for visit in self.listening:
            if visit.stream is not None and visit.principal.name in principals:
                visit.stream.end()


class CallerChangedError(Exception):
    """The caller got other rights while its operation waited. The operation has to begin again."""

    def __init__(self, principal: Principal) -> None:
        super().__init__("the caller has other rights now")
        self.principal = principal


class RequestAdmission:
    """One request to an agent. Enter it for as long as the request is answered."""

    __slots__ = ("_changes", "_control", "_headers", "hop", "path", "principal", "stream")

    def __init__(self, control: AdmissionControl, headers: Headers, path: str, hop: Hop | None) -> None:
        self._control = control
        self.hop = hop
        """None if hops have no listener, or if the request asks for no operation."""
        self._headers = headers
        self.path = path
        """The path of the agent, below the address of the bridge."""
        self._changes = 0
        """`Access.changes` when the request was admitted."""
        self.principal: Principal
        """The caller, as a principal of this face. Set once the request was admitted."""
        self.stream: Endable | None = None
        """The stream that answers the request. It ends when its principal may no longer call."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.leave_place()
        if self.hop is not None:
            self.hop.__exit__(kind, exc, traceback)

    async def admit(self) -> Principal:
        """Admit the request, and return its principal.

        Raises:
            RefusedError: 400, 403 or 421, a foreign web page may have sent the request; 401, the caller is unknown;
                503, the caller cannot be verified at the moment.
        """
        control = self._control
        control.address.require_own(self._headers)
        principal = await control.access.principal_of(self._headers, self.path)
        self._changes = control.access.changes
        self.principal = principal.in_face(control.face)
        if self.hop is not None:
            self.hop.principal = principal.name
        return self.principal

    def perform(self, method: str) -> None:
        """Begin the hop of an operation."""
        if self.hop is not None:
            known = self._control.access.needs_token
            self.hop.admit(method, self.principal.name, is_authenticated=known)
            if self.hop.gate is not None:
                self.hop.gate = _ReadmittingGate(self, self.hop.gate)

    async def pass_gate(self) -> None:
        """Pass the audit's gate for the operation, if there is one and the operation has not passed it yet.

        Raises:
            A2AError: UNAVAILABLE, the operation must not be performed at the moment.
            CallerChangedError: the caller has other rights now.
        """
        await pass_gate(self.hop)

    def fail(self, error: A2AError) -> None:
        """Note in the hop that the request is answered with an error."""
        if self.hop is not None:
            self.hop.error = error.kind.reason

    async def readmit(self) -> Principal:
        """Admit the request again, and return its principal with its present rights.

        Raises:
            RefusedError: 401, the caller is no longer known, or is now another principal.
        """
        access, before = self._control.access, self.principal
        if access.changes == self._changes:
            return before
        now = await self.admit()
        if now.name != before.name:
            raise access.refusal("now belongs to somebody else")
        return now

    def take_place(self) -> None:
        """Take a slot for a stream.

        Raises:
            A2AError: UNAVAILABLE, all slots are taken.
        """
        if len(self._control.listening) >= self._control.streams_most:
            raise A2AError(UNAVAILABLE, "Too many open streams", headers={"Retry-After": "5"})
        self._control.listening.add(self)

    def leave_place(self) -> None:
        """Give the slot back, if the request holds one."""
        self._control.listening.discard(self)


class _ReadmittingGate:
    """The audit's gate, after which the caller is admitted again."""

    def __init__(self, visit: RequestAdmission, gate: IntentWriter) -> None:
        self._visit = visit
        self._gate = gate

    async def intend(self, hop: Hop) -> int:
        """See `IntentWriter`.

        Raises:
            RefusedError: 401, the caller is no longer known.
            CallerChangedError: the caller has other rights now.
        """
        before = self._visit.principal
        hop.intent = await self._gate.intend(hop)
        hop.is_gated = False
        if (now := await self._visit.readmit()) != before:
            raise CallerChangedError(now)
        return hop.intent
