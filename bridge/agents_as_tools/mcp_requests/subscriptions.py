"""Subscriptions at agents to changes of what they share: one task at an agent for each server, for all clients.

    Listener (a client) ──wants──▶ AgentSubscriptions ──union──▶ FarSubscription ──▶ task of the agent
             ◀──tell── what it wants and may read ◀── the changes ──────────────┘

An agent that is called in the names of callers has a task for each principal. A far subscription is replaced when its
union changes: the new task is acknowledged before the old one is cancelled, so that nothing is missed. After a lost
task, everything counts as changed.

Spec: MCP 2026-07-28 basic/patterns/subscriptions; 2025-11-25 server/resources, subscriptions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Final
from uuid import uuid4

import anyio
import anyio.abc

from bridge import trace
from bridge.a2a.client.agent_client import AgentClient
from bridge.a2a.client.follow import is_transient
from bridge.a2a.model.life import ENDED
from bridge.a2a.model.objects import (
    Message,
    SendMessageRequest,
    StreamResponse,
    Task,
    TaskState,
    TaskStatusUpdateEvent,
    text_of_parts,
)
from bridge.agents_as_tools.mcp_requests.shared_servers import SharedServer, SharedServers
from bridge.agents_as_tools.options import FaceOptions
from bridge.concurrency import Backoff, Signal, border
from bridge.errors import BridgeError, PeerError
from bridge.identity.callers.principals import Principal
from bridge.identity.callers.resource_rights import may_use
from bridge.identity.tokens.caller_token import Caller
from bridge.mcp.messages import is_within
from bridge.remotes.remote_agent import RemoteAgent
from bridge.text.jsonvalues import JsonObject
from bridge.translate.extensions.mcp_requests import (
    ACKNOWLEDGED,
    LIST_CHANGES,
    LISTEN,
    UPDATED,
    McpError,
    McpRequest,
    Subscription,
    answer_from_parts,
    message_of_request,
    notifications_from_parts,
    subscription_from,
)

logger = logging.getLogger(__name__)

_SETTLE_SECONDS: Final = 10.0
"""How long an agent may take to acknowledge a subscription, and how long a client's request waits for that."""

_FIRST_AGAIN_SECONDS: Final = 0.5
_LONGEST_AGAIN_SECONDS: Final = 60.0
"""The pauses before a lost or refused subscription is opened again."""

_LASTING_SECONDS: Final = 60.0
"""A subscription that lasted so long is opened again without a growing pause."""

_CAPABILITY_OF: Final = {"resourcesListChanged": "resources", "promptsListChanged": "prompts"}
_NOTIFICATIONS_MOST: Final = 1000
"""The most notifications that are read of one status update. With more, everything counts as changed."""

