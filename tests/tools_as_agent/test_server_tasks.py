"""Calls that the server turns into tasks, followed to their end, in both eras and over both transports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from tests.support.asking import asking_url
from tests.support.asking_bridge import (
    AT_ONCE,
    QUESTION,
    Asked,
    asking,
    given_up,
    keys_of,
    outcome,
    question_of,
    words_of,
)
from tests.support.drivers import shape_of, state_of
from tests.support.limits import url_at
from tests.support.ports import free_port
from tests.support.running import EXTENSION, call_part, message, texts

JOB: Final = {"legacy": "job", "modern": "task-job"}
QUICK: Final = {"connect_seconds": 10.0, "longest_pause_seconds": 0.2}
"""A server that is started again is found again soon."""

each_place = pytest.mark.parametrize(
    ("era", "http"),
    [("legacy", False), ("legacy", True), ("modern", False), ("modern", True)],
    ids=["legacy stdio", "legacy http", "modern stdio", "modern http"],
)
both_eras = pytest.mark.parametrize("era", ["legacy", "modern"])


async def requests(client: Asked) -> dict[str, int]:
    """The number of requests that the server got, by method."""
    return dict(json.loads(await client.text("requests")))


@pytest.mark.proves("map-server-tasks", "tasks-either", "mcp25-task-support", "tasks-header", "mcp26-headers")
@each_place
@pytest.mark.smoke("legacy http", "modern stdio")
async def test_a_task_of_the_server_gives_the_same_result_as_a_plain_call(era: str, http: bool) -> None:
    async with asking(era, http=http) as client:
        assert outcome(await client.send(call_part(JOB[era], steps=2))) == "2 steps"


@pytest.mark.proves("map-server-tasks", "map-progress")
@each_place
@pytest.mark.smoke("legacy stdio", "modern http")
async def test_status_messages_of_the_servers_task_are_passed_on(era: str, http: bool) -> None:
    job = call_part(JOB[era], steps=3, seconds=0.25)
    async with asking(era, http=http) as client:
        async with client.stream("SendStreamingMessage", **message(job)) as events:
            seen = [
                event["statusUpdate"]["status"] for event in await events.rest() if "statusUpdate" in event
            ]
        said = [text for status in seen for text in texts(status.get("message", {}).get("parts", []))]
        assert {status["state"] for status in seen[:-1]} == {"TASK_STATE_WORKING"}
        assert said == sorted(set(said))
        assert said[-1] == "step 3"


@pytest.mark.proves("map-server-tasks", "map-elicitation-form", "tasks-asked", "mcp25-task-related")
@each_place
@pytest.mark.smoke("legacy stdio", "modern http")
async def test_a_task_of_the_server_may_ask(era: str, http: bool) -> None:
    async with asking(era, http=http) as client:
        task = await client.ask(JOB[era], ask=True)
        assert words_of(task).startswith("Your name, please")
        assert question_of(task)["mode"] == "form"
        # The server is asked how its task is many times before the answer comes.
        assert await client.text("echo", text="meanwhile") == "meanwhile"
        before = (await requests(client))["tasks/get"]
        if era == "legacy":
            with anyio.fail_after(10):
                while (await requests(client))["tasks/get"] < before + 3:
                    await anyio.lowlevel.checkpoint()
        assert await client.get(task["id"]) == task
        assert 'accept {"name": "Ada"}' in outcome(await client.answer_to(task, "Ada"))
        (answer,) = await client.server_saw()
        assert (answer["action"], answer["content"]) == ("accept", {"name": "Ada"})
        assert ("_meta" in answer) is (era == "legacy")


@pytest.mark.proves("map-server-tasks", "map-answers", "map-refuse")
@both_eras
async def test_a_question_of_a_task_can_be_answered_wrongly_first_and_then_refused(era: str) -> None:
    async with asking(era) as client:
        task = await client.ask(JOB[era], ask=True)
        wrong = await client.answer_to(task, {"name": 7})
        assert [one["property"] for one in question_of(wrong)["errors"]] == ["name"]
        assert outcome(await client.refuse(task, "decline")).endswith("decline")
        (answer,) = await client.server_saw()
        assert answer["action"] == "decline"


@pytest.mark.proves("map-server-tasks")
@pytest.mark.parametrize("http", [False, True], ids=["stdio", "http"])
async def test_a_task_may_ask_twice(http: bool) -> None:
    async with asking("modern", http=http) as client:
        task = await client.ask("task-job", ask_twice=True)
        assert keys_of(task) == ["first-1"]
        task = await client.answer_to(task, "Ada")
        assert keys_of(task) == ["second-2"]
        done = outcome(await client.answer_to(task, "Byron"))
        assert done == '2 steps; first-1: accept {"first": "Ada"}; second-2: accept {"second": "Byron"}'
        assert (await requests(client))["tasks/update"] == 2


@pytest.mark.proves("map-server-tasks", "map-elicitation-both", "tasks-answered")
async def test_a_task_may_ask_two_things_at_once_and_get_one_answer_before_the_other() -> None:
    async with asking("modern") as client:
        async with client.stream(
            "SendStreamingMessage", **message(call_part("task-job", ask_two=True))
        ) as events:
            task = (await events.rest())[0]["task"]
        with anyio.fail_after(10):
            while len(keys_of(task := await client.get(task["id"]))) < 2:
                await anyio.lowlevel.checkpoint()
        one_left = await client.answer_to(task, "Byron", **{QUESTION: "second-1"})
        assert (state_of(one_left), keys_of(one_left)) == ("INPUT_REQUIRED", ["first-1"])
        assert "accept" in outcome(await client.answer_to(task, "Ada"))
        assert sorted(str(one["content"]) for one in await client.server_saw()) == [
            "{'first': 'Ada'}",
            "{'second': 'Byron'}",
        ]


@pytest.mark.proves("map-server-tasks")
async def test_tasks_that_ask_at_the_same_time_get_their_own_answers() -> None:
    async with asking("legacy") as client:
        tasks = [await client.ask("job", ask=True) for _ in range(3)]
        for number, task in reversed([*enumerate(tasks)]):
            done = outcome(await client.answer_to(task, f"name {number}"))
            assert done == f'2 steps; accept {{"name": "name {number}"}}'


@pytest.mark.proves("map-server-tasks", "map-is-error")
@both_eras
async def test_a_task_that_failed_with_a_tool_error_holds_the_tools_whole_output(era: str) -> None:
    async with asking(era) as client:
        task = await client.send(call_part(JOB[era], fail=True if era == "legacy" else "tool"))
        assert (state_of(task), words_of(task)) == ("FAILED", "the job failed")


@pytest.mark.proves("map-server-tasks", "map-mcp-error")
async def test_a_task_that_failed_with_an_error_keeps_its_code() -> None:
    async with asking("modern") as client:
        task = await client.send(call_part("task-job", fail="protocol"))
        assert (state_of(task), words_of(task)) == ("FAILED", "the job broke")
        error = task["status"]["message"]["metadata"][f"{EXTENSION}/peer"]["error"]
        assert error == {"code": -32603, "message": "the job broke"}


@pytest.mark.proves("map-server-tasks")
async def test_a_task_that_the_server_cancels_is_canceled_in_its_words() -> None:
    async with asking("modern") as client:
        task = await client.send(call_part("task-job", cancel_itself=True))
        assert (state_of(task), words_of(task)) == ("CANCELED", "the server gave it up")


@pytest.mark.proves("mcp25-task-support")
async def test_a_tool_that_does_not_require_a_task_is_called_without_one() -> None:
    async with asking("legacy") as client:
        task = await client.ask("optional-job", ask=True)
        assert outcome(await client.answer_to(task, "Ada")) == '2 steps; accept {"name": "Ada"}'
        assert "tasks/get" not in await requests(client)


# Time


@pytest.mark.proves("map-server-tasks", "mcp25-task-polled")
@pytest.mark.parametrize("http", [False, True], ids=["stdio", "http"])
async def test_a_notification_arrives_before_the_next_poll(http: bool) -> None:
    async with asking("modern", http=http) as client:
        with anyio.fail_after(50):
            task = await client.send(call_part("task-job", steps=3, seconds=0.1, poll_ms=60_000))
        assert outcome(task) == "3 steps"
        asked = await client.ask("task-job", ask_twice=True, poll_ms=60_000)
        asked = await client.answer_to(asked, "Ada")
        assert outcome(await client.answer_to(asked, "Byron")).startswith("2 steps")


@pytest.mark.proves("map-server-tasks", "mcp25-task-polled")
@pytest.mark.parametrize("http", [False, True], ids=["stdio", "http"])
async def test_a_change_before_the_first_notification_is_not_missed(http: bool) -> None:
    """It takes the subscription only after the job has asked, and wants to be polled in a minute."""
    async with asking("modern", http=http) as client:
        job = call_part("task-job", ask=True, poll_ms=60_000, seconds=0.05, unheard_seconds=0.4)
        with anyio.fail_after(30):
            task = await client.send(job)
        assert state_of(task) == "INPUT_REQUIRED"


@pytest.mark.proves("map-server-tasks", "map-timeout")
@both_eras
async def test_a_task_may_take_longer_than_a_call(era: str) -> None:
    async with asking(era, run={"call_timeout_seconds": 0.2}) as client:
        assert outcome(await client.send(call_part(JOB[era], steps=3, seconds=0.2))) == "3 steps"


@pytest.mark.proves("map-server-tasks-cancel", "map-timeout")
@both_eras
async def test_a_task_that_takes_too_long_is_cancelled_on_the_server(era: str) -> None:
    async with asking(era, run={"task_timeout_seconds": 0.4}) as client:
        task = await client.send(call_part(JOB[era], steps=10, seconds=100))
        words = "The tool gave no answer in 0.4 s and was cancelled"
        assert (state_of(task), words_of(task)) == ("FAILED", words)
        assert (await requests(client))["tasks/cancel"] == 1


@pytest.mark.proves("map-asked-pause", "map-server-tasks")
@both_eras
async def test_the_deadline_of_a_task_is_paused_while_a_person_is_asked(era: str) -> None:
    """Another task takes as long as a task may, and only then is the question answered."""
    async with asking(era, run={"task_timeout_seconds": 1.0}) as client:
        task = await client.ask(JOB[era], ask=True)
        assert state_of(await client.send(call_part(JOB[era], seconds=100))) == "FAILED"
        assert "accept" in outcome(await client.answer_to(task, "Ada"))


@pytest.mark.proves("map-input-timeout", "map-server-tasks")
@both_eras
async def test_a_question_of_a_task_times_out(era: str) -> None:
    async with asking(era, run={"input_timeout_seconds": 0.3}) as client:
        task = await client.ask(JOB[era], ask=True)
        async with client.watching(task) as events:
            await events.until("FAILED")
        assert words_of(await client.get(task["id"])) == given_up(0.3)
        assert [one["action"] for one in await client.server_saw()] == ["cancel"]


# Cancelling


@pytest.mark.proves("map-server-tasks-cancel", "map-cancel", "tasks-cancelled-by", "mcp25-cancel-task")
@each_place
@pytest.mark.smoke("legacy http", "modern stdio")
async def test_a_cancelled_task_is_cancelled_on_the_server(era: str, http: bool) -> None:
    job = call_part(JOB[era], steps=2, seconds=100)
    async with asking(era, http=http) as client, client.working(job) as (task_id, events):
        await requested(client, "tasks/get")
        assert state_of(await client.cancel(task_id)) == "CANCELED"
        assert shape_of(await events.rest())[-1] == "statusUpdate CANCELED"
        assert (await requests(client))["tasks/cancel"] == 1


async def requested(client: Asked, method: str) -> None:
    """Wait until the server got a request."""
    with anyio.fail_after(10):
        while method not in await requests(client):
            await anyio.lowlevel.checkpoint()


@pytest.mark.proves("map-server-tasks-cancel")
@both_eras
async def test_a_cancelled_task_that_asks_is_cancelled_on_the_server(era: str) -> None:
    async with asking(era) as client:
        task = await client.ask(JOB[era], ask=True)
        async with client.watching(task) as events:
            assert state_of(await client.cancel(task["id"])) == "CANCELED"
            assert shape_of(await events.rest()) == ["statusUpdate CANCELED"]
        assert (await requests(client))["tasks/cancel"] == 1
        if era == "legacy":
            await client.says("pending", "0")


@pytest.mark.proves("map-server-tasks-cancel")
async def test_a_server_that_ignores_a_cancellation_does_not_change_the_canceled_task() -> None:
    job = call_part("task-job", never=True, stubborn=True)
    async with asking("modern") as client, client.working(job) as (task_id, _):
        await requested(client, "tasks/get")
        assert state_of(canceled := await client.cancel(task_id)) == "CANCELED"
        assert await client.text("echo", text="still there") == "still there"
        assert await client.get(task_id) == canceled


# Servers that go away


@pytest.mark.proves("map-server-tasks", "map-lost")
@pytest.mark.parametrize(
    "job",
    [{"seconds": 0.5}, {"ask": True}, {"seconds": 1.5, "poll_ms": 60_000}],
    ids=["works", "asks", "notifies"],
)
@pytest.mark.smoke("asks")
async def test_tasks_go_on_after_a_restart_of_a_server_that_keeps_them(
    job: dict[str, Any], tmp_path: Path
) -> None:
    port, jobs = free_port(), ("--jobs", str(tmp_path / "jobs.json"))
    target, asks = url_at(f"http://127.0.0.1:{port}/mcp"), "ask" in job
    with asking_url("modern", *jobs, port=port):
        bridge = asking("modern", target=target, server=QUICK)
        client = await bridge.__aenter__()
        try:
            task = await client.send(call_part("task-job", **job), configuration={} if asks else AT_ONCE)
            await requested(client, "tasks/get")
        except BaseException as exc:
            await bridge.__aexit__(type(exc), exc, exc.__traceback__)
            raise
    try:
        with asking_url("modern", *jobs, port=port):
            async with client.watching(task) as events:
                if asks:
                    assert outcome(await client.answer_to(task, "Ada")).endswith('accept {"name": "Ada"}')
                else:
                    await events.until("COMPLETED")
                    assert outcome(await client.get(task["id"])) == "2 steps"
    finally:
        await bridge.__aexit__(None, None, None)


@pytest.mark.proves("map-server-tasks", "map-lost")
@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.smoke("modern")
async def test_a_task_that_its_server_forgot_fails_with_a_reason(era: str) -> None:
    port = free_port()
    target = url_at(f"http://127.0.0.1:{port}/mcp")
    first = asking_url(era, port=port)
    first.__enter__()
    try:
        async with asking(era, target=target, server=QUICK) as client:
            job = call_part(JOB[era], seconds=100)
            async with client.working(job) as (task_id, events):
                await requested(client, "tasks/get")
                first.__exit__(None, None, None)
                with asking_url(era, port=port):
                    await events.until("FAILED")
                    assert "asking no longer knows the task: " in words_of(await client.get(task_id))
                    assert await client.text("echo", text="up") == "up"
    finally:
        first.__exit__(None, None, None)


@pytest.mark.proves("map-server-tasks")
async def test_a_session_that_is_lost_does_not_lose_its_tasks() -> None:
    job = call_part("job", steps=2, seconds=0.3)
    async with asking("legacy", http=True) as client, client.working(job) as (task_id, events):
        await client.send(call_part("forget"))
        await events.until("COMPLETED")
        assert outcome(await client.get(task_id)) == "2 steps"
