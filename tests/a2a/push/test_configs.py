"""Webhooks as clients of every version create them, and which webhooks are allowed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import anyio
import httpx2
import pytest

from bridge.a2a.tasks.webhooks import WebhookRecords
from bridge.a2a.wire.versions import VERSIONS
from bridge.identity.callers.principals import LOCAL
from bridge.store.memory import MemoryStore
from bridge.store.outbox import WebhookKey, WebhookLimits
from bridge.store.sqlite import SQLiteStore
from tests.a2a.push.test_sender import two_pieces
from tests.support.agents import Clock, serving
from tests.support.drivers import HttpJsonDriver, JsonRpcDriver, new_client
from tests.support.hermes_client import HermesClient
from tests.support.hermes_client import said as said_to_hermes
from tests.support.receiver import KEYS, webhooks_of
from tests.support.running import message
from tests.support.samples_client import SamplesClient, said

pytestmark = [
    pytest.mark.outside,
    pytest.mark.proves("a2a-3.1.7-push", "a2a-3.1.8-push", "a2a-3.1.9-push", "a2a-3.1.10-push"),
]

URL: Final = "https://hooks.example.com/a"
SECRET: Final = {"token": "t-1", "authentication": {"scheme": "Bearer", "credentials": "c-1"}}
OLDER_SECRET: Final = {"token": "t-1", "authentication": {"schemes": ["Bearer"], "credentials": "c-1"}}
LIMITS: Final = WebhookLimits(each_task=2, each_owner=3)
RECORDS: Final = WebhookRecords(KEYS)
GO: Final = {"text": "go"}


@dataclass
class Served:
    """An agent that sends push notifications, a client of HTTP, and what is kept."""

    url: str
    http: httpx2.AsyncClient
    store: MemoryStore | SQLiteStore

    async def rpc(self, method: str, **params: Any) -> Any:
        """The result of a call in 0.3."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer = (await self.http.post(self.url, json=body, headers={"A2A-Version": "0.3"})).json()
        assert "result" in answer, answer
        return answer["result"]

    async def rest(self, verb: str, path: str, body: Any = None) -> Any:
        """The answer to a request in 0.3."""
        headers = {"A2A-Version": "0.3"}
        answer = await self.http.request(verb, f"{self.url}{path}", json=body, headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def kept(self, task_id: str) -> list[tuple[str, str | None]]:
        """The URL and the token of each webhook of a task, as they are kept."""
        found = await self.store.outbox.of_task(task_id)
        opened = [RECORDS.opened(one).config for one in found]
        return [(one.url, one.token) for one in opened]


@asynccontextmanager
async def served(
    limits: WebhookLimits = LIMITS, *allow: str, store: MemoryStore | SQLiteStore | None = None
) -> AsyncIterator[Served]:
    store, clock = store or MemoryStore(), Clock()
    webhooks = webhooks_of(store, clock.ids, *allow, limits=limits)
    versions = VERSIONS.served(merges_cards=True, hermes=True, push=True)
    async with (
        serving(two_pieces, store=store, clock=clock, webhooks=webhooks, versions=versions) as (url, _),
        new_client() as http,
    ):
        yield Served(url, http, store)


@pytest.mark.parametrize("kind", [JsonRpcDriver, HttpJsonDriver])
async def test_webhooks_are_created_read_listed_and_deleted(kind: Any) -> None:
    async with served() as place:
        driver = kind(place.http, place.url)
        task_id = (await driver.send(GO))["id"]
        shown = {"id": "one", "taskId": task_id, "url": URL, "authentication": {"scheme": "Bearer"}}
        create, get = "CreateTaskPushNotificationConfig", "GetTaskPushNotificationConfig"
        assert await driver.call(create, taskId=task_id, id="one", url=URL, **SECRET) == shown
        assert await place.kept(task_id) == [(URL, "t-1")]
        assert await driver.call(get, taskId=task_id, id="one") == shown
        unnamed = await driver.call(create, taskId=task_id, url=f"{URL}/2")
        again = await driver.call(create, taskId=task_id, url=f"{URL}/2")
        assert unnamed == again
        listing = "ListTaskPushNotificationConfigs"
        both = sorted([shown, unnamed], key=lambda one: str(one["id"]))
        listed = await driver.call(listing, taskId=task_id)
        assert sorted(listed["configs"], key=lambda one: str(one["id"])) == both
        page = await driver.call(listing, taskId=task_id, pageSize=1)
        rest = await driver.call(listing, taskId=task_id, pageSize=1, pageToken=page["nextPageToken"])
        assert [*page["configs"], *rest["configs"]] == listed["configs"]
        assert "nextPageToken" not in rest
        for _ in range(2):
            await driver.call("DeleteTaskPushNotificationConfig", taskId=task_id, id="one")
        assert (await driver.refused(get, taskId=task_id, id="one")).reason == "TASK_NOT_FOUND"
        assert (await driver.call(listing, taskId=task_id))["configs"] == [unnamed]


@pytest.mark.parametrize("kind", [JsonRpcDriver, HttpJsonDriver])
@pytest.mark.parametrize(
    "operation",
    [
        "CreateTaskPushNotificationConfig",
        "GetTaskPushNotificationConfig",
        "ListTaskPushNotificationConfigs",
        "DeleteTaskPushNotificationConfig",
    ],
)
async def test_a_task_that_is_not_the_callers_is_not_found(kind: Any, operation: str) -> None:
    async with served() as place:
        driver = kind(place.http, place.url)
        assert (await driver.refused(operation, taskId="t", id="c", url=URL)).reason == "TASK_NOT_FOUND"


@pytest.mark.proves("a2a03-7.5-push")
async def test_clients_of_0_3_have_the_operations_over_json_rpc() -> None:
    async with served() as place:
        task_id = (await JsonRpcDriver(place.http, place.url).send(GO))["id"]
        config = {"id": "one", "url": URL}
        shown = {
            "taskId": task_id,
            "pushNotificationConfig": {**config, "authentication": {"schemes": ["Bearer"]}},
        }
        asked = {"taskId": task_id, "pushNotificationConfig": {**config, **OLDER_SECRET}}
        assert await place.rpc("tasks/pushNotificationConfig/set", **asked) == shown
        assert await place.kept(task_id) == [(URL, "t-1")]
        by_id = {"id": task_id, "pushNotificationConfigId": "one"}
        assert await place.rpc("tasks/pushNotificationConfig/get", **by_id) == shown
        assert await place.rpc("tasks/pushNotificationConfig/get", id=task_id) == shown
        assert await place.rpc("tasks/pushNotificationConfig/list", id=task_id) == [shown]
        assert await place.rpc("tasks/pushNotificationConfig/delete", **by_id) is None
        assert await place.rpc("tasks/pushNotificationConfig/list", id=task_id) == []


@pytest.mark.proves("a2a03-7.5-push")
async def test_clients_of_0_3_have_the_operations_over_http() -> None:
    async with served() as place:
        task_id = (await JsonRpcDriver(place.http, place.url).send(GO))["id"]
        base, name = (
            f"/v1/tasks/{task_id}/pushNotificationConfigs",
            f"tasks/{task_id}/pushNotificationConfigs/one",
        )
        config = {"id": "one", "url": URL}
        shown = {
            "name": name,
            "pushNotificationConfig": {**config, "authentication": {"schemes": ["Bearer"]}},
        }
        body = {
            "parent": f"tasks/{task_id}",
            "config_id": "one",
            "config": {"name": name, "push_notification_config": {**config, **OLDER_SECRET}},
        }
        assert await place.rest("POST", base, body) == shown
        assert await place.kept(task_id) == [(URL, "t-1")]
        assert await place.rest("GET", f"{base}/one") == shown
        assert await place.rest("GET", base) == {"configs": [shown], "nextPageToken": ""}
        assert await place.rest("DELETE", f"{base}/one") == {}
        assert await place.rest("GET", base) == {"configs": [], "nextPageToken": ""}


@pytest.mark.proves("a2a01-7.5-push")
async def test_clients_of_the_first_generation_set_the_webhook_of_a_task_that_they_named() -> None:
    async with served() as place:
        client = SamplesClient(place.http, place.url)
        await client.send_task(id="mine", sessionId="s", message=said("go"))
        asked = {"id": "mine", "pushNotificationConfig": {"url": URL, **OLDER_SECRET}}
        answer = await client.call("tasks/pushNotification/set", asked)
        assert answer["id"] == "mine"
        assert answer["pushNotificationConfig"]["url"] == URL
        assert "credentials" not in answer["pushNotificationConfig"]["authentication"]
        assert await client.call("tasks/pushNotification/get", {"id": "mine"}) == answer


@pytest.mark.proves("map-hermes")
async def test_a_callback_url_of_hermes_is_a_webhook() -> None:
    async with served() as place:
        client = HermesClient(place.http, place.url)
        task = await client.create(said_to_hermes("go"), metadata={"callback_url": URL})
        assert await place.kept(task["id"]) == [(URL, None)]
        assert "callback_delivered" not in (task.get("metadata") or {})


@pytest.mark.parametrize("kind", [JsonRpcDriver, HttpJsonDriver])
@pytest.mark.parametrize("operation", ["SendMessage", "SendStreamingMessage"])
async def test_a_message_brings_the_webhook_of_its_task(kind: Any, operation: str) -> None:
    async with served() as place:
        driver = kind(place.http, place.url)
        configuration = {"taskPushNotificationConfig": {"url": URL, **SECRET}}
        if operation == "SendMessage":
            task_id = (await driver.send(GO, configuration=configuration))["id"]
        else:
            async with driver.stream(operation, **message(GO, configuration=configuration)) as events:
                task_id = (await events.next())["task"]["id"]
                await events.rest()
        assert await place.kept(task_id) == [(URL, "t-1")]
        assert [one.rows for one in await place.store.outbox.waiting({task_id})] == [5]


@pytest.mark.proves("a2a-13.2-push")
@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"url": "ftp://hooks.example.com"}, "url"),
        ({"url": "hooks.example.com"}, "url"),
        ({"url": "https://"}, "url"),
        ({"url": "https://[::1"}, "url"),
        ({"url": "https://hooks.example.com:99999"}, "url"),
        ({"url": "https://user@hooks.example.com"}, "url"),
        ({"url": "https://user:password@hooks.example.com"}, "url"),
        ({"url": "http://hooks.example.com"}, "url"),
        ({"url": "https://hooks.example.com/a\r\nHost: b"}, "url"),
        ({"url": f"https://hooks.example.com/{'x' * 2048}"}, "url"),
        *(
            ({"url": f"https://{host}/hook"}, "url")
            for host in (
                "localhost",
                "127.0.0.1",
                "127.1",
                "2130706433",
                "0x7f000001",
                "10.0.0.1",
                "169.254.169.254",
                "168.63.129.16",
                "[::1]",
                "[::ffff:10.0.0.1]",
                "[2002:a9fe:a9fe::]",
                "[64:ff9b::a00:1]",
                "[fd00::1]",
                "metadata.google.internal",
                "printer.local",
                "intranet",
            )
        ),
        ({"url": URL, "token": "a\r\nX-Admin: 1"}, "token"),
        ({"url": URL, "token": "a\nb"}, "token"),
        ({"url": URL, "token": "ü"}, "token"),
        ({"url": URL, "token": "x" * 4097}, "token"),
        ({"url": URL, "authentication": {"scheme": "Bearer x"}}, "authentication.scheme"),
        ({"url": URL, "authentication": {"scheme": ""}}, "authentication.scheme"),
        ({"url": URL, "authentication": {"scheme": "a\r\nb"}}, "authentication.scheme"),
        (
            {"url": URL, "authentication": {"scheme": "Bearer", "credentials": "a\r\nb"}},
            "authentication.credentials",
        ),
    ],
)
async def test_a_forbidden_webhook_is_refused_by_its_field(config: Any, field: str) -> None:
    async with served() as place:
        driver = JsonRpcDriver(place.http, place.url)
        task_id = (await driver.send(GO))["id"]
        fault = await driver.refused("CreateTaskPushNotificationConfig", taskId=task_id, **config)
        assert (fault.reason, fault.fields) == ("INVALID_PARAMS", {field})
        login_config = {"taskPushNotificationConfig": config}
        fault = await driver.refused("SendMessage", **message(GO, configuration=login_config))
        assert fault.fields == {f"configuration.taskPushNotificationConfig.{field}"}
        assert await place.kept(task_id) == []


