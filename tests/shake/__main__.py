"""Shake replicas of one PostgreSQL under real calls, by kills, pauses, crashes, cuts and clocks, and check the history.

python -m tests.shake
python -m tests.shake --seconds 150 --kills 30 --cuts 0 --seed 7

It starts a PostgreSQL, replicas of `mcp-a2a serve` with two tool servers each, and clients that reach them through a
balancer that replays. Afterwards every event that a client was told has to be in the database, once and in order
(history.py says what is checked), and has to have come to the webhook that the client named (webhooks.py). The clocks
of two replicas are an hour wrong, where libfaketime is installed.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import random
import shutil
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import httpx2

from tests.shake.balancer import Balancer
from tests.shake.clients import Record, ShakenClient, copies_noted
from tests.shake.faults import KINDS, FaultPlan, Shaking
from tests.shake.fleet import AGENT, TOKENS, ShakenFleet, faketime_library, fleet_on
from tests.shake.history import History
from tests.shake.stores import Found, at_work, found_in, taken_over, unsent
from tests.shake.webhooks import ShakenHooks, faults_of_webhooks, hooks_of
from tests.support.drivers import DRIVERS
from tests.support.postgres import Database, database
from tests.support.postgres_cluster import socket_of

REPLICAS: Final = 4
CLIENTS: Final = 12
_COPIES: Final = 0.05
_SECONDS: Final = 3000.0
_ONE_IN_SECONDS: Final = {"kills": 10, "pauses": 60, "crashes": 60, "cuts": 60}
"""How often each fault happens, where its number is not said: 300 kills and 50 of each other one in 50 minutes."""
_END_SECONDS: Final = 120.0
_MORE_SECONDS: Final = 420.0
"""How long the start and the end may take together."""
_SHOWN: Final = 25


@dataclass
class Options:
    """What was asked for."""

    seconds: float
    counts: dict[str, int]
    seed: int
    with_clocks: bool
    keep: Path | None


@dataclass
class Shaken:
    """What was shaken, and how."""

    shaking: Shaking
    fleet: ShakenFleet
    hooks: ShakenHooks


async def _shake(options: Options, folder: Path, server: Database, record: Record) -> Shaken:
    chance = random.Random(options.seed)
    async with hooks_of(random.Random(f"{options.seed} hooks")) as hooks:
        receiver = hooks.root_url.partition("://")[2]
        behind = Path(socket_of(server.url))
        fleet = fleet_on(folder, behind, REPLICAS, with_clocks=options.with_clocks, receiver=receiver)
        shaking = Shaking(FaultPlan(options.counts, options.seconds, chance), fleet, server)
        try:
            await fleet.start()
            async with _clients(options.seed, fleet, record, hooks) as balancer:
                await shaking.run()
            hooks.is_over = True
            await fleet.ready()
            await _until_none_left(partial(at_work, server.url), "tasks are still at work", record)
            await _until_none_left(partial(unsent, server.url), "notifications are not sent", record)
            await _look_at_all(balancer, record)
        finally:
            await fleet.stop()
    print(f"requests: {dict(balancer.done)}")
    return Shaken(shaking, fleet, hooks)


@contextlib.asynccontextmanager
async def _clients(
    seed: int, fleet: ShakenFleet, record: Record, hooks: ShakenHooks
) -> AsyncIterator[Balancer]:
    """Clients that are at work until this is left, and then end what they do."""
    over = anyio.Event()
    async with anyio.create_task_group() as group:
        balancer = Balancer(group, fleet.ports, random.Random(seed), _COPIES, copies_noted(record))
        for number in range(CLIENTS):
            client = _client(balancer, number, record, random.Random(f"{seed} {number}"), hooks.root_url)
            group.start_soon(client.run, over)
        yield balancer
        over.set()


def _client(
    balancer: Balancer, number: int, record: Record, chance: random.Random, hooks_url: str = ""
) -> ShakenClient:
    owner = sorted(TOKENS)[number // len(DRIVERS) % len(TOKENS)]
    http = httpx2.AsyncClient(transport=balancer, timeout=None)
    headers = {"Authorization": f"Bearer {TOKENS[owner]}"}
    driver = DRIVERS[number % len(DRIVERS)](http, f"http://balancer/agents/{AGENT}", headers)
    return ShakenClient(driver, owner, record, chance, hooks_url)


async def _until_none_left(count: Callable[[], int], what: str, record: Record) -> None:
    ends_at = anyio.current_time() + _END_SECONDS
    while left := await anyio.to_thread.run_sync(count):
        if anyio.current_time() > ends_at:
            record.faults.append(f"{left} {what} after {_END_SECONDS:g} s")
            return
        await anyio.sleep(1)


async def _look_at_all(balancer: Balancer, record: Record) -> None:
    """Read some tasks again, once all is still."""
    for number, owner in ((number, sorted(TOKENS)[number // len(DRIVERS)]) for number in range(4)):
        client = _client(balancer, number, record, random.Random())
        tasks = [task_id for task_id, its_owner in record.owners.items() if its_owner == owner]
        for task_id in random.Random(0).sample(tasks, min(100, len(tasks))):
            await client.look(task_id)


def _report(shaken: Shaken, record: Record, found: Found) -> int:
    shaking, fleet, hooks = shaken.shaking, shaken.fleet, shaken.hooks
    began_by = {
        task_id: message for task_id, message in found.first_messages.items() if message in record.never_twice
    }
    runs = fleet.runs.read_text().splitlines()
    answered = [(message, task_id) for message, task_id in record.answered if message in record.never_twice]
    history = History(
        found.histories, record.seen, record.lists, record.owners, began_by, answered, found.results, runs
    )
    paths = {
        task_id: record.webhooks[message]
        for task_id, message in found.first_messages.items()
        if message in record.webhooks
    }
    of_webhooks = faults_of_webhooks(hooks.arrived, found.histories, paths)
    faults = [*history.faults(), *of_webhooks, *record.faults, *fleet.deaths]
    states = Counter(events[-1].view.status.split()[0] for events in found.histories.values())
    told = Counter(type(one).__name__.lower() for one in set(record.seen))
    print(f"{fleet.without_database} starts found no database, and were made again")
    print(f"faults made: {dict(shaking.done)}; clients did: {dict(record.done)}")
    print(
        f"{len(found.histories)} tasks {dict(states)}, {sum(map(len, found.histories.values()))} events stored,"
        f" {told['told']} told on streams, {told['shown']} answers, {len(record.lists)} lists, {len(runs)} runs:"
        f" {len(faults)} faults found"
    )
    print(
        f"{len(paths)} webhooks got {len(hooks.arrived)} notifications {dict(hooks.done)}; {hooks.repeats} came again"
        " that had been taken"
    )
    for kind, lost_at in (("killed", shaking.killed_at), ("silent", shaking.silent_at)):
        seconds = sorted(after for _, after in taken_over(found.stored_at, lost_at))
        if seconds:
            print(
                f"take-over of {len(seconds)} tasks of replicas that were {kind}: p50"
                f" {statistics.median(seconds):.2f} s, max {seconds[-1]:.2f} s"
            )
    for line, number in Counter(fleet.tracebacks()).most_common(10):
        print(f"    in the logs, {number} times: {line}")
    for fault in faults[:_SHOWN]:
        print(f"    FAULT {fault}")
    return 1 if faults else 0


async def _main(options: Options) -> int:
    clocks = "two clocks an hour wrong" if options.with_clocks else "all clocks right"
    print(f"seed {options.seed}: {options.counts} within {options.seconds:g} s, {clocks}", flush=True)
    record = Record()
    with tempfile.TemporaryDirectory(prefix="mcp-a2a-shake-") as folder, database() as server:
        try:
            with anyio.fail_after(options.seconds + _MORE_SECONDS):
                shaken = await _shake(options, Path(folder), server, record)
            return _report(shaken, record, found_in(server.url, Path(folder, "events")))
        finally:
            if options.keep is not None:
                shutil.copytree(folder, options.keep, dirs_exist_ok=True)


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(
        prog="python -m tests.shake",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--seconds", type=float, default=_SECONDS, help="how long faults happen (3000)")
    for kind in KINDS:
        made.add_argument(f"--{kind}", type=int, help=f"how many {kind} (by the time)")
    made.add_argument("--seed", type=int, help="the order of faults; else a new one, which is printed")
    made.add_argument("--keep", type=Path, help="a folder that the logs are copied to")
    return made


def main() -> int:
    """Shake, and say what was found; 1 when a history does not hold."""
    said = parser().parse_args()
    asked = {kind: getattr(said, kind) for kind in KINDS}
    by_time = {kind: math.ceil(said.seconds / each) for kind, each in _ONE_IN_SECONDS.items()}
    counts = {kind: by_time[kind] if number is None else number for kind, number in asked.items()}
    with_clocks = faketime_library() is not None
    if not with_clocks:
        print("clocks are left right: libfaketime is not installed (Debian's package faketime)")
    seed = random.SystemRandom().randrange(10**6) if said.seed is None else said.seed
    return anyio.run(_main, Options(said.seconds, counts, seed, with_clocks, said.keep))


if __name__ == "__main__":
    sys.exit(main())
