"""The A2A server of one agent as an ASGI application: the card, JSON-RPC, and HTTP+JSON, under one base.

The application turns HTTP into operations and back; the service performs them. `jsonrpc.py` and `rest.py` know the
bindings, and the dialects (`dialect.py`) know the names and objects of each version.

Spec: A2A 1.0 sections 8 (card), 9 (JSON-RPC), 11 (HTTP+JSON), 3.2.6 (service parameters), 3.6 (versions).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from pydantic import JsonValue
from starlette.datastructures import Headers, QueryParams
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from bridge import trace
from bridge.a2a.model.errors import (
    CONTENT_TYPE_NOT_SUPPORTED,
    EXTENSION_SUPPORT_REQUIRED,
    FORBIDDEN,
    INTERNAL,
    INVALID_REQUEST,
    METHOD_NOT_ALLOWED,
    MISDIRECTED,
    TOO_LARGE,
    UNAUTHENTICATED,
    UNAVAILABLE,
    A2AError,
    ErrorKind,
    temporarily_unavailable,
)
from bridge.a2a.model.objects import AgentCard, AgentInterface, Model, SendMessageResponse, Task
from bridge.a2a.model.operations import (
    CANCEL_TASK,
    GET_EXTENDED_AGENT_CARD,
    SEND_MESSAGE,
    SEND_STREAMING_MESSAGE,
    AnyOperation,
    Streamed,
    Unary,
)
from bridge.a2a.model.operators import DECLARATION, OPERATOR_URI
from bridge.a2a.model.timeline import TIMELINE_URI
from bridge.a2a.server.admission import AdmissionControl, CallerChangedError, RequestAdmission
from bridge.a2a.server.event_stream import EventStream, StreamTimers, is_disconnected
from bridge.a2a.server.security import with_security
from bridge.a2a.server.service import AgentService, Stream
from bridge.a2a.server.signed_cards import CardSigning, ShownCard, SignedCards
from bridge.a2a.tasks.agent import Agent
from bridge.a2a.tasks.callers import CallContext
from bridge.a2a.wire import jsonrpc, rest
from bridge.a2a.wire.dialect import Dialect, EventEncoder
from bridge.a2a.wire.jsontext import parse_json
from bridge.a2a.wire.rest import CARD_PATH, OLDER_CARD_PATH
from bridge.a2a.wire.versions import HEADER as VERSION_HEADER
from bridge.a2a.wire.versions import VERSIONS, Versions
from bridge.errors import StoreAwayError
from bridge.frozen import frozen
from bridge.http.request_checks import (
    FaceAddress,
    RefusedError,
    etags_in,
    request_body,
    require_json,
)
from bridge.identity.callers.principals import Principal, PrincipalNames
from bridge.identity.callers.verifiers import Access, DeclaredAccess
from bridge.identity.tokens.caller_token import CLIENT_CHARACTERS
from bridge.settings import CardSettings, RequestSettings, StreamSettings
from bridge.text.jsonvalues import JsonObject
from bridge.trace import UNHEARD, Hop, Hops

logger = logging.getLogger(__name__)

_JSON: Final = rest.PLAIN_MEDIA_TYPE
_ACCEPTED: Final = frozenset({_JSON, rest.MEDIA_TYPE})
_WITH_BODY: Final = frozenset({"POST", "PUT"})
_GOES_UPSTREAM: Final[tuple[AnyOperation, ...]] = (SEND_MESSAGE, SEND_STREAMING_MESSAGE, CANCEL_TASK)
"""The operations that may send something to a tool server."""
_READS: Final = frozenset({"GET", "HEAD"})

_FOR_ITS_CALLER: Final[Mapping[str, str]] = {"Cache-Control": "private, no-cache"}
"""Keeps an answer from other callers. A cache knows that an answer to a request with an Authorization header is for one
caller (RFC 9111 section 3.5). It does not know this for an API key, a certificate or the header of a proxy."""

_OWN: Final = frozenset({TIMELINE_URI})
"""Extensions of every agent that is served here. They belong to the bridge, so they are not on the agent's card."""

