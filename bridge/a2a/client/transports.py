"""The transports of a client: each performs operations and returns answers or events as objects of `model`.

`TransportOptions` holds the terms of every transport, however it carries bytes: credentials, the guard of addresses,
deadlines and bounds.

Spec: A2A 1.0 sections 3.1 (operations), 3.2.6 (service parameters).
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, overload

import anyio
import httpx2
from pydantic import JsonValue, ValidationError

from bridge.a2a.client.bindings import EVENT_STREAM, ClientBinding
from bridge.a2a.client.http import (
    OutgoingRequest,
    UnansweredError,
    UnreadableAnswerError,
    exchange,
    has_halves,
    is_json,
    origin_of,
    redacted_url,
    response_body,
    status_words,
    url_from,
    url_within,
)
from bridge.a2a.model.life import ENDED
from bridge.a2a.model.objects import AgentInterface, Model, SendMessageResponse, StreamResponse, Task
from bridge.a2a.model.operations import SEND_MESSAGE, AnswerT, AnyOperation, RequestT, Streamed, Unary
from bridge.a2a.wire.dialect import Dialect
from bridge.a2a.wire.reading import ExchangeReading
from bridge.a2a.wire.versions import HEADER as VERSION_HEADER
from bridge.errors import UNAUTHORIZED, PeerError
from bridge.http.client import CredentialsSource, PeerAuth, guarded_by, wants_login
from bridge.http.private_addresses import AddressGuard
from bridge.http.request_checks import is_loopback
from bridge.http.sse import SseReader
from bridge.identity.logins.login_credentials import LoginNeededError, LoginToken
from bridge.identity.tokens.oauth import TokenSource
from bridge.text.jsonvalues import JsonObject, validation_faults
from bridge.trace import UNHEARD, Hop, Hops, OnHop, told_to_peer

ANSWER_LIMIT_BYTES: Final = 64 * 1024 * 1024
"""The bound on one answer, or one event of a stream. It is the same as for the result of a tool."""


logger = logging.getLogger(__name__)

_MOST_TOLD: Final = 200
"""The most notes about an agent's answers that are remembered. A remembered note is not logged again."""
_CHALLENGE: Final = "www-authenticate"
_SAME_AGAIN: Final = (307, 308)
"""The statuses of redirects that keep the method and the body."""
_ENDED: Final = frozenset(state.word for state in ENDED)


@dataclass(frozen=True, slots=True)
class Deadlines:
    """The time limits for an agent; None means no limit."""

    connect_seconds: float
    answer_seconds: float | None
    """The limit for writing a request, and for answers that need no work of the agent, such as get and cancel. The
    answer to a message has no limit, even with `return_immediately`: some agents answer only when the work is done."""
    silence_seconds: float | None
    """The longest silence of a stream that has begun. Heartbeats end a silence."""


@dataclass(frozen=True, slots=True)
class TransportOptions:
    """The options of every transport to one agent."""

    credentials: CredentialsSource
    """Called before each request for its credentials."""
    extensions: Sequence[str]
    """The URIs of the activated extensions."""
    guard_of: Callable[[str], AddressGuard | None]
    """Returns the guard for connections to a URL; None if any address is allowed."""
    deadlines: Deadlines
    limit_bytes: int
    baggage_keys: frozenset[str]
    """The keys of a trace's baggage that are sent to agents on other machines."""
    on_hop: OnHop | None
    """Called with the wire text of each request, and of each answer or event."""
    peer: str = ""
    """The agent's name in hops."""
    hops: Hops = UNHEARD
    how_to_log_in: str = ""
    """The hint for an agent that requires the login of a person."""
    tokens: TokenSource | None = None
    """The source of the access tokens in the credentials."""
    on_refusal: Callable[[str], None] = lambda _: None
    """Called with the reason when the agent refuses a request for lack of credentials, and with an empty text when it
    accepts a request."""


