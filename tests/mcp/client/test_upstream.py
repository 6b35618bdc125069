"""The client of tool servers, against real ones: a raw server over stdio, and the official SDK's over both
transports, in both eras.

What a test says of "each place" it says of four: legacy and modern, over stdio and over HTTP.
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import stat
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.abc
import pytest
from mcp.server.sse import SseServerTransport
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from bridge.errors import BridgeError, BusyError, PeerError
from bridge.mcp.client.call_queue import CallQueue, Claimant, DisplacedError
from bridge.mcp.client.eras import Era
from bridge.mcp.client.faults import ServerDownError, ServerLostError, ServerRefusedError
from bridge.mcp.client.known_servers import Fact, ServerMemory, remembered_in
from bridge.mcp.client.session import Session, resource_of
from bridge.mcp.client.transports.stdio import StdioTarget
from bridge.mcp.client.transports.streamable_http import ServerTarget
from bridge.mcp.client.upstream import QueueFullError, Upstream
from bridge.mcp.client.values import OnProgress, ProgressReport
from bridge.settings import ServerSettings
from tests.support.forked import through_server
from tests.support.limits import call_of, calls, child_pace, command_of, server_settings, url_at
from tests.support.ports import free_port
from tests.support.processes import PROC, children_with, gone
from tests.support.running import RAW_SERVER, listening, raw_command
from tests.support.sdk_server import NAMES, HttpServer, Tools

ROOT: Final = Path(__file__).parents[3]
SETTINGS: Final = server_settings(
    connect_seconds=30, longest_pause_seconds=0.3, retire_seconds=2, settle_seconds=0.05
)
MEGABYTE: Final = 1024 * 1024

needs_proc = pytest.mark.skipif(not PROC.is_dir(), reason="processes are looked up in /proc")


def sdk_command() -> StdioTarget:
    """The official SDK's server as a child process."""
    return command_of(tuple(through_server("-m", "tests.support.sdk_server")), cwd=str(ROOT))


