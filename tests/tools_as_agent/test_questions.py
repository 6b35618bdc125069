"""Questions that a server asks during a call, end to end: an A2A client on one side, an asking server on the other.

Every test of both eras says the same of an elicitation/create on an open call (2025-11-25) and of an
InputRequiredResult (2026-07-28): to the client there is no difference.
"""

from __future__ import annotations

import json
from typing import Any, Final

import anyio
import pytest

from bridge.local.user_folders import state_folder
from bridge.mcp.client.known_servers import FILE_NAME, Fact, remembered_in
from tests.support.asking_bridge import (
    ANSWER,
    AT_ONCE,
    QUESTION,
    Asked,
    asking,
    given_up,
    keys_of,
    outcome,
    question_of,
    said,
    words_of,
)
from tests.support.drivers import shape_of, state_of
from tests.support.running import EXTENSION, call_part, message

both_eras = pytest.mark.parametrize("era", ["legacy", "modern"])
both_transports = pytest.mark.parametrize("http", [False, True], ids=["stdio", "http"])
DECLINED: Final = [{"action": "decline"}]

# One form


@pytest.mark.proves(
    "map-elicitation-form",
    "map-rounds",
    "map-answers",
    "a2a-11.7-input-closes",
    "mcp26-rounds-answered",
)
@both_transports
@both_eras
@pytest.mark.smoke("legacy-stdio", "modern-http")
async def test_a_form_is_asked_again_until_it_fits_and_then_goes_to_the_server(era: str, http: bool) -> None:
    async with asking(era, http=http) as client:
        async with client.stream("SendStreamingMessage", **message(call_part("ask"))) as events:
            seen = await events.rest()
        assert shape_of(seen) == ["task SUBMITTED", "statusUpdate WORKING", "statusUpdate INPUT_REQUIRED"]
        task = await client.get(seen[0]["task"]["id"])
        question = question_of(task)
        assert words_of(task).startswith("Who are you?\n- name (string, required)")
        assert question["schema"]["properties"]["age"] == {"type": "integer", "minimum": 0, "maximum": 150}
        assert task["status"]["message"]["metadata"] == {QUESTION: question["key"]}

        wrong = await client.answer_to(task, {"name": "A", "age": 200})
        assert state_of(wrong) == "INPUT_REQUIRED"
        assert [error["property"] for error in question_of(wrong)["errors"]] == ["name", "age"]
        assert words_of(wrong).startswith("That answer does not fit the form. ")

        done = await client.answer_to(task, {"name": "Ada", "age": 36.0})
        assert outcome(done).startswith("accept {")
        roles = [one["role"].removeprefix("ROLE_") for one in done["history"]]
        assert roles == ["USER", "AGENT", "USER", "AGENT", "USER"]
        (answer,) = await client.server_saw()
        assert answer == {"action": "accept", "content": {"name": "Ada", "age": 36, "color": "green"}}
        assert type(answer["content"]["age"]) is int


@pytest.mark.proves("map-refuse", "map-elicitation-form", "mcp-elicit-refusable")
@pytest.mark.parametrize("action", ["decline", "cancel"])
@both_eras
@pytest.mark.smoke("legacy-decline", "modern-cancel")
async def test_a_refusal_reaches_the_server_which_decides_how_the_call_ends(era: str, action: str) -> None:
    async with asking(era) as client:
        by_metadata = await client.refuse(await client.ask("ask"), action)
        by_shape = await client.answer_to(await client.ask("ask"), {"action": action})
        assert (outcome(by_metadata), outcome(by_shape)) == (action, action)
        assert await client.server_saw() == [{"action": action}] * 2


@pytest.mark.proves("map-answers", "map-refuse")
@pytest.mark.parametrize(("text", "sure"), [("no", False), ("yes", True)])
@both_eras
@pytest.mark.smoke("legacy-no-False", "modern-yes-True")
async def test_plain_text_is_the_value_of_the_only_field(era: str, text: str, sure: bool) -> None:
    async with asking(era) as client:
        assert outcome(await client.answer_to(await client.ask("ask-one"), text)).startswith("accept")
        assert await client.server_saw() == [{"action": "accept", "content": {"sure": sure}}]


