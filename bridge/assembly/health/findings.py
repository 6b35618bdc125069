"""The findings about a plan and this machine, without a running bridge: certificates, credentials, audit, disk, clock.

The module reads files, and waits for no peer. No finding shows a secret.
"""

from __future__ import annotations

import base64
import json
import math
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Final

from bridge.a2a.model.objects import Task, timestamp
from bridge.assembly.plan import STANDARD_OUTPUT, Plan, SharedStore
from bridge.audit.verification import END_BYTES, verified_end
from bridge.config.tables.values import MEMORY_STORE
from bridge.errors import counted
from bridge.http.tls import certificate_end, faults_of, peer_faults_of
from bridge.identity.callers.verifiers import Scheme
from bridge.local.private_files import require_writable
from bridge.local.user_folders import state_folder
from bridge.mcp.client.transports.streamable_http import HttpTarget
from bridge.text.jsonvalues import JsonObject
from bridge.text.safe_text import shell_word

FAILURES_MOST: Final = 10
"""The most failed tasks that are reported, the newest first."""

_SOON_DAYS: Final = 21
"""The days before its end from which a certificate or token is reported."""
_DAY_SECONDS: Final = 86_400
_FULL_BYTES: Final = 64 * 1024 * 1024
"""Free space with which a store may stop taking writes at any moment: a log of SQLite and a task of some size."""
_LOW_BYTES: Final = 1024 * 1024 * 1024
_AHEAD_SECONDS: Final = 60.0
"""How far in the future a file may have been written, before the clock is taken for wrong."""
_LAST_DAY: Final = datetime(9999, 12, 31, tzinfo=UTC).timestamp()
"""The last day that can be written. Some tokens end later: their end is in milliseconds, or means never."""
_REASON_CHARACTERS: Final = 300


class Grade(StrEnum):
    """How good or bad a finding is."""

    GOOD = "good"
    WARN = "warn"
    """It works, and will not for long, or not all of it."""
    BAD = "bad"


@dataclass(frozen=True)
class HealthFinding:
    """One thing that was looked at."""

    area: str
    """`packages`, `store`, `peers`, `credentials`, `certificates`, `replicas`, `audit`, `disk` or `clock`."""
    name: str
    grade: Grade
    words: str
    mend: str = ""
    """The command that mends it; "" if there is none, or nothing to mend."""

    def to_object(self) -> JsonObject:
        """As JSON."""
        return {
            "area": self.area,
            "name": self.name,
            "grade": self.grade.value,
            "words": self.words,
            "mend": self.mend,
        }


@dataclass(frozen=True)
class Health:
    """All findings about one bridge, and its last failures."""

    findings: tuple[HealthFinding, ...]
    failures: tuple[JsonObject, ...] = ()

    @property
    def is_well(self) -> bool:
        """Whether nothing is broken."""
        return all(finding.grade is not Grade.BAD for finding in self.findings)

    def to_object(self) -> JsonObject:
        """As JSON."""
        return {
            "ok": self.is_well,
            "findings": [finding.to_object() for finding in self.findings],
            "failures": [*self.failures],
        }


def machine_findings(plan: Plan, now: datetime | None = None) -> list[HealthFinding]:
    """All findings about the plan and this machine."""
    now = now or datetime.now(UTC)
    return [
        *_certificates(plan, now),
        *_tokens_of_peers(plan, now.timestamp()),
        *_rotations(plan),
        *_audit(plan),
        *_disks(plan),
        *_clock(plan, now.timestamp()),
    ]


def peer_mend(kind: str, name: str, where: str, *, needs_login: bool, is_unauthorized: bool = False) -> str:
    """The command that mends a peer that cannot be called, or shows what it says: `kind` is its table in the file, and
    `where` its command or its URL."""
    if needs_login:
        return f"mcp-a2a login {shell_word(name)}"
    if is_unauthorized:
        return f"put valid credentials into [{kind}.{name}]; a running bridge applies the change"
    if kind == "tool_servers":
        return f"curl -si {where}" if where.startswith(("http://", "https://")) else where
    return f"mcp-a2a card {shell_word(where)}"


