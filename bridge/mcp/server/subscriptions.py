"""The streams that tell modern clients of changes (subscriptions/listen): of lists, of resources, of tasks.

Of the waiting notifications, only the newest about each subject is kept. So a slow client is notified late, but of
every subject that it asked for, and no queue grows.

Spec: MCP 2026-07-28 basic/patterns/subscriptions; the tasks extension, task status notifications.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import anyio
from mcp import MCPError
from mcp.server.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    SubscriptionFilter,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
)

from bridge.concurrency import Signal
from bridge.identity.callers.principals import Principal, PrincipalNames
from bridge.mcp.server.back_channel import RawNotification
from bridge.mcp.server.face import ChangeListener, RequestFace, TaskCaller, TaskFace
from bridge.mcp.server.requests import Context, param, principal_of, require_admitted
from bridge.mcp.server.task_requests import caller_of, require_declared
from bridge.text.jsonvalues import JsonObject

MOST_TASKS: Final = 100
"""The most tasks that a stream may follow. Each task needs a subscription at its agent."""

MOST_WAITING: Final = 2000
"""The most notifications that wait for a slow client. Beyond this number, the oldest are dropped."""

_LISTS: Final = {
    "toolsListChanged": "notifications/tools/list_changed",
    "promptsListChanged": "notifications/prompts/list_changed",
    "resourcesListChanged": "notifications/resources/list_changed",
}


class WaitingNotifications:
    """The notifications that wait for one client, by their subjects: of each subject only the newest."""

    def __init__(self) -> None:
        self._by_subject: dict[str, tuple[str, JsonObject]] = {}
        self.news = Signal()
        """Signalled after each new notification."""

    def __bool__(self) -> bool:
        return bool(self._by_subject)

    def put(self, subject: str, method: str, params: JsonObject) -> None:
        """Queue a notification. It replaces a waiting notification about the same subject."""
        if len(self._by_subject) >= MOST_WAITING:
            self.take()
        self._by_subject[subject] = (method, params)
        self.news.notify()

    def put_reported(self, notification: JsonObject) -> None:
        """Queue the change of a list or of a resource that an agent has reported."""
        method, params = str(notification.get("method")), notification.get("params")
        params = params if isinstance(params, dict) else {}
        self.put(f"resource {params['uri']}" if "uri" in params else method, method, params)

    def take(self) -> tuple[str, JsonObject]:
        """The method and the params of the oldest subject, which waits no more."""
        return self._by_subject.pop(next(iter(self._by_subject)))

    def clear(self) -> None:
        """Drop everything that waits."""
        self._by_subject.clear()


class ListenStreams:
    """Serves the streams. Each call is a stream, until its client leaves or `close` ends all streams."""

    def __init__(self, tasks: TaskFace | None, requests: RequestFace | None, most_streams: int) -> None:
        self._tasks = tasks
        self._requests = requests
        self._most = most_streams
        self._streams: set[_ListenStream] = set()

    async def __call__(
        self, context: Context, params: SubscriptionsListenRequestParams
    ) -> SubscriptionsListenResult:
        """Serve one stream."""
        if len(self._streams) >= self._most:
            raise MCPError(INTERNAL_ERROR, "Too many streams are open")
        caller = caller_of(context)
        require_admitted(context)
        known = [
            task_id for task_id in _task_ids(context) if self._tasks and self._tasks.knows(task_id, caller)
        ]
        stream = _ListenStream(context, _granted(params.notifications, known), caller.principal)
        self._streams.add(stream)
        listener = self._listener(stream, principal_of(context))
        try:
            if listener is not None:
                await self._grant(stream, listener, principal_of(context))
            async with anyio.create_task_group() as tasks:
                await stream.acknowledge()
                for task_id in known:
                    tasks.start_soon(self._follow, task_id, caller, stream)
                # A stream ends when the token of its client expires.
                with anyio.move_on_after(principal_of(context).seconds_left()):
                    await stream.run()
                tasks.cancel_scope.cancel()
        finally:
            self._streams.discard(stream)
            if listener is not None:
                listener.close()
        return SubscriptionsListenResult(_meta=stream.meta)

    def _listener(self, stream: _ListenStream, principal: Principal) -> ChangeListener | None:
        """Listen to what agents share, if the filter of a stream asks for lists or resources."""
        if self._requests is None or not stream.granted.keys() - {"taskIds", "toolsListChanged"}:
            return None
        return self._requests.listener(principal, stream.hear)

    async def _grant(self, stream: _ListenStream, listener: ChangeListener, principal: Principal) -> None:
        """Leave the resources of agents that no agent notifies of out of the granted filter of a stream."""
        assert self._requests is not None
        listener.want(stream.granted)
        uris = stream.granted.get("resourceSubscriptions")
        if not isinstance(uris, list) or not self._requests.capabilities:
            return
        stream.of_agents = frozenset(
            str(uri) for uri in uris if self._requests.takes("resources/read", {"uri": uri}, principal)
        )
        heard = (await listener.settled()).get("resourceSubscriptions")
        refused = stream.of_agents - {*(heard if isinstance(heard, list) else ())}
        stream.granted["resourceSubscriptions"] = [uri for uri in uris if uri not in refused]

    @property
    def open(self) -> int:
        """The number of open streams."""
        return len(self._streams)

    def changed(self) -> None:
        """Tell all streams that lists and resources may have changed."""
        for stream in self._streams:
            stream.changed()

    def close(self) -> None:
        """End all streams, after their waiting notifications were sent."""
        for stream in self._streams:
            stream.close()

    def end_streams_of(self, principals: PrincipalNames) -> None:
        """End the streams of some principals at once."""
        for stream in self._streams:
            if stream.principal in principals:
                stream.cut()

    async def _follow(self, task_id: str, caller: TaskCaller, stream: _ListenStream) -> None:
        def notify(task: JsonObject) -> None:
            stream.put(task_id, "notifications/tasks", task)

        assert self._tasks is not None
        await self._tasks.watch(task_id, caller, notify)


class _ListenStream:
    """A stream: its client's filter, and its waiting notifications."""

    def __init__(self, context: Context, granted: JsonObject, principal: str) -> None:
        self.principal = principal
        self.meta: dict[str, Any] = {SUBSCRIPTION_ID_META_KEY: context.request_id}
        self._context = context
        self.granted = granted
        """The granted filter."""
        self.of_agents: frozenset[object] = frozenset()
        """The resources whose agents say themselves when they have changed."""
        self._waiting = WaitingNotifications()
        self._closed = False

    async def acknowledge(self) -> None:
        """Send the granted filter, which is the first message of a stream."""
        await self._send("notifications/subscriptions/acknowledged", {"notifications": self.granted})

    async def run(self) -> None:
        """Send the waiting notifications, until the stream is closed."""
        while self._waiting or not self._closed:
            if self._waiting:
                await self._send(*self._waiting.take())
            else:
                await self._waiting.news.wait()

    def changed(self) -> None:
        """Notify of the lists and resources in the filter."""
        for kind, method in _LISTS.items():
            if kind in self.granted:
                self.put(method, method, {})
        uris = self.granted.get("resourceSubscriptions")
        for uri in uris if isinstance(uris, list) else ():
            if uri not in self.of_agents:
                self.put(f"resource {uri}", "notifications/resources/updated", {"uri": uri})

    def hear(self, notification: JsonObject) -> None:
        """Notify of a change that an agent has reported."""
        if not self._closed:
            self._waiting.put_reported(notification)

    def put(self, subject: str, method: str, params: JsonObject) -> None:
        """Queue a notification; see `WaitingNotifications`."""
        if not self._closed:
            self._waiting.put(subject, method, params)

    def close(self) -> None:
        """End the stream after the waiting notifications were sent."""
        self._closed = True
        self._waiting.news.notify()

    def cut(self) -> None:
        """End the stream at once."""
        self._waiting.clear()
        self.close()

    async def _send(self, method: str, params: JsonObject) -> None:
        notification = RawNotification(method=method, params={**params, "_meta": self.meta})
        await self._context.session.send_notification(
            notification,  # type: ignore[arg-type]  # a ServerNotification with its params unread
            related_request_id=self._context.request_id,
        )


def _granted(requested: SubscriptionFilter, task_ids: Sequence[str]) -> JsonObject:
    """The granted part of a filter: all but unknown tasks."""
    granted: JsonObject = requested.model_dump(by_alias=True, mode="json", exclude_none=True)
    granted = {key: value for key, value in granted.items() if value and key != "taskIds"}
    return granted | ({"taskIds": [*task_ids]} if task_ids else {})


def _task_ids(context: Context) -> list[str]:
    """The task ids in a filter. The SDK's model of a filter does not have them.

    Raises:
        MCPError: the client did not declare the extension, the ids are not a list of texts, or there are too many.
    """
    ids = (param(context, "notifications") or {}).get("taskIds")
    if ids is None:
        return []
    require_declared(context)
    if not isinstance(ids, list) or not all(isinstance(task_id, str) for task_id in ids):
        raise MCPError(INVALID_PARAMS, "notifications.taskIds is no list of task ids")
    if len(ids) > MOST_TASKS:
        raise MCPError(INVALID_PARAMS, f"notifications.taskIds has more than {MOST_TASKS} task ids")
    return list(dict.fromkeys(ids))