Tell = Callable[[JsonObject], None]
_FarKey = tuple[RemoteAgent, str, str]
"""The agent, the key of its server, and the principal; "" for an agent that is called in the bridge's own name."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """The present agents of an MCP server of the bridge, and what they share. Both change while it runs."""

    servers: Callable[[], SharedServers]
    agent: Callable[[str], RemoteAgent | None]
    """Finds an agent by its key."""
    options: Callable[[], FaceOptions]


class AgentSubscriptions:
    """What the clients of one MCP server of the bridge listen to."""

    def __init__(self, sharing: Sharing) -> None:
        self._sharing = sharing
        self._group: anyio.abc.TaskGroup | None = None
        self._listeners: set[Listener] = set()
        self._far: dict[_FarKey, FarSubscription] = {}

    @property
    def most_resources(self) -> int:
        """The most resources of one client. Further ones are left out."""
        return self._sharing.options().agents.subscribed_resources

    def run_in(self, group: anyio.abc.TaskGroup | None) -> None:
        """Open the subscriptions in this task group; None opens no more."""
        self._group = group

    def listener(self, principal: Principal, tell: Tell) -> Listener:
        """A listener that wants nothing yet."""
        return Listener(self, principal, tell)

    def reconcile(self) -> None:
        """Open, change and end the subscriptions so that they are what the listeners want of the present agents."""
        parts = [part for listener in self._listeners for part in self._parts_of(listener)]
        wanted: dict[_FarKey, Subscription] = {}
        for part in parts:
            wanted[part.key] = _union(wanted.get(part.key, Subscription()), part.wanted)
        for key in self._far.keys() - wanted.keys():
            self._far.pop(key).end()
        for part in parts:
            if (far := self._far.get(part.key)) is None:
                if self._group is None:
                    continue
                seconds = self._sharing.options().run.cancel_grace_seconds
                far = self._far[part.key] = FarSubscription(part, self._deliver, seconds)
                self._group.start_soon(far.run)
            far.part = part
            far.want(wanted[part.key])

    def _parts_of(self, listener: Listener) -> Iterator[_WantedChanges]:
        """What a listener wants of each server, in the server's own names."""
        shared = self._sharing.servers()
        for server in shared.servers:
            if (agent := self._sharing.agent(server.agent_key)) is None:
                continue
            lists = {
                name for name in listener.wanted.lists if server.can(_CAPABILITY_OF[name], "listChanged")
            }
            uris = [
                server.own_uri(uri)
                for uri in (listener.wanted.uris if server.can("resources", "subscribe") else ())
                if shared.of_uri(uri) == server
            ]
            if lists or uris:
                principal = listener.principal
                name = principal.name if agent.is_called_on_behalf else ""
                caller = Caller(principal.name, principal.token)
                yield _WantedChanges(agent, server, name, caller, Subscription(frozenset(lists), tuple(uris)))

    async def obeyed(self, listener: Listener) -> Subscription:
        """What the agents will notify a listener of. An agent that has not answered in time counts as willing."""
        parts = [*self._parts_of(listener)]
        with anyio.move_on_after(_SETTLE_SECONDS):
            for part in parts:
                if (far := self._far.get(part.key)) is not None:
                    await far.settled()
        uris: list[str] = []
        for part in parts:
            refused = self._far[part.key].refused if part.key in self._far else frozenset[str]()
            uris += [part.server.shown_uri(uri) for uri in part.wanted.uris if uri not in refused]
        return Subscription(frozenset(name for part in parts for name in part.wanted.lists), tuple(uris))

    def add(self, listener: Listener) -> None:
        """Notify a listener of what it wants."""
        self._listeners.add(listener)
        self.reconcile()

    def remove(self, listener: Listener) -> None:
        """Notify a listener no more."""
        self._listeners.discard(listener)
        self.reconcile()

    def _deliver(self, part: _WantedChanges, notification: JsonObject) -> None:
        """Pass a notification of a server to the listeners that want it."""
        method, params = notification.get("method"), notification.get("params")
        uri = params.get("uri") if isinstance(params, dict) else None
        for listener in tuple(self._listeners):
            if part.principal and listener.principal.name != part.principal:
                continue
            if method == UPDATED and isinstance(params, dict) and isinstance(uri, str):
                shown = part.server.shown_uri(uri)
                if listener.hears_of(shown):
                    listener.tell({"method": UPDATED, "params": {**params, "uri": shown}})
            elif method in {LIST_CHANGES[name] for name in listener.wanted.lists}:
                listener.tell({"method": method, "params": {}})


@dataclass(frozen=True, slots=True)
class _WantedChanges:
    """What a listener wants of one server."""

    agent: RemoteAgent
    server: SharedServer
    principal: str
    """The principal for whom the bridge calls the agent; "" if the bridge calls the agent for itself."""
    caller: Caller
    wanted: Subscription

    @property
    def key(self) -> _FarKey:
        """The subscription that it is a part of."""
        return self.agent, self.server.key, self.principal


