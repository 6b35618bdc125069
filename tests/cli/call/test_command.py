"""`mcp-a2a call` as a user runs it: from a script, and at a terminal."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from bridge.a2a.client.agent_card import fetch_card
from bridge.a2a.client.agent_client import AgentClient
from bridge.a2a.model.objects import Artifact, Part, StreamResponse, TaskState
from bridge.a2a.tasks.agent import Job, Turn
from bridge.cli.main import main
from bridge.mcp.client.eras import Era
from bridge.translate.extensions.bridge import URI
from tests.support import forked
from tests.support.agents import give, say, serving
from tests.support.asking import asking_command
from tests.support.booking_agent import APPROVAL, Books
from tests.support.command import ROOT, WAIT_SECONDS, environment
from tests.support.faults import RESET_AFTER_HEAD, cut_after
from tests.support.forked import Forked
from tests.support.limits import client_options
from tests.support.proxy import proxy_to
from tests.support.running import Running, config_for, listening, profile_with, raw_command, running
from tests.support.scripted_agent import scripted_agent
from tests.support.terminals import open_terminal


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    code: int | None
    out: str
    err: str

    @property
    def task_id(self) -> str:
        """The printed id of the task."""
        found = re.search(r"task ([\w-]+)", self.err)
        assert found is not None, self.err
        return found[1]


Run = Callable[..., Awaitable[Done]]


class Screen(StringIO):
    """The output as a terminal would receive it."""

    def isatty(self) -> bool:
        return True


def command(name: str, patch: pytest.MonkeyPatch, stream: type[StringIO] = StringIO) -> Run:
    """Runs one command of `mcp-a2a` to its end, in this process and without a terminal."""

    def to_its_end() -> int | None:
        try:
            main()
        except SystemExit as ended:
            return ended.code if isinstance(ended.code, int) else None

    async def run(*arguments: str, **more: str) -> Done:
        with (
            patch.context() as patched,
            redirect_stdout(stream()) as out,
            redirect_stderr(stream()) as err,
        ):
            patched.setattr(sys, "argv", ["mcp-a2a", name, *arguments])
            for variable, value in more.items():
                patched.setenv(variable, value)
            with anyio.fail_after(WAIT_SECONDS):
                code = await anyio.to_thread.run_sync(to_its_end)
        return Done(code, out.getvalue(), err.getvalue())

    return run


async def child(*arguments: str, state: Path, together: bool = False) -> Done:
    """Runs `mcp-a2a` as a process of its own, without a terminal; `together` is `2>&1`."""
    run = partial(
        forked.run,
        [sys.executable, "-P", "-m", "bridge", *arguments],
        WAIT_SECONDS,
        stderr=subprocess.STDOUT if together else subprocess.PIPE,
        text=True,
        env=environment(state),
        cwd=ROOT,
    )
    done = await anyio.to_thread.run_sync(run)
    return Done(done.returncode, done.stdout, done.stderr or "")


class Terminal:
    """A command at a terminal: what it shows there is read, and answered."""

    def __init__(self, process: Forked, screen: int) -> None:
        self.process = process
        self.shown = ""
        self._screen = screen
        self._place = 0

    async def until(self, words: str) -> None:
        """Wait until these words are shown, after those that were waited for before."""
        while words not in self.shown[self._place :]:
            assert await self._read(), f"it ended without showing {words!r}:\n{self.shown}"
        self._place = self.shown.index(words, self._place) + len(words)

    def type(self, text: str) -> None:
        """What the person does: `\\x04` is Ctrl+D."""
        os.write(self._screen, text.encode())

    def interrupt(self) -> None:
        """Ctrl+C."""
        self.process.send_signal(signal.SIGINT)

    async def end(self) -> Done:
        """Wait until the command has ended."""
        out = ""
        if self.process.stdout is not None:
            out = await anyio.to_thread.run_sync(self.process.stdout.read)
        while await self._read():
            pass
        return Done(await anyio.to_thread.run_sync(self.process.wait, WAIT_SECONDS), out, self.shown)

    async def _read(self) -> bool:
        try:
            read = await anyio.to_thread.run_sync(os.read, self._screen, 65536, abandon_on_cancel=True)
        except OSError:  # how Linux tells that nobody holds the other end any more
            return False
        self.shown += read.decode().replace("\r\n", "\n")
        return bool(read)


@asynccontextmanager
async def at_terminal(
    *arguments: str, state: Path, results: bool = False, name: str = "call", **more: str
) -> AsyncIterator[Terminal]:
    """Run `call`, or another command, at a terminal; `results` shows its results there too, instead of in a pipe."""
    screen, line = open_terminal()
    try:
        with anyio.fail_after(WAIT_SECONDS):
            start = partial(
                Forked,
                [sys.executable, "-P", "-m", "bridge", name, *arguments],
                stdin=line,
                stdout=line if results else subprocess.PIPE,
                stderr=line,
                text=True,
                env={**environment(state, **more), "TERM": "xterm"},
                cwd=ROOT,
            )
            with await anyio.to_thread.run_sync(start) as process:
                os.close(line)
                try:
                    yield Terminal(process, screen)
                finally:
                    process.kill()
    finally:
        os.close(screen)


@pytest.fixture(scope="module")
async def bridge() -> AsyncIterator[Running]:
    async with running(config_for(raw_command())) as bridge:
        yield bridge


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    return command("call", monkeypatch)


async def state_of(url: str, task_id: str) -> TaskState:
    async with httpx2.AsyncClient() as http:
        task = await AgentClient(http, await fetch_card(http, url), client_options()).get(task_id)
    return task.status.state


# In a script


@pytest.mark.proves("cli-call")
async def test_results_go_to_stdout_and_states_of_the_task_to_stderr(bridge: Running, tmp_path: Path) -> None:
    done = await child("call", bridge.base_url, "progress", "steps=2", state=tmp_path)
    assert (done.code, done.out) == (0, "2 steps\n")
    assert done.err.splitlines() == [
        f"task {done.task_id}",
        "submitted",
        "working",
        "working 1/2: step 1",
        "working 2/2: step 2",
        "completed",
    ]


async def test_arguments_are_read_as_the_schema_says_and_data_is_shown_once(
    run: Run, bridge: Running
) -> None:
    assert (await run(bridge.base_url, "add", "a=1", "b=2.5")).out == '{"sum": 3.5}\n'
    assert (await run(bridge.base_url, "echo", "text=5")).out == "5\n"


async def test_arguments_may_be_one_object_and_text_may_go_without_a_skill(run: Run, bridge: Running) -> None:
    assert (await run(bridge.base_url, "echo", "--json", '{"text": "é=1"}')).out == "é=1\n"
    assert (await run(bridge.base_url, "--text", "echo text='a b'")).out == "a b\n"


@pytest.mark.proves("cli-call")
async def test_each_event_is_a_line_of_json(run: Run, bridge: Running) -> None:
    done = await run(bridge.base_url, "echo", "text=hi", "--json-output")
    events = [StreamResponse.model_validate_json(line) for line in done.out.splitlines()]
    assert [type(event.payload).__name__ for event in events] == [
        "Task",
        "TaskStatusUpdateEvent",
        "TaskArtifactUpdateEvent",
        "TaskStatusUpdateEvent",
    ]


async def test_files_are_saved_once_each_under_their_own_names(
    run: Run, bridge: Running, tmp_path: Path
) -> None:
    files = tmp_path / "new" / "files"
    for number in ("", "-2"):
        done = await run(bridge.base_url, "every-block", "--save", str(files))
        saved = [
            f"{files}/every-block{number}.png",
            f"{files}/every-block{number}.wav",
            f"{files}/one{number}.md",
            f"{files}/a{number}.bin",
        ]
        assert [line for line in done.out.splitlines() if str(files) in line] == saved
        assert Path(saved[3]).read_bytes() == b"\x00\x01\x02"
    done = await run(bridge.base_url, "every-block")
    assert "[image/png, 70 bytes: --save DIR keeps it]" in done.out.splitlines()
    assert "https://example.com/a.pdf" in done.out.splitlines()


async def test_texts_and_data_with_the_name_of_a_file_are_saved_too(run: Run, tmp_path: Path) -> None:
    async def script(job: Job) -> None:
        parts = (
            Part(text="# Report\n", filename="report.md"),
            Part(text="one"),
            Part(data={"a": 1}, filename="numbers.json"),
        )
        await job.artifact(Artifact(artifact_id="a", parts=parts))
        await say(job, TaskState.COMPLETED)

    files = tmp_path / "files"
    async with serving(script) as (url, _):
        done = await run(url, "act", "--save", str(files))
        shown = await run(url, "act")
    assert done.out.splitlines() == [f"{files}/report.md", "one", f"{files}/numbers.json"]
    assert (files / "report.md").read_text() == "# Report\n"
    assert json.loads((files / "numbers.json").read_text()) == {"a": 1}
    assert shown.out == '# Report\none\n{\n  "a": 1\n}\n'


async def test_a_text_in_pieces_is_saved_as_one_file(run: Run, tmp_path: Path) -> None:
    async def script(job: Job) -> None:
        for number, words in enumerate(("one ", "two ", "three")):
            piece = Artifact(artifact_id="a", parts=(Part(text=words, filename="story.txt"),))
            await job.artifact(piece, append=number > 0, last_chunk=number == 2)
        await say(job, TaskState.COMPLETED)

    async with serving(script) as (url, _):
        done = await run(url, "act", "--save", str(tmp_path / "files"))
    assert done.out == f"{tmp_path}/files/story.txt\n"
    assert (tmp_path / "files" / "story.txt").read_text() == "one two three"


async def test_a_file_name_of_an_agent_cannot_leave_the_folder(run: Run, tmp_path: Path) -> None:
    async def script(job: Job) -> None:
        names = ("../../evil.txt", "/etc/passwd", "..\\..\\..", ".hidden", "a b\x1b.png", "NUL.txt")
        parts = tuple(Part(raw="aGk=", filename=name, media_type="text/plain") for name in names)
        await job.artifact(Artifact(artifact_id="a", parts=parts))
        await say(job, TaskState.COMPLETED)

    async with serving(script) as (url, _):
        await run(url, "act", "--save", str(tmp_path / "files"))
    saved = sorted(path.name for path in (tmp_path / "files").iterdir())
    assert saved == ["_NUL.txt", "a_b_.png", "artifact.txt", "evil.txt", "hidden", "passwd"]


@pytest.mark.parametrize(
    ("skill", "words"),
    [
        ("fail", "failed: it broke, and this is why"),
        ("refuse", "failed: not today"),
    ],
)
@pytest.mark.proves("cli-call")
async def test_a_task_that_is_not_completed_ends_with_1(
    skill: str, words: str, run: Run, bridge: Running
) -> None:
    done = await run(bridge.base_url, skill)
    assert (done.code, done.out) == (1, "")
    assert words in done.err


@pytest.mark.proves("cli-call", "cli-usage")
async def test_a_process_says_by_its_exit_code_how_it_went(bridge: Running, tmp_path: Path) -> None:
    done: dict[str, Done] = {}

    async def keep(*arguments: str) -> None:
        done[arguments[1]] = await child("call", *arguments, state=tmp_path)

    async with anyio.create_task_group() as tasks:
        for arguments in ((bridge.base_url, "fail"), ("http://127.0.0.1:1", "usage", "text")):
            tasks.start_soon(keep, *arguments)
    assert {name: one.code for name, one in done.items()} == {"fail": 1, "usage": 2}
    assert not any("Traceback" in one.err or one.out for one in done.values())


@pytest.mark.proves("cli-call")
@pytest.mark.parametrize(
    ("words", "sent"),
    [
        (("name=Ada",), [{"text": "Ada"}, {"data": {"name": "Ada"}}]),
        (("name=Ada", "n=3"), [{"text": "name: Ada\nn: 3"}, {"data": {"name": "Ada", "n": 3}}]),
        (("--json", '{"a": [1]}'), [{"text": "[1]"}, {"data": {"a": [1]}}]),
        ((), [{"text": "act"}]),
        (("--text", "hi"), [{"text": "hi"}]),
    ],
)
async def test_an_agent_without_the_extension_gets_the_arguments_as_text_too(
    words: tuple[str, ...], sent: list[dict[str, Any]], run: Run
) -> None:
    turns: list[Turn] = []

    async def script(job: Job) -> None:
        turns.append(job.turn)
        await say(job, TaskState.COMPLETED)

    async with serving(script) as (url, _):
        assert (await run(url, "act", *words)).code == 0
    (turn,) = turns
    assert [
        {key: part[key] for key in part if key != "mediaType"}
        for part in (part.to_object() for part in turn.message.parts)
    ] == sent
    assert (turn.message.metadata or {})["skillId"] == "act"


@pytest.mark.proves("cli-call")
async def test_an_answer_to_a_text_question_is_also_sent_as_text(run: Run) -> None:
    answers: list[tuple[Any, ...]] = []

    async def script(job: Job) -> None:
        if job.turn.task is None:
            return await job.status(TaskState.INPUT_REQUIRED, job.message((Part(text="Which day?"),)))
        answers.append(tuple(part.text or part.data for part in job.turn.message.parts))
        return await say(job, TaskState.COMPLETED)

    async with serving(script) as (url, _):
        asked = await run(url, "act")
        assert (await run(url, "--task", asked.task_id, "day=Monday")).code == 0
    assert answers == [("Monday", {"day": "Monday"})]


@pytest.mark.proves("cli-call")
async def test_without_a_skill_the_skills_are_listed(run: Run, bridge: Running) -> None:
    done = await run(bridge.base_url)
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[0].split(None, 1) == ["echo", "Gives the text back"]
    as_json = (await run(bridge.base_url, "--json-output")).out.splitlines()
    assert json.loads(as_json[0])["id"] == "echo"


async def test_the_options_of_a_connection_stand_in_their_order(run: Run) -> None:
    shown = (await run("--help")).out
    order = (
        "--bearer",
        "--api-key",
        "--header",
        "--cert",
        "--key",
        "--ca",
        "--trust",
        "--json-output",
        "-h, --help",
    )
    places = [shown.index(f"\n  {option} ") for option in order]
    assert places == sorted(places)


async def test_without_waiting_the_id_of_the_task_is_the_result(run: Run, bridge: Running) -> None:
    done = await run(bridge.base_url, "wait", "--no-wait")
    assert (done.code, done.out) == (0, f"{done.task_id}\n")
    assert await state_of(bridge.base_url, done.task_id) is TaskState.WORKING


async def test_a_task_that_takes_too_long_goes_on_alone(run: Run, bridge: Running) -> None:
    done = await run(bridge.base_url, "wait", "--timeout-seconds", "1")
    assert done.code == 1
    assert f"did not finish within 1 s; the task {done.task_id} goes on" in done.err
    assert await state_of(bridge.base_url, done.task_id) is TaskState.WORKING


@pytest.mark.proves("cli-usage")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["echo", "hello"], "arguments are given as KEY=VALUE, not 'hello'"),
        (["echo", "text=x", "--json", "{}"], "only one of KEY=VALUE, --json and --text"),
        (["echo", "--json", "[1]"], "--json takes a JSON object, not '[1]'"),
        (["echo", "--json", "@no-file"], "--json @no-file: No such file or directory"),
        (["echo", "--json", f"@{__file__}"], "--json takes a JSON object, not '"),
        (["echo", "--json", f"@{sys.executable}"], "the text is not UTF-8"),
    ],
)
async def test_what_cannot_be_sent_is_one_message(arguments: list[str], words: str, run: Run) -> None:
    done = await run("http://127.0.0.1:1", *arguments)
    assert (done.code, done.out) == (2, "")
    assert words in done.err
    assert "Traceback" not in done.err


async def test_arguments_are_read_from_a_file(run: Run, bridge: Running, tmp_path: Path) -> None:
    (tmp_path / "arguments.json").write_text('{"text": "it\'s \\u00e4"}', "utf-8")
    done = await run(bridge.base_url, "echo", "--json", f"@{tmp_path / 'arguments.json'}")
    assert (done.code, done.out) == (0, "it's ä\n")


@pytest.mark.proves("cli-usage")
async def test_arguments_without_a_skill_are_refused(run: Run, bridge: Running) -> None:
    done = await run(bridge.base_url, "text=hi")
    assert (done.code, done.out) == (2, "")
    assert "which skill?" in done.err


async def test_both_streams_in_one_pipe_are_whole_lines(bridge: Running, tmp_path: Path) -> None:
    done = await child("call", bridge.base_url, "progress", "steps=1", state=tmp_path, together=True)
    assert done.out.splitlines()[1:] == [
        "submitted",
        "working",
        "working 1/1: step 1",
        "1 steps",
        "completed",
    ]


@pytest.mark.proves("cli-usage")
@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("greet", "give the URL first"),
        ("127.0.0.1:8301", "did you mean http://127.0.0.1:8301?"),
        ("localhost", "did you mean http://localhost?"),
        ("agent.example.com/a", "did you mean https://agent.example.com/a?"),
        ("http://", "give the URL first"),
    ],
)
async def test_an_invalid_url_is_reported_first(url: str, hint: str, run: Run) -> None:
    done = await run(url, "name=Ada")
    assert (done.code, done.out) == (2, "")
    assert f"an agent is reached by an http(s) URL, not {url!r}: {hint}" in done.err


# Other agents


class Foreign:
    """An agent without streaming and without the bridge's extension. It gives the prepared answers."""

    def __init__(
        self, *results: dict[str, Any], interface_url: str = "", schema: dict[str, Any] | None = None
    ) -> None:
        """`results` come one after the other, the last one again and again; `schema` is that of its skill `act`."""
        self.results = list(results)
        self.interface_url = interface_url
        self.capabilities: dict[str, Any] = {}
        if schema is not None:
            self.capabilities["extensions"] = [
                {"uri": URI, "params": {"tools": {"act": {"inputSchema": schema}}}}
            ]
        self.skills: list[dict[str, Any]] = []
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.tokens: list[str | None] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if request.method == "POST":
            call = await request.json()
            self.calls.append((call["method"], call["params"]))
            self.tokens.append(request.headers.get("authorization"))
            result = self.results.pop(0) if len(self.results) > 1 else self.results[0]
            answer: Any = {"jsonrpc": "2.0", "id": call["id"], "result": result}
        else:
            url = self.interface_url or str(request.base_url)
            interface = {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
            answer = {
                "name": "Foreign",
                "supportedInterfaces": [interface],
                "capabilities": self.capabilities,
                "skills": self.skills,
            }
        await Response(json.dumps(answer), media_type="application/json")(scope, receive, send)


def task_of(state: str, *parts: dict[str, Any], asked: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    """A task with one artifact, or one that asks something."""
    status: dict[str, Any] = {"state": f"TASK_STATE_{state}"}
    if asked:
        status["message"] = {
            "messageId": "q",
            "role": "ROLE_AGENT",
            "parts": list(asked),
            "metadata": {f"{URI}/question": "arguments"},
        }
    task: dict[str, Any] = {"id": "t", "contextId": "c", "status": status}
    if parts:
        task["artifacts"] = [{"artifactId": "a", "name": "The result!", "parts": list(parts)}]
    return {"task": task}


HELLO = {"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "hello\x1b[0m\tyou"}]}}


async def test_an_agent_that_does_not_stream_is_sent_a_message(run: Run) -> None:
    foreign = Foreign(HELLO)
    async with listening(foreign) as url:
        done = await run(url, "greet", "n=3", "name=Ada", "flags=[true]", 'quoted="3"')
    assert (done.code, done.out) == (0, "hello\x1b[0m\tyou\n")
    [(method, params)] = foreign.calls
    assert method == "SendMessage"
    assert params["message"]["metadata"] == {"urn:mcp-a2a:tool:v1/skill": "greet", "skillId": "greet"}
    assert params["message"]["parts"] == [
        {"text": 'n: 3\nname: Ada\nflags: [true]\nquoted: "3"'},
        {"data": {"n": 3, "name": "Ada", "flags": [True], "quoted": '"3"'}, "mediaType": "application/json"},
    ]


async def test_the_last_message_of_an_agent_without_artifacts_is_the_result(run: Run) -> None:
    part = {"text": "the answer"}
    message = {"messageId": "m", "role": "ROLE_AGENT", "parts": [part]}
    status = {"state": "TASK_STATE_COMPLETED", "message": message}
    async with listening(Foreign({"task": {"id": "t", "contextId": "c", "status": status}})) as url:
        done = await run(url, "act")
    assert (done.code, done.out) == (0, "the answer\n")


async def test_headers_stay_with_the_origin_that_they_were_given_for(run: Run) -> None:
    other = Foreign(HELLO)
    async with listening(other) as there, listening(Foreign(HELLO, interface_url=there)) as url:
        options = ("act", "--bearer", "env:TOKEN")
        done = await run(url, *options, TOKEN="s3cret")
        assert (done.code, other.calls) == (1, [])
        assert f"add --trust {there}" in done.err
        assert (await run(url, *options, "--trust", there, TOKEN="s3cret")).code == 0
        assert (await run(url, "act")).code == 0
    assert other.tokens == ["Bearer s3cret", None]


async def test_an_agent_that_does_not_stream_is_asked_until_its_task_is_done(run: Run) -> None:
    foreign = Foreign(task_of("WORKING"), task_of("COMPLETED", {"text": "done"})["task"])
    async with listening(foreign) as url:
        done = await run(url, "act")
    assert (done.code, done.out) == (0, "done\n")
    assert [method for method, _ in foreign.calls] == ["SendMessage", "GetTask"]


async def test_text_in_chunks_is_put_together_again(run: Run) -> None:
    async def script(job: Job) -> None:
        for number, text in enumerate(("one ", "two", " three\n", "four")):
            artifact = Artifact(artifact_id="a", parts=(Part(text=text),))
            await job.artifact(artifact, append=number > 0, last_chunk=number == 3)
        await give(job, "five")
        await say(job, TaskState.COMPLETED)

    async with serving(script) as (url, _):
        assert (await run(url, "act")).out == "one two three\nfour\nfive\n"


PNG = {"raw": "aGk+", "mediaType": "image/png"}


@pytest.mark.parametrize(
    ("parts", "shown"),
    [
        ([{"text": "Hello, Ada!"}, {"data": {"result": "Hello, Ada!"}}], "Hello, Ada!\n"),
        ([{"text": "[1, 2]"}, {"data": {"result": [1, 2]}}], "[1, 2]\n"),
        ([{"text": "one"}, {"text": "two"}, {"data": {"result": ["one", "two"]}}], "one\ntwo\n"),
        ([{"text": '{"a": 1}'}, {"data": {"a": 1}}], '{\n  "a": 1\n}\n'),
        ([{"text": "one"}, {"data": {"a": "one", "b": 2}}], 'one\n{\n  "a": "one",\n  "b": 2\n}\n'),
        (
            [PNG, {"data": {"content": [{"type": "image", "data": "aGk-", "mimeType": "image/png"}]}}],
            "[image/png, 3 bytes: --save DIR keeps it]\n",
        ),
        ([PNG, {"data": {"type": "image"}}], None),
    ],
)
async def test_data_that_repeats_what_is_shown_is_left_to_json(
    parts: list[dict[str, Any]], shown: str | None, run: Run
) -> None:
    async with listening(Foreign(task_of("COMPLETED", *parts))) as url:
        done = await run(url, "act")
        events = await run(url, "act", "--json-output")
    assert done.out == shown if shown else '"type": "image"' in done.out
    assert json.loads(events.out)["task"]["artifacts"][0]["parts"] == parts
    assert events.err == ""


async def test_data_that_repeats_a_text_in_chunks_is_left_out(run: Run) -> None:
    async def script(job: Job) -> None:
        for number, part in enumerate(
            (Part(text="one "), Part(text="two"), Part(data={"result": "one two"}))
        ):
            await job.artifact(
                Artifact(artifact_id="a", parts=(part,)), append=number > 0, last_chunk=number == 2
            )
        await say(job, TaskState.COMPLETED)

    async with serving(script) as (url, _):
        assert (await run(url, "act")).out == "one two\n"


async def test_a_file_without_a_name_is_called_as_its_artifact(run: Run, tmp_path: Path) -> None:
    async with listening(Foreign(task_of("COMPLETED", PNG))) as url:
        done = await run(url, "act", "--save", str(tmp_path))
    assert done.out == f"{tmp_path}/The_result.png\n"


@pytest.mark.parametrize(
    ("result", "code", "words"),
    [
        (
            task_of("INPUT_REQUIRED", asked=({"text": "What?"},)),
            3,
            "answer, and --no-wait does not. To answer",
        ),
        (task_of("COMPLETED", {"text": "the result"}), 0, "The agent keeps the result"),
        (task_of("FAILED"), 1, "failed"),
    ],
)
async def test_no_wait_prints_only_the_id_in_any_state(
    result: dict[str, Any], code: int, words: str, run: Run
) -> None:
    async with listening(Foreign(result)) as url:
        done = await run(url, "act", "--no-wait")
    assert (done.code, done.out) == (code, "t\n")
    assert words in done.err
    assert "no terminal" not in done.err


STRICT = {"type": "object", "properties": {"name": {"type": "string"}}, "additionalProperties": False}
LOOSE = {"type": "object", "properties": {"name": {"type": "string"}, "tags": {"type": "array"}}}


@pytest.mark.parametrize(
    ("schema", "code", "words"),
    [
        (LOOSE, 0, "act has no argument nam; it has: name, tags\n"),
        (STRICT, 2, "act has no argument nam; it has: name\n"),
        ({**LOOSE, "additionalProperties": True}, 0, ""),
        ({"type": "object"}, 0, ""),
        ({"type": "object", "properties": {}}, 0, "act has no argument nam; it has none\n"),
    ],
)
@pytest.mark.parametrize("arguments", [["nam=x"], ["--json", '{"nam": "x"}']])
async def test_an_argument_that_the_skill_does_not_have_is_told(
    arguments: list[str], schema: dict[str, Any], code: int, words: str, run: Run
) -> None:
    foreign = Foreign(HELLO, schema=schema)
    async with listening(foreign) as url:
        done = await run(url, "act", *arguments)
    assert (done.code, done.err.removeprefix("mcp-a2a: ")) == (code, words)
    assert [call["message"]["parts"][0]["data"] for _, call in foreign.calls] == (
        [] if code else [{"nam": "x"}]
    )


async def test_a_key_given_twice_is_an_array_or_a_fault(run: Run) -> None:
    numbers = {"type": "array", "items": {"type": "integer"}}
    properties = {"name": {"type": "string"}, "tags": {"type": "array"}, "n": numbers}
    foreign = Foreign(HELLO, schema={"type": "object", "properties": properties})
    async with listening(foreign) as url:
        assert (await run(url, "act", "tags=a", "tags=b", "n=1", "n=2")).code == 0
        done = await run(url, "act", "name=a", "name=b")
    assert (done.code, done.out) == (2, "")
    assert "name is given 2 times" in done.err
    [(_, params)] = foreign.calls
    assert params["message"]["parts"][0]["data"] == {"tags": ["a", "b"], "n": [1, 2]}


async def test_an_agent_that_wants_a_token_names_the_option_for_it(run: Run) -> None:
    async def agent(scope: Scope, receive: Receive, send: Send) -> None:
        await Response(status_code=401, headers={"WWW-Authenticate": "Bearer"})(scope, receive, send)

    async with listening(agent) as url:
        done = await run(url, "act")
        again = await run(url, "act", "--bearer", "env:TOKEN", TOKEN="s3cret")
    assert (done.code, again.code) == (1, 1)
    assert "401" in done.err
    assert "--bearer env:NAME" in done.err
    assert "refuses the token: check what --bearer names" in again.err


@pytest.mark.parametrize("cut_at", [500, 800, 1200])
async def test_a_broken_stream_loses_and_repeats_nothing(cut_at: int, run: Run) -> None:
    async def script(job: Job) -> None:
        await say(job, TaskState.WORKING)
        for number in range(4):
            artifact = Artifact(artifact_id="a", parts=(Part(text=f"chunk {number}, "),))
            await job.artifact(artifact, append=number > 0)
        await job.artifact(Artifact(artifact_id="a", parts=(Part(data={"n": 1}),)), append=True)
        await say(job, TaskState.COMPLETED)

    async with serving(script) as (url, _), proxy_to(httpx2.URL(url).port or 0) as proxy:
        proxy.on(b"SendStreamingMessage", cut_after(cut_at))
        done = await run(proxy.url(""), "act")
        assert proxy.count(b"SendStreamingMessage") == 1
        assert proxy.count(b"GetTask") + proxy.count(b"SubscribeToTask") > 0
    # Where a text of a task that is read anew goes on, nobody says: its pieces may stand on lines of their own.
    assert (done.code, "".join(done.out.split())) == (0, 'chunk0,chunk1,chunk2,chunk3,{"n":1}')


async def test_a_message_without_an_answer_may_have_begun_a_task(run: Run) -> None:
    async def script(job: Job) -> None:
        await say(job, TaskState.COMPLETED)

    async with serving(script) as (url, _), proxy_to(httpx2.URL(url).port or 0) as proxy:
        proxy.on(b"SendStreamingMessage", RESET_AFTER_HEAD)
        done = await run(proxy.url(""), "act")
        assert proxy.count(b"SendStreamingMessage") == 1
    assert done.code == 1
    assert done.err.endswith(
        "Whether the agent took the message is unknown; it is not sent again. "
        "If the agent began a task, the task may still run; the agent did not give its id.\n"
    )


# Questions, in a script


@pytest.fixture(scope="module", params=["legacy", "modern"])
async def asking(request: pytest.FixtureRequest) -> AsyncIterator[Running]:
    async with running(config_for(asking_command(request.param), era=Era(request.param))) as bridge:
        yield bridge


ADA = {"name": "Ada", "color": "green", "tags": ["a", "b"]}


def accepted(done: Done) -> Any:
    """The values of the form that the server received."""
    return json.loads(done.out.removeprefix("accept "))


def command_in(done: Done) -> list[str]:
    """The printed command for the answer."""
    mcp_a2a, call, *words = shlex.split(done.err.splitlines()[-1])
    assert (mcp_a2a, call) == ("mcp-a2a", "call")
    return words


@pytest.mark.proves("cli-call")
async def test_a_question_that_nobody_can_be_asked_ends_with_3_and_the_command_that_answers(
    run: Run, bridge: Running
) -> None:
    done = await run(bridge.base_url, "echo")
    assert (done.code, done.out) == (3, "")
    assert "(--decline instead of an answer declines)" in done.err
    assert command_in(done) == [bridge.base_url, "--task", done.task_id, "text=..."]


@pytest.mark.proves("cli-call")
async def test_a_suggested_command_refers_to_the_credentials(run: Run, bridge: Running) -> None:
    secrets = ["--bearer", "env:TOKEN", "--header", "X-Key=env:KEY"]
    others = ["--header", "X-Team=blue team", "--trust", "https://b.example", "--allow-private"]
    done = await run(bridge.base_url, "echo", *secrets, *others, TOKEN="s3cret", KEY="s3cret-too")
    assert done.code == 3
    url, *options = command_in(done)
    assert (url, options) == (
        bridge.base_url,
        [*secrets, *others, "--task", done.task_id, "text=..."],
    )
    assert "s3cret" not in done.err
    assert (await run(url, *options[:-1], "text=hi", TOKEN="a", KEY="b")).out == "hi\n"


@pytest.mark.proves("cli-call")
async def test_a_suggested_command_masks_the_user_in_the_url(run: Run, bridge: Running) -> None:
    done = await run(bridge.base_url.replace("://", "://ada:s3cret@"), "echo")
    assert done.code == 3
    assert command_in(done)[0] == bridge.base_url.replace("://", "://***@")
    assert "s3cret" not in done.err


@pytest.mark.proves("cli-usage")
@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["ehco", "text=hi"], "there is no skill 'ehco': did you mean `echo`"),
        (["ehco", "--text", "hi"], "there is no skill 'ehco': did you mean `echo`"),
        (["qqqq"], "there is no skill 'qqqq': mcp-a2a call URL lists the skills"),
    ],
)
async def test_a_mistyped_skill_is_refused_and_leaves_no_task(
    words: list[str], hint: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(config_for(raw_command())) as bridge:
        done = await run(bridge.base_url, *words)
        assert (done.code, done.out) == (2, "")
        assert hint in done.err
        listed = await command("tasks", monkeypatch)(bridge.base_url)
    assert listed.out == "No tasks.\n"


async def test_an_unknown_skill_is_sent_to_an_agent_with_an_extended_card(run: Run) -> None:
    foreign = Foreign(HELLO)
    foreign.skills = [{"id": "greet", "name": "Greet"}]
    async with listening(foreign) as url:
        assert (await run(url, "secret")).code == 2
        foreign.capabilities["extendedAgentCard"] = True
        assert (await run(url, "secret")).code == 0
    assert len(foreign.calls) == 1


@pytest.mark.proves("cli-call", "map-elicitation-form")
async def test_a_form_of_a_server_is_answered_by_the_command_that_is_said(run: Run, asking: Running) -> None:
    asked = await run(asking.base_url, "ask")
    assert asked.code == 3
    url, _, task_id, answer = command_in(asked)
    assert answer == "name=..."
    wrong = await run(url, "--task", task_id, "name=A", "age=7")
    assert wrong.code == 3
    assert "That answer does not fit the form" in wrong.err
    done = await run(url, "--task", task_id, "name=Ada", "age=7", "tags=a", "tags=b")
    assert (done.code, accepted(done)) == (0, {**ADA, "age": 7})
    again = await run(url, "--task", task_id, "name=Ada")
    assert (again.code, again.err.splitlines()[-1]) == (
        2,
        "mcp-a2a: the task asks for nothing: it is COMPLETED",
    )
    assert (await run(url, "--task", task_id)).out == done.out


@pytest.mark.proves("cli-call", "map-elicitation-url")
async def test_a_visit_of_a_url_is_shown_and_confirmed_or_declined(run: Run, asking: Running) -> None:
    for answer, said in ((["--text", "done"], "accept\n"), (["--decline"], "decline\n")):
        asked = await run(asking.base_url, "ask-url")
        assert asked.code == 3
        url, _, task_id, *shown = command_in(asked)
        assert shown == ["--text", "done"]
        assert "{" not in asked.err
        done = await run(url, "--task", task_id, *answer)
        assert (done.code, done.out) == (0, said)


@pytest.mark.proves("cli-call", "map-confirm")
async def test_a_call_is_confirmed_by_the_printed_command(run: Run) -> None:
    async with running(config_for(raw_command(), profile=profile_with(run={"confirm": "strict"}))) as bridge:
        asked = await run(bridge.base_url, "add", "a=1", "b=2")
        assert asked.code == 3
        url, _, task_id, *shown = command_in(asked)
        assert shown == ["--text", "yes"]
        done = await run(url, "--task", task_id, *shown)
        assert (done.code, done.out) == (0, '{"sum": 3}\n')


@pytest.mark.proves("cli-call", "map-elicitation-both")
@pytest.mark.parametrize("asking", ["modern"], indirect=True)
async def test_several_questions_are_answered_by_one_object(run: Run, asking: Running) -> None:
    asked = await run(asking.base_url, "ask-form-and-url")
    assert asked.code == 3
    url, _, task_id, option, example = command_in(asked)
    assert option == "--json"
    done = await run(url, "--task", task_id, option, example.replace("...", "Ada"))
    assert (done.code, done.out) == (0, 'accept {"name": "Ada"}; accept\n')


async def test_a_working_task_is_watched_to_its_end(run: Run) -> None:
    go_on = anyio.Event()

    async def script(job: Job) -> None:
        await say(job, TaskState.WORKING, "at it")
        await go_on.wait()
        await give(job, "done")
        await say(job, TaskState.COMPLETED)

    async with serving(script) as (url, _), anyio.create_task_group() as tasks:
        begun = await run(url, "act", "--no-wait")
        assert begun.code == 0
        watched: list[Done] = []

        async def watch() -> None:
            watched.append(await run(url, "--task", begun.task_id, "--timeout-seconds", "20"))

        tasks.start_soon(watch)
        go_on.set()
    assert (watched[0].code, watched[0].out) == (0, "done\n")


@pytest.mark.proves("cli-usage")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["echo", "--task", "t"], "give a skill or --task, not both: 'echo' is not KEY=VALUE"),
        (["--task", "t", "--decline", "a=b"], "give an answer or --decline, not both"),
        (["--task", "t", "--no-wait"], "--no-wait with --task needs an answer"),
        (["echo", "--decline"], "--decline needs --task with the id of the task"),
    ],
)
async def test_options_that_fit_no_task_are_refused_with_one_message(
    arguments: list[str], words: str, run: Run
) -> None:
    done = await run("http://127.0.0.1:1", *arguments)
    assert (done.code, done.err) == (2, f"mcp-a2a: {words}\n")


