"""What an attack is, what it is made on, and what it may cost."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final

import anyio
import httpx2

from tests.hostile.target import FindError
from tests.support.mcp_wire import MODERN, Http
from tests.support.running import RAW_SERVER, Rpc
from tests.support.small_disk import SmallDisk

MEGABYTE: Final = 1_000_000
FACE: Final = "honest"
"""The agent that the honest caller calls, and its tool server."""
HOSTILE: Final = "hostile"
"""What an attack connects to the bridge goes by this name."""
_OPERATOR: Final = "operator"
TOKENS: Final = {
    "honest": "the-token-of-the-honest-caller",
    "attacker": "the-token-of-the-attacker",
    _OPERATOR: "the-token-of-the-operator",
}
"""The principals, and what lets them in."""
_CONNECT_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 0.1


class Service(Enum):
    """What an attack may do to honest callers."""

    KEPT = "kept"
    """Nothing: each call of theirs completes."""
    PAUSED = "paused"
    """They may be refused, and told of tasks that could not be kept, while it lasts, and are served afterwards."""
    ENDED = "ended"
    """They are refused from then on, as nothing can be kept any more."""


@dataclass
class Scene:
    """A bridge that is attacked, with an honest caller on it."""

    port: int
    pid: int
    config: Path
    log: Path
    http: httpx2.AsyncClient
    disk: SmallDisk | None = None

    @property
    def store(self) -> Path:
        """The file that keeps the tasks of the honest caller's agent."""
        (found,) = (self.disk.folder if self.disk else self.config.parent).glob(f"*.{FACE}.db")
        return found

    def agent(self, face: str = FACE, principal: str = "attacker") -> Rpc:
        """An agent of the bridge, called by a principal."""
        url = f"http://127.0.0.1:{self.port}/agents/{face}"
        return Rpc(self.http, url, {"Authorization": f"Bearer {TOKENS[principal]}"})

    async def tool(self, face: str, method: str, params: dict[str, Any]) -> Any:
        """What an MCP server of the bridge answers to one request of the attacker."""
        server = Http(self.http, f"http://127.0.0.1:{self.port}/mcp/{face}", MODERN)
        message = server.message(1, method, params)
        said = await server.post(message, Authorization=f"Bearer {TOKENS['attacker']}")
        return json.loads(said.text.rpartition("data:")[2] or said.text)

    async def connect(self, toml: str) -> None:
        """Write more into the bridge's file, and wait until it serves by it."""
        changed = self.config.with_suffix(".new")
        changed.write_text(self.config.read_text() + toml)
        changed.replace(self.config)
        with anyio.fail_after(_CONNECT_SECONDS):
            while f'"{HOSTILE}"' not in (await self.readiness()).text:
                await anyio.sleep(_LOOK_SECONDS)

    async def connect_server(self, target: str, era: str = "legacy") -> Rpc:
        """Connect a tool server; the agent that is made of it."""
        server = f'\n[tool_servers.{HOSTILE}]\n{target}\nera = "{era}"\nfail = "open"\n'
        await self.connect(f'{server}[tools_as_agent.{HOSTILE}]\nfrom = ["{HOSTILE}"]\n')
        return self.agent(HOSTILE)

    async def connect_agent(self, url: str) -> None:
        """Connect an agent, and offer it as a tool server."""
        agent = f'\n[agents.{HOSTILE}]\ncard = "{url}"\n'
        await self.connect(f'{agent}[agents_as_tools.{HOSTILE}]\nfrom = ["{HOSTILE}"]\n')

    async def readiness(self) -> httpx2.Response:
        """What the bridge says of itself to an operator. It tells others its status alone."""
        headers = {"Authorization": f"Bearer {TOKENS[_OPERATOR]}"}
        return await self.http.get(f"http://127.0.0.1:{self.port}/readyz", headers=headers)


@dataclass(frozen=True)
class Attack:
    """One attack, and its bounds."""

    name: str
    make: Callable[[Scene], Awaitable[str]]
    """Makes it, and says what it came to; raises `FindError` when that is not what has to come of it."""
    service: Service = Service.KEPT
    most_bytes: int = 128 * MEGABYTE
    """What the process may take at most, above what it had before."""
    wait_most_seconds: float | None = None
    """How long an honest call may wait at most; as long as it likes if not said."""
    log_most_bytes: int = 200_000
    """What it may write into its log."""
    descriptors: int | None = None
    """How many files the process may open; as many as the machine allows if not said."""
    disk_bytes: int | None = None
    """The size of the disk that the store is on; that of the machine if not said."""


def file_of(port: int, store: str) -> str:
    """The bridge's file before anything hostile is connected."""
    principals = "".join(
        f'[principals.{name}]\nbearer = {{ file = "{name}.token" }}\n'
        + 'operator = "read"\n' * (name == _OPERATOR)
        for name in TOKENS
    )
    return f"""
[bridge]
port = {port}
store = "{store}"
{principals}
[tool_servers.{FACE}]
command = {json.dumps([sys.executable, str(RAW_SERVER)])}
era = "legacy"
[tools_as_agent.{FACE}]
from = ["{FACE}"]
[agents_as_tools.{FACE}]
from = ["{FACE}"]
"""


def require(holds: bool, what: object) -> None:
    """What has to come of an attack.

    Raises:
        FindError: it did not.
    """
    if not holds:
        raise FindError(str(what)[:2000])


def state_of(answer: httpx2.Response) -> str:
    """What became of a message: the state of its task, or the status and code of an error."""
    said = answer.json()
    if "error" in said:
        return f"{answer.status_code} {said['error'].get('code')}"
    return str(said["result"]["task"]["status"]["state"]).removeprefix("TASK_STATE_")
