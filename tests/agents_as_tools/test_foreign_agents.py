"""Agents built with the official Python SDK, exposed to the official MCP client: everything that agents do, in both
eras."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client

from bridge.config.tables.profile import load_profile
from bridge.http.request_checks import FaceAddress
from bridge.translate.tool_names import slug
from tests.peers import sdk_behaviours as told
from tests.support.exposing import ExposeConfig, Exposed, answering, exposed, exposing
from tests.support.foreign import Foreign, foreign_agent
from tests.support.principals import WAYS, Knowing
from tests.support.running import listening

# The eras of MCP differ below the tools: what hosts of the older era get otherwise has cases of its own.
pytestmark = pytest.mark.smoke("*auto*")

each_mode = pytest.mark.parametrize("mode", ["auto", "legacy"])
each_way = pytest.mark.parametrize("streaming", [True, False], ids=["streams", "polls"])
WAIT_SECONDS = 20
FAILED, REJECTED, CANCELED = (f"TASK_STATE_{state}" for state in ("FAILED", "REJECTED", "CANCELED"))


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


RESULTS: list[tuple[str, list[dict[str, Any]], str | None]] = [
    ("plain", [text("You said: hi")], None),
    ("message_only", [text("Just so: hi")], None),
    ("chunks", [text("".join(told.CHUNKS))], None),
    ("data", [text("DATA")], None),
    ("quiet", [text("Nothing to show, all done")], None),
    ("on_the_way", [text("First half"), text("Second half")], None),
    ("progress", [text("Done in three")], None),
    ("fail", [text("Out of paper"), text("[The agent's task failed]"), text("Half of it")], FAILED),
    ("reject", [text("Not my job"), text("[The agent rejected the task]")], REJECTED),
    ("give_up", [text("I gave up"), text("[The agent's task was canceled]")], CANCELED),
    (
        "file",
        [
            {"type": "resource", "resource": {"mimeType": "text/csv", "blob": b64(told.CSV)}},
            {"type": "image", "mimeType": "image/png", "data": b64(told.PNG)},
            {
                "type": "resource_link",
                "uri": told.REPORT_URL,
                "name": "report.pdf",
                "mimeType": "application/pdf",
            },
        ],
        None,
    ),
]
"""What each skill gives: its content, and the state that a failure names."""


def blocks(result: types.CallToolResult) -> list[dict[str, Any]]:
    """The content of a result without `_meta`, and without the words that give its context, which all but canceled
    tasks have; data as such, and links of ours without their handle."""
    shown, content = [], result.content
    if context := (result.meta or {}).get("mcp-a2a/context"):
        *others, last = content
        hint = f"(To go on with this conversation, give context: {context})"
        is_told = isinstance(last, types.TextContent) and last.text == hint
        assert is_told == ((result.meta or {}).get("mcp-a2a/state") != CANCELED)
        content = others if is_told else content
    for block in content:
        one = block.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"meta"})
        if ((block.meta or {}).get("mcp-a2a/part") or {}).get("kind") == "data":
            assert json.loads(one["text"]) == told.DATA
            one["text"] = "DATA"
        if "resource" in one:
            assert one["resource"].pop("uri").startswith("a2a://behaviours/tasks/")
            one["resource"].pop("_meta", None)
        shown.append(one)
    return shown


def words(result: types.CallToolResult) -> str:
    """The text of a result."""
    return "\n".join(block.text for block in result.content if isinstance(block, types.TextContent))


def handle_in(result: types.CallToolResult) -> str:
    """The handle at the end of a result's words."""
    found = re.search(r"with this handle: (\S+)", words(result))
    assert found, words(result)
    return found[1]


@asynccontextmanager
async def hosted(
    folder: Path, mode: str, *, streaming: bool = True, callback: Any = None, **agents: Any
) -> AsyncIterator[tuple[Foreign, Client]]:
    """The agent, and a client of its face."""
    async with (
        foreign_agent(streaming=streaming) as agent,
        exposing(folder, agent.url, **agents) as there,
        there.client(mode, elicitation_callback=callback) as client,
    ):
        with anyio.fail_after(WAIT_SECONDS):
            yield agent, client


