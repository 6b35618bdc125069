"""Push notifications of a whole bridge: what its card says, what arrives, and whose signature it has."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from bridge.assembly.bridge import Bridge
from bridge.assembly.plan import PushPlan
from tests.support.drivers import JsonRpcDriver, new_client
from tests.support.receiver import receiving
from tests.support.running import call_part, config_for, listening, profile_with, raw_command

pytestmark = [pytest.mark.outside, pytest.mark.proves("a2a-4.3.3-push")]

KEY = "a key of thirty-two characters or more"
ECHO = call_part("echo", text="hello")


@asynccontextmanager
async def served(push: PushPlan | None, **changes: Any) -> AsyncIterator[str]:
    """The root URL of a bridge with one agent, which is called raw."""
    config = config_for(raw_command(), name="raw", keys=(KEY,), **changes)
    plan = config.plan()
    plan = replace(plan, place=replace(plan.place, push=push))
    bridge = Bridge(plan)
    async with bridge.run():
        await bridge.apply(plan)
        async with listening(bridge.app) as root_url:
            try:
                yield root_url
            finally:
                await bridge.drain(0)


async def test_what_a_bridge_sends_has_a_signature_of_the_keys_that_it_publishes() -> None:
    async with receiving() as receiver:
        push = PushPlan(frozenset({receiver.place}))
        async with served(push) as root_url, new_client() as http:
            card = (await http.get(f"{root_url}/.well-known/agent-card.json")).json()
            assert card["capabilities"]["pushNotifications"] is True
            wish = {"taskPushNotificationConfig": {"url": receiver.url()}}
            driver = JsonRpcDriver(http, f"{root_url}/agents/raw")
            task = await driver.send(call_part("wait"), configuration={**wish, "returnImmediately": True})
            await driver.cancel(task["id"])
            await receiver.until(lambda one: "statusUpdate CANCELED" in one.said)
            found = (await http.get(f"{root_url}/.well-known/jwks.json")).json()["keys"]
            assert {(key["kty"], key["alg"], key["use"]) for key in found} == {
                ("OKP", "EdDSA", "sig"),
                ("EC", "ES256", "sig"),
            }
            assert not any("d" in key for key in found)
            [key] = [key for key in found if key["kty"] == "OKP"]
            public = Ed25519PublicKey.from_public_bytes(base64.urlsafe_b64decode(f"{key['x']}="))
            for one in receiver.got:
                said = one.headers
                signed = f"{said['webhook-id']}.{said['webhook-timestamp']}.".encode() + one.body
                public.verify(base64.b64decode(said["webhook-signature"].removeprefix("v1a,")), signed)


async def test_without_push_there_is_none_on_the_card_and_no_keys_are_published() -> None:
    async with served(None) as root_url, new_client() as http:
        card = (await http.get(f"{root_url}/.well-known/agent-card.json")).json()
        assert card["capabilities"]["pushNotifications"] is False
        assert (await http.get(f"{root_url}/.well-known/jwks.json")).status_code == 404


async def test_a_bridge_that_starts_again_sends_what_the_last_one_could_not(tmp_path: Path) -> None:
    often = {
        "store": str(tmp_path / "tasks.db"),
        "profile": profile_with(push={"pauses_seconds": [0.05] * 64}),
    }
    async with receiving() as receiver:
        place, url = receiver.place, receiver.url()
    async with served(PushPlan(frozenset({place})), **often) as root_url, new_client() as http:
        driver = JsonRpcDriver(http, f"{root_url}/agents/raw")
        wish = {"taskPushNotificationConfig": {"url": url}}
        task = await driver.send(call_part("wait"), configuration={**wish, "returnImmediately": True})
        await driver.cancel(task["id"])
    async with receiving(port=int(place.rpartition(":")[2])) as receiver:
        async with served(PushPlan(frozenset({place})), **often):
            await receiver.until(lambda one: "statusUpdate CANCELED" in one.said)
        assert receiver.said[0] == "task SUBMITTED"
