"""What listens to the hops of a bridge, by its plan, and what is read of its parts for metrics.

The names in labels are those of the parts that are served now, and what their peers list.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, get_args

import anyio
import anyio.to_thread

from bridge.a2a.model.life import INTERRUPTED
from bridge.a2a.push.sender import PushBacklog
from bridge.assembly.audit import BridgeAudit, audit_of
from bridge.assembly.parts import Parts
from bridge.assembly.plan import ProcessPlan, ServerPlan
from bridge.assembly.published_agent import PublishedAgent
from bridge.assembly.routes import Fitness, fitness_of_faces
from bridge.errors import StoreError
from bridge.identity.logins.login_credentials import LoginConfig
from bridge.mcp.client.transports.streamable_http import HttpTarget
from bridge.notices import LoginEvent, Notice, Notify, PushOutcome, ignore_notice
from bridge.pinned.guard import DefinitionState
from bridge.telemetry.call_log import CallLog
from bridge.telemetry.families import KnownNames, MetricFamily, MetricSample, SampleLabels, gauge
from bridge.telemetry.metrics import HopMetrics, families_of
from bridge.trace import HopListener, Hops
from bridge.version import __version__

if TYPE_CHECKING:
    from bridge.telemetry.spans import SpanExport


STORES_SECONDS: Final = 2.0
"""How long a reading waits for the stores: Prometheus gives a reading up after ten seconds, and with it all that does
not stand in a store; a supervisor waits five for its workers."""


@dataclass(eq=False)
class ReloadCount:
    """How the reloads of a configuration went."""

    taken: int = 0
    refused: int = 0
    is_refused: bool = False
    """Whether the file as it is now was refused."""
    taken_at: float = 0.0
    """When a plan was taken over last, in seconds since the epoch."""

    def note(self, taken: bool) -> None:
        """Count a reload, or the start."""
        self.is_refused = not taken
        if taken:
            self.taken, self.taken_at = self.taken + 1, time.time()
        else:
            self.refused += 1

    def families(self) -> list[MetricFamily]:
        """The same as metrics."""
        words = "Whether the configuration as it stands is served: 0 when its last reload was refused"
        when = "When the configuration was taken over last, in seconds since the epoch"
        name, what = "mcp_a2a_config_reloads_total", "Changes of the configuration, by what came of them"
        reloads = {"taken": max(self.taken - 1, 0), "refused": self.refused}  # the start is none
        counts = (MetricSample(name, (("result", result),), float(n)) for result, n in reloads.items())
        return [
            MetricFamily(name, what, "counter", tuple(counts)),
            gauge("mcp_a2a_config_ok", words, [({}, float(not self.is_refused))]),
            gauge("mcp_a2a_config_taken_timestamp_seconds", when, [({}, self.taken_at)]),
        ]


class Telemetry:
    """What listens to the hops of one bridge."""

    def __init__(
        self,
        place: ProcessPlan,
        parts: Callable[[], Parts],
        fitness: Callable[[], Fitness],
        audit: BridgeAudit | None = None,
    ) -> None:
        """`parts` gives those that are served, and `fitness` says whether the bridge can do its work.

        Raises:
            UsageError: the packages for spans are not installed.
        """
        self._parts = parts
        self._fitness = fitness
        self.audit = audit
        """None writes none."""
        self.definitions: Callable[[], Iterable[DefinitionState]] = tuple
        """Gives how servers and agents differ from the lock."""
        self._metrics = None if place.metrics is None else HopMetrics(self.names)
        self._spans: SpanExport | None = None
        if place.traces is not None:
            from bridge.telemetry.spans import SpanExport  # its packages are an optional extra

            self._spans = SpanExport(place.traces)
        self._log = CallLog() if place.log_calls else None
        # Spans come first: they give a hop the trace that the others see.
        recorder = None if audit is None else audit.recorder
        heard: tuple[HopListener | None, ...] = (self._spans, self._metrics, self._log, recorder)
        noticing = [
            listener.noticed for listener in (self._spans, self._metrics, recorder) if listener is not None
        ]

        def notify_all(notice: Notice) -> None:
            for noticed in noticing:
                noticed(notice)

        self.notify: Notify = notify_all if noticing else ignore_notice
        """Takes notices."""
        self.hops = Hops(
            tuple(listener for listener in heard if listener is not None),
            None if audit is None else audit.gate,
        )

    def tell_of_refusal(self) -> None:
        """Have the audit tell that a changed configuration was refused."""
        if self.audit is not None:
            self.audit.refuse()

    def tell_of_sign_in(self, face: str, principal: str = "", *, error: str = "") -> None:
        """Have the audit tell that a principal has signed in at a page, or that it, or somebody, was refused there."""
        if self.audit is None:
            return
        if error:
            self.audit.recorder.refused(face, error, principal)
        else:
            self.audit.recorder.signed_in(principal, face)

    async def close(self) -> None:
        """Write the log lines that are left, and send the spans that are left, within some time."""
        if self._log is not None:
            self._log.write()
        if self._spans is not None:
            await anyio.to_thread.run_sync(self._spans.close)

    def names(self) -> KnownNames:
        """The names that labels may have now."""
        parts = self._parts()
        skills = {
            published.name: frozenset(skill.id for skill in published.agent.published)
            for published in parts.agents
        }
        peers = set(parts.upstreams)
        for face in (server.offered for server in parts.faces):
            # An agent may have the same name: the faces of each protocol are named by themselves.
            tools = frozenset(str(tool["name"]) for tool in face.face.tools(with_apps=True))
            skills[face.name] = skills.get(face.name, frozenset()) | tools
            peers |= {state.key for state in face.face.sources}
        peers |= set(parts.catalogs)
        return KnownNames(skills, frozenset(peers))

    async def families(self) -> list[MetricFamily]:
        """All metrics of this process."""
        if self._metrics is None:
            return []
        read = self._metrics.read()
        parts = self._parts()
        gauges = [*_gauges_of(parts), *_fitness_gauges(parts, self._fitness()), *await _stored(parts)]
        gauges += self._metrics.counters(_foretold(parts))
        gauges += [] if self.audit is None else self.audit.families()
        gauges += _definition_gauges(self.definitions())
        # A thousand histograms take a while, and nothing else would run meanwhile.
        return [*await anyio.to_thread.run_sync(families_of, read), *gauges]


@asynccontextmanager
async def telemetry_of(
    place: ProcessPlan, parts: Callable[[], Parts], fitness: Callable[[], Fitness]
) -> AsyncIterator[Telemetry]:
    """Listen to the hops of a bridge as the plan says; see `Telemetry`.

    Raises:
        UsageError: the packages for spans are not installed, or the audit cannot be opened.
    """
    async with audit_of(place) as audit:
        telemetry = Telemetry(place, parts, fitness, audit)
        try:
            yield telemetry
        finally:
            with anyio.CancelScope(shield=True):
                await telemetry.close()


def _gauges_of(parts: Parts) -> Iterator[MetricFamily]:
    """The state of the parts at this moment."""
    yield gauge("mcp_a2a_build_info", "The version of the bridge", [({"version": __version__}, 1.0)])
    yield gauge("mcp_a2a_peer_up", "Whether a tool server or an agent can be called", _peers_up(parts))
    yield gauge(
        "mcp_a2a_peer_unauthorized",
        "Whether a tool server or an agent does not take the credentials of the bridge",
        _peers_unauthorized(parts),
    )
    yield gauge(
        "mcp_a2a_login_usable",
        "Whether the login of a person at a peer can be used; 0 when a person has to log in",
        [(labels, float(is_usable)) for labels, is_usable in _logins(parts)],
    )
    yield gauge(
        "mcp_client_queue_depth",
        "Calls that wait for their turn at a tool server",
        [({"peer": key}, float(calls)) for key, calls in parts.waiting_at_servers.items()],
    )
    yield gauge(
        "a2a_client_queue_depth",
        "Calls that wait for their turn at an agent, of tools with a bound",
        [({"peer": key}, float(calls)) for key, calls in parts.waiting_at_agents.items()],
    )
    streams = [
        ({"face": published.name, "protocol": "a2a"}, float(published.server.open_streams))
        for published in parts.agents
    ]
    streams += [
        ({"face": server.offered.name, "protocol": "mcp"}, float(server.offered.server.open_streams))
        for server in parts.faces
    ]
    yield gauge("mcp_a2a_streams", "Open streams of clients", streams)
    yield gauge(
        "mcp_a2a_store_ready",
        "Whether the tasks of an agent can be stored",
        [({"face": published.name}, float(published.engine.ready)) for published in parts.agents],
    )
    yield gauge(
        "a2a_tasks_running",
        "Tasks that this process works on",
        [
            ({"face": published.name, "state": state.word}, float(count))
            for published in parts.agents
            for state, count in published.engine.running_by_state().items()
        ],
    )


def _definition_gauges(states: Iterable[DefinitionState]) -> Iterator[MetricFamily]:
    """How many definitions of each pinned server and agent are not as in the lock; nothing if none is pinned."""
    samples: list[tuple[Mapping[str, str], float]] = []
    for state in states:
        section, _, peer = state.title.partition(".")
        protocol = "mcp" if section == "tool_servers" else "a2a"
        held_back = len(state.held_back)
        for offered, count in (("yes", len(state.differences) - held_back), ("no", held_back)):
            samples.append(({"peer": peer, "protocol": protocol, "offered": offered}, float(count)))
    if samples:
        words = "Definitions of a tool server or an agent that are not as in the lock"
        yield gauge("mcp_a2a_definitions_differing", words, samples)


def _fitness_gauges(parts: Parts, whole: Fitness) -> Iterator[MetricFamily]:
    """Whether the bridge and each of its faces can do their work: 1 for the status that holds, 0 for the others."""

    def each(labels: SampleLabels, now: Fitness) -> Iterator[tuple[dict[str, str], float]]:
        for fitness in Fitness:
            yield {**dict(labels), "status": fitness.replace(" ", "_")}, float(fitness is now)

    yield gauge("mcp_a2a_status", "Whether the bridge can do its work", [*each((), whole)])
    faces = [
        sample
        for (kind, name), now in fitness_of_faces(parts).items()
        for sample in each((("face", name), ("protocol", "a2a" if kind == "agents" else "mcp")), now)
    ]
    yield gauge("mcp_a2a_face_status", "Whether a face can do its work", faces)


def _peers_up(parts: Parts) -> list[tuple[Mapping[str, str], float]]:
    """Whether each peer can be called. A tool server and an agent may have the same name."""
    servers = {key: server.down is None for key, server in parts.upstreams.items()}
    agents = {state.key: state.down is None for face in parts.faces for state in face.offered.face.sources}
    return _of_peers(servers, agents)


def _peers_unauthorized(parts: Parts) -> list[tuple[Mapping[str, str], float]]:
    """Whether each peer refuses the credentials of the bridge."""
    servers = {key: server.is_unauthorized for key, server in parts.upstreams.items()}
    states = [state for face in parts.faces for state in face.offered.face.sources]
    return _of_peers(servers, {state.key: state.is_unauthorized for state in states})


def _of_peers(
    servers: Mapping[str, bool], agents: Mapping[str, bool]
) -> list[tuple[Mapping[str, str], float]]:
    return [
        ({"peer": peer, "protocol": protocol}, float(holds))
        for protocol, peers in (("mcp", servers), ("a2a", agents))
        for peer, holds in peers.items()
    ]


def _logins(parts: Parts) -> list[tuple[Mapping[str, str], bool]]:
    """The peers at which a person logs in, and whether the login can be used."""
    servers = {
        key: not parts.upstreams[key].needs_login
        for key, server in parts.servers.items()
        if _has_login(server.plan)
    }
    remote = {agent.key: agent.lacks_login for face in parts.faces for agent in face.offered.remote_agents}
    agents = {key: not lacks for key, lacks in remote.items() if lacks is not None}
    return [
        ({"peer": peer, "protocol": protocol}, is_usable)
        for protocol, peers in (("mcp", servers), ("a2a", agents))
        for peer, is_usable in peers.items()
    ]


def _foretold(parts: Parts) -> Iterator[tuple[str, SampleLabels]]:
    """The counters that are told before anything was counted.

    One that begins with 1 has not risen as far as Prometheus can see, and a rule about it would miss what is rare.
    """
    for published in parts.agents:
        if published.push is not None:
            yield from (
                ("a2a_push_attempts_total", (("face", published.name), ("outcome", outcome)))
                for outcome in get_args(PushOutcome)
            )
    for labels, _ in _logins(parts):
        yield from (
            ("mcp_a2a_logins_total", (("peer", labels["peer"]), ("event", event)))
            for event in get_args(LoginEvent)
        )


def _has_login(server: ServerPlan) -> bool:
    """Whether a person logs in to a tool server."""
    return isinstance(server.target, HttpTarget) and isinstance(server.target.oauth, LoginConfig)


async def _stored(parts: Parts) -> list[MetricFamily]:
    """What waits in the stores. Of an agent whose store is away, or does not answer in time, nothing is told."""
    waiting: dict[tuple[str, str], float] = {}
    backlogs: dict[str, PushBacklog] = {}

    async def ask(published: PublishedAgent) -> None:
        with suppress(StoreError):
            for state in sorted(INTERRUPTED):
                waiting[published.name, state.word] = float(len(await published.engine.waiting_in(state)))
            if published.push is not None:
                backlogs[published.name] = await published.push.backlog()

    with anyio.move_on_after(STORES_SECONDS):
        async with anyio.create_task_group() as asking:
            for published in parts.agents:
                asking.start_soon(ask, published)

    def family(name: str, words: str, number: Callable[[PushBacklog], float]) -> MetricFamily:
        return gauge(
            name, words, [({"face": face}, float(number(backlog))) for face, backlog in backlogs.items()]
        )

    return [
        gauge(
            "a2a_tasks_waiting",
            "Tasks in the store that wait for their clients",
            [({"face": face, "state": state}, number) for (face, state), number in waiting.items()],
        ),
        family("a2a_push_waiting", "Push notifications that wait to be sent", lambda backlog: backlog.rows),
        family(
            "a2a_push_oldest_seconds",
            "How long the receiver that has waited longest waits for its next push notification",
            lambda backlog: backlog.oldest_seconds,
        ),
        family(
            "a2a_push_backed_off",
            "Receivers that are tried again later, since their last attempt failed",
            lambda backlog: backlog.backed_off,
        ),
    ]
