"""The tables of the peers that the bridge connects to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, PrivateAttr

from bridge.a2a.wire.choices import BindingChoice, DialectChoice
from bridge.config.tables.values import (
    CommandWords,
    ExtensionUris,
    FailPolicy,
    FilePath,
    Folder,
    Folders,
    HeaderName,
    HeaderSecret,
    HeaderSetting,
    HttpUrl,
    KeySetUrl,
    Origins,
    SecretIssuerUrl,
    SecretValue,
    SessionOf,
    Setting,
    Table,
    Text,
    Texts,
    Token,
    Variable,
)
from bridge.config.text.masking import shown_words
from bridge.config.text.secrets import plain
from bridge.pinned.lock import PinMode
from bridge.settings import NotNegative


class HeaderKey(Table):
    """`api_key` of a server or catalog: a key, and the header that it goes into."""

    header: HeaderName = Field(description="the header's name")
    value: HeaderSecret = Field(description="the key")


class PeerTlsTable(Table):
    """`tls` of a peer: the client certificate for it, and the authorities of its own certificate, in PEM. A changed
    file is read again for the next connection."""

    certificate: FilePath | None = Field(
        default=None,
        description="the client certificate for the peer, followed by the certificates up to its authority; it is "
        "sent to no other origin",
    )
    key: FilePath | None = Field(default=None, description="its private key, without a passphrase")
    ca: FilePath | None = Field(
        default=None,
        description="the authorities of the peer's certificate, instead of the public authorities",
    )


class ClientOAuth2Table(Table):
    """`auth.oauth2` of a peer: the bridge as a client of an authorization server, and the token to request."""

    issuer: SecretIssuerUrl | None = Field(
        default=None,
        description="the authorization server, exactly as its metadata names it; no other gets the secret",
    )
    client_id: Text | None = Field(default=None, description="the name of the bridge there")
    client_secret: SecretValue | None = Field(default=None, description="the secret of the bridge there")
    private_key: SecretValue | None = Field(
        default=None,
        description="a private key of the bridge as PEM (RSA, P-256, P-384, Ed25519), which signs instead of a secret",
    )
    assertion_file: FilePath | None = Field(
        default=None,
        description="a file with a JWT of the platform on which the bridge runs (workload identity), read for each "
        "token: it replaces the secret, or is the assertion of the grant (`jwt_bearer`)",
    )
    client_auth: Literal["basic", "post"] = Field(
        default="basic", description="how the secret is sent: in the header `Authorization`, or in the body"
    )
    scopes: Texts = Field(default=(), description="the scopes to ask for")
    resource: str | None = Field(
        default=None,
        description='what the token is for, if not the URL of the peer; `""` asks for no resource (RFC 8707)',
    )
    tls: PeerTlsTable | None = Field(
        default=None,
        description="the client certificate for the authorization server, which may replace the secret (RFC 8705), "
        "and the authorities of the server's certificate; the server does not get the peer's client "
        "certificate",
    )


class LoginOAuth2Table(ClientOAuth2Table):
    """`auth.oauth2` of a peer at which a person may log in."""

    issuer: SecretIssuerUrl | None = Field(
        default=None,
        description="the authorization server, exactly as its metadata names it; no other gets the secret. For a "
        "login it is optional: the peer names an issuer then, and the login is bound to it",
    )
    client_id: Text | None = Field(
        default=None,
        description="the name of the bridge there; for a login it is optional: without it, the login registers the "
        "bridge",
    )
    client_metadata_url: SecretIssuerUrl | None = Field(
        default=None,
        description="for a login: the URL of a document that describes the bridge as a client (CIMD), used if the "
        "authorization server supports such documents",
    )
    pkce: Literal["required", "assume"] = Field(
        default="required",
        description="for a login: `assume` logs in even if the metadata does not announce PKCE with S256",
    )


class CatalogOAuth2Table(LoginOAuth2Table):
    """`auth.oauth2` of a catalog."""

    grant: Literal["client_credentials", "jwt_bearer", "authorization_code"] = Field(
        description="how the bridge gets the token: as itself, with a JWT of its platform (`jwt_bearer`), or by a "
        "login of the operator (`authorization_code`, `mcp-a2a login NAME`)"
    )


class IdJagTable(Table):
    """`id_jag`: the authorization server of a peer, which accepts identity assertions of the callers' issuer."""

    issuer: SecretIssuerUrl = Field(description="its identifier, exactly as its metadata names it")
    client_id: Text = Field(description="the name of the bridge there")
    client_secret: SecretValue | None = Field(default=None, description="the secret of the bridge there")
    private_key: SecretValue | None = Field(
        default=None, description="a private key of the bridge as PEM, which signs instead of a secret"
    )
    client_auth: Literal["basic", "post"] = Field(
        default="basic", description="how the secret is sent: in the header `Authorization`, or in the body"
    )


