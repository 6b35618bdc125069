"""`mcp-a2a store`: the tables of stores made and updated, and tasks moved from one store to another."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import psycopg
import pytest

from bridge.cli.store import lines_of
from bridge.local.file_lock import own_file
from bridge.store.contract import Store
from bridge.store.postgres.occupancy import LivingReplica
from bridge.store.postgres.store import PostgresStore
from bridge.store.postgres.table_steps import AGENT, Namespace
from bridge.store.postgres.upgrade import Migration
from bridge.store.records import MessageKey, TaskHead
from bridge.store.sqlite import SQLiteStore
from tests.store.changes import first, keep
from tests.support.command import ROOT, run_command, run_here
from tests.support.files import RAW, written
from tests.support.pages import all_typed
from tests.support.postgres import BOUNDS, database_url, new_agent

SECRET = "a key for handles, of many letters"
ENDED = TaskHead("completed", ended=True, status_ms=20)


class Files:
    """Two files with the same agent: one keeps its tasks in SQLite, one in a database."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.agent = new_agent()
        self.place = Namespace.of(self.agent).name
        self.agents = f"[tools_as_agent.{self.agent}]\nfrom = ['raw']\n"
        self.old = written(folder, "[bridge]\nstore = 'tasks.db'\n", RAW, self.agents, name="old.toml")
        self.new = self.shared(self.agents)
        self.database = folder / f"tasks.{self.agent}.db"

    def shared(self, *tables: str, keys: str = "{ env = 'KEY' }") -> Path:
        """The file whose tasks are in the database."""
        head = f"[bridge]\nstore = {{ env = 'DATABASE_URL' }}\nkeys = [{keys}]\n"
        return written(self.folder, head, RAW, *tables, name="new.toml")

    def store(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run the command here."""
        variables = {"DATABASE_URL": database_url(), "KEY": SECRET, **more}
        return run_here("store", *words, state=self.folder / "state", folder=self.folder, **variables)

    def fill(self, store: Store | None = None) -> None:
        """Keep an ended task and one that has not ended."""

        async def keep_two() -> None:
            async with store or SQLiteStore(self.database) as made:
                await keep(made, first("t1", head=ENDED), first("t2", message=MessageKey("m", b"d", 1)))

        anyio.run(keep_two)

    def in_database(self) -> list[str]:
        """The tasks in the database."""

        async def read() -> list[str]:
            store = PostgresStore(database_url(), self.agent, BOUNDS)
            async with store.contents(create=False) as contents:
                return [one.task.task_id async for one in contents.tasks()]

        return anyio.run(read)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_tables_are_made_once_and_a_dry_run_makes_none(files: Files) -> None:
    said = [files.store("migrate", "new.toml", *words) for words in (["--dry-run"], [], [])]
    assert [done.stdout.splitlines()[1:] for done in said] == [
        [f"{files.place}: the tables would be made, in version {AGENT.version}"],
        [f"{files.place}: the tables were made, in version {AGENT.version}"],
        [f"{files.place}: the tables have version {AGENT.version}, so there is nothing to do"],
    ]
    assert [done.stdout.partition(":")[0] for done in said] == ["mcp_a2a"] * 3
    assert {done.returncode for done in said} == {0}


def test_tables_of_logins_are_made_where_a_server_needs_one(files: Files) -> None:
    files.shared(
        files.agents,
        "[tool_servers.crm]\nurl = 'https://crm.example/mcp'\n"
        "auth = { oauth2 = { grant = 'authorization_code' } }\n",
    )
    done = files.store("migrate", "new.toml")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1].startswith("mcp_a2a__logins: the tables ")


def test_tables_of_a_file_without_a_database_are_made_by_its_start(files: Files) -> None:
    done = files.store("migrate", "old.toml")
    words = "This file has no `store` in PostgreSQL. A start makes and updates a file of tasks.\n"
    assert (done.returncode, done.stdout) == (0, words)
    assert not files.database.exists()


def test_a_role_that_may_not_make_tables_gets_the_command_for_another_role(files: Files) -> None:
    with psycopg.connect(database_url(), autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {files.place} LOGIN")  # type: ignore[call-overload]
    least = {"DATABASE_URL": database_url().replace("postgres@", f"{files.place}@")}
    done = files.store("migrate", "new.toml", **least)
    assert done.returncode == 2
    assert (
        "run `mcp-a2a store migrate FILE --store-url env:NAME` with the URL of a role that may make them"
        in done.stderr
    )
    done = files.store("migrate", "new.toml", "--store-url", "env:OWNER", OWNER=database_url(), **least)
    assert (done.returncode, done.stderr) == (0, "")
    assert files.in_database() == []


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql://u:hunter2@h/a", "takes a URL with a password as env:NAME or file:PATH, not in plain"),
        ("postgresql://h/a?password=hunter2", "takes a URL with a password as env:NAME or file:PATH"),
        ("mysql://h/a", "takes env:NAME, file:PATH, or a URL that begins with postgresql://"),
        ("env:NONE", "the environment variable NONE is not set"),
    ],
)
def test_another_url_is_a_postgresql_and_keeps_its_password_out_of_the_line(
    url: str, words: str, files: Files
) -> None:
    done = files.store("migrate", "new.toml", "--store-url", url)
    assert done.returncode == 2
    assert words in done.stderr
    assert "hunter2" not in done.stdout + done.stderr


ONE = (LivingReplica(1, datetime(2026, 1, 1, tzinfo=UTC)),)


@pytest.mark.parametrize(
    ("done", "dry_run", "lines"),
    [
        (
            Migration("p", 1, 2, is_breaking=False),
            False,
            ["p: the tables were updated from version 1 to 2"],
        ),
        (
            Migration("p", 1, 3, is_breaking=True),
            False,
            [
                "p: the tables were updated from version 1 to 3",
                "  releases for version 1 can not use them any more",
            ],
        ),
        (
            Migration("p", 1, 3, is_breaking=True, living=ONE * 2),
            True,
            [
                "p: the tables would be updated from version 1 to 3",
                "  releases for version 1 could not use them any more",
                "  2 bridges would have to be stopped first",
            ],
        ),
    ],
)
def test_a_migration_reports_its_effect_on_older_releases(
    done: Migration, dry_run: bool, lines: list[str]
) -> None:
    assert [*lines_of(done, dry_run=dry_run)] == lines


def test_tasks_are_moved_to_a_database_and_a_repeat_finds_that_they_are(files: Files) -> None:
    files.fill()
    done = files.store("move", "old.toml", "new.toml")
    assert (done.returncode, done.stderr) == (0, "")
    head, *rest = done.stdout.splitlines()
    assert head.startswith(f"{files.agent}: 2 tasks moved, read back and compared, in ")
    assert rest == [
        f"  from {files.database}",
        "  to   postgresql:///postgres, which replicas share",
        "1 task has not ended: the first bridge that starts on new.toml continues them.",
        "old.toml is unchanged. Start no bridge on it again: two bridges would work on the same task.",
    ]
    assert files.in_database() == ["t1", "t2"]
    again = files.store("move", "old.toml", "new.toml").stdout
    assert again.startswith(f"{files.agent}: 2 tasks were moved before, and are the same on both sides\n")


def test_tasks_are_moved_back_into_one_file(files: Files) -> None:
    files.fill()
    files.store("move", str(files.database), "new.toml")
    done = files.store("move", "new.toml", "sqlite:///back.db")
    assert done.returncode == 0, done.stderr
    again = files.store("move", str(files.folder / "back.db"), str(files.database))
    assert again.stdout.startswith("2 tasks were moved before")


REFUSED: dict[str, tuple[Callable[[Files], list[str]], str]] = {
    "the same store": (lambda _: ["old.toml", "old.toml"], "name the same store"),
    "no such store": (lambda _: ["old.toml", "new.toml"], "there is no store"),
    "no such agent": (
        lambda _: ["old.toml", "new.toml", "--agent", "other"],
        "has no [tools_as_agent.other]",
    ),
    "a URL": (lambda _: ["old.toml", "postgresql:///a"], "name a PostgreSQL store by a configuration file"),
    "memory": (
        lambda files: [
            str(
                written(files.folder, "[bridge]\nstore = 'memory:'\n", RAW, files.agents, name="memory.toml")
            ),
            "new.toml",
        ],
        "keeps its tasks in memory",
    ),
    "several agents of one file": (
        lambda files: [
            str(files.shared(files.agents, "[tools_as_agent.other]\nfrom = ['raw']\n")),
            "sqlite:///back.db",
        ],
        "a SQLite file has the tasks of one agent: name the agent with --agent",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_impossible_move_is_refused_and_changes_nothing(case: str, files: Files) -> None:
    words, message = REFUSED[case]
    done = files.store("move", *words(files))
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert not files.database.exists()


def test_tasks_are_not_moved_from_a_file_in_use(files: Files) -> None:
    files.fill()
    with own_file(files.database):
        done = files.store("move", "old.toml", "new.toml")
    assert done.returncode == 2
    assert f"{files.database} is in use by another bridge" in done.stderr
    assert files.in_database() == []


async def test_tasks_are_not_moved_into_a_database_in_use(files: Files) -> None:
    async with PostgresStore(database_url(), files.agent, BOUNDS):
        moving: partial[Any] = partial(files.store, "move", "old.toml", "new.toml")
        done = await anyio.to_thread.run_sync(moving)
    assert done.returncode == 2
    assert f"1 bridge uses the store {files.place}, since " in done.stderr


@pytest.mark.parametrize("takes_over", [False, True])
def test_a_key_that_the_new_file_lacks_is_reported(takes_over: bool, files: Files) -> None:
    key = files.folder / "state" / "mcp-a2a" / "handle.key"
    key.parent.mkdir(parents=True)
    key.write_text(SECRET.upper())
    team = f"[agents_as_tools.team]\nfrom = ['{files.agent}']\n"
    files.fill()
    written(files.folder, "[bridge]\nstore = 'tasks.db'\n", RAW, files.agents, team, name="old.toml")
    more = f", {{ file = '{key}' }}" if takes_over else ""
    files.shared(files.agents, team, keys=f"{{ env = 'KEY' }}{more}")
    said = files.store("move", "old.toml", "new.toml").stderr
    assert (f'add {{ file = "{key}" }} after the first of its `keys`' in said) is not takes_over
    assert SECRET.upper() not in said


def test_the_commands_of_the_group_are_completed(tmp_path: Path) -> None:
    asked = {"_MCP_A2A_COMPLETE": "bash_complete", "COMP_WORDS": "mcp-a2a store m", "COMP_CWORD": "2"}
    done = run_command(state=tmp_path, **asked)
    assert done.stdout.split() == ["plain,migrate", "plain,move"]


def test_the_commands_in_the_docs_about_replicas_work(files: Files) -> None:
    files.fill()
    (files.folder / "bridge.toml").write_text(files.new.read_text())
    lines = [typed.line.split() for _, typed in all_typed([ROOT / "docs" / "replicas.md"])]
    ours = [words for words in lines if words[:2] == ["mcp-a2a", "store"]]
    assert len(ours) == 3
    done = [files.store(*words[2:], OWNER_URL=database_url()) for words in ours]
    assert [(one.returncode, one.stderr) for one in done] == [(0, "")] * 3
    assert files.in_database() == ["t1", "t2"]
