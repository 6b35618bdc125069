"""A second small MCP server, for the examples: notes in memory, one tool of which destroys something."""

from __future__ import annotations

from typing import Annotated

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import Field

server = MCPServer(
    "notes", version="1.0", instructions="Keeps notes as long as it runs.", log_level="CRITICAL"
)
notes: dict[str, list[str]] = {}

Folder = Annotated[str, Field(description="Where the note is kept", examples=["inbox"])]


@server.tool()
def add_note(
    text: Annotated[str, Field(description="What to remember", examples=["Buy milk"])], folder: Folder
) -> str:
    """Keep a note."""
    notes.setdefault(folder, []).append(text)
    return f"Noted in {folder}: {text}"


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def list_notes(folder: Folder) -> list[str]:
    """List the notes of a folder."""
    return notes.get(folder, [])


@server.tool(annotations=ToolAnnotations(destructive_hint=True))
def delete_notes(folder: Folder) -> str:
    """Delete all notes of a folder."""
    if folder not in notes:
        raise ToolError(f"there is no folder {folder}")
    return f"Deleted {len(notes.pop(folder))} from {folder}"


if __name__ == "__main__":
    server.run("stdio")