@pytest.mark.proves("map-rounds", "map-elicitation-form", "mcp26-rounds-id")
@both_eras
async def test_a_call_may_ask_twice(era: str) -> None:
    async with asking(era) as client:
        first = await client.ask("ask-twice")
        second = await client.answer_to(first, "Ada")
        assert state_of(second) == "INPUT_REQUIRED"
        assert words_of(second).startswith("Your second, please")
        assert keys_of(first) != keys_of(second)
        assert outcome(await client.answer_to(second, "Byron")) == (
            'accept {"first": "Ada"}; accept {"second": "Byron"}'
        )
        assert outcome(await client.refuse(await client.ask("ask-twice"), "decline")) == "decline"


@pytest.mark.proves("map-answers")
@both_eras
async def test_a_client_that_knows_the_extension_fills_the_defaults_itself(era: str) -> None:
    async with asking(era) as plain:
        client = Asked(plain.client, plain.base_url, {"A2A-Extensions": EXTENSION})
        task = await client.ask("ask")
        (key,) = keys_of(task)
        block = task["status"]["message"]["parts"][1]["metadata"][f"{EXTENSION}/block"]
        assert block[key]["requestedSchema"] == question_of(task)["schema"]
        assert "metadata" not in (await plain.get(task["id"]))["status"]["message"]["parts"][1]
        await client.answer_to(task, {"action": "accept", "content": {"name": "Ada"}})
        assert await client.server_saw() == [{"action": "accept", "content": {"name": "Ada"}}]


@pytest.mark.proves("map-rounds")
async def test_a_call_goes_on_for_as_many_rounds_as_the_server_asks() -> None:
    async with asking("modern") as client:
        task = await client.ask("ask-again")
        task = await client.answer_to(task, {"color": "red"})
        assert words_of(task).startswith("Still missing: name")
        done = await client.answer_to(task, {"name": "Ada"})
        assert outcome(done) == 'accept {"color": "red"}; accept {"name": "Ada"}'


# URLs


@pytest.mark.proves(
    "map-elicitation-url",
    "a2a-7.6.1-auth-open",
    "a2a-7.6.1-auth-required",
    "a2a-7.6.1-out-of-band",
    "mcp-elicit-url-unopened",
)
@both_eras
async def test_a_url_is_auth_required_and_its_streams_stay_open(era: str) -> None:
    async with asking(era) as client:
        async with client.stream("SendStreamingMessage", **message(call_part("ask-url"))) as events:
            seen = await events.until("AUTH_REQUIRED")
            task = await client.get(seen[0]["task"]["id"])
            question = question_of(task)
            assert question["mode"] == "url"
            assert question["url"].startswith("https://example.com/connect?e=")
            assert ("elicitationId" in question) is (era == "legacy")
            assert "Open this address of example.com" in words_of(task)
            done = await client.answer_to(task, "done")
            rest = shape_of(await events.rest())
        assert rest == ["statusUpdate WORKING", "artifactUpdate", "statusUpdate COMPLETED"]
        assert outcome(done) == "accept"
        assert await client.server_saw() == [{"action": "accept"}]


@pytest.mark.proves("map-elicitation-url", "map-refuse", "mcp-elicit-refusable")
@pytest.mark.parametrize("action", ["decline", "cancel"])
@both_eras
@pytest.mark.smoke("legacy-decline", "modern-cancel")
async def test_a_url_can_be_refused(era: str, action: str) -> None:
    async with asking(era) as client:
        assert outcome(await client.refuse(await client.ask("ask-url"), action)) == action
        assert await client.server_saw() == [{"action": action}]


@pytest.mark.proves("map-elicitation-url")
async def test_a_url_may_be_asked_for_again() -> None:
    async with asking("modern") as client:
        task = await client.answer_to(await client.ask("ask-url", times=2), "done")
        assert state_of(task) == "AUTH_REQUIRED"
        assert outcome(await client.answer_to(task, "done")) == "accept; accept"


@pytest.mark.proves("map-elicitation-url")
@pytest.mark.parametrize("times", [1, 2])
async def test_a_call_that_was_refused_until_a_url_is_visited_is_made_again_then(times: int) -> None:
    async with asking("legacy") as client:
        task, urls = await client.ask("need-url", times=times), set()
        for _ in range(times):
            assert state_of(task) == "AUTH_REQUIRED"
            urls.add(question_of(task)["url"])
            task = await client.answer_to(task, "done")
        assert outcome(task) == "connected"
        assert len(urls) == times
        assert json.loads(await client.text("requests"))["tools/call"] == times + 2


