"""The page of people: principals, issuers and logins, and the skills and tools that each may use. It shows no secret
and no hash."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from bridge.a2a.model.objects import timestamp
from bridge.assembly.bridge import Bridge
from bridge.assembly.plan import CatalogPlan, Plan, RemotePlan
from bridge.console.console_access import Visit
from bridge.console.paging import Paging
from bridge.errors import BridgeError
from bridge.identity.callers.issuers import Issuer
from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import FORWARDED, Credential, Scheme
from bridge.identity.logins.each_login import EachLogin
from bridge.identity.logins.login_credentials import LoginConfig, LoginToken
from bridge.mcp.client.transports.streamable_http import HttpTarget
from bridge.text.jsonvalues import JsonObject

_WAYS: Final = {
    Scheme.BEARER: "a bearer token",
    Scheme.API_KEY: "an API key",
    Scheme.CONNECTION: "a client certificate",
}


async def people(bridge: Bridge, visit: Visit) -> JsonObject:
    """The page, for operators only."""
    plan, paging = bridge.plan, Paging.asked("/people", visit.query)
    by_name: dict[str, list[Credential]] = {}
    for credential in plan.credentials:
        by_name.setdefault(credential.principal.name, []).append(credential)
    told: JsonObject = {"asks": bridge.access.needs_token, "part": paging.part}
    lists = {
        "principals": paging.entries("principals", [*by_name.values()], partial(_principal, bridge)),
        "issuers": paging.entries("issuers", [*plan.issuers.items()], lambda one: _issuer(*one)),
        "logins": paging.entries("logins", await _logins(bridge), lambda one: one),
    }
    for name, (shown, where) in lists.items():
        told |= {name: shown, f"{name}_paging": where}
    return told


def _principal(bridge: Bridge, own: Sequence[Credential]) -> JsonObject:
    principal = own[0].principal
    return {
        "name": principal.name,
        "shows": [_way(credential) for credential in own],
        "operator": principal.operator,
        "globs": [*principal.skills],
        "uses": [*_uses(bridge, principal)],
    }


def _way(credential: Credential) -> str:
    if credential.token.startswith(FORWARDED):
        return "a header of a trusted proxy"
    known_by = "stored as a hash" if credential.sha256 else credential.reference
    return f"{_WAYS[credential.scheme]}{f' ({known_by})' if known_by else ''}"


def _uses(bridge: Bridge, principal: Principal) -> Iterator[JsonObject]:
    """How many skills or tools of each endpoint a principal may use."""
    for agent in bridge.published:
        here = principal.in_face(agent.name)
        ids = [skill.names for skill in agent.agent.published]
        yield {"face": agent.name, "of": len(ids), "may": sum(map(here.may_use, ids)), "noun": "skill"}
    for server in bridge.offered:
        here = principal.in_face(server.name)
        names = [tool.names for tool in server.face.published]
        yield {"face": server.name, "of": len(names), "may": sum(map(here.may_use, names)), "noun": "tool"}


def _issuer(name: str, one: Issuer) -> JsonObject:
    return {
        "name": name,
        "issuer": one.place.issuer,
        "principal_claim": one.principal_claim,
        "introspects": one.client is not None,
        "signs_in": one.login is not None,
        "scopes": [{"scope": scope, "globs": [*globs]} for scope, globs in one.scopes],
        "operators": {role.value: [*sorted(scopes)] for role, scopes in one.operators.items() if scopes},
        "audiences": {face: [*sorted(names)] for face, names in one.audiences.items()},
    }


async def _logins(bridge: Bridge) -> list[JsonObject]:
    """The logins at peers, and the peers that need a login and have none."""
    found: list[JsonObject] = []
    for title, login_config in _login_configs(bridge.plan):
        found += await _logins_at(title, login_config)
    return found


def _login_configs(plan: Plan) -> Iterator[tuple[str, LoginConfig]]:
    """The logins that peers need, with the names of the peers."""
    for key, server in plan.servers.items():
        login_config = server.target.oauth if isinstance(server.target, HttpTarget) else None
        if isinstance(login_config, LoginConfig):
            yield f"tool_servers.{key}", login_config
    remote: dict[str, Mapping[str, RemotePlan | CatalogPlan]] = {
        "agents": plan.agents,
        "catalogs": plan.catalogs,
    }
    for table, peers in remote.items():
        for key, peer in peers.items():
            if isinstance(peer.tokens, LoginToken | EachLogin):
                yield f"{table}.{key}", peer.tokens.login_config


async def _logins_at(peer: str, login_config: LoginConfig) -> list[JsonObject]:
    of: JsonObject = {"peer": peer, "of_each": login_config.of_each}
    try:
        kept = (await login_config.keeper.all()).logins
    except (BridgeError, OSError) as exc:
        return [
            {**of, "principal": "", "lost": f"the logins cannot be read: {exc}", "since": "", "scopes": []}
        ]
    here = [(key, one) for key, one in kept if key.peer == login_config.key.peer]
    if not here:
        lost = "" if login_config.of_each else f"nobody has logged in. {login_config.remedy}"
        return [{**of, "principal": "", "lost": lost, "since": "", "scopes": []}]
    return [
        {
            **of,
            "principal": key.principal,
            "lost": one.lost,
            "since": timestamp(int(one.since * 1000)),
            "scopes": [*one.scopes],
        }
        for key, one in here
    ]
