"""Which replica has the session in which some work continues.

A tool server may keep state in a session of one context or principal. Such a session is in one process, so its work has
to run in that process. A replica that opens a session claims it in the store. A message that needs the session of
another replica is passed to that replica, which makes the task. If a replica is gone, its sessions are lost: the next
replica that needs such a session begins a new session, whose first task says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import anyio

from bridge.a2a.model.errors import a2a_error_of
from bridge.a2a.tasks.agent import WorkSession
from bridge.a2a.tasks.task_registry import HeldElsewhereError
from bridge.concurrency import Signal, one_at_a_time
from bridge.errors import BusyError
from bridge.store.replicas import Replicas, SessionClaim


@dataclass(eq=False)
class _OwnedSession:
    session: WorkSession
    is_lost: bool
    """Whether the last session of this name was lost, and no task has said so yet."""


@dataclass(frozen=True, slots=True)
class SessionHold:
    """A session that is kept open for one message and its work."""

    owned: _OwnedSession
    release: Callable[[], None]

    @property
    def is_lost(self) -> bool:
        """Whether the task has to say that the last session of this name was lost."""
        return self.owned.is_lost

    def note_loss_told(self) -> None:
        """Note that a task has said that the session was lost."""
        self.owned.is_lost = False


class SessionOwnership:
    """The sessions that this replica has."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._owned: dict[str, _OwnedSession] = {}
        self._claiming: dict[str, Signal] = {}

    def hold(self, session: WorkSession) -> SessionHold | None:
        """Keep a session open; None if this replica does not have the session."""
        owned = self._of(session)
        release = None if owned is None else session.hold()
        return None if owned is None or release is None else SessionHold(owned, release)

    async def claim(self, session: WorkSession, task_id: str | None) -> None:
        """Claim a session for this replica, for a message to a task; `task_id` is None if the message makes a task.

        Raises:
            HeldElsewhereError: another replica has the session.
            StoreConflictError: another replica was faster. Try again.
            StoreError: the store cannot be reached.
            A2AError: there are too many sessions.
        """
        # Shielded, since a cancelled claim could stay in the store for ever. The store bounds its own time.
        async with one_at_a_time(self._claiming, session.name):
            with anyio.CancelScope(shield=True):
                if self._of(session) is None:
                    await self._claim(session, task_id)

    def _of(self, session: WorkSession) -> _OwnedSession | None:
        """A session of this replica; None if there is none, or if its server was replaced since."""
        owned = self._owned.get(session.name)
        return owned if owned is not None and owned.session == session else None

    async def _claim(self, session: WorkSession, task_id: str | None) -> None:
        claim = await self._replicas.claim_session(session.name, session.idle_seconds)
        if claim.owner != self._replicas.epoch:
            raise HeldElsewhereError(task_id, claim.owner)
        owned = _OwnedSession(session, claim.is_lost)
        try:
            session.open(partial(self._ended, owned, claim))
        except BusyError as exc:
            self._replicas.end_session(claim)
            raise a2a_error_of(exc) from exc
        self._owned[session.name] = owned

    def _ended(self, owned: _OwnedSession, claim: SessionClaim) -> None:
        if self._owned.get(claim.name) is owned:
            del self._owned[claim.name]
            self._replicas.end_session(claim)

    def give_up(self) -> None:
        """End all sessions, because this replica was taken for dead. In the store they stay as lost sessions, so that
        the next session of each name reports the loss."""
        owned, self._owned = self._owned, {}
        for owner in owned.values():
            owner.session.end()