class ExchangeOAuth2Table(LoginOAuth2Table):
    """`auth.oauth2` of a peer that may be called on behalf of callers."""

    on_behalf_of: Literal["caller"] | None = Field(
        default=None,
        description="`caller` exchanges the caller's own token for each call (RFC 8693); the grant `token_exchange` "
        "implies it",
    )
    audience: Text | None = Field(
        default=None, description="the audience to request in an exchange, beside the resource"
    )
    id_jag: IdJagTable | None = Field(
        default=None,
        description="the authorization server of the peer, if it is not the issuer of the callers (ID-JAG)",
    )


class AgentOAuth2Table(ExchangeOAuth2Table):
    """`auth.oauth2` of an agent."""

    grant: Literal["client_credentials", "jwt_bearer", "authorization_code", "token_exchange"] = Field(
        description="how the bridge gets the token for requests without a caller, such as for the card: as itself "
        "(`client_credentials`), with a JWT of its platform (`jwt_bearer`), by a login of the operator "
        "(`authorization_code`, `mcp-a2a login NAME`), or not at all (`token_exchange`)"
    )


class OAuth2Table(ExchangeOAuth2Table):
    """`auth.oauth2` of a tool server."""

    grant: Literal["client_credentials", "jwt_bearer", "authorization_code", "token_exchange"] = Field(
        description="how the bridge gets the token: as itself (`client_credentials`), with a JWT of its platform "
        "(`jwt_bearer`), by a login of the operator (`authorization_code`, `mcp-a2a login NAME`), or only"
        " for each caller's token, so that the tools are listed without a token (`token_exchange`)"
    )


class EndpointAuth(Table):
    """`auth` of a server or catalog: the credentials for it."""

    bearer: Token | None = Field(default=None, description="the token, sent as `Authorization: Bearer`")
    api_key: HeaderKey | None = Field(
        default=None, description='a key in a header: `{ header = "X-API-Key", value = SECRET }`'
    )

    def headers(self) -> dict[str, str]:
        """The resulting header, with the value of the secret."""
        if self.api_key is not None:
            return {self.api_key.header: self.api_key.value.value}
        return {"Authorization": f"Bearer {self.bearer.value}"} if self.bearer else {}


class ToolServerAuth(EndpointAuth):
    """`auth` of a tool server."""

    oauth2: OAuth2Table | None = Field(
        default=None, description="an access token of OAuth 2.0, which the bridge gets and renews itself"
    )


class CatalogAuth(EndpointAuth):
    """`auth` of a catalog."""

    oauth2: CatalogOAuth2Table | None = Field(
        default=None,
        description="an access token of OAuth 2.0 for the catalog and the agents at its own origin, which the bridge "
        "gets and renews itself",
    )


class AgentAuth(Table):
    """`auth` of an agent: the credentials for the schemes on its card."""

    bearer: Token | None = Field(default=None, description="the token for the bearer schemes on its card")
    api_key: HeaderSecret | None = Field(default=None, description="the API key, sent as its card asks")
    oauth2: AgentOAuth2Table | None = Field(
        default=None,
        description="an access token of OAuth 2.0 for the bearer schemes on its card, which the bridge gets and renews "
        "itself",
    )