@pytest.mark.proves("map-ask-back-no")
async def test_declining_cancels_the_task_of_an_agent_that_has_declared_no_form_for_it(run: Run) -> None:
    agent = Books()
    async with scripted_agent(agent) as url:
        asked = await run(url, "--text", "book", "act")
        assert "(--decline instead of an answer declines, which cancels the task)" in asked.err
        done = await run(url, "--task", "t-1", "--decline")
    assert done.code == 1
    assert "You declined. The agent does not define how a client declines" in done.err
    assert "canceled: Not booked." in done.err
    assert (len(agent.said), agent.cancels) == (1, 1)


@pytest.mark.proves("map-ask-back-no")
async def test_declining_says_no_in_the_form_of_an_agent_that_has_one(run: Run) -> None:
    agent = Books({"text": "Book it?"}, {"data": {"schema": APPROVAL}})
    async with scripted_agent(agent) as url:
        asked = await run(url, "--text", "book", "act")
        assert "(--decline instead of an answer declines)" in asked.err
        await run(url, "--task", "t-1", "--decline")
    assert [part["data"] for part in agent.said[1]["parts"]] == [{"approved": False}]
    assert agent.cancels == 0


# At a terminal


@pytest.mark.proves("cli-call", "map-elicitation-form")
async def test_a_form_of_a_server_is_asked_field_by_field(asking: Running, tmp_path: Path) -> None:
    async with at_terminal(asking.base_url, "ask", state=tmp_path) as terminal:
        for asked, answer in (
            ("Name (string; required): (Ctrl+D declines) ", "A\n"),
            ('"A" is too short', "Ada\n"),
            ("age (integer): ", "old\n"),
            ('"old" is not of type "integer"', "36\n"),
            ('color (one of "red", "green", "blue") ["green"]: ', "\n"),
            ("tags (", "a, b\n"),
        ):
            await terminal.until(asked)
            terminal.type(answer)
        done = await terminal.end()
    assert (done.code, accepted(done)) == (0, {**ADA, "age": 36})


