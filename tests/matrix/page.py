"""docs/interop.md, made of what was recorded and of the reasons. `python -m tests.matrix.page` writes it anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.matrix.environments import GRPC_PACKAGES
from tests.matrix.explained import Explained
from tests.matrix.recorded import PeerResult, Recorded
from tests.matrix.scenarios import OF_SIDE, TITLES, Outcome, Side

FILE: Final = Path(__file__).parents[2] / "docs" / "interop.md"
MARKS: Final = {Outcome.PASS: "yes", Outcome.FAIL: "**no**", Outcome.CANNOT: "-", Outcome.UNTRIED: "?"}
_HEAD: Final = """\
# Interop

Tests of agent frameworks in pinned versions, with the bridge between each framework and MCP. This page is generated.
`make interop-matrix` runs every test again, and fails if a result differs from this page. No test uses the network
beyond this machine: if a framework needs a model, it gets a stub on loopback.

`yes` means that the scenario passed, **no** that it failed, `-` that the framework cannot do it, and `?` that it was
not tried. The reasons for all marks but `yes` are below each table. Only the framework's own interface counts, not the
SDK that the framework is built on.

Each framework has a folder in `tests/matrix/peers/`. `contract.py` there defines what its scripts must do.
`python -m tests.matrix NAME` runs one framework.
"""
_SIDES: Final = {
    Side.CLIENT: """
## As clients of a wrapped MCP server

The framework's own client calls the agent that `mcp-a2a wrap` makes of an MCP server. A question
is an elicitation of the tool, a failure is a result with `isError`, and a stream is the progress of the tool. Plain
words are the sentence "Please echo good morning.", which runs a tool without naming its arguments. LangGraph has no
client of A2A, so its row is a graph whose node posts JSON-RPC, as its documentation shows.
""",
    Side.AGENT: """
## As agents behind exposed tools

The framework's own server is the agent, and the official MCP client calls the tools that `mcp-a2a expose` makes of
it. A question is an elicitation in the host, a failure is a result with `isError`, and two turns share the context of
the first result.
""",
}


def page(recorded: Recorded, explained: Explained) -> str:
    """The page."""
    return "".join(
        [_HEAD, *(line for side in Side for line in _side(side, recorded, explained)), *_versions(recorded)]
    )


def _side(side: Side, recorded: Recorded, explained: Explained) -> Iterator[str]:
    peers = {name: peer for name, peer in recorded.peers.items() if side in peer.cells}
    yield _SIDES[side]
    yield f"\n| | {' | '.join(TITLES[scenario] for scenario in OF_SIDE[side])} |\n"
    yield f"|---|{'---|' * len(OF_SIDE[side])}\n"
    for peer in peers.values():
        marks = " | ".join(MARKS[peer.cells[side][scenario].outcome] for scenario in OF_SIDE[side])
        yield f"| {_title(peer)} | {marks} |\n"
    for name, peer in peers.items():
        yield from _reasons(side, name, peer, explained)


def _reasons(side: Side, name: str, peer: PeerResult, explained: Explained) -> Iterator[str]:
    said: dict[tuple[Outcome, str], list[str]] = {}
    for scenario, cell in peer.cells[side].items():
        if cell.outcome is not Outcome.PASS:
            words = explained.reasons.get((name, side, scenario), cell.words)
            said.setdefault((cell.outcome, words), []).append(TITLES[scenario])
    if said:
        yield f"\n{_title(peer)}:\n\n"
    for (_, words), titles in said.items():
        yield f"- {', '.join(titles)}: {words}\n"


def _title(peer: PeerResult) -> str:
    name, version = next(iter(peer.versions.items()))
    return f"{name} {version}{' over gRPC' if peer.versions.keys() & GRPC_PACKAGES else ''}"


def _versions(recorded: Recorded) -> Iterator[str]:
    yield "\n## Versions\n\nWhat each environment pins:\n\n"
    for peer in recorded.peers.values():
        yield f"- {', '.join(f'{name} {version}' for name, version in peer.versions.items())}\n"


if __name__ == "__main__":
    FILE.write_text(page(Recorded.in_file(), Explained.in_file()), "utf-8")
