"""The rules for callers: issuers, the credentials of a connection, and the logins of callers.

Pure. As in `rules.py`, a value may have any type.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from bridge.config.check.plain_tables import MADE_OF, table_in, tables_at
from bridge.config.text.document import ConfigFault
from bridge.config.text.positions import KeyPath
from bridge.config.text.wording import listed, meant, title
from bridge.http.request_checks import is_loopback

_CONSOLE: Final = "console"
"""The name of the console in `audience`, beside the names of endpoints."""


def caller_faults(data: Mapping[str, Any]) -> Iterator[ConfigFault]:
    """Yield all faults between the keys for callers."""
    yield from _issuer_faults(data)
    yield from _introspection_faults(data)
    yield from _group_faults(data)
    yield from _connection_faults(data)
    yield from _login_faults(data)


def _issuer_faults(data: Mapping[str, Any]) -> Iterator[ConfigFault]:
    """Yield faults of issuers: two tables for one issuer, audiences of an unknown or ambiguous endpoint, and endpoints
    without an audience."""
    place = table_in(data, "bridge")
    has_url, has_console = "public_url" in place, place.get("console") is True
    named = [str(name) for section in MADE_OF for name in table_in(data, section)]
    faces = dict.fromkeys(named)
    named += [_CONSOLE] * has_console
    known: dict[str, str] = {}
    for name, table in table_in(data, "issuers").items():
        if not isinstance(table, dict):
            continue
        here: KeyPath = ("issuers", name)
        if isinstance(url := table.get("issuer"), str) and (other := known.setdefault(url, name)) != name:
            yield ConfigFault((*here, "issuer"), f"[issuers.{other}] has the same `issuer`")
        audience = table.get("audience", {})
        audiences = audience if isinstance(audience, dict) else {}
        for face in audiences:
            if face not in faces and not (has_console and face == _CONSOLE):
                message = f"there is no endpoint `{face}`"
                yield ConfigFault((*here, "audience", face), message, meant(face, sorted(faces)), on_key=True)
            elif named.count(face) > 1:
                message = (
                    f"there are two endpoints `{face}`, and a token for one would be accepted at the other"
                )
                hint = "rename one of them, or write `public_url` instead of `audience`"
                yield ConfigFault((*here, "audience", face), message, hint, on_key=True)
        signs_in = [_CONSOLE] if has_console and "login" in table else []
        missing = [face for face in dict.fromkeys([*faces, *signs_in]) if face not in audiences]
        if missing and not has_url:
            message = f"tokens for {listed((f'`{face}`' for face in missing), 'and')} have no audience"
            hint = f"write `public_url` in [bridge], or audience.{missing[0]} = [...] in {title(here)}"
            yield ConfigFault(here, message, hint, on_key=True)


def _introspection_faults(data: Mapping[str, Any]) -> Iterator[ConfigFault]:
    """Yield faults of introspection: several issuers with it, and an issuer whose introspection endpoint is not
    known."""
    first = ""
    for (_, name), table in tables_at(data, ("issuers", "*")):
        introspection, here = table.get("introspection"), ("issuers", name, "introspection")
        if not isinstance(introspection, dict):
            continue
        if first:
            message = f"[issuers.{first}] has `introspection`, too, and each issuer would get the tokens of the other"
            yield ConfigFault(here, message, "keep it for the issuer with opaque tokens", on_key=True)
        first = first or str(name)
        if "jwks_url" in table and "url" not in introspection:
            message = f"{title(here[:2])} has a `jwks_url`, so no metadata names the introspection endpoint"
            yield ConfigFault(here, message, "write `url` in it", on_key=True)


def _group_faults(data: Mapping[str, Any]) -> Iterator[ConfigFault]:
    """Yield faults of principals with an unknown group, without a token in `tokens`, or with both `bearer` and
    `tokens`."""
    groups = sorted(map(str, table_in(data, "groups")))
    for path, table in tables_at(data, ("principals", "*")):
        named = table.get("group")
        if isinstance(named, str) and named not in groups:
            message = f"there is no group `{named}`"
            hint = meant(named, groups) or f"write a table [groups.{named}]"
            yield ConfigFault((*path, "group"), message, hint)
        if table.get("tokens") == []:
            yield ConfigFault(
                (*path, "tokens"), "`tokens` has no token", "write one token, or two during a rotation"
            )
        if "bearer" in table and "tokens" in table:
            message = f"{title(path)} has both `bearer` and `tokens`"
            yield ConfigFault((*path, "tokens"), message, "write both into `tokens`", on_key=True)


def _connection_faults(data: Mapping[str, Any]) -> Iterator[ConfigFault]:
    """Yield faults of principals that no connection can identify, and of proxies that cannot state the caller."""
    bridge = table_in(data, "bridge")
    tls = table_in(bridge, "tls")
    has_ca = "client_ca" in tls
    if has_ca and "replica_url" in bridge and tls.get("client_certificate") != "optional":
        message = (
            "other replicas cannot connect: `client_ca` requires a certificate, and a replica sends none"
        )
        hint = 'write `client_certificate = "optional"` in `tls`'
        yield ConfigFault(("bridge", "replica_url"), message, hint, on_key=True)
    for name, table in table_in(data, "principals").items():
        connection = table if isinstance(table, dict) else {}
        if "certificate" in connection and not has_ca:
            message = "no client is asked for a certificate: `tls` of [bridge] has no `client_ca`"
            yield ConfigFault(("principals", name, "certificate"), message, on_key=True)
        if "forwarded" in connection and "principal_header" not in bridge:
            message = "no proxy says who calls: [bridge] has no `principal_header`"
            yield ConfigFault(("principals", name, "forwarded"), message, on_key=True)
    if "principal_header" in bridge and "trusted_proxies" not in bridge:
        message = "`principal_header` needs `trusted_proxies`"
        yield ConfigFault(("bridge", "principal_header"), message, "add `trusted_proxies`", on_key=True)


def _login_faults(data: Mapping[str, Any]) -> Iterator[ConfigFault]:
    """Yield faults of callers' logins: keys for them at peers without such logins, and faults of peers with them."""
    of_each = []
    for path, table in (*tables_at(data, ("tool_servers", "*")), *tables_at(data, ("agents", "*"))):
        if table.get("login") == "each":
            of_each.append(title(path))
            yield from _each_login_faults(data, path, table)
        else:
            yield from _idle_login_faults(path, table)
    if of_each and _is_open_to_listeners(table_in(data, "bridge").get("public_url")):
        message = (
            f"callers log in at {listed(of_each, 'and')} only over https, but `public_url` is plain http"
        )
        yield ConfigFault(("bridge", "public_url"), message, "write the https:// URL that browsers use")


