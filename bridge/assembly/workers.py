"""Plans for several workers of one machine: what they share, and their share of limits. Pure, but for `WorkerSharing`.

The limits of a file are meant for the whole bridge. Each worker gets its part of those that count something at one
moment: calls, streams, connections, bytes in memory. A tool server that one worker runs for all keeps its limits whole,
since all calls of it stand in the queue of that worker. Limits of a single thing (a message, a task), and those that
the store counts for all replicas, stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from bridge.assembly.parts import servers_of
from bridge.assembly.plan import STANDARD_OUTPUT, Plan, ServerPlan
from bridge.config.tables.profile import Profile
from bridge.errors import UsageError
from bridge.identity.callers.verifiers import Scheme
from bridge.mcp.client.shared.holder import HeldServers
from bridge.mcp.client.shared.server import Holders
from bridge.mcp.client.transports.stdio import StdioTarget
from bridge.translate.overrides import SkillOverride

_DIVIDED: Final[Mapping[str, tuple[str, ...]]] = {
    "requests": ("bodies_limit_bytes",),
    "connections": ("most", "new", "each"),
    "streams": ("open",),
    "store": ("connections", "waiting_limit_bytes"),
    "push": ("received_each_second",),
    "agents": ("unnamed_most", "push_tasks"),
}
"""Tables of a profile, and the limits in them that are divided."""


@dataclass(frozen=True)
class WorkerSharing:
    """What one worker of a supervisor shares with the others."""

    workers: int
    own_token: str
    """The secret with which the bridge calls agents that it publishes: any worker may get such a call."""
    own_scheme: Scheme | None
    """The scheme of that secret in the other workers; None while they ask for no credentials."""
    holders: Holders
    held: HeldServers


def require_workers_can_share(plan: Plan) -> None:
    """Refuse a plan that several workers cannot serve as one.

    Raises:
        UsageError: tasks would be in one worker alone, or handles would open in one alone, or their audits be mixed.
    """
    if plan.place.shared_store is None:
        raise UsageError(
            '--workers needs a store that the workers share: a PostgreSQL, as `store = { env = "DATABASE_URL" }` in'
            " [bridge]. Without one each worker would know other tasks"
        )
    if plan.place.replica is not None:
        raise UsageError(
            "--workers does not go with `replica_url` in [bridge]: it leads to any of the workers. Take it out; workers"
            " find each other by themselves"
        )
    if plan.place.audit is not None and plan.place.audit.file == STANDARD_OUTPUT:
        raise UsageError(
            '--workers needs a file for the audit, as `file = "audit.jsonl"` in [audit]: on one standard output the'
            " chains of the workers would be mixed"
        )
    if not plan.place.keys:
        raise UsageError(
            "--workers needs `keys` in [bridge], so that each worker opens the handles that another one has sealed:"
            ' for example keys = [{ env = "BRIDGE_KEY" }]'
        )


def for_workers(plan: Plan, workers: int, before: Plan | None = None) -> Plan:
    """The plan for each of these workers: its share of the limits, and the names of the servers that they share.

    `before` is the plan that they have. A server that it has too keeps its name.
    """
    return replace(
        plan,
        profile=_share_of(plan.profile, workers),
        servers=dict(_servers(plan, workers, before)),
        published={
            name: replace(
                one,
                profile=_share_of(one.profile, workers),
                overrides={pattern: _skill(skill, workers) for pattern, skill in one.overrides.items()},
            )
            for name, one in plan.published.items()
        },
        offered={
            name: replace(one, profile=_share_of(one.profile, workers)) for name, one in plan.offered.items()
        },
    )


def shared_servers(plan: Plan) -> tuple[str, ...]:
    """The names among workers of the servers that one worker runs for all."""
    named = (plan.servers[key].shared_as for key in servers_of(plan))
    return tuple(name for name in named if name is not None)


def shares_in_words(plan: Plan, workers: int) -> str:
    """What of the file's limits each worker has, for the start."""
    own = for_workers(plan, workers).profile
    return (
        f"{own.connections.most} connections, {own.streams.open} streams,"
        f" {own.requests.bodies_limit_bytes // 1_048_576} MiB of requests being read"
    )


def _servers(plan: Plan, workers: int, before: Plan | None) -> Iterator[tuple[str, ServerPlan]]:
    for key, one in plan.servers.items():
        if one.each_replica or not isinstance(one.target, StdioTarget):
            yield key, _divided(one, workers)
            continue
        last = None if before is None else before.servers.get(key)
        yield key, replace(one, shared_as=_name(key, one, last))


def _name(key: str, one: ServerPlan, last: ServerPlan | None) -> str:
    """The name of a server, which tells it apart from one that had this key before."""
    if last is None or last.shared_as is None:
        return f"{key}#1"
    number = int(last.shared_as.rpartition("#")[2])
    return last.shared_as if last == one else f"{key}#{number + 1}"


def _divided(one: ServerPlan, workers: int) -> ServerPlan:
    """A server of which each worker has its own sessions."""
    rules = replace(
        one.rules,
        shared=_part(one.rules.shared, workers),
        most=_part(one.rules.most, workers),
        queue=one.rules.queue // workers,
    )
    return replace(one, pace=replace(one.pace, concurrency=_part(one.pace.concurrency, workers)), rules=rules)


def _skill(one: SkillOverride, workers: int) -> SkillOverride:
    return one if one.concurrency is None else replace(one, concurrency=_part(one.concurrency, workers))


def _share_of(profile: Profile, workers: int) -> Profile:
    tables = {
        name: table.model_copy(update={key: _part(getattr(table, key), workers) for key in keys})
        for name, keys in _DIVIDED.items()
        for table in [getattr(profile, name)]
    }
    body_bytes = profile.requests.body_limit_bytes
    if tables["requests"].bodies_limit_bytes < body_bytes:
        tables["requests"] = tables["requests"].model_copy(update={"bodies_limit_bytes": body_bytes})
    return profile.model_copy(update=tables)


def _part(whole: int, workers: int) -> int:
    return max(whole // workers, 1)
