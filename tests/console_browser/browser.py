"""What the journeys need: Chromium, axe-core, a bridge that serves a file, and a store with many tasks."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.error import URLError
from urllib.request import urlopen

import anyio
import httpx2
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from bridge.assembly.bridge import Bridge
from bridge.assembly.plan import Plan, ProcessPlan, PublishedPlan, ServerPlan
from bridge.mcp.client.eras import Era
from tests.peers.install import NPM_INSTALL, PEERS, node, node_root
from tests.support.in_process import client_of
from tests.support.ports import free_port
from tests.support.running import VERSION, profile_with
from tests.support.tool_server import ToolServer, listed

_T = TypeVar("_T")

AXE: Final = "axe-core@4.14.1"
PICTURES: Final = Path(__file__).resolve().parents[2] / "docs" / "pictures"
WAIT_SECONDS: Final = 60
_EVERYTHING: Final = (
    PEERS / "node_modules" / "@modelcontextprotocol" / "server-everything" / "dist" / "index.js"
)
_PORT: Final = 8080
"""The port in the pictures, if it is free."""


def chromium() -> str:
    """The browser's program."""
    found = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    assert found, "there is no Chromium: apt-get install chromium, or name it in CHROMIUM"
    return found


@contextmanager
def browsing() -> Iterator[Browser]:
    """A browser without a window."""
    with sync_playwright() as playwright:
        # As root, Chromium runs only without its sandbox.
        root = hasattr(os, "geteuid") and os.geteuid() == 0
        arguments = ["--no-sandbox"] if root else []
        browser = playwright.chromium.launch(executable_path=chromium(), args=arguments)
        yield browser
        browser.close()


def axe_source() -> str:
    """The text of axe-core, which is installed once."""
    folder = PEERS / "console"
    script = folder / "node_modules" / "axe-core" / "axe.min.js"
    if not script.exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text('{"private": true}')
        npm = node_root() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        subprocess.run([node(), npm, *NPM_INSTALL, "--no-save", AXE], cwd=folder, check=True, timeout=300)
    return script.read_text(encoding="utf-8")


def faults_by_axe(page: Page, source: str) -> list[str]:
    """What axe-core has against a page."""
    page.evaluate(source)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{page.url}: {one['id']}: {node['html']} {node.get('failureSummary', '')}"
        for one in found["violations"]
        for node in one["nodes"]
    ]


@dataclass
class Tab:
    """A page of the console, and everything that went wrong in it."""

    page: Page
    root: str
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("pageerror", lambda fault: self.faults.append(str(fault)))
        self.page.on("dialog", lambda dialog: (self.faults.append(dialog.message), dialog.dismiss()))
        self.page.on("console", lambda said: self.faults.append(said.text) if said.type == "error" else None)

    def opens(self, path: str = "") -> Page:
        """Load a page of the console."""
        self.page.goto(f"{self.root}/console{path}")
        return self.page


def tab_in(context: BrowserContext, root: str) -> Tab:
    """A new tab."""
    context.set_default_timeout(WAIT_SECONDS * 1000)
    return Tab(context.new_page(), root)


def awaited(work: Callable[[], Awaitable[_T]]) -> _T:
    """What a coroutine gives. Playwright has a loop in this thread, so that it runs in another."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(anyio.run, work).result()


@contextmanager
def serving(folder: Path, text: str, port: int = 0, **environment: str) -> Iterator[str]:
    """`mcp-a2a serve` with this file; its URL. `{port}` in the text is its port, a free one without `port`.

    What it starts and reads has short names, since they are on the pictures.
    """
    port = port or _port()
    programs = folder / "bin"
    programs.mkdir()
    server = programs / "mcp-server-everything"
    server.write_text(f'#!/bin/sh\nexec "{node()}" "{_EVERYTHING}" "$@"\n')
    server.chmod(0o700)
    file = folder / "bridge.toml"
    file.write_text(text.replace("{port}", str(port)), encoding="utf-8")
    root = f"http://127.0.0.1:{port}"
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    own = {
        **os.environ,
        "PATH": path,
        "XDG_STATE_HOME": str(folder / "state"),
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
    command = [sys.executable, "-m", "bridge", "serve", "--log-format", "json"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, stderr=log, stdout=log, cwd=folder, env={**own, **environment})
        try:
            _until_ready(root, process)
            yield root
        finally:
            process.terminate()
            process.wait(WAIT_SECONDS)


def _port() -> int:
    with socket.socket() as one:
        try:
            one.bind(("127.0.0.1", _PORT))
        except OSError:
            return free_port()
    return _PORT


def _until_ready(root: str, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < until:
        assert process.poll() is None, "the bridge has ended"
        try:
            with urlopen(f"{root}/readyz") as answer:
                if answer.status == 200:
                    return
        except (URLError, ConnectionError):
            pass
        time.sleep(0.1)
    raise AssertionError("the bridge did not become ready")


def send(root: str, agent: str, skill: str, arguments: dict[str, Any], token: str = "") -> str:
    """Call a skill as a client of A2A, without a wait. The id of its task."""
    message = {
        "messageId": os.urandom(8).hex(),
        "role": "ROLE_USER",
        "parts": [{"data": {"skill": skill, "arguments": arguments}}],
    }
    params = {"message": message, "configuration": {"returnImmediately": True}}
    answer = httpx2.post(
        f"{root}/agents/{agent}",
        json={"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params},
        headers={**VERSION, **({"Authorization": f"Bearer {token}"} if token else {})},
    )
    found: str = answer.json()["result"]["task"]["id"]
    return found


def end(root: str, task: str) -> None:
    """Cancel a task that waits: it keeps its server from other calls."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "CancelTask", "params": {"id": task}}
    assert "result" in httpx2.post(f"{root}/agents/devtools", json=body, headers=VERSION).json()


def fill(store: Path, tasks: int) -> None:
    """Make many tasks in a store, as calls of a tool make them."""
    awaited(partial(_fill, store, tasks))
    assert store.exists()


async def _fill(store: Path, tasks: int) -> None:
    profile = profile_with(run={"concurrency": 50, "queue": 300}, store={"keep_ended_tasks_each": tasks})
    async with ToolServer("tools", [listed("echo", text={"type": "string"})]).run() as server:
        target = ServerPlan.as_profile_says(server.target, Era.MODERN, profile.server, profile.run)
        plan = Plan(
            profile,
            ProcessPlan(keys=("k" * 32,), state=store.parent),
            servers={"tools": target},
            published={"devtools": PublishedPlan(("tools",), profile, str(store))},
        )
        bridge = Bridge(plan)
        async with bridge.run(), client_of(bridge.app) as client:
            await bridge.apply(plan)
            limiter = anyio.CapacityLimiter(20)

            async def one(number: int) -> None:
                data = {"skill": "echo", "arguments": {"text": str(number)}}
                message = {"messageId": str(number), "role": "ROLE_USER", "parts": [{"data": data}]}
                body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
                async with limiter:
                    answer = await client.post("http://127.0.0.1/agents/devtools", json=body, headers=VERSION)
                assert "result" in json.loads(answer.text), answer.text

            async with anyio.create_task_group() as group:
                for number in range(tasks):
                    group.start_soon(one, number)
