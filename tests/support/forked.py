"""Programs that the fork server starts (see fork_server.py), in the place of `subprocess`.

A start that is itself under test stays with `subprocess`: which modules are loaded, options of the interpreter,
process groups, other programs that start the command. `Forked` itself starts for real what it cannot fork: other
programs and options, other settings of the interpreter in the environment, other systems than Linux.
"""

from __future__ import annotations

import ctypes
import marshal
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, Final

from tests.support import fork_server
from tests.support.fork_server import MOST_BYTES, ROOT, UNBUFFERED, Start

_THROUGH: Final = Path(__file__).with_name("start_through.py")
_PR_SET_CHILD_SUBREAPER: Final = 36
_SETTINGS: Final = ("PYTHON", "LC_", "LANG")
"""How the variables begin that the interpreter reads as it starts."""
_one_at_a_time: Final = Lock()


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
    """`subprocess.Popen([sys.executable, "-P", "-m", MODULE, ...])`, with the modules imported already. In place of the
    module, there may be a script: `[sys.executable, SCRIPT, ...]`."""

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


def through_server(*argv: str) -> list[str]:
    """The command line that starts `python ARGV`, for whatever starts it."""
    if sys.platform != "linux":
        return [sys.executable, *argv]
    _server()
    return [sys.executable, "-I", "-S", str(_THROUGH), _address(os.getpid()), *argv]


def stop() -> None:
    """End the server of this process, if there is one."""
    if _server.cache_info().currsize:
        control, process = _server()
        control.close()
        process.wait()
        _server.cache_clear()


def _start_of(args: Any, cwd: Any, env: Mapping[str, str], new_session: bool) -> Start | None:
    """What is to be forked; None where it cannot be."""
    python, *argv = [args] if isinstance(args, str) else [os.fspath(word) for word in args]
    start = Start(tuple(argv), os.fspath(cwd or os.getcwd()), dict(env), new_session)
    told = argv[:2] == ["-P", "-m"] or argv[:1] == ["-m"] or "".join(argv[:1]).endswith(".py")
    others = {
        name
        for name, value in env.items()
        if name.startswith(_SETTINGS)
        and name not in ("PYTHONPATH", UNBUFFERED)
        and os.environ.get(name) != value
    }
    return start if told and sys.platform == "linux" and python == sys.executable and not others else None


def _forked(start: Start, descriptors: Sequence[int]) -> int:
    """The pid of a new child of this process."""
    with _one_at_a_time, _adopting_orphans():
        control, _ = _server()
        socket.send_fds(control, [marshal.dumps(tuple(start))], descriptors)
        answer = control.recv(MOST_BYTES)
    assert answer, "the fork server has ended"
    return int(answer)


@cache
def _server() -> tuple[socket.socket, subprocess.Popen[bytes]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs, listener:
        listener.bind(f"\0{_address(os.getpid())}")
        listener.listen()
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", fork_server.__name__, str(theirs.fileno()), str(listener.fileno())],
            pass_fds=[theirs.fileno(), listener.fileno()],
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
    # A test whose program begins within the time of its imports would wait for them within a limit of its own.
    assert ours.recv(MOST_BYTES) == fork_server.READY, "the fork server has ended"
    return ours, process


def _address(pid: int) -> str:
    return f"fork-server-of-{pid}"


@contextmanager
def _adopting_orphans() -> Iterator[None]:
    control = ctypes.CDLL(None).prctl
    control(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        control(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
