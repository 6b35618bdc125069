"""The output of a start: the table with any names of tools, on any terminal, and example calls that work."""

from __future__ import annotations

import logging
import shlex
import sys
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path

import pytest
from mcp.server import MCPServer
from rich.console import Console

from bridge import loads
from bridge.assembly.bridge import Bridge
from bridge.assembly.plan import Plan, ProcessPlan
from bridge.assembly.plan_from_file import plan_from_file
from bridge.cli import banner, render
from bridge.cli.encoding import replace_unencodable_characters
from bridge.config.tables.profile import load_profile
from bridge.console.app import mount_console
from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import Credential, Scheme
from tests.cli.call.test_command import command
from tests.support.command import run_command
from tests.support.exposing import ExposeConfig
from tests.support.files import DEVTOOLS, RAW, written
from tests.support.ports import free_port
from tests.support.running import config_for, raw_command, running

LONG = "x" * 122


def test_the_table_stands_with_a_long_name_and_many_tools_and_wraps_at_words() -> None:
    rows = [(LONG, "It has a name that is longer than any line")]
    rows += [(f"tool_{number}", "does " + "something or other " * 6) for number in range(300)]
    console = Console(file=StringIO(), width=80)
    console.print(banner.table_of(rows, 80), crop=False)
    lines = [line.rstrip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]
    assert lines[0] == f"  {LONG}"
    assert lines[1] == "           It has a name that is longer than any line"
    assert lines[2:4] == [
        "  tool_0   does something or other something or other something or other",
        "           something or other something or other something or other",
    ]
    assert lines[-1] == "  …        and 261 more"
    assert len(lines) == 2 + 39 * 2 + 1


