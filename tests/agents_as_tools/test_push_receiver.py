"""Notifications from agents and from strangers: each is accepted or refused, within limits."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

import anyio
import httpx2
import pytest
from starlette.types import Message

from bridge.agents_as_tools.handles import FarTask, Handles, webhook_of
from bridge.agents_as_tools.push_hints import PushHints
from bridge.agents_as_tools.push_receiver import PushReceiver, ReceiverBounds
from bridge.notices import Notice, PushReceived
from bridge.seal import LIFETIME_SECONDS, HandlePurpose, Seal, agent_mark
from tests.support.in_process import client_of
from tests.support.running import DEFAULT_LIMITS, listening

pytestmark = pytest.mark.proves("a2a-4.3.3-received", "a2a-13.2-received")

URL = "https://bridge.example/push"
KEY, OTHER_KEY = b"k" * 32, b"o" * 32
AGENT = agent_mark("https://agent.example")
TASK = FarTask(AGENT, "6e0fb7d0-3d5b-4c7a-9a53-8a1f1f5f2f10")
WEBHOOK = webhook_of(TASK, "alice")
NOW = 1_000_000
BODY_BYTES, EACH_SECOND = 1000, 60
REFUSED = {"error": {"message": "No task has this notification token"}}


@dataclass
class Receiving:
    """A receiver, a client of it, and what it took."""

    http: httpx2.AsyncClient
    app: PushReceiver
    now: float = NOW
    taken: list[str] = field(default_factory=list)
    agents: set[str] = field(default_factory=lambda: {AGENT})
    told: list[Notice] = field(default_factory=list)

    def token(self, key: bytes = KEY, age_seconds: float = 0) -> str:
        """The token of the webhook, as it was given some time ago."""
        return Handles(Seal([key]), lambda: NOW - age_seconds).of_webhook(WEBHOOK)

    async def post(self, token: str | None = None, body: bytes = b"{}", **headers: str) -> httpx2.Response:
        """A notification."""
        shown = {"X-A2A-Notification-Token": token} if token else {}
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.http.post(URL, content=body, headers={**shown, **named})

    async def post_plainly(self, token: str) -> int:
        """The status for a notification that is passed in without an HTTP client, which saves time for many
        notifications."""
        codes: list[int] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": b"{}"}

        async def send(message: Message) -> None:
            codes.append(message.get("status", 0))

        headers = [(b"x-a2a-notification-token", token.encode())]
        await self.app({"type": "http", "method": "POST", "headers": headers}, receive, send)
        return codes[0]


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiving]:
    """A receiver in process."""
    hints, late = PushHints("https://bridge.example"), list[Receiving]()
    receiver = PushReceiver(
        Handles(Seal([KEY]), lambda: late[0].now),
        hints,
        lambda mark: mark in late[0].agents,
        ReceiverBounds(BODY_BYTES, EACH_SECOND),
        lambda: late[0].now,
        lambda mark: "far" if mark == AGENT else "",
        lambda notice: late[0].told.append(notice),
    )
    async with client_of(receiver) as http:
        late.append(Receiving(http, receiver))
        hints.pass_on = late[0].taken.append
        yield late[0]


async def test_the_token_is_accepted_in_either_header() -> None:
    async with receiving() as bridge:
        token = bridge.token()
        assert (await bridge.post(token)).status_code == 204
        assert (await bridge.post(authorization=f"Bearer {token}")).status_code == 204
        assert (await bridge.post("something else", authorization=f"bearer {token}")).status_code == 204
        assert bridge.taken == [f"{AGENT}{WEBHOOK.key}"] * 3


async def test_forged_expired_and_foreign_tokens_get_the_same_answer() -> None:
    async with receiving() as bridge:
        token = bridge.token()
        other_purpose = Handles(Seal([KEY]), lambda: NOW).of_task(TASK, "")
        week = LIFETIME_SECONDS[HandlePurpose.WEBHOOK]
        answers = [
            await bridge.post(),
            await bridge.post("nothing of the kind"),
            await bridge.post(token[:-2] + ("AA" if token[-2:] != "AA" else "BB")),
            await bridge.post(bridge.token(OTHER_KEY)),
            await bridge.post(bridge.token(age_seconds=week)),
            await bridge.post(other_purpose),
            await bridge.post("x" * 100_000),
            await bridge.post("nothing", body=b"x" * (BODY_BYTES + 1)),
        ]
        bridge.agents.clear()
        answers.append(await bridge.post(token))
        assert [(one.status_code, one.json()) for one in answers] == [(404, REFUSED)] * len(answers)
        assert len({tuple(sorted(one.headers.items())) for one in answers}) == 1
        assert bridge.taken == []


async def test_ten_thousand_notifications_in_a_second_are_accepted_up_to_the_limit() -> None:
    async with receiving() as bridge:
        token = bridge.token()
        codes = [await bridge.post_plainly(token) for _ in range(10_000)]
        assert codes == [204] * EACH_SECOND + [429] * (10_000 - EACH_SECOND)
        assert len(bridge.taken) == EACH_SECOND
        assert (await bridge.post(token)).headers["Retry-After"] == "1"
        bridge.now += 1
        assert (await bridge.post(token)).status_code == 204


async def test_each_agent_has_its_own_limit() -> None:
    async with receiving() as bridge:
        other = agent_mark("https://other.example")
        bridge.agents.add(other)
        theirs = Handles(Seal([KEY]), lambda: NOW).of_webhook(webhook_of(FarTask(other, "t"), "alice"))
        for _ in range(EACH_SECOND + 1):
            last = await bridge.post(bridge.token())
        assert last.status_code == 429
        assert (await bridge.post(theirs)).status_code == 204


async def test_a_body_is_ignored_and_a_body_that_is_too_large_is_refused() -> None:
    async with receiving() as bridge:
        assert (await bridge.post(bridge.token(), body=b"no JSON at all")).status_code == 204
        assert (await bridge.post(bridge.token(), body=b"x" * BODY_BYTES)).status_code == 204
        assert (await bridge.post(bridge.token(), body=b"x" * (BODY_BYTES + 1))).status_code == 413
        assert len(bridge.taken) == 2


async def test_a_repeated_notification_is_one_hint() -> None:
    async with receiving() as bridge:
        for said in ("m-1", "m-1", "m-2", "m-1"):
            assert (await bridge.post(bridge.token(), webhook_id=said)).status_code == 204
        assert len(bridge.taken) == 2


async def test_a_notification_with_an_old_or_future_timestamp_is_refused() -> None:
    async with receiving() as bridge:
        codes = [
            (await bridge.post(bridge.token(), webhook_timestamp=said)).status_code
            for said in (str(NOW), str(NOW - 300), str(NOW + 301), str(NOW - 301), "yesterday", "9" * 5000)
        ]
        assert codes == [204, 204, 404, 404, 404, 404]


async def test_only_post_is_accepted() -> None:
    async with receiving() as bridge:
        response = await bridge.http.get(URL, headers={"X-A2A-Notification-Token": bridge.token()})
        assert (response.status_code, response.headers["Allow"]) == (405, "POST")
        assert bridge.taken == []


@pytest.mark.outside
@pytest.mark.parametrize(
    ("framing", "status"),
    [
        ("Content-Length: 2000000\r\n\r\n", 413),
        ("Transfer-Encoding: chunked\r\n\r\n7d0\r\n" + "x" * 2000 + "\r\n", 413),
        ("Content-Length: 1000\r\n\r\nx", 408),
    ],
    ids=["2 MB", "without a length", "slow"],
)
async def test_a_body_with_a_valid_token_is_limited_in_size_and_time(framing: str, status: int) -> None:
    requests = DEFAULT_LIMITS.requests.having(body_seconds=0.2)
    async with (
        receiving() as bridge,
        listening(bridge.app, limits=replace(DEFAULT_LIMITS, requests=requests)) as url,
    ):
        with anyio.fail_after(30):
            async with await anyio.connect_tcp("127.0.0.1", urlsplit(url).port or 0) as stream:
                head = f"POST /push HTTP/1.1\r\nHost: localhost\r\nX-A2A-Notification-Token: {bridge.token()}\r\n"
                await stream.send(f"{head}{framing}".encode())
                assert int((await stream.receive()).split()[1]) == status
        assert bridge.taken == []


async def test_each_notification_is_reported_with_its_agent_and_outcome() -> None:
    async with receiving() as bridge:
        token = bridge.token()
        await bridge.post(token, webhook_id="1")
        await bridge.post(token, webhook_id="1")
        await bridge.post("forged")
        await bridge.post(token, body=b"x" * (BODY_BYTES + 1))
        for _ in range(EACH_SECOND - 2):
            await bridge.post_plainly(token)
    assert bridge.told[:4] == [
        PushReceived("far", "taken", 204),
        PushReceived("far", "repeated", 204),
        PushReceived("", "refused", 404),
        PushReceived("far", "refused", 413),
    ]
    assert bridge.told[-1] == PushReceived("far", "too_many", 429)
