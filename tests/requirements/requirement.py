"""What a requirement is: one sentence that the bridge has to keep, where it stands, and how far the bridge keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Revision(StrEnum):
    """What a requirement holds for."""

    A2A_1_0 = "A2A 1.0"
    A2A_0_3 = "A2A 0.3"
    A2A_0_1 = "A2A 0.1"
    MCP_2025_11_25 = "MCP 2025-11-25"
    MCP_2026_07_28 = "MCP 2026-07-28"
    MCP_TASKS = "MCP tasks extension"
    DESIGN = "The bridge's own design"


class Side(StrEnum):
    """Whom a requirement falls to. The bridge is each of the first three towards somebody."""

    AGENT = "agent"
    CLIENT = "client"
    SERVER = "server"
    BRIDGE = "bridge"
    """All of it: what is no protocol's."""


class Status(StrEnum):
    """How far the bridge keeps a requirement."""

    CLAIMED = "claimed"
    """It keeps it, and a test proves it."""
    DEFERRED = "deferred"
    """It does not yet do what the requirement is about, and says so to its peers."""
    DIVERGES = "diverges"
    """It does something else, and the reason says why."""


_SIDES: Final[Mapping[Revision, frozenset[Side]]] = {
    Revision.A2A_1_0: frozenset({Side.AGENT, Side.CLIENT}),
    Revision.A2A_0_3: frozenset({Side.AGENT, Side.CLIENT}),
    Revision.A2A_0_1: frozenset({Side.AGENT, Side.CLIENT}),
    Revision.MCP_2025_11_25: frozenset({Side.SERVER, Side.CLIENT}),
    Revision.MCP_2026_07_28: frozenset({Side.SERVER, Side.CLIENT}),
    Revision.MCP_TASKS: frozenset({Side.SERVER, Side.CLIENT}),
    Revision.DESIGN: frozenset(Side),
}
"""The sides that there are in each."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where a sentence stands."""

    revision: Revision
    section: str
    """As its document calls it: a number, a page with its heading, the title of a page."""
    address: str
    """A URL, or the path of a page of this repository."""

    def __post_init__(self) -> None:
        if not self.section or not self.address:
            raise ValueError(f"a source of {self.revision} has no section or no address")


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One sentence of a specification, or of our design."""

    id: str
    sources: tuple[Source, ...]
    """More than one where both revisions of MCP ask for the same."""
    sentence: str
    sides: frozenset[Side]
    status: Status = Status.CLAIMED
    reason: str = ""
    """Why it is deferred, or in which way the bridge diverges."""

    def __post_init__(self) -> None:
        if not (self.id and self.sources and self.sentence and self.sides):
            raise ValueError(f"{self.id or 'a requirement'} is not whole")
        if self.sentence.endswith("."):
            raise ValueError(f"{self.id}: the sentence goes without its full stop")
        if bool(self.reason) is (self.status is Status.CLAIMED):
            raise ValueError(f"{self.id}: a reason belongs to what is deferred or diverges")
        for source in self.sources:
            if strange := self.sides - _SIDES[source.revision]:
                raise ValueError(f"{self.id}: {source.revision} knows no {', '.join(sorted(strange))}")

    @property
    def revisions(self) -> tuple[Revision, ...]:
        """What it holds for."""
        return tuple(source.revision for source in self.sources)


def status_of(deferred: str, diverges: str) -> tuple[Status, str]:
    """The status that one of two reasons stands for, with that reason; claimed without any."""
    if deferred and diverges:
        raise ValueError("a requirement is deferred or diverges, not both")
    if deferred:
        return Status.DEFERRED, deferred
    return (Status.DIVERGES, diverges) if diverges else (Status.CLAIMED, "")
