"""The bridge's MCP server at an HTTP path: admits requests, and ends streams.

The SDK handles admitted requests. Both eras share the path; the version header distinguishes them.

Spec: MCP 2026-07-28 and 2025-11-25 basic/transports (Streamable HTTP).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import anyio
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.shared.message import SessionMessage
from mcp_types import INVALID_REQUEST, RequestId
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bridge import trace
from bridge.errors import echoed
from bridge.http.request_checks import (
    ASKED_PATH,
    SHOWN_HEADER,
    FaceAddress,
    RefusedError,
    request_body,
    require_json,
    require_once,
)
from bridge.identity.callers.challenges import insufficient_scope
from bridge.identity.callers.principals import OfferedNames, Principal, PrincipalNames
from bridge.identity.callers.verifiers import Access
from bridge.mcp.messages import line_of, messages_in, plain_message_in
from bridge.mcp.server.resource_metadata import METADATA_PATH
from bridge.mcp.server.shared_sessions import HOP, SharedSessions
from bridge.replicas.passed_requests import SHOWN_BEFORE, AcceptedRequest
from bridge.text.jsonvalues import JsonObject, holds_more_values
from bridge.trace import UNHEARD, Hops

_JSON: Final = "application/json"
_METHODS: Final = ("GET", "POST", "DELETE")
_AGAIN_SECONDS: Final = "5"

REVOKED: Final = "Access was revoked while this request was under way"


class AdmittedUser(AuthenticatedUser):
    """The user to whom the SDK binds a session. To another principal, the session does not exist."""

    def __init__(self, principal: Principal, changes: int, metadata_url: str | None) -> None:
        """`changes` is `Access.changes` when the request was admitted."""
        super().__init__(AccessToken(token="-", client_id=principal.name, scopes=[]))  # noqa: S106
        self.principal = principal
        """The principal, with its rights in this face."""
        self.metadata_url = metadata_url
        """The URL where a client reads which issuers are trusted."""
        self.changes = changes
        self.is_revoked = False
        """Whether the user's access was revoked after this request came."""
        self.intent = 0
        """The number of the audit's entry for the request's intent; 0 if there is none."""
        self.method = self.tool = ""
        """The method and the tool of the request, if they were read before the SDK reads the request."""
        self.is_heard = False
        """Whether a hop reports the request."""
        self.is_passed_on = False
        """Whether another replica, which has the client's connection, has passed the request on."""


_Served = dict[anyio.CancelScope, AdmittedUser]


