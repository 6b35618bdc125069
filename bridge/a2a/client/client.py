"""A client of A2A agents: performs operations over the bindings of A2A 1.0.

It knows the wire and nothing of what the messages are for. It is strict in what it sends and liberal in what
it reads. Whatever the other side does wrong becomes a PeerError that names the URL and the fault; its kind
says what the caller may conclude: never left, left without an answer, refused, or no answer of A2A.

Spec: A2A 1.0 sections 3.1 (operations), 3.2.6 (service parameters), 8.3 (which interface).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

import anyio
import httpx2
from pydantic import JsonValue, ValidationError

from bridge.a2a.client.bindings import EVENT_STREAM, AgentRefusedError, Binding, binding_of
from bridge.a2a.client.card import FoundCard
from bridge.a2a.client.credentials import Credentials, applied
from bridge.a2a.client.http import NotReachedError, UnansweredError, body_of, exchange, faults_of, url_from
from bridge.a2a.client.interfaces import Reach, Trust, interface_guard, permitted_interfaces
from bridge.a2a.model import objects
from bridge.a2a.model.objects import AgentInterface, Message, StreamResponse, Task
from bridge.a2a.model.operations import Operation
from bridge.a2a.wire import tolerant
from bridge.a2a.wire.extensions import EXTENSIONS_HEADER
from bridge.a2a.wire.versions import CURRENT, HEADER
from bridge.errors import PeerError
from bridge.jsonvalues import DEFAULT_MAX_VALUES
from bridge.sse import EventReader
from bridge.trace import OnHop, told_to_peer
from bridge.web import is_loopback

__all__ = ["AgentClient", "AgentRefusedError", "ClientOptions", "Deadlines"]

ANSWER_LIMIT_BYTES: Final = 64 * 1024 * 1024
"""What one answer, or one event of a stream, may weigh: as much as a tool's result may."""

_M = TypeVar("_M", bound=objects.Model)


@dataclass(frozen=True, slots=True)
class Deadlines:
    """How long an agent may take; None is as long as it likes."""

    connect_seconds: float = 10.0
    answer_seconds: float | None = 30.0
    """For what waits for no work of the agent: get and cancel, and that it takes in a request. A message may take
    long to answer even when it asks to return immediately, since there are agents that only ever answer in full."""
    silence_seconds: float | None = 120.0
    """Without a byte in a stream that has begun. Heartbeats count."""


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """How an agent is spoken to."""

    extensions: tuple[str, ...] = ()
    """URIs to activate; those that the card does not declare are left out."""
    credentials: Credentials = field(default_factory=Credentials)
    trust: Trust = field(default_factory=Trust)
    reach: Reach | None = None
    """How connections are judged; None takes the URL of the card for the user's own."""
    deadlines: Deadlines = field(default_factory=Deadlines)
    limit_bytes: int = ANSWER_LIMIT_BYTES
    json_values: int = DEFAULT_MAX_VALUES
    """Values and keys in one answer, or one event of a stream."""
    baggage_keys: frozenset[str] = frozenset()
    """Those of a trace's baggage that an agent beyond this machine is told."""
    on_hop: OnHop | None = None
    """Told of each request, and of each answer or event, as it stands on the wire."""


