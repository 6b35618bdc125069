"""The command: what is measured, how much of it, and where the figures go."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import bridge
from tests.benchmarks import (
    calls,
    face_starting,
    faces,
    idle,
    push,
    replicas,
    starting,
    stored_tasks,
    streaming,
)
from tests.benchmarks.contestants import BRIDGE, SDK_AGENT
from tests.benchmarks.figures import Report
from tests.benchmarks.scale import DEFAULT, QUICK, Scale
from tests.benchmarks.usage import raise_open_files
from tests.benchmarks.workplace import BenchmarkError, Workplace, workplace
from tests.peers.node import missing_peers

PARTS: Final = {
    "a": "SendMessage through the bridge, beside the MCP SDK client calling the tool directly",
    "b": "the same, and beside an agent made with a2a-sdk",
    "c": "streams of 1,000 reports of progress, of all three",
    "d": "2,000 idle streams, beside bare Starlette",
    "e": "starting, and memory, with one tool server and with twenty",
    "f": "calls and reports through mcp-a2a expose, beside the same agent asked over A2A",
    "g": "starting mcp-a2a expose on stdio, and its memory, beside a bare server of the SDK",
    "h": "replicas on one PostgreSQL: four beside one, and a call beside one with SQLite",
    "i": "1,000,000 stored tasks: listing, reading and opening, in SQLite and in PostgreSQL",
    "j": "events of streams whose tasks have a slow webhook, beside none",
}
_EXAMPLES: Final = """examples:
  python -m tests.benchmarks                         all of it, about 15 minutes
  python -m tests.benchmarks --quick                 all of it in small: to see that it works, not for figures
  python -m tests.benchmarks --only b --rounds 5     own CPU beside a2a-sdk, better
  python -m tests.benchmarks --only a --servers raw --stores memory --requests 5000
  python -m tests.benchmarks --only f,g --faces stdio-legacy,stdio-modern
"""


def parser() -> argparse.ArgumentParser:
    """The options."""
    parts = "\n".join(f"  {name}  {what}" for name, what in PARTS.items())
    made = argparse.ArgumentParser(
        prog="python -m tests.benchmarks",
        description=f"Measure the bridge beside what it is made of and what it is like.\n\n{parts}",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument(
        "--quick", action="store_true", help="small counts, one round, no server-everything; < 100 s"
    )
    made.add_argument(
        "--only", type=_names_of(PARTS), default=list(PARTS), metavar="a,b,...", help="these parts"
    )
    made.add_argument(
        "--rounds", type=_positive, metavar="N", help=f"turns of each contestant ({DEFAULT.rounds})"
    )
    made.add_argument(
        "--requests",
        type=_positive,
        metavar="N",
        help=f"calls in a run at concurrency 32 with the memory store ({DEFAULT.requests}); other runs have a share",
    )
    made.add_argument(
        "--servers", type=_names_of(DEFAULT.servers), metavar="raw,everything", help="tool servers"
    )
    made.add_argument("--stores", type=_names_of(DEFAULT.stores), metavar="memory,sqlite", help="stores")
    made.add_argument(
        "--faces",
        type=_names_of(DEFAULT.faces),
        metavar="stdio-legacy,...",
        help=f"transports of expose, each with the mode of its client ({','.join(DEFAULT.faces)})",
    )
    made.add_argument("--json", type=Path, metavar="FILE", help="write every run to this file as well")
    return made


def _names_of(known: Sequence[str] | dict[str, str]) -> Callable[[str], list[str]]:
    def names(text: str) -> list[str]:
        asked = text.split(",")
        if unknown := [name for name in asked if name not in known]:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: there is {', '.join(known)}")
        return asked

    return names


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1")
    return int(text)


def scale_from(options: argparse.Namespace) -> Scale:
    """How much is measured."""
    scale = QUICK if options.quick else DEFAULT
    asked = {name: getattr(options, name) for name in ("rounds", "requests", "servers", "stores", "faces")}
    return replace(scale, **{name: value for name, value in asked.items() if value})


def what_is_missing(only: Sequence[str], scale: Scale) -> str | None:
    """What has to be installed first, or None."""
    if "b" in only and "sqlite" in scale.stores:
        try:
            import aiosqlite  # noqa: F401 - the extra `bench` has it
        except ImportError:
            return "a2a-sdk's SQLite store is not installed; run `pip install -e '.[dev,bench]'`, or --stores memory"
    if set(only) & {"a", "b"} and "everything" in scale.servers and (missing := missing_peers()):
        return f"{missing}, or --servers raw"
    return None


def measure(place: Workplace, only: Sequence[str], scale: Scale) -> list[Report]:
    """Run the parts, and print each one's tables as soon as they are known."""
    parts: dict[str, Callable[[], Report]] = {}
    if set(only) & {"a", "b"}:
        contestants = [BRIDGE, SDK_AGENT] if "b" in only else [BRIDGE]
        parts["calls"] = lambda: calls.measure(place, scale, contestants)
    if "c" in only:
        parts["streams"] = lambda: streaming.measure(place, scale)
    if "d" in only:
        parts["idle streams"] = lambda: idle.measure(place, scale)
    if "e" in only:
        parts["starting"] = lambda: starting.measure(place, scale)
    if "f" in only:
        parts["faces"] = lambda: faces.measure(place, scale)
    if "g" in only:
        parts["starting faces"] = lambda: face_starting.measure(place, scale)
    if "h" in only:
        parts["replicas"] = lambda: replicas.measure(place, scale)
    if "i" in only:
        parts["stored tasks"] = lambda: stored_tasks.measure(place, scale)
    if "j" in only:
        parts["push notifications"] = lambda: push.measure(place, scale)
    reports = []
    for name, part in parts.items():
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        report = part()
        print("\n".join(map(str, report.tables)), flush=True)
        reports.append(report)
    return reports


def about() -> dict[str, Any]:
    """The machine and the versions."""
    names = ("a2a-sdk", "mcp", "uvicorn", "starlette")
    return {
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "machine": f"{platform.system()} {platform.release()}, {os.cpu_count()} cores",
        "load_before": os.getloadavg()[0],
        "python": platform.python_version(),
        "mcp-a2a": bridge.__version__,
        **{name: version(name) for name in names},
    }


def main() -> int:
    """Measure and print."""
    options = parser().parse_args()
    raise_open_files()
    return run(options)


def run(options: argparse.Namespace, start: type[subprocess.Popen[bytes]] = subprocess.Popen) -> int:
    """Measure and print; 1 when a run did not do what it had to."""
    scale = scale_from(options)
    if missing := what_is_missing(options.only, scale):
        print(missing, file=sys.stderr)
        return 2
    said, begun = about(), time.monotonic()
    print(", ".join(f"{name} {value}" for name, value in said.items()))
    print(
        f"{scale.rounds} rounds in turns; a figure is of all rounds, with (least..most) of them behind it.\n"
    )
    try:
        with workplace(start) as place:
            reports = measure(place, options.only, scale)
    except BenchmarkError as exc:
        print(exc, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(f"took {time.monotonic() - begun:.0f} s")
    if options.json:
        runs = [run for report in reports for run in report.runs]
        options.json.write_text(json.dumps({"about": said, "runs": runs}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
