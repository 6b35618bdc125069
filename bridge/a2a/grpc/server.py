"""The gRPC server of a bridge: both services of A2A for all its agents, at one address, with health and reflection.

A request names its agent by its tenant, and the only agent also answers requests without a tenant. Each call is
admitted as a request over HTTP is, with its metadata as headers. Its message is parsed only after the admission.

An operation runs on a task of the server and not on that of its call: as over HTTP, a client that goes away must not
interrupt it half-way. The task of a message goes on.

Spec: A2A 1.0 section 10; grpc.io/docs/guides for deadlines, cancellation, keepalive and status codes.
"""

from __future__ import annotations

import logging
import math
import ssl
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, Self
from urllib.parse import unquote

import anyio
import anyio.abc
import grpc
from grpc import aio
from pydantic_core import from_json
from starlette.datastructures import Headers

from bridge.a2a.grpc.certificates import server_credentials
from bridge.a2a.grpc.messages import ProtobufDecodeLimits, ProtobufMessage, ProtobufMessages
from bridge.a2a.grpc.older_proto import params_of, with_proto_security
from bridge.a2a.grpc.status import StatusWriter
from bridge.a2a.model.errors import ANSWER_TOO_LARGE, METHOD_NOT_FOUND, UNAVAILABLE, A2AError
from bridge.a2a.model.operations import GET_EXTENDED_AGENT_CARD, Streamed
from bridge.a2a.server.admission import RequestAdmission
from bridge.a2a.server.app import AdmittedAnswer, AgentServer, OperationRequest, activated, as_a2a
from bridge.a2a.server.service import Stream
from bridge.a2a.tasks.callers import CallContext
from bridge.a2a.wire.dialect import ValueDialect
from bridge.a2a.wire.protobuf_schema import HEALTH, SERVICES, TENANTS, Method, ProtobufService
from bridge.a2a.wire.versions import HEADER as VERSION_HEADER
from bridge.a2a.wire.versions import VERSIONS
from bridge.errors import UsageError, echoed
from bridge.http.request_checks import NO_PROXIES, SHOWN_HEADER, TrustedProxies
from bridge.http.tls import TlsFiles, identities_in
from bridge.identity.callers.verifiers import FORWARDED
from bridge.settings import ConnectionSettings, RequestSettings, StreamSettings
from bridge.text.jsonvalues import JsonObject, json_bytes

logger = logging.getLogger(__name__)

MESSAGE_BYTES: Final = 4 * 1024 * 1024
"""The most bytes of a request, if the profile does not allow fewer: the default of gRPC itself. A message of many empty
fields takes 45 times its size in memory until its values are counted."""

_GOODBYE_SECONDS: Final = 3
"""The time for answers that are still being written after all tasks have ended."""
_PING_SECONDS: Final = 60
"""How long a connection may be silent until the server asks whether its client is still there, and how long the answer
may take."""
_PINGS_EACH_SECONDS: Final = 10
"""The shortest time between two pings of a client. After some that come sooner, its connection is closed."""
_CALLS_EACH: Final = 100
"""The most calls at once on one connection: the number that HTTP/2 recommends as the least (RFC 9113 section 6.5.2)."""
_READY_BYTES: Final = 256 * 1024
"""Above this size, the events of a stream wait for the writes of those before them."""
_GRPC_LOGGER: Final = "grpc._cython.cygrpc"
_EARLY: Final = 0.1
_EARLY_SECONDS: Final = (0.05, 1.0)
"""How much before a client's deadline a message is answered: a share of the time, within these bounds."""


@dataclass(frozen=True)
class GrpcSettings:
    """Where gRPC is served, and the bounds on its clients."""

    host: str
    port: int
    requests: RequestSettings
    connections: ConnectionSettings
    streams: StreamSettings
    tls: TlsFiles | None = None
    proxies: TrustedProxies = NO_PROXIES
    reflection: bool = False
    """Whether clients may ask for the descriptors."""

    @property
    def address(self) -> str:
        """The address as gRPC writes it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def options(self) -> list[tuple[str, int]]:
        """The options of gRPC's core (grpc.github.io/grpc/core/group__grpc__arg__keys.html)."""
        idle_ms = round(self.connections.idle_seconds * 1000)
        return [
            ("grpc.so_reuseport", 0),  # a second bridge must not take half of the calls
            ("grpc.max_receive_message_length", min(self.requests.body_limit_bytes, MESSAGE_BYTES)),
            ("grpc.max_send_message_length", self.requests.grpc_answer_bytes),
            ("grpc.max_metadata_size", self.requests.head_limit_bytes),
            ("grpc.absolute_max_metadata_size", self.requests.head_limit_bytes),
            ("grpc.max_concurrent_streams", _CALLS_EACH),
            ("grpc.max_connection_idle_ms", idle_ms),
            ("grpc.server_handshake_timeout_ms", round(self.requests.head_seconds * 1000)),
            ("grpc.keepalive_time_ms", _PING_SECONDS * 1000),
            ("grpc.keepalive_timeout_ms", _PING_SECONDS * 1000),
            ("grpc.http2.min_ping_interval_without_data_ms", _PINGS_EACH_SECONDS * 1000),
            ("grpc.max_allowed_incoming_connections", self.connections.most),
        ]


