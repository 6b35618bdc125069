"""Which call a legacy server's question belongs to (elicitation/create).

Only the questions of tasks name their task. Any other question belongs to the call that is under way; calls that become
tasks count only if there are no other calls. If several calls are under way, the question waits a while for all but one
of them to end. If several calls are left, the question is answered with an error, and these calls are told. The bridge
does not guess: a guess could show the question of one client to another.

After a question that names nothing, `Upstream` runs only one call at a time in each session.

Spec: MCP 2025-11-25 client/elicitation, basic/utilities/tasks (related-task).
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

import anyio
from mcp import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS
from pydantic import JsonValue

from bridge.concurrency import Signal
from bridge.errors import PeerError, echoed
from bridge.mcp.client.values import Asker
from bridge.mcp.messages import ELICIT
from bridge.text.jsonvalues import JsonObject

logger = logging.getLogger(__name__)

MODES: Final = ("form", "url")
"""The modes of elicitation that the bridge declares."""
RELATED_TASK: Final = "io.modelcontextprotocol/related-task"
CANCEL: Final[Mapping[str, Any]] = {"action": "cancel"}
"""The ElicitResult of an unanswered question."""

_UNATTRIBUTED: Final = (
    "{} calls are under way, and nothing says which of them this is for, so nobody was asked"
)


def elicitation_in(request: JsonValue) -> JsonObject:
    """The params of an elicitation among the `inputRequests` of a server.

    Raises:
        PeerError: the request is not an elicitation. The bridge declares nothing else.
    """
    method = request.get("method") if isinstance(request, dict) else None
    params = request.get("params") if isinstance(request, dict) else None
    if method != ELICIT:
        raise PeerError(
            f"The tool asked for {method or 'something without a name'}, which it was not offered"
        )
    return params if isinstance(params, dict) else {}


@dataclass(eq=False)
class OpenCall:
    asker: Asker | None
    as_task: bool = False
    """Whether the server makes a task of the call. The questions of a task have to name the task."""
    asked: set[anyio.CancelScope] = field(default_factory=set)
    """The open questions; cancelling a scope drops its question."""


class ElicitationRouter:
    """Passes the server's questions on one connection to the askers of its calls and tasks."""

    def __init__(self, name: str, attribution_seconds: float, on_question: Callable[[], None]) -> None:
        """`attribution_seconds` is how long a question that may belong to several calls waits for all but one of
        them to end. `on_question` is called for each question that does not name its call."""
        self.name = name
        self._attribution_seconds = attribution_seconds
        self._on_question = on_question
        self._calls: set[OpenCall] = set()
        self._ended = Signal()
        """Signalled when a call ends."""
        self._tasks: dict[str, OpenCall] = {}

    def begin(self, asker: Asker | None, *, as_task: bool = False) -> OpenCall:
        """Register a call, until `end`. Without an asker, its questions are answered with `cancel`."""
        call = OpenCall(asker, as_task)
        self._calls.add(call)
        return call

    def end(self, call: OpenCall) -> None:
        """Drop a call that has ended, and its questions."""
        self._calls.discard(call)
        self._ended.notify()
        _drop_questions(call)

    @contextmanager
    def of_task(self, task_id: str, asker: Asker) -> Iterator[None]:
        """Pass the questions that name this task to the asker, while this is open."""
        call = self._tasks[task_id] = OpenCall(asker)
        try:
            yield
        finally:
            del self._tasks[task_id]
            _drop_questions(call)

    async def answer(self, params: Mapping[str, Any], is_withdrawn: Callable[[], bool]) -> dict[str, Any]:
        """The ElicitResult for a question. If this is cancelled, `is_withdrawn` says whether the server withdrew the
        question.

        Raises:
            MCPError: the mode was not declared, the question cannot be passed on, or its call is not known.
        """
        if (mode := params.get("mode", MODES[0])) not in MODES:
            raise MCPError(INVALID_PARAMS, f"The mode {echoed(str(mode))} of elicitation was not declared")
        related = _related_task(params)
        call = await self._asking_call() if related is None else self._tasks.get(str(related.get("taskId")))
        if call is None or call.asker is None:
            return _as_answer_to(params, dict(CANCEL))
        key = f"elicitation-{secrets.token_hex(4)}"
        result = dict(CANCEL)
        with anyio.CancelScope() as scope:
            call.asked.add(scope)
            try:
                question: JsonObject = dict(params)
                result = dict((await call.asker.ask({key: question}))[key])
            except PeerError as exc:
                logger.warning("%s: %s", self.name, exc)
                raise MCPError(INVALID_PARAMS, str(exc)) from exc
            except anyio.get_cancelled_exc_class():
                if is_withdrawn():
                    call.asker.withdraw(key)
                raise
            finally:
                call.asked.discard(scope)
        if scope.cancelled_caught and call.asker.is_left:
            await anyio.sleep_forever()  # pending until the connection ends
        return _as_answer_to(params, result)

    async def _asking_call(self) -> OpenCall:
        """The call of a question that names no call.

        Raises:
            MCPError: no call is under way, or several calls are still under way after `attribution_seconds`.
        """
        self._on_question()
        calls = [call for call in self._calls if not call.as_task] or list(self._calls)
        with anyio.move_on_after(self._attribution_seconds):
            while len([*islice(self._under_way(calls), 2)]) > 1:
                await self._ended.wait()
        left = [*self._under_way(calls)]
        if len(left) == 1:
            return left[0]
        logger.warning(
            "%s asked something while %d calls were under way, and nothing says which one it is for: it was"
            " answered with an error, and one call at a time runs on a session from now on",
            self.name,
            len(calls),
        )
        for call in left:
            if call.asker is not None:
                call.asker.miss_question(len(calls))
        raise MCPError(INTERNAL_ERROR, _UNATTRIBUTED.format(len(calls)))

    def _under_way(self, calls: Sequence[OpenCall]) -> Iterator[OpenCall]:
        return (call for call in calls if call in self._calls)


def _related_task(params: Mapping[str, Any]) -> Mapping[str, Any] | None:
    meta = params.get("_meta")
    related = meta.get(RELATED_TASK) if isinstance(meta, Mapping) else None
    return related if isinstance(related, Mapping) else None


def _as_answer_to(params: Mapping[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    """The result with the task that the question named, since every message about a task has to name the task."""
    related = _related_task(params)
    return result if related is None else {**result, "_meta": {RELATED_TASK: related}}


def _drop_questions(call: OpenCall) -> None:
    for scope in tuple(call.asked):
        scope.cancel()
