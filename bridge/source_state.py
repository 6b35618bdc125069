"""The state of a tool server or remote agent behind an endpoint: up or down, since when, and why."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Literal

StateWord = Literal["up", "down", "login needed", "unauthorized"]


@dataclass(frozen=True, slots=True)
class SourceState:
    """The state of a source: a tool server or a remote agent."""

    key: str
    down: str | None
    """Why the source cannot be called; None if it can."""
    since_ms: int
    """When this state began, or when the source became known, in milliseconds since the epoch."""
    needs_login: bool = False
    """Whether it is down until a person logs in."""
    was_up: bool = False
    """Whether it was up at any time since it became known."""
    is_unauthorized: bool = False
    """Whether it is down because it does not accept the bridge's credentials."""

    @property
    def word(self) -> StateWord:
        """The name of the state."""
        if self.down is None:
            return "up"
        return "unauthorized" if self.is_unauthorized else "login needed" if self.needs_login else "down"

    def then(
        self, down: str | None, now_ms: int, *, needs_login: bool = False, is_unauthorized: bool = False
    ) -> SourceState:
        """The state at a later time. Another reason to be down does not restart `since_ms`."""
        is_same = (down is None) == (self.down is None)
        since_ms = self.since_ms if is_same else now_ms
        was_up = self.was_up or self.down is None or down is None
        return replace(
            self,
            down=down,
            since_ms=since_ms,
            needs_login=needs_login,
            was_up=was_up,
            is_unauthorized=is_unauthorized,
        )


class HeardRefusal:
    """Whether a peer accepts the bridge's credentials, according to its last answer. Each change is logged."""

    def __init__(self, logger: logging.Logger) -> None:
        self.words = ""
        """Why the peer refuses the credentials; empty if it accepts them."""
        self._logger = logger
        self._was_told = False

    def note(self, peer: str, words: str) -> bool:
        """Note an answer: why the peer refuses the credentials, or "". Returns whether acceptance has changed."""
        is_news, self.words = bool(words) != bool(self.words), words
        if is_news and words:
            self.log(peer, words)
        elif is_news:
            self._logger.info("%s accepts the credentials of the bridge again", peer)
        return is_news

    def log(self, peer: str, words: str) -> None:
        """Log a refusal. Only the first is a warning, because a single tool of the peer may refuse repeatedly."""
        level = logging.INFO if self._was_told else logging.WARNING
        self._logger.log(level, "%s does not accept the credentials of the bridge: %s", peer, words)
        self._was_told = True