def failure_of(task: Task, agent: str, base_url: str, *, shows_reason: bool) -> JsonObject:
    """A failed task as a report shows it. `base_url` is the address of the bridge, for the command that
    shows all of the task."""
    reason = ""
    if shows_reason and task.status.message is not None:
        reason = " ".join(part.text for part in task.status.message.parts if part.text)
    return {
        "at": task.status.timestamp or timestamp(0),
        "agent": agent,
        "task": task.id,
        "state": task.status.state.word,
        "reason": reason if len(reason) <= _REASON_CHARACTERS else f"{reason[:_REASON_CHARACTERS]}...",
        "is_withheld": not shows_reason,
        "mend": f"mcp-a2a tasks {base_url}/agents/{agent} {task.id}",
    }


def ends(area: str, name: str, end: float, now: float, mend: str) -> HealthFinding:
    """The finding about a token or certificate that is valid until `end`, in seconds since the epoch."""
    end = min(max(end, 0.0), _LAST_DAY)
    day = f"{datetime.fromtimestamp(end, UTC):%Y-%m-%d %H:%M} UTC"
    left = end - now
    if left <= 0:
        return HealthFinding(area, name, Grade.BAD, f"expired on {day}", mend)
    days = int(left // _DAY_SECONDS)
    grade = Grade.WARN if days < _SOON_DAYS else Grade.GOOD
    how_long = f"{days} days" if days != 1 else "1 day"
    return HealthFinding(
        area, name, grade, f"ends on {day}, in {how_long}", mend if grade is Grade.WARN else ""
    )


def _certificates(plan: Plan, now: datetime) -> Iterator[HealthFinding]:
    certificates = (
        [("bridge.tls", plan.place.tls.certificate, faults_of(plan.place.tls, now))] if plan.place.tls else []
    )
    for path, tls in plan.tls_of_peers():
        if tls.certificate is not None:
            certificates.append((".".join((*path, "tls")), tls.certificate, peer_faults_of(tls, now)))
    for name, file, faults in certificates:
        words = [words for _, words in faults]
        renew = f"replace {file} with the renewed certificate; no restart is needed"
        if words:
            yield HealthFinding("certificates", name, Grade.BAD, "; ".join(words), renew)
        elif (end := certificate_end(file)) is not None:
            yield ends("certificates", name, end.timestamp(), now.timestamp(), renew)


def _tokens_of_peers(plan: Plan, now: float) -> Iterator[HealthFinding]:
    """The fixed tokens for peers that say when they end."""
    tokens = {f"agents.{name}": remote.bearer or "" for name, remote in plan.agents.items()}
    for name, server in plan.servers.items():
        if isinstance(server.target, HttpTarget):
            headers = {key.lower(): value for key, value in server.target.headers.items()}
            tokens[f"tool_servers.{name}"] = headers.get("authorization", "").removeprefix("Bearer ")
    for name, catalog in plan.catalogs.items():
        headers = {key.lower(): value for key, value in catalog.headers.items()}
        tokens[f"catalogs.{name}"] = headers.get("authorization", "").removeprefix("Bearer ")
    for title, token in tokens.items():
        if (end := _end_in(token)) is not None:
            mend = "replace it with the new token; a running bridge applies a changed file"
            yield ends("credentials", title, end, now, mend)


def _end_in(token: str) -> float | None:
    """When a JSON Web Token ends, as it says itself (RFC 7519 section 4.1.4); None for any other token."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        end = claims.get("exp") if isinstance(claims, dict) else None
        return float(end) if isinstance(end, int | float) and math.isfinite(end) else None
    except (ValueError, RecursionError, OverflowError):
        return None


def _rotations(plan: Plan) -> Iterator[HealthFinding]:
    """The people who have two tokens: the older token should go."""
    tokens = Counter(
        credential.principal.name for credential in plan.credentials if credential.scheme is Scheme.BEARER
    )
    for name, number in tokens.items():
        if number > 1:
            words = "has two tokens: the older token is still accepted"
            mend = f"mcp-a2a people rotate {shell_word(name)} --finish"
            yield HealthFinding("credentials", f"principals.{name}", Grade.WARN, words, mend)


def _audit(plan: Plan) -> Iterator[HealthFinding]:
    audit = plan.place.audit
    if audit is None or audit.file == STANDARD_OUTPUT:
        return
    try:
        require_writable(audit.file)
    except OSError as exc:
        mend = f"ls -ld {exc.filename or audit.file}"
        yield HealthFinding("audit", str(audit.file), Grade.BAD, f"cannot be written: {exc}", mend)
        return
    yield _chain_of(audit.file)


def _chain_of(file: Path) -> HealthFinding:
    """Whether the end of an audit is whole: all of it may be gigabytes."""
    mend = f"mcp-a2a audit verify {file}*"
    not_begun = HealthFinding("audit", str(file), Grade.GOOD, "has no lines yet")
    try:
        size = file.stat().st_size
        if not size:
            return not_begun
        end = verified_end(file)
    except FileNotFoundError:
        return not_begun
    except OSError as exc:
        return HealthFinding("audit", str(file), Grade.BAD, f"cannot be read: {exc}", f"ls -ld {file}")
    if end.faults:
        more = f", and {counted(len(end.faults) - 1, 'more fault')}" if len(end.faults) > 1 else ""
        return HealthFinding("audit", str(file), Grade.BAD, f"is not whole: {end.faults[0]}{more}", mend)
    if size > END_BYTES:
        words = f"its last {counted(end.lines, 'line')} are whole, of {counted(size, 'byte')} in all"
        return HealthFinding("audit", str(file), Grade.GOOD, f"{words}; {mend} reads all of them")
    return HealthFinding("audit", str(file), Grade.GOOD, f"is whole: {counted(end.lines, 'line')}")


def _disks(plan: Plan) -> Iterator[HealthFinding]:
    """The free space of each file system that the bridge writes to."""
    place, disks = plan.place, dict[int, tuple[Path, list[str]]]()
    state = place.state or state_folder()
    wanted = {"state": state}
    if place.audit is not None and place.audit.file != STANDARD_OUTPUT:
        wanted["audit"] = place.audit.file.parent
    for name, published in plan.published.items():
        if not isinstance(published.store, SharedStore) and published.store != MEMORY_STORE:
            wanted[f"store of {name}"] = Path(published.store).parent if published.store else state
    for what, folder in wanted.items():
        there = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.exists())
        disks.setdefault(there.stat().st_dev, (there, []))[1].append(what)
    for folder, whats in disks.values():
        yield _disk(folder, ", ".join(whats))


def _disk(folder: Path, what: str) -> HealthFinding:
    usage = shutil.disk_usage(folder)
    grade = Grade.BAD if usage.free < _FULL_BYTES else Grade.WARN if usage.free < _LOW_BYTES else Grade.GOOD
    words = f"{usage.free // 1024**2:,} MiB free of {usage.total // 1024**2:,} ({what})"
    mend = "" if grade is Grade.GOOD else f"du -xsh {folder}/* | sort -h"
    return HealthFinding("disk", str(folder), grade, words, mend)


def _clock(plan: Plan, now: float) -> Iterator[HealthFinding]:
    """Whether a file of the bridge was written in the future: then this clock was set back, and tokens seem to live
    too long."""
    state = plan.place.state or state_folder()
    ahead = 0.0
    for file in state.iterdir() if state.is_dir() else ():
        with suppress(OSError):  # a running bridge makes and removes files
            ahead = max(ahead, file.stat().st_mtime - now if file.is_file() else 0.0)
    words = f"{datetime.fromtimestamp(now, UTC):%Y-%m-%d %H:%M:%S} UTC"
    if ahead > _AHEAD_SECONDS:
        words += f", and a file in {state} was written {ahead:,.0f} s later than that"
        yield HealthFinding("clock", time.tzname[0], Grade.WARN, words, "timedatectl status")
    else:
        yield HealthFinding("clock", time.tzname[0], Grade.GOOD, words)
