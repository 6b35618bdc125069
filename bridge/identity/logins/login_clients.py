"""The clients that the bridge has registered at issuers of late, so that a login that begins anew registers no other.

A person tries again, and so does whoever would fill an issuer with clients. What was registered is remembered for a
while in memory, for one login alone, since an issuer may forget a client that nobody has used.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from mcp.shared.auth import OAuthClientInformationFull

from bridge.identity.logins.kept_logins import LoginKey

_KEPT_SECONDS: Final = 600.0
"""How long a client is used again: as long as a person may take at the page of an issuer."""

_CLIENTS_MOST: Final = 256
"""Clients that are remembered. The oldest is forgotten first."""


@dataclass(frozen=True, slots=True)
class ClientUse:
    """What a client is registered for. Issuers may refuse it for anything else."""

    key: LoginKey
    redirect_uri: str
    scopes: tuple[str, ...]
    """What the login so far has, and what it has missed."""


class RegisteredClients:
    """Clients by their use."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._clients: dict[ClientUse, tuple[OAuthClientInformationFull, float]] = {}

    def find(self, use: ClientUse) -> OAuthClientInformationFull | None:
        """The client that was registered for this use."""
        found = self._clients.get(use)
        return found[0] if found is not None and self._now() < found[1] else None

    def keep(self, use: ClientUse, client: OAuthClientInformationFull) -> None:
        """Remember a client."""
        self._clients.pop(use, None)
        self._clients[use] = client, self._now() + _KEPT_SECONDS
        if len(self._clients) > _CLIENTS_MOST:
            del self._clients[next(iter(self._clients))]

    def forget(self, key: LoginKey) -> None:
        """Use no client of a login again: its issuer may not know it any more."""
        self._clients = {use: kept for use, kept in self._clients.items() if use.key != key}
