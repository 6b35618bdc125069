"""Who owns a task: two principals with tokens of their own, and unknown callers.

The two have secrets of the file, or tokens of two issuers, which call both of them by the same subject.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Final

import anyio
import httpx2
import pytest

from bridge.a2a.model.errors import INVALID_PARAMS, A2AError
from bridge.a2a.model.objects import ListTasksRequest, TaskState
from bridge.a2a.server.app import AgentServer
from bridge.a2a.server.service import AgentService
from bridge.a2a.tasks.agent import Job
from bridge.a2a.tasks.callers import CallContext
from bridge.a2a.wire.extensions import ExtensionFilter
from bridge.config.tables.profile import load_profile
from bridge.errors import UsageError
from bridge.http.request_checks import FaceAddress, RefusedError
from bridge.identity.callers.principals import ANONYMOUS, LOCAL, Principal
from bridge.identity.callers.verifiers import Access, Credential, Scheme, WrongCredential, verifiers_of
from tests.support.agents import Scripted, asked, engine_of, say
from tests.support.drivers import (
    DRIVERS,
    PUSH_OPERATIONS,
    Driver,
    JsonRpcDriver,
    new_client,
    shape_of,
    state_of,
)
from tests.support.first_driver import FirstDriver
from tests.support.issuer import TokenIssuer, issuer_at
from tests.support.limits import PROFILE, agent_limits
from tests.support.older_drivers import EVERY_DRIVER, name_of
from tests.support.running import (
    Running,
    call_part,
    config_for,
    listening,
    message,
    raw_command,
    running,
    wrapped,
)

pytestmark = pytest.mark.smoke("JSONRPC*", "HTTP+JSON*")

ECHO = call_part("echo", text="hello")
ADD_ONE = call_part("add", a=1)
NOBODYS = "00000000-0000-7000-8000-000000000000"
ALICES, BOBS = "alice-token-0123456789", "bob-token-0123456789"
CREDENTIALS = (Credential(Principal("alice"), ALICES), Credential(Principal("bob"), BOBS))

SECRETS: Final = "secrets"
ISSUERS: Final = "issuers"
AUDIENCE: Final = "api://agent"

Way = tuple[type[Driver], str]
"""A kind of client, and what tells the two callers apart."""

WAYS: Final[tuple[Way, ...]] = (
    *((kind, SECRETS) for kind in (*EVERY_DRIVER, FirstDriver)),
    *((kind, ISSUERS) for kind in DRIVERS),
)


@dataclass(frozen=True)
class Door:
    """An agent, and the tokens of its two callers."""

    base_url: str
    alice: str
    bob: str


@pytest.fixture(scope="module")
async def bridge() -> AsyncIterator[Running]:
    async with running(config_for(raw_command(), credentials=CREDENTIALS)) as bridge:
        yield bridge


@pytest.fixture(scope="module")
async def doors(bridge: Running) -> AsyncIterator[Mapping[str, Door]]:
    """An agent for each way to tell the two apart."""
    issuers = {"corp": TokenIssuer(""), "partner": TokenIssuer("")}
    async with AsyncExitStack() as stack:
        for one in issuers.values():
            one.url = await stack.enter_async_context(listening(one))
        audiences = {"agent": frozenset({AUDIENCE})}
        trusted = {name: issuer_at(one.url, audiences, name=name) for name, one in issuers.items()}
        config = config_for(raw_command(), name="agent", issuers=trusted)
        trusting = await stack.enter_async_context(running(config))
        tokens = [one.token(AUDIENCE, "ada") for one in issuers.values()]
        yield {
            SECRETS: Door(bridge.base_url, ALICES, BOBS),
            ISSUERS: Door(trusting.base_url, *tokens),
        }


@pytest.fixture
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    async with new_client() as client:
        yield client


@pytest.fixture(params=WAYS, ids=lambda way: f"{name_of(way[0])}-{way[1]}")
def way(request: pytest.FixtureRequest) -> Way:
    return request.param


@pytest.fixture
def door(way: Way, doors: Mapping[str, Door]) -> Door:
    return doors[way[1]]


@pytest.fixture
def stranger(way: Way, door: Door, client: httpx2.AsyncClient) -> Driver:
    """A client without a token."""
    return way[0](client, door.base_url)


@pytest.fixture
def alice(stranger: Driver, door: Door) -> Driver:
    return stranger.with_headers(Authorization=f"Bearer {door.alice}")


@pytest.fixture
def bob(stranger: Driver, door: Door) -> Driver:
    return stranger.with_headers(Authorization=f"bearer  {door.bob}")


Case = tuple[str, Callable[[str], dict[str, Any]]]
"""An operation, and its parameters about a task."""

OPERATIONS: list[Case] = [
    ("SendMessage", lambda task_id: message(ECHO)),
    ("SendStreamingMessage", lambda task_id: message(ECHO)),
    ("GetTask", lambda task_id: {"id": task_id}),
    ("ListTasks", lambda task_id: {}),
    ("CancelTask", lambda task_id: {"id": task_id}),
    ("SubscribeToTask", lambda task_id: {"id": task_id}),
    *[(operation, lambda task_id: {"taskId": task_id, "id": "c"}) for operation in PUSH_OPERATIONS],
    ("GetExtendedAgentCard", lambda task_id: {}),
]


@pytest.mark.proves(
    "web-auth",
    "a2a-3.3.2-authentication",
    "a2a-7.4-authenticated",
    "a2a-5.1-equivalent",
    "a2a01-4.4-authenticated",
)
async def test_without_a_known_token_every_operation_is_refused(
    stranger: Driver, alice: Driver, door: Door
) -> None:
    task = await alice.send(ADD_ONE)
    tokens = (
        None,
        "",
        "Bearer",
        "Bearer wrong",
        f"Bearer {door.alice}x",
        f"Bearer {door.alice[:-1]}",
        f"Basic {door.alice}",
        door.alice,
    )
    for (operation, params), said in product(OPERATIONS, tokens):
        caller = stranger if said is None else stranger.with_headers(Authorization=said)
        answer = await caller.answer(operation, params(task["id"]))
        assert answer.fault, operation
        assert (answer.http.status_code, answer.fault.reason) == (401, "UNAUTHENTICATED"), operation
        assert answer.http.headers["WWW-Authenticate"].startswith("Bearer"), operation
        assert task["id"] not in answer.http.text, operation
    assert await alice.get(task["id"]) == task


@pytest.mark.proves("web-auth", "a2a-13.1-first")
@pytest.mark.smoke("*")
async def test_a_token_is_required_before_the_request_is_examined(stranger: Driver) -> None:
    """Not the path, not the version, not the body: a stranger learns nothing of them."""
    silent = type(stranger)(stranger.client, stranger.base_url, {"A2A-Version": "9.9"})
    assert (await silent.refused("ListTasks")).reason == "UNAUTHENTICATED"
    for path, content in (("/nothing", b"{"), ("/message:send", b"{"), ("", b"[]")):
        response = await stranger.client.post(f"{stranger.base_url}{path}", content=content)
        assert response.status_code == 401


@pytest.mark.proves("web-auth", "a2a-7.4-authenticated")
async def test_the_card_is_public_and_says_which_scheme(bridge: Running, client: httpx2.AsyncClient) -> None:
    card = (await client.get(f"{bridge.base_url}/.well-known/agent-card.json")).json()
    ((name, scheme),) = card["securitySchemes"].items()
    assert scheme["httpAuthSecurityScheme"]["scheme"].lower() == "bearer"
    assert [set(requirement["schemes"]) for requirement in card["securityRequirements"]] == [{name}]
    assert ALICES not in str(card)
    assert BOBS not in str(card)


@pytest.mark.proves("a2a-13.1-scope")
@pytest.mark.smoke("*")
async def test_each_principal_lists_only_its_own_tasks(alice: Driver, bob: Driver) -> None:
    mine, theirs = await alice.send(ECHO), await bob.send(ECHO)
    for driver, own, foreign in ((alice, mine, theirs), (bob, theirs, mine)):
        listed = await driver.listed(pageSize=100)
        assert own["id"] in listed
        assert foreign["id"] not in listed
        page = await driver.call("ListTasks", contextId=foreign["contextId"])
        assert page == {"tasks": [], "nextPageToken": "", "pageSize": 50, "totalSize": 0}


@pytest.mark.proves("a2a-13.1-scope")
async def test_a_page_token_of_someone_else_shows_nothing_of_theirs(alice: Driver, bob: Driver) -> None:
    for _ in range(2):
        await alice.send(ECHO)
    await bob.send(ECHO)
    page = await alice.call("ListTasks", pageSize=1)
    seen = await bob.call("ListTasks", pageSize=100, pageToken=page["nextPageToken"], historyLength=0)
    alices = set(await alice.listed(pageSize=100))
    assert alices.isdisjoint(task["id"] for task in seen["tasks"])
    assert seen["totalSize"] == len(await bob.listed(pageSize=100))


@pytest.mark.proves("a2a-13.1-scope")
@pytest.mark.parametrize("version", ["1.0", "0.3"])
async def test_no_cache_gives_an_answer_to_another_principal(
    bridge: Running, client: httpx2.AsyncClient, version: str
) -> None:
    headers = {"Authorization": f"Bearer {ALICES}", "A2A-Version": version}
    root = f"{bridge.base_url}{'' if version == '1.0' else '/v1'}"
    task = await JsonRpcDriver(client, bridge.base_url, {"Authorization": f"Bearer {ALICES}"}).send(ECHO)
    for path, status in ((f"/tasks/{task['id']}", 200), (f"/tasks/{NOBODYS}", 404)):
        answer = await client.get(f"{root}{path}", headers=headers)
        assert answer.status_code == status
        assert answer.headers["Cache-Control"] == "private, no-cache"


BY_TASK: list[Case] = [
    ("GetTask", lambda task_id: {"id": task_id}),
    ("GetTask", lambda task_id: {"id": task_id, "historyLength": 1}),
    ("CancelTask", lambda task_id: {"id": task_id}),
    ("SubscribeToTask", lambda task_id: {"id": task_id}),
    ("SendMessage", lambda task_id: message(ECHO, taskId=task_id)),
    ("SendMessage", lambda task_id: message(ECHO, taskId=task_id, contextId="any")),
    ("SendStreamingMessage", lambda task_id: message(ECHO, taskId=task_id)),
    *[
        (operation, lambda task_id: {"taskId": task_id, "id": "c", "url": "https://hooks.example.com"})
        for operation in PUSH_OPERATIONS
    ],
]


@pytest.mark.proves("a2a-13.1-scope", "a2a-3.4.2-task-id", "a2a-3.3.2-unrevealed", "a2a-3.3.2-not-found")
@pytest.mark.parametrize("state", ["ended", "waiting", "running"])
async def test_a_missing_task_and_a_foreign_task_get_byte_equal_answers(
    alice: Driver, bob: Driver, state: str
) -> None:
    if state == "running":
        foreign = await alice.send(call_part("wait"), configuration={"returnImmediately": True})
    else:
        foreign = await alice.send(ECHO if state == "ended" else ADD_ONE)
    unknown = uuid.uuid4().hex if isinstance(alice, FirstDriver) else str(uuid.uuid4())
    for operation, params in BY_TASK:
        if isinstance(alice, FirstDriver) and operation.startswith("Send"):
            continue  # an id that no task of the caller has makes a task: test_first_generation.py
        answers = [await bob.answer(operation, params(task_id)) for task_id in (foreign["id"], unknown)]
        theirs, nobodys = answers
        assert theirs.fault, operation
        assert theirs.http.status_code == nobodys.http.status_code, operation
        renamed = theirs.http.content.replace(foreign["id"].encode(), unknown.encode())
        assert renamed == nobodys.http.content, operation
        assert headers_of(theirs.http) == headers_of(nobodys.http), operation
        if operation in PUSH_OPERATIONS:
            assert theirs.fault.reason == "PUSH_NOTIFICATION_NOT_SUPPORTED", operation
        else:
            assert theirs.fault.reason == "TASK_NOT_FOUND", operation
        if state != "running":
            assert await alice.get(foreign["id"]) == foreign, operation
    if state == "running":
        assert state_of(await alice.cancel(foreign["id"])) == "CANCELED"


@pytest.mark.proves("a2a-13.1-scope", "map-generations", "map-named-tasks")
@pytest.mark.parametrize("theirs", [*EVERY_DRIVER, FirstDriver], ids=name_of)
async def test_a_task_of_someone_else_is_not_found_in_any_generation(
    alice: Driver, bob: Driver, theirs: type[Driver]
) -> None:
    """By the id that its owner's generation has for it, and by the one that the others have."""
    context = f"context-{uuid.uuid4()}"
    foreign = await alice.send(ADD_ONE, contextId=context)
    current = JsonRpcDriver(alice.client, alice.base_url, dict(alice.headers))
    [task_id] = await current.listed(contextId=context)
    other = theirs(bob.client, bob.base_url, dict(bob.headers))
    for known in {foreign["id"], task_id}:
        for operation in ("GetTask", "CancelTask", "SubscribeToTask"):
            assert (await other.refused(operation, id=known)).reason == "TASK_NOT_FOUND"
    assert await alice.get(foreign["id"]) == foreign