@dataclass
class Changes:
    """Lets a test wait for what an upstream tells."""

    _changed: anyio.Event = field(default_factory=anyio.Event)

    def __call__(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something is so; it may become so at a change only."""
        with anyio.fail_after(15):
            while not condition():
                await self._changed.wait()


@dataclass
class Met:
    """An upstream, entered."""

    upstream: Upstream
    changes: Changes

    @property
    def names(self) -> list[str]:
        return [tool.name for tool in self.upstream.listing.tools]

    async def text(self, name: str, **arguments: Any) -> str:
        """The text that a tool gives."""
        result = await self.call(name, arguments)
        content: Any = result["content"]
        return str(content[0]["text"])

    async def goes_down_for_long(self) -> None:
        """Let the server end, which cannot be started again, until it has been down for `connect_seconds`."""
        with pytest.raises(ServerLostError):
            await self.call("die", {})
        with pytest.raises(ServerDownError):
            await self.call("echo", {"text": "x"})

    async def call(self, name: str, arguments: Any, on_progress: OnProgress | None = None) -> Any:
        """What a tool gives."""
        async with self.upstream.queue("someone", "somewhere") as queue:
            return await queue.session.call(call_of(name, arguments), on_progress)


@asynccontextmanager
async def met(
    target: ServerTarget,
    era: Era = Era.LEGACY,
    *,
    memory: ServerMemory | None = None,
    settings: ServerSettings = SETTINGS,
    ready: bool = True,
) -> AsyncIterator[Met]:
    """An upstream that has connected, unless it is not waited for."""
    changes = Changes()
    upstream = Upstream(
        "tools", target, era=era, memory=memory, settings=settings, **calls(), on_change=changes
    )
    with anyio.fail_after(60):
        async with upstream.run():
            if ready:
                await upstream.ready()
            yield Met(upstream, changes)


PLACES: Final = {
    "legacy stdio": (Era.LEGACY, "stdio"),
    "modern stdio": (Era.MODERN, "stdio"),
    "legacy HTTP": (Era.LEGACY, "http"),
    "modern HTTP": (Era.MODERN, "http"),
}
each_place = pytest.mark.parametrize("place", PLACES)
each_era = pytest.mark.parametrize("era", [Era.LEGACY, Era.MODERN])


@asynccontextmanager
async def at(place: str) -> AsyncIterator[Met]:
    """A server at one of the places, connected to."""
    era, transport = PLACES[place]
    async with AsyncExitStack() as stack:
        target: ServerTarget = raw_command() if era is Era.LEGACY else sdk_command()
        if transport == "http":
            server = await stack.enter_async_context(HttpServer().run())
            target = url_at(server.url)
        yield await stack.enter_async_context(met(target, era))


@contextmanager
def each_raises(kind: type[Exception]) -> Iterator[list[Exception]]:
    """Collects what calls in a task group raise, all of which has to be of one kind."""
    raised: list[Exception] = []
    yield raised
    assert raised
    assert all(type(exc) is kind for exc in raised), raised


async def failing(met: Met, raised: list[Exception], name: str = "wait") -> None:
    """Make a call that has to fail."""
    try:
        await met.call(name, {})
    except Exception as exc:  # noqa: BLE001 - what it is, the test says
        raised.append(exc)
    else:
        raise AssertionError(f"{name} did not fail")


# The list of tools


@pytest.mark.proves("mcp-pages", "mcp-cursor")
@pytest.mark.parametrize("pages", [1, 3, 16])
async def test_all_pages_of_the_list_are_read(pages: int) -> None:
    async with met(raw_command()) as whole, met(raw_command("--pages", str(pages))) as paged:
        assert paged.names == whole.names
        assert len(whole.names) == 16


@pytest.mark.proves("mcp-pages")
@each_era
async def test_all_pages_are_read_over_http(era: Era) -> None:
    tools = Tools(pages=4)
    async with HttpServer(tools).run() as server, met(url_at(server.url), era) as there:
        assert there.names == list(NAMES)
        assert tools.listings == 1


@pytest.mark.proves("mcp-pages")
async def test_the_listed_tools_of_an_endless_list_are_served_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with HttpServer(Tools(endless=True)).run() as server, met(url_at(server.url)) as there:
        assert there.names == list(NAMES)
        assert await there.text("echo", text="hello") == "hello"
    assert "tools: its list of tools ends after" in caplog.text
    assert "its nextCursor never advances" in caplog.text


@pytest.mark.proves("mcp-bad-tool", "mcp-unsound-schema")
async def test_a_warning_names_bad_tools(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with met(raw_command()) as good, met(raw_command("--bad-tools")) as bad:
        odd = ("broken-schema", "far-schema")
        assert [name for name in bad.names if name not in odd] == good.names
        assert len(bad.names) == len(good.names) + len(odd)
        await bad.text("grow")
        await bad.changes.until(lambda: "grown-1" in bad.names)
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [warning.partition(": ")[2] for warning in warnings] == [
        "not all arguments of the tool broken-schema are checked: its schema is not valid at properties/a/type: "
        "'nonsense' is not valid under any of the given schemas",
        "not all arguments of the tool far-schema are checked: its schema refers to https://x.test/s, which is not "
        "in the schema; nothing is fetched",
        "the tool no-schema is left out: its inputSchema is no object",
        "the tool array-schema is left out: its inputSchema has the type 'array', not 'object'",
        "the tool number 7 is left out: it has no name",
        "the tool number 8 is left out: it is no object",
    ]


@pytest.mark.proves("mcp-changed")
@each_place
async def test_a_tool_that_appears_is_listed_and_can_be_called(place: str) -> None:
    async with at(place) as there:
        before = there.names
        await there.text("grow")
        await there.changes.until(lambda: there.names == [*before, "grown-1"])
        assert await there.text("grown-1") == "I am grown-1"


@pytest.mark.proves("mcp-changed")
@each_era
async def test_many_changes_at_once_cause_few_listings(era: Era) -> None:
    tools = Tools()
    async with HttpServer(tools).run() as server, met(url_at(server.url), era) as there:
        await there.text("grow", tools=50)
        await there.changes.until(lambda: "grown-50" in there.names)
        assert 2 <= tools.listings <= 4


@pytest.mark.proves("mcp-changed")
async def test_a_change_that_cannot_be_listed_is_a_warning_and_the_tools_stay(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tools = Tools()
    async with HttpServer(tools).run() as server, met(url_at(server.url), Era.MODERN) as there:
        tools.unlisted = True
        await there.text("grow")
        await _logged(caplog, "its tools changed, but cannot be listed")
        assert there.names == list(NAMES)
        tools.unlisted = False
        await there.text("grow")
        await there.changes.until(lambda: "grown-2" in there.names)


# The eras


def eras_in(file: Path) -> list[str]:
    """What is remembered of the eras of servers."""
    return [one.facts["era"] for one in remembered_in(file) if "era" in one.facts]


@pytest.mark.proves("mcp-eras")
@pytest.mark.parametrize("only", ["legacy", "modern"])
async def test_the_era_of_an_http_server_is_found_out(only: str) -> None:
    memory = ServerMemory(None)
    async with HttpServer(only=only).run() as server:
        async with met(url_at(server.url), Era.AUTO, memory=memory) as there:
            assert await there.text("echo", text="hello") == "hello"
        assert server.posted[0] == "server/discover"
        assert ("initialize" in server.posted) is (only == "legacy")


@pytest.mark.proves("mcp-eras")
@pytest.mark.parametrize(("target", "found"), [(raw_command, Era.LEGACY), (sdk_command, Era.MODERN)])
async def test_the_era_of_a_child_is_found_out_and_kept_in_a_file(
    target: Callable[[], StdioTarget], found: Era, tmp_path: Path
) -> None:
    command = target()
    file = tmp_path / "state" / "servers.json"
    async with met(command, Era.AUTO, memory=ServerMemory(file)) as there:
        assert await there.text("echo", text="hello") == "hello"
    assert eras_in(file) == [found]
    assert str(command) not in file.read_text(), "a command may hold secrets"
    assert file.stat().st_mode & 0o077 == 0


@pytest.mark.proves("mcp-eras")
async def test_an_era_that_is_remembered_saves_the_probe(tmp_path: Path) -> None:
    file = tmp_path / "servers.json"
    async with HttpServer(only="legacy").run() as server:
        for _ in range(2):
            async with met(url_at(server.url), Era.AUTO, memory=ServerMemory(file)):
                pass
        assert [one for one in server.posted if "/" not in one or "discover" in one] == [
            "server/discover",
            "initialize",
            "initialize",
        ]


@pytest.mark.proves("mcp-eras")
async def test_an_era_that_is_remembered_wrongly_is_found_out_anew(tmp_path: Path) -> None:
    file = tmp_path / "servers.json"
    async with HttpServer(only="modern").run() as server:
        ServerMemory(file).remember(Fact.ERA, server.url, Era.LEGACY)
        async with met(url_at(server.url), Era.AUTO, memory=ServerMemory(file), ready=False) as there:
            assert await there.text("echo", text="hello") == "hello"
        assert eras_in(file) == ["modern"]


@pytest.mark.proves("mcp-eras")
@each_era
async def test_a_configured_era_is_spoken_without_a_probe(era: Era, tmp_path: Path) -> None:
    file = tmp_path / "servers.json"
    async with HttpServer().run() as server:
        async with met(url_at(server.url), era, memory=ServerMemory(file)) as there:
            assert await there.text("echo", text="hello") == "hello"
        assert ("initialize" in server.posted) is (era is Era.LEGACY)
        assert ("server/discover" in server.posted) is (era is Era.MODERN)
    assert eras_in(file) == [], "what a person set says nothing of what would have been found out"


@pytest.mark.proves("mcp-remembered")
async def test_the_name_that_a_server_gives_is_remembered_whatever_its_configured_name(
    tmp_path: Path,
) -> None:
    file = tmp_path / "servers.json"
    async with met(raw_command(), Era.LEGACY, memory=ServerMemory(file)) as there:
        assert there.upstream.greeting is not None
        said = there.upstream.greeting.name
        assert there.upstream.name != said
    assert [one.facts for one in remembered_in(file)] == [{"name": said}]


@pytest.mark.proves("mcp-eras")
async def test_a_wrongly_configured_era_is_a_clear_message() -> None:
    async with met(raw_command(), Era.MODERN, ready=False) as there:
        with pytest.raises(PeerError, match="tools refused the MCP handshake: Method not found"):
            await there.upstream.ready()


@pytest.mark.proves("mcp-remembered")
@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX modes and links")
def test_the_memory_overwrites_no_other_file_at_its_path(tmp_path: Path) -> None:
    folder, victim = tmp_path / "state", tmp_path / "victim"
    folder.mkdir()
    folder.chmod(0o777)
    victim.write_text("untouched")
    for name in ("servers.new", "servers.json"):
        (folder / name).symlink_to(victim)
    ServerMemory(folder / "servers.json").remember(Fact.NAME, "http://one", "One")
    assert victim.read_text() == "untouched"
    assert ServerMemory(folder / "servers.json").recall(Fact.NAME, "http://one") == "One"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o775
    assert stat.S_IMODE((folder / "servers.json").lstat().st_mode) == 0o600


# Calls


@pytest.mark.proves("mcp-raw")
@each_place
async def test_a_call_gives_the_result_as_the_server_sent_it(place: str) -> None:
    async with at(place) as there:
        result = await there.call("echo", {"text": "grüße 🎈\u2028"})
        assert result["content"] == [{"type": "text", "text": "grüße 🎈\u2028"}]


@pytest.mark.proves("mcp-raw")
@each_place
async def test_a_refusal_keeps_code_message_and_data(place: str) -> None:
    """Also the codes with which the SDK says that a connection has ended, or was no MCP."""
    async with at(place) as there:
        for code in (-32000, -32001, -32603, -32700):
            with pytest.raises(ServerRefusedError, match="not today") as refused:
                await there.call("refuse", {"code": code})
            assert refused.value.code == code
            assert refused.value.data == {"until": "tomorrow"}


@pytest.mark.proves("mcp-raw")
async def test_content_that_the_sdk_does_not_know_is_passed_on() -> None:
    async with met(raw_command()) as there:
        assert (await there.call("odd", {}))["content"] == [{"type": "hologram", "rays": [1, 2.5]}]


@pytest.mark.proves("map-progress")
@each_place
@pytest.mark.smoke("modern stdio", "legacy HTTP")
async def test_progress_comes_in_order_and_before_the_result(place: str) -> None:
    seen: list[ProgressReport] = []
    async with at(place) as there:
        await there.call("progress", {"steps": 200}, seen.append)
        assert seen == [ProgressReport(step, 200, f"step {step}") for step in range(1, 201)]


@pytest.mark.proves("map-progress")
async def test_progress_keeps_whole_numbers_whole() -> None:
    seen: list[ProgressReport] = []
    async with met(raw_command()) as there:
        await there.call("progress", {"steps": 2}, seen.append)
    assert [(type(one.progress), type(one.total)) for one in seen] == [(int, int)] * 2


@pytest.mark.proves("mcp-progress-token", "map-progress")
@each_place
async def test_progress_of_calls_side_by_side_goes_to_its_own_call(place: str) -> None:
    seen: list[list[ProgressReport]] = [[] for _ in range(5)]
    async with at(place) as there, anyio.create_task_group() as tasks:
        for steps, one in enumerate(seen, 1):
            tasks.start_soon(there.call, "progress", {"steps": steps}, one.append)
    assert [[one.progress for one in call] for call in seen] == [list(range(1, n + 1)) for n in range(1, 6)]


@pytest.mark.proves("map-cancel", "mcp26-cancel-stdio", "mcp-cancel-late-answer")
@pytest.mark.parametrize("place", ["legacy stdio", "modern stdio"])
async def test_over_stdio_a_cancellation_is_a_notification(place: str) -> None:
    async with at(place) as there:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(there.call, "wait", {})
            await anyio.wait_all_tasks_blocked()
            await there.text("echo", text="so that the other call has arrived")
            tasks.cancel_scope.cancel()
        assert await there.text("cancelled") == "1"


@pytest.mark.proves("map-cancel", "mcp-cancel-own")
@each_era
async def test_over_http_a_cancellation_has_the_form_of_its_era(era: Era) -> None:
    """Legacy: a notification. Modern: the response is closed, and nothing is posted."""
    async with HttpServer().run() as server, met(url_at(server.url), era) as there:
        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(there.call, "wait", {})
                await server.tools.until(lambda: server.tools.waiting == 1)
                tasks.cancel_scope.cancel()
            await server.tools.until(lambda: server.tools.cancelled == 1)
        assert ("notifications/cancelled" in server.posted) is (era is Era.LEGACY)


@pytest.mark.proves("map-overload")
async def test_a_call_beyond_the_limit_is_refused_until_a_slot_is_free() -> None:
    limits = calls(concurrency=2, queue=1)
    upstream = Upstream("tools", raw_command(), settings=server_settings(), **limits)
    for _ in range(3):
        upstream.reserve("ann")
    with pytest.raises(QueueFullError, match="tools is busy"):
        upstream.reserve("ann")
    upstream.release("ann")
    upstream.reserve("ann")


@pytest.mark.proves("mcp-fair")
async def test_a_full_queue_refuses_the_caller_with_the_most_calls_first() -> None:
    limits = calls(concurrency=1, queue=3)
    upstream = Upstream("tools", raw_command(), settings=server_settings(), **limits)
    displaced = anyio.Event()

    async def wait() -> None:
        with pytest.raises(DisplacedError, match="Most of the calls that wait are this caller's"):
            async with queue.slot(Claimant("ann"), 60):
                pass
        displaced.set()

    with anyio.fail_after(5):
        async with (
            upstream.queue("ann", "c") as queue,
            anyio.create_task_group() as tasks,
            queue.slot(Claimant("ann"), 1),
        ):
            for _ in range(4):
                upstream.reserve("ann")
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(QueueFullError):
                upstream.reserve("ann")
            upstream.reserve("bob")
            await displaced.wait()


@pytest.mark.proves("map-hidden")
async def test_a_tool_that_is_not_listed_is_not_called() -> None:
    async with met(raw_command()) as there:
        with pytest.raises(ServerDownError, match="tools no longer lists the tool grown-1"):
            await there.call("grown-1", {})


@pytest.mark.proves("mcp-raw")
async def test_a_resource_is_read() -> None:
    async with met(raw_command()) as there:
        contents = {"uri": "demo://notes/one.md", "mimeType": "text/markdown", "text": "# One"}
        async with there.upstream.queue("local", "c") as queue:
            assert await resource_of(queue.session, "demo://notes/one.md") == [contents]
            with pytest.raises(ServerRefusedError):
                await resource_of(queue.session, "demo://missing")


# Large results


@pytest.mark.proves("mcp-raw")
@each_place
@pytest.mark.smoke("legacy stdio", "modern HTTP")
async def test_a_large_result_arrives_whole(place: str) -> None:
    """Five times what the SDK takes for one event by default."""
    async with at(place) as there:
        assert await there.text("big", bytes=5 * MEGABYTE) == "x" * 5 * MEGABYTE


@pytest.mark.proves("mcp-bounded")
@each_era
@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("json_response", [True, False])
async def test_a_result_above_the_limit_is_a_clear_error(
    era: Era, streamed: bool, json_response: bool
) -> None:
    limited = HttpServer(json_response=json_response)
    async with limited.run() as server, met(url_at(server.url, result_limit_bytes=MEGABYTE), era) as there:
        with pytest.raises(ServerLostError, match=f"the response is larger than {MEGABYTE} bytes"):
            await there.call("big", {"bytes": 2 * MEGABYTE, "stream": streamed}, lambda _: None)
        assert await there.text("echo", text="still there") == "still there"
        assert server.posted.count("tools/list") == 1, "the connection has not been replaced"


@pytest.mark.proves("mcp-bounded")
@each_era
@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("json_response", [True, False])
async def test_a_result_of_too_many_values_is_a_clear_error(
    era: Era, streamed: bool, json_response: bool
) -> None:
    many = HttpServer(json_response=json_response)
    async with many.run() as server, met(url_at(server.url, result_json_values=1000), era) as there:
        with pytest.raises(ServerLostError, match="the response holds more than 1000 values and keys"):
            await there.call("big", {"bytes": 1, "values": 1000, "stream": streamed}, lambda _: None)
        assert await there.text("big", bytes=2, values=900) == "xx"
        assert server.posted.count("tools/list") == 1, "the connection has not been replaced"


# Servers that die


@pytest.mark.proves("map-lost")
async def test_the_error_of_a_dead_child_has_its_last_words_and_the_next_call_works() -> None:
    async with met(raw_command()) as there:
        for _ in range(5):
            with pytest.raises(ServerLostError) as lost:
                await there.call("die", {})
            assert str(lost.value) == "The server process of tools ended"
            assert lost.value.detail == "; its last words: raw server up | I was told to die"
            assert await there.text("echo", text="again") == "again"


@pytest.mark.proves("mcp-remembered")
async def test_a_server_that_is_given_another_name_is_called_by_it() -> None:
    async with met(raw_command()) as there:
        there.upstream.name = "raw"
        with pytest.raises(ServerLostError, match=r"^The server process of raw ended"):
            await there.call("die", {})


@needs_proc
@pytest.mark.proves("map-lost")
@pytest.mark.parametrize("target", [raw_command, sdk_command], ids=["legacy", "modern"])
async def test_all_calls_of_a_killed_child_fail_and_the_next_one_works(
    target: Callable[[], StdioTarget],
) -> None:
    era = Era.MODERN if target is sdk_command else Era.LEGACY
    command = target()
    async with met(command, era) as there:
        (pid,) = children_with(command.argv[-1])
        with each_raises(ServerLostError) as raised:
            async with anyio.create_task_group() as tasks:
                for _ in range(10):
                    tasks.start_soon(failing, there, raised)
                await anyio.wait_all_tasks_blocked()
                await there.text("echo", text="so that the others have arrived")
                os.kill(pid, signal.SIGKILL)
        assert len(raised) == 10
        assert {str(exc).partition(";")[0] for exc in raised} == {"The server process of tools ended"}
        assert await there.text("echo", text="again") == "again"
        assert pid not in children_with(command.argv[-1])


@pytest.mark.proves("map-lost")
async def test_a_child_that_fails_to_start_is_started_again(tmp_path: Path) -> None:
    """It ends at once three times, and each attempt comes without a call asking for it."""
    starts = tmp_path / "starts"
    program = (
        f"import runpy, sys; starts = open({str(starts)!r}, 'a'); starts.write('x'); starts.close();"
        f"len(open({str(starts)!r}).read()) < 4 and sys.exit('not yet');"
        f"sys.argv = ['raw']; runpy.run_path({str(RAW_SERVER)!r}, run_name='__main__')"
    )
    async with met(command_of((sys.executable, "-c", program)), ready=False) as there:
        with pytest.raises(PeerError, match="tools ended before it gave an MCP answer"):
            await there.upstream.ready()
        await there.changes.until(lambda: there.upstream.down is None)
        assert starts.read_text() == "xxxx"
        assert await there.text("echo", text="up") == "up"


@pytest.mark.proves("map-lost")
async def test_a_child_that_is_lost_and_cannot_be_started_again_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Not what was said before it was lost, and nothing of our own workings."""
    program = tmp_path / "server.py"
    program.write_text(RAW_SERVER.read_text())
    settings = server_settings(connect_seconds=3.0, longest_pause_seconds=0.2)
    async with met(command_of((sys.executable, "-S", "-E", str(program))), settings=settings) as there:
        program.write_text("import sys; sys.exit('the disk is full')")
        with pytest.raises(ServerLostError):
            await there.call("die", {})
        with pytest.raises(ServerDownError) as down:
            await there.call("echo", {"text": "x"})
        words = "tools ended before it gave an MCP answer"
        assert str(down.value) == f"tools is down: {words}"
        assert f"tools is down: {words}; its last words: the disk is full" in caplog.messages
        program.write_text(RAW_SERVER.read_text())
        assert await there.text("echo", text="up") == "up"


@pytest.mark.proves("map-lost")
async def test_a_call_of_a_server_that_has_been_down_for_long_waits_for_one_attempt(tmp_path: Path) -> None:
    """And the first call since it can be started again has it started, before the pause is over."""
    starts, broken, steps = tmp_path / "starts", tmp_path / "broken", tmp_path / "server.py"
    steps.write_text(
        f"import os, runpy, sys; open({str(starts)!r}, 'a').write('x')\n"
        f"os.path.exists({str(broken)!r}) and sys.exit('the disk is full')\n"
        f"runpy.run_path({str(RAW_SERVER)!r}, run_name='__main__')"
    )
    settings = server_settings(connect_seconds=2.0, longest_pause_seconds=1000)
    async with met(command_of((sys.executable, "-S", "-E", str(steps))), settings=settings) as there:
        broken.touch()
        await there.goes_down_for_long()
        before = len(starts.read_text())
        with anyio.fail_after(15):  # if each waited for as long as the first, it would be 20
            for number in range(20):
                with pytest.raises(ServerDownError, match="tools is down: tools ended before it gave an"):
                    await there.call("echo", {"text": "x"})
                assert len(starts.read_text()) > before + number
        broken.unlink()
        assert await there.text("echo", text="up") == "up"


@pytest.mark.proves("map-lost")
async def test_an_attempt_that_began_before_a_call_does_not_count_for_it(tmp_path: Path) -> None:
    """The server is mended while an attempt is under way that can only fail. The next is made for the call, at once."""
    starts, broken, held, steps = (tmp_path / name for name in ("starts", "broken", "held", "server.py"))
    steps.write_text(
        f"import os, runpy, sys, time; open({str(starts)!r}, 'a').write('x')\n"
        f"if os.path.exists({str(broken)!r}):\n"
        f"    while os.path.exists({str(held)!r}): time.sleep(0.01)\n"
        f"    sys.exit('the disk is full')\n"
        f"runpy.run_path({str(RAW_SERVER)!r}, run_name='__main__')"
    )
    settings = server_settings(connect_seconds=2.0, longest_pause_seconds=1000)
    async with met(command_of((sys.executable, "-S", "-E", str(steps))), settings=settings) as there:
        broken.touch()
        await there.goes_down_for_long()
        held.touch()
        before = len(starts.read_text())
        heard: list[str] = []

        async def early() -> None:
            with pytest.raises(ServerDownError, match="tools ended before it gave an"):
                await there.call("echo", {"text": "early"})
            heard.append("early")

        async def late() -> None:
            heard.append(await there.text("echo", text="late"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(early)
            while len(starts.read_text()) == before:
                await anyio.sleep(0.01)
            tasks.start_soon(late)
            await anyio.wait_all_tasks_blocked()
            broken.unlink()
            held.unlink()
        assert heard == ["early", "late"]


@pytest.mark.proves("map-lost")
@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("/nowhere/server",), "cannot start '/nowhere/server': No such file or directory"),
        ((str(ROOT),), f"cannot start {str(ROOT)!r}: Permission denied"),
        ((sys.executable, "-c", "print('hello')"), "tools ended before it gave an MCP answer"),
    ],
)
async def test_a_command_that_is_not_a_server_is_a_clear_message(argv: tuple[str, ...], message: str) -> None:
    async with met(command_of(argv), ready=False) as there:
        with pytest.raises(BridgeError) as failed:
            await there.upstream.ready()
        assert str(failed.value) == message


