"""One log line for each call: who called what, of which peer, how it ended, how long it took, and its trace.

A call is a message to an agent or a tools/call. Arguments, results and words of peers are in none of these lines. A
request that was refused before it was known what it asks for has a line as well.
"""

from __future__ import annotations

import logging
from typing import Final

from bridge.trace import Hop

logger = logging.getLogger(__name__)

_CALLS: Final = frozenset({"SendMessage", "SendStreamingMessage", "tools/call", ""})
"""The methods that are calls; the last one stands for what was refused before its method was known."""


_FIELDS: Final = ("principal", "face", "skill", "peer", "state", "ms", "trace")
_LINE: Final = " ".join(f"{name}=%s" for name in _FIELDS)


class CallLog:
    """Writes the lines."""

    def began(self, hop: Hop) -> None:
        """See `HopListener`."""

    def waited(self, hop: Hop, peer: str, seconds: float) -> None:
        """See `HopListener`."""

    def ended(self, hop: Hop) -> None:
        """Write the line of a call that a face took."""
        if hop.side != "server" or hop.method not in _CALLS or not logger.isEnabledFor(logging.INFO):
            return
        ms = round(hop.seconds * 1000, 1)
        values = (hop.principal, hop.face, hop.skill, hop.peer, hop.outcome, ms, hop.trace_id)
        words = _LINE % tuple("-" if value == "" else value for value in values)
        logger.info(words, extra={"fields": dict(zip(_FIELDS, values, strict=True))})