def headers_of(response: httpx2.Response) -> dict[str, str]:
    return {name: value for name, value in response.headers.items() if name != "date"}


@pytest.mark.proves("a2a-13.1-scope", "a2a-3.4.1-context")
@pytest.mark.parametrize("operation", ["SendMessage", "SendStreamingMessage"])
async def test_a_foreign_context_is_refused_and_keeps_its_owner(
    alice: Driver, bob: Driver, operation: str
) -> None:
    task = await alice.send(ECHO)
    before = set(await bob.listed(pageSize=100))
    fault = await bob.refused(operation, **message(ECHO, contextId=task["contextId"]))
    assert (fault.reason, fault.fields) == ("INVALID_PARAMS", {"message.contextId"})
    assert task["id"] not in str(fault)
    assert set(await bob.listed(pageSize=100)) == before
    assert await alice.listed(contextId=task["contextId"]) == [task["id"]]


@pytest.mark.proves("a2a-13.1-scope")
async def test_an_own_task_does_not_open_a_foreign_context(alice: Driver, bob: Driver) -> None:
    if isinstance(alice, FirstDriver):
        pytest.skip("a task keeps its session, whatever a later message says")
    foreign, mine = await alice.send(ADD_ONE), await bob.send(ADD_ONE)
    params = message({"data": {"b": 1}}, taskId=mine["id"], contextId=foreign["contextId"])
    assert (await bob.refused("SendMessage", **params)).reason == "INVALID_PARAMS"
    assert [await alice.get(foreign["id"]), await bob.get(mine["id"])] == [foreign, mine]