@dataclass(eq=False)
class Listener:
    """Implements `bridge.mcp.server.face.ChangeListener`."""

    subscriptions: AgentSubscriptions
    principal: Principal
    tell: Tell
    wanted: Subscription = field(default_factory=Subscription)

    def want(self, wanted: JsonObject) -> None:
        """See `ChangeListener`."""
        asked = subscription_from({"notifications": wanted})
        most = self.subscriptions.most_resources
        uris = [uri for uri in asked.uris[:most] if may_use(self.principal.resource_globs, uri)]
        self.wanted = Subscription(asked.lists, tuple(uris))
        self.subscriptions.add(self)

    async def settled(self) -> JsonObject:
        """See `ChangeListener`."""
        return (await self.subscriptions.obeyed(self)).to_filter()

    def close(self) -> None:
        """See `ChangeListener`."""
        self.subscriptions.remove(self)

    def hears_of(self, uri: str) -> bool:
        """Whether an update of this resource, or of this part of a resource, is wanted."""
        if uri in self.wanted.uris:
            return True
        is_part = any(is_within(uri, known) for known in self.wanted.uris)
        return is_part and may_use(self.principal.resource_globs, uri)


class FarSubscription:
    """The subscription of one principal, or of all, to one server."""

    def __init__(
        self,
        part: _WantedChanges,
        deliver: Callable[[_WantedChanges, JsonObject], None],
        grace_seconds: float,
    ) -> None:
        self.part = part
        """The server, and the caller for whom the bridge asks it."""
        self._deliver = deliver
        self._grace_seconds = grace_seconds
        self._wanted = Subscription()
        self._answered: Subscription | None = None
        """What the agent has last acknowledged or refused."""
        self.refused: frozenset[str] = frozenset()
        """The resources that the agent does not notify of."""
        self.news = Signal()
        self._scope = anyio.CancelScope()

    def want(self, wanted: Subscription) -> None:
        """Replace what is wanted."""
        if wanted != self._wanted:
            self._wanted = wanted
            self.news.notify()

    def end(self) -> None:
        """Cancel the subscription."""
        self._scope.cancel()

    async def settled(self) -> None:
        """Wait until the agent has acknowledged or refused what is wanted now."""
        while self._answered != self._wanted:
            await self.news.wait()

    async def run(self) -> None:
        """Keep the subscription open until `end`."""
        trace.begin()
        with self._scope:
            async with anyio.create_task_group() as group:
                await self._keep_open(group)

    async def _keep_open(self, group: anyio.abc.TaskGroup) -> None:
        pauses = Backoff(_FIRST_AGAIN_SECONDS, _LONGEST_AGAIN_SECONDS)
        present: _Listening | None = None
        asked: Subscription | None = None
        has_missed = False
        """Whether there was a time without a subscription."""
        while True:
            if present is not None and present.is_over:
                if present.lasted_seconds >= _LASTING_SECONDS:
                    pauses.reset()
                present, has_missed = None, True
                await self._pause(pauses.next())
            if present is not None and asked == self._wanted:
                await self.news.wait()
                continue
            asked = self._wanted
            following = await self._opened(asked, group)
            if following.is_over:  # the present one goes on
                kept = present.wanted.uris if present is not None else ()
                self.refused = frozenset(asked.uris) - {*kept} if following.is_refused else frozenset()
            else:
                if present is not None:
                    present.leave()
                present = following
                self.refused = frozenset(asked.uris) - {*present.obeyed.uris}
                if has_missed:
                    self.tell_of_everything()
                has_missed = False
            self._answered = asked
            self.news.notify()
            if present is None:
                has_missed = True
                await self._pause(pauses.next())

    async def _opened(self, wanted: Subscription, group: anyio.abc.TaskGroup) -> _Listening:
        """A further task at the agent: acknowledged, or over."""
        listening = _Listening(self, wanted, self._grace_seconds)
        group.start_soon(listening.run)
        with anyio.move_on_after(_SETTLE_SECONDS):
            await listening.begun.wait()
        if not listening.begun.is_set():
            listening.leave("it was not acknowledged")
            await listening.begun.wait()
        return listening

    async def _pause(self, seconds: float) -> None:
        """Wait before the next attempt, or until something else is wanted."""
        with anyio.move_on_after(seconds):
            await self.news.wait()

    def deliver(self, notification: JsonObject) -> None:
        """Pass on a notification of the server."""
        self._deliver(self.part, notification)

    def tell_of_everything(self) -> None:
        """Notify of everything that is wanted, since it is not known what has changed."""
        for name in self._wanted.lists:
            self.deliver({"method": LIST_CHANGES[name], "params": {}})
        for uri in self._wanted.uris:
            self.deliver({"method": UPDATED, "params": {"uri": uri}})

    def client(self) -> AgentClient:
        """A client for the caller.

        Raises:
            PeerError: the agent cannot be called.
        """
        return self.part.agent.client_for(self.part.caller)


