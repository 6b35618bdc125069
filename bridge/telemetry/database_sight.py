"""Log lines about a database that is away: one when it goes and one when it is back, however many stores use it."""

from __future__ import annotations

import logging

logger = logging.getLogger(__name__)


class DatabaseSight:
    """Logs about a database that several stores of a process use: once that it is away, and once that it is back for
    all of them."""

    def __init__(self) -> None:
        self._missing: set[object] = set()
        """Those who do not reach it at the moment."""

    def lost(self, who: object, why: str) -> None:
        """A store does not reach the database."""
        level = logging.DEBUG if self._missing else logging.ERROR
        self._missing.add(who)
        logger.log(
            level, "%s; this replica is out of service, and nothing is acknowledged until it is back", why
        )

    def found(self, who: object) -> None:
        """A store reaches the database again, or has ended."""
        if who in self._missing:
            self._missing.discard(who)
            if not self._missing:
                logger.info("the database is back: this replica serves again")
