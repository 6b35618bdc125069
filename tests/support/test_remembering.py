"""What a bridge learns of a server in one test is not known in another."""

from __future__ import annotations

import pytest

from bridge.local.user_folders import cache_folder, state_folder
from bridge.mcp.client.known_servers import FILE_NAME, Fact, ServerMemory, remembered_in
from tests.support.asking import asking_command


@pytest.mark.parametrize("test", ["one", "another"])
def test_a_test_begins_with_nothing_learned_of_servers(test: str) -> None:
    file = state_folder() / FILE_NAME
    assert remembered_in(file) == []
    ServerMemory(file).remember(Fact.SERIAL, str(asking_command("legacy")), test)


@pytest.mark.parametrize("test", ["one", "another"])
def test_a_test_begins_with_nothing_kept_of_agents(test: str) -> None:
    folder = cache_folder()
    assert not folder.exists()
    folder.mkdir(parents=True)
    (folder / test).touch()
