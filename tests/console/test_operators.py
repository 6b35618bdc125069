"""What operators see and do at the console with the tasks of others."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bridge.assembly.plan import AuditPlan
from bridge.identity.callers.principals import OperatorRole, Principal
from bridge.identity.callers.verifiers import Credential
from tests.console.test_task_pages import Served, served
from tests.support.console import ConsoleBrowser, told_to

ADA = Credential(Principal("ada"), "token-of-ada")
EYES = Credential(Principal("eyes", operator=OperatorRole.READ), "token-of-eyes")
OPS = Credential(Principal("ops", operator=OperatorRole.ANSWER), "token-of-ops")


@asynccontextmanager
async def with_a_task_of_ada(
    tmp_path: Path, who: Credential, *, content: bool
) -> AsyncIterator[tuple[Served, ConsoleBrowser, str]]:
    """A task of Ada's that asks for arguments, and somebody else at the console."""
    async with served(tmp_path, ADA, EYES, OPS, operators_see_contents=content) as here:
        task = await here.calls("echo", ADA.token, text=7)
        browser = ConsoleBrowser(here.bridge)
        assert await browser.signs_in(who.token) == 200
        await browser.opens()
        yield here, browser, task


async def answered(browser: ConsoleBrowser, task: str) -> int:
    """The status of an answer to the task's question."""
    page = await browser.reads(f"/tasks/devtools/{task}")
    answers = {one["key"]: {"text": "by somebody else"} for one in page["questions"]}
    body = {"mark": page["mark"], "action": "accept", "answers": answers}
    return (await browser.posts(f"/tasks/devtools/{task}/answer", body)).status_code


@pytest.mark.parametrize("who", [EYES, OPS])
async def test_operators_see_all_tasks_with_their_owners(who: Credential, tmp_path: Path) -> None:
    async with with_a_task_of_ada(tmp_path, who, content=True) as (here, browser, task):
        own = await here.calls("echo", who.token, text="mine")
        (listed,) = (await browser.reads("/tasks"))["lists"]
        assert {one["id"]: one["owner"] for one in listed["tasks"]} == {task: "ada", own: who.principal.name}
        (of_ada,) = (await browser.reads("/tasks?principal=ada"))["lists"]
        assert [one["id"] for one in of_ada["tasks"]] == [task]
        assert "· of ada" in (await browser.opens(f"/tasks/devtools/{task}")).text


@pytest.mark.parametrize("who", [EYES, OPS])
async def test_where_operators_see_no_contents_only_the_owner_sees_the_messages(
    who: Credential, tmp_path: Path
) -> None:
    async with with_a_task_of_ada(tmp_path, who, content=False) as (here, browser, _):
        ended = await here.calls("echo", ADA.token, text="a secret of ada")
        page = await browser.reads(f"/tasks/devtools/{ended}")
        assert (page["withheld"], page["mcp"]) == (True, {"call": None, "result": None})
        for path in (
            f"/tasks/devtools/{ended}",
            f"/tasks/devtools/{ended}/files/a0.0",
            f"/try/devtools/echo?task={ended}",
        ):
            assert "a secret of ada" not in (await browser.opens(path)).text
        assert (await browser.reads("/answer"))["tasks"] == []


@pytest.mark.parametrize(("who", "counted", "status"), [(EYES, 0, 409), (OPS, 1, 200)])
async def test_only_the_role_answer_answers_for_another(
    who: Credential, counted: int, status: int, tmp_path: Path
) -> None:
    async with with_a_task_of_ada(tmp_path, who, content=True) as (here, browser, task):
        assert (await browser.reads(""))["waiting"] == counted
        assert len((await browser.reads("/answer"))["tasks"]) == counted
        assert await answered(browser, task) == status
        if status == 200:
            ada = ConsoleBrowser(here.bridge)
            assert await ada.signs_in(ADA.token) == 200
            page: Any = await ada.reads(f"/tasks/devtools/{task}")
            assert "ops" in [moment["by"] for moment in page["moments"]]
            assert ada.csrf


async def test_only_the_owner_is_asked_which_skill_runs(tmp_path: Path) -> None:
    async with with_a_task_of_ada(tmp_path, OPS, content=True) as (here, browser, of_arguments):
        of_skill = await here.says("do something", ADA.token)
        rows = {one["id"]: one for one in (await browser.reads("/answer"))["tasks"]}
        assert {task: one["may_answer"] for task, one in rows.items()} == {
            of_arguments: True,
            of_skill: False,
        }
        assert rows[of_skill]["questions"] == []
        assert "Which skill do you mean?" in rows[of_skill]["words"]
        for path in ("/answer", f"/tasks/devtools/{of_skill}"):
            page = (await browser.opens(path)).text
            assert "This is for ada to answer." in page
            assert f"/tasks/devtools/{of_skill}/answer" not in page
        ada = ConsoleBrowser(here.bridge)
        assert await ada.signs_in(ADA.token) == 200
        assert f"/tasks/devtools/{of_skill}/answer" in (await ada.opens("/answer")).text


