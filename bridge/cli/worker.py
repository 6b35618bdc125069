"""One worker of `mcp-a2a serve --workers N`, which its supervisor starts: no command for people."""

from __future__ import annotations

import os
import socket
import sys
from functools import partial

import anyio

from bridge.cli import banner, logs
from bridge.process.resources import collect_garbage_seldom
from bridge.process.worker import Worker, end_with_supervisor
from bridge.process.worker_frames import WorkerStart, unpacked
from bridge.worker_link import LinkEndedError, WorkerLink


async def _serve(link_fd: int, listener_fd: int) -> int:
    link = await WorkerLink.over(socket.socket(fileno=link_fd))
    try:
        start: WorkerStart = unpacked(str((await link.receive())["start"]))
    except LinkEndedError:
        return 0
    logs.set_up(start.log_format, start.log_level, start.number)
    kind = banner.InLog if start.log_format == "json" else banner.OnTerminal
    observer = kind(start.plan) if start.is_first else None
    set_up = partial(logs.set_up, worker=start.number)
    return await Worker(link, start, socket.socket(fileno=listener_fd), observer, set_up).serve()


def main() -> int:
    """Serve. The words of the command are descriptors: the link, the public socket, and the supervisor's lifeline."""
    fds = [int(word) for word in sys.argv[1:]]
    for fd in fds:
        os.set_inheritable(fd, False)  # what this worker starts gets none of them
    collect_garbage_seldom()
    link, listener, lifeline = fds
    end_with_supervisor(lifeline)
    return anyio.run(_serve, link, listener)


if __name__ == "__main__":
    sys.exit(main())
