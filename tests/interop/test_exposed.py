"""Agents exposed by the real command, to clients that are not ours: the official Python one and the MCP inspector.

Behind the agents are the reference server of MCP, wrapped by the real command, whose tools have to give through
both halves what they give directly; and agents on the official SDKs, in Python and in JavaScript.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from base64 import b64decode
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio
import mcp_types as types
import pytest
from mcp import Client, MCPError, StdioServerParameters, stdio_client

from tests.interop.conversation import Reply
from tests.interop.test_real_servers import ROWS, URL_REQUIRED, Row
from tests.peers.node import everything_command, inspector_command, js_agent_command, require_peers
from tests.support.command import ROOT, environment, wrapping
from tests.support.exposing import answering
from tests.support.forked import Forked, through_server
from tests.support.lines import first_line

pytestmark = pytest.mark.slow

each_mode = pytest.mark.parametrize("mode", ["auto", "legacy"])
each_era = pytest.mark.parametrize("era", ["modern", "legacy"])
EVERYTHING: Final = [row for row in ROWS if row.server == "everything"]
FOLLOW_UPS: Final = {"task_result", "task_reply", "task_cancel"}
WAIT_SECONDS: Final = 60
_TIME: Final = re.compile(r"\d\d?:\d\d:\d\d( [AP]M)?")


@dataclass
class Answers:
    """What the clients of these tests answer next, whichever of them is asked."""

    replies: list[Reply] = field(default_factory=list)

    async def __call__(self, _: object, params: Any) -> types.ElicitResult:
        """Answer one question."""
        reply = self.replies.pop(0)
        assert getattr(params, "url", None) == reply.visits
        return types.ElicitResult(action=reply.action, content=reply.content)


@dataclass(frozen=True)
class Everything:
    """Clients of server-everything: directly, and in each mode through the two commands."""

    direct: Client
    through: dict[str, Client]
    answers: Answers


def expose_command(url: str, folder: Path, *options: str) -> StdioServerParameters:
    """`mcp-a2a expose` over stdio, with folders of the test's own."""
    command, *rest = through_server("-P", "-m", "bridge", "expose", *options, url)
    return StdioServerParameters(
        command=command,
        args=rest,
        env=environment(folder / "state", XDG_CACHE_HOME=str(folder / "cache")),
        cwd=folder,
    )


@asynccontextmanager
async def exposed_at(url: str, folder: Path, mode: str, callback: Any = None) -> AsyncIterator[Client]:
    """The official client of an agent that the real command exposes."""
    transport = stdio_client(expose_command(url, folder))
    async with Client(transport, mode=mode, cache=None, elicitation_callback=callback) as client:  # type: ignore[arg-type]
        yield client


@pytest.fixture(scope="module")
async def everything(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Everything]:
    """All of it, started once for this file."""
    require_peers()
    folder, answers = tmp_path_factory.mktemp("everything"), Answers()
    program, *words = everything_command()
    parameters = StdioServerParameters(command=program, args=words, env={"PYTHONUTF8": "1"})
    async with AsyncExitStack() as stack:
        bridge = stack.enter_context(wrapping(state=folder, server=(program, *words)))
        url = f"{bridge.url}/agents/{_agent_in(bridge.lines)}"
        direct = Client(stdio_client(parameters), mode="legacy", elicitation_callback=answers)
        yield Everything(
            await stack.enter_async_context(direct),
            {
                mode: await stack.enter_async_context(exposed_at(url, folder, mode, answers))
                for mode in ("auto", "legacy")
            },
            answers,
        )


def _agent_in(lines: list[str]) -> str:
    """The key of the agent, as `mcp-a2a wrap` tells its address."""
    found = re.search(r"/agents/([^/\s]+)/", "".join(lines))
    assert found, lines
    return found[1]


async def given(client: Client, row: Row) -> Any:
    """What a call gives, as far as the server decides it; a URL that has to be visited first is visited."""
    try:
        result = await client.call_tool(row.tool, row.arguments)
    except MCPError as exc:
        if exc.code != URL_REQUIRED:
            return {"code": exc.code, "message": exc.message}
        for asked in exc.data["elicitations"]:
            await client.elicitation_callback(None, types.ElicitRequestURLParams.model_validate(asked))
        result = await client.call_tool(row.tool, row.arguments)
    kept = result.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"meta", "result_type"})
    for block in kept["content"]:
        resource = block.get("resource", {})
        if "blob" in resource:
            resource["blob"] = b64decode(resource["blob"]).decode("latin-1")  # which may hold the time
    return json.loads(_TIME.sub("TIME", json.dumps(kept, ensure_ascii=False)))


@each_mode
async def test_every_tool_is_listed_as_directly(mode: str, everything: Everything) -> None:
    def listed(tools: list[types.Tool]) -> dict[str, Any]:
        return {
            tool.name: tool.model_dump(mode="json", exclude_none=True, exclude={"execution"})
            for tool in tools
            if tool.name not in FOLLOW_UPS
        }

    through = listed((await everything.through[mode].list_tools()).tools)
    assert through == listed((await everything.direct.list_tools()).tools)
    assert through.keys() == {row.tool for row in EVERYTHING}


@each_mode
@pytest.mark.parametrize("row", [row for row in EVERYTHING if not row.is_task], ids=lambda row: row.id)
async def test_a_call_gives_block_by_block_what_it_gives_directly(
    row: Row, mode: str, everything: Everything
) -> None:
    with anyio.fail_after(WAIT_SECONDS):
        results = []
        for client in (everything.direct, everything.through[mode]):
            everything.answers.replies[:] = row.replies
            results.append(await given(client, row))
            assert not everything.answers.replies
    directly, through = results
    assert through == directly
    assert row.gives in "".join(block.get("text", "") for block in through["content"])