_ANYONE: Final = Principal("(itself)")
"""A principal that may use every skill."""

_REFUSALS: Final[Mapping[int, ErrorKind]] = {
    400: replace(INVALID_REQUEST, at_http_level=True),
    401: UNAUTHENTICATED,
    403: FORBIDDEN,
    413: TOO_LARGE,
    415: replace(CONTENT_TYPE_NOT_SUPPORTED, http_status=415, at_http_level=True),
    421: MISDIRECTED,
    503: UNAVAILABLE,
}


@dataclass(frozen=True, slots=True)
class AgentLimits:
    """The bounds on requests, on streams, and on the cards that are cached."""

    requests: RequestSettings
    streams: StreamSettings
    card: CardSettings


FindInterfaces = Callable[[str, str], tuple[AgentInterface, ...]]
"""Finds the interfaces of an agent that are not below its base URL, by this URL and the agent's name."""


def no_interfaces(_: str, __: str) -> tuple[AgentInterface, ...]:
    """For an agent whose interfaces are all below its base URL."""
    return ()


class AgentServer:
    """The server of one agent. It can be mounted at any path, and takes its base URL from each request."""

    def __init__(
        self,
        agent: Agent,
        service: AgentService,
        access: Access,
        address: FaceAddress,
        limits: AgentLimits,
        name: str = "",
        versions: Versions = VERSIONS,
        hops: Hops = UNHEARD,
        signing: CardSigning | None = None,
        find_interfaces: FindInterfaces = no_interfaces,
        *,
        shows_operators_contents: bool = False,
    ) -> None:
        """`name` is the agent's name among the endpoints of the bridge. The rules of principals refer to it. `signing`
        signs its cards; without it, cards are not signed. `find_interfaces` returns the interfaces of its card that
        have an address of their own.

        `shows_operators_contents` says that operators see the contents of the tasks of others.
        """
        self._shows_operators_contents = shows_operators_contents
        self._agent = agent
        self._service = service
        self._access = access
        self._address = address
        self._find_interfaces = find_interfaces
        self._name = name
        self.versions = versions
        self.limits = limits
        self.admission = AdmissionControl(access, address, name, limits.streams.open, hops)
        self._stream_timers = StreamTimers(limits.streams)
        self._last_card: ShownCard | None = None
        self._last_interfaces: tuple[AgentInterface, ...] = ()
        self._signed_cards = SignedCards(signing or CardSigning(), limits.card.signed_most)

    def at(self, base_path: str) -> ASGIApp:
        """The application. `base_path` is its path on the card, wherever the application is mounted."""

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http":
                headers = Headers(scope=scope)
                with self.admission.begin(headers, base_path) as visit:
                    await self._serve(_Request(scope, receive, headers, visit), base_path, send)

        return app

    async def _serve(self, request: _Request, base_path: str, send: Send) -> None:
        if request.path == CARD_PATH or (request.path == OLDER_CARD_PATH and self.versions.serves_older_card):
            answer: Response | EventStream = self._card(request, base_path)
        elif request.path in ("", "/"):
            answer = await self._jsonrpc(request)
        else:
            answer = await self._rest(request)
        if isinstance(answer, EventStream):
            try:
                await answer(request.scope, request.receive, send)
            finally:
                if request.visit.hop is not None:
                    answer.stream.note_in(request.visit.hop)
            is_read = answer.was_written
        else:
            request.visit.leave_place()
            is_read = request.on_written is not None and not is_disconnected(request.receive)
            await answer(request.scope, request.receive, send)
        if is_read and request.on_written is not None:
            request.on_written()

    @property
    def open_streams(self) -> int:
        """The number of open streams."""
        return len(self.admission.listening)

    def end_streams_of(self, principals: PrincipalNames) -> None:
        """End the streams of these principals, who may no longer call. Their tasks go on."""
        self.admission.end_streams_of(principals)

    # The card

    def card(self, base_url: str) -> AgentCard:
        """The agent's public card for this base URL, with the security of this server."""
        return self._shown_at(base_url).card

    def whole_card(self, base_url: str) -> AgentCard:
        """The agent's card with all its skills, for the process itself."""
        return self._secured(self._agent.extended_card(base_url, _ANYONE), self._access.declared, ())

    def _secured(
        self, card: AgentCard, declared: DeclaredAccess, interfaces: tuple[AgentInterface, ...]
    ) -> AgentCard:
        if interfaces:
            card = card.changed(supported_interfaces=(*card.supported_interfaces, *interfaces))
        return self.versions.card(with_security(card, declared, self._name))

    def _extended_card(self, request: OperationRequest, principal: Principal) -> AgentCard:
        """The card for one principal (section 3.1.11), which no cache may give to another."""
        request.answer_headers = _FOR_ITS_CALLER
        base_url = self._address.base_url(request.scope, request.headers) + request.visit.path
        card = self._agent.extended_card(base_url, principal)
        if principal.operator is not None:
            declared = (*(card.capabilities.extensions or ()), DECLARATION)
            card = card.changed(capabilities=card.capabilities.changed(extensions=declared))
        interfaces = self._find_interfaces(base_url, self._name)
        return self._signed_cards.signed(self._secured(card, self._access.declared, interfaces))

    def _card(self, request: _Request, base_path: str) -> Response:
        try:
            self._address.require_own(request.headers)
            request.visit.hop = None  # a card is no operation, and anyone may read it
            if request.verb not in ("GET", "HEAD"):
                raise A2AError(
                    METHOD_NOT_ALLOWED, "The card is read with GET", headers={"Allow": "GET, HEAD"}
                )
        except (A2AError, RefusedError) as exc:
            return _rest_error(request, self.versions.current, as_a2a(exc))
        base_url = self._address.base_url(request.scope, request.headers) + base_path
        served_card = self._shown_at(base_url)
        headers = {
            "ETag": served_card.etag,
            "Cache-Control": f"public, max-age={self.limits.card.max_age_seconds}",
            "Vary": "Host, X-Forwarded-Host, X-Forwarded-Proto, X-Forwarded-Prefix",
        }
        if served_card.etag.removeprefix("W/") in etags_in(request.headers):
            return Response(status_code=304, headers=headers)
        return Response(served_card.text, media_type=_JSON, headers=headers)

    def _shown_at(self, base_url: str) -> ShownCard:
        """The card as it is sent. It is built again only when the agent's card, its interfaces, the accepted callers or
        the signer changes."""
        own, declared, mark = self._agent.card(base_url), self._access.declared, self._signed_cards.mark
        interfaces = self._find_interfaces(base_url, self._name)
        last, before = self._last_card, self._last_interfaces
        if (
            last is None
            or last.own is not own
            or (last.declared, last.mark, before) != (declared, mark, interfaces)
        ):
            last = self._last_card = self._signed_cards.shown_card(
                own, declared, self._secured(own, declared, interfaces)
            )
            self._last_interfaces = interfaces
        return last

    # JSON-RPC

    async def _jsonrpc(self, request: _Request) -> Response | EventStream:
        request_id, dialect = None, self.versions.current
        try:
            if request.verb != "POST":
                raise A2AError(
                    METHOD_NOT_ALLOWED,
                    f"JSON-RPC is sent with POST; the agent's card is at {CARD_PATH}",
                    headers={"Allow": "POST"},
                )
            caller = self.caller(request, await request.visit.admit())
            payload = await self._json(request)
            request_id = jsonrpc.id_of(payload)
            call = jsonrpc.call_from(payload)
            dialect, operation = self.versions.called(request.asked_version, call.method)
            naming = self.versions.naming(request.asked_version, call.method)
            if naming is not None and await self._is_named(call.params, caller):
                dialect, operation = naming
            result = await self.perform(request, dialect, operation, call.params, caller)
            headers = {**activated(caller, dialect), **request.answer_headers}
            if isinstance(result, Stream):
                assert isinstance(operation, Streamed)
                wrap = partial(jsonrpc.result_bytes, request_id)
                return self._event_stream(request, result, dialect.writer(operation), wrap, headers)
            text = self._text(dialect, operation, result)
        except Exception as exc:  # noqa: BLE001 - `as_a2a` logs what nobody expected
            return _jsonrpc_error(request, request_id, dialect, as_a2a(exc))
        return Response(jsonrpc.result_bytes(request_id, text), media_type=_JSON, headers=headers)

    # HTTP+JSON

    async def _rest(self, request: _Request) -> Response | EventStream:
        dialect = self.versions.current
        try:
            caller = self.caller(request, await request.visit.admit())
            dialect, operation, path_params = self.versions.routed(
                request.asked_version, request.verb, request.path
            )
            body = await self._json(request) if request.verb in _WITH_BODY else {}
            params = dialect.routes.params_from(operation, path_params, request.query.multi_items(), body)
            result = await self.perform(request, dialect, operation, params, caller)
            headers = {**activated(caller, dialect), **request.answer_headers}
            if isinstance(result, Stream):
                assert isinstance(operation, Streamed)
                return self._event_stream(request, result, dialect.writer(operation), bytes, headers)
            text = self._text(dialect, operation, result)
        except Exception as exc:  # noqa: BLE001 - `as_a2a` logs what nobody expected
            return _rest_error(request, dialect, as_a2a(exc))
        return _rest_answer(request, dialect, text, dialect.statuses.get(operation, 200), headers)

    # Shared by all bindings

    def caller(self, request: OperationRequest, principal: Principal) -> CallContext:
        """The caller of a request: its principal, and the extensions that it activates."""
        requested = {
            uri.strip()
            for header in self.versions.extensions_headers
            for line in request.headers.getlist(header)
            for uri in line.split(",")
        }
        client = request.headers.get("user-agent", "")[:CLIENT_CHARACTERS]
        if not requested:
            return CallContext(principal, client=client)
        role = principal.operator if OPERATOR_URI in requested else None
        own = _OWN if role is None else _OWN | {OPERATOR_URI}
        return CallContext(
            principal,
            frozenset(requested) & (self._agent.extensions | own),
            operator=role,
            sees_contents=self._shows_operators_contents,
            client=client,
        )

    async def _is_named(self, params: JsonValue, caller: CallContext) -> bool:
        """Whether a request is for a task whose id its client has made."""
        task_id = params.get("id") if isinstance(params, dict) else None
        return isinstance(task_id, str) and await self._service.is_named(task_id, caller)

    async def _json(self, request: _Request) -> JsonValue:
        body = await request_body(request.receive, request.headers, self.limits.requests.body_limit_bytes)
        if not body and request.path not in ("", "/"):
            return {}  # POST /tasks/{id}:cancel needs no body
        require_json(request.headers, _ACCEPTED)
        return parse_json(body, self.limits.requests.json_depth, self.limits.requests.json_values)

    async def perform(
        self,
        request: OperationRequest,
        dialect: Dialect,
        operation: AnyOperation,
        params: JsonValue,
        caller: CallContext,
    ) -> AdmittedAnswer | Stream:
        """Perform an operation after the whole request was read and its caller was admitted again.

        An operation that may start work passes the audit's gate before the work starts. Any other operation passes the
        gate at once. A refusal or a repeated message passes the gate before its answer.

        Raises:
            A2AError, RefusedError, StoreAwayError: the operation is refused; see `as_a2a`.
        """
        trace.take_from(*_metadata_in(params))
        request.visit.perform(operation.name)
        if isinstance(operation, Streamed):
            request.visit.take_place()
        if operation not in _GOES_UPSTREAM:
            await request.visit.pass_gate()
        principal = await request.visit.readmit()
        while True:
            if principal is not caller.principal:
                caller = self.caller(request, principal)
            try:
                return await self._performed(request, dialect, operation, params, caller)
            except CallerChangedError as changed:
                principal = changed.principal
            except A2AError:
                with suppress(CallerChangedError):
                    await request.visit.pass_gate()
                raise

    async def _performed(
        self,
        request: OperationRequest,
        dialect: Dialect,
        operation: AnyOperation,
        params: JsonValue,
        caller: CallContext,
    ) -> AdmittedAnswer | Stream:
        if operation is GET_EXTENDED_AGENT_CARD and self._access.needs_token:
            return AdmittedAnswer(self._extended_card(request, caller.principal), caller)
        self._service.require_served(operation)
        self._require_extensions(caller, dialect)
        operation_request = dialect.request_from(operation, dialect.identified(params, self._service.new_id))
        caller = _as_spoken(caller, dialect)
        if isinstance(operation, Streamed):
            stream = await self._service.perform(operation, operation_request, caller)
            try:
                await request.visit.pass_gate()
                await request.visit.readmit()
            except BaseException:
                stream.close()
                raise
            request.on_written = stream.written
            return stream
        assert isinstance(operation, Unary)
        answer = await self._service.perform(operation, operation_request, caller)
        await request.visit.pass_gate()
        request.on_written = answer.written
        if request.visit.hop is not None:
            _note_answer(answer.value, request.visit.hop)
        return AdmittedAnswer(answer.value, caller)

    def hidden_keys(self, caller: CallContext) -> frozenset[str]:
        """The keys of metadata that an answer to this caller does not have."""
        return self._service.hidden_keys(caller)

    def _text(self, dialect: Dialect, operation: AnyOperation, answered: AdmittedAnswer) -> bytes:
        """An answer as the JSON of a dialect. A card is not filtered: its metadata belongs to no extension."""
        assert isinstance(operation, Unary)
        text = dialect.result(operation, answered.value)
        is_card = operation is GET_EXTENDED_AGENT_CARD
        return text if is_card else self._service.filtered(text, answered.caller)

    def _require_extensions(self, caller: CallContext, dialect: Dialect) -> None:
        """Require that a caller activated the extensions that the card requires (section 3.3.4).

        Raises:
            A2AError: EXTENSION_SUPPORT_REQUIRED. The message says what to send.
        """
        missing = sorted(self._agent.required_extensions - caller.extensions)
        if missing:
            raise A2AError(
                EXTENSION_SUPPORT_REQUIRED,
                f"This agent requires extensions that the request did not activate. Send {dialect.extensions_header}:"
                f" {', '.join(missing)}",
                metadata={"extensions": ",".join(missing)},
            )

    def _event_stream(
        self,
        request: _Request,
        stream: Stream,
        writer: EventEncoder,
        wrap: Callable[[bytes], bytes],
        headers: Mapping[str, str],
    ) -> EventStream:
        left = request.visit.principal.seconds_left()
        answer = EventStream(stream, writer, wrap, self._stream_timers, headers, left)
        request.visit.stream = answer
        return answer