@pytest.mark.proves("a2a-13.1-scope", "a2a-3.3.1-idempotent")
async def test_the_same_message_of_two_principals_makes_two_tasks(alice: Driver, bob: Driver) -> None:
    params = message(ECHO)
    mine, theirs = [(await driver.call("SendMessage", **params))["task"] for driver in (alice, bob)]
    assert mine["id"] != theirs["id"]
    assert mine["contextId"] != theirs["contextId"]


@pytest.mark.proves("a2a-13.1-scope")
@pytest.mark.smoke("*")
async def test_an_own_task_is_reached_by_every_operation(alice: Driver) -> None:
    task = await alice.send(ADD_ONE)
    async with alice.stream("SubscribeToTask", id=task["id"]) as events:
        assert await events.next() == {"task": task}
        assert await alice.get(task["id"]) == task
        assert state_of(await alice.cancel(task["id"])) == "CANCELED"
        assert shape_of(await events.rest()) == ["statusUpdate CANCELED"]


# Nobody's callers


@pytest.mark.proves("web-auth")
async def test_without_credentials_a_loopback_bridge_has_one_principal() -> None:
    access = Access((), LOCAL)
    assert not access.needs_token
    assert (
        await access.principal_of({})
        == await access.principal_of({"authorization": "Bearer whatever"})
        == LOCAL
    )
    assert LOCAL.may_list_all


