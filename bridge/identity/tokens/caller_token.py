"""Who a call is made for, and the access token that it has shown. The token lives as long as its request."""

from __future__ import annotations

import hashlib
import math
import time
from dataclasses import dataclass, field
from typing import Final

CLIENT_CHARACTERS: Final = 200
"""The longest text in which a client says what it is."""


@dataclass(frozen=True, slots=True)
class CallerToken:
    """An access token of a caller, which was verified."""

    issuer: str
    """The identifier of its issuer."""
    subject: str
    """The principal that it was verified for."""
    value: str = field(repr=False)
    expires_at: float | None = None
    """Until when it counts, in seconds since the epoch; None if its issuer did not say."""

    @property
    def mark(self) -> bytes:
        """A hash that tells it from all others. Even the same token has another one for another principal."""
        return hashlib.sha256("\0".join((self.issuer, self.subject, self.value)).encode()).digest()

    def seconds_left(self) -> float:
        """How long it still counts; infinite if nobody said."""
        return math.inf if self.expires_at is None else self.expires_at - time.time()


@dataclass(frozen=True, slots=True)
class Caller:
    """For whom a peer is called."""

    principal: str
    token: CallerToken | None = None
    """The access token of an issuer that it has shown with its request; None if it has shown something else."""
    client: str = field(default="", compare=False)
    """What the client through which it calls says of itself. Nobody has checked it."""
