"""The library's door: what `bridge.load`, `bridge.loads` and `bridge.open` give and raise, and where they work."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.to_thread
import httpx2
import pytest
from mcp.server import MCPServer

import bridge
from bridge.errors import ConfigError, PeerError, UsageError
from tests.support.command import WAIT_SECONDS

T = TypeVar("T")

ROOT = Path(__file__).parents[1]

GREETING = {
    "bridge": {"store": "memory:"},
    "tools_as_agent": {"demo": {"from": ["demo"], "skills": {"greet": {"name": "Say hello"}}}},
}


def greeter(name: str = "demo") -> MCPServer:
    server = MCPServer(name, log_level="CRITICAL")

    @server.tool()
    def greet(name: str) -> str:
        """Greet someone."""
        return f"Hello, {name}!"

    return server


async def skills_of(app: Any) -> list[str]:
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://localhost") as client:
        card = await client.get("/.well-known/agent-card.json")
        return [skill["name"] for skill in card.json()["skills"]]


async def in_a_task(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run something in a task of its own, to its end."""
    return await asyncio.get_running_loop().create_task(make())


# Reading


async def test_a_dict_is_read_as_a_file_with_its_tables() -> None:
    async with bridge.open(bridge.loads(GREETING, servers={"demo": greeter()})) as app:
        assert await skills_of(app) == ["Say hello"]


async def test_a_text_is_read_as_a_file() -> None:
    text = '[tools_as_agent.demo]\nfrom = ["demo"]\n[bridge]\nstore = "memory:"\n'
    async with bridge.open(bridge.loads(text, servers={"demo": greeter()})) as app:
        assert await skills_of(app) == ["greet"]


def test_a_mistake_in_a_dict_is_shown_in_its_toml() -> None:
    with pytest.raises(ConfigError) as caught:
        bridge.loads(
            {"tools_as_agent": {"demo": {"from": ["demo"], "nam": "Demo"}}}, servers={"demo": greeter()}
        )
    assert "unknown key `nam` in [tools_as_agent.demo]" in str(caught.value)
    assert "configuration:3:1" in str(caught.value)
    assert [one.line for one in caught.value.diagnostics] == [3]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "tools_as_agent.demo.name is None, which TOML does not have: leave the key out"),
        (object(), "tools_as_agent.demo.name is a object, which TOML does not have"),
    ],
    ids=["none", "object"],
)
def test_a_value_that_toml_does_not_have_is_named(value: object, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        bridge.loads({"tools_as_agent": {"demo": {"from": ["demo"], "name": value}}})


def test_an_empty_table_of_a_dict_stays_a_table() -> None:
    with pytest.raises(ConfigError, match="needs `command` or `url`"):
        bridge.loads({"tool_servers": {"demo": {}}, "tools_as_agent": {"demo": {"from": ["demo"]}}})


def test_a_broken_text_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="configuration"):
        bridge.loads("[bridge")


async def test_an_object_stands_in_for_the_command_of_a_file(tmp_path: Path) -> None:
    """The limits of the table stay; its secrets are not asked for."""
    file = tmp_path / "bridge.toml"
    file.write_text(
        '[bridge]\nstore = "memory:"\n'
        '[tool_servers.demo]\nurl = "https://demo.example.com/mcp"\nauth = { bearer = { env = "UNSET" } }\n'
        "tools_most = 7\n"
        '[tools_as_agent.demo]\nfrom = ["demo"]\n'
    )
    with pytest.raises(ConfigError, match="UNSET"):
        bridge.load(file, {})
    loaded = bridge.load(file, {}, servers={"demo": greeter()})
    assert loaded.config.tool_servers["demo"].tools_most == 7
    async with bridge.open(loaded) as app:
        assert await skills_of(app) == ["greet"]


async def test_an_object_stands_in_for_a_server_of_a_hosts_file(tmp_path: Path) -> None:
    host = tmp_path / "mcp.json"
    host.write_text(json.dumps({"mcpServers": {"demo": {"command": "no-such-command"}}}))
    file = {**GREETING, "import": {"mcp_json": str(host)}}
    async with bridge.open(bridge.loads(file, servers={"demo": greeter()})) as app:
        assert await skills_of(app) == ["Say hello"]


def test_a_face_of_an_unknown_server_is_refused_beside_an_object() -> None:
    with pytest.raises(ConfigError, match="`other`"):
        bridge.loads({"tools_as_agent": {"demo": {"from": ["other"]}}}, servers={"demo": greeter()})


def test_an_object_that_is_no_server_is_named() -> None:
    with pytest.raises(UsageError, match=r"tool server demo: builtins\.dict is no MCP server"):
        bridge.loads(GREETING, servers={"demo": {}})  # type: ignore[dict-item]