def _each_login_faults(
    data: Mapping[str, Any], path: KeyPath, table: Mapping[str, Any]
) -> Iterator[ConfigFault]:
    """Yield faults of a peer that requires a login of each caller: no suitable grant, and callers that no login page
    can identify."""
    bridge, here = table_in(data, "bridge"), (*path, "login")
    if table.get("session") == "shared":
        message = "a session belongs to one login, so callers with separate logins cannot share a session"
        yield ConfigFault((*path, "session"), message, "take it out, or write another `session`")
    oauth2 = table_in(table_in(table, "auth"), "oauth2")
    if oauth2.get("grant") != "authorization_code":
        yield ConfigFault(
            here,
            f"{title(path)} has no grant with which each caller can log in",
            'write auth = { oauth2 = { grant = "authorization_code" } }',
        )
    if "public_url" not in bridge:
        message = "login links need the address of this bridge, and [bridge] has no `public_url`"
        yield ConfigFault(here, message, "write `public_url` in [bridge]")
    if (
        not (table_in(data, "principals") or table_in(data, "issuers"))
        or bridge.get("allow_unauthenticated") is True
    ):
        message = "callers without a credential are one principal, so none of them has a login of its own"
        yield ConfigFault(here, message, "write [principals.NAME], and no `allow_unauthenticated`")
    unproved = [
        f"principals.{name}"
        for name, table_of_one in table_in(data, "principals").items()
        if isinstance(table_of_one, dict) and not table_of_one.keys() & {"bearer", "tokens", "api_key"}
    ]
    if unproved:
        message = f"nobody can log in with a browser as {listed(unproved, 'or')}"
        yield ConfigFault(here, message, "give principals a `bearer` or an `api_key` to log in with")
    for name, table_of_one in table_in(data, "issuers").items():
        yield from _unproved_faults(here, str(name), table_of_one if isinstance(table_of_one, dict) else {})


def _idle_login_faults(path: KeyPath, table: Mapping[str, Any]) -> Iterator[ConfigFault]:
    """Yield faults of keys for callers' logins at a peer that requires none."""
    for key in ("login_seconds", "login_keep_days"):
        if key in table:
            message = f'`{key}` is for `login = "each"`, and {title(path)} has none'
            yield ConfigFault((*path, key), message, "take it out", on_key=True)


def _is_open_to_listeners(url: object) -> bool:
    """Whether a URL is plain http to another machine, over which nobody may log in."""
    if not isinstance(url, str):
        return False
    try:
        place = urlsplit(url)
        return place.scheme == "http" and not is_loopback(place.hostname or "")
    except ValueError:
        return False


def _unproved_faults(here: KeyPath, name: str, issuer: Mapping[str, Any]) -> Iterator[ConfigFault]:
    """Yield faults of an issuer whose principals cannot log in with a browser."""
    message = f"nobody can log in with a browser as a principal of issuers.{name}"
    if "login" not in issuer:
        yield ConfigFault(here, message, f'write login = {{ client_id = "..." }} in [issuers.{name}]')
    if issuer.get("principal") in _CLIENT_CLAIMS:
        hint = f"`{issuer['principal']}` identifies clients, not people: write another `principal` there"
        yield ConfigFault(here, message, hint)


_CLIENT_CLAIMS: Final = ("client_id", "azp")