async def test_calls_of_which_the_server_makes_tasks_are_followed(everything: Everything) -> None:
    """Each takes four seconds: all of them at once, in both modes."""
    outcomes = []

    async def call(client: Client, row: Row) -> None:
        outcomes.append((row, await client.call_tool(row.tool, row.arguments)))

    plain, asking = [row for row in EVERYTHING if row.is_task]
    everything.answers.replies[:] = [*asking.replies, *asking.replies]
    with anyio.fail_after(WAIT_SECONDS):
        async with anyio.create_task_group() as tasks:
            for client in everything.through.values():
                tasks.start_soon(call, client, plain)
                tasks.start_soon(call, client, asking)
    assert not everything.answers.replies
    for row, result in outcomes:
        assert not result.is_error
        assert result.content[0].text.startswith(row.gives)


# Agents on the official SDKs


@pytest.fixture(scope="module")
def js_agent() -> Iterator[str]:
    """The URL of an agent on @a2a-js/sdk."""
    require_peers()
    with subprocess.Popen(
        js_agent_command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as agent:
        yield first_line(agent)
        agent.communicate(timeout=10)


@pytest.fixture(scope="module")
def py_agent() -> Iterator[str]:
    """The URL of an agent on a2a-sdk, in a process of its own."""
    command = [sys.executable, "-m", "tests.peers.sdk_behaviours"]
    with Forked(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as agent:
        yield first_line(agent)
        agent.terminate()


def texts(result: types.CallToolResult) -> list[str]:
    """The texts of a result, without the words that give its context."""
    found = [block.text for block in result.content if isinstance(block, types.TextContent)]
    return [words for words in found if not words.startswith("(To go on with this conversation")]


@each_mode
async def test_an_agent_on_the_javascript_sdk_is_called(js_agent: str, mode: str, tmp_path: Path) -> None:
    progress: list[Any] = []

    async def see(*numbers: Any) -> None:
        progress.append(numbers)

    answers = answering(types.ElicitResult(action="accept", content={"answer": "red"}))
    with anyio.fail_after(WAIT_SECONDS):
        async with exposed_at(js_agent, tmp_path, mode, answers) as client:
            listed = {tool.name for tool in (await client.list_tools()).tools}
            assert listed == {"plain", "say", "stream", "ask", "fail", "slow"} | FOLLOW_UPS
            assert texts(await client.call_tool("plain", {"message": "hi"})) == ["You said: hi"]
            assert texts(await client.call_tool("say", {"message": "hi"})) == ["Just so: hi"]
            streamed = await client.call_tool("stream", {"message": "hi"}, progress_callback=see)
            assert texts(streamed) == ["one two three"]
            assert [words for _, _, words in progress[:3]] == ["reading", "thinking", "writing"]
            assert texts(await client.call_tool("ask", {"message": "hi"})) == ["You said: red"]
            assert [question.message for question in answers.seen] == ["Which colour?"]
            failed = await client.call_tool("fail", {"message": "hi"})
            assert failed.is_error
            assert texts(failed)[0] == "Out of paper"


@each_mode
async def test_a_client_without_elicitation_answers_an_agent_on_the_javascript_sdk(
    js_agent: str, mode: str, tmp_path: Path
) -> None:
    with anyio.fail_after(WAIT_SECONDS):
        async with exposed_at(js_agent, tmp_path, mode) as client:
            (asked,) = texts(await client.call_tool("ask", {"message": "hi"}))
            assert asked.startswith("Which colour?")
            handle = asked.split("handle: ")[1]
            answered = await client.call_tool("task_reply", {"handle": handle, "message": "blue"})
            assert texts(answered) == ["You said: blue"]


# The inspector. A question would hang it, so none is asked.


def inspect(url: str, folder: Path, era: str, *options: str) -> Any:
    """What the inspector prints about an agent that the real command exposes."""
    config = folder / "servers.json"
    server = expose_command(url, folder)
    entry = {"type": "stdio", "command": server.command, "args": server.args, "env": server.env}
    config.write_text(json.dumps({"mcpServers": {"exposed": entry}}))
    command = inspector_command("--config", str(config), "--server", "exposed", "--protocol-era", era)
    done = subprocess.run(
        [*command, *options],
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        cwd=folder,
        env=environment(folder / "inspector", HOME=str(folder)),
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    return json.loads(done.stdout)


@each_era
@pytest.mark.parametrize("sdk", ["py", "js"])
def test_the_inspector_lists_and_calls(
    sdk: str, era: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    require_peers()
    url = request.getfixturevalue(f"{sdk}_agent")
    tools = inspect(url, tmp_path, era, "--method", "tools/list", "--strict")["tools"]
    assert {"plain", *FOLLOW_UPS} <= {tool["name"] for tool in tools}
    called = inspect(
        url, tmp_path, era, "--method", "tools/call", "--tool-name", "plain", "--tool-arg", "message=hi"
    )
    assert called["content"][0]["text"] == "You said: hi"
    (card,) = inspect(url, tmp_path, era, "--method", "resources/list")["resources"]
    read = inspect(url, tmp_path, era, "--method", "resources/read", "--uri", card["uri"])
    assert json.loads(read["contents"][0]["text"])["version"] == "1.0.0"