class ServedAgents(Protocol):
    """The agents that a gRPC server serves."""

    def servers(self) -> Mapping[str, tuple[AgentServer, str]]:
        """Each agent's server, and the path of its base URL, by the agent's name."""

    def is_ready(self, name: str) -> bool | None:
        """Whether the agent of this name can do its work; "" is the whole bridge, None an unknown name."""

    @property
    def http_url(self) -> str:
        """The URL of the bridge over HTTP, for cards."""


class GrpcServer:
    """Listens from the beginning, so that a taken port is noticed early. `serve` answers calls."""

    def __init__(self, settings: GrpcSettings) -> None:
        """Listen. Call this in the event loop that serves.

        Raises:
            UsageError: the port is taken, or a file of TLS cannot be used.
        """
        logging.getLogger(_GRPC_LOGGER).addFilter(_is_no_lost_answer)
        self._settings = settings
        self._ending = anyio.Event()
        self._server = aio.server(
            options=settings.options,
            maximum_concurrent_rpcs=settings.streams.open + settings.connections.most,
        )
        try:
            if settings.tls is None:
                self.port: int = self._server.add_insecure_port(settings.address)
            else:
                credentials = server_credentials(settings.tls)
                self.port = self._server.add_secure_port(settings.address, credentials)
        except RuntimeError as exc:
            raise UsageError(
                f"cannot listen for gRPC on {settings.host} port {settings.port}; choose another with --grpc HOST:PORT,"
                " or `grpc` in [bridge]"
            ) from exc

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        with anyio.CancelScope(shield=True):
            await self._server.stop(None)

    @property
    def should_exit(self) -> bool:
        """Whether the server stops, or has stopped."""
        return self._ending.is_set()

    @should_exit.setter
    def should_exit(self, _: bool) -> None:
        self._ending.set()

    async def serve(self, agents: ServedAgents) -> None:
        """Answer calls until `should_exit` is set. Answers that are being written then have a short time left."""
        async with anyio.create_task_group() as group:
            calls = GrpcHandler(agents, self._settings, group)
            self._server.add_generic_rpc_handlers((calls,))
            if self._settings.reflection:
                _add_reflection(self._server, calls.messages)
            await self._server.start()
            try:
                await self._ending.wait()
            finally:
                calls.is_ending = True
                with anyio.CancelScope(shield=True):
                    await self._server.stop(_GOODBYE_SECONDS)
                group.cancel_scope.cancel()


def _add_reflection(server: aio.Server, messages: ProtobufMessages) -> None:
    from grpc_reflection.v1alpha import reflection  # only where the configuration asks for it

    names = [service.name for service in SERVICES]
    reflection.enable_server_reflection([*names, reflection.SERVICE_NAME], server, pool=messages.pool)


@dataclass(frozen=True, slots=True)
class _ServedMethod:
    """A method, with the converters of its messages."""

    service: ProtobufService
    method: Method
    request: ProtobufMessage
    answer: ProtobufMessage
    dialect: ValueDialect
    tenant: ProtobufMessage | None
    """Reads only the tenant of a request; None where requests have none."""

    def tenant_of(self, body: bytes) -> str:
        """The tenant of a request; "" without one."""
        return "" if self.tenant is None else str(self.tenant.from_bytes(body).get("tenant", ""))


