"""The challenges for tokens in refused requests (`WWW-Authenticate`). Pure.

Spec: RFC 6750 section 3; RFC 9728 section 5.1; MCP 2026-07-28 and 2025-11-25 basic/authorization.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

REALM: Final = "mcp-a2a"


def token_challenge(
    *, error: str | None = None, scopes: Iterable[str] = (), metadata_url: str | None = None
) -> str:
    """The challenge for a bearer token. The token needs `scopes`. The document at `metadata_url` names the issuers that
    give such tokens. A request without a token gets no error (RFC 6750 section 3.1)."""
    parameters = {
        "realm": REALM,
        "error": error,
        "scope": " ".join(scopes),
        "resource_metadata": metadata_url,
    }
    return "Bearer " + ", ".join(f'{name}="{value}"' for name, value in parameters.items() if value)


def insufficient_scope(
    scope: str, metadata_url: str | None = None, held: Iterable[str] = ()
) -> dict[str, str]:
    """The header of a 403 for an operation that needs this scope. `held` are scopes that the client already has and
    should ask for again; they come first."""
    scopes = [*held, scope]
    challenge = token_challenge(error="insufficient_scope", scopes=scopes, metadata_url=metadata_url)
    return {"WWW-Authenticate": challenge}
