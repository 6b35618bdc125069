"""The command: checks one agent and prints what came of it."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio

from tests.a2a_checks import Level, Report, run_checks, table_lines
from tests.a2a_checks.hooks import hooks_at
from tests.a2a_checks.occasions import PURPOSES
from tests.a2a_checks.run import DEFAULT_DEADLINE_SECONDS
from tests.a2a_checks.table import Failed

_EPILOG: Final = f"""FILE of --messages is a JSON object: purpose to A2A message, as far as the agent needs them.
Purposes: {", ".join(PURPOSES)}.
  {{"asks": {{"parts": [{{"text": "ask me something"}}]}}}}
Exit code: 0 no MUST failed, 1 one did, 2 wrong usage or no agent there."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the checks; the exit code."""
    options = _parser().parse_args(arguments)
    try:
        run = partial(
            run_checks,
            options.url,
            bearer=_bearer(options.bearer),
            other_bearer=_bearer(options.other_bearer),
            messages=_messages(options.messages),
            deadline_seconds=options.deadline,
        )
        with hooks_at(*options.hooks) as hooks:
            report: Report = anyio.run(partial(run, hooks=hooks))
    except (Failed, TimeoutError, ValueError, OSError) as exc:
        print(f"{options.url}: {exc or 'no answer in time'}", file=sys.stderr)
        return 2
    print("\n".join(table_lines(report)))
    if options.json:
        options.json.write_text(json.dumps(report.to_json(), indent=2) + "\n")
    return 1 if report.failures(Level.MUST) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.a2a_checks",
        description="Check an A2A 1.0 agent over the wire.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("url", help="the agent's base URL, or its card's")
    parser.add_argument("--bearer", metavar="env:NAME", help="a token, from this environment variable")
    parser.add_argument(
        "--other-bearer",
        metavar="env:NAME",
        help="the same of another caller, who shares no tasks with the first",
    )
    parser.add_argument(
        "--hooks",
        metavar="HOST:PORT",
        type=_address,
        default=("127.0.0.1", 0),
        help="where to listen for push notifications (a free port of 127.0.0.1)",
    )
    parser.add_argument("--messages", metavar="FILE", type=Path, help="what to say to the agent")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the results as JSON, too")
    parser.add_argument("--deadline", metavar="SECONDS", type=float, default=DEFAULT_DEADLINE_SECONDS)
    return parser


def _bearer(reference: str | None) -> str | None:
    if reference is None:
        return None
    kind, _, name = reference.partition(":")
    if kind != "env" or not os.environ.get(name):
        raise ValueError("a token is env:NAME, the name of an environment variable that is set")
    return os.environ[name]


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


def _messages(path: Path | None) -> Mapping[str, Mapping[str, Any]]:
    if path is None:
        return {}
    found = json.loads(path.read_text())
    unknown = set(found) - set(PURPOSES) if isinstance(found, dict) else {"no object"}
    if unknown:
        raise ValueError(
            f"{path}: unknown purpose {', '.join(sorted(unknown))}; known: {', '.join(PURPOSES)}"
        )
    return dict(found)


if __name__ == "__main__":
    sys.exit(main())
