"""Runs the matrix: `python -m tests.matrix [--docs] [PEER ...]`, by default every peer in both directions.

Makes the environments that are missing. Exits with 1 when a cell fails without a reason in `explained.toml`, when one
with a reason does not fail, and when an outcome is not the recorded one; `--docs` records it and writes
docs/interop.md. What the peers said stands in .run/matrix.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import Final

import anyio

from tests.matrix import page, recorded
from tests.matrix.cells import Cell
from tests.matrix.environments import NotInstalledError, Peer, peers
from tests.matrix.explained import Explained, complaints
from tests.matrix.model import build_app
from tests.matrix.peer_as_agent import cells_of_agent
from tests.matrix.peer_as_client import cells_of_client, environment_of
from tests.matrix.recorded import PeerResult, Recorded
from tests.matrix.scenarios import OF_SIDE, Outcome, Scenario, Side
from tests.support.running import listening

LOGS: Final = Path(".run") / "matrix"
_MARKS: Final = {Outcome.PASS: ".", Outcome.FAIL: "F", Outcome.CANNOT: "-", Outcome.UNTRIED: "?"}


def main() -> int:
    """Run what is asked for; the exit status."""
    known = {peer.name: peer for peer in peers()}
    parser = argparse.ArgumentParser(prog="python -m tests.matrix", description="The interop matrix.")
    parser.add_argument(
        "--docs", action="store_true", help="record what came of it, and write docs/interop.md"
    )
    parser.add_argument("peers", nargs="*", metavar="PEER", help=f"of {', '.join(known)}")
    options = parser.parse_args()
    if unknown := set(options.peers) - known.keys():
        parser.error(f"there is no peer {', '.join(sorted(unknown))}")
    chosen = [known[name] for name in options.peers] or list(known.values())
    shutil.rmtree(LOGS, ignore_errors=True)
    try:
        seen = anyio.run(_run, chosen)
    except NotInstalledError as exc:
        print(f"matrix: {exc}", file=sys.stderr)
        return 1
    return _judged(seen, options.docs)


def _judged(seen: dict[str, PeerResult], docs: bool) -> int:
    explained = Explained.in_file()
    found = complaints(seen, explained)
    before = Recorded.in_file()
    now = before.with_peers(seen)
    if docs:
        recorded.FILE.write_text(now.to_text(), "utf-8")
        page.FILE.write_text(page.page(now, explained), "utf-8")
    else:
        found += [f"not as recorded (--docs records it): {line}" for line in before.differences(seen)]
    for line in found:
        print(line, file=sys.stderr)
    print(f"{len(found)} surprises; what the peers said is in {LOGS}")
    return 1 if found else 0


async def _run(chosen: list[Peer]) -> dict[str, PeerResult]:
    results = {}
    async with listening(build_app()) as model_url:
        for peer in chosen:
            if peer.install():
                print(f"{peer.name}: installed", flush=True)
            results[peer.name] = await _result(peer, f"{model_url}/v1")
    return results


async def _result(peer: Peer, model: str) -> PeerResult:
    cells: dict[Side, dict[Scenario, Cell]] = {}
    runs = {Side.CLIENT: partial(cells_of_client, with_grpc=peer.is_over_grpc), Side.AGENT: cells_of_agent}
    for side, run in runs.items():
        command = peer.command(side)
        if command is None:
            continue
        folder = (LOGS / f"{peer.name}-{side}").absolute()
        folder.mkdir(parents=True)
        try:
            cells[side] = await run(command, environment_of(peer.environment, model), folder)
        except Exception as exc:  # noqa: BLE001 - whatever a peer does is what came of it
            words = f"it did not run: {type(exc).__name__}"
            cells[side] = dict.fromkeys(OF_SIDE[side], Cell(Outcome.FAIL, words))
            (folder / "error.txt").write_text(str(exc), "utf-8")
        marks = "".join(_MARKS[cells[side][scenario].outcome] for scenario in OF_SIDE[side])
        print(f"{peer.name:<18} {side:<7} {marks}", flush=True)
        for scenario, cell in cells[side].items():
            if cell.outcome is Outcome.FAIL:
                print(f"    {scenario}: {cell.words}", flush=True)
    return PeerResult(peer.versions, cells)


if __name__ == "__main__":
    sys.exit(main())
