"""The level of the log messages that each client wants.

A client of MCP 2025-11-25 or older sets the level for its session; one of 2026-07-28 names it in each request. A client
that has done neither gets no log messages.

Spec: MCP 2026-07-28 and 2025-11-25 server/utilities/logging.
"""

from __future__ import annotations

from mcp.server.connection import Connection

from bridge.errors import echoed
from bridge.mcp.log_messages import LEVEL_META, LEVELS
from bridge.mcp.server.face import INVALID_PARAMS, McpRefusal
from bridge.mcp.server.requests import Context, is_modern, param
from bridge.text.jsonvalues import JsonObject


class LogLevels:
    """The levels of the open sessions."""

    def __init__(self) -> None:
        self._of_session: dict[Connection, str] = {}

    async def set(self, context: Context) -> JsonObject:
        """Set the level of a session, as logging/setLevel asks."""
        connection = context.session._connection
        if connection not in self._of_session:
            connection.exit_stack.callback(self._of_session.pop, connection, None)
        self._of_session[connection] = _known(param(context, "level"))
        return {}

    def of(self, context: Context) -> str | None:
        """The level of a request; None if its client wants no log messages.

        Raises:
            McpRefusal: the request names a level that MCP does not have.
        """
        if not is_modern(context):
            return self._of_session.get(context.session._connection)
        level = (param(context, "_meta") or {}).get(LEVEL_META)
        return None if level is None else _known(level)


def _known(level: object) -> str:
    if level not in LEVELS:
        raise McpRefusal(
            INVALID_PARAMS, f"Invalid log level {echoed(str(level))}; the levels are {', '.join(LEVELS)}"
        )
    return str(level)