class Performer(ABC):
    """Performs operations of A2A: the single method of a client and of its transports."""

    @overload
    def perform(self, operation: Unary[RequestT, AnswerT], request: RequestT) -> Awaitable[AnswerT]: ...

    @overload
    def perform(
        self, operation: Streamed[RequestT, AnswerT], request: RequestT
    ) -> AsyncGenerator[StreamResponse, None]: ...

    def perform(
        self, operation: Unary[RequestT, AnswerT] | Streamed[RequestT, AnswerT], request: RequestT
    ) -> Awaitable[AnswerT] | AsyncGenerator[StreamResponse, None]:
        """Perform one operation. Returns its answer, or for a streamed operation a generator of its events.

        Close a generator that is not read to its end.

        Raises:
            AgentRefusedError: the agent answered with an error.
            NotReachedError: the request was never sent: no interface could be reached.
            UnansweredError: the request was sent, and no complete answer came.
            PeerError: the answer does not fit the operation.
        """
        if isinstance(operation, Streamed):
            return self._events(operation, request)
        return self._answer(operation, request)

    @abstractmethod
    async def _answer(self, operation: Unary[RequestT, AnswerT], request: RequestT) -> AnswerT: ...

    @abstractmethod
    def _events(
        self, operation: Streamed[RequestT, AnswerT], request: RequestT
    ) -> AsyncGenerator[StreamResponse, None]: ...


class Transport(Performer):
    """A transport to one interface of an agent."""

    interface: AgentInterface

    @abstractmethod
    def has(self, operation: AnyOperation) -> bool:
        """Whether the version of the interface has an operation."""


class ReadingTransport(Transport):
    """Reads the values that a binding receives as answers and events, by the dialect of its interface."""

    def __init__(self, interface: AgentInterface, dialect: Dialect, terms: TransportOptions) -> None:
        self.interface = interface
        self._dialect = dialect
        self._terms = terms
        self._told: set[str] = set()
        """The notes about the agent's answers that were logged."""

    def has(self, operation: AnyOperation) -> bool:
        return self._dialect.has(operation)

    def __str__(self) -> str:
        return redacted_url(self.interface.url)

    async def _answer(self, operation: Unary[RequestT, AnswerT], request: RequestT) -> AnswerT:
        hop = self._terms.hops.sent("a2a", operation.name, self._terms.peer)
        if hop is None:
            return await self._answer_in(None, operation, request)
        with hop:
            answer = await self._answer_in(hop, operation, request)
            _note_task(hop, answer.task if isinstance(answer, SendMessageResponse) else answer)
        return answer

    async def _answer_in(
        self, hop: Hop | None, operation: Unary[RequestT, AnswerT], request: RequestT
    ) -> AnswerT:
        dialect = self._dialect
        params = dialect.params_of(operation, request)
        reading = ExchangeReading(request)
        seconds = None if operation is SEND_MESSAGE else self._terms.deadlines.answer_seconds
        try:
            with anyio.fail_after(seconds):
                value = await self._value(operation, params, reading, hop)
        except TimeoutError as exc:
            raise UnansweredError(f"{self} did not answer within {seconds:g} s") from exc
        try:
            answer = dialect.answer_from(operation, value, reading)
        except ValidationError as exc:
            raise self._no_answer(operation.answer.__name__, exc) from exc
        self._log_faults(reading)
        return answer

    @abstractmethod
    async def _value(
        self, operation: AnyOperation, params: JsonObject, reading: ExchangeReading, hop: Hop | None
    ) -> JsonValue:
        """The answer of an operation as JSON."""

    def _events(
        self, operation: Streamed[RequestT, AnswerT], request: RequestT
    ) -> AsyncGenerator[StreamResponse, None]:
        if not self._terms.hops.listeners:
            return self._events_in(None, operation, request)
        return self._heard_events(operation, request)

    async def _heard_events(
        self, operation: Streamed[RequestT, AnswerT], request: RequestT
    ) -> AsyncGenerator[StreamResponse, None]:
        hop = self._terms.hops.sent("a2a", operation.name, self._terms.peer)
        assert hop is not None, "somebody listens"
        with hop:
            async with aclosing(self._events_in(hop, operation, request)) as events:
                async for event in events:
                    _note_event(hop, event)
                    yield event

    @abstractmethod
    def _events_in(
        self, hop: Hop | None, operation: Streamed[RequestT, AnswerT], request: RequestT
    ) -> AsyncGenerator[StreamResponse, None]:
        """The events of a stream, within its hop."""

    def _headers(self, hop: Hop | None) -> dict[str, str]:
        """The headers of every request: those of a trace, the version, and the extensions."""
        host, dialect, terms = url_from(self.interface.url).host, self._dialect, self._terms
        traced = told_to_peer(hop, is_local=is_loopback(host), baggage_keys=terms.baggage_keys)
        parameters = {VERSION_HEADER: dialect.version} if dialect.says_version else {}
        if terms.extensions:
            parameters[dialect.extensions_header] = ", ".join(terms.extensions)
        return {**traced, **parameters}

    def _log_faults(self, reading: ExchangeReading) -> None:
        """Log the faults in an answer, each only once per agent."""
        for note in reading.notes if reading.notes else ():
            if note not in self._told:
                if len(self._told) >= _MOST_TOLD:
                    self._told.clear()
                self._told.add(note)
                logger.warning("%s: %s", self, note)

    def _no_answer(self, wanted: str, exc: ValidationError) -> PeerError:
        return PeerError(
            f"{self} answered with something that is no {wanted}: {'; '.join(validation_faults(exc))}"
        )


