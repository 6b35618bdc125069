"""Which tests need a process or a socket, found in their code, and a guard that sees what was not found.

A test is followed by the names that it uses, as its fixtures are: into the helpers of these tests, and on from there.
If one of them is a door, as `subprocess` is one, the test gets the mark `outside`. What is opened by the bridge alone
cannot be found that way: such a test has the mark in its file. In a run without these tests the guard listens to
what the interpreter says of each socket and process, so a mark that is missing fails its test.
"""

from __future__ import annotations

import asyncio
import inspect
import multiprocessing
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import cache, partial
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

import anyio
import pytest
import uvicorn
from mcp.client.stdio import stdio_client

from bridge.http.server import BoundedServer
from bridge.mcp.client.transports.stdio import child
from bridge.mcp.client.upstream import Upstream

MARK: Final = "outside"
DOORS: Final[tuple[Any, ...]] = (
    subprocess,
    socket,
    socket.create_server,
    socket.socket,
    subprocess.Popen,
    subprocess.run,
    multiprocessing,
    anyio.open_process,
    anyio.run_process,
    anyio.connect_tcp,
    anyio.create_tcp_listener,
    asyncio.start_server,
    stdio_client,
    uvicorn.Server,
    BoundedServer,
    Upstream,
    child,
    sys.executable,
)
"""What opens a socket or starts a process, in the hands of a test."""
_WITH_DOORS: Final = (anyio, asyncio, uvicorn, sys)
"""Modules that are used for other things too."""
_EVENTS: Final = (
    "socket.bind",
    "socket.connect",
    "subprocess.Popen",
    "os.fork",
    "os.posix_spawn",
    "os.system",
)
"""What the interpreter says of it (PEP 578)."""


def mark(item: pytest.Item) -> None:
    """Mark a test that needs a process or a socket."""
    fixtures = getattr(item, "_fixtureinfo").name2fixturedefs  # noqa: B009 - pytest has no public name for it
    made = [fixture.func for known in fixtures.values() for fixture in known]
    used = [function for function in made if function.__module__ != "tests.conftest"]  # which clean up
    given = getattr(getattr(item, "callspec", None), "params", {}).values()
    if any(map(_reaches, (getattr(item, "function", None), *used))) or any(map(leads_out, given)):
        item.add_marker(MARK)


class Guard:
    """A plugin that fails a test, or the making of its fixtures, for what it opens."""

    def __init__(self) -> None:
        self._seen: dict[str, None] | None = None
        sys.addaudithook(self._hear)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self) -> Iterator[None]:
        yield from self._watch()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Iterator[None]:
        yield from self._watch()

    def _watch(self) -> Iterator[None]:
        seen = self._seen = {}
        try:
            yield
        finally:
            self._seen = None
        if seen:
            what = f"it opens a socket or starts a process ({', '.join(seen)})"
            pytest.fail(f"{what}: mark it `{MARK}`, and `make test-fast` leaves it out", pytrace=False)

    def _hear(self, event: str, _: tuple[Any, ...]) -> None:
        if self._seen is not None and event in _EVENTS:
            self._seen[event] = None


@cache
def _reaches(function: Any) -> bool:
    return leads_out(function)


def leads_out(thing: Any) -> bool:
    """Whether something of these tests uses a door, itself or by what it uses."""
    seen: dict[int, Any] = {}
    left = [thing]
    while left:
        one = left.pop()
        if id(one) in _DOOR_IDS:
            return True
        if id(one) not in seen:
            seen[id(one)] = one
            left += _used_by(one)
    return False


_DOOR_IDS: Final = frozenset(map(id, DOORS))


def _used_by(thing: Any) -> Iterator[Any]:
    """What a function or a class of these tests names, and what a value of them holds."""
    if isinstance(thing, dict | list | tuple):
        yield from thing.values() if isinstance(thing, dict) else thing
    elif isinstance(thing, partial):
        yield from (thing.func, *thing.args, *thing.keywords.values())
    elif isinstance(thing, type):
        if thing.__module__.startswith("tests."):
            yield from thing.__mro__[1:]
            for value in vars(thing).values():
                yield getattr(value, "fget", None) or getattr(value, "__func__", value)
    elif (function := _function(thing)) is not None:
        if function.__module__.startswith("tests."):
            yield from _named_by(function)
    elif type(thing).__module__.startswith("tests."):
        yield type(thing)
        yield from getattr(thing, "__dict__", {}).values()


def _named_by(function: FunctionType) -> Iterator[Any]:
    names = list(_names(function.__code__))
    for name in names:
        value = function.__globals__.get(name)
        yield value
        if isinstance(value, ModuleType) and (value.__name__.startswith("tests.") or value in _WITH_DOORS):
            yield from (getattr(value, inner, None) for inner in names)
    for cell in function.__closure__ or ():
        yield cell.cell_contents


def _function(thing: Any) -> FunctionType | None:
    inner = inspect.unwrap(thing) if callable(thing) else thing
    inner = getattr(inner, "__func__", getattr(inner, "func", inner))
    return inner if isinstance(inner, FunctionType) else None


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)
