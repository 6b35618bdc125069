"""A required audit that cannot be written: no request of any kind reaches a peer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp.client import ClientRequestContext
from mcp.client.stdio import StdioServerParameters, stdio_client

from bridge.assembly.bridge import Bridge
from bridge.assembly.plan import (
    AuditPlan,
    OfferedPlan,
    Plan,
    ProcessPlan,
    PublishedPlan,
    RemotePlan,
    ServerPlan,
)
from bridge.assembly.routes import Fitness
from bridge.audit.recorder import AuditRecorder
from bridge.console.app import mount_console
from bridge.errors import AuditAwayError, StoreAwayError
from bridge.identity.callers.principals import LOCAL
from bridge.mcp.client.eras import Era
from tests.audit.test_lines import MANY, lines_of
from tests.support.asking import asking_command
from tests.support.command import environment
from tests.support.console import ConsoleBrowser
from tests.support.foreign import Foreign, foreign_agent
from tests.support.fork_server import ROOT
from tests.support.forked import through_server
from tests.support.running import listening, profile_of
from tests.support.sharing_agent import SharingAgent, sharing
from tests.support.tool_server import ToolServer, listed

WAIT_SECONDS = 60
PROFILE = profile_of("default")
VERSION = {"A2A-Version": "1.0"}


class AuditPlace:
    """The folder of an audit, which the test can move away: then no line can be written and no file opened."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "audit" / "audit.jsonl"
        self._folder, self._aside = self.file.parent, folder / "aside"

    def plan(self) -> AuditPlan:
        return AuditPlan(self.file, MANY, MANY, required=True)

    def lose(self) -> None:
        self._folder.rename(self._aside)

    def find(self) -> None:
        self._aside.rename(self._folder)

    @contextmanager
    def lost(self) -> Iterator[None]:
        self.lose()
        try:
            yield
        finally:
            self.find()


def told_in(file: Path) -> list[tuple[str, str, str, str, bool]]:
    """Event, method, skill and peer of each line of a request, and whether the line names its intent."""
    wanted = ("intent", "call", "answer", "cancel", "sent")
    return [
        (one["event"], one["method"], one.get("skill", ""), one.get("peer", ""), "intent" in one)
        for one in lines_of(file)
        if one["event"] in wanted
    ]


