"""`mcp-a2a tasks` as a user runs it: the list, one task, an answer, a cancellation, and what it refuses."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from bridge.a2a.model.timeline import timeline_from
from bridge.cli.task.timelines import timeline_lines
from bridge.identity.callers.principals import OperatorRole, Principal
from bridge.identity.callers.verifiers import Credential
from bridge.mcp.client.eras import Era
from tests.cli.call.test_command import Run, command
from tests.support.asking import asking_command
from tests.support.foreign import foreign_agent
from tests.support.running import Rpc, Running, call_part, config_for, raw_command, running
from tests.support.scripted_agent import scripted_agent


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    return command("tasks", monkeypatch)


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch) -> Run:
    return command("call", monkeypatch)


@pytest.fixture
async def asking() -> AsyncIterator[Running]:
    async with running(config_for(asking_command("legacy"), era=Era.LEGACY)) as bridge:
        yield bridge


@pytest.fixture
async def bridge() -> AsyncIterator[Running]:
    async with running(config_for(raw_command())) as bridge:
        yield bridge


@pytest.mark.proves("cli-tasks")
async def test_tasks_are_listed_with_state_skill_and_time(run: Run, call: Run, bridge: Running) -> None:
    assert (await run(bridge.base_url)).out == "No tasks.\n"
    first = await call(bridge.base_url, "echo", "text=hi")
    second = await call(bridge.base_url, "fail")
    done = await run(bridge.base_url)
    assert done.code == 0
    heads, *rows = [line.split() for line in done.out.splitlines()]
    assert heads == ["ID", "STATE", "SKILL", "SINCE"]
    assert [row[:3] for row in rows] == [
        [second.task_id, "failed", "fail"],
        [first.task_id, "completed", "echo"],
    ]
    only = await run(bridge.base_url, "--state", "failed", "--json-output")
    (line,) = only.out.splitlines()
    assert json.loads(line)["id"] == second.task_id
    newest = await run(bridge.base_url, "--most", "1")
    assert [line.split()[0] for line in newest.out.splitlines()] == ["ID", second.task_id]
    assert newest.err == "1 more: --most 2 lists them.\n"


async def test_more_than_a_page_of_tasks_is_listed(run: Run, bridge: Running) -> None:
    async with httpx2.AsyncClient() as http:
        rpc = Rpc(http, bridge.base_url)
        sent = [await rpc.send(call_part("empty")) for _ in range(102)]
    ids = [task["id"] for task in sent]
    done = await run(bridge.base_url, "--most", "1000")
    assert [line.split()[0] for line in done.out.splitlines()[1:]] == ids[::-1]


@pytest.mark.proves("cli-tasks")
async def test_a_task_is_shown_with_its_question_and_the_command_that_answers_it(
    run: Run, call: Run, asking: Running
) -> None:
    asked = await call(asking.base_url, "ask")
    shown = await run(asking.base_url, asked.task_id)
    assert (shown.code, shown.err) == (0, "")
    said = {line.split()[0]: line.partition(" ")[2].strip() for line in shown.out.splitlines()}
    assert {key: said[key] for key in ("task", "state", "skill", "asks")} == {
        "task": asked.task_id,
        "state": "input-required",
        "skill": "ask",
        "asks": "Who are you?",
    }
    words = shlex.split(said["answer"])
    reply = '{"name": "..."}'
    assert words == ["mcp-a2a", "tasks", asking.base_url, asked.task_id, "--reply", reply]
    assert shlex.split(said["decline"]) == [*words[:4], "--decline"]
    wrong = await run(asking.base_url, asked.task_id, "--reply", '{"name": "A"}')
    assert wrong.code == 3
    done = await run(asking.base_url, asked.task_id, "--answer", '{"name": "Ada"}')
    assert (done.code, json.loads(done.out.removeprefix("accept "))["name"]) == (0, "Ada")
    after = await run(asking.base_url, asked.task_id)
    assert after.out.splitlines()[-2:] == ["ask:", done.out.strip()]
    again = await run(asking.base_url, asked.task_id, "--reply", "Ada")
    assert again.code == 2
    assert again.err.splitlines()[-1] == "mcp-a2a: the task asks for nothing: it is COMPLETED"


@pytest.mark.proves("cli-tasks")
async def test_a_question_is_declined_and_a_task_is_cancelled_once(
    run: Run, call: Run, asking: Running
) -> None:
    declined = await call(asking.base_url, "ask")
    done = await run(asking.base_url, declined.task_id, "--decline")
    assert (done.code, done.out) == (0, "decline\n")
    cancelled = await call(asking.base_url, "ask")
    first = await run(asking.base_url, cancelled.task_id, "--cancel")
    assert (first.code, first.err.splitlines()[-1].partition(":")[0]) == (0, "canceled")
    again = await run(asking.base_url, cancelled.task_id, "--cancel")
    assert again.code == 1
    assert "Traceback" not in again.err


@pytest.mark.proves("cli-tasks", "ops-timeline")
async def test_the_timeline_of_a_task_names_the_hops_and_who_asked(
    run: Run, call: Run, bridge: Running
) -> None:
    done = await call(bridge.base_url, "echo", "text=hi")
    shown = await run(bridge.base_url, done.task_id, "--timeline")
    words = [line.split("  ", 1)[1] for line in shown.out.splitlines()]
    assert sorted(words) == sorted(
        ["asked by local", f"sent to {bridge.bridge.upstream.name}", "working", "completed"]
    )


@pytest.mark.proves("cli-tasks", "ops-role", "ops-contents")
async def test_an_operator_lists_shows_answers_and_cancels_the_tasks_of_all(run: Run, call: Run) -> None:
    ops = Credential(Principal("ops", operator=OperatorRole.ANSWER), "ops-token")
    config = config_for(raw_command(), credentials=[Credential(Principal("ann"), "ann-token"), ops])
    variables = {"ANN": "ann-token", "OPS": "ops-token"}
    async with running(config) as bridge:
        url, mine, theirs = bridge.base_url, ("--bearer", "env:ANN"), ("--bearer", "env:OPS")
        first, second = [await call(url, "add", "a=1", *mine, **variables) for _ in range(2)]
        nothing = await run(url, *theirs, **variables)
        listed = await run(url, "--all", *theirs, **variables)
        shown = await run(url, first.task_id, "--all", *theirs, **variables)
        answered = await run(url, first.task_id, "--reply", '{"b": 2}', "--all", *theirs, **variables)
        canceled = await run(url, second.task_id, "--cancel", "--all", *theirs, **variables)
        refused = await run(url, "--all", *mine, **variables)
        not_found = [
            await run(url, first.task_id, *words, *theirs, **variables)
            for words in ((), ("--cancel",), ("--reply", '{"b": 2}'))
        ]
    assert nothing.out == "No tasks.\n"
    heads, *rows = [line.split()[:3] for line in listed.out.splitlines()]
    assert heads == ["ID", "OWNER", "STATE"]
    assert rows == [[one.task_id, "ann", "input-required"] for one in (second, first)]
    assert "asks     (withheld" in shown.out
    assert f"{first.task_id} --all --reply" in shown.out
    assert (answered.code, canceled.code) == (0, 0)
    assert (refused.code, refused.out) == (1, "")
    assert "does not accept you as an operator" in refused.err
    for one in not_found:
        assert one.code == 1
        assert "(TASK_NOT_FOUND). An operator of a bridge finds the tasks of others with --all" in one.err


@pytest.mark.proves("cli-tasks", "ops-timeline")
async def test_the_timeline_of_a_foreign_task_is_made_of_its_history_and_status(run: Run, call: Run) -> None:
    async with foreign_agent() as agent:
        begun = await call(agent.url, "--text", "hello")
        shown = await run(agent.url, begun.task_id, "--timeline")
        told = await run(agent.url, begun.task_id, "--timeline", "--json-output")
        whole = await run(agent.url, begun.task_id)
    assert (shown.code, shown.err) == (0, "")
    first, *_, last = shown.out.splitlines()
    assert first.split() == ["-", "asked"]
    assert last.endswith("  completed")
    kinds = [one["what"] for one in json.loads(told.out)["moments"]]
    assert (kinds[0], kinds[-1], len(kinds)) == ("received", "state", len(shown.out.splitlines()))
    assert f"timeline {first}" in whole.out.splitlines()


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="Windows has no TZ")
@pytest.mark.parametrize(
    ("zone", "at"), [("WEST+12", "0001-01-01T00:00:00Z"), ("EAST-14", "9999-12-31T23:59:59Z")]
)
def test_a_time_that_no_date_can_hold_is_left_out(
    zone: str, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = timeline_from({"moments": [{"what": "state", "at": at, "state": "working"}]})
    try:
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        assert [line.split() for line in timeline_lines(told)] == [["-", "working"]]
    finally:
        monkeypatch.undo()
        time.tzset()


async def test_the_tasks_of_a_foreign_agent_are_listed(run: Run, call: Run) -> None:
    async with foreign_agent() as agent:
        begun = await call(agent.url, "--text", "hello")
        done = await run(agent.url)
    assert done.code == 0, done.err
    assert done.out.split()[4] == begun.task_id


@pytest.mark.proves("cli-tasks", "map-agent-read-alone")
async def test_an_odd_task_of_a_list_takes_no_other_with_it(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    def task(**fields: Any) -> dict[str, Any]:
        status = {"state": "TASK_STATE_COMPLETED", "timestamp": "2026-11-28T01:00:00Z"}
        return {"id": "t1", "contextId": "c", "status": status, **fields}

    def script(method: str, params: dict[str, Any]) -> list[dict[str, Any]]:
        assert method == "ListTasks"
        odd = task(id="t2", status={"state": "TASK_STATE_PONDERING"}, metadata="odd")
        listed = [task(), {"status": {}}, "x", odd, task(id="t3", contextId=None, artifacts=None)]
        return [{"tasks": listed, "nextPageToken": "", "pageSize": 5, "totalSize": 5}]

    async with scripted_agent(script) as url:
        done = await run(url)
    assert [line.split()[:2] for line in done.out.splitlines()[1:]] == [
        ["t1", "completed"],
        ["t2", "working"],
        ["t3", "completed"],
    ]
    assert "more" not in done.err
    assert 'a task of the list has no id and is left out: "x"' in caplog.text
    assert 'the state "TASK_STATE_PONDERING" is not known' in caplog.text


@pytest.mark.proves("cli-usage")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--cancel"], "--cancel takes a task: mcp-a2a tasks URL ID --cancel"),
        (["t", "--cancel", "--decline"], "give one of --decline, --cancel"),
        (["t", "--state", "failed"], "--state and --context are for the list"),
        (["--api-key", "secret"], "--api-key takes env:NAME or file:PATH"),
    ],
)
async def test_what_does_not_go_together_is_one_message(words: list[str], said: str, run: Run) -> None:
    done = await run("http://127.0.0.1:1", *words)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


async def test_an_unknown_task_is_an_error_of_the_agent(run: Run, bridge: Running) -> None:
    done = await run(bridge.base_url, "nothing")
    assert (done.code, done.out) == (1, "")
    assert "Traceback" not in done.err
