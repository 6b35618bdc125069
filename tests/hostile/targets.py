"""All that is attacked."""

from __future__ import annotations

from typing import Final

from tests.hostile import a2a_faces, agent_cards, agents, framing, mcp_faces, results, schemas, servers
from tests.hostile.target import Target

TARGETS: Final[tuple[Target, ...]] = (
    *a2a_faces.TARGETS,
    *mcp_faces.TARGETS,
    *framing.TARGETS,
    *schemas.TARGETS,
    *results.TARGETS,
    *servers.TARGETS,
    *agent_cards.TARGETS,
    *agents.TARGETS,
)