@pytest.mark.proves("map-refuse", "map-elicitation-url")
@pytest.mark.parametrize(("action", "state"), [("decline", "REJECTED"), ("cancel", "CANCELED")])
async def test_a_call_that_waits_for_a_url_is_not_made_again_when_it_is_refused(
    action: str, state: str
) -> None:
    async with asking("legacy") as client:
        task = await client.refuse(await client.ask("need-url"), action)
        assert state_of(task) == state
        assert words_of(task)
        assert json.loads(await client.text("requests"))["tools/call"] == 2
        assert await client.server_saw() == []


# Several questions


@pytest.mark.proves("map-elicitation-both", "map-answers")
async def test_two_forms_on_one_open_call_are_one_question_and_answered_by_key() -> None:
    async with asking("legacy") as client:
        task = await both_open(client)
        first, second = keys_of(task)
        guess = await client.answer_to(task, "Ada")
        assert state_of(guess) == "INPUT_REQUIRED"
        assert "several forms are open" in words_of(guess)
        one_left = await client.answer_to(task, {second: {"second": "Byron"}})
        assert keys_of(one_left) == [first]
        assert (
            outcome(await client.answer_to(task, "Ada"))
            == 'accept {"first": "Ada"}; accept {"second": "Byron"}'
        )
        assert len(await client.server_saw()) == 2


async def both_open(client: Asked) -> Any:
    """A task of ask-both that shows both of its questions: they come as two requests."""
    async with client.stream("SendStreamingMessage", **message(call_part("ask-both"))) as events:
        task = (await events.rest())[0]["task"]
    with anyio.fail_after(15):
        while len(keys_of(found := await client.get(task["id"]))) < 2:
            await anyio.lowlevel.checkpoint()
    return found


@pytest.mark.proves("map-refuse")
async def test_a_refusal_without_a_key_refuses_both() -> None:
    async with asking("legacy") as client:
        assert outcome(await client.refuse(await both_open(client), "decline")) == "decline; decline"


@pytest.mark.proves("map-elicitation-both", "map-rounds", "mcp26-rounds-answered")
async def test_two_forms_of_one_round_go_back_together() -> None:
    async with asking("modern") as client:
        task = await client.ask("ask-two")
        assert keys_of(task) == ["first", "second"]
        one_left = await client.answer_to(task, "Ada", **{QUESTION: "first"})
        assert (state_of(one_left), keys_of(one_left)) == ("INPUT_REQUIRED", ["second"])
        assert await client.server_saw() == []
        assert (
            outcome(await client.answer_to(task, "Byron"))
            == 'accept {"first": "Ada"}; accept {"second": "Byron"}'
        )
        assert json.loads(await client.text("requests"))["tools/call"] == 4


@pytest.mark.proves("map-elicitation-both")
async def test_a_form_together_with_a_url_is_auth_required_and_both_are_answered_together() -> None:
    async with asking("modern") as client:
        task = await client.ask("ask-form-and-url")
        assert (state_of(task), keys_of(task)) == ("AUTH_REQUIRED", ["name", "connect"])
        wrong = await client.answer_to(task, {"name": 7})
        assert (state_of(wrong), keys_of(wrong)) == ("INPUT_REQUIRED", ["name"])
        assert "accept" in outcome(await client.answer_to(task, {"name": "Ada"}))
        assert await client.server_saw() == [
            {"action": "accept", "content": {"name": "Ada"}},
            {"action": "accept"},
        ]


# Rounds


@pytest.mark.proves("map-rounds", "mcp26-state-returned")
async def test_a_round_without_a_request_state_is_answered_without_one() -> None:
    async with asking("modern") as client:
        assert (
            outcome(await client.answer_to(await client.ask("ask-stateless"), "yes"))
            == 'accept {"sure": true}'
        )


@pytest.mark.proves("map-state-only")
async def test_a_server_that_sends_only_a_request_state_is_called_again_while_the_task_works() -> None:
    async with asking("modern") as client:
        async with client.stream(
            "SendStreamingMessage", **message(call_part("state-only", times=2))
        ) as events:
            shape = shape_of(await events.rest())
        assert shape == ["task SUBMITTED", "statusUpdate WORKING", "artifactUpdate", "statusUpdate COMPLETED"]
        assert json.loads(await client.text("requests"))["tools/call"] == 4


@pytest.mark.proves("map-state-only", "map-timeout")
async def test_a_server_that_sends_request_states_endlessly_is_given_up() -> None:
    async with asking("modern", run={"call_timeout_seconds": 0.4}) as client:
        task = await client.send(call_part("state-only", times=1_000_000))
        assert (state_of(task), words_of(task)) == (
            "FAILED",
            "The tool gave no answer in 0.4 s and was cancelled",
        )


