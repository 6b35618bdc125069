"""Who is let in to one agent and for how long, how many may listen at once, and what the agent's card says of it.

A `RequestAdmission` is one request, from when it came in until it was answered. It is admitted before its body is
read, and once more after each wait, since who may call can change in between. A stream takes a place before it is
opened, so that streams that are being opened count among the open ones.

Spec: A2A 1.0 sections 4.4.1, 4.5 and 7.3 (security schemes of a card)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol, Self

from starlette.datastructures import Headers

from bridge import trace
from bridge.a2a.model.errors import UNAVAILABLE, A2AError
from bridge.a2a.model.objects import AgentCard, SecurityRequirement
from bridge.access.principals import Principal
from bridge.access.verifiers import Access, Scheme
from bridge.http.request_checks import API_KEY_HEADER, FaceAddress
from bridge.jsonvalues import JsonObject


class Endable(Protocol):
    """A stream that can be ended before its time."""

    def end(self) -> None:
        """Send nothing more of it."""


class AdmissionControl:
    """Admits requests to one agent, and counts its streams."""

    def __init__(self, access: Access, place: FaceAddress, face: str, streams_most: int) -> None:
        """`face` is the agent's name, by which principals are told what they may use."""
        self.access = access
        self.place = place
        self.face = face
        self.streams_most = streams_most
        self.listening: set[RequestAdmission] = set()
        """Those that have a place for a stream."""

    def begin(self, headers: Headers) -> RequestAdmission:
        """A request came in, and its trace begins."""
        trace.begin(trace.in_headers(headers.getlist))
        return RequestAdmission(self, headers)

    def let_go(self, principals: frozenset[str]) -> None:
        """End the streams of these: they are let in no more. Their tasks go on."""
        for visit in self.listening:
            if visit.stream is not None and visit.principal.name in principals:
                visit.stream.end()


class RequestAdmission:
    """One request to an agent, to be entered for as long as it is answered."""

    __slots__ = ("_changes", "_control", "_headers", "principal", "stream")

    def __init__(self, control: AdmissionControl, headers: Headers) -> None:
        self._control = control
        self._headers = headers
        self._changes = 0
        """How often it had been changed who may call, when it was admitted."""
        self.principal: Principal
        """Who calls, in the face that is called. There once it was admitted."""
        self.stream: Endable | None = None
        """What it is answered with, to be ended if its principal is let go."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave_place()

    async def admit(self) -> Principal:
        """Who calls.

        Raises:
            RefusedError: 400, 403 or 421, someone else's web page may have sent it; 401, nobody knows who calls.
        """
        control = self._control
        control.place.require_own(self._headers)
        principal = await control.access.principal_of(self._headers)
        self._changes = control.access.changes
        self.principal = principal.in_face(control.face)
        return self.principal

    async def readmit(self) -> Principal:
        """Who calls, who may use other things by now than when it was admitted.

        Raises:
            RefusedError: 401, it is let in no more, or as another principal.
        """
        access, before = self._control.access, self.principal
        if access.changes == self._changes:
            return before
        now = await self.admit()
        if now.name != before.name:
            raise access.refusal("is that of somebody else by now")
        return now

    def take_place(self) -> None:
        """Take one of the places for streams.

        Raises:
            A2AError: UNAVAILABLE, all are taken.
        """
        if len(self._control.listening) >= self._control.streams_most:
            raise A2AError(UNAVAILABLE, "Too many open streams", headers={"Retry-After": "5"})
        self._control.listening.add(self)

    def leave_place(self) -> None:
        """Give its place back, if it took one."""
        self._control.listening.discard(self)


_DECLARED: Final[Mapping[Scheme, JsonObject]] = {
    Scheme.BEARER: {"httpAuthSecurityScheme": {"scheme": "Bearer"}},
    Scheme.API_KEY: {"apiKeySecurityScheme": {"location": "header", "name": API_KEY_HEADER}},
}


def with_security(card: AgentCard, schemes: Sequence[Scheme]) -> AgentCard:
    """A card that asks for any one of these, or for nothing when there are none, whatever it said before."""
    declared = {scheme.value: _DECLARED[scheme] for scheme in schemes}
    # Alternatives: one of the requirements is enough (section 4.4.1).
    needed = tuple(SecurityRequirement(schemes={name: {"list": []}}) for name in declared)
    return card.model_copy(
        update={"security_schemes": declared or None, "security_requirements": needed or None}
    )
