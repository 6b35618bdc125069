"""A thousand deaths of a tool server, under load."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.kills import kill_often
from tests.support.processes import PROC


@pytest.mark.slow
@pytest.mark.skipif(not PROC.is_dir(), reason="processes and descriptors are looked up in /proc")
@pytest.mark.proves("map-lost", "mcp-no-leak")
async def test_a_server_that_is_killed_a_thousand_times_leaves_no_call_unanswered_and_nothing_behind(
    tmp_path: Path,
) -> None:
    tally = await kill_often(1000, str(tmp_path / "tasks.db"))
    print(tally)
    assert tally.kills >= 1000
    tally.check()
