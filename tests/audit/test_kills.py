"""An audit whose process is killed repeatedly at any moment: all promised lines are there, and the chain is intact.

`AUDIT_KILLS=1000 .venv/bin/python -m pytest tests/audit/test_kills.py` kills more often.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio
import pytest
from anyio.streams.text import TextReceiveStream

from bridge.audit.chain import NotALineError, line_from
from bridge.audit.file import AuditFile
from bridge.audit.verification import verified
from bridge.text.jsonvalues import JsonObject

pytestmark = [pytest.mark.outside, pytest.mark.slow]

KILLS: Final = int(os.environ.get("AUDIT_KILLS", "100"))
SEED: Final = 20261123
_PATIENCE_SECONDS: Final = 60


async def lived(path: Path, kill_after: float) -> list[int]:
    """Run the process, and kill it after a time. The lines that it reported are on the disk."""
    said = ""
    command = [sys.executable, "-m", "tests.support.audit_killed", str(path)]
    async with await anyio.open_process(command, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        stdout = TextReceiveStream(process.stdout)
        with anyio.fail_after(_PATIENCE_SECONDS):
            said = await stdout.receive()
            with anyio.move_on_after(kill_after):
                async for text in stdout:
                    said += text
            process.kill()
            async for text in stdout:
                said += text
            await process.wait()
    whole = said[: said.rindex("\n")].split("\n")
    return [int(line) for line in whole[1:]]


def whole_lines_of(path: Path) -> Iterator[JsonObject]:
    for line in path.read_bytes().splitlines():
        with suppress(NotALineError):
            yield line_from(line).entry


async def test_whenever_a_process_is_killed_its_promised_lines_are_in_a_whole_chain(tmp_path: Path) -> None:
    chance, path = random.Random(SEED), tmp_path / "audit.jsonl"
    promised: list[int] = []
    for _ in range(KILLS):
        promised += await lived(path, chance.uniform(0, 0.1))
    with AuditFile(path, 1 << 30) as file:
        file.append([{"event": "end"}], lasting=True)
    files = [path, *tmp_path.glob("audit.jsonl.0*")]
    found = verified(files)
    intents = {one["seq"] for path in files for one in whole_lines_of(path) if one["event"] == "intent"}
    assert (found.faults, set(promised) - intents, len(promised) == len(set(promised))) == ([], set(), True)
    assert len(promised) > KILLS
