"""`--binding` as a user gives it: an agent that offers several bindings is called over the chosen one."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from tests.cli.call.test_command import command
from tests.support.grpc_driver import served_over_grpc
from tests.support.running import config_for, raw_command, running

METHOD = '"method":"SendStreamingMessage","request"'
"""What `--trace` shows of a call over gRPC alone."""


@pytest.fixture(scope="module")
async def url() -> AsyncIterator[str]:
    async with (
        running(config_for(raw_command(), store="memory:")) as bridge,
        served_over_grpc(bridge.bridge.whole),
    ):
        yield bridge.base_url


@pytest.mark.parametrize(
    ("options", "is_grpc"),
    [((), False), (("--binding", "GRPC"), True), (("--binding", "HTTP+JSON", "--binding", "GRPC"), False)],
)
async def test_a_skill_is_called_over_the_chosen_binding(
    options: tuple[str, ...], is_grpc: bool, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = await command("call", monkeypatch)(*options, "--trace", url, "echo", "text=hello")
    assert (done.code, done.out) == (0, "hello\n"), done.err
    assert (METHOD in done.err) is is_grpc
    shown = await command("tasks", monkeypatch)(*options, "--json-output", url, done.task_id)
    assert json.loads(shown.out)["id"] == done.task_id


async def test_a_task_is_cancelled_over_the_chosen_binding(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    call = command("call", monkeypatch)
    begun = await call("--binding", "GRPC", "--no-wait", url, "wait")
    assert (begun.code, begun.err.count("--binding")) == (0, 0), begun.err
    ended = await command("tasks", monkeypatch)("--binding", "GRPC", url, begun.out.strip(), "--cancel")
    assert ended.code == 0, ended.err


async def test_a_binding_that_the_agent_lacks_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    done = await command("call", monkeypatch)("--binding", "GRPC", "--dialect", "0.1", url, "echo", "text=x")
    assert done.code == 1
    assert "may call it over GRPC 0.1" in done.err
