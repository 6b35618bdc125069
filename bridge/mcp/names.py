"""What both sides of MCP call by name: methods and extensions."""

from __future__ import annotations

from typing import Final, Literal

ELICIT: Final[Literal["elicitation/create"]] = "elicitation/create"
"""The server asks the user something (client/elicitation)."""

TASKS_EXTENSION: Final = "io.modelcontextprotocol/tasks"
"""Calls that become tasks (ext-tasks)."""