@pytest.mark.proves("map-rounds")
async def test_a_refused_request_state_restarts_a_repeatable_call_without_asking_twice() -> None:
    async with asking("modern") as client:
        task = await client.ask("ask")
        await client.text("forget")
        done = await client.answer_to(task, {"name": "Ada"})
        assert outcome(done).startswith("accept {")
        assert await client.server_saw() == [
            {"action": "accept", "content": {"name": "Ada", "color": "green"}}
        ]


@pytest.mark.proves("restart-says-why-not")
@pytest.mark.parametrize("tool", ["ask-expired", "ask-unsafe"])
async def test_a_refused_request_state_fails_a_call_that_may_not_be_repeated(tool: str) -> None:
    async with asking("modern", "--expire") as client:
        task = await client.answer_to(await client.ask(tool), {"name": "Ada", "sure": True})
        assert state_of(task) == "FAILED"
        assert "requestState has expired" in words_of(task)
        assert "does not say that the tool can be repeated" in words_of(task)


@pytest.mark.proves("map-rounds")
async def test_a_server_that_always_refuses_its_request_state_is_given_up() -> None:
    async with asking("modern", "--expire") as client:
        task = await client.answer_to(await client.ask("ask"), {"name": "Ada"})
        assert state_of(task) == "FAILED"
        assert "not even when the call was made again from its start" in words_of(task)
        assert json.loads(await client.text("requests"))["tools/call"] == 5


# Beside questions


@pytest.mark.proves("map-progress")
@both_eras
async def test_progress_is_reported_before_and_after_a_question(era: str) -> None:
    async with asking(era) as client:
        async with client.stream("SendStreamingMessage", **message(call_part("ask-progress"))) as events:
            before = await events.rest()
        assert progress_in(before) == [1]
        task = before[0]["task"]
        async with client.watching(task) as events:
            await client.answer_to(task, "yes")
            assert progress_in(await events.rest()) == [2]


def progress_in(events: list[Any]) -> list[int]:
    """The numbers of the progress that a stream tells."""
    found = [
        event.get("statusUpdate", {}).get("metadata", {}).get(f"{EXTENSION}/progress") for event in events
    ]
    return [one["progress"] for one in found if one]


@pytest.mark.proves("map-progress", "map-elicitation-form")
async def test_progress_during_a_question_leaves_the_question_open() -> None:
    async with asking("legacy") as client:
        task = await client.ask("ask-noisy")
        assert state_of(await client.get(task["id"])) == "INPUT_REQUIRED"
        async with client.watching(task) as events:
            assert outcome(await client.answer_to(task, "yes")) == 'accept {"sure": true}'
            assert progress_in(await events.rest()) == [1]


@pytest.mark.proves("map-not-offered", "mcp25-negotiated")
@pytest.mark.parametrize("tool", ["sample", "roots"])
async def test_a_legacy_server_gets_an_error_for_a_capability_that_was_not_declared(tool: str) -> None:
    async with asking("legacy") as client:
        assert json.loads(await client.text(tool))["error"]["code"] in (-32600, -32601)


@pytest.mark.proves("map-not-offered")
@pytest.mark.parametrize("tool", ["sample", "roots"])
async def test_a_modern_server_that_uses_an_undeclared_capability_fails_the_call(tool: str) -> None:
    async with asking("modern") as client:
        task = await client.send(call_part(tool))
        assert state_of(task) == "FAILED"
        assert "which it was not offered" in words_of(task)


@pytest.mark.proves("map-withdrawn")
@both_transports
async def test_a_withdrawn_question_leaves_the_task_working(http: bool) -> None:
    async with asking("legacy", http=http) as client:
        task = await client.ask("ask-withdraw", seconds=0.5)
        async with client.watching(task) as events:
            rest = await events.rest()
        assert shape_of(rest) == ["statusUpdate WORKING", "artifactUpdate", "statusUpdate COMPLETED"]
        assert (
            words_of(rest[0]["statusUpdate"])
            == "The tool server withdrew its question before it was answered"
        )
        assert outcome(await client.get(task["id"])) == "went on without an answer"
        answered = await client.ask("ask-withdraw", seconds=60)
        assert outcome(await client.answer_to(answered, "Ada")) == 'accept {"name": "Ada"}'


# Streams and messages


