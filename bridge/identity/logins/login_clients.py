"""Remembers the clients that the bridge registered recently, so that a repeated login registers no further client.

A person may try again, and an attacker may try to fill an issuer with clients. A client is remembered in memory for a
while, for the same login only, since an issuer may forget an unused client.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from mcp.shared.auth import OAuthClientInformationFull

from bridge.bounded_map import BoundedMap
from bridge.identity.logins.kept_logins import LoginKey

_KEPT_SECONDS: Final = 600.0
"""How long a client is reused: as long as a person may take at the page of an issuer."""

_CLIENTS_MOST: Final = 256
"""The most clients to remember. The oldest is forgotten first."""


@dataclass(frozen=True, slots=True)
class ClientUse:
    """The use that a client is registered for. Issuers may refuse it for another use."""

    key: LoginKey
    redirect_uri: str
    scopes: tuple[str, ...]
    """The scopes of the current login, and the scopes that it lacked."""


class RegisteredClients:
    """The remembered clients by their use."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._clients = BoundedMap[ClientUse, tuple[OAuthClientInformationFull, float]](_CLIENTS_MOST)

    def find(self, use: ClientUse) -> OAuthClientInformationFull | None:
        """The client that was registered for this use; None if none is remembered."""
        entry = self._clients.get(use)
        return entry[0] if entry is not None and self._now() < entry[1] else None

    def keep(self, use: ClientUse, client: OAuthClientInformationFull) -> None:
        """Remember a client."""
        self._clients[use] = client, self._now() + _KEPT_SECONDS

    def forget(self, key: LoginKey) -> None:
        """Forget the clients of a login: its issuer may have forgotten them."""
        for use in [use for use in self._clients if use.key == key]:
            del self._clients[use]
