"""The findings of a running bridge about itself: its stores, peers, logins, replicas and audit."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

import anyio.to_thread

from bridge.a2a.client.http import redacted_url
from bridge.a2a.model.objects import ListTasksRequest, Task, TaskState
from bridge.a2a.model.operations import LIST_TASKS
from bridge.a2a.model.operators import OWNER
from bridge.a2a.tasks.callers import CallContext
from bridge.assembly.audit import BridgeAudit
from bridge.assembly.health.findings import (
    FAILURES_MOST,
    Grade,
    HealthFinding,
    ends,
    failure_of,
    machine_findings,
    peer_mend,
)
from bridge.assembly.other_replicas import BridgeReplicas, ServedPlan
from bridge.assembly.parts import Parts
from bridge.assembly.plan import Plan
from bridge.assembly.published_agent import PublishedAgent
from bridge.assembly.stores import logins_of
from bridge.errors import BridgeError
from bridge.identity.callers.principals import Principal
from bridge.identity.logins.login_credentials import LoginConfig
from bridge.pinned.guard import DefinitionState
from bridge.source_state import SourceState
from bridge.text.jsonvalues import JsonObject
from bridge.text.safe_text import shell_word


async def health_of(
    plan: Plan,
    parts: Parts,
    replicas: BridgeReplicas | None,
    audit: BridgeAudit | None,
    definitions: Iterable[DefinitionState] = (),
) -> list[HealthFinding]:
    """All findings about a bridge and its machine, in the order of the areas."""
    return [
        *_stores(parts),
        *_peers(parts),
        *definition_findings(definitions),
        *await login_findings(plan),
        *_replicas(plan, replicas),
        *_audit(plan, audit),
        *await anyio.to_thread.run_sync(machine_findings, plan),
    ]


async def failures_of(
    agents: Iterable[PublishedAgent], asker: Principal, base_url: str, *, sees_contents: bool
) -> list[JsonObject]:
    """The newest failed tasks that `asker` may see. `sees_contents` says that an operator sees the reasons of others.

    Raises:
        StoreAwayError: a store cannot be reached.
    """
    rows = [
        failure_of(
            task,
            agent.name,
            base_url,
            shows_reason=sees_contents or (task.metadata or {}).get(OWNER, asker.name) == asker.name,
        )
        for agent in agents
        for task in await _failed(agent, asker, sees_contents=sees_contents)
    ]
    return sorted(rows, key=lambda row: str(row["at"]), reverse=True)[:FAILURES_MOST]


async def _failed(agent: PublishedAgent, asker: Principal, *, sees_contents: bool) -> list[Task]:
    caller = CallContext(asker.in_face(agent.name), agent.agent.extensions)
    tasks: list[Task] = []
    for state in (TaskState.FAILED, TaskState.REJECTED):
        request = ListTasksRequest(status=state, page_size=FAILURES_MOST, history_length=0)
        answer = await agent.service.perform(
            LIST_TASKS, request, caller.as_operator(sees_contents=sees_contents)
        )
        answer.written()
        tasks += answer.value.tasks
    return tasks


def _stores(parts: Parts) -> Iterator[HealthFinding]:
    for published in parts.agents:
        if published.engine.ready:
            yield HealthFinding("store", published.name, Grade.GOOD, published.store)
        else:
            words = f"takes no writes: {published.engine.store_failure or 'the bridge is stopping'} ({published.store})"
            yield HealthFinding("store", published.name, Grade.BAD, words, "mcp-a2a check")


def _peers(parts: Parts) -> Iterator[HealthFinding]:
    where = {("tool_servers", key): str(upstream.target) for key, upstream in parts.upstreams.items()}
    states: dict[tuple[str, str], SourceState] = {}
    for published in parts.agents:
        kind = "tool_servers" if published.tools else "agents"
        states |= {(kind, state.key): state for state in published.agent.sources}
        where |= {("agents", agent.key): redacted_url(agent.url) for agent in published.remote_agents}
    for offered in (face.offered for face in parts.faces):
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


def definition_findings(states: Iterable[DefinitionState]) -> Iterator[HealthFinding]:
    """What servers and agents show that is not as in the lock."""
    for state in states:
        if words := state.words():
            grade = (
                Grade.BAD
                if state.held_back or (state.mode == "refuse" and not state.is_locked)
                else Grade.WARN
            )
            yield HealthFinding("peers", state.title, grade, words, "mcp-a2a pin")


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
            "credentials", login_config.table, Grade.BAD, f"the logins cannot be read: {exc}", mend
        )
    if not logins:
        return HealthFinding("credentials", login_config.table, Grade.BAD, "nobody has logged in", mend)
    login = logins[0]
    if login.lost:
        return HealthFinding("credentials", login_config.table, Grade.BAD, login.lost, mend)
    if login.refresh_token is None and login.expires_at is not None:
        return ends("credentials", login_config.table, login.expires_at, time.time(), mend)
    return HealthFinding("credentials", login_config.table, Grade.GOOD, "a login, which is renewed by itself")


def _replicas(plan: Plan, replicas: BridgeReplicas | None) -> Iterator[HealthFinding]:
    if replicas is None:
        return
    own = plan.place.replica
    yield HealthFinding("replicas", own.text if own else "this one", Grade.GOOD, "this one")
    for address, served in replicas.others:
        yield replica_finding(address, served)


def replica_finding(address: str, served: ServedPlan) -> HealthFinding:
    """The finding about another replica."""
    if served is ServedPlan.OTHER:
        words = "serves another configuration, or has none of our `keys`"
        return HealthFinding("replicas", address, Grade.WARN, words, "mcp-a2a show, on both machines")
    words = "serves the same configuration" if served is ServedPlan.SAME else "is starting"
    return HealthFinding("replicas", address, Grade.GOOD, words)


def _audit(plan: Plan, audit: BridgeAudit | None) -> Iterator[HealthFinding]:
    place = plan.place.audit
    if audit is not None and place is not None and (audit.fault_of_disk or audit.lost_lines):
        words = (
            audit.fault_of_disk or f"{audit.lost_lines} lines could not be written, and a line counts them"
        )
        grade = Grade.BAD if audit.fault_of_disk else Grade.WARN
        yield HealthFinding(
            "audit", str(place.file), grade, words, f"mcp-a2a audit verify {shell_word(str(place.file))}*"
        )
