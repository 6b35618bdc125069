"""The transport of a child process, against real ones: small programs that behave as badly as they are told to."""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
import pytest
from mcp.client._transport import TransportStreams
from mcp.shared.message import SessionMessage
from mcp_types import INTERNAL_ERROR, ErrorData, JSONRPCError, JSONRPCNotification, JSONRPCResponse

from bridge.errors import UsageError
from bridge.mcp.client.faults import FAULT_KEY, TOO_LARGE
from bridge.mcp.client.stderr import LastWords
from bridge.mcp.client.transports.stdio import StdioTarget, child
from bridge.mcp.messages import LineSplitter, OverlongLine, UnreadableError, line_of
from tests.support.fork_server import ROOT
from tests.support.limits import PROFILE, child_pace, command_of
from tests.support.processes import PROC, children_with, gone, is_running

pytestmark = [pytest.mark.proves("mcp-child"), pytest.mark.any_loop]

MEGABYTE: Final = 1024 * 1024
TOLD: Final = "tell"
"""The method of the notifications that the programs send of themselves."""

SHORT: Final = {"exit_seconds": 0.1, "output_seconds": 0.3}
"""For children that do not end by themselves."""

PREAMBLE: Final = f"""
import json, os, signal, subprocess, sys, time

def write(line):
    sys.stdout.buffer.write(line if isinstance(line, bytes) else line.encode()); sys.stdout.flush()

def tell(**params):
    write(json.dumps({{"jsonrpc": "2.0", "method": {TOLD!r}, "params": params}}) + "\\n")

def start(program, **options):
    return subprocess.Popen([sys.executable, "-c", "import signal, time\\n" + program], **options)
"""

needs_proc = pytest.mark.skipif(not PROC.is_dir(), reason="processes are looked up in /proc")


@dataclass
class Started:
    """A child that runs, and what it says."""

    streams: TransportStreams
    last_words: LastWords

    async def next(self) -> Any:
        """The next message, or the error in its place."""
        item = await self.streams[0].receive()
        return item.message if isinstance(item, SessionMessage) else item

    async def unreadable(self) -> str:
        """The text that comes next, which is no message."""
        item = await self.next()
        assert isinstance(item, UnreadableError), item
        return item.text

    async def told(self) -> dict[str, Any]:
        """What the program tells next of itself."""
        message = await self.next()
        assert isinstance(message, JSONRPCNotification), message
        return message.params or {}

    async def rest(self) -> list[Any]:
        """All that comes until the stream ends."""
        items: list[Any] = []
        while True:
            try:
                items.append(await self.next())
            except anyio.EndOfStream:
                return items

    async def send(self, **params: Any) -> None:
        """Send a notification."""
        message = JSONRPCNotification(jsonrpc="2.0", method=TOLD, params=params)
        await self.streams[1].send(SessionMessage(message))


@asynccontextmanager
async def started(
    program: str, limit_bytes: int = PROFILE.server.result_limit_bytes, **pace: float
) -> AsyncIterator[Started]:
    """A child that runs a program; `pace` says how long it is waited for at its end."""
    command = command_of(
        (sys.executable, "-c", PREAMBLE + program), result_limit_bytes=limit_bytes, pace=child_pace(**pace)
    )
    last_words = LastWords()
    with anyio.fail_after(30):
        async with child(command, "tools", last_words) as streams:
            yield Started(streams, last_words)


def result(request_id: int | str, **members: Any) -> JSONRPCResponse:
    return JSONRPCResponse(jsonrpc="2.0", id=request_id, result=members)


def line(*, first: bool = True, **members: Any) -> str:
    """A line as the servers of Python write it, or those of TypeScript, which put the envelope last."""
    envelope = {"jsonrpc": "2.0", **({"id": members.pop("id")} if "id" in members else {})}
    return json.dumps({**envelope, **members} if first else {**members, **envelope}) + "\n"


# Lines


async def test_a_line_of_many_megabytes_arrives_whole() -> None:
    program = """write('{"jsonrpc":"2.0","id":1,"result":{"text":"' + "x" * 20_000_000 + '"}}\\n')"""
    async with started(program) as there:
        message = await there.next()
        assert message == result(1, text="x" * 20_000_000)


def test_the_lines_are_the_same_wherever_the_chunks_end() -> None:
    data = "one\n\ngrüße 🎈\r\nfour is too long\n{}\n".encode()
    expected = [
        b"one",
        b"",
        "grüße 🎈\r".encode(),
        OverlongLine(b"four is too long", b"four is too long"),
        b"{}",
    ]
    for size in range(1, len(data) + 1):
        lines = LineSplitter(limit_bytes=15)
        chunks = [data[at : at + size] for at in range(0, len(data), size)]
        assert [found for chunk in chunks for found in lines.feed(chunk)] == expected


