"""How to log in at an agent or a catalog: from its refusal of a request without a token, and from its card.

A challenge that names the metadata of the resource (RFC 9728) leads to the issuer. Otherwise the card does: its schemes
name an issuer, or a page and a token endpoint. An issuer in the configuration takes precedence over both. The results
are untrusted, like a card: each URL is checked when a request is sent to it.

Spec: A2A 1.0 sections 4.5 (schemes), 7.3 and 7.4; RFC 9728 section 5.1; RFC 8414 section 3.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final
from urllib.parse import urlsplit

import httpx2
from pydantic import JsonValue

from bridge.a2a.client.agent_card import FoundCard, fetch_card
from bridge.a2a.client.bindings import binding_of
from bridge.a2a.client.card_places import NoCardError, agent_url, candidate_card_urls
from bridge.a2a.client.credentials import code_flow, scheme_of
from bridge.a2a.client.http import NotReachedError, OutgoingRequest, exchange
from bridge.a2a.client.interfaces import ConnectionPolicy, Trust, interface_guard, permitted_interfaces
from bridge.a2a.model.objects import AgentCard, GetTaskRequest
from bridge.a2a.model.operations import GET_TASK
from bridge.a2a.wire.versions import HEADER as VERSION_HEADER
from bridge.errors import PeerError
from bridge.http.client import GuardedClient, PeerAuth, PeerCredentials, fixed_credentials, guarded_by
from bridge.http.private_addresses import AddressGuard
from bridge.identity.logins.kept_logins import LoginLead
from bridge.identity.logins.login_credentials import LoginConfig
from bridge.text.jsonvalues import DEFAULT_MAX_VALUES, JsonObject

_UNAUTHORIZED: Final = 401

_NOBODYS_TASK: Final = GetTaskRequest(id="login")
"""A harmless request that an agent refuses if it requires a token."""

_WELL_KNOWN: Final = re.compile(r"/\.well-known/(?:oauth-authorization-server|openid-configuration)")

_SCOPE: Final = re.compile(r"[!#-\[\]-~]{1,200}")
"""A scope (RFC 6749 section 3.3)."""


async def login_lead(login_config: LoginConfig, seconds: float) -> LoginLead | None:
    """How the login at an agent or a catalog begins; None if an MCP server is at the URL. `seconds` bounds each answer.

    Raises:
        PeerError: the peer cannot be reached, or gives neither a card nor a challenge.
    """
    if login_config.kind == "tool_servers":
        return None
    reach = ConnectionPolicy(
        login_config.url,
        Trust(login_config.trusted, allow_private=login_config.allow_private),
        uses_proxy=login_config.uses_proxy,
    )
    guard = reach.guard(login_config.url)
    async with GuardedClient(timeout=seconds) as http:
        certified = fixed_credentials(PeerCredentials(tls=login_config.tls))
        auth = PeerAuth(login_config.url, certified)
        if login_config.kind == "catalogs":
            request = OutgoingRequest("GET", login_config.url, auth=auth)
            return LoginLead(login_config.url, await _challenge(http, request, guard))
        try:
            read_card = await fetch_card(http, login_config.url, certified, guard)
        except PeerError as exc:
            if login_config.kind is None and not isinstance(exc, NotReachedError):
                return None
            if not isinstance(exc, NoCardError):
                raise
            # The card itself may require a token. The refusal then says where to get it.
            request = OutgoingRequest("GET", candidate_card_urls(login_config.url)[0], auth=auth)
            challenge = await _challenge(http, request, guard)
            if not challenge and not login_config.issuer:
                raise
            return LoginLead(agent_url(login_config.url), challenge)
        return await _lead_of(read_card, http, login_config, reach, auth)


async def _challenge(http: httpx2.AsyncClient, request: OutgoingRequest, guard: AddressGuard | None) -> str:
    """The challenge in a peer's answer to a request without a token; empty if the peer does not refuse the request."""
    async with exchange(http, replace(request, extensions=guarded_by(guard))) as response:
        if response.status_code != _UNAUTHORIZED:
            return ""
        challenge: str = response.headers.get("www-authenticate", "")
        return challenge


async def _lead_of(
    read_card: FoundCard,
    http: httpx2.AsyncClient,
    login_config: LoginConfig,
    reach: ConnectionPolicy,
    auth: PeerAuth,
) -> LoginLead:
    """Where to log in for an agent, by its card and its challenge. The card can be read without a token."""
    try:
        [(interface, dialect), *_] = permitted_interfaces(read_card, reach.trust, has_credentials=True)
    except PeerError:  # no token may go to this agent, so it is not asked for a challenge
        return _said_by(read_card.card, agent_url(login_config.url), "")
    params = dialect.params_of(GET_TASK, _NOBODYS_TASK)
    request = binding_of(interface, dialect, DEFAULT_MAX_VALUES).request(GET_TASK, params)
    headers = {**request.headers, **({VERSION_HEADER: dialect.version} if dialect.says_version else {})}
    guard = interface_guard(read_card, request.url, reach)
    challenge = await _challenge(http, replace(request, headers=headers, auth=auth), guard)
    return _said_by(read_card.card, interface.url, challenge)


def _said_by(card: AgentCard, url: str, challenge: str) -> LoginLead:
    """Where a card sends a person to log in: the first required scheme by which a person can log in."""
    for name, scopes in _required(card):
        kind, scheme = scheme_of((card.security_schemes or {}).get(name))
        for issuer in filter(None, map(_issuer_in, _metadata_in(kind, scheme))):
            return LoginLead(url, challenge, issuer, scopes=scopes)
        flow = code_flow(scheme)
        pages = flow.get("authorizationUrl"), flow.get("tokenUrl")
        if all(isinstance(page, str) and page for page in pages):
            page, token_url = map(str, pages)
            refresh_url = flow.get("refreshUrl")
            return LoginLead(
                url,
                challenge,
                authorization_url=page,
                token_url=token_url,
                refresh_url=refresh_url if isinstance(refresh_url, str) else "",
                checks_pkce=flow.get("pkceRequired") is True,
                scopes=scopes,
            )
    return LoginLead(url, challenge)


def _required(card: AgentCard) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The schemes that a card requires, each with its scopes; if it requires none, all schemes that it declares."""
    for requirement in card.security_requirements or ():
        for name, scopes in requirement.schemes.items():
            listed = scopes.get("list")
            yield name, tuple(_scopes_in(listed if isinstance(listed, list) else ()))
    if not card.security_requirements:
        yield from ((name, ()) for name in card.security_schemes or ())


def _scopes_in(listed: Iterable[JsonValue]) -> Iterator[str]:
    return (scope for scope in listed if isinstance(scope, str) and _SCOPE.fullmatch(scope))


def _metadata_in(kind: str, scheme: JsonObject) -> Iterator[str]:
    """The URLs of the issuer's metadata, if a person can log in by this scheme."""
    serves = kind == "openIdConnectSecurityScheme" or code_flow(scheme)
    urls = (scheme.get("openIdConnectUrl"), scheme.get("oauth2MetadataUrl")) if serves else ()
    return (url for url in urls if isinstance(url, str))


def _issuer_in(metadata_url: str) -> str:
    """The issuer whose metadata is at a URL; empty if the URL is not a well-known URL of an issuer."""
    try:
        place = urlsplit(metadata_url)
    except ValueError:
        return ""
    if place.query or place.fragment or not _WELL_KNOWN.search(place.path):
        return ""
    return f"{place.scheme}://{place.netloc}{_WELL_KNOWN.sub('', place.path, count=1)}"