@pytest.mark.proves("web-auth")
async def test_a_token_stands_for_its_principal_only() -> None:
    access = Access(verifiers_of(CREDENTIALS), LOCAL)
    assert access.needs_token
    assert (await access.principal_of({"authorization": f"Bearer {ALICES}"})).name == "alice"
    assert (await access.principal_of({"authorization": f"BEARER {BOBS}"})).name == "bob"
    for said in (None, "", "Bearer", f"Bearer {ALICES} {BOBS}", "Bearer ä", f"Token {ALICES}"):
        with pytest.raises(RefusedError) as caught:
            await access.principal_of({} if said is None else {"authorization": said})
        assert (caught.value.status, caught.value.headers["WWW-Authenticate"][:6]) == (401, "Bearer")
    assert ALICES not in repr(CREDENTIALS)


@pytest.mark.proves("web-auth")
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "box.lan"])
async def test_beyond_loopback_a_bridge_without_credentials_does_not_start(host: str) -> None:
    config = replace(config_for(raw_command()), host=host)
    with pytest.raises(UsageError, match="--auth"):
        config.require_safe()
    with pytest.raises(UsageError, match="--allow-unauthenticated"):
        async with wrapped(config):
            pass
    replace(config, credentials=CREDENTIALS).require_safe()
    replace(config, allow_unauthenticated=True).require_safe()