@pytest.mark.proves("a2a-3.5.2-order")
@both_eras
async def test_two_streams_of_a_task_that_asks_see_the_same(era: str) -> None:
    async with asking(era) as client:
        task = await client.ask("ask-twice")
        async with client.watching(task) as one, client.watching(task) as other:
            await client.answer_to(task, "Ada")
            seen = [await one.rest(), await other.rest()]
        assert seen[0] == seen[1]
        assert shape_of(seen[0]) == ["statusUpdate WORKING", "statusUpdate INPUT_REQUIRED"]
        answer = message(*said("Byron"), taskId=task["id"])
        async with client.stream("SendStreamingMessage", **answer) as third:
            shape = shape_of(await third.rest())
        assert shape[0].startswith("task ")
        assert shape[-1] == "statusUpdate COMPLETED"


@pytest.mark.proves("a2a-held")
@both_eras
async def test_messages_to_a_task_that_never_asks_have_no_effect_and_the_end_says_so(era: str) -> None:
    async with asking(era) as client, client.working(call_part("wait")) as (task_id, _):
        held = await client.send(*said("hello?"), taskId=task_id)
        assert state_of(held) == "WORKING"
        await client.cancel(task_id)
        assert [one["parts"][0].get("text") for one in held["history"][1:]] == ["hello?"]


@pytest.mark.proves("a2a-held")
@both_eras
async def test_an_answer_that_arrives_just_before_its_question_counts(era: str) -> None:
    async with asking(era, server={"sessions": 1}, run={"concurrency": 1}) as client:
        first = await client.send(call_part("wait"), configuration=AT_ONCE)
        waits = await client.send(call_part("ask-one"), configuration=AT_ONCE)
        held = await client.answer_to(waits, {"sure": True})
        assert state_of(held) in ("SUBMITTED", "WORKING")
        async with client.watching(waits) as events:
            await client.cancel(first["id"])
            await events.rest()
        done = await client.get(waits["id"])
        assert outcome(done) == 'accept {"sure": true}'
        assert done["status"].get("message") is None


@pytest.mark.proves("a2a-held")
@both_eras
async def test_a_message_long_before_a_question_is_no_answer_and_the_question_says_so(era: str) -> None:
    async with asking(era, run={"concurrency": 1, "held_answer_seconds": 0}) as client:
        first = await client.send(call_part("wait"), configuration=AT_ONCE)
        waits = await client.send(call_part("ask-one"), configuration=AT_ONCE)
        await client.answer_to(waits, {"sure": False})
        async with client.watching(waits) as events:
            await client.cancel(first["id"])
            await events.until("INPUT_REQUIRED")
        asks = await client.get(waits["id"])
        assert "1 of the messages that arrived while this task worked" in words_of(asks)
        assert outcome(await client.answer_to(asks, {"sure": True})) == 'accept {"sure": true}'


@pytest.mark.proves("a2a-in-context")
@both_eras
async def test_a_message_that_names_only_the_context_answers_its_only_question(era: str) -> None:
    async with asking(era) as client:
        asks = await client.ask("ask")
        done = await client.send(*said({"name": "Ada"}), contextId=asks["contextId"])
        assert done["id"] == asks["id"]
        assert outcome(done).startswith('accept {"name": "Ada"')


@pytest.mark.proves("a2a-in-context")
@pytest.mark.parametrize(
    ("tool", "parts", "state"),
    [
        ("ask", ({"name": 7},), "INPUT_REQUIRED"),  # it does not fit
        ("ask", (call_part("echo", text="x")["data"],), "COMPLETED"),  # it names a skill
        ("ask-url", ("done",), "INPUT_REQUIRED"),  # an address is visited, not answered
    ],
)
async def test_a_message_that_may_not_be_an_answer_begins_a_new_task_that_names_the_waiting_task(
    tool: str, parts: tuple[Any, ...], state: str
) -> None:
    async with asking("modern") as client:
        asks = await client.ask(tool)
        other = await client.send(*said(*parts), contextId=asks["contextId"])
        assert (other["id"] != asks["id"], state_of(other)) == (True, state)
        is_named = f"task {asks['id']} still waits for an answer" in words_of(other)
        assert is_named == (state_of(asks) == "INPUT_REQUIRED")
        assert state_of(await client.get(asks["id"])) == state_of(asks)


