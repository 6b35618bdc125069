"""The memory of tool servers: one file, and the bridges that share it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bridge.mcp.client.eras import Era
from bridge.mcp.client.known_servers import Fact, KnownServer, ServerMemory, forget_servers, remembered_in

pytestmark = pytest.mark.proves("mcp-remembered")


def test_facts_that_a_person_removes_do_not_come_back_with_the_next_write(tmp_path: Path) -> None:
    file = tmp_path / "servers.json"
    running = ServerMemory(file)
    running.remember(Fact.SERIAL, "a", "yes")
    (known,) = remembered_in(file)
    forget_servers(file, {known.server_id})
    running.remember(Fact.SERIAL, "a", "yes")
    running.remember(Fact.ERA, "b", Era.LEGACY)
    assert [one.facts for one in remembered_in(file)] == [{"era": "legacy"}]
    assert running.recall(Fact.SERIAL, "a") == "yes", "a bridge that runs goes on as it began"
    assert ServerMemory(file).recall(Fact.SERIAL, "a") is None


def test_bridges_that_share_a_file_keep_each_others_facts(tmp_path: Path) -> None:
    file = tmp_path / "servers.json"
    ServerMemory(file).remember(Fact.TRANSPORT, "c", "http-sse")
    one, other = ServerMemory(file), ServerMemory(file)
    one.remember(Fact.ERA, "a", Era.LEGACY)
    other.remember(Fact.ERA, "b", Era.MODERN)
    other.forget(Fact.TRANSPORT, "c")
    one.remember(Fact.NAME, "a", "Anna")
    assert [one.facts for one in remembered_in(file)] == [
        {"era": "legacy", "name": "Anna"},
        {"era": "modern"},
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["servers.json"]


def test_the_facts_of_a_server_are_stored_under_an_opaque_id(tmp_path: Path) -> None:
    file = tmp_path / "servers.json"
    memory = ServerMemory(file)
    for server in ("a --token x", "b"):
        memory.remember(Fact.ERA, server, Era.LEGACY)
    memory.remember(Fact.NAME, "a --token x", "Anna")
    ids = [key.partition(":")[2] for key in json.loads(file.read_text())][:2]
    assert remembered_in(file) == [
        KnownServer(ids[0], {"era": "legacy", "name": "Anna"}),
        KnownServer(ids[1], {"era": "legacy"}),
    ]
    assert "token" not in file.read_text()


@pytest.mark.parametrize("content", ["[1]", "{", "\x00"])
async def test_an_invalid_memory_file_starts_empty(content: str, tmp_path: Path) -> None:
    file = tmp_path / "servers.json"
    file.write_text(content)
    ServerMemory(file).remember(Fact.ERA, "a", Era.LEGACY)
    assert ServerMemory(file).recall(Fact.ERA, "a") == Era.LEGACY


async def test_a_memory_file_that_cannot_be_written_has_no_other_effect(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    memory = ServerMemory(tmp_path / "file" / "servers.json")
    memory.remember(Fact.ERA, "a", Era.LEGACY)
    assert memory.recall(Fact.ERA, "a") == Era.LEGACY
    assert "cannot remember what a is" in caplog.text
