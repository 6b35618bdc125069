"""The official JavaScript client, @a2a-js/sdk, as a `PeerClient`: one Node.js process a client.

Knows the lines that `js_client.mjs` speaks. Nothing runs in the background: whoever waits for a line reads
the pipe, and puts lines that belong to other calls where their callers find them.
"""

import json
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from itertools import count
from typing import Final, Self

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from tests.peers import WAIT_SECONDS, Json, PeerRefused, Transport
from tests.peers.node import js_client_command

END_SECONDS: Final = 5.0
"""How long the process may take to end after its stdin is closed, before it is killed."""

LINE_LIMIT_BYTES: Final = 64 * 1024 * 1024
"""The longest line that is read: far above the largest message of any test."""

CONNECT_ID: Final = 0


class JsClient:
    """A client built on @a2a-js/sdk; see PeerClient."""

    def __init__(
        self,
        base_url: str,
        transport: Transport = "JSONRPC",
        *,
        headers: Mapping[str, str] | None = None,
        wait_seconds: float = WAIT_SECONDS,
    ) -> None:
        self._command = js_client_command(base_url, transport, headers)
        self._wait_seconds = wait_seconds
        self._ids = count(CONNECT_ID + 1)
        self._arrived: defaultdict[int, deque[Json]] = defaultdict(deque)
        self._reading = anyio.Lock()
        self._process: Process
        self._lines: BufferedByteReceiveStream

    async def __aenter__(self) -> Self:
        self._process = await anyio.open_process(self._command, stderr=None)
        assert self._process.stdout is not None
        self._lines = BufferedByteReceiveStream(self._process.stdout)
        try:
            await self._next(CONNECT_ID, "connect")
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        with anyio.move_on_after(END_SECONDS, shield=True):
            await self._process.aclose()  # closes stdin, waits; kills if that is cut short

    async def card(self) -> Json:
        return await self._call("card", {})

    async def send(self, request: Json) -> Json:
        return await self._call("send", request)

    def stream(self, request: Json) -> AsyncGenerator[Json]:
        return self._events("stream", request)

    async def get(self, task_id: str, *, history_length: int | None = None) -> Json:
        limit = {} if history_length is None else {"historyLength": history_length}
        return await self._call("get", {"id": task_id, **limit})

    async def list(self, query: Json | None = None) -> Json:
        return await self._call("list", query or {})

    async def cancel(self, task_id: str) -> Json:
        return await self._call("cancel", {"id": task_id})

    def subscribe(self, task_id: str) -> AsyncGenerator[Json]:
        return self._events("subscribe", {"id": task_id})

    async def _call(self, op: str, args: Json) -> Json:
        async with aclosing(self._answers(op, args)) as answers:
            result: Json = (await anext(answers))["result"]
        return result

    async def _events(self, op: str, args: Json) -> AsyncGenerator[Json]:
        async with aclosing(self._answers(op, args)) as answers:
            async for line in answers:
                if "event" in line:
                    yield line["event"]

    async def _answers(self, op: str, args: Json) -> AsyncGenerator[Json]:
        """Start a call; yield its lines up to the one that is done."""
        call_id = next(self._ids)
        with suppress(anyio.BrokenResourceError):  # the process has ended: reading says so, with its status
            await self._write({"id": call_id, "op": op, "args": args})
        try:
            line: Json = {}
            while "done" not in line:
                line = await self._next(call_id, op)
                yield line
        finally:
            await self._stop(call_id)

    async def _next(self, call_id: int, op: str) -> Json:
        """Return the next line of a call; raise PeerRefused if it is an error."""
        try:
            with anyio.fail_after(self._wait_seconds):
                line = await self._read(call_id)
        except TimeoutError as exc:
            raise TimeoutError(
                f"the JavaScript peer was silent for {self._wait_seconds} s in {op!r}"
            ) from exc
        except (anyio.IncompleteRead, anyio.EndOfStream) as exc:
            status = await self._process.wait()
            raise RuntimeError(f"the JavaScript peer ended in {op!r}, with status {status}") from exc
        if error := line.get("error"):
            raise PeerRefused(error["code"], error["message"], error["data"] or None)
        return line

    async def _read(self, call_id: int) -> Json:
        mine = self._arrived[call_id]
        while not mine:
            async with self._reading:
                if not mine:
                    line = json.loads(await self._lines.receive_until(b"\n", LINE_LIMIT_BYTES))
                    self._arrived[line["id"]].append(line)
        return mine.popleft()

    async def _write(self, line: Json) -> None:
        assert self._process.stdin is not None
        await self._process.stdin.send(json.dumps(line).encode() + b"\n")

    async def _stop(self, call_id: int) -> None:
        """Drop the connection of a call, if it still has one: its caller takes no more lines."""
        with anyio.CancelScope(shield=True), suppress(anyio.BrokenResourceError):
            await self._write({"op": "stop", "args": {"id": call_id}})
