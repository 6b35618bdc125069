"""`mcp-a2a logins`: lists logins, never a token."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bridge.identity.logins.kept_logins import Login, LoginKey
    from bridge.text.jsonvalues import JsonObject

_LAST_SECONDS: Final = 253_402_300_799
"""The last second that `datetime` can hold, since the epoch. An issuer may send a larger number for a token that does
not expire."""


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path), metavar="[FILE]")
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
def logins(**options: Any) -> int:
    """List the logins at tool servers, agents and catalogs.

    The list has the logins of FILE, or of bridge.toml in the current folder, or without a file those of this user. It
    shows the peer, the issuer, the scopes, the time of the login, when the access token expires, and whether it can be
    renewed. It never shows a token.

    \b
    mcp-a2a logins
    mcp-a2a logins team.toml
    mcp-a2a logins --json | jq '.logins[] | select(.lost)'
    """
    import anyio

    from bridge.cli import logs, render
    from bridge.cli.login.login import keeper_of
    from bridge.cli.serve import CONFIG_FILE_NAME

    logs.set_up("text", "error")
    here = Path(CONFIG_FILE_NAME)
    keeper = keeper_of(options["file"] or (here if here.is_file() else None))
    found = anyio.run(keeper.all)
    if found.sealed_otherwise:
        render.say(
            f"{found.sealed_otherwise} in {keeper.where} are sealed with other keys and cannot be listed"
        )
    if options["as_json"]:
        listed: list[JsonObject] = [_object(key, login) for key, login in found.logins]
        text = json.dumps({"where": keeper.where, "logins": listed}, indent=2, ensure_ascii=False)
        render.write_document(text + "\n")
        return 0
    return _print(found.logins, keeper.where)


def _print(found: Sequence[tuple[LoginKey, Login]], where: str) -> int:
    from bridge.cli import render

    if not found:
        render.say(f"there are no logins in {where}")
    for key, one in found:
        render.heading(key.url + (f"  of {key.principal}" if key.principal else ""))
        render.result(f"  issuer: {one.issuer}")
        render.result(f"  scopes: {' '.join(one.scopes) or '(unknown)'}")
        if one.wanted_scopes:
            render.result(f"  the next login also asks for: {' '.join(one.wanted_scopes)}")
        render.result(f"  since: {_time(one.since)}")
        render.result(f"  access token: {_life(one)}")
        render.result(f"  refresh token: {'yes' if one.refresh_token else 'no'}")
        if one.lost:
            render.result(f"  login needed: {one.lost}")
    return 0


def _life(one: Login) -> str:
    return "expires at an unknown time" if one.expires_at is None else f"expires {_time(one.expires_at)}"


def _object(key: LoginKey, one: Login) -> JsonObject:
    return {
        "server": key.url,
        "principal": key.principal or None,
        "issuer": one.issuer,
        "scopes": [*one.scopes],
        "wantedScopes": [*one.wanted_scopes],
        "since": _time(one.since),
        "expires": None if one.expires_at is None else _time(one.expires_at),
        "hasRefreshToken": one.refresh_token is not None,
        "lost": one.lost or None,
    }


def _time(seconds: float) -> str:
    whole = int(min(seconds, _LAST_SECONDS))
    return datetime.fromtimestamp(whole, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
