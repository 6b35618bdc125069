"""The heaps of a process are few, however many threads it has."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command import environment

THREADS = 12
PROGRAM = f"""
import ctypes, os, sys, threading
from bridge.process.resources import share_malloc_arenas

libc = ctypes.CDLL(None)
if not hasattr(libc, "malloc_info"):
    sys.exit(77)
if sys.argv[1] == "shared":
    share_malloc_arenas()
barrier, kept = threading.Barrier({THREADS} + 1), []

def take():
    kept.extend(bytes(50_000) for _ in range(10))
    barrier.wait()

for _ in range({THREADS}):
    threading.Thread(target=take).start()
barrier.wait()
libc.fdopen.restype = ctypes.c_void_p
file = ctypes.c_void_p(libc.fdopen(1, b"w"))
libc.malloc_info(0, file)
libc.fflush(file)
"""


def heaps(how: str, state: Path) -> int:
    """How many heaps a process has once many threads took memory."""
    command = [sys.executable, "-P", "-c", PROGRAM, how]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(state), timeout=60)
    if done.returncode == 77:
        pytest.skip("the C library is not glibc")
    assert done.returncode == 0, done.stderr
    return done.stdout.count("<heap nr=")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have other heaps")
def test_threads_share_few_heaps(tmp_path: Path) -> None:
    assert heaps("shared", tmp_path) <= 2 < heaps("each", tmp_path)
