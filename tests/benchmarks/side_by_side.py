"""What this checkout of the bridge costs, an earlier one, and what both are compared with, in turns within one run.

Each round asks everybody once, and gives one value for each name of `Round`. A ratio is made of the values of one
round, so that a machine that gets slower counts for both of its sides.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.benchmarks.contestants import (
    AGENT_CLIENT,
    agent_client_command,
    bare_mcp_command,
    direct_command,
    face_client_command,
    import_command,
    load_command,
    sdk_agent_command,
)
from tests.benchmarks.cost import expose_command, wrap_command
from tests.benchmarks.face_starting import listed_tools
from tests.benchmarks.figures import median, percentile
from tests.benchmarks.usage import raise_open_files
from tests.benchmarks.workplace import BenchmarkError, Workplace
from tests.support.command import ROOT

NOW: Final = "now"
BEFORE: Final = "before"
SDK: Final = "a2a-sdk"
DIRECT: Final = "direct"
AGENT: Final = "agent client"
ECHO: Final = "SDK echo"

CONCURRENCY: Final = 32
_FLUSHES: Final = 100
_STEPS: Final = 1000
_WRITE: Final = re.compile(r"\b(fdatasync|pwrite64)\(\d+<[^>]*-wal>")
"""A system call on the write-ahead log, in the output of `strace -y`. A checkpoint writes to the database itself."""
_TRACE_SECONDS: Final = 1.0

Round = dict[str, float]
"""One value for each of `CONTESTANT.figure`, such as `now.memory_cpu` in milliseconds."""


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    rounds: int = 3
    calls: int = 1200
    """At concurrency 32 with the memory store. A quarter of them is made one at a time, and a quarter with SQLite."""
    streams: int = 2
    held: int = 1000
    """Idle streams."""
    idle_seconds: float = 7.5
    traced: int = 1000
    """Calls whose writes to the disk are counted."""


SMALL: Final = Size(rounds=1, calls=160, streams=1, held=50, idle_seconds=2.6, traced=40)


class Measuring:
    """Asks everybody, round by round."""

    def __init__(self, place: Workplace, before: Path, size: Size) -> None:
        self._place = place
        self._size = size
        self._checkouts = {BEFORE: before, NOW: ROOT}

    def rounds(self) -> list[Round]:
        """All rounds. Who is asked first alternates. Idle streams and writes are measured in the first round only."""
        raise_open_files()
        found = []
        for number in range(self._size.rounds):
            order = list(self._checkouts) if number % 2 == 0 else [*reversed(self._checkouts)]
            each = Round()
            for part in (self._calls, self._streams, self._expose, self._starts):
                print(f"round {number + 1} of {self._size.rounds}: {part.__name__[1:]} ...", file=sys.stderr)
                part(each, order)
            if number == 0:
                for once in (self._idle, self._writes):
                    print(f"round 1 of {self._size.rounds}: {once.__name__[1:]} ...", file=sys.stderr)
                    once(each, order)
            found.append(each)
        return found

    def _calls(self, each: Round, order: Sequence[str]) -> None:
        """CPU at concurrency 32 and p50 at concurrency 1, of everybody and with both stores."""
        calls = self._size.calls
        with self._place.started(direct_command()) as client:
            client.hear()
            one = client.ask(_plan(calls // 4, 1))
            each[f"{DIRECT}.p50"] = _p50_ms(one)
            many = client.ask(_plan(calls, CONCURRENCY))
            each[f"{DIRECT}.cpu"] = _cpu_ms(many, calls)
        each["flush.ms"] = _flush_ms(self._place.new_file(".flush"))
        for name in (*order, SDK):
            for store, share in (("memory", 1), ("sqlite", 4)):
                path = "memory:" if store == "memory" else str(self._place.new_file(".db"))
                with self._serving(name, path) as (port, pid):
                    for figure, concurrency in (("p50", 1), ("cpu", CONCURRENCY)):
                        count = max(32, calls // share // (1 if concurrency > 1 else 4))
                        with self._place.started(load_command()) as load:
                            answer = load.ask(_plan(count, concurrency) | {"port": port, "pid": pid})
                        value = _p50_ms(answer) if figure == "p50" else _cpu_ms(answer, count)
                        each[f"{name}.{store}_{figure}"] = value

    def _streams(self, each: Round, order: Sequence[str]) -> None:
        """Reports a second of a tool that makes a thousand of them at once."""
        plan = {"kind": "stream", "streams": self._size.streams, "steps": _STEPS, "tool": "flood"}
        for name in (*order, SDK):
            with self._serving(name, "memory:") as (port, pid), self._place.started(load_command()) as load:
                answer = load.ask(plan | {"port": port, "pid": pid})
            seconds = [stream["seconds"] for stream in answer["streams"]]
            each[f"{name}.reports"] = _STEPS * len(seconds) / sum(seconds)

    def _expose(self, each: Round, order: Sequence[str]) -> None:
        """A call through expose on stdio, one at a time, beside the agent's own client and an echo of the MCP SDK."""
        count = self._size.calls // 4
        with self._serving(NOW, "memory:") as (port, _):
            url = f"http://127.0.0.1:{port}"
            commands: Mapping[str, tuple[Sequence[str], Path, str]] = {
                AGENT: (agent_client_command(AGENT_CLIENT, url), ROOT, "client"),
                ECHO: (face_client_command("legacy", *bare_mcp_command()), ROOT, "server"),
                **{
                    name: (
                        face_client_command("legacy", *expose_command(self._checkouts[name], port)),
                        self._checkouts[name],
                        "server",
                    )
                    for name in order
                },
            }
            for name, (command, checkout, whose) in commands.items():
                with self._place.started(command, checkout) as asking:
                    if name != AGENT:  # which connects with its first plan
                        asking.hear()
                    answer = asking.ask(_plan(count, 1) | ({} if name == AGENT else {"cpu_of": whose}))
                each[f"{name}.expose_p50"] = _p50_ms(answer)
                each[f"{name}.expose_cpu"] = _cpu_ms(answer, count)

    def _starts(self, each: Round, order: Sequence[str]) -> None:
        """The start of expose on stdio with a remembered card, until its tools are listed."""
        with self._place.started(import_command()) as started:
            started.hear()
            each["import.ms"] = 1000 * (time.perf_counter() - started.since)
        with self._serving(NOW, "memory:") as (port, _):
            for name in order:
                command, checkout = expose_command(self._checkouts[name], port), self._checkouts[name]
                for _ in range(2):  # the first start remembers the card
                    with self._place.started(command, checkout) as face:
                        listed_tools(face, name)
                        each[f"{name}.start"] = 1000 * (time.perf_counter() - face.since)

    def _idle(self, each: Round, order: Sequence[str]) -> None:
        """Memory and CPU of a stream that subscribes to a task and carries heartbeats."""
        held = self._size.held
        plan = {
            "kind": "hold",
            "method": "SubscribeToTask",
            "tool": "wait",
            "warm_up": held // 10,
            "streams": held,
            "settle_seconds": 1.0,
            "idle_seconds": self._size.idle_seconds,
        }
        for name in order:
            with self._serving(name, "memory:") as (port, pid), self._place.started(load_command()) as load:
                answer = load.ask(plan | {"port": port, "pid": pid})
            each[f"{name}.idle_kib"] = (answer["rss_after"] - answer["rss_before"]) / 1024 / held
            every = held + held // 10
            each[f"{name}.idle_us"] = 1e6 * answer["cpu_seconds"] / answer["idle_seconds"] / every

    def _writes(self, each: Round, order: Sequence[str]) -> None:
        """System calls on the write-ahead log of SQLite, of calls that nobody watches, one at a time."""
        if shutil.which("strace") is None:
            print("strace is not installed, so no writes are counted", file=sys.stderr)
            return
        for name in order:
            output = self._place.new_file(".strace")
            with self._serving(name, str(self._place.new_file(".db"))) as (port, pid):
                tracing = ["strace", "-f", "-y", "-qq", "-e", "trace=fdatasync,pwrite64", "-o", str(output)]
                tracer = subprocess.Popen([*tracing, "-p", str(pid)], stderr=subprocess.DEVNULL)
                try:
                    time.sleep(_TRACE_SECONDS)
                    with self._place.started(load_command()) as load:
                        plan = _plan(self._size.traced, 1)
                        load.ask(plan | {"port": port, "pid": pid})
                finally:
                    tracer.send_signal(signal.SIGINT)
                    tracer.wait()
            names = [written[1] for line in output.open() if (written := _WRITE.search(line))]
            for call in ("fdatasync", "pwrite64"):
                each[f"{name}.{call}"] = names.count(call) / (plan["requests"] + plan["warm_up"])

    @contextmanager
    def _serving(self, name: str, store: str) -> Iterator[tuple[int, int]]:
        """An agent of a contestant with a store: its port and its process."""
        port = self._place.new_port()
        checkout = self._checkouts.get(name, ROOT)
        command = sdk_agent_command(port, store) if name == SDK else wrap_command(checkout, port, store)
        with self._place.serving(command, port, checkout) as server:
            yield port, server.pid


