"""The log messages of MCP servers: their levels, and what a message has. Pure.

Spec: MCP 2026-07-28 and 2025-11-25 server/utilities/logging.
"""

from __future__ import annotations

from typing import Final

from pydantic import JsonValue

from bridge.text.jsonvalues import JsonObject

LOG: Final = "notifications/message"
SET_LEVEL: Final = "logging/setLevel"
"""The request of MCP 2025-11-25 and older that sets the level for a session."""
LEVEL_META: Final = "io.modelcontextprotocol/logLevel"
"""The key in `_meta` of a request of MCP 2026-07-28 that asks for its log messages."""

LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""The levels of RFC 5424 that MCP has, the least severe first."""
_FIELDS: Final[tuple[str, ...]] = ("level", "logger", "data", "_meta")


def is_at_least(level: JsonValue, least: str) -> bool:
    """Whether a level is `least` or more severe. A level that MCP does not have is none."""
    return level in LEVELS and LEVELS.index(str(level)) >= LEVELS.index(least)


def log_message(params: JsonObject, least: str) -> JsonObject | None:
    """The fields of a log message, as they were sent; None for a message below `least`, or of another form."""
    if not is_at_least(params.get("level"), least) or "data" not in params:
        return None
    message = {name: params[name] for name in _FIELDS if name in params}
    return message if isinstance(message.get("logger", ""), str) else None


def note_of_left_out(number: int, why: str) -> JsonObject:
    """A log message of the bridge itself, in place of messages that it leaves out."""
    words = f"{number} log message{'s were' if number > 1 else ' was'} left out: {why}"
    return {"level": "warning", "logger": "mcp-a2a", "data": words}
