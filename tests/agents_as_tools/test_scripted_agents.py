"""Agents that send what no available library sends, exposed to the official MCP client, in both eras."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client

from tests.support.exposing import answering, exposing
from tests.support.running import EXTENSION
from tests.support.scripted_agent import Json, Script, scripted_agent

pytestmark = pytest.mark.smoke("*auto*")

each_mode = pytest.mark.parametrize("mode", ["auto", "legacy"])
WAIT_SECONDS = 20


@asynccontextmanager
async def hosted(
    folder: Path, script: Script, card: Json | None = None, *, mode: str = "auto", callback: Any = None
) -> AsyncIterator[Client]:
    """A client of the face of an agent that follows a script."""
    with anyio.fail_after(WAIT_SECONDS):
        async with (
            scripted_agent(script, card) as url,
            exposing(folder, url) as there,
            there.client(mode, elicitation_callback=callback) as client,
        ):
            yield client


def words(result: Any) -> list[str]:
    """The texts of a result."""
    return [block.text for block in result.content]


def task(state: str, message: Json | None = None, **more: Any) -> Json:
    """A task as the wire has it."""
    said = {"message": message} if message else {}
    return {"id": "t-1", "contextId": "c-1", "status": {"state": f"TASK_STATE_{state}", **said}, **more}


def says(message_id: str, *parts: Json) -> Json:
    """A message of the agent."""
    return {"messageId": message_id, "role": "ROLE_AGENT", "parts": [*parts]}


class TwiceTheSame:
    """Asks the same under the same key twice, and then says how many messages it was sent."""

    def __init__(self) -> None:
        self.sent: list[Json] = []

    def __call__(self, method: str, params: Json) -> list[Json]:
        if method != "GetTask":
            self.sent.append(params["message"])
        state = task("COMPLETED", says("done", {"text": f"{len(self.sent)} messages"}))
        if len(self.sent) < 3:
            form = {"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"]}
            asked = says(f"q-{len(self.sent)}", {"text": "Sure?"}, {"data": {"key": "sure", "schema": form}})
            state = task("INPUT_REQUIRED", asked)
        return [state if method == "GetTask" else {"task": state}]


@pytest.mark.proves("map-ask-back-once")
@each_mode
async def test_the_same_question_asked_twice_is_answered_twice(mode: str, tmp_path: Path) -> None:
    yes = types.ElicitResult(action="accept", content={"sure": True})
    agent = TwiceTheSame()
    async with hosted(tmp_path, agent, mode=mode, callback=answering(yes, yes)) as client:
        assert words(await client.call_tool("act", {"message": "go"}))[0] == "3 messages"
    assert len({message["messageId"] for message in agent.sent}) == 3


@pytest.mark.proves("map-ask-back-once", "mcp26-state-once")
async def test_a_repeated_answer_answers_no_later_question(tmp_path: Path) -> None:
    agent = TwiceTheSame()
    async with hosted(tmp_path, agent, callback=answering()) as client:

        async def call(after: Any = None) -> Any:
            again: dict[str, Any] = {}
            if after is not None:
                (key,) = after.input_requests
                yes = types.ElicitResult(action="accept", content={"sure": True})
                again = {"request_state": after.request_state, "input_responses": {key: yes}}
            return await client.session.call_tool(
                "act", {"message": "go"}, allow_input_required=True, **again
            )

        first = await call()
        second, replayed = await call(first), await call(first)
        assert second.input_requests == replayed.input_requests
        assert first.input_requests.keys() == second.input_requests.keys() == {"sure"}, "the agent's own key"
        assert words(await call(replayed))[0] == "3 messages"


@pytest.mark.proves("map-agent-told")
@each_mode
async def test_an_agent_that_begins_a_new_context_each_time_gets_no_hint_to_continue(
    mode: str, tmp_path: Path
) -> None:
    """Until the agent continues a conversation."""
    contexts = iter(("c-1", "c-2", "c-3", "c-3", "c-4"))

    def script(method: str, params: Json) -> list[Json]:
        return [{"task": {**task("COMPLETED", says("m", {"text": "ok"})), "contextId": next(contexts)}}]

    async with hosted(tmp_path, script, mode=mode) as client:

        async def call(**more: Any) -> tuple[str, Any]:
            done = await client.call_tool("act", {"message": "go", **more})
            ok, *hint = words(done)
            assert ok == "ok"
            return "".join(hint)[:32], (done.meta or {})["mcp-a2a/context"]

        first, context = await call()
        again, _ = await call(context=context)
        third, context = await call()
        kept, _ = await call(context=context)
        last, _ = await call()
    go_on = "(To go on with this conversation"
    assert [first, again, third, kept, last] == [go_on, "(The agent did not go on with th", "", go_on, go_on]


def streamed(*updates: Json) -> list[Json]:
    """The events of a task, from its beginning on."""
    about = {"taskId": "t-1", "contextId": "c-1"}
    return [
        {"task": task("SUBMITTED")},
        *({kind: {**about, **one}} for update in updates for kind, one in update.items()),
    ]


def turns_to(state: str, **more: Any) -> Json:
    """A status update."""
    return {"statusUpdate": {"status": task(state, **more)["status"]}}


@pytest.mark.proves("map-heard")
@each_mode
async def test_artifacts_that_an_agent_stores_but_does_not_stream_are_the_result(
    mode: str, tmp_path: Path
) -> None:
    """The worker of fasta2a 2.1.1 writes what it gives into its storage; the stream only says that it has ended."""
    artifact = {"artifactId": "a-1", "parts": [{"text": "Hello, Ada"}]}

    def script(method: str, _: Json) -> list[Json]:
        kept = task("COMPLETED", artifacts=[artifact], history=[says("m-1", {"text": "Hello, Ada"})])
        kept["status"]["timestamp"] = "2026-11-22T12:43:31.628169"
        return [kept] if method == "GetTask" else streamed(turns_to("COMPLETED"))

    async with hosted(tmp_path, script, mode=mode) as client:
        assert words(await client.call_tool("act", {"message": "hi"}))[:-1] == ["Hello, Ada"]


@pytest.mark.proves("map-heard")
@each_mode
async def test_a_task_that_ended_in_a_stream_has_ended_even_if_a_read_says_otherwise(
    mode: str, tmp_path: Path
) -> None:
    def script(method: str, _: Json) -> list[Json]:
        return [task("WORKING")] if method == "GetTask" else streamed(turns_to("COMPLETED"))

    async with hosted(tmp_path, script, mode=mode) as client:
        result = await client.call_tool("act", {"message": "hi"})
        assert (result.is_error, len(result.content)) == (False, 1)


@pytest.mark.proves("a2a-3.7-unreliable", "map-result")
@each_mode
async def test_a_message_that_an_agent_streamed_but_did_not_store_is_the_result(
    mode: str, tmp_path: Path
) -> None:
    def script(method: str, _: Json) -> list[Json]:
        said = [
            turns_to("WORKING", message=says(f"m-{words}", {"text": words})) for words in ("Hello,", "Ada")
        ]
        return [task("COMPLETED")] if method == "GetTask" else streamed(*said, turns_to("COMPLETED"))

    async with hosted(tmp_path, script, mode=mode) as client:
        assert words(await client.call_tool("act", {"message": "hi"}))[:-1] == ["Hello,", "Ada"]


class LangGraph:
    """Two interrupts in a row, as langgraph-api 0.16.7 tells of them: each in an artifact that only the stream or
    the answer to a message gives, with a status that says no more than that the task waits."""

    def __init__(self) -> None:
        self.answers: list[Json] = []

    def __call__(self, method: str, params: Json) -> list[Json]:
        if method != "GetTask":
            self.answers.append(params["message"])
        return [self._waiting("166527")] if method == "GetTask" else self._turn()

    def _turn(self) -> list[Json]:
        words = [message["parts"][0]["text"] for message in self.answers]
        values: list[Any] = ["What is your name?", {"question": "Which colour?", "options": ["red", "blue"]}]
        if len(words) > len(values):
            given = {
                "artifactId": "a-9",
                "name": "Assistant Response",
                "parts": [{"kind": "text", "text": str(words[1:])}],
            }
            return streamed({"artifactUpdate": {"artifact": given}}, turns_to("COMPLETED"))
        data = {"id": f"5632281b{len(words)}", "value": values[len(words) - 1]}
        asked = {
            "artifactId": f"a-{len(words)}",
            "name": "Interrupt",
            "parts": [{"kind": "data", "data": data}],
        }
        update = {"status": self._waiting("168401")["status"], "final": True}
        return streamed({"artifactUpdate": {"artifact": asked}}, {"statusUpdate": update})

    def _waiting(self, microseconds: str) -> Json:
        waiting = task("INPUT_REQUIRED", kind="task")
        since = f"2026-11-22T12:44:{len(self.answers):02d}.{microseconds}+00:00"
        return {**waiting, "status": {**waiting["status"], "timestamp": since}}


@pytest.mark.proves("map-ask-back-schema")
@each_mode
async def test_a_question_in_an_artifact_is_asked_and_answered(mode: str, tmp_path: Path) -> None:
    answers = answering(
        *(types.ElicitResult(action="accept", content={"answer": words}) for words in ("Ada", "red"))
    )
    agent = LangGraph()
    async with hosted(tmp_path, agent, mode=mode, callback=answers) as client:
        result = await client.call_tool("act", {"message": "hi"})
    assert words(result)[:-1] == ["['Ada', 'red']"]
    assert [one.message for one in answers.seen] == [
        "What is your name?",
        'The agent asks for more information\n{"question": "Which colour?", "options": ["red", "blue"]}',
    ]
    assert [one.get("taskId") for one in agent.answers] == [None, "t-1", "t-1"]


@pytest.mark.proves("map-ask-back")
@each_mode
async def test_a_question_in_an_artifact_is_shown_to_a_host_that_cannot_be_asked(
    mode: str, tmp_path: Path
) -> None:
    async with hosted(tmp_path, LangGraph(), mode=mode) as client:
        asked = words(await client.call_tool("act", {"message": "hi"}))[0]
        assert asked.startswith("What is your name?\n\nTo answer, call task_reply with this handle: ")
        replied = await client.call_tool("task_reply", {"handle": asked.split()[-1], "message": "Ada"})
        assert '"Which colour?"' in words(replied)[0]


@pytest.mark.proves("map-ask-back-once")
async def test_a_repeated_answer_while_the_agent_works_waits_for_the_task(tmp_path: Path) -> None:
    states = ["INPUT_REQUIRED", "WORKING", "COMPLETED"]

    def script(method: str, _: Json) -> list[Json]:
        state = task(states[0])
        if len(states) > 1:
            states.pop(0)
        return [state if method in ("GetTask", "SubscribeToTask") else {"task": state}]

    card = {"capabilities": {}}
    async with hosted(tmp_path, script, card, callback=answering()) as client:
        asked: Any = await client.session.call_tool("act", {"message": "go"}, allow_input_required=True)
        (key,) = asked.input_requests
        yes = types.ElicitResult(action="accept", content={"answer": "yes"})
        done = await client.session.call_tool(
            "act", {"message": "go"}, request_state=asked.request_state, input_responses={key: yes}
        )
        assert not done.is_error


@pytest.mark.proves("map-ask-back")
@each_mode
async def test_a_question_of_a_tool_with_an_output_schema_begins_with_the_next_step(
    mode: str, tmp_path: Path
) -> None:
    def script(_: str, __: Json) -> list[Json]:
        return [{"task": task("INPUT_REQUIRED", says("q-1", {"text": "Which colour?"}))}]

    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    tool = {"name": "act", "inputSchema": {"type": "object"}, "outputSchema": schema}
    extension = {"uri": EXTENSION, "params": {"tools": {"act": tool}}}
    card = {"capabilities": {"streaming": True, "extensions": [extension]}}
    async with hosted(tmp_path, script, card, mode=mode) as client:
        (listed, *_) = (await client.list_tools()).tools
        assert listed.output_schema == schema
        asked = await client.call_tool("act", {})
        assert asked.is_error
        unfinished = (asked.meta or {})["mcp-a2a/unfinished"]
        assert (unfinished["state"], unfinished["tool"]) == ("TASK_STATE_INPUT_REQUIRED", "task_reply")
        assert words(asked) == [
            f"Not finished: call task_reply with handle {unfinished['handle']} to answer. This is not a failure: the"
            " call just has no result yet.\n\nWhich colour?"
        ]


@pytest.mark.proves("map-ask-back-once")
@each_mode
async def test_a_late_answer_gets_the_result_of_the_ended_task(mode: str, tmp_path: Path) -> None:
    asked, ended = (
        task("INPUT_REQUIRED", says("q-1", {"text": "Sure?"})),
        task("FAILED", says("e-1", {"text": "Too late"})),
    )
    answered = []

    def script(method: str, params: Json) -> list[Json]:
        if method == "GetTask":
            # The task is still open when the answer sets out.
            return [ended if answered else asked]
        if "taskId" not in params["message"]:
            return [{"task": asked}]
        answered.append(params["message"])
        return [{"error": {"code": -32004, "message": "The task has ended"}}]

    yes = types.ElicitResult(action="accept", content={"answer": "yes"})
    async with hosted(tmp_path, script, mode=mode, callback=answering(yes)) as client:
        result = await client.call_tool("act", {"message": "go"})
    assert result.is_error
    assert words(result)[:2] == ["Too late", "[The agent's task failed]"]
    assert len(answered) == 1


@pytest.mark.proves("map-peer-fault")
@each_mode
async def test_an_answer_that_an_open_task_refuses_is_an_error(mode: str, tmp_path: Path) -> None:
    asked = task("INPUT_REQUIRED", says("q-1", {"text": "Sure?"}))

    def script(method: str, params: Json) -> list[Json]:
        if method != "GetTask" and "taskId" in params["message"]:
            return [{"error": {"code": -32602, "message": "Say it nicely"}}]
        return [asked if method == "GetTask" else {"task": asked}]

    yes = types.ElicitResult(action="accept", content={"answer": "yes"})
    async with hosted(tmp_path, script, mode=mode, callback=answering(yes)) as client:
        result = await client.call_tool("act", {"message": "go"})
    assert result.is_error
    assert "Say it nicely" in words(result)[0]