@frozen
class AdmittedAnswer:
    """The answer of an operation, and the caller as it was admitted for it."""

    value: Model
    caller: CallContext


_NO_QUERY: Final = QueryParams()


class OperationRequest:
    """A request for an operation, in any binding."""

    __slots__ = ("answer_headers", "headers", "on_written", "scope", "visit")

    def __init__(self, scope: Scope, headers: Headers, visit: RequestAdmission) -> None:
        self.on_written: Callable[[], None] | None = None
        """Called once the answer was written in full to a connected client."""
        self.answer_headers: Mapping[str, str] = {}
        """Further headers of a successful answer."""
        self.scope = scope
        """The scope of ASGI, from which the address of the bridge is taken."""
        self.headers = headers
        self.visit = visit


class _Request(OperationRequest):
    """An HTTP request, parsed as far as both HTTP bindings need it."""

    __slots__ = ("path", "query", "receive", "verb")

    def __init__(self, scope: Scope, receive: Receive, headers: Headers, visit: RequestAdmission) -> None:
        super().__init__(scope, headers, visit)
        self.receive = receive
        self.query = QueryParams(query) if (query := scope["query_string"]) else _NO_QUERY
        self.verb: str = scope["method"]
        self.path: str = scope["path"].removeprefix(scope.get("root_path", ""))

    @property
    def asked_version(self) -> str | None:
        """The requested version (section 3.6.1): the header, or the query parameter of the same name."""
        return self.headers.get(VERSION_HEADER) or self.query.get(VERSION_HEADER)


