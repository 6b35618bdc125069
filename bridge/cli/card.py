"""`mcp-a2a card`: shows an agent's card. Also the connection with which every command reaches an agent."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args
from urllib.parse import urlsplit

import click

from bridge.a2a.wire.choices import BindingChoice, DialectChoice
from bridge.cli.login.login import stored_login, tls_given
from bridge.errors import PeerError, UsageError
from bridge.text.safe_text import shell_line, shell_word

if TYPE_CHECKING:
    import httpx2

    from bridge.a2a.client.agent_card import FoundCard, VerifiesCards
    from bridge.a2a.client.agent_client import AgentClient, ClientOptions
    from bridge.a2a.client.credentials import Credentials
    from bridge.a2a.client.follow import FollowPace
    from bridge.a2a.client.interfaces import ConnectionPolicy
    from bridge.a2a.model.objects import AgentCard
    from bridge.http.tls import PeerTls
    from bridge.identity.logins.login_credentials import LoginConfig
    from bridge.mcp.tools import Tool
    from bridge.settings import AgentSettings
    from bridge.trace import OnHop

_CARD_SECONDS: Final = 30.0
"""How long an agent may take to give its card."""

_UNAUTHORIZED: Final = 401
_USER: Final = re.compile(r"(?<=://)[^/?#]*(?=@)")

_Command = TypeVar("_Command", bound=Callable[..., Any])


def dialect_option(words: str) -> Callable[[_Command], _Command]:
    """The option `--dialect`. Its help begins with "The version of A2A that", and `words` go on."""
    return click.option(
        "--dialect",
        type=click.Choice(get_args(DialectChoice)),
        help=f"The version of A2A that {words}. Default: auto, the version on the card, or else the version in "
        "which the agent answers.",
    )


def tls_options(whom: str) -> tuple[Callable[[_Command], _Command], ...]:
    """The options for TLS with the peers that `whom` names."""
    file = click.Path(path_type=Path, dir_okay=False)
    return (
        click.option("--cert", type=file, help=f"Client certificate for {whom}, a PEM file. It needs --key."),
        click.option("--key", type=file, help="The private key of --cert, a PEM file."),
        click.option(
            "--ca",
            type=file,
            help=f"The only certificate authorities to trust for {whom}, a PEM file.",
        ),
    )


_CONNECTION_OPTIONS: Final = (
    click.option(
        "--bearer",
        metavar="env:NAME|file:PATH",
        help="Token for the agent, sent as Authorization: Bearer.",
    ),
    click.option(
        "--api-key",
        metavar="env:NAME|file:PATH",
        help="API key for the agent, sent as its card asks: in a header, the query or a cookie.",
    ),
    click.option(
        "--header",
        multiple=True,
        metavar="NAME=env:VAR|file:PATH|VALUE",
        help="HTTP header for the agent. Repeatable.",
    ),
    *tls_options("the agent"),
    click.option(
        "--allow-private",
        is_flag=True,
        help="Connect even if a public card or host name leads to a private address.",
    ),
    dialect_option("the agent speaks, if its card names none or a wrong one"),
)
_CALL_OPTIONS: Final = (
    click.option(
        "--trust",
        multiple=True,
        metavar="ORIGIN",
        help="Send the credentials to this origin too, if the card says to call the agent there. Repeatable.",
    ),
    click.option(
        "--binding",
        multiple=True,
        type=click.Choice(get_args(BindingChoice)),
        help="Call the agent over this binding. Repeatable, the preferred binding first. Default: a binding over HTTP, "
        "or else GRPC.",
    ),
    click.option(
        "--timeout-seconds",
        type=click.FloatRange(min=0, min_open=True),
        help="How long the agent may take between two questions. Default: no limit.",
    ),
    click.option(
        "--json-output",
        is_flag=True,
        help="Print each event or listed task as one line of JSON, and nothing else except errors.",
    ),
)


def connection_options(command: _Command) -> _Command:
    """The options by which a command reaches an agent; `AgentConnection.from_options` reads them."""
    return with_options(command, _CONNECTION_OPTIONS)


def call_options(command: _Command) -> _Command:
    """The options of a command that calls an agent: for the connection, the wait and the output."""
    return with_options(command, (*_CONNECTION_OPTIONS, *_CALL_OPTIONS))


def with_options(command: _Command, options: Sequence[Callable[[_Command], _Command]]) -> _Command:
    """Add options to a command, in the order in which its help shows them."""
    for option in reversed(options):
        command = option(command)
    return command


@dataclass(frozen=True)
class AgentConnection:
    """An agent's URL and the headers that go to it."""

    url: str
    headers: dict[str, str] = field(repr=False)
    trusted: frozenset[str] = frozenset()
    """Origins that may receive the credentials, besides the URL's."""
    api_key: str | None = field(default=None, repr=False)
    """The key for any API key scheme of the card."""
    allow_private: bool = False
    """Whether a public card or name may lead to a private address."""
    options: tuple[str, ...] = ()
    """The options of this connection, for a command line that continues with the same agent."""
    on_hop: OnHop | None = None
    """Called for each message between the command and the agent."""
    dialect: DialectChoice = "auto"
    bindings: tuple[BindingChoice, ...] = ()
    """The bindings over which the agent may be called, the preferred one first."""
    tls: PeerTls | None = None
    """The client certificate for the agent, and the authorities that the agent's certificate may come from."""
    asks_for: tuple[str, ...] = ()
    """URIs of the bridge's extensions to activate although no card declares them."""
    login: LoginConfig | None = field(default=None, repr=False)
    """The stored login for the URL; None if the options give a token."""
    signed_by: str | Path | None = None
    """The URL or file of a key set. One of its keys must have signed the card."""

    @classmethod
    def from_options(cls, options: dict[str, Any]) -> AgentConnection:
        """The connection that the options describe.

        Raises:
            UsageError: the URL is invalid, or a header cannot be made.
        """
        from bridge.a2a.client.http import origin_of
        from bridge.config.text.secrets import header_from

        url: str = options["url"]
        _require_http(url)
        headers = dict(header_from(text) for text in options["header"])
        if (token := secret_given(options, "bearer")) is not None:
            headers["Authorization"] = f"Bearer {token}"
        if not all(value.isascii() and value.isprintable() for value in headers.values()):
            raise UsageError("a header has a character that HTTP does not allow")
        trusted = frozenset(map(origin_of, options.get("trust", ())))
        api_key = secret_given(options, "api_key")
        allow_private = options.get("allow_private", False)
        tls = tls_given(options)
        has_token = "authorization" in map(str.lower, headers)
        return cls(
            url,
            headers,
            trusted,
            api_key,
            allow_private,
            tuple(_given_options(options)),
            dialect=options.get("dialect") or "auto",
            bindings=options.get("binding", ()),
            tls=tls,
            login=None if has_token else stored_login(url, allow_private=allow_private, tls=tls),
            signed_by=_signer_given(options.get("signed_by")),
        )

    @cached_property
    def _profile(self) -> AgentSettings:
        """The `[agents]` table of the default profile."""
        from bridge.config.tables.profile import load_profile

        return load_profile().agents

    @property
    def pace(self) -> FollowPace:
        """The pace at which tasks are followed."""
        from bridge.a2a.client.follow import FollowPace

        return FollowPace(self._profile.outage_seconds, self._profile.task_limit_bytes)

    @cached_property
    def reach(self) -> ConnectionPolicy:
        """The policy for the addresses of connections."""
        from bridge.a2a.client.interfaces import ConnectionPolicy, Trust

        trust = Trust(self.trusted, allow_private=self.allow_private, on_command_line=True)
        return ConnectionPolicy(self.url, trust)

    def line(self, command: str) -> str:
        """The beginning of a command line that calls the same agent with the same credentials, by reference. A user
        name and password in the URL are masked; the person has to type them again."""
        return shell_line(["mcp-a2a", command, _USER.sub("***", self.url), *self.options])

    def client(self) -> httpx2.AsyncClient:
        """An HTTP client that does not send `--header` by itself. It has no timeout for answers; the caller sets
        one."""
        import httpx2

        from bridge.http.client import GuardedClient

        timeout = httpx2.Timeout(None, connect=self._profile.agent_connect_seconds)
        # With a login, a 401 may be followed by a renewal; the login itself reports a renewal that fails.
        hooks = [] if self.login else [self._explain_unauthorized]
        return GuardedClient(timeout=timeout, event_hooks={"response": hooks})

    @asynccontextmanager
    async def agent(
        self, found: FoundCard, on_response: Callable[[httpx2.Response], Awaitable[None]] | None = None
    ) -> AsyncIterator[AgentClient]:
        """A client of the agent behind a card. It has no timeout for answers either. `on_response` is called first for
        each response of HTTP.

        Raises:
            PeerError: the card leads to an origin that must not get the headers, or asks for other credentials.
        """
        from bridge.a2a.client.agent_client import AgentClient
        from bridge.a2a.client.credentials import CredentialsMissingError
        from bridge.remotes.grpc_calls import GrpcTransports

        async with self.client() as http, GrpcTransports() as calls:
            if on_response is not None:
                http.event_hooks = {"response": [on_response, *http.event_hooks["response"]]}
            try:
                agent = AgentClient(http, found, replace(self._client_options, grpc=calls.transports))
            except CredentialsMissingError as exc:
                raise PeerError(f"{exc}. Give them with --bearer, --api-key or --header") from exc
            yield agent

    @property
    def _client_options(self) -> ClientOptions:
        from bridge.a2a.client.agent_client import ClientOptions, Deadlines
        from bridge.a2a.wire.versions import VERSIONS

        return ClientOptions(
            credentials=self._credentials,
            trust=self.reach.trust,
            reach=self.reach,
            deadlines=Deadlines(
                self._profile.agent_connect_seconds, answer_seconds=None, silence_seconds=None
            ),
            json_values=self._profile.answer_json_values,
            undeclared=self.asks_for,
            on_hop=self.on_hop,
            versions=VERSIONS.chosen(self.dialect),
            bindings=self.bindings,
            how_to_log_in="" if self.login else self._how_to_log_in,
        )

    @property
    def _credentials(self) -> Credentials:
        from bridge.a2a.client.credentials import Credentials
        from bridge.identity.logins.login_credentials import LoginToken

        tokens = LoginToken(self.login, self._profile.agent_connect_seconds) if self.login else None
        return Credentials(self.headers, api_key=self.api_key, tokens=tokens, tls=self.tls)

    @property
    def _how_to_log_in(self) -> str:
        from bridge.a2a.client.card_places import base_url
        from bridge.a2a.client.http import redacted_url

        return f"Run `mcp-a2a login {shell_word(redacted_url(base_url(self.url)))}`"

    async def _explain_unauthorized(self, response: httpx2.Response) -> None:
        from bridge.a2a.client.http import status_words
        from bridge.http.client import wants_login

        if response.status_code == _UNAUTHORIZED:
            what = "Give it a token: --bearer env:NAME, where NAME is the variable that holds it"
            if "authorization" in map(str.lower, self.headers):
                what = "It refuses the token: check what --bearer names"
            elif wants_login(response):
                what = f"{self._how_to_log_in}, or give it a token: --bearer env:NAME"
            raise PeerError(f"{status_words(response)}. {what}")

    async def card(self) -> FoundCard:
        """The agent's card.

        Raises:
            NoCardError: a server answers, but gives no card.
            UnknownVersionError: neither the card nor the agent tells which version of A2A it speaks.
            PeerError: the card cannot be fetched in time. If possible, the message says what answers there instead.
        """
        import anyio

        from bridge.a2a.client.agent_card import UnknownVersionError, UnverifiedCardError, fetch_card
        from bridge.a2a.client.card_places import NoCardError
        from bridge.a2a.client.credentials import card_credentials
        from bridge.a2a.client.http import NotReachedError, redacted_url
        from bridge.a2a.client.version_question import version_question
        from bridge.identity.tokens.token_endpoint import TokenError

        try:
            with anyio.fail_after(_CARD_SECONDS):
                async with self.client() as http:
                    return await fetch_card(
                        http,
                        self.url,
                        card_credentials(self._credentials),
                        self.reach.guard(self.url),
                        version_question(http, self._client_options) or self._said_version,
                        self._pins(http),
                    )
        except TimeoutError as exc:
            raise PeerError(f"{redacted_url(self.url)} gave no card within {_CARD_SECONDS:g} s") from exc
        except (NoCardError, NotReachedError, UnknownVersionError, UnverifiedCardError, TokenError):
            raise
        except PeerError as exc:
            raise await self.explained(exc) from exc

    def _pins(self, http: httpx2.AsyncClient) -> VerifiesCards | None:
        """The key set for the signature of the card, in any form; None accepts any card."""
        if self.signed_by is None:
            return None
        from bridge.a2a.wire.canonical_card import CardForm
        from bridge.assembly.card_pins import pins_of
        from bridge.assembly.plan import SignerPlan
        from bridge.config.tables.profile import load_profile

        signer, table = SignerPlan(self.signed_by, CardForm.SDK), load_profile().issuers
        return pins_of("card", signer, http, table, allow_private=self.allow_private)

    async def _said_version(self, _: FoundCard) -> str:
        """The version in `--dialect`, for a card that names none."""
        return self.dialect

    async def explained(self, fault: PeerError) -> PeerError:
        """The fault, with what answers instead of an agent. The probe sends no headers."""
        from bridge.http.client import GuardedClient
        from bridge.http.probe import WantedKind, explained

        async with GuardedClient(timeout=self._profile.agent_connect_seconds) as http:
            return await explained(fault, http, self.url, WantedKind.AGENT, self.reach.guard(self.url))

    async def card_to_show(self) -> FoundCard:
        """The agent's card, or an error that says what answers there instead.

        Raises:
            PeerError: as for `card`, also if a server answers but gives no card.
        """
        from bridge.a2a.client.card_places import LockedCardError, NoCardError

        try:
            return await self.card()
        except LockedCardError as exc:
            if "authorization" in map(str.lower, self.headers):
                raise
            raise PeerError(f"{exc}. {self._how_to_log_in}, or give it a token: --bearer env:NAME") from exc
        except NoCardError as exc:
            raise await self.explained(exc) from exc


