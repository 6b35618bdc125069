"""The output of every command at a terminal or pipe with another encoding than UTF-8."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Callable, Iterator
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path

import pytest

from bridge.cli.main import main
from bridge.cli.render import Terminal
from bridge.local.user_folders import state_folder
from bridge.mcp.client.known_servers import FILE_NAME, Fact, ServerMemory
from tests.support.command import logs_kept
from tests.support.files import DEVTOOLS, RAW, TEAM, an_agent, written

WORDS = "ünïcode — 旅 ✓ 🎉"
SHOWN = {
    "cp1252": r"ünïcode — \u65c5 + \ud83c\udf89",
    "cp932": r"\u00fcn\u00efcode - 旅 + \ud83c\udf89",
}
"""The texts in the code pages of Windows in Western Europe and in Japan."""
TITLED = f"title = {json.dumps(WORDS, ensure_ascii=False)}\n"
NAMED = f"name = {json.dumps(WORDS, ensure_ascii=False)}\n"


@pytest.fixture(scope="module")
def agent() -> Iterator[str]:
    """An agent that echoes, for all tests of this file."""
    with an_agent() as url:
        yield url


def printed(encoding: str, *words: str) -> tuple[int, bytes, bytes]:
    """The exit code of a command, and what it writes to stdout and stderr where these have an encoding."""
    out, err = BytesIO(), BytesIO()
    with pytest.MonkeyPatch.context() as patched, logs_kept():
        patched.setenv("NO_COLOR", "1")
        patched.setattr(sys, "argv", ["mcp-a2a", *words])
        for name, stream in (("stdout", out), ("stderr", err)):
            patched.setattr(sys, name, TextIOWrapper(stream, encoding=encoding, write_through=True))
        with pytest.raises(SystemExit) as ended:
            main()
        assert isinstance(ended.value.code, int)
        return ended.value.code, out.getvalue(), err.getvalue()


def configured(folder: Path) -> str:
    """A file whose title is hard to print."""
    return str(written(folder, RAW, DEVTOOLS, NAMED, TEAM, TITLED))


def broken(folder: Path) -> str:
    """An invalid TOML file, with the words beside the fault."""
    return str(written(folder, f"false = friend # {WORDS}\n"))


def remembering(_: Path) -> str:
    """Remember a server of this name."""
    ServerMemory(state_folder() / FILE_NAME).remember(Fact.NAME, "raw", WORDS)
    return "servers"


FORMS: dict[str, Callable[[Path, str], tuple[str, ...]]] = {
    "a result": lambda _, url: ("call", url, "--text", WORDS),
    "a whole call": lambda _, url: ("call", url, "--trace", "--text", WORDS),
    "a check": lambda folder, _: ("check", configured(folder)),
    "remembered servers": lambda folder, _: (remembering(folder),),
    "a fault with its place": lambda folder, _: ("check", broken(folder)),
    "a wrong command": lambda *_: (WORDS,),
    "a wrong option": lambda *_: ("card", f"--{WORDS}"),
    "a wrong address": lambda *_: ("card", WORDS),
    "a change": lambda folder, url: ("install", "cursor", "--file", str(folder / WORDS), "--dry-run", url),
}
"""A command for each kind of output for people."""


@pytest.mark.parametrize("encoding", SHOWN)
@pytest.mark.parametrize("form", FORMS)
def test_characters_that_an_encoding_lacks_are_replaced(
    form: str, encoding: str, tmp_path: Path, agent: str
) -> None:
    code, out, err = printed(encoding, *FORMS[form](tmp_path, agent))
    shown = (out + err).decode(encoding)
    assert code in (0, 1, 2)
    assert SHOWN[encoding] in shown
    assert "Traceback" not in shown


DOCUMENTS: dict[str, Callable[[Path, str], tuple[str, ...]]] = {
    "tools": lambda folder, _: ("show", "--card", "devtools", configured(folder)),
    "events": lambda _, url: ("call", url, "--json-output", "--text", WORDS),
    "servers": lambda folder, _: (remembering(folder), "--json"),
}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_json_is_written_to_a_pipe_in_utf_8_whatever_its_encoding(
    document: str, tmp_path: Path, agent: str
) -> None:
    code, out, err = printed("cp1252", *DOCUMENTS[document](tmp_path, agent))
    assert (code, "Traceback" in err.decode("cp1252")) == (0, False)
    assert WORDS in out.decode()
    for line in out.splitlines() if document == "events" else [out]:
        json.loads(line)


def test_toml_is_written_to_a_pipe_in_utf_8_whatever_its_encoding(tmp_path: Path) -> None:
    code, out, _ = printed("cp1252", "show", configured(tmp_path))
    assert (code, tomllib.loads(out.decode())["agents_as_tools"]["team"]["title"]) == (0, WORDS)


def test_options_are_written_to_a_pipe_as_toml_in_utf_8() -> None:
    code, out, _ = printed("cp1252", "wrap", "--print-toml", "--name", "raw", "--", "raw", WORDS)
    assert (code, tomllib.loads(out.decode())["tool_servers"]["raw"]["command"]) == (0, ["raw", WORDS])


@pytest.mark.parametrize(("term", "is_styled"), [("xterm-256color", True), ("dumb", False)])
def test_styles_are_written_only_where_a_terminal_takes_them(
    term: str, is_styled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr(sys, "stdout", screen := StringIO())
    terminal = Terminal()
    terminal.say(("done", "green"))
    assert ("\x1b[" in screen.getvalue()) is is_styled
