"""What can become of a request and its response on their way, for the proxy of these tests."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

End = Enum("End", ["RESET", "CLOSE", "NEVER"])
"""How a connection ends after a fault; NEVER leaves it open, and nothing comes any more."""


@dataclass(frozen=True)
class Fault:
    """What becomes of a request and its response."""

    end: End = End.RESET
    body_bytes: int | None = None
    """How much of the response's body is passed after its head; None: not even the head."""
    is_delivered: bool = True
    """Whether the server gets the request."""
    piece_bytes: int = 0
    """Unless 0, the response is not lost, but passed in pieces of this size."""
    pause_seconds: float = 0
    """Between two pieces."""


RESET: Final = Fault()
RESET_AFTER_HEAD: Final = Fault(body_bytes=0)
SILENT: Final = Fault(End.NEVER)
SWALLOWED: Final = Fault(is_delivered=False)


def cut_after(body_bytes: int) -> Fault:
    """The response ends in its midst, as if the server had ended it so."""
    return Fault(End.CLOSE, body_bytes)


def slow(piece_bytes: int, pause_seconds: float) -> Fault:
    """The response comes whole, in small pieces."""
    return Fault(piece_bytes=piece_bytes, pause_seconds=pause_seconds)
