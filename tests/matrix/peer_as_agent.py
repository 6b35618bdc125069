"""One peer as an agent: the real command exposes it, and the official MCP client calls its tools."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
import httpx2
import mcp_types as types
from mcp import Client, StdioServerParameters, stdio_client

from tests.matrix.cells import Cell
from tests.matrix.scenarios import OF_SIDE, Outcome, Scenario, Side
from tests.support.command import environment as bridge_environment
from tests.support.lines import Lines

READY_SECONDS: Final = 90
"""How long an agent may take to start: the largest framework imports for ten seconds on a machine that is busy."""
CELL_SECONDS: Final = 45
END_SECONDS: Final = 10
_WITHIN_SECONDS: Final = 12
"""After this a call of an agent at work is answered with a handle. The LangGraph API was seen to need more than six
to name its task."""
_FOLLOW_UPS: Final = {"task_result", "task_reply", "task_cancel"}
_FILE: Final = {"name": "list.txt", "mediaType": "text/plain", "base64": "bWlsayBhbmQgYnJlYWQ="}
_CONTEXT: Final = "mcp-a2a/context"


@dataclass
class Host:
    """An MCP host with the tools of one agent."""

    client: Client
    agent_url: str
    tool: str = ""
    asked: list[str] = field(default_factory=list)

    async def call(self, message: str, **arguments: Any) -> types.CallToolResult:
        return await self.client.call_tool(self.tool, {"message": message, **arguments})

    async def answer(self, _: Any, params: Any) -> types.ElicitResult:
        self.asked.append(params.message)
        (name,) = params.requested_schema["properties"]
        return types.ElicitResult(action="accept", content={name: "blue"})


def words_in(result: types.CallToolResult) -> str:
    """All the texts of a result."""
    return "\n".join(getattr(block, "text", "") for block in result.content)


def require(is_so: object, words: str) -> None:
    """Fail the scenario with these words unless something is so."""
    if not is_so:
        raise AssertionError(words)


def gives(result: types.CallToolResult, words: str) -> None:
    """Fail the scenario unless a result is no error and has these words."""
    require(not result.is_error and words in words_in(result), f"{words!r} is not in: {words_in(result)}")


async def card(host: Host) -> None:
    listed = [tool.name for tool in (await host.client.list_tools()).tools if tool.name not in _FOLLOW_UPS]
    require(listed, "no tool is listed")
    host.tool = listed[0]
    resources = (await host.client.list_resources()).resources
    read = await host.client.read_resource(resources[0].uri)
    require(json.loads(read.contents[0].text)["name"], "the card has no name")  # type: ignore[union-attr]


async def text(host: Host) -> None:
    gives(await host.call("hello there"), "hello there")


async def data(host: Host) -> None:
    gives(await host.call("look", data={"city": "Lisbon"}), "Lisbon")


async def file(host: Host) -> None:
    gives(await host.call("read", files=[_FILE]), "milk and bread")


async def stream(host: Host) -> None:
    before = await _streams(host.agent_url)
    gives(await host.call("word by word please"), "by word please")
    require(await _streams(host.agent_url) > before, "it was not called with a stream")


async def _streams(url: str) -> int:
    """How many streams the agent has answered with, as its own process tells."""
    async with httpx2.AsyncClient(trust_env=False) as client:
        return int((await client.get(str(httpx2.URL(url).join("/_streams")))).raise_for_status().json())


async def ask(host: Host) -> None:
    result = await host.call("ask")
    require(host.asked, f"nothing was asked: {words_in(result)}")
    require("Which colour?" in host.asked[0], f"this was asked: {host.asked[0]}")
    gives(result, "blue")


async def fail(host: Host) -> None:
    result = await host.call("fail")
    require(result.is_error, f"it is no error: {words_in(result)}")
    state = (result.meta or {}).get("mcp-a2a/state")
    is_told = state == "TASK_STATE_FAILED" or "Out of paper" in words_in(result)
    require(is_told, f"it is another error: {words_in(result)}")


async def cancel(host: Host) -> None:
    unfinished = ((await host.call("wait")).meta or {}).get("mcp-a2a/unfinished", {})
    require("handle" in unfinished, "no handle came for the task at work")
    await host.client.call_tool("task_cancel", {"handle": unfinished["handle"]})
    ended = await host.client.call_tool("task_result", {"handle": unfinished["handle"], "wait_seconds": 5})
    state = (ended.meta or {}).get("mcp-a2a/state")
    require(state == "TASK_STATE_CANCELED", f"it ended as {state}: {words_in(ended)}")


async def turns(host: Host) -> None:
    first = await host.call("the first turn")
    context = (first.meta or {}).get(_CONTEXT)
    require(context, f"no context came with: {words_in(first)}")
    gives(await host.call("recall", context=context), "the first turn")


SCENARIOS: Final[Mapping[Scenario, Callable[[Host], Awaitable[None]]]] = {
    Scenario.CARD: card,
    Scenario.TEXT: text,
    Scenario.DATA: data,
    Scenario.FILE: file,
    Scenario.STREAM: stream,
    Scenario.ASK: ask,
    Scenario.FAIL: fail,
    Scenario.TURNS: turns,
    # The last one: an agent whose only worker it holds up answers nothing more.
    Scenario.CANCEL: cancel,
}


async def cells_of_agent(
    command: Sequence[str], environment: Mapping[str, str], folder: Path
) -> dict[Scenario, Cell]:
    """Start the script of an agent, and call it; what came of each scenario."""
    async with _agent(command, environment, folder) as (url, cannot), _host(url, folder) as host:
        cells = {scenario: await _cell(host, scenario, cannot.get(scenario)) for scenario in SCENARIOS}
        return {scenario: cells[scenario] for scenario in OF_SIDE[Side.AGENT]}


async def _cell(host: Host, scenario: Scenario, cannot: str | None) -> Cell:
    """What comes of a scenario; it is tried even when the agent says that it cannot."""
    host.asked.clear()
    failed = None
    with anyio.move_on_after(CELL_SECONDS) as life:
        try:
            await SCENARIOS[scenario](host)
        except Exception as exc:  # noqa: BLE001 - whatever it is, it is what came of the scenario
            failed = f"{type(exc).__name__}: {exc}".removeprefix("AssertionError: ")
    if life.cancelled_caught:
        failed = f"not done within {CELL_SECONDS} s"
    if failed is None:
        return Cell(Outcome.PASS)
    return Cell(Outcome.CANNOT, cannot) if cannot else Cell(Outcome.FAIL, failed[:300])


@asynccontextmanager
async def _agent(
    command: Sequence[str], environment: Mapping[str, str], folder: Path
) -> AsyncIterator[tuple[str, Mapping[str, str]]]:
    """The URL of an agent that runs, and what it says that it cannot do."""
    with (
        (folder / "agent.txt").open("wb") as log,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env={**environment},
            cwd=folder,
        ) as process,
    ):
        try:
            lines = Lines(process, process.stdout)
            ready = json.loads(await anyio.to_thread.run_sync(lines.until, '{"url"', READY_SECONDS))
            await _answering(ready["url"])
            yield ready["url"], ready["cannot"]
        finally:
            process.terminate()
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(_end, process)


async def _answering(url: str) -> None:
    """Wait until something listens: a framework that starts its server itself cannot be asked to say so."""
    parts = httpx2.URL(url)
    with anyio.fail_after(READY_SECONDS):
        while True:
            try:
                stream = await anyio.connect_tcp(parts.host, parts.port or 80)
            except OSError:
                await anyio.sleep(0.2)
            else:
                return await stream.aclose()


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()


@asynccontextmanager
async def _host(url: str, folder: Path) -> AsyncIterator[Host]:
    words = ["-P", "-m", "bridge", "expose", "--answer-within-seconds", str(_WITHIN_SECONDS), url]
    environment = bridge_environment(folder / "state", XDG_CACHE_HOME=str(folder / "cache"))
    parameters = StdioServerParameters(command=sys.executable, args=words, env=environment, cwd=folder)
    host = Host(None, url)  # type: ignore[arg-type]
    with (folder / "bridge.txt").open("w") as log:
        transport = stdio_client(parameters, errlog=log)
        async with Client(transport, mode="auto", cache=None, elicitation_callback=host.answer) as client:
            host.client = client
            yield host
