"""One log line for each call: who called what, of which peer, how it ended, how long it took, and its trace.

A call is a message to an agent or a tools/call. Arguments, results and words of peers are in none of these lines. A
request that was refused before it was known what it asks for has a line as well.
"""

from __future__ import annotations

import logging
from typing import Final

from bridge.errors import echoed
from bridge.trace import Hop

logger = logging.getLogger(__name__)

_CALLS: Final = frozenset({"SendMessage", "SendStreamingMessage", "tools/call", ""})
"""The methods that are calls; the last one stands for what was refused before its method was known."""


class CallLog:
    """Writes the lines."""

    def began(self, hop: Hop) -> None:
        """See `HopListener`."""

    def waited(self, hop: Hop, peer: str, seconds: float) -> None:
        """See `HopListener`."""

    def ended(self, hop: Hop) -> None:
        """Write the line of a call that a face took."""
        if hop.side != "server" or hop.method not in _CALLS:
            return
        fields = {
            "principal": hop.principal,
            "face": hop.face,
            "skill": hop.skill,
            "peer": hop.peer,
            "state": hop.outcome,
            "ms": round(hop.seconds * 1000, 1),
            "trace": hop.trace_id,
        }
        words = " ".join(
            f"{name}={echoed(str(value)) if value != '' else '-'}" for name, value in fields.items()
        )
        logger.info("%s", words, extra={"fields": fields})
