"""Every operation over HTTP, in each generation and both bindings: a bridge on loopback, a raw MCP server behind it.

One binding meets the store in memory and the other the one in a file, so that each test has seen both.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import pytest

from bridge.a2a.model.objects import milliseconds, timestamp
from tests.support.drivers import (
    PUSH_OPERATIONS,
    Driver,
    HttpJsonDriver,
    JsonRpcDriver,
    new_client,
    shape_of,
    state_of,
)
from tests.support.first_driver import FirstDriver, is_in_it
from tests.support.hermes_driver import HermesDriver, is_in_hermes
from tests.support.older_drivers import EVERY_DRIVER, name_of
from tests.support.running import (
    EXTENSION,
    Running,
    call_part,
    config_for,
    message,
    profile_with,
    raw_command,
    running,
    texts,
)

# The older generations differ in the wire alone: each operation is tried in them once.
pytestmark = pytest.mark.smoke("JSONRPC*", "HTTP+JSON*")

HERMES = "Hermes"
NOBODYS = "00000000-0000-7000-8000-000000000000"
ECHO = call_part("echo", text="hello")
WAIT = call_part("wait")
ADD_ONE = call_part("add", a=1)
ADD = call_part("add", a=1, b=2)
"""Leaves out `b`, so the task asks for it."""
PUSH_CONFIG = {"url": "https://hooks.example.com/a"}


@pytest.fixture(scope="module")
async def bridges(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[dict[str, Running]]:
    file = str(tmp_path_factory.mktemp("store") / "tasks.db")
    async with (
        running(config_for(raw_command(), store="memory:")) as in_memory,
        running(config_for(raw_command(), store=file)) as on_disk,
        running(config_for(raw_command(), profile=profile_with(card={"hermes": True}))) as hermes,
    ):
        yield {JsonRpcDriver.binding: in_memory, HttpJsonDriver.binding: on_disk, HERMES: hermes}


@pytest.fixture(params=(*EVERY_DRIVER, FirstDriver, HermesDriver), ids=name_of)
async def driver(request: pytest.FixtureRequest, bridges: dict[str, Running]) -> AsyncIterator[Driver]:
    if request.param is FirstDriver and not is_in_it(request):
        pytest.skip("the first generation does otherwise")
    if request.param is HermesDriver and not is_in_hermes(request):
        pytest.skip("Hermes does otherwise")
    async with new_client() as client:
        bridge = bridges[HERMES if request.param is HermesDriver else request.param.binding]
        yield request.param(client, bridge.base_url)


@pytest.fixture
def context() -> str:
    """A context of the client's own, so that a test sees only its tasks."""
    return f"context-{uuid.uuid4()}"


async def asking(driver: Driver, **fields: Any) -> Any:
    """A task that waits for input."""
    task = await driver.send(ADD_ONE, **fields)
    assert state_of(task) == "INPUT_REQUIRED"
    return task


async def cancelled_calls(driver: Driver) -> int:
    """How many calls the tool server was told to cancel. It answers in order, so this also flushes."""
    task = await driver.send(call_part("cancelled"))
    return int(texts(task["artifacts"][0]["parts"])[0])


# Sending


@pytest.mark.proves(
    "a2a-3.1.1-send",
    "a2a-3.4.1-context",
    "a2a-5.5-names",
    "a2a-5.6.1-time",
    "a2a-3.4.2-unique",
    "a2a-5.7-sent",
    "a2a-4-equivalent",
    "a2a03-3.4.1-equivalent",
    "a2a03-3.2.1-json-rpc",
    "a2a01-3.2-json-rpc",
    "a2a03-3.2.3-rest",
)
@pytest.mark.smoke("*")
async def test_a_message_becomes_a_task_with_ids_made_by_the_server(driver: Driver) -> None:
    params = message(ECHO)
    result = await driver.call("SendMessage", **params)
    assert set(result) == {"task"}
    task = result["task"]
    assert uuid.UUID(task["id"]) != uuid.UUID(task["contextId"])
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    said = task["status"]["timestamp"]
    assert timestamp(milliseconds(said)) == said
    assert task["history"] == [{**params["message"], "taskId": task["id"], "contextId": task["contextId"]}]
    assert [texts(artifact["parts"]) for artifact in task["artifacts"]] == [["hello"]]


@pytest.mark.proves("a2a-3.4.2-task-id", "a2a-3.4.2-unique")
async def test_two_messages_become_two_tasks_with_contexts_of_their_own(driver: Driver) -> None:
    one, other = await driver.send(ECHO), await driver.send(ECHO)
    assert len({one["id"], other["id"], one["contextId"], other["contextId"]}) == 4