class GrpcHandler:
    """Finds the method of each call, and performs its operation: a `grpc.GenericRpcHandler`."""

    def __init__(self, agents: ServedAgents, settings: GrpcSettings, group: anyio.abc.TaskGroup) -> None:
        self._agents = agents
        self._settings = settings
        self._group = group
        self.messages = ProtobufMessages()
        self._status = StatusWriter(self.messages)
        self.is_ending = False
        """Whether the server stops."""
        self._methods = {
            f"/{service.name}/{method.name}": self._handler(self._served(service, method))
            for service in SERVICES
            for method in service.methods
        }
        self._methods[f"/{HEALTH.package}.Health/Check"] = grpc.stream_unary_rpc_method_handler(self._check)

    def service(self, handler_call_details: Any) -> Any:
        """The handler of a call's method; None for an unknown method, which gRPC answers with UNIMPLEMENTED."""
        return self._methods.get(handler_call_details.method)

    def _served(self, service: ProtobufService, method: Method) -> _ServedMethod:
        package = service.table.package
        number = self.messages.number_of("tenant", package, method.request)
        return _ServedMethod(
            service,
            method,
            self.messages.find(package, method.request),
            self.messages.find(package, method.answer),
            VERSIONS.of_service(service.version, None),
            None if number is None else self.messages.find(TENANTS.package, f"TenantAt{number}"),
        )

    def _handler(self, served: _ServedMethod) -> Any:
        async def respond(
            incoming: AsyncIterator[bytes], context: aio.ServicerContext[bytes, bytes]
        ) -> bytes | None:
            body = await self._message_in(incoming, context)
            call = _GrpcCall(self, served, body, context)
            self._group.start_soon(call.run)
            try:
                await call.write()
            except BaseException:
                call.end()  # the client is gone
                raise
            if call.error is not None:
                status = self._status.status_of(call.error, served.dialect)
                await context.abort(grpc.StatusCode[status.code], status.message, status.metadata)
            if call.on_written is not None:
                call.on_written()
            return call.answer

        # On the wire, one message is the same as a stream of one. As a stream, its time can be bounded.
        if isinstance(served.method.operation, Streamed):
            return grpc.stream_stream_rpc_method_handler(respond)
        return grpc.stream_unary_rpc_method_handler(respond)

    async def _message_in(
        self, incoming: AsyncIterator[bytes], context: aio.ServicerContext[bytes, bytes]
    ) -> bytes:
        """The message of a call. Without a bound in time, calls without a message would fill the server."""
        seconds, body = self._settings.requests.body_seconds, None
        with anyio.move_on_after(seconds) as patience:
            body = await anext(aiter(incoming), None)
        if patience.cancelled_caught:
            words = f"The message did not come within {seconds:g} s"
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, words)
        if body is None:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "The call has no message")
        assert body is not None
        return body

    def agent_of(self, tenant: str) -> tuple[AgentServer, str]:
        """The agent of a tenant, and the path of its base URL.

        Raises:
            A2AError: METHOD_NOT_FOUND, no agent has this tenant, or there are several agents and no tenant is given.
        """
        agents = self._agents.servers()
        if not tenant and len(agents) == 1:
            return next(iter(agents.values()))
        if (agent := agents.get(tenant)) is not None:
            return agent
        several = "Several agents are served here, and the request names none of them as its tenant"
        raise A2AError(METHOD_NOT_FOUND, f"There is no agent {echoed(tenant)!r}" if tenant else several)

    def scope_of(self, context: aio.ServicerContext[bytes, bytes]) -> dict[str, Any]:
        """What ASGI would say of a call: its headers, and where its connection comes from. Its Host is that of the
        bridge over HTTP. Browsers cannot make gRPC calls, so the Host needs no check; that of Origin stays, for proxies
        that translate from gRPC-Web.

        Raises:
            RefusedError: see `TrustedProxies.identity_in`.
        """
        sent = [
            (str(name).encode(), value.encode())
            for name, value in context.invocation_metadata() or ()
            if isinstance(value, str) and name != "host" and not name.startswith(":")
        ]
        scheme, _, host = self._agents.http_url.partition("://")
        scope: dict[str, Any] = {
            "type": "http",
            "scheme": scheme,
            "client": _client_of(context.peer()),
            "headers": [*sent, (b"host", host.encode())],
        }
        proxies = self._settings.proxies
        named = proxies.identity_in(scope)
        identities = [*_identities_of(context), *([] if named is None else [f"{FORWARDED}{named}"])]
        ours = proxies.header.encode()
        headers = [(name, value) for name, value in scope["headers"] if name != ours]
        if identities:
            headers.append((SHOWN_HEADER.encode(), json_bytes([*identities])))
        return {**scope, "headers": headers}

    @property
    def limits(self) -> ProtobufDecodeLimits:
        """The bounds of a request."""
        return ProtobufDecodeLimits(self._settings.requests.json_depth, self._settings.requests.json_values)

    @property
    def answer_bytes(self) -> int:
        """The most bytes of an answer or an event."""
        return self._settings.requests.grpc_answer_bytes

    @property
    def stall_seconds(self) -> float:
        """How long one write may wait for a client that reads nothing."""
        return self._settings.streams.stall_seconds

    async def _check(
        self, incoming: AsyncIterator[bytes], context: aio.ServicerContext[bytes, bytes]
    ) -> bytes:
        """The health of the bridge or of an agent. The names of A2A's services stand for the bridge."""
        body = await self._message_in(incoming, context)
        wanted = str(
            self.messages.find(HEALTH.package, "HealthCheckRequest").from_bytes(body).get("service", "")
        )
        name = "" if wanted in {service.name for service in SERVICES} else wanted
        is_ready = self._agents.is_ready(name)
        if is_ready is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"There is no service {echoed(wanted)!r}")
        status = "SERVING" if is_ready and not self.is_ending else "NOT_SERVING"
        return self.messages.find(HEALTH.package, "HealthCheckResponse").to_bytes({"status": status})


