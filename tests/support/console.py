"""A browser at the console of a bridge, without a socket: cookies, the token of a page, and what its script sends."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import httpx2

from bridge.assembly.bridge import Bridge
from bridge.assembly.plan import Plan
from bridge.console.app import mount_console
from tests.support.in_process import client_of

HERE: Final = "http://127.0.0.1:8080"
_CSRF: Final = re.compile(r'data-csrf="([^"]+)"')


@dataclass
class ConsoleBrowser:
    """One browser. `headers` go with each of its requests, as a proxy would add them."""

    bridge: Bridge
    base_url: str = HERE
    headers: Mapping[str, str] = field(default_factory=dict)
    address: str = "127.0.0.1"
    csrf: str = ""
    client: httpx2.AsyncClient = field(init=False)

    def __post_init__(self) -> None:
        transport = httpx2.ASGITransport(self.bridge.app, client=(self.address, 50_000))
        self.client = httpx2.AsyncClient(transport=transport, base_url=self.base_url, headers=self.headers)

    async def opens(self, path: str = "", **headers: str) -> httpx2.Response:
        """Asks for a page."""
        page = await self.client.get(f"/console{path}", headers=headers)
        if found := _CSRF.search(page.text):
            self.csrf = found[1]
        return page

    async def reads(self, path: str = "") -> Any:
        """The JSON of a page."""
        page = await self.client.get(f"/console{path}", headers={"Accept": "application/json"})
        assert page.status_code == 200, page.text
        return page.json()

    async def posts(self, path: str, body: object, **headers: str) -> httpx2.Response:
        """Sends what the script of the page that was opened last sends."""
        own = {"Origin": self.base_url, "X-CSRF-Token": self.csrf, **headers}
        return await self.client.post(f"/console{path}", json=body, headers=own)

    async def signs_in(self, token: str) -> int:
        """Shows a token on the page for it."""
        await self.opens()
        return (await self.posts("/sign-in", {"token": token})).status_code


@asynccontextmanager
async def console_of(plan: Plan) -> AsyncIterator[Bridge]:
    """A bridge with a console, in this process."""
    bridge = Bridge(plan)
    mount_console(bridge)
    async with bridge.run():
        await bridge.apply(plan)
        yield bridge


async def news(stream: httpx2.Response) -> AsyncIterator[Any]:
    """What a stream tells, as it comes."""
    async for line in stream.aiter_lines():
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))


@asynccontextmanager
async def told_to(browser: ConsoleBrowser, task: str | None = None) -> AsyncIterator[AsyncIterator[Any]]:
    """The news of an open tab, of which the first ones have come."""
    async with client_of(browser.bridge.app) as client:
        client.cookies = browser.client.cookies
        headers = {"Origin": HERE, "X-CSRF-Token": browser.csrf}
        body = {} if task is None else {"task": f"/tasks/devtools/{task}"}
        async with client.stream("POST", f"{HERE}/console/news", json=body, headers=headers) as stream:
            assert stream.status_code == 200
            async with aclosing(news(stream)) as told:
                for _ in range(1 if task is None else 2):
                    await anext(told)
                yield told