@pytest.mark.proves("cli-call", "map-elicitation-url")
@pytest.mark.smoke("modern")
async def test_a_url_of_a_server_is_shown_and_waited_for(asking: Running, tmp_path: Path) -> None:
    for key, said in (("\n", "accept\n"), ("\x04", "decline\n")):
        async with at_terminal(asking.base_url, "ask-url", state=tmp_path) as terminal:
            await terminal.until("auth required: ")
            await terminal.until("http")
            await terminal.until("Press Enter once that is done (Ctrl+D declines) ")
            assert "{" not in terminal.shown
            terminal.type(key)
            done = await terminal.end()
        assert (done.code, done.out) == (0, said)


@pytest.mark.proves("cli-call", "map-confirm")
@pytest.mark.parametrize(("typed", "code"), [("\n", 0), ("yes\n", 0), ("\x04", 1), ("no\n", 1)])
@pytest.mark.smoke("\\n-0", "no\\n-1")
async def test_enter_confirms_a_call(typed: str, code: int, tmp_path: Path) -> None:
    config = config_for(raw_command(), profile=profile_with(run={"confirm": "strict"}))
    async with (
        running(config) as bridge,
        at_terminal(bridge.base_url, "add", "a=1", "b=2", state=tmp_path) as terminal,
    ):
        await terminal.until("Press Enter to confirm (Ctrl+D declines) ")
        terminal.type(typed)
        done = await terminal.end()
    assert done.code == code


