"""Whose task it is, with operators: the same matrix of operations, for each role, with the extension and without."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator
from typing import Any, Final

import httpx2
import pytest

from bridge.a2a.model.operators import ANSWERED_BY, CANCELED_BY, OPERATOR_URI, OWNER, WITHHELD
from bridge.a2a.model.timeline import MOMENTS, TIMELINE_URI
from bridge.identity.callers.principals import OperatorRole, Principal
from bridge.identity.callers.verifiers import Credential
from bridge.mcp.client.eras import Era
from bridge.translate.overrides import SkillOverride
from tests.support.asking import asking_command
from tests.support.drivers import Driver, Json, JsonRpcDriver, new_client, shape_of, state_of
from tests.support.first_driver import FirstDriver
from tests.support.older_drivers import EVERY_DRIVER, name_of
from tests.support.running import Running, call_part, config_for, message, raw_command, running

pytestmark = pytest.mark.smoke("JSONRPC*", "HTTP+JSON*")

SECRET: Final = "what was said stays with its owner"
CALLERS: Final = {
    "alice": Principal("alice"),
    "bob": Principal("bob"),
    "reader": Principal("reader", operator=OperatorRole.READ),
    "answerer": Principal("answerer", skills=(), operator=OperatorRole.ANSWER),
}
CREDENTIALS: Final = [Credential(one, f"{name}-token") for name, one in CALLERS.items()]
OVERRIDES: Final = {"fail": SkillOverride(confirm=True)}
HEADERS: Final = ("A2A-Extensions", "X-A2A-Extensions")
NOT_FOUND, FORBIDDEN = "TASK_NOT_FOUND", "FORBIDDEN"


@pytest.fixture(scope="module")
async def bridge() -> AsyncIterator[Running]:
    async with running(config_for(raw_command(), credentials=CREDENTIALS, overrides=OVERRIDES)) as bridge:
        yield bridge


@pytest.fixture(scope="module")
async def open_bridge() -> AsyncIterator[Running]:
    """One whose operators see contents."""
    config = config_for(raw_command(), credentials=CREDENTIALS, operators_see_contents=True)
    async with running(config) as bridge:
        yield bridge


@pytest.fixture
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    async with new_client() as client:
        yield client


@pytest.fixture(params=EVERY_DRIVER, ids=name_of)
def kind(request: pytest.FixtureRequest) -> type[Driver]:
    return request.param


class Desk:
    """The callers of a bridge, each as a client of one kind."""

    def __init__(self, kind: type[Driver], client: httpx2.AsyncClient, bridge: Running) -> None:
        self._plain = kind(client, bridge.base_url)

    def __getattr__(self, name: str) -> Driver:
        return self._plain.with_headers(Authorization=f"Bearer {name}-token")

    def acting(self, name: str, *more: str) -> Driver:
        """A caller that asks for the tasks of all."""
        return getattr(self, name).with_headers(**{one: ", ".join([OPERATOR_URI, *more]) for one in HEADERS})

    async def waiting(self) -> Json:
        """A task of Alice that waits for an argument."""
        return await self.alice.send(call_part("add", a=1))


@pytest.fixture
def desk(kind: type[Driver], client: httpx2.AsyncClient, bridge: Running) -> Desk:
    return Desk(kind, client, bridge)


MATRIX: Final = {
    # operation: what it takes, and the answers to bob, reader and answerer
    "GetTask": (lambda task_id: {"id": task_id}, (NOT_FOUND, None, None)),
    "SubscribeToTask": (lambda task_id: {"id": task_id}, (NOT_FOUND, None, None)),
    "CancelTask": (lambda task_id: {"id": task_id}, (NOT_FOUND, FORBIDDEN, None)),
    "SendMessage": (
        lambda task_id: message({"data": {"b": 2}}, taskId=task_id),
        (NOT_FOUND, FORBIDDEN, None),
    ),
    "SendStreamingMessage": (
        lambda task_id: message({"data": {"b": 2}}, taskId=task_id),
        (NOT_FOUND, FORBIDDEN, None),
    ),
}
CELLS: Final = [
    (operation, caller, outcomes[column])
    for operation, (_, outcomes) in MATRIX.items()
    for column, caller in enumerate(("bob", "reader", "answerer"))
]


async def outcome(driver: Driver, operation: str, params: Json) -> str | None:
    """The reason of a refusal; None if there is none."""
    if operation in ("SubscribeToTask", "SendStreamingMessage"):
        async with driver.stream(operation, **params) as events:
            first = await events.next()
            assert first is not None
            return None
    answer = await driver.answer(operation, params)
    return answer.fault.reason if answer.fault else None


@pytest.mark.proves("ops-role", "a2a-13.1-scope")
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: f"{cell[0]} {cell[1]}")
async def test_which_operations_a_role_allows_on_the_task_of_another(
    desk: Desk, cell: tuple[str, str, str | None]
) -> None:
    operation, caller, expected = cell
    task = await desk.waiting()
    params = MATRIX[operation][0](task["id"])
    plain, acting = getattr(desk, caller), desk.acting(caller)
    for driver, reason in ((plain, NOT_FOUND), (acting, expected)):
        if reason is None:
            assert await outcome(driver, operation, params) is None
        else:
            assert (await driver.refused(operation, **params)).reason == reason
    if expected is not None:
        assert await desk.alice.get(task["id"]) == task


@pytest.mark.proves("ops-role", "a2a-13.1-scope")
@pytest.mark.smoke("*")
async def test_without_the_extension_an_operator_is_a_client_like_any_other(desk: Desk) -> None:
    task = await desk.waiting()
    mine = await desk.reader.send(call_part("echo", text="mine"))
    assert set(await desk.reader.listed(pageSize=100)) & {task["id"], mine["id"]} == {mine["id"]}
    assert await desk.reader.get(mine["id"]) == mine
    unknown = str(uuid.uuid4())
    theirs, nobodys = [await desk.reader.answer("GetTask", {"id": one}) for one in (task["id"], unknown)]
    assert theirs.http.content.replace(task["id"].encode(), unknown.encode()) == nobodys.http.content


@pytest.mark.proves("ops-role")
async def test_the_extension_is_for_operators_alone(desk: Desk) -> None:
    mine = await desk.bob.send(call_part("echo", text="mine"))
    answer = await desk.acting("bob").answer("GetTask", {"id": mine["id"]})
    assert answer.result == mine
    assert not {one.lower() for one in HEADERS} & set(answer.http.headers)
    shown = await desk.acting("reader").answer("GetTask", {"id": mine["id"]})
    assert OPERATOR_URI in {shown.http.headers.get(one) for one in HEADERS}


@pytest.mark.proves("ops-role")
async def test_only_the_extended_card_of_an_operator_declares_the_extension(
    client: httpx2.AsyncClient, bridge: Running
) -> None:
    desk = Desk(JsonRpcDriver, client, bridge)
    cards = [await one.call("GetExtendedAgentCard") for one in (desk.bob, desk.reader)]
    declared = [{one["uri"] for one in card["capabilities"].get("extensions", ())} for card in cards]
    assert declared[1] - declared[0] == {OPERATOR_URI}


@pytest.mark.proves("ops-role")
async def test_an_operator_lists_the_tasks_of_all_by_pages_with_their_owners(desk: Desk) -> None:
    tasks = {
        (await getattr(desk, name).send(call_part("echo", text="x")))["id"]: name
        for name in CALLERS
        if name != "answerer"
    }
    acting, seen, token = desk.acting("reader"), dict[str, str](), None
    while token != "":
        page = await acting.call("ListTasks", pageSize=2, **({"pageToken": token} if token else {}))
        seen |= {one["id"]: one["metadata"][OWNER] for one in page["tasks"]}
        token = page["nextPageToken"]
    assert len(seen) == page["totalSize"]
    assert {task_id: seen[task_id] for task_id in tasks} == tasks
    assert await desk.acting("bob").listed(pageSize=100) == await desk.bob.listed(pageSize=100)


@pytest.mark.proves("ops-contents")
async def test_contents_are_withheld_in_place_with_a_mark(desk: Desk) -> None:
    task = await desk.alice.send(call_part("echo", text=SECRET))
    acting = desk.acting("reader", TIMELINE_URI)
    shown, (listed,) = (
        await acting.get(task["id"]),
        (await acting.call("ListTasks", contextId=task["contextId"], includeArtifacts=True))["tasks"],
    )
    for one in (shown, listed):
        assert SECRET not in json.dumps(one)
        assert (one["id"], one["status"]["state"]) == (task["id"], task["status"]["state"])
        assert one["metadata"][OWNER] == "alice"
        assert MOMENTS in one["metadata"]
        for before, now in zip(parts_of(task), parts_of(one), strict=True):
            assert now["metadata"] == {WITHHELD: "text" if "text" in before else "data"}
            assert now["text"].startswith("(withheld")
    async with acting.stream("SubscribeToTask", id=(await asks(desk))["id"]) as events:
        assert SECRET not in json.dumps(await events.next())
    mine = await desk.reader.send(call_part("echo", text="mine"))
    assert (await desk.acting("reader").get(mine["id"]))["artifacts"] == mine["artifacts"]


async def asks(desk: Desk) -> Json:
    """A task of Alice that waits, and has said something."""
    return await desk.alice.send({"text": SECRET}, call_part("add", a=1))


def parts_of(task: Json) -> list[Json]:
    holders = [*(task.get("artifacts") or ()), *(task.get("history") or ())]
    holders += [task["status"]["message"]] if "message" in task["status"] else []
    return [part for holder in holders for part in holder["parts"]]


@pytest.mark.proves("ops-contents")
async def test_an_operator_sees_contents_where_the_file_allows_this(
    kind: type[Driver], client: httpx2.AsyncClient, open_bridge: Running
) -> None:
    desk = Desk(kind, client, open_bridge)
    task = await desk.alice.send(call_part("echo", text=SECRET))
    shown = await desk.acting("reader").get(task["id"])
    assert shown.pop("metadata") == {OWNER: "alice"}
    assert shown == task


@pytest.mark.proves("ops-role", "ops-named")
async def test_an_answer_for_the_owner_counts_as_the_owners_and_names_the_operator(
    desk: Desk,
) -> None:
    """The operator may use no skill itself."""
    task = await desk.waiting()
    answered = await desk.acting("answerer").send({"data": {"b": 41}}, taskId=task["id"])
    assert (state_of(answered), answered["metadata"][OWNER]) == ("COMPLETED", "alice")
    done = await desk.alice.with_headers(**dict.fromkeys(HEADERS, TIMELINE_URI)).get(task["id"])
    assert json.loads(done["artifacts"][0]["parts"][-1]["text"]) == {"sum": 42}
    users = [one for one in done["history"] if one["role"] in ("ROLE_USER", "user")]
    assert [(one.get("metadata") or {}).get(ANSWERED_BY) for one in users] == [None, "answerer"]
    moments = done["metadata"][MOMENTS]["moments"]
    assert [one["by"] for one in moments if "by" in one] == ["alice", "answerer"]


@pytest.mark.proves("ops-named")
@pytest.mark.smoke("*")
async def test_a_cancellation_for_the_owner_names_the_operator(desk: Desk) -> None:
    task = await desk.waiting()
    assert state_of(await desk.acting("answerer").cancel(task["id"])) == "CANCELED"
    canceled = await desk.alice.get(task["id"])
    assert canceled["status"]["message"]["metadata"] == {CANCELED_BY: "answerer"}
    async with desk.alice.working(call_part("wait")) as (running_id, events):
        assert state_of(await desk.acting("answerer").cancel(running_id)) == "CANCELED"
        last = (await events.rest())[-1]
    assert shape_of([last]) == ["statusUpdate CANCELED"]
    canceled = await desk.alice.get(running_id)
    assert canceled["status"]["message"]["metadata"] == {CANCELED_BY: "answerer"}


@pytest.mark.proves("ops-named")
@pytest.mark.parametrize("place", ["message", "part", "request"])
async def test_no_client_can_set_the_metadata_of_the_bridge(desk: Desk, place: str) -> None:
    for key in (
        ANSWERED_BY,
        CANCELED_BY,
        OWNER,
        WITHHELD,
        MOMENTS,
        f"{OPERATOR_URI}/new",
        "URN:MCP-A2A:operator:v1/owner",
        "urn:mcp-a2a:tool:v1/progress",
        "urn:mcp-a2a:tool:v1/repeated",
        "urn:mcp-a2a:tool:v1/lost-session",
    ):
        params = message(call_part("echo", text="x"))
        holders = {"message": params["message"], "part": params["message"]["parts"][0], "request": params}
        holders[place]["metadata"] = {key: "alice"}
        for driver in (desk.bob, desk.acting("answerer")):
            refused = await driver.refused("SendMessage", **params)
            assert refused.reason == "INVALID_PARAMS", key


@pytest.mark.proves("ops-role", "ops-named", "map-elicitation-form")
@pytest.mark.parametrize("era", [Era.LEGACY, Era.MODERN])
async def test_an_operator_answers_a_question_of_the_server_for_the_owner(
    client: httpx2.AsyncClient, era: Era
) -> None:
    """While the call is open, and as another round."""
    config = config_for(asking_command(era.value), era=era, credentials=CREDENTIALS)
    async with running(config) as bridge:
        desk = Desk(JsonRpcDriver, client, bridge)
        task = await desk.alice.send(call_part("ask"))
        assert state_of(task) == "INPUT_REQUIRED"
        answer = message({"data": {"name": "Ada"}}, taskId=task["id"])
        assert (await desk.acting("reader").refused("SendMessage", **answer)).reason == FORBIDDEN
        await desk.acting("answerer").call("SendMessage", **answer)
        done = await desk.alice.get(task["id"])
        assert state_of(done) == "COMPLETED"
        assert '"name": "Ada"' in done["artifacts"][0]["parts"][0]["text"]
        [marked] = [one for one in done["history"] if ANSWERED_BY in (one.get("metadata") or {})]
        assert (marked["metadata"][ANSWERED_BY], marked["parts"]) == ("answerer", [{"data": {"name": "Ada"}}])


@pytest.mark.proves("ops-role", "map-named-tasks")
async def test_where_clients_name_tasks_an_operator_creates_its_own_tasks(
    bridge: Running, client: httpx2.AsyncClient
) -> None:
    """An id is a name there, and a name makes a task of the caller's."""
    desk = Desk(JsonRpcDriver, client, bridge)
    task = await desk.waiting()
    acting = Desk(FirstDriver, client, bridge).acting("answerer")
    await acting.send({"data": {"b": 2}}, taskId=task["id"])
    assert await desk.alice.get(task["id"]) == task