async def test_a_receiver_that_the_operator_allows_may_be_on_this_machine() -> None:
    async with served(LIMITS, "localhost:5000") as place:
        driver = JsonRpcDriver(place.http, place.url)
        task_id = (await driver.send(GO))["id"]
        create = "CreateTaskPushNotificationConfig"
        await driver.call(create, taskId=task_id, url="http://localhost:5000/hook")
        fault = await driver.refused(create, taskId=task_id, url="http://localhost:5001/hook")
        assert 'push.allow = ["localhost:5001"]' in fault.message


async def test_the_webhooks_of_a_task_and_of_a_principal_are_limited() -> None:
    async with served() as place:
        driver = JsonRpcDriver(place.http, place.url)
        create = "CreateTaskPushNotificationConfig"
        first, second = [(await driver.send(GO))["id"] for _ in range(2)]
        for number in range(2):
            await driver.call(create, taskId=first, url=f"{URL}/{number}")
        await driver.call(create, taskId=first, url=f"{URL}/1")
        assert (await driver.refused(create, taskId=first, url=f"{URL}/2")).reason == "OVERLOADED"
        await driver.call(create, taskId=second, url=f"{URL}/0")
        assert (await driver.refused(create, taskId=second, url=f"{URL}/1")).reason == "OVERLOADED"
        login_config = {"taskPushNotificationConfig": {"url": URL}}
        fault = await driver.refused("SendMessage", **message(GO, configuration=login_config))
        assert fault.reason == "OVERLOADED"
        assert await place.store.outbox.count_of(LOCAL.name) == 3