class ToolServerTable(Table):
    """`[tool_servers.NAME]`: an MCP server. The profile of `[bridge]` has the defaults."""

    command: CommandWords | None = Field(
        default=None, description="the command that starts it, with its arguments; it speaks MCP over stdio"
    )
    url: HttpUrl | None = Field(default=None, description="its URL, for Streamable HTTP or HTTP+SSE")
    env: dict[Text, Setting] = Field(
        default_factory=dict,
        repr=False,
        description="variables of the command, in addition to HOME, PATH and the like",
    )
    cwd: Folder = Field(default=Path(), description="the folder in which the command runs")
    roots: Folders = Field(
        default=(),
        description="folders that the server is told when it asks for roots, and that no caller can change; without "
        "any, it may not ask",
    )
    headers: dict[HeaderName, HeaderSetting] = Field(
        default_factory=dict, repr=False, description="HTTP headers for the URL"
    )
    auth: ToolServerAuth | None = Field(
        default=None, description="the credentials that the bridge sends to it"
    )
    login: Literal["operator", "each"] | None = Field(
        default=None,
        description="whose login (`authorization_code`) calls it: the `operator`'s login, which is the default, or a "
        "login of `each` principal, which gets a link to log in. Then the operator's login only lists the"
        " tools",
    )
    login_seconds: PositiveFloat | None = None
    login_keep_days: PositiveInt | None = None
    tls: PeerTlsTable | None = Field(
        default=None,
        description="the client certificate for its URL, and the authorities of the server's certificate",
    )
    transport: Literal["auto", "sse"] | None = Field(
        default=None,
        description="the transport for its URL: `sse` is HTTP+SSE only; `auto`, the default, tries Streamable HTTP "
        "first",
    )
    proxy: Literal["environment", "none"] | None = Field(
        default=None,
        description="the proxy for its URL, also during a login: the proxy that the `environment` names for it "
        "(`HTTPS_PROXY`, `NO_PROXY`), which is the default, or `none`",
    )
    era: Literal["auto", "legacy", "modern"] = Field(
        default="auto",
        description="its generation of MCP: `legacy` is 2025-11-25 and older, `modern` 2026-07-28",
    )
    fail: FailPolicy | None = None
    session: SessionOf | None = None
    sessions: PositiveInt | None = None
    sessions_most: PositiveInt | None = None
    session_idle_seconds: PositiveFloat | None = None
    contended_question_seconds: PositiveFloat | None = None
    attribution_seconds: NotNegative | None = None
    connect_seconds: PositiveFloat | None = None
    start_seconds: PositiveFloat | None = None
    longest_pause_seconds: PositiveFloat | None = None
    retire_seconds: NotNegative | None = None
    settle_seconds: NotNegative | None = None
    relist_seconds: PositiveFloat | None = None
    child_flush_seconds: NotNegative | None = None
    child_exit_seconds: PositiveFloat | None = None
    child_quiet_seconds: PositiveFloat | None = None
    child_output_seconds: NotNegative | None = None
    result_limit_bytes: PositiveInt | None = None
    result_json_values: PositiveInt | None = None
    tools_most: PositiveInt | None = None
    tools_limit_bytes: PositiveInt | None = None
    schema_values: PositiveInt | None = None
    unanswered_most: PositiveInt | None = None
    allow_private: bool = Field(
        default=False,
        description="whether the name in its URL may lead to a private address after it was public",
    )
    known: bool = Field(
        default=True,
        description="whether the ready mapping of a well-known server counts, if the command names its package",
    )
    pinned: PinMode | None = Field(
        default=None,
        description="what happens to tools, prompts and templates that are not as in the lock (`mcp-a2a pin`): `warn` "
        "says so, `refuse` does not offer them, `off` compares nothing; without it, `pinned` of `[bridge]` counts",
    )
    each_replica: bool | None = Field(
        default=None,
        description="whether each of several processes on one socket (`serve --fd`) may start the command; if not, "
        "these processes refuse it",
    )
    concurrency: PositiveInt | None = None
    call_timeout_seconds: PositiveFloat | None = None

    _shown: Mapping[str, Any] = PrivateAttr(default_factory=dict)

    def shown_as(self, texts: Mapping[str, Any]) -> Self:
        """A copy with texts to show in place of some values, by key."""
        table = self.model_copy()
        table._shown = dict(texts)
        return table

    def shown(self, key: str) -> Any:
        """The text to show in place of a value; None to show the value itself."""
        if key in self._shown or key != "command" or not self.command:
            return self._shown.get(key)
        words = shown_words(self.command)
        return words if words != list(self.command) else None

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Show no values from the environment."""
        for name, value in super().__repr_args__():
            yield name, self.shown(name or "") or value

    def variables(self) -> dict[str, str]:
        """The command's variables, with the values of secrets."""
        return plain(self.env)

    def request_headers(self) -> dict[str, str]:
        """The URL's headers, with the values of secrets."""
        return {**plain(self.headers), **(self.auth.headers() if self.auth else {})}


class SignedByTable(Table):
    """`signed_by` of an agent: the keys, one of which must have signed its card. The URL of keys on the card itself is
    ignored."""

    jwks: KeySetUrl | None = Field(default=None, description="the URL of the key set (JWKS)")
    file: FilePath | None = Field(
        default=None, description="a file with the key set, which is read again for each card"
    )
    form: Literal["strict", "sdk"] = Field(
        default="strict",
        description="what the signature must cover: `strict` is everything on a card of A2A; `sdk` also accepts the "
        "signatures of the SDKs, which ignore empty values, such as a requirement without scopes",
    )


