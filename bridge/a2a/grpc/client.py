"""The transport of a client over gRPC: the third binding, beside both over HTTP, with the same errors.

Spec: A2A 1.0 sections 5.4 (codes) and 10; A2A 0.3.0 section 3.2.2.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Any, Final

import anyio
import httpx2
from grpc import aio
from pydantic import JsonValue
from pydantic_core import to_json

from bridge.a2a.client.http import UnansweredError, url_from
from bridge.a2a.client.transports import ReadingTransport, TransportOptions
from bridge.a2a.grpc.channels import GrpcChannels
from bridge.a2a.grpc.messages import ProtobufDecodeLimits, ProtobufMessages
from bridge.a2a.grpc.older_proto import request_of
from bridge.a2a.grpc.refusals import RefusalReader
from bridge.a2a.model.errors import A2AError
from bridge.a2a.model.objects import AgentInterface, StreamResponse
from bridge.a2a.model.operations import AnswerT, AnyOperation, RequestT, Streamed
from bridge.a2a.wire.dialect import Dialect
from bridge.a2a.wire.protobuf_schema import SERVICES, Method, ProtobufService
from bridge.a2a.wire.reading import ExchangeReading
from bridge.errors import PeerError
from bridge.http.client import PeerCredentials, RenewableCredentials, lacked_scopes
from bridge.text.jsonvalues import JsonObject
from bridge.trace import Hop

_UNTOUCHED: Final = None


@lru_cache(maxsize=1)
def _messages() -> ProtobufMessages:
    """The messages of the tables. They never change, and take some time to make."""
    return ProtobufMessages()


class GrpcTransport(ReadingTransport):
    """A transport over gRPC."""

    def __init__(
        self,
        channels: GrpcChannels,
        interface: AgentInterface,
        dialect: Dialect,
        terms: TransportOptions,
        max_values: int,
    ) -> None:
        """The URL of `interface` has the scheme `https` or `http`."""
        super().__init__(interface, dialect, terms)
        self._channels = channels
        self._max_values = max_values
        self._service: ProtobufService = next(
            service for service in SERVICES if service.version == dialect.version
        )

    def has(self, operation: AnyOperation) -> bool:
        return any(method.operation is operation for method in self._service.methods)

    async def _value(
        self,
        operation: AnyOperation,
        params: JsonObject,
        reading: ExchangeReading,  # noqa: ARG002 - bytes have no faults to note
        hop: Hop | None,
    ) -> JsonValue:
        method, body = self._written(operation, params)
        async with self._call(method, body, hop) as received:
            return self._read(method, received.message)

    async def _events_in(
        self, hop: Hop | None, operation: Streamed[RequestT, AnswerT], request: RequestT
    ) -> AsyncGenerator[StreamResponse, None]:
        reading = ExchangeReading(request)
        reader = self._dialect.reader(operation, request, reading)
        method, body = self._written(operation, self._dialect.params_of(operation, request))
        async with self._call(method, body, hop) as received:
            while received.message is not aio.EOF:
                events = reader.read(self._read(method, received.message))
                self._log_faults(reading)
                for event in events:
                    yield event
                await received.next()

    def _written(self, operation: AnyOperation, params: JsonObject) -> tuple[Method, bytes]:
        """The method of an operation, and the bytes of its request.

        Raises:
            PeerError: the version has no such operation.
        """
        method = next((known for known in self._service.methods if known.operation is operation), None)
        if method is None:
            raise PeerError(f"the agent speaks A2A {self._dialect.version}, which has no {operation}")
        tenant: JsonObject = {"tenant": self.interface.tenant} if self.interface.tenant else {}
        value = {**params, **tenant}
        if self._terms.on_hop is not None:
            self._terms.on_hop(">", to_json({"method": method.name, "request": value}).decode())
        if self._service.version != SERVICES[0].version:
            value = request_of(operation, value)
        return method, _messages().find(self._service.table.package, method.request).to_bytes(value)

    def _read(self, method: Method, body: bytes) -> JsonObject:
        """The JSON of an answer or event.

        Raises:
            PeerError: the bytes are not this message, or have too many values.
        """
        limits = ProtobufDecodeLimits(values=self._max_values)
        try:
            value = _messages().find(self._service.table.package, method.answer).from_bytes(body, limits)
        except A2AError as exc:
            raise PeerError(f"{self} answered with a message that is not accepted: {exc}") from exc
        if self._terms.on_hop is not None:
            self._terms.on_hop("<", to_json(value).decode())
        return value

    @asynccontextmanager
    async def _call(self, method: Method, body: bytes, hop: Hop | None) -> AsyncIterator[_Received]:
        """The first message of a call. A call that is refused for its credentials is made again with others, once."""
        credentials = await self._terms.credentials()
        for is_last in (False, True):
            try:
                async with self._once(method, body, hop, credentials) as received:
                    self._terms.on_refusal("")
                    yield received
                    return
            except _NotAdmittedError as exc:
                if not is_last and await self._has_others(credentials, exc.response):
                    before, credentials = credentials, await self._terms.credentials()
                    if credentials is not before:
                        continue
                raise exc.refusals.unauthorized(exc.response, exc.error, hop) from exc.error

    async def _has_others(self, credentials: PeerCredentials, response: httpx2.Response) -> bool:
        """Whether the source may have other credentials than `credentials`, which the agent refuses."""
        source = self._terms.credentials
        if not isinstance(source, RenewableCredentials):
            return False
        if response.status_code == 401:
            source.refused(credentials)
            return True
        lacked = lacked_scopes(response)
        return bool(lacked) and await source.widened(credentials, lacked)

    @asynccontextmanager
    async def _once(
        self, method: Method, body: bytes, hop: Hop | None, credentials: PeerCredentials
    ) -> AsyncIterator[_Received]:
        terms, url = self._terms, url_from(self.interface.url)
        if credentials.query:
            raise PeerError(
                f"{self} asks for an API key in the query of a URL, and gRPC has no query: call it over HTTP"
            )
        headers = {**credentials.headers, **self._headers(hop)}
        metadata, refusals = _metadata(headers, str(self)), RefusalReader(_messages(), self, terms, headers)
        async with self._channels.connected(
            url,
            terms.guard_of(self.interface.url),
            credentials.tls,
            terms.deadlines.connect_seconds,
            terms.limit_bytes,
        ) as channel:
            path = f"/{self._service.name}/{method.name}"
            # A call with one answer is made as a stream of one message: one way to read, and to end early.
            call = channel.unary_stream(path)(body, metadata=metadata)
            received = _Received(call, self, terms.deadlines.silence_seconds, refusals)
            try:
                await received.next()
                if received.message is aio.EOF and not isinstance(method.operation, Streamed):
                    raise UnansweredError(f"{self} ended its answer without a message")
                yield received
            finally:
                call.cancel()


class _NotAdmittedError(Exception):
    """The agent refused a call for its credentials."""

    def __init__(self, response: httpx2.Response, error: aio.AioRpcError, refusals: RefusalReader) -> None:
        super().__init__()
        self.refusals = refusals
        self.response = response
        self.error = error


class _Received:
    """The messages of a call, one after another."""

    def __init__(
        self, call: Any, transport: GrpcTransport, silence_seconds: float | None, refusals: RefusalReader
    ) -> None:
        self._call = call
        self._transport = transport
        self._silence_seconds = silence_seconds
        self._refusals = refusals
        self.message: Any = _UNTOUCHED

    async def next(self) -> None:
        """Wait for the next message; `aio.EOF` at the end. The limit on silence holds after the first.

        Raises:
            _NotAdmittedError: the agent refuses the credentials.
            PeerError: another error.
        """
        seconds = None if self.message is _UNTOUCHED else self._silence_seconds
        try:
            with anyio.fail_after(seconds):
                self.message = await self._call.read()
        except TimeoutError as exc:
            raise UnansweredError(f"{self._transport} was silent for {seconds:g} s") from exc
        except aio.AioRpcError as exc:
            if self.message is _UNTOUCHED and (response := self._refusals.as_unadmitted(exc)) is not None:
                raise _NotAdmittedError(response, exc, self._refusals) from exc
            raise self._refusals.error_of(exc) from exc


def _metadata(headers: Mapping[str, str], where: str) -> tuple[tuple[str, str], ...]:
    """Headers as metadata, whose names are lower case.

    Raises:
        PeerError: gRPC cannot send a header.
    """
    for name, value in headers.items():
        if not value.isascii() or not value.isprintable() or name.lower().endswith("-bin"):
            raise PeerError(f"{where} cannot get the header {name}: gRPC sends printable ASCII alone")
    return tuple((name.lower(), value) for name, value in headers.items())
