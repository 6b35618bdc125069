"""`mcp-a2a call` on a tool of an MCP server, and `--trace` on either side."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from bridge.a2a.client.bindings import binding_of
from bridge.a2a.model import operations
from bridge.a2a.model.objects import AgentInterface, Artifact, Part, StreamResponse, TaskState
from bridge.a2a.tasks.agent import Job
from bridge.a2a.wire.v1_0 import V1_0
from bridge.text.jsonvalues import DEFAULT_MAX_VALUES
from tests.cli.call.test_command import Done, Run, at_terminal, child, command
from tests.support.agents import say, serving
from tests.support.asking import asking_url, forked_asking_argv
from tests.support.exposing import exposing
from tests.support.lines import WAIT_SECONDS
from tests.support.places import PLACES
from tests.support.running import RAW_SERVER, config_for, listening, raw_command, running
from tests.support.sdk_server import HttpServer

RAW = ("--", sys.executable, str(RAW_SERVER))
ERAS = pytest.mark.parametrize("era", ["legacy", "modern"])
ADA = {"name": "Ada", "age": 36, "color": "green", "tags": ["a", "b"]}


def asking(era: str) -> tuple[str, ...]:
    """The asking server, as it stands at the end of a command line."""
    return ("--", *forked_asking_argv(era))


def hops(done: Done, label: str) -> list[Any]:
    """The messages that were traced in one direction."""
    return [json.loads(line.removeprefix(label)) for line in done.err.splitlines() if line.startswith(label)]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    return command("call", monkeypatch)


@pytest.fixture(scope="module")
async def server() -> AsyncIterator[HttpServer]:
    async with HttpServer().run() as server:
        yield server


# What is called


@pytest.mark.proves("cli-call-tool")
async def test_a_tool_of_a_command_is_called_with_its_progress_shown(tmp_path: Path) -> None:
    done = await child("call", "progress", "steps=2", *RAW, state=tmp_path)
    assert (done.code, done.out) == (0, "2 steps\n")
    assert done.err.splitlines() == ["working 1/2: step 1", "working 2/2: step 2", "completed"]


@pytest.mark.proves("cli-call-tool")
@pytest.mark.parametrize("place", ["legacy", "sse"])
async def test_a_tool_at_a_url_is_called_where_no_agent_card_is(place: str, run: Run) -> None:
    async with PLACES[place].start() as url:
        done = await run(url, "echo", "text=hi")
    assert (done.code, done.out, done.err) == (0, "hi\n", "completed\n")


@pytest.mark.proves("cli-call-tool", "mcp-eras")
@pytest.mark.parametrize(("era", "asked"), [("legacy", False), ("auto", True)])
async def test_the_era_of_a_server_can_be_given(era: str, asked: bool, run: Run) -> None:
    async with HttpServer(only="legacy").run() as server:
        done = await run("--era", era, server.url, "echo", "text=hi")
        assert (done.code, done.out) == (0, "hi\n")
        assert ("server/discover" in server.posted) is asked


async def test_the_era_is_refused_for_an_agent(run: Run) -> None:
    async with running(config_for(raw_command())) as bridge:
        done = await run("--era", "legacy", bridge.base_url, "echo", "text=hi")
    assert (done.code, done.out) == (2, "")
    assert "--era is for an MCP server" in done.err


async def test_an_exposed_agent_is_called_as_a_tool(run: Run, tmp_path: Path) -> None:
    async with running(config_for(raw_command())) as bridge, exposing(tmp_path, bridge.base_url) as face:
        assert "echo" in (await run(face.url)).out
        assert (await run(face.url, "echo", "text=hi")).out == "hi\n"


async def test_a_server_that_is_also_an_agent_is_called_as_an_agent(run: Run) -> None:
    async with running(config_for(raw_command())) as bridge:
        assert "task " in (await run(bridge.base_url, "echo", "text=hi")).err


@pytest.mark.parametrize("options", [(), ("--json-output",)])
async def test_without_a_tool_the_tools_are_listed(options: tuple[str, ...], run: Run) -> None:
    done = await run(*options, *RAW)
    first, *_ = done.out.splitlines()
    assert (done.code, done.err) == (0, "")
    assert (
        json.loads(first)["name"] == "echo"
        if options
        else first.split(None, 1) == ["echo", "Gives the text back"]
    )


@pytest.mark.proves("cli-usage")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nope",), "there is no tool 'nope'; the server has:\n  echo "),
        (("text=hi",), "which tool?; the server has:\n  echo "),
        (("echo",), "echo does not take these arguments:\n  text (string, required): What to say [missing]"),
        (("add", "a=x", "b=1"), "a (number, required) ["),
        (("--text", "hi", "add"), "--text does not say which argument of add it is for"),
        (("echo", "--no-wait"), "--no-wait is for agents"),
        (("--task", "t"), "--task is for agents"),
        (("echo", "--dialect", "auto"), "--dialect is for agents"),
        (("echo", "--header", "a=b"), "--header is for a URL; a command takes --env"),
    ],
)
async def test_options_that_fit_no_tool_are_refused_with_one_message(
    words: tuple[str, ...], said: str, run: Run
) -> None:
    done = await run(*words, *RAW)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


async def test_a_text_goes_into_the_one_argument_that_takes_it(run: Run) -> None:
    assert (await run("--text", "a=b", "echo", *RAW)).out == "a=b\n"


async def test_dashes_after_a_url_or_as_a_value_are_kept(run: Run, server: HttpServer) -> None:
    assert (await run(server.url, "echo", "--", "text=hi")).out == "hi\n"
    assert (await run("--text", "--", "echo", *RAW)).out == "--\n"


async def test_an_address_without_agent_and_server_reports_both(run: Run) -> None:
    async def nothing(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 404, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async with listening(nothing) as url:
        done = await run(url, "echo", "text=hi")
        of_agents = await run(url, "--task", "t")
    assert (done.code, done.out) == (1, "")
    assert f"there is no agent card at {url}/.well-known/agent-card.json" in done.err
    assert ", and no MCP server: " in done.err
    assert "MCP" not in of_agents.err


async def test_a_command_that_is_no_server_is_one_message(run: Run) -> None:
    done = await run("echo", "--", sys.executable, "-c", "import sys; sys.exit('not today')")
    assert (done.code, done.out) == (1, "")
    assert "its last words: not today" in done.err
    assert (await run("echo", "--", "no-such-command")).code == 2


# What comes of it


@pytest.mark.proves("cli-call-tool")
async def test_results_are_shown_saved_or_printed_as_they_came(run: Run, tmp_path: Path) -> None:
    assert (await run("add", "a=1", "b=2.5", *RAW)).out == '{\n  "sum": 3.5\n}\n'
    saved = await run("every-block", "--save", str(tmp_path / "files"), *RAW)
    assert f"{tmp_path}/files/every-block.png" in saved.out.splitlines()
    assert (tmp_path / "files" / "a.bin").read_bytes() == b"\x00\x01\x02"
    lines = (await run("progress", "steps=1", "--json-output", *RAW)).out.splitlines()
    progress, result = (json.loads(line) for line in lines)
    assert progress["params"] == {"progress": 1, "total": 1, "message": "step 1"}
    assert result == {"result": {"content": [{"type": "text", "text": "1 steps"}]}}


async def test_files_of_an_agent_behind_a_server_keep_their_names(run: Run, tmp_path: Path) -> None:
    """Images, other files, files without a name, and a file so large that the result has a link."""
    large = base64.b64encode(bytes(1 << 20)).decode()
    named = [
        ("image/png", "sun set.png", "aGk="),
        ("text/csv", "table.csv", "aGk="),
        ("image/png", "big.png", large),
    ]

    async def script(job: Job) -> None:
        parts = tuple(Part(raw=raw, filename=name, media_type=kind) for kind, name, raw in named)
        await job.artifact(Artifact(artifact_id="a", parts=parts, name="work"))
        unnamed = (Part(raw="aGk=", media_type="image/png"), Part(raw="aGk=", media_type="application/zip"))
        await job.artifact(Artifact(artifact_id="b", parts=unnamed, name="sketch"))
        text = (Part(text="# Notes", filename="notes.md", media_type="text/markdown"),)
        await job.artifact(Artifact(artifact_id="c", parts=text))
        await say(job, TaskState.COMPLETED)

    files = tmp_path / "files"
    async with serving(script) as (url, _), exposing(tmp_path, url) as face:
        done = await run(face.url, "act", "message=go", "--save", str(files))
    assert done.code == 0, done.err
    sizes = {path.name: path.stat().st_size for path in files.iterdir()}
    assert sizes == {
        "sun_set.png": 2,
        "table.csv": 2,
        "big.png": 1 << 20,
        "sketch.png": 2,
        "sketch.zip": 2,
        "notes.md": 7,
    }


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("fail",), "failed: it broke, and this is why"),
        (("refuse",), "failed: not today"),
        (("refuse", "code=-32602"), "rejected: not today"),
        (("wait", "--timeout-seconds", "0.3"), "the tool did not finish within 0.3 s, and was cancelled"),
        (("die",), "ended"),
    ],
)
@pytest.mark.proves("cli-call-tool")
async def test_a_tool_that_fails_ends_with_1(words: tuple[str, ...], said: str, run: Run) -> None:
    done = await run(*words, *RAW)
    assert (done.code, done.out) == (1, "")
    assert said in done.err


async def test_ctrl_c_cancels_the_call_on_the_server(server: HttpServer, tmp_path: Path) -> None:
    async with at_terminal(server.url, "wait", state=tmp_path) as terminal:
        await server.tools.until(lambda: server.tools.waiting == 1)
        terminal.interrupt()
        done = await terminal.end()
    assert done.code == 130
    await server.tools.until(lambda: server.tools.cancelled == 1)


# What is asked


@ERAS
@pytest.mark.proves("cli-call-tool", "map-elicitation-form")
async def test_a_form_of_a_tool_is_asked_field_by_field(era: str, tmp_path: Path) -> None:
    async with at_terminal("ask", *asking(era), state=tmp_path) as terminal:
        for asked, answer in (
            ("Name (string; required): (Ctrl+D declines) ", "A\n"),
            ('"A" is too short', "Ada\n"),
            ("age (integer): ", "36\n"),
            ('color (one of "red", "green", "blue") ["green"]: ', "\n"),
            ("tags (", "a, b\n"),
        ):
            await terminal.until(asked)
            terminal.type(answer)
        done = await terminal.end()
    assert done.code == 0
    assert json.loads(done.out.removeprefix("accept ")) == ADA


@ERAS
@pytest.mark.proves("cli-call-tool", "map-elicitation-url")
@pytest.mark.smoke("modern")
async def test_a_url_is_shown_and_waited_for(era: str, tmp_path: Path) -> None:
    with asking_url(era) as url:
        for key, said in (("\n", "accept\n"), ("\x04", "decline\n")):
            async with at_terminal(url, "ask-url", state=tmp_path) as terminal:
                await terminal.until("auth required: ")
                await terminal.until("Press Enter once that is done (Ctrl+D declines) ")
                terminal.type(key)
                done = await terminal.end()
            assert (done.code, done.out) == (0, said)


async def test_a_required_url_leads_to_another_call(tmp_path: Path) -> None:
    for key, code, said in (("\n", 0, "connected\n"), ("\x04", 1, "")):
        async with at_terminal("need-url", *asking("legacy"), state=tmp_path) as terminal:
            await terminal.until("Press Enter once that is done")
            terminal.type(key)
            done = await terminal.end()
        assert (done.code, done.out) == (code, said)


async def test_a_form_and_a_url_of_one_round_are_asked_in_turn(tmp_path: Path) -> None:
    async with at_terminal("ask-form-and-url", *asking("modern"), state=tmp_path) as terminal:
        await terminal.until("name (string; required): (Ctrl+D declines) ")
        terminal.type("Ada\n")
        await terminal.until("Press Enter once that is done (Ctrl+D declines) ")
        terminal.type("\x04")
        done = await terminal.end()
    assert (done.code, done.out) == (0, 'accept {"name": "Ada"}; decline\n')


@ERAS
async def test_every_round_is_asked(era: str, tmp_path: Path) -> None:
    async with at_terminal("ask-twice", *asking(era), state=tmp_path) as terminal:
        for field in ("first", "second"):
            await terminal.until(f"{field} (")
            await terminal.until(": ")
            terminal.type("yes\n")
        assert (await terminal.end()).code == 0


async def test_a_withdrawn_question_is_not_answered(run: Run, tmp_path: Path) -> None:
    with asking_url("legacy") as url:
        async with at_terminal(url, "ask-withdraw", "seconds=0.2", state=tmp_path) as terminal:
            await terminal.until("(Ctrl+D declines) ")
            while (await run(url, "pending")).out != "0\n":
                pass
            terminal.type("Ada\n")
            done = await terminal.end()
    assert "The server has withdrawn its question" in done.err


@ERAS
@pytest.mark.proves("cli-call-tool")
async def test_a_question_that_nobody_can_be_asked_cancels_the_call_and_ends_with_3(
    era: str, run: Run
) -> None:
    done = await run("ask", *asking(era))
    assert (done.code, done.out) == (3, "")
    assert "input required: " in done.err
    assert done.err.endswith("there is no terminal to ask for it: the call was cancelled.\n")


async def test_the_server_gets_an_error_if_its_question_cannot_be_asked(run: Run) -> None:
    with asking_url("legacy") as url:
        assert (await run(url, "ask")).code == 3
        with anyio.fail_after(WAIT_SECONDS):  # the server takes it in beside the answer to the command
            while (await run(url, "cancelled")).out != "1\n":
                pass


@pytest.mark.proves("cli-call-tool")
async def test_missing_arguments_are_asked_for_until_they_fit(tmp_path: Path) -> None:
    async with at_terminal("add", "a=1", *RAW, state=tmp_path) as terminal:
        await terminal.until("b (number; required): The second: (Ctrl+D declines) ")
        terminal.type("much\n")
        await terminal.until('"much" is not of type "number"')
        terminal.type("2\n")
        done = await terminal.end()
    assert (done.code, done.out) == (0, '{\n  "sum": 3\n}\n')
    async with at_terminal("add", "a=1", *RAW, state=tmp_path) as terminal:
        await terminal.until("(Ctrl+D declines) ")
        terminal.type("\x04")
        done = await terminal.end()
    assert (done.code, done.out) == (1, "")
    assert "rejected: The question was declined" in done.err


async def test_ctrl_c_at_a_question_ends_the_call(tmp_path: Path) -> None:
    async with at_terminal("ask", *asking("legacy"), state=tmp_path) as terminal:
        await terminal.until("(Ctrl+D declines) ")
        terminal.interrupt()
        assert (await terminal.end()).code == 130


@pytest.mark.parametrize(("era", "tool"), [("legacy", "job"), ("modern", "task-job")])
async def test_a_task_of_the_server_is_followed_to_its_result(era: str, tool: str, run: Run) -> None:
    done = await run(tool, "steps=2", *asking(era))
    assert done.code == 0
    assert done.out


# The trace


@pytest.mark.proves("cli-trace")
async def test_the_trace_of_a_tool_shows_the_call_and_its_answers_without_headers(
    run: Run, server: HttpServer
) -> None:
    done = await run(server.url, "progress", "steps=1", "--trace", "--bearer", "env:TOKEN", TOKEN="s3cret")
    [call] = hops(done, "mcp > ")
    assert (call["method"], call["params"]["name"], call["params"]["arguments"]) == (
        "tools/call",
        "progress",
        {"steps": 1},
    )
    progress, result = hops(done, "mcp < ")
    assert (progress["method"], progress["params"]["message"]) == ("notifications/progress", "step 1")
    assert result["result"]["content"] == [{"type": "text", "text": "1 steps"}]
    assert "s3cret" not in done.err
    assert done.out == "1 steps\n"


@pytest.mark.proves("cli-trace")
async def test_the_trace_of_a_tool_shows_questions_and_errors(tmp_path: Path, run: Run) -> None:
    async with at_terminal("ask-one", "--trace", *asking("legacy"), state=tmp_path) as terminal:
        await terminal.until("(Ctrl+D declines) ")
        terminal.type("yes\n")
        done = await terminal.end()
    assert [hop.get("method", "an answer") for hop in hops(done, "mcp < ")] == [
        "elicitation/create",
        "an answer",
    ]
    assert hops(done, "mcp > ")[1]["result"]["action"] == "accept"
    refused = await run("refuse", "code=5", "--trace", *RAW)
    assert hops(refused, "mcp < ")[-1]["error"]["code"] == 5


@pytest.mark.proves("cli-trace")
async def test_the_trace_of_a_skill_shows_the_request_and_each_event(run: Run) -> None:
    async with running(config_for(raw_command())) as bridge:
        done = await run(
            bridge.base_url, "echo", "text=hi", "--trace", "--bearer", "env:TOKEN", TOKEN="s3cret"
        )
    [request] = hops(done, "a2a > ")
    assert request["method"] == "SendStreamingMessage"
    assert request["params"]["message"]["parts"][0]["data"] == {"text": "hi"}
    events = [StreamResponse.model_validate(hop["result"]) for hop in hops(done, "a2a < ")]
    assert [type(event.payload).__name__ for event in events] == [
        "Task",
        "TaskStatusUpdateEvent",
        "TaskArtifactUpdateEvent",
        "TaskStatusUpdateEvent",
    ]
    assert "s3cret" not in done.err
    assert done.out == "hi\n"


@pytest.mark.proves("cli-trace")
def test_a_request_of_http_json_is_traced_with_verb_query_and_body() -> None:
    interface = AgentInterface(
        url="http://user:s3cret@a.test", protocol_binding="HTTP+JSON", protocol_version="1.0"
    )
    binding = binding_of(interface, V1_0(), DEFAULT_MAX_VALUES)
    asked = binding.payload(binding.request(operations.GET_TASK, {"id": "t", "historyLength": 2}))
    assert json.loads(asked) == {
        "verb": "GET",
        "url": "http://a.test/tasks/t",
        "query": {"historyLength": "2"},
    }
    sent = json.loads(binding.payload(binding.request(operations.SEND_MESSAGE, {"message": {"parts": []}})))
    assert (sent["verb"], sent["body"]) == ("POST", {"message": {"parts": []}})
