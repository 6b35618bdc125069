"""The A2A extension of this bridge, and the metadata keys that start with its URI.

A client that activates the extension gets the tools as their server lists them and the content blocks as the server
sent them, so it can pass both on unchanged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from bridge.a2a.model import operators, progress
from bridge.a2a.model.objects import AgentExtension, Message
from bridge.mcp.tools import Tool
from bridge.text.jsonvalues import JsonObject
from bridge.text.safe_text import icon_link

URI: Final = "urn:mcp-a2a:tool:v1"

SKILL: Final = operators.SKILL_KEY
"""The id of the skill that a message is for, or that a task ran."""
EXPLAIN: Final = f"{URI}/explain"
"""In the place of a skill's id: the agent says what the message means, and runs nothing. A bridge that does not know
this id has no skill of that name, and runs nothing, either."""
ARGUMENTS: Final = f"{URI}/arguments"
"""The arguments of the call."""
BLOCK: Final = f"{URI}/block"
"""The fields of a content block that its part cannot hold. Only for clients that activated the extension."""
PROGRESS: Final = progress.PROGRESS
"""The numbers of a progress notification: {"progress", "total"?}."""
QUESTION: Final = f"{URI}/question"
"""The key of the question that a message asks or answers."""
RESPONSES: Final = f"{URI}/responses"
"""The `inputResponses` with which a host of MCP 2026-07-28 made the call before it was asked."""
ANSWER: Final = f"{URI}/answer"
"""The action of an answer: accept, decline or cancel."""
OCCASIONS: Final = f"{URI}/occasions"
"""An id for each time that a question of a part was asked, by the question's key. The id stays as long as the question
is open. A later question may have the same key, but never the same occasion. Only for clients that activated the
extension."""
UNATTRIBUTED: Final = f"{URI}/unattributed"
"""A note in a task's last message: the server asked a question that may have belonged to this task."""
UNUSED: Final = f"{URI}/unused"
"""A note in a task's message: messages that arrived while the task worked had no effect."""
BESIDE: Final = f"{URI}/beside"
"""A note in a task's message: other tasks of its context wait for an answer."""
LOST_SESSION: Final = f"{URI}/lost-session"
"""A note in a task's message: the server session of the task's context or principal was lost."""
MODEL: Final = f"{URI}/model"
"""The model that was asked what a text means: {"model", "outcome", "tokens", "seconds"}; in rounds also the "round" of
a call, and at the end the "calls". On a part: its text is the words of a model."""
MESSAGE: Final = f"{URI}/message"
"""On a part of a prompt's answer: the other fields of its message, such as {"role"}."""
REMARKS: Final = (UNATTRIBUTED, UNUSED, BESIDE, LOST_SESSION)
"""The metadata keys of the bridge's own notes. The message also has a part with the words of each note."""
PEER: Final = f"{URI}/peer"
"""The peer's own metadata, nested so that it cannot be mistaken for the bridge's metadata."""

GATED: Final[Mapping[str, str]] = {BLOCK: URI, OCCASIONS: URI}
"""Metadata keys that are sent only when the extension is active."""

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
    """The declaration of the extension on the card: each tool as its server lists it, by its skill id."""
    listed: JsonObject = {skill_id: declared_tool(tool) for skill_id, tool in tools}
    return AgentExtension(
        uri=URI,
        description="The MCP tools behind the skills, and their results block by block",
        required=False,
        params={"tools": listed},
    )


def declared_tool(tool: Tool) -> JsonObject:
    """A tool as its server lists it, without icons that a client may not show."""
    declared: JsonObject = {key: tool.listed[key] for key in _LISTED if key in tool.listed}
    if isinstance(icons := declared.get("icons"), list):
        declared["icons"] = [
            icon for icon in icons if isinstance(icon, dict) and icon_link(str(icon.get("src"))) is not None
        ]
    return declared


def early_responses(message: Message, activated: Collection[str]) -> JsonObject:
    """The answers with which a host made a call before it was asked; none without the extension. They are unread."""
    responses = (message.metadata or {}).get(RESPONSES) if URI in activated else None
    return responses if isinstance(responses, dict) else {}
