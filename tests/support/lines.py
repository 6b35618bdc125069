"""The lines that a child process says, which are never waited for without end. Knows nothing of who says them."""

from __future__ import annotations

import os
import selectors
import subprocess
import time
from collections.abc import Iterator
from typing import IO, Any, Final

WAIT_SECONDS: Final = 30.0
"""How long anything is waited for that a command does: far more than it takes on a machine that is busy."""
_CHUNK_BYTES: Final = 65_536


class Lines:
    """What a process says on one of its pipes, from which nobody else reads.

    Reads the pipe itself, so that neither the wait nor the closing of the pipe depends on who else holds it open. When
    the words do not come in time, the process is killed.
    """

    def __init__(self, process: subprocess.Popen[Any], pipe: IO[Any] | None) -> None:
        assert pipe is not None
        self.said: list[str] = []
        self._process = process
        self._pipe = pipe
        self._rest = b""

    def until(self, words: str, within_seconds: float = WAIT_SECONDS) -> str:
        """Read until a line holds these words; that line.

        Raises:
            AssertionError: it ends, or time is over, before it says them.
        """
        for line in self._read(repr(words), within_seconds):
            if words in line:
                return line
        raise AssertionError(f"it ended without saying {words!r}:\n{''.join(self.said)}")

    def rest(self, within_seconds: float = WAIT_SECONDS) -> None:
        """Read until it ends.

        Raises:
            AssertionError: time is over before that.
        """
        for _ in self._read("its end", within_seconds):
            pass

    def _read(self, awaited: str, within_seconds: float) -> Iterator[str]:
        deadline = time.monotonic() + within_seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self._pipe, selectors.EVENT_READ)
            while True:
                while b"\n" in self._rest:
                    line, _, self._rest = self._rest.partition(b"\n")
                    yield self._kept(line + b"\n")
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    self._process.kill()
                    words = f"{awaited} did not come within {within_seconds:g} s, and it was killed"
                    raise AssertionError(
                        f"{words}:\n{''.join(self.said)}{self._rest.decode(errors='replace')}"
                    )
                chunk = os.read(self._pipe.fileno(), _CHUNK_BYTES)
                if not chunk:
                    break
                self._rest += chunk
        if self._rest:
            line, self._rest = self._rest, b""
            yield self._kept(line)

    def _kept(self, line: bytes) -> str:
        self.said.append(line.decode(errors="replace"))
        return self.said[-1]


def first_line(process: subprocess.Popen[Any]) -> str:
    """The first line on the stdout of a process: where it is, as the peers of these tests say it."""
    return Lines(process, process.stdout).until("\n").strip()
