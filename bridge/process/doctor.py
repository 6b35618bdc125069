"""Checks everything that a configuration file needs, for `doctor`, without a running bridge.

The module connects to the peers and to the store as `check` does, and reads the store. It serves nobody, and changes
nothing; a bridge may run on the same file, in another process.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from typing import Final

import anyio.to_thread

from bridge.a2a.model.objects import TaskState
from bridge.a2a.tasks.rows import folded
from bridge.assembly.health.findings import (
    FAILURES_MOST,
    Grade,
    Health,
    HealthFinding,
    failure_of,
    machine_findings,
    peer_mend,
)
from bridge.assembly.health.running import login_findings, replica_finding
from bridge.assembly.other_replicas import ServedPlan
from bridge.assembly.plan import Plan, SharedStore
from bridge.assembly.plan_digest import plan_bytes
from bridge.assembly.stores import store_faults, store_for
from bridge.errors import StoreError, UsageError
from bridge.process.preview import Findings, findings_of, previewed
from bridge.process.serve import url_of
from bridge.replicas.proofs import ProofPurpose, Proofs
from bridge.seal import keys_in
from bridge.store.records import Query, StoredTask
from bridge.store.sqlite import SQLiteStore
from bridge.store.sqlite_reader import Reader

_CLOCK_SECONDS: Final = 5.0
"""The largest difference between the clocks of this machine and of the database that is not a finding."""

_AREAS: Final = (
    "packages",
    "store",
    "peers",
    "credentials",
    "certificates",
    "replicas",
    "audit",
    "disk",
    "clock",
)
"""The areas of findings, in the order of the report."""


async def health_of_file(plan: Plan, within_seconds: float) -> Health:
    """The health of the bridge that a file describes.

    Raises:
        UsageError: an existing key of handles cannot be used.
    """
    async with previewed(plan, within_seconds=within_seconds) as bridge:
        seen = await findings_of(plan, bridge)
    findings = [
        *await _stores(plan),
        *_peers(seen),
        *_places(seen),
        *await login_findings(plan),
        *await anyio.to_thread.run_sync(machine_findings, plan),
    ]
    failed: list[tuple[str, StoredTask]] = []
    if plan.place.shared_store is None:
        failed += await anyio.to_thread.run_sync(_failed_in_files, plan)
    elif all(finding.grade is not Grade.BAD for finding in findings if finding.area in ("packages", "store")):
        shared = await _in_database(plan, plan.place.shared_store)
        findings += shared[0]
        failed += shared[1]
    newest = sorted(failed, key=lambda named_task: named_task[1].head.status_ms, reverse=True)[:FAILURES_MOST]
    root = plan.place.public_url or url_of(plan.place.host, plan.place.port)
    rows = (failure_of(folded(task)[0], name, root, shows_reason=True) for name, task in newest)
    return Health(tuple(sorted(findings, key=lambda finding: _AREAS.index(finding.area))), tuple(rows))


async def _stores(plan: Plan) -> list[HealthFinding]:
    faults = await store_faults(plan)
    if plan.place.shared_store is not None:
        name = str(plan.place.shared_store)
        return [
            HealthFinding("store", name, Grade.BAD, words, "mcp-a2a store migrate --dry-run")
            for _, words in faults
        ] or [HealthFinding("store", name, Grade.GOOD, "can be used")]
    if faults:
        return [HealthFinding("store", ".".join(path), Grade.BAD, words) for path, words in faults]
    places = {
        name: store_for(name, published, plan.place, plan.profile)
        for name, published in plan.published.items()
    }
    return [HealthFinding("store", name, Grade.GOOD, place.where) for name, place in places.items()]


def _peers(seen: Findings) -> Iterator[HealthFinding]:
    for peer in seen.peers:
        if peer.down is None:
            yield HealthFinding("peers", peer.title, Grade.GOOD, peer.says or peer.where)
        else:
            needs_login = "mcp-a2a login" in peer.down
            mend = peer_mend(
                peer.kind,
                peer.key,
                peer.where,
                needs_login=needs_login,
                is_unauthorized=peer.is_unauthorized,
            )
            yield HealthFinding("peers", peer.title, Grade.BAD, peer.down, mend)


def _places(seen: Findings) -> Iterator[HealthFinding]:
    """The faults of packages and keys, as `check` reports them. The findings about the machine have the faults of
    certificates and audit."""
    for fault in seen.of_place:
        if "tls" not in fault.path and fault.path[0] != "audit":
            name = ".".join(map(str, fault.path))
            area = "packages" if fault.is_package else "credentials"
            yield HealthFinding(area, name, Grade.BAD, fault.words.removeprefix(f"{name}: "))


def _failed_in_files(plan: Plan) -> list[tuple[str, StoredTask]]:
    tasks: list[tuple[str, StoredTask]] = []
    for name, published in plan.published.items():
        try:
            store = store_for(name, published, plan.place, plan.profile).store
            if isinstance(store, SQLiteStore) and store.path.exists():
                with Reader(store.path) as reader:
                    tasks += [(name, task) for query in _queries() for task in reader.listing(query).tasks]
        except (UsageError, StoreError, sqlite3.Error):
            continue  # a fault of the store, reported there
    return tasks


def _queries() -> Iterator[Query]:
    for state in (TaskState.FAILED, TaskState.REJECTED):
        yield Query(owner=None, limit=FAILURES_MOST, state=state.value)


async def _in_database(
    plan: Plan, shared: SharedStore
) -> tuple[list[HealthFinding], list[tuple[str, StoredTask]]]:
    """The replicas, the clock and the failed tasks in a database that can be used."""
    from bridge.store.postgres.connections import (  # its driver is an optional extra
        DatabaseAddress,
        connected,
    )
    from bridge.store.postgres.reads import listing
    from bridge.store.postgres.registry_rows import entries_in
    from bridge.store.postgres.table_steps import Namespace
    from bridge.store.postgres.upgrade import NO_TABLES, version_of

    seconds = plan.profile.store.statement_seconds
    own = Proofs(keys_in(plan.place.keys)).proofs(ProofPurpose.PLAN, plan_bytes(plan))
    findings: list[HealthFinding] = []
    failed: list[tuple[str, StoredTask]] = []
    async with connected(DatabaseAddress.of(shared.url, None), seconds, str(shared)) as connection:
        before = time.time()
        answer = await connection.execute("SELECT extract(epoch FROM clock_timestamp())::float8")
        row = await answer.fetchone()
        assert row is not None
        findings.append(_clock(float(row[0]) - (before + time.time()) / 2))
        if await version_of(connection, Namespace.of_replicas()) != NO_TABLES:
            for epoch, entry in sorted((await entries_in(connection)).items()):
                served = ServedPlan.OTHER if own.isdisjoint(entry.plans) else ServedPlan.SAME
                served = served if entry.plans else ServedPlan.NONE
                findings.append(replica_finding(entry.address or f"epoch {epoch}", served))
        for name in plan.published:
            place = Namespace.of(name)
            if await version_of(connection, place) != NO_TABLES:
                for query in _queries():
                    failed += [(name, task) for task in (await listing(connection, place, query)).tasks]
    return findings, failed


def _clock(ahead_seconds: float) -> HealthFinding:
    words = f"the clock of the database is {abs(ahead_seconds):.1f} s {'ahead' if ahead_seconds > 0 else 'behind'}"
    is_near = abs(ahead_seconds) <= _CLOCK_SECONDS
    grade, mend = (Grade.GOOD, "") if is_near else (Grade.WARN, "timedatectl status")
    return HealthFinding("clock", "of the database", grade, words, mend)
