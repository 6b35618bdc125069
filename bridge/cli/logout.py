"""`mcp-a2a logout`: forgets the login at a tool server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bridge.errors import UsageError

if TYPE_CHECKING:
    from bridge.http.login_credentials import LoginWish


@click.command()
@click.argument("peer", metavar="NAME|URL")
@click.argument("file", required=False, type=click.Path(path_type=Path), metavar="[FILE]")
def logout(**options: Any) -> int:
    """Forget the login at a tool server.

    NAME is a server of FILE, which defaults to bridge.toml in the current folder. A URL is that of a login that
    `mcp-a2a logins` lists.

    \b
    mcp-a2a logout crm
    mcp-a2a logout https://mcp.example.com/mcp

    The tokens are deleted here. Their issuer is not asked to revoke them: a bridge that runs may send the access token
    that it has until it expires, and cannot renew it.

    Exit codes: 0 forgotten; 2 there is no such login, or the command or the file is at fault.
    """
    import anyio

    from bridge.cli import logs, render
    from bridge.cli.login import wish_of

    logs.set_up("text", "error")
    wish = wish_of(options["peer"], options["file"], {})
    if not anyio.run(_removed, wish):
        raise UsageError(f"there is no login at {wish.key.shown} in {wish.keeper.where}")
    render.say(f"forgotten: the login at {wish.key.shown}")
    return 0


async def _removed(wish: LoginWish) -> bool:
    async with wish.keeper.held(wish.key) as held:
        if held.is_there:
            await held.remove()
        return held.is_there