@dataclass(eq=False)
class Endpoint:
    """The ASGI application: the endpoint at its path."""

    inner: ASGIApp
    """The SDK's session manager, or `shared` around it."""
    access: Access
    place: FaceAddress
    path: str
    name: str
    """The name of the face, which the rights of principals refer to."""
    tool_called: Callable[[str, JsonObject], str | None]
    """The tool that a call runs, by its name and arguments."""
    names_of: Callable[[str], OfferedNames]
    """The names of a tool that rights refer to."""
    caller_issuers: Callable[[], Mapping[str, str]]
    """The tools whose calls need a token of the caller, each with the issuer of the token."""
    body_bytes: int
    """The most bytes of one message."""
    json_values: int
    """The most values and keys in one message."""
    shared: SharedSessions | None = None
    """The sessions of all replicas; None for a single bridge."""
    resumes: bool = False
    """Whether clients can resume streams."""
    is_stopping: bool = False
    hops: Hops = UNHEARD
    _streams: _Served = field(default_factory=dict)
    """The open streams of notifications of legacy clients."""
    _posts: _Served = field(default_factory=dict)
    """All other running requests."""

    def stop(self) -> None:
        """Refuse new requests, and end the streams that no call needs."""
        self.is_stopping = True
        _cancel(self._streams)

    def end(self) -> None:
        """Cancel all running requests."""
        self.stop()
        _cancel(self._posts)

    def revoke(self, principals: PrincipalNames) -> None:
        """End the streams of these principals, and refuse requests that are still being read. Running calls go on."""
        for served in (self._streams, self._posts):
            for user in served.values():
                user.is_revoked = user.is_revoked or user.principal.name in principals
        for life, user in tuple(self._streams.items()):
            if user.is_revoked:
                life.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        headers, verb = Headers(scope=scope), scope["method"]
        user: AdmittedUser | None = None
        try:
            hop = self._require_own(headers, verb)
            if hop is not None and SHOWN_BEFORE in headers:
                identities = (SHOWN_HEADER.encode(), headers[SHOWN_BEFORE].encode())
                scope = {**scope, "headers": [*scope["headers"], identities]}
                headers = Headers(scope=scope)
            path = scope["path"].removeprefix(scope.get("root_path", ""))
            metadata_url = self._metadata_url(scope, headers)
            user = await self._identified(path, headers, metadata_url)
            self._require_taken(verb, headers)
        except RefusedError as exc:
            self._tell_of_refusal(headers, exc, user)
            await _refusal(exc)(scope, receive, send)
            return
        user.is_passed_on = hop is not None
        readable = _readable(scope, with_last_event=self.resumes)
        admitted = {**scope, "headers": readable, "user": user, HOP: hop}
        await self._serve(admitted, receive, send, user, self._streams if verb == "GET" else self._posts)

    @property
    def open_streams(self) -> int:
        """The number of streams on which this replica notifies legacy clients of changes."""
        return sum(not user.is_passed_on for user in self._streams.values())

    def _tell_of_refusal(self, headers: Headers, exc: RefusedError, user: AdmittedUser | None = None) -> None:
        """Report a request that does not reach the SDK. `user` is its sender, if known."""
        trace.begin(trace.in_headers(headers.raw))
        if (hop := self.hops.taken("mcp", self.name)) is not None:
            with hop:
                hop.error = f"HTTP_{exc.status}"
                if user is not None:
                    known = self.access.needs_token
                    hop.admit(user.method, user.principal.name, is_authenticated=known)
                    hop.skill, hop.intent = user.tool, user.intent

    def _require_own(self, headers: Headers, verb: str) -> AcceptedRequest | None:
        """Refuse a request that a foreign web page could have sent. Returns the replica's hop by which it came, if any.

        A request from a replica has this replica's Host. The replica that passed it on has judged the Host and Origin
        of the caller; a web page cannot pose as a replica.
        """
        hop = None if self.shared is None else self.shared.hop_in(headers, verb)
        if hop is None:
            self.place.require_own(headers)
        else:
            require_once(headers)
        return hop

    def _metadata_url(self, scope: Scope, headers: Mapping[str, str]) -> str | None:
        """The URL of this resource's metadata; None if no issuer is trusted."""
        if not self.access.issuers:
            return None
        return f"{self.place.base_url(scope, headers)}{METADATA_PATH}{scope.get(ASKED_PATH, self.path)}"

    async def _identified(
        self, path: str, headers: Mapping[str, str], metadata_url: str | None
    ) -> AdmittedUser:
        """The user who sent the request.

        Raises:
            RefusedError: 404, the request is for another path; 401, the caller is unknown; 503, the caller cannot be
                verified now.
        """
        if path.rstrip("/") != self.path.rstrip("/"):
            raise RefusedError(404, f"There is nothing here; MCP is at {self.path}")
        return AdmittedUser(*await self._principal_here(headers, metadata_url), metadata_url)

    async def _principal_here(
        self, headers: Mapping[str, str], metadata_url: str | None
    ) -> tuple[Principal, int]:
        """The sender of a request, with its rights in this face, and the earlier value of `Access.changes`."""
        changes = self.access.changes
        principal = await self.access.principal_of(headers, self.path, metadata_url)
        return principal.in_face(self.name), changes

    async def _readmit(self, user: AdmittedUser, headers: Headers) -> None:
        """Admit a user again, with its present rights.

        Raises:
            RefusedError: 401, the caller is no longer known, or is now another principal; 503, the caller cannot be
                verified.
        """
        principal, changes = await self._principal_here(headers, user.metadata_url)
        if principal.name != user.principal.name:
            raise self.access.refusal("now belongs to somebody else", user.metadata_url)
        user.principal, user.changes = principal, changes

    def _require_taken(self, verb: str, headers: Mapping[str, str]) -> None:
        """Refuse a request that the endpoint accepts from no caller.

        Raises:
            RefusedError: 405 or 415, the request is not an MCP message; 503, the bridge is stopping.
        """
        if verb not in _METHODS:
            raise RefusedError(405, "MCP is spoken with POST", {"Allow": ", ".join(_METHODS)})
        if verb == "POST":
            require_json(headers, frozenset({_JSON}))
        # A request of a session may be the answer to a question, or cancel a call.
        if self.is_stopping and (verb == "GET" or "mcp-session-id" not in headers):
            raise _stopping()

    async def _serve(
        self, scope: Scope, receive: Receive, send: Send, user: AdmittedUser, served: _Served
    ) -> None:
        began = ended = False

        async def watched_send(message: Message) -> None:
            nonlocal began, ended
            began = True
            ended = message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)

        # When a token expires, a call goes on, but a stream ends.
        left = user.principal.seconds_left() if served is self._streams else math.inf
        with anyio.CancelScope(deadline=anyio.current_time() + left) as life:
            served[life] = user
            try:
                # A client that disconnects while it sends its request needs no answer.
                with suppress(ClientDisconnect):
                    await self.inner(scope, await self._bounded(scope, receive, user), watched_send)
            except RefusedError as exc:
                self._tell_of_refusal(Headers(scope=scope), exc, user)
                await _refusal(exc)(scope, receive, watched_send)
            finally:
                del served[life]
        if not life.cancelled_caught or ended:
            return
        if began:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        else:
            is_out = user.is_revoked or user.principal.seconds_left() <= 0
            refused = self.access.refusal("is not known any more") if is_out else _stopping()
            if not user.is_heard:
                self._tell_of_refusal(Headers(scope=scope), refused, user)
            await _refusal(refused)(scope, receive, send)

    async def _bounded(self, scope: Scope, receive: Receive, user: AdmittedUser) -> Receive:
        """A `receive` that gives the posted message. The whole message is read first.

        Raises:
            RefusedError: the message is too large, or has too many values; 401, see `_readmit`, or the message calls a
                tool for which the token has expired; 403, it calls a tool for which the token lacks a scope.
        """
        if scope["method"] != "POST":
            return receive
        headers = Headers(scope=scope)
        body = await request_body(receive, headers, self.body_bytes)
        if holds_more_values(body, self.json_values):
            raise RefusedError(413, f"The message holds more than {self.json_values} values and keys")
        # The checks below apply to the same bytes that the SDK reads.
        body = _readable_body(body)
        if user.changes != self.access.changes:
            await self._readmit(user, headers)
        if user.principal.scopes or self.caller_issuers():
            self._require_rights(body, headers, user)
        waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replayed() -> Message:
            return waiting.pop() if waiting else await receive()

        return replayed

    def _require_rights(self, body: bytes, headers: Headers, user: AdmittedUser) -> None:
        called = _call_in(body)
        tool = self.tool_called(*called) if called else None
        if tool is not None:
            user.method, user.tool = "tools/call", tool
            self._require_scope(tool, headers, user)
            self._require_token(tool, user)

    def _require_token(self, tool: str, user: AdmittedUser) -> None:
        """Require a token that can be exchanged, for a tool that is called on behalf of callers. The bridge accepts an
        expired token for a while, since clocks differ, but its issuer does not."""
        issuer, token = self.caller_issuers().get(tool), user.principal.token
        if issuer is None:
            return
        if token is None or token.issuer != issuer:
            words = (
                f"The tool {echoed(tool)} acts with the rights of its caller, and takes a token of {issuer}"
            )
            raise RefusedError(403, words)
        if token.seconds_left() <= 0:
            raise self.access.refusal("has expired", user.metadata_url, is_token=True)

    def _require_scope(self, tool: str, headers: Headers, user: AdmittedUser) -> None:
        scope = user.principal.missing_scope(self.names_of(tool))
        if scope is not None:
            words = f"The tool {echoed(tool)} takes a token with the scope {scope}"
            # Clients of older revisions ask only for the scopes named here, and would lose the scopes that they have
            # (MCP 2025-11-25 basic/authorization, "Server Scope Management"). Newer clients unite both.
            is_modern = headers.get("mcp-protocol-version") in MODERN_PROTOCOL_VERSIONS
            held = () if is_modern else user.principal.held_scopes()
            raise RefusedError(403, words, insufficient_scope(scope, user.metadata_url, held))


