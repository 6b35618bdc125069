"""The MCP bundle, as a host takes it: judged by npm's `@anthropic-ai/mcpb`, unpacked, and started with uv.

The host itself is not here: its form is played by putting the answers into the manifest's placeholders.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import anyio

from bridge.cli.install.server_trial import ServerStart, tools_of
from tests.peers.install import PEERS, node
from tests.run import ROOT
from tests.support.files import an_agent

JUDGE: Final = "@anthropic-ai/mcpb@2.1.2"
_SECONDS: Final = 300


def play(folder: Path) -> str:
    """Write a bundle into a folder, judge it and start it; gives a line about it.

    Raises:
        subprocess.CalledProcessError: the bundle was not written, or is refused.
        PeerError: the server of the bundle does not work.
    """
    file, unpacked = folder / "agent.mcpb", folder / "unpacked"
    with an_agent() as url:
        command = [
            sys.executable,
            "-P",
            "-m",
            "bridge",
            "install",
            "claude-desktop",
            "--bundle",
            str(file),
            url,
        ]
        subprocess.run(
            command, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True, timeout=_SECONDS
        )
        with zipfile.ZipFile(file) as archive:
            archive.extractall(unpacked)
        subprocess.run([*_judge(), "validate", str(unpacked / "manifest.json")], check=True, timeout=_SECONDS)
        start = start_of(unpacked, {"url": url})
        begun = time.monotonic()
        tools, words = anyio.run(tools_of, start)
    if not tools:
        raise RuntimeError(f"the bundle has no tools: {words}")
    names = ", ".join(sorted(tool.name for tool in tools))
    seconds = time.monotonic() - begun
    return (
        f"bundle: {file.stat().st_size:,} B, valid, started with uv in {seconds:.1f} s, its tools are {names}"
    )


def start_of(unpacked: Path, answers: Mapping[str, str]) -> ServerStart:
    """How a host starts the server of an unpacked bundle, with the answers to its form."""
    manifest = json.loads((unpacked / "manifest.json").read_text(encoding="utf-8"))
    config = manifest["server"]["mcp_config"]

    def filled(text: str) -> str:
        for key in manifest["user_config"]:
            text = text.replace(f"${{user_config.{key}}}", answers.get(key, ""))
        return text.replace("${__dirname}", str(unpacked))

    own = {name: filled(value) for name, value in config["env"].items()}
    return ServerStart(config["command"], [filled(word) for word in config["args"]], {**os.environ, **own})


def _judge() -> list[str]:
    """The command of the package that judges bundles, installed below `.peers`."""
    folder = PEERS / "mcpb"
    program = folder / "node_modules" / "@anthropic-ai" / "mcpb" / "dist" / "cli" / "cli.js"
    if not program.exists():
        folder.mkdir(parents=True, exist_ok=True)
        npm = ["npm", "install", "--no-fund", "--no-audit", "--prefix", str(folder), JUDGE]
        subprocess.run(npm, check=True, capture_output=True, timeout=_SECONDS)
    return [str(node()), str(program)]
