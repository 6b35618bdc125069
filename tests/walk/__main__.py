"""`python -m tests.walk`: what one call passes on its way through the bridge."""

from __future__ import annotations

import argparse
import json
from typing import Final

from tests.benchmarks.figures import Table
from tests.walk.calls import walks as count_walks
from tests.walk.counting import MEANINGS, Walk

_ABOVE: Final = "# The output of `python -m tests.walk --toml`. tests/walk/test_walk.py allows 5 % more."


def parser() -> argparse.ArgumentParser:
    """The options of the command."""
    made = argparse.ArgumentParser(
        prog="python -m tests.walk", description="Count the functions of bridge/ that one call enters."
    )
    form = made.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print the figures as JSON")
    form.add_argument(
        "--toml", action="store_true", help="print tests/walk/ceilings.toml: the largest figures"
    )
    form.add_argument("--functions", action="store_true", help="print the entries of each function")
    return made


def main() -> None:
    """Count both calls and print."""
    options = parser().parse_args()
    counted = count_walks()
    if options.toml:
        print(_toml_of({name: walks[-1] for name, walks in counted.items()}))
        return
    found = {name: walks[0] for name, walks in counted.items()}
    if options.json:
        print(json.dumps({name: walk.figures() for name, walk in found.items()}))
    elif options.functions:
        for name, walk in found.items():
            print(f"# {name}")
            for module, function, entries in walk.functions():
                print(f"{entries:4} {module} {function}")
    else:
        print(_table_of(found))


def _table_of(found: dict[str, Walk]) -> Table:
    figures = [walk.figures() for walk in found.values()]
    rows = [[meaning, *(str(one.get(name, "-")) for one in figures)] for name, meaning in MEANINGS.items()]
    return Table("The way of one call through bridge/", ["", *found], rows)


def _toml_of(found: dict[str, Walk]) -> str:
    tables = (
        "\n".join([f'["{name}"]', *(f"{key} = {count}" for key, count in walk.figures().items())])
        for name, walk in found.items()
    )
    return "\n\n".join([_ABOVE, *tables])


if __name__ == "__main__":
    main()
