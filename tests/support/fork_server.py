"""Starts of Python programs without their imports: a process that has imported the bridge forks itself for each.

`python -m bridge` spends a second of CPU on its imports, and the tests start it hundreds of times. One server for
each worker of the tests, started at first use, imports everything once. A start is a fork of it: the child takes the
arguments, environment, folder, standard streams and session of the request, restores what a fresh interpreter has
(`sys.argv`, the streams' objects, signal handlers), and runs the module as `__main__` at the bottom of its stack. So
`sys.exit`, `atexit`, a traceback and the death by an uncaught KeyboardInterrupt are the interpreter's own.

There are two ways in, both in forked.py. `Forked` is `subprocess.Popen` for these programs, and its child belongs to
the test: the server forks twice, and the process in between ends at once. For the time of the request the test
process is the "subreaper" of all processes below it, so the kernel makes it the orphan's parent. Pid, signals, exit
status and resource usage are the kernel's, and Popen waits as for any other child. `through_server` gives a command
line for what others start: a small program that stands for the forked one (start_through.py). The streams are passed
as descriptors (SCM_RIGHTS) both times.

The server has one thread, and ends, with what it forked for `through_server`, when the worker closes its socket or
dies.
"""

from __future__ import annotations

import atexit
import gc
import importlib.util
import logging
import marshal
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import bridge
from tests.support import proactor_like, validated_again

ROOT: Final = Path(__file__).parents[2]
MOST_BYTES: Final = 1 << 20
"""How long a request may be: arguments and environment."""
UNBUFFERED: Final = "PYTHONUNBUFFERED"
READY: Final = b"ready"
"""What the server says first, once it has imported everything."""


class Start(NamedTuple):
    """A program and its surroundings, as it is sent."""

    argv: Sequence[str]
    """Without the interpreter: `-m MODULE ...`, `-P -m MODULE ...` or `SCRIPT ...`."""
    folder: str
    environment: dict[str, str]
    new_session: bool

    @property
    def safe_path(self) -> bool:
        return self.argv[:1] == ("-P",)

    @property
    def is_module(self) -> bool:
        return self.argv[self.safe_path] == "-m"

    @property
    def name(self) -> str:
        """The module or the script."""
        return self.argv[self.safe_path + self.is_module]

    @property
    def words(self) -> Sequence[str]:
        return self.argv[self.safe_path + self.is_module + 1 :]


class _Server:
    """The loop of the server; in a child of it, what that is to become."""

    def __init__(self, control: socket.socket, listener: socket.socket) -> None:
        self.becomes: tuple[Start, list[int]] | None = None
        self._ready = selectors.PollSelector()  # which, unlike epoll, shares nothing with a child
        self._ready.register(control, selectors.EVENT_READ, self._fork_for_the_test)
        self._ready.register(listener, selectors.EVENT_READ, self._accept)
        self._stood_for: set[int] = set()

    def run(self) -> None:
        """Fork for each request, until the test process has ended. Returns in each child too."""
        going_on = True
        while going_on:
            ((key, _), *_) = self._ready.select()
            going_on = key.data(key.fileobj)
        for key in self._ready.get_map().values():
            os.close(key.fileobj) if isinstance(key.fileobj, int) else key.fileobj.close()  # type: ignore[union-attr]

    def _fork_for_the_test(self, control: socket.socket) -> bool:
        request, descriptors, _, _ = socket.recv_fds(control, MOST_BYTES, 3)
        pid = self._fork(request, descriptors, _orphan) if request else 0
        if pid:
            control.send(str(pid).encode())
        elif self.becomes is None:
            for pid_left in self._stood_for:
                os.kill(pid_left, signal.SIGKILL)
        return bool(pid)

    def _accept(self, listener: socket.socket) -> bool:
        connection, _ = listener.accept()
        self._ready.register(connection, selectors.EVENT_READ, self._fork_for_a_stand)
        return True

    def _fork_for_a_stand(self, connection: socket.socket) -> bool:
        request, descriptors, _, _ = socket.recv_fds(connection, MOST_BYTES, 3)
        pid = self._fork(request, descriptors, os.fork) if request else 0
        if not pid:
            self._forget(connection) if self.becomes is None else None
            return self.becomes is None
        self._stood_for.add(pid)
        ended = partial(self._ended, pid, connection)
        self._ready.register(os.pidfd_open(pid), selectors.EVENT_READ, ended)
        self._ready.modify(connection, selectors.EVENT_READ, partial(self._given_up, pid))
        with suppress(OSError):
            connection.send(str(pid).encode())
        return True

    def _given_up(self, pid: int, connection: socket.socket) -> bool:
        os.kill(pid, signal.SIGKILL)
        self._forget(connection)
        return True

    def _ended(self, pid: int, connection: socket.socket, descriptor: int) -> bool:
        _, status = os.waitpid(pid, 0)
        self._stood_for.remove(pid)
        self._ready.unregister(descriptor)
        os.close(descriptor)
        if connection.fileno() >= 0:
            with suppress(OSError):
                connection.send(str(status).encode())
            self._forget(connection)
        return True

    def _forget(self, connection: socket.socket) -> None:
        self._ready.unregister(connection)
        connection.close()

    def _fork(self, request: bytes, descriptors: list[int], fork: Callable[[], int]) -> int:
        start = Start(*marshal.loads(request))
        _import(*_imported(start))
        pid = fork()
        if not pid:
            self.becomes = start, descriptors
            return 0
        for descriptor in descriptors:
            os.close(descriptor)
        return pid