@pytest.mark.proves("map-lost")
async def test_a_silent_child_is_given_up() -> None:
    settings = server_settings(connect_seconds=0.3, start_seconds=0.3)
    async with met(
        command_of((sys.executable, "-c", "import sys; sys.stdin.read()")), settings=settings, ready=False
    ) as there:
        await there.changes.until(lambda: there.upstream.down != "not connected yet")
        limit = "`connect_seconds` is the limit"
        assert there.upstream.down == f"tools was reached, but gave no MCP answer within 0.3 s ({limit})"


# HTTP servers that fail


@pytest.mark.proves("map-lost")
@each_era
async def test_a_url_where_nothing_listens_is_a_clear_message_and_works_later(era: Era) -> None:
    async with HttpServer().run() as server:
        url, port = server.url, server.port
    async with met(url_at(url), era, ready=False) as there:
        with pytest.raises(PeerError) as failed:
            await there.upstream.ready()
        assert str(failed.value) == f"{url} cannot be reached: Connection refused"
        async with HttpServer().run(port):
            assert await there.text("echo", text="up") == "up"


@pytest.mark.proves("map-lost")
@each_era
async def test_a_server_that_is_stopped_and_started_again_is_found_again(era: Era) -> None:
    first, second = _Served(HttpServer()), _Served(HttpServer(Tools(names=["echo", "new"])))
    async with anyio.create_task_group() as servers:
        await servers.start(first.run, 0)
        tools = first.server.tools
        async with met(url_at(first.server.url), era) as there:
            with each_raises(ServerLostError) as raised:
                async with anyio.create_task_group() as calls:
                    calls.start_soon(failing, there, raised)
                    await tools.until(lambda: tools.waiting == 1)
                    first.stop.set()
            await first.stopped.wait()
            await servers.start(second.run, first.server.port)
            assert await there.text("echo", text="up") == "up"
            await there.changes.until(lambda: there.names == ["echo", "new"])
        second.stop.set()


