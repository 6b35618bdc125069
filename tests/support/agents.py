"""Agents for tests of the engine: each does with its job what the test tells it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from bridge.a2a.client.agent_card import FoundCard
from bridge.a2a.model.life import IdsAndClock
from bridge.a2a.model.objects import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    Artifact,
    Part,
    SendMessageRequest,
    TaskState,
)
from bridge.a2a.server.app import AgentLimits, AgentServer
from bridge.a2a.server.service import AgentService
from bridge.a2a.tasks.agent import Job, PlannedWork, Turn, WorkName, WorkSession
from bridge.a2a.tasks.callers import CallContext
from bridge.a2a.tasks.engine import Engine
from bridge.a2a.tasks.task_registry import StorePace
from bridge.a2a.tasks.webhooks import Webhooks
from bridge.a2a.wire.extensions import ExtensionFilter
from bridge.a2a.wire.versions import VERSIONS, Versions
from bridge.http.request_checks import FaceAddress
from bridge.identity.callers.principals import LOCAL, Principal
from bridge.identity.callers.verifiers import Access
from bridge.store.contract import Store
from bridge.store.memory import MemoryStore
from tests.support.limits import PROFILE, agent_limits, engine_limits
from tests.support.running import listening, message

ALICE = CallContext(LOCAL)
PACE = StorePace(retry_seconds=0.001)


@dataclass
class Scripted:
    """An agent that runs one function for every turn, and remembers the turns."""

    script: Callable[[Job], Awaitable[None]]
    turns: list[Turn] = field(default_factory=list)
    extensions: frozenset[str] = frozenset()
    required_extensions: frozenset[str] = frozenset()
    session: Callable[[Turn, str], WorkSession | None] = lambda turn, context_id: None

    def card(self, base_url: str) -> AgentCard:
        """The least that a card says."""
        return AgentCard(
            name="Scripted",
            description="Does what the test says",
            supported_interfaces=(
                AgentInterface(url=base_url, protocol_binding="JSONRPC", protocol_version="1.0"),
            ),
            version="1",
            capabilities=AgentCapabilities(streaming=True),
            default_input_modes=("text/plain",),
            default_output_modes=("text/plain",),
            skills=(AgentSkill(id="act", name="Act", description="Acts", tags=("test",)),),
        )

    def extended_card(self, base_url: str, principal: Principal) -> AgentCard:
        """The same for everyone."""
        return self.card(base_url)

    def plan(self, turn: Turn) -> PlannedWork:
        """Take every turn."""
        self.turns.append(turn)
        return self.script

    def work_meant(self, turn: Turn) -> WorkName:
        """Its only skill."""
        return WorkName("act", "scripted")

    def work_kept(self, kept: bytes) -> WorkName:
        """Its only skill."""
        return WorkName("act", "scripted")

    def metadata_of(self, work: bytes) -> None:
        """None: it knows no metadata."""

    def session_of(self, turn: Turn, context_id: str) -> WorkSession | None:
        """The session that the test gives its work."""
        return self.session(turn, context_id)

    def takes_as_answer(self, turn: Turn) -> bool:
        """Never: it knows no questions."""
        return False

    def canceling(self, work: bytes) -> None:
        """See the protocol."""

    def resume(
        self, kept: bytes, state: TaskState, owner: str, *, is_adopted: bool = False
    ) -> PlannedWork | None:
        """Go on with what was kept as `resume`."""
        return self.script if kept == b"resume" else None


def found_at(url: str, binding: str = "JSONRPC", **more: Any) -> FoundCard:
    """The card of an agent at a URL, as a client has it, with one interface there; `more` are fields of it. A binding
    is one of 1.0, unless it begins with a version."""
    version, _, name = binding.rpartition(" ")
    interface = {"url": url, "protocolBinding": name, "protocolVersion": version or "1.0"}
    card = Scripted(_nothing).card(url).to_object()
    return FoundCard(url, b"", AgentCard.model_validate({**card, "supportedInterfaces": [interface], **more}))


async def _nothing(job: Job) -> None:
    pass


class Clock:
    """Time that stands still until it is moved, and ids that can be foreseen."""

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000
        self.elapsed_ms = 0
        self._numbers = count(1)

    @property
    def ids(self) -> IdsAndClock:
        """As the engine takes them."""
        return IdsAndClock(lambda: f"id-{next(self._numbers)}", lambda: self.now_ms, lambda: self.elapsed_ms)

    def pass_ms(self, milliseconds: int) -> None:
        """Let time go by; to set the wall clock, change `now_ms` alone."""
        self.now_ms += milliseconds
        self.elapsed_ms += milliseconds


def engine_of(
    script: Callable[[Job], Awaitable[None]],
    store: Store | None = None,
    clock: Clock | None = None,
    webhooks: Webhooks | None = None,
    **limits: Any,
) -> Engine:
    """An engine, not yet entered, whose agent follows a script; its limits are short unless given."""
    quick: dict[str, Any] = {"cancel_grace_seconds": 5, "drain_seconds": 0, "store_pace": PACE}
    return Engine(
        Scripted(script),
        store or MemoryStore(),
        (clock or Clock()).ids,
        engine_limits(**{**quick, **limits}),
        webhooks=webhooks,
    )


@asynccontextmanager
async def serving(
    script: Callable[[Job], Awaitable[None]],
    limits: AgentLimits | None = None,
    versions: Versions = VERSIONS,
    **engine_limits: Any,
) -> AsyncIterator[tuple[str, Engine]]:
    """Serve such an agent over HTTP; its base URL and its engine."""
    async with engine_of(script, **engine_limits) as engine:
        server = AgentServer(
            Scripted(script),
            AgentService(engine, ExtensionFilter({}), PROFILE.requests.parts),
            Access(()),
            FaceAddress(),
            limits or agent_limits(),
            versions=versions,
        )
        async with listening(server.at("")) as url:
            try:
                yield url, engine
            finally:
                await engine.drain(0)


def asked(*parts: dict[str, Any], **fields: Any) -> SendMessageRequest:
    """A SendMessage as the engine takes it."""
    return SendMessageRequest.model_validate(message(*(parts or ({"text": "go"},)), **fields))


def say(job: Job, state: TaskState, words: str = "") -> Any:
    """Set the job's state, saying something when there is something to say."""
    return job.status(state, job.message((Part(text=words),)) if words else None)


def give(job: Job, text: str) -> Any:
    """An artifact with one text."""
    return job.artifact(Artifact(artifact_id=job.new_id(), parts=(Part(text=text),)))
