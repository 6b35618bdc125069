"""`--dialect` as a user gives it: for agents whose cards name no version of A2A, or a wrong version."""

from __future__ import annotations

import pytest

from tests.cli.call.test_command import command
from tests.support.scripted_agent import Json, scripted_agent

REFUSED: Json = {"error": {"code": -32601, "message": "Method not found"}}
BROKEN: Json = {"error": {"code": -32603, "message": "Internal error"}}


class FirstAgent:
    """Speaks the first generation, and refuses what it does not know with one error."""

    def __init__(self, unknown: Json) -> None:
        self.unknown = unknown
        self.methods: list[str] = []

    def __call__(self, method: str, params: Json) -> list[Json]:
        self.methods.append(method)
        if method not in ("tasks/sendSubscribe", "tasks/get"):
            return [self.unknown]
        status = {
            "state": "completed",
            "message": {"role": "agent", "parts": [{"type": "text", "text": "Hi"}]},
        }
        return [{"id": params["id"], "status": status, "final": True}]


@pytest.mark.proves("map-version-asked")
async def test_an_agent_is_called_in_the_version_that_it_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = FirstAgent(REFUSED)
    async with scripted_agent(agent, is_unsaid=True) as url:
        done = await command("call", monkeypatch)(url, "--text", "Hello")
    assert (done.code, agent.methods) == (0, ["message/send", "tasks/sendSubscribe", "tasks/get"])


@pytest.mark.proves("map-version-asked")
@pytest.mark.parametrize("words", [("call", "--text", "Hello"), ("card",), ("tasks", "t")])
async def test_an_unknown_version_of_an_agent_names_the_option_for_it(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = FirstAgent(BROKEN)
    name, *rest = words
    async with scripted_agent(agent, is_unsaid=True) as url:
        done = await command(name, monkeypatch)(url, *rest)
    assert (done.code, done.out, agent.methods) == (1, "", ["message/send"])
    assert done.err.endswith("If you know the version, give --dialect 0.3 or --dialect 0.1\n")


@pytest.mark.parametrize(
    ("words", "methods"),
    [
        (("call", "--text", "Hello"), ["tasks/sendSubscribe", "tasks/get"]),
        (("card",), []),
        (("tasks", "t"), ["tasks/get"]),
    ],
)
async def test_the_version_in_dialect_is_used_without_asking_the_agent(
    words: tuple[str, ...], methods: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = FirstAgent(BROKEN)
    name, *rest = words
    async with scripted_agent(agent, is_unsaid=True) as url:
        done = await command(name, monkeypatch)(url, "--dialect", "0.1", *rest)
    assert (done.code, agent.methods) == (0, methods), done.err
    if name == "card":
        assert f"  JSONRPC 0.1  {url}/" in done.out.splitlines()
