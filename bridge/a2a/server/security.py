"""The security of an agent's card: the credentials that requests show, the issuers of tokens, and their scopes.

Spec: A2A 1.0 sections 4.4.1, 4.4.5 and 4.5 (security schemes of a card, and of a skill). `flows` holds one flow, so an
issuer with two grants has two schemes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from pydantic import JsonValue

from bridge.a2a.model.objects import AgentCard, AgentSkill, SecurityRequirement
from bridge.http.request_checks import API_KEY_HEADER
from bridge.identity.callers.issuers import Issuer, IssuerMetadata
from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import DeclaredAccess, Scheme
from bridge.text.jsonvalues import JsonObject

_DECLARED: Final[Mapping[Scheme, JsonObject]] = {
    Scheme.BEARER: {"httpAuthSecurityScheme": {"scheme": "Bearer"}},
    Scheme.API_KEY: {"apiKeySecurityScheme": {"location": "header", "name": API_KEY_HEADER}},
    Scheme.CONNECTION: {"mtlsSecurityScheme": {}},
}
_TOKEN: Final[JsonObject] = {"httpAuthSecurityScheme": {"scheme": "Bearer", "bearerFormat": "JWT"}}
"""The scheme of an issuer whose metadata is not known, so that the card cannot say where clients get tokens."""

_USUAL_GRANTS: Final = ("authorization_code", "implicit")
"""The grants of an issuer whose metadata names no grants (RFC 8414 section 2)."""


def with_security(card: AgentCard, declared: DeclaredAccess, face: str) -> AgentCard:
    """The card with the declared ways to authenticate, of which a caller needs one; without declared ways, a card
    without security. The card's own security is replaced. `face` is the agent's name, which the globs of scopes refer
    to.

    If callers are distinguished, each has an extended card of its own (section 3.1.11).
    """
    schemes: dict[str, JsonObject] = {scheme.value: _DECLARED[scheme] for scheme in declared.schemes}
    for issuer, metadata in declared.issuers:
        schemes |= _of_issuer(issuer, metadata)
    needed = _alternatives(declared, lambda issuer: issuer.first_scopes)
    skills = tuple(_with_requirements(skill, declared, face, needed) for skill in card.skills)
    return card.changed(
        capabilities=card.capabilities.changed(extended_agent_card=declared.needs_credential),
        security_schemes=schemes or None,
        security_requirements=needed or None,
        skills=skills,
    )


def _of_issuer(issuer: Issuer, metadata: IssuerMetadata | None) -> dict[str, JsonObject]:
    """The schemes of an issuer, by name. The names differ from the names of other kinds of schemes."""
    schemes = dict(_schemes_in(issuer, metadata)) if metadata is not None else {}
    return schemes or {f"{issuer.name}-token": _TOKEN}


def _schemes_in(issuer: Issuer, metadata: IssuerMetadata) -> Iterator[tuple[str, JsonObject]]:
    authorize, token = metadata.text("authorization_endpoint"), metadata.text("token_endpoint")
    grants = metadata.texts("grant_types_supported", _USUAL_GRANTS)
    scopes: dict[str, JsonValue] = {scope: f"Skills that take {scope}" for scope, _ in issuer.scopes}
    if authorize and token and "authorization_code" in grants:
        flow: JsonObject = {"authorizationUrl": authorize, "tokenUrl": token, "scopes": scopes}
        yield f"{issuer.name}-oauth2", _oauth2({"authorizationCode": flow}, metadata)
    if token and "client_credentials" in grants:
        flow = {"tokenUrl": token, "scopes": scopes}
        yield f"{issuer.name}-client", _oauth2({"clientCredentials": flow}, metadata)
    if metadata.openid_url is not None:
        scheme: JsonObject = {"openIdConnectUrl": metadata.openid_url}
        yield f"{issuer.name}-openid", {"openIdConnectSecurityScheme": scheme}


def _oauth2(flows: JsonObject, metadata: IssuerMetadata) -> JsonObject:
    return {"oauth2SecurityScheme": {"flows": flows, "oauth2MetadataUrl": metadata.url}}


def _alternatives(
    declared: DeclaredAccess, scopes_of: Callable[[Issuer], Sequence[str] | None]
) -> tuple[SecurityRequirement, ...]:
    """The requirements, of which a caller needs one (section 4.4.1). `scopes_of` returns None if the issuer's tokens
    give no access."""
    secrets = [(scheme.value, ()) for scheme in declared.schemes]
    tokens = [
        (name, scopes)
        for issuer, metadata in declared.issuers
        if (scopes := scopes_of(issuer)) is not None
        for name in _of_issuer(issuer, metadata)
    ]
    return tuple(
        SecurityRequirement(schemes={name: {"list": list(scopes)}}) for name, scopes in (*secrets, *tokens)
    )


def _with_requirements(
    skill: AgentSkill, declared: DeclaredAccess, face: str, of_card: tuple[SecurityRequirement, ...]
) -> AgentSkill:
    """The skill, with its own requirements if its scopes differ from those of the card."""

    def scopes_of(issuer: Issuer) -> Sequence[str] | None:
        if not issuer.scopes:
            return ()
        scope = Principal("", scopes=issuer.scopes).in_face(face).scope_for(skill.id)
        return None if scope is None else (scope,)

    needed = _alternatives(declared, scopes_of)
    return skill if needed in (of_card, ()) else skill.changed(security_requirements=needed)