@dataclass
class _Served:
    """A server that is stopped from outside its own task."""

    server: HttpServer
    stop: anyio.Event = field(default_factory=anyio.Event)
    stopped: anyio.Event = field(default_factory=anyio.Event)

    async def run(self, port: int, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        async with self.server.run(port):
            task_status.started()
            await self.stop.wait()
        self.stopped.set()


@pytest.mark.proves("map-lost", "mcp25-session-again")
@pytest.mark.parametrize("status", [404, 400])
async def test_a_call_on_a_session_that_is_lost_is_sent_again_on_a_new_one(status: int) -> None:
    """404 is the specification's word for it; 400 is what the reference server says."""
    server = HttpServer(lost_status=status)
    async with server.run(), met(url_at(server.url)) as there:
        assert await there.text("echo", text="first") == "first"
        async with server.session():
            assert await there.text("echo", text="second") == "second"
            assert server.posted.count("initialize") == 2
            assert server.posted.count("tools/call") == 3


@pytest.mark.proves("mcp-sessions")
async def test_a_server_without_a_get_stream_is_not_a_lost_session() -> None:
    """A server that knows no GET should answer 405, but a web framework says 404."""
    async with HttpServer(get_status=404).run() as server, met(url_at(server.url)) as there:
        for text in ("one", "two", "three"):
            assert await there.text("echo", text=text) == text
        assert server.posted.count("initialize") == 1


@pytest.mark.proves("map-lost")
@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Response(status_code=401), "answered HTTP 401 Unauthorized"),
        (PlainTextResponse("secret stack trace", 500), "answered HTTP 500 Internal Server Error"),
        (HTMLResponse("<h1>No</h1>", 403), "answered HTTP 403 Forbidden"),
        (Response(status_code=404), "answered HTTP 404 Not Found"),
        (Response(status_code=307, headers={"Location": "https://other.test/mcp"}), "https://other.test/mcp"),
        (HTMLResponse("<h1>Welcome</h1>"), "text/html"),
        (JSONResponse({"hello": "world"}), "tools does not answer as an MCP server does"),
        (
            PlainTextResponse("data: what\n\n", headers={"Content-Type": "text/event-stream"}),
            "before it gave an MCP answer",
        ),
    ],
    ids=["401", "500", "403", "404", "redirect", "page", "json", "events"],
)
@each_era
async def test_a_url_without_an_mcp_server_is_a_clear_message(
    era: Era, answer: Response, message: str
) -> None:
    async with HttpServer(broken=answer).run() as server, met(url_at(server.url), era, ready=False) as there:
        with pytest.raises(PeerError) as failed:
            await there.upstream.ready()
        assert message in str(failed.value)
        assert "\n" not in str(failed.value)
        assert len(str(failed.value)) < 300
        assert "secret" not in str(failed.value)


