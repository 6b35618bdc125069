"""The metadata of a face as a protected resource: which issuers give tokens for it. Pure.

Each face has its own document, since `resource` has to be the exact URL that clients use.

Spec: RFC 9728 sections 2, 3.1 and 3.3; MCP 2026-07-28 and 2025-11-25 basic/authorization.
"""

from __future__ import annotations

from typing import Final

from bridge.identity.callers.verifiers import Access
from bridge.text.jsonvalues import JsonObject

METADATA_PATH: Final = "/.well-known/oauth-protected-resource"
"""The prefix of the resource's path."""


def resource_metadata(resource: str, access: Access) -> JsonObject:
    """The metadata of the face at a URL.

    `scopes_supported` has only the scopes that a client asks for at first (MCP, scope minimization). If a call needs
    another scope, its refusal says so.
    """
    scopes: JsonObject = {"scopes_supported": [*access.first_scopes]} if access.first_scopes else {}
    return {
        "resource": resource,
        "authorization_servers": [issuer.place.issuer for issuer in access.issuers],
        "bearer_methods_supported": ["header"],
        **scopes,
    }
