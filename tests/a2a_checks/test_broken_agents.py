"""An agent that is broken in one way is caught by the check of that, over each binding that it is broken in."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final
from urllib.parse import urlsplit

import anyio
import pytest
from starlette.types import Receive, Scope, Send

from bridge.assembly.plan import PushPlan
from tests.a2a_checks import CHECKS, Report, Verdict, run_checks
from tests.a2a_checks.broken import AMONG_OTHERS, NOT_SEEN_TO_FAIL, PUSHING, WHOLLY
from tests.a2a_checks.hooks import hooks_at
from tests.a2a_checks.known import KNOWN_FAILURES
from tests.a2a_checks.runs import OF_BRIDGE
from tests.a2a_checks.spoiling import Spoil, spoiled
from tests.a2a_checks.table import Need
from tests.support.in_process import client_of
from tests.support.running import config_for, listening, raw_command, running, wrapped

pytestmark = pytest.mark.long

MESSAGES: Final = {purpose: said for purpose, said in OF_BRIDGE.items() if purpose != "needs-auth"}


@asynccontextmanager
async def broken_agent(
    spoil: Spoil, push: PushPlan | None = None
) -> AsyncIterator[Callable[..., Awaitable[Report]]]:
    """The checks of a bridge that is spoiled, which listens only for the requests that are written by hand."""
    async with wrapped(config_for(raw_command(), push=push)) as good:
        app = spoiled(good.app, spoil, good.path)
        async with listening(app) as root_url:
            try:
                yield partial(
                    run_checks, f"{root_url}{good.path}", messages=MESSAGES, client=partial(client_of, app)
                )
            finally:
                await good.engine.drain(0)


def failed(report: Report) -> set[str]:
    return {failure.id for failure in report.failures()}


def test_each_check_is_seen_to_fail() -> None:
    seen = {check_id for _, expected in [*WHOLLY.values(), *AMONG_OTHERS.values()] for check_id in expected}
    seen |= {check_id for broken in PUSHING.values() for check_id in broken.expected}
    assert seen | set(KNOWN_FAILURES) | NOT_SEEN_TO_FAIL == {check.id for check in CHECKS}
    assert not (seen | set(KNOWN_FAILURES)) & NOT_SEEN_TO_FAIL


@pytest.mark.parametrize("what", WHOLLY)
async def test_what_is_broken_is_all_that_is_caught(what: str) -> None:
    spoil, expected = WHOLLY[what]
    async with broken_agent(spoil) as checked:
        report = await checked(silence_seconds=0.02)  # none of these faults is one of silence
    assert failed(report) == expected


@pytest.mark.parametrize("what", AMONG_OTHERS)
async def test_what_is_broken_is_caught(what: str) -> None:
    spoil, expected = AMONG_OTHERS[what]
    only = frozenset(expected)
    async with broken_agent(spoil) as checked:
        report = await checked(bearer="a-token", other_bearer="b-token", deadline_seconds=0.5, only=only)
    assert expected <= failed(report)


@pytest.mark.parametrize("what", PUSHING)
async def test_what_is_broken_of_push_is_all_of_push_that_is_caught(what: str) -> None:
    broken = PUSHING[what]
    of_push = frozenset(check.id for check in CHECKS if Need.PUSH in check.needs)
    seconds, only = (0.3, broken.expected) if broken.is_silent else (30, of_push)
    with hooks_at(spoil=broken.posted) as hooks:
        push = PushPlan(allow=frozenset({urlsplit(hooks.root_url).netloc}))
        async with broken_agent(broken.spoil, push) as checked:
            report = await checked(
                bearer="a",
                other_bearer="b",
                hooks=hooks,
                deadline_seconds=seconds,
                silence_seconds=0.02,
                only=only,
            )
    assert failed(report) == broken.expected


async def test_an_agent_that_never_ends_an_answer_is_given_up_in_time() -> None:
    async with running(config_for(raw_command())) as good:
        stuck = anyio.Event()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["path"].endswith("agent-card.json"):
                await good.bridge.app(scope, receive, send)
            else:
                stuck.set()
                await anyio.sleep_forever()

        async with listening(app) as root_url:
            only = frozenset({"get-unknown", "stream-closes"})
            report = await run_checks(f"{root_url}{good.bridge.path}", deadline_seconds=0.1, only=only)
        assert stuck.is_set()
        assert {(one.id, one.came) for one in report.failures()} == {(name, "none") for name in only}


@pytest.mark.parametrize("body", [b"{}", b"[]", b"null", b"<html>", b'{"result": 7}', b"\xff"])
async def test_nonsense_for_every_answer_fails_and_breaks_nothing(body: bytes) -> None:
    card = {
        "name": "Nonsense",
        "skills": [{"id": 1}],
        "capabilities": {"streaming": True, "extensions": [{"uri": "urn:x"}]},
    }

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        is_card = scope["path"].endswith("agent-card.json")
        kind = b"application/json" if is_card else b"text/event-stream" if len(body) > 4 else b"text/html"
        host = dict(scope["headers"])[b"host"].decode()
        names = ("JSONRPC", "HTTP+JSON")
        interfaces = [
            {"url": f"http://{host}/", "protocolBinding": name, "protocolVersion": "1.0"} for name in names
        ]
        said = json.dumps({**card, "supportedInterfaces": interfaces}).encode() if is_card else body
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
        await send({"type": "http.response.body", "body": b"data: " * (kind[:4] == b"text") + said + b"\n\n"})

    async with listening(app) as root_url:
        report = await run_checks(root_url, deadline_seconds=2)
    assert report.agent == "Nonsense"
    passed = {
        (result.id, binding)
        for result in report.results
        for binding, outcome in result.outcomes.items()
        if outcome.verdict is Verdict.PASS
    }
    assert not {one for one in passed if one[1] != "card"} - {
        ("stream-type", "JSONRPC"),
        ("stream-type", "HTTP+JSON"),
    }
    assert len(report.results) == len(CHECKS)