@pytest.mark.proves("a2a-3.2.2-blocking")
async def test_a_send_waits_until_the_task_has_ended(driver: Driver) -> None:
    params = message(WAIT)
    answers: list[Any] = []

    async def send() -> None:
        answers.append(await driver.call("SendMessage", **params))

    async with driver.stream("SendStreamingMessage", **params) as events, anyio.create_task_group() as tasks:
        task_id = (await events.until("WORKING"))[0]["task"]["id"]
        tasks.start_soon(send)
        await driver.send(ECHO)
        assert answers == []
        await driver.cancel(task_id)
    assert [(answer["task"]["id"], state_of(answer["task"])) for answer in answers] == [(task_id, "CANCELED")]


@pytest.mark.proves("a2a-3.2.2-blocking")
async def test_a_send_answers_when_the_task_asks_for_input(driver: Driver) -> None:
    task = await asking(driver)
    assert task["status"]["message"]["role"] == "ROLE_AGENT"
    assert "b (number, required): The second [missing]" in texts(task["status"]["message"]["parts"])[0]


@pytest.mark.proves("a2a-3.2.2-return-immediately")
async def test_with_return_immediately_a_send_answers_while_the_task_runs(driver: Driver) -> None:
    task = await driver.send(WAIT, configuration={"returnImmediately": True})
    assert state_of(task) in ("SUBMITTED", "WORKING")
    assert state_of(await driver.cancel(task["id"])) == "CANCELED"


@pytest.mark.proves("a2a-3.2.2-blocking")
@pytest.mark.parametrize("configuration", [{}, {"returnImmediately": False}])
async def test_return_immediately_unset_and_false_are_the_same(
    driver: Driver, configuration: dict[str, Any]
) -> None:
    params = message(call_part("progress", steps=2))
    task = (await driver.call("SendMessage", **params, configuration=configuration))["task"]
    assert (state_of(task), texts(task["artifacts"][0]["parts"])) == ("COMPLETED", ["2 steps"])


@pytest.mark.proves(
    "a2a-3.1.2-stream", "a2a-3.3.4-streaming", "a2a-5.1-equivalent", "a2a03-3.3-stream", "a2a01-3.3-stream"
)
@pytest.mark.smoke("*")
async def test_a_stream_begins_with_the_task_and_ends_with_its_end(driver: Driver) -> None:
    params = message(ECHO)
    async with driver.stream("SendStreamingMessage", **params) as events:
        seen = await events.rest()
    assert shape_of(seen) == [
        "task SUBMITTED",
        "statusUpdate WORKING",
        "artifactUpdate",
        "statusUpdate COMPLETED",
    ]
    ids = {(p.get("taskId") or p["id"], p["contextId"]) for event in seen for p in event.values()}
    assert len(ids) == 1
    assert texts(seen[2]["artifactUpdate"]["artifact"]["parts"]) == ["hello"]
    assert (await driver.get(ids.pop()[0]))["artifacts"] == [seen[2]["artifactUpdate"]["artifact"]]


@pytest.mark.proves("a2a-5.7-required", "a2a-4.1.6-part", "a2a-14.1.1-validated")
@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"messageId": None}, "message.messageId"),
        ({"messageId": ""}, "message.messageId"),
        ({"messageId": "x" * 513}, "message.messageId"),
        ({"role": None}, "message.role"),
        ({"role": "user"}, "message.role"),
        ({"role": "ROLE_AGENT"}, "message.role"),
        ({"parts": None}, "message.parts"),
        ({"parts": []}, "message.parts"),
        ({"parts": "hello"}, "message.parts"),
        ({"parts": [{}]}, "message.parts.0"),
        ({"parts": [{"text": "a", "url": "https://example.com"}]}, "message.parts.0"),
        ({"parts": [{"text": "a"}, {"raw": "no base64!"}]}, "message.parts.1.raw"),
        ({"parts": [{"text": 5}]}, "message.parts.0.text"),
        ({"metadata": []}, "message.metadata"),
        ({"taskId": "x" * 513}, "message.taskId"),
        ({"contextId": 7}, "message.contextId"),
    ],
    ids=str,
)
@pytest.mark.parametrize("operation", ["SendMessage", "SendStreamingMessage"])
async def test_an_invalid_message_is_refused_by_the_name_of_its_field(
    driver: Driver, operation: str, change: dict[str, Any], field: str
) -> None:
    said = {**message(ECHO)["message"], **change}
    fault = await driver.refused(operation, message={k: v for k, v in said.items() if v is not None})
    assert (fault.reason, fault.fields) == ("INVALID_PARAMS", {field})
    assert field in fault.message


@pytest.mark.proves("a2a-5.7-required")
@pytest.mark.smoke("*")
async def test_a_send_without_a_message_is_refused(driver: Driver) -> None:
    fault = await driver.refused("SendMessage", configuration={})
    assert (fault.reason, fault.fields) == ("INVALID_PARAMS", {"message"})


