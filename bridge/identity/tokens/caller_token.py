"""The caller for whom the bridge calls a peer, and the caller's access token. The bridge keeps the token only during
the caller's request."""

from __future__ import annotations

import hashlib
import math
import time
from dataclasses import dataclass, field
from typing import Final

CLIENT_CHARACTERS: Final = 200
"""The most characters in a client's description of itself."""


@dataclass(frozen=True, slots=True)
class CallerToken:
    """A verified access token of a caller."""

    issuer: str
    """The identifier of its issuer."""
    subject: str
    """The principal that the token identifies."""
    value: str = field(repr=False)
    expires_at: float | None = None
    """When it expires, in seconds since the epoch; None if its issuer does not say."""

    @property
    def mark(self) -> bytes:
        """A hash that identifies the token together with its issuer and principal."""
        return hashlib.sha256("\0".join((self.issuer, self.subject, self.value)).encode()).digest()

    def seconds_left(self) -> float:
        """The time until it expires; infinite if its issuer does not say."""
        return math.inf if self.expires_at is None else self.expires_at - time.time()


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller for whom the bridge calls a peer."""

    principal: str
    token: CallerToken | None = None
    """The access token of the caller's request; None if the request had another credential."""
    client: str = field(default="", compare=False)
    """How the caller's client describes itself, not verified."""
