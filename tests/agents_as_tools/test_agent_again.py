"""A foreign agent exposed as an MCP server, and wrapped as an agent again: its callers see its own behaviour."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from bridge.mcp.client.eras import Era
from tests.support.exposing import exposing
from tests.support.foreign import foreign_agent
from tests.support.limits import url_at
from tests.support.running import Rpc, call_part, config_for, running, texts

pytestmark = pytest.mark.proves("map-agent-again")

each_era = pytest.mark.parametrize("era", ["legacy", "modern"])


@asynccontextmanager
async def there_and_back(era: str, folder: Path) -> AsyncIterator[Rpc]:
    """A client of the agent that is made of the tools that are made of the agent."""
    async with AsyncExitStack() as stack:
        agent = await stack.enter_async_context(foreign_agent())
        there = await stack.enter_async_context(exposing(folder, agent.url))
        bridge = await stack.enter_async_context(running(config_for(url_at(there.url), era=Era(era))))
        http = await stack.enter_async_context(httpx2.AsyncClient(timeout=30))
        yield Rpc(http, bridge.base_url)


def given(task: Any) -> list[str]:
    """The text of a task's output, without the hint on how to continue."""
    said = [text for artifact in task.get("artifacts", ()) for text in texts(artifact["parts"])]
    return [text for text in said if not text.startswith("(To go on")]


@each_era
async def test_results_and_failures_come_through(era: str, tmp_path: Path) -> None:
    async with there_and_back(era, tmp_path) as rpc:
        plain = await rpc.send(call_part("plain", message="hi"))
        assert plain["status"]["state"] == "TASK_STATE_COMPLETED"
        assert any("hi" in text for text in given(plain))
        chunks = await rpc.send(call_part("chunks", message="hi"))
        assert chunks["status"]["state"] == "TASK_STATE_COMPLETED"
        assert given(chunks)
        files = await rpc.send(call_part("file", message="hi"))
        parts = files["artifacts"][0]["parts"]
        assert {"text/csv", "image/png"} <= {part.get("mediaType") for part in parts}
        assert any(part.get("url", "").endswith("report.pdf") for part in parts)
        failed = await rpc.send(call_part("fail", message="hi"))
        assert failed["status"]["state"] == "TASK_STATE_FAILED"
        assert "Out of paper" in "\n".join(texts(failed["status"]["message"]["parts"]))
        rejected = await rpc.send(call_part("reject", message="hi"))
        assert "Not my job" in "\n".join(texts(rejected["status"]["message"]["parts"]))


@each_era
async def test_two_questions_in_a_row_come_through(era: str, tmp_path: Path) -> None:
    async with there_and_back(era, tmp_path) as rpc:
        asked = await rpc.send(call_part("ask", message="a box"))
        assert asked["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        assert "Which colour?" in "\n".join(texts(asked["status"]["message"]["parts"]))
        again = await rpc.send({"text": "blue"}, taskId=asked["id"])
        assert again["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        assert "How many in blue?" in "\n".join(texts(again["status"]["message"]["parts"]))
        done = await rpc.send({"data": {"count": 3}}, taskId=asked["id"])
        assert done["status"]["state"] == "TASK_STATE_COMPLETED"
        assert given(done)[0].startswith("Ordered 3")


@each_era
async def test_a_required_login_comes_through(era: str, tmp_path: Path) -> None:
    async with there_and_back(era, tmp_path) as rpc:
        asked = await rpc.send(call_part("sign_in_and_say", message="hi"))
        assert asked["status"]["state"] == "TASK_STATE_AUTH_REQUIRED"
        assert asked["status"]["message"]["parts"][1]["data"]["url"].startswith("http")