async def test_messages_that_come_byte_by_byte_are_read() -> None:
    messages = [result(n, text="grüße 🎈") for n in range(5)]
    text = "".join(message.model_dump_json() + "\n" for message in messages)
    async with started(f"for byte in {text.encode()!r}: os.write(1, bytes([byte]))") as there:
        assert await there.rest() == messages


async def test_many_messages_of_one_chunk_come_in_their_order() -> None:
    async with started(
        'write(\'\'.join(f\'{{"jsonrpc":"2.0","id":{n},"result":{{}}}}\\n\' for n in range(5000)))'
    ) as there:
        assert await there.rest() == [result(n) for n in range(5000)]


async def test_what_is_no_message_comes_as_an_error_in_its_place() -> None:
    program = r"""
tell(n=1)
write("Listening on port 80\n\n \r\n")
write('{"jsonrpc":"2.0","id":1,"result":{"text":"\\ud83c"}}\n')
write(b'{"jsonrpc":"2.0","id":2,"result":{"text":"\xff"}}\r\n')
write(b'caf\xe9\n')
tell(n=2)
write("half a line")
"""
    async with started(program) as there:
        assert await there.told() == {"n": 1}
        assert await there.unreadable() == "Listening on port 80"
        assert await there.next() == result(1, text="\ufffd")
        assert await there.next() == result(2, text="\ufffd")
        assert await there.unreadable() == "caf\ufffd"
        assert await there.told() == {"n": 2}
        assert await there.rest() == []


# Lines above the limit


@pytest.mark.parametrize("request_id", [7, "call 7"])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("kind", ["result", "error"])
@pytest.mark.smoke("result-*-call 7", "error-*-7")
async def test_an_answer_above_the_limit_is_an_error_and_the_next_one_works(
    kind: str, first: bool, request_id: int | str
) -> None:
    """Whether its id stands first or last. What looks like another one inside of it is not taken for it."""
    content = {"id": 1, "text": "x" * 3 * MEGABYTE, "nested": {"id": 2}}
    long = line(first=first, id=request_id, **{kind: content}).replace("x" * MEGABYTE, "@")
    program = f"write({long!r}.replace('@', 'x' * {MEGABYTE}))\nwrite({line(id=8, result={})!r})"
    async with started(program, MEGABYTE) as there:
        words = f"the result is larger than {MEGABYTE} bytes: `result_limit_bytes` of the tool server is the limit"
        error = ErrorData(code=INTERNAL_ERROR, message=words, data={FAULT_KEY: TOO_LARGE})
        assert await there.next() == JSONRPCError(jsonrpc="2.0", id=request_id, error=error)
        assert await there.rest() == [result(8)]


@pytest.mark.parametrize(
    "long",
    [
        line(id=7, method="sampling/createMessage", params={"text": "x" * 2000}),
        line(id=7, method="sampling/createMessage", params={"text": "x" * 2000}, first=False),
        line(method="notifications/message", params={"text": "x" * 2000, "id": 7}),
        line(result={"text": "x" * 2000, "id": 7}),
        "x" * 2000 + "\n",
    ],
    ids=["request", "request, id last", "notification", "no id", "rubbish"],
)
async def test_what_answers_nothing_and_is_above_the_limit_is_passed_over(long: str) -> None:
    async with started(f"write({long!r})\nwrite({line(id=8, result={})!r})", 1000) as there:
        error, *others = await there.rest()
        assert str(error) == (
            "a line of more than 1000 bytes, in which no id of an answer is found:"
            " `result_limit_bytes` of the tool server is the limit"
        )
        assert others == [result(8)]


def test_no_more_than_the_limit_is_kept_of_a_line() -> None:
    chunk, lines = b"x" * 65536, LineSplitter(limit_bytes=MEGABYTE)
    tracemalloc.start()
    try:
        for _ in range(512):
            assert list(lines.feed(chunk)) == []
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 * MEGABYTE
    assert list(lines.feed(b"\n{}\n")) == [OverlongLine(b"x" * 256, b"x" * 256), b"{}"]


@pytest.mark.proves("mcp-utf8")
def test_half_a_character_is_sent_as_the_escape_that_it_was() -> None:
    message = JSONRPCNotification(jsonrpc="2.0", method=TOLD, params={"text": "\ud83c"})
    assert json.loads(line_of(SessionMessage(message)))["params"] == {"text": "\ud83c"}


# The end of the process


