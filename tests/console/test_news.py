"""The news stream of an open tab, which ends when the rights of its visitor change."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from bridge.console.console_access import Visit
from bridge.console.news import NewsStream
from bridge.console.sign_ins import IDLE_SECONDS, new_session
from bridge.console.tab_streams import STREAMS_OF_ONE, TabStreams
from bridge.http.request_checks import RefusedError
from bridge.identity.callers.principals import OperatorRole, Principal
from bridge.identity.callers.verifiers import Access, Credential
from bridge.text.jsonvalues import JsonObject
from tests.console.test_task_pages import ADA, BOB, Served, served
from tests.support.console import HERE, ConsoleBrowser, told_to

OPS = Credential(Principal("ops", operator=OperatorRole.ANSWER), "token-of-ops")
SOON_SECONDS = 5
"""The limit for a stream that must end at once. The next regular check is after 15 s."""


async def at_the_console(here: Served, who: Credential) -> ConsoleBrowser:
    browser = ConsoleBrowser(here.bridge)
    assert await browser.signs_in(who.token) == 200
    await browser.opens()
    return browser


async def rest_of(told: AsyncIterator[Any]) -> list[Any]:
    """The news until the end of the stream, which must come soon."""
    with anyio.fail_after(SOON_SECONDS):
        return [one async for one in told]


@pytest.mark.parametrize(
    ("who", "then"),
    [
        (OPS, (ADA, Credential(Principal("ops"), OPS.token))),
        (OPS, (ADA, Credential(Principal("ops", operator=OperatorRole.READ), OPS.token))),
        (ADA, (BOB, Credential(Principal("carl"), ADA.token))),
        (ADA, (Credential(Principal("ada", skills=("fail",)), ADA.token),)),
        (ADA, (Credential(Principal("ada"), "another-token"),)),
    ],
    ids=["no operator any more", "a lesser operator", "of somebody else", "fewer skills", "another token"],
)
async def test_a_news_stream_ends_when_the_rights_of_its_visitor_change(
    who: Credential, then: Sequence[Credential], tmp_path: Path
) -> None:
    async with served(tmp_path, ADA, OPS, operators_see_contents=True) as here:
        task = await here.calls("hold", ADA.token, text="a secret of ada")
        await here.server.holding(1)
        async with told_to(await at_the_console(here, who), task) as told:
            await here.bridge.apply(replace(here.plan, credentials=tuple(then)))
            here.server.released.set()
            assert await rest_of(told) == []


async def test_a_news_stream_survives_a_reload_that_does_not_change_its_visitor(tmp_path: Path) -> None:
    async with served(tmp_path, ADA, BOB) as here:
        task = await here.calls("hold", ADA.token)
        await here.server.holding(1)
        async with told_to(await at_the_console(here, ADA), task) as told:
            await here.bridge.apply(replace(here.plan, credentials=(ADA,)))
            here.server.released.set()
            async for one in told:
                if "event" in one and one["event"].get("state") == "completed":
                    break
            else:
                pytest.fail("the stream has ended")


async def test_a_sign_out_ends_the_streams_of_all_tabs_of_a_browser(tmp_path: Path) -> None:
    async with served(tmp_path, ADA, BOB) as here:
        ada, bob = await at_the_console(here, ADA), await at_the_console(here, BOB)
        async with told_to(ada) as told, told_to(ada) as other, told_to(bob) as of_bob:
            assert (await ada.posts("/sign-out", {})).status_code == 200
            assert [await rest_of(told), await rest_of(other)] == [[], []]
            await here.calls("hold", BOB.token)
            assert "numbers" in await anext(of_bob)


@dataclass
class OpenTab:
    """A tab whose visit is judged as the test says, without a bridge around it."""

    visit: Visit
    judged: Callable[[Visit], Awaitable[Principal | None]]
    sent: list[Any] = field(default_factory=list)

    async def hears_all(self) -> list[Any]:
        """The frames until the end of the stream, which must come soon."""

        async def numbers(_: Visit) -> JsonObject:
            return {"running": 1}

        async def stays() -> Any:
            await anyio.sleep_forever()

        async def send(message: Any) -> None:
            self.sent.append(message)

        tabs = TabStreams(Access((), ADA.principal), self.judged)
        with anyio.fail_after(SOON_SECONDS):
            await NewsStream(tabs.take(self.visit), numbers, None)({}, stays, send)
        assert tabs.open == set()
        assert not self.sent[-1]["more_body"]
        return [one["body"] for one in self.sent[1:-1]]


def visit_of(principal: Principal, *, seen_before_seconds: float = 0) -> Visit:
    session = replace(new_session(time.time() - seen_before_seconds, "secret"), has_signed_in=True)
    return Visit("POST", "/news", {}, True, HERE, "127.0.0.1", session, principal)


def test_a_visit_lasts_no_longer_than_its_token_and_its_session() -> None:
    expiring = replace(ADA.principal, expires_at=time.time() + 600)
    assert visit_of(expiring).seconds_left <= 600
    assert visit_of(ADA.principal, seen_before_seconds=IDLE_SECONDS - 600).seconds_left <= 600
    assert 600 < visit_of(ADA.principal).seconds_left <= IDLE_SECONDS
    assert replace(visit_of(ADA.principal), is_open=True).seconds_left == math.inf


async def test_a_stream_ends_when_the_token_of_its_visitor_expires() -> None:
    expiring = replace(ADA.principal, expires_at=time.time() + 0.3)

    async def judged(_: Visit) -> Principal | None:
        return expiring

    assert len(await OpenTab(visit_of(expiring), judged).hears_all()) == 1


async def test_news_end_if_the_visitor_cannot_be_checked() -> None:
    async def judged(_: Visit) -> Principal | None:
        raise RefusedError(503, "the issuer is away")

    assert await OpenTab(visit_of(ADA.principal), judged).hears_all() == []


@pytest.mark.parametrize(("left_seconds", "stall_seconds"), [(0.3, 60), (60, 0.3)], ids=["expires", "stalls"])
async def test_a_tab_that_reads_nothing_loses_its_stream(
    left_seconds: float, stall_seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bridge.console.tab_streams._STALL_SECONDS", stall_seconds)
    monkeypatch.setattr("bridge.console.tab_streams._LAST_SECONDS", 0.1)
    expiring = replace(ADA.principal, expires_at=time.time() + left_seconds)

    async def judged(_: Visit) -> Principal | None:
        return expiring

    async def numbers(_: Visit) -> JsonObject:
        return {}

    async def stays() -> Any:
        await anyio.sleep_forever()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            await anyio.sleep_forever()

    tabs = TabStreams(Access((), ADA.principal), judged)
    with anyio.fail_after(SOON_SECONDS):
        await NewsStream(tabs.take(visit_of(expiring)), numbers, None)({}, stays, send)
    assert tabs.open == set()


async def test_too_many_tabs_are_shown_without_news_and_their_places_come_back(tmp_path: Path) -> None:
    async with served(tmp_path) as here:
        await here.browser.opens()
        async with AsyncExitStack() as tabs:
            for _ in range(STREAMS_OF_ONE):
                await tabs.enter_async_context(told_to(here.browser))
            refused = await here.browser.posts("/news", {})
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "30")
        async with told_to(here.browser):
            pass


async def test_the_tabs_of_one_visitor_leave_places_for_others(tmp_path: Path) -> None:
    async with served(tmp_path, ADA, BOB) as here:
        ada, bob = await at_the_console(here, ADA), await at_the_console(here, BOB)
        async with AsyncExitStack() as tabs:
            for _ in range(STREAMS_OF_ONE):
                await tabs.enter_async_context(told_to(ada))
            task = await here.calls("hold", ADA.token)
            for body in ({}, {"task": f"/tasks/devtools/{task}"}):
                refused = await ada.posts("/news", body)
                assert (refused.status_code, refused.headers["retry-after"]) == (503, "30")
            async with told_to(bob):
                pass