@pytest.mark.proves("cli-call", "map-ask-back-no")
@pytest.mark.parametrize(("end", "code"), [("declined", 1), ("interrupted", 130)])
async def test_declining_at_the_terminal_cancels_the_task_of_an_agent_without_refusals(
    end: str, code: int, tmp_path: Path
) -> None:
    agent = Books()
    async with (
        scripted_agent(agent) as url,
        at_terminal(url, "act", "--text", "book", state=tmp_path) as terminal,
    ):
        await terminal.until("Your answer: (Ctrl+D declines, which cancels the task) ")
        if end == "declined":
            terminal.type("\x04")
        else:
            terminal.interrupt()
        done = await terminal.end()
    assert done.code == code
    assert "canceled: Not booked." in done.err
    assert (len(agent.said), agent.cancels) == (1, 1)


@pytest.mark.proves("cli-call", "map-ask-back-no")
@pytest.mark.parametrize(
    ("typed", "answer"), [("\n", {}), ("no\n", {"action": "decline"}), ("\x04", {"action": "decline"})]
)
@pytest.mark.parametrize(
    "asks",
    [
        ({"data": {"key": "k", "message": "Delete all?", "schema": {"type": "object", "properties": {}}}},),
        ({"text": "Visit it"}, {"data": {"key": "k", "mode": "url", "url": "https://example.com/x"}}),
    ],
    ids=["form", "url"],
)
@pytest.mark.smoke("form-no\\n-answer1", "url-\\n-answer0")
async def test_a_no_to_a_confirmation_declines(asks: Any, typed: str, answer: Any, tmp_path: Path) -> None:
    agent = Books(*asks, state="INPUT_REQUIRED" if len(asks) == 1 else "AUTH_REQUIRED", key="k")
    declared = {"capabilities": {"streaming": True, "extensions": [{"uri": URI}]}}
    async with (
        scripted_agent(agent, declared) as url,
        at_terminal(url, "act", "--text", "book", state=tmp_path) as terminal,
    ):
        await terminal.until("Press Enter ")
        terminal.type(typed)
        await terminal.end()
    (part,) = agent.said[1]["parts"]
    assert part.get("data", {}) == answer
    said = agent.said[1]["metadata"][f"{URI}/answer"]
    assert said == ("decline" if answer else "accept")