class Host:
    """A host of 2025-11-25 that answers questions. Before the answer with this number the audit becomes unwritable."""

    def __init__(self, place: AuditPlace, lost_at: int = 0) -> None:
        self._place = place
        self._lost_at = lost_at
        self.asked = 0

    async def answer(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult:
        self.asked += 1
        if self.asked == self._lost_at:
            self._place.lose()
        form = getattr(params, "requested_schema", {})
        names = form.get("properties", {})
        return types.ElicitResult(
            action="accept", content={name: 3 if name == "count" else "blue" for name in names}
        )


@asynccontextmanager
async def over_http(folder: Path, place: AuditPlace, url: str, host: Host) -> AsyncIterator[Client]:
    plan = Plan(
        PROFILE,
        ProcessPlan(state=folder / "s", cache=folder / "c", audit=place.plan()),
        agents={"far": RemotePlan(url)},
        offered={"face": OfferedPlan(("far",), PROFILE)},
    )
    bridge = Bridge(plan)
    async with bridge.run(), listening(bridge.app) as own:
        await bridge.apply(plan)
        async with Client(f"{own}/mcp/face", mode="legacy", elicitation_callback=host.answer) as client:
            yield client
        bridge.offered[0].server.stop()


@asynccontextmanager
async def over_stdio(folder: Path, place: AuditPlace, url: str, host: Host) -> AsyncIterator[Client]:
    file = folder / "bridge.toml"
    place.file.parent.mkdir()
    file.write_text(
        f"[agents.far]\ncard = '{url}'\n[agents_as_tools.face]\nfrom = ['far']\n"
        f"[audit]\nfile = '{place.file}'\nrequired = true\n"
    )
    command, *rest = through_server("-P", "-m", "bridge", "serve", str(file), "--stdio", "face")
    env = environment(folder / "state", XDG_CACHE_HOME=str(folder / "cache"))
    started = StdioServerParameters(command=command, args=rest, env=env, cwd=ROOT)
    with (folder / "stderr").open("w") as said:
        async with Client(
            stdio_client(started, errlog=said), mode="legacy", elicitation_callback=host.answer
        ) as client:
            yield client


WAYS = {"http": over_http, "stdio": over_stdio}


def said_to(agent: Foreign) -> list[str]:
    return [str(part.get("text", "data")) for one in agent.seen.said for part in one["parts"]]


@pytest.mark.outside
@pytest.mark.parametrize("way", WAYS)
async def test_answers_in_an_open_call_get_an_intent_and_a_line(way: str, tmp_path: Path) -> None:
    place = AuditPlace(tmp_path)
    host = Host(place)
    with anyio.fail_after(WAIT_SECONDS):
        async with (
            foreign_agent() as agent,
            WAYS[way](tmp_path, place, agent.url, host) as client,
        ):
            await client.call_tool("ask", {"message": "paint"})
            heard = said_to(agent)
    assert (host.asked, heard) == (2, ["paint", "blue", "data"])
    answer = [
        ("intent", "elicitation/create", "ask", "far", False),
        ("answer", "elicitation/create", "ask", "far", True),
    ]
    told = [one for one in told_in(place.file) if one[0] != "sent"]
    assert told == [
        ("intent", "tools/call", "ask", "far", False),
        *answer,
        *answer,
        ("call", "tools/call", "ask", "far", True),
    ]


@pytest.mark.outside
@pytest.mark.parametrize("way", WAYS)
async def test_no_answer_of_a_host_goes_to_its_agent_without_its_line(way: str, tmp_path: Path) -> None:
    place = AuditPlace(tmp_path)
    host = Host(place, lost_at=2)
    with anyio.fail_after(WAIT_SECONDS):
        async with (
            foreign_agent() as agent,
            WAYS[way](tmp_path, place, agent.url, host) as client,
        ):
            failed = await client.call_tool("ask", {"message": "paint"})
            heard = said_to(agent)
            place.find()
            words = failed.content[0].text  # type: ignore[union-attr]
            handle = words.rpartition("handle: ")[2]
            while not (done := await replied(client, handle)):  # the bridge tries again by itself
                await anyio.sleep(0.05)
            later = said_to(agent)
    assert (failed.is_error, heard) == (True, ["paint", "blue"])
    assert "cannot write its audit at the moment, so the answer was not passed on" in words
    assert str(place.file.parent) not in words
    assert (done.is_error, later) == (False, ["paint", "blue", "3", "data"])


async def replied(client: Client, handle: str) -> types.CallToolResult | None:
    """The answer to a host that answers by a handle; None while the bridge refuses it."""
    try:
        return await client.call_tool("task_reply", {"handle": handle, "message": "3", "data": {"count": 3}})
    except MCPError:
        return None


@pytest.mark.outside
@pytest.mark.parametrize("way", WAYS)
async def test_no_request_about_a_resource_goes_to_its_agent_without_its_line(
    way: str, tmp_path: Path
) -> None:
    place = AuditPlace(tmp_path)
    agent = SharingAgent(answer=lambda *_: {"result": {"contents": [{"uri": "n:1", "text": "x"}]}})
    with anyio.fail_after(WAIT_SECONDS):
        async with sharing(agent) as url, WAYS[way](tmp_path, place, url, Host(place)) as client:
            await client.read_resource("n:1")
            while sum('"n:1"' in line for line in place.file.read_text().splitlines()) < 2:
                await anyio.sleep(0.02)  # the line of a call is written after its answer
            with place.lost(), pytest.raises(MCPError):
                await client.read_resource("n:2")
            await client.read_resource("a2a://far/card")
    assert [one["params"]["uri"] for one in agent.asked] == ["n:1"]
    told = [
        (one["event"], one.get("method"), one.get("subject", ""), "intent" in one)
        for one in lines_of(place.file)
    ]
    of_reads = [one for one in told if one[1] == "resources/read"]
    assert of_reads[:2] == [
        ("intent", "resources/read", "n:1", False),
        ("call", "resources/read", "n:1", True),
    ]
    assert not any(subject == "a2a://far/card" for _, _, subject, _ in of_reads)


@asynccontextmanager
async def with_console(folder: Path, place: AuditPlace) -> AsyncIterator[tuple[ConsoleBrowser, ToolServer]]:
    """A bridge with a console, an agent `tools` of two tool servers, and an MCP server `face` of that agent."""
    late: list[Bridge] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await late[0].app(scope, receive, send)

    tools = [listed(tool, text={"type": "string"}) for tool in ("shout", "hold")]
    async with ToolServer("far", tools).run() as server, listening(app) as url:
        plan = Plan(
            PROFILE,
            ProcessPlan(
                console=True,
                keys=("k" * 32,),
                state=folder / "s",
                cache=folder / "c",
                audit=place.plan(),
            ),
            servers={
                "far": ServerPlan.as_profile_says(server.target, Era.MODERN, PROFILE.server, PROFILE.run),
                "asking": ServerPlan.as_profile_says(
                    asking_command("legacy"), Era.LEGACY, PROFILE.server, PROFILE.run
                ),
            },
            published={"tools": PublishedPlan(("far", "asking"), PROFILE, "memory:")},
            offered={"face": OfferedPlan(("tools",), PROFILE)},
        )
        bridge = Bridge(plan, own_url=url)
        mount_console(bridge)
        late.append(bridge)
        async with bridge.run():
            await bridge.apply(plan)
            browser = ConsoleBrowser(bridge, url)
            await browser.opens("/try")
            yield browser, server
            server.released.set()
            await bridge.drain(0)


async def task_begun(browser: ConsoleBrowser, skill: str, arguments: dict[str, Any]) -> str:
    """Try a skill at the console, and wait until its task asks a question or works. Returns the id of the task."""
    begun = (await browser.posts(f"/try/tools/{skill}", {"arguments": arguments})).json()
    return str(begun["to"]).rpartition("/")[2]


@pytest.mark.outside
async def test_nothing_that_is_done_at_the_console_goes_to_a_peer_without_its_line(tmp_path: Path) -> None:
    place = AuditPlace(tmp_path)
    with anyio.fail_after(WAIT_SECONDS):
        async with with_console(tmp_path, place) as (browser, server):
            held = await task_begun(browser, "hold", {"text": "x"})
            await server.holding(1)
            asked = await task_begun(browser, "ask", {})
            waiting: list[Any] = []
            while not waiting:
                await anyio.sleep(0.02)
                waiting = (await browser.reads("/answer"))["tasks"]
            answers = {one["key"]: {"name": "Ada"} for one in waiting[0]["questions"]}
            answer = {"mark": waiting[0]["mark"], "action": "accept", "answers": answers}
            ways: tuple[tuple[str, dict[str, Any]], ...] = (
                ("/try/tools/shout", {"arguments": {"text": "x"}}),
                ("/try/mcp/face/shout", {"arguments": {"text": "x"}}),
                (f"/tasks/tools/{asked}/answer", answer),
                (f"/tasks/tools/{held}/cancel", {}),
            )
            with place.lost():
                refused = [await browser.posts(*way) for way in ways]
                states = [(await browser.reads(f"/tasks/tools/{one}"))["state"] for one in (asked, held)]
                called = [name for name, _ in server.calls]
            while browser.bridge.fitness is not Fitness.READY:
                await anyio.sleep(0.05)
            taken = [await browser.posts(*way) for way in ways]
    assert [one.status_code for one in refused] == [503] * len(ways)
    assert (states, called) == (["input_required", "working"], ["hold"])
    assert [one.status_code for one in taken] == [200] * len(ways)
    told = [one for one in lines_of(place.file) if one["event"] == "intent"][2:]
    assert [(one["method"], one["skill"]) for one in told] == [
        ("SendMessage", "shout"),
        ("tools/call", "shout"),
        ("SendStreamingMessage", "shout"),
        ("SendMessage", "ask"),
        ("CancelTask", "hold"),
    ]
    assert {one["principal"] for one in told} == {LOCAL.name}


@pytest.mark.outside
async def test_a_refusal_has_the_same_name_at_the_console_and_at_an_endpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = AuditPlace(tmp_path)
    faults: list[Exception] = [AuditAwayError("away"), AuditAwayError("away"), StoreAwayError("away")]

    async def away(*_: object) -> int:
        raise faults.pop()

    with anyio.fail_after(WAIT_SECONDS):
        async with with_console(tmp_path, place) as (browser, _):
            with monkeypatch.context() as patched:
                patched.setattr(AuditRecorder, "intend", away)
                for path in ("/try/tools/shout", "/try/tools/shout", "/try/mcp/face/shout"):
                    assert (await browser.posts(path, {"arguments": {"text": "x"}})).status_code == 503
    refused = [one for one in lines_of(place.file) if one["event"] == "call"]
    assert [(one["error"], one["decision"]) for one in refused] == [
        ("UNAVAILABLE", "refused"),
        ("UNAVAILABLE", "refused"),
        ("HTTP_503", "refused"),
    ]