# Opening


async def test_a_tool_server_that_is_down_is_a_plain_peer_error() -> None:
    file = {
        **GREETING,
        "tool_servers": {
            "demo": {
                "command": [sys.executable, "-c", "import sys; sys.exit('no licence')"],
                "fail": "closed",
            }
        },
    }
    with pytest.raises(PeerError) as caught:
        async with bridge.open(bridge.loads(file)):
            pytest.fail("it is down")
    assert type(caught.value) is PeerError
    assert "no licence" in "".join(caught.value.__notes__)


async def test_a_handshake_that_is_none_is_told_field_by_field_in_one_line() -> None:
    program = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    no = {"error": {"code": -32601, "message": "no"}}
    said = {"result": {"protocolVersion": 7}} if asked["method"] == "initialize" else no
    print(json.dumps({"jsonrpc": "2.0", "id": asked.get("id"), **said}), flush=True)
"""
    command = [sys.executable, "-c", program]
    file = {**GREETING, "tool_servers": {"demo": {"command": command, "fail": "closed"}}}
    with pytest.raises(PeerError) as caught:
        async with bridge.open(bridge.loads(file)):
            pytest.fail("it is none")
    assert str(caught.value) == (
        "demo gave an invalid answer to the MCP handshake: capabilities is missing;"
        " protocolVersion: Input should be a valid string; serverInfo is missing"
    )


@pytest.mark.outside
async def test_a_command_that_is_not_there_is_a_plain_usage_error() -> None:
    file = {**GREETING, "tool_servers": {"demo": {"command": ["no-such-command"], "fail": "closed"}}}
    with pytest.raises(UsageError, match="no-such-command"):
        async with bridge.open(bridge.loads(file)):
            pytest.fail("it is down")


async def test_a_server_object_that_cannot_start_is_a_plain_peer_error() -> None:
    @asynccontextmanager
    async def broken(_: MCPServer) -> AsyncIterator[None]:
        raise RuntimeError("no database")
        yield

    with pytest.raises(PeerError) as caught:
        async with bridge.open(bridge.loads(GREETING, servers={"demo": MCPServer("demo", lifespan=broken)})):
            pytest.fail("it is down")
    assert "no database" in "".join(caught.value.__notes__)


@pytest.mark.outside
async def test_several_servers_that_are_down_are_all_told_of() -> None:
    tables = {name: {"command": [f"no-such-{name}"], "fail": "closed"} for name in ("one", "two")}
    file = {
        "bridge": {"store": "memory:"},
        "tool_servers": tables,
        "tools_as_agent": {"demo": {"from": ["one", "two"]}},
    }
    with pytest.raises(UsageError) as caught:
        async with bridge.open(bridge.loads(file)):
            pytest.fail("both are down")
    assert "no-such-" in str(caught.value)


async def test_what_the_body_raises_is_what_comes_out() -> None:
    with pytest.raises(ZeroDivisionError):
        async with bridge.open(bridge.loads(GREETING, servers={"demo": greeter()})):
            _ = 1 / 0


async def test_a_bridge_may_be_left_by_another_task_than_entered_it() -> None:
    opened = bridge.open(bridge.loads(GREETING, servers={"demo": greeter()}))
    app = await in_a_task(opened.__aenter__)
    assert await skills_of(app) == ["Say hello"]
    await in_a_task(lambda: opened.__aexit__(None, None, None))
    assert "mcp-a2a bridge" not in {task.get_name() for task in asyncio.all_tasks()}


async def test_two_bridges_may_be_left_in_any_order() -> None:
    first, second = (bridge.open(bridge.loads(GREETING, servers={"demo": greeter()})) for _ in range(2))
    await first.__aenter__()
    app = await second.__aenter__()
    await first.__aexit__(None, None, None)
    assert await skills_of(app) == ["Say hello"]
    await second.__aexit__(None, None, None)


async def test_a_start_that_is_cancelled_leaves_nothing_behind() -> None:
    file = {
        **GREETING,
        "tool_servers": {
            "demo": {"command": [sys.executable, "-c", "import sys; sys.stdin.read()"], "fail": "closed"}
        },
    }
    before = asyncio.all_tasks()
    with anyio.move_on_after(0.5) as waiting:
        async with bridge.open(bridge.loads(file)):
            pytest.fail("it never speaks")
    assert waiting.cancelled_caught
    assert asyncio.all_tasks() == before


async def test_a_bridge_is_opened_once() -> None:
    opened = bridge.open(bridge.loads(GREETING, servers={"demo": greeter()}))
    async with opened:
        pass
    with pytest.raises(UsageError, match="opened before"):
        await opened.__aenter__()


def test_another_event_loop_is_refused_in_words() -> None:
    opening = bridge.open(bridge.loads(GREETING, servers={"demo": greeter()})).__aenter__()
    with pytest.raises(UsageError, match="runs on asyncio"):
        _step_without_asyncio(opening)


def _step_without_asyncio(coroutine: Awaitable[object]) -> None:
    """Take the first step of a coroutine as a loop that is none of asyncio's would."""
    coroutine.__await__().send(None)  # type: ignore[attr-defined]


