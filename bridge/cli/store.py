"""`mcp-a2a store`: makes, updates and moves the stores in which agents keep their tasks."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from bridge.errors import StoreLockedError, UsageError, counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from bridge.assembly.plan import Plan
    from bridge.assembly.stores import PlacedStore
    from bridge.config.load import LoadedConfig
    from bridge.config.tables.peers import KeyPlace
    from bridge.store.moving import Moved
    from bridge.store.postgres.upgrade import Migration

_LONGEST_WAIT: Final = 86_400


@click.group()
def store() -> None:
    """Make, update and move the stores in which agents keep their tasks.

    \b
    Make or update the tables in a PostgreSQL:   mcp-a2a store migrate
    Move the tasks from SQLite to PostgreSQL:    mcp-a2a store move old.toml new.toml
    """


@store.command(short_help="Make or update the tables in PostgreSQL.")
@click.argument("file", required=False, type=click.Path(path_type=Path), metavar="[FILE]")
@click.option(
    "--store-url",
    metavar="env:NAME|file:PATH|URL",
    help="Use this URL instead of the file's `store`, for a database role that may create tables. Put a URL with a"
    " password into a variable or a file.",
)
@click.option("--dry-run", is_flag=True, help="Change nothing, and say what would change.")
@click.option(
    "--wait",
    "wait_seconds",
    type=click.FloatRange(min=0, max=_LONGEST_WAIT),
    default=0.0,
    metavar="SECONDS",
    help="Wait at most this long until no bridge is in the way of a breaking change.",
)
def migrate(**options: Any) -> int:
    """Make or update the tables of a file's agents, and of the list of replicas, in PostgreSQL.

    FILE defaults to bridge.toml in the current folder. A bridge itself creates missing tables, and makes changes that
    older releases do not notice. You need this command if the bridge's database role may not create tables, and for a
    breaking change, after which older releases cannot use the tables.

    \b
    mcp-a2a store migrate --dry-run
    mcp-a2a store migrate --store-url env:OWNER_URL team.toml
    mcp-a2a store migrate --wait 300

    The command refuses a breaking change while bridges use the store. Stop them first; with --wait the command waits
    until they have stopped. Run the command with the new release, and then start the new release.

    Exit codes: 0 the tables fit this release; 2 the command, the file or the database is at fault, or bridges
    use the store.
    """
    import anyio

    from bridge.cli import logs, render
    from bridge.cli.serve import config_file, loaded_from, plan_of

    plan = plan_of(loaded_from(config_file(options["file"]), {}))
    logs.set_up("text", "error")
    shared, url = plan.place.shared_store, _url(options["store_url"])
    if shared is None:
        render.result("This file has no `store` in PostgreSQL. A start makes and updates a file of tasks.")
        return 0
    anyio.run(_migrate, plan, url or shared.url, options["wait_seconds"], options["dry_run"])
    return 0


def _url(given: str | None) -> str | None:
    """The URL in `--store-url`."""
    from urllib.parse import parse_qs, urlsplit

    from bridge.config.text.secrets import secret_from
    from bridge.config.text.wording import POSTGRES_SCHEMES

    if given is None:
        return None
    referred = secret_from(given)
    url = referred or given
    if not url.startswith(POSTGRES_SCHEMES):
        raise UsageError("--store-url takes env:NAME, file:PATH, or a URL that begins with postgresql://")
    place = urlsplit(url)
    if referred is None and (place.password or "password" in parse_qs(place.query)):
        raise UsageError("--store-url takes a URL with a password as env:NAME or file:PATH, not in plain")
    return url


async def _migrate(plan: Plan, url: str, wait_seconds: float, dry_run: bool) -> None:
    from bridge.assembly.stores import migrate_shared
    from bridge.cli import render

    said: set[str] = set()

    def wait(users: StoreLockedError) -> None:
        if str(users) not in said:
            render.say(f"waiting: {users}")
        said.add(str(users))

    try:
        async for done in migrate_shared(plan, url, wait_seconds=wait_seconds, dry_run=dry_run, on_wait=wait):
            for line in lines_of(done, dry_run=dry_run):
                render.result(line)
    except StoreLockedError as exc:
        if wait_seconds:
            raise
        raise UsageError(f"{exc}, or let the command wait with --wait SECONDS") from exc


def lines_of(done: Migration, *, dry_run: bool) -> Iterator[str]:
    """The lines that say what a migration did, or would do."""
    if done.before == done.after:
        yield f"{done.place}: the tables have version {done.after}, so there is nothing to do"
        return
    verb = "would be" if dry_run else "were"
    if not done.before:
        yield f"{done.place}: the tables {verb} made, in version {done.after}"
        return
    yield f"{done.place}: the tables {verb} updated from version {done.before} to {done.after}"
    if done.is_breaking:
        yield f"  releases for version {done.before} {'could' if dry_run else 'can'} not use them any more"
    if done.living:
        many = len(done.living)
        yield f"  {many} bridge{'s' if many > 1 else ''} would have to be stopped first"


# Move


@dataclass(frozen=True)
class _StorePlace:
    """What FROM or TO names: the agents of a configuration file, or one store of any agent."""

    text: str
    stores: Mapping[str, PlacedStore] = field(default_factory=dict)
    alone: PlacedStore | None = None
    loaded: LoadedConfig | None = None

    def of(self, name: str) -> PlacedStore:
        """The store of an agent.

        Raises:
            UsageError: there is no such agent, or it keeps its tasks in memory.
        """
        from bridge.config.text.wording import meant
        from bridge.store.memory import MemoryStore

        if self.alone is not None:
            return self.alone
        if name not in self.stores:
            hint = meant(name, [*self.stores])
            raise UsageError(f"{self.text} has no [tools_as_agent.{name}]" + (f": {hint}" if hint else ""))
        if isinstance(self.stores[name].store, MemoryStore):
            raise UsageError(f"{name} keeps its tasks in memory in {self.text}, so there is nothing to move")
        return self.stores[name]


@store.command(short_help="Move the tasks of agents to another store.")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option(
    "--agent", "agents", metavar="NAME", multiple=True, help="Move only the tasks of this agent. Repeatable."
)
def move(source: str, target: str, agents: tuple[str, ...]) -> int:
    """Move the tasks of agents from one store to another: from SQLite to PostgreSQL, or back.

    FROM and TO are configuration files with the same agents and different stores. Either may be the path of a SQLite
    file instead (sqlite:///PATH if the file does not exist yet).

    \b
    mcp-a2a store move old.toml new.toml
    mcp-a2a store move old.toml new.toml --agent devtools
    mcp-a2a store move ~/.local/state/mcp-a2a/devtools-8080.db new.toml

    Stop the bridges of both first: the command refuses a store in use. It copies every task with its events, messages,
    context and worker state, then reads each copy back and compares it. TO gets all tasks or none, and must have no
    other tasks, so you can run the command again. FROM stays as it is.

    The first bridge that starts on TO continues the tasks that have not ended. Do not start a bridge on FROM again: two
    bridges would work on the same task.

    Exit codes: 0 the tasks are there; 2 the command, a file or a store is at fault, or a bridge uses a store.
    """
    import anyio

    from bridge.cli import logs

    logs.set_up("text", "error")
    anyio.run(_move, source, target, agents)
    return 0


async def _move(source: str, target: str, agents: Sequence[str]) -> None:
    from bridge.cli import render

    old, new = _place(source), _place(target)
    names = _names(old, new, agents)
    pairs = {name: (old.of(name), new.of(name)) for name in names}
    for name, (one, other) in pairs.items():
        if one.where == other.where:
            raise UsageError(f"{source} and {target} name the same store of {name}: {one.where}")
    for words in _missing_keys(old, new):
        render.say(words)
    unfinished = 0
    for name, (one, other) in pairs.items():
        unfinished += await _move_one(f"{name}: " if name else "", one, other)
    if unfinished:
        has = "task has" if unfinished == 1 else "tasks have"
        render.result(
            f"{unfinished} {has} not ended: the first bridge that starts on {target} continues them."
        )
    render.result(
        f"{source} is unchanged. Start no bridge on it again: two bridges would work on the same task."
    )


async def _move_one(label: str, source: PlacedStore, target: PlacedStore) -> int:
    """Move the tasks of one agent. Returns how many of them have not ended."""
    from bridge.cli import render
    from bridge.store import moving

    began = time.monotonic()
    # The target first: if both name one database, the source is found locked at once, without a wait.
    async with target.store.contents(create=True) as kept, source.store.contents(create=False) as read:
        with _progress(label, await read.count()) as tell:
            done = await moving.move(read, kept, tell)
    render.result(f"{label}{_words_of(done, time.monotonic() - began)}")
    render.result(f"  from {source.where}")
    render.result(f"  to   {target.where}")
    return done.unfinished


def _place(text: str) -> _StorePlace:
    from bridge.assembly.stores import PlacedStore, stores_of
    from bridge.cli.serve import loaded_from, plan_of
    from bridge.config.tables.values import SQLITE_SCHEME
    from bridge.config.text.wording import POSTGRES_SCHEMES
    from bridge.local.file_lock import is_database
    from bridge.store.sqlite import SQLiteStore

    if text.startswith(POSTGRES_SCHEMES):
        raise UsageError("name a PostgreSQL store by a configuration file that has it as `store`")
    path = Path(text.removeprefix(SQLITE_SCHEME)).expanduser()
    if text.startswith(SQLITE_SCHEME) or is_database(path):
        return _StorePlace(text, alone=PlacedStore(SQLiteStore(path), str(path.absolute())))
    loaded = loaded_from(path, {})
    return _StorePlace(text, stores_of(plan_of(loaded)), loaded=loaded)


def _names(old: _StorePlace, new: _StorePlace, agents: Sequence[str]) -> list[str]:
    """The agents whose tasks are moved."""
    from bridge.config.text.wording import listed

    names = list(dict.fromkeys(agents)) or [*(old.stores or new.stores)] or [""]
    if len(names) > 1 and (old.alone or new.alone):
        raise UsageError(
            f"a SQLite file has the tasks of one agent: name the agent with --agent, {listed(names)}"
        )
    return names


def _words_of(done: Moved, seconds: float) -> str:
    tasks = counted(done.tasks, "task")
    if done.is_repeat:
        was, are = ("was", "is") if done.tasks == 1 else ("were", "are")
        return f"{tasks} {was} moved before, and {are} the same on both sides"
    return f"{tasks} moved, read back and compared, in {seconds:.1f} s"


@contextmanager
def _progress(label: str, tasks: int) -> Iterator[Callable[[str, int], None]]:
    """Show how far a move is, at a terminal only."""
    from bridge.cli import render

    if not render.err.is_terminal:
        yield lambda *_: None
        return
    with render.err.status(f"{label}{counted(tasks, 'task')}") as status:
        yield lambda verb, number: status.update(f"{label}{number} of {counted(tasks, 'task')} {verb}")


def _missing_keys(old: _StorePlace, new: _StorePlace) -> Iterator[str]:
    """A message for each key of the old file that the new file lacks: hosts may hold handles sealed with it."""
    from bridge.config.toml_text import toml_value

    if old.loaded is None or new.loaded is None or not old.loaded.config.agents_as_tools:
        return
    known = {_secret(key) for key in _keys(new.loaded)}
    for key in _keys(old.loaded):
        if (secret := _secret(key)) is not None and secret not in known:
            yield (
                f"MCP hosts may hold handles of tasks and contexts that are sealed with a key of {old.text}, and"
                f" {new.text} lacks this key, so it refuses them: add {toml_value(key)} after the first of its `keys`,"
                " on every replica, until hosts hold no old handle"
            )


def _keys(loaded: LoadedConfig) -> Sequence[KeyPlace]:
    """The keys of a file; if it has none, the key in the state folder."""
    from bridge.config.tables.peers import KeyPlace
    from bridge.local.user_folders import state_folder
    from bridge.seal import KEY_FILE

    return loaded.config.bridge.keys or (KeyPlace(file=state_folder() / KEY_FILE),)


def _secret(key: KeyPlace) -> bytes | None:
    """The key itself; None if its file does not exist yet."""
    from bridge.local.private_files import read_secret

    if key.secret is not None:
        return key.secret.value.encode()
    return read_secret(key.file)[0].strip() if key.file is not None and key.file.exists() else None
