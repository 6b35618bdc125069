"""A model that may call tools in turn: each call is a step of the task, and its own words are the last artifact."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from bridge.telemetry.families import text_of
from bridge.translate.extensions.apps import URI as APPS
from bridge.translate.extensions.bridge import MODEL
from tests.support.asking import asking_url
from tests.support.model_desk import ASKED, FILE, Api, Desk, about, desk, tools
from tests.support.model_server import Answer, chooses, gives, says, waits
from tests.support.observed import collecting
from tests.support.running import Rpc, call_part, texts
from tests.support.several import state, words
from tests.support.tool_server import listed

ROUNDS = "rounds = 3"
DURABLE = FILE.replace('"memory:"', '"sqlite:///tasks.db"')
GREETS, TRIPS = chooses("greet", {"who": "Ada"}), chooses("trip", {"kilometres": 12})


@asynccontextmanager
async def rounds_desk(folder: Path, *script: Answer, **options: Any) -> AsyncIterator[Desk]:
    listing = [*tools(), listed("fail", hints={"readOnly": True})]
    async with desk(folder, *script, **{"more": ROUNDS, "listing": listing, **options}) as served:
        yield served


def results(task: Any) -> list[Any]:
    """The artifacts of a task: the calls of the tool server as they are, and the words of the model."""
    said = [texts(artifact["parts"])[0] for artifact in task.get("artifacts", [])]
    return [json.loads(text)[1] if text.startswith("[") else text for text in said]


def sent(served: Desk, number: int) -> str:
    """The messages of a request to the model."""
    return json.dumps(served.model.requests[number]["messages"])


@pytest.mark.parametrize("api", ["openai", "anthropic"])
async def test_a_model_calls_tools_in_turn_and_ends_in_its_own_words(tmp_path: Path, api: Api) -> None:
    async with rounds_desk(tmp_path, GREETS, TRIPS, says("Ada is 12 km away."), api=api) as served:
        task = await served.ask()
        assert state(task) == "COMPLETED"
        assert results(task) == ["greet", "trip", "Ada is 12 km away."]
        first, second, answer = task["artifacts"]
        assert (about(first)["round"], about(second)["round"]) == (1, 2)
        assert answer["parts"][0]["metadata"] == {MODEL: "m-1"}
        told = about(answer)
        assert (told["outcome"], told["tokens"]) == ("answered", 300)
        assert told["calls"] == [{"skill": "greet", "failed": False}, {"skill": "trip", "failed": False}]
        assert words(task) == "The model m-1 answered after these calls: greet (answered), trip (answered)"
        assert [name for name, _ in served.tools.calls] == ["greet", "trip"]
        assert "Ada" in sent(served, 1)
        assert "kilometres" in sent(served, 2)


async def test_after_the_last_round_a_model_may_only_answer(tmp_path: Path) -> None:
    async with rounds_desk(tmp_path, GREETS, more="rounds = 2") as served:
        task = await served.ask()
        assert state(task) == "INPUT_REQUIRED"
        assert results(task) == ["greet", "greet"]
        said = (
            "asked for a call that cannot be made. These calls were made: greet (answered), greet (answered)"
        )
        assert said in words(task)
        choices = [request.get("tool_choice") for request in served.model.requests]
        assert choices == [None, None, "none", "none"]


@pytest.mark.parametrize(
    ("script", "outcome"),
    [
        ((GREETS, gives(429, b"{}")), "failed"),
        ((GREETS, gives(200, b"[1]")), "broken"),
        ((GREETS, says("")), "no_choice"),
        ((GREETS, says("Which Ada do you mean?")), "no_choice"),
        ((chooses("fail"), says("I am sorry, all is well.")), "no_choice"),
        ((chooses("fail"), chooses("fail"), says("Done.")), "no_choice"),
        ((GREETS, chooses("secret"), chooses("format_disk")), "unfit"),
    ],
)
async def test_no_answer_or_an_excuse_asks_the_client_and_shows_the_steps(
    tmp_path: Path, script: tuple[Answer, ...], outcome: str
) -> None:
    async with rounds_desk(tmp_path, *script) as served:
        task = await served.ask()
        assert state(task) == "INPUT_REQUIRED"
        assert about(task["status"]["message"])["outcome"] == outcome
        assert "These calls were made: " in words(task)
        assert results(task) == ["greet"] * sum(name == "greet" for name, _ in served.tools.calls)
        asked_before = len(served.model.requests)
        assert state(await served.on(task, call_part("greet", who="Bob"))) == "COMPLETED"
        assert len(served.model.requests) == asked_before


async def test_a_failed_call_is_told_to_the_model_and_named_at_the_end(tmp_path: Path) -> None:
    async with rounds_desk(tmp_path, chooses("fail"), GREETS, says("Ada was greeted.")) as served:
        task = await served.ask()
        assert state(task) == "COMPLETED"
        assert words(task).endswith("fail (failed), greet (answered)")
        assert results(task) == ["greet", "Ada was greeted."]
        assert "fail" in sent(served, 1)


async def test_the_first_of_several_calls_is_made(tmp_path: Path) -> None:
    both = chooses("greet", {"who": "Ada"}, ("greet", {"who": "Bob"}))
    async with rounds_desk(tmp_path, both, says("Done.")) as served:
        assert results(await served.ask()) == ["greet", "Done."]
        assert served.tools.calls == [("greet", {"who": "Ada"})]


async def test_each_call_that_is_not_read_only_waits_for_its_own_yes(tmp_path: Path) -> None:
    wipes = [chooses("wipe", {"note": note}) for note in "ab"]
    async with rounds_desk(tmp_path, GREETS, *wipes, says("Both are wiped.")) as served:
        task = await served.ask()
        assert (state(task), served.tools.calls) == ("AUTH_REQUIRED", [("greet", {"who": "Ada"})])
        task = await served.on(task, {"text": "yes"})
        assert state(task) == "AUTH_REQUIRED"
        assert served.tools.calls[1:] == [("wipe", {"note": "a"})]
        task = await served.on(task, {"text": "yes"})
        assert (state(task), results(task)[-1]) == ("COMPLETED", "Both are wiped.")
        assert about(task["artifacts"][-1])["tokens"] == 400


async def test_a_no_in_the_third_round_ends_the_task_without_the_call(tmp_path: Path) -> None:
    async with rounds_desk(tmp_path, GREETS, TRIPS, chooses("wipe", {"note": "a"}), says("no")) as served:
        task = await served.ask()
        task = await served.on(task, {"text": "maybe"})
        assert state(task) == "AUTH_REQUIRED"
        task = await served.on(task, {"text": "no"})
        assert state(task) == "REJECTED"
        assert results(task) == ["greet", "trip"]
        assert "wipe" not in dict(served.tools.calls)
        assert len(served.model.requests) == 3


async def test_a_call_that_the_client_names_in_place_of_a_yes_is_none_of_the_models(tmp_path: Path) -> None:
    async with rounds_desk(tmp_path, GREETS, chooses("wipe", {"note": "a"}), says("no")) as served:
        task = await served.ask()
        task = await served.on(task, call_part("trip", kilometres=1))
        assert (state(task), results(task)) == ("COMPLETED", ["greet", "trip"])
        assert len(served.model.requests) == 2


@pytest.mark.parametrize("obeys", ["wipe", "secret", "format_disk"])
async def test_a_result_never_widens_which_tools_may_be_called(tmp_path: Path, obeys: str) -> None:
    async with rounds_desk(tmp_path, GREETS, chooses(obeys, {"note": "all"}), says("Done.")) as served:
        task = await served.ask()
        assert state(task) == ("AUTH_REQUIRED" if obeys == "wipe" else "COMPLETED")
        assert served.tools.calls == [("greet", {"who": "Ada"})]


@pytest.mark.proves("map-apps")
async def test_a_tool_for_apps_only_is_never_offered_to_a_model(tmp_path: Path) -> None:
    listing = [*tools(), {**listed("tick"), "_meta": {"ui": {"visibility": ["app"]}}}]
    file = f'{FILE}share = ["resources", "apps"]\n'
    async with rounds_desk(
        tmp_path, GREETS, chooses("tick"), says("Done."), file=file, listing=listing
    ) as served:
        await served.ask()
        assert "tick" not in json.dumps([request["tools"] for request in served.model.requests])
        client = Rpc(served.rpc.client, served.rpc.url, {"A2A-Extensions": APPS})
        await client.send(call_part("tick"))
        assert [name for name, _ in served.tools.calls] == ["greet", "tick"]


async def test_tools_that_are_new_or_changed_since_the_first_question_are_not_offered(tmp_path: Path) -> None:
    wipes = chooses("wipe", {"note": "a"})
    async with rounds_desk(tmp_path, GREETS, wipes, file=DURABLE) as served:
        task = await served.ask()
        assert set(served.model.tools()) == {"greet", "trip", "wipe", "hold", "fail"}
    changed = [{**tool, "description": "now safe"} if tool["name"] == "trip" else tool for tool in tools()]
    listing = [*changed, listed("late", hints={"readOnly": True})]
    async with rounds_desk(tmp_path, chooses("late"), says("Done."), file=DURABLE, listing=listing) as served:
        task = await served.on(task, {"text": "yes"})
        assert state(task) == "COMPLETED"
        assert set(served.model.tools()) == {"greet", "wipe", "hold"}
        assert served.tools.calls == [("wipe", {"note": "a"})]


async def test_the_tokens_of_a_principal_hold_over_all_rounds(tmp_path: Path) -> None:
    more = f"{ROUNDS}\nhourly_tokens = 2000"
    async with rounds_desk(tmp_path, GREETS, more=more) as served:
        outcomes = []
        while not outcomes or outcomes[-1] != "no_tokens":
            task = await served.ask()
            outcomes.append(about(task["status"]["message"])["outcome"])
        assert len(served.model.requests) * 100 <= 2000
        assert len(served.tools.calls) <= 3 * len(outcomes)


async def test_the_seconds_hold_over_all_rounds(tmp_path: Path) -> None:
    async with rounds_desk(tmp_path, GREETS, waits(GREETS), more=f"{ROUNDS}\nseconds = 1") as served:
        task = await served.ask()
        assert state(task) == "INPUT_REQUIRED"
        assert "took too long. These calls were made: greet (answered)" in words(task)


async def test_a_cancel_in_a_middle_round_ends_the_question(tmp_path: Path) -> None:
    async with rounds_desk(tmp_path, GREETS, waits(TRIPS)) as served:
        task = await served.ask(configuration={"returnImmediately": True})
        while len(served.model.requests) < 2:
            await anyio.sleep(0.01)
        ended = await served.rpc.call("CancelTask", {"id": task["id"]})
        assert (state(ended), results(ended)) == ("CANCELED", ["greet"])
        with anyio.fail_after(10):
            await served.model.left.wait()
        assert served.tools.calls == [("greet", {"who": "Ada"})]


async def test_a_restart_while_a_model_is_asked_in_a_middle_round_asks_the_client(tmp_path: Path) -> None:
    async with rounds_desk(tmp_path, GREETS, waits(TRIPS), file=DURABLE) as served:
        task = await served.ask(configuration={"returnImmediately": True})
        while len(served.model.requests) < 2:
            await anyio.sleep(0.01)
    async with rounds_desk(tmp_path, says("not asked"), file=DURABLE) as served:
        while state(asks := await served.rpc.call("GetTask", {"id": task["id"]})) == "WORKING":
            await anyio.sleep(0.01)
        assert (state(asks), results(asks)) == ("INPUT_REQUIRED", ["greet"])
        assert "These calls were made before: greet (answered)" in words(asks)
        assert (served.model.requests, served.tools.calls) == ([], [])


async def test_a_confirmation_in_a_middle_round_holds_over_a_restart(tmp_path: Path) -> None:
    wipes = chooses("wipe", {"note": "a"})
    async with rounds_desk(tmp_path, GREETS, wipes, file=DURABLE) as served:
        task = await served.ask()
        assert state(task) == "AUTH_REQUIRED"
    async with rounds_desk(tmp_path, says("It is wiped."), file=DURABLE) as served:
        task = await served.on(task, {"text": "yes"})
        assert (state(task), results(task)) == ("COMPLETED", ["greet", "wipe", "It is wiped."])
        assert served.tools.calls == [("wipe", {"note": "a"})]
        assert ASKED["text"] in sent(served, 0)
        assert "Ada" in sent(served, 0)


@contextmanager
def asking_file(era: str) -> Iterator[str]:
    with asking_url(era) as url:
        yield FILE.replace('from = ["desk"]', 'from = ["desk", "form"]') + (
            f'\n[tool_servers.form]\nurl = "{url}"\n'
        )


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_question_of_a_tool_in_a_middle_round_is_asked_and_the_model_goes_on(
    tmp_path: Path, era: str
) -> None:
    with asking_file(era) as file:
        script = (GREETS, chooses("ask"), says("Bob was asked."))
        async with rounds_desk(tmp_path, *script, file=file) as served:
            task = await served.ask()
            assert (state(task), results(task)) == ("INPUT_REQUIRED", ["greet"])
            task = await served.on(task, {"data": {"name": "Bob"}})
            assert state(task) == "COMPLETED", task
            assert results(task)[-1] == "Bob was asked."
            assert len(task["artifacts"]) == 3
            assert "Bob" in sent(served, 2)


async def test_the_card_says_that_results_go_to_the_model(tmp_path: Path) -> None:
    async with rounds_desk(tmp_path, says("no")) as served:
        card = (await served.rpc.client.get(f"{served.rpc.url}/.well-known/agent-card.json")).json()
        assert "and the results of the calls that it makes then, are sent to" in card["description"]


async def test_each_call_has_an_intent_before_it_and_each_question_a_line(tmp_path: Path) -> None:
    file = FILE + '\n[audit]\nfile = "audit.jsonl"\nrequired = true\n'
    async with rounds_desk(tmp_path, GREETS, TRIPS, says("Done."), file=file) as served:
        task = await served.ask()
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text("utf-8").splitlines()]
    intents = [line for line in lines if line["event"] == "intent"]
    assert [line.get("skill") for line in intents] == [None, "greet", "trip"]
    assert [line.get("peer") for line in intents] == [None, "desk", "desk"]
    assert {line["task"] for line in intents[1:]} == {task["id"]}
    calls = [line for line in lines if line["event"] == "sent"]
    assert [(line["skill"], line["intent"]) for line in calls] == [
        (line["skill"], line["seq"]) for line in intents[1:]
    ]
    asked = [
        (line["outcome"], line.get("skill"), line["tokens"]) for line in lines if line["event"] == "model"
    ]
    assert asked == [("chosen", "greet", 100), ("chosen", "trip", 100), ("answered", None, 100)]


async def test_spans_and_metrics_have_the_choice_the_model_the_tokens_and_the_time(tmp_path: Path) -> None:
    with collecting() as collector:
        more = f'store = "memory:"\ntraces = "{collector.url}"\nmetrics = "127.0.0.1:0"'
        file = FILE.replace('store = "memory:"', more)
        async with rounds_desk(tmp_path, GREETS, chooses("nothing"), says("Done."), file=file) as served:
            await served.ask()
            lines = text_of(await served.bridge.telemetry.families()).decode().splitlines()
        spans = [span for span in collector.spans if span.name == "chat m-1"]
    names = ("gen_ai.tool.name", "mcp_a2a.outcome", "mcp_a2a.tokens")
    assert [tuple(span.attributes.get(name, "") for name in names) for span in spans] == [
        ("greet", "chosen", "100"),
        ("", "answered", "200"),
    ]
    assert {span.attributes["gen_ai.request.model"] for span in spans} == {"m-1"}
    assert {span.attributes["server.address"] for span in spans} == {served.model.url.removeprefix("http://")}
    assert len({span.trace for span in spans}) == 1
    values = dict(line.rsplit(" ", 1) for line in lines if "_model_" in line and not line.startswith("#"))
    took = "mcp_a2a_model_request_duration_seconds"
    for outcome in ("chosen", "answered"):
        assert float(values[f'{took}_count{{face="desk",outcome="{outcome}"}}']) == 1
        assert float(values[f'{took}_sum{{face="desk",outcome="{outcome}"}}']) > 0
    assert float(values['mcp_a2a_model_tokens_total{face="desk"}']) == 300