# What no operator says


@pytest.mark.proves("ops-role", "map-confirm")
async def test_an_operator_confirms_no_call_of_another(desk: Desk) -> None:
    task = await desk.alice.send(call_part("fail"))
    assert state_of(task) == "AUTH_REQUIRED"
    params = message({"text": "yes"}, taskId=task["id"])
    assert (await desk.acting("answerer").refused("SendMessage", **params)).reason == FORBIDDEN
    assert await desk.alice.get(task["id"]) == task


@pytest.mark.proves("ops-role")
async def test_an_operator_adds_nothing_to_a_task_at_work_or_ended(desk: Desk) -> None:
    ended = await desk.alice.send(call_part("echo", text="x"))
    async with desk.alice.working(call_part("wait")) as (running_id, _):
        acting = desk.acting("answerer")
        for task_id, reason in ((running_id, FORBIDDEN), (ended["id"], "UNSUPPORTED_OPERATION")):
            params = message({"text": "more"}, taskId=task_id)
            assert (await acting.refused("SendMessage", **params)).reason == reason
        await desk.alice.cancel(running_id)
    assert await desk.alice.get(ended["id"]) == ended


@pytest.mark.proves("ops-role", "web-skills")
@pytest.mark.parametrize("part", [call_part("echo", text="x"), call_part("echo"), {"text": "echo"}])
async def test_an_answer_runs_no_other_skill_in_the_name_of_the_owner(
    bridge: Running, client: httpx2.AsyncClient, part: Json
) -> None:
    desk = Desk(JsonRpcDriver, client, bridge)
    acting = desk.acting("answerer")
    unclear = await desk.alice.send({"data": {"nothing": "known"}})
    assert state_of(unclear) == "INPUT_REQUIRED"
    assert (await acting.refused("SendMessage", **message(part, taskId=unclear["id"]))).reason == FORBIDDEN
    assert await desk.alice.get(unclear["id"]) == unclear
    task = await desk.waiting()
    answer = await acting.answer("SendMessage", message(part, taskId=task["id"]))
    after = await desk.alice.get(task["id"])
    if answer.fault:
        assert (answer.fault.reason, after) == (FORBIDDEN, task)
    else:
        assert state_of(after) == "INPUT_REQUIRED"
        assert "artifacts" not in after


@pytest.mark.proves("ops-role")
async def test_a_webhook_for_the_task_of_another_is_refused(
    bridge: Running, client: httpx2.AsyncClient
) -> None:
    desk = Desk(JsonRpcDriver, client, bridge)
    task = await desk.waiting()
    hook: Any = {"taskPushNotificationConfig": {"url": "https://hooks.example.com"}}
    params = message({"data": {"b": 1}}, taskId=task["id"], configuration=hook)
    assert (await desk.acting("answerer").refused("SendMessage", **params)).reason in (
        FORBIDDEN,
        "PUSH_NOTIFICATION_NOT_SUPPORTED",
    )
    assert await desk.alice.get(task["id"]) == task
