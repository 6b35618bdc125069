"""Makes the callers of a plan from the tables of a configuration: issuers of tokens, and credentials."""

from __future__ import annotations

from collections.abc import Sequence

from bridge.config.tables.callers import (
    GroupTable,
    IssuerLoginTable,
    IssuerTable,
    PrincipalTable,
)
from bridge.config.text.secrets import Secret, TokenHash
from bridge.identity.callers.issuers import IntrospectionClient, Issuer, IssuerPlace, LoginClient
from bridge.identity.callers.principals import OperatorRole, Principal
from bridge.identity.callers.verifiers import FORWARDED, Credential, Scheme


def issuer_of(name: str, table: IssuerTable) -> Issuer:
    """The issuer of a table `[issuers.NAME]`."""
    introspection = table.introspection
    client = (
        IntrospectionClient(introspection.client_id, introspection.client_secret.value)
        if introspection
        else None
    )
    url = introspection.url if introspection else None
    return Issuer(
        name,
        IssuerPlace(table.issuer, table.jwks_url, url, table.allow_private),
        tuple(table.algorithms),
        table.principal,
        tuple((scope, tuple(globs)) for scope, globs in table.scopes.items()),
        client,
        {face: frozenset(audience) for face, audience in table.audience.items()},
        {OperatorRole(role): frozenset(scopes) for role, scopes in table.operator},
        _login_client(table.login),
    )


def _login_client(table: IssuerLoginTable | None) -> LoginClient | None:
    if table is None:
        return None
    secret = table.client_secret.value if table.client_secret else ""
    scopes = None if table.scopes is None else tuple(table.scopes)
    return LoginClient(table.client_id, secret, table.client_auth, scopes, table.resource)


def credentials_of(name: str, table: PrincipalTable, group: GroupTable) -> list[Credential]:
    """The credentials of a table `[principals.NAME]`, each with the rights of the principal."""
    principal = _principal(name, table, group)
    secrets = [
        (table.bearer, Scheme.BEARER),
        *((token, Scheme.BEARER) for token in table.tokens),
        (table.api_key, Scheme.API_KEY),
    ]
    identities = [*table.certificate, *([f"{FORWARDED}{table.forwarded}"] if table.forwarded else [])]
    return [
        *(_credential(principal, secret, scheme) for secret, scheme in secrets if secret is not None),
        *(Credential(principal, identity, Scheme.CONNECTION) for identity in identities),
    ]


def _principal(name: str, table: PrincipalTable, group: GroupTable) -> Principal:
    """A principal, with what its own table leaves out as its group has it."""
    role = table.operator or group.operator
    skills = tuple(group.skills if table.skills is None else table.skills)
    # A principal with `skills` gets no resources and prompts unless a rule says so, even if the skills are all.
    has_skills = table.skills is not None or "skills" in group.model_fields_set
    others = () if has_skills and skills == ("*",) else None
    return Principal(
        name,
        skills=skills,
        resources=_first(table.resources, group.resources, others),
        prompts=_first(table.prompts, group.prompts, others),
        operator=OperatorRole(role) if role else None,
        open_tasks=table.open_tasks or group.open_tasks,
        group=(table.group or "") if table.skills is None else "",
    )


def _first(*rules: Sequence[str] | None) -> tuple[str, ...] | None:
    return next((tuple(globs) for globs in rules if globs is not None), None)


def _credential(principal: Principal, secret: Secret | TokenHash, scheme: Scheme) -> Credential:
    if isinstance(secret, TokenHash):
        return Credential(principal, "", scheme, sha256=secret.sha256)
    return Credential(principal, secret.value, scheme, secret.reference)
