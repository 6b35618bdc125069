"""How the asking server of these tests is started; see asking_server.py for its tools and options."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.forked import Forked, through_server
from tests.support.limits import command_of
from tests.support.lines import first_line

if TYPE_CHECKING:
    from bridge.mcp.client.transports.stdio import StdioTarget

ASKING_SERVER = Path(__file__).with_name("asking_server.py")


def asking_argv(era: str, *options: str) -> list[str]:
    """The command line of the asking server, `legacy` or `modern`."""
    return [sys.executable, "-S", "-E", str(ASKING_SERVER), "--era", era, *options]


def forked_asking_argv(era: str, *options: str) -> list[str]:
    """The command line of the asking server that the fork server of this process starts."""
    return through_server(str(ASKING_SERVER), "--era", era, *options)


def asking_command(era: str, *options: str) -> StdioTarget:
    """The asking server as a child process that speaks over stdio."""
    return command_of(tuple(forked_asking_argv(era, *options)))


@contextmanager
def asking_url(era: str, *options: str, port: int = 0) -> Iterator[str]:
    """The asking server over HTTP as long as this is entered; its URL."""
    argv = [sys.executable, str(ASKING_SERVER), "--era", era, *options, "--http", str(port)]
    with Forked(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield first_line(process)
        finally:
            process.kill()