class AgentClient:
    """Performs operations on one agent.

    The HTTP client that it is given carries no credentials of its own: they are added request by request.
    """

    def __init__(
        self,
        http: httpx2.AsyncClient,
        found: FoundCard,
        options: ClientOptions = ClientOptions(),
    ) -> None:
        """The card is judged at once, and nothing is sent.

        Raises:
            PeerError: the card has no interface that this client speaks and may call, or asks for credentials
                that are not configured.
        """
        self.card = found.card
        declared = {extension.uri for extension in found.card.capabilities.extensions or ()}
        active = [uri for uri in dict.fromkeys(options.extensions) if uri in declared]
        self.extensions = frozenset(active)
        permitted = permitted_interfaces(found, options.trust, has_credentials=bool(options.credentials))
        self._found = found
        self._reach = options.reach or Reach(found.url, options.trust)
        self._options = options
        self._bindings = [binding_of(interface, options.json_values) for interface in permitted]
        shown_to_agent = applied(found.card, options.credentials)
        self._query = shown_to_agent.query
        self._headers = {**shown_to_agent.request_headers(), HEADER: CURRENT}
        if active:
            self._headers[EXTENSIONS_HEADER] = ", ".join(active)
        self._http = http

    @property
    def interface(self) -> AgentInterface:
        """The interface in use: the first that may be called, or the one after those that were out of reach."""
        return self._bindings[0].interface

    @property
    def streams(self) -> bool:
        """Whether the agent says that it streams."""
        return bool(self.card.capabilities.streaming)

    async def send(self, request: objects.SendMessageRequest) -> Task | Message:
        """Send a message and wait for what the agent answers with (section 3.1.1).

        Raises:
            AgentRefusedError: the agent answered with an error.
            NotReachedError: the request never left, by any interface.
            UnansweredError: the request left, and no whole answer came.
            PeerError: its answer is no answer. (All of these hold for every operation.)
        """
        result = await self._perform(Operation.SEND_MESSAGE, request, None)
        payload = self._read(StreamResponse, tolerant.event_from(result)).payload
        if not isinstance(payload, Task | Message):
            raise PeerError(f"{self} answered a message with an update, not with a task or a message")
        return payload

    def stream(self, request: objects.SendMessageRequest) -> AsyncGenerator[StreamResponse, None]:
        """Send a message and give each event as it comes (section 3.1.2). Close what is not read to its end."""
        return self._events(Operation.SEND_STREAMING_MESSAGE, request)

    def subscribe(self, task_id: str) -> AsyncGenerator[StreamResponse, None]:
        """The task as it is now, then each further event (section 3.1.6)."""
        return self._events(Operation.SUBSCRIBE_TO_TASK, objects.SubscribeToTaskRequest(id=task_id))

    async def get(self, task_id: str, history_length: int | None = None) -> Task:
        """The task as it is now (section 3.1.3)."""
        request = objects.GetTaskRequest(id=task_id, history_length=history_length)
        return await self._task(Operation.GET_TASK, request)

    async def list_tasks(self, request: objects.ListTasksRequest) -> objects.ListTasksResponse:
        """A page of the tasks that this client may see (section 3.1.4)."""
        result = await self._perform(Operation.LIST_TASKS, request, self._options.deadlines.answer_seconds)
        return self._read(objects.ListTasksResponse, tolerant.tasks_from(result))

    async def cancel(self, task_id: str) -> Task:
        """Cancel a task; the task as it is then (section 3.1.5)."""
        return await self._task(Operation.CANCEL_TASK, objects.CancelTaskRequest(id=task_id))

    def __str__(self) -> str:
        return str(self._bindings[0])

    async def _task(self, operation: Operation, request: objects.Model) -> Task:
        result = await self._perform(operation, request, self._options.deadlines.answer_seconds)
        return self._read(Task, tolerant.task_from(result))

    async def _perform(
        self, operation: Operation, request: objects.Model, seconds: float | None
    ) -> JsonValue:
        try:
            with anyio.fail_after(seconds):
                async with self._call(operation, request) as (binding, response):
                    text = await body_of(response, self._options.limit_bytes)
                    return self._result(binding, text, response)
        except TimeoutError as exc:
            raise UnansweredError(f"{self} did not answer within {seconds:g} s") from exc

    async def _events(
        self, operation: Operation, request: objects.Model
    ) -> AsyncGenerator[StreamResponse, None]:
        async with self._call(operation, request, streamed=True) as (binding, response):
            if not response.headers.get("content-type", "").startswith(EVENT_STREAM):
                # An error, or an agent that has all to say at once.
                text = await body_of(response, self._options.limit_bytes)
                yield self._event(binding, text, response)
                return
            async with aclosing(self._texts(response)) as texts:
                async for text in texts:
                    yield self._event(binding, text, response)

    async def _texts(self, response: httpx2.Response) -> AsyncGenerator[bytes, None]:
        """The data of each event of a stream. Only one that has begun can be too silent."""
        events, silence_seconds = EventReader(self._options.limit_bytes), None
        chunks = response.aiter_bytes()
        while chunk := await self._chunk(chunks, silence_seconds):
            try:
                found = [event.data for event in events.feed(chunk)]
            except ValueError as exc:
                raise PeerError(f"{self} sent {exc}") from exc
            for text in found:
                silence_seconds = self._options.deadlines.silence_seconds
                yield text

    async def _chunk(self, chunks: AsyncIterator[bytes], silence_seconds: float | None) -> bytes:
        """The next bytes of a stream; none at its end."""
        try:
            with anyio.fail_after(silence_seconds):
                return await anext(chunks, b"")
        except TimeoutError as exc:
            raise UnansweredError(f"{self} was silent for {silence_seconds:g} s") from exc

    @asynccontextmanager
    async def _call(
        self, operation: Operation, request: objects.Model, *, streamed: bool = False
    ) -> AsyncIterator[tuple[Binding, httpx2.Response]]:
        """One exchange, by the first interface that can be reached; what was out of reach stands last from then on."""
        params, reached = request.to_object(), False
        for binding in (tried := list(self._bindings)):
            try:
                async with self._exchange(binding, operation, params, streamed) as response:
                    reached = True
                    self._bindings = [binding, *(one for one in tried if one is not binding)]
                    yield binding, response
                    return
            except NotReachedError:
                if reached or binding is tried[-1]:
                    raise

    @asynccontextmanager
    async def _exchange(
        self, binding: Binding, operation: Operation, params: dict[str, JsonValue], streamed: bool
    ) -> AsyncIterator[httpx2.Response]:
        outgoing = binding.request(operation, params)
        if self._options.on_hop is not None:
            self._options.on_hop(">", binding.payload(outgoing))
        guard = interface_guard(self._found, binding.interface.url, self._reach)
        deadlines = self._options.deadlines
        timeout = httpx2.Timeout(
            connect=deadlines.connect_seconds,
            read=None,
            write=deadlines.answer_seconds,
            pool=deadlines.connect_seconds,
        ).as_dict()
        extensions: dict[str, Any] = {"timeout": timeout, **({"trace": guard} if guard else {})}
        accept = f"{EVENT_STREAM}, {binding.accept}" if streamed else binding.accept
        place = url_from(binding.interface.url)
        traced = told_to_peer(is_local=is_loopback(place.host), baggage_keys=self._options.baggage_keys)
        headers = {**traced, **self._headers, **outgoing.headers, "Accept": accept}
        asked = replace(
            outgoing, headers=headers, query={**outgoing.query, **self._query}, extensions=extensions
        )
        async with exchange(self._http, asked) as response:
            yield response

    def _event(self, binding: Binding, text: bytes, response: httpx2.Response) -> StreamResponse:
        return self._read(StreamResponse, tolerant.event_from(self._result(binding, text, response)))

    def _result(self, binding: Binding, text: bytes, response: httpx2.Response) -> JsonValue:
        if self._options.on_hop is not None:
            self._options.on_hop("<", text.decode("utf-8", "replace"))
        return binding.result(text, response)

    def _read(self, model: type[_M], value: JsonValue) -> _M:
        try:
            return model.model_validate(value)
        except ValidationError as exc:
            faults = "; ".join(faults_of(exc))
            raise PeerError(f"{self} answered with something that is no {model.__name__}: {faults}") from exc
