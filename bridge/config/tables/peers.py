"""The tables of the peers that the bridge connects to, and of the principals that may call it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, PrivateAttr

from bridge.a2a.wire.choices import DialectChoice
from bridge.config.tables.values import (
    CommandWords,
    FailPolicy,
    Folder,
    HeaderName,
    HeaderSecret,
    HeaderSetting,
    HttpUrl,
    NotNegative,
    Origins,
    SessionOf,
    Setting,
    Table,
    Text,
    Texts,
    Token,
    Variable,
)
from bridge.config.tables.values import FilePath as File
from bridge.config.text.masking import shown_words
from bridge.config.text.secrets import plain


class HeaderKey(Table):
    """`api_key` of a server or catalog: a key, and the header that it goes into."""

    header: HeaderName = Field(description="the header's name")
    value: HeaderSecret = Field(description="the key")


class EndpointAuth(Table):
    """`auth` of a tool server or catalog: what it is shown to be let in."""

    bearer: Token | None = Field(default=None, description="a token, sent as `Authorization: Bearer`")
    api_key: HeaderKey | None = Field(
        default=None, description='a key in a header: `{ header = "X-API-Key", value = SECRET }`'
    )

    def headers(self) -> dict[str, str]:
        """The resulting header, with the secret in plain."""
        if self.api_key is not None:
            return {self.api_key.header: self.api_key.value.value}
        return {"Authorization": f"Bearer {self.bearer.value}"} if self.bearer else {}


class AgentAuth(Table):
    """`auth` of an agent: what it is shown as its card asks."""

    bearer: Token | None = Field(default=None, description="a token, for the bearer schemes of its card")
    api_key: HeaderSecret | None = Field(default=None, description="a key, sent where its card wants it")


class ToolServerTable(Table):
    """`[tool_servers.NAME]`: an MCP server. The rest is as the profile of `[bridge]` says."""

    command: CommandWords | None = Field(
        default=None, description="what starts it, with its arguments; it speaks MCP over stdio"
    )
    url: HttpUrl | None = Field(default=None, description="where it is, over Streamable HTTP or HTTP+SSE")
    env: dict[Text, Setting] = Field(
        default_factory=dict,
        repr=False,
        description="variables of the command, beside HOME, PATH and the like",
    )
    cwd: Folder = Field(default=Path(), description="the folder that the command works in")
    headers: dict[HeaderName, HeaderSetting] = Field(
        default_factory=dict, repr=False, description="HTTP headers for the URL"
    )
    auth: EndpointAuth | None = Field(default=None, description="what it is shown to be let in")
    era: Literal["auto", "legacy", "modern"] = Field(
        default="auto",
        description="its generation of MCP: `legacy` is 2025-11-25 and older, `modern` 2026-07-28",
    )
    fail: FailPolicy | None = Field(
        default=None, description="it is down at the start: end the bridge, or serve and go on trying"
    )
    session: SessionOf | None = Field(default=None, description="who shares a session with it")
    sessions: PositiveInt | None = Field(
        default=None, description="sessions that all callers share at most, opened on need"
    )
    sessions_most: PositiveInt | None = Field(
        default=None, description="sessions of principals or contexts at the same time"
    )
    session_idle_seconds: PositiveFloat | None = Field(
        default=None, description="a principal's or context's session without calls for so long is closed"
    )
    contended_question_seconds: PositiveFloat | None = Field(
        default=None,
        description="how long a question may stay open once other calls wait for its call's place",
    )
    attribution_seconds: NotNegative | None = Field(
        default=None,
        description="how long a question that may be of several calls waits for all but one to end",
    )
    connect_seconds: PositiveFloat | None = Field(
        default=None, description="from the start of a connection until the tools are listed"
    )
    longest_pause_seconds: PositiveFloat | None = Field(
        default=None, description="between two attempts to connect"
    )
    retire_seconds: NotNegative | None = Field(
        default=None, description="how long calls of a connection that is being replaced may go on"
    )
    settle_seconds: NotNegative | None = Field(
        default=None,
        description="how long it has to be quiet about changed tools before they are listed again",
    )
    result_limit_bytes: PositiveInt | None = Field(
        default=None, description="what one message of it may carry"
    )
    result_json_values: PositiveInt | None = Field(
        default=None, description="values and keys in one message of it"
    )
    tools_most: PositiveInt | None = Field(default=None, description="tools that it may list")
    tools_limit_bytes: PositiveInt | None = Field(
        default=None, description="what its list of tools may carry"
    )
    schema_values: PositiveInt | None = Field(
        default=None, description="values in the schemas of its tools, by which arguments are checked"
    )
    unanswered_most: PositiveInt | None = Field(
        default=None, description="requests of it whose answers it has not taken in"
    )
    allow_private: bool = Field(
        default=False,
        description="whether the name in its URL may lead to a private address once it was public",
    )
    concurrency: PositiveInt | None = Field(default=None, description="calls at the same time")
    call_timeout_seconds: PositiveFloat | None = Field(default=None, description="how long a call may take")

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
        shown = shown_words(self.command)
        return shown if shown != list(self.command) else None

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Without values from the environment."""
        for name, value in super().__repr_args__():
            yield name, self.shown(name or "") or value

    def variables(self) -> dict[str, str]:
        """The command's variables, in plain."""
        return plain(self.env)

    def request_headers(self) -> dict[str, str]:
        """The URL's headers, in plain."""
        return {**plain(self.headers), **(self.auth.headers() if self.auth else {})}


class AgentTable(Table):
    """`[agents.NAME]`: a remote A2A agent."""

    card: HttpUrl = Field(description="its base URL, or that of its card")
    headers: dict[HeaderName, HeaderSetting] = Field(
        default_factory=dict, repr=False, description="HTTP headers for it"
    )
    auth: AgentAuth | None = Field(default=None, description="what it is shown to be let in")
    dialect: DialectChoice = Field(
        default="auto",
        description="the version of A2A that it speaks, when its card says another one or none",
    )
    trust: Origins = Field(
        default=(), description="origins that get its credentials too, when its card says to call it there"
    )
    allow_private: bool | None = Field(
        default=None,
        description="whether its card, or its own name later, may lead to a private address although it is public",
    )

    def request_headers(self) -> dict[str, str]:
        """Its headers, in plain; `auth` is not among them."""
        return plain(self.headers)


class CatalogTable(Table):
    """`[catalogs.NAME]`: more agents, from the catalog of another bridge."""

    url: HttpUrl = Field(description="where the catalog is")
    auth: EndpointAuth | None = Field(default=None, description="what it is shown to be let in")
    include: Texts = Field(default=("*",), description="globs of names: the agents that are taken")
    exclude: Texts = Field(default=(), description="globs of names: those that are not, all the same")
    allow_private: bool | None = Field(
        default=None,
        description="whether it, or its own name later, may lead to a private address although it is public",
    )

    def request_headers(self) -> dict[str, str]:
        """The catalog's headers, in plain."""
        return self.auth.headers() if self.auth else {}


class PrincipalTable(Table):
    """`[principals.NAME]`: someone who may call, by name. With none, whoever reaches the bridge may."""

    bearer: Token | None = Field(default=None, description="the token that it shows")
    api_key: Token | None = Field(default=None, description="the API key that it shows")
    skills: Texts = Field(
        default=("*",),
        description="globs of what it may use, in every face, or as `FACE/GLOB` in those faces",
    )


class KeyPlace(Table):
    """One of `keys`: where a key for sealing handles is."""

    file: File | None = Field(default=None, description="a file, made on the first start")
    secret: Variable | None = Field(default=None, alias="env", description="an environment variable")