class HttpTransport(ReadingTransport):
    """Either binding over HTTP. The HTTP client must carry no credentials of its own."""

    def __init__(self, http: httpx2.AsyncClient, binding: ClientBinding, terms: TransportOptions) -> None:
        super().__init__(binding.interface, binding.dialect, terms)
        self._http = http
        self._binding = binding
        self._auth = PeerAuth(binding.interface.url, terms.credentials)

    async def raw_answer(self, operation: AnyOperation, params: JsonObject) -> tuple[int, bytes]:
        """The HTTP status and the body of the answer to these parameters, whatever they are.

        Raises:
            NotReachedError, UnansweredError: as for `perform`.
        """
        async with self._exchange(operation, params) as response:
            text = await response_body(response, self._terms.limit_bytes)
        self._show(text)
        return response.status_code, text

    async def _value(
        self, operation: AnyOperation, params: JsonObject, reading: ExchangeReading, hop: Hop | None
    ) -> JsonValue:
        """The answer of an operation as JSON, completed by the further requests that the dialect needs."""
        async with self._exchange(operation, params, hop) as response:
            value = self._result(await response_body(response, self._terms.limit_bytes), response, reading)
        while unread := self._binding.dialect.unread(operation, params, value):
            assert isinstance(value, dict)
            try:
                read = {name: await self._value(*request, reading, hop) for name, request in unread.items()}
            except LoginNeededError as exc:  # the agent has accepted the operation
                raise PeerError(str(exc)) from exc
            value = {**value, **read}
        return value

    async def _events_in(
        self, hop: Hop | None, operation: Streamed[RequestT, AnswerT], request: RequestT
    ) -> AsyncGenerator[StreamResponse, None]:
        reading = ExchangeReading(request)
        reader = self._binding.dialect.reader(operation, request, reading)
        params = self._binding.dialect.params_of(operation, request)
        has_begun = False
        async with self._exchange(operation, params, hop) as response:
            # An error does not have the media type of a stream. Nor does a single event that some agents send instead
            # of a stream.
            is_stream = response.headers.get("content-type", "").startswith(EVENT_STREAM)
            async with aclosing(self._texts(response) if is_stream else self._body(response)) as texts:
                async for text in texts:
                    try:
                        events = reader.read(self._result(text, response, reading))
                    except UnreadableAnswerError as exc:
                        if not is_stream:
                            raise
                        reading.note(str(exc))
                        events = ()
                    self._log_faults(reading)
                    for event in events:
                        has_begun = True
                        yield event
        if not has_begun and reading.notes:
            raise PeerError(
                f"{self} answered with something that is no StreamResponse: {'; '.join(reading.notes)}"
            )

    async def _body(self, response: httpx2.Response) -> AsyncGenerator[bytes, None]:
        """The body of an answer that is not a stream, as its only text."""
        yield await response_body(response, self._terms.limit_bytes)

    async def _texts(self, response: httpx2.Response) -> AsyncGenerator[bytes, None]:
        """The data of each event of a stream. The limit on silence holds once the first event has come."""
        events, silence_seconds = SseReader(self._terms.limit_bytes), None
        chunks = response.aiter_bytes()
        while chunk := await self._chunk(chunks, silence_seconds):
            try:
                texts = [event.data for event in events.feed(chunk)]
            except ValueError as exc:
                raise PeerError(f"{self} sent {exc}") from exc
            for text in texts:
                silence_seconds = self._terms.deadlines.silence_seconds
                if text and not text.isspace():  # some agents keep a stream alive by empty data
                    yield text
        # Some agents end the stream without a blank line after the last event. An incomplete event is not JSON.
        if (last := events.rest()) is not None and is_json(last.data):
            yield last.data

    async def _chunk(self, chunks: AsyncIterator[bytes], silence_seconds: float | None) -> bytes:
        """The next bytes of a stream; b"" at its end."""
        try:
            with anyio.fail_after(silence_seconds):
                return await anext(chunks, b"")
        except TimeoutError as exc:
            raise UnansweredError(f"{self} was silent for {silence_seconds:g} s") from exc

    @asynccontextmanager
    async def _exchange(
        self, operation: AnyOperation, params: JsonObject, hop: Hop | None = None
    ) -> AsyncIterator[httpx2.Response]:
        binding, terms = self._binding, self._terms
        outgoing = binding.request(operation, params)
        if terms.on_hop is not None:
            terms.on_hop(">", binding.payload(outgoing))
        guard, deadlines = terms.guard_of(binding.interface.url), terms.deadlines
        timeout = httpx2.Timeout(
            connect=deadlines.connect_seconds,
            read=None,
            write=deadlines.answer_seconds,
            pool=deadlines.connect_seconds,
        ).as_dict()
        extensions: dict[str, Any] = {"timeout": timeout, **guarded_by(guard)}
        accept = f"{EVENT_STREAM}, {binding.accept}" if isinstance(operation, Streamed) else binding.accept
        headers = {**self._headers(hop), **outgoing.headers, "Accept": accept}
        request = replace(outgoing, headers=headers, extensions=extensions, auth=self._auth)
        async with self._redirected_once(request) as response:
            is_unauthorized = response.status_code == 401
            if is_unauthorized or response.is_success:
                terms.on_refusal(status_words(response) if is_unauthorized else "")
            if terms.how_to_log_in and wants_login(response):
                raise LoginNeededError(f"login needed: {status_words(response)}. {terms.how_to_log_in}")
            if terms.tokens is not None and response.status_code == 401 and _CHALLENGE in response.headers:
                is_callers = isinstance(terms.tokens, LoginToken) and terms.tokens.is_callers
                refused = LoginNeededError if is_callers else PeerError
                words = f"{status_words(response)}. {terms.tokens.if_refused}".rstrip(". ")
                raise refused(words, outcome="" if is_callers else UNAUTHORIZED)
            if is_unauthorized and hop is not None:
                hop.error = UNAUTHORIZED
            yield response

    @asynccontextmanager
    async def _redirected_once(self, request: OutgoingRequest) -> AsyncIterator[httpx2.Response]:
        """The response to a request. One redirect (307, 308) within the origin is followed, since servers add or remove
        a slash at the end of a path in this way. Credentials and messages never go to another origin."""
        async with exchange(self._http, request) as response:
            target = _within_origin(request.url, response)
            if target is None:
                yield response
                return
        async with exchange(self._http, replace(request, url=target)) as response:
            yield response

    def _result(self, text: bytes, response: httpx2.Response, reading: ExchangeReading) -> JsonValue:
        self._show(text)
        reading.is_cut = has_halves(text)
        return self._binding.result(text, response)

    def _show(self, text: bytes) -> None:
        if self._terms.on_hop is not None:
            self._terms.on_hop("<", text.decode("utf-8", "replace"))


def _within_origin(url: str, response: httpx2.Response) -> str | None:
    """The URL within the origin to which a response redirects the same request; None if there is no such redirect."""
    if response.status_code not in _SAME_AGAIN or not response.has_redirect_location:
        return None
    here = url_from(url)
    try:
        target = url_within(url, response.headers["location"])
        is_own = origin_of(str(target)) == origin_of(url)
    except PeerError:
        return None
    # A user name in the redirect would replace the credentials, and only the user may choose them.
    return str(target.copy_with(userinfo=here.userinfo)) if is_own else None


def _note_task(hop: Hop, task: Model | None) -> None:
    """Write the task of an answer, and the state of the task, into a hop."""
    if isinstance(task, Task):
        hop.task_id, hop.context_id, hop.state = task.id, task.context_id or "", task.status.state.word


def _note_event(hop: Hop, event: StreamResponse) -> None:
    """Write the state in an event into a hop, and whether the event is the last of its stream."""
    _note_task(hop, event.task)
    if (update := event.status_update) is not None:
        hop.task_id, hop.state = update.task_id, update.status.state.word
    is_reply = event.message is not None and not hop.state
    hop.answer = "whole" if is_reply or hop.state in _ENDED else "begun"