@pytest.mark.proves("map-result")
@each_way
@each_mode
@pytest.mark.smoke("*")
async def test_the_output_of_each_skill_becomes_the_result(
    mode: str, streaming: bool, tmp_path: Path
) -> None:
    async with hosted(tmp_path, mode, streaming=streaming) as (agent, client):
        listed = {tool.name for tool in (await client.list_tools()).tools}
        assert listed == {slug(skill) for skill in told.SKILLS} | {"task_result", "task_reply", "task_cancel"}
        for skill, content, state in RESULTS:
            result = await client.call_tool(skill, {"message": "hi"})
            if skill == "chunks" and not streaming:  # nobody who reads the task can tell that they are one
                content = [text(chunk) for chunk in told.CHUNKS]
            assert (blocks(result), bool(result.is_error)) == (content, state is not None), skill
            assert (result.meta or {}).get("mcp-a2a/state") == state, skill
        assert [said["metadata"]["skillId"].replace("-", "_") for said in agent.seen.said] == [
            skill for skill, _, _ in RESULTS
        ]


@pytest.mark.proves("map-task-progress")
@each_mode
async def test_an_agents_status_messages_are_progress(mode: str, tmp_path: Path) -> None:
    seen: list[tuple[Any, ...]] = []

    async def see(*progress: Any) -> None:
        seen.append(progress)

    async with hosted(tmp_path, mode) as (_, client):
        await client.call_tool("progress", {"message": "go"}, progress_callback=see)
        assert [one[2] for one in seen] == [*told.STEPS, "answer is coming in"]
        assert [one[0] for one in seen] == [1, 2, 3, 4]
        seen.clear()
        await client.call_tool("fail", {"message": "go"}, progress_callback=see)
        await client.call_tool("ask", {"message": "go"}, progress_callback=see)
        # What it says when it fails or asks is the result, and no progress.
        assert [one[2] for one in seen] == ["answer is coming in"]


@pytest.mark.proves("map-call-message")
@each_mode
async def test_data_files_and_the_context_reach_the_agent(mode: str, tmp_path: Path) -> None:
    async with hosted(tmp_path, mode) as (agent, client):
        first = await client.call_tool("plain", {"message": "one", "data": {"n": 1}})
        file = {"name": "a.csv", "mediaType": "text/csv", "base64": b64(told.CSV)}
        context = (first.meta or {})["mcp-a2a/context"]
        again = {"message": "two", "files": [file], "context": context}
        assert not (await client.call_tool("chunks", again)).is_error
        before, after = agent.seen.said
        assert before["parts"] == [{"text": "one"}, {"data": {"n": 1}, "mediaType": "application/json"}]
        raw = {"raw": b64(told.CSV), "filename": "a.csv", "mediaType": "text/csv"}
        assert after["parts"] == [{"text": "two"}, raw]
        assert after["contextId"] == before["contextId"]
        assert after["referenceTaskIds"] == agent.seen.tasks[:1]


@pytest.mark.proves("map-overrides")
@each_mode
async def test_the_hint_on_how_to_continue_a_conversation_can_be_turned_off(
    mode: str, tmp_path: Path
) -> None:
    async with hosted(tmp_path, mode, context_hint=False) as (agent, client):
        first = await client.call_tool("plain", {"message": "one"})
        assert words(first) == "You said: one"
        context = (first.meta or {})["mcp-a2a/context"]
        await client.call_tool("plain", {"message": "two", "context": context})
        before, after = agent.seen.said
        assert after["contextId"] == before["contextId"]


# Questions


