"""What a process says is waited for within a time, whatever keeps it from saying it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.lines import Lines, first_line

SAYS_AND_STAYS = "import sys; print('one\\ntwo', flush=True); sys.stdin.read()"
SAYS_AND_ENDS = "print('one'); print('two', end='')"


@contextmanager
def saying(program: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs a program, whose stdin stays open."""
    command = [sys.executable, "-S", "-E", "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def test_words_are_read_until_they_come_and_what_comes_after_them_is_kept_for_the_next_wait() -> None:
    with saying(SAYS_AND_STAYS) as process:
        lines = Lines(process, process.stdout)
        assert lines.until("on") == "one\n"
        assert lines.said == ["one\n"]
        assert lines.until("two") == "two\n"
        assert process.poll() is None


def test_a_process_that_never_says_the_words_is_ended_and_what_it_said_is_told() -> None:
    with saying(SAYS_AND_STAYS) as process:
        lines = Lines(process, process.stdout)
        lines.until("two")
        with pytest.raises(AssertionError, match=r"'three' did not come within 0\.1 s, .*:\none\ntwo\n$"):
            lines.until("three", within_seconds=0.1)
        assert process.wait() == -9


def test_a_process_that_ends_without_the_words_is_told_with_what_it_said() -> None:
    with saying(SAYS_AND_ENDS) as process:
        lines = Lines(process, process.stdout)
        with pytest.raises(AssertionError, match=r"it ended without saying 'three':\none\ntwo$"):
            lines.until("three")


def test_a_pipe_that_another_process_holds_open_keeps_nobody_waiting() -> None:
    ours, theirs = os.pipe()
    with os.fdopen(theirs), os.fdopen(ours) as pipe, saying("") as process:
        process.wait()
        lines = Lines(process, pipe)
        with pytest.raises(AssertionError, match="its end did not come within 0 s"):
            lines.rest(within_seconds=0)


def test_the_first_line_is_given_without_white_space() -> None:
    with saying(SAYS_AND_STAYS) as process:
        assert first_line(process) == "one"
