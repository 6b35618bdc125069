"""Replicas that offer one MCP server to clients of 2025-11-25: any of them answers for a session of any other."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.face_replicas import Balancer, face_replicas, sdk_client

pytestmark = pytest.mark.proves("replicas-one-server")


def words(result: Any) -> str:
    """The texts of a result."""
    return "\n".join(block.text for block in result.content if block.type == "text")


async def test_a_client_initializes_lists_and_calls_at_different_replicas() -> None:
    async with face_replicas(3) as group:
        balancer = Balancer(group.made)
        async with sdk_client(balancer) as client:
            assert client.protocol_version == "2025-11-25"
            names = {tool.name for tool in (await client.list_tools()).tools}
            assert {"echo", "ask"} <= names
            said = [words(await client.call_tool("echo", {"text": str(n)})) for n in range(4)]
            assert said == ["0", "1", "2", "3"]
        assert len({url for _, url in balancer.sent}) == 3