async def test_an_agent_that_has_no_tools_yet_is_named(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    plan = ExposeConfig([url], load_profile(), state=tmp_path, cache=tmp_path).plan()
    bridge = Bridge(plan, over_http=False)
    async with bridge.run():
        await bridge.apply(plan)
        with render.err.capture() as said:
            banner.OnTerminal(plan).serving(bridge, 8090)
    last = said.get().splitlines()[-1]
    assert last == f"✗ agent_127_0_0_1: its tools are listed once {url} gives its card"


@pytest.mark.parametrize(
    ("encoding", "written_as"),
    [
        ("utf-8", "✓ ünïcode — 旅 🎉"),
        ("latin-1", r"+ ünïcode - \u65c5 \ud83c\udf89"),
        ("cp1252", r"+ ünïcode — \u65c5 \ud83c\udf89"),
        ("ascii", r"+ \u00fcn\u00efcode - \u65c5 \ud83c\udf89"),
    ],
)
def test_characters_that_a_terminal_lacks_are_replaced(
    encoding: str, written_as: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = TextIOWrapper(BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", stream)
    replace_unencodable_characters()
    stream.write("✓ ünïcode — 旅 🎉")
    stream.flush()
    assert stream.buffer.getvalue().decode(encoding) == written_as  # type: ignore[attr-defined]


@pytest.mark.long
def test_a_result_goes_to_a_latin_1_terminal_without_a_traceback(tmp_path: Path) -> None:
    file = written(tmp_path, RAW, DEVTOOLS)
    done = run_command("check", str(file), state=tmp_path, PYTHONIOENCODING="latin-1")
    assert (done.returncode, done.stderr) == (0, "")
    assert "  + raw  raw 1.2.3, 16 tools" in done.stdout.splitlines()


@pytest.mark.parametrize(
    ("credential", "words", "header"),
    [
        (None, ["echo", "text=text"], ""),
        (
            Credential(Principal("ada", skills=("add",)), "s3cret", reference="env:TOKEN"),
            ["add", "a=1", "b=1", "--bearer", "env:TOKEN"],
            ' -H "Authorization: Bearer ${TOKEN}"',
        ),
        (
            Credential(Principal("ada"), "s3cret", Scheme.API_KEY, "file:/run/my key"),
            ["echo", "text=text", "--api-key", "file:/run/my key"],
            """ -H "X-API-Key: $(cat '/run/my key')\"""",
        ),
    ],
    ids=["open", "one skill", "key"],
)
async def test_a_suggested_call_only_reads_and_refers_to_the_credential(
    credential: Credential | None, words: list[str], header: str
) -> None:
    known = [credential] if credential else []
    async with running(config_for(raw_command(), credentials=known)) as bridge:
        (agent,) = bridge.bridge.whole.published
        ours, curl = banner.lines_for(agent, bridge.base_url, known)
    assert shlex.split(ours) == ["mcp-a2a", "call", bridge.base_url, *words]
    assert curl.startswith(f"curl -s {bridge.base_url} -H 'A2A-Version: 1.0'")
    assert f"{header} -d '" in curl
    assert "s3cret" not in ours + curl


async def test_no_call_is_suggested_to_a_principal_without_rights() -> None:
    nobody = Credential(Principal("ada", skills=()), "s3cret", reference="env:TOKEN")
    async with running(config_for(raw_command(), credentials=[nobody])) as bridge:
        (agent,) = bridge.bridge.whole.published
        assert list(banner.lines_for(agent, bridge.base_url, [nobody])) == []


async def test_the_suggested_call_works(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(config_for(raw_command())) as bridge:
        (agent,) = bridge.bridge.whole.published
        ours, _ = banner.lines_for(agent, bridge.base_url, [])
        done = await command("call", monkeypatch)(*shlex.split(ours)[2:])
    assert (done.code, done.out) == (0, "text\n")


async def test_a_start_prints_the_url_of_the_console() -> None:
    plan = Plan(load_profile(), ProcessPlan(console=True, port=8090))
    bridge = Bridge(plan)
    mount_console(bridge)
    async with bridge.run():
        with render.err.capture() as said:
            banner.OnTerminal(plan).serving(bridge, 8090)
    assert said.get().split() == ["Console", "http://127.0.0.1:8090/console"]


@pytest.mark.parametrize(("tools", "words"), [(1, "1 tool"), (2, "2 tools")])
@pytest.mark.parametrize("audience", [banner.InLog, banner.OnTerminal])
async def test_a_server_that_is_up_is_reported_with_the_number_of_its_tools(
    audience: type[banner.InLog | banner.OnTerminal],
    tools: int,
    words: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "bridge")
    server = MCPServer("one")
    for number in range(tools):
        server.add_tool(lambda: "done", name=f"tool{number}")
    tables = {"bridge": {"store": "memory:"}, "tools_as_agent": {"one": {"from": ["one"]}}}
    plan = plan_from_file(loads(tables, servers={"one": server}))
    with render.err.capture() as said:
        async with Bridge(plan, audience(plan)).run() as bridge:
            await bridge.apply(plan)
    told = [*caplog.messages, *said.get().splitlines()]
    assert [line for line in told if line.endswith(f", {words}")]


@pytest.mark.parametrize(("running", "words"), [(1, "1 running task"), (2, "2 running tasks")])
def test_a_stop_prints_the_number_of_running_tasks(
    running: int, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "bridge")
    banner.InLog(Plan(load_profile())).stopping(running)
    assert caplog.messages == [f"stopping, {words}"]


@pytest.mark.outside
async def test_a_quiet_start_logs_its_address_at_info(caplog: pytest.LogCaptureFixture) -> None:
    """It is told at the command's default level, which is `warning`."""
    logging.getLogger("bridge").setLevel(logging.WARNING)
    plan = ExposeConfig(["http://127.0.0.1:9"], load_profile(), keys=("k" * 32,)).plan()
    async with Bridge(plan, over_http=False).run() as bridge:
        await bridge.apply(plan)
        banner.Quiet(plan).serving(bridge, 8090)
    (record,) = [one for one in caplog.records if one.name == "bridge.cli.banner"]
    assert (record.levelname, "serving MCP at http://127.0.0.1:8090/mcp" in record.message) == ("INFO", True)


def test_no_line_break_of_a_peer_begins_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    evil = "evil\n\nAgent  http://evil.test\r\nConsole  http://evil.test"
    at_start = banner.OnTerminal(Plan(load_profile()))
    at_start.connecting(evil, evil)
    at_start.failed(evil, evil)
    render.say(evil)
    render.heading(evil)
    render.result(evil)
    render.sentence(evil)
    render.err.print(banner.table_of([(evil, "short"), ("name", evil), (f"{evil}{'x' * 50}", evil)], 300))
    said = "".join(capsys.readouterr())
    assert "evil\\x0a\\x0aAgent" in said
    assert [line for line in said.splitlines() if line.startswith(("Agent", "Console"))] == []
    render.err.say_in_lines(evil)
    assert capsys.readouterr().err.splitlines()[2] == "    Agent  http://evil.test"
