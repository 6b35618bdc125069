"""The command: how many cases, of which targets, from which seed, and for how long.

python -m tests.hostile --cases 100000
python -m tests.hostile --only cards --seed 7 --case 123     one case again, with all that it is
python -m tests.hostile --only schemas --atheris 60          guided by coverage, where atheris is installed
"""

from __future__ import annotations

import argparse
import logging
import os
import secrets
import sys
import tempfile
import time
from typing import Final

from tests.hostile.runner import run
from tests.hostile.targets import TARGETS

_HARD: Final = 1 << 30


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(
        prog="python -m tests.hostile",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--cases", type=int, default=20_000, help="of all targets together (%(default)s)")
    made.add_argument("--seconds", type=float, default=1800.0, help="at most so long (%(default)g)")
    made.add_argument("--seed", type=int, help="repeats a run; chosen by chance else")
    made.add_argument("--only", default="", metavar="a,b,...", help=", ".join(one.name for one in TARGETS))
    made.add_argument("--case", type=int, help="only the case of this number")
    made.add_argument("--atheris", type=float, metavar="SECONDS", help="one target, guided by coverage")
    return made


def main() -> int:
    """Run, and say what was run and found; 1 when there were finds."""
    options = parser().parse_args()
    logging.disable(logging.WARNING)
    logging.getLogger("mcp").setLevel(logging.CRITICAL)
    seed = secrets.randbelow(_HARD) if options.seed is None else options.seed
    wanted = set(filter(None, options.only.split(",")))
    chosen = [target for target in TARGETS if not wanted or target.name in wanted]
    if not chosen or wanted - {target.name for target in chosen}:
        raise SystemExit(f"there is no such target: {options.only}")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = os.environ["XDG_CACHE_HOME"] = folder
        if options.atheris:
            from tests.hostile.guided import run_guided  # atheris may not be installed

            run_guided(chosen[0], options.atheris)
            return 0
        shares, until = sum(target.share for target in chosen), time.monotonic() + options.seconds
        outcomes = []
        print(f"seed {seed}", flush=True)
        for target in chosen:
            count = max(1, options.cases * target.share // shares)
            cases = range(count) if options.case is None else range(options.case, options.case + 1)
            outcome = run(target, seed, cases, until, verbose=options.case is not None)
            outcomes.append(outcome)
            print(f"{outcome.target:18} {outcome.cases:7} cases {outcome.seconds:7.1f} s", flush=True)
            for find in outcome.finds:
                print(f"\n--- FOUND: {find}", flush=True)
    import resource  # which Windows does not have; the parsers are attacked elsewhere

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    finds = sum(len(outcome.finds) for outcome in outcomes)
    print(
        f"{sum(one.cases for one in outcomes)} cases, {sum(one.seconds for one in outcomes):.0f} s,"
        f" peak {peak:.0f} MB, {finds} finds; repeat with --seed {seed} --cases {options.cases}"
    )
    return 1 if finds else 0


if __name__ == "__main__":
    sys.exit(main())