def secret_given(options: dict[str, Any], name: str) -> str | None:
    """The secret that an option names.

    Raises:
        UsageError: the secret cannot be read, or is itself on the command line.
    """
    from bridge.config.text.secrets import secret_from

    given: str | None = options.get(name)
    value = secret_from(given) if given else None
    if given and value is None:
        option = name.replace("_", "-")
        raise UsageError(f"--{option} takes env:NAME or file:PATH, so that no secret is on the command line")
    return value


def _signer_given(given: str | None) -> str | Path | None:
    """What --signed-by names: a URL or a file.

    Raises:
        UsageError: the URL is not https, or the file has no keys.
    """
    if given is None:
        return None
    from bridge.http.request_checks import is_loopback

    place = urlsplit(given)
    if place.scheme not in ("http", "https"):
        from bridge.a2a.client.card_pins import KeyFile

        KeyFile(Path(given)).read()
        return Path(given)
    if place.scheme == "http" and not is_loopback(place.hostname or ""):
        raise UsageError("--signed-by takes an https:// URL: whoever changes the keys could sign the card")
    return given


def _given_options(options: dict[str, Any]) -> Iterator[str]:
    """The options of a connection as they were given. They refer to secrets, and contain none."""
    for name in ("bearer", "api_key", "header", "cert", "key", "ca", "trust", "dialect", "binding"):
        given = options.get(name) or ()
        for value in (given,) if isinstance(given, str | Path) else given:
            yield from (f"--{name.replace('_', '-')}", str(value))
    if options.get("allow_private"):
        yield "--allow-private"


