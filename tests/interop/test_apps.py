"""The example servers of MCP Apps, with the host of ext-apps: what the host gets of a server directly is held against
what it gets through both halves of the bridge."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from bridge.assembly.plan import OfferedPlan
from tests.assembly.test_bridge import PROFILE, Live, agent, live
from tests.peers.install import NPM_INSTALL, PEERS, node, node_root
from tests.peers.node import require_peers
from tests.support.limits import command_of
from tests.tools_as_agent.test_apps import SHARED, plan_of

pytestmark = [pytest.mark.long, pytest.mark.proves("map-apps")]

Json = dict[str, Any]

FOLDER: Final = PEERS / "apps"
PACKAGES: Final = {
    "@modelcontextprotocol/client": "2.3.1",
    "@modelcontextprotocol/ext-apps": "2.0.4",
    "@modelcontextprotocol/server-basic-vanillajs": "2.0.3",
    "@modelcontextprotocol/server-budget-allocator": "2.0.3",
    "@modelcontextprotocol/server-debug": "2.0.3",
    "@modelcontextprotocol/server-system-monitor": "2.0.3",
}
HOST: Final = Path(__file__).parents[1] / "peers" / "js_app_host.mjs"
CALLS: Final[Json] = {
    "server-basic-vanillajs": [["get-time", {}]],
    "server-budget-allocator": [["get-budget-data", {}]],
    "server-debug": [["debug-tool", {}], ["debug-refresh", {}], ["debug-tool", {"simulateError": True}]],
    "server-system-monitor": [["get-system-info", {}], ["poll-system-stats", {}]],
}
APP_ONLY: Final = {
    "server-debug": ["debug-refresh", "debug-log"],
    "server-system-monitor": ["poll-system-stats"],
}


@pytest.fixture(scope="module", autouse=True)
def _packages() -> None:
    """Install the packages once."""
    require_peers()
    manifest = json.dumps({"private": True, "dependencies": PACKAGES})
    stamp = FOLDER / "stamp"
    if not stamp.is_file() or stamp.read_text(encoding="utf-8") != manifest:
        FOLDER.mkdir(parents=True, exist_ok=True)
        (FOLDER / "package.json").write_text(manifest, encoding="utf-8")
        npm = node_root() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        subprocess.run([node(), npm, *NPM_INSTALL], cwd=FOLDER, check=True, timeout=300)
        stamp.write_text(manifest, encoding="utf-8")


def command(package: str) -> list[str]:
    folder = FOLDER / "node_modules" / "@modelcontextprotocol" / package
    programs = json.loads((folder / "package.json").read_text(encoding="utf-8"))["bin"]
    (program,) = programs.values() if isinstance(programs, dict) else [programs]
    return [str(node()), str(folder / program), "--stdio"]


async def host(place: str, calls: Any) -> Json:
    """What the host of ext-apps gets of a server."""
    words = [str(node()), str(HOST), str(FOLDER), place, json.dumps(calls)]
    with anyio.fail_after(60):
        done = await anyio.run_process(words, check=False)
    assert done.returncode == 0, done.stderr.decode()
    found: Json = json.loads(done.stdout)
    return found


@asynccontextmanager
async def wrapped(folder: Path, *packages: str) -> AsyncIterator[Live]:
    """A bridge that wraps servers, and exposes the agents made of them as the MCP server `m`."""
    async with live(
        folder,
        servers={name: plan_of(command_of(tuple(command(name)))) for name in packages},
        published={name: agent(name, **SHARED) for name in packages},
        offered={"m": OfferedPlan(packages, PROFILE)},
    ) as there:
        for name in packages:
            await there.bridge.upstreams[name].ready()
        yield there


def own(found: Json) -> Json:
    """What is not of the bridge itself, without numbers, which differ from call to call."""
    tools = [tool for tool in found["tools"] if not tool["name"].startswith("task_")]
    links = {name: link for name, link in found["links"].items() if not name.startswith("task_")}
    resources = [one for one in found["resources"] if not one["uri"].startswith("a2a://")]
    results = [[name, _plain(result)] for name, result in found["results"]]
    return {**found, "tools": tools, "links": links, "resources": resources, "results": results}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items() if not key.startswith("mcp-a2a/")}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if isinstance(value, str):
        return re.sub(r"[\d.]+", "0", value)
    return 0 if isinstance(value, int | float) and not isinstance(value, bool) else value


@pytest.mark.parametrize("package", list(CALLS))
async def test_a_host_gets_the_same_directly_and_through_both_halves(package: str, tmp_path: Path) -> None:
    expected = own(await host(json.dumps(command(package)), CALLS[package]))
    async with wrapped(tmp_path, package) as there:
        seen = own(await host(f"{there.url}/mcp/m", CALLS[package]))
    assert seen == expected
    assert expected["appOnly"] == APP_ONLY.get(package, [])
    assert all(contents[0]["text"].startswith("<!") for contents in expected["pages"].values())


async def test_the_apps_of_several_servers_are_each_read_at_their_own(tmp_path: Path) -> None:
    packages = list(CALLS)
    async with wrapped(tmp_path, *packages) as there:
        seen = await host(
            f"{there.url}/mcp/m", [*CALLS["server-debug"], *CALLS["server-system-monitor"], ["none", {}]]
        )
    for package in packages:
        expected = await host(json.dumps(command(package)), [])
        for name, link in expected["links"].items():
            shown = link and link.replace("ui://", f"ui://{package}/r/")
            assert seen["links"][name] == shown
            if link:
                (direct,), (through,) = expected["pages"][link], seen["pages"][shown]
                assert through == {**direct, "uri": shown}
    assert [name for name, result in seen["results"] if "error" in result] == ["none"]