@needs_proc
async def test_the_end_is_noticed_though_a_grandchild_holds_stdout_and_the_grandchild_ends() -> None:
    program = """
tell(pid=start("time.sleep(600)").pid)
write("".join(f'{{"jsonrpc":"2.0","id":{n},"result":{{}}}}\\n' for n in range(500)))
os._exit(1)
"""
    async with started(program, exit_seconds=0.1) as there:
        grandchild = (await there.told())["pid"]
        assert await there.rest() == [result(n) for n in range(500)]
        assert is_running(grandchild)
    await gone(grandchild)


@needs_proc
async def test_the_end_is_noticed_though_a_grandchild_goes_on_writing() -> None:
    program = """
tell(pid=start("while True: print('{}', flush=True), time.sleep(0.01)").pid)
os._exit(1)
"""
    async with started(program, **SHORT) as there:
        grandchild = (await there.told())["pid"]
        assert len(await there.rest()) > 1
        assert is_running(grandchild)
    await gone(grandchild)


async def test_what_is_written_just_before_the_end_arrives() -> None:
    async with started(f"write({line(id=1, result={'text': 'x' * 60_000})!r}); os._exit(1)") as there:
        assert await there.rest() == [result(1, text="x" * 60_000)]


async def test_the_last_words_are_there_when_the_end_is_heard() -> None:
    for _ in range(5):
        async with started("os.close(1); print('the disk is full', file=sys.stderr); os._exit(1)") as there:
            assert await there.rest() == []
            assert str(there.last_words) == "; its last words: the disk is full"


@pytest.mark.parametrize(
    ("said", "variable"),
    [
        ("npm error code UNABLE_TO_GET_ISSUER_CERT_LOCALLY", "NODE_EXTRA_CA_CERTS"),
        ("npm ERR! code SELF_SIGNED_CERT_IN_CHAIN", "NODE_EXTRA_CA_CERTS"),
        ("npm error code ENOTFOUND", "HTTPS_PROXY"),
        ("error: Failed to fetch: error sending request for url (https://index.example/x/)", "HTTPS_PROXY"),
        ("  Caused by: invalid peer certificate: UnknownIssuer", "SSL_CERT_FILE"),
    ],
)
async def test_a_package_that_cannot_be_fetched_is_told_with_the_variable_that_may_be_missing(
    said: str, variable: str
) -> None:
    """Also where other lines come after it, as npm (11) writes many."""
    program = f"print({said!r}, *map(str, range(9)), sep=chr(10), file=sys.stderr); os._exit(1)"
    async with started(f"os.close(1); {program}") as there:
        assert await there.rest() == []
        words = str(there.last_words)
        above = f"{said} | " if said.startswith("error:") else ""
        assert words.startswith(
            f"; its last words: {above}4 | 5 | 6 | 7 | 8; a child is given few variables: "
        )
        assert words.endswith(f" with --env {variable}, in a file with `env`")


async def test_a_server_that_closes_its_stdin_ends_the_connection_once_it_is_written_to() -> None:
    async with started("os.close(0); tell(n=1); tell(n=2); time.sleep(600)", **SHORT) as there:
        assert await there.told() == {"n": 1}
        with suppress(
            anyio.BrokenResourceError
        ):  # unless it is written before the pipe is known to be closed
            await there.send(text="x")
        assert [message.params for message in await there.rest()] == [{"n": 2}]
        with pytest.raises((anyio.BrokenResourceError, anyio.ClosedResourceError)):
            await there.send(text="x")


# Ending it


@needs_proc
async def test_a_server_that_will_not_end_is_killed_with_what_it_started() -> None:
    program = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
tell(pid=os.getpid(), child=start("signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)").pid)
time.sleep(600)
"""
    async with started(program, **SHORT) as there:
        told = await there.told()
    assert not is_running(told["pid"])
    await gone(told["child"])


HOLDS_A_CONNECTION: Final = """
start("import socket; held = socket.create_connection(('127.0.0.1', {port})); time.sleep(600)")
tell()
sys.stdin.read()
"""
"""A server that starts a process, which is seen to end by the end of its connection."""


async def test_what_a_server_has_started_ends_with_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        program = HOLDS_A_CONNECTION.format(port=listener.getsockname()[1])
        async with started(program) as there:
            await there.told()
            held, _ = await anyio.to_thread.run_sync(listener.accept)
        with held, suppress(ConnectionResetError):
            assert await anyio.to_thread.run_sync(held.recv, 1) == b""


@pytest.mark.windows
async def test_what_a_server_has_started_ends_when_the_bridge_is_killed() -> None:
    """A Job Object ends what is in it once its last handle is closed."""
    bridge = """
import sys
import anyio
from bridge.mcp.client.stderr import LastWords
from bridge.mcp.client.transports.stdio import child
from tests.support.limits import command_of

async def run():
    async with child(command_of((sys.executable, "-c", sys.argv[1])), "tools", LastWords()):
        await anyio.sleep_forever()

