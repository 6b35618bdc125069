"""Lines that a person copies into a shell: what the programs get there is what was typed, whatever that was."""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from bridge.assembly.call_lines import WORD_BYTES, a2a_line
from bridge.console.call_lines import command_line, mcp_line
from bridge.text.safe_text import shell_word, with_visible_characters

HOSTILE: Final = [
    "it's \"here\" $HOME $(touch owned) `touch owned` ${IFS} !! !$ \\ \\' \\\\ % * ? ~ # & | ; < > ( ) [ ] { }",
    "'; touch owned; '",
    '"\n"',
    "line\nline\r\n\ttab\0nul \x1b[31m \x7f \x85",
    "@/etc/passwd",
    "-rf",
    "--json",
    "",
    " ",
    "JSON",
    "\nJSON\n",
    "ä 𝄞 \u202egnp.exe \u200b \ufeff \u2028 \u200d",
    "\ud800 alone",
    '"messageId":"the id of this message"',
    "'$(date +%s)'",
]
URL: Final = "https://bridge.example/it's $HOME/agents/desk"
SECRET: Final = '-H "Authorization: Bearer $MCP_A2A_TOKEN"'
PROGRAM: Final = f"""#!{sys.executable} -S
import json, os, sys
data = "" if "@-" not in sys.argv else sys.stdin.buffer.read().decode()
json.dump([sys.argv[1:], data], sys.stdout)
"""


@dataclass
class Got:
    """What a program got from the shell."""

    words: list[str]
    stdin: str

    def after(self, option: str) -> str:
        return self.words[self.words.index(option) + 1]

    @property
    def headers(self) -> list[str]:
        return [self.words[place + 1] for place, word in enumerate(self.words) if word == "-H"]


