"""The command: for how long, and what it found. See `make soak`.

One `mcp-a2a serve` with its store in a temporary folder is called by honest clients at a modest pace, and attacked
meanwhile, until time is over. It ends with 1 when a rule does not hold: what it holds is flat, and honest calls are
answered.
"""

from __future__ import annotations

import argparse
import json
import secrets
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import anyio
import httpx2

from tests.benchmarks.usage import raise_open_files
from tests.benchmarks.workplace import READY_SECONDS, BenchmarkError, Started, Workplace, workplace
from tests.hostile.soak.attacks import LANES
from tests.hostile.soak.honest import Caller, callers
from tests.hostile.soak.peers import hostile_peers
from tests.hostile.soak.setting import FILE, PRINCIPALS, file_text, token_of, write_file
from tests.hostile.soak.watch import Attacked, Call, Sample, findings, log_size, sample, slowest, table_of

CALLERS: Final = 4
_SAMPLE_SECONDS: Final = 10.0
_SETTLE_SECONDS: Final = 120.0
"""For connections that rest, sessions that are replaced, and servers that start again, once nothing is asked."""

_NAMES: Final = [attack.__name__ for lane in LANES for attack in lane]


class Soak:
    """One run."""

    def __init__(self, place: Workplace, seconds: float, only: Sequence[str]) -> None:
        self._place = place
        self._only = only
        self._seconds = seconds
        self._port = place.new_port()
        self._since = 0.0
        self.samples: list[Sample] = []

    async def run(self) -> bool:
        """Start all, let it go on for its time, and print what was seen; whether every rule holds."""
        for name in PRINCIPALS:
            (self._place.folder / f"{name}.token").write_text(secrets.token_hex(16))
        async with hostile_peers() as peers_url:
            write_file(self._place.folder, file_text(peers_url))
            words = ["serve", str(self._place.folder / FILE), "--port", str(self._port)]
            command = [sys.executable, "-P", "-m", "bridge", *words]
            with self._place.started(command) as bridge:
                await anyio.to_thread.run_sync(bridge.listens_on, self._port)
                await self._is_ready()
                return await self._watched(bridge, peers_url)

    async def _is_ready(self) -> None:
        with anyio.move_on_after(READY_SECONDS):
            async with httpx2.AsyncClient() as http:
                while (ready := await http.get(f"http://127.0.0.1:{self._port}/readyz")).status_code != 200:
                    await anyio.sleep(0.1)
                return
        raise BenchmarkError(f"the bridge is not ready: {ready.text}")

    async def _watched(self, bridge: Started, peers_url: str) -> bool:
        self._since = time.monotonic()
        (first,) = self._callers(1)
        await first.once()
        if faults := [call for call in first.calls if call.fault]:
            raise BenchmarkError(f"not even the first calls are answered: {faults}")
        before = await self._settled(bridge)
        self._since = time.monotonic()
        calls, attacked = await self._loaded(bridge, peers_url)
        after = await self._settled(bridge, before)
        return self._said(bridge, before, after, calls, attacked)

    def _callers(self, number: int) -> Sequence[Caller]:
        url = f"http://127.0.0.1:{self._port}"
        return callers(url, token_of(self._place.folder, "honest"), self._since, number)

    async def _loaded(self, bridge: Started, peers_url: str) -> tuple[list[Call], Attacked]:
        """The load, until time is over; every honest call, and what the attacks say."""
        honest, ended = self._callers(CALLERS), anyio.Event()
        told = {
            "port": self._port,
            "folder": str(self._place.folder),
            "peers_url": peers_url,
            "only": self._only,
        }
        with self._place.started([sys.executable, "-P", "-m", "tests.hostile.soak.attacks"]) as attacks:
            attacks.tell(told)
            async with anyio.create_task_group() as tasks:
                for caller in honest:
                    tasks.start_soon(caller.run, ended)
                await self._sampled(bridge)
                ended.set()
            assert attacks.process.stdin is not None
            attacks.process.stdin.close()
            said = await anyio.to_thread.run_sync(attacks.next)
        spans = [(name, begun - self._since, ended - self._since) for name, begun, ended in said["spans"]]
        return [call for caller in honest for call in caller.calls], Attacked(spans, said["faults"])

    async def _sampled(self, bridge: Started) -> None:
        while (at := self._now()) < self._seconds:
            self.samples.append(sample(bridge.pid, at))
            await anyio.sleep(min(_SAMPLE_SECONDS, self._seconds / 12))
        self.samples.append(sample(bridge.pid, self._now()))

    async def _settled(self, bridge: Started, before: Sample | None = None) -> Sample:
        """What it holds once nothing is asked of it: like before, or as much as is left when patience ends."""
        with anyio.move_on_after(_SETTLE_SECONDS if before else 3):
            while (seen := sample(bridge.pid, self._now())) and (
                before is None or seen.descriptors > before.descriptors or seen.children > before.children
            ):
                await anyio.sleep(1)
        return seen

    def _now(self) -> float:
        return time.monotonic() - self._since

    def _said(
        self, bridge: Started, before: Sample, after: Sample, calls: list[Call], attacked: Attacked
    ) -> bool:
        found = findings(self.samples, calls, attacked, before, after)
        said = (
            table_of(self.samples, calls),
            attacked,
            slowest(calls, attacked),
            log_size(bridge.log),
            *found,
        )
        print("\n".join(map(str, said)), flush=True)
        return all(one.holds is not False for one in found)


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(
        prog="python -m tests.hostile.soak",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--minutes", type=float, default=30.0, help="how long the load goes on (%(default)g)")
    made.add_argument("--only", type=_attacks, default=[], metavar="a,b,...", help=", ".join(_NAMES))
    made.add_argument("--json", type=Path, metavar="FILE", help="write every sample to this file as well")
    return made


def _attacks(text: str) -> list[str]:
    asked = text.split(",")
    if unknown := [name for name in asked if name not in _NAMES]:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: there is {', '.join(_NAMES)}")
    return asked


def main() -> int:
    """Run; 1 when a rule does not hold or nothing could be run."""
    options = parser().parse_args()
    raise_open_files()
    try:
        with workplace() as place:
            soak = Soak(place, 60 * options.minutes, options.only)
            holds = anyio.run(soak.run)
    except BenchmarkError as exc:
        print(exc, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    if options.json:
        options.json.write_text(json.dumps([vars(one) for one in soak.samples], indent=1) + "\n")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