@pytest.mark.proves("config-secrets")
@each_era
@pytest.mark.parametrize(
    "place",
    [
        "https://ada:s3cret@other.test/mcp?back=s3cret#s3cret",
        "ftp://ada:s3cret@other.test/mcp",
        "file:///mcp",
    ],
)
async def test_a_redirect_to_another_host_is_reported_without_secrets(era: Era, place: str) -> None:
    answer = Response(status_code=307, headers={"Location": place})
    async with (
        HttpServer(broken=answer).run() as server,
        met(url_at(f"{server.url}?key=s3cret"), era, ready=False) as there,
    ):
        with pytest.raises(PeerError, match=r"(other\.test|file://127.0.0.1)/mcp not followed") as failed:
            await there.upstream.ready()
        assert "s3cret" not in str(failed.value)


@pytest.mark.proves("map-lost")
@each_era
async def test_an_error_page_fails_the_call_that_met_it_and_no_other(era: Era) -> None:
    async with HttpServer().run() as server, met(url_at(server.url), era) as there:
        server.broken = PlainTextResponse("oh", 503)
        with pytest.raises(ServerLostError, match="answered HTTP 503 Service Unavailable"):
            await there.call("echo", {"text": "x"})
        server.broken = None
        assert await there.text("echo", text="up") == "up"


