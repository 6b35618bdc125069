"""Compares two plans and names the differences as the file does: changes taken over, and changes that need a restart.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from bridge.access.verifiers import Credential
from bridge.assembly.plan import Plan

_PROCESS_KEYS: Final = {
    "host": "host",
    "port": "port",
    "public_url": "public_url",
    "hosts": "hosts",
    "baggage": "baggage_keys",
    "keys": "keys",
}
"""Keys of `[bridge]` that only a restart changes, and their attributes in a `ProcessPlan`."""

_PROCESS_TABLES: Final = ("store", "requests", "connections", "streams")
"""Tables of the profile of `[bridge]` that only a restart changes."""


@dataclass(frozen=True)
class Changes:
    """The keys of the file that differ."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    later: tuple[str, ...] = ()
    """Settings that need a restart."""

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed or self.later)

    def __str__(self) -> str:
        """One line for the log."""
        verbs = {"added": self.added, "changed": self.changed, "removed": self.removed}
        now = "; ".join(f"{verb} {', '.join(keys)}" for verb, keys in verbs.items() if keys)
        taken = f"the configuration was read again and taken over: {now}" if now else ""
        wait = f"a restart is needed for {', '.join(self.later)}" if self.later else ""
        return (
            "; ".join(filter(None, [taken, wait])) or "the configuration was read again: nothing has changed"
        )


def changes_between(before: Plan, after: Plan, running: Plan) -> Changes:
    """Compare a plan with the one read before. `running` has the place, profile and stores of the running process."""
    tables = list(zip(_tables(before).items(), _tables(after).values(), strict=True))
    return Changes(
        tuple(f"{table}.{name}" for (table, old), new in tables for name in new if name not in old),
        (
            *(
                f"{table}.{name}"
                for (table, old), new in tables
                for name in old
                if old[name] != new.get(name, old[name])
            ),
            *(
                ["bridge.allow_unauthenticated"]
                if before.allow_unauthenticated != after.allow_unauthenticated
                else []
            ),
        ),
        tuple(f"{table}.{name}" for (table, old), new in tables for name in old if name not in new),
        tuple(_later(before, after, running)),
    )


def as_it_runs(plan: Plan, running: Plan) -> Plan:
    """The plan, with the running settings where a change needs a restart."""
    published = {
        name: replace(one, store=running.published[name].store) if name in running.published else one
        for name, one in plan.published.items()
    }
    return replace(plan, place=running.place, published=published)


def _tables(plan: Plan) -> Mapping[str, Mapping[str, Any]]:
    return {
        "tool_servers": plan.servers,
        "agents": plan.agents,
        "catalogs": plan.catalogs,
        "tools_as_agent": {name: replace(one, store=None) for name, one in plan.published.items()},
        "agents_as_tools": plan.offered,
        "principals": _by_principal(plan.credentials),
    }


def _by_principal(credentials: Sequence[Credential]) -> dict[str, list[Credential]]:
    names = dict.fromkeys(one.principal.name for one in credentials)
    return {name: [one for one in credentials if one.principal.name == name] for name in names}


def _later(before: Plan, after: Plan, running: Plan) -> Iterator[str]:
    """Yield the settings that differ both from the last plan and from the running one."""
    for key, name in _PROCESS_KEYS.items():
        now = getattr(after.place, name)
        known = (getattr(before.place, name), getattr(running.place, name))
        if now not in known and not _is_any_port(key, now):
            yield f"bridge.{key}"
    for table in _PROCESS_TABLES:
        now = getattr(after.profile, table)
        if now not in (getattr(before.profile, table), getattr(running.profile, table)):
            yield f"[{table}] in the mapping profile of [bridge]"
    for name, one in after.published.items():
        stores = {plan.published[name].store for plan in (before, running) if name in plan.published}
        if stores and one.store not in stores:
            yield f"the store of tools_as_agent.{name}"


def _is_any_port(key: str, value: object) -> bool:
    return key == "port" and value == 0