class _NoMessageError(RefusedError):
    """A body that is not a message, but has the id of a request."""

    def __init__(self, words: str, request_id: RequestId) -> None:
        super().__init__(400, words)
        self.request_id = request_id


def _readable_body(body: bytes) -> bytes:
    """The body in the form that the SDK reads; unchanged if it cannot be normalized.

    Raises:
        _NoMessageError: the body is not a message, but has the id of a request.
    """
    if plain_message_in(body) is not None:
        return body
    read, *more = messages_in(body)
    if not isinstance(read, SessionMessage):
        request_id, words = read.request_id, str(read)
    elif not more:
        return line_of(read)
    else:
        request_id, words = getattr(read.message, "id", None), "there is more after the first message"
    if request_id is not None:
        raise _NoMessageError(f"The body is no JSON-RPC message: {words}", request_id)
    return body


def _call_in(body: bytes) -> tuple[str, JsonObject] | None:
    """The name and arguments of a tools/call; None for any other message, and for a message that the SDK will
    refuse."""
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        return None
    match message:
        case {"method": "tools/call", "params": {"name": str(name), **params}}:
            arguments = params.get("arguments")
            return name, arguments if isinstance(arguments, dict) else {}
    return None


def _readable(scope: Scope, *, with_last_event: bool) -> list[tuple[bytes, bytes]]:
    """The headers without surrounding white space (RFC 9110 section 5.5), which the parser leaves. Without kept
    messages, the SDK would not answer a request with Last-Event-ID at all."""
    left_out = b"" if with_last_event else b"last-event-id"
    return [(name, value.strip(b" \t")) for name, value in scope["headers"] if name != left_out]


def _cancel(served: _Served) -> None:
    for life in tuple(served):
        life.cancel()


def _stopping() -> RefusedError:
    return RefusedError(503, "The bridge is stopping", {"Retry-After": _AGAIN_SECONDS})


def _refusal(refused: RefusedError) -> Response:
    error = {"code": INVALID_REQUEST, "message": str(refused)}
    request_id = refused.request_id if isinstance(refused, _NoMessageError) else None
    body = json.dumps({"jsonrpc": "2.0", "id": request_id, "error": error})
    return Response(body, refused.status, headers=refused.headers, media_type=_JSON)