# Plugins of pytest

FIXTURE = """
import bridge, httpx2, pytest{imports}
from mcp.server import MCPServer

server = MCPServer("demo", log_level="CRITICAL")


@server.tool()
def greet(name: str) -> str:
    return f"Hello, {{name}}!"

{backend}
@{fixture}
async def app():
    tables = {{"bridge": {{"store": "memory:"}}, "tools_as_agent": {{"demo": {{"from": ["demo"]}}}}}}
    loaded = bridge.loads(tables, servers={{"demo": server}})
    async with bridge.open(loaded) as app:
        yield app


{mark}
async def test_skills(app):
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://localhost") as client:
        card = (await client.get("/.well-known/agent-card.json")).json()
    assert [skill["id"] for skill in card["skills"]] == ["greet"]


{mark}
async def test_failure(app):
    assert False, "the reason that is shown"
"""

BACKEND = """
@pytest.fixture{scope}
def anyio_backend():
    return "asyncio"

"""
PLUGINS = {
    "anyio": {
        "imports": "",
        "backend": BACKEND.format(scope=""),
        "fixture": "pytest.fixture",
        "mark": "@pytest.mark.anyio",
    },
    "anyio-module": {
        "imports": "",
        "backend": BACKEND.format(scope='(scope="module")'),
        "fixture": 'pytest.fixture(scope="module")',
        "mark": "@pytest.mark.anyio",
    },
    "pytest-asyncio": {
        "imports": ", pytest_asyncio",
        "backend": "",
        "fixture": "pytest_asyncio.fixture",
        "mark": "@pytest.mark.asyncio",
    },
    "pytest-asyncio-module": {
        "imports": ", pytest_asyncio",
        "backend": "",
        "fixture": 'pytest_asyncio.fixture(scope="module", loop_scope="module")',
        "mark": '@pytest.mark.asyncio(loop_scope="module")',
    },
}


@pytest.mark.outside
@pytest.mark.long
async def test_a_bridge_is_a_fixture(tmp_path: Path) -> None:
    """With each plugin one test passes, one fails with its own reason, and the teardown says nothing."""
    has_asyncio = importlib.util.find_spec("pytest_asyncio") is not None
    settings = "asyncio_default_fixture_loop_scope = function\n" if has_asyncio else ""
    (tmp_path / "pytest.ini").write_text(f"[pytest]\nfilterwarnings = error\n{settings}")
    tried = {name: words for name, words in PLUGINS.items() if has_asyncio or "asyncio" not in name}
    for name, words in tried.items():
        (tmp_path / f"test_{name.replace('-', '_')}.py").write_text(FIXTURE.format(**words))
    with anyio.fail_after(WAIT_SECONDS):
        done = await anyio.run_process(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider"],
            cwd=tmp_path,
            check=False,
        )
    said = done.stdout.decode()
    assert f"{len(tried)} failed, {len(tried)} passed" in said, said + done.stderr.decode()
    assert said.count("AssertionError: the reason that is shown") >= len(tried)
    assert "error at teardown" not in said.lower()


# Types


@pytest.mark.outside
@pytest.mark.long
async def test_a_program_that_uses_the_library_is_typed(tmp_path: Path) -> None:
    """`py.typed` is there, and what the door gives has types."""
    program = tmp_path / "program.py"
    program.write_text(
        "import bridge\nimport bridge.testing\nfrom mcp.server import MCPServer\n\n\n"
        "async def main(server: MCPServer) -> None:\n    async with bridge.testing.agent(server) as agent:\n"
        '        answer = await agent.call("greet", name="Ada")\n        reveal_type(answer.text)\n'
        '    async with bridge.open(bridge.loads({}, servers={"demo": server})) as app:\n        reveal_type(app)\n'
        '    bridge.loads({}, servers={"demo": 7})\n'
    )
    done = await anyio.run_process(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--output",
            "json",
            "--cache-dir",
            str(ROOT / ".mypy_cache" / "library"),
            str(program),
        ],
        cwd=tmp_path,
        check=False,
    )
    said = [json.loads(line)["message"] for line in done.stdout.decode().splitlines()]
    assert said[0] == 'Revealed type is "str"'
    assert said[1].startswith('Revealed type is "def (')
    assert 'expected "str": "Server[Any] | MCPServer' in said[2]
    assert len(said) == 3