def _plan(calls: int, concurrency: int) -> dict[str, Any]:
    return {
        "kind": "send",
        "requests": calls,
        "warm_up": max(2 * concurrency, calls // 10),
        "concurrency": concurrency,
        "tool": "echo",
        "argument": "text",
        "prefix": "",
    }


def _p50_ms(answer: Mapping[str, Any]) -> float:
    return 1000 * percentile(answer["latencies"], 50)


def _cpu_ms(answer: Mapping[str, Any], calls: int) -> float:
    return float(1000 * answer["cpu_seconds"] / calls)


def _flush_ms(file: Path) -> float:
    """How long this disk takes to keep a page: what each commit of SQLite costs at least."""
    times = []
    with file.open("wb", buffering=0) as writing:
        for _ in range(_FLUSHES):
            writing.write(bytes(4096))
            begun = time.perf_counter()
            os.fdatasync(writing.fileno())
            times.append(1000 * (time.perf_counter() - begun))
    return median(times)


def checkout_of(commit: str, folder: Path) -> Path:
    """Write the code of an earlier commit into a new folder.

    Raises:
        BenchmarkError: this checkout does not know the commit.
    """
    folder.mkdir()
    packed = subprocess.run(
        ["git", "archive", commit, "bridge", "mappings"], cwd=ROOT, capture_output=True, check=False
    )
    if packed.returncode != 0:
        words = packed.stderr.decode(errors="replace").strip()
        raise BenchmarkError(f"the earlier commit {commit} cannot be read: {words}")
    subprocess.run(["tar", "-x", "-C", str(folder)], input=packed.stdout, check=True)
    return folder
