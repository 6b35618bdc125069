"""Lints and renders the chart with each of several values: JSON from stdin to stdout.

A process of its own, because Helm's library brings the runtime of Go, with threads and signal handlers, into it.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from helm_python import Chart, HelmError, lint


def main(path: str) -> None:
    """Read a table of values by name, and write what comes of each."""
    table: dict[str, dict[str, Any]] = json.load(sys.stdin)
    with Chart.load(path) as chart:
        json.dump({name: _outcome(chart, path, values) for name, values in table.items()}, sys.stdout)


def _outcome(chart: Chart, path: str, values: dict[str, Any]) -> dict[str, Any]:
    try:
        linted = lint(path, values, strict=True)
        files = chart.render(values, name="office", namespace="agents")
    except HelmError as exc:
        return {"refused": str(exc)}
    return {"said": [one for one in linted["messages"] if one["severity"] > 1], "files": files}


if __name__ == "__main__":
    main(sys.argv[1])
