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
    """`[principals.NAME]`: someone who may call, by name. With none, whoever reaches the bridge may."""

    group: Text | None = Field(
        default=None,
        description="its group, which says what this table leaves out of `skills`, `operator` and `open_tasks`",
    )
    bearer: OwnToken | None = Field(
        default=None,
        description='the token of the principal: a reference, or its hash as `{ sha256 = "HEX" }`, which '
        "`mcp-a2a people add` writes",
    )
    tokens: OwnTokens = Field(
        default=(),
        description="in place of `bearer`: one token, or two while one is rotated; either lets the principal in",
    )
    api_key: OwnToken | None = Field(
        default=None, description="the API key of the principal, as a reference or a hash"
    )
    certificate: Identities = Field(
        default=(),
        description="whose client certificate is the principal's: `subject:CN=...`, `dns:NAME`, `uri:URI` or "
        "`email:ADDRESS`, or a list of them; it takes `client_ca` in `tls` of [bridge]",
    )
    forwarded: Text | None = Field(
        default=None,
        description="what a trusted proxy says in the `principal_header` of [bridge] for the principal",
    )
    skills: Texts | None = Field(
        default=None,
        description="globs of the skills and tools that it may use: `GLOB` for every face, `FACE/GLOB` for "
        "those faces; without it, those of its group, or everything",
    )
    operator: Literal["read", "answer"] | None = Field(
        default=None,
        description="makes it an operator: `read` sees the tasks of all, the configuration and who may call; `answer` "
        "also cancels and answers for others; without it, the principal has its own tasks only",
    )
    open_tasks: PositiveInt | None = Field(
        default=None,
        description="the most tasks of it that have not ended at one agent, and the most of its calls that one MCP "
        "server runs at once; without it, `open_tasks` of [requests] in the profile of [bridge] bounds its tasks",
    )


class GroupTable(Table):
    """`[groups.NAME]`: what the principals of a group have in common. A key of a principal's own table replaces it."""

    skills: Texts = Field(
        default=("*",),
        description="globs of the skills and tools that each of them may use, as `skills` of a principal",
    )
    operator: Literal["read", "answer"] | None = Field(
        default=None, description="makes each of them an operator, as `operator` of a principal"
    )
    open_tasks: PositiveInt | None = Field(
        default=None, description="the limit of each of them, as `open_tasks` of a principal"
    )


SignatureAlgorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"
]


class IntrospectionTable(Table):
    """`introspection` of an issuer: how it is asked about tokens that are no JSON Web Tokens (RFC 7662)."""

    client_id: Text = Field(description="the id of the bridge as a client of the issuer")
    client_secret: SecretValue = Field(description="its secret")
    url: HttpUrl | None = Field(
        default=None, description="the URL to ask at; without it, the one that its metadata says"
    )


class IssuerLoginTable(Table):
    """`login` of an issuer: how a person shows in a browser who it is (OpenID Connect)."""

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
        description="the scopes that the console asks for with who signs in; without it, all that this table names in "
        "`scopes` and `operator`",
    )
    resource: str | None = Field(
        default=None,
        description='what the token of the console is for, if not its audience; `""` asks for no resource (RFC 8707)',
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
    """`[issuers.NAME]`: who issues the tokens of callers, by OAuth 2.0 or OpenID Connect."""

    issuer: IssuerUrl = Field(
        description="its identifier, exactly as its tokens say it (`iss`); its metadata is found there"
    )
    jwks_url: HttpUrl | None = Field(
        default=None, description="the URL of its keys; without it, the one that its metadata says"
    )
    audience: dict[Name, Texts] = Field(
        default_factory=dict,
        description="by the name of a face, the audiences (`aud`) of tokens for it; without it, the URL of the face "
        "below `public_url`. `console` is the console; with an empty list no token of this issuer counts there",
    )
    principal: Text = Field(
        default="sub",
        description="the claim that tells its principals apart, which each token needs. Others than `sub` can be given "
        "to another person; with `client_id`, all who use a client are one principal",
    )
    scopes: dict[ScopeName, Texts] = Field(
        default_factory=dict,
        description="by scope, globs of the skills and tools that it opens, as in `skills` of a principal; clients "
        "ask for the first scope first. With none, each token opens everything",
    )
    operator: Annotated[OperatorScopesTable, AfterValidator(_one_role_each)] = Field(
        default=OperatorScopesTable(),
        description="scopes that make a caller an operator, as `operator.read = [...]` and `operator.answer = [...]`, "
        "see `operator` of a principal; clients are never told to ask for them",
    )
    algorithms: Annotated[tuple[SignatureAlgorithm, ...], Field(strict=False)] = Field(
        default=("RS256", "PS256", "ES256", "EdDSA"), description="the algorithms of its signatures"
    )
    introspection: IntrospectionTable | None = Field(
        default=None,
        description="how the bridge asks it about tokens that are no JSON Web Tokens; without it, these are refused. "
        "One issuer may have it",
    )
    login: IssuerLoginTable | None = Field(
        default=None,
        description="how its people show in a browser who they are: at the console, and where a peer has "
        '`login = "each"`',
    )
    allow_private: bool = Field(
        default=False, description="whether its metadata may lead to a private address on another origin"
    )
