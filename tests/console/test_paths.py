"""Paths of pages, with any characters in names."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Scope

from bridge.assembly.plan import Plan, ProcessPlan, PublishedPlan, ServerPlan
from bridge.console.paths import asked_path, path_of, segments_of
from bridge.mcp.client.eras import Era
from tests.console.test_task_pages import Served
from tests.support.console import ConsoleBrowser, console_of
from tests.support.running import profile_with
from tests.support.tool_server import ToolServer, listed

NAMES = ("files/read", "read", "export", "export.json", "a.b", "x?y#z", "50%25", "\u00e4 b", "mcp", "..a")


def asked(sent: str, *, verb: str = "GET", root: str = "") -> tuple[str, bool]:
    scope: Scope = {"method": verb, "path": "unused", "raw_path": sent.encode(), "root_path": root}
    return asked_path(scope)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])).filter(bool), min_size=1))
def test_a_quoted_path_is_read_as_its_names(names: list[str]) -> None:
    path = path_of(*names)
    assert segments_of(path) == tuple(names)
    assert asked(f"/console{path}") == (path, False)
    assert asked(f"/console{path}.json") == (path, True)


@pytest.mark.parametrize(
    ("sent", "verb", "root", "found"),
    [
        ("/console", "GET", "", ("", False)),
        ("/console/", "GET", "", ("", False)),
        ("/console.json", "GET", "", ("", True)),
        ("/console/tasks.json", "HEAD", "", ("/tasks", True)),
        ("/console/tasks.json", "POST", "", ("/tasks%2Ejson", False)),
        ("/console/try/a/export%2ejson", "GET", "", ("/try/a/export%2Ejson", False)),
        ("/%63onsole/t%61sks/", "GET", "", ("/tasks", False)),
        ("/out%20er/console/try/a/b%2Fc", "GET", "/out er", ("/try/a/b%2Fc", False)),
        ("/console.txt", "GET", "", ("/console.txt", False)),
        ("/console//tasks", "GET", "", ("//tasks", False)),
    ],
)
def test_what_a_request_asks_for(sent: str, verb: str, root: str, found: tuple[str, bool]) -> None:
    assert asked(sent, verb=verb, root=root) == found


def test_a_server_that_keeps_no_path_as_it_was_sent_is_served_too() -> None:
    scope: Scope = {"method": "GET", "path": "/console/try/a b", "root_path": ""}
    assert asked_path(scope) == ("/try/a%20b", False)


@asynccontextmanager
async def of_all_names(tmp_path: Path) -> AsyncIterator[Served]:
    profile = profile_with()
    async with ToolServer("tools", [listed(name) for name in NAMES]).run() as server:
        target = ServerPlan.as_profile_says(server.target, Era.MODERN, profile.server, profile.run)
        plan = Plan(
            profile,
            ProcessPlan(console=True, keys=("k" * 32,), state=tmp_path),
            servers={"tools": target},
            published={"devtools": PublishedPlan(("tools",), profile, "memory:")},
        )
        with anyio.fail_after(30):
            async with console_of(plan) as bridge:
                yield Served(bridge, plan, server, ConsoleBrowser(bridge))
                await bridge.drain(0)


async def test_every_skill_has_a_page_and_runs_whatever_its_name_holds(tmp_path: Path) -> None:
    async with of_all_names(tmp_path) as here:
        browser = here.browser
        (agent,) = (await browser.reads("/try"))["groups"]
        skills: list[Any] = agent["entries"]
        assert {skill["id"] for skill in skills} == {*NAMES}
        for skill in skills:
            page = await browser.opens(skill["path"])
            assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
            assert f'href="/console{skill["path"]}.json"' in page.text
            assert (await browser.opens(f"{skill['path']}.json")).json()["id"] == skill["id"]
            answer = await browser.posts(skill["path"], {"arguments": {}})
            task = answer.json()["to"].removeprefix("/console")
            await here.settled(task.rpartition("/")[2])
            assert f'href="/console{skill["path"]}?task=' in (await browser.opens(task)).text
            lines = await browser.posts(skill["path"].replace("/try/", "/lines/", 1), {"arguments": {}})
            assert lines.status_code == 200
        assert sorted(name for name, _ in here.server.calls) == sorted(NAMES)


async def test_a_post_to_a_path_that_ends_as_json_runs_no_other_skill(tmp_path: Path) -> None:
    async with of_all_names(tmp_path) as here:
        browser = here.browser
        await browser.opens()
        assert (await browser.posts("/try/devtools/read.json", {"arguments": {}})).status_code == 404
        answer = await browser.posts("/try/devtools/export.json", {"arguments": {}})
        await here.settled(answer.json()["to"].rpartition("/")[2])
        assert [name for name, _ in here.server.calls] == ["export.json"]