@pytest.mark.proves("a2a-5.7-unknown", "a2a-4.1.6-part")
async def test_unknown_fields_and_null_data_are_kept(driver: Driver) -> None:
    parts = [{**ECHO, "future": {"a": [1]}}, {"data": None, "metadata": {"why": "null is a value"}}]
    params = message(*parts, extensions=["urn:x:1"], metadata={"k": {"n": None}}, future="field")
    task = (await driver.call("SendMessage", **params, another=1))["task"]
    stored = await driver.get(task["id"])
    expected = {**params["message"], "taskId": task["id"], "contextId": task["contextId"]}
    assert [task["history"], stored["history"]] == [[expected], [expected]]
    assert "another" not in task


@pytest.mark.proves("a2a-reference-tasks")
async def test_reference_task_ids_are_kept(driver: Driver) -> None:
    first = await driver.send(ECHO)
    task = await driver.send(ECHO, referenceTaskIds=[first["id"], NOBODYS])
    stored = await driver.get(task["id"])
    assert stored["history"][0]["referenceTaskIds"] == [first["id"], NOBODYS]


@pytest.mark.proves("a2a-accepted-modes")
@pytest.mark.parametrize("operation", ["SendMessage", "SendStreamingMessage"])
async def test_output_modes_that_a_skill_cannot_meet_are_refused_before_it_runs(
    driver: Driver, context: str, operation: str
) -> None:
    part = call_part("add", a=1, b=2)
    params = message(part, contextId=context, configuration={"acceptedOutputModes": ["image/png"]})
    fault = await driver.refused(operation, **params)
    assert fault.reason == "CONTENT_TYPE_NOT_SUPPORTED"
    assert "application/json" in fault.message
    assert await driver.listed(contextId=context) == []


@pytest.mark.proves("a2a-accepted-modes")
@pytest.mark.parametrize(
    "modes", [["application/json"], ["text"], ["text/*"], ["*/*"], [], ["image/png", "text/plain"]], ids=str
)
async def test_output_modes_that_a_skill_can_meet_are_accepted(driver: Driver, modes: list[str]) -> None:
    task = await driver.send(call_part("add", a=1, b=2), configuration={"acceptedOutputModes": modes})
    assert state_of(task) == "COMPLETED"


# How much history


async def with_three_messages(driver: Driver, **fields: Any) -> Any:
    """A task that asked once: its history is the call, the question, the answer."""
    task = await asking(driver, **fields)
    return await driver.send({"data": {"b": 2}}, taskId=task["id"])


def roles(task: Any) -> list[str] | None:
    return [said["role"] for said in task["history"]] if "history" in task else None


HISTORY: list[tuple[dict[str, int], list[str] | None]] = [
    ({}, ["ROLE_USER", "ROLE_AGENT", "ROLE_USER"]),
    ({"historyLength": 0}, None),
    ({"historyLength": 1}, ["ROLE_USER"]),
    ({"historyLength": 2}, ["ROLE_AGENT", "ROLE_USER"]),
    ({"historyLength": 100}, ["ROLE_USER", "ROLE_AGENT", "ROLE_USER"]),
]


@pytest.mark.proves("a2a-3.2.4-history", "a2a-3.1.3-get")
@pytest.mark.smoke("*")
async def test_get_and_list_give_as_much_history_as_asked_for(driver: Driver, context: str) -> None:
    task = await with_three_messages(driver, contextId=context)
    for length, expected in HISTORY:
        assert roles(await driver.get(task["id"], **length)) == expected
        listed = await driver.call("ListTasks", contextId=context, **length)
        assert [roles(found) for found in listed["tasks"]] == [expected]


@pytest.mark.proves("a2a-3.2.4-history")
@pytest.mark.parametrize(("length", "expected"), HISTORY, ids=lambda value: str(value))
async def test_send_and_stream_give_as_much_history_as_asked_for(
    driver: Driver, length: dict[str, int], expected: list[str] | None
) -> None:
    task, other = await asking(driver), await asking(driver)
    answer = message({"data": {"b": 2}}, taskId=task["id"])
    sent = await driver.call("SendMessage", **answer, configuration=length)
    assert roles(sent["task"]) == expected
    answer = message({"data": {"b": 2}}, taskId=other["id"])
    async with driver.stream("SendStreamingMessage", **answer, configuration=length) as events:
        first, *_ = await events.rest()
    assert roles(first["task"]) == expected


@pytest.mark.proves("a2a-3.7-final", "a2a-3.2.4-history")
async def test_the_final_message_of_a_task_is_in_its_history_for_every_operation(
    driver: Driver, context: str
) -> None:
    failed = await driver.send(call_part("fail"), contextId=context)
    waiting = await asking(driver, contextId=context)
    canceled = await driver.cancel(waiting["id"])
    assert roles(failed) == ["ROLE_USER", "ROLE_AGENT"]
    assert roles(canceled) == ["ROLE_USER", "ROLE_AGENT", "ROLE_AGENT"]
    listed = await driver.call("ListTasks", contextId=context, historyLength=1)
    assert {found["id"] for found in listed["tasks"]} == {failed["id"], canceled["id"]}
    for shown in (failed, canceled, *listed["tasks"], await driver.get(failed["id"])):
        assert shown["history"][-1] == shown["status"]["message"]
    async with driver.stream("SendStreamingMessage", **message(call_part("fail"))) as events:
        seen = await events.rest()
    assert [roles(event["task"]) for event in seen if "task" in event] == [["ROLE_USER"]]


