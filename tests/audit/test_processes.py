"""Audits of real processes: several processes with a chain each, and a standard output without a reader."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import anyio
import httpx2
import pytest

from tests.process.test_shared_listener import posix, serving
from tests.support.command import environment, run_here
from tests.support.forked import Forked
from tests.support.lines import WAIT_SECONDS, Lines
from tests.support.ports import free_port
from tests.support.processes import PROC
from tests.support.running import RAW_SERVER, call_part, message

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not PROC.is_dir(), reason="processes are looked up in /proc"),
]

_GIVEN_UP_SECONDS: Final = 3 * WAIT_SECONDS
"""The time for the test: the bridge waits three times for a reader, 10 seconds each, besides its start and end."""


@posix
@pytest.mark.anyio
async def test_each_process_at_one_socket_has_a_chain_of_its_own_that_is_whole_also_when_one_is_killed(
    tmp_path: Path,
) -> None:
    audit = "[audit]\nfile = 'audit.jsonl'\nrequired = true\nrotate_bytes = 65536\n"
    with serving(tmp_path, of_bridge=audit, audited=True) as bridge:
        for member in bridge.members:
            async with member.client() as client:
                for _ in range(60):
                    asked = message(call_part("echo", text="x"))
                    url = f"/agents/{bridge.agent}/message:send"
                    assert (
                        await client.post(url, json=asked, headers={"A2A-Version": "1.0"})
                    ).status_code == 200
        first, second = bridge.members
        first.process.kill()
        second.process.send_signal(signal.SIGTERM)
        assert await anyio.to_thread.run_sync(second.process.wait, WAIT_SECONDS) == 0
    for number in range(2):
        files = sorted(map(str, tmp_path.glob(f"audit-{number}.jsonl*")))
        assert len(files) > 2
        done = run_here("audit", "verify", *files, state=tmp_path)
        assert (done.returncode, done.stdout.startswith("the chain is whole")) == (0, True), done.stderr
    assert not (tmp_path / "audit.jsonl").exists()


@pytest.mark.anyio
async def test_a_bridge_whose_standard_output_nobody_reads_refuses_calls_and_ends(tmp_path: Path) -> None:
    port, file = free_port(), tmp_path / "bridge.toml"
    server = json.dumps([sys.executable, "-S", "-E", str(RAW_SERVER)])
    file.write_text(
        f"[bridge]\nport = {port}\n[tool_servers.raw]\ncommand = {server}\n[tools_as_agent.tools]\nfrom = ['raw']\n"
        "[audit]\nfile = '-'\nrequired = true\n"
    )
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    while True:  # all the room but that of the first lines
        try:
            os.write(writer, b"#" * 4096)
        except BlockingIOError:
            break
    os.set_blocking(writer, True)
    os.read(reader, 4096)
    words = [sys.executable, "-P", "-m", "bridge", "serve", str(file)]
    env = environment(tmp_path)
    with Forked(
        words, stdout=writer, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, env=env
    ) as p:
        try:
            with anyio.fail_after(_GIVEN_UP_SECONDS):
                await anyio.to_thread.run_sync(Lines(p, p.stderr).until, "Try it")
                async with httpx2.AsyncClient(timeout=_GIVEN_UP_SECONDS) as client:
                    url = f"http://127.0.0.1:{port}/agents/tools/message:send"
                    said, version = message(call_part("echo", text="x")), {"A2A-Version": "1.0"}
                    while (answer := await client.post(url, json=said, headers=version)).status_code == 200:
                        pass
                p.send_signal(signal.SIGTERM)
                await anyio.to_thread.run_sync(p.wait, _GIVEN_UP_SECONDS)
        finally:
            if p.poll() is None:
                p.kill()
            os.close(writer)
            os.close(reader)
    assert answer.status_code == 503
