"""`mcp-a2a login`: logs a person in at the authorization server of a tool server, an agent or a catalog."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from bridge.errors import PeerError, UsageError

if TYPE_CHECKING:
    from bridge.assembly.plan import Plan, RemotePlan, ServerPlan
    from bridge.http.tls import PeerTls
    from bridge.identity.logins.kept_logins import Login, LoginKeeper
    from bridge.identity.logins.login_credentials import LoginConfig

_WAIT_SECONDS: Final = 600.0
_ANSWER_SECONDS: Final = 30.0
"""How long the servers may take to lead to the login page, and to exchange the code for tokens."""

_FILE: Final = click.Path(path_type=Path, dir_okay=False)
_WEB: Final = ("http://", "https://")


@click.command()
@click.argument("peer", metavar="NAME|URL")
@click.argument("file", required=False, type=click.Path(path_type=Path), metavar="[FILE]")
@click.option(
    "--no-browser",
    is_flag=True,
    help="Open no browser; print the address of the page to log in at, and wait.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="The port of the redirect URI, for issuers that need a fixed port. Default: a free port.",
)
@click.option(
    "--redirect-host",
    type=click.Choice(["127.0.0.1", "localhost"]),
    default="127.0.0.1",
    show_default=True,
    help="The host in the redirect URI. Some issuers know only `localhost`.",
)
@click.option(
    "--wait-seconds",
    type=click.FloatRange(min=0, min_open=True, max=86_400),
    default=_WAIT_SECONDS,
    show_default=True,
    help="How long the person may take.",
)
@click.option("--issuer", metavar="URL", help="For a URL: log in only at this issuer.")
@click.option("--client-id", metavar="ID", help="For a URL: the client id of the bridge at the issuer.")
@click.option(
    "--client-metadata-url", metavar="URL", help="For a URL: a document that describes the bridge (CIMD)."
)
@click.option(
    "--scope", "scopes", multiple=True, metavar="SCOPE", help="For a URL: ask for this scope. Repeatable."
)
@click.option(
    "--resource", metavar="URI", help='For a URL: the resource of the token (RFC 8707); "" sends none.'
)
@click.option(
    "--assume-pkce",
    is_flag=True,
    help="For a URL: log in even if the issuer does not declare PKCE.",
)
@click.option("--cert", type=_FILE, help="For a URL: client certificate for it, a PEM file. It needs --key.")
@click.option("--key", type=_FILE, help="For a URL: the private key of --cert, a PEM file.")
@click.option(
    "--ca", type=_FILE, help="For a URL: the only certificate authorities to trust for it, a PEM file."
)
@click.option(
    "--allow-private", is_flag=True, help="For a URL: allow private addresses that the server names."
)
def login(**options: Any) -> int:
    """Log in at a tool server, an agent or a catalog that needs a person.

    NAME is a peer in FILE whose `auth` has the grant authorization_code; FILE defaults to bridge.toml in the current
    folder. A URL needs no file. The peer names its issuer. A browser opens the login page, and then returns to this
    machine.

    \b
    mcp-a2a login crm
    mcp-a2a login crm team.toml
    mcp-a2a login https://mcp.example.com/mcp
    mcp-a2a login https://agent.example.com
    mcp-a2a login crm --no-browser --port 8765    (over ssh -L 8765:127.0.0.1:8765)

    The command seals the tokens with the `keys` of the file, and keeps them in its PostgreSQL, or else in the state
    folder of this user. Every bridge on the same store uses and renews them, even if it runs already. `mcp-a2a logins`
    lists the logins, and `mcp-a2a logout NAME` removes a login.

    Exit codes: 0 logged in; 1 the server, its issuer or the person refused, or nobody answered; 2 the command or the
    file is at fault.
    """
    import anyio

    from bridge.cli import logs

    logs.set_up("text", "error")
    logging.getLogger("mcp.client.auth").setLevel(logging.CRITICAL)  # it also logs the errors that it raises
    login_config = login_config_of(options["peer"], options["file"], options)
    if login_config.of_each and login_config.kind == "agents":
        raise UsageError(
            f"{login_config.table} uses a login of each caller, and a caller gets a link to log in with a call"
        )
    anyio.run(_log_in, login_config, options)
    return 0


_OF_A_URL: Final = (
    "issuer",
    "client_id",
    "client_metadata_url",
    "scopes",
    "resource",
    "assume_pkce",
    "cert",
    "key",
    "ca",
    "allow_private",
)


def login_config_of(peer: str, file: Path | None, options: dict[str, Any]) -> LoginConfig:
    """The login at a peer, which is named by its table or its URL.

    Raises:
        UsageError: there is no such peer, or it needs no login.
    """
    from bridge.assembly.plan_from_file import plan_from_file
    from bridge.assembly.stores import logins_of
    from bridge.cli.serve import config_file, loaded_from

    if peer.startswith(_WEB):
        return _login_config_at(peer, file, options)
    if given := next((key for key in _OF_A_URL if options.get(key)), None):
        raise UsageError(
            f"--{given.replace('_', '-').rstrip('s')} is for a URL: write it into `auth` of {peer}"
        )
    plan = plan_from_file(loaded_from(config_file(file), {}))
    named = [login_config for login_config in logins_of(plan) if login_config.name == peer]
    if len(named) > 1:
        either = " and ".join(f"[{login_config.kind}.{peer}]" for login_config in named)
        raise UsageError(f"there are {either}: name one by its URL")
    if not named:
        raise _needless(peer, plan)
    return named[0]


def _needless(peer: str, plan: Plan) -> UsageError:
    """The error for a name without a peer that needs a login."""
    from bridge.config.text.wording import meant

    sections = {"tool_servers": plan.servers, "agents": plan.agents, "catalogs": plan.catalogs}
    for section, peers in sections.items():
        if peer in peers:
            return UsageError(
                f"{section}.{peer} needs no login: to add one, write auth = "
                '{ oauth2 = { grant = "authorization_code" } }'
            )
    hint = meant(peer, [name for peers in sections.values() for name in peers])
    return UsageError(
        f"there is no [tool_servers.{peer}], [agents.{peer}] or [catalogs.{peer}]"
        + (f": {hint}" if hint else "")
    )


def _login_config_at(url: str, file: Path | None, options: dict[str, Any]) -> LoginConfig:
    from bridge.a2a.client.card_places import base_url
    from bridge.identity.logins.login_credentials import LoginConfig

    return LoginConfig(
        base_url(url),
        keeper_of(file),
        issuer=options.get("issuer") or "",
        client_id=options.get("client_id") or "",
        client_metadata_url=options.get("client_metadata_url") or "",
        scopes=tuple(options.get("scopes") or ()),
        resource=options.get("resource"),
        pkce="assume" if options.get("assume_pkce") else "required",
        allow_private=bool(options.get("allow_private")),
        tls=tls_given(options),
        kind=None,
    )


@dataclass(frozen=True)
class StoredLogin:
    """The login at a URL that this user has made with `login URL`, or makes later. See `LoginPlace`."""

    url: str
    allow_private: bool
    tls: PeerTls | None

    @property
    def display_url(self) -> str:
        """The URL without its query, which may contain a key."""
        from bridge.a2a.client.card_places import base_url
        from bridge.identity.logins.kept_logins import LoginKey, peer_of

        return LoginKey(peer_of(base_url(self.url))).url

    def find(self) -> LoginConfig | None:
        """The login; None if there is none."""
        return stored_login(self.url, allow_private=self.allow_private, tls=self.tls)


def with_stored_logins(plan: Plan) -> Plan:
    """The plan of a command line, with the logins that `login URL` has made at its URLs, or makes during the command.
    A given token is used instead of a login."""
    from bridge.identity.logins.later_login import LaterLogin
    from bridge.identity.logins.login_credentials import LoginToken
    from bridge.mcp.client.transports.streamable_http import HttpTarget

    def with_login(server: ServerPlan) -> ServerPlan:
        target = server.target
        if not isinstance(target, HttpTarget) or target.oauth or _has_token(target.headers):
            return server
        place = StoredLogin(target.url, target.allow_private, target.tls)
        oauth = place.find() or LaterLogin(place, target.connect_seconds)
        return replace(server, target=replace(target, oauth=oauth))

    def agent_with_login(agent: RemotePlan) -> RemotePlan:
        if agent.bearer or agent.tokens or _has_token(agent.headers):
            return agent
        place = StoredLogin(agent.url, bool(agent.allow_private), agent.tls)
        login_config, seconds = place.find(), plan.profile.agents.agent_connect_seconds
        return replace(
            agent, tokens=LoginToken(login_config, seconds) if login_config else LaterLogin(place, seconds)
        )

    return replace(
        plan,
        servers={key: with_login(server) for key, server in plan.servers.items()},
        agents={key: agent_with_login(agent) for key, agent in plan.agents.items()},
    )


def _has_token(headers: Mapping[str, str]) -> bool:
    return "authorization" in map(str.lower, headers)


def stored_login(url: str, *, allow_private: bool, tls: PeerTls | None) -> LoginConfig | None:
    """The login at a URL that this user has made; None if there is none."""
    from bridge.local.user_folders import LOGINS, state_folder

    if not (state_folder() / LOGINS).is_dir():
        return None  # returns before the slow import of a store: hosts wait for `expose`

    from bridge.a2a.client.card_places import base_url
    from bridge.identity.logins.login_credentials import LoginConfig
    from bridge.identity.logins.login_files import LoginFiles

    files = LoginFiles(state_folder())
    login_config = LoginConfig(base_url(url), files, allow_private=allow_private, tls=tls, kind=None)
    return login_config if files.has(login_config.key) else None


def tls_given(options: dict[str, Any]) -> PeerTls | None:
    """The files that --cert, --key and --ca name; None without these options.

    Raises:
        UsageError: --cert or --key is missing, or a file cannot be used.
    """
    from bridge.http.tls import PeerTls, peer_context

    certificate, key, authorities = (options.get(name) for name in ("cert", "key", "ca"))
    if (certificate is None) is not (key is None):
        raise UsageError("--cert and --key go together: the certificate and its private key")
    if certificate is None and authorities is None:
        return None
    tls = PeerTls(certificate, key, authorities)
    peer_context(tls)
    return tls


def keeper_of(file: Path | None) -> LoginKeeper:
    """The keeper of the logins of a file; without a file, of the logins of this user."""
    from bridge.assembly.plan import ProcessPlan
    from bridge.assembly.plan_from_file import plan_from_file
    from bridge.assembly.stores import keeper_for
    from bridge.cli.serve import loaded_from

    return keeper_for(ProcessPlan() if file is None else plan_from_file(loaded_from(file, {})).place)


async def _log_in(login_config: LoginConfig, options: dict[str, Any]) -> None:
    import anyio

    from bridge.a2a.client.login_lead import login_lead
    from bridge.cli import render
    from bridge.identity.logins.login_flow import log_in
    from bridge.identity.logins.login_landing import login_landing

    async def show(url: str) -> None:
        render.say(f"Log in at this page: {url}")
        if not options["no_browser"] and not await anyio.to_thread.run_sync(open_in_browser, url):
            render.say("No browser can be opened here: open the page yourself")

    lead = await login_lead(login_config, _ANSWER_SECONDS)
    try:
        async with login_landing(options["redirect_host"], options["port"]) as landing:
            with anyio.fail_after(options["wait_seconds"]):
                made = await log_in(login_config, landing, show, _ANSWER_SECONDS, lead)
    except TimeoutError as exc:
        raise PeerError(f"nobody logged in within {options['wait_seconds']:g} s") from exc
    except OSError as exc:
        raise UsageError(
            f"cannot listen at port {options['port']}: {exc.strerror}; choose another with --port"
        ) from exc
    await _keep(login_config, made)
    render.say(
        f"Logged in at {login_config.key.url}, with {made.issuer}. "
        f"The login is kept in {login_config.keeper.where}"
    )
    if made.refresh_token is None and made.expires_at is not None:
        render.say("The issuer gave no refresh token: log in again when the token has expired")


async def _keep(login_config: LoginConfig, made: Login) -> None:
    import anyio

    with anyio.CancelScope(shield=True):
        async with login_config.keeper.held(login_config.key) as held:
            await held.write(made)


def open_in_browser(url: str, platform: str = sys.platform, mac_opener: str = "/usr/bin/open") -> bool:
    """Open a page in a browser, without a shell; False if that fails. The URL was checked before."""
    import subprocess
    import webbrowser

    from bridge.hosts.places import System, system_of

    if system_of(platform) is not System.MACOS:
        return webbrowser.open(url)
    # On macOS, webbrowser starts AppleScript through a shell.
    try:
        return subprocess.run([mac_opener, url], check=False).returncode == 0  # noqa: S603 - no shell
    except OSError:
        return False
