"""Metrics are read while a database hangs: all that does not need the database, in time for Prometheus."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

import anyio
import httpx2
import pytest

from bridge.assembly.telemetry import STORES_SECONDS
from tests.operate.bridges import served
from tests.support.ports import free_port
from tests.support.postgres import database
from tests.support.processes import PROC
from tests.support.running import RAW_SERVER, call_part
from tests.telemetry.test_metrics import Numbers, numbers_in

pytestmark = [
    pytest.mark.long,
    pytest.mark.outside,
    pytest.mark.skipif(not PROC.is_dir(), reason="processes are looked up in /proc"),
]

PROMETHEUS_SECONDS: Final = 10
"""The time after which Prometheus abandons a reading, unless its configuration sets another."""
SEVERAL: Final = ("one", "two", "three", "four")
FILE: Final = """
[bridge]
port = {port}
metrics = "127.0.0.1:{metrics}"
store = {{ env = "DATABASE_URL" }}
keys = [{{ env = "ANN_TOKEN" }}]
[tool_servers.tools]
command = {raw}
"""


async def test_a_reading_does_not_wait_for_a_database_that_hangs(tmp_path: Path) -> None:
    port, metrics, file = free_port(), free_port(), tmp_path / "bridge.toml"
    raw = json.dumps([sys.executable, "-S", "-E", str(RAW_SERVER)])
    agents = "".join(f'[tools_as_agent.{name}]\nfrom = ["tools"]\n' for name in SEVERAL)
    file.write_text(FILE.format(port=port, metrics=metrics, raw=raw) + agents)
    with database() as server:
        async with (
            served(file, port, until="agents/four/.well-known", DATABASE_URL=server.url) as bridge,
            httpx2.AsyncClient(base_url=f"http://127.0.0.1:{metrics}", timeout=60) as client,
        ):

            async def read() -> Numbers:
                return numbers_in((await client.get("/metrics")).content)

            await bridge.agent("one").send(call_part("echo", text="x"))
            assert faces(await read(), "a2a_tasks_waiting") == {*SEVERAL}
            with server.hung():
                with anyio.fail_after(STORES_SECONDS + 2):
                    found = await read()
                assert faces(found, "a2a_server_operation_duration_seconds_count") == {"one"}
                assert faces(found, "mcp_a2a_store_ready") == {*SEVERAL}
                assert faces(found, "a2a_tasks_waiting") == set()
                with anyio.fail_after(60):
                    while ready(found):
                        with anyio.fail_after(PROMETHEUS_SECONDS):
                            found = await read()
            with anyio.fail_after(60):
                while not ready(found) or faces(found, "a2a_tasks_waiting") != {*SEVERAL}:
                    found = await read()


def faces(numbers: Numbers, name: str) -> set[str]:
    """The endpoints with a sample of this name."""
    return {dict(labels)["face"] for known, labels in numbers if known == name}


def ready(numbers: Numbers) -> bool:
    """Whether the tasks of every agent can be stored."""
    return all(number for (name, _), number in numbers.items() if name == "mcp_a2a_store_ready")
