"""A person tries tools of an MCP server made of agents, as a host would call them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, MutableMapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

import anyio
import pytest

from bridge.assembly.bridge import Bridge
from bridge.assembly.plan import OfferedPlan, Plan, ProcessPlan, PublishedPlan, ServerPlan
from bridge.console.app import mount_console
from bridge.console.call_lines import command_line, mcp_line
from bridge.console.console_access import Visit
from bridge.console.live_trials import LiveTrial
from bridge.console.pages import json_response
from bridge.console.parts import TEXT_MOST, shown_block, shown_result
from bridge.console.tab_streams import TabStreams
from bridge.hosts.links import links_to_url
from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import Access, Credential
from bridge.mcp.client.eras import Era
from bridge.mcp.server.face import ReportProgress
from bridge.text.jsonvalues import JsonObject
from bridge.translate.overrides import SkillOverride
from tests.console.test_news import SOON_SECONDS, visit_of
from tests.console.test_task_pages import BOB, HOSTILE, PROFILE, WAIT_SECONDS
from tests.support.console import ConsoleBrowser
from tests.support.in_process import client_of
from tests.support.running import listening
from tests.support.tool_server import ToolServer, listed

ADA = Credential(Principal("ada", skills=("devtools/*", "team/echo")), "token-of-ada")


@asynccontextmanager
async def offering(
    tmp_path: Path,
    *credentials: Credential,
    names: Sequence[str] = ("echo", "fail"),
    **overrides: SkillOverride,
) -> AsyncIterator[tuple[ConsoleBrowser, ToolServer]]:
    """A bridge whose server `team` is made of its own agent `devtools`."""
    late: list[Bridge] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await late[0].app(scope, receive, send)

    tools = [listed(tool, text={"type": "string"}) for tool in names]
    with anyio.fail_after(WAIT_SECONDS):
        async with ToolServer("tools", tools).run() as server, listening(app) as url:
            plan = Plan(
                PROFILE,
                ProcessPlan(console=True, keys=("k" * 32,), state=tmp_path, cache=tmp_path / "cache"),
                credentials,
                servers={
                    "tools": ServerPlan.as_profile_says(
                        server.target, Era.MODERN, PROFILE.server, PROFILE.run
                    )
                },
                published={"devtools": PublishedPlan(("tools",), PROFILE, "memory:", overrides=overrides)},
                offered={"team": OfferedPlan(("devtools",), PROFILE)},
            )
            bridge = Bridge(plan, own_url=url)
            mount_console(bridge)
            late.append(bridge)
            async with bridge.run():
                await bridge.apply(plan)
                yield ConsoleBrowser(bridge, url), server
                await bridge.drain(0)


@pytest.mark.outside
async def test_the_overview_links_each_mcp_server_to_the_hosts(tmp_path: Path) -> None:
    async with offering(tmp_path) as (browser, _):
        (face,) = [one for one in (await browser.reads(""))["faces"] if one["kind"] == "mcp"]
        assert face["links"] == links_to_url("team", f"{browser.base_url}/mcp/team")
        page = (await browser.opens("")).text
        assert all(f'href="{escape(link)}"' in page for link in face["links"].values())
        assert page.count("vscode:mcp/install") == 1, "an agent is no server for hosts"


async def test_the_result_of_a_tool_is_shown_by_its_type(tmp_path: Path) -> None:
    async with offering(tmp_path) as (browser, server):
        *_, team = (await browser.reads("/try"))["groups"]
        assert [tool["id"] for tool in team["entries"]] == ["echo", "fail"]
        page = await browser.opens("/try/mcp/team/echo")
        assert 'data-action="/try/mcp/team/echo"' in page.text
        url, typed = f"{browser.base_url}/mcp/team", {"text": HOSTILE}
        for arguments in ({}, typed):
            lines = (await browser.posts("/lines/mcp/team/echo", {"arguments": arguments})).json()
            assert lines == {
                "call": command_line(url, "echo", arguments),
                "curl": mcp_line(url, "echo", arguments),
                "protocol": "MCP",
            }
        assert (await browser.posts("/lines/mcp/team/nothing", {"arguments": {}})).status_code == 404
        answer = (await browser.posts("/try/mcp/team/echo", {"arguments": {"text": HOSTILE}})).json()
        assert server.calls == [("echo", {"text": HOSTILE})]
        assert answer["failed"] is False
        assert answer["parts"][0]["is"] == "text"
        assert "onerror=alert" in answer["parts"][0]["text"]
        assert json.loads(answer["raw"])["content"]
        failed = (await browser.posts("/try/mcp/team/fail", {"arguments": {}})).json()
        assert failed["failed"] is True
        wrong = await browser.posts("/try/mcp/team/echo", {"arguments": {"text": 7}})
        assert (wrong.status_code, wrong.json()["problems"][0]["name"]) == (422, "text")


@pytest.mark.outside
async def test_a_tool_that_asks_shows_its_form_and_goes_on_with_the_answer(tmp_path: Path) -> None:
    async with offering(tmp_path, echo=SkillOverride(confirm=True)) as (browser, server):
        await browser.opens("/try/mcp/team/echo")
        call = {"arguments": {"text": "hello"}}
        asked = (await browser.posts("/try/mcp/team/echo", call)).json()
        assert server.calls == []
        assert (asked["failed"], asked["parts"]) == (False, [])
        (question,) = asked["asks"]["questions"]
        assert (question["mode"], question["fields"]) == ("form", [])
        assert "echo" in question["words"]
        answered = {**call, "state": asked["asks"]["state"], "asked": {question["key"]: question["schema"]}}
        accepted = {"answers": {question["key"]: {"action": "accept", "content": {}}}}
        result = (await browser.posts("/try/mcp/team/echo", {**answered, **accepted})).json()
        assert (result["asks"], result["failed"]) == (None, False)
        assert server.calls == [("echo", {"text": "hello"})]


@pytest.mark.outside
async def test_a_declined_question_of_a_tool_runs_nothing(tmp_path: Path) -> None:
    async with offering(tmp_path, echo=SkillOverride(confirm=True)) as (browser, server):
        await browser.opens("/try/mcp/team/echo")
        call = {"arguments": {"text": "hello"}}
        asks = (await browser.posts("/try/mcp/team/echo", call)).json()["asks"]
        declined = {asks["questions"][0]["key"]: {"action": "decline"}}
        result = await browser.posts(
            "/try/mcp/team/echo", {**call, "state": asks["state"], "answers": declined}
        )
        assert result.json()["failed"] is True
        assert server.calls == []


@pytest.mark.outside
async def test_answers_that_do_not_fit_are_told_beside_their_fields(tmp_path: Path) -> None:
    async with offering(tmp_path) as (browser, _):
        await browser.opens("/try/mcp/team/echo")
        schema = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}
        body = {"arguments": {}, "state": "s", "asked": {"q": schema}}
        wrong = {"q": {"action": "accept", "content": {"count": "five"}}}
        refused = await browser.posts("/try/mcp/team/echo", {**body, "answers": wrong})
        assert refused.status_code == 422
        assert refused.json()["problems"] == [
            {"name": "count", "message": "This takes a whole number, such as 5", "question": "q"}
        ]
        stateless = {"arguments": {}, "answers": wrong}
        assert (await browser.posts("/try/mcp/team/echo", stateless)).status_code == 400


@pytest.mark.outside
async def test_a_visitor_tries_the_tools_that_it_may_use(tmp_path: Path) -> None:
    async with offering(tmp_path, ADA) as (browser, server):
        assert await browser.signs_in(ADA.token) == 200
        await browser.opens()
        *_, team = (await browser.reads("/try"))["groups"]
        assert [tool["id"] for tool in team["entries"]] == ["echo"]
        assert (await browser.posts("/try/mcp/team/fail", {"arguments": {}})).status_code == 404
        assert (await browser.posts("/try/mcp/other/echo", {"arguments": {}})).status_code == 404
        assert server.calls == []


@pytest.mark.parametrize(
    ("block", "shown"),
    [
        ({"type": "text", "text": "a\u202eb"}, {"is": "text", "text": "a\\u202eb"}),
        (
            {"type": "image", "data": "AAAA", "mimeType": "image/png"},
            {"is": "image", "name": "image/png", "file": "data:image/png;base64,AAAA"},
        ),
        (
            {"type": "image", "data": "AAAA", "mimeType": "image/svg+xml"},
            {"is": "file", "name": "image", "file": "data:application/octet-stream;base64,AAAA"},
        ),
        (
            {
                "type": "image",
                "data": "AAAA",
                "mimeType": "image/png",
                "_meta": {"mcp-a2a/part": {"filename": "sun\u202eset.png"}},
            },
            {"is": "image", "name": "sun\\u202eset.png", "file": "data:image/png;base64,AAAA"},
        ),
        (
            {"type": "resource", "resource": {"uri": "a2a://a/tasks/h/x/0/about%20it.pdf", "blob": "AAAA"}},
            {"is": "file", "name": "about it.pdf", "file": "data:application/octet-stream;base64,AAAA"},
        ),
        (
            {"type": "resource_link", "uri": "javascript:alert(1)"},
            {"is": "link", "url": "javascript:alert(1)", "web": None},
        ),
        (
            {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
            {"is": "audio", "name": "audio/wav", "file": "data:audio/wav;base64,AAAA"},
        ),
        (
            {"type": "audio", "data": "AAAA", "mimeType": "text/html"},
            {"is": "file", "name": "audio", "file": "data:application/octet-stream;base64,AAAA"},
        ),
        (
            {"type": "text", "text": "x" * (TEXT_MOST + 7)},
            {"is": "text", "text": "x" * TEXT_MOST, "cut": 7},
        ),
        ({"type": "unheard of"}, {"is": "json", "text": '{\n  "type": "unheard of"\n}'}),
    ],
)
def test_a_content_block_is_shown_by_its_type_and_never_run(block: Any, shown: Any) -> None:
    assert shown_block(block) == shown


LONG = 12345678901234567891
"""A number that a script would change."""


def test_a_value_is_shown_with_all_its_digits_and_without_hidden_characters() -> None:
    rows: Any = [{"n\u202e": LONG, "words": "a\u202eb", "none": None}]
    nested: Any = {"n\u202e": LONG, "words": ["a\u202eb"]}
    for value in (rows, nested):
        shown: Any = shown_result({"content": [], "structuredContent": value})
        assert json.loads(shown["raw"])["structuredContent"] == value
        assert (str(LONG) in shown["raw"], "\u202e" in shown["raw"]) == (True, False)
        if value is rows:
            (table,) = shown["parts"]
            assert table["columns"] == ["n\\u202e", "words", "none"]
            assert table["rows"] == [[str(LONG), "a\\u202eb", None]]
        else:
            assert [one["is"] for one in shown["parts"]] == ["json"]
            assert json.loads(shown["parts"][0]["text"]) == value
            assert "\u202e" not in shown["parts"][0]["text"]


@pytest.mark.parametrize(
    "result",
    [
        {"content": [{"type": "text", "text": "a\ud800b"}]},
        {"content": [], "structuredContent": {"a\ud800": "x\udc00"}},
        {"content": [{"type": "resource_link", "uri": "https://x.test/\ud800", "name": "n"}]},
    ],
)
def test_a_lone_surrogate_is_escaped(result: Any) -> None:
    """JavaScript may cut a text inside a surrogate pair."""
    shown: Any = json.loads(json_response(shown_result(result)).body)
    assert "\\ud800" in str(shown["parts"])
    assert json.loads(shown["raw"]) == result


def test_a_large_result_is_shown_in_part_and_whole_in_its_file() -> None:
    image = {"type": "image", "data": "A" * (9 << 20), "mimeType": "image/png"}
    rows = [{"n": number} for number in range(300)]
    result: Any = {
        "content": [image, image, *[{"type": "text", "text": "x"}] * 150],
        "structuredContent": rows,
    }
    shown: Any = shown_result(result)
    kinds = [part["is"] for part in shown["parts"]]
    assert kinds == ["image", "left", *["text"] * 98, "left", "table"]
    assert shown["parts"][-2]["name"] == "52 more parts"
    assert (len(shown["parts"][-1]["rows"]), shown["parts"][-1]["left"]) == (200, 100)
    assert json.loads(shown["raw"]) == result


@pytest.mark.outside
async def test_the_progress_of_a_tool_is_told_while_it_runs(tmp_path: Path) -> None:
    async with offering(tmp_path, names=("report",)) as (browser, _):
        await browser.opens("/try/mcp/team/report")
        answer = await browser.posts("/try/mcp/team/report", {"arguments": {}, "live": True})
        assert answer.headers["content-type"] == "text/event-stream"
        *reports, end = [
            json.loads(line.removeprefix("data: "))
            for line in answer.text.splitlines()
            if line.startswith("data: ")
        ]
        assert "on the way" in str(reports)
        assert all(report.keys() == {"progress"} for report in reports)
        assert (end["result"]["failed"], end["result"]["parts"][0]["is"]) == (False, "text")
        wrong = await browser.posts("/try/mcp/team/report", {"arguments": {"text": 7}, "live": True})
        assert wrong.status_code == 422


async def test_progress_after_the_end_of_a_call_is_ignored() -> None:
    reports: list[ReportProgress] = []

    async def call(report: ReportProgress) -> JsonObject:
        report(1)
        reports.append(report)
        return {"parts": []}

    sent: list[MutableMapping[str, Any]] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    async def judged(_: Visit) -> Principal | None:
        return ADA.principal

    with anyio.fail_after(10):
        tab = TabStreams(Access((), ADA.principal), judged).take(visit_of(ADA.principal))
        await LiveTrial(tab, call)({"type": "http"}, anyio.sleep_forever, send)
    before = list(sent)
    reports[0](2)
    assert sent == before
    assert b'"result"' in sent[-2]["body"]


@pytest.mark.outside
async def test_closing_a_page_cancels_its_live_call(tmp_path: Path) -> None:
    async with (
        offering(tmp_path, names=("hold",)) as (browser, server),
        client_of(browser.bridge.app) as client,
    ):
        await browser.opens("/try/mcp/team/hold")
        client.cookies = browser.client.cookies
        headers = {"Origin": browser.base_url, "X-CSRF-Token": browser.csrf}
        url, body = f"{browser.base_url}/console/try/mcp/team/hold", {"arguments": {}, "live": True}
        async with client.stream("POST", url, json=body, headers=headers):
            await server.holding(1)
        (agent,) = browser.bridge.published
        while agent.engine.running:
            await anyio.sleep(0.01)
        assert [task["state"] for task in (await browser.reads("/tasks"))["lists"][0]["tasks"]] == [
            "canceled"
        ]


@pytest.mark.outside
@pytest.mark.parametrize("how", ["signs out", "is removed"])
async def test_a_live_call_ends_when_the_visitor_loses_its_rights(how: str, tmp_path: Path) -> None:
    """The call is canceled, if its principal may still cancel it."""
    ada = Credential(Principal("ada"), ADA.token)
    async with (
        offering(tmp_path, ada, BOB, names=("hold",)) as (browser, server),
        client_of(browser.bridge.app) as client,
    ):
        assert await browser.signs_in(ada.token) == 200
        await browser.opens("/try/mcp/team/hold")
        client.cookies = browser.client.cookies
        headers = {"Origin": browser.base_url, "X-CSRF-Token": browser.csrf}
        url, body = f"{browser.base_url}/console/try/mcp/team/hold", {"arguments": {}, "live": True}
        async with client.stream("POST", url, json=body, headers=headers) as stream:
            await server.holding(1)
            if how == "signs out":
                assert (await browser.posts("/sign-out", {})).status_code == 200
            else:
                await browser.bridge.apply(replace(browser.bridge.plan, credentials=(BOB,)))
            with anyio.fail_after(SOON_SECONDS):
                told = "".join([chunk async for chunk in stream.aiter_text()])
        assert "result" not in told
        (agent,) = browser.bridge.published
        while how == "signs out" and agent.engine.running:
            await anyio.sleep(0.01)
