"""Log messages of MCP servers over A2A: the extension with which an agent passes them on to the client of a call. Pure.

A client asks for the log messages of a call with `LEVEL` in the metadata of its message. They come in the metadata of
status updates of the task, under `MESSAGES`: a list of MCP's own `{"level", "logger"?, "data"}`, to the letter.

Spec: A2A 1.0 section 4.6 (extensions); MCP 2026-07-28 and 2025-11-25 server/utilities/logging.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from pydantic import JsonValue

from bridge.a2a.model.objects import AgentExtension, Message
from bridge.mcp.log_messages import LEVELS, log_message
from bridge.text.jsonvalues import JsonObject

URI: Final = "urn:mcp-a2a:logging:v1"
LEVEL: Final = f"{URI}/level"
"""In the metadata of a message: the least severe level of the log messages that the client wants."""
MESSAGES: Final = f"{URI}/messages"
"""In the metadata of a status update: log messages, in their order. Only for clients that activated the extension."""

GATED: Final[Mapping[str, str]] = {MESSAGES: URI}
"""Metadata keys that are sent only when the extension is active."""


def declaration() -> AgentExtension:
    """The declaration on the card."""
    return AgentExtension(
        uri=URI, description="Log messages of the MCP servers behind this agent, for a call", required=False
    )


def level_asked(
    message: Message, metadata: Mapping[str, JsonValue], activated: Collection[str]
) -> str | None:
    """The level that a message asks for; None if it asks for no log messages. `metadata` is that of the A2A request."""
    if URI not in activated:
        return None
    level = (message.metadata or {}).get(LEVEL, metadata.get(LEVEL))
    return str(level) if level in LEVELS else None


def with_level(message: Message, level: str) -> Message:
    """A message that asks for log messages."""
    extensions = dict.fromkeys((*(message.extensions or ()), URI))
    return message.changed(metadata={**(message.metadata or {}), LEVEL: level}, extensions=tuple(extensions))


def metadata_of_messages(messages: Iterable[JsonObject]) -> JsonObject:
    """The metadata of a status update with these log messages."""
    return {MESSAGES: [*messages]}


def messages_in(metadata: Mapping[str, JsonValue] | None, least: str) -> list[JsonObject]:
    """The log messages in the metadata of a status update. Any agent may have written it, so entries of another form
    are skipped, as are those below `least`."""
    listed = (metadata or {}).get(MESSAGES)
    read = (
        (log_message(entry, least) for entry in listed if isinstance(entry, dict))
        if isinstance(listed, list)
        else ()
    )
    return [message for message in read if message is not None]
