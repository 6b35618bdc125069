"""A bridge whose agent has five tools and a scripted model."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import httpx2

from bridge.assembly.bridge import Bridge
from bridge.translate.extensions.bridge import MODEL
from tests.support.model_server import Answer, ModelServer
from tests.support.running import Rpc
from tests.support.serving_file import bridge_of_file
from tests.support.tool_server import ToolServer, listed

TEXT, NUMBER = {"type": "string"}, {"type": "number"}
FILE = """
[bridge]
port = 0
store = "memory:"
keys = [{ env = "KEY" }]

[model]
url = "{model}"
model = "m-1"
api_key = { env = "MODEL_KEY" }
{more}

[tool_servers.desk]
url = "{tools}"

[tools_as_agent.desk]
from = ["desk"]
language = "model"
skills.secret = { hidden = true }
"""
SECRETS = {"KEY": "k" * 40, "MODEL_KEY": "sk-of-the-bridge"}
ASKED = {"text": "I wonder how Ada should be welcomed"}
Api = Literal["openai", "anthropic"]


def tools() -> list[dict[str, Any]]:
    reads = {"readOnly": True}
    return [
        listed("greet", "who", hints=reads, who=TEXT),
        listed("trip", "kilometres", hints=reads, kilometres=NUMBER, speed=NUMBER),
        listed("wipe", "note", note=TEXT),
        listed("secret", hints=reads),
        listed("hold", hints=reads),
    ]


@dataclass
class Desk:
    rpc: Rpc
    tools: ToolServer
    model: ModelServer
    bridge: Bridge

    async def ask(self, text: str = ASKED["text"], **fields: Any) -> Any:
        return await self.rpc.send({"text": text}, **fields)

    async def on(self, task: Any, *parts: Any) -> Any:
        return await self.rpc.send(*parts, taskId=task["id"])


@asynccontextmanager
async def desk(
    folder: Path,
    *script: Answer,
    api: Api = "openai",
    more: str = "",
    file: str = FILE,
    listing: list[dict[str, Any]] | None = None,
) -> AsyncIterator[Desk]:
    server, model = ToolServer("desk", tools() if listing is None else listing), ModelServer(api, [*script])
    async with server.run(), model.run():
        lines = f'api = "{api}"\n{more}'
        values = {"model": f"{model.url}/v1", "tools": server.url, "more": lines}
        async with (
            bridge_of_file(folder, file, SECRETS, **values) as (root, bridge),
            httpx2.AsyncClient() as http,
        ):
            yield Desk(Rpc(http, f"{root}/agents/desk"), server, model, bridge)


def about(message: Any) -> Any:
    return message["metadata"][MODEL]
