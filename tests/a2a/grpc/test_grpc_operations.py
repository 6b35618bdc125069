"""Every operation over gRPC, in 1.0 and 0.3: the tests of `tests/a2a/server/test_http_operations.py`, with its drivers.

A test whose parameters no protocol buffer can hold is skipped.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import FunctionType

import pytest

from tests.a2a.server import test_http_operations
from tests.support.drivers import Driver
from tests.support.grpc_driver import GrpcDriver, OlderGrpcDriver, new_channel, served_over_grpc
from tests.support.older_drivers import name_of
from tests.support.running import config_for, raw_command, running

context = test_http_operations.context

_OVER_HTTP_ALONE = "test_the_same_message_finds_its_task_when_its_answer_was_not_read"
"""gRPC takes a whole answer from the server although the client reads one event of it. So the answer of a quick tool
may count as read, and the same message is then a new one."""

globals().update(
    {
        name: test
        for name, test in vars(test_http_operations).items()
        if name.startswith("test_")
        and isinstance(test, FunctionType)
        and "driver" in test.__annotations__
        and name != _OVER_HTTP_ALONE
    }
)


@pytest.fixture(scope="module")
async def ports(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[dict[str, int]]:
    file = str(tmp_path_factory.mktemp("store") / "tasks.db")
    async with (
        running(config_for(raw_command(), store="memory:")) as in_memory,
        running(config_for(raw_command(), store=file)) as on_disk,
        served_over_grpc(in_memory.bridge.whole) as one,
        served_over_grpc(on_disk.bridge.whole) as other,
    ):
        yield {GrpcDriver.__name__: one.port, OlderGrpcDriver.__name__: other.port}


@pytest.fixture(params=(GrpcDriver, OlderGrpcDriver), ids=name_of)
async def driver(request: pytest.FixtureRequest, ports: dict[str, int]) -> AsyncIterator[Driver]:
    async with new_channel(ports[request.param.__name__]) as channel:
        yield request.param(channel)
