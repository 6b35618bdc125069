"""Follows tasks that a server makes of calls, from the handle to the result.

There are two kinds. In the tasks extension of 2026-07-28, tasks/get returns the whole task, with its questions and
its result, and tasks/update takes the answers. In 2025-11-25, tasks/get returns only the status; tasks/result
waits for the end, and the server sends its questions as requests while it waits.

Both are polled at the interval that the server asks for; a notification ends the pause. A lost connection does no harm
as long as the server still knows the task.

Spec: ext-tasks (io.modelcontextprotocol/tasks), MCP 2025-11-25 basic/utilities/tasks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import anyio
import anyio.abc
from mcp_types import INVALID_PARAMS
from pydantic import JsonValue

from bridge.concurrency import Backoff
from bridge.errors import PeerError
from bridge.mcp.client.elicitation_routing import elicitation_in
from bridge.mcp.client.faults import CallerTokenGoneError, ServerLostError, ServerRefusedError
from bridge.mcp.client.roots import roots_asked_in
from bridge.mcp.client.session import Session
from bridge.mcp.client.values import Asker
from bridge.mcp.messages import result_as_specified
from bridge.text.jsonvalues import JsonObject, exceeds_floats

logger = logging.getLogger(__name__)

_SHORTEST_POLL_SECONDS: Final = 0.05
_LONGEST_POLL_SECONDS: Final = 60.0
_USUAL_POLL_SECONDS: Final = 1.0
"""The poll interval if the server gives none."""
_FIRST_PAUSE_SECONDS: Final = 0.5
"""The pause before the first renewal of a subscription that has ended. It doubles each time."""
_ASKING_POLL_SECONDS: Final = 5.0
"""The shortest poll interval while a person is asked, which may take hours."""
_PATIENCE: Final = 10
"""The task is given up after this many failed polls in a row."""
_CANCEL_SECONDS: Final = 5.0
"""How long tasks/cancel may take."""


class TaskCancelledError(PeerError):
    """The task was cancelled on the server. The message is the server's, if it sent one."""


@dataclass(frozen=True, slots=True)
class TaskHandle:
    """A task of a server."""

    task_id: str
    is_legacy: bool
    """Whether it is a task of MCP 2025-11-25."""


OnStatus = Callable[[str], None]
"""Called with the `statusMessage` of a working task."""


def handle_from(result: JsonObject) -> TaskHandle | None:
    """The task that a call became; None if the result is not a task."""
    if result.get("resultType") == "task":
        task_id = result.get("taskId")
        return TaskHandle(task_id, is_legacy=False) if isinstance(task_id, str) else None
    task = result.get("task")
    task_id = task.get("taskId") if isinstance(task, dict) else None
    return (
        TaskHandle(task_id, is_legacy=True) if isinstance(task_id, str) and "content" not in result else None
    )


async def follow(
    session: Session,
    handle: TaskHandle,
    asker: Asker,
    on_status: OnStatus,
) -> JsonObject:
    """Follow a task to its result, which is the result of the call.

    Cancelling this cancels the task on the server, unless another process will follow it.

    Raises:
        ServerRefusedError: the call ended with a JSON-RPC error.
        TaskCancelledError: the task was cancelled on the server.
        ServerLostError: the server no longer knows the task, or cannot be asked.
        CallerTokenGoneError: the task can be read only with a new token of the caller.
    """
    following = _TaskPoller(session, handle, asker, on_status)
    try:
        return result_as_specified(await following.run())
    except anyio.get_cancelled_exc_class():
        if not asker.is_left:
            with anyio.move_on_after(_CANCEL_SECONDS, shield=True):
                await following.cancel()
        raise