@pytest.mark.proves("a2a-13.4-logs")
def test_a_url_is_shown_without_its_secrets() -> None:
    url = url_at("https://user:password@tools.test:8443/mcp?key=secret", {"Authorization": "Bearer secret"})
    assert str(url) == "https://tools.test:8443/mcp"
    assert "Bearer" not in repr(url)
    assert "hidden" not in repr(command_of(("server",), {"KEY": "hidden"}))


# Sessions of principals and contexts


@asynccontextmanager
async def upstream_with(
    target: ServerTarget | None = None, options: Mapping[str, Any] | None = None, **settings: Any
) -> AsyncIterator[Upstream]:
    """An upstream that has connected."""
    limits = {"settings": SETTINGS.having(**settings), **calls(), **(options or {})}
    upstream = Upstream("tools", target or raw_command(), era=Era.LEGACY, **limits)
    with anyio.fail_after(60):
        async with upstream.run():
            await upstream.ready()
            yield upstream


async def said_by(where: Session | CallQueue, tool: str = "echo", **arguments: Any) -> str:
    """The text that a tool gives on a session."""
    session = where.session if isinstance(where, CallQueue) else where
    result: Any = await session.call(call_of(tool, arguments or {"text": "hello"}))
    return str(result["content"][0]["text"])


async def until(true: Callable[[], bool]) -> None:
    """Give others their turn until something is so."""
    with anyio.fail_after(15):
        while not true():
            await anyio.sleep(0.001)


@pytest.mark.proves("mcp-sessions")
@pytest.mark.parametrize(
    ("per", "same"),
    [
        ("shared", {"ann 1": 0, "ann 2": 0, "bob 1": 0}),
        ("principal", {"ann 1": 0, "ann 2": 0, "bob 1": 1}),
        ("context", {"ann 1": 0, "ann 2": 1, "bob 1": 2}),
    ],
)
async def test_callers_share_a_session_as_the_rules_say(per: Any, same: dict[str, int]) -> None:
    async with upstream_with(session=per) as upstream, AsyncExitStack() as stack:
        found = [await stack.enter_async_context(upstream.queue(*caller.split())) for caller in same]
        numbers = [list(dict.fromkeys(found)).index(session) for session in found]
        assert numbers == list(same.values())
        assert [await said_by(session) for session in found] == ["hello"] * 3


@needs_proc
@pytest.mark.proves("mcp-sessions", "mcp-no-leak")
async def test_each_principal_has_its_own_process_which_ends_when_idle() -> None:
    before = set(children_with(str(RAW_SERVER)))
    async with upstream_with(session="principal", session_idle_seconds=0.1) as upstream:
        (first,) = set(children_with(str(RAW_SERVER))) - before
        async with upstream.queue("ann", "c") as ann:
            assert await said_by(ann, "grow") == "grown"
            async with upstream.queue("bob", "c") as bob:
                assert await said_by(bob) == "hello"
                own = set(children_with(str(RAW_SERVER))) - before - {first}
                assert len(own) == 2
            await gone(max(own))
            assert await said_by(ann) == "hello", "a session in use is not idle"
        await gone(*own)
        assert set(children_with(str(RAW_SERVER))) - before == {first}
        async with upstream.queue("ann", "c") as again:
            assert again is not ann
            assert await said_by(again) == "hello"
    assert set(children_with(str(RAW_SERVER))) == before


@pytest.mark.proves("mcp-sessions")
async def test_the_session_that_has_been_idle_for_longest_makes_room_for_another() -> None:
    async with upstream_with(session="principal", sessions_most=2) as upstream:
        found = {}
        for name in ("ann", "bob", "ann"):
            async with upstream.queue(name, "c") as session:
                assert await said_by(session) == "hello"
                found[name] = session
            await anyio.wait_all_tasks_blocked()
        async with upstream.queue("cid", "c") as session:
            assert await said_by(session) == "hello"
        async with upstream.queue("ann", "c") as session:
            assert session is found["ann"]
        async with upstream.queue("bob", "c") as session:
            assert session is not found["bob"], "it was idle for longest"
            assert await said_by(session) == "hello"


@pytest.mark.proves("mcp-sessions")
async def test_a_caller_is_refused_while_all_sessions_are_in_use() -> None:
    async with upstream_with(session="context", sessions_most=1) as upstream:
        async with upstream.queue("ann", "one"):
            with pytest.raises(BusyError, match=r"all sessions with tools are in use \(1\)"):
                async with upstream.queue("ann", "two"):
                    pass
            with pytest.raises(BusyError, match=r"all sessions with tools are in use \(1\)"):
                async with upstream.queue("bob", "one"):
                    pass
            async with upstream.queue("ann", "one") as same:
                assert await said_by(same) == "hello"
        async with upstream.queue("ann", "two") as session:
            assert await said_by(session) == "hello"


