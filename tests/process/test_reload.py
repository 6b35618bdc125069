"""A configuration file that is served, and changed meanwhile: what is taken over, when, and what is said of it."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, redirect_stderr
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import anyio
import httpx2
import pytest

from bridge.assembly.bridge import Bridge
from bridge.assembly.plan import Plan
from bridge.assembly.telemetry import ReloadCount
from bridge.cli import logs
from bridge.cli.serve import loaded_from, read_from
from bridge.config.tables.profile import load_profile
from bridge.process.reload import ReadConfig, Reload
from tests.support.command import logs_kept
from tests.support.tool_server import ToolServer, listed

WAIT_SECONDS = 30
NOWHERE = "http://127.0.0.1:9"
PRINCIPALS = "[principals.{}]\nbearer = {{ file = '{}.token' }}\n"


@dataclass
class Serving:
    """A bridge that runs on a file."""

    file: Path
    one: ToolServer
    bridge: Bridge
    reload: Reload
    said: list[str]
    """What the reload logged."""
    logs: list[tuple[str, str]] = field(default_factory=list)
    """The formats and levels that the log was set to."""

    def text(self, *parts: str, bridge: str = "") -> str:
        """A file with the tool server and, after that, these parts."""
        head = f"[bridge]\nstore = 'memory:'\n{bridge}\n[tool_servers.one]\nurl = '{self.one.target.url}'\n"
        return "".join([head, "[tools_as_agent.a]\nfrom = ['one']\n", *parts])

    def write(self, *parts: str, bridge: str = "") -> None:
        """Put another file in its place in one step."""
        new = self.file.with_suffix(".new")
        new.write_text(self.text(*parts, bridge=bridge))
        new.replace(self.file)

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until it is so."""
        while not is_so():
            await anyio.sleep(0.01)

    async def hears(self, words: str) -> str:
        """Wait until the log says these words; the whole line, and none is left of what came before it."""
        await self.until(lambda: any(words in line for line in self.said))
        line = next(line for line in self.said if words in line)
        self.said.clear()
        return line