@pytest.mark.proves("a2a-in-context", "map-answers")
@pytest.mark.parametrize(
    ("call", "text", "result"),
    [
        (call_part("ask-one"), "yes", 'accept {"sure": true}'),  # the server asks
        (call_part("add", a=1), "5", '{"sum": 6}'),  # an argument is asked for
    ],
)
async def test_one_of_several_texts_answers_only_if_the_message_names_the_task(
    call: Any, text: str, result: str
) -> None:
    async with asking("modern") as client:
        asks = await client.send(call)
        parts = said("For context: what another agent did", text)
        other = await client.send(*parts, contextId=asks["contextId"])
        assert other["id"] != asks["id"]
        assert await client.get(asks["id"]) == asks
        assert outcome(await client.send(*parts, taskId=asks["id"])) == result


@pytest.mark.proves("a2a-3.3.1-idempotent", "map-answers")
@both_eras
async def test_the_same_answer_sent_twice_answers_once(era: str) -> None:
    async with asking(era) as client:
        task = await client.ask("ask-twice")
        answer, answers = message(*said("Ada"), taskId=task["id"]), []

        async def send() -> None:
            answers.append((await client.call("SendMessage", **answer))["task"])

        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(send)
        answers.append((await client.call("SendMessage", **answer))["task"])
        assert {state_of(one) for one in answers} == {"INPUT_REQUIRED"}
        assert {words_of(one).splitlines()[0] for one in answers} == {"Your second, please"}
        await client.answer_to(task, "Byron")
        assert [one["content"] for one in await client.server_saw()] == [
            {"first": "Ada"},
            {"second": "Byron"},
        ]


@pytest.mark.proves("map-answers")
@both_eras
async def test_an_answer_to_a_question_that_is_not_open_changes_nothing(era: str) -> None:
    async with asking(era) as client:
        task = await client.ask("ask-one")
        wrong = message(*said("yes"), taskId=task["id"], metadata={QUESTION: "elicitation-of-yesterday"})
        fault = await client.refused("SendMessage", **wrong)
        assert fault.reason == "INVALID_PARAMS" or fault.code == -32602
        assert fault.fields == {f'message.metadata["{QUESTION}"]'}
        assert await client.get(task["id"]) == task
        assert "true" in outcome(await client.answer_to(task, "yes", **{QUESTION: keys_of(task)[0]}))
        assert await client.server_saw() == [{"action": "accept", "content": {"sure": True}}]


# Time


@pytest.mark.proves("map-input-timeout")
@both_transports
@pytest.mark.parametrize("tool", ["ask", "ask-url", "ask-both"])
@pytest.mark.smoke("ask-stdio", "ask-both-http")
async def test_a_question_of_an_open_call_times_out(tool: str, http: bool) -> None:
    async with asking("legacy", http=http, run={"input_timeout_seconds": 0.3}) as client:
        ended = await client.ended(await client.ask(tool))
        assert (state_of(ended), words_of(ended)) == ("FAILED", given_up(0.3))
        assert {str(answer) for answer in await client.server_saw()} == {str({"action": "cancel"})}
        await client.says("pending", "0")


@pytest.mark.proves("map-input-timeout")
@pytest.mark.parametrize(("era", "tool"), [("modern", "ask"), ("modern", "ask-url"), ("legacy", "need-url")])
async def test_a_question_between_rounds_times_out(era: str, tool: str) -> None:
    async with asking(era, run={"input_timeout_seconds": 0.3}) as client:
        ended = await client.ended(await client.ask(tool))
        words = "This agent's question was not answered within 0.3 s"
        assert (state_of(ended), words_of(ended)) == ("FAILED", words)


@pytest.mark.proves("map-asked-pause", "map-timeout")
@both_eras
async def test_the_deadline_of_a_call_is_paused_while_a_person_is_asked(era: str) -> None:
    """The question is answered only after two other calls have used up the whole time limit of a call."""
    async with asking(era, run={"call_timeout_seconds": 0.3}, server={"sessions": 2}) as client:
        task = await client.ask("ask-one")
        for _ in range(2):
            late = await client.send(call_part("wait"))
            assert words_of(late) == "The tool gave no answer in 0.3 s and was cancelled"
        assert outcome(await client.answer_to(task, "yes")) == 'accept {"sure": true}'


@pytest.mark.proves("map-timeout")
async def test_the_deadline_of_a_call_is_paused_while_it_waits_for_a_slot() -> None:
    run = {"concurrency": 1, "call_timeout_seconds": 0.2, "input_timeout_seconds": 0.6}
    async with asking("legacy", run=run) as client:
        first = await client.ask("ask-one")
        assert await client.text("echo", text="after that") == "after that"
        assert state_of(await client.get(first["id"])) == "FAILED"