@pytest.fixture(params=["sh", "bash"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    shell = shutil.which(request.param)
    if shell is None:
        pytest.skip(f"there is no {request.param}")
    (programs := tmp_path / "bin").mkdir()
    for name in ("curl", "mcp-a2a"):
        (programs / name).write_text(PROGRAM)
        (programs / name).chmod(0o700)
    known = {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "MCP_A2A_TOKEN": "s3cret"}

    def ran(line: str) -> Got:
        # As a terminal has it: in the encoding of the system, and shown as it is.
        assert with_visible_characters(line) == line
        done = subprocess.run(
            [shell], input=f"{line}\n".encode(), cwd=tmp_path, env=known, capture_output=True, timeout=30
        )
        assert (done.returncode, done.stderr) == (0, b"")
        assert not (tmp_path / "owned").exists()
        return Got(*json.loads(done.stdout))

    return ran


def arguments_of(message: Any) -> Any:
    return message["params"]["message"]["parts"][0]["data"]["arguments"]


def test_this_command_gets_the_arguments_as_they_were_typed(run: Any) -> None:
    arguments = {"words": HOSTILE, "it's": {"deep": [1, 2.5, None, True]}}
    got = run(command_line(URL, "it's", arguments, ["--bearer", "env:MCP_A2A_TOKEN"]))
    assert got.words[:3] == ["call", URL, "it's"]
    assert json.loads(got.after("--json")) == arguments
    assert got.words[-2:] == ["--bearer", "env:MCP_A2A_TOKEN"]
    assert run(command_line(URL, "echo", {})).words == ["call", URL, "echo"]


def test_curl_sends_the_arguments_as_they_were_typed_to_an_agent_each_time_as_a_new_message(run: Any) -> None:
    arguments = {"words": HOSTILE}
    got = run(a2a_line(URL, "it's", arguments, SECRET))
    assert got.words[:2] == ["-s", URL]
    assert got.headers == [
        "A2A-Version: 1.0",
        "Content-Type: application/json",
        "Authorization: Bearer s3cret",
    ]
    sent = json.loads(got.after("-d"))
    assert arguments_of(sent) == arguments
    message = sent["params"]["message"]
    assert (message["role"], message["parts"][0]["data"]["skill"]) == ("ROLE_USER", "it's")
    assert message["messageId"].isdigit()


def test_curl_calls_a_tool_of_a_server_without_a_session(run: Any) -> None:
    line = mcp_line(URL, "it's", {"words": HOSTILE}, SECRET)
    assert line is not None
    got = run(line)
    assert got.headers[:3] == ["MCP-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", "Mcp-Name: it's"]
    sent = json.loads(got.after("-d"))
    assert (sent["method"], sent["params"]["name"]) == ("tools/call", "it's")
    assert sent["params"]["arguments"] == {"words": HOSTILE}
    assert mcp_line(URL, "ä", {}) is None


@pytest.mark.smoke("sh")
def test_what_is_too_long_for_a_word_of_a_command_line_comes_over_stdin(run: Any) -> None:
    arguments: Any = {"text": "it's $HOME \\ \u00e4\n" * WORD_BYTES}
    got = run(command_line(URL, "echo", arguments, ["--bearer", "env:X"]))
    assert got.words == ["call", URL, "echo", "--json", "@-", "--bearer", "env:X"]
    assert json.loads(got.stdin) == arguments
    first, second = (run(a2a_line(URL, "echo", arguments, SECRET)) for _ in range(2))
    messages = [json.loads(one.stdin) for one in (first, second)]
    assert [arguments_of(one) for one in messages] == [arguments] * 2
    assert len({one["params"]["message"]["messageId"] for one in messages}) == 2
    line = mcp_line(URL, "echo", arguments)
    assert line is not None
    assert json.loads(run(line).stdin)["params"]["arguments"] == arguments


TYPED: Final = [
    "\x15touch owned\n",
    "\r\ntouch owned\r\n",
    "'\x0btouch owned\n",
    "\x1b[201~\ntouch owned\n",
    "\x03touch owned\n",
    "\x04\x1a\x1c\x11\x13\x16\x12touch\t\t\x7f\x08",
    "\x85\u2028\u202egnp \U0001d11e ä",
    "it's \\'!touch !! !$",
]
"""What does more than stand there where it is typed: it empties the line, ends it, or calls up another one."""


@pytest.fixture
def typed(tmp_path: Path) -> Any:
    """Types lines at a bash that does not know pasted text from typed text; what each program gets."""
    if (shell := shutil.which("bash")) is None:
        pytest.skip("there is no bash")
    (programs := tmp_path / "bin").mkdir()
    got = tmp_path / "got"
    for name in ("curl", "mcp-a2a"):
        (programs / name).write_text(
            f"#!{sys.executable} -S\nimport json, sys\n"
            f"data = '' if '@-' not in sys.argv else sys.stdin.buffer.read().decode()\n"
            f"open({str(got)!r}, 'w').write(json.dumps([sys.argv[1:], data]))\nprint('the end')\n"
        )
        (programs / name).chmod(0o700)
    (tmp_path / "inputrc").write_text("set enable-bracketed-paste off\n")
    known = {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "INPUTRC": str(tmp_path / "inputrc"),
        "PS1": "ready> ",
        "HISTFILE": "/dev/null",
        "LC_ALL": "C.UTF-8",
        "TERM": "xterm",
    }

    def until(end: int, words: bytes) -> None:
        seen = b""
        while words not in seen:
            assert select.select([end], [], [], 30)[0], seen
            seen += os.read(end, 65536)

    def ran(line: str) -> Got:
        got.unlink(missing_ok=True)
        ours, theirs = pty.openpty()
        with subprocess.Popen(
            [shell, "--norc", "--noprofile", "-i"],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=tmp_path,
            env=known,
            start_new_session=True,
        ) as bash:
            os.close(theirs)
            try:
                until(ours, b"ready> ")
                os.write(ours, f"{line}\n".encode())
                until(ours, b"\nthe end")
            finally:
                bash.kill()
                os.close(ours)
        assert not (tmp_path / "owned").exists()
        return Got(*json.loads(got.read_text()))

    return ran


@pytest.mark.parametrize("words", TYPED)
def test_a_line_does_where_it_is_typed_what_it_does_in_a_file(typed: Any, words: str) -> None:
    url = f"http://127.0.0.1:1/{words}"
    got = typed(command_line(url, words, {words: words}, ["--bearer", words]))
    assert got.words == ["call", url, words, "--json", got.after("--json"), "--bearer", words]
    assert json.loads(got.after("--json")) == {words: words}
    sent = json.loads(typed(a2a_line(url, words, {words: words})).after("-d"))
    assert sent["params"]["message"]["parts"][0]["data"] == {"skill": words, "arguments": {words: words}}


def test_a_word_for_a_shell_is_printable_ascii() -> None:
    for code in (*range(1, 0x400), 0x202E, 0xFFFF, 0x1D11E):
        word = shell_word(f"a{chr(code)}b")
        assert word.isascii(), word
        assert word.isprintable(), word
