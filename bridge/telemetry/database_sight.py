"""Logs outages of a database: one line at the start and one at the end, however many stores use the database."""

from __future__ import annotations

import logging

logger = logging.getLogger(__name__)


class DatabaseSight:
    """Logs the outages of a database that several stores of a process use: the first loss, and the recovery of the last
    store."""

    def __init__(self) -> None:
        self._missing: set[object] = set()
        """The users of the database that cannot reach it now."""

    def lost(self, who: object, why: str) -> None:
        """Note that a user of the database cannot reach it."""
        level = logging.DEBUG if self._missing else logging.ERROR
        self._missing.add(who)
        logger.log(
            level, "%s; this replica is out of service, and nothing is acknowledged until it is back", why
        )

    def found(self, who: object) -> None:
        """Note that a user of the database reaches it again, or has ended."""
        if who in self._missing:
            self._missing.discard(who)
            if not self._missing:
                logger.info("the database is back: this replica serves again")
