"""What an agent's card says of how to be let in: what its server really asks for. Pure.

Spec: A2A 1.0 sections 4.4.1, 4.5, 7.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from bridge.a2a.model.objects import AgentCard, SecurityRequirement
from bridge.access.verifiers import Scheme
from bridge.jsonvalues import JsonObject
from bridge.web import API_KEY_HEADER

_DECLARED: Final[Mapping[Scheme, JsonObject]] = {
    Scheme.BEARER: {"httpAuthSecurityScheme": {"scheme": "Bearer"}},
    Scheme.API_KEY: {"apiKeySecurityScheme": {"location": "header", "name": API_KEY_HEADER}},
}


def with_security(card: AgentCard, schemes: Sequence[Scheme]) -> AgentCard:
    """A card that asks for any one of these, or for nothing when there are none, whatever it said before."""
    declared = {scheme.value: _DECLARED[scheme] for scheme in schemes}
    # Alternatives: one of the requirements is enough (section 4.4.1).
    needed = tuple(SecurityRequirement(schemes={name: {"list": []}}) for name in declared)
    return card.model_copy(
        update={"security_schemes": declared or None, "security_requirements": needed or None}
    )