@pytest.mark.proves("a2a-3.2.4-history")
async def test_a_negative_history_length_is_refused(driver: Driver) -> None:
    task = await driver.send(ECHO)
    for operation, params in (
        ("GetTask", {"id": task["id"], "historyLength": -1}),
        ("ListTasks", {"historyLength": -1}),
        ("SendMessage", {**message(ECHO), "configuration": {"historyLength": -1}}),
    ):
        fault = await driver.refused(operation, **params)
        assert fault.reason == "INVALID_PARAMS"
        assert {field.rpartition(".")[2] for field in fault.fields} == {"historyLength"}


# Getting


@pytest.mark.proves("a2a-3.1.3-get")
@pytest.mark.smoke("*")
async def test_get_gives_the_task_as_it_stands(driver: Driver) -> None:
    sent = await driver.send(call_part("every-block"))
    assert await driver.get(sent["id"]) == sent
    async with driver.working(WAIT) as (task_id, _):
        running_task = await driver.get(task_id)
        assert state_of(running_task) == "WORKING"
        assert "artifacts" not in running_task
        await driver.cancel(task_id)


@pytest.mark.proves(
    "a2a-3.1.3-get", "a2a-3.1.5-cancel", "a2a-3.1.6-subscribe", "a2a-3.3.2-not-found", "a2a-5.1-equivalent"
)
@pytest.mark.parametrize("operation", ["GetTask", "CancelTask", "SubscribeToTask"])
@pytest.mark.parametrize("task_id", [NOBODYS, "no uuid", "ü/../%2e"])
async def test_a_task_that_does_not_exist_is_not_found(driver: Driver, operation: str, task_id: str) -> None:
    if driver.binding == "HTTP+JSON":
        task_id = task_id.replace("/", "_")
    fault = await driver.refused(operation, id=task_id)
    assert fault.reason == "TASK_NOT_FOUND"


# Listing


@pytest.mark.proves("a2a-3.1.4-list")
@pytest.mark.smoke("*")
async def test_a_list_is_paged_newest_first_without_gaps_or_repeats(driver: Driver, context: str) -> None:
    made = [(await driver.send(ECHO, contextId=context))["id"] for _ in range(7)]
    pages, token = [], ""
    for _ in range(3):
        page = await driver.call("ListTasks", contextId=context, pageSize=3, pageToken=token)
        assert (page["pageSize"], page["totalSize"]) == (3, 7)
        pages.append(page["tasks"])
        token = page["nextPageToken"]
    assert [len(tasks) for tasks in pages] == [3, 3, 1]
    assert token == ""
    tasks = [task for page in pages for task in page]
    assert sorted(task["id"] for task in tasks) == sorted(made)
    times = [task["status"]["timestamp"] for task in tasks]
    assert times == sorted(times, reverse=True)
    assert await driver.listed(contextId=context) == [task["id"] for task in tasks]
    assert await driver.listed(contextId=context) == [task["id"] for task in tasks]


@pytest.mark.proves("a2a-3.1.4-list")
async def test_a_new_task_between_two_pages_shifts_nothing(driver: Driver, context: str) -> None:
    before = set()
    for _ in range(4):
        before.add((await driver.send(ECHO, contextId=context))["id"])
    first = await driver.call("ListTasks", contextId=context, pageSize=2)
    await driver.send(ECHO, contextId=context)
    token = first["nextPageToken"]
    second = await driver.call("ListTasks", contextId=context, pageSize=2, pageToken=token)
    assert {task["id"] for task in first["tasks"] + second["tasks"]} == before
    assert (second["nextPageToken"], second["totalSize"]) == ("", 5)


@pytest.mark.proves("a2a-3.1.4-list")
async def test_a_list_that_fits_one_page_exactly_has_no_next_page(driver: Driver, context: str) -> None:
    for _ in range(2):
        await driver.send(ECHO, contextId=context)
    page = await driver.call("ListTasks", contextId=context, pageSize=2)
    assert (len(page["tasks"]), page["nextPageToken"]) == (2, "")


@pytest.mark.proves("a2a-3.1.4-list", "a2a-5.7-sent")
async def test_an_empty_list_has_every_required_field(driver: Driver, context: str) -> None:
    page = await driver.call("ListTasks", contextId=context)
    assert page == {"tasks": [], "nextPageToken": "", "pageSize": 50, "totalSize": 0}


