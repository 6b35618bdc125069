"""The MCP inspector has nothing to say about the schemas of the tools that we list, in either era."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.conformance.agent import FixtureAgent, build_app
from tests.conformance.wanted_tools import TOOLS
from tests.peers.node import inspector_command, require_peers
from tests.peers.sdk_behaviours import SKILLS
from tests.support.exposing import exposing
from tests.support.foreign import foreign_agent
from tests.support.running import listening

pytestmark = pytest.mark.long

WAIT_SECONDS = 60
FOLLOW_UPS = {"task_result", "task_reply", "task_cancel"}
LISTED = {
    "skill": {skill.replace("-", "_") for skill in SKILLS} | set(TOOLS) | FOLLOW_UPS,
    "agent": {"behaviours", "fixture"} | FOLLOW_UPS,
    "search": {"find_skill", "call_skill"} | FOLLOW_UPS,
}
"""What is listed of an agent without our extension and of one with it, by how they are cut into tools."""


async def inspected(url: str, folder: Path, era: str) -> subprocess.CompletedProcess[bytes]:
    """What the inspector says about the tools of a server."""
    options = ["--transport", "http", "--server-url", url, "--protocol-era", era, "--format", "json"]
    command = inspector_command(*options, "--method", "tools/list", "--strict")
    with anyio.fail_after(WAIT_SECONDS):
        return await anyio.run_process(
            command, check=False, stdin=subprocess.DEVNULL, env={**os.environ, "HOME": str(folder)}
        )


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("granularity", ["skill", "agent", "search"])
async def test_the_inspector_finds_nothing_wrong_with_our_schemas(
    granularity: str, era: str, tmp_path: Path
) -> None:
    require_peers()
    ours = FixtureAgent()
    async with listening(build_app(ours)) as url, foreign_agent() as foreign:
        ours.url = url
        async with exposing(tmp_path, url, foreign.url, granularity=granularity) as there:
            done = await inspected(there.url, tmp_path, era)
    assert (done.returncode, done.stderr) == (0, b"")
    said: dict[str, Any] = json.loads(done.stdout)
    assert said.keys() == {"result"}
    assert {tool["name"] for tool in said["result"]["tools"]} == LISTED[granularity]
