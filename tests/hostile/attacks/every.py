"""All attacks."""

from __future__ import annotations

from typing import Final

from tests.hostile.attacks import agents, bodies, principals, schemas, stores, strangers, tool_servers
from tests.hostile.attacks.attack import Attack

ATTACKS: Final[tuple[Attack, ...]] = (
    *strangers.ATTACKS,
    *bodies.ATTACKS,
    *tool_servers.ATTACKS,
    *agents.ATTACKS,
    *principals.ATTACKS,
    *schemas.ATTACKS,
    *stores.ATTACKS,
)