@pytest.mark.proves("a2a-3.1.4-list")
async def test_a_list_is_filtered_by_status(driver: Driver, context: str) -> None:
    completed = (await driver.send(ECHO, contextId=context))["id"]
    failed = (await driver.send(call_part("fail"), contextId=context))["id"]
    waiting = (await asking(driver, contextId=context))["id"]
    for state, expected in (
        ("COMPLETED", [completed]),
        ("FAILED", [failed]),
        ("INPUT_REQUIRED", [waiting]),
        ("CANCELED", []),
    ):
        page = await driver.call("ListTasks", contextId=context, status=f"TASK_STATE_{state}")
        assert [task["id"] for task in page["tasks"]] == expected
        assert page["totalSize"] == len(expected)


@pytest.mark.proves("a2a-3.1.4-list")
async def test_a_list_is_filtered_by_the_time_of_the_status(driver: Driver, context: str) -> None:
    for _ in range(3):
        await driver.send(ECHO, contextId=context)
    tasks = (await driver.call("ListTasks", contextId=context))["tasks"]
    for task in tasks:
        since = task["status"]["timestamp"]
        at_least = [found["id"] for found in tasks if found["status"]["timestamp"] >= since]
        assert await driver.listed(contextId=context, statusTimestampAfter=since) == at_least
        elsewhere = since.replace("Z", "+00:00")
        assert await driver.listed(contextId=context, statusTimestampAfter=elsewhere) == at_least
    later = timestamp(milliseconds(tasks[0]["status"]["timestamp"]) + 1)
    assert await driver.listed(contextId=context, statusTimestampAfter=later) == []


@pytest.mark.proves("a2a-3.1.4-list")
async def test_without_a_context_a_list_shows_all_tasks_of_the_caller(driver: Driver, context: str) -> None:
    mine = (await driver.send(ECHO, contextId=context))["id"]
    others = (await driver.send(ECHO))["id"]
    assert {mine, others} <= set(await driver.listed(pageSize=100))
    assert await driver.listed(contextId=context) == [mine]


@pytest.mark.proves("a2a-3.1.4-artifacts")
@pytest.mark.parametrize("asked", [{}, {"includeArtifacts": False}], ids=str)
@pytest.mark.smoke("*")
async def test_a_list_leaves_artifacts_out_unless_asked_for(
    driver: Driver, context: str, asked: dict[str, Any]
) -> None:
    task = await driver.send(ECHO, contextId=context)
    (listed,) = (await driver.call("ListTasks", contextId=context, **asked))["tasks"]
    assert "artifacts" not in listed
    assert {**listed, "artifacts": task["artifacts"]} == task
    (whole,) = (await driver.call("ListTasks", contextId=context, includeArtifacts=True))["tasks"]
    assert whole == task


@pytest.mark.proves("a2a-3.1.4-list", "a2a-3.3.2-validation")
@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"status": "TASK_STATE_RUNNING"}, "status"),
        ({"status": "completed"}, "status"),
        ({"pageSize": 0}, "pageSize"),
        ({"pageSize": 101}, "pageSize"),
        ({"pageSize": -1}, "pageSize"),
        ({"pageSize": "many"}, "pageSize"),
        ({"pageToken": "no token"}, "pageToken"),
        ({"pageToken": "MTIz"}, "pageToken"),
        ({"pageToken": "OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk5OmE"}, "pageToken"),
        ({"pageToken": "ü"}, "pageToken"),
        ({"statusTimestampAfter": "yesterday"}, "statusTimestampAfter"),
        ({"statusTimestampAfter": "2026-01-31T12:00:00"}, "statusTimestampAfter"),
        ({"statusTimestampAfter": "2026-02-31T12:00:00Z"}, "statusTimestampAfter"),
        ({"includeArtifacts": "perhaps"}, "includeArtifacts"),
    ],
    ids=str,
)
async def test_a_list_with_a_wrong_parameter_is_refused_by_its_name(
    driver: Driver, params: dict[str, Any], field: str
) -> None:
    fault = await driver.refused("ListTasks", **params)
    assert (fault.reason, fault.fields) == ("INVALID_PARAMS", {field})


@pytest.mark.proves("a2a-3.1.4-list")
async def test_every_wrong_parameter_of_a_list_is_named(driver: Driver) -> None:
    fault = await driver.refused("ListTasks", pageSize=150, historyLength=-5, status="TASK_STATE_RUNNING")
    assert fault.fields == {"pageSize", "historyLength", "status"}


# Cancelling


@pytest.mark.proves("a2a-3.1.5-cancel", "map-cancel")
@pytest.mark.smoke("*")
async def test_cancelling_a_running_task_cancels_the_call_on_the_wire(driver: Driver) -> None:
    before = await cancelled_calls(driver)
    async with driver.working(WAIT) as (task_id, events):
        assert await cancelled_calls(driver) == before
        task = await driver.cancel(task_id)
        assert shape_of(await events.rest()) == ["statusUpdate CANCELED"]
    assert (task["id"], state_of(task)) == (task_id, "CANCELED")
    assert await cancelled_calls(driver) == before + 1
    assert await driver.get(task_id) == task


