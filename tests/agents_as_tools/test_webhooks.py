"""Webhooks at agents of others: when they are asked for, that they are notified, and when they are deleted."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.support.exposing import exposing
from tests.support.foreign import Foreign, foreign_agent
from tests.support.mcp_tasks import TaskClient, task_client

pytestmark = [pytest.mark.outside, pytest.mark.proves("a2a-4.3.3-push")]

WAIT_SECONDS = 30


@asynccontextmanager
async def notified_tasks(
    folder: Path, *, push: bool = True, declared: bool = True, at_public_url: bool = True, **options: Any
) -> AsyncIterator[tuple[TaskClient, Foreign]]:
    """A client that takes tasks, of an agent of a2a-sdk that notifies."""
    options = {"task_after_seconds": 0, "push_poll_seconds": 3600, "push_look_seconds": 0, **options}
    with anyio.fail_after(WAIT_SECONDS):
        async with (
            foreign_agent(streaming=False, push=declared) as agent,
            exposing(folder, agent.url, push=push, at_public_url=at_public_url, **options) as exposed,
            task_client(exposed) as client,
        ):
            yield client, agent


async def test_the_webhook_of_a_call_that_became_a_task_is_deleted_when_its_agent_says_that_it_ended(
    tmp_path: Path,
) -> None:
    async with notified_tasks(tmp_path) as (client, agent):
        task = await client.call("slow", message="go")
        assert task["resultType"] == "task"
        await agent.seen.webhook_set.wait()
        assert [url.endswith("/push") for url in agent.seen.webhooks] == [True]
        agent.seen.released.set()
        await agent.seen.webhook_deleted.wait()
        assert (await client.get(task))["status"] == "completed"


async def test_a_webhook_is_not_asked_for_where_it_is_turned_off_or_has_no_address(tmp_path: Path) -> None:
    for name, options in (
        ("off", {"push": False}),
        ("undeclared", {"declared": False}),
        ("nowhere", {"at_public_url": False}),
        ("quick", {"task_after_seconds": WAIT_SECONDS}),
    ):
        async with notified_tasks(tmp_path / name, **options) as (client, agent):
            agent.seen.released.set()
            answer = await client.call("slow" if name != "quick" else "plain", message="go")
            ended = await client.end(answer) if answer["resultType"] == "task" else answer
            assert "result" in ended or "content" in ended
            assert agent.seen.webhooks == [], name


async def handle_of_task(client: TaskClient) -> str:
    """The handle of a call whose agent has named a task in time."""
    while True:
        words = json.dumps(await client.call("slow", message="go"))
        if "good only while this server runs" not in words:
            found = re.search(r"with this handle: ([\w-]+)", words)
            assert found, words
            return found[1]


async def test_a_handle_has_a_webhook_and_the_one_who_comes_back_is_woken_by_it(tmp_path: Path) -> None:
    async with notified_tasks(tmp_path, task_after_seconds=3600, answer_within_seconds=0.2) as (
        client,
        agent,
    ):
        handle = await handle_of_task(client)
        await agent.seen.webhook_set.wait()
        async with anyio.create_task_group() as group:
            results: list[Any] = []

            async def come_back() -> None:
                results.append(await client.call("task_result", handle=handle))

            group.start_soon(come_back)
            agent.seen.released.set()
        assert "Slow but sure" in results[0]["content"][0]["text"]
        await agent.seen.webhook_deleted.wait()
