"""The contestant for starting: several bridges in one process, each `Bridge` with its own server.

`mcp-a2a wrap` has one server a process today, so this is what a bridge of many would at least cost. Nothing listens:
the parts below HTTP are what is there once a server more.
"""

from __future__ import annotations

import argparse
import sys

import anyio
import anyio.to_thread

from tests.support.running import config_for, raw_command, wrapped


async def run(servers: int) -> None:
    """Enter all at once, say `ready`, and leave when stdin ends."""
    config = config_for(raw_command())
    leaving = anyio.Event()
    missing = servers

    async def hold() -> None:
        nonlocal missing
        async with wrapped(config) as bridge:
            assert bridge.agent.skills
            missing -= 1
            if not missing:
                print("ready", flush=True)
            await leaving.wait()

    async with anyio.create_task_group() as tasks:
        for _ in range(servers):
            tasks.start_soon(hold)
        await anyio.to_thread.run_sync(sys.stdin.read)
        leaving.set()


def main() -> None:
    """Run until stdin ends."""
    parser = argparse.ArgumentParser(prog="tests.benchmarks.many_servers", description="Many bridges.")
    parser.add_argument("--servers", type=int, default=20)
    anyio.run(run, parser.parse_args().servers)


if __name__ == "__main__":
    main()
