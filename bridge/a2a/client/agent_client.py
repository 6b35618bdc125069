"""A client of one A2A agent: performs operations in any supported version and binding.

The client does not know what messages are for. It is strict in what it sends and tolerant in what it reads. Each fault
of the agent becomes a PeerError that names the URL and the fault. The type of the error says what the caller may
conclude: the request was never sent, was sent without an answer, was refused, or was answered with something else.

Spec: A2A 1.0 sections 3.1 (operations), 8.3 (which interface).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial

import httpx2

from bridge.a2a.client.agent_card import FoundCard
from bridge.a2a.client.bindings import AgentRefusedError, binding_of
from bridge.a2a.client.credentials import (
    Credentials,
    CredentialsMissingError,
    agent_credentials,
    takes_logins,
)
from bridge.a2a.client.fold import with_pieces_joined
from bridge.a2a.client.http import NotReachedError
from bridge.a2a.client.interfaces import (
    ConnectionPolicy,
    Trust,
    interface_guard,
    may_be_shown,
    permitted_interfaces,
)
from bridge.a2a.client.transports import (
    ANSWER_LIMIT_BYTES,
    Deadlines,
    HttpTransport,
    Performer,
    Transport,
    TransportOptions,
)
from bridge.a2a.model import objects, operations, push_objects
from bridge.a2a.model.objects import (
    GRPC,
    AgentCard,
    AgentInterface,
    Message,
    StreamResponse,
    Task,
    TaskPushNotificationConfig,
)
from bridge.a2a.model.operations import AnswerT, RequestT, Streamed, Unary
from bridge.a2a.wire.dialect import Dialect
from bridge.a2a.wire.versions import VERSIONS, Versions
from bridge.errors import PeerError
from bridge.http.client import CredentialsSource
from bridge.trace import UNHEARD, Hops, OnHop

__all__ = ["AgentClient", "AgentRefusedError", "ClientOptions", "Deadlines"]


OpenGrpc = Callable[[AgentInterface, Dialect, TransportOptions, int], Transport]
"""Makes a transport over gRPC for an interface, with the most values of an answer."""


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """The options of a client for one agent."""

    deadlines: Deadlines
    json_values: int
    """The most values and keys in one answer, or in one event of a stream."""
    extensions: tuple[str, ...] = ()
    """The URIs of extensions to activate. Extensions that the card does not declare are left out."""
    undeclared: tuple[str, ...] = ()
    """The URIs of extensions to activate that no card declares."""
    credentials: Credentials = field(default_factory=Credentials)
    trust: Trust = field(default_factory=Trust)
    reach: ConnectionPolicy | None = None
    """The policy for connections; None makes one with the URL of the card as the user's own URL."""
    limit_bytes: int = ANSWER_LIMIT_BYTES
    baggage_keys: frozenset[str] = frozenset()
    """The keys of a trace's baggage that are sent to agents on other machines."""
    on_hop: OnHop | None = None
    """Called with the wire text of each request, and of each answer or event."""
    peer: str = ""
    """The agent's name in hops."""
    hops: Hops = UNHEARD
    versions: Versions = VERSIONS
    """The versions that the client speaks."""
    how_to_log_in: str = ""
    """The hint for an agent that requires the login of a person; empty if a token is configured."""
    on_refusal: Callable[[str], None] = lambda _: None
    """See `TransportOptions.on_refusal`."""
    grpc: OpenGrpc | None = None
    """Makes a transport over gRPC; None calls no agent over gRPC."""
    bindings: tuple[str, ...] = ()
    """The bindings that may be used, the preferred one first; see `interfaces_of`."""


