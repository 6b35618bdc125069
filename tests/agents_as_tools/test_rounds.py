"""A question of an agent over the raw wire of 2026-07-28: which rounds are valid, and what goes to the agent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import httpx2
import pytest

from bridge.config.tables.profile import Profile, load_profile
from bridge.http.request_checks import FaceAddress
from tests.support.exposing import ExposeConfig, exposed
from tests.support.mcp_tasks import TAKES_ALL, TaskClient, accepted
from tests.support.mcp_wire import MODERN, Http
from tests.support.principals import WAYS, Knowing, by_secrets
from tests.support.running import listening
from tests.support.scripted_agent import Json, scripted_agent

NAMES: Final = ("ada", "bob")
FORMS: Final = {"elicitation": {"form": {}}}


def asked_as(message_id: str) -> Json:
    """The task of the agent, as it asks."""
    question = {"messageId": message_id, "role": "ROLE_AGENT", "parts": [{"text": "Which color?"}]}
    return {
        "id": "t-1",
        "contextId": "c-1",
        "status": {"state": "TASK_STATE_INPUT_REQUIRED", "message": question},
    }


ASKS: Final = asked_as("m-1")


@asynccontextmanager
async def asking(
    folder: Path,
    heard: list[Mapping[str, str]] | None = None,
    capabilities: Json = FORMS,
    knowing: Knowing = by_secrets,
) -> AsyncIterator[dict[str, TaskClient]]:
    """A client for each principal, of the face of an agent that only ever asks: a call becomes a task at once."""

    told = [ASKS]

    def ask(method: str, params: Json) -> list[Json]:
        if method == "CancelTask":
            return [{"error": {"code": -32002, "message": "No way"}}]
        if params.get("message", {}).get("taskId"):  # the answer: the same words are a new question
            told.append(asked_as(f"m-{len(told) + 1}"))
        return [told[-1] if method == "GetTask" else {"task": told[-1]}]

    with anyio.fail_after(20):
        async with scripted_agent(ask, heard=heard) as agent_url, knowing() as known:
            config = ExposeConfig([agent_url], _at_once(), state=folder / "state", cache=folder / "cache")
            async with (
                exposed(config) as exposure,
                exposure.server.at(known.access, FaceAddress()) as app,
                listening(app) as root_url,
                httpx2.AsyncClient(timeout=30) as ada,
                httpx2.AsyncClient(timeout=30) as bob,
            ):
                clients = dict(zip(NAMES, (ada, bob), strict=True))
                for name, client in clients.items():
                    client.headers["authorization"] = f"Bearer {known.tokens[name]}"
                yield {
                    name: TaskClient(Http(client, f"{root_url}/mcp", MODERN, capabilities))
                    for name, client in clients.items()
                }


def _at_once() -> Profile:
    profile = load_profile()
    return profile.having(agents=profile.agents.having(task_after_seconds=0))


def again(asked: Json, **more: Any) -> Json:
    """The call, made again with an answer."""
    (key,) = asked["inputRequests"]
    answer = {"requestState": asked["requestState"], "inputResponses": {key: accepted(answer="red")}}
    return {"name": "act", "arguments": {"message": "paint"}, **answer, **more}


@pytest.mark.proves("mcp26-state-checked", "mcp26-rounds-shape", "mcp-elicit-bound", "oauth-jwt")
@pytest.mark.parametrize("knowing", WAYS)
async def test_a_request_state_is_valid_only_unchanged_from_its_principal_with_its_request(
    knowing: Knowing, tmp_path: Path
) -> None:
    async with asking(tmp_path, knowing=knowing) as clients:
        ada, bob = clients["ada"], clients["bob"]
        asked = await ada.call("act", message="paint")
        assert asked["resultType"] == "input_required"
        state = asked["requestState"]
        changed = state[:-4] + ("AAAA" if state[-4:] != "AAAA" else "BBBB")
        refused = [
            await ada.send("tools/call", again(asked, requestState=changed)),
            await ada.send("tools/call", again(asked, arguments={"message": "sell"})),
            await bob.send("tools/call", again(asked)),
        ]
        assert {answer["error"]["code"] for answer in refused} == {-32602}
        assert len({answer["error"]["message"] for answer in refused}) == 1
        assert (await ada.ask("tools/call", again(asked)))["resultType"] == "input_required"


@pytest.mark.proves("tasks-owner", "tasks-unknown", "oauth-jwt")
@pytest.mark.parametrize("knowing", WAYS)
async def test_a_task_of_one_principal_does_not_exist_for_another(knowing: Knowing, tmp_path: Path) -> None:
    async with asking(tmp_path, capabilities=TAKES_ALL, knowing=knowing) as clients:
        ada, bob = clients["ada"], clients["bob"]
        task = await ada.call("act", message="paint")
        assert task["resultType"] == "task"
        unknown = (await bob.send("tasks/get", {"taskId": "nonsense"}))["error"]
        assert unknown["code"] == -32602
        for method, more in (
            ("tasks/get", {}),
            ("tasks/update", {"inputResponses": {}}),
            ("tasks/cancel", {}),
        ):
            refused = await bob.send(method, {"taskId": task["taskId"], **more})
            assert refused["error"] == unknown
        assert (await ada.get(task))["taskId"] == task["taskId"]


@pytest.mark.proves("mcp-token-passthrough")
@pytest.mark.parametrize("knowing", WAYS)
async def test_a_hosts_credentials_are_not_sent_to_an_agent(knowing: Knowing, tmp_path: Path) -> None:
    heard: list[Mapping[str, str]] = []
    async with asking(tmp_path, heard, knowing=knowing) as clients:
        await clients["ada"].call("act", message="paint")
        token = clients["ada"].http.client.headers["authorization"].removeprefix("Bearer ")
    assert heard
    assert not [headers for headers in heard if "authorization" in headers or token in str(headers)]


@pytest.mark.proves("map-ask-again")
async def test_a_task_that_asks_the_same_question_too_often_puts_it_in_words(tmp_path: Path) -> None:
    async with asking(tmp_path, capabilities=TAKES_ALL) as clients:
        ada = clients["ada"]
        task = await ada.call("act", message="paint")
        for _ in range(3):
            (key,) = (await ada.get(task))["inputRequests"]
            await ada.answer(task, **{key: accepted(answer="red")})
        ended = await ada.get(task)
        assert ended["status"] == "completed"
        assert "task_reply" in ended["result"]["content"][0]["text"]


@pytest.mark.proves("map-ask-back-no")
async def test_a_task_that_is_not_canceled_after_a_refusal_says_so_and_does_not_ask_again(
    tmp_path: Path,
) -> None:
    async with asking(tmp_path, capabilities=TAKES_ALL) as clients:
        ada = clients["ada"]
        task = await ada.call("act", message="paint")
        (key,) = (await ada.get(task))["inputRequests"]
        await ada.answer(task, **{key: {"action": "decline"}})
        ended = await ada.get(task)
        assert ended["status"] == "completed"
        assert ended["result"]["isError"] is True
        assert "could not be canceled" in ended["result"]["content"][0]["text"]