@pytest.mark.proves("map-overload")
async def test_a_call_that_waits_too_long_for_a_slot_says_so() -> None:
    async with asking("legacy", run={"concurrency": 1, "queue_timeout_seconds": 0.1}) as client:
        holds = await client.ask("ask-one")
        task = await client.send(call_part("echo", text="never"))
        assert (state_of(task), words_of(task)) == (
            "REJECTED",
            "asking was busy for 0.1 s, so the call was given up",
        )
        assert "true" in outcome(await client.answer_to(holds, "yes"))


# Cancelling


@pytest.mark.proves("map-cancel", "mcp-elicit-refusable")
@both_transports
@pytest.mark.parametrize("tool", ["ask", "ask-url", "ask-both"])
@pytest.mark.smoke("ask-stdio", "ask-both-http")
async def test_a_cancelled_task_that_asks_leaves_no_question_on_the_server(tool: str, http: bool) -> None:
    async with asking("legacy", http=http) as client:
        # A question that is still on its way when its call is cancelled would be taken for one of the next call.
        task = await both_open(client) if tool == "ask-both" else await client.ask(tool)
        async with client.watching(task) as events:
            assert state_of(await client.cancel(task["id"])) == "CANCELED"
            assert shape_of(await events.rest())[-1] == "statusUpdate CANCELED"
        await client.says("pending", "0")
        await client.says("cancelled", "1")


@pytest.mark.proves("map-cancel")
@pytest.mark.parametrize(("era", "tool"), [("modern", "ask"), ("legacy", "need-url")])
async def test_a_task_that_asks_without_an_open_call_is_cancelled(era: str, tool: str) -> None:
    async with asking(era) as client:
        task = await client.ask(tool)
        assert state_of(await client.cancel(task["id"])) == "CANCELED"
        fault = await client.refused("SendMessage", **message(*said("done"), taskId=task["id"]))
        assert fault.reason == "UNSUPPORTED_OPERATION"


# A question that belongs to no call for certain


@pytest.mark.proves("mcp-serial")
async def test_a_question_that_any_of_several_calls_may_have_asked_is_not_answered_and_all_are_told() -> None:
    async with asking("legacy", server={"attribution_seconds": 0.05}) as client:
        async with client.working(call_part("wait")) as (waiting, _):
            asked = await client.send(call_part("ask-one"))
            assert state_of(asked) == "COMPLETED"
            assert "nothing says which of them this is for" in outcome(asked)
            told = asked["status"]["message"]
            assert told["metadata"] == {f"{EXTENSION}/unattributed": words_of(asked)}
            assert words_of(asked).startswith(
                "While 2 calls were running, the server asked a question that may"
            )
            assert (await client.cancel(waiting))["status"]["state"] == "TASK_STATE_CANCELED"
        assert [answer["code"] for answer in await client.server_saw()] == [-32603]
        later = await client.send(call_part("echo", text="plain"))
        assert (outcome(later), later["status"].get("message")) == ("plain", None)


@pytest.mark.proves("mcp-serial")
async def test_a_question_waits_for_the_other_calls_to_end_and_then_belongs_to_the_last_call() -> None:
    async with asking("legacy") as client, client.working(call_part("wait")) as (waiting, _):
        asks = await client.send(call_part("ask-one"), configuration=AT_ONCE)
        async with client.watching(asks) as events:
            await client.cancel(waiting)
            await events.until("INPUT_REQUIRED")
        done = await client.answer_to(asks, "yes")
        assert outcome(done) == 'accept {"sure": true}'
        assert done["status"].get("message") is None


@pytest.mark.proves("mcp-serial")
async def test_a_server_that_has_asked_once_runs_one_call_at_a_time_also_after_a_restart() -> None:
    async with asking("legacy") as client:
        await client.answer_to(await client.ask("ask-one"), "yes")
    (known,) = remembered_in(state_folder() / FILE_NAME)
    assert [fact for fact, value in known.facts.items() if value == "yes"] == [Fact.SERIAL]
    async with asking("legacy") as client, client.working(call_part("wait")) as (waiting, _):
        queued = await client.send(call_part("ask-one"), configuration=AT_ONCE)
        assert state_of(queued) == "SUBMITTED"
        async with client.watching(queued) as events:
            await client.cancel(waiting)
            await events.until("INPUT_REQUIRED")
        assert "true" in outcome(await client.answer_to(queued, "yes"))