def _imported(start: Start) -> tuple[str, bool]:
    """What is imported for a program: a module, a package's `__main__`, or a script by its path."""
    if not start.is_module:
        return str(Path(start.folder, start.name)), False
    with suppress(ImportError):
        found = importlib.util.find_spec(start.name)
        if found is not None and found.submodule_search_locations is not None:
            return f"{start.name}.__main__", True
    return start.name, True


@cache
def _import(name: str, is_module: bool = True) -> None:
    """Import what a program needs, unless it fails: it will do so in the child too, and be seen."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    with suppress(Exception):
        if is_module:
            importlib.import_module(name)
        elif Path(name).is_relative_to(ROOT):  # others may run as they are imported
            runpy.run_path(name, run_name="imported")
    root.handlers[:] = handlers  # of which a program may have set its own: it does so again where it runs
    root.setLevel(level)
    gc.collect()
    gc.freeze()  # so that no collection in a child copies the pages of what is shared


def _orphan() -> int:
    """The pid of a process without a parent; 0 in that process."""
    readable, writable = os.pipe()
    between = os.fork()
    if between == 0:
        pid = os.fork()
        if pid == 0:
            os.close(readable)
            os.close(writable)
            return 0
        os.write(writable, str(pid).encode())
        os._exit(0)
    os.close(writable)
    with open(readable, "rb") as told:
        pid = int(told.read())
    os.waitpid(between, 0)
    return pid


def _become(start: Start, descriptors: Sequence[int]) -> None:
    """Take on the surroundings of a program."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if start.new_session:
        os.setsid()
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
    os.closerange(3, max(map(int, os.listdir("/proc/self/fd"))) + 1)
    os.chdir(start.folder)
    os.environ.clear()
    os.environ.update(start.environment)
    unbuffered = bool(start.environment.get(UNBUFFERED))
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        _open_stream(name, mode, unbuffered)
    if proactor_like.VARIABLE in start.environment:
        proactor_like.install()
    sys.orig_argv[1:] = start.argv
    sys.argv[:] = [start.name, *start.words]
    if not start.safe_path:
        sys.path.insert(0, start.folder if start.is_module else str(Path(start.name).parent.absolute()))


def _open_stream(name: str, mode: str, unbuffered: bool) -> None:
    """Make the object of a standard stream as the interpreter does."""
    before = getattr(sys, name)
    stream: Any = open(  # noqa: SIM115 - it stays open
        before.fileno(),
        mode,
        encoding=before.encoding,
        errors=before.errors,
        newline=None if mode == "r" else "\n",
        closefd=False,
    )
    lines = not unbuffered and (name == "stderr" or stream.isatty())
    stream.reconfigure(line_buffering=lines, write_through=unbuffered)
    setattr(sys, name, stream)
    setattr(sys, f"__{name}__", stream)


def _run(start: Start) -> None:
    if start.is_module:
        sys.modules.pop(_imported(start)[0], None)  # or `runpy` would warn that it appears twice
        runpy.run_module(start.name, run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(start.name, run_name="__main__")


def _end(code: int) -> None:
    """End as the interpreter does, but leave the objects to the kernel: to free each of them copies the pages that are
    shared with the server, which takes 100 ms. Returns where a stream cannot be written: the interpreter says so."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    with suppress(OSError, ValueError):
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code & 0xFF)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is for the tests, and they end this process
    importlib.import_module("mcp.server.mcpserver")  # of which the servers of the examples are made
    for _found in pkgutil.walk_packages(bridge.__path__, "bridge."):
        if not _found.name.endswith("__main__"):
            importlib.import_module(_found.name)
    if validated_again.VARIABLE in os.environ:  # a run of pytest reads what is noted
        validated_again.install()
    _control, _listener = (socket.socket(fileno=int(number)) for number in sys.argv[1:])
    _control.send(READY)
    _serving = _Server(_control, _listener)
    _serving.run()
    if _serving.becomes is not None:
        _become(*_serving.becomes)
        _code = 0
        try:
            _run(_serving.becomes[0])
        except SystemExit as _ended:
            if not isinstance(_ended.code, int | None):
                raise  # the interpreter prints it
            _code = _ended.code or 0
        _end(_code)
        sys.exit(_code)
