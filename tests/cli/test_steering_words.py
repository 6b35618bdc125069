"""A peer sends control sequences in every text: no command and no log passes them to a terminal."""

from __future__ import annotations

import ast
import json
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import redirect_stderr
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import pytest

import bridge
from bridge.cli import banner
from bridge.cli.logs import BareFormat, JsonFormat, TextFormat
from bridge.text.safe_text import with_visible_characters, without_hidden_characters
from tests.cli.call.test_command import Done, Run, Screen, command
from tests.support.command import run_command
from tests.support.running import config_for, running
from tests.support.scripted_agent import Json, plain_card, scripted_agent
from tests.support.tool_server import ToolServer, listed

STEERING: Final = (
    "\x1b]0;title\x07\x1b[2J\x08\x9b31m\x9d8;;http://evil.test\x9c\x7f"
    "\u202e\u2066\u200f\u061c\u200b\u2060\ufeff\u00ad\u2028\U000e0041"
)
"""A title, a cleared screen, C1 controls, a right-to-left override, and invisible letters."""
MARKUP: Final = "[/x ] [link=http://evil.test]here[/link] [bold]"
EVIL: Final = f"evil{STEERING}{MARKUP}"

HARMFUL: Final = [one for one in STEERING if not (one.isascii() and one.isprintable())]


def require_harmless(said: str) -> None:
    """The text has no control characters: they are escaped, and markup stays as it was sent."""
    require_seen(said)
    assert re.search(r"\\(x1b|u001b)\]0;title\\(x07|u0007)", said)


def require_seen(said: str) -> None:
    """The text has no hidden characters, and its markup stays."""
    assert [one for one in HARMFUL if one in said] == []
    assert MARKUP in said


def evil_card(url: str) -> Json:
    """A card of which every word is evil."""
    skill = {
        "id": EVIL,
        "name": f"n{EVIL}",
        "description": EVIL,
        "tags": ["[/x", f"]{EVIL}"],
        "examples": [EVIL],
        "inputModes": [EVIL],
        "outputModes": [EVIL],
    }
    return {
        **plain_card(url),
        "name": EVIL,
        "version": EVIL,
        "description": EVIL,
        "provider": {"organization": "[/x", "url": "]"},
        "capabilities": {"streaming": True, "extensions": [{"uri": EVIL, "description": EVIL}]},
        "securitySchemes": {EVIL: {"httpAuthSecurityScheme": {"scheme": EVIL}}},
        "defaultInputModes": [EVIL],
        "defaultOutputModes": [EVIL],
        "skills": [skill, {**plain_card(url)["skills"][0], "description": EVIL}],
    }