@pytest.mark.proves("map-ask-back")
@each_way
@each_mode
@pytest.mark.smoke("*")
async def test_a_client_with_elicitation_is_asked_twice(mode: str, streaming: bool, tmp_path: Path) -> None:
    answers = answering(
        types.ElicitResult(action="accept", content={"answer": "red"}),
        types.ElicitResult(action="accept", content={"count": 3, "gift": True}),
    )
    async with hosted(tmp_path, mode, streaming=streaming, callback=answers) as (agent, client):
        result = await client.call_tool("ask", {"message": "order"})
        assert blocks(result) == [text("Ordered 3.0")]
        assert [one.message for one in answers.seen] == ["Which colour?", "How many in red?"]
        fields = answers.seen[1].requested_schema["properties"]
        assert fields.keys() == told.COUNT_FORM["properties"].keys()
        first, *others = agent.seen.said
        assert [said["taskId"] for said in others] == [first["taskId"]] * 2
        assert others[0]["parts"] == [{"text": "red"}]
        assert others[1]["parts"][0]["data"] == {"count": 3, "gift": True}


@pytest.mark.proves("map-ask-back-no", "mcp-elicit-outcome")
@each_mode
@pytest.mark.parametrize("action", ["decline", "cancel"])
@pytest.mark.parametrize("at", [0, 1])
async def test_a_refusal_cancels_the_agents_task(at: int, action: Any, mode: str, tmp_path: Path) -> None:
    accepted = types.ElicitResult(action="accept", content={"answer": "red"})
    answers = answering(*[accepted] * at, types.ElicitResult(action=action))
    async with hosted(tmp_path, mode, callback=answers) as (agent, client):
        result = await client.call_tool("ask", {"message": "order"})
        assert result.is_error
        assert (result.meta or {})["mcp-a2a/state"] == "TASK_STATE_CANCELED"
        assert words(result).startswith("The person ")
        assert len(agent.seen.said) == at + 1
        assert agent.seen.canceled == agent.seen.tasks[:1]


@pytest.mark.proves("map-ask-back")
@each_way
@each_mode
async def test_a_client_without_elicitation_answers_with_the_follow_up_tools(
    mode: str, streaming: bool, tmp_path: Path
) -> None:
    async with hosted(tmp_path, mode, streaming=streaming) as (agent, client):
        asked = await client.call_tool("ask", {"message": "order"})
        assert not asked.is_error
        assert words(asked).startswith("Which colour?")
        handle = handle_in(asked)
        again = await client.call_tool("task_result", {"handle": handle, "wait_seconds": 0})
        assert "Which colour?" in words(again)
        second = await client.call_tool("task_reply", {"handle": handle, "message": "blue"})
        assert "How many in blue?" in words(second)
        done = await client.call_tool(
            "task_reply", {"handle": handle, "message": "four", "data": {"count": 4}}
        )
        assert blocks(done) == [text("Ordered 4.0")]
        assert agent.seen.canceled == []
        late = await client.call_tool("task_reply", {"handle": handle, "message": "five"})
        assert late.is_error


@pytest.mark.proves("map-ask-back", "mcp-elicit-outcome")
@pytest.mark.parametrize("code", [types.METHOD_NOT_FOUND, types.INTERNAL_ERROR])
@pytest.mark.parametrize(
    ("skill", "asks", "goes_on"),
    [
        ("ask", "Which colour?", "How many in blue?"),
        ("sign_in_and_say", "Please sign in", "Not signed in: blue"),
    ],
)
@pytest.mark.smoke("*")
async def test_a_host_that_wrongly_declares_elicitation_gets_words_and_a_handle(
    skill: str, asks: str, goes_on: str, code: int, tmp_path: Path
) -> None:
    async def refuse(*_: Any) -> types.ErrorData:
        return types.ErrorData(code=code, message="Method not found")

    async with hosted(tmp_path, "legacy", callback=refuse) as (agent, client):
        asked = await client.call_tool(skill, {"message": "order"})
        assert not asked.is_error
        assert words(asked).startswith(asks)
        answered = await client.call_tool("task_reply", {"handle": handle_in(asked), "message": "blue"})
        assert words(answered).startswith(goes_on)
        assert [said["taskId"] for said in agent.seen.said] == agent.seen.tasks * 2


