"""Bridges that offer the same MCP server and share a PostgreSQL, and a balancer that gives each request to the next."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any, Final

import anyio
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from starlette.types import Receive, Scope, Send

from bridge.assembly.bridge import Bridge
from bridge.assembly.plan import OfferedPlan, Plan, ProcessPlan, RemotePlan, SharedStore
from bridge.identity.callers.principals import OperatorRole, Principal
from bridge.identity.callers.verifiers import Credential
from bridge.replicas.passed_requests import PASSED_HEADER
from bridge.replicas.replica_address import ReplicaAddress
from bridge.store.registry import ReplicaRegistry
from tests.support.asking_bridge import asking
from tests.support.drivers import PATIENCE_SECONDS
from tests.support.mcp_wire import LEGACY, Http
from tests.support.ports import free_port
from tests.support.postgres import database_url, new_database_url
from tests.support.postgres_cluster import Gate, socket_of
from tests.support.running import listening, profile_with

KEYS: Final = ("the same secret for all of them, of many letters",)
LEASE_SECONDS: Final = 10.0
"""So long that no replica of a busy machine is taken for dead."""
SHORT_LEASE_SECONDS: Final = 1.5
"""For tests of replicas that are silent or dead."""
PUBLIC_URL: Final = "http://agents.example.com"
PATH: Final = "/mcp/face"
ALICE: Final = Credential(Principal("alice"), "alice-token")
BOB: Final = Credential(Principal("bob"), "bob-token")
OPERATOR: Final = Credential(Principal("operator", operator=OperatorRole.READ), "operator-token")


@dataclass
class FaceReplica:
    """One of the bridges."""

    bridge: Bridge
    plan: Plan
    """What it served first."""
    url: str
    gate: Gate
    """Its way to the database."""
    seen: list[tuple[str, Mapping[str, str], int]] = field(default_factory=list)
    """Of each request to the server: the verb, the headers, and the status of the answer."""
    resumed: anyio.Event = field(default_factory=anyio.Event)

    def pause(self) -> None:
        """Begin no answer, until `resume`."""
        self.resumed = anyio.Event()

    def resume(self) -> None:
        """Answer."""
        self.resumed.set()

    @property
    def registry(self) -> ReplicaRegistry:
        """Its list of replicas."""
        assert self.bridge.replicas is not None
        return self.bridge.replicas.sharing.registry

    async def report(self) -> Any:
        """What `/readyz` says of the others."""
        async with httpx2.AsyncClient() as client:
            headers = {"Authorization": f"Bearer {OPERATOR.token}"}
            return (await client.get(f"{self.url}/readyz", headers=headers)).json()["replicas"]

    async def until(self, plans: Mapping[int, str]) -> None:
        """Wait until the others of this one serve these plans."""
        shown = {str(epoch): {"plan": plan} for epoch, plan in plans.items()}
        with anyio.fail_after(PATIENCE_SECONDS):
            while (await self.report())["others"] != shown:
                await anyio.sleep(0.01)

    @property
    def epoch(self) -> int:
        """Its own."""
        return self.registry.epoch

    @property
    def hops(self) -> list[tuple[str, int]]:
        """Of each request that another replica passed on: the verb, and the status of the answer."""
        return [(verb, status) for verb, headers, status in self.seen if PASSED_HEADER in headers]

    @asynccontextmanager
    async def wire(self, credential: Credential = ALICE, version: str = LEGACY) -> AsyncIterator[Http]:
        """A wire to this replica, with no session yet."""
        headers = {"Authorization": f"Bearer {credential.token}"}
        async with httpx2.AsyncClient(headers=headers, timeout=PATIENCE_SECONDS) as client:
            yield Http(client, f"{self.url}{PATH}", version, {"elicitation": {}})


def elsewhere(http: Http, replica: FaceReplica) -> Http:
    """The same client with the same session, at another replica."""
    there = Http(http.client, f"{replica.url}{PATH}", http.version, http.capabilities)
    there.session = http.session
    return there


@dataclass
class Balancer(httpx2.AsyncBaseTransport):
    """Gives each request to the next replica, as clients of one name see them."""

    replicas: list[FaceReplica]
    sent: list[tuple[str, str]] = field(default_factory=list)
    """The verb and the replica of each request."""

    def __post_init__(self) -> None:
        self._inner = httpx2.AsyncHTTPTransport()
        self.go_to(*self.replicas)

    def go_to(self, *replicas: FaceReplica) -> None:
        """Give all that comes to these, in turn."""
        self._turns = cycle(replicas)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Pass a request on. Its Host stays that of the name."""
        replica = next(self._turns)
        self.sent.append((request.method, replica.url))
        place = httpx2.URL(replica.url)
        request.url = request.url.copy_with(scheme="http", host=place.host, port=place.port)
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        """Close its connections."""
        await self._inner.aclose()