async def test_the_number_of_waiting_tasks_counts_those_that_the_visitor_may_answer(tmp_path: Path) -> None:
    async with with_a_task_of_ada(tmp_path, OPS, content=True) as (here, browser, _):
        of_skill = await here.says("do something", ADA.token)
        ada = ConsoleBrowser(here.bridge)
        assert await ada.signs_in(ADA.token) == 200
        assert await numbers(ada, browser) == (2, 1)
        await here.says("do something", OPS.token)
        assert await numbers(ada, browser) == (2, 2), "the operator's own question is for the operator"
        await here.calls("echo", ADA.token, of_skill, text=7)
        assert await numbers(ada, browser) == (2, 3), "the same task asks for arguments now"
        await here.calls("echo", ADA.token, of_skill, text="x")
        assert await numbers(ada, browser) == (1, 2)


async def test_the_number_of_waiting_tasks_is_right_beyond_one_page(tmp_path: Path) -> None:
    async with served(tmp_path, ADA, OPS, operators_see_contents=True) as here:
        browser = ConsoleBrowser(here.bridge)
        assert await browser.signs_in(OPS.token) == 200
        for _ in range(3):
            await here.says("do something", ADA.token)
        for _ in range(100):
            await here.calls("echo", ADA.token, text=7)
        assert (await browser.reads(""))["waiting"] == 100


async def numbers(*browsers: ConsoleBrowser) -> tuple[int, ...]:
    """The number of waiting tasks in each of the browsers."""
    return tuple([(await browser.reads(""))["waiting"] for browser in browsers])


@pytest.mark.parametrize(("who", "status"), [(EYES, 403), (OPS, 200)])
async def test_only_the_role_answer_cancels_for_another(who: Credential, status: int, tmp_path: Path) -> None:
    async with with_a_task_of_ada(tmp_path, who, content=False) as (_, browser, task):
        page = await browser.reads(f"/tasks/devtools/{task}")
        assert page["may_cancel"] is (status == 200)
        assert (await browser.posts(f"/tasks/devtools/{task}/cancel", {})).status_code == status


async def test_the_audit_tells_who_signed_in_and_whose_tasks_an_operator_has_read(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    async with served(
        tmp_path, ADA, EYES, operators_see_contents=False, audit=AuditPlan(file, 1 << 20, 600)
    ) as here:
        task = await here.calls("echo", ADA.token, text=7)
        browser = ConsoleBrowser(here.bridge)
        assert await browser.signs_in("wrong") == 403
        assert await browser.signs_in(EYES.token) == 200
        for path in ("", "/tasks", f"/tasks/devtools/{task}", f"/tasks/devtools/{task}"):
            await browser.opens(path)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    known = ("event", "principal", "owner", "task", "error")
    assert [{key: one[key] for key in known if key in one} for one in lines if one.get("face") != "tools"][
        -6:-1
    ] == [
        {"event": "call", "principal": "ada", "task": task},
        {"event": "refused", "error": "HTTP_403"},
        {"event": "sign_in", "principal": "eyes"},
        {"event": "read", "principal": "eyes", "owner": "*"},
        {"event": "read", "principal": "eyes", "owner": "ada", "task": task},
    ]


async def test_the_audit_tells_whose_task_an_operator_has_watched_without_its_page(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    audit = AuditPlan(file, 1 << 20, 600)
    async with served(tmp_path, ADA, EYES, operators_see_contents=True, audit=audit) as here:
        task = await here.calls("hold", ADA.token, text="x")
        browser = ConsoleBrowser(here.bridge)
        assert await browser.signs_in(EYES.token) == 200
        await browser.opens("/try")
        async with told_to(browser, task):
            here.server.released.set()
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    known = ("principal", "owner", "task")
    assert [[one[name] for name in known] for one in lines if one["event"] == "read"] == [
        ["eyes", "ada", task]
    ]


@pytest.mark.parametrize(("content", "who", "unseen"), [(False, EYES, 1), (False, OPS, 1), (True, OPS, 0)])
async def test_where_operators_see_no_contents_only_the_number_of_waiting_tasks_is_shown(
    content: bool, who: Credential, unseen: int, tmp_path: Path
) -> None:
    async with with_a_task_of_ada(tmp_path, who, content=content) as (here, browser, _):
        await here.calls("echo", who.token, text=7)
        words = "1 task of others waits for an answer. What it asks is not shown to operators"
        for path in ("/answer", ""):
            assert (await browser.reads(path))["unseen"] == unseen
            page = " ".join((await browser.opens(path)).text.replace("\n", " ").split())
            assert (words in page) is bool(unseen)


async def test_only_operators_see_that_tasks_of_others_wait(tmp_path: Path) -> None:
    async with with_a_task_of_ada(tmp_path, ADA, content=False) as (_, browser, _task):
        assert (await browser.reads("/answer"))["unseen"] == 0
        assert "unseen" not in await browser.reads("")