class _Listening:
    """One task at the agent."""

    def __init__(self, far: FarSubscription, wanted: Subscription, grace_seconds: float) -> None:
        self._far = far
        self.wanted = wanted
        self.obeyed = Subscription()
        self.begun = anyio.Event()
        """Set once the agent has acknowledged, or the task is over."""
        self.is_over = False
        self.is_refused = False
        """Whether the agent was asked and does not notify."""
        self._grace_seconds = grace_seconds
        self._since = anyio.current_time()
        self._task_id: str | None = None
        self._has_ended = False
        """Whether the agent has ended the task."""
        self._why = ""
        self._scope = anyio.CancelScope()

    @property
    def lasted_seconds(self) -> float:
        """How long the agent has been listened to."""
        return anyio.current_time() - self._since

    def leave(self, why: str = "") -> None:
        """Cancel the task."""
        self._why = why
        self._scope.cancel()

    async def run(self) -> None:
        """Listen until the task ends, or is left."""
        name = self._far.part.server.id
        try:
            with self._scope, border(logger, name):
                await self._listen()
        finally:
            self.is_over = True
            if self._why:
                logger.warning("%s: the subscription ended: %s", name, self._why)
            self.begun.set()
            self._far.news.notify()
            await self._cancel()

    async def _cancel(self) -> None:
        if self._task_id is None or self._has_ended:
            return
        with anyio.CancelScope(shield=True), anyio.move_on_after(self._grace_seconds), suppress(BridgeError):
            await self._far.client().cancel(self._task_id)

    async def _listen(self) -> None:
        server = self._far.part.server
        request = McpRequest(LISTEN, {"notifications": self.wanted.to_filter()}, server.key)
        message = message_of_request(request, str(uuid4()))
        try:
            async with aclosing(self._far.client().stream(SendMessageRequest(message=message))) as events:
                async for event in events:
                    self._take(event)
                    if self._has_ended:
                        return
            self._why = "the stream was lost"
        except PeerError as exc:
            self._why, self.is_refused = str(exc), not is_transient(exc)
        except BridgeError as exc:
            self._why, self.is_refused = str(exc), True

    def _take(self, event: StreamResponse) -> None:
        """Take an event of the task.

        Raises:
            PeerError: the agent refuses the subscription, or the task has failed.
        """
        payload = event.payload
        if isinstance(payload, Message):
            answer = answer_from_parts(payload.parts)
            raise PeerError(answer.message if isinstance(answer, McpError) else "it answered without a task")
        if not isinstance(payload, Task | TaskStatusUpdateEvent):
            return
        self._task_id = payload.id if isinstance(payload, Task) else payload.task_id
        parts = payload.status.message.parts if payload.status.message else ()
        notifications = notifications_from_parts(parts)
        for notification in notifications[:_NOTIFICATIONS_MOST]:
            self._note(notification)
        if len(notifications) > _NOTIFICATIONS_MOST:
            self._far.tell_of_everything()
        if payload.status.state is TaskState.AUTH_REQUIRED:
            raise PeerError(
                text_of_parts(parts)
            )  # nobody sees the link, and a later request shows another one
        self._has_ended = payload.status.state in ENDED
        if self._has_ended and payload.status.state is not TaskState.COMPLETED:
            raise PeerError(text_of_parts(parts) or f"its task is {payload.status.state.word}")

    def _note(self, notification: JsonObject) -> None:
        params = notification.get("params")
        if notification.get("method") == ACKNOWLEDGED:
            self.obeyed = subscription_from(params if isinstance(params, dict) else {})
            self.begun.set()
        elif self.begun.is_set():
            self._far.deliver(notification)


def _union(first: Subscription, second: Subscription) -> Subscription:
    return Subscription(first.lists | second.lists, tuple(dict.fromkeys((*first.uris, *second.uris))))