@asynccontextmanager
async def sdk_client(
    transport: httpx2.AsyncBaseTransport, mode: str = "legacy", credential: Credential = ALICE, **options: Any
) -> AsyncIterator[Client]:
    """The official client, through a balancer."""
    headers = {"Authorization": f"Bearer {credential.token}"}
    async with (
        httpx2.AsyncClient(transport=transport, headers=headers, timeout=PATIENCE_SECONDS) as http,
        Client(
            streamable_http_client(f"{PUBLIC_URL}{PATH}", http_client=http),
            mode=mode,  # type: ignore[arg-type]
            cache=None,
            **options,
        ) as client,
    ):
        yield client


@dataclass
class FaceReplicas:
    """Makes bridges that offer one agent, until its block ends."""

    agent_url: str
    folder: Path
    stack: AsyncExitStack
    lease_seconds: float
    database_url: str = field(default_factory=new_database_url)
    made: list[FaceReplica] = field(default_factory=list)

    async def start(
        self,
        *,
        keys: tuple[str, ...] = KEYS,
        has_address: bool = True,
        credentials: tuple[Credential, ...] = (ALICE, BOB),
        title: str | None = None,
        address: str | None = None,
        public_url: str = PUBLIC_URL,
        port: int = 0,
        **agents: Any,
    ) -> FaceReplica:
        """Start one more. Its keywords say in what it differs from the others; those that are not named here change the
        `[agents]` of its profile."""
        number, port = len(self.made), port or free_port()
        gate = Gate(self.folder / f"gate-{number}", socket_of(database_url()))
        gate.folder.mkdir()
        await gate.start()
        self.stack.push_async_callback(gate.stop)
        root_url = f"http://127.0.0.1:{port}"
        profile = profile_with(
            store={"lease_seconds": self.lease_seconds}, run={"drain_seconds": 0.0}, agents=agents
        )
        place = ProcessPlan(
            public_url=public_url,
            shared_store=SharedStore(
                self.database_url.replace(
                    f"host={Path(socket_of(database_url())).parent}", f"host={gate.folder}"
                )
            ),
            replica=ReplicaAddress.parse(address or root_url) if has_address else None,
            keys=keys,
            state=self.folder / f"state-{number}",
            cache=self.folder / "cache",
        )
        offered = OfferedPlan(("agent",), profile, named=False, title=title)
        plan = Plan(
            profile,
            place,
            (*credentials, OPERATOR),
            agents={"agent": RemotePlan(self.agent_url)},
            offered={"face": offered},
        )
        bridge = Bridge(plan)
        await self.stack.enter_async_context(bridge.run())
        await bridge.apply(plan)
        replica = FaceReplica(bridge, plan, root_url, gate)
        replica.resume()
        await self.stack.enter_async_context(listening(_watched(replica), port))
        self.stack.callback(_end, replica)
        self.made.append(replica)
        return replica


def _end(replica: FaceReplica) -> None:
    replica.resume()
    for one in replica.bridge.offered:
        one.server.stop()


def _watched(replica: FaceReplica) -> Any:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await replica.bridge.app(scope, receive, send)
            return
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}

        async def watched(message: Any) -> None:
            if message["type"] == "http.response.start" and scope["path"] == PATH:
                replica.seen.append((scope["method"], headers, message["status"]))
            await send(message)

        await replica.resumed.wait()
        await replica.bridge.app(scope, receive, watched)

    return app


@asynccontextmanager
async def face_replicas(
    replicas: int = 2, lease_seconds: float = LEASE_SECONDS, **options: Any
) -> AsyncIterator[FaceReplicas]:
    """Some bridges that offer the asking server's tools, through an agent of one bridge more."""
    with tempfile.TemporaryDirectory(prefix="mcp-a2a-faces-") as folder:
        async with AsyncExitStack() as stack:
            agent = await stack.enter_async_context(asking("legacy"))
            assert agent.bridge is not None
            group = FaceReplicas(agent.bridge.base_url, Path(folder), stack, lease_seconds)
            for _ in range(replicas):
                await group.start(**options)
            yield group
