"""Signals that stop a process, raised in this one, on the system's event loop and on one like that of Windows."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from threading import Thread
from types import ModuleType, SimpleNamespace
from typing import cast

import anyio
import pytest

from bridge.process.shutdown import Shutdown, heard_signals, watch_signals

pytestmark = pytest.mark.any_loop


@asynccontextmanager
async def watching(stopping: Shutdown) -> AsyncIterator[Shutdown]:
    """Signals are handled for the length of the block."""
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            await tasks.start(watch_signals, stopping)
            yield stopping
            tasks.cancel_scope.cancel()


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 0), ("SIGHUP", 0), ("SIGBREAK", 0)])
async def test_the_first_signal_asks_to_stop_and_the_second_to_stop_at_once(name: str, code: int) -> None:
    number = getattr(signal, name, None)
    if number is None:
        pytest.skip(f"this system has no {name}")
    async with watching(Shutdown(serving=True)) as stopping:
        signal.raise_signal(number)
        await stopping.asked.wait()
        assert not stopping.at_once.is_set()
        signal.raise_signal(number)
        await stopping.at_once.wait()
    assert stopping.exit_code == code


async def test_a_signal_that_another_thread_gets_wakes_the_loop() -> None:
    """A system may hand it to any thread; the main one waits, and would not notice."""
    async with watching(Shutdown(serving=True)) as stopping:
        thread = Thread(target=signal.raise_signal, args=[signal.SIGTERM])
        thread.start()
        await stopping.asked.wait()
        thread.join()


async def test_a_signal_while_nothing_is_served_ends_the_start() -> None:
    stopping = Shutdown()
    async with watching(stopping):
        with stopping.starting:
            signal.raise_signal(signal.SIGTERM)
            await anyio.sleep_forever()
    assert stopping.starting.cancelled_caught


@pytest.mark.parametrize("signal_first", [True, False])
async def test_what_else_asks_to_stop_does_not_count_as_a_signal(signal_first: bool) -> None:
    stopping = Shutdown(serving=True)
    stop = [lambda: stopping.handle_signal(signal.SIGTERM), stopping.ask]
    for one in stop if signal_first else reversed(stop):
        one()
    assert (stopping.asked.is_set(), stopping.at_once.is_set()) == (True, False)
    stopping.handle_signal(signal.SIGTERM)
    assert stopping.at_once.is_set()


async def test_what_handled_signals_before_handles_them_after() -> None:
    numbers = list(heard_signals())
    before = [signal.getsignal(number) for number in numbers]
    async with watching(Shutdown()):
        assert [signal.getsignal(number) for number in numbers] != before
    assert [signal.getsignal(number) for number in numbers] == before


def system_with(hangup: object = signal.SIG_DFL, **numbers: int) -> ModuleType:
    """A system that has these signals."""
    return cast(ModuleType, SimpleNamespace(getsignal=lambda number: hangup, **numbers))


def test_a_system_is_asked_for_the_signals_that_it_has() -> None:
    posix = {"SIGINT": 2, "SIGTERM": 15, "SIGHUP": 1}
    assert list(heard_signals(system_with(**posix))) == [2, 15, 1]
    assert list(heard_signals(system_with(SIGINT=2, SIGBREAK=21, SIGTERM=15))) == [2, 21, 15]
    assert list(heard_signals(system_with(signal.SIG_IGN, **posix))) == [2, 15]


@pytest.mark.windows
def test_ctrl_break_ends_a_bridge() -> None:
    """A process is given it, in a group of its own."""
    words = [
        sys.executable,
        "-P",
        "-m",
        "bridge",
        "wrap",
        "--port",
        "0",
        "--",
        sys.executable,
        "-c",
        "input()",
    ]
    group = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)
    with subprocess.Popen(words, creationflags=group, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        process.stderr.readline()
        process.send_signal(getattr(signal, "CTRL_BREAK_EVENT", signal.SIGTERM))
        assert process.wait(30) == 0