class AgentClient(Performer):
    """Performs operations on one agent, over the first interface that can be reached.

    After that, an interface that could not be reached is tried last. The HTTP client must carry no credentials: they
    are added to each request.
    """

    def __init__(
        self,
        http: httpx2.AsyncClient,
        read_card: FoundCard,
        options: ClientOptions,
    ) -> None:
        """Check the card, and send nothing.

        Raises:
            PeerError: the card has no interface that this client speaks and may call, or requires credentials that
                are not configured.
        """
        self.card = read_card.card
        self.extensions = frozenset(_active_extensions(read_card, options))
        self._transports: list[Transport] = _transports(http, read_card, options)

    def declared(self, uris: Collection[str]) -> frozenset[str]:
        """Those of these extensions that the card declares."""
        return frozenset(uris) & {extension.uri for extension in self.card.capabilities.extensions or ()}

    @property
    def interface(self) -> AgentInterface:
        """The interface in use: the first that may be called and could be reached."""
        return self._transports[0].interface

    @property
    def streams(self) -> bool:
        """Whether the card declares streaming."""
        return bool(self.card.capabilities.streaming)

    @property
    def streams_answers(self) -> bool:
        """Whether the answer to a message may be a stream. Some versions have no such stream."""
        return self.streams and self._transports[0].has(operations.SEND_STREAMING_MESSAGE)

    @property
    def notifies(self) -> bool:
        """Whether the card declares push notifications, and the version can register a webhook for a known task."""
        declared = bool(self.card.capabilities.push_notifications)
        return declared and self._transports[0].has(operations.CREATE_PUSH_CONFIG)

    async def send(self, request: objects.SendMessageRequest) -> Task | Message:
        """Send a message and wait for the agent's answer (section 3.1.1)."""
        answer = await self.perform(operations.SEND_MESSAGE, request)
        answered = answer.task or answer.message
        assert answered is not None
        return answered

    def stream(self, request: objects.SendMessageRequest) -> AsyncGenerator[StreamResponse, None]:
        """Send a message and yield the events (section 3.1.2). Close a generator that is not read to its end."""
        return self.perform(operations.SEND_STREAMING_MESSAGE, request)

    def subscribe(self, task_id: str) -> AsyncGenerator[StreamResponse, None]:
        """Yield the task as it is now, and then each further event (section 3.1.6)."""
        return self.perform(operations.SUBSCRIBE_TO_TASK, objects.SubscribeToTaskRequest(id=task_id))

    async def get(self, task_id: str, history_length: int | None = None) -> Task:
        """The task as it is now (section 3.1.3)."""
        request = objects.GetTaskRequest(id=task_id, history_length=history_length)
        return with_pieces_joined(await self.perform(operations.GET_TASK, request))

    async def list_tasks(self, request: objects.ListTasksRequest) -> objects.ListTasksResponse:
        """A page of the tasks that this client may see (section 3.1.4)."""
        return await self.perform(operations.LIST_TASKS, request)

    async def cancel(self, task_id: str) -> Task:
        """Cancel a task, and return it (section 3.1.5)."""
        return await self.perform(operations.CANCEL_TASK, objects.CancelTaskRequest(id=task_id))

    async def create_push_config(self, config: TaskPushNotificationConfig) -> TaskPushNotificationConfig:
        """Register a webhook for a task. Returns the config that the agent accepted (section 3.1.7)."""
        return await self.perform(operations.CREATE_PUSH_CONFIG, config)

    async def delete_push_config(self, task_id: str, config_id: str) -> None:
        """Remove a webhook of a task (section 3.1.10). Does nothing if the version has no such operation."""
        if self._transports[0].has(operations.DELETE_PUSH_CONFIG):
            request = push_objects.DeleteTaskPushNotificationConfigRequest(task_id=task_id, id=config_id)
            await self.perform(operations.DELETE_PUSH_CONFIG, request)

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
            self._transports = [transport, *(other for other in self._transports if other is not transport)]


def http_transports(
    http: httpx2.AsyncClient, read_card: FoundCard, options: ClientOptions
) -> list[HttpTransport]:
    """The transports over HTTP to the interfaces of a card that may be called, in the card's order.

    Raises:
        PeerError: as for an `AgentClient`.
    """
    made = _transports(http, read_card, replace(options, grpc=None, bindings=()))
    return [transport for transport in made if isinstance(transport, HttpTransport)]


def _transports(http: httpx2.AsyncClient, read_card: FoundCard, options: ClientOptions) -> list[Transport]:
    """The transports to the interfaces of a card that may be called."""
    permitted = permitted_interfaces(
        read_card,
        options.trust,
        has_credentials=bool(options.credentials),
        versions=options.versions,
        grpc=options.grpc is not None,
        bindings=options.bindings,
    )
    terms = TransportOptions(
        credentials=_credentials_for(read_card.card, options),
        tokens=options.credentials.tokens,
        extensions=_active_extensions(read_card, options),
        guard_of=partial(
            interface_guard, read_card, reach=options.reach or ConnectionPolicy(read_card.url, options.trust)
        ),
        deadlines=options.deadlines,
        limit_bytes=options.limit_bytes,
        baggage_keys=options.baggage_keys,
        on_hop=options.on_hop,
        peer=options.peer,
        hops=options.hops,
        how_to_log_in=options.how_to_log_in,
        on_refusal=options.on_refusal,
    )
    made: list[Transport] = []
    for interface, dialect in permitted:
        at = _terms_at(interface.url, terms, read_card, options)
        if interface.protocol_binding.upper() == GRPC and options.grpc is not None:
            made.append(options.grpc(interface, dialect, at, options.json_values))
        else:
            made.append(HttpTransport(http, binding_of(interface, dialect, options.json_values), at))
    return made


def _terms_at(
    url: str, terms: TransportOptions, read_card: FoundCard, options: ClientOptions
) -> TransportOptions:
    """The options for an interface. An untrusted origin gets no credentials, not even those of a later login."""
    if not options.credentials.waits_for_login or may_be_shown(read_card, url, options.trust):
        return terms
    bare = replace(options, credentials=replace(options.credentials, tokens=None))
    return replace(terms, credentials=_credentials_for(read_card.card, bare))


def _credentials_for(card: AgentCard, options: ClientOptions) -> CredentialsSource:
    try:
        return agent_credentials(card, options.credentials)
    except CredentialsMissingError as exc:
        if not options.how_to_log_in or not takes_logins(card):
            raise
        raise CredentialsMissingError(f"{exc}. {options.how_to_log_in}") from exc


def _active_extensions(read_card: FoundCard, options: ClientOptions) -> list[str]:
    declared = {extension.uri for extension in read_card.card.capabilities.extensions or ()}
    return [*(uri for uri in dict.fromkeys(options.extensions) if uri in declared), *options.undeclared]
