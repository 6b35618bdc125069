"""`mcp-a2a logout`: forgets the login at a tool server, an agent or a catalog."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bridge.errors import UsageError

if TYPE_CHECKING:
    from bridge.identity.logins.login_credentials import LoginConfig


@click.command()
@click.argument("peer", metavar="NAME|URL")
@click.argument("file", required=False, type=click.Path(path_type=Path), metavar="[FILE]")
@click.option(
    "--principal",
    metavar="NAME",
    help='Forget the login of this caller instead of the operator\'s, for a peer with login = "each".',
)
@click.option("--allow-private", is_flag=True, help="For a URL: allow an issuer with a private address.")
def logout(**options: Any) -> int:
    """Forget the login at a tool server, an agent or a catalog.

    NAME is a peer in FILE, which defaults to bridge.toml in the current folder. A URL is one that `mcp-a2a logins`
    lists.

    \b
    mcp-a2a logout crm
    mcp-a2a logout https://mcp.example.com/mcp
    mcp-a2a logout crm --principal alice

    The command revokes the tokens at their issuer, if its metadata has a revocation endpoint (RFC 7009), and deletes
    them here. It reports tokens that cannot be revoked, and deletes them, too: a running bridge may use such an access
    token until it expires.

    Exit codes: 0 forgotten, even if a token could not be revoked; 2 there is no such login, or the command or the file
    is at fault.
    """
    import anyio

    from bridge.cli import logs, render
    from bridge.cli.login.login import login_config_of
    from bridge.identity.logins.kept_logins import OPERATOR

    logs.set_up("text", "error")
    principal = options.pop("principal")
    login_config = replace(
        login_config_of(options["peer"], options["file"], options), principal=principal or OPERATOR
    )
    whose = f"login of {principal}" if principal else "login"
    unrevoked = anyio.run(_forget, login_config)
    if unrevoked is None:
        raise UsageError(f"there is no {whose} at {login_config.key.url} in {login_config.keeper.where}")
    render.say(
        f"forgotten: the {whose} at {login_config.key.url}"
        + ("" if unrevoked else ", and its tokens are revoked")
    )
    if unrevoked:
        render.say(f"Not all its tokens are revoked: {unrevoked}")
    return 0


async def _forget(login_config: LoginConfig) -> str | None:
    """Remove a login. Returns why its tokens are not revoked, "" if they are; None if there was no login."""
    from bridge.identity.logins.login_revocation import revoke

    async with login_config.keeper.held(login_config.key) as held:
        if not held.is_there:
            return None
        why = "the login was sealed with another key"
        if held.login is not None:
            why = await revoke(login_config, held.login)
        await held.remove()
        return why
