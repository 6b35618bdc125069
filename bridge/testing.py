"""An MCP server as an A2A agent in memory, for tests: no process, no port and no file.

    async with bridge.testing.agent(server, skills={"delete_*": {"hidden": True}}) as agent:
        answer = await agent.call("greet", name="Ada")
        assert answer.state == "completed"
        assert answer.text == "Hello, Ada!"

The server runs as in `bridge.open`, and the calls are real A2A 1.0 messages that go straight into the application. So a
test sees what a client of the agent would see.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias, cast
from uuid import uuid4

import httpx2
from pydantic import JsonValue

import bridge
from bridge.a2a.wire.versions import HEADER, VERSIONS
from bridge.assembly.plan import in_memory
from bridge.assembly.plan_from_file import plan_from_file
from bridge.config.text.wording import meant
from bridge.errors import CallerError, PeerError
from bridge.mcp.client.transports.in_process import ServerObject
from bridge.opened import Opened
from bridge.text.jsonvalues import JsonObject
from bridge.translate.extensions.bridge import ANSWER, QUESTION, SKILL, URI

State: TypeAlias = Literal[
    "submitted", "working", "completed", "failed", "rejected", "canceled", "input-required", "auth-required"
]
"""The state of a task, as A2A names it."""

_BASE: Final = "http://localhost"
_PREFIX: Final = "TASK_STATE_"


@dataclass(frozen=True, slots=True)
class File:
    """A file from the agent."""

    name: str
    media_type: str
    content: bytes
    """The bytes; empty for a file at a URL."""
    url: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """An agent's answer to a message."""

    state: State
    text: str
    """All texts of the artifacts. If there are none, the texts of the status: why a task failed, or its question."""
    data: JsonValue
    """The first data part: structured content from a tool, or the form of a question. None if there is none."""
    files: tuple[File, ...]
    task: JsonObject = field(repr=False)
    """The whole task in the JSON of A2A 1.0, or the message if the agent answers with a message."""


