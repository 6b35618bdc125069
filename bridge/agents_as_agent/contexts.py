"""Finds the remote context in which a message goes on, and names contexts that no stored task has.

A task keeps the remote context with itself. An agent that answers with a message alone leaves no task, so our context
of that message is a sealed handle of the remote context. A context that a client has chosen itself is not known to the
remote agent: the agent gets an id derived from the client's, which no other principal can name.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from bridge.agents_as_agent.ids import derived_id
from bridge.agents_as_agent.kept import RemoteTask, TaskRecords, kept_in
from bridge.seal import (
    LIFETIME_SECONDS,
    Handle,
    HandleBinding,
    HandleError,
    HandlePurpose,
    HandleTooLongError,
    Seal,
    agent_mark,
)


@dataclass(frozen=True, slots=True)
class RemoteContext:
    """A conversation with a remote agent."""

    agent: str
    """The key of the agent."""
    context_id: str | None


@dataclass(frozen=True, slots=True)
class Contexts:
    """The contexts of one agent's callers."""

    seal: Seal = field(repr=False)
    records: TaskRecords

    async def find(self, context_id: str, principal: str, agents: tuple[str, ...]) -> RemoteContext | None:
        """The conversation that a context stands for; None if the context is new. `agents` are the keys of the agents
        that may have it; the agent of the newest task comes first."""
        if (sealed := self._opened(context_id, principal)) is not None:
            for agent in agents:
                if agent_mark(agent) == sealed.agent:
                    return RemoteContext(agent, sealed.ids[0])
        for work in await self.records.in_context(context_id, principal):
            task = _task_in(work)
            if task is not None and task.agent in agents:
                return RemoteContext(task.agent, task.context_id)
        return None

    def of_own_choice(self, context_id: str, principal: str, agent: str) -> str:
        """The remote context for a context that the client has chosen itself."""
        return derived_id("context", agent, principal, context_id)

    def of_reply(
        self, remote: RemoteContext, principal: str, asked: str | None, sent: str | None
    ) -> str | None:
        """Our context of an answer without a task; None if the remote agent names no context, or one that is too long.

        `asked` is the context of the client's message, `sent` the context of the message to the agent. If the agent has
        stayed in that context, so has the client.
        """
        if asked is not None and remote.context_id in (None, sent):
            return asked
        if remote.context_id is None:
            return None
        expires = int(time.time()) + LIFETIME_SECONDS[HandlePurpose.CONTEXT]
        handle = Handle(agent_mark(remote.agent), (remote.context_id,), expires)
        try:
            return self.seal.seal(handle, HandleBinding(HandlePurpose.CONTEXT, principal))
        except HandleTooLongError:
            return None

    def _opened(self, text: str, principal: str) -> Handle | None:
        try:
            handle = self.seal.open(text, HandleBinding(HandlePurpose.CONTEXT, principal), time.time())
        except HandleError:
            return None
        return handle if handle.ids else None


def _task_in(work: bytes) -> RemoteTask | None:
    try:
        kept = kept_in(work)
    except ValueError:  # of another release
        return None
    return kept if isinstance(kept, RemoteTask) else None
