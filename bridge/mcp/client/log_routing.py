"""Which call a log message of a server belongs to (notifications/message).

MCP names no call in a log message. On the response to a call over Streamable HTTP, a message belongs to this call. On
any other channel (stdio, a stream for notifications), it belongs to the only request that is under way, but only if the
session serves the principal of this call and nobody else: the server may still log about a call of somebody else that
has ended. All other messages are passed on to nobody.

Spec: MCP 2026-07-28 server/utilities/logging, basic/transports/stdio; 2025-11-25 basic/transports.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bridge.mcp.client.values import LogSink, ResponseParams
from bridge.mcp.log_messages import LEVELS, log_message


class LogRouter:
    """The calls on one connection whose clients want log messages."""

    def __init__(self) -> None:
        self._sinks: dict[int, LogSink] = {}
        """The wanted messages, by the ids of the requests."""
        self.level: str | None = None
        """The level that was set at a server of MCP 2025-11-25 or older; None if none was."""

    def begin(self, request_id: int, sink: LogSink) -> None:
        """Pass the messages of a call on."""
        self._sinks[request_id] = sink

    def end(self, request_id: int) -> None:
        """Pass the messages of a call on no longer."""
        self._sinks.pop(request_id, None)

    def level_with(self, level: str) -> str:
        """The level for all open calls and a further one: the least severe that is wanted."""
        return min((level, *(sink.level for sink in self._sinks.values())), key=LEVELS.index)

    def take(self, params: Mapping[str, Any], under_way: int) -> None:
        """Pass a message on to its call. `under_way` is the number of requests of the connection."""
        if isinstance(params, ResponseParams):
            sink = self._sinks.get(params.request_id)
        else:
            sink = next(iter(self._sinks.values()), None) if under_way == 1 else None
            sink = sink if sink is not None and sink.is_sole else None
        if sink is not None and (message := log_message(dict(params), sink.level)) is not None:
            sink.take(message)