def evil_task(state: str) -> Json:
    message = {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": EVIL}, {"data": {EVIL: EVIL}}]}
    return {
        "id": f"task{EVIL}",
        "contextId": f"context{EVIL}",
        "status": {"state": f"TASK_STATE_{state}", "message": message},
        "artifacts": [{"artifactId": "a", "name": EVIL, "parts": [{"text": EVIL}, {"url": EVIL}]}],
        "metadata": {"skill": EVIL},
    }


def evil_answers(method: str, params: Json) -> list[Json]:
    """What the agent answers: by the text that is sent, it asks, fails, refuses or is done."""
    said = json.dumps(params)
    if "refuse" in said:
        return [{"error": {"code": -32603, "message": EVIL}}]
    task = evil_task(next((state for state in ("FAILED", "INPUT_REQUIRED") if state in said), "COMPLETED"))
    if method == "ListTasks":
        return [{"tasks": [task], "nextPageToken": "", "pageSize": 1, "totalSize": 1}]
    return [task if method in ("GetTask", "CancelTask") else {"task": task}]


@pytest.fixture
async def agent() -> AsyncIterator[str]:
    async with scripted_agent(
        evil_answers, {k: v for k, v in evil_card("").items() if k != "supportedInterfaces"}
    ) as url:
        yield url


@pytest.fixture
async def server() -> AsyncIterator[ToolServer]:
    tools = [
        {**listed(name, x={"type": "string", "description": EVIL}), "title": EVIL, "description": EVIL}
        for name in (f"tool{EVIL}", "fine", "fail")
    ]
    async with ToolServer(EVIL, tools, EVIL).run() as server:
        yield server


@pytest.fixture
def at_screen(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Awaitable[Done]]:
    """Runs a command at a terminal."""

    async def run(name: str, *arguments: str) -> Done:
        return await command(name, monkeypatch, Screen)(*arguments)

    return run


def both_in(folder: Path, agent: str, server: str) -> Path:
    """A file of both."""
    file = folder / "bridge.toml"
    file.write_text(
        f'[tool_servers.tools]\nurl = "{server}"\n[agents.remote]\ncard = "{agent}"\n'
        '[tools_as_agent.made]\nfrom = ["tools"]\n[agents_as_tools.offered]\nfrom = ["remote"]\n',
        encoding="utf-8",
    )
    return file


@pytest.mark.parametrize(
    "words",
    [
        ("card", "AGENT"),
        ("card", "AGENT", "--json"),
        ("call", "AGENT", "--text", "go"),
        ("call", "AGENT", "--text", "go", "--json-output"),
        ("call", "AGENT", "--text", "FAILED"),
        ("call", "AGENT", "--text", "INPUT_REQUIRED"),
        ("call", "AGENT", "--text", "refuse"),
        ("call", "AGENT", "--text", "go", "--trace"),
        ("call", "AGENT", "--text", "go", "--no-wait"),
        ("call", "AGENT", "evi"),
        ("call", "AGENT", "--task", "t"),
        ("tasks", "AGENT"),
        ("tasks", "AGENT", "--json-output"),
        ("tasks", "AGENT", "t"),
        ("tasks", "AGENT", "INPUT_REQUIRED"),
        ("tasks", "AGENT", "t", "--cancel"),
        ("call", "SERVER"),
        ("call", "SERVER", "--json-output"),
        ("call", "SERVER", "nothing"),
        ("call", "SERVER", "fine"),
        ("call", "SERVER", "fail"),
        ("call", "SERVER", "fine", "y=1", "--trace"),
        ("check", "FILE"),
        ("check", "FILE", "--json"),
        ("show", "FILE", "--card", "made"),
    ],
    ids=" ".join,
)
async def test_no_text_of_a_peer_controls_the_terminal(
    words: tuple[str, ...], agent: str, server: ToolServer, at_screen: Run, tmp_path: Path
) -> None:
    file = both_in(tmp_path, agent, server.url)
    places = {"AGENT": agent, "SERVER": server.url, "FILE": str(file)}
    done = await at_screen(*(places.get(word, word) for word in words))
    assert "Traceback" not in done.err
    require_harmless(done.out + done.err)


async def test_the_tools_for_a_host_have_no_hidden_characters(
    agent: str, server: ToolServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = both_in(tmp_path, agent, server.url)
    done = await command("show", monkeypatch)(str(file), "--tools", "offered")
    require_seen(done.out)
    assert "\\u001b" not in done.out


async def test_no_text_of_a_server_controls_the_terminal_from_the_banner(server: ToolServer) -> None:
    config = config_for(server.target)
    screen = Screen()
    async with running(config) as there:
        with redirect_stderr(screen):
            teller = banner.OnTerminal(config.plan())
            (upstream,) = there.bridge.whole.upstreams.values()
            teller.connecting(EVIL, EVIL)
            teller.connected(EVIL, upstream)
            teller.failed(EVIL, EVIL)
            teller.serving(there.bridge.whole, 8080)
    require_harmless(screen.getvalue())


async def test_a_warning_of_a_command_without_a_log_is_cleaned_too(tmp_path: Path) -> None:
    tools = [
        listed("fine"),
        {**listed(f"odd{EVIL}"), "inputSchema": {"type": "object", "$ref": f"http://{EVIL}"}},
    ]
    async with ToolServer("tools", tools).run() as server:
        done = await anyio.to_thread.run_sync(lambda: run_command("call", server.url, state=tmp_path))
    assert "not all arguments of the tool odd" in done.stderr
    require_harmless(done.stderr)


SINKS: Final = {
    "print",
    "echo",
    "secho",
    "confirm",
    "prompt",
    "write",
    "writelines",
    "Text",
    "from_markup",
    "from_ansi",
}
OF_A_TERMINAL: Final = {"click", "sys.stdout", "sys.stderr", "err.file", "out.file", "Text"}
CLEANING: Final = {"with_visible_characters", "spelled_as_json", "len"}


def is_clean(node: ast.expr) -> bool:
    """Whether an expression has no text of a peer, or only cleaned text."""
    match node:
        case ast.Constant():
            return True
        case ast.Call(func=ast.Name(id=name)):
            return name in CLEANING
        case ast.JoinedStr(values=parts):
            return all(is_clean(part) for part in parts)
        case ast.FormattedValue(value=value):
            return is_clean(value)
        case ast.BinOp(left=left, right=right):
            return is_clean(left) and (is_clean(right) or ast.unparse(right).startswith("_MOST"))
    return False


def is_sink(call: ast.Call) -> bool:
    match call.func:
        case ast.Name(id=name):
            return name in SINKS - {"write"}
        case ast.Attribute(value=owner, attr=name):
            return name in SINKS and ast.unparse(owner) in OF_A_TERMINAL
    return False


def test_output_that_bypasses_the_terminal_is_cleaned_at_its_source() -> None:
    """All other output goes through `Terminal`, `write` and the log formats, which clean it."""
    raw = {
        (file.name, ast.unparse(call))
        for file in Path(bridge.__file__).parent.rglob("*.py")
        for text in [file.read_text("utf-8")]
        if any(name in text for name in SINKS)
        for call in ast.walk(ast.parse(text))
        if isinstance(call, ast.Call) and is_sink(call) and not all(map(is_clean, call.args))
    }
    # To a pipe a result goes as it is.
    assert raw == {
        ("render.py", "sys.stdout.write(with_visible_characters(text) if sys.stdout.isatty() else text)")
    }


@pytest.mark.parametrize("kind", ["Console", "StreamHandler", "basicConfig"])
def test_there_is_one_terminal_and_one_log(kind: str) -> None:
    calls = [
        file.name
        for file in Path(bridge.__file__).parent.rglob("*.py")
        for text in [file.read_text("utf-8")]
        if kind in text
        for call in ast.walk(ast.parse(text))
        if isinstance(call, ast.Call) and ast.unparse(call.func).rpartition(".")[2] == kind
    ]
    assert calls == (["logs.py"] if kind == "StreamHandler" else [])


@pytest.mark.proves("a2a-14.1.1-injection")
@pytest.mark.parametrize("form", [BareFormat(), TextFormat(), JsonFormat()], ids=["bare", "text", "json"])
def test_no_text_of_a_peer_controls_the_terminal_from_a_log(form: logging.Formatter) -> None:
    try:
        raise ValueError(EVIL)
    except ValueError as exc:
        fault = (type(exc), exc, exc.__traceback__)
    record = logging.LogRecord("bridge", logging.INFO, "", 0, "%s\n", (EVIL,), fault)
    line = form.format(record)
    assert [one for one in HARMFUL if one in line] == []
    if isinstance(form, JsonFormat):
        assert json.loads(line)["message"] == f"{EVIL}\n"
    else:
        assert line.splitlines()[0].endswith(f"{with_visible_characters(EVIL)}\\x0a")


@pytest.mark.proves("a2a-13.4-logs")
@pytest.mark.parametrize("form", [TextFormat(), JsonFormat()], ids=["text", "json"])
def test_a_url_in_a_line_of_a_library_is_logged_without_user_and_query(form: logging.Formatter) -> None:
    words = "Connecting to http://ada:s3cret@host/mcp?key=s3cret, then 'https://b/?s3cret#x'"
    line = form.format(logging.LogRecord("mcp.client", logging.DEBUG, "", 0, words, (), None))
    assert "s3cret" not in line
    assert "http://host/mcp?*** then 'https://b/?***'" in line


async def test_characters_that_nobody_sees_are_a_note_of_check(
    agent: str, server: ToolServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    done = await command("check", monkeypatch)(str(both_in(tmp_path, agent, server.url)), "--json")
    of_server, of_agent = (note for note in json.loads(done.out)["notes"] if "invisible characters" in note)
    assert of_server.startswith(
        "tool_servers.tools: invisible characters, or characters that reverse text, are in"
    )
    assert of_agent.startswith("agents.remote: ")
    assert of_agent.endswith("; hosts get its text without them")


def test_emoji_and_the_words_of_any_language_are_left_as_they_are() -> None:
    said = "👩‍💻 ❤️‍🔥 می‌خواهم 日本語 à\n\tb"
    assert (with_visible_characters(said), without_hidden_characters(said)) == (said, said)
    assert (
        without_hidden_characters(f"a{STEERING}b \u200db\u200c\u200d\u200c\u200dc")
        == "a]0;title[2J31m8;;http://evil.testb b\u200c\u200dc"
    )


@pytest.mark.proves("mcp25-session-secret", "a2a-13.4-logs")
@pytest.mark.parametrize("form", [TextFormat(), JsonFormat()], ids=["text", "json"])
def test_the_session_in_a_line_of_a_library_is_not_logged(form: logging.Formatter) -> None:
    known = "0123456789abcdef" * 2
    for words in (
        f"Received session ID: {known}",
        f"Terminating session: {known}",
        f"Session {known} idle timeout",
    ):
        line = form.format(logging.LogRecord("mcp.server", logging.INFO, "", 0, words, (), None))
        assert words.replace(known, "***") in line
