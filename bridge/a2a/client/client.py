"""A client of A2A agents: performs operations, whatever the version and the binding of the agent.

It knows nothing of what messages are for. It is strict in what it sends and liberal in what
it reads. Whatever the other side does wrong becomes a PeerError that names the URL and the fault; its kind
says what the caller may conclude: never left, left without an answer, refused, or no answer of A2A.

Spec: A2A 1.0 sections 3.1 (operations), 8.3 (which interface).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import overload

import httpx2

from bridge.a2a.client.bindings import AgentRefusedError, binding_of
from bridge.a2a.client.card import FoundCard
from bridge.a2a.client.credentials import Credentials, apply_credentials
from bridge.a2a.client.http import NotReachedError
from bridge.a2a.client.interfaces import ConnectionPolicy, Trust, interface_guard, permitted_interfaces
from bridge.a2a.client.transports import (
    ANSWER_LIMIT_BYTES,
    Deadlines,
    HttpTransport,
    Transport,
    TransportOptions,
)
from bridge.a2a.model import objects, operations
from bridge.a2a.model.objects import AgentInterface, Message, StreamResponse, Task
from bridge.a2a.model.operations import AnswerT, RequestT, Streamed, Unary
from bridge.a2a.wire.versions import VERSIONS, Versions
from bridge.errors import PeerError
from bridge.http.peer_auth import PeerCredentials, fixed_credentials
from bridge.trace import OnHop

__all__ = ["AgentClient", "AgentRefusedError", "ClientOptions", "Deadlines"]


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """How an agent is spoken to."""

    deadlines: Deadlines
    json_values: int
    """Values and keys in one answer, or one event of a stream."""
    extensions: tuple[str, ...] = ()
    """URIs to activate; those that the card does not declare are left out."""
    credentials: Credentials = field(default_factory=Credentials)
    trust: Trust = field(default_factory=Trust)
    reach: ConnectionPolicy | None = None
    """How connections are judged; None takes the URL of the card for the user's own."""
    limit_bytes: int = ANSWER_LIMIT_BYTES
    baggage_keys: frozenset[str] = frozenset()
    """Those of a trace's baggage that an agent beyond this machine is told."""
    on_hop: OnHop | None = None
    """Told of each request, and of each answer or event, as it stands on the wire."""
    versions: Versions = VERSIONS
    """Those that the client speaks."""


class AgentClient:
    """Performs operations on one agent.

    The HTTP client that it is given carries no credentials of its own: they are added request by request.
    """

    def __init__(
        self,
        http: httpx2.AsyncClient,
        found: FoundCard,
        options: ClientOptions,
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
        permitted = permitted_interfaces(
            found, options.trust, has_credentials=bool(options.credentials), versions=options.versions
        )
        shown_to_agent = apply_credentials(found.card, options.credentials)
        terms = TransportOptions(
            credentials=fixed_credentials(
                PeerCredentials(shown_to_agent.request_headers(), shown_to_agent.query)
            ),
            extensions=active,
            guard_of=partial(
                interface_guard, found, reach=options.reach or ConnectionPolicy(found.url, options.trust)
            ),
            deadlines=options.deadlines,
            limit_bytes=options.limit_bytes,
            baggage_keys=options.baggage_keys,
            on_hop=options.on_hop,
        )
        self._transports: list[Transport] = [
            HttpTransport(http, binding_of(interface, dialect, options.json_values), terms)
            for interface, dialect in permitted
        ]

    @property
    def interface(self) -> AgentInterface:
        """The interface in use: the first that may be called, or the one after those that were out of reach."""
        return self._transports[0].interface

    @property
    def streams(self) -> bool:
        """Whether the agent says that it streams."""
        return bool(self.card.capabilities.streaming)

    @overload
    def perform(self, operation: Unary[RequestT, AnswerT], request: RequestT) -> Awaitable[AnswerT]: ...

    @overload
    def perform(
        self, operation: Streamed[RequestT, AnswerT], request: RequestT
    ) -> AsyncGenerator[StreamResponse, None]: ...

    def perform(
        self, operation: Unary[RequestT, AnswerT] | Streamed[RequestT, AnswerT], request: RequestT
    ) -> Awaitable[AnswerT] | AsyncGenerator[StreamResponse, None]:
        """Its answer; or each event as it comes, to be closed when it is not read to its end.

        The first interface that can be reached is asked; what was out of reach stands last from then on.

        Raises:
            AgentRefusedError: the agent answered with an error.
            NotReachedError: the request never left, by any interface.
            UnansweredError: the request left, and no whole answer came.
            PeerError: its answer is no answer.
        """
        if isinstance(operation, Streamed):
            return self._events(operation, request)
        return self._answer(operation, request)

    async def send(self, request: objects.SendMessageRequest) -> Task | Message:
        """Send a message and wait for what the agent answers with (section 3.1.1)."""
        answer = await self.perform(operations.SEND_MESSAGE, request)
        said = answer.task or answer.message
        assert said is not None
        return said

    def stream(self, request: objects.SendMessageRequest) -> AsyncGenerator[StreamResponse, None]:
        """Send a message and give each event as it comes (section 3.1.2). Close what is not read to its end."""
        return self.perform(operations.SEND_STREAMING_MESSAGE, request)

    def subscribe(self, task_id: str) -> AsyncGenerator[StreamResponse, None]:
        """The task as it is now, then each further event (section 3.1.6)."""
        return self.perform(operations.SUBSCRIBE_TO_TASK, objects.SubscribeToTaskRequest(id=task_id))

    async def get(self, task_id: str, history_length: int | None = None) -> Task:
        """The task as it is now (section 3.1.3)."""
        request = objects.GetTaskRequest(id=task_id, history_length=history_length)
        return await self.perform(operations.GET_TASK, request)

    async def list_tasks(self, request: objects.ListTasksRequest) -> objects.ListTasksResponse:
        """A page of the tasks that this client may see (section 3.1.4)."""
        return await self.perform(operations.LIST_TASKS, request)

    async def cancel(self, task_id: str) -> Task:
        """Cancel a task; the task as it is then (section 3.1.5)."""
        return await self.perform(operations.CANCEL_TASK, objects.CancelTaskRequest(id=task_id))

    def __str__(self) -> str:
        return str(self._transports[0])

    async def _answer(self, operation: Unary[RequestT, AnswerT], request: RequestT) -> AnswerT:
        for transport in (tried := self._transports):
            try:
                answer = await transport.perform(operation, request)
            except NotReachedError:
                if transport is tried[-1]:
                    raise
            except PeerError:
                self._prefer(transport)
                raise
            else:
                self._prefer(transport)
                return answer
        raise AssertionError("there is no transport")

    async def _events(
        self, operation: Streamed[RequestT, AnswerT], request: RequestT
    ) -> AsyncGenerator[StreamResponse, None]:
        has_begun = False
        for transport in (tried := self._transports):
            try:
                async with aclosing(transport.perform(operation, request)) as events:
                    async for event in events:
                        has_begun = True
                        self._prefer(transport)
                        yield event
            except NotReachedError:
                if has_begun or transport is tried[-1]:
                    raise
            else:
                return

    def _prefer(self, transport: Transport) -> None:
        if transport is not self._transports[0]:
            self._transports = [transport, *(one for one in self._transports if one is not transport)]