class _GrpcCall:
    """One call of a method of A2A, on a task of its own."""

    def __init__(
        self,
        calls: GrpcHandler,
        served: _ServedMethod,
        body: bytes,
        context: aio.ServicerContext[bytes, bytes],
    ) -> None:
        self._calls = calls
        self._served = served
        self._body = body
        self._context = context
        self._stream: Stream | None = None
        self._is_ended = False
        self._ready: deque[bytes] = deque()
        """The events that are not written yet. A write takes longer than an event takes to come: without this, a burst
        would fill the queue of the stream."""
        self._ready_bytes = 0
        self._changed = anyio.Event()
        """Set and replaced when an event becomes ready, is written, or the call ends."""
        self._writing = anyio.CancelScope()
        self.ended = anyio.Event()
        """Set once there is an answer or an error, or the stream has ended."""
        self.answer: bytes | None = None
        self.error: A2AError | None = None
        self.on_written: Callable[[], None] | None = None
        """Called when the answer was handed over to a connected client."""

    def end(self) -> None:
        """Send no more, because the client is gone or may no longer call."""
        self._is_ended = True
        self._ready.clear()
        self._change()
        if self._stream is not None:
            self._stream.close()

    async def run(self) -> None:
        """Perform the operation."""
        try:
            await self._run()
        except Exception as exc:  # noqa: BLE001 - `as_a2a` logs what nobody expected
            self.error = as_a2a(exc)
        finally:
            self.ended.set()
            self._change()

    async def write(self) -> None:
        """Write events until there is an answer or an error, or the stream has ended."""
        with self._writing:
            while self._ready or not self.ended.is_set():
                if not self._ready:
                    await self._changed.wait()
                    continue
                try:
                    await self._context.write(self._ready[0])
                except aio.BaseError as exc:
                    logger.debug("a client went away before its stream had ended: %s", exc)
                    self.end()
                    break
                if self._ready:  # else the call has ended meanwhile
                    self._ready_bytes -= len(self._ready.popleft())
                    self._change()
        await self.ended.wait()

    def _change(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def _run(self) -> None:
        served = self._served
        server, path = self._calls.agent_of(served.tenant_of(self._body))
        scope = self._calls.scope_of(self._context)
        headers = Headers(raw=scope["headers"])
        with server.admission.begin(headers, path) as visit:
            request = OperationRequest(scope, headers, visit)
            try:
                caller = server.caller(request, await visit.admit())
                VERSIONS.of_service(served.service.version, headers.get(VERSION_HEADER))
                caller = replace(caller, patience_seconds=_patience_of(self._context.time_remaining()))
                params = params_of(
                    served.method.operation, served.request.from_bytes(self._body, self._calls.limits)
                )
                self._body = b""
                result = await server.perform(
                    request, served.dialect, served.method.operation, params, caller
                )
                await self._answer(server, request, caller, result)
            except Exception as exc:
                error = as_a2a(exc)
                visit.fail(error)
                raise error from exc

    async def _answer(
        self,
        server: AgentServer,
        request: OperationRequest,
        caller: CallContext,
        result: AdmittedAnswer | Stream,
    ) -> None:
        if isinstance(result, Stream):
            self._stream = result
        try:
            if (active := activated(caller, self._served.dialect)) and not self._is_ended:
                headers = [(name.lower(), value) for name, value in active.items()]
                await self._context.send_initial_metadata(headers)
            if isinstance(result, Stream):
                await self._send_events(result, request.visit)
            else:
                request.visit.leave_place()
                self.answer, self.on_written = self._bytes_of(server, result), request.on_written
        except aio.BaseError as exc:
            logger.debug("a client went away before its answer: %s", exc)
        finally:
            if isinstance(result, Stream):
                result.close()
                if request.visit.hop is not None:
                    result.note_in(request.visit.hop)

    def _bytes_of(self, server: AgentServer, answered: AdmittedAnswer) -> bytes:
        operation = self._served.method.operation
        value = self._served.dialect.answer(operation, answered.value)
        if not isinstance(value, dict):
            return b""  # Empty
        if operation is GET_EXTENDED_AGENT_CARD:
            return self._served.answer.to_bytes(with_proto_security(value))
        return self._bounded(value, self._served.answer.to_bytes(value, server.hidden_keys(answered.caller)))

    def _bounded(self, value: JsonObject, text: bytes) -> bytes:
        """The bytes of an answer or an event.

        Raises:
            A2AError: ANSWER_TOO_LARGE, with the id of the task, so that the client can read it over HTTP.
        """
        most = self._calls.answer_bytes
        if len(text) <= most:
            return text
        held = next(
            (item for item in (value, *value.values()) if isinstance(item, dict) and "status" in item), {}
        )
        task_id = held.get("taskId") or held.get("id")
        how = (
            "Ask for a smaller `pageSize` or `historyLength`, or for no artifacts"
            if "tasks" in value
            else f"Read {f'task {task_id}' if task_id else 'the task'} over HTTP+JSON or JSON-RPC, which the card names"
        )
        raise A2AError(
            ANSWER_TOO_LARGE,
            f"The answer has {len(text)} bytes, and this server sends at most {most} in one gRPC message. {how}."
            " Where the clients take more, `grpc_answer_bytes` in [requests] raises the bound",
            metadata={"taskId": str(task_id)} if task_id else {},
        )

    async def _send_events(self, stream: Stream, visit: RequestAdmission) -> None:
        visit.stream = self
        is_last = False
        with anyio.move_on_after(visit.principal.seconds_left()):
            while not self._is_ended and not is_last and not stream.is_over:
                if (seen := stream.take()) is None:
                    await self._watched(stream.wait)
                    continue
                event = self._served.dialect.event(from_json(seen.text), last=seen.last)
                text, is_last = self._bounded(event, self._served.answer.to_bytes(event)), seen.last
                self._ready.append(text)
                self._ready_bytes += len(text)
                self._change()
                while self._ready_bytes >= _READY_BYTES and self._ready:
                    await self._watched(self._changed.wait)
            while self._ready:
                await self._watched(self._changed.wait)
            if is_last and not self._is_ended:
                self.on_written = stream.written
        if stream.was_cut_off:
            raise A2AError(UNAVAILABLE, "The client read too slowly. Subscribe to the task to read on")

    async def _watched(self, wait: Callable[[], Awaitable[None]]) -> None:
        """Wait, and watch the write of an event meanwhile.

        Raises:
            A2AError: UNAVAILABLE, the write takes too long.
        """
        writing, seconds = (self._ready[0] if self._ready else None), self._calls.stall_seconds
        with anyio.move_on_after(math.inf if writing is None else seconds) as patience:
            await wait()
        if patience.cancelled_caught and self._ready and self._ready[0] is writing:
            logger.warning("a client read nothing for %g s; its stream is closed", seconds)
            self._ready.clear()
            self._writing.cancel()
            raise A2AError(UNAVAILABLE, f"The client read nothing for {seconds:g} s")


def _is_no_lost_answer(record: logging.LogRecord) -> bool:
    """Leaves out the error that gRPC logs for each answer whose client is gone."""
    return "raised in core by servicer method" not in str(record.msg)


def _patience_of(seconds_left: float | None) -> float | None:
    """How long a message may wait for its task, so that its answer comes before the deadline of the client."""
    if seconds_left is None or seconds_left == math.inf:
        return None
    least, most = _EARLY_SECONDS
    return max(0.0, seconds_left - min(most, max(least, seconds_left * _EARLY)))


def _client_of(peer: str) -> tuple[str, int] | None:
    """The address of a peer, which gRPC writes as a URI such as `ipv6:%5B::1%5D:50051`; None for another kind."""
    kind, _, rest = unquote(peer).partition(":")
    host, _, port = rest.rpartition(":")
    if kind not in ("ipv4", "ipv6") or not port.isdecimal():
        return None
    return host.removeprefix("[").removesuffix("]"), int(port)


def _identities_of(context: aio.ServicerContext[bytes, bytes]) -> tuple[str, ...]:
    """The identities in the certificate of the client.

    Raises:
        ValueError: the certificate cannot be read.
    """
    certificates = context.auth_context().get("x509_pem_cert") or ()
    return identities_in(ssl.PEM_cert_to_DER_cert(certificates[0].decode())) if certificates else ()