def _metadata_in(params: JsonValue) -> Iterator[JsonObject]:
    """The metadata of a message and of its request. They carry the trace if no header could."""
    if isinstance(params, dict):
        for holder in (params.get("message"), params):
            metadata = holder.get("metadata") if isinstance(holder, dict) else None
            if isinstance(metadata, dict):
                yield metadata


def _note_answer(value: Model, hop: Hop) -> None:
    """Write the task of an answer, and the state of the task, into a hop."""
    task = value.task if isinstance(value, SendMessageResponse) else value
    if isinstance(task, Task):
        hop.task_id, hop.context_id, hop.state = task.id, task.context_id or "", task.status.state.word


def _as_spoken(caller: CallContext, dialect: Dialect) -> CallContext:
    """The caller with the settings of its dialect."""
    if not (dialect.clients_name_tasks or dialect.streams_begin_late):
        return caller
    names, late = dialect.clients_name_tasks, dialect.streams_begin_late
    return replace(caller, names_tasks=names, comes_late=late)


def activated(caller: CallContext, dialect: Dialect) -> dict[str, str]:
    """The response header that names the active extensions (section 4.6)."""
    return {dialect.extensions_header: ", ".join(sorted(caller.extensions))} if caller.extensions else {}


def as_a2a(exc: Exception) -> A2AError:
    """The A2AError that answers a failed request. A failure of the bridge itself is logged, with its place."""
    match exc:
        case A2AError():
            return exc
        case RefusedError():
            return A2AError(_REFUSALS[exc.status], str(exc), headers=exc.headers)
        case StoreAwayError():
            logger.debug("a request failed: %s", exc)  # the store itself logs once that it is unavailable
            return temporarily_unavailable("The bridge cannot reach its stored tasks at the moment")
    logger.error("a request failed", exc_info=exc)
    return A2AError(INTERNAL, "The bridge failed to answer; its log says why")


def _jsonrpc_error(
    request: _Request, request_id: jsonrpc.RequestId, dialect: Dialect, error: A2AError
) -> Response:
    request.visit.fail(error)
    status = error.kind.http_status if error.kind.at_http_level else 200
    body = jsonrpc.error_bytes(request_id, dialect.jsonrpc_error(error))
    return Response(body, status, media_type=_JSON, headers=error.headers)


def _rest_error(request: _Request, dialect: Dialect, error: A2AError) -> Response:
    request.visit.fail(error)
    return _rest_answer(
        request, dialect, dialect.http_error(error), dialect.http_status(error), error.headers
    )


def _rest_answer(
    request: _Request, dialect: Dialect, body: bytes, status: int, headers: Mapping[str, str]
) -> Response:
    media_type = rest.media_type_for(", ".join(request.headers.getlist("accept")), dialect.media_types)
    # Caches do not store the answer to a POST unless it says so (RFC 9110 section 9.3.3).
    reach = _FOR_ITS_CALLER if request.verb in _READS else {}
    return Response(body, status, media_type=media_type, headers={**reach, **headers, "Vary": "Accept"})
