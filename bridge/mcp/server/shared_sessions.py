"""Sessions of 2025-11-25 that every replica answers: one replica owns a session, and the others pass requests on to it.

The id of a session that a client sees is sealed, and contains the epoch of its owner. The address of the owner comes
from the list of replicas, never from a request. A request is passed on at most once, with the caller's own headers, so
that the owner admits the caller itself. The hop only proves that a replica has already judged Host and Origin.

Spec: MCP 2025-11-25 basic/transports (Session Management): 404 lets a client initialize anew.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import UUID

import anyio
import anyio.lowlevel
from mcp_types import INTERNAL_ERROR
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bridge.errors import StoreError
from bridge.http.request_checks import SHOWN_HEADER, RefusedError
from bridge.replicas.passed_requests import (
    PASSED_HEADER,
    REFUSED_REQUEST,
    SHOWN_BEFORE,
    AcceptedRequest,
    NotPassedError,
    PassedHeaders,
    PassedRequest,
)
from bridge.replicas.proofs import ProofPurpose, Proofs
from bridge.replicas.relay import (
    BrokenRelayError,
    RelayedAnswer,
    RelayedRequest,
    ReplicaRelay,
    UnreachableReplicaError,
)
from bridge.replicas.replica_address import ReplicaAddress
from bridge.seal import (
    LIFETIME_SECONDS,
    Handle,
    HandleBinding,
    HandleError,
    HandlePurpose,
    Seal,
    agent_mark,
)
from bridge.text.jsonvalues import JsonObject

if TYPE_CHECKING:
    from bridge.store.registry import ReplicaEntry, ReplicaRegistry

logger = logging.getLogger(__name__)

HOP: Final = "mcp_a2a.hop"
"""The key in a scope for the hop between replicas by which a request came."""

_SESSION: Final = "mcp-session-id"
_VERSION: Final = "mcp-protocol-version"
_EVENTS: Final = b"text/event-stream"
_AGAIN: Final = {"Retry-After": "1"}
_TURNS: Final = 3
"""How many turns of the event loop the server needs to notice a connection that was closed while the process was
stopped."""
_EVENT_ENDS: Final = (b"\r\n\r\n", b"\n\n")

_LOST: Final = (
    "The replica of the bridge that worked on this request is gone or silent, so its outcome is not known"
)


def address_proof(proofs: Proofs, epoch: int, start: UUID, address: str) -> bytes:
    """The proof that the replica with this epoch and start has this address."""
    return proofs.proof(ProofPurpose.ADDRESS, *_address_said(epoch, start, address))


def _address_said(epoch: int, start: UUID, address: str) -> tuple[bytes, ...]:
    return str(epoch).encode(), start.bytes, address.encode()


@dataclass(frozen=True)
class SessionSharing:
    """The access to the other replicas, for the sessions of all faces of a bridge."""

    registry: ReplicaRegistry
    seal: Seal
    proofs: Proofs
    hops: PassedHeaders
    relay: ReplicaRelay
    now_seconds: Callable[[], float] = time.time
    """The clock for handles, which are valid for days."""

    def address_of(self, epoch: int, entry: ReplicaEntry) -> ReplicaAddress | None:
        """The address in an entry; None if there is none, or a holder of the bridge's keys did not write it."""
        if entry.address is None:
            return None
        address = _address_said(epoch, entry.start, entry.address)
        if not self.proofs.holds(entry.proof, ProofPurpose.ADDRESS, *address):
            logger.warning("the address of replica %d is not signed with the keys of this bridge", epoch)
            return None
        try:
            return ReplicaAddress.parse(entry.address)
        except ValueError:
            return None


@dataclass(frozen=True, slots=True)
class _OpenedSession:
    """The content of a session's id."""

    epoch: int
    """The epoch of the session's owner."""
    own_id: str
    """The session's id at its owner."""


