"""How the card declares the bridge's extension, and the extension's metadata keys."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.a2a.model.objects import AgentExtension
from bridge.translate.extensions import bridge as extension
from bridge.translate.extensions.bridge import URI, declaration
from tests.support.tools import tool_of

pytestmark = pytest.mark.proves("map-extension-card")

LISTED: dict[str, Any] = {
    "name": "echo",
    "title": "Echo",
    "description": "Gives it back",
    "inputSchema": {"type": "object", "$comment": "kept", "properties": {"x": {"default": None}}},
    "outputSchema": {"type": "object"},
    "annotations": {"readOnlyHint": True, "tomorrow": 1},
    "icons": [{"src": "https://example.com/i.png"}],
    "_meta": {"example.com/x": None},
}


@pytest.mark.proves("map-extension-card", "a2a-3.3.4-extensions", "a2a-4.6.3-new-uri")
def test_the_extension_lists_every_tool_as_its_server_does() -> None:
    bare = {"name": "bare", "inputSchema": {}}
    found = declaration(
        [("echo", tool_of({**LISTED, "execution": {"task": "x"}})), ("other-id", tool_of(bare))]
    )
    assert found == AgentExtension(
        uri="urn:mcp-a2a:tool:v1",
        description="The MCP tools behind the skills, and their results block by block",
        required=False,
        params={"tools": {"echo": LISTED, "other-id": bare}},
    )


def test_without_tools_the_extension_is_still_declared() -> None:
    assert declaration([]).params == {"tools": {}}


def test_every_metadata_key_starts_with_the_uri_and_keys_for_the_extension_are_gated() -> None:
    names = ("skill", "arguments", "block", "progress", "question", "answer", "occasions", "peer")
    assert [getattr(extension, name.upper()) for name in names] == [f"{URI}/{name}" for name in names]
    assert {f"{URI}/block": URI, f"{URI}/occasions": URI} == extension.GATED