anyio.run(run)
"""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        program = PREAMBLE + HOLDS_A_CONNECTION.format(port=listener.getsockname()[1])
        async with await anyio.open_process([sys.executable, "-c", bridge, program], cwd=ROOT) as process:
            held, _ = await anyio.to_thread.run_sync(listener.accept)
            process.kill()
        with held, suppress(ConnectionResetError):
            assert await anyio.to_thread.run_sync(held.recv, 1) == b""


@needs_proc
async def test_a_server_that_ends_with_its_stdin_is_not_signalled(tmp_path: Path) -> None:
    """Even when it can write nothing more before somebody reads what it wrote."""
    note = tmp_path / "note"
    program = f"""
signal.signal(signal.SIGTERM, lambda *_: os._exit(1))
tell()
write(b"[]\\n" * 1_000_000)
sys.stdin.read()
open({str(note)!r}, "w").write("ended well")
"""
    async with started(program) as there:
        await there.told()
    assert note.read_text() == "ended well"


@needs_proc
async def test_what_was_sent_last_arrives_before_the_end(tmp_path: Path) -> None:
    note = tmp_path / "note"
    program = f"tell(); read = sys.stdin.read(); open({str(note)!r}, 'w').write(read)"
    async with started(program) as there:
        await there.told()
        await there.send(text="x" * MEGABYTE)
    assert len(note.read_text()) > MEGABYTE


@needs_proc
async def test_a_child_is_ended_when_its_task_is_cancelled() -> None:
    with anyio.CancelScope() as scope:
        async with started("tell(pid=os.getpid()); sys.stdin.read()") as there:
            pid = (await there.told())["pid"]
            scope.cancel()
            await anyio.sleep_forever()
    assert not is_running(pid)


@needs_proc
async def test_nothing_is_left_of_many_children() -> None:
    async def start_and_end(program: str) -> None:
        async with started(program) as there:
            await there.told()

    await start_and_end("tell()")
    gc.collect()
    before = sorted(os.listdir("/proc/self/fd"))
    for program in (
        "tell(); sys.stdin.read()",
        "tell(); os._exit(1)",
        "tell(); os.close(1); time.sleep(0.1)",
    ):
        for _ in range(4):
            await start_and_end(program)
    gc.collect()
    assert sorted(os.listdir("/proc/self/fd")) == before
    assert children_with("def tell") == []


@needs_proc
async def test_no_pipe_is_left_open_that_a_process_outside_the_group_holds() -> None:
    before = sorted(os.listdir("/proc/self/fd"))
    program = "tell(pid=start('time.sleep(600)', start_new_session=True).pid); sys.stdin.close(); os._exit(1)"
    async with started(program) as there:
        outside = (await there.told())["pid"]
        await there.send(text="x" * MEGABYTE)  # nobody reads it
    try:
        assert sorted(os.listdir("/proc/self/fd")) == before
    finally:
        os.kill(outside, signal.SIGKILL)
    await gone(outside)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (command_of(("/nowhere/server",)), "cannot start '/nowhere/server': No such file or directory"),
        (command_of(("server\0",)), "cannot start 'server\\x00': embedded null byte"),
    ],
)
async def test_a_command_that_cannot_be_started_is_a_clear_message(command: StdioTarget, words: str) -> None:
    with pytest.raises(UsageError) as failed:
        async with child(command, "tools", LastWords()):
            pass
    assert str(failed.value) == words


async def test_a_child_gets_the_variables_of_its_command_and_few_others(tmp_path: Path) -> None:
    os.environ["NOT_FOR_CHILDREN"] = "1"
    program = PREAMBLE + "tell(cwd=os.getcwd(), names=sorted(os.environ))"
    command = command_of((sys.executable, "-c", program), {"OWN": "1"}, str(tmp_path))
    async with child(command, "tools", LastWords()) as streams:
        told = await Started(streams, LastWords()).told()
    assert told["cwd"] == str(tmp_path)
    assert "PATH" in told["names"]
    assert "OWN" in told["names"]
    assert "NOT_FOR_CHILDREN" not in told["names"]


@pytest.mark.parametrize(("own", "mode"), [({}, 1), ({"PYTHONUTF8": "0"}, 0)])
async def test_a_child_of_python_speaks_utf_8_unless_its_command_says_otherwise(
    own: dict[str, str], mode: int
) -> None:
    """Elsewhere it would write in the encoding of the system: cp1252 or cp932 on Windows."""
    command = command_of((sys.executable, "-c", f"{PREAMBLE}tell(mode=sys.flags.utf8_mode)"), own)
    async with child(command, "tools", LastWords()) as streams:
        assert await Started(streams, LastWords()).told() == {"mode": mode}
