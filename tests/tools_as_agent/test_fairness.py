"""No caller can block a tool server for another caller, neither with many calls nor with an open question."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import pytest

from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import Credential
from tests.support.asking import asking_command
from tests.support.asking_bridge import AT_ONCE, Asked, outcome, words_of
from tests.support.drivers import new_client, state_of
from tests.support.running import call_part, config_for, profile_with, running

ALICES, BOBS = "alice-token-0123456789", "bob-token-0123456789"
CREDENTIALS = (Credential(Principal("alice"), ALICES), Credential(Principal("bob"), BOBS))
PATIENCE_SECONDS: Final = 30
PLACES: Final = 8


@asynccontextmanager
async def callers(**tables: Any) -> AsyncIterator[tuple[Asked, Asked]]:
    """Alice and Bob, callers of the asking server."""
    profile = profile_with(**{**tables, "run": {"drain_seconds": 0.0, **tables.get("run", {})}})
    config = config_for(asking_command("legacy"), profile=profile, credentials=CREDENTIALS)
    with anyio.fail_after(PATIENCE_SECONDS):
        async with running(config) as bridge, new_client() as client:
            alice, bob = (
                Asked(client, bridge.base_url, {"authorization": f"Bearer {token}"})
                for token in (ALICES, BOBS)
            )
            yield alice, bob


@pytest.mark.proves("mcp-fair")
async def test_a_call_starts_at_once_while_another_caller_uses_its_whole_share() -> None:
    async with callers(run={"concurrency": PLACES, "queue": 32}) as (alice, bob):
        endless = [await alice.send(call_part("wait"), configuration=AT_ONCE) for _ in range(PLACES + 32)]
        refused = await alice.refused("SendMessage", message=alice_says(call_part("echo", text="one more")))
        assert refused.reason == "OVERLOADED"
        for number in range(3):
            assert await bob.text("echo", text=f"hello {number}") == f"hello {number}"
        newest = await alice.ended(
            endless[-1]
        )  # which says so itself, some time after bob's call has its place
        assert state_of(newest) == "REJECTED", "the newest made room"
        assert "made room" in words_of(newest)
        states = [state_of(await alice.get(task["id"])) for task in endless]
        assert states.count("WORKING") == PLACES - PLACES // 4


@pytest.mark.proves("map-contended")
async def test_a_caller_that_waits_for_anothers_question_does_not_learn_its_task() -> None:
    async with callers() as (alice, bob):
        asks = await alice.ask("ask-one")
        waits = await bob.send(call_part("echo", text="hello"), configuration=AT_ONCE)
        with anyio.fail_after(PATIENCE_SECONDS):
            while not (words := words_of(await bob.get(waits["id"]))):
                await anyio.lowlevel.checkpoint()
        assert asks["id"] not in words
        assert "another caller's task waits for an answer" in words
        assert outcome(await alice.answer_to(asks, "yes")) == 'accept {"sure": true}'
        assert outcome(await bob.ended(waits)) == "hello"


def alice_says(*parts: Any, **fields: Any) -> dict[str, Any]:
    """A message of a user."""
    return {"messageId": "one-more", "role": "ROLE_USER", "parts": [*parts], **fields}