@pytest.mark.proves("cli-call", "map-elicitation-both")
@pytest.mark.parametrize("asking", ["modern"], indirect=True)
async def test_a_form_and_a_url_of_a_task_are_asked_in_turn(asking: Running, tmp_path: Path) -> None:
    async with at_terminal(asking.base_url, "ask-form-and-url", state=tmp_path) as terminal:
        for asked, answer in (
            ("Your name, please\nname (string; required): (Ctrl+D declines) ", "Ada\n"),
            ("Press Enter once that is done (Ctrl+D declines) ", "\x04"),
        ):
            await terminal.until(asked)
            terminal.type(answer)
        done = await terminal.end()
    assert (done.code, done.out) == (0, 'accept {"name": "Ada"}; decline\n')


@pytest.mark.proves("cli-call", "map-elicitation-url")
@pytest.mark.parametrize("asking", ["legacy"], indirect=True)
async def test_a_required_url_is_shown_and_the_call_is_repeated(asking: Running, tmp_path: Path) -> None:
    async with at_terminal(asking.base_url, "need-url", state=tmp_path) as terminal:
        await terminal.until("Press Enter once that is done")
        terminal.type("\n")
        done = await terminal.end()
    assert (done.code, done.out) == (0, "connected\n")


@pytest.mark.proves("cli-call")
async def test_missing_arguments_are_asked_for_until_they_fit(bridge: Running, tmp_path: Path) -> None:
    async with at_terminal(bridge.base_url, "add", "a=1", state=tmp_path) as terminal:
        await terminal.until("b (number; required): The second: (Ctrl+D declines) ")
        terminal.type("\n")
        await terminal.until("b is required: type an answer\nb (number; required): The second: ")
        terminal.type("much\n")
        await terminal.until('"much" is not of type "number"')
        terminal.type("2\n")
        done = await terminal.end()
    assert (done.code, done.out) == (0, '{"sum": 3}\n')
    assert len(set(re.findall(r"task [0-9a-f-]{36}", done.err))) == 1