@pytest.mark.proves("map-ask-back-url", "mcp-elicit-secrets")
@each_way
@each_mode
async def test_a_user_who_has_to_sign_in_is_sent_to_the_url(
    mode: str, streaming: bool, tmp_path: Path
) -> None:
    seen = []
    async with foreign_agent(streaming=streaming) as agent:

        async def visit(_: Any, params: Any) -> types.ElicitResult:
            seen.append(params)
            agent.seen.visited.set()
            return types.ElicitResult(action="accept")

        async with (
            exposing(tmp_path, agent.url) as there,
            there.client(mode, elicitation_callback=visit) as client,
        ):
            with anyio.fail_after(WAIT_SECONDS):
                result = await client.call_tool("sign_in", {"message": "go"})
        assert blocks(result) == [text("Signed in")]
        assert [(one.url, one.message) for one in seen] == [(told.SIGN_IN_URL, "Please sign in")]
        assert len(agent.seen.said) == 1


@pytest.mark.proves("map-ask-back-url", "mcp-elicit-outcome")
@each_mode
@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_user_who_does_not_sign_in_ends_the_task(action: Any, mode: str, tmp_path: Path) -> None:
    answers = answering(types.ElicitResult(action=action))
    async with hosted(tmp_path, mode, callback=answers) as (agent, client):
        result = await client.call_tool("sign_in_and_say", {"message": "go"})
        assert result.is_error
        assert words(result).startswith("The person ")
        assert answers.seen[0].url == told.SIGN_IN_URL
        assert len(agent.seen.said) == 1
        assert agent.seen.canceled == agent.seen.tasks[:1]


@pytest.mark.proves("map-ask-back-url")
@each_mode
@pytest.mark.parametrize("has_elicitation", [True, False])
async def test_a_sign_in_without_a_url_is_described_in_words(
    has_elicitation: bool, mode: str, tmp_path: Path
) -> None:
    answers = answering()  # would fail when it were asked: never a form for secrets, nor a URL out of prose
    async with hosted(tmp_path, mode, callback=answers if has_elicitation else None) as (_, client):
        asked = await client.call_tool("password", {"message": "go"})
        assert not asked.is_error
        assert "in-prose" in words(asked)
        done = await client.call_tool("task_reply", {"handle": handle_in(asked), "message": "done"})
        assert blocks(done) == [text("Let in: done")]


@pytest.mark.proves("map-ask-back-url")
@each_mode
async def test_a_sign_in_is_described_in_words_for_a_client_without_elicitation(
    mode: str, tmp_path: Path
) -> None:
    async with hosted(tmp_path, mode) as (agent, client):
        asked = await client.call_tool("sign_in", {"message": "go"})
        assert told.SIGN_IN_URL in words(asked)
        agent.seen.visited.set()
        done = await client.call_tool("task_result", {"handle": handle_in(asked), "wait_seconds": 10})
        assert blocks(done) == [text("Signed in")]
        assert len(agent.seen.said) == 1


# Slow agents, and who cancels


@pytest.mark.proves("map-slow-agent")
@each_way
@each_mode
async def test_a_host_comes_back_to_a_slow_agent(mode: str, streaming: bool, tmp_path: Path) -> None:
    async with hosted(tmp_path, mode, streaming=streaming, answer_within_seconds=0.3) as (agent, client):
        late = await client.call_tool("slow", {"message": "go"})
        assert not late.is_error
        assert "still at work" in words(late)
        handle = handle_in(late)
        still = await client.call_tool("task_result", {"handle": handle, "wait_seconds": 0})
        assert not still.is_error
        assert "still at work" in words(still)
        agent.seen.released.set()
        done = await client.call_tool("task_result", {"handle": handle, "wait_seconds": 10})
        assert blocks(done) == [text("Slow but sure")]
        assert len(agent.seen.said) == 1
        assert agent.seen.canceled == []


@pytest.mark.proves("map-slow-agent")
@each_mode
async def test_a_slow_agent_is_stopped_with_task_cancel(mode: str, tmp_path: Path) -> None:
    async with hosted(tmp_path, mode, answer_within_seconds=0.3) as (agent, client):
        handle = handle_in(await client.call_tool("slow", {"message": "go"}))
        stopped = await client.call_tool("task_cancel", {"handle": handle})
        assert "Stopped as you wished" in words(stopped)
        assert agent.seen.canceled == agent.seen.tasks
        again = await client.call_tool("task_cancel", {"handle": handle})
        assert "cancel" in words(again)


