"""The audit of a bridge: its chain opened as the plan says, and what it tells of the bridge itself."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio.to_thread

from bridge.assembly.plan import STANDARD_OUTPUT, AuditPlan, Plan, ProcessPlan
from bridge.assembly.plan_digest import plan_bytes
from bridge.assembly.remote_agents import keys_of
from bridge.audit.file import AuditFile
from bridge.audit.journal import AuditJournal
from bridge.audit.recorder import AuditRecorder
from bridge.audit.stream import AuditStream
from bridge.replicas.proofs import ProofPurpose, Proofs
from bridge.telemetry.families import MetricFamily, MetricSample, gauge
from bridge.trace import IntentWriter
from bridge.version import __version__


class BridgeAudit:
    """The audit of one bridge."""

    def __init__(self, plan: AuditPlan, journal: AuditJournal, proofs: Proofs) -> None:
        self._journal = journal
        self._proofs = proofs
        self._is_serving = False
        named: Callable[[str], str] = self._hashed if plan.hashes_principals else str
        self.recorder = AuditRecorder(journal, named, plan.refused_each_minute)
        self.gate: IntentWriter | None = self.recorder if plan.required else None

    @property
    def fault(self) -> str | None:
        """Why no call is let through; None if nothing is in the way."""
        return None if self.gate is None else self._journal.fault

    @property
    def fault_of_disk(self) -> str | None:
        """Why no line can be written at the moment; None while they can."""
        return self._journal.fault

    @property
    def lost_lines(self) -> int:
        """How many lines could not be written."""
        return self._journal.lost_lines

    def families(self) -> list[MetricFamily]:
        """Whether lines can be written, and how many could not be, as metrics."""
        words = "Whether the lines of the audit can be written"
        name, what = "mcp_a2a_audit_lost_lines_total", "Lines of the audit that could not be written"
        lost = MetricSample(name, (), float(self._journal.lost_lines))
        return [
            gauge("mcp_a2a_audit_ok", words, [({}, float(self._journal.fault is None))]),
            MetricFamily(name, what, "counter", (lost,)),
        ]

    def serve(self, plan: Plan) -> None:
        """Tell that this plan is served from now on."""
        digest = self._digest(plan_bytes(plan))
        before, self.recorder.plan = self.recorder.plan, digest
        if not self._is_serving:
            self.recorder.note("serving")
        else:
            self.recorder.note("reload", outcome="taken", before=before)
        self._is_serving = True

    def refuse(self) -> None:
        """Tell that a changed configuration was refused, and the one before goes on."""
        self.recorder.note("reload", outcome="refused")

    def _hashed(self, principal: str) -> str:
        return f"hash:{self._digest(b'principal', principal.encode())}"

    def _digest(self, *parts: bytes) -> str:
        return self._proofs.proof(ProofPurpose.AUDIT, *parts).hex()[:32]


@asynccontextmanager
async def audit_of(place: ProcessPlan) -> AsyncIterator[BridgeAudit | None]:
    """Open the audit of a process, and begin its chain; None without one.

    Raises:
        UsageError: it cannot be opened.
        AuditAwayError: its first line cannot be written.
    """
    plan = place.audit
    if plan is None:
        yield None
        return
    to_stdout = plan.file == STANDARD_OUTPUT
    writer = AuditStream() if to_stdout else AuditFile(plan.file, plan.rotate_bytes)
    await anyio.to_thread.run_sync(writer.__enter__)
    journal = AuditJournal(writer)
    try:
        async with journal.running():
            audit = BridgeAudit(plan, journal, Proofs(keys_of(place)))
            await audit.recorder.begin(
                replica=place.replica.text if place.replica is not None else socket.gethostname(),
                pid=os.getpid(),
                version=__version__,
            )
            try:
                yield audit
            finally:
                audit.recorder.note("stop")
    finally:
        if not journal.is_stuck:  # its thread may write still, and the descriptor be another file's by then
            writer.__exit__(None, None, None)