async def test_ctrl_d_declines(bridge: Running, tmp_path: Path) -> None:
    async with at_terminal(bridge.base_url, "echo", state=tmp_path) as terminal:
        await terminal.until("text (string; required): What to say:")
        terminal.type("\x04")
        done = await terminal.end()
    assert (done.code, done.out) == (1, "")
    assert "rejected: The question was declined" in done.err


@pytest.mark.any_loop
@pytest.mark.parametrize(
    ("skill", "words"), [("wait", "working"), ("echo", "text (string; required): What to say:")]
)
@pytest.mark.proves("cli-call")
@pytest.mark.smoke("wait-working")
async def test_ctrl_c_cancels_the_task(skill: str, words: str, bridge: Running, tmp_path: Path) -> None:
    async with at_terminal(bridge.base_url, skill, state=tmp_path) as terminal:
        await terminal.until(words)
        terminal.interrupt()
        done = await terminal.end()
    assert done.code == 130
    assert "\ncanceled: Canceled on request" in done.err
    assert await state_of(bridge.base_url, done.task_id) is TaskState.CANCELED


async def test_progress_is_a_bar(bridge: Running, tmp_path: Path) -> None:
    async with at_terminal(bridge.base_url, "progress", "steps=4", state=tmp_path) as terminal:
        done = await terminal.end()
    assert (done.code, done.out) == (0, "4 steps\n")
    assert re.search(r"step 4 .*━━━━", done.err)


