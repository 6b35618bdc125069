"""What needs a process or a socket is found in its code, and what was not found is caught in the act."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from tests.support.outside import Guard, leads_out


def listens() -> None:
    """Open a door."""
    socket.create_server(("127.0.0.1", 0)).close()


@contextmanager
def listening() -> Iterator[None]:
    listens()
    yield


def listens_within() -> None:
    def inner() -> None:
        with listening():
            pass

    inner()


class Listener:
    """Opens one in a method."""

    def open(self) -> None:
        listens()


@dataclass
class Holder:
    """Holds what opens one."""

    opens: Callable[[], None]


def uses_a_class() -> None:
    Listener()


HELD = [{"x": Holder(partial(listens))}]


def uses_what_is_held() -> None:
    HELD[0]["x"].opens()


def adds() -> int:
    return sum([1, 2])


@pytest.mark.parametrize("thing", [listens, listening, listens_within, Listener, uses_a_class, HELD])
def test_what_opens_a_socket_is_found(thing: Any) -> None:
    assert leads_out(thing)
    assert leads_out(uses_what_is_held)
    assert not leads_out(adds)


def test_what_opens_a_socket_unfound_fails() -> None:
    guard = Guard()
    watched = guard.pytest_runtest_call()
    next(watched)
    listens()
    with pytest.raises(pytest.fail.Exception, match=r"opens a socket .*socket\.bind.*: mark it `outside`"):
        next(watched)
    listens()
    quiet = guard.pytest_runtest_call()
    next(quiet)
    assert adds() == 3
    assert next(quiet, "over") == "over"