@pytest.mark.proves("map-who-cancels")
@each_way
@each_mode
async def test_a_host_that_cancels_its_call_cancels_the_task(
    mode: str, streaming: bool, tmp_path: Path
) -> None:
    async with hosted(tmp_path, mode, streaming=streaming) as (agent, client):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "slow", {"message": "go"})
            await agent.seen.begun.wait()
            tasks.cancel_scope.cancel()
        await agent.seen.told_of_cancel.wait()
        assert agent.seen.canceled == agent.seen.tasks


@pytest.mark.proves("map-who-cancels")
@each_mode
async def test_a_host_that_leaves_with_a_handle_cancels_nothing(mode: str, tmp_path: Path) -> None:
    async with foreign_agent() as agent, exposing(tmp_path, agent.url, answer_within_seconds=0.3) as there:
        with anyio.fail_after(WAIT_SECONDS):
            async with there.client(mode) as client:
                handle = handle_in(await client.call_tool("slow", {"message": "go"}))
            agent.seen.released.set()
            async with there.client(mode) as client:
                done = await client.call_tool("task_result", {"handle": handle})
        assert blocks(done) == [text("Slow but sure")]
        assert agent.seen.canceled == []


@pytest.mark.proves("map-slow-agent")
async def test_a_question_that_nobody_answers_is_withdrawn_in_time(tmp_path: Path) -> None:
    async def never(*_: Any) -> types.ElicitResult:
        await anyio.sleep_forever()
        raise AssertionError

    async with hosted(tmp_path, "legacy", callback=never, answer_within_seconds=1) as (agent, client):
        await client.call_tool("plain", {"message": "so that the question comes in time on a busy machine"})
        late = await client.call_tool("ask", {"message": "order"})
        assert not late.is_error
        answered = await client.call_tool("task_reply", {"handle": handle_in(late), "message": "red"})
        assert "How many in red?" in words(answered)
        assert agent.seen.canceled == []


# Agents that fail


@pytest.mark.proves("map-slow-agent")
@each_mode
async def test_the_wait_for_a_task_by_its_handle_ends_as_the_profile_says(mode: str, tmp_path: Path) -> None:
    options = {"answer_within_seconds": 0.3, "outage_seconds": 0.3}
    async with hosted(tmp_path, mode, **options) as (agent, client):
        handle = handle_in(await client.call_tool("slow", {"message": "go"}))
        before, results = agent.proxy.count(b"SubscribeToTask"), []

        async def come_back() -> None:
            results.append(await client.call_tool("task_result", {"handle": handle, "wait_seconds": 9}))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(come_back)
            await agent.proxy.until(lambda: agent.proxy.count(b"SubscribeToTask") > before)
            agent.die()
        assert results[0].is_error
        assert "has been out of reach for 0.3 s" in words(results[0])


@pytest.mark.proves("map-peer-fault")
@each_mode
async def test_a_call_to_an_unreachable_agent_is_an_error_that_says_so(mode: str, tmp_path: Path) -> None:
    async with hosted(tmp_path, mode) as (agent, client):
        assert not (await client.call_tool("plain", {"message": "hi"})).is_error
        agent.die()
        gone = await client.call_tool("plain", {"message": "hi"})
        assert gone.is_error
        assert "cannot be reached" in words(gone)
        assert agent.url in words(gone)
        await agent.proxy.accept()
        assert not (await client.call_tool("plain", {"message": "hi"})).is_error


@pytest.mark.proves("map-call-followed")
@each_mode
async def test_a_broken_stream_is_resumed(mode: str, tmp_path: Path) -> None:
    async with hosted(tmp_path, mode) as (agent, client):
        results, two_came = [], anyio.Event()

        async def see(progress: float, *_: Any) -> None:
            if progress == 2:
                two_came.set()

        async def call() -> None:
            results.append(await client.call_tool("slow_chunks", {"message": "go"}, progress_callback=see))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await two_came.wait()
            before = agent.proxy.count(b"SubscribeToTask")
            agent.proxy.drop_all()
            await agent.proxy.until(lambda: agent.proxy.count(b"SubscribeToTask") > before)
            agent.seen.released.set()
        assert blocks(results[0]) == [text("".join(told.CHUNKS))]
        assert len(agent.seen.said) == 1


