"""The CPU time of the bridge for a call over gRPC, beside the same call over JSON-RPC.

python -m tests.benchmarks.over_grpc

Both bindings call one bridge in a process of its own. Rounds alternate, so that other load meets both alike; the ratio
is the median of the rounds. The last row sets GetTask over JSON-RPC beside a health check over gRPC, which does next to
nothing: what gRPC itself costs.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from statistics import median

import anyio

from tests.support.command import process_of, wrapping
from tests.support.drivers import Driver, JsonRpcDriver, new_client
from tests.support.grpc_driver import GrpcDriver, new_channel
from tests.support.ports import free_port
from tests.support.running import call_part

AT_ONCE = 8
"""How many calls are made at once."""


def main() -> None:
    """Print the CPU time of each operation over both bindings, and their ratio."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.over_grpc", description=__doc__)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--calls", type=int, default=400, help="calls of a round over each binding")
    options = parser.parse_args()
    if sys.platform != "linux":
        raise SystemExit("Linux only: CPU time is read in /proc")
    anyio.run(_measured, options.rounds, options.calls)


async def _measured(rounds: int, calls: int) -> None:
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        options = ("--store", "memory:", "--grpc", f"127.0.0.1:{port}")
        bridge = wrapping(*options, state=Path(folder), start=subprocess.Popen)
        async with process_of(bridge) as running, new_client() as client, new_channel(port) as channel:
            drivers: tuple[Driver, Driver] = (
                JsonRpcDriver(client, f"{running.url}/agents/raw"),
                GrpcDriver(channel),
            )
            await _compare("GetTask", drivers, _get, running.process.pid, rounds, calls)
            await _compare("SendMessage", drivers, _send, running.process.pid, rounds, calls)
            await _compare("health check", drivers, _get_or_check, running.process.pid, rounds, calls)


async def _get(driver: Driver, task_id: str) -> None:
    await driver.get(task_id)


async def _get_or_check(driver: Driver, task_id: str) -> None:
    if isinstance(driver, GrpcDriver):
        await driver.client.unary_unary("/grpc.health.v1.Health/Check")(b"")  # type: ignore[attr-defined]
    else:
        await driver.get(task_id)


async def _send(driver: Driver, _: str) -> None:
    await driver.send(call_part("echo", text="hello"))


async def _compare(
    operation: str,
    drivers: tuple[Driver, Driver],
    call: Callable[[Driver, str], Awaitable[None]],
    pid: int,
    rounds: int,
    calls: int,
) -> None:
    task_id = (await drivers[0].send(call_part("echo", text="hello")))["id"]
    figures: list[tuple[float, float]] = []
    for number in range(rounds + 1):
        spent = [await _spent(partial(call, driver, task_id), pid, calls) for driver in drivers]
        if number:  # the first round warms up
            figures.append((spent[0], spent[1]))
    over_json, over_grpc = (median(column) for column in zip(*figures, strict=True))
    ratios = sorted(grpc / json for json, grpc in figures)
    print(
        f"{operation:12} JSON-RPC {over_json * 1e6:6.0f} us, gRPC {over_grpc * 1e6:6.0f} us of CPU a call,"
        f" ratio {median(ratios):.2f} ({ratios[0]:.2f}..{ratios[-1]:.2f})",
        flush=True,
    )


async def _spent(call: Callable[[], Awaitable[None]], pid: int, calls: int) -> float:
    """The CPU time of the bridge for one call, in seconds."""
    before = _cpu_seconds(pid)

    async def some() -> None:
        for _ in range(calls // AT_ONCE):
            await call()

    async with anyio.create_task_group() as group:
        for _ in range(AT_ONCE):
            group.start_soon(some)
    return (_cpu_seconds(pid) - before) / (calls // AT_ONCE * AT_ONCE)


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
