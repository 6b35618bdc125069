"""The other replicas of a bridge: the list of them, whether they serve the same plan, the sessions that all answer, and
the words that they tell each other.

A bridge whose tasks are in a PostgreSQL is one of several replicas, also if it serves MCP servers alone.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from enum import Enum
from functools import partial
from typing import Final
from uuid import UUID

from bridge.agents_as_tools.push_hints import PushHints
from bridge.assembly.ids import now_ms
from bridge.assembly.plan import Plan, SharedStore
from bridge.assembly.plan_digest import plan_bytes
from bridge.errors import StoreError, UsageError
from bridge.local.installation import adding_extra
from bridge.mcp.client.kept_listings import ServerIdentity
from bridge.mcp.server.shared_sessions import SessionSharing, address_proof
from bridge.replicas.passed_requests import PassedHeaders
from bridge.replicas.proofs import ProofPurpose, Proofs
from bridge.replicas.relay import ReplicaRelay
from bridge.seal import Seal, keys_in
from bridge.source_state import SourceState
from bridge.store.postgres.bounds import PostgresBounds
from bridge.store.registry import ReplicaEntry, ReplicaRegistry
from bridge.text.jsonvalues import JsonObject
from bridge.translate.extensions.availability import (
    OutageReport,
    UnavailablePeer,
    agreed_states,
    outages_in,
    unavailable_peers,
)

logger = logging.getLogger(__name__)

_PROOF_BYTES: Final = 32

_AWAY: Final = "the database cannot be used at the moment; the log says why"
"""All that a reader without a credential is told: the driver's words name hosts, ports and roles."""


class ServedPlan(Enum):
    """Which plan another replica serves, beside this one's."""

    SAME = "same"
    OTHER = "other"
    NONE = "none yet"


class ReplicaWords:
    """Short words that a part of a bridge tells the same part of each other replica. A word may be lost."""

    def __init__(self) -> None:
        self.pass_on: Callable[[str], None] = lambda _: None
        """Tells the others a word with its topic."""
        self._listeners: dict[str, Callable[[str], None]] = {}

    def listen(self, topic: str, take: Callable[[str], None]) -> None:
        """Call `take` with each word of this topic that another replica tells. A topic and a word have no `=`."""
        self._listeners[topic] = take

    def send(self, topic: str, word: str) -> None:
        """Tell the other replicas a word."""
        self.pass_on(f"{topic}={word}" if topic else word)

    def take(self, line: str) -> None:
        """Take what another replica has told. A topic that nobody listens to is ignored."""
        topic, _, word = line.rpartition("=")
        if topic in self._listeners:
            self._listeners[topic](word)