@pytest.mark.proves("map-peer-fault")
@each_way
@each_mode
async def test_a_task_that_its_agent_lost_is_an_error_that_says_so(
    mode: str, streaming: bool, tmp_path: Path
) -> None:
    async with hosted(tmp_path, mode, streaming=streaming) as (agent, client):
        results, came = [], anyio.Event()

        async def see(*_: Any) -> None:
            came.set()

        async def call() -> None:
            results.append(await client.call_tool("slow", {"message": "go"}, progress_callback=see))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            if streaming:
                await came.wait()
            else:
                await agent.proxy.until(lambda: agent.proxy.count(b'"GetTask"') > 0)
            await agent.restart()
        assert results[0].is_error
        assert "does not know" in words(results[0]) or "not found" in words(results[0]).lower()
        assert agent.seen.said == []  # it was not sent again


@pytest.mark.proves("map-peer-fault")
@each_mode
async def test_a_handle_of_a_task_that_its_agent_lost_is_an_error(mode: str, tmp_path: Path) -> None:
    async with hosted(tmp_path, mode, answer_within_seconds=0.3) as (agent, client):
        handle = handle_in(await client.call_tool("slow", {"message": "go"}))
        await agent.restart()
        for tool, more in (("task_result", {}), ("task_reply", {"message": "x"}), ("task_cancel", {})):
            result = await client.call_tool(tool, {"handle": handle, **more})
            assert result.is_error, tool


# Names, handles, links


@pytest.mark.proves("map-tool-names")
@each_mode
async def test_two_agents_with_the_same_name_get_different_tool_names(mode: str, tmp_path: Path) -> None:
    async with (
        foreign_agent() as one,
        foreign_agent() as other,
        exposing(tmp_path, one.url, other.url) as there,
    ):
        async with there.client(mode) as client:
            with anyio.fail_after(WAIT_SECONDS):
                names = {tool.name for tool in (await client.list_tools()).tools}
                assert {"behaviours_plain", "behaviours_2_plain"} <= names
                await client.call_tool("behaviours_plain", {"message": "to one"})
                result = await client.call_tool("behaviours_2_plain", {"message": "to two"})
                # A conversation with one agent is none with another.
                context = (result.meta or {})["mcp-a2a/context"]
                refused = await client.call_tool("behaviours_plain", {"message": "hm", "context": context})
                uris = {str(resource.uri) for resource in (await client.list_resources()).resources}
        assert refused.is_error
        assert "another agent" in words(refused)
        assert [said["parts"][0]["text"] for said in one.seen.said] == ["to one"]
        assert [said["parts"][0]["text"] for said in other.seen.said] == ["to two"]
        assert uris == {"a2a://behaviours/card", "a2a://behaviours_2/card"}


@pytest.mark.proves("map-handles", "mcp26-explicit-state")
@each_mode
async def test_a_forged_handle_opens_nothing(mode: str, tmp_path: Path) -> None:
    async with hosted(tmp_path, mode) as (agent, client):
        asked = await client.call_tool("ask", {"message": "order"})
        handle, context = handle_in(asked), (asked.meta or {})["mcp-a2a/context"]
        forged = handle[:-1] + ("A" if handle[-1] != "A" else "Q")
        for wrong in (forged, context, "", "nonsense", handle[:-8], "ä" * 50):
            for tool, more in (("task_result", {}), ("task_reply", {"message": "x"}), ("task_cancel", {})):
                refused = await client.call_tool(tool, {"handle": wrong, **more})
                assert refused.is_error
                assert "handle" in words(refused)
        mistaken = await client.call_tool("plain", {"message": "x", "context": handle})
        assert mistaken.is_error
        assert len(agent.seen.said) == 1
        assert agent.seen.canceled == []


