"""The part of docs/conformance.md that tells what is deferred, and where the bridge diverges. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from tests.requirements.requirement import Requirement, Revision, Side, Source, Status

_HEAD: Final = """
## The specifications, sentence by sentence

`tests/requirements/` has an entry for each MUST that falls to the bridge, as an agent or a client of A2A and as a
server or a client of tools of MCP, and for the sentences of its own design. What is claimed is proved by tests that are
marked with the entry, and a claim without one fails the suite. What the bridge does not have yet is deferred. Where it
does something else on purpose, it diverges.

| Of | Side | Claimed | Deferred | Diverges |
|---|---|---|---|---|
"""
_SECTIONS: Final[Mapping[Status, str]] = {
    Status.DIVERGES: "### Where the bridge diverges",
    Status.DEFERRED: "### What is deferred",
}


def section(requirements: Iterable[Requirement]) -> str:
    """The part of the page."""
    known = list(requirements)
    return "".join([_HEAD, *_counts(known), *_listed(known)])


def _counts(known: Sequence[Requirement]) -> Iterator[str]:
    """A line for each side of each revision; one that both revisions of MCP ask of counts for each."""
    for revision in Revision:
        for side in Side:
            mine = [one.status for one in known if revision in one.revisions and side in one.sides]
            if mine:
                cells = " | ".join(str(mine.count(status)) for status in Status)
                yield f"| {revision} | {side} | {cells} |\n"


def _listed(known: Sequence[Requirement]) -> Iterator[str]:
    """What is not claimed, by its reason."""
    for status, title in _SECTIONS.items():
        yield f"\n{title}\n"
        found = [one for one in known if one.status is status]
        for reason in dict.fromkeys(one.reason for one in found):
            yield f"\n**{reason}**\n\n"
            yield from (_row(one) for one in found if one.reason == reason)


def _row(one: Requirement) -> str:
    places = ", ".join(_link(source) for source in one.sources)
    return f"- {one.sentence} (`{one.id}`, {' and '.join(sorted(one.sides))}; {places})\n"


def _link(source: Source) -> str:
    return f"[{source.revision} {source.section}]({source.address})"
