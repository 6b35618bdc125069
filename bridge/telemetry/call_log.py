"""One log line for each call: the caller, the skill, the peer, the outcome, the duration and the trace.

A call is a message to an agent or a tools/call. The lines contain no arguments, results or messages of peers. A request
that was refused before its method was known gets a line too.

A line is written shortly after its call has ended, together with the lines of other calls, and carries the time of that
end. Under load this costs a third of writing each line at once.
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
"""The methods that are calls. An empty method means that a request was refused before its method was known."""
_WAIT_SECONDS: Final = 0.05
"""How long a line waits for further lines."""
_MOST_WAITING: Final = 256
"""The most lines that wait."""

_FIELDS: Final = ("principal", "face", "skill", "peer", "state", "ms", "trace")
_LINE: Final = " ".join(f"{name}=%s" for name in _FIELDS)
_NEEDS_QUOTES: Final = re.compile(r'[\s"]')


@dataclass(frozen=True, slots=True)
class _CallLine:
    """The content of a line."""

    ended: float
    """The end of the call, in seconds since the epoch."""
    call: str
    values: tuple[str | float, ...]
    owner: str
    """The owner of the task if another principal answered it; else empty."""

    def record(self, known: Mapping[str, Any]) -> logging.LogRecord:
        """The log record of the line; `known` has the attributes that all records share."""
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
    """A value in a line of text, quoted if necessary: names come from people and peers, and must not look like further
    fields."""
    if not isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False) if _NEEDS_QUOTES.search(value) else value or "-"


class CallLog:
    """Writes the lines. Use it only on an event loop."""

    def __init__(self) -> None:
        self._waiting: list[_CallLine] = []
        self._timer: asyncio.TimerHandle | None = None
        # Looking up the thread and the process takes longer than the rest of a record, so it is done once.
        fields = {"name": logger.name, "levelno": logging.INFO, "levelname": "INFO"}
        self._known = dict(vars(logging.makeLogRecord(fields)))

    def began(self, hop: Hop) -> None:
        """See `HopListener`."""

    def waited(self, hop: Hop, peer: str, seconds: float) -> None:
        """See `HopListener`."""

    def ended(self, hop: Hop) -> None:
        """Queue the line of a call to an endpoint."""
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
        """Write the waiting lines. Call it at the end too."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        lines, self._waiting = self._waiting, []
        for line in lines:
            logger.handle(line.record(self._known))
