"""A connection between two processes of one bridge: frames of JSON, each behind its length in four bytes.

Both ends are the same program of the same user, so a malformed frame is a bug, and ends the link alone. The size of a
frame, and of what waits to be read by the other end, is bounded: a process that stands still must not fill the memory
of another.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from contextlib import suppress
from typing import Final

import anyio

from bridge.text.jsonvalues import JsonObject, json_bytes

_LENGTH: Final = struct.Struct("!I")

_UNIX: Final[int] = getattr(socket, "AF_UNIX", 1)
"""Absent on Windows, where no bridge has workers."""

MOST_BYTES: Final = 256 * 1024 * 1024
"""The largest frame, and the most that waits for the other end: more than the largest message of a tool server
(`result_limit_bytes`, 64 MiB) takes."""

STUCK_SECONDS: Final = 30.0
"""How long the other end may take nothing in before it counts as stuck. A process of a busy machine may stand still for
seconds."""

_DISCARDED_BYTES: Final = 65_536
"""How much is read at once of what is thrown away."""


def unix_socket() -> socket.socket:
    """A socket that is found by its place in the file system."""
    return socket.socket(_UNIX, socket.SOCK_STREAM)


class LinkEndedError(Exception):
    """The other end is closed, or has taken nothing in for too long, or says what is no frame."""


class WorkerLink:
    """One end of such a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def over(cls, connected: socket.socket) -> WorkerLink:
        """The link over a connected socket, which belongs to the link from here on."""
        connected.setblocking(False)
        return cls(*await asyncio.open_connection(sock=connected))

    @classmethod
    async def to(cls, path: str) -> WorkerLink:
        """The link to a process that listens at a unix socket.

        Raises:
            LinkEndedError: nobody listens there.
        """
        near = unix_socket()
        near.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(near, path)
        except BaseException as exc:
            near.close()
            if isinstance(exc, OSError):
                raise LinkEndedError from exc
            raise
        return await cls.over(near)

    def post(self, frame: JsonObject) -> None:
        """Send a frame without waiting. A link that is closed, or whose other end takes too little in, ends."""
        body = json_bytes(frame)
        transport = self._writer.transport
        if len(body) + transport.get_write_buffer_size() > MOST_BYTES:
            transport.abort()
            return
        self._writer.write(_LENGTH.pack(len(body)) + body)

    async def receive(self) -> JsonObject:
        """The next frame.

        Raises:
            LinkEndedError: there are no more, or the next one is malformed.
        """
        try:
            (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
            if length > MOST_BYTES:
                raise LinkEndedError
            frame = json.loads(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, OSError, ValueError, RecursionError) as exc:
            raise LinkEndedError from exc
        if not isinstance(frame, dict):
            raise LinkEndedError
        return frame

    async def ended(self) -> None:
        """Wait until the other end has closed the link. What still comes is thrown away, as it may begin in the middle
        of a frame."""
        with suppress(OSError):
            while await self._reader.read(_DISCARDED_BYTES):
                pass

    async def stuck(self, within_seconds: float = STUCK_SECONDS) -> None:
        """Wait until the other end has taken in nothing of what waits for it, for so long."""
        buffered = self._writer.transport.get_write_buffer_size
        while True:
            before = buffered()
            await anyio.sleep(within_seconds)
            if 0 < before <= buffered():
                return

    async def close(self, within_seconds: float = 1.0) -> None:
        """Close the link once what was posted is sent, or the time is up."""
        with anyio.move_on_after(within_seconds, shield=True), suppress(OSError):
            self._writer.close()
            await self._writer.wait_closed()
        self._writer.transport.abort()
