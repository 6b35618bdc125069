"""What is served: both halves over one file, for an honest and a hostile principal, with good and bad servers behind.

raw, asking                   agents `tools` and `asks`, and `tools` as the MCP server `team`: everyone calls them
flooding, scripted, worse     agents `floods`, `says` and `worse`, which only attacks call
packed                        an HTTP server whose results unpack to far more than they weigh
crowd                         an agent with thousands of skills, as the MCP server `crowd`
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

from tests.support.asking import asking_argv
from tests.support.running import RAW_SERVER

FILE: Final = "bridge.toml"
PRINCIPALS: Final = ("honest", "hostile")

_HOSTILE: Final = Path(__file__).parents[1]
_COMMANDS: Final = {
    "raw": [sys.executable, str(RAW_SERVER)],
    "flooding": [sys.executable, str(_HOSTILE / "flooding_server.py")],
    "scripted": [sys.executable, str(_HOSTILE / "scripted_server.py")],
    "worse": [sys.executable, str(RAW_SERVER), "--bad-tools"],
}
_ASKING: Final = f"""\
command = {json.dumps(asking_argv("legacy"))}
era = 'legacy'
session = 'principal'
session_idle_seconds = 60
"""
"""Over stdio such a server does not say of which call its question is: each principal has a session of its own."""

_AGENTS: Final = {
    "tools": "raw",
    "asks": "asking",
    "floods": "flooding",
    "says": "scripted",
    "worse": "worse",
    "packed": "packed",
}


def file_text(peers_url: str, turn: int = 0) -> str:
    """The file; every turn has another title, and every second one the crowd."""
    tables = ["[bridge]\nstore = 'tasks.db'\nkeys = [{ file = 'handle.key' }]\n"]
    tables += [f"[principals.{name}]\nbearer = {{ file = '{name}.token' }}\n" for name in PRINCIPALS]
    tables += [
        f"[tool_servers.{name}]\ncommand = {json.dumps(words)}\nera = 'legacy'\n"
        for name, words in _COMMANDS.items()
    ]
    tables.append("[tool_servers.asking]\n" + _ASKING)
    tables.append(f"[tool_servers.packed]\nurl = '{peers_url}/mcp'\nera = 'legacy'\n")
    tables += [f"[tools_as_agent.{name}]\nfrom = ['{server}']\n" for name, server in _AGENTS.items()]
    tables.append(f"[agents_as_tools.team]\nfrom = ['tools']\ntitle = 'The team, {turn}'\n")
    if turn % 2 == 0:
        tables.append(f"[agents.crowd]\ncard = '{peers_url}'\n[agents_as_tools.crowd]\nfrom = ['crowd']\n")
    return "".join(tables)


def write_file(folder: Path, text: str) -> None:
    """Put it in its place in one step, as editors do."""
    new = folder / "new.tmp"
    new.write_text(text)
    new.replace(folder / FILE)


def token_of(folder: Path, principal: str) -> str:
    """What a principal shows."""
    return (folder / f"{principal}.token").read_text()
