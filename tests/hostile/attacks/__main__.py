"""The command: which attacks are made, and a table of what they came to and cost.

python -m tests.hostile.attacks
python -m tests.hostile.attacks --only "half heads,a full disk"
"""

from __future__ import annotations

import argparse
import sys
from typing import Final

import anyio

from tests.benchmarks.workplace import Workplace, workplace
from tests.hostile.attacks.attack import MEGABYTE, Attack
from tests.hostile.attacks.every import ATTACKS
from tests.hostile.attacks.running import Report, run_attack
from tests.support.small_disk import NoSmallDiskError

_HEAD: Final = (
    f"{'attack':22} {'MB':>5} {'most':>5} {'CPU s':>6} {'log KB':>6}"
    f" {'calls':>6} {'again':>5} {'p50 ms':>7} {'max ms':>7}  afterwards: what it came to"
)


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(
        prog="python -m tests.hostile.attacks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--only", default="", metavar="a,b,...", help=", ".join(one.name for one in ATTACKS))
    return made


def main() -> int:
    """Make the attacks, and say what they came to; 1 when one broke a bound."""
    if sys.platform != "linux":
        raise SystemExit("Linux only: memory and CPU time of the bridge are read in /proc")
    wanted = set(filter(None, parser().parse_args().only.split(",")))
    chosen = [attack for attack in ATTACKS if not wanted or attack.name in wanted]
    if wanted - {attack.name for attack in chosen}:
        raise SystemExit(f"there is no such attack: {', '.join(wanted - {one.name for one in chosen})}")
    print(
        "MB: peak of the process above what it had before; calls, p50 and max: of an honest caller meanwhile."
    )
    print(_HEAD, flush=True)
    with workplace() as place:
        faults = [fault for attack in chosen for fault in _made(attack, place)]
    print(f"{len(chosen)} attacks, {len(faults)} faults")
    return 1 if faults else 0


def _made(attack: Attack, place: Workplace) -> tuple[str, ...]:
    """Make an attack and print its row; its faults."""
    try:
        report = anyio.run(run_attack, attack, place)
    except NoSmallDiskError as exc:
        print(f"{attack.name:22} skipped: {exc}", flush=True)
        return ()
    print(_row(attack, report))
    for fault in report.faults:
        print(f"    FAULT: {fault}")
    sys.stdout.flush()
    return report.faults


def _row(attack: Attack, report: Report) -> str:
    return (
        f"{report.attack:22} {report.peak_bytes / MEGABYTE:5.0f} {attack.most_bytes / MEGABYTE:5.0f}"
        f" {report.cpu_seconds:6.1f} {report.log_bytes / 1000:6.1f} {report.calls:6} {report.sent_again:5}"
        f" {report.wait_median_seconds * 1000:7.1f} {report.wait_most_seconds * 1000:7.0f}"
        f"  {report.service}: {report.came_to[:200]}"
    )


if __name__ == "__main__":
    sys.exit(main())