class _TaskPoller:
    """Follows one task; used once."""

    def __init__(self, session: Session, handle: TaskHandle, asker: Asker, on_status: OnStatus) -> None:
        self._session = session
        self._handle = handle
        self._asker = asker
        self._on_status = on_status
        self._words = ""
        self._news: JsonObject | None = None
        self._woken = anyio.Event()
        self._asked: dict[str, anyio.CancelScope | None] = {}
        """All questions so far, by key. Cancelling the scope of an open question withdraws it; a settled question has
        None."""
        self._result: JsonObject | None = None
        self._error: PeerError | None = None
        self._fetching = False

    async def run(self) -> JsonObject:
        async with anyio.create_task_group() as group:
            if not self._handle.is_legacy:
                group.start_soon(self._listen)
            with self._session.about_task(self._handle.task_id, self._asker, self._note_change) as keep_up:
                while self._result is None and self._error is None:
                    await self._poll_once(group, keep_up)
            group.cancel_scope.cancel()
        if self._error is not None:
            raise self._error
        assert self._result is not None
        return self._result

    async def cancel(self) -> None:
        """Cancel the task on the server."""
        try:
            await self._request("tasks/cancel", {})
        except PeerError as exc:
            logger.debug("%s: its task could not be cancelled: %s", self._session.name, exc)

    async def _poll_once(self, group: anyio.abc.TaskGroup, keep_up: Callable[[], None]) -> None:
        """Read the task, act on its status, and wait until the next poll."""
        task = await self._read_task()
        keep_up()
        if task is None:
            return
        words = task.get("statusMessage")
        if isinstance(words, str) and words and words != self._words and task.get("status") == "working":
            self._words = words
            self._on_status(words)
        if self._handle.is_legacy:
            self._take_legacy(task, group)
        else:
            self._take(task, group)
        if self._result is None and self._error is None:
            with anyio.move_on_after(self._pause(task)):
                await self._woken.wait()

    async def _read_task(self) -> JsonObject | None:
        """The task from the server, by notification or tasks/get; None if an error has ended the following."""
        self._woken = anyio.Event()
        news, self._news = self._news, None
        if news is not None and not self._handle.is_legacy:
            return news
        fault: PeerError | None = None
        for attempt in range(1, _PATIENCE + 1):
            try:
                return await self._request("tasks/get", {})
            except CallerTokenGoneError as exc:
                self._error = exc
                return None
            except ServerRefusedError as exc:
                if exc.code == INVALID_PARAMS:
                    self._error = ServerLostError(f"{self._session.name} no longer knows the task: {exc}")
                    return None
                fault = exc
            except PeerError as exc:
                fault = exc
            logger.debug("%s: its task cannot be read: %s", self._session.name, fault)
            await anyio.sleep(min(_USUAL_POLL_SECONDS * attempt, _LONGEST_POLL_SECONDS))
        self._error = ServerLostError(f"{self._session.name} can no longer be asked about the task: {fault}")
        return None

    def _take(self, task: JsonObject, group: anyio.abc.TaskGroup) -> None:
        """Act on the status of a task of the extension."""
        match task.get("status"):
            case "completed":
                result = task.get("result")
                self._result = result if isinstance(result, dict) else {}
            case "failed":
                self._error = _error_from(task.get("error"))
            case "cancelled":
                self._error = _cancelled(task)
            case _:
                requests = task.get("inputRequests")
                self._ask(requests if isinstance(requests, dict) else {}, group)

    def _ask(self, outstanding: Mapping[str, JsonValue], group: anyio.abc.TaskGroup) -> None:
        """Ask the new questions, and withdraw questions that are no longer open at the server."""
        for key, scope in self._asked.items():
            if scope is not None and key not in outstanding:
                self._asked[key] = None
                self._asker.withdraw(key)
                scope.cancel()
        for key in [key for key in outstanding if key not in self._asked]:
            self._asked[key] = anyio.CancelScope()
            group.start_soon(self._ask_one, key, outstanding[key])

    async def _ask_one(self, key: str, request: JsonValue) -> None:
        scope = self._asked[key]
        assert scope is not None
        try:
            with scope:
                answers = roots_asked_in({key: request}, self._session.roots) or await self._asker.ask(
                    {key: elicitation_in(request)}
                )
            self._asked[key] = None
            if not scope.cancelled_caught:
                await self._answer(answers)
        except PeerError as exc:
            self._error = exc
        self._woken.set()

    async def _answer(self, answers: Mapping[str, JsonObject]) -> None:
        """Send the answers. Sending them again is safe, since a server ignores answers that it already has."""
        for attempt in range(1, _PATIENCE + 1):
            try:
                await self._request("tasks/update", {"inputResponses": dict(answers)})
            except ServerLostError:
                if attempt == _PATIENCE:
                    raise
                await anyio.sleep(_USUAL_POLL_SECONDS)
            else:
                return

    def _take_legacy(self, task: JsonObject, group: anyio.abc.TaskGroup) -> None:
        """Act on the status of a task of 2025-11-25. Its questions come while tasks/result waits for the result."""
        status = task.get("status")
        if status == "cancelled":
            self._error = _cancelled(task)
        elif status in ("input_required", "completed", "failed") and not self._fetching:
            self._fetching = True
            group.start_soon(self._fetch)

    async def _fetch(self) -> None:
        try:
            self._result = await self._request("tasks/result", {})
        except ServerRefusedError as exc:
            self._error = exc
        except PeerError as exc:
            logger.debug("%s: asking again for the result of its task: %s", self._session.name, exc)
        self._fetching = False
        self._woken.set()

    async def _listen(self) -> None:
        """Subscribe to changes of the task, if the server supports this, and again when the subscription ends. Polling
        goes on in any case."""
        params: JsonObject = {"notifications": {"taskIds": [self._handle.task_id]}}
        pauses = Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_POLL_SECONDS)
        while True:
            since = anyio.current_time()
            try:
                await self._session.request("subscriptions/listen", params)
            except ServerRefusedError as exc:
                logger.debug("%s does not notify of its tasks: %s", self._session.name, exc)
                return
            except PeerError as exc:
                logger.debug("%s no longer notifies of its task: %s", self._session.name, exc)
            if anyio.current_time() - since > _LONGEST_POLL_SECONDS:
                pauses.reset()
            await anyio.sleep(pauses.next())

    def _note_change(self, task: JsonObject) -> None:
        """Note a change. When a subscription begins, the task is read again, since earlier changes were not
        notified."""
        if "status" in task:
            self._news = task
        self._woken.set()

    async def _request(self, method: str, params: JsonObject) -> JsonObject:
        task_id = self._handle.task_id
        return await self._session.request(method, {"taskId": task_id, **params}, name=task_id)

    def _pause(self, task: JsonObject) -> float:
        wanted_ms = task.get("pollInterval" if self._handle.is_legacy else "pollIntervalMs")
        seconds = _USUAL_POLL_SECONDS
        if isinstance(wanted_ms, int | float) and not exceeds_floats(wanted_ms):
            seconds = wanted_ms / 1000
        if any(self._asked.values()):
            seconds = max(seconds, _ASKING_POLL_SECONDS)
        return min(max(seconds, _SHORTEST_POLL_SECONDS), _LONGEST_POLL_SECONDS)


def _error_from(error: JsonValue) -> ServerRefusedError:
    fields: dict[str, Any] = error if isinstance(error, dict) else {}
    code = fields.get("code")
    words = str(fields.get("message") or "The task failed, and its server gave no words for it")
    return ServerRefusedError(code if isinstance(code, int) else 0, words, fields.get("data"))


def _cancelled(task: JsonObject) -> TaskCancelledError:
    words = task.get("statusMessage")
    return TaskCancelledError(words if isinstance(words, str) and words else "The server cancelled the task")
