"""The findings of a running bridge about itself: its stores, peers, logins, replicas and audit."""

from __future__ import annotations

import time
from collections.abc import Iterator

import anyio.to_thread

from bridge.a2a.client.http import redacted_url
from bridge.assembly.bridge import Bridge
from bridge.assembly.health.findings import Grade, HealthFinding, ends, machine_findings, peer_mend
from bridge.assembly.other_replicas import ServedPlan
from bridge.assembly.plan import Plan
from bridge.assembly.stores import logins_of
from bridge.errors import BridgeError
from bridge.identity.logins.login_credentials import LoginConfig
from bridge.text.safe_text import shell_word


async def health_of(bridge: Bridge) -> list[HealthFinding]:
    """All findings about a bridge and its machine, in the order of the areas."""
    return [
        *_stores(bridge),
        *_peers(bridge),
        *await login_findings(bridge.plan),
        *_replicas(bridge),
        *_audit(bridge),
        *await anyio.to_thread.run_sync(machine_findings, bridge.plan),
    ]


def _stores(bridge: Bridge) -> Iterator[HealthFinding]:
    for published in bridge.published:
        if published.engine.ready:
            yield HealthFinding("store", published.name, Grade.GOOD, published.store)
        else:
            words = f"takes no writes: {published.engine.store_failure or 'the bridge is stopping'} ({published.store})"
            yield HealthFinding("store", published.name, Grade.BAD, words, "mcp-a2a check")


def _peers(bridge: Bridge) -> Iterator[HealthFinding]:
    where = {("tool_servers", key): str(upstream.target) for key, upstream in bridge.upstreams.items()}
    states = {
        ("tool_servers", state.key): state
        for published in bridge.published
        for state in published.agent.sources
    }
    for offered in bridge.offered:
        where |= {("agents", agent.key): redacted_url(agent.url) for agent in offered.remote_agents}
        states |= {("agents", state.key): state for state in offered.face.sources}
    for (kind, key), state in states.items():
        place = where.get((kind, key), "")
        name = f"{kind}.{key}" if key else place
        if state.down is None:
            yield HealthFinding("peers", name, Grade.GOOD, "is up")
        else:
            mend = peer_mend(
                kind, key, place, needs_login=state.needs_login, is_unauthorized=state.is_unauthorized
            )
            yield HealthFinding("peers", name, Grade.BAD, state.down, mend)


async def login_findings(plan: Plan) -> list[HealthFinding]:
    """The logins of the operator at peers, and the ends of the tokens that nothing renews."""
    return [await _login(login_config) for login_config in logins_of(plan) if not login_config.of_each]


async def _login(login_config: LoginConfig) -> HealthFinding:
    mend = f"mcp-a2a login {shell_word(login_config.name)}"
    try:
        logins = [
            login
            for key, login in (await login_config.keeper.all()).logins
            if key.peer == login_config.key.peer
        ]
    except (BridgeError, OSError) as exc:
        return HealthFinding(
            "credentials", login_config.place, Grade.BAD, f"the logins cannot be read: {exc}", mend
        )
    if not logins:
        return HealthFinding("credentials", login_config.place, Grade.BAD, "nobody has logged in", mend)
    login = logins[0]
    if login.lost:
        return HealthFinding("credentials", login_config.place, Grade.BAD, login.lost, mend)
    if login.refresh_token is None and login.expires_at is not None:
        return ends("credentials", login_config.place, login.expires_at, time.time(), mend)
    return HealthFinding("credentials", login_config.place, Grade.GOOD, "a login, which is renewed by itself")


def _replicas(bridge: Bridge) -> Iterator[HealthFinding]:
    if bridge.replicas is None:
        return
    own = bridge.plan.place.replica
    yield HealthFinding("replicas", own.text if own else "this one", Grade.GOOD, "this one")
    for address, served in bridge.replicas.others:
        yield replica_finding(address, served)


def replica_finding(address: str, served: ServedPlan) -> HealthFinding:
    """The finding about another replica."""
    if served is ServedPlan.OTHER:
        words = "serves another configuration, or has none of our `keys`"
        return HealthFinding("replicas", address, Grade.WARN, words, "mcp-a2a show, on both machines")
    words = "serves the same configuration" if served is ServedPlan.SAME else "is starting"
    return HealthFinding("replicas", address, Grade.GOOD, words)


def _audit(bridge: Bridge) -> Iterator[HealthFinding]:
    audit, plan = bridge.telemetry.audit, bridge.plan.place.audit
    if audit is not None and plan is not None and (audit.fault_of_disk or audit.lost_lines):
        words = (
            audit.fault_of_disk or f"{audit.lost_lines} lines could not be written, and a line counts them"
        )
        grade = Grade.BAD if audit.fault_of_disk else Grade.WARN
        yield HealthFinding(
            "audit", str(plan.file), grade, words, f"mcp-a2a audit verify {shell_word(str(plan.file))}*"
        )
