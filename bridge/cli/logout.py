"""`mcp-a2a logout`: forgets the login at a tool server."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bridge.errors import UsageError

if TYPE_CHECKING:
    from bridge.http.login_credentials import LoginWish


@click.command()
@click.argument("peer", metavar="NAME|URL")
@click.argument("file", required=False, type=click.Path(path_type=Path), metavar="[FILE]")
@click.option(
    "--principal",
    metavar="NAME",
    help='Forget the login of this caller, not the operator\'s: of a server with login = "each".',
)
def logout(**options: Any) -> int:
    """Forget the login at a tool server.

    NAME is a server of FILE, which defaults to bridge.toml in the current folder. A URL is that of a login that
    `mcp-a2a logins` lists.

    \b
    mcp-a2a logout crm
    mcp-a2a logout https://mcp.example.com/mcp
    mcp-a2a logout crm --principal alice

    The tokens are deleted here. Their issuer is not asked to revoke them: a bridge that runs may send the access token
    that it has until it expires, and cannot renew it.

    Exit codes: 0 forgotten; 2 there is no such login, or the command or the file is at fault.
    """
    import anyio

    from bridge.cli import logs, render
    from bridge.cli.login import wish_of
    from bridge.http.logins import OPERATOR

    logs.set_up("text", "error")
    principal = options["principal"]
    wish = replace(wish_of(options["peer"], options["file"], {}), principal=principal or OPERATOR)
    whose = f"login of {principal}" if principal else "login"
    if not anyio.run(_removed, wish):
        raise UsageError(f"there is no {whose} at {wish.key.shown} in {wish.keeper.where}")
    render.say(f"forgotten: the {whose} at {wish.key.shown}")
    return 0


async def _removed(wish: LoginWish) -> bool:
    async with wish.keeper.held(wish.key) as held:
        if held.is_there:
            await held.remove()
        return held.is_there
