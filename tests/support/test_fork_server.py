"""A forked start is a start: whatever a program can see of itself, and the test of it, is as after a real one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import forked
from tests.support.command import ROOT, WAIT_SECONDS, environment
from tests.support.command import gone as ended
from tests.support.forked import Forked, through_server
from tests.support.lines import Lines
from tests.support.processes import children_of, is_running
from tests.support.terminals import open_terminal

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere every start is a real one")

TELLS_OF_ITSELF = """
import json, os, signal, sys, threading
open_files = [n for n in range(3, 99) if os.path.exists(f"/proc/self/fd/{n}")]
print(json.dumps({
    "name": __name__, "argv": sys.argv, "orig_argv": sys.orig_argv, "environment": dict(os.environ),
    "variable": os.popen("echo $MINE").read(),
    "folder": os.getcwd(), "path": sys.path[0], "session": os.getsid(0) == os.getpid(),
    "descriptors": open_files, "threads": len(threading.enumerate()),
    "streams": [[s.encoding, s.errors, s.line_buffering, s.write_through, s.fileno(), s.isatty()]
                for s in (sys.stdin, sys.stdout, sys.stderr, sys.__stdin__, sys.__stdout__, sys.__stderr__)],
    "signals": [str(signal.getsignal(n)) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGCHLD)],
    "mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())), "said": sys.stdin.read(),
}))
print("aside", file=sys.stderr)
"""

Started = tuple[int, str, str]


def started(by: Callable[..., Any], folder: Path, program: str, *words: str, **options: Any) -> Started:
    """The exit code of a program, and what it said."""
    (folder / "program.py").write_text(program)
    argv = [sys.executable, "-m", "program", *words]
    given = options.pop("given", "")
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    env = {**environment(folder), "MINE": "1"}
    with by(argv, **streams, text=True, cwd=folder, env=env, **options) as process:
        out, err = process.communicate(given, WAIT_SECONDS)
    return process.returncode, out, err.replace(str(forked.__file__), "")


@pytest.mark.parametrize("options", [{}, {"start_new_session": True}], ids=["plain", "session"])
def test_a_program_sees_what_it_sees_after_a_real_start(options: dict[str, Any], tmp_path: Path) -> None:
    real, forked = (
        started(by, tmp_path, TELLS_OF_ITSELF, "--one", "two words", given="ß\n", **options)
        for by in (subprocess.Popen, Forked)
    )
    assert json.loads(forked[1]) == json.loads(real[1])
    assert forked == real


ENDS = {
    "falls off": "print('done')",
    "exits": "import sys; sys.exit(7)",
    "exits with words": "import sys; sys.exit('no such thing')",
    "is at its exit": "import atexit; atexit.register(print, 'last')",
    "waits for its threads": "import threading; threading.Timer(0.05, print, ['late']).start()",
    "is killed": "import os, signal; print('x', flush=True); os.kill(os.getpid(), signal.SIGKILL)",
    "is terminated": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "aborts": "import os; os._exit(3)",
}


@pytest.mark.parametrize("program", ENDS.values(), ids=ENDS)
def test_a_program_ends_as_after_a_real_start(program: str, tmp_path: Path) -> None:
    assert started(Forked, tmp_path, program) == started(subprocess.Popen, tmp_path, program)


@pytest.mark.parametrize(
    ("program", "code"),
    [("raise LookupError('x')", 1), ("raise KeyboardInterrupt", -signal.SIGINT)],
    ids=["error", "interrupt"],
)
def test_an_error_that_nobody_catches_ends_it_with_its_traceback(
    program: str, code: int, tmp_path: Path
) -> None:
    real, forked = (started(by, tmp_path, program) for by in (subprocess.Popen, Forked))
    assert (forked[0], real[0]) == (code, code)
    assert forked[2].splitlines()[-3:] == real[2].splitlines()[-3:]


def test_it_is_a_child_of_the_test_and_gets_its_signals_itself(tmp_path: Path) -> None:
    (tmp_path / "waits.py").write_text("print('here', flush=True)\nimport time\ntime.sleep(60)\n")
    with Forked([sys.executable, "-m", "waits"], stdout=subprocess.PIPE, cwd=tmp_path) as process:
        Lines(process, process.stdout).until("here")
        assert process.pid in children_of(os.getpid())
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_SECONDS) == -signal.SIGTERM
    assert not is_running(process.pid)


def test_nothing_is_left_of_many_starts(tmp_path: Path) -> None:
    started(Forked, tmp_path, "pass")
    before = children_of(os.getpid())
    server = process_of_server()
    descriptors = len(os.listdir(f"/proc/{server}/fd"))
    for _ in range(20):
        assert started(Forked, tmp_path, "pass")[0] == 0
    assert children_of(os.getpid()) == before
    assert all_below(server) == []
    assert len(os.listdir(f"/proc/{server}/fd")) == descriptors
    assert len(os.listdir(f"/proc/{server}/task")) == 1


def test_a_terminal_is_one_for_the_program_too(tmp_path: Path) -> None:
    ours, theirs = open_terminal()
    (tmp_path / "looks.py").write_text("import sys\nprint(sys.stdin.isatty(), sys.stdout.isatty())\n")
    try:
        with Forked([sys.executable, "-m", "looks"], stdin=theirs, stdout=theirs, cwd=tmp_path) as process:
            assert process.wait(WAIT_SECONDS) == 0
        assert os.read(ours, 100) == b"True True\r\n"
    finally:
        os.close(ours)
        os.close(theirs)


def test_what_cannot_be_forked_is_started(tmp_path: Path) -> None:
    for argv in ([sys.executable, "-c", "print(1)"], ["echo", "1"]):
        assert forked.run(argv, WAIT_SECONDS, text=True).stdout == "1\n"
    modules = "import sys; print('bridge.assembly.bridge' in sys.modules)"
    said = {"": "True\n", "1": "False\n"}
    for setting, expected in said.items():
        env = {**environment(tmp_path), **({"PYTHONHASHSEED": setting} if setting else {})}
        (tmp_path / "loaded.py").write_text(modules)
        done = forked.run([sys.executable, "-m", "loaded"], WAIT_SECONDS, text=True, cwd=tmp_path, env=env)
        assert done.stdout == expected


def all_below(pid: int) -> list[int]:
    """The children of a process, those included that have ended and that nobody has waited for."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def process_of_server() -> int:
    """The pid of the server of this process."""
    (server,) = (pid for pid, words in children_of(os.getpid()).items() if "fork_server" in words)
    return server


