"""Notifications of a task as a receiver gets them, whatever it answers."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from starlette.responses import Response, StreamingResponse

from bridge.a2a.model.objects import Artifact, Message, Part, Task, TaskState
from bridge.a2a.model.push_objects import GETS_TASKS, GetTaskPushNotificationConfigRequest
from bridge.a2a.push.signatures import PushSigner
from bridge.a2a.push.webhook_client import PushBounds, PushClient
from bridge.a2a.tasks.agent import Job
from bridge.a2a.tasks.draft import BriefWork
from bridge.a2a.tasks.engine import Engine
from bridge.a2a.tasks.webhooks import Webhooks
from bridge.http.private_addresses import AddressGuard, refusing_private
from bridge.notices import Notice, PushAttempt
from bridge.store.memory import MemoryStore
from bridge.store.records import Quota
from tests.support.agents import ALICE, Clock, asked, engine_of, give, say
from tests.support.ports import free_port
from tests.support.receiver import (
    KEYS,
    PACE,
    Notification,
    PushClockByHand,
    Receiver,
    receiving,
    sending,
    webhooks_of,
)
from tests.support.running import listening

pytestmark = [pytest.mark.outside, pytest.mark.proves("a2a-4.3.3-push")]

WHOLE = ["task SUBMITTED", "statusUpdate WORKING", "artifact one", "artifact two", "statusUpdate COMPLETED"]


async def two_pieces(job: Job) -> None:
    """Begin, give two artifacts, and end."""
    await say(job, TaskState.WORKING)
    await give(job, "one")
    await give(job, "two")
    await say(job, TaskState.COMPLETED)


@dataclass
class Place:
    """An engine, its store, and a sender by a clock that stands still."""

    receiver: Receiver
    store: MemoryStore = field(default_factory=MemoryStore)
    clock: Clock = field(default_factory=Clock)
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    def __post_init__(self) -> None:
        self.time = PushClockByHand(self.clock)
        self.webhooks: Webhooks = webhooks_of(self.store, self.clock.ids, self.receiver.place)

    async def send(self, **options: Any) -> None:
        """Begin to send."""
        self.sender = await self.stack.enter_async_context(
            sending(self.store, self.webhooks, self.time, self.receiver.place, **options)
        )

    async def engine(self, script: Any = two_pieces) -> Engine:
        """An engine that runs a script."""
        made = engine_of(script, self.store, self.clock, self.webhooks)
        return await self.stack.enter_async_context(made)

    async def task(self, script: Any = two_pieces, path: str = "/hook", **config: Any) -> Task:
        """A task with a webhook, as it is when it has settled."""
        wish = {"url": self.receiver.url(path), **config}
        request = asked(configuration={"taskPushNotificationConfig": wish})
        task = await (await self.engine(script)).send(request, ALICE)
        assert isinstance(task, Task)
        return task

    async def told_of(self, task: Task) -> dict[str, Any]:
        """What the client is told of the webhook of a task."""
        request = GetTaskPushNotificationConfigRequest(task_id=task.id, id="")
        return (await self.webhooks.get(task.id, request)).to_object()

    async def nothing_waits(self) -> None:
        """Wait until everything was sent or given up."""
        with anyio.fail_after(30):
            while await self.store.outbox.waiting():
                await anyio.sleep(0.001)


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    async with receiving() as receiver:
        made = Place(receiver)
        async with made.stack:
            yield made


def status(code: int, headers: dict[str, str] | None = None) -> Any:
    return lambda _: Response(status_code=code, headers=headers)


async def test_every_event_arrives_in_order_and_once(place: Place) -> None:
    await place.send()
    await place.task()
    await place.receiver.has(5)
    await place.nothing_waits()
    assert place.receiver.said == WHOLE
    ids = [one.headers["webhook-id"] for one in place.receiver.got]
    assert len({*ids}) == 5
    assert [one.rpartition("_")[2] for one in ids] == ["1", "2", "3", "4", "5"]
    assert {one.headers["content-type"] for one in place.receiver.got} == {"application/a2a+json"}


async def test_events_stored_before_the_sender_began_arrive(place: Place) -> None:
    await place.task()
    await place.send()
    await place.receiver.has(5)
    assert place.receiver.said == WHOLE


async def test_a_message_of_the_client_is_not_sent_back(place: Place) -> None:
    async def asking(job: Job) -> None:
        if job.turn.task is None:
            await say(job, TaskState.INPUT_REQUIRED, "what?")
        else:
            await say(job, TaskState.COMPLETED)

    await place.send()
    engine = await place.engine(asking)
    wish = {"taskPushNotificationConfig": {"url": place.receiver.url()}}
    task = await engine.send(asked(configuration=wish), ALICE)
    assert isinstance(task, Task)
    await engine.send(asked(taskId=task.id), ALICE)
    await place.receiver.has(4)
    await place.nothing_waits()
    assert place.receiver.said == [
        "task SUBMITTED",
        "statusUpdate INPUT_REQUIRED",
        "statusUpdate WORKING",
        "statusUpdate COMPLETED",
    ]


async def test_a_refused_notification_is_repeated_unchanged_before_later_notifications(place: Place) -> None:
    place.receiver.answers += [status(500), status(302, {"Location": "/elsewhere"}), status(404)]
    await place.send()
    await place.task()
    assert [await place.time.pass_until_due() for _ in range(3)] == [5, 300, 1800]
    await place.receiver.has(8)
    assert place.receiver.said == ["task SUBMITTED"] * 3 + WHOLE
    tries = place.receiver.got[:4]
    assert len({one.body for one in tries}) == 1
    assert len({one.headers["webhook-id"] for one in tries}) == 1
    assert [int(one.headers["webhook-timestamp"]) for one in tries] == [
        1_700_000_000 + seconds for seconds in (0, 5, 305, 2105)
    ]
    assert {one.path for one in place.receiver.got} == {"/hook"}


async def test_a_receiver_that_is_down_for_minutes_gets_every_event(place: Place) -> None:
    port = free_port()
    place.receiver.root_url = f"http://127.0.0.1:{port}"
    place.webhooks = webhooks_of(place.store, place.clock.ids, place.receiver.place)
    await place.send()
    task = await place.task()
    assert [await place.time.pass_until_due(), await place.time.waits()] == [5, 300]
    told = (await place.told_of(task))["delivery"]
    assert (told["attempts"], told["givenUp"]) == (2, False)
    assert "cannot be reached" in told["failure"]
    async with listening(place.receiver, port):
        await place.time.pass_until_due()
        await place.receiver.has(5)
        await place.nothing_waits()
    assert place.receiver.said == WHOLE
    assert "delivery" not in await place.told_of(task)


async def test_a_receiver_that_never_accepts_is_given_up_and_its_client_can_read_why(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place.receiver.answers += [status(500)] * 4
    await place.send()
    task = await place.task()
    for _ in range(3):
        await place.time.pass_until_due()
    await place.nothing_waits()
    assert len(place.receiver.got) == 4
    assert (await place.told_of(task))["delivery"] == {
        "failure": "it answered 500 (tried 4 times)",
        "attempts": 3,
        "givenUp": True,
    }
    assert "nothing more is sent to webhook" in caplog.text
    assert await place.store.evict(place.clock.now_ms + 1, Quota(0, 0)) == 1


async def test_a_receiver_that_answers_410_is_not_called_again(place: Place) -> None:
    place.receiver.answers += [status(410)]
    await place.send()
    task = await place.task()
    await place.nothing_waits()
    assert place.receiver.said == ["task SUBMITTED"]
    assert (await place.told_of(task))["delivery"]["failure"] == "it answered 410 (tried once)"


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("60", 60),
        ("1", 5),
        ("Tue, 14 Nov 2023 22:15:20 GMT", 120),
        ("999999999999", 1800),
        ("soon", 5),
    ],
)
async def test_retry_after_holds_but_not_longer_than_the_longest_pause(
    place: Place, said: str, seconds: float
) -> None:
    place.receiver.answers += [status(503, {"Retry-After": said})]
    await place.send()
    await place.task()
    assert await place.time.pass_until_due() == seconds
    await place.receiver.has(6)
    assert place.receiver.said == ["task SUBMITTED", *WHOLE]


async def test_a_slow_receiver_is_called_again_after_the_time_limit(place: Place) -> None:
    never = anyio.Event()

    async def hang(_: Notification) -> Response:
        await never.wait()
        return Response()

    place.receiver.answers += [hang]
    await place.send(attempt_seconds=0.05)
    task = await place.task()
    await place.time.waits()
    told = (await place.told_of(task))["delivery"]
    assert told["failure"] == "it took longer than 0.05 s"
    never.set()
    await place.time.pass_until_due()
    await place.receiver.until(lambda one: "statusUpdate COMPLETED" in one.said)


async def test_only_the_beginning_of_an_answer_is_read(place: Place) -> None:
    never = anyio.Event()

    async def unending() -> AsyncIterator[bytes]:
        yield b"x" * 8192
        await never.wait()

    place.receiver.answers += [lambda _: StreamingResponse(unending())]
    await place.send()
    await place.task()
    await place.receiver.has(5)
    assert place.receiver.said == WHOLE


async def test_concurrent_notifications_to_a_host_are_limited_and_delay_no_other_host(place: Place) -> None:
    gate = anyio.Event()

    async def wait(_: Notification) -> Response:
        await gate.wait()
        return Response()

    slow, other = place.receiver, await place.stack.enter_async_context(receiving())
    slow.answers += [wait] * 4
    allow = (slow.place, other.place)
    place.webhooks = webhooks_of(place.store, place.clock.ids, *allow)
    await place.stack.enter_async_context(
        sending(place.store, place.webhooks, place.time, *allow, pace=replace(PACE, each_host=2))
    )
    for number in range(4):
        await place.task(path=f"/{number}")
    await slow.has(2)
    place.receiver = other
    await place.task()
    await other.has(5)
    assert other.said == WHOLE
    assert len(slow.got) == 2
    gate.set()
    await slow.has(20)
    assert slow.most_at_work == 2
    by_path = {one.path: [said.said for said in slow.got if said.path == one.path] for one in slow.got}
    assert by_path == {f"/{number}": WHOLE for number in range(4)}


async def test_too_many_waiting_events_become_one_snapshot_and_the_end_arrives(place: Place) -> None:
    async def many(job: Job) -> None:
        await say(job, TaskState.WORKING)
        for number in range(20):
            await job.artifact(Artifact(artifact_id="a", parts=(Part(text=f"{number} "),)), append=number > 0)
        await say(job, TaskState.COMPLETED)

    place.receiver.answers += [status(500)]
    await place.send(pace=replace(PACE, folded_rows=8))
    task = await place.task(many)
    await place.time.waits()
    with anyio.fail_after(30):
        while (await place.store.outbox.waiting())[0].rows > 8:
            await anyio.sleep(0.001)
    await place.time.pass_until_due()
    await place.nothing_waits()
    said = place.receiver.said
    assert said[:2] == ["task SUBMITTED", "task SUBMITTED"]
    assert len(said) <= 2 + 8
    last = [one.event for one in place.receiver.got if "task" in one.event][-1]["task"]
    text = "".join(part["text"] for one in last["artifacts"] for part in one["parts"])
    rest = "".join(
        one.said.removeprefix("artifact ") for one in place.receiver.got if "artifactUpdate" in one.event
    )
    assert text + rest == "".join(f"{number} " for number in range(20))
    assert said[-1] in ("statusUpdate COMPLETED", "task COMPLETED")
    assert task.status.state is TaskState.COMPLETED


async def test_a_notification_in_flight_when_the_sender_ended_is_sent_again(place: Place) -> None:
    gate = anyio.Event()

    async def wait(_: Notification) -> Response:
        await gate.wait()
        return Response()

    place.receiver.answers += [wait]
    await place.task()
    arguments = (place.store, place.webhooks, place.time, place.receiver.place)
    async with sending(*arguments, close_seconds=0):
        await place.receiver.has(1)
    gate.set()
    await place.send()
    await place.receiver.has(6)
    assert place.receiver.said == ["task SUBMITTED", *WHOLE]
    assert place.receiver.got[0].headers["webhook-id"] == place.receiver.got[1].headers["webhook-id"]


async def test_credentials_and_token_are_sent_as_the_client_gave_them(place: Place) -> None:
    await place.send()
    await place.task(token="t-1", authentication={"scheme": "Basic", "credentials": "dTpw"})
    (first, *_) = await place.receiver.has(1)
    assert first.headers["authorization"] == "Basic dTpw"
    assert first.headers["x-a2a-notification-token"] == "t-1"


async def test_a_notification_is_signed_with_the_keys_that_are_published(place: Place) -> None:
    signer = PushSigner("https://bridge.example.com", (*KEYS, b"o" * 40), {place.receiver.place: b"shared"})
    client = PushClient(
        signer, PushBounds(15, 4096), place.time.now_ms, allow=frozenset({place.receiver.place})
    )
    await place.send(client=client)
    await place.task(authentication={"scheme": "Bearer"})
    (first, *_) = await place.receiver.has(1)
    seconds = first.headers["webhook-timestamp"]
    signed = f"{first.headers['webhook-id']}.{seconds}.".encode() + first.body
    *own, shared = first.headers["webhook-signature"].split(" ")
    keys = [key for key in signer.public_keys() if key["kty"] == "OKP"]
    assert len(own) == len(keys) == 2
    for key, signature in zip(keys, own, strict=True):
        public = Ed25519PublicKey.from_public_bytes(base64.urlsafe_b64decode(f"{key['x']}="))
        public.verify(base64.b64decode(signature.removeprefix("v1a,")), signed)
    assert shared == "v1," + base64.b64encode(hmac.digest(b"shared", signed, "sha256")).decode()
    token = first.headers["authorization"].removeprefix("Bearer ")
    head = jwt.get_unverified_header(token)
    key_set = jwt.PyJWKSet.from_dict({"keys": [*signer.public_keys()]})
    claims = jwt.decode(
        token,
        key_set[head["kid"]],
        algorithms=["ES256"],
        audience=place.receiver.url(),
        issuer="https://bridge.example.com",
        options={"verify_exp": False, "verify_iat": False},
    )
    assert claims["request_body_sha256"] == hashlib.sha256(first.body).hexdigest()
    assert claims["exp"] - claims["iat"] == 300
    assert claims["jti"] == f"{first.headers['webhook-id']}.{seconds}"
    assert claims["taskId"] == json.loads(first.body)["task"]["id"]


@pytest.mark.parametrize(
    "addresses",
    [
        ["127.0.0.1"],
        ["93.184.215.14", "10.0.0.7"],
        ["2002:a9fe:a9fe::"],
        ["169.254.169.254"],
        ["::ffff:127.0.0.1"],
    ],
)
async def test_a_name_that_leads_to_a_private_address_is_never_connected_to(
    place: Place, addresses: list[str]
) -> None:
    async def resolve(_: str, __: int) -> list[str]:
        return addresses

    client = PushClient(
        PushSigner("https://bridge.example.com", KEYS),
        PushBounds(15, 4096),
        place.time.now_ms,
        guard=AddressGuard(refusing_private("it leads to this machine or its network"), resolve),
    )
    await place.send(client=client)
    place.receiver.root_url = f"https://hooks.example.com:{place.receiver.place.rpartition(':')[2]}"
    task = await place.task()
    await place.time.waits()
    told = (await place.told_of(task))["delivery"]
    assert told["failure"] == "it leads to this machine or its network"
    assert place.receiver.got == []


async def test_a_message_in_place_of_a_task_leaves_no_webhook(place: Place) -> None:
    async def brief(job: Job) -> None:
        await give(job, "one")
        await say(job, TaskState.COMPLETED)

    wish = {"taskPushNotificationConfig": {"url": place.receiver.url()}}
    answer = await (await place.engine(BriefWork(brief))).send(asked(configuration=wish), ALICE)
    assert isinstance(answer, Message)
    assert await place.store.outbox.count_of(ALICE.principal.name) == 0


async def test_each_attempt_is_reported_and_the_backlog_can_be_read(place: Place) -> None:
    told: list[Notice] = []
    place.receiver.answers += [status(500), status(500)]
    await place.send(notify=told.append, face="tools")
    task = await place.task()
    assert await place.time.pass_until_due() == 5
    sender = place.sender
    waits = await sender.backlog()
    assert (waits.rows, waits.backed_off, waits.oldest_seconds) == (5, 1, 5.0)
    await place.time.pass_until_due()
    await place.receiver.has(7)
    await place.nothing_waits()
    assert told == [
        PushAttempt("tools", outcome, task.id, place.receiver.place)
        for outcome in ["failed"] * 2 + ["delivered"] * 5
    ]
    assert (await sender.backlog()).rows == 0


async def test_a_webhook_that_is_given_up_is_reported(place: Place) -> None:
    told: list[Notice] = []
    place.receiver.answers += [status(410)]
    await place.send(notify=told.append, face="tools")
    task = await place.task()
    await place.nothing_waits()
    assert told == [PushAttempt("tools", "given_up", task.id, place.receiver.place)]


@pytest.mark.proves("a2a03-7.5-push")
async def test_the_webhook_of_a_client_of_0_3_gets_tasks_as_0_3_has_them(place: Place) -> None:
    await place.send()
    task = await place.task(**{GETS_TASKS: True})
    await place.nothing_waits()
    got = [json.loads(one.body) for one in place.receiver.got]
    assert {one["kind"] for one in got} == {"task"}
    assert {one["id"] for one in got} == {task.id}
    assert got[-1]["status"]["state"] == "completed"
    assert [part["kind"] for one in got[-1]["artifacts"] for part in one["parts"]] == ["text", "text"]
    headers = place.receiver.got[-1].headers
    assert headers["content-type"] == "application/json"
    assert "a2a-version" not in headers
    assert GETS_TASKS not in await place.told_of(task)
