"""The A2A extension of this bridge, and the metadata keys that start with its URI.

A client that activates it is shown the tools as their server lists them and the content blocks as the server
sent them, and so can give back exactly what it was given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from bridge.a2a.model.objects import AgentExtension
from bridge.jsonvalues import JsonObject
from bridge.mcp.tools import Tool

URI: Final = "urn:mcp-a2a:tool:v1"

SKILL: Final = f"{URI}/skill"
"""Which skill a message is for, or a task ran."""
ARGUMENTS: Final = f"{URI}/arguments"
"""The arguments of the call."""
BLOCK: Final = f"{URI}/block"
"""What a part's content block was beyond what the part says. Only for clients that activated the extension."""
PROGRESS: Final = f"{URI}/progress"
"""The numbers of a progress notification: {"progress", "total"?}."""
QUESTION: Final = f"{URI}/question"
"""The key of the question that a message asks or answers."""
ANSWER: Final = f"{URI}/answer"
"""How a question is answered: accept, decline or cancel."""
OCCASIONS: Final = f"{URI}/occasions"
"""Which time of asking each question of a part is, by its key: the same as long as it is open. Keys come back in
later questions; occasions do not. Only for clients that activated the extension."""
UNATTRIBUTED: Final = f"{URI}/unattributed"
"""What a task's last words say of a question that its server asked and that may have been about this task."""
UNUSED: Final = f"{URI}/unused"
"""What a task's words say of messages that came while it was at work, and that it made no use of."""
BESIDE: Final = f"{URI}/beside"
"""What a task's words say of others in its context that wait for an answer."""
REMARKS: Final = (UNATTRIBUTED, UNUSED, BESIDE)
"""Metadata of a task's last message: each key holds words of the bridge's own, which stand as a part as well."""
PEER: Final = f"{URI}/peer"
"""The other side's own metadata, nested so that nothing in it can pass for ours."""

GATED: Final[Mapping[str, str]] = {BLOCK: URI, OCCASIONS: URI}
"""Metadata keys that stay away until the extension is active, as `bridge.a2a.wire.extensions` takes them."""

_LISTED: Final = (
    "name",
    "title",
    "description",
    "inputSchema",
    "outputSchema",
    "annotations",
    "icons",
    "_meta",
)


def declaration(tools: Iterable[tuple[str, Tool]]) -> AgentExtension:
    """How the card declares the extension: every tool by its skill id, as its server lists it."""
    listed: JsonObject = {
        skill_id: {key: tool.listed[key] for key in _LISTED if key in tool.listed} for skill_id, tool in tools
    }
    return AgentExtension(
        uri=URI,
        description="The MCP tools behind the skills, and their results block by block",
        required=False,
        params={"tools": listed},
    )