async def test_at_a_terminal_too_each_event_is_a_line_of_json_and_nothing_else(
    bridge: Running, tmp_path: Path
) -> None:
    arguments = (bridge.base_url, "progress", "steps=3", "--json-output")
    async with at_terminal(*arguments, state=tmp_path, results=True) as terminal:
        done = await terminal.end()
    events = [StreamResponse.model_validate_json(line) for line in done.err.splitlines()]
    assert done.code == 0
    assert len(events) == 7


async def test_an_argument_that_is_asked_for_as_json_names_its_fields_and_is_checked(tmp_path: Path) -> None:
    edit = {"type": "object", "properties": {"old": {"type": "string"}, "new": {}}, "required": ["old"]}
    items = {"type": "array", "items": {"$ref": "#/$defs/Edit"}}
    schema = {
        "type": "object",
        "properties": {"edits": items},
        "required": ["edits"],
        "$defs": {"Edit": edit},
    }
    field = {"type": "string", "description": "What to change (as JSON)"}
    form = {"type": "object", "properties": {"edits": field}, "required": ["edits"]}
    question = task_of(
        "INPUT_REQUIRED", asked=({"text": "Edits?"}, {"data": {"skill": "act", "schema": form}})
    )
    foreign = Foreign(question, task_of("COMPLETED"), schema=schema)
    async with listening(foreign) as url, at_terminal(url, "act", state=tmp_path) as terminal:
        for asked, answer in (
            ("What to change (as JSON), each with old (required), new: (Ctrl+D declines) ", "[{\n"),
            ("edits takes JSON, and this is not JSON\n", '[{"new": 1}]\n'),
            ('at 0: "old" is a required property\n', '{"old": "it\'s"}\n'),
            ('{"old": "it\'s"} is not of type "array"\n', '[{"old": "a"}]\n'),
        ):
            await terminal.until(asked)
            terminal.type(answer)
        assert (await terminal.end()).code == 0
    assert foreign.calls[1][1]["message"]["parts"][0]["data"] == {"edits": '[{"old": "a"}]'}


