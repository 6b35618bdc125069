"""The messages of a server between a transport and the wire: in order, bounded, and answers without a wait."""

from __future__ import annotations

import anyio
import pytest
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification, JSONRPCResponse

from bridge.mcp.client.incoming import Incoming

pytestmark = pytest.mark.proves("map-progress")


def answer(number: int) -> SessionMessage:
    return SessionMessage(JSONRPCResponse(jsonrpc="2.0", id=number, result={}))


def report(number: int) -> SessionMessage:
    return SessionMessage(
        JSONRPCNotification(jsonrpc="2.0", method="notifications/progress", params={"progress": number})
    )


class Reader:
    """Handles answers at once, and notes all that it handles in order."""

    def __init__(self) -> None:
        self.stream = Incoming()
        self.stream.take_at_once = self.take_at_once
        self.handled: list[SessionMessage | Exception] = []
        self.at_once = 0

    def take_at_once(self, item: SessionMessage) -> bool:
        if not isinstance(item.message, JSONRPCResponse):
            return False
        self.handled.append(item)
        self.at_once += 1
        return True

    async def read(self) -> None:
        async for item in self.stream:
            self.handled.append(item)


async def test_an_answer_is_handled_at_once_when_the_reader_waits() -> None:
    reader = Reader()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reader.read)
        await anyio.wait_all_tasks_blocked()
        first = answer(1)
        await reader.stream.put(first)
        assert reader.handled == [first]
        reader.stream.end()


async def test_an_answer_is_never_handled_before_an_earlier_report() -> None:
    reader = Reader()
    sent = [report(1), answer(1), report(2), report(3), answer(2)]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reader.read)
        await anyio.wait_all_tasks_blocked()
        for item in sent:
            await reader.stream.put(item)
        reader.stream.end()
    assert (reader.handled, reader.at_once) == (sent, 0)


async def test_a_transport_waits_while_many_messages_are_unread_and_fails_once_the_reader_is_gone() -> None:
    stream, accepted = Incoming(), 0

    async def put_many() -> None:
        nonlocal accepted
        for number in range(100):
            await stream.put(report(number))
            accepted += 1

    async def put_until_refused() -> None:
        with pytest.raises(anyio.BrokenResourceError):
            await put_many()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(put_until_refused)
        await anyio.wait_all_tasks_blocked()
        assert accepted == 16
        await stream.receive()
        await anyio.wait_all_tasks_blocked()
        assert accepted == 17
        stream.close()
    with pytest.raises(anyio.ClosedResourceError):
        await stream.receive()
