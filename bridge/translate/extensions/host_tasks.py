"""Whether the host of a call takes tasks of MCP: the extension with which an agent leaves this to the host. Pure.

The bridge takes tasks of a tool server in place of its clients, so a tool that can only be called as a task serves all
of them. An agent that shares tasks with this extension declares the tasks extension of MCP to a server of 2026-07-28
only if the client of the call does not say that it takes none. The server's refusal (-32021) then reaches the host.

Spec: A2A 1.0 section 4.6 (extensions); the tasks extension of MCP, capability negotiation.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from pydantic import JsonValue

from bridge.a2a.model.objects import AgentExtension, Message

URI: Final = "urn:mcp-a2a:tasks:v1"
TAKEN: Final = f"{URI}/taken"
"""In the metadata of a message: false if the host of the call takes no tasks of MCP."""


def declaration() -> AgentExtension:
    """The declaration on the card."""
    return AgentExtension(
        uri=URI, description="Whether a tool may need tasks is left to its MCP server", required=False
    )


def takes_tasks(message: Message, metadata: Mapping[str, JsonValue], activated: Collection[str]) -> bool:
    """Whether the call of a message may become a task of its server. `metadata` is that of the A2A request."""
    return URI not in activated or (message.metadata or {}).get(TAKEN, metadata.get(TAKEN)) is not False


def without_tasks(message: Message) -> Message:
    """A message for a host that takes no tasks."""
    extensions = dict.fromkeys((*(message.extensions or ()), URI))
    return message.changed(metadata={**(message.metadata or {}), TAKEN: False}, extensions=tuple(extensions))
