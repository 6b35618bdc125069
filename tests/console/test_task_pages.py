"""The tasks of a visitor: lists, pages, files, news, and what peers put into them."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import anyio.lowlevel
import pytest
from mcp.server import MCPServer
from mcp.server.mcpserver import Context

import bridge
from bridge.a2a.model.objects import Part
from bridge.assembly.bridge import Bridge
from bridge.assembly.plan import AuditPlan, Plan, ProcessPlan, PublishedPlan, ServerPlan
from bridge.assembly.plan_from_file import plan_from_file
from bridge.config.tables.profile import Profile
from bridge.console.pages import span_words
from bridge.console.parts import file_of, media_headers, shown_part
from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import Credential
from bridge.mcp.client.eras import Era
from bridge.text.jsonvalues import JsonObject
from bridge.translate.overrides import SkillOverride
from tests.support.console import HERE, ConsoleBrowser, console_of, news
from tests.support.in_process import client_of
from tests.support.running import VERSION, profile_with
from tests.support.tool_server import ToolServer, listed

ADA = Credential(Principal("ada"), "token-of-ada")
BOB = Credential(Principal("bob"), "token-of-bob")
WAIT_SECONDS = 30
HOSTILE = '<img src=x onerror=alert(1)> "</script><script>alert(2)</script> \u202egnp.exe\u200b {{ 7 * 7 }}'
PROFILE = profile_with(run={"concurrency": 300, "queue": 300})


@dataclass
class Served:
    """A bridge with one agent `devtools` of one tool server, and the browser of whoever owns the machine."""

    bridge: Bridge
    plan: Plan
    server: ToolServer
    browser: ConsoleBrowser

    async def calls(self, skill: str, token: str = "", task: str = "", **arguments: Any) -> str:
        """Call a skill as a client of A2A, in a new task or in one that asks, and wait for no result. Its id."""
        data = {"skill": skill, "arguments": arguments}
        return await self._sends({"data": data}, token, returns_at_once=skill == "hold", task=task)

    async def says(self, words: str, token: str = "") -> str:
        """Say something that may name no skill. The id of the task."""
        return await self._sends({"text": words}, token)

    async def _sends(
        self, part: JsonObject, token: str, *, returns_at_once: bool = False, task: str = ""
    ) -> str:
        message = {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [part]}
        message |= {"taskId": task} if task else {}
        params = {"message": message, "configuration": {"returnImmediately": returns_at_once}}
        answer = await self.browser.client.post(
            "/agents/devtools",
            json={"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params},
            headers={**VERSION, **({"Authorization": f"Bearer {token}"} if token else {})},
        )
        found: str = answer.json()["result"]["task"]["id"]
        return found

    async def settled(self, task: str) -> Any:
        """The page of a task once it works no longer."""
        request = {"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": task}}
        await self.browser.client.post("/agents/devtools", json=request, headers=VERSION)
        return await self.browser.reads(f"/tasks/devtools/{task}")


@asynccontextmanager
async def served(
    tmp_path: Path,
    *credentials: Credential,
    operators_see_contents: bool = False,
    audit: AuditPlan | None = None,
    profile: Profile = PROFILE,
    **overrides: SkillOverride,
) -> AsyncIterator[Served]:
    tools = [
        listed(tool, hints={"readOnly": True}, text={"type": "string"}) for tool in ("echo", "hold", "fail")
    ]
    async with ToolServer("tools", tools).run() as server:
        target = ServerPlan.as_profile_says(server.target, Era.MODERN, profile.server, profile.run)
        plan = Plan(
            profile,
            ProcessPlan(
                console=True,
                operators_see_contents=operators_see_contents,
                keys=("k" * 32,),
                state=tmp_path,
                audit=audit,
            ),
            credentials,
            servers={"tools": target},
            published={"devtools": PublishedPlan(("tools",), profile, "memory:", overrides=overrides)},
        )
        with anyio.fail_after(WAIT_SECONDS):
            async with console_of(plan) as bridge:
                yield Served(bridge, plan, server, ConsoleBrowser(bridge))
                server.released.set()
                await bridge.drain(0)


async def test_the_list_can_be_searched_by_state_skill_and_context(tmp_path: Path) -> None:
    async with served(tmp_path) as here:
        echo, fail = await here.calls("echo", text="a"), await here.calls("fail")
        (whole,) = (await here.browser.reads("/tasks"))["lists"]
        assert [task["id"] for task in whole["tasks"]] == [fail, echo]
        (ended,) = (await here.browser.reads("/tasks?state=completed"))["lists"]
        assert [(task["id"], task["skill"]) for task in ended["tasks"]] == [(echo, "echo")]
        (named,) = (await here.browser.reads("/tasks?skill=fail"))["lists"]
        assert [task["id"] for task in named["tasks"]] == [fail]
        context = whole["tasks"][1]["context"]
        (one,) = (await here.browser.reads(f"/tasks?context={context}"))["lists"]
        assert [task["id"] for task in one["tasks"]] == [echo]
        assert (await here.browser.opens("/tasks?state=asleep")).status_code == 400


async def test_many_tasks_come_in_pages_and_each_once(tmp_path: Path) -> None:
    async with served(tmp_path) as here:
        made = [await here.calls("echo", text=str(number)) for number in range(120)]
        found: list[str] = []
        path = "/tasks"
        while path:
            (page,) = (await here.browser.reads(path))["lists"]
            assert len(page["tasks"]) <= 50
            found += [task["id"] for task in page["tasks"]]
            path = page["next"]
        assert found == made[::-1]
        assert page["total"] == 120


async def test_a_visitor_sees_its_own_tasks_and_cancels_no_other(tmp_path: Path) -> None:
    async with served(tmp_path, ADA, BOB) as here:
        of_ada = await here.calls("hold", ADA.token)
        bob = ConsoleBrowser(here.bridge)
        assert await bob.signs_in(BOB.token) == 200
        await bob.opens()
        (listed_for_bob,) = (await bob.reads("/tasks"))["lists"]
        assert listed_for_bob["tasks"] == []
        for path in (f"/tasks/devtools/{of_ada}", f"/tasks/devtools/{of_ada}/files/m0.0"):
            assert (await bob.opens(path)).status_code == 404
        assert (await bob.posts(f"/tasks/devtools/{of_ada}/cancel", {})).status_code == 404
        assert (await bob.posts("/news", {"task": f"/tasks/devtools/{of_ada}"})).status_code == 404
        ada = ConsoleBrowser(here.bridge)
        assert await ada.signs_in(ADA.token) == 200
        await ada.opens()
        answer = await ada.posts(f"/tasks/devtools/{of_ada}/cancel", {})
        assert answer.json() == {"to": f"/console/tasks/devtools/{of_ada}"}
        assert (await ada.reads(f"/tasks/devtools/{of_ada}"))["state"] == "canceled"


async def test_a_page_shows_the_task_in_both_protocols(tmp_path: Path) -> None:
    async with served(tmp_path) as here:
        page = await here.browser.reads(f"/tasks/devtools/{await here.calls('echo', text='hello')}")
        said = json.dumps(["tools", "echo", {"text": "hello"}])
        assert page["a2a"]["artifacts"][0]["parts"] == [{"text": said}]
        assert page["mcp"] == {
            "call": {"method": "tools/call", "params": {"name": "echo", "arguments": {"text": "hello"}}},
            "result": {"content": [{"type": "text", "text": said}], "_meta": {}},
        }
        assert [moment["state"] or moment["what"] for moment in page["moments"]][-1] == "completed"


async def test_texts_of_peers_are_escaped_everywhere(tmp_path: Path) -> None:
    async with served(tmp_path) as here:
        task = await here.calls("echo", text=HOSTILE)
        for path in ("", "/tasks", f"/tasks/devtools/{task}", f"/tasks?skill={HOSTILE}"):
            text = (await here.browser.opens(path)).text
            assert "<img src=x" not in text
            assert "<script>" not in text
            assert "\u202e" not in text
            assert "\u200b" not in text
        assert "\\u202e" in (await here.browser.opens(f"/tasks/devtools/{task}")).text


async def test_a_file_of_a_task_is_saved_and_never_run(tmp_path: Path) -> None:
    async with served(tmp_path) as here:
        path = f"/tasks/devtools/{await here.calls('echo', text=HOSTILE)}/files/a0.0"
        page = await here.browser.opens(path)
        assert json.loads(page.text) == ["tools", "echo", {"text": HOSTILE}]
        assert page.headers["content-type"] == "application/octet-stream"
        assert page.headers["content-disposition"] == 'attachment; filename="text.txt"'
        assert (await here.browser.opens(path.replace("a0.0", "a7.0"))).status_code == 404


@pytest.mark.parametrize(
    ("kind", "shown_as"),
    [
        ("image/png", "image"),
        ("audio/wav", "audio"),
        ("image/svg+xml", "file"),
        ("text/html", "file"),
        ("application/pdf", "file"),
    ],
)
def test_only_images_and_sounds_are_shown_instead_of_saved(kind: str, shown_as: str) -> None:
    part = Part(raw=base64.urlsafe_b64encode(b"\xff\xfe\xfd").decode(), media_type=kind, filename="../a b.x")
    shown = shown_part(part, "/file")
    assert (shown["is"], shown["bytes"]) == (shown_as, 3)
    data, media_type, name = file_of(part)
    headers = media_headers(media_type, name)
    assert data == b"\xff\xfe\xfd"
    assert headers["Content-Type"] == (kind if shown_as != "file" else "application/octet-stream")
    assert headers.get("Content-Disposition") == (
        None if shown_as != "file" else 'attachment; filename="_a_b.x"'
    )


def test_a_list_of_flat_objects_is_a_table() -> None:
    shown = shown_part(Part(data={"rows": [{"a": 1, "b": None}, {"b": "two", "c": True}]}), "/file")
    assert shown["is"] == "table"
    assert (shown["columns"], shown["rows"]) == (["a", "b", "c"], [[1, None, None], [None, "two", True]])
    assert shown_part(Part(data=[{"a": {"deep": 1}}]), "/file")["is"] == "json"


async def test_news_have_numbers_and_events_of_a_task_until_the_visitor_loses_access(tmp_path: Path) -> None:
    async with served(tmp_path, ADA, BOB) as here, client_of(here.bridge.app) as client:
        task = await here.calls("hold", ADA.token)
        await here.server.holding(1)
        ada = here.browser
        assert await ada.signs_in(ADA.token) == 200
        await ada.opens()
        client.cookies = ada.client.cookies
        headers = {"Origin": HERE, "X-CSRF-Token": ada.csrf}
        body = {"task": f"/tasks/devtools/{task}"}
        asked = client.stream("POST", f"{HERE}/console/news", json=body, headers=headers)
        async with asked as stream:
            told = news(stream)
            first = [await anext(told), await anext(told)]
            assert {key for one in first for key in one} == {"numbers", "event"}
            assert [one["event"]["state"] for one in first if "event" in one] == ["working"]
            here.server.released.set()
            after: list[str] = []
            while "completed" not in after:
                news_item = await anext(told)
                after += [news_item["event"].get("state", "")] if "event" in news_item else []
            await here.bridge.apply(replace(here.plan, credentials=(BOB,)))
            assert [one async for one in told if "event" in one] == []


async def test_a_task_that_ended_before_its_page_asked_for_news_is_told_as_ended(tmp_path: Path) -> None:
    async with served(tmp_path) as here, client_of(here.bridge.app) as client:
        task = await here.calls("echo")
        await here.browser.opens()
        client.cookies = here.browser.client.cookies
        headers = {"Origin": HERE, "X-CSRF-Token": here.browser.csrf}
        body = {"task": f"/tasks/devtools/{task}"}
        asked = client.stream("POST", f"{HERE}/console/news", json=body, headers=headers)
        async with asked as stream:
            told = news(stream)
            first = [await anext(told), await anext(told)]
            assert [one["event"]["state"] for one in first if "event" in one] == ["completed"]


async def test_the_stream_of_news_takes_our_own_page_alone(tmp_path: Path) -> None:
    async with served(tmp_path) as here:
        await here.browser.opens()
        for headers in ({"Origin": "http://localhost:3000"}, {"X-CSRF-Token": "guessed"}):
            assert (await here.browser.posts("/news", {}, **headers)).status_code == 403
        assert (await here.browser.opens("/news")).status_code == 404


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (f"/tasks?context={'x' * 600}", 400),
        ("/tasks?context=a%00b", 400),
        ("/tasks?agent=devtools&page=foreign", 400),
        ("/tasks?agent=nobody", 404),
        (f"/tasks/devtools/{'x' * 600}", 400),
        ("/tasks/devtools/..%2f..%2fetc", 404),
        ("/tasks/nobody/1", 404),
        ("/try/devtools/nothing", 404),
        ("/try/mcp/nobody/nothing", 404),
        ("/static/../gate.py", 404),
        ("/static/console.py", 404),
        ("?" + "&".join(f"a{number}=1" for number in range(60)), 400),
    ],
)
async def test_an_impossible_request_is_refused_with_a_message(
    path: str, status: int, tmp_path: Path
) -> None:
    async with served(tmp_path) as here:
        page = await here.browser.opens(path)
        assert (page.status_code, "text/html" in page.headers["content-type"] or "error" in page.text) == (
            status,
            True,
        )


async def test_the_list_shows_how_long_a_task_took_and_why_it_failed(tmp_path: Path) -> None:
    async with served(tmp_path) as here:
        await here.calls("echo", text="a")
        failed = await here.calls("fail")
        held = await here.calls("hold")
        (whole,) = (await here.browser.reads("/tasks"))["lists"]
        said = {task["skill"]: task for task in whole["tasks"]}
        assert said["echo"]["says"] == ""
        assert "fail" in said["fail"]["says"]
        assert all(task["took_ms"] >= 0 for task in whole["tasks"])
        text = (await here.browser.opens("/tasks")).text
        assert f'<a href="/console/tasks/devtools/{failed}" title="{failed}">fail</a>' in text
        assert "&#34;fail&#34;" in text
        for task in (failed, held):
            assert f">{task}<" not in text


@pytest.mark.parametrize(
    ("milliseconds", "words"),
    [
        (0, "0.0 s"),
        (9949, "9.9 s"),
        (59_999, "59 s"),
        (60_000, "1 min"),
        (185_000, "3 min 5 s"),
        (7_800_000, "2 h 10 min"),
        (86_400_000, "1 d"),
        (273_600_000, "3 d 4 h"),
    ],
)
def test_a_duration_is_said_in_its_two_largest_units(milliseconds: int, words: str) -> None:
    assert span_words(milliseconds) == words


async def test_a_task_at_work_shows_its_progress_line() -> None:
    told, released = anyio.Event(), anyio.Event()
    server = MCPServer("slow", log_level="CRITICAL")

    @server.tool()
    async def paint(context: Context[Any, Any]) -> str:
        """Paint."""
        await context.report_progress(3, 5, "the third wall")
        told.set()
        await released.wait()
        return "painted"

    tables = {
        "bridge": {"store": "memory:", "console": True},
        "tools_as_agent": {"devtools": {"from": ["slow"]}},
    }
    plan = plan_from_file(bridge.loads(tables, servers={"slow": server}))
    plan = replace(plan, place=replace(plan.place, keys=("k" * 32,)))
    with anyio.fail_after(WAIT_SECONDS):
        async with console_of(plan) as served_bridge:
            browser = ConsoleBrowser(served_bridge)
            await browser.opens("/try/devtools/paint")
            made = await browser.posts("/try/devtools/paint", {"arguments": {}})
            path = made.json()["to"].removeprefix("/console")
            await told.wait()
            while not (page := await browser.reads(path))["progress"]:
                await anyio.lowlevel.checkpoint()
            assert page["progress"] == "3 of 5 the third wall"
            assert 'id="progress" role="status">3 of 5 the third wall' in (await browser.opens(path)).text
            (listed_now,) = (await browser.reads("/tasks"))["lists"]
            assert listed_now["tasks"][0]["says"] == "3 of 5 the third wall"
            released.set()
            await served_bridge.drain(5)
            assert (await browser.reads(path))["progress"] == ""


async def test_what_was_allowed_reads_allowed(tmp_path: Path) -> None:
    async with served(tmp_path, echo=SkillOverride(confirm=True)) as here:
        await here.browser.opens("/tasks")
        for action, word in (("accept", "allowed"), ("decline", "declined")):
            task = await here.calls("echo", text="a")
            page = await here.browser.reads(f"/tasks/devtools/{task}")
            answers = {one["key"]: {} for one in page["questions"]}
            body = {"mark": page["mark"], "action": action, "answers": answers}
            assert (await here.browser.posts(f"/tasks/devtools/{task}/answer", body)).status_code == 200
            page = await here.settled(task)
            assert word in [moment["what"] for moment in page["moments"]]
            assert [one["answers"] for one in page["messages"] if one["answers"]] == [word]
            assert (
                f'<span class="quiet">{word}</span>'
                in (await here.browser.opens(f"/tasks/devtools/{task}")).text
            )
