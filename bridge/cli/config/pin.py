"""`mcp-a2a pin`: approves the definitions of tool servers and agents, in a lock beside the configuration."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from bridge.errors import UsageError, counted

if TYPE_CHECKING:
    from bridge.assembly.plan import Plan
    from bridge.pinned.differences import Difference
    from bridge.pinned.lock import Lock
    from bridge.process.peer_definitions import ReadDefinitions

_WAIT_SECONDS: Final = 30.0
"""The same as in `bridge.process.preview`, which is too slow to import for `--help`."""
_OPEN: Final = 1


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path), metavar="[FILE]")
@click.option(
    "--only",
    multiple=True,
    metavar="NAME",
    help="Approve only this server or agent: its name, or tool_servers.NAME or agents.NAME. May be given several"
    " times.",
)
@click.option("--yes", is_flag=True, help="Approve without a question.")
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 if something is not as in the lock.")
@click.option("--json", "as_json", is_flag=True, help="Print the differences as JSON, and write nothing.")
@click.option(
    "--wait-seconds",
    type=click.FloatRange(min=0, min_open=True, max=3600),
    default=_WAIT_SECONDS,
    show_default=True,
    help="How long servers and agents may take to answer.",
)
def pin(**options: Any) -> int:
    """Approve what servers and agents offer, so that it cannot change in silence.

    FILE defaults to bridge.toml in the current folder. The command connects to each server and agent of the file. It
    writes names, descriptions, schemas and annotations of their tools, prompts, resource templates and skills to a
    lock beside the file: bridge.lock for bridge.toml. If there is a lock, the command shows what has changed since,
    and asks before it writes.

    \b
    mcp-a2a pin
    mcp-a2a pin --only github
    mcp-a2a pin --check

    Once there is a lock, a bridge on FILE warns of everything that is not as in the lock. With pinned = "refuse" in
    [bridge], or in the table of a server or agent, the bridge does not offer it until this command approves it. A
    running bridge reads a changed lock at once. Commit the lock together with FILE.

    Exit codes: 0 all is as in the lock now; 1 a server or agent could not be read, a change was not approved, or
    --check or --json found a difference; 2 the file, the lock or an option has a mistake.
    """
    from bridge.cli import logs, render
    from bridge.cli.serve import config_file, loaded_from, plan_of
    from bridge.pinned.lock import Lock, lock_beside, write_lock

    path = config_file(options["file"])
    loaded = loaded_from(path, {})
    logs.set_up("text", "error")
    plan = plan_of(loaded)
    titles = _titles(plan, options["only"])
    read = _read(plan, options["wait_seconds"])
    changes = _changes(plan, titles, loaded.lock or Lock(), read)
    if options["as_json"]:
        render.write_document(json.dumps(changes.to_object(), indent=2) + "\n")
        return _OPEN if changes else 0
    for line in changes.lines(is_first=loaded.lock is None):
        render.say(line)
    lock_file = lock_beside(path.absolute())
    if not changes.differences and not changes.gone and loaded.lock is not None:
        if not changes.unread:
            render.say(f"all is as in {lock_file}")
        return _OPEN if changes.unread else 0
    if options["check"]:
        return _OPEN
    is_approved = loaded.lock is None or options["yes"] or _asks(lock_file)
    if not is_approved:
        render.say("nothing was written")
        return _OPEN
    write_lock(lock_file, changes.lock)
    render.say(f"wrote {lock_file}: {_count(changes.lock)}")
    return _OPEN if changes.unread else 0


@dataclass(frozen=True)
class _LockChanges:
    """What is not as in the lock, and the lock that has it."""

    lock: Lock
    differences: Mapping[str, tuple[Difference, ...]]
    """By the titles of servers and agents."""
    oddities: Mapping[str, tuple[str, ...]]
    unread: Mapping[str, str]
    gone: tuple[str, ...]
    """The servers and agents of the lock that the file no longer has."""

    def __bool__(self) -> bool:
        return bool(self.differences or self.unread or self.gone)

    def lines(self, *, is_first: bool) -> Iterable[str]:
        """The changes for a person. The first lock has nothing to compare with, so only what stands out is shown."""
        for title, why in self.unread.items():
            yield f"{title}: not read, and left as it is in the lock: {why}"
        for title in self.gone:
            yield f"{title}: the file no longer has it"
        for title, differences in self.differences.items() if not is_first else ():
            yield f"{title}:"
            for difference in differences:
                yield from (f"  {line}" for line in difference.lines())
        for title, lines in self.oddities.items():
            yield from (f"look at {title}: {line}" for line in lines)

    def to_object(self) -> dict[str, Any]:
        """The changes as JSON."""
        return {
            "ok": not self,
            "differences": {
                title: [difference.to_object() for difference in differences]
                for title, differences in self.differences.items()
            },
            "look_at": self.oddities,
            "not_read": self.unread,
            "gone": self.gone,
        }


def _titles(plan: Plan, only: tuple[str, ...]) -> frozenset[str]:
    """The titles of the servers and agents to pin.

    Raises:
        UsageError: `only` names something else.
    """
    from bridge.pinned.lock import agent_title, server_title

    every = [*map(server_title, plan.servers), *map(agent_title, plan.agents)]
    if not only:
        return frozenset(every)
    titles: set[str] = set()
    for name in only:
        named = [title for title in every if name in (title, title.partition(".")[2])]
        if len(named) != 1:
            several = f"means {' and '.join(named)}" if named else "is no server and no agent of the file"
            raise UsageError(f"--only {name} {several}: give one of {', '.join(every) or 'none'}")
        titles.update(named)
    return frozenset(titles)


def _read(plan: Plan, wait_seconds: float) -> ReadDefinitions:
    import anyio

    from bridge.cli.config.check_report import CheckProgress
    from bridge.pinned.lock import PinnedPlan
    from bridge.process.peer_definitions import read_definitions
    from bridge.process.preview import previewed

    agents = {key: replace(agent, pinned=None) for key, agent in plan.agents.items()}
    whole = replace(plan, pinned=PinnedPlan(), agents=agents)

    async def read() -> ReadDefinitions:
        async with previewed(whole, CheckProgress(), wait_seconds) as bridge:
            return await read_definitions(whole, bridge)

    return anyio.run(read)


def _changes(plan: Plan, titles: frozenset[str], before: Lock, read: ReadDefinitions) -> _LockChanges:
    from bridge.pinned.differences import differences
    from bridge.pinned.lock import Lock, agent_title, server_title
    from bridge.pinned.oddities import hidden_characters, oddities, vanished

    sources = {title: source for title, source in read.sources.items() if title in titles}
    changed = {
        title: found
        for title, source in sources.items()
        if (found := differences(before.definitions_of(title) or {}, source.definitions))
    }
    known = {*map(server_title, plan.servers), *map(agent_title, plan.agents)}
    kept = {title: source for title, source in before.sources.items() if title in known}
    present = read.definitions
    news = {(title, item.kind, item.name) for title, items in changed.items() for item in items}
    odd: dict[str, tuple[str, ...]] = {}
    for oddity in (
        *oddities(present),
        *hidden_characters(present),
        *(oddity for title, items in changed.items() for oddity in vanished(title, items)),
    ):
        if (oddity.title, oddity.kind, oddity.name) in news:
            odd[oddity.title] = (*odd.get(oddity.title, ()), str(oddity))
    return _LockChanges(
        Lock({**kept, **sources}),
        changed,
        odd,
        {title: why for title, why in read.unread.items() if title in titles},
        tuple(sorted(before.sources.keys() - known)),
    )


def _asks(lock_file: Path) -> bool:
    """Ask whether to write the lock.

    Raises:
        UsageError: nobody is there to ask.
    """
    from bridge.cli import render

    if not render.can_ask():
        raise UsageError(
            f"{lock_file} was not changed: nobody is at the terminal to approve it; --yes approves, --check only looks"
        )
    answer = render.ask(f"Approve this, and write {lock_file}? (y/N):")
    return (answer or "").strip().lower() in ("y", "yes")


def _count(lock: Lock) -> str:
    from bridge.pinned.definitions import KINDS, NOUNS

    totals = {
        kind: sum(len(source.definitions.get(kind, {})) for source in lock.sources.values()) for kind in KINDS
    }
    items = [counted(total, NOUNS[kind]) for kind, total in totals.items() if total]
    return f"{', '.join(items) or 'nothing'} of {counted(len(lock.sources), 'server or agent', 'servers and agents')}"