class Heard(logging.Handler):
    """Keeps what is logged."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self.lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@asynccontextmanager
async def serving(folder: Path, *parts: str, bridge: str = "") -> AsyncIterator[Serving]:
    """Serve a file of these parts, and take over what is changed in it."""
    with anyio.fail_after(WAIT_SECONDS):
        async with AsyncExitStack() as stack:
            one = await stack.enter_async_context(ToolServer("one", [listed("echo")]).run())
            file = folder / "bridge.toml"
            there = Serving(file, one, None, None, [])  # type: ignore[arg-type]  # which are made of what it writes
            there.write(*parts, bridge=bridge)
            read = partial(_read, file)
            first = read()
            there.reload = Reload(read, first, lambda *said: there.logs.append(said))
            there.bridge = await stack.enter_async_context(Bridge(first.plan, own_url=NOWHERE).run())
            heard, logger = Heard(there.said), logging.getLogger("bridge.process.reload")
            logger.addHandler(heard)
            logger.setLevel(logging.INFO)  # as the log of a bridge is by default
            stack.callback(logger.removeHandler, heard)
            await there.bridge.apply(first.plan)
            group = await stack.enter_async_context(anyio.create_task_group())
            group.start_soon(there.reload.run, there.bridge)
            stack.callback(group.cancel_scope.cancel)
            yield there


def _read(file: Path) -> ReadConfig:
    return read_from(loaded_from(file, {}))


def names(there: Serving) -> dict[str, str]:
    """The names of the agents, by their paths."""
    return {one.path: one.agent.card("").name for one in there.bridge.published}


async def test_metrics_tell_whether_the_file_as_it_is_was_taken(tmp_path: Path) -> None:
    async with serving(tmp_path) as there:
        count = ReloadCount()
        count.note(True)
        there.reload.on_end = count.note
        there.write(bridge="port = 'none'")
        await there.hears("port")
        assert (count.is_refused, count.taken, count.refused) == (True, 1, 1)
        there.write("name = 'Other'\n")
        await there.until(lambda: count.taken == 2)
        assert not count.is_refused
        reloads, ok, taken_at = count.families()
        assert [sample.value for sample in reloads.samples] == [1, 1]
        assert [sample.value for sample in ok.samples] == [1]
        assert taken_at.samples[0].value > 0


async def test_a_file_that_is_being_written_is_not_taken_over_although_it_can_be_read(tmp_path: Path) -> None:
    two = "[tools_as_agent.b]\nfrom = ['one']\n"
    async with serving(tmp_path, two) as there:
        for _ in range(12):
            # As editors do that empty a file and write it: without its end it can be read as well.
            there.file.write_text(there.text())
            await anyio.sleep(0.02)
            there.file.write_text(there.text(two, "name = 'Half'\n"))
            await anyio.sleep(0.02)
        there.file.write_text(there.text(two, "name = 'Whole'\n"))
        await there.until(lambda: bool(there.said))
        assert there.said == ["the configuration was read again and taken over: changed tools_as_agent.b"]
        assert names(there)["/agents/b"] == "Whole"


async def test_an_empty_file_is_refused_and_the_one_that_follows_is_taken_over(tmp_path: Path) -> None:
    async with serving(tmp_path) as there:
        there.file.write_text("")
        await there.hears("the bridge goes on with the earlier configuration")
        there.write("name = 'Again'\n")
        assert await there.hears("taken over") == (
            "the configuration was read again and taken over: changed tools_as_agent.a"
        )


async def test_a_reload_says_in_one_line_what_was_added_changed_and_removed(tmp_path: Path) -> None:
    for name in ("ada", "bob"):
        (tmp_path / f"{name}.token").write_text(f"{name}-token")
    ada, bob = (PRINCIPALS.format(name, name) for name in ("ada", "bob"))
    async with serving(tmp_path, "[tools_as_agent.old]\nfrom = ['one']\n", ada, bob) as there:
        agents = "[agents.far]\ncard = 'http://127.0.0.1:9'\n[agents_as_tools.m]\nfrom = ['a']\n"
        there.write("name = 'Another'\n", agents, ada, "skills = ['e*']\n")
        assert await there.hears("taken over") == (
            "the configuration was read again and taken over:"
            " added agents.far, agents_as_tools.m; changed tools_as_agent.a, principals.ada;"
            " removed tools_as_agent.old, principals.bob"
        )
        (tmp_path / "ada.token").write_text("another-token")
        assert await there.hears("taken over") == (
            "the configuration was read again and taken over: changed principals.ada"
        )


async def test_known_agents_that_change_are_taken_over_and_those_left_out_are_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hermes = tmp_path / "hermes.yaml"
    billing = "    - { name: billing, url: 'https://a.example', auth: oauth2 }\n"
    hermes.write_text(f"a2a:\n  client:\n    known_agents:\n{billing}")
    async with serving(tmp_path, "[import]\nknown_agents = 'hermes.yaml'\n") as there:
        for name in ("one", "two"):
            with hermes.open("a") as file:
                file.write(f"    - {{ name: {name}, url: 'https://{name}.example' }}\n")
            assert await there.hears("taken over") == (
                f"the configuration was read again and taken over: added agents.{name}"
            )
    warned = [line for line in caplog.messages if "left out" in line]
    assert len(warned) == 1
    assert warned[0].startswith(f"agents.billing at {hermes}:4 is left out: it needs OAuth 2")


async def test_a_reload_that_changes_nothing_is_silent(tmp_path: Path) -> None:
    async with serving(tmp_path) as there:
        there.write("\n# Only a remark.\n")
        there.reload.ask()
        there.file.touch()
        there.write("name = 'Seen'\n")
        await there.until(lambda: bool(there.said))
        assert there.said == ["the configuration was read again and taken over: changed tools_as_agent.a"]
        there.file.write_text("nonsense\n")
        await there.hears("the bridge goes on with the earlier configuration")
        there.write("name = 'Seen'\n")
        assert await there.hears("read again") == "the configuration was read again: nothing has changed"


async def test_of_a_mixed_change_all_is_taken_over_but_what_needs_a_restart_which_is_said_once(
    tmp_path: Path,
) -> None:
    (tmp_path / "mine.toml").write_text("extends = 'default'\n")
    mapping = "mapping = './mine.toml'\n"
    async with serving(tmp_path, bridge=mapping) as there:
        (tmp_path / "mine.toml").write_text("extends = 'default'\n[streams]\nopen = 5\n")
        assert await there.hears("restart") == (
            "a restart is needed for [streams] in the mapping profile of [bridge]"
        )
        there.write("name = 'Taken'\n", bridge=f"{mapping}port = 9\nhosts = ['b.example']\n")
        assert await there.hears("restart") == (
            "the configuration was read again and taken over: changed tools_as_agent.a;"
            " a restart is needed for bridge.port, bridge.hosts"
        )
        there.write("name = 'Later'\n", bridge=f"{mapping}port = 9\nhosts = ['b.example']\n")
        assert await there.hears("taken over") == (
            "the configuration was read again and taken over: changed tools_as_agent.a"
        )
        assert names(there) == {"/agents/a": "Later"}


async def test_how_the_log_is_written_is_taken_over(tmp_path: Path) -> None:
    async with serving(tmp_path, bridge="log_level = 'warning'\n") as there:
        there.write(bridge="log_level = 'debug'\n")
        assert await there.hears("taken over") == (
            "the configuration was read again and taken over: changed bridge.log_level"
        )
        assert there.logs == [("text", "debug")]


async def test_a_log_beside_the_file_is_not_fed_by_looking_at_the_folder(tmp_path: Path) -> None:
    with (tmp_path / "serve.log").open("w") as log, logs_kept(), redirect_stderr(log):
        logs.set_up("text", "debug")
        async with serving(tmp_path, bridge="log_level = 'debug'\n") as there:
            for number in range(10):
                logging.getLogger("bridge").info("line %d", number)
                log.flush()
                await anyio.sleep(0.02)
            there.write("name = 'Another'\n", bridge="log_level = 'debug'\n")
            await there.hears("taken over")
    lines = (tmp_path / "serve.log").read_text().splitlines()
    assert any("line 9" in line for line in lines)
    assert not [line for line in lines if "detected" in line]


async def test_a_file_that_is_named_anew_and_broken_is_watched_until_it_is_mended(tmp_path: Path) -> None:
    async with serving(tmp_path) as there:
        (tmp_path / "mine.toml").write_text("nonsense\n")
        there.write("mapping = './mine.toml'\nname = 'Mine'\n")
        await there.hears("the bridge goes on with the earlier configuration")
        (tmp_path / "mine.toml").write_text("extends = 'default'\n")
        await there.hears("taken over")
        assert names(there) == {"/agents/a": "Mine"}


@pytest.mark.proves("web-never-opens")
async def test_the_last_principal_of_a_file_is_taken_away_and_the_bridge_lets_nobody_in(
    tmp_path: Path,
) -> None:
    (tmp_path / "ada.token").write_text("ada-token")
    async with serving(tmp_path, PRINCIPALS.format("ada", "ada"), bridge="host = '0.0.0.0'\n") as there:
        there.write(bridge="host = '0.0.0.0'\n")
        assert await there.hears("taken over") == (
            "the configuration was read again and taken over: removed principals.ada"
        )
        assert there.bridge.asks_for_credentials
        there.write(bridge="host = '0.0.0.0'\nallow_unauthenticated = true\n")
        assert await there.hears("taken over") == (
            "the configuration was read again and taken over: changed bridge.allow_unauthenticated"
        )
        assert not there.bridge.asks_for_credentials


@pytest.mark.proves("web-never-opens")
async def test_a_principal_that_is_taken_away_does_not_wait_for_what_an_earlier_change_started(
    tmp_path: Path,
) -> None:
    (tmp_path / "ada.token").write_text("ada-token")
    marks = f"import sys; open({str(tmp_path / 'started')!r}, 'w'); sys.stdin.read()"
    silent = (
        f"[tool_servers.slow]\ncommand = {json.dumps([sys.executable, '-c', marks])}\n"
        "connect_seconds = 1000\nfail = 'closed'\n[tools_as_agent.b]\nfrom = ['slow']\n"
    )
    ada = PRINCIPALS.format("ada", "ada")
    async with serving(tmp_path, ada) as there:
        there.write(silent, ada)
        await there.until((tmp_path / "started").exists)
        there.write()
        assert await there.hears("taken over") == (
            "the configuration was read again and taken over: removed principals.ada"
        )
        assert names(there) == {"/agents/a": "one"}
        assert list(there.bridge.upstreams) == ["one"]


@asynccontextmanager
async def rewritten(file: Path, text: str) -> AsyncIterator[None]:
    """Put a file of this text in its own place, again and again, as long as the block runs."""

    async def rewrite() -> None:
        while True:
            new = file.with_suffix(".next")
            new.write_text(text)
            new.replace(file)
            await anyio.sleep(0.05)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(rewrite)
        yield
        tasks.cancel_scope.cancel()


@pytest.mark.proves("web-never-opens")
@pytest.mark.parametrize("restless", ["a secret of another", "the file"])
async def test_a_principal_that_is_taken_away_does_not_wait_for_files_that_never_rest(
    tmp_path: Path, restless: str
) -> None:
    for name in ("ada", "bob"):
        (tmp_path / f"{name}.token").write_text(f"{name}-token")
    ada, bob = (PRINCIPALS.format(name, name) for name in ("ada", "bob"))
    async with (
        serving(tmp_path, ada, bob, bridge=f"public_url = '{NOWHERE}'\n") as there,
        httpx2.AsyncClient(transport=httpx2.ASGITransport(there.bridge.app), base_url=NOWHERE) as client,
    ):

        async def status(name: str) -> int:
            token = {"Authorization": f"Bearer {name}-token", "A2A-Version": "1.0"}
            return (await client.get("/agents/a/tasks", headers=token)).status_code

        assert await status("ada") == 200
        file, text = there.file, there.text(bob, bridge=f"public_url = '{NOWHERE}'\n")
        there.write(bob, bridge=f"public_url = '{NOWHERE}'\n")
        if restless != "the file":
            file, text = tmp_path / "bob.token", "bob-token"
        async with rewritten(file, text):
            while await status("ada") != 401:
                await anyio.sleep(0.01)
            assert there.reload.read_at is None  # nothing else of the file counts yet
            assert await there.hears("taken over") == (
                "the configuration was read again and taken over: removed principals.ada"
            )
        assert await status("bob") == 200


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names")
async def test_a_pipe_in_the_place_of_the_file_is_refused_at_once_and_the_next_file_taken_over(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as there:
        there.file.unlink()
        os.mkfifo(there.file)
        assert "not a regular file" in await there.hears("cannot read")
        there.write("name = 'Mine'\n")
        await there.hears("taken over")
        assert names(there) == {"/agents/a": "Mine"}


async def test_a_host_that_is_refused_is_told_the_key_of_the_file_that_adds_it(tmp_path: Path) -> None:
    async with (
        serving(tmp_path) as there,
        httpx2.AsyncClient(transport=httpx2.ASGITransport(there.bridge.app)) as client,
    ):
        for path in ("/agents", "/readyz", "/agents/a/.well-known/agent-card.json"):
            refused = await client.get(f"http://Bridge.Example:8080{path}")
            assert refused.status_code == 421
            assert refused.json()["error"]["message"].endswith(
                '; its operator allows that with hosts = ["bridge.example"] in [bridge]'
            )


@pytest.mark.parametrize("is_credential", [True, False])
def test_a_reload_that_was_asked_for_says_that_copies_of_systemd_take_a_restart(
    is_credential: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "credentials"
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(folder))
    files = frozenset({(folder if is_credential else tmp_path) / "secrets_ops_token"})
    first = ReadConfig(Plan(load_profile()), files, "text", "info")
    Reload(lambda: first, first, lambda *_: None).ask()
    told = [one.getMessage() for one in caplog.records]
    assert [str(folder) in line and "systemctl restart" in line for line in told] == [True] * is_credential
