"""What clients find after a backup of a store, made while a bridge worked, was put in its place: docs/operations.md."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import anyio
import pytest

from bridge.assembly.plan import SharedStore
from tests.support.asking_bridge import AT_ONCE, Asked, asking, outcome, words_of
from tests.support.command import WAIT_SECONDS
from tests.support.drivers import Json, state_of
from tests.support.postgres import Database, database
from tests.support.running import call_part

KEYS: Final = ("the same secret before and after, of many letters",)
KEPT: Final = {"lease_seconds": 1.0, "close_seconds": 2.0}


@dataclass
class Before:
    """The tasks of the time of the backup."""

    done: Json
    asked: Json
    at_work: Json


async def worked(client: Asked) -> Before:
    """A task that is done, one that waits for an answer, and one that is at work."""
    return Before(
        await client.send(call_part("echo", text="kept")),
        await client.ask("ask"),
        await client.send(call_part("wait"), configuration=AT_ONCE),
    )


async def is_restored(client: Asked, before: Before, later: Json, said: str) -> None:
    """A task that ended is there, one that waited goes on, one at work has ended in words, a later one is unknown."""
    assert outcome(await client.get(before.done["id"])) == "kept"
    assert state_of(await client.answer_to(before.asked, {"name": "Ann"})) == "COMPLETED"
    ended = await client.ended(before.at_work)
    assert (state_of(ended), words_of(ended)) == ("FAILED", said)
    refused = await client.refused("GetTask", id=later["id"])
    assert refused.reason == "TASK_NOT_FOUND"


@pytest.mark.proves("replicas-nothing-lost")
async def test_a_sqlite_store_is_backed_up_while_a_bridge_works_and_restored(tmp_path: Path) -> None:
    file, copy = tmp_path / "tasks.db", tmp_path / "copy.db"
    async with asking("modern", store=str(file)) as client:
        before = await worked(client)
        # As `.backup` of the command sqlite3 does it, in another process: one has all locks of a file, or none.
        script = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).backup(sqlite3.connect(sys.argv[2]))"
        await anyio.run_process([sys.executable, "-c", script, str(file), str(copy)])
        later = await client.send(call_part("echo", text="later"))
    for rest in tmp_path.glob("tasks.db*"):
        rest.unlink()
    copy.rename(file)
    async with asking("modern", store=str(file)) as client:
        await is_restored(
            client,
            before,
            later,
            "The bridge restarted while this task was running, so its outcome is not known",
        )


@pytest.fixture(scope="module")
def server() -> Iterator[Database]:
    with database() as found:
        yield found


def dumped(server: Database, url: str, into: str) -> None:
    """Dump a database as it is, and restore it as another, by the commands of the page."""
    dump = subprocess.run(
        [str(server.programs / "pg_dump"), "--format=custom", url],
        stdout=subprocess.PIPE,
        check=True,
        timeout=WAIT_SECONDS,
    ).stdout
    for command in (
        ["createdb", "--maintenance-db", server.url, into],
        ["pg_restore", "--exit-on-error", "--dbname", url_of(server, into)],
    ):
        program, *words = command
        subprocess.run(
            [str(server.programs / program), *words],
            input=dump,
            check=True,
            capture_output=True,
            timeout=WAIT_SECONDS,
        )


def url_of(server: Database, name: str) -> str:
    """The URL of a database of the server."""
    return urlsplit(server.url)._replace(path=f"/{name}").geturl()


@pytest.mark.proves("replicas-nothing-lost")
async def test_a_dump_of_a_shared_store_that_replicas_work_on_is_restored(server: Database) -> None:
    async with asking("modern", store=SharedStore(server.url), name="office", keys=KEYS, kept=KEPT) as client:
        before = await worked(client)
        dumped(server, server.url, "restored")
        later = await client.send(call_part("echo", text="later"))
    restored = SharedStore(url_of(server, "restored"))
    async with asking("modern", store=restored, name="office", keys=KEYS, kept=KEPT) as client:
        gone = "The replica of the bridge that ran this task is gone, so its outcome is not known"
        await is_restored(client, before, later, gone)
