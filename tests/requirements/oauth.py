"""What the bridge has to keep where it takes the tokens of issuers: sentences of the RFCs, in our own words."""

from __future__ import annotations

from typing import Final

from tests.requirements.requirement import Requirement, Revision, Side, Source

_SOURCE: Final = Source(Revision.DESIGN, "security", "docs/security.md")

OAUTH: Final = tuple(
    Requirement(id=name, sources=(_SOURCE,), sentence=sentence, sides=frozenset({Side.BRIDGE}))
    for name, sentence in {
        "oauth-jwt": (
            "A JWT counts by a configured asymmetric algorithm, its exact issuer, the audience of the face, exp and sub"
            " (RFC 8725 sections 3.1 and 3.8 to 3.11, RFC 9068 section 4)"
        ),
        "oauth-scopes": "The scopes of a token say which skills and tools its principal may use",
        "oauth-expiry": "The streams of a client end when its token expires; its tasks go on",
        "oauth-introspection": (
            "A token that only its issuer can read counts if the issuer says that it is active and for the face"
            " (RFC 7662 section 2); the answer counts for at most 60 s, and what cannot be asked is 503"
        ),
        "oauth-keys": (
            "The keys of an issuer are fetched within bounds, once at a time, not for each unknown one, and the last"
            " good set stays"
        ),
        "oauth-private": (
            "Metadata of an issuer leads to its own origin, to a public address, or to one that is allowed (RFC 8414)"
        ),
        "oauth-agents": (
            "An access token of the bridge goes to the agent that it is for, where the card takes one, and is replaced"
            " once when the agent refuses it (RFC 6749 section 4.4, A2A 1.0 section 7.3)"
        ),
        "oauth-callers": (
            "A peer that is called in the names of callers gets a token that the caller's own was exchanged for, and"
            " never that of another caller, the caller's own, or none (RFC 8693, MCP security best practices)"
        ),
        "oauth-each": (
            "A peer that wants a login of each caller is called with the caller's own. Whoever has none gets a link to"
            " the bridge, where nobody logs in for somebody else (MCP elicitation, URL mode)"
        ),
        "oauth-bad-input": (
            "Whatever a token or an issuer says, it is refused with one line in the log that lacks the token"
        ),
    }.items()
)
