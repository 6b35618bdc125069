"""A bridge as an agent that is recorded, and what its client says."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx2

from bridge.assembly.bridge import Bridge
from bridge.assembly.plan import Plan, ProcessPlan, PublishedPlan, ServerPlan
from bridge.config.tables.profile import Profile, load_profile
from bridge.mcp.client.eras import Era
from bridge.mcp.client.transports.streamable_http import ServerTarget
from tests.goldens.recording import ROOT, Recording
from tests.support.drivers import Driver, Events, HttpJsonDriver, Json, JsonRpcDriver
from tests.support.first_driver import FirstDriver
from tests.support.in_process import client_of
from tests.support.older_drivers import OlderHttpJsonDriver, OlderJsonRpcDriver
from tests.support.running import call_part, config_for, raw_command, wrapped

JSON = {"Content-Type": "application/json"}
VERSION = {"A2A-Version": "1.0"}
CARD_PATH = "/.well-known/agent-card.json"
AT_ONCE = {"returnImmediately": True}
NOBODYS = "no-such-task"
ECHO = call_part("echo", text="hello")
LACKING = call_part("add", a=1)
"""A call that lacks an argument, and is asked for it."""
WAIT = call_part("wait")


@dataclass
class Talk:
    """A client of one binding, each of whose requests has a heading."""

    record: Recording
    driver: Driver
    """Of the binding, for what an operation is in it."""
    client: httpx2.AsyncClient

    def with_headers(self, **headers: str) -> Talk:
        """The same client with more headers: `with_headers(a2a_extensions="urn:x")`."""
        return replace(self, driver=self.driver.with_headers(**headers))

    async def ask(self, heading: str, operation: str, **params: Any) -> Json:
        """The result of an operation, or its error."""
        self.record.heading(heading)
        answer = (await self.client.send(self.driver.request(operation, params))).json()
        return answer.get("result", answer)

    async def send(self, heading: str, *parts: Json, **fields: Any) -> Json:
        """SendMessage; the task, or the error."""
        answer = await self.ask(heading, "SendMessage", **self.record.message(*parts, **fields))
        return answer.get("task", answer)

    def opened(self, heading: str, operation: str, **params: Any) -> AbstractAsyncContextManager[Events]:
        """A stream, as long as this is entered."""
        self.record.heading(heading)
        return self.driver.stream(operation, **params)

    async def stream(self, heading: str, *parts: Json, **fields: Any) -> None:
        """SendStreamingMessage, to the end of its stream."""
        params = self.record.message(*parts, **fields)
        async with self.opened(heading, "SendStreamingMessage", **params) as events:
            await events.rest()

    async def http(
        self,
        heading: str,
        verb: str,
        path: str = "",
        headers: Mapping[str, str] | None = None,
        content: bytes | str | None = None,
    ) -> httpx2.Response:
        """Any request at or below the agent's base."""
        self.record.heading(heading)
        return await self.client.request(
            verb, f"{self.driver.base_url}{path}", headers=headers, content=content
        )


@asynccontextmanager
async def agent(
    record: Recording, kind: type[Driver], target: ServerTarget | None = None, **changes: Any
) -> AsyncIterator[Talk]:
    """A client of a bridge with one agent of one server."""
    config = config_for(target or raw_command(), **changes)
    async with wrapped(config) as bridge, client_of(record.of(bridge.app, hides_client=True)) as client:
        try:
            yield Talk(record, kind(client, f"{ROOT}{bridge.path}"), client)
        finally:
            await bridge.engine.drain(0)


@asynccontextmanager
async def bridge_of(
    folder: Path,
    target: ServerTarget,
    names: tuple[str, ...],
    era: Era = Era.LEGACY,
    profile: Profile | None = None,
    **plan: Any,
) -> AsyncIterator[Bridge]:
    """A bridge with an agent for each name, all of the same server."""
    profile = profile or load_profile()
    server = ServerPlan.as_profile_says(target, era, profile.server, profile.run)
    published = {name: PublishedPlan(("tools",), profile, "memory:") for name in names}
    place = ProcessPlan(state=folder / "state", cache=folder / "cache")
    wanted = Plan(profile, place, servers={"tools": server} if names else {}, published=published, **plan)
    bridge = Bridge(wanted, own_url=ROOT)
    async with bridge.run():
        await bridge.apply(wanted)
        try:
            yield bridge
        finally:
            await bridge.drain(0)


class NamingDriver(FirstDriver):
    """A client of the first generation whose ids are the same each time."""

    def new_id(self, of: str, message: Json) -> str:
        return f"{of}-of-{message.get('messageId', 'none')}"


BINDINGS = {"jsonrpc": JsonRpcDriver, "http-json": HttpJsonDriver}
OLDER_BINDINGS = {"jsonrpc": OlderJsonRpcDriver, "http-json": OlderHttpJsonDriver}
"""Those of A2A 0.3."""
FIRST_BINDINGS = {"jsonrpc": NamingDriver}
"""The one of the first generation."""
"""By what they are called in the names of files."""
