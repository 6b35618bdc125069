"""A thread that sends heartbeats for a replica while other work blocks its event loop.

The other replicas take a replica without heartbeats for dead, and fail its tasks, although a blocked loop loses
nothing. So the thread regularly asks the loop for a sign of life. While none comes, it sends heartbeats on its own
connection, but only for some leases: a loop that stays blocked must lose its tasks in the end.

The thread does nothing while the loop answers: the loop itself handles heartbeats that fail or wait.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from threading import Event, Thread
from typing import Final

import psycopg

from bridge.store.postgres.bounds import Lease
from bridge.store.postgres.connections import first_line
from bridge.store.postgres.table_steps import Namespace

logger = logging.getLogger(__name__)

BEAT: Final = "UPDATE {ns}.beats SET beat = beat + 1 WHERE epoch = %s"

_LATE_BEATS: Final = 3
"""The heartbeat periods without a sign of life after which the loop counts as blocked."""
_LEASES_MOST: Final = 6
"""The leases for which the thread stands in for the loop."""
_CONNECT_SECONDS: Final = 5
_JOIN_SECONDS: Final = 5.0


class StandInBeat:
    """The thread of a replica. Call `start` on the loop."""

    def __init__(self, url: str, place: Namespace, lease: Lease, epoch: Callable[[], int]) -> None:
        """`epoch` returns the current epoch, or 0 if there is none."""
        self._url = url
        self._place = place
        self._lease = lease
        self._epoch = epoch
        self._stopped = Event()
        self._answered_at = 0.0
        self._thread: Thread | None = None
        self._connection: psycopg.Connection | None = None
        self.beats = 0
        """The number of heartbeats that this thread has sent."""

    @property
    def is_needed(self) -> bool:
        """Whether the thread stands in: it has sent a heartbeat, and the loop has not answered since."""
        return self._connection is not None

    def start(self) -> None:
        """Watch the loop from now on."""
        self._answered_at = time.monotonic()
        loop = asyncio.get_running_loop()
        self._thread = Thread(target=self._run, args=(loop,), name="stand-in beat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Send no more heartbeats."""
        self._stopped.set()

    def join(self) -> None:
        """Wait until the thread has ended. Call `stop` before."""
        if self._thread is not None:
            self._thread.join(_JOIN_SECONDS)

    def _answer(self) -> None:
        self._answered_at = time.monotonic()

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        lease = self._lease
        try:
            while not self._stopped.wait(lease.beat_seconds):
                held_seconds = time.monotonic() - self._answered_at
                loop.call_soon_threadsafe(self._answer)
                if held_seconds < _LATE_BEATS * lease.beat_seconds:
                    self._close()
                elif held_seconds < _LEASES_MOST * lease.silence_seconds:
                    self._beat()
        except RuntimeError:  # the loop is closed
            logger.debug("the loop is gone")
        finally:
            self._close()

    def _beat(self) -> None:
        if not (epoch := self._epoch()):
            return
        try:
            if self._connection is None:
                self._connection = psycopg.connect(
                    self._url, autocommit=True, prepare_threshold=None, connect_timeout=_CONNECT_SECONDS
                )
            self._connection.execute(self._place.sql(BEAT), (epoch,))
            self.beats += 1
        except psycopg.Error as exc:
            logger.debug("no heartbeat in place of a blocked loop: %s", first_line(exc))
            self._close()

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
