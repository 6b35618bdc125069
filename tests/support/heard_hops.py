"""A listener that keeps the hops of a test, in the order in which they end."""

from __future__ import annotations

from dataclasses import dataclass, field

from bridge.trace import Hop, Hops


@dataclass
class HeardHops:
    """Implements `HopListener`."""

    begun: list[Hop] = field(default_factory=list)
    ended_hops: list[Hop] = field(default_factory=list)

    def began(self, hop: Hop) -> None:
        """See `HopListener`."""
        self.begun.append(hop)

    def ended(self, hop: Hop) -> None:
        """See `HopListener`."""
        self.ended_hops.append(hop)

    def waited(self, hop: Hop, peer: str, seconds: float) -> None:
        """See `HopListener`."""

    @property
    def hops(self) -> Hops:
        """Hops that this listens to."""
        return Hops((self,))

    @property
    def outcomes(self) -> list[tuple[str, str]]:
        """The method and the outcome of each hop that has ended."""
        return [(one.method, one.outcome) for one in self.ended_hops]