class SharedSessions:
    """The sessions of a face: an ASGI application around the application with the sessions of this replica.

    It serves admitted requests whose bodies have been read.
    """

    def __init__(self, inner: ASGIApp, sharing: SessionSharing, path: str, face: str) -> None:
        self._inner = inner
        self._sharing = sharing
        self._path = path
        self._mark = agent_mark(face)
        self._silent: set[int] = set()
        """The epochs of the owners that did not answer last time."""

    def hop_in(self, headers: Headers, verb: str) -> AcceptedRequest | None:
        """The hop by which a request came from another replica; None if a client sent it.

        Raises:
            RefusedError: the proof of the hop is invalid, or is for another replica.
        """
        lines = headers.getlist(PASSED_HEADER)
        if not lines:
            return None
        identities = headers.get(SHOWN_BEFORE, "")
        request = PassedRequest(verb, self._path, headers.get(_SESSION, ""), identities)
        try:
            hop = self._sharing.hops.accept(",".join(lines), request, self._sharing.registry.now_seconds())
        except NotPassedError as exc:
            logger.warning("a request that claims to be from another replica is refused: %s", exc)
            message = "This request claims to be passed on by a replica, but its proof is not valid"
            raise RefusedError(403, message, {PASSED_HEADER: REFUSED_REQUEST}) from exc
        if not self._sharing.registry.is_mine(hop.epoch):
            raise self._misled(hop)
        return hop

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request here, or pass it to the owner of its session.

        Raises:
            RefusedError: 404, there is no such session; 503, its owner cannot be reached now.
        """
        headers, principal = Headers(scope=scope), scope["user"].principal.name
        hop: AcceptedRequest | None = scope.get(HOP)
        text = headers.get(_SESSION)
        if (
            text is None
            or headers.get(_VERSION, HANDSHAKE_PROTOCOL_VERSIONS[0]) not in HANDSHAKE_PROTOCOL_VERSIONS
        ):
            await self._inner(scope, receive, self._naming(send, principal))
            return
        session = self._opened(text, principal)
        if self._sharing.registry.is_mine(session.epoch):
            served = receive if hop is None else await _fitting(receive, hop)
            await self._inner(_named(scope, session.own_id), served, _renamed(send, lambda _: text))
        elif hop is not None:
            raise self._misled(hop)
        else:
            await self._pass_on(scope, receive, send, session.epoch, text)

    def _misled(self, hop: AcceptedRequest) -> RefusedError:
        """The refusal of a passed request that would have to be passed on again."""
        logger.error(
            "a request for replica %d was passed on to replica %d: each `replica_url` must lead to one replica",
            hop.epoch,
            self._sharing.registry.epoch,
        )
        message = "This request was passed on to a replica that does not have its session"
        return RefusedError(503, message, {**_AGAIN, PASSED_HEADER: REFUSED_REQUEST})

    # Names

    def _naming(self, send: Send, principal: str) -> Send:
        """A `send` that replaces the id of a new session by the id that clients see."""
        sharing = self._sharing

        def sealed(own_id: str) -> str:
            purpose = HandlePurpose.SESSION
            expires = int(sharing.now_seconds()) + LIFETIME_SECONDS[purpose]
            handle = Handle(self._mark, (str(sharing.registry.epoch), own_id), expires)
            return sharing.seal.seal(handle, HandleBinding(purpose, principal))

        return _renamed(send, sealed)

    def _opened(self, text: str, principal: str) -> _OpenedSession:
        binding = HandleBinding(HandlePurpose.SESSION, principal)
        try:
            handle = self._sharing.seal.open(text, binding, self._sharing.now_seconds())
        except HandleError as exc:
            raise _no_session() from exc
        if handle.agent != self._mark:
            raise _no_session()
        epoch, own_id = handle.ids
        return _OpenedSession(int(epoch), own_id)

    # Hops

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send, epoch: int, text: str) -> None:
        address = await self._address(epoch)
        sharing, verb = self._sharing, scope["method"]
        body = (await receive())["body"] if verb == "POST" else b""
        ours = (SHOWN_HEADER.encode(), SHOWN_BEFORE.encode())
        identities = Headers(scope=scope).get(SHOWN_HEADER, "")
        request = PassedRequest(verb, self._path, text, identities)
        hop = sharing.hops.header(epoch, request, body, sharing.registry.now_seconds())
        lines = [line for line in scope["headers"] if line[0] not in ours]
        lines.append((PASSED_HEADER.encode(), hop.encode()))
        if identities:
            lines.append((SHOWN_BEFORE.encode(), identities.encode()))
        passage = _Passage(send, body)
        async with anyio.create_task_group() as tasks:

            async def until_gone() -> None:
                await sharing.registry.gone(epoch)
                passage.is_gone = True
                tasks.cancel_scope.cancel()

            async def until_left() -> None:
                while (await receive())["type"] != "http.disconnect":
                    pass
                passage.has_left = True
                tasks.cancel_scope.cancel()

            tasks.start_soon(until_gone)
            tasks.start_soon(until_left)
            try:
                async with sharing.relay.answer(
                    address, RelayedRequest(verb, self._path, lines, body)
                ) as answer:
                    self._silent.discard(epoch)
                    await passage.carry(answer)
            except UnreachableReplicaError as exc:
                self._is_silent(epoch, str(exc))
            except BrokenRelayError as exc:
                logger.warning("the answer of replica %d broke off: %s", epoch, exc)
            tasks.cancel_scope.cancel()
        await passage.end()

    def _is_silent(self, epoch: int, why: str) -> None:
        """Log once that an owner does not answer."""
        if epoch not in self._silent:
            self._silent = {other for other in self._silent if other in self._sharing.registry.others} | {
                epoch
            }
            logger.warning("replica %d does not answer: %s", epoch, why)

    async def _address(self, epoch: int) -> ReplicaAddress:
        try:
            entry = await self._sharing.registry.find(epoch)
        except StoreError as exc:
            raise RefusedError(
                503, "The bridge cannot find the owner of this session at the moment", _AGAIN
            ) from exc
        if entry is None:
            raise _no_session()
        address = self._sharing.address_of(epoch, entry)
        if address is None:
            message = (
                "This session is at another replica of the bridge, which has no `replica_url`: its operator gives it"
                " one, or lets the balancer send each Mcp-Session-Id to the replica that gave it"
            )
            raise RefusedError(503, message, _AGAIN)
        return address


@dataclass(eq=False)
class _Passage:
    """The answer to a passed request, as far as it was received."""

    send: Send
    body: bytes
    """The body of the request."""
    has_begun: bool = False
    has_ended: bool = False
    is_gone: bool = False
    """Whether the other replica is gone."""
    has_left: bool = False
    """Whether the client has left."""
    can_tell: bool = False
    """Whether an event could be sent now: the answer is an event stream, and no event is half sent."""

    async def carry(self, answer: RelayedAnswer) -> None:
        """Send an answer to the client, as it comes."""
        if answer.header(PASSED_HEADER.encode()) == REFUSED_REQUEST.encode():
            logger.error("a request was passed on and not accepted; the log of the other replica says why")
            return
        self.has_begun = True
        await self.send(answer.start)
        has_events = answer.header(b"content-type").startswith(_EVENTS)
        self.can_tell = has_events
        async for chunk in answer.chunks():
            self.can_tell = False
            await self.send({"type": "http.response.body", "body": chunk, "more_body": True})
            self.can_tell = has_events and chunk.endswith(_EVENT_ENDS)
        await self.send({"type": "http.response.body", "body": b"", "more_body": False})
        self.has_ended = True

    async def end(self) -> None:
        """End an incomplete answer.

        Raises:
            RefusedError: the answer has not begun.
        """
        if self.has_ended or self.has_left:
            return
        if not self.has_begun:
            raise (
                _no_session()
                if self.is_gone
                else RefusedError(
                    503,
                    "The replica of the bridge that has this session does not answer at the moment",
                    _AGAIN,
                )
            )
        if self.can_tell:
            # The server cuts off any other half-sent answer, since its end is not sent.
            lost = _lost(self.body)
            await self.send({"type": "http.response.body", "body": lost, "more_body": False})


def _lost(body: bytes) -> bytes:
    """The event that answers a request with an unknown outcome; empty if the body is not a request."""
    try:
        request = json.loads(body)
    except ValueError:
        return b""
    if not isinstance(request, dict) or "method" not in request or "id" not in request:
        return b""
    error: JsonObject = {"code": INTERNAL_ERROR, "message": _LOST}
    answer = json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": error})
    return f"event: message\r\ndata: {answer}\r\n\r\n".encode()


async def _fitting(receive: Receive, hop: AcceptedRequest) -> Receive:
    """A `receive` that gives the body, after two checks: it is the body that was passed on, and its sender still waits.

    Raises:
        RefusedError: the body is another body, or its sender no longer waits.
    """
    waiting = [await receive()]
    if not hop.fits(waiting[0].get("body", b"")):
        raise RefusedError(
            403, "This is not the body that a replica passed on", {PASSED_HEADER: REFUSED_REQUEST}
        )
    await _require_sender(receive)

    async def again() -> Message:
        return waiting.pop() if waiting else await receive()

    return again


async def _require_sender(receive: Receive) -> None:
    """Refuse a request whose sender no longer waits, for example after a pause of this replica. The client was told of
    the failure and may try again, so the work must not begin.

    Raises:
        RefusedError: the sender no longer waits.
    """
    for _ in range(_TURNS):
        await anyio.lowlevel.checkpoint()
    with anyio.move_on_after(0):
        if (await receive())["type"] == "http.disconnect":
            raise RefusedError(503, "The replica that passed this on waits for no answer any more", _AGAIN)


def _named(scope: Scope, own_id: str) -> Scope:
    headers = MutableHeaders(raw=list(scope["headers"]))
    headers[_SESSION] = own_id
    return {**scope, "headers": headers.raw}


def _renamed(send: Send, name: Callable[[str], str]) -> Send:
    """A `send` that replaces the id of the session in an answer."""

    async def renaming(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(raw=list(message["headers"]))
            if (own_id := headers.get(_SESSION)) is not None:
                headers[_SESSION] = name(own_id)
                message = {**message, "headers": headers.raw}
        await send(message)

    return renaming


def _no_session() -> RefusedError:
    return RefusedError(404, "Session not found")