@pytest.mark.proves("mcp-sessions")
async def test_the_death_of_an_own_session_affects_only_its_caller() -> None:
    async with (
        upstream_with(session="principal") as upstream,
        upstream.queue("ann", "c") as ann,
        upstream.queue("bob", "c") as bob,
    ):
        assert [await said_by(ann), await said_by(bob)] == ["hello", "hello"]
        with pytest.raises(ServerLostError):
            await said_by(ann, "die")
        assert await said_by(bob) == "hello"
        assert await said_by(ann) == "hello"
        assert upstream.down is None


@pytest.mark.proves("mcp-sessions")
async def test_another_shared_session_is_opened_once_all_slots_are_taken() -> None:
    before = set(children_with(str(RAW_SERVER)))
    async with (
        upstream_with(sessions=2, options=calls(concurrency=1, queue=0)) as upstream,
        AsyncExitStack() as stack,
    ):
        found = []
        for number in range(2):
            upstream.reserve("ann")
            queue = await stack.enter_async_context(upstream.queue("ann", "c"))
            slot = await stack.enter_async_context(queue.slot(Claimant("ann"), 5))
            assert await said_by(slot.session) == "hello"
            assert len(set(children_with(str(RAW_SERVER))) - before) == number + 1
            found.append(slot.session)
        assert found[0] is not found[1]
        with pytest.raises(QueueFullError, match="2 calls run and 0 wait"):
            upstream.reserve("ann")


@pytest.mark.proves("mcp-serial")
async def test_a_server_that_is_remembered_as_serial_gets_one_call_at_a_time(tmp_path: Path) -> None:
    file = tmp_path / "servers.json"
    ServerMemory(file).remember(Fact.SERIAL, str(raw_command()), "yes")
    busy = r"^tools was busy for 0\.05 s, so the call was given up$"
    async with (
        upstream_with(options={"memory": ServerMemory(file)}) as upstream,
        upstream.queue("ann", "c") as queue,
    ):
        async with queue.slot(Claimant("ann"), 5):
            with pytest.raises(BusyError, match=busy):
                async with queue.slot(Claimant("ann"), 0.05):
                    pass
            assert queue.running == 1
        async with queue.slot(Claimant("ann"), 0.05) as slot:
            assert await said_by(slot.session) == "hello"
        assert queue.running == queue.waiting == 0
    async with (
        upstream_with() as upstream,
        upstream.queue("ann", "c") as queue,
        queue.slot(Claimant("ann"), 5),
        queue.slot(Claimant("ann"), 0.05),
    ):
        assert queue.running == 2


@pytest.mark.proves("mcp-serial", "map-overload")
async def test_the_refusal_at_a_full_serial_server_says_that_a_call_runs(tmp_path: Path) -> None:
    file = tmp_path / "servers.json"
    ServerMemory(file).remember(Fact.SERIAL, str(raw_command()), "yes")
    limits = calls(concurrency=3, queue=1)
    upstream = Upstream(
        "tools", raw_command(), settings=server_settings(), **limits, memory=ServerMemory(file)
    )

    async def hold(queue: CallQueue) -> None:
        upstream.reserve("ann")
        async with queue.slot(Claimant("ann"), 60):
            await anyio.sleep_forever()

    async with upstream.queue("ann", "c") as queue, anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(hold, queue)
        await anyio.wait_all_tasks_blocked()
        assert (queue.running, queue.waiting) == (1, 3)
        with pytest.raises(QueueFullError, match=r"^tools is busy: 1 call runs and 3 wait$"):
            upstream.reserve("ann")
        tasks.cancel_scope.cancel()


# HTTP+SSE, the transport before Streamable HTTP


@dataclass
class OldServer:
    """A server that speaks HTTP+SSE at /sse, and what was posted there by mistake."""

    refusal: Response = field(default_factory=lambda: Response(status_code=405))
    """What a POST to /sse is answered with."""
    url: str = ""
    mistakes: int = 0

    @asynccontextmanager
    async def run(self, port: int = 0) -> AsyncIterator[OldServer]:
        transport = SseServerTransport("/messages/")
        server, _ = Tools().server()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["path"] == "/messages/":
                await transport.handle_post_message(scope, receive, send)
            elif scope["method"] != "GET":
                self.mistakes += 1
                await self.refusal(scope, receive, send)
            else:
                async with transport.connect_sse(scope, receive, send) as streams:
                    await server.run(*streams, server.create_initialization_options())

        async with listening(app, port) as root_url:
            self.url = f"{root_url}/sse"
            yield self


@pytest.mark.proves("mcp-http-sse")
async def test_a_url_of_http_sse_is_detected_and_remembered(tmp_path: Path) -> None:
    file = tmp_path / "servers.json"
    async with OldServer().run() as server:
        async with met(url_at(server.url), Era.AUTO, memory=ServerMemory(file)) as there:
            assert await there.text("echo", text="hello") == "hello"
            assert there.names == list(NAMES)
        assert "http-sse" in json.loads(file.read_text()).values()
        mistakes = server.mistakes
        assert mistakes > 0
        async with met(url_at(server.url), Era.AUTO, memory=ServerMemory(file)) as there:
            assert await there.text("echo", text="hello") == "hello"
        assert server.mistakes == mistakes, "it is not tried in another way any more"


FIRST_POSTS: Final = {
    "403": Response(status_code=403),
    "406": PlainTextResponse("Not Acceptable", 406),
    "415": Response(status_code=415),
    "422": JSONResponse({"detail": [{"loc": ["query", "session_id"]}]}, 422),
    "500": PlainTextResponse("Internal Server Error", 500),
    "501": Response(status_code=501),
    "200 and nothing": Response(status_code=200),
    "200 and a page": HTMLResponse("<h1>Welcome</h1>"),
    "200 and JSON": JSONResponse({"status": "ok"}),
    "200 and an endpoint": Response(
        "event: endpoint\ndata: /messages/?session_id=1\n\n", media_type="text/event-stream"
    ),
    "202": Response(status_code=202),
}


@pytest.mark.proves("mcp-http-sse")
@pytest.mark.parametrize("era", [Era.AUTO, Era.LEGACY])
@pytest.mark.parametrize("first", FIRST_POSTS)
@pytest.mark.smoke("*-auto", "406-legacy")
async def test_a_url_of_http_sse_is_detected_however_it_answers_a_post(first: str, era: Era) -> None:
    async with (
        OldServer(FIRST_POSTS[first]).run() as server,
        met(url_at(server.url), era, memory=ServerMemory(None)) as there,
    ):
        assert await there.text("echo", text="hello") == "hello"