@pytest.mark.proves("web-auth")
@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_on_loopback_a_bridge_needs_no_credentials(host: str) -> None:
    replace(config_for(raw_command()), host=host, profile=load_profile()).require_safe()


@pytest.mark.proves("a2a-13.1-scope")
async def test_to_anonymous_callers_a_task_id_is_the_key_and_lists_need_a_context() -> None:
    async def work(job: Job) -> None:
        await say(job, TaskState.COMPLETED)

    everyone = CallContext(await Access((), ANONYMOUS).principal_of({}))
    async with engine_of(work) as engine:
        task, other = await engine.send(asked(), everyone), await engine.send(asked(), everyone)
        assert await engine.get(task.id, None, everyone) == task
        with pytest.raises(A2AError) as caught:
            await engine.list(ListTasksRequest(), everyone)
        assert (caught.value.kind, caught.value.violations[0].field) == (INVALID_PARAMS, "contextId")
        page = await engine.list(ListTasksRequest(context_id=task.context_id), everyone)
        assert [found.id for found in page.tasks] == [task.id]
        assert other.context_id != task.context_id


class Named:
    """Knows whoever says a name, after a while."""

    scheme = Scheme.BEARER
    issuer = metadata = None
    is_declared = True

    async def verify(self, headers: Mapping[str, str], face: str) -> Principal | WrongCredential | None:
        await anyio.lowlevel.checkpoint()
        name = headers.get("authorization", "").removeprefix("Bearer ")
        return Principal(name) if name.isalpha() else None


@pytest.mark.proves("a2a-13.1-scope")
@pytest.mark.parametrize("kind", DRIVERS, ids=lambda kind: kind.binding)
async def test_each_principal_of_a_verifier_has_its_own_tasks(
    kind: type[Driver], client: httpx2.AsyncClient
) -> None:
    async def work(job: Job) -> None:
        await say(job, TaskState.COMPLETED)

    access = Access([Named(), *verifiers_of(CREDENTIALS)])
    async with engine_of(work) as engine:
        server = AgentServer(
            Scripted(work),
            AgentService(engine, ExtensionFilter({}), PROFILE.requests.parts),
            access,
            FaceAddress(),
            agent_limits(),
        )
        async with listening(server.at("")) as url:
            carol, dan, alice = (
                kind(client, url).with_headers(Authorization=f"Bearer {token}")
                for token in ("carol", "dan", ALICES)
            )
            tasks = {driver: (await driver.send({"text": "go"}))["id"] for driver in (carol, dan, alice)}
            assert {driver: await driver.listed() for driver in tasks} == {
                driver: [task_id] for driver, task_id in tasks.items()
            }
            assert (await carol.refused("GetTask", id=tasks[dan])).reason == "TASK_NOT_FOUND"
            nobody = kind(client, url).with_headers(Authorization="Bearer no-name")
            assert (await nobody.refused("GetTask", id=tasks[dan])).reason == "UNAUTHENTICATED"