def has_extension(card: AgentCard) -> bool:
    """Whether an agent declares the bridge's extension, which defines how a client declines."""
    from bridge.translate.extensions.bridge import URI

    return any(extension.uri == URI for extension in card.capabilities.extensions or ())


def tool_on(card: AgentCard, skill: str | None) -> Tool | None:
    """The tool behind a skill, if the card describes it through the bridge's extension."""
    from bridge.cli import forms
    from bridge.translate.extensions.bridge import URI

    for extension in card.capabilities.extensions or ():
        tools = (extension.params or {}).get("tools") if extension.uri == URI else None
        listed = tools.get(skill or "") if isinstance(tools, dict) else None
        if isinstance(listed, dict):
            return forms.tool_with(listed.get("inputSchema"))
    return None


def _require_http(url: str) -> None:
    """Refuse a text that is not an http(s) URL.

    Raises:
        UsageError: the hint differs for a host without its scheme and for a skill without its URL.
    """
    from bridge.config.text.wording import shown_url
    from bridge.http.probe import url_with_scheme

    try:
        place = urlsplit(url)
        if place.scheme in ("http", "https") and place.hostname and place.port != 0:
            return
    except ValueError:  # an invalid port or IPv6 address
        meant = None
    else:
        meant = url_with_scheme(url)
    hint = f"did you mean {meant}?" if meant else "give the URL first"
    raise UsageError(f"an agent is reached by an http(s) URL, not {shown_url(url)!r}: {hint}")


@click.command()
@click.argument("url", metavar="URL")
@click.option("--json", "as_json", is_flag=True, help="Print the card as it was received.")
@click.option(
    "--signed-by",
    metavar="FILE|URL",
    help="A key set (JWKS). One of its keys must have signed the card; only the signed part is shown.",
)
@connection_options
def card(**options: Any) -> int:
    """Show the card of an agent.

    URL is the base URL of the agent, or the URL of its card. Below a base URL the card is at /.well-known/agent-
    card.json.

    \b
    mcp-a2a card http://127.0.0.1:8080
    mcp-a2a card --bearer env:TOKEN --json https://agent.example.com | jq .skills
    mcp-a2a card --signed-by https://agent.example.com/.well-known/jwks.json https://agent.example.com

    Exit codes: 0 the card conforms to A2A; 1 there is no card, it does not conform, or no key of --signed-by has signed
    it; 2 the command is at fault.
    """
    import anyio

    from bridge.cli import forms, render

    connection = AgentConnection.from_options(options)
    found = anyio.run(connection.card_to_show)
    if options["as_json"]:
        render.card_text(found)
    else:
        render.card(found, lambda skill: forms.arguments_of(tool_on(found.card, skill)))
    render.deviations(found)
    return 1 if found.deviations else 0
