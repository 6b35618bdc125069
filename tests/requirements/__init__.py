"""What the bridge has to keep: each MUST of the protocols that falls to it, and each sentence of its own design.

A test is marked `@pytest.mark.proves("id", ...)`, a whole file with `pytestmark`. What is claimed has a test, and the
tests of the folders that are named in `exemptions` have a mark or a reason to go without: tests/test_requirements.py
looks at both. docs/conformance.md lists what is deferred and where the bridge diverges.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from tests.requirements.a2a import A2A
from tests.requirements.a2a_0_1 import A2A_0_1
from tests.requirements.a2a_0_3 import A2A_0_3
from tests.requirements.mapping import MAPPING
from tests.requirements.mcp import MCP
from tests.requirements.mcp_2025_11_25 import MCP_2025_11_25
from tests.requirements.mcp_2026_07_28 import MCP_2026_07_28
from tests.requirements.mcp_tasks import MCP_TASKS
from tests.requirements.oauth import OAUTH
from tests.requirements.requirement import Requirement


def by_id(requirements: Iterable[Requirement]) -> Mapping[str, Requirement]:
    """The requirements, each under its id.

    Raises:
        ValueError: two have the same id.
    """
    found: dict[str, Requirement] = {}
    for requirement in requirements:
        if requirement.id in found:
            raise ValueError(f"two requirements are called {requirement.id}")
        found[requirement.id] = requirement
    return found


REQUIREMENTS: Final = by_id(
    (*A2A, *A2A_0_3, *A2A_0_1, *MCP, *MCP_2025_11_25, *MCP_2026_07_28, *MCP_TASKS, *MAPPING, *OAUTH)
)
