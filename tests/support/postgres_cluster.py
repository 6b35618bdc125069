"""Replicas of one PostgreSQL in one process, each behind a socket of its own that can stand still or end."""

from __future__ import annotations

import asyncio
import ssl
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit

import anyio
import psycopg

from bridge.replicas.proofs import Proofs
from bridge.store.postgres.bounds import PostgresBounds
from bridge.store.postgres.store import PostgresStore
from bridge.store.postgres.table_steps import Namespace
from tests.support.postgres import BOUNDS, database_url, new_agent

KEYS: Final = (b"k" * 40,)
"""The keys of all replicas."""

PROOFS: Final = Proofs(KEYS)
"""Their proofs."""

_SOCKET: Final = ".s.PGSQL.5432"
_SSL_REQUEST: Final = b"\0\0\0\x08\x04\xd2\x16\x2f"
"""The message by which a client of PostgreSQL asks for TLS."""


def socket_of(url: str) -> str:
    """The socket of a server in a folder."""
    (folder,) = parse_qs(urlsplit(url).query)["host"]
    return f"{folder}/{_SOCKET}"


class Gate:
    """Passes what a replica and the database say to each other, unless it is shut or broken."""

    def __init__(self, folder: Path, behind: str) -> None:
        self.folder = folder
        self._behind = behind
        self._open = anyio.Event()
        self._open.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._accepts = True
        self._passing: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """Where the replica reaches the database."""
        return f"postgresql://postgres@/postgres?host={self.folder}"

    async def start(self) -> None:
        """Listen. The caller ends it."""
        self._server = await asyncio.start_unix_server(self._pass_on, self.folder / _SOCKET)

    async def start_with_tls(self, context: ssl.SSLContext) -> int:
        """Listen with TLS at a port of this machine, and return the port. The caller ends it."""

        async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            # A client that does not trust the certificate goes away, and so does one that ends before it has begun.
            with suppress(OSError, EOFError), closing(writer):
                assert await reader.readexactly(len(_SSL_REQUEST)) == _SSL_REQUEST
                writer.write(b"S")
                await writer.start_tls(context)
                await self._pass_on(reader, writer)

        self._server = await asyncio.start_server(pass_on, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def shut(self) -> None:
        """Keep back what is said, in both directions."""
        self._open = anyio.Event()

    def open(self) -> None:
        """Pass on what was kept back."""
        self._open.set()

    def refuse(self) -> None:
        """End every connection, and each one that comes, until `accept`."""
        self._accepts = False
        for writer in self._writers:
            writer.transport.abort()

    def accept(self) -> None:
        """Let connections come again."""
        self._accepts = True

    def end(self) -> None:
        """End every connection, and let none come."""
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        self.open()

    async def stop(self) -> None:
        """End, and wait until nothing is passed on any more."""
        self.end()
        await asyncio.gather(*self._passing, return_exceptions=True)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._accepts:
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        self._passing.add(task)
        self._writers.add(writer)
        try:
            to_reader, to_writer = await asyncio.open_unix_connection(self._behind)
            self._writers.add(to_writer)
            await asyncio.gather(self._pump(reader, to_writer), self._pump(to_reader, writer))
            self._writers.discard(to_writer)
        finally:
            writer.close()
            self._writers.discard(writer)
            self._passing.discard(task)

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while chunk := await source.read(65_536):
                await self._open.wait()
                target.write(chunk)
                await target.drain()
        target.close()
        with suppress(OSError):
            await target.wait_closed()


@asynccontextmanager
async def gate_before(socket: str) -> AsyncIterator[Gate]:
    """A gate before a server's socket."""
    with tempfile.TemporaryDirectory(prefix="mcp-a2a-gate-") as folder:
        gate = Gate(Path(folder), socket)
        await gate.start()
        try:
            yield gate
        finally:
            await gate.stop()


class PostgresCluster:
    """See `Cluster` in tests/store/test_replicas.py."""

    def __init__(self, bounds: PostgresBounds = BOUNDS, *, pool_url: str | None = None) -> None:
        """`pool_url` leads to the database through a pool; what needs a session goes past it."""
        self.agent = new_agent()
        self.bounds = bounds
        self._gates: dict[PostgresStore, tuple[Gate, ...]] = {}
        self._ways = [socket_of(url) for url in (pool_url, database_url()) if url is not None]

    @asynccontextmanager
    async def replica(self) -> AsyncIterator[PostgresStore]:
        """One more replica."""
        async with AsyncExitStack() as stack:
            gates = [await stack.enter_async_context(gate_before(way)) for way in self._ways]
            url, direct = gates[0].url, gates[1].url if gates[1:] else None
            store = PostgresStore(url, self.agent, self.bounds, direct_url=direct, keys=KEYS)
            async with store:
                self._gates[store] = tuple(gates)
                yield store
                self.resume(store)

    def kill(self, store: PostgresStore) -> None:
        """End a replica's connections for good."""
        for gate in self._gates[store]:
            gate.end()

    def pause(self, store: PostgresStore) -> None:
        """Let nothing through between a replica and the database."""
        for gate in self._gates[store]:
            gate.shut()

    def resume(self, store: PostgresStore) -> None:
        """Let everything through again."""
        for gate in self._gates[store]:
            gate.open()

    def notice(self, store: PostgresStore) -> None:
        """Take a replica for dead, as the others do once its lease has run out."""
        self._change("UPDATE {ns}.epochs SET gone = true WHERE epoch = %s", int(store.replicas.epoch))

    def forget_events(self, task_id: str) -> None:
        """Delete the events of a task that its snapshot has, as the leading replica does after a minute."""
        self._change(
            "DELETE FROM {ns}.events e USING {ns}.tasks t"
            " WHERE t.task_id = e.task_id AND e.seq <= t.snapshot_seq AND t.task_id = %s",
            task_id,
        )

    def _change(self, text: str, cell: object) -> None:
        with psycopg.connect(database_url(), autocommit=True) as connection:
            connection.execute(Namespace.of(self.agent).sql(text), (cell,))  # type: ignore[arg-type]