class BridgeReplicas:
    """The replicas of a bridge, as one of them sees them."""

    def __init__(self, registry: ReplicaRegistry, sharing: SessionSharing, *, is_reachable: bool) -> None:
        self.sharing = sharing
        self._registry = registry
        self._is_reachable = is_reachable
        self._has_warned = False
        self._outages = OutageReport()
        self._own: frozenset[bytes] = frozenset()
        self._seen: dict[int, ServedPlan] = {}
        registry.on_change = self._compare

    def share(
        self, hints: PushHints, states: Callable[[], Iterable[SourceState]], words: ReplicaWords
    ) -> None:
        """Have the notifications of agents wake those who wait at any replica, have the parts of all replicas hear each
        other, and tell the others which tool servers cannot be called here."""
        words.pass_on, self._registry.on_hint = self._registry.hint, words.take
        words.listen("", hints.take_word)
        hints.pass_on = partial(words.send, "")
        self._registry.outages = lambda: self._outages.text(states(), self._now_ms() - now_ms())

    async def recall(self, identity: ServerIdentity) -> bytes | None:
        """See `ListingMemory`. What none of our replicas has kept is not read."""
        proofs = self.sharing.proofs
        try:
            stored = await self._registry.recall(proofs.proofs(ProofPurpose.LISTING, identity.whole))
        except StoreError as exc:
            logger.warning("cannot read the saved tool list of %s: %s", identity.server, exc)
            return None
        if stored is None:
            return None
        name, (proof, listing) = stored[0], (stored[1][:_PROOF_BYTES], stored[1][_PROOF_BYTES:])
        return listing if proofs.holds(proof, ProofPurpose.LISTING, name, listing) else None

    def remember(self, identity: ServerIdentity, listing: bytes) -> None:
        """See `ListingMemory`."""
        proofs = self.sharing.proofs
        name = proofs.proof(ProofPurpose.LISTING, identity.whole)
        self._registry.remember(name, proofs.proof(ProofPurpose.LISTING, name, listing) + listing)

    def _now_ms(self) -> int:
        return round(self._registry.now_seconds() * 1000)

    def find_unavailable(
        self, states: Iterable[SourceState], after_seconds: float
    ) -> tuple[UnavailablePeer, ...]:
        """The tool servers that no replica of this plan can call, for so long by the clock that they share.

        All of them judge by the same rows, so that their cards are the same, a beat after one of them saw a change.
        """
        entries = [self._registry.own, *self._registry.others.values()]
        reports = [
            entry.outages
            for entry in entries
            if entry is not None and entry.outages is not None and self._plan_of(entry) is ServedPlan.SAME
        ]
        return unavailable_peers(agreed_states(states, reports), self._now_ms(), after_seconds)

    def serve(self, plan: Plan) -> None:
        """Tell the others that this plan is served from now on."""
        self._own = self.sharing.proofs.proofs(ProofPurpose.PLAN, plan_bytes(plan))
        self._registry.publish(self._own)
        self._compare()
        if plan.offered and not self._is_reachable and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "[bridge] has no `replica_url`, so the other replicas cannot pass requests for MCP sessions of"
                " 2025-11-25 on to this one: write one, or let the balancer send each Mcp-Session-Id to the replica"
                " that gave it"
            )

    @property
    def report(self) -> JsonObject:
        """What `/readyz` shows of them."""
        others: JsonObject = {
            str(epoch): {"plan": self._plan_of(entry).value, **_unavailable_in(entry)}
            for epoch, entry in sorted(self._registry.others.items())
        }
        why: JsonObject = {"why": _AWAY} if self._registry.failure else {}
        return {"own": self._registry.epoch, "others": others, **why}

    @property
    def others(self) -> list[tuple[str, ServedPlan]]:
        """The other replicas that live: where each is reached, or its epoch, and which plan it serves."""
        return [
            (entry.address or f"epoch {epoch}", self._plan_of(entry))
            for epoch, entry in sorted(self._registry.others.items())
        ]

    def _compare(self) -> None:
        """Log each replica that began to serve another plan, or the same one again."""
        if not self._own:
            return
        before = self._seen
        self._seen = {epoch: self._plan_of(entry) for epoch, entry in self._registry.others.items()}
        for epoch, served in self._seen.items():
            was = before.get(epoch, ServedPlan.NONE)
            if served is ServedPlan.OTHER and was is not served:
                logger.warning(
                    "replica %d serves another configuration, or has none of our `keys`: clients see different things"
                    " until both are the same",
                    epoch,
                )
            elif served is ServedPlan.SAME and was is ServedPlan.OTHER:
                logger.info("replica %d serves the same configuration again", epoch)

    def _plan_of(self, entry: ReplicaEntry) -> ServedPlan:
        if not entry.plans:
            return ServedPlan.NONE
        return ServedPlan.OTHER if self._own.isdisjoint(entry.plans) else ServedPlan.SAME


def _unavailable_in(entry: ReplicaEntry) -> JsonObject:
    """The tool servers that a replica says it cannot call, with their states."""
    states = outages_in(entry.outages or b"{}")
    return {"unavailable": {key: state.state.value for key, state in states.items()}} if states else {}


@asynccontextmanager
async def replicas_of(plan: Plan, seal: Seal) -> AsyncIterator[BridgeReplicas | None]:
    """List this process among the replicas while the context is open; None for a bridge that is alone.

    Raises:
        UsageError: the database cannot be reached, or its tables are of a newer release.
    """
    place = plan.place
    if place.shared_store is None:
        yield None
        return
    proofs, bounds = Proofs(keys_in(place.keys)), PostgresBounds.of(plan.profile.store)
    relay = ReplicaRelay(bounds.lease.silence_seconds)
    address = place.replica.text if place.replica else None

    def entry_of(epoch: int, start: UUID) -> ReplicaEntry:
        proof = address_proof(proofs, epoch, start, address) if address else b""
        return ReplicaEntry(address, proof, start)

    try:
        async with _registry_in(place.shared_store, bounds, entry_of) as registry:
            sharing = SessionSharing(registry, seal, proofs, PassedHeaders(proofs), relay)
            yield BridgeReplicas(registry, sharing, is_reachable=address is not None)
    finally:
        await relay.close()


def _registry_in(
    store: SharedStore, bounds: PostgresBounds, entry_of: Callable[[int, UUID], ReplicaEntry]
) -> ReplicaRegistry:
    require_driver()
    from bridge.store.postgres.registry_rows import PostgresRegistry  # its driver is an optional extra

    return PostgresRegistry(store.url, bounds, entry_of, direct_url=store.direct_url, sight=store.sight)


def require_driver() -> None:
    """Require the driver of PostgreSQL, which is an optional extra.

    Raises:
        UsageError: it is not installed.
    """
    try:
        import psycopg  # noqa: F401
    except ImportError as exc:
        message = f"a store in PostgreSQL takes psycopg ({exc}): {adding_extra('postgres')}"
        raise UsageError(message) from exc