@pytest.mark.proves("a2a-3.1.5-cancel")
@pytest.mark.smoke("*")
async def test_a_task_that_has_ended_cannot_be_cancelled(driver: Driver) -> None:
    for part in (ECHO, call_part("fail")):
        task = await driver.send(part)
        fault = await driver.refused("CancelTask", id=task["id"])
        assert fault.reason == "TASK_NOT_CANCELABLE"
        assert await driver.get(task["id"]) == task


@pytest.mark.proves("a2a-3.1.5-cancel")
async def test_a_task_that_waits_for_input_can_be_cancelled_once(driver: Driver) -> None:
    task = await asking(driver)
    assert state_of(await driver.cancel(task["id"])) == "CANCELED"
    assert (await driver.refused("CancelTask", id=task["id"])).reason == "TASK_NOT_CANCELABLE"
    fault = await driver.refused("SendMessage", **message({"data": {"b": 2}}, taskId=task["id"]))
    assert fault.reason == "UNSUPPORTED_OPERATION"


@pytest.mark.proves("a2a-3.1.5-cancel")
async def test_two_cancellations_at_once_are_one(driver: Driver) -> None:
    before = await cancelled_calls(driver)
    canceled: list[str] = []
    async with driver.working(WAIT) as (task_id, events):
        await driver.send(ECHO)

        async def cancel() -> None:
            answer = await driver.answer("CancelTask", {"id": task_id})
            # Whoever comes after the end is told so.
            canceled.append(answer.fault.reason if answer.fault else state_of(answer.result))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cancel)
            tasks.start_soon(cancel)
        assert shape_of(await events.rest()) == ["statusUpdate CANCELED"]
    assert set(canceled) <= {"CANCELED", "TASK_NOT_CANCELABLE"}
    assert "CANCELED" in canceled
    assert await cancelled_calls(driver) == before + 1


# Subscribing


@pytest.mark.proves("a2a-3.1.6-subscribe", "a2a03-7.9-resubscribe", "a2a01-7.7-resubscribe")
@pytest.mark.smoke("*")
async def test_a_subscription_begins_with_the_task_as_it_stands(driver: Driver) -> None:
    async with driver.working(WAIT) as (task_id, _):
        snapshot = await driver.get(task_id)
        async with driver.stream("SubscribeToTask", id=task_id) as events:
            assert await events.next() == {"task": snapshot}
            await driver.cancel(task_id)
            assert shape_of(await events.rest()) == ["statusUpdate CANCELED"]


@pytest.mark.proves("a2a-3.1.6-subscribe")
async def test_a_task_that_has_ended_cannot_be_subscribed_to(driver: Driver) -> None:
    task = await driver.send(ECHO)
    assert (await driver.refused("SubscribeToTask", id=task["id"])).reason == "UNSUPPORTED_OPERATION"


@pytest.mark.proves("a2a-3.1.6-subscribe", "a2a-11.7-input-closes")
async def test_a_subscription_to_a_waiting_task_stays_open_and_gets_the_rest(driver: Driver) -> None:
    task = await asking(driver)
    async with driver.stream("SubscribeToTask", id=task["id"]) as events:
        assert await events.next() == {"task": task}
        await driver.send({"data": {"b": 2}}, taskId=task["id"])
        rest = await events.rest()
    assert shape_of(rest) == ["statusUpdate WORKING", "artifactUpdate", "statusUpdate COMPLETED"]


@pytest.mark.proves("a2a-11.7-input-closes")
async def test_a_subscription_closes_when_the_task_asks_again(driver: Driver) -> None:
    task = await asking(driver)
    async with driver.stream("SubscribeToTask", id=task["id"]) as events:
        await events.next()
        await driver.send({"data": {"b": "not a number"}}, taskId=task["id"])
        assert shape_of(await events.rest()) == ["statusUpdate WORKING", "statusUpdate INPUT_REQUIRED"]


# What is not served


@pytest.mark.proves("a2a-3.3.4-push")
@pytest.mark.parametrize("operation", PUSH_OPERATIONS)
@pytest.mark.smoke("*")
async def test_push_operations_are_not_supported(driver: Driver, operation: str) -> None:
    task = await driver.send(ECHO)
    for task_id in (task["id"], NOBODYS):
        fault = await driver.refused(operation, taskId=task_id, id="c-1", **PUSH_CONFIG)
        assert fault.reason == "PUSH_NOTIFICATION_NOT_SUPPORTED"


@pytest.mark.proves("a2a-3.3.4-push")
@pytest.mark.parametrize("operation", ["SendMessage", "SendStreamingMessage"])
async def test_a_push_config_in_a_send_is_refused_and_makes_no_task(
    driver: Driver, context: str, operation: str
) -> None:
    configuration = {"taskPushNotificationConfig": PUSH_CONFIG}
    params = message(ECHO, contextId=context, configuration=configuration)
    assert (await driver.refused(operation, **params)).reason == "PUSH_NOTIFICATION_NOT_SUPPORTED"
    assert await driver.listed(contextId=context) == []


