"""One log line for each call: who called what, of which peer, how it ended, how long it took, and its trace.

A call is a message to an agent or a tools/call. Arguments, results and words of peers are in none of these lines. A
request that was refused before it was known what it asks for has a line as well.

A line is written shortly after its call has ended, together with those of other calls, and has the time of that end.
Under load this costs a third of what it costs to write each line at once.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from bridge import trace
from bridge.trace import Hop

logger = logging.getLogger(__name__)

_CALLS: Final = frozenset({"SendMessage", "SendStreamingMessage", "tools/call", ""})
"""The methods that are calls; the last one stands for what was refused before its method was known."""
_WAIT_SECONDS: Final = 0.05
"""How long a line may wait for others."""
_MOST_WAITING: Final = 256
"""How many lines may wait."""

_FIELDS: Final = ("principal", "face", "skill", "peer", "state", "ms", "trace")
_LINE: Final = " ".join(f"{name}=%s" for name in _FIELDS)
_NEEDS_QUOTES: Final = re.compile(r'[\s"]')


@dataclass(frozen=True, slots=True)
class _CallLine:
    """What one line says."""

    ended: float
    """In seconds since the epoch."""
    call: str
    values: tuple[str | float, ...]
    owner: str
    """Whose task it is, if another than the principal answered it; else empty."""

    def record(self, known: Mapping[str, Any]) -> logging.LogRecord:
        """The line for the handlers; `known` is what all lines have."""
        words = _LINE % tuple(map(_spelled, self.values))
        fields = dict(zip(_FIELDS, self.values, strict=True))
        if self.owner:
            words += f" owner={_spelled(self.owner)} answered_by={_spelled(self.values[0])}"
            fields |= {"owner": self.owner, "answered_by": self.values[0]}
        made = logging.LogRecord.__new__(logging.LogRecord)
        made.__dict__.update(
            known,
            created=self.ended,
            msecs=math.floor(self.ended % 1 * 1000),
            msg=words,
            call=self.call,
            fields=fields,
        )
        return made


def _spelled(value: str | float) -> str | float:
    """A value in a line of text. Names are of people and peers: none of them may look like further fields."""
    if not isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False) if _NEEDS_QUOTES.search(value) else value or "-"


class CallLog:
    """Writes the lines. Only for use on an event loop."""

    def __init__(self) -> None:
        self._waiting: list[_CallLine] = []
        self._timer: asyncio.TimerHandle | None = None
        # To look up thread and process for each line takes longer than all else that a line takes.
        given = {"name": logger.name, "levelno": logging.INFO, "levelname": "INFO"}
        self._known = dict(vars(logging.makeLogRecord(given)))

    def began(self, hop: Hop) -> None:
        """See `HopListener`."""

    def waited(self, hop: Hop, peer: str, seconds: float) -> None:
        """See `HopListener`."""

    def ended(self, hop: Hop) -> None:
        """Note the line of a call that a face took."""
        if hop.side != "server" or hop.method not in _CALLS or not logger.isEnabledFor(logging.INFO):
            return
        ms = round(hop.seconds * 1000, 1)
        values = (hop.principal, hop.face, hop.skill, hop.peer, hop.outcome, ms, hop.trace_id)
        self._waiting.append(_CallLine(time.time(), trace.call_id.get(), values, hop.owner))
        if len(self._waiting) >= _MOST_WAITING:
            self.write()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_WAIT_SECONDS, self.write)

    def write(self) -> None:
        """Write the lines that wait. To be called at the end, too."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        lines, self._waiting = self._waiting, []
        for line in lines:
            logger.handle(line.record(self._known))
