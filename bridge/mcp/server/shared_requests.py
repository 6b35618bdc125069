"""Requests that remote agents answer: about resources, prompts and completions of MCP servers behind the agents.

Results and errors are those of the servers. They are changed only where the eras of MCP differ. A legacy client is
notified of changes on its connection; a modern client on the stream that it has opened (see `subscriptions.py`).

Spec: MCP 2026-07-28 and 2025-11-25 server/resources, server/prompts, server/utilities/completion; 2026-07-28
server/utilities/caching and basic/patterns/mrtr.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import anyio
import anyio.abc
from mcp.server.connection import Connection
from mcp.server.session import ServerSession
from mcp_types import ClientCapabilities

from bridge.concurrency import border
from bridge.errors import echoed
from bridge.identity.callers.principals import Principal, PrincipalNames
from bridge.mcp.messages import ELICIT
from bridge.mcp.server.back_channel import DeclaredCapabilities, RawNotification
from bridge.mcp.server.face import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    ChangeListener,
    McpRefusal,
    RequestFace,
    ToolFace,
)
from bridge.mcp.server.requests import Context, is_modern, param, principal_of
from bridge.mcp.server.subscriptions import WaitingNotifications
from bridge.text.jsonvalues import JsonObject

logger = logging.getLogger(__name__)

SHARED_METHODS: Final[Mapping[str, tuple[str, str]]] = {
    "completion/complete": ("completions", ""),
    "resources/subscribe": ("resources", "subscribe"),
    "resources/unsubscribe": ("resources", "subscribe"),
}
"""The methods that exist only if an agent shares the capability, and the feature of it."""

_NOT_FOUND: Final = -32002
"""The code for a resource that does not exist, up to MCP 2025-11-25."""
_CACHING: Final = frozenset({"ttlMs", "cacheScope"})
_ALL_LISTS: Final[JsonObject] = {"resourcesListChanged": True, "promptsListChanged": True}
_TELL_SECONDS: Final = 5.0
"""How long sending a notification to a legacy client may take."""

_DECLARED_BY: Final[Mapping[str, str]] = {
    ELICIT: "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}
"""The capabilities that a client declares for the questions of servers."""


class RequestsToAgents:
    """Passes requests to the face's agents, for clients of both eras."""

    def __init__(self, face: ToolFace, list_ttl_ms: int, may_share: Callable[[], bool]) -> None:
        """`may_share` says whether all clients are the same principal, so that a shared cache may keep what a server
        calls public."""
        self._face = face
        self._list_ttl_ms = list_ttl_ms
        self._may_share = may_share
        self._legacy: dict[Connection, _LegacyClient] = {}
        self._group: anyio.abc.TaskGroup | None = None
        self._methods: Mapping[str, Callable[[Context], Awaitable[JsonObject]]] = {
            "completion/complete": self.ask,
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
        }

    def run_in(self, group: anyio.abc.TaskGroup | None) -> None:
        """Notify legacy clients in this task group; None ends their subscriptions."""
        self._group = group
        if group is None:
            self.stop()

    def method(self, name: str) -> Callable[[Context], Awaitable[JsonObject]] | None:
        """The method of this name, if an agent shares what it needs."""
        capability, feature = SHARED_METHODS.get(name, ("", ""))
        shared = self._capabilities.get(capability)
        has = isinstance(shared, dict) and (not feature or shared.get(feature) is True)
        return self._methods[name] if has else None

    @property
    def _capabilities(self) -> JsonObject:
        return {} if self._face.requests is None else self._face.requests.capabilities

    def takes(self, context: Context) -> bool:
        """Whether an agent answers a request."""
        requests = self._face.requests
        return requests is not None and requests.takes(
            context.method, dict(context.params or {}), principal_of(context)
        )

    async def page(self, context: Context, key: str, own: list[JsonObject]) -> JsonObject:
        """A page of a list. The first page begins with the bridge's own entries."""
        result = await self.ask(context)
        listed = result.get(key)
        result = {**result, key: [*own, *(listed if isinstance(listed, list) else ())]}
        if not is_modern(context):
            return result
        # The bridge's own entries depend on the rights of the caller. All pages have the same scope (2026-07-28
        # server/utilities/caching).
        ttl_ms = result.get("ttlMs")
        fresh_ms = min(ttl_ms, self._list_ttl_ms) if isinstance(ttl_ms, int) else 0
        return {**result, "ttlMs": max(fresh_ms, 0), "cacheScope": "private"}

    async def read(self, context: Context) -> JsonObject:
        """The contents of a resource."""
        result = await self.ask(context)
        if not is_modern(context) or _asks(result):
            return result
        scope = {} if self._may_share() else {"cacheScope": "private"}
        return {"ttlMs": 0, "cacheScope": "private", **result, **scope}

    async def ask(self, context: Context) -> JsonObject:
        """The result of the agent's server, in the form of the client's era.

        Raises:
            McpRefusal: the error of the server, in the form of the client's era; or the server asks for input that the
                client does not give.
        """
        try:
            result = await self._requests.answer(
                context.method, dict(context.params or {}), principal_of(context)
            )
        except McpRefusal as exc:
            if exc.code == _NOT_FOUND and is_modern(context):
                raise McpRefusal(INVALID_PARAMS, exc.message, exc.data) from exc
            raise
        if _asks(result):
            _require_asking(context, result)
        elif not is_modern(context):
            return {name: value for name, value in result.items() if name not in _CACHING}
        return result

    @property
    def _requests(self) -> RequestFace:
        assert self._face.requests is not None, "it takes the request"
        return self._face.requests

    # Legacy clients

    async def _subscribe(self, context: Context) -> JsonObject:
        uri, principal = param(context, "uri"), principal_of(context)
        client = self.welcome(context.session, principal)
        if client is None or not self._requests.takes("resources/read", {"uri": uri}, principal):
            raise _no_updates(uri, "There is no such resource")
        client.uris[uri] = None
        obeyed = (await client.listen()).get("resourceSubscriptions")
        if not isinstance(obeyed, list) or uri not in obeyed:
            client.uris.pop(uri, None)
            await client.listen()
            raise _no_updates(uri, "It has no updates, or you have too many subscriptions")
        return {}

    async def _unsubscribe(self, context: Context) -> JsonObject:
        client = self._legacy.get(context.session._connection)
        if client is not None and client.uris.pop(param(context, "uri"), 0) is None:
            await client.listen()
        return {}

    def welcome(self, session: ServerSession, principal: Principal) -> _LegacyClient | None:
        """Notify a legacy client of changed lists until its connection ends, if an agent shares something."""
        connection, group = session._connection, self._group
        client = self._legacy.get(connection)
        if client is None and group is not None and self._capabilities:
            client = self._legacy[connection] = _LegacyClient(session, principal)
            client.listener = self._requests.listener(principal, client.tell)
            client.listener.want({**_ALL_LISTS})
            connection.exit_stack.callback(self._dismiss, connection)
            group.start_soon(client.run)
        return client

    def _dismiss(self, connection: Connection) -> None:
        if (client := self._legacy.pop(connection, None)) is not None:
            client.close()

    def end_of(self, principals: PrincipalNames) -> None:
        """End the subscriptions of the legacy clients of some principals, since their rights have changed."""
        for connection, client in tuple(self._legacy.items()):
            if client.principal.name in principals:
                self._dismiss(connection)

    def stop(self) -> None:
        """End the subscriptions of all legacy clients."""
        for connection in tuple(self._legacy):
            self._dismiss(connection)