@pytest.mark.proves("a2a-3.3.4-extended", "a2a03-7.10-card")
@pytest.mark.smoke("*")
async def test_the_extended_card_is_not_supported(driver: Driver) -> None:
    assert (await driver.refused("GetExtendedAgentCard")).reason == "UNSUPPORTED_OPERATION"


# Several turns


@pytest.mark.proves("a2a-3.4.3-infer", "map-arguments")
@pytest.mark.parametrize("with_context", [False, True])
@pytest.mark.smoke("*")
async def test_an_answer_goes_on_with_the_task_and_its_context(driver: Driver, with_context: bool) -> None:
    task = await asking(driver)
    context_id = {"contextId": task["contextId"]} if with_context else {}
    done = await driver.send({"data": {"b": 2}}, taskId=task["id"], **context_id)
    assert (done["id"], done["contextId"], state_of(done)) == (task["id"], task["contextId"], "COMPLETED")
    assert json.loads(done["artifacts"][0]["parts"][-1]["text"]) == {"sum": 3}
    assert [(said["taskId"], said["contextId"]) for said in done["history"]] == [
        (task["id"], task["contextId"])
    ] * 3


@pytest.mark.proves("a2a-3.4.2-task-id")
@pytest.mark.parametrize("operation", ["SendMessage", "SendStreamingMessage"])
async def test_a_message_to_a_task_that_does_not_exist_is_refused(
    driver: Driver, context: str, operation: str
) -> None:
    params = message(ECHO, taskId=NOBODYS, contextId=context)
    assert (await driver.refused(operation, **params)).reason == "TASK_NOT_FOUND"
    assert await driver.listed(contextId=context) == []


@pytest.mark.proves("a2a-3.4.3-infer")
@pytest.mark.parametrize("operation", ["SendMessage", "SendStreamingMessage"])
async def test_a_context_that_is_not_the_tasks_is_refused(
    driver: Driver, context: str, operation: str
) -> None:
    task = await asking(driver)
    params = message({"data": {"b": 2}}, taskId=task["id"], contextId=context)
    fault = await driver.refused(operation, **params)
    assert (fault.reason, fault.fields) == ("INVALID_PARAMS", {"message.contextId"})
    assert await driver.get(task["id"]) == task


@pytest.mark.proves("a2a-3.1.1-terminal", "a2a03-7.1-ended")
@pytest.mark.parametrize("operation", ["SendMessage", "SendStreamingMessage"])
@pytest.mark.parametrize("part", [ECHO, call_part("fail"), call_part("refuse", code=-32602)], ids=str)
@pytest.mark.smoke("*")
async def test_a_message_to_a_task_that_has_ended_is_refused(
    driver: Driver, operation: str, part: dict[str, Any]
) -> None:
    task = await driver.send(part)
    fault = await driver.refused(operation, **message(ECHO, taskId=task["id"]))
    assert fault.reason == "UNSUPPORTED_OPERATION"
    assert await driver.get(task["id"]) == task


@pytest.mark.proves("a2a-held")
async def test_a_message_to_a_task_at_work_joins_its_history(driver: Driver) -> None:
    async with driver.working(WAIT) as (task_id, events):
        held = await driver.send({"text": "and quickly"}, taskId=task_id)
        assert (held["id"], state_of(held)) == (task_id, "WORKING")
        assert [part["text"] for part in held["history"][-1]["parts"]] == ["and quickly"]
        await driver.cancel(task_id)
        assert shape_of(await events.rest()) == ["statusUpdate CANCELED"]


@pytest.mark.proves("a2a-3.4.1-context")
async def test_a_clients_own_context_is_kept_and_holds_its_tasks(driver: Driver, context: str) -> None:
    tasks = [await driver.send(ECHO, contextId=context) for _ in range(2)]
    assert [task["contextId"] for task in tasks] == [context, context]
    assert {task["id"] for task in tasks} == set(await driver.listed(contextId=context))


@pytest.mark.proves("a2a-3.4.1-context")
async def test_empty_ids_are_no_ids(driver: Driver) -> None:
    task = await driver.send(ECHO, taskId="", contextId="")
    assert uuid.UUID(task["id"]) != uuid.UUID(task["contextId"])


# The same message again


@pytest.mark.proves("a2a-3.3.1-idempotent")
async def test_the_same_message_again_is_a_new_one_for_a_tool_that_only_reads(
    driver: Driver, context: str
) -> None:
    params = message(ECHO, contextId=context)
    ids = [(await driver.call("SendMessage", **params))["task"]["id"] for _ in range(2)]
    assert await driver.listed(contextId=context) == ids[::-1]