async def test_webhooks_are_stored_encrypted() -> None:
    async with served() as place:
        driver = JsonRpcDriver(place.http, place.url)
        task_id = (await driver.send(GO))["id"]
        await driver.call("CreateTaskPushNotificationConfig", taskId=task_id, url=URL, **SECRET)
        [webhook] = await place.store.outbox.of_task(task_id)
        assert not any(secret in webhook.config for secret in (b"t-1", b"c-1", b"hooks.example.com"))


async def test_an_ended_task_is_sent_once_a_minute_to_one_config_and_within_bounds_to_all_of_one_owner() -> (
    None
):
    size = 0
    async with served(WebhookLimits(each_task=9, each_owner=9, ended_bytes=1)) as place:
        driver = JsonRpcDriver(place.http, place.url)
        task_id = (await driver.send(GO))["id"]
        create, outbox = "CreateTaskPushNotificationConfig", place.store.outbox
        key = WebhookKey(task_id, "one")

        async def rows() -> int:
            """How many rows wait for the webhook; they are taken as sent."""
            nonlocal size
            count = 0
            while (row := await outbox.first(key)) is not None:
                await outbox.sent(key, row.seq)
                count, size = count + 1, len(row.event)
            return count

        await driver.call(create, taskId=task_id, id="one", url=URL)
        assert await rows() == 1
        # The bound of all is used up: an ended task is sent no more, and the creation is refused.
        refused = await driver.refused(create, taskId=task_id, id="two", url=f"{URL}/2")
        assert refused.reason == "OVERLOADED"
        assert [one.key.webhook_id for one in await outbox.of_task(task_id)] in (["one"], [])

    async with served(WebhookLimits(each_task=9, each_owner=9, ended_bytes=3 * size)) as place:
        driver, outbox = JsonRpcDriver(place.http, place.url), place.store.outbox
        task_id = (await driver.send(GO))["id"]
        key = WebhookKey(task_id, "one")
        sent = []
        for token in ("a", "a", "a", "b", "a"):
            await driver.call(create, taskId=task_id, id="one", url=URL, token=token)
            sent.append(await rows())
        assert sent == [1, 0, 0, 1, 1]  # the same config once, another one at once


async def test_the_bound_of_ended_tasks_holds_for_requests_at_the_same_time(tmp_path: Path) -> None:
    limits = WebhookLimits(each_task=9, each_owner=9, ended_bytes=1)
    async with (
        SQLiteStore(tmp_path / "tasks.db") as store,
        served(limits, store=store) as place,
    ):
        task_id = (await JsonRpcDriver(place.http, place.url).send(GO))["id"]
        taken: list[bool] = []

        async def create(number: int) -> None:
            params = {"taskId": task_id, "id": f"n{number}", "url": f"{URL}/{number}"}
            body = {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "CreateTaskPushNotificationConfig",
                "params": params,
            }
            answer = await place.http.post(place.url, json=body, headers={"A2A-Version": "1.0"})
            taken.append("result" in answer.json())

        async with anyio.create_task_group() as requests:
            for number in range(6):
                requests.start_soon(create, number)
        assert sorted(taken) == [*[False] * 5, True]
        assert len(await store.outbox.of_task(task_id)) == 1