@dataclass(eq=False)
class _LegacyClient:
    """A legacy client that is notified of changes on its connection."""

    session: ServerSession
    principal: Principal
    listener: ChangeListener = field(init=False)
    uris: dict[str, None] = field(default_factory=dict)
    """The resources that it has subscribed to, in their order."""
    _waiting: WaitingNotifications = field(default_factory=WaitingNotifications)
    _scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)

    async def listen(self) -> JsonObject:
        """Listen to the changes of lists, and to the subscribed resources. Returns what will be notified of."""
        wanted: JsonObject = {**_ALL_LISTS, **({"resourceSubscriptions": [*self.uris]} if self.uris else {})}
        self.listener.want(wanted)
        return await self.listener.settled()

    def tell(self, notification: JsonObject) -> None:
        """Queue a notification."""
        self._waiting.put_reported(notification)

    async def run(self) -> None:
        """Send the notifications, until `close`."""
        with self._scope:
            while True:
                while self._waiting:
                    method, params = self._waiting.take()
                    with border(logger, "a legacy client"), anyio.move_on_after(_TELL_SECONDS):
                        await self._send(method, params)
                await self._waiting.news.wait()

    async def _send(self, method: str, params: JsonObject) -> None:
        message = RawNotification(method=method, params=params or None)
        await self.session.send_notification(message)  # type: ignore[arg-type]  # its params are unread

    def close(self) -> None:
        """Send nothing more."""
        self.listener.close()
        self._scope.cancel()


def _asks(result: JsonObject) -> bool:
    return result.get("resultType") == "input_required"


def _require_asking(context: Context, result: JsonObject) -> None:
    """Refuse a server's questions that the client does not answer.

    Raises:
        McpRefusal: the client is legacy, or did not declare the capability that a question needs.
    """
    if not is_modern(context):
        words = f"The server asks for input first, which no {context.method} of this revision of MCP can give"
        raise McpRefusal(INTERNAL_ERROR, words)
    questions = result.get("inputRequests")
    for question in questions.values() if isinstance(questions, dict) else ():
        method = str(question.get("method")) if isinstance(question, dict) else ""
        params = question.get("params") if isinstance(question, dict) else None
        needed = _DECLARED_BY.get(method, echoed(method))
        is_url = isinstance(params, dict) and params.get("mode") == "url"
        if not _declares(context.session.client_capabilities, needed, is_url=is_url):
            words = f"The server asks for input first, which needs the capability {needed}"
            raise McpRefusal(
                MISSING_REQUIRED_CLIENT_CAPABILITY, words, {"requiredCapabilities": {needed: {}}}
            )


def _declares(capabilities: ClientCapabilities | None, needed: str, *, is_url: bool) -> bool:
    if needed == "elicitation":
        declared = DeclaredCapabilities.in_capabilities(capabilities, is_modern=True)
        return declared.urls if is_url else declared.forms
    return needed in _DECLARED_BY.values() and getattr(capabilities, needed, None) is not None


def _no_updates(uri: str, why: str) -> McpRefusal:
    return McpRefusal(INVALID_PARAMS, f"{why}: {echoed(uri)}", {"uri": echoed(uri)})
