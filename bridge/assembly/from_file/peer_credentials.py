"""How the bridge proves itself to a peer: the clients, tokens and logins that the tables of peers describe."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from bridge.a2a.client.card_places import agent_url, base_url
from bridge.a2a.client.http import origin_of
from bridge.assembly.plan import (
    ProcessPlan,
)
from bridge.config.tables.models import (
    AgentTable,
    ToolServerTable,
)
from bridge.config.tables.peers import (
    AgentOAuth2Table,
    CatalogOAuth2Table,
    ExchangeOAuth2Table,
    IdJagTable,
    OAuth2Table,
    PeerTlsTable,
)
from bridge.config.tables.profile import Profile
from bridge.http.tls import PeerTls
from bridge.identity.logins.each_login import EachLogin
from bridge.identity.logins.kept_logins import DAY_SECONDS
from bridge.identity.logins.login_credentials import LoginConfig, LoginToken
from bridge.identity.pages.login_links import STATE_SECONDS
from bridge.identity.tokens.oauth import ClientToken, TokenSource
from bridge.identity.tokens.token_endpoint import ClientMethod, OAuthClient
from bridge.identity.tokens.token_exchange import CallerTokens, Exchange
from bridge.settings import ServerSettings


def peer_tls(table: PeerTlsTable | None) -> PeerTls | None:
    """The certificates for connections with a peer; None if its table has none."""
    return PeerTls(table.certificate, table.key, table.ca) if table else None


def oauth_client(table: ToolServerTable) -> OAuthClient | None:
    """The client that gets tokens for a tool server in the name of the bridge; None if its table has none."""
    oauth2 = table.auth.oauth2 if table.auth else None
    if oauth2 is None or oauth2.grant == "token_exchange":
        return None
    return _own_client(oauth2, table.url or "", allow_private=table.allow_private)


_ClientTable: TypeAlias = AgentOAuth2Table | CatalogOAuth2Table | OAuth2Table


def _client_of(oauth2: _ClientTable, url: str, *, allow_private: bool) -> OAuthClient | None:
    """The client that a table describes, for the resource at a URL unless it names another."""
    secret = oauth2.private_key or oauth2.client_secret
    tls = peer_tls(oauth2.tls)
    proofs = (secret, oauth2.assertion_file, tls and tls.certificate)
    if oauth2.issuer is None or not any(proofs):
        return None
    return OAuthClient(
        oauth2.issuer,
        oauth2.client_id or "",
        secret.value if secret else "",
        _client_method(oauth2),
        oauth2.scopes,
        url if oauth2.resource is None else oauth2.resource,
        allow_private,
        oauth2.assertion_file,
        tls,
    )


def _own_client(oauth2: _ClientTable, url: str, *, allow_private: bool) -> OAuthClient | None:
    """The client that asks for tokens in the name of the bridge: at the authorization server of the peer."""
    client = _client_of(oauth2, url, allow_private=allow_private)
    there = oauth2.id_jag if isinstance(oauth2, ExchangeOAuth2Table) else None
    return client if client is None or there is None else _client_there(there, client)


def _client_method(oauth2: _ClientTable) -> ClientMethod:
    if oauth2.grant == "jwt_bearer":
        return "none"
    if not (oauth2.private_key or oauth2.client_secret or oauth2.assertion_file):
        return "none"  # the certificate proves the client
    if oauth2.assertion_file is not None:
        return "platform_jwt"
    return "private_key_jwt" if oauth2.private_key else oauth2.client_auth


def login_of_server(
    name: str, table: ToolServerTable, server: ServerSettings, place: ProcessPlan
) -> LoginConfig | None:
    """The login at a tool server, the operator's or each caller's; None if its table asks for none."""
    oauth2 = table.auth.oauth2 if table.auth else None
    if oauth2 is None or oauth2.grant != "authorization_code" or table.url is None:
        return None
    login_config = login_config_of(
        name, oauth2, table.url, place, table.tls, allow_private=table.allow_private
    )
    login_config = replace(login_config, uses_proxy=table.proxy != "none")
    return (
        _of_each(login_config, server.login_seconds, server.login_keep_days)
        if table.login == "each"
        else login_config
    )


def _of_each(login_config: LoginConfig, link_seconds: float, keep_days: int) -> LoginConfig:
    keep_seconds = keep_days * DAY_SECONDS
    return replace(
        login_config,
        of_each=True,
        link_seconds=link_seconds,
        late_seconds=STATE_SECONDS,
        keep_seconds=keep_seconds,
    )


def login_config_of(
    name: str,
    oauth2: _ClientTable,
    url: str,
    place: ProcessPlan,
    tls: PeerTlsTable | None,
    *,
    allow_private: bool,
) -> LoginConfig:
    """The login of the operator at a peer."""
    from bridge.assembly.stores import keeper_for  # few files need a login, and it loads SQLite

    return LoginConfig(
        url,
        keeper_for(place),
        name,
        issuer=oauth2.issuer or "",
        client_id=oauth2.client_id or "",
        secret=oauth2.client_secret.value if oauth2.client_secret else "",
        method=oauth2.client_auth,
        client_metadata_url=oauth2.client_metadata_url or "",
        scopes=oauth2.scopes,
        resource=oauth2.resource,
        pkce=oauth2.pkce,
        allow_private=allow_private,
        tls=peer_tls(tls),
        issuer_tls=peer_tls(oauth2.tls),
    )


def login_of_agent(
    name: str, table: AgentTable, process: Profile, place: ProcessPlan
) -> LoginToken | EachLogin | None:
    """The login at a remote agent, the operator's or each caller's; None if its table asks for none."""
    oauth2 = table.auth.oauth2 if table.auth else None
    if oauth2 is None or oauth2.grant != "authorization_code":
        return None
    url, allow_private = base_url(table.card), bool(table.allow_private)
    login_config = login_config_of(name, oauth2, url, place, table.tls, allow_private=allow_private)
    trusted = frozenset(map(origin_of, table.trust))
    login_config = replace(login_config, kind="agents", trusted=trusted, uses_proxy=table.proxy != "none")
    seconds = process.agents.agent_connect_seconds
    if table.login != "each":
        return LoginToken(login_config, seconds)
    usual = process.server
    link_seconds = table.login_seconds or usual.login_seconds
    login_config = _of_each(login_config, link_seconds, table.login_keep_days or usual.login_keep_days)
    return EachLogin(login_config, seconds, process.agents.caller_tokens)


def tokens_of(
    oauth2: AgentOAuth2Table | CatalogOAuth2Table | None, url: str, process: Profile, *, allow_private: bool
) -> TokenSource | None:
    """Where the access tokens for an agent or a catalog come from.

    Raises:
        UsageError: the private key cannot sign.
    """
    if oauth2 is None or oauth2.grant in ("token_exchange", "authorization_code"):
        return None
    client = _own_client(oauth2, agent_url(url), allow_private=allow_private)
    return ClientToken(client, process.agents.agent_connect_seconds) if client else None


def caller_tokens_of(
    oauth2: AgentOAuth2Table | OAuth2Table | None,
    url: str,
    seconds: float,
    most: int,
    *,
    allow_private: bool,
) -> CallerTokens | None:
    """Where the access tokens for a peer in the names of callers come from; None to call it in the bridge's name.

    Raises:
        UsageError: a private key cannot sign.
    """
    if oauth2 is None or (oauth2.grant != "token_exchange" and oauth2.on_behalf_of is None):
        return None
    client = _client_of(oauth2, url, allow_private=allow_private)
    assert client is not None, "the rules of grants ask for it"
    there = _client_there(oauth2.id_jag, client) if oauth2.id_jag else None
    exchange = Exchange(client, oauth2.audience or "", there)
    return CallerTokens(exchange, seconds, most)


def _client_there(table: IdJagTable, here: OAuthClient) -> OAuthClient:
    """The client at the authorization server of a peer. It asks for the same as the client of the issuer."""
    secret = table.private_key or table.client_secret
    assert secret is not None, "the rules of grants ask for it"
    method = "private_key_jwt" if table.private_key else table.client_auth
    there = replace(here, issuer=table.issuer, client_id=table.client_id, tls=None)
    return replace(there, secret=secret.value, method=method)
