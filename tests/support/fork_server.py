"""Starts of the command without its imports: a process that has imported the bridge forks itself for each start.

`python -m bridge` spends a second of CPU on its imports, and the tests start it hundreds of times. One server for
each worker of the tests, started at first use, imports everything once. A start is a fork of it: the child takes the
arguments, environment, folder, standard streams and session of the request, restores what a fresh interpreter has
(`sys.argv`, the streams' objects, signal handlers), and runs the module as `__main__` at the bottom of its stack. So
`sys.exit`, `atexit`, a traceback and the death by an uncaught KeyboardInterrupt are the interpreter's own.

The child belongs to the test. The server forks twice, and the process in between ends at once. For the time of the
request the test process is the "subreaper" of all processes below it, so the kernel makes it the orphan's parent.
Pid, signals, exit status and resource usage are the kernel's, and `subprocess.Popen` waits as for any other child:
`Forked` only replaces how a process comes into being. The streams are passed as descriptors (SCM_RIGHTS).

The server has one thread, opens nothing, and ends when the worker closes its socket or dies.

A start that is itself under test stays with `subprocess`: which modules are loaded, options of the interpreter, other
programs that start the command. `Forked` itself starts for real what it cannot fork: other programs and options,
other settings of the interpreter in the environment, other systems than Linux.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, Final

ROOT = Path(__file__).parents[2]
_MOST_BYTES: Final = 1 << 20
"""How long a request may be: arguments and environment."""
_PR_SET_CHILD_SUBREAPER: Final = 36
_SETTINGS: Final = ("PYTHON", "LC_", "LANG")
"""How the variables begin that the interpreter reads as it starts."""
_UNBUFFERED: Final = "PYTHONUNBUFFERED"
_one_at_a_time: Final = Lock()


@dataclass(frozen=True)
class Start:
    """A program and its surroundings."""

    module: str
    words: list[str]
    safe_path: bool
    folder: str
    environment: dict[str, str]
    new_session: bool


def run(words: Sequence[str], timeout_seconds: float, **options: Any) -> subprocess.CompletedProcess[Any]:
    """Run a program to its end, as `subprocess.run` does; what it says is captured unless the options say otherwise.

    Raises:
        subprocess.TimeoutExpired: it took too long, and was killed.
    """
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    with Forked(words, **(streams | options)) as process:
        try:
            out, err = process.communicate(timeout=timeout_seconds)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(words, process.returncode, out, err)


class Forked(subprocess.Popen[Any]):
    """`subprocess.Popen([sys.executable, "-P", "-m", MODULE, ...])`, with the modules imported already."""

    def _execute_child(
        self, args: Any, executable: Any, preexec_fn: Any, close_fds: Any, pass_fds: Any, cwd: Any, env: Any,
        startupinfo: Any, creationflags: Any, shell: Any, p2cread: int, p2cwrite: int, c2pread: int,
        c2pwrite: int, errread: int, errwrite: int, *how: Any,
    ) -> None:  # fmt: skip
        """What Popen calls once the pipes are there (CPython 3.11 to 3.13)."""
        pipes = p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite
        _, gid, gids, uid, umask, new_session, process_group = how
        start = _start_of(args, cwd, os.environ if env is None else env, new_session)
        more = (preexec_fn, pass_fds, shell, gid, gids, uid, umask >= 0, process_group >= 0)
        if start is None or any(more):
            before = executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo, creationflags, shell
            super()._execute_child(args, *before, *pipes, *how)  # type: ignore[misc]
            return
        theirs = (p2cread, c2pwrite, errwrite)
        self.pid = _forked(start, [own if given < 0 else given for own, given in enumerate(theirs)])
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


def stop() -> None:
    """End the server of this process, if there is one."""
    if _server.cache_info().currsize:
        control, process = _server()
        control.close()
        process.wait()
        _server.cache_clear()


def _start_of(args: Any, cwd: Any, env: Mapping[str, str], new_session: bool) -> Start | None:
    """What is to be forked; None where it cannot be."""
    words = [args] if isinstance(args, str) else [os.fspath(word) for word in args]
    safe_path = words[1:2] == ["-P"]
    python, option, module, *rest = [*words[:1], *words[1 + safe_path :], "", ""]
    same = _settings(env) == _settings(os.environ)
    if sys.platform != "linux" or python != sys.executable or option != "-m" or not same:
        return None
    return Start(module, rest[:-2], safe_path, os.fspath(cwd or os.getcwd()), dict(env), new_session)


def _settings(environment: Mapping[str, str]) -> dict[str, str]:
    ours = {"PYTHONPATH": str(ROOT), _UNBUFFERED: ""}
    return {name: value for name, value in environment.items() if name.startswith(_SETTINGS)} | ours


def _forked(start: Start, descriptors: Sequence[int]) -> int:
    """The pid of a new child of this process."""
    with _one_at_a_time, _adopting_orphans():
        control, _ = _server()
        socket.send_fds(control, [json.dumps(asdict(start)).encode()], descriptors)
        answer = control.recv(_MOST_BYTES)
    assert answer, "the fork server has ended"
    return int(answer)


@cache
def _server() -> tuple[socket.socket, subprocess.Popen[bytes]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
    return ours, process


@contextmanager
def _adopting_orphans() -> Iterator[None]:
    control = ctypes.CDLL(None).prctl
    control(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        control(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


# The server


def _served(control: socket.socket) -> tuple[Start, list[int]] | None:
    """Fork for each request. Returns in each child what it becomes, and None in the server at the end."""
    while True:
        request, descriptors, _, _ = socket.recv_fds(control, _MOST_BYTES, 3)
        if not request:
            return None
        start = Start(**json.loads(request))
        _import(start.module)
        pid = _orphan()
        if pid is None:
            return start, descriptors
        for descriptor in descriptors:
            os.close(descriptor)
        control.send(str(pid).encode())


@cache
def _import(name: str) -> None:
    """Import a module, or all of a package, unless it fails: it will do so in the child too, and be seen."""
    with suppress(Exception):
        module = importlib.import_module(name)
        for found in pkgutil.walk_packages(getattr(module, "__path__", ()), f"{name}."):
            if not found.name.endswith("__main__"):
                importlib.import_module(found.name)
    gc.collect()
    gc.freeze()  # so that no collection in a child copies the pages of what is shared


def _orphan() -> int | None:
    """The pid of a process without a parent; None in that process."""
    readable, writable = os.pipe()
    between = os.fork()
    if between == 0:
        pid = os.fork()
        if pid == 0:
            os.close(readable)
            os.close(writable)
            return None
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
    unbuffered = bool(start.environment.get(_UNBUFFERED))
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        _open_stream(name, mode, unbuffered)
    sys.orig_argv[1:] = [*["-P"] * start.safe_path, "-m", start.module, *start.words]
    sys.argv[1:] = start.words
    if not start.safe_path:
        sys.path.insert(0, start.folder)


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


def _run(module: str) -> None:
    if not hasattr(sys.modules.get(module), "__path__"):
        sys.modules.pop(module, None)  # or `runpy` would warn that it is there twice
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is for the tests, and they end this process
    _import("bridge")
    _request = _served(socket.socket(fileno=int(sys.argv[1])))
    if _request is not None:
        _become(*_request)
        _run(_request[0].module)