@pytest.mark.proves("mcp-http-sse")
async def test_a_server_configured_for_http_sse_is_spoken_to_in_http_sse_only() -> None:
    async with (
        OldServer().run() as server,
        met(url_at(server.url, transport="sse"), Era.AUTO) as there,
    ):
        assert await there.text("echo", text="hello") == "hello"
        assert server.mistakes == 0
    async with (
        HttpServer().run() as newer,
        met(url_at(newer.url, transport="sse"), Era.AUTO, ready=False) as there,
    ):
        with pytest.raises(PeerError, match="GET for its events"):
            await there.upstream.ready()


@pytest.mark.proves("mcp-http-sse")
@each_era
async def test_a_server_that_returns_to_streamable_http_is_reached_at_once_and_remembered(
    era: Era, tmp_path: Path
) -> None:
    file = tmp_path / "servers.json"
    async with HttpServer().run() as server:
        ServerMemory(file).remember(Fact.TRANSPORT, server.url, "http-sse")
        async with met(url_at(server.url), era, memory=ServerMemory(file)) as there:
            assert await there.text("echo", text="hello") == "hello"
        assert "http-sse" not in json.loads(file.read_text()).values()


@pytest.mark.proves("mcp-http-sse")
async def test_a_server_of_http_sse_that_was_down_is_still_known_as_such(
    tmp_path: Path,
) -> None:
    file, port = tmp_path / "servers.json", free_port()
    url = f"http://127.0.0.1:{port}/sse"
    ServerMemory(file).remember(Fact.TRANSPORT, url, "http-sse")
    server, left = OldServer(), anyio.Event()

    async def serve(*, task_status: anyio.abc.TaskStatus[None]) -> None:
        async with server.run(port):
            task_status.started()
            await left.wait()

    async with anyio.create_task_group() as servers:
        async with met(url_at(url), Era.AUTO, memory=ServerMemory(file), ready=False) as there:
            with pytest.raises(PeerError, match="cannot be reached"):
                await there.upstream.ready()
            assert "http-sse" in json.loads(file.read_text()).values()
            await servers.start(serve)
            assert await there.text("echo", text="up") == "up"
            assert server.mistakes == 0
        left.set()


@pytest.mark.proves("mcp-http-sse")
async def test_the_error_for_a_url_without_either_transport_names_both() -> None:
    async def nothing(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse("nothing here", 404)(scope, receive, send)

    async with listening(nothing) as root_url, met(url_at(f"{root_url}/mpc"), Era.AUTO, ready=False) as there:
        with pytest.raises(PeerError) as failed:
            await there.upstream.ready()
        assert str(failed.value) == (
            f"{root_url}/mpc answered HTTP 404 Not Found, and HTTP+SSE fails, too: "
            f"{root_url}/mpc answered the GET for its events with HTTP 404 Not Found"
        )


# Nothing is left


@needs_proc
@pytest.mark.proves("mcp-no-leak")
@pytest.mark.parametrize("how", ["exit", "exception", "cancellation", "calls in flight"])
async def test_no_child_is_left(how: str) -> None:
    before = children_with(str(RAW_SERVER))
    with anyio.CancelScope() as scope:
        try:
            async with met(raw_command()) as there, anyio.create_task_group() as tasks:
                (pid,) = set(children_with(str(RAW_SERVER))) - set(before)
                if how == "calls in flight":
                    tasks.start_soon(there.call, "wait", {})
                    await anyio.wait_all_tasks_blocked()
                    tasks.cancel_scope.cancel()
                elif how == "exception":
                    raise ZeroDivisionError
                elif how == "cancellation":
                    scope.cancel()
                    await anyio.sleep_forever()
        except* ZeroDivisionError:
            pass
    assert children_with(str(RAW_SERVER)) == before
    await gone(pid)


@needs_proc
@pytest.mark.proves("mcp-no-leak")
async def test_no_child_is_left_when_it_is_stopped_while_it_starts(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "bridge.mcp.client.stderr")
    program = "import sys, time; print('starting slowly', file=sys.stderr, flush=True); time.sleep(60)"
    pace = child_pace(exit_seconds=0.1)
    async with met(command_of((sys.executable, "-c", program), pace=pace), ready=False):
        await _logged(caplog, "starting slowly")
        (pid,) = children_with("starting slowly")
    await gone(pid)


@needs_proc
@pytest.mark.proves("mcp-no-leak")
async def test_processes_that_a_child_started_end_with_it(tmp_path: Path) -> None:
    """As with `npx` or `uvx`, whose child is the server."""
    note = tmp_path / "grandchild"
    program = (
        "import subprocess, sys;"
        f"child = subprocess.Popen([sys.executable, {str(RAW_SERVER)!r}]);"
        f"open({str(note)!r}, 'w').write(str(child.pid)); child.wait()"
    )
    async with met(command_of((sys.executable, "-c", program))) as there:
        assert await there.text("echo", text="up") == "up"
        grandchild = int(note.read_text())
    await gone(grandchild)


# What a child writes to stderr


@pytest.mark.proves("mcp-no-leak")
async def test_the_stderr_of_a_child_is_logged_within_limits(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "bridge.mcp.client.stderr")
    program = (
        "import runpy, sys; sys.stderr.write('y' * 3_000_000 + '\\n');"
        "sys.stderr.write(''.join(f'line {n}\\n' for n in range(5000))); sys.argv = ['raw'];"
        f"runpy.run_path({str(RAW_SERVER)!r}, run_name='__main__')"
    )
    async with met(command_of((sys.executable, "-c", program))) as there:
        with pytest.raises(ServerLostError) as lost:
            await there.call("die", {})
        assert re.search(r"line 4997 .* I was told to die", lost.value.detail)
    lines = [record for record in caplog.records if record.name == "bridge.mcp.client.stderr"]
    said = [record.getMessage() for record in lines if record.levelno == logging.INFO]
    assert said[1] == "tools: line 0"
    assert max(len(line) for line in said) < 2100
    assert len(said) <= 210
    assert any("tools writes so much to stderr" in record.getMessage() for record in lines)


async def _logged(caplog: pytest.LogCaptureFixture, words: str) -> None:
    """Wait until something was logged."""
    heard = anyio.Event()

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if words in record.getMessage():
                heard.set()

    listener = Listener()
    logging.getLogger("bridge").addHandler(listener)
    try:
        if words not in caplog.text:
            with anyio.fail_after(10):
                await heard.wait()
    finally:
        logging.getLogger("bridge").removeHandler(listener)