@pytest.mark.proves("map-large-part")
@each_mode
async def test_a_large_part_is_a_link_that_can_be_read(mode: str, tmp_path: Path) -> None:
    async with (
        foreign_agent() as agent,
        exposing(tmp_path, agent.url) as there,
        reading(there, mode) as client,
    ):
        small, link = (await client.call_tool("big", {"message": "go"})).content[:2]
        assert small.text == "small"
        assert (link.type, link.size, link.mime_type) == (
            "resource_link",
            len(told.BIG),
            "text/plain",
        )
        (contents,) = (await client.read_resource(link.uri)).contents
        assert contents.text == told.BIG
        for wrong in (link.uri[:-1] + "7", link.uri.replace("/tasks/", "/tasks/x"), "a2a://behaviours/x"):
            with pytest.raises(MCPError) as refused:
                await client.read_resource(wrong)
            assert refused.value.code == types.INVALID_PARAMS


@pytest.mark.proves("map-large-part")
@each_mode
async def test_a_large_streamed_text_is_one_link_that_can_be_read(mode: str, tmp_path: Path) -> None:
    async with (
        foreign_agent() as agent,
        exposing(tmp_path, agent.url) as there,
        reading(there, mode) as client,
    ):
        result = await client.call_tool("big_chunks", {"message": "go"})
        small, link, data, end = result.content[:4]
        assert (small.text, json.loads(data.text), end.text) == ("small", told.DATA, "the end")
        assert (link.type, link.size) == ("resource_link", len(told.BIG))
        (contents,) = (await client.read_resource(link.uri)).contents
        assert contents.text == told.BIG
        for wrong in (f"{link.uri}-9", link.uri.replace("/1-2", "/2-3"), link.uri.replace("/1-2", "/2-1")):
            with pytest.raises(MCPError) as refused:
                await client.read_resource(wrong)
            assert refused.value.code == types.INVALID_PARAMS


@asynccontextmanager
async def reading(there: Exposed, mode: str, token: str | None = None) -> AsyncIterator[Client]:
    """A client that takes large answers and may bear a token."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with httpx2.AsyncClient(headers=headers, timeout=30) as http:
        transport = streamable_http_client(there.url, http_client=http, max_sse_event_size=None)
        async with Client(transport, mode=mode, cache=None) as client:  # type: ignore[arg-type]
            with anyio.fail_after(WAIT_SECONDS):
                yield client


@pytest.mark.proves("map-handles", "mcp-elicit-state", "mcp25-state-session", "mcp-elicit-bound", "oauth-jwt")
@pytest.mark.parametrize("knowing", WAYS)
@each_mode
async def test_handles_of_one_principal_are_invalid_for_another(
    mode: str, knowing: Knowing, tmp_path: Path
) -> None:
    async with foreign_agent() as agent, knowing() as known:
        config = ExposeConfig([agent.url], load_profile(), state=tmp_path / "state", cache=tmp_path / "cache")
        async with (
            exposed(config) as exposure,
            exposure.server.at(known.access, FaceAddress()) as app,
            listening(app) as root_url,
        ):
            there = Exposed(exposure, f"{root_url}/mcp")
            ada, bob = (reading(there, mode, token) for token in known.tokens.values())
            async with ada as ada, bob as bob:
                asked = await ada.call_tool("ask", {"message": "order"})
                handle, context = handle_in(asked), (asked.meta or {})["mcp-a2a/context"]
                link = (await ada.call_tool("big", {"message": "go"})).content[1].uri
                for tool, more in (
                    ("task_result", {}),
                    ("task_reply", {"message": "x"}),
                    ("task_cancel", {}),
                ):
                    refused = await bob.call_tool(tool, {"handle": handle, **more})
                    assert refused.is_error
                    assert "does not work" in words(refused)
                assert (await bob.call_tool("plain", {"message": "x", "context": context})).is_error
                with pytest.raises(MCPError):
                    await bob.read_resource(link)
                assert (await ada.read_resource(link)).contents
                answered = await ada.call_tool("task_reply", {"handle": handle, "message": "red"})
                assert "How many in red?" in words(answered)
            exposure.server.stop()
        assert agent.seen.canceled == []