class TestedAgent:
    """An agent to call. Calls may run one after another, or at the same time."""

    __test__ = False  # pytest would collect a class whose name begins with Test

    def __init__(self, client: httpx2.AsyncClient, card: JsonObject) -> None:
        self.client = client
        """An HTTP client whose requests go into the application, for requests that have no method here."""
        self.card = card
        """The agent's card in the JSON of A2A 1.0."""

    @property
    def skills(self) -> tuple[str, ...]:
        """The ids of the skills on the card, without hidden skills."""
        return tuple(skill["id"] for skill in cast(list[dict[str, str]], self.card.get("skills", [])))

    async def call(self, skill: str, /, **arguments: JsonValue) -> Answer:
        """Call a skill with arguments, and wait until the task ends or asks a question.

        If the tool fails, the answer has the state `failed`, and nothing is raised.

        Raises:
            bridge.errors.CallerError: the card has no such skill.
            bridge.errors.PeerError: the agent refused the message.
        """
        if skill not in self.skills:
            raise CallerError(f"the agent has no skill {skill!r}: {meant(skill, self.skills)}")
        return await self._send([_data_part(arguments)], {SKILL: skill})

    async def say(self, text: str) -> Answer:
        """Send a text, and let the agent choose the skill.

        Raises:
            bridge.errors.PeerError: the agent refused the message.
        """
        return await self._send([{"text": text}], {})

    async def reply(self, asked: Answer, /, **values: JsonValue) -> Answer:
        """Answer the question of a task with the values of its form. Without values this confirms.

        Raises:
            bridge.errors.CallerError: `asked` is no question.
            bridge.errors.PeerError: the agent refused the message.
        """
        return await self._send([_data_part(values)], {**_key_in(asked), ANSWER: "accept"}, asked)

    async def decline(self, asked: Answer) -> Answer:
        """Decline the question of a task.

        Raises:
            bridge.errors.CallerError: `asked` is no question.
            bridge.errors.PeerError: the agent refused the message.
        """
        return await self._send([{"text": "declined"}], {**_key_in(asked), ANSWER: "decline"}, asked)

    async def cancel(self, asked: Answer) -> Answer:
        """Cancel the task of an answer.

        Raises:
            bridge.errors.PeerError: the task cannot be canceled.
        """
        return _answer(await self._perform("CancelTask", {"id": asked.task["id"]}))

    async def _send(self, parts: list[JsonValue], metadata: JsonObject, to: Answer | None = None) -> Answer:
        message: JsonObject = {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": parts}
        if metadata:
            message["metadata"] = metadata
        if to is not None:
            message |= {"taskId": to.task["id"], "contextId": to.task["contextId"]}
        answered = await self._perform("SendMessage", {"message": message})
        reply = answered.get("task") or answered.get("message")
        return _answer(cast(JsonObject, reply))

    async def _perform(self, method: str, params: JsonObject) -> JsonObject:
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answered = (await self.client.post(_BASE, json=request)).json()
        if "error" in answered:
            raise PeerError(f"the agent refused {method}: {answered['error']['message']}")
        return cast(JsonObject, answered["result"])


@asynccontextmanager
async def agent(
    server: ServerObject,
    *,
    skills: Mapping[str, Mapping[str, Any]] | None = None,
    mapping: str = "default",
    era: Literal["auto", "legacy", "modern"] = "auto",
    name: str = "agent",
) -> AsyncIterator[TestedAgent]:
    """Serve an MCP server of this process as an agent in memory while the context is open.

    `server` is an `MCPServer` or a low-level `Server` of the MCP SDK. `skills` is the content of
    `[tools_as_agent.NAME.skills]` in a configuration file, by exact name or glob, and `mapping` the profile, by name or
    path. `era` is the generation of MCP to speak. A tool that uses `Context.elicit` needs `legacy`, because MCP
    2026-07-28 does not support it.

    Raises:
        bridge.errors.ConfigError: `skills` or `mapping` has mistakes.
        bridge.errors.UsageError: `server` is no server of the MCP SDK.
        bridge.errors.PeerError: the server cannot be started, or cannot list its tools.
    """
    face = {"from": [name], "mapping": mapping, "skills": skills or {}}
    tables = {"tool_servers": {name: {"era": era}}, "tools_as_agent": {name: face}}
    loaded = bridge.loads(tables, servers={name: server})
    plan = in_memory(plan_from_file(loaded))
    place = replace(plan.place, keys=(secrets.token_urlsafe(32),))
    async with (
        Opened(replace(plan, place=place), None) as app,
        httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app),
            headers={HEADER: VERSIONS.names[0], VERSIONS.extensions_headers[0]: URI},
            timeout=None,
        ) as client,
    ):
        card = (await client.get(f"{_BASE}/.well-known/agent-card.json")).json()
        yield TestedAgent(client, card)


def _key_in(question: Answer) -> JsonObject:
    """The metadata that names the question in an answer; empty if the question has no key."""
    if question.state not in ("input-required", "auth-required"):
        raise CallerError(f"the task asks nothing: it is {question.state}")
    status = cast(dict[str, Any], question.task["status"])
    key = status.get("message", {}).get("metadata", {}).get(QUESTION)
    return {} if key is None else {QUESTION: key}


def _data_part(values: JsonObject) -> JsonObject:
    return {"data": values, "mediaType": "application/json"}


def _answer(result: JsonObject) -> Answer:
    task = cast(dict[str, Any], result)
    if "status" not in task:
        parts = task.get("parts", [])
        return Answer("completed", _text(parts), _data(parts), _files(parts), result)
    state = task["status"]["state"].removeprefix(_PREFIX).lower().replace("_", "-")
    part_list = [part for artifact in task.get("artifacts", []) for part in artifact.get("parts", [])]
    status = task["status"].get("message", {}).get("parts", [])
    return Answer(
        state,
        _text(part_list) or _text(status),
        _data([*part_list, *status]),
        _files([*part_list, *status]),
        result,
    )


def _text(parts: list[dict[str, Any]]) -> str:
    return "\n".join(part["text"] for part in parts if "text" in part)


def _data(parts: list[dict[str, Any]]) -> JsonValue:
    return next((part["data"] for part in parts if "data" in part), None)


def _files(parts: list[dict[str, Any]]) -> tuple[File, ...]:
    return tuple(
        File(
            part.get("filename", ""),
            part.get("mediaType", ""),
            base64.b64decode(part.get("raw", "")),
            part.get("url", ""),
        )
        for part in parts
        if "raw" in part or "url" in part
    )
