"""Messages on their way to an agent, each in an async task of its own, and what all calls of a running MCP server
share.

An agent may take any time to answer a message with a message, and never name a task. Then only the open connection can
bring the answer, so the message waits here, in this process only."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import anyio
import anyio.abc

from bridge import trace
from bridge.a2a.client.agent_client import AgentClient
from bridge.a2a.client.bindings import AgentRefusedError
from bridge.a2a.client.follow import TaskListener
from bridge.a2a.model.life import ENDED
from bridge.a2a.model.objects import Message, StreamResponse, Task
from bridge.agents_as_tools.handles import Handles
from bridge.agents_as_tools.options import FaceOptions
from bridge.agents_as_tools.tools import SkillKey
from bridge.agents_as_tools.webhooks import TaskWebhooks
from bridge.concurrency import ToolLimiters
from bridge.errors import BridgeError, OwnError, PeerError

logger = logging.getLogger(__name__)

AgentExchange = Callable[[TaskListener], Awaitable[Task | Message]]
"""The exchange that a `Sending` waits for."""

_HERE: Final = "here:"
"""The prefix of the id of a message whose agent named no task. The ids of agents' tasks come from the agents."""


class Sending:
    """An exchange with an agent in an async task of its own: a message on its way, or waiting for a task."""

    def __init__(
        self, client: AgentClient, on_event: Callable[[StreamResponse], None], task_id: str | None
    ) -> None:
        self.client = client
        self._on_event = on_event
        self._scope = anyio.CancelScope()
        self.named = anyio.Event()
        """Set once the id of the agent's task is known, or will never be known."""
        self.task_id = task_id
        if task_id is not None:
            self.named.set()
        self.done = anyio.Event()
        self.outcome: Task | Message | None = None
        self.fault: BridgeError | None = None

    async def run(self, work: AgentExchange) -> None:
        """Run the exchange and keep its outcome."""
        try:
            with self._scope:
                try:
                    self.outcome = await work(TaskListener(self._on_event, self._know))
                except PeerError as exc:
                    self.fault = exc
                except Exception:
                    # The fault concerns one call; the other calls and the MCP server go on.
                    logger.exception("an agent could not be asked")
                    self.fault = OwnError("The bridge failed to ask the agent; its log says why")
        finally:
            self.done.set()
            self.named.set()

    def leave(self) -> None:
        """Stop waiting. The agent goes on."""
        self._scope.cancel()

    async def cancel(self, within_seconds: float) -> None:
        """Cancel the agent's task, once its id is known. This is done even while the MCP server stops."""
        with anyio.CancelScope(shield=True):
            if self.task_id is None:
                with anyio.move_on_after(within_seconds):
                    await self.named.wait()
            self._scope.cancel()
            if self.task_id is not None:
                with anyio.move_on_after(within_seconds), suppress(PeerError):  # it may have ended by itself
                    await self.client.cancel(self.task_id)

    def _know(self, task_id: str) -> None:
        self.task_id = task_id
        self.named.set()
        if (hop := trace.hop.get()) is not None:
            hop.task_id = task_id


async def canceled_task(client: AgentClient, task_id: str, within_seconds: float) -> Task:
    """Cancel a task, and return it; or return the task as it ended by itself. The cancellation is sent even if the host
    gives up its request meanwhile.

    Raises:
        PeerError: the agent does not cancel the task, or did not answer in time.
    """
    with anyio.CancelScope(shield=True), anyio.move_on_after(within_seconds):
        try:
            return await client.cancel(task_id)
        except AgentRefusedError:
            task = await client.get(task_id)
            if task.status.state not in ENDED:
                raise
            return task
    raise PeerError(f"the agent did not confirm the cancellation within {within_seconds:g} s")


class UnnamedMessages:
    """The messages whose agents have named no task: at most `unnamed_most`. Beyond that number, the oldest is given
    up."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._kept: dict[str, Sending] = {}

    def keep(self, sending: Sending) -> str:
        """Keep a message. Returns its id."""
        while self._kept and len(self._kept) >= self.most:
            self._kept.pop(next(iter(self._kept))).leave()
        key = f"{_HERE}{secrets.token_hex(8)}"
        self._kept[key] = sending
        return key

    def find(self, task_id: str) -> Sending:
        """The message with this id.

        Raises:
            PeerError: the id is unknown here, or was forgotten.
        """
        sent = self._kept.get(task_id)
        if sent is None:
            raise PeerError("This handle is no longer known: the agent named no task for its message")
        return sent

    def drop(self, task_id: str) -> None:
        """Forget a message."""
        if (sending := self._kept.pop(task_id, None)) is not None:
            sending.leave()

    @staticmethod
    def is_id(task_id: str) -> bool:
        """Whether an id is the id of such a message."""
        return task_id.startswith(_HERE)


@dataclass(frozen=True, slots=True)
class FaceRuntime:
    """What all calls of a running MCP server share. New options make a new value; a call keeps the value that it began
    with."""

    handles: Handles
    options: FaceOptions
    background: anyio.abc.TaskGroup
    """The task group of the messages, open as long as the MCP server runs."""
    unnamed: UnnamedMessages
    turns: ToolLimiters[SkillKey]
    webhooks: TaskWebhooks
