"""The credentials for an agent, placed in a request as the card's security schemes require.

This module selects the first alternative of a card that the configured credentials satisfy, and says where each
credential goes in a request. It does not know where credentials come from. When the source of an OAuth token gives a
new token, the new token is placed. The scopes on a card are ignored: only the user decides what a token may access.

Spec: A2A 1.0 sections 4.5 (schemes), 7.3 and 7.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from bridge.a2a.model.objects import AgentCard
from bridge.errors import PeerError, UsageError
from bridge.http.client import CredentialsSource, PeerCredentials, fixed_credentials, registered_scheme
from bridge.http.tls import PeerTls
from bridge.identity.logins.later_login import LaterCredentials, LaterLogin
from bridge.identity.logins.login_credentials import OpenCredentials
from bridge.identity.tokens.oauth import TokenCredentials, TokenSource
from bridge.text.jsonvalues import JsonObject

_FLAT: Final = {
    "apiKey": "apiKeySecurityScheme",
    "http": "httpAuthSecurityScheme",
    "oauth2": "oauth2SecurityScheme",
    "openIdConnect": "openIdConnectSecurityScheme",
    "mutualTLS": "mtlsSecurityScheme",
}
"""The kinds of schemes, by their names in OpenAPI and A2A 0.3."""

_TOKEN_KINDS: Final = ("oauth2SecurityScheme", "openIdConnectSecurityScheme")
"""The kinds of schemes that result in a bearer token."""


class CredentialsMissingError(PeerError):
    """The card requires credentials that are not configured."""


@dataclass(frozen=True)
class Credentials:
    """The configured secrets as values, not as references. `repr()` does not show them."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Headers for every request, whatever the card requires."""
    bearer: str | None = field(default=None, repr=False)
    """The token for HTTP bearer authentication. It also serves OAuth 2 and OpenID Connect if the user obtained it."""
    api_key: str | None = field(default=None, repr=False)
    """The key for any API key scheme of the card."""
    schemes: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Secrets by the name of a scheme on the card. They take precedence over `bearer` and `api_key`."""
    tokens: TokenSource | None = field(default=None, repr=False)
    """The source of access tokens, which are sent in place of `bearer`."""
    tls: PeerTls | None = None
    """The client certificate, and the certificate authorities that the agent's certificate may come from."""
    sends_all: bool = False
    """Whether every credential that has a place on the card is sent, even if the card does not require it."""

    def __bool__(self) -> bool:
        tokens = None if self.waits_for_login else self.tokens
        return bool(self.headers or self.bearer or self.api_key or self.schemes or tokens or self.tls)

    @property
    def waits_for_login(self) -> bool:
        """Whether no token can be sent before a person has logged in."""
        return isinstance(self.tokens, LaterLogin) and not self.tokens.is_there

    def card_headers(self) -> dict[str, str]:
        """The headers for fetching the card, while its schemes are not known."""
        if not self.bearer or _has_header(self, "Authorization"):
            return dict(self.headers)
        return {"Authorization": f"Bearer {self.bearer}", **self.headers}