class AgentTable(Table):
    """`[agents.NAME]`: a remote A2A agent."""

    card: HttpUrl = Field(description="its base URL, or the URL of its card")
    headers: dict[HeaderName, HeaderSetting] = Field(
        default_factory=dict, repr=False, description="HTTP headers for requests to it"
    )
    auth: AgentAuth | None = Field(default=None, description="the credentials that the bridge sends to it")
    login: Literal["operator", "each"] | None = Field(
        default=None,
        description="whose login (`authorization_code`) calls it: the `operator`'s login, which is the default, or a "
        "login of `each` principal, whose host gets a link to log in. Then its card must be public",
    )
    login_seconds: PositiveFloat | None = None
    login_keep_days: PositiveInt | None = None
    tls: PeerTlsTable | None = Field(
        default=None,
        description="the client certificate for it, also for the origins of `trust`, and the authorities of its own "
        "certificate",
    )
    signed_by: SignedByTable | None = Field(
        default=None,
        description='the keys, one of which must have signed its card: `{ jwks = "URL" }` or `{ file = "PATH" }`; any'
        " other card is refused, and only the signed part of the card is used",
    )
    pinned: PinMode | None = Field(
        default=None,
        description="what happens to skills that are not as in the lock (`mcp-a2a pin`): `warn` says so, `refuse` does "
        "not offer them, `off` compares nothing; without it, `pinned` of `[bridge]` counts",
    )
    dialect: DialectChoice = Field(
        default="auto",
        description="the version of A2A that it speaks, if its card names a wrong version or none",
    )
    bindings: Annotated[tuple[BindingChoice, ...], Field(strict=False)] = Field(
        default=(),
        description='the bindings over which it may be called, the preferred one first, such as `["GRPC", '
        '"JSONRPC"]`; `GRPC` needs `mcp-a2a[grpc]`. Without it, gRPC is used only if its card offers nothing over '
        "HTTP",
    )
    trust: Origins = Field(
        default=(),
        description="origins that may get its credentials, too, if its card names them as the place to call",
    )
    allow_private: bool | None = Field(
        default=None,
        description="whether the card of a public agent, or its name later, may lead to a private address",
    )
    proxy: Literal["environment", "none"] | None = Field(
        default=None,
        description="the proxy for its URLs, also during a login: the proxy that the `environment` names "
        "(`HTTPS_PROXY`, `NO_PROXY`), which is the default, or `none`",
    )
    push: bool = Field(
        default=True,
        description="whether the bridge requests push notifications for long calls, if its card declares them and "
        "`[bridge]` has a `public_url`",
    )

    extensions: ExtensionUris = Field(
        default=(),
        description="URIs of extensions of A2A to activate, if its card declares them; their metadata passes to and "
        "from it in `_meta`",
    )

    def request_headers(self) -> dict[str, str]:
        """Its headers without `auth`, with the values of secrets."""
        return plain(self.headers)


class CatalogTable(Table):
    """`[catalogs.NAME]`: more agents, from the catalog of another bridge."""

    url: HttpUrl = Field(description="the URL of the catalog")
    auth: CatalogAuth | None = Field(default=None, description="the credentials that the bridge sends to it")
    tls: PeerTlsTable | None = Field(
        default=None,
        description="the client certificate for the catalog and the agents at its origin, and the authorities of "
        "their certificates",
    )
    include: Texts = Field(default=("*",), description="globs of the names of agents to take")
    exclude: Texts = Field(default=(), description="globs of the names of agents to leave out")
    allow_private: bool | None = Field(
        default=None,
        description="whether a public catalog, or its name later, may lead to a private address",
    )
    proxy: Literal["environment", "none"] | None = Field(
        default=None,
        description="the proxy for the catalog and its agents, also during a login: the proxy that the `environment` "
        "names (`HTTPS_PROXY`, `NO_PROXY`), which is the default, or `none`",
    )

    def request_headers(self) -> dict[str, str]:
        """The catalog's headers, with the values of secrets."""
        return self.auth.headers() if self.auth else {}


class KeyPlace(Table):
    """An entry in `keys`: the place of a key for sealing handles."""

    file: FilePath | None = Field(default=None, description="a file with the key, made on the first start")
    secret: Variable | None = Field(
        default=None, alias="env", description="an environment variable with the key"
    )
