"""The limit of failed sign-ins at the console, in sequence and at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_network
from pathlib import Path

import anyio

from bridge.http.request_checks import TrustedProxies
from bridge.identity.callers.verifiers import NOT_KNOWN, Scheme, Verdict
from tests.console.test_console_access import ADA, plan_with
from tests.support.console import ConsoleBrowser, console_of


async def test_after_five_wrong_tokens_in_a_minute_a_right_one_has_to_wait(tmp_path: Path) -> None:
    async with console_of(plan_with(tmp_path, ADA)) as bridge:
        browser, other = ConsoleBrowser(bridge), ConsoleBrowser(bridge, address="127.0.0.2")
        assert [await browser.signs_in(f"guess-{number}") for number in range(5)] == [403] * 5
        await browser.opens()
        answer = await browser.posts("/sign-in", {"token": ADA.token})
        assert answer.status_code == 429
        assert 0 < int(answer.headers["retry-after"]) <= 60
        assert await other.signs_in(ADA.token) == 200


@dataclass
class WaitingVerifier:
    """Verifies bearer tokens like a slow issuer."""

    answered: anyio.Event = field(default_factory=anyio.Event)
    asked: list[str] = field(default_factory=list)
    scheme = Scheme.BEARER
    issuer = metadata = None
    is_declared = True

    async def verify(self, headers: Mapping[str, str], face: str) -> Verdict:
        token = headers.get("authorization", "").removeprefix("Bearer ")
        if token:
            self.asked.append(token)
            await self.answered.wait()
        return (ADA.principal if token == ADA.token else NOT_KNOWN) if token else None


async def sign_ins_at_once(
    browser: ConsoleBrowser, verifier: WaitingVerifier, tokens: list[str]
) -> list[int]:
    """The answers to tokens that are all sent before the first of them is judged."""
    statuses: list[int] = []

    async def one(token: str) -> None:
        statuses.append((await browser.posts("/sign-in", {"token": token})).status_code)

    async with anyio.create_task_group() as group:
        for token in tokens:
            group.start_soon(one, token)
        while len(statuses) + len(verifier.asked) < len(tokens):
            await anyio.wait_all_tasks_blocked()
        verifier.answered.set()
    return sorted(statuses)


async def test_guesses_that_are_made_at_once_do_not_outrun_the_bound(tmp_path: Path) -> None:
    async with console_of(plan_with(tmp_path, ADA)) as bridge:
        browser, verifier = ConsoleBrowser(bridge), WaitingVerifier()
        bridge.access.update([verifier])
        await browser.opens()
        guesses = [f"guess-{number}" for number in range(30)]
        with anyio.fail_after(20):
            assert await sign_ins_at_once(browser, verifier, guesses) == [403] * 5 + [429] * 25
        assert len(verifier.asked) == 5
        assert (await browser.posts("/sign-in", {"token": ADA.token})).status_code == 429


async def test_successful_sign_ins_are_not_counted_as_failures(tmp_path: Path) -> None:
    async with console_of(plan_with(tmp_path, ADA)) as bridge:
        browser, verifier = ConsoleBrowser(bridge), WaitingVerifier()
        bridge.access.update([verifier])
        await browser.opens()
        with anyio.fail_after(20):
            assert await sign_ins_at_once(browser, verifier, [ADA.token] * 5) == [200] * 5
        assert [await ConsoleBrowser(bridge).signs_in(f"guess-{number}") for number in range(6)] == [
            *[403] * 5,
            429,
        ]


async def test_behind_a_trusted_proxy_each_browser_has_failures_of_its_own(tmp_path: Path) -> None:
    proxies = TrustedProxies(networks=(ip_network("127.0.0.0/8"),))
    async with console_of(plan_with(tmp_path, ADA, proxies=proxies)) as bridge:
        guessing, other, lying = (
            ConsoleBrowser(bridge, headers={"X-Forwarded-For": said})
            for said in ("192.0.2.1", "192.0.2.2", "192.0.2.3, 192.0.2.1")
        )
        assert [await guessing.signs_in(f"guess-{number}") for number in range(6)] == [403] * 5 + [429]
        assert [await lying.signs_in(ADA.token), await other.signs_in(ADA.token)] == [429, 200]
