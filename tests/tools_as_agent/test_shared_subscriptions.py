"""Subscriptions to changes of resources and prompts over A2A, at servers of both eras: what is told, and their ends."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from bridge.assembly.plan import AuditPlan, ProcessPlan, PublishedPlan
from bridge.mcp.client.eras import Era
from bridge.tools_as_agent import shared_subscriptions
from tests.assembly.test_bridge import agent
from tests.support.notes_server import PUBLIC, SECRET, Notes
from tests.support.running import Rpc, profile_with
from tests.tools_as_agent.test_shared_requests import BOTH, LIMITED, asked, client_of, notes, person

pytestmark = pytest.mark.proves("map-mcp-requests")

Json = dict[str, Any]
ERAS: Final = pytest.mark.parametrize("era", [Era.MODERN, Era.LEGACY])
LISTEN: Final = "subscriptions/listen"
LISTS: Final = {"resourcesListChanged": True, "promptsListChanged": True}


def updated(uri: str) -> Json:
    return {"method": "notifications/resources/updated", "params": {"uri": uri}}


@dataclass
class Stream:
    """The events of a subscription, as they come."""

    lines: AsyncIterator[str]
    task_id: str = ""
    seen: list[Json] = field(default_factory=list)

    async def status(self) -> Json:
        """The next status of the task."""
        async for line in self.lines:
            if not line.startswith("data:"):
                continue
            event = json.loads(line[5:])["result"]
            if "task" in event:
                self.task_id = event["task"]["id"]
                continue
            status: Json = event["statusUpdate"]["status"]
            return status
        raise AssertionError("the stream has ended")

    async def news(self) -> list[Json]:
        """The notifications of the next status."""
        status = await self.status()
        assert status["state"] == "TASK_STATE_WORKING", status
        (part,) = status["message"]["parts"]
        found: list[Json] = part["data"]["notifications"]
        return found

    async def agreed(self) -> Json:
        """What the acknowledgment says."""
        (first,) = await self.news()
        assert first["method"] == "notifications/subscriptions/acknowledged"
        found: Json = first["params"]["notifications"]
        return found

    async def end(self) -> tuple[str, str]:
        """The state and the words of the last status."""
        status = await self.status()
        (part,) = status["message"]["parts"]
        return status["state"], part.get("text", json.dumps(part.get("data")))


@asynccontextmanager
async def subscribed(rpc: Rpc, notifications: Json) -> AsyncIterator[Stream]:
    """A stream of a subscription."""
    params = asked(LISTEN, {"notifications": notifications})
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": params}
    async with rpc.client.stream("POST", rpc.url, json=body, headers=rpc.headers) as response:
        yield Stream(response.aiter_lines())


def desk_with(**run: Any) -> dict[str, PublishedPlan]:
    """An agent `desk` whose profile has these keys in `[run]`."""
    return {"desk": agent("notes", share=BOTH, profile=profile_with(run=run))}


def is_idle(kept: Notes) -> bool:
    return kept.listening == 0 and not kept.subscribed


@ERAS
async def test_changes_are_told_until_the_task_is_canceled(tmp_path: Path, era: Era) -> None:
    async with notes(tmp_path, era) as (kept, there):
        rpc = client_of(there).rpc
        wanted = {**LISTS, "toolsListChanged": True, "resourceSubscriptions": [PUBLIC[0], PUBLIC[1]]}
        async with subscribed(rpc, wanted) as stream:
            assert await stream.agreed() == {**LISTS, "resourceSubscriptions": [*PUBLIC]}
            await kept.update(PUBLIC[0])
            assert await stream.news() == [updated(PUBLIC[0])]
            await kept.change_lists()
            await kept.update(SECRET)
            await kept.update(PUBLIC[1])
            told = await stream.news()
            if len(told) < 3:
                told += await stream.news()
            assert [one["method"].removeprefix("notifications/") for one in told] == [
                "resources/list_changed",
                "prompts/list_changed",
                "resources/updated",
            ]
            await rpc.call("CancelTask", {"id": stream.task_id})
            assert (await stream.status())["state"] == "TASK_STATE_CANCELED"
            await kept.until(lambda: is_idle(kept))


async def test_send_message_answers_with_the_acknowledgment(tmp_path: Path) -> None:
    async with notes(tmp_path) as (kept, there):
        rpc = client_of(there).rpc
        params = {"notifications": {"resourceSubscriptions": [PUBLIC[0]]}}
        task = (await rpc.call("SendMessage", asked(LISTEN, params)))["task"]
        assert task["status"]["state"] == "TASK_STATE_WORKING"
        (first,) = task["status"]["message"]["parts"][0]["data"]["notifications"]
        assert first["params"]["notifications"] == params["notifications"]
        error = await rpc.error("SendMessage", asked("prompts/list", taskId=task["id"]))
        assert "at work" in error["message"] or "takes no messages" in error["message"]
        await rpc.call("CancelTask", {"id": task["id"]})
        await kept.until(lambda: is_idle(kept))


@ERAS
async def test_subscribers_share_a_resource_until_the_last_gives_it_up(tmp_path: Path, era: Era) -> None:
    async with notes(tmp_path, era) as (kept, there):
        rpc, wanted = client_of(there).rpc, {"resourceSubscriptions": [PUBLIC[0]]}
        async with subscribed(rpc, wanted) as one, subscribed(rpc, wanted) as two:
            assert await one.agreed() == wanted
            assert await two.agreed() == wanted
            if era is Era.LEGACY:
                assert kept.subscribed == {PUBLIC[0]: 1}
            await rpc.call("CancelTask", {"id": one.task_id})
            await kept.update(PUBLIC[0])
            assert await two.news() == [updated(PUBLIC[0])]
            await rpc.call("CancelTask", {"id": two.task_id})
            await kept.until(lambda: is_idle(kept))


@ERAS
async def test_a_storm_of_updates_is_told_once_in_each_update(tmp_path: Path, era: Era) -> None:
    async with (
        notes(tmp_path, era) as (kept, there),
        subscribed(client_of(there).rpc, {"resourceSubscriptions": [*PUBLIC]}) as stream,
    ):
        await stream.agreed()
        for _ in range(500):
            for uri in PUBLIC:
                await kept.update(uri)
        told = [await stream.news()]
        while len(told) < 2 and updated(PUBLIC[1]) not in told[0]:
            told.append(await stream.news())
        with anyio.move_on_after(1.5):
            told.append(await stream.news())
        assert len(told) <= 3
        assert all(len(batch) <= 2 for batch in told)


async def test_parts_without_end_become_their_resource(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_subscriptions, "_PARTS_MOST", 3)
    async with (
        notes(tmp_path) as (kept, there),
        subscribed(client_of(there).rpc, {"resourceSubscriptions": [PUBLIC[0]]}) as stream,
    ):
        await stream.agreed()
        await kept.update(PUBLIC[0])
        await stream.news()
        for number in range(50):
            await _part(kept, there, f"{PUBLIC[0]}/{number}")
        told = await stream.news()
        assert len(told) == 4
        assert told[-1] == updated(PUBLIC[0])


async def _part(kept: Notes, there: Any, uri: str) -> None:
    """The server reports a part of a subscribed resource, which the bus of the SDK has no way for."""
    (run,) = there.bridge.published[0].agent._requests._open
    run._hear("notifications/resources/updated", {"uri": uri})


async def test_the_store_keeps_few_events_of_a_long_subscription(tmp_path: Path) -> None:
    async with (
        notes(tmp_path, published=desk_with(subscription_update_seconds=0)) as (kept, there),
        subscribed(client_of(there).rpc, {"resourceSubscriptions": [PUBLIC[0]]}) as stream,
    ):
        await stream.agreed()
        for _ in range(120):
            await kept.update(PUBLIC[0])
            await stream.news()
        stored = await there.bridge.published[0].engine._store.load(stream.task_id)
        assert stored is not None
        assert len(stored.events) <= 40
        task = await client_of(there).rpc.call("GetTask", {"id": stream.task_id})
        assert len(task["history"]) == 1


async def test_a_subscriber_hears_only_of_what_it_may_use(tmp_path: Path) -> None:
    async with notes(tmp_path, credentials=[person("ann"), person("bob", **LIMITED)]) as (kept, there):
        wanted = {**LISTS, "resourceSubscriptions": [PUBLIC[0], SECRET, "file:///home/ann/d"]}
        async with (
            subscribed(client_of(there, "ann-token").rpc, wanted) as ann,
            subscribed(client_of(there, "bob-token").rpc, wanted) as bob,
        ):
            assert (await ann.agreed())["resourceSubscriptions"] == [PUBLIC[0], SECRET]
            assert (await bob.agreed())["resourceSubscriptions"] == [PUBLIC[0]]
            await kept.update(SECRET)
            await kept.update(PUBLIC[0])
            assert await bob.news() == [updated(PUBLIC[0])]
            assert updated(SECRET) in await ann.news()


async def test_nothing_to_hear_of_ends_at_once(tmp_path: Path) -> None:
    async with (
        notes(tmp_path, credentials=[person("bob", **LIMITED)]) as (kept, there),
        subscribed(client_of(there, "bob-token").rpc, {"resourceSubscriptions": [SECRET]}) as bob,
    ):
        assert await bob.agreed() == {}
        assert (await bob.end())[0] == "TASK_STATE_COMPLETED"
        assert kept.listening == 0


async def test_a_subscription_ends_with_the_rights_of_its_subscriber(tmp_path: Path) -> None:
    async with notes(tmp_path, credentials=[person("bob"), person("ann")]) as (kept, there):
        rpc = client_of(there, "bob-token").rpc
        params = {"notifications": {"resourceSubscriptions": [PUBLIC[0]]}}
        task = (await rpc.call("SendMessage", asked(LISTEN, params)))["task"]
        await there.apply(credentials=[person("bob", skills=("count",)), person("ann")])
        await kept.until(lambda: is_idle(kept))
        state, words = await _ended(rpc, task["id"])
        assert state == "TASK_STATE_FAILED"
        assert "You may no longer use this" in words


async def _ended(rpc: Rpc, task_id: str) -> tuple[str, str]:
    while True:
        status = (await rpc.call("GetTask", {"id": task_id}))["status"]
        if status["state"] != "TASK_STATE_WORKING":
            return status["state"], str(status["message"]["parts"])


@ERAS
@pytest.mark.parametrize("share", [(), ("prompts",)], ids=["nothing", "prompts"])
async def test_a_subscription_ends_when_the_agent_stops_sharing(
    tmp_path: Path, era: Era, share: tuple[Any, ...]
) -> None:
    async with (
        notes(tmp_path, era) as (kept, there),
        subscribed(client_of(there).rpc, {"resourceSubscriptions": [PUBLIC[0]]}) as stream,
    ):
        await stream.agreed()
        await there.apply(published={"desk": agent("notes", share=share)})
        state, words = await stream.end()
        assert state == "TASK_STATE_FAILED"
        assert "no longer shares this" in words
        assert "treat everything as changed" in words
        await kept.until(lambda: is_idle(kept))


async def test_a_subscription_that_the_server_ends_is_completed(tmp_path: Path) -> None:
    async with notes(tmp_path) as (kept, there), subscribed(client_of(there).rpc, LISTS) as stream:
        await stream.agreed()
        kept.end_subscriptions()
        state, words = await stream.end()
        assert (state, words) == ("TASK_STATE_COMPLETED", "The server ended the subscription")


@ERAS
async def test_a_subscription_ends_with_its_server(tmp_path: Path, era: Era) -> None:
    async with notes(tmp_path, era) as (_, there), subscribed(client_of(there).rpc, LISTS) as stream:
        await stream.agreed()
        session = there.bridge.upstreams["notes"]._first
        assert session._connection is not None
        session._connection.wire._tg.cancel_scope.cancel()  # type: ignore[union-attr]
        state, words = await stream.end()
        assert state == "TASK_STATE_FAILED"
        assert "treat everything as changed" in words


async def test_a_subscription_ends_with_the_bridge(tmp_path: Path) -> None:
    place = ProcessPlan(state=tmp_path / "state", cache=tmp_path / "cache")
    desk = agent("notes", share=BOTH, store=str(tmp_path / "tasks.db"))
    async with notes(tmp_path, place=place, published={"desk": desk}) as (kept, there):
        params = {"notifications": LISTS}
        task = (await client_of(there).rpc.call("SendMessage", asked(LISTEN, params)))["task"]
        began = anyio.current_time()
    assert anyio.current_time() - began < 15
    assert is_idle(kept)
    async with notes(tmp_path, place=place, published={"desk": desk}) as (_, there):
        state, words = await _ended(client_of(there).rpc, task["id"])
        assert state == "TASK_STATE_FAILED"
        assert "stopped" in words


async def test_a_subscription_ends_after_its_life(tmp_path: Path) -> None:
    async with (
        notes(tmp_path, published=desk_with(subscription_life_seconds=0.01)) as (_, there),
        subscribed(client_of(there).rpc, LISTS) as stream,
    ):
        while (status := await stream.status())["state"] == "TASK_STATE_WORKING":
            pass
        assert status["state"] in ("TASK_STATE_COMPLETED", "TASK_STATE_FAILED")
        assert "treat everything as changed" in json.dumps(status["message"])


async def test_a_principal_has_so_many_subscriptions(tmp_path: Path) -> None:
    published = desk_with(subscriptions=2, subscription_resources=3)
    plan: Json = {"published": published, "credentials": [person("ann"), person("bob")]}
    async with notes(tmp_path, **plan) as (kept, there):
        ann, bob = client_of(there, "ann-token"), client_of(there, "bob-token")
        tasks = [
            (await ann.rpc.call("SendMessage", asked(LISTEN, {"notifications": LISTS})))["task"]
            for _ in range(2)
        ]
        assert await ann.refusal(LISTEN, {"notifications": LISTS}) == "OVERLOADED"
        many = {"notifications": {"resourceSubscriptions": [f"a:{n}" for n in range(4)]}}
        assert await bob.refusal(LISTEN, many) == "INVALID_PARAMS"
        await bob.rpc.call("SendMessage", asked(LISTEN, {"notifications": LISTS}))
        await ann.rpc.call("CancelTask", {"id": tasks[0]["id"]})
        await ann.rpc.call("SendMessage", asked(LISTEN, {"notifications": LISTS}))
        assert kept.listening == 3


async def test_subscriptions_are_in_the_audit_as_other_requests(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    place = ProcessPlan(
        state=tmp_path / "state", cache=tmp_path / "cache", audit=AuditPlan(file, 1 << 20, 10)
    )
    people = [person("ann"), person("bob", skills=("count",))]
    async with notes(tmp_path, place=place, credentials=people) as (kept, there):
        ann, bob = client_of(there, "ann-token"), client_of(there, "bob-token")
        task = (await ann.rpc.call("SendMessage", asked(LISTEN, {"notifications": LISTS})))["task"]
        assert await bob.refusal(LISTEN, {"notifications": LISTS}) == "FORBIDDEN"
        await ann.rpc.call("CancelTask", {"id": task["id"]})
        await kept.until(lambda: not kept.listening)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    keys = ("event", "principal", "skill", "peer", "decision")
    assert [tuple(line.get(key) for key in keys) for line in lines if line.get("skill") == LISTEN] == [
        ("call", "ann", LISTEN, "notes", "allowed"),
        ("refused", "bob", LISTEN, None, "refused"),
        ("cancel", "ann", LISTEN, "notes", "allowed"),
    ]


async def test_a_resource_that_the_server_refuses_is_left_out(tmp_path: Path) -> None:
    async with notes(tmp_path, Era.LEGACY) as (_, there):
        wanted = {"resourceSubscriptions": [PUBLIC[0], "note:///none"]}
        async with subscribed(client_of(there).rpc, wanted) as stream:
            assert await stream.agreed() == {"resourceSubscriptions": [PUBLIC[0]]}
