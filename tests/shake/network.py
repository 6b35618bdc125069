"""The way of a replica to its database, which can be cut in silence: what is said meanwhile is lost."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(eq=False)
class _Link:
    """One connection through the proxy."""

    writers: list[asyncio.StreamWriter]
    has_lost: bool = False
    """Whether something that was said on it is lost, so that neither end can go on."""

    def abort(self) -> None:
        for writer in self.writers:
            writer.transport.abort()


@dataclass
class SilentProxy:
    """Listens on a port of loopback, and passes on to a unix socket."""

    behind: Path
    _links: set[_Link] = field(default_factory=set)
    _passing: set[asyncio.Task[None]] = field(default_factory=set)
    _is_cut: bool = False

    async def start(self) -> None:
        """Listen until `stop`."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.sockets[0].getsockname()[1])

    def cut(self) -> None:
        """Swallow what is said, in both directions, and what new connections say."""
        self._is_cut = True

    def mend(self) -> None:
        """Pass on again. Connections that lost something break now, as when a host has forgotten them."""
        self._is_cut = False
        for link in tuple(self._links):
            if link.has_lost:
                link.abort()

    async def stop(self) -> None:
        """End every connection."""
        self._server.close()
        for link in tuple(self._links):
            link.abort()
        await asyncio.gather(*self._passing, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link, task = _Link([writer], has_lost=self._is_cut), asyncio.current_task()
        assert task is not None
        self._links.add(link)
        self._passing.add(task)
        try:
            if link.has_lost:
                while await reader.read(65_536):
                    pass  # nobody answers on a connection that began within a cut
                return
            from_database, to_database = await asyncio.open_unix_connection(self.behind)
            link.writers.append(to_database)
            await asyncio.gather(
                self._pump(link, reader, to_database), self._pump(link, from_database, writer)
            )
        except OSError:
            pass  # the database has crashed
        finally:
            link.abort()
            self._links.discard(link)
            self._passing.discard(task)

    async def _pump(self, link: _Link, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while chunk := await source.read(65_536):
                if self._is_cut:
                    link.has_lost = True
                elif not link.has_lost:
                    target.write(chunk)
                    await target.drain()
        link.has_lost |= self._is_cut  # the end of a connection is lost, too
        if not link.has_lost:
            target.close()