@pytest.mark.proves("a2a-3.3.1-idempotent")
async def test_the_same_message_soon_again_finds_its_task_where_its_tool_may_do_harm(
    driver: Driver, context: str
) -> None:
    params = message(ADD, contextId=context)
    first = (await driver.call("SendMessage", **params))["task"]
    again = (await driver.call("SendMessage", **params))["task"]
    assert set(again.pop("metadata")) == {f"{EXTENSION}/repeated"}
    assert again == first
    assert await driver.listed(contextId=context) == [first["id"]]


@pytest.mark.proves("a2a-3.3.1-idempotent")
async def test_the_same_message_finds_its_task_when_its_answer_was_not_read(
    driver: Driver, context: str
) -> None:
    params = message(ECHO, contextId=context)
    async with driver.stream("SendStreamingMessage", **params) as events:
        started = await events.next()
    assert started is not None
    again = await driver.call("SendMessage", **params)
    assert [again["task"]["id"]] == await driver.listed(contextId=context)


@pytest.mark.proves("a2a-3.3.1-idempotent")
@pytest.mark.smoke("*")
async def test_the_same_message_twice_at_once_makes_one_task(driver: Driver, context: str) -> None:
    params, answers = message(WAIT, contextId=context), []

    async def send() -> None:
        sent = await driver.call("SendMessage", **params, configuration={"returnImmediately": True})
        answers.append(sent["task"]["id"])

    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(send)
    assert [*set(answers)] == await driver.listed(contextId=context)
    await driver.cancel(answers[0])


@pytest.mark.proves("a2a-3.3.1-idempotent")
async def test_the_same_message_while_its_task_runs_joins_it(driver: Driver) -> None:
    params = message(WAIT)
    async with driver.stream("SendStreamingMessage", **params) as first:
        task_id = (await first.until("WORKING"))[0]["task"]["id"]
        at_once = await driver.call("SendMessage", **params, configuration={"returnImmediately": True})
        assert (at_once["task"]["id"], state_of(at_once["task"])) == (task_id, "WORKING")
        async with driver.stream("SendStreamingMessage", **params) as second:
            assert shape_of([await second.next()]) == ["task WORKING"]
            await driver.cancel(task_id)
            rest = await first.rest()
            assert await second.rest() == rest
    assert shape_of(rest) == ["statusUpdate CANCELED"]


@pytest.mark.proves("a2a-3.3.1-idempotent", "a2a-3.1.2-stream")
async def test_the_same_message_streamed_after_its_end_gives_the_task_and_closes(driver: Driver) -> None:
    params = message(ADD)
    task = (await driver.call("SendMessage", **params))["task"]
    async with driver.stream("SendStreamingMessage", **params) as events:
        (event,) = await events.rest()
    assert set(event["task"].pop("metadata")) == {f"{EXTENSION}/repeated"}
    assert event == {"task": task}


@pytest.mark.proves("a2a-3.3.1-idempotent", "a2a-11.7-input-closes")
async def test_a_question_of_the_bridge_is_asked_again_for_the_same_message(driver: Driver) -> None:
    params, seen = message(ADD_ONE), []
    for _ in range(2):
        async with driver.stream("SendStreamingMessage", **params) as events:
            seen.append(await events.rest())
    assert [shape_of(one) for one in seen] == [["task SUBMITTED", "statusUpdate INPUT_REQUIRED"]] * 2
    assert seen[0][0]["task"]["id"] != seen[1][0]["task"]["id"]


@pytest.mark.proves("a2a-3.3.1-idempotent")
async def test_the_same_answer_again_finds_the_task_it_answered(driver: Driver) -> None:
    task = await asking(driver)
    answer = message({"data": {"b": 2}}, taskId=task["id"])
    done = (await driver.call("SendMessage", **answer))["task"]
    assert state_of(done) == "COMPLETED"
    again = (await driver.call("SendMessage", **answer))["task"]
    assert set(again.pop("metadata")) == {f"{EXTENSION}/repeated"}
    assert again == done


OTHERWISE: list[Callable[[dict[str, Any]], dict[str, Any]]] = [
    lambda said: {**said, "parts": [call_part("echo", text="other")]},
    lambda said: {**said, "metadata": {"a": 1}},
    lambda said: {**said, "contextId": "another"},
]


@pytest.mark.proves("a2a-3.3.1-idempotent")
@pytest.mark.parametrize("change", OTHERWISE, ids=["parts", "metadata", "context"])
@pytest.mark.parametrize("operation", ["SendMessage", "SendStreamingMessage"])
async def test_another_message_under_the_same_id_is_another_message(
    driver: Driver, operation: str, change: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    params = message(ECHO)
    first = (await driver.call("SendMessage", **params))["task"]
    other = change(params["message"])
    if operation == "SendMessage":
        second = (await driver.call(operation, message=other))["task"]
    else:
        async with driver.stream(operation, message=other) as events:
            second = (await events.rest())[0]["task"]
    assert second["id"] != first["id"]
    assert second["history"][0]["messageId"] == first["history"][0]["messageId"]