# A program that stands for the forked one


def test_what_others_start_ends_as_it_would_by_itself(tmp_path: Path) -> None:
    def through(argv: list[str], **options: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(through_server(*argv[1:]), **options)

    for program in (TELLS_OF_ITSELF, *ENDS.values()):
        real, forked = (started(by, tmp_path, program, "a") for by in (subprocess.Popen, through))
        assert forked == real


def test_signals_are_passed_on(tmp_path: Path) -> None:
    program = "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(5))\n"
    (tmp_path / "hears.py").write_text(f"{program}print('here', flush=True)\ntime.sleep(60)\n")
    with subprocess.Popen(through_server("-m", "hears"), stdout=subprocess.PIPE, cwd=tmp_path) as process:
        Lines(process, process.stdout).until("here")
        process.terminate()
        assert process.wait(WAIT_SECONDS) == 5


def test_what_is_stood_for_dies_with_its_stand(tmp_path: Path) -> None:
    program = "import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(60)\n"
    (tmp_path / "sleeps.py").write_text(program)
    with subprocess.Popen(through_server("-m", "sleeps"), stdout=subprocess.PIPE, cwd=tmp_path) as process:
        pid = int(Lines(process, process.stdout).until("\n"))
        process.kill()
    assert ended([pid])
    assert all_below(process_of_server()) == []


def test_a_script_and_what_is_only_started_for_real(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import sys; print(__name__, sys.path[0], sys.argv)")
    for argv in ([str(script), "a"], ["-c", "import sys; print(sys.argv)", "a"], ["-V"]):
        real, forked = (
            subprocess.run(words, capture_output=True, cwd=tmp_path, check=True).stdout
            for words in ([sys.executable, *argv], through_server(*argv))
        )
        assert forked == real


def test_what_one_program_does_to_the_log_as_it_is_imported_is_not_there_for_the_next(tmp_path: Path) -> None:
    server = through_server(str(ROOT / "examples" / "demo_server.py"))  # which logs as the SDK has it
    assert subprocess.run(server, stdin=subprocess.DEVNULL, timeout=WAIT_SECONDS).returncode == 0
    program = "import logging\nprint(logging.root.handlers, logging.root.level)\n"
    assert started(Forked, tmp_path, program)[:2] == (0, "[] 30\n")