@dataclass(frozen=True)
class AppliedCredentials:
    """Credentials at their places in a request."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    query: Mapping[str, str] = field(default_factory=dict, repr=False)
    cookies: Mapping[str, str] = field(default_factory=dict, repr=False)

    def request_headers(self) -> dict[str, str]:
        """The headers. All cookies are in one header."""
        cookie_header = next((name for name in self.headers if name.lower() == "cookie"), "Cookie")
        cookies = [f"{name}={value}" for name, value in self.cookies.items()]
        cookies = [*filter(None, [self.headers.get(cookie_header)]), *cookies]
        return {**self.headers, **({cookie_header: "; ".join(cookies)} if cookies else {})}


@dataclass(frozen=True)
class _Placed:
    """One credential and its place in a request. `where` is header, query or cookie."""

    where: str
    name: str
    value: str


def card_credentials(credentials: Credentials) -> CredentialsSource:
    """The credentials for fetching the card of an agent. Before a login, the card is fetched without a token."""
    bare, tokens = _for_card(credentials), credentials.tokens
    if tokens is None:
        return fixed_credentials(bare)
    known = OpenCredentials(tokens, lambda token: _for_card(replace(credentials, bearer=token.value)), bare)
    return LaterCredentials(tokens, known, bare) if isinstance(tokens, LaterLogin) else known


def _for_card(credentials: Credentials) -> PeerCredentials:
    return PeerCredentials(credentials.card_headers(), tls=credentials.tls)


def agent_credentials(card: AgentCard, credentials: Credentials) -> CredentialsSource:
    """The credentials for requests to the agent of a card.

    Raises:
        CredentialsMissingError, UsageError: as for `apply_credentials`; the former also if the card requires a token
            and nobody has logged in yet.
    """
    if credentials.tokens is None:
        return fixed_credentials(_applied(card, credentials))
    if not isinstance(credentials.tokens, LaterLogin) or credentials.tokens.is_there:
        return _token_credentials(card, credentials, credentials.tokens)
    bare = _applied(card, credentials)
    known = _token_credentials(card, credentials, credentials.tokens)
    if not isinstance(known, TokenCredentials):
        return known
    return LaterCredentials(credentials.tokens, known, bare)


def _token_credentials(card: AgentCard, credentials: Credentials, tokens: TokenSource) -> CredentialsSource:
    first, other = (_applied(card, replace(credentials, bearer=token)) for token in "12")
    if first == other:  # the card takes another credential, or none
        return fixed_credentials(first)
    return TokenCredentials(tokens, lambda token: _applied(card, replace(credentials, bearer=token.value)))


def _applied(card: AgentCard, credentials: Credentials) -> PeerCredentials:
    shown_to_agent = apply_credentials(card, credentials)
    return PeerCredentials(shown_to_agent.request_headers(), shown_to_agent.query, credentials.tls)


def apply_credentials(card: AgentCard, credentials: Credentials) -> AppliedCredentials:
    """Place the credentials for the first alternative of the card that they satisfy.

    A card that requires nothing gets the bearer token all the same, because the user configured it. With `sends_all`,
    credentials that the alternative does not need are placed, too.

    Raises:
        CredentialsMissingError: no alternative is satisfied. The message names each missing scheme, and why.
        UsageError: an API key is configured, and the card does not say where it goes.
    """
    alternatives = [tuple(requirement.schemes) for requirement in card.security_requirements or ()]
    lacks: list[str] = []
    chosen: tuple[_Placed, ...] | None = None if alternatives else _unasked(card, credentials)
    # The empty alternative comes last: authenticated access is better than anonymous access.
    for names in sorted(alternatives, key=lambda names: not names):
        outcomes = [_placed(card, name, credentials) for name in names]
        missing = [outcome for outcome in outcomes if isinstance(outcome, str)]
        if not missing:
            chosen = tuple(outcome for outcome in outcomes if isinstance(outcome, _Placed))
            break
        lacks.append(" and ".join(missing))
    if chosen is None:
        missing_words = ", or ".join(lacks)
        raise CredentialsMissingError(
            f"{card.name} asks for credentials that are not configured: {missing_words}"
        )
    if credentials.sends_all and alternatives:
        chosen = (*_unasked(card, credentials), *chosen)
    headers = {**_at("header", chosen), **credentials.headers}
    return AppliedCredentials(headers, _at("query", chosen), _at("cookie", chosen))


def _at(where: str, placed: Iterable[_Placed]) -> dict[str, str]:
    return {credential.name: credential.value for credential in placed if credential.where == where}


def _unasked(card: AgentCard, credentials: Credentials) -> tuple[_Placed, ...]:
    """The credentials to send although the card requires none: the configured ones for its declared schemes, and the
    token."""
    declared = [_placed(card, name, credentials) for name in card.security_schemes or ()]
    placed = [credential for credential in declared if isinstance(credential, _Placed) and credential.value]
    if credentials.api_key and not any(credential.value == credentials.api_key for credential in placed):
        raise UsageError(
            f"{card.name} does not say where its API key goes: give the key as a header of that agent"
        )
    if credentials.bearer and not _has_header(credentials, "Authorization"):
        placed.insert(0, _Placed("header", "Authorization", f"Bearer {credentials.bearer}"))
    return tuple(placed)


def _placed(card: AgentCard, name: str, credentials: Credentials) -> _Placed | str | None:
    """The credential for a scheme; None if a configured header serves the scheme; else a text about what is missing."""
    kind, scheme = scheme_of((card.security_schemes or {}).get(name))
    own = credentials.schemes.get(name)
    if kind == "apiKeySecurityScheme":
        where = str(scheme.get("location") or scheme.get("in") or "header").lower()
        field_name, value = str(scheme.get("name", "")), own or credentials.api_key
        if where == "header" and _has_header(credentials, field_name):
            return None
        if where not in ("header", "query", "cookie") or not field_name:
            is_given = bool(credentials.headers)  # the user knows which header the agent wants
            return None if is_given else f"{name} (an API key whose place the card does not say)"
        return _Placed(where, field_name, value) if value else f"{name} (API key, {where} {field_name})"
    if kind == "httpAuthSecurityScheme" or kind in _TOKEN_KINDS:
        if _has_header(credentials, "Authorization"):
            return None
        named = str(scheme.get("scheme") or "") if kind == "httpAuthSecurityScheme" else ""
        http_scheme = registered_scheme(named or "Bearer")
        value = own or (credentials.bearer if http_scheme.lower() == "bearer" else None)
        if value:
            return _Placed("header", "Authorization", f"{http_scheme} {value}")
        if kind in _TOKEN_KINDS:
            return f"{name} (an access token: oauth2 in a file, or bearer for one that was got elsewhere)"
        return f"{name} (HTTP {http_scheme} authentication)"
    if kind == "mtlsSecurityScheme":
        has_one = credentials.tls is not None and credentials.tls.certificate is not None
        return None if has_one else f"{name} (a client certificate: `tls` of the agent in a file)"
    return None if credentials.headers else f"{name} (the card does not describe it)"


def takes_logins(card: AgentCard) -> bool:
    """Whether a scheme of a card accepts the token of a person who logs in."""
    return any(
        kind == "openIdConnectSecurityScheme" or code_flow(scheme)
        for kind, scheme in map(scheme_of, (card.security_schemes or {}).values())
    )


def code_flow(scheme: JsonObject) -> JsonObject:
    """The flow by which a person logs in; empty if the scheme has no such flow."""
    flows = scheme.get("flows")
    flow = flows.get("authorizationCode") if isinstance(flows, dict) else None
    return flow if isinstance(flow, dict) else {}


def scheme_of(value: JsonObject | None) -> tuple[str, JsonObject]:
    """The kind of a scheme and its fields. The scheme may be wrapped as in 1.0 or flat as in OpenAPI."""
    for kind, inner in (value or {}).items():
        if kind in _FLAT.values() and isinstance(inner, dict):
            return kind, inner
    return _FLAT.get(str((value or {}).get("type")), ""), value or {}


def _has_header(credentials: Credentials, name: str) -> bool:
    return name.lower() in map(str.lower, credentials.headers)
