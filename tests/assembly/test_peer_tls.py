"""Peers of a file that want a certificate: a tool server, an agent and a catalog, over real TLS."""

from __future__ import annotations

import ipaddress
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import httpx2
import pytest
from cryptography import x509
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

from bridge.assembly.bridge import Bridge
from bridge.assembly.plan_from_file import plan_from_file
from bridge.config.load import load
from bridge.http.tls import TlsPoint
from bridge.process.place_findings import place_faults
from tests.support.certificates import Authority
from tests.support.command import run_here
from tests.support.ports import free_port
from tests.support.running import RAW_SERVER, Rpc, call_part, listening
from tests.support.serving_file import serving_file

pytestmark = [pytest.mark.anyio, pytest.mark.outside]

FAR = f"""
[bridge]
store = "memory:"
tls = {{ certificate = "far.pem", key = "far.key", client_ca = "An authority.pem" }}
[tool_servers.raw]
command = {json.dumps([sys.executable, "-S", "-E", str(RAW_SERVER)])}
era = "legacy"
[tools_as_agent.desk]
from = ["raw"]
[agents_as_tools.team]
from = ["desk"]
[principals.ann]
certificate = "subject:CN=ann"
"""
NEAR = """
[bridge]
store = "memory:"
[tool_servers.tools]
url = "{far}/mcp/team"
tls = { certificate = "ann.pem", key = "ann.key", ca = "An authority.pem" }
[agents.desk]
card = "{far}/agents/desk"
tls = { certificate = "ann.pem", key = "ann.key", ca = "An authority.pem" }
[catalogs.all]
url = "{far}/agents"
tls = { certificate = "ann.pem", key = "ann.key", ca = "An authority.pem" }
[tools_as_agent.near]
from = ["tools"]
[agents_as_tools.one]
from = ["desk"]
[agents_as_tools.many]
from = ["all"]
"""


@asynccontextmanager
async def far(folder: Path) -> AsyncIterator[str]:
    """A bridge that lets in nobody without a certificate, and knows that of ann."""
    authority = Authority(folder)
    authority.issues("far", x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
    authority.issues("ann")
    assert authority.file.exists()
    file = folder / "far.toml"
    file.write_text(FAR)
    plan = plan_from_file(load(file, {}))
    port = free_port()
    bridge = Bridge(plan, own_url=f"http://127.0.0.1:{port}")
    assert plan.place.tls is not None
    async with (
        bridge.run(),
        listening(bridge.own_door, port),
        listening(bridge.app, tls=TlsPoint(plan.place.tls)) as url,
    ):
        await bridge.apply(plan)
        yield url
        await bridge.drain(0)


async def test_tool_servers_agents_and_catalogs_are_shown_their_certificate(tmp_path: Path) -> None:
    with anyio.fail_after(60):
        async with far(tmp_path) as url, serving_file(tmp_path, NEAR, far=url) as root:
            async with httpx2.AsyncClient() as http:
                card = (await http.get(f"{root}/agents/near/.well-known/agent-card.json")).json()
                (echo,) = [skill["id"] for skill in card["skills"] if skill["id"].endswith("echo")]
                task = await Rpc(http, f"{root}/agents/near").send(call_part(echo, text="hello"))
                assert "hello" in json.dumps(task)
            for name in ("one", "many"):
                async with Client(streamable_http_client(f"{root}/mcp/{name}"), cache=None) as host:
                    (tool,) = [
                        one.name for one in (await host.list_tools()).tools if one.name.endswith("echo")
                    ]
                    answer = await host.call_tool(tool, {"text": "hello"})
                    assert (answer.is_error, "hello" in str(answer.content)) == (False, True)


async def test_a_command_shows_an_agent_the_certificate_that_is_named(tmp_path: Path) -> None:
    files = {"--cert": "ann.pem", "--key": "ann.key", "--ca": "An authority.pem"}

    def card(url: str, *names: str) -> subprocess.CompletedProcess[str]:
        words = [word for name in names for word in (name, str(tmp_path / files[name]))]
        return run_here("card", f"{url}/agents/desk", *words, state=tmp_path)

    with anyio.fail_after(60):
        async with far(tmp_path) as url:
            shown = await anyio.to_thread.run_sync(card, url, *files)
            alone = await anyio.to_thread.run_sync(card, url, "--cert")
            nobody = await anyio.to_thread.run_sync(card, url, "--ca")
    assert (shown.returncode, "echo" in shown.stdout) == (0, True), shown.stderr
    assert (alone.returncode, "--cert and --key go together" in alone.stderr) == (2, True)
    assert nobody.returncode == 1, nobody.stderr


def test_what_is_wrong_with_the_files_of_a_peer_is_a_fault_of_its_table(tmp_path: Path) -> None:
    (tmp_path / "bridge.toml").write_text(NEAR.replace("{far}", "https://far.example"))
    plan = plan_from_file(load(tmp_path / "bridge.toml", {}))
    why = f"{tmp_path / 'An authority.pem'} cannot be read: No such file or directory"
    places = ("tool_servers", "tools"), ("agents", "desk"), ("catalogs", "all")
    assert [(one.path, one.words) for one in place_faults(plan)] == [
        ((*place, "tls", "certificate"), f"{'.'.join(place)}: tls.certificate: {why}") for place in places
    ]
