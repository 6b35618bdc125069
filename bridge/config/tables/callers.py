"""The tables about callers: `[principals]`, `[groups]` and `[issuers]`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, PositiveInt

from bridge.config.tables.values import (
    HttpUrl,
    Identities,
    IssuerUrl,
    Name,
    OwnToken,
    OwnTokens,
    ScopeName,
    ScopeNames,
    SecretValue,
    Table,
    Text,
    Texts,
)
from bridge.config.text.secrets import refused


class PrincipalTable(Table):
    """`[principals.NAME]`: someone who may call. Without principals everyone who reaches the bridge may call."""

    group: Text | None = Field(
        default=None,
        description="its group, which supplies `skills`, `operator` and `open_tasks` where this table omits them",
    )
    bearer: OwnToken | None = Field(
        default=None,
        description='the token of the principal: a reference, or its hash as `{ sha256 = "HEX" }`, which '
        "`mcp-a2a people add` writes",
    )
    tokens: OwnTokens = Field(
        default=(),
        description="instead of `bearer`: one token, or two during a rotation; each is accepted",
    )
    api_key: OwnToken | None = Field(
        default=None, description="the API key of the principal, as a reference or a hash"
    )
    certificate: Identities = Field(
        default=(),
        description="the client certificates of the principal: `subject:CN=...`, `dns:NAME`, `uri:URI` or "
        "`email:ADDRESS`, or a list of these; it needs `client_ca` in `tls` of [bridge]",
    )
    forwarded: Text | None = Field(
        default=None,
        description="the value with which a trusted proxy names the principal in the `principal_header` of [bridge]",
    )
    skills: Texts | None = Field(
        default=None,
        description="globs of the skills and tools that it may use: `GLOB` for every agent and MCP server, "
        "`NAME/GLOB` for those with a matching name; without it, the skills of its group, or everything",
    )
    resources: Texts | None = Field(
        default=None,
        description="globs of the URIs of the shared resources that it may use (`share` of an agent): `GLOB` for every "
        "agent, `NAME/GLOB` for those with a matching name; without it, the `resources` of its group, or "
        "everything for a principal without `skills`, else nothing",
    )
    prompts: Texts | None = Field(
        default=None,
        description="globs of the names of the shared prompts that it may use, as `resources`",
    )
    operator: Literal["read", "answer"] | None = Field(
        default=None,
        description="makes it an operator: `read` sees all tasks, the configuration and who may call; `answer` also "
        "cancels and answers for others; without it, the principal has its own tasks only",
    )
    open_tasks: PositiveInt | None = Field(
        default=None,
        description="the most unfinished tasks of the principal at one agent, and the most calls that one MCP server "
        "runs for it at once; without it, `open_tasks` of [requests] in the profile of [bridge] limits "
        "its tasks",
    )


class GroupTable(Table):
    """`[groups.NAME]`: the common settings of a group of principals. A key in a principal's own table replaces them."""

    skills: Texts = Field(
        default=("*",),
        description="globs of the skills and tools that each principal of the group may use, as `skills` of a "
        "principal",
    )
    resources: Texts | None = Field(
        default=None, description="globs of shared resources, as `resources` of a principal"
    )
    prompts: Texts | None = Field(
        default=None, description="globs of shared prompts, as `prompts` of a principal"
    )
    operator: Literal["read", "answer"] | None = Field(
        default=None,
        description="makes each principal of the group an operator, as `operator` of a principal",
    )
    open_tasks: PositiveInt | None = Field(
        default=None, description="the limit for each principal of the group, as `open_tasks` of a principal"
    )


SignatureAlgorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"
]


class IntrospectionTable(Table):
    """`introspection` of an issuer: how the bridge introspects opaque tokens at it (RFC 7662)."""

    client_id: Text = Field(description="the id of the bridge as a client of the issuer")
    client_secret: SecretValue = Field(description="its secret")
    url: HttpUrl | None = Field(
        default=None, description="the introspection endpoint; without it, the endpoint in its metadata"
    )


class IssuerLoginTable(Table):
    """`login` of an issuer: how a person logs in with a browser (OpenID Connect)."""

    client_id: Text = Field(
        description="the id of the bridge as a client of the issuer, with the redirect URIs `PUBLIC_URL/login/who` "
        "and, for the console, `PUBLIC_URL/console/signed-in`"
    )
    client_secret: SecretValue | None = Field(default=None, description="its secret, if it has one")
    client_auth: Literal["basic", "post"] = Field(
        default="basic", description="how the secret is sent: in the header `Authorization`, or in the body"
    )
    scopes: ScopeNames | None = Field(
        default=None,
        description="the scopes that the console requests when a person signs in; without it, all scopes in `scopes` "
        "and `operator` of this table",
    )
    resource: str | None = Field(
        default=None,
        description='the resource to request for the token of the console (RFC 8707); without it, its audience; `""` '
        "requests none",
    )


class OperatorScopesTable(Table):
    """`operator` of an issuer: the scopes that make a caller an operator, see `operator` of a principal."""

    read: ScopeNames = Field(default=(), description="the scopes that give the role `read`")
    answer: ScopeNames = Field(default=(), description="the scopes that give the role `answer`")


def _one_role_each(scopes: OperatorScopesTable) -> OperatorScopesTable:
    if both := [scope for scope in scopes.read if scope in scopes.answer]:
        raise refused(f"the scope {both[0]} gives both roles", "keep it in `answer`, which has all of `read`")
    return scopes


class IssuerTable(Table):
    """`[issuers.NAME]`: an issuer of callers' tokens, by OAuth 2.0 or OpenID Connect."""

    issuer: IssuerUrl = Field(
        description="its identifier, exactly as `iss` in its tokens; it also leads to its metadata"
    )
    jwks_url: HttpUrl | None = Field(
        default=None, description="the URL of its keys; without it, the URL in its metadata"
    )
    audience: dict[Name, Texts] = Field(
        default_factory=dict,
        description="the audiences (`aud`) of tokens for each agent or MCP server of the bridge, by its name; without"
        " it, its URL below `public_url`. `console` is the console; an empty list refuses all tokens of "
        "this issuer there",
    )
    principal: Text = Field(
        default="sub",
        description="the claim that identifies a principal; each token needs it. An issuer may give the value of a "
        "claim other than `sub` to another person later; with `client_id`, all users of a client are one "
        "principal",
    )
    scopes: dict[ScopeName, Texts] = Field(
        default_factory=dict,
        description="globs of the skills and tools that each scope opens, as in `skills` of a principal; clients "
        "request the first scope first. Without scopes, each token opens everything",
    )
    operator: Annotated[OperatorScopesTable, AfterValidator(_one_role_each)] = Field(
        default=OperatorScopesTable(),
        description="scopes that make a caller an operator, as `operator.read = [...]` and `operator.answer = [...]`,"
        " see `operator` of a principal; the bridge never tells clients to request them",
    )
    algorithms: Annotated[tuple[SignatureAlgorithm, ...], Field(strict=False)] = Field(
        default=("RS256", "PS256", "ES256", "EdDSA"), description="the algorithms of its signatures"
    )
    introspection: IntrospectionTable | None = Field(
        default=None,
        description="how the bridge introspects opaque tokens at it; without it, opaque tokens are refused. Only one "
        "issuer may have it",
    )
    login: IssuerLoginTable | None = Field(
        default=None,
        description='how people log in at it with a browser: for the console, and for peers with `login = "each"`',
    )
    allow_private: bool = Field(
        default=False, description="whether its metadata may lead to a private address on another origin"
    )