async def test_a_form_is_filled_in_field_by_field(tmp_path: Path) -> None:
    answers: list[Any] = []
    schema = {
        "type": "object",
        "properties": {
            "size": {"title": "Size", "enum": ["s", "m"], "enumNames": ["Small", "Middle"]},
            "colours": {"type": "array", "items": {"anyOf": [{"const": 1, "title": "Red"}, {"const": 2}]}},
            "loud": {"type": "boolean"},
            "count": {"type": "integer", "default": 7},
            "note": {"type": "string"},
        },
        "required": ["size"],
    }

    async def script(job: Job) -> None:
        if job.turn.task is None:
            return await job.status(TaskState.INPUT_REQUIRED, job.message((Part(data={"schema": schema}),)))
        answers.extend(part.data for part in job.turn.message.parts)
        return await say(job, TaskState.COMPLETED)

    async with serving(script) as (url, _), at_terminal(url, "act", state=tmp_path) as terminal:
        for asked, answer in (
            ("Size (s (Small), m (Middle); required):", "big\n"),
            ('"big" is not one of ["s", "m"]', "Middle\n"),
            ("colours (any of 1 (Red), 2):", "Red, 2\n"),
            ("loud (yes or no):", "y\n"),
            ("count (integer) [7]:", "\n"),
            ("note (string):", "\n"),
        ):
            await terminal.until(asked)
            terminal.type(answer)
        assert (await terminal.end()).code == 0
    assert answers == [{"size": "m", "colours": [1, 2], "loud": True, "count": 7}]


async def test_a_question_without_a_form_is_answered_in_words_or_ends_the_task(tmp_path: Path) -> None:
    async def script(job: Job) -> None:
        if job.turn.task is None:
            return await say(job, TaskState.INPUT_REQUIRED, "What then?")
        await give(job, f"\x1b[31m{job.turn.message.parts[0].text}")
        return await say(job, TaskState.COMPLETED)

    async with serving(script) as (url, _):
        async with at_terminal(url, "act", state=tmp_path, results=True) as terminal:
            await terminal.until("input required: What then?\nYour answer:")
            terminal.type("this\n")
            done = await terminal.end()
        assert done.code == 0
        assert "\\x1b[31mthis\n" in done.err  # shown, and not obeyed
        async with at_terminal(url, "act", state=tmp_path) as terminal:
            await terminal.until("Your answer:")
            terminal.type("\x04")
            done = await terminal.end()
        assert done.code == 1
        assert await state_of(url, done.task_id) is TaskState.CANCELED


@pytest.mark.parametrize("by_itself", [True, False])
async def test_an_authorization_is_waited_for(by_itself: bool, run: Run, tmp_path: Path) -> None:
    authorized, turns = anyio.Event(), []

    async def script(job: Job) -> None:
        turns.append(job.turn)
        if job.turn.task is None:
            parts = (Part(text="Sign in first"), Part(url="https://x.test/sign-in"))
            await job.status(TaskState.AUTH_REQUIRED, job.message(parts))
            if not by_itself:
                return
            await authorized.wait()
        await give(job, "done")
        await say(job, TaskState.COMPLETED)

    async with serving(script) as (url, _):
        async with at_terminal(url, "act", state=tmp_path) as terminal:
            await terminal.until("auth required: Sign in first\n    https://x.test/sign-in\n")
            await terminal.until("Press Enter once that is done")
            if by_itself:
                authorized.set()
            terminal.type("\n")
            done = await terminal.end()
        assert (done.code, done.out) == (0, "done\n")
        assert len(turns) == (1 if by_itself else 2)
        if not by_itself:
            done = await run(url, "act")
            assert done.code == 3
            assert "https://x.test/sign-in\nThe task waits for an answer" in done.err
            assert done.err.endswith(f"mcp-a2a call {url} --task {done.task_id} --text done\n")