@pytest.mark.proves("map-contended")
async def test_an_unanswered_question_is_withdrawn_for_the_waiting_calls() -> None:
    async with asking("legacy", server={"contended_question_seconds": 0.3}) as client:
        asks = await client.ask("ask-one")
        async with client.stream(
            "SendStreamingMessage", **message(call_part("echo", text="at last"))
        ) as events:
            seen = await events.rest()
        assert shape_of(seen) == [
            "task SUBMITTED",
            "statusUpdate SUBMITTED",
            "statusUpdate WORKING",
            "artifactUpdate",
            "statusUpdate COMPLETED",
        ]
        words = words_of(seen[1]["statusUpdate"])
        assert f"takes no other call while task {asks['id']} waits for an answer" in words
        gave_way = await client.ended(asks)
        assert (state_of(gave_way), words_of(gave_way)[:37]) == (
            "FAILED",
            "Other calls waited for this server, w",
        )
        assert await client.server_saw() == [{"action": "cancel"}]


@pytest.mark.proves("map-contended")
async def test_readyz_names_the_task_that_blocks_a_server() -> None:
    async with asking("legacy") as client:
        asks = await client.ask("ask-one")
        async with client.watching(await client.send(call_part("echo", text="x"), configuration=AT_ONCE)):
            assert client.bridge is not None
            ready = (await client.client.get(f"{client.bridge.root_url}/readyz")).json()
            (server,) = next(iter(ready["agents"].values()))["servers"].values()
            assert server["held"][0]["task"] == asks["id"]
            assert 0 < server["held"][0]["withdrawnInSeconds"] <= 120
            assert server["waiting"] == 1
            assert "the question may be withdrawn" in words_of(await client.get(asks["id"]))
            assert "answer it or cancel it" in server["help"]
            await client.cancel(asks["id"])


@pytest.mark.proves("map-rounds", "mcp26-rounds-apart")
async def test_questions_of_concurrent_calls_are_never_mixed_up() -> None:
    """A round names the call that it belongs to."""
    async with asking("modern") as client:
        tasks = [await client.ask("ask-twice") for _ in range(4)]
        for number, task in enumerate(tasks):
            await client.answer_to(task, f"first {number}")
        for number, task in reversed([*enumerate(tasks)]):
            done = await client.answer_to(task, f"second {number}")
            assert outcome(done) == (
                f'accept {{"first": "first {number}"}}; accept {{"second": "second {number}"}}'
            )


@pytest.mark.proves("map-refuse")
async def test_metadata_refuses_although_the_parts_would_fill_the_form() -> None:
    async with asking("modern") as client:
        done = await client.answer_to(await client.ask("ask"), {"name": "Ada"}, **{ANSWER: "decline"})
        assert outcome(done) == "decline"
        assert await client.server_saw() == DECLINED


@pytest.mark.proves("map-ask-again")
@both_eras
async def test_a_question_is_not_asked_again_after_three_answers_that_do_not_fit(era: str) -> None:
    async with asking(era) as client:
        task = await client.ask("ask")
        for _ in range(2):
            task = await client.answer_to(task, {"name": 7})
            assert state_of(task) == "INPUT_REQUIRED"
        task = await client.answer_to(task, {"name": 7})
        assert state_of(task) == "FAILED"
        assert "not asked again after 3 answers that do not fit" in words_of(task)
        assert await client.server_saw() == ([{"action": "cancel"}] if era == "legacy" else [])


@pytest.mark.proves("map-ask-again")
async def test_how_often_a_question_is_asked_again_is_configured() -> None:
    async with asking("modern", run={"answer_tries": 1}) as client:
        task = await client.answer_to(await client.ask("ask"), {"name": 7})
        assert state_of(task) == "FAILED"


@pytest.mark.proves("map-ask-again")
async def test_arguments_are_not_asked_for_again_after_three_answers_that_do_not_fit() -> None:
    async with asking("modern") as client:
        task = await client.send(call_part("add", a=1))
        for _ in range(2):
            task = await client.answer_to(task, {"b": "much"})
            assert state_of(task) == "INPUT_REQUIRED"
        task = await client.answer_to(task, {"b": "much"})
        assert state_of(task) == "REJECTED"
        assert "not asked again after 3 answers that do not fit" in words_of(task)


@pytest.mark.proves("map-ask-again")
async def test_an_answer_that_corrects_something_does_not_count_as_a_try() -> None:
    async with asking("modern", run={"answer_tries": 1}) as client:
        task = await client.send(call_part("add"))
        task = await client.answer_to(task, {"a": 1})
        assert state_of(task) == "INPUT_REQUIRED"
        assert outcome(await client.answer_to(task, {"b": 2})) == '{"sum": 3}'
