"""That versions of A2A are dialects: two that nobody speaks, served and called beside 1.0, with no change elsewhere."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import httpx2
import pytest
from pydantic import JsonValue

import bridge.a2a.wire
from bridge.a2a.client.agent_card import FoundCard
from bridge.a2a.client.agent_client import AgentClient, AgentRefusedError
from bridge.a2a.model.errors import A2AError
from bridge.a2a.model.objects import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    StreamResponse,
    SubscribeToTaskRequest,
    TaskState,
)
from bridge.a2a.model.operations import SEND_MESSAGE, AnswerT, Operation, RequestT, Streamed
from bridge.a2a.tasks.agent import Job
from bridge.a2a.wire.dialect import ErrorObject, EventDecoder, EventEncoder
from bridge.a2a.wire.reading import ExchangeReading
from bridge.a2a.wire.v1_0 import V1_0
from bridge.a2a.wire.versions import VERSIONS, Versions
from bridge.text.jsonvalues import JsonObject
from tests.support.agents import asked, give, say, serving
from tests.support.limits import client_options
from tests.support.running import message

pytestmark = pytest.mark.proves("a2a-3.6.3-negotiation")

WIRE = Path(bridge.a2a.wire.__path__[0])
BRIDGE = WIRE.parents[1]


class Renamed(V1_0):
    """1.0 with another name for one method."""

    version: ClassVar = "9.1"
    methods: ClassVar = {"message/send": SEND_MESSAGE, **V1_0.methods}


class _Writer(EventEncoder):
    def write(self, event: bytes, *, last: bool) -> Sequence[bytes]:
        said = json.loads(event)
        texts = [json.dumps({"happened": said, "over": last}).encode()]
        return [*texts, b'{"bye":true}'] if last else texts


class _Reader(EventDecoder):
    def read(self, value: JsonValue) -> Sequence[StreamResponse]:
        assert isinstance(value, dict)
        return [] if "bye" in value else [StreamResponse.model_validate(value["happened"])]


class Strange(V1_0):
    """Other parameters of an operation that streams, other events, one more at the end, and other errors."""

    version: ClassVar = "9.2"

    def request_from(self, operation: Operation[RequestT, AnswerT], params: JsonValue) -> RequestT:
        if operation.request is SubscribeToTaskRequest and isinstance(params, dict):
            params = {"id": params["about"]}
        return super().request_from(operation, params)

    def params_of(self, operation: Operation[RequestT, AnswerT], request: RequestT) -> JsonObject:
        if isinstance(request, SubscribeToTaskRequest):
            return {"about": request.id}
        return super().params_of(operation, request)

    def writer(self, operation: Streamed[RequestT, AnswerT]) -> EventEncoder:
        return _Writer()

    def reader(
        self,
        operation: Streamed[RequestT, AnswerT],
        request: RequestT,
        reading: ExchangeReading | None = None,
    ) -> EventDecoder:
        return _Reader()

    def jsonrpc_error(self, error: A2AError) -> JsonObject:
        return {"code": error.kind.jsonrpc_code, "message": error.kind.reason.lower()}

    def jsonrpc_refusal(self, error: JsonObject) -> ErrorObject:
        return ErrorObject(-1, f"in its words: {error['message']}")


SPOKEN = Versions((V1_0(), Renamed(), Strange()))


@asynccontextmanager
async def served() -> AsyncIterator[tuple[str, httpx2.AsyncClient]]:
    async def script(job: Job) -> None:
        await say(job, TaskState.WORKING)
        await give(job, "done")
        await say(job, TaskState.COMPLETED)

    async with serving(script, versions=SPOKEN) as (url, _), httpx2.AsyncClient() as http:
        yield url, http


def client_of(http: httpx2.AsyncClient, url: str, version: str, binding: str = "JSONRPC") -> AgentClient:
    card = AgentCard(
        name="a",
        description="an agent",
        version="1",
        supported_interfaces=(AgentInterface(url=url, protocol_binding=binding, protocol_version=version),),
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=("text/plain",),
        default_output_modes=("text/plain",),
        skills=(AgentSkill(id="s", name="s", description="a skill", tags=("t",)),),
    )
    return AgentClient(http, FoundCard(url, b"", card), client_options(versions=SPOKEN))


async def posted(http: httpx2.AsyncClient, url: str, version: str, method: str, params: Any) -> Any:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return (await http.post(url, json=body, headers={"A2A-Version": version})).json()


async def test_a_method_under_another_name_is_served_and_called_in_its_version_alone() -> None:
    async with served() as (url, http):
        answer = await posted(http, url, "9.1", "message/send", message({"text": "go"}))
        assert answer["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
        refused = await posted(http, url, "1.0", "message/send", message({"text": "go"}))
        assert refused["error"]["code"] == -32601
        sent: list[str] = []
        http.event_hooks["request"] = [_remember(sent)]
        task = await client_of(http, url, "9.1").send(asked())
        assert [task.artifacts and task.artifacts[0].parts[0].text, json.loads(sent[0])["method"]] == [
            "done",
            "message/send",
        ]


@pytest.mark.parametrize("version", ["1.0", "9.1", "9.2"])
@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
async def test_a_stream_is_the_same_inside_the_bridge_for_each_dialect(version: str, binding: str) -> None:
    async with served() as (url, http):
        events = [event async for event in client_of(http, url, version, binding).stream(asked())]
    assert [type(event.payload).__name__ for event in events] == [
        "Task",
        "TaskStatusUpdateEvent",
        "TaskArtifactUpdateEvent",
        "TaskStatusUpdateEvent",
    ]
    assert events[-1].status_update is not None
    assert events[-1].status_update.status.state is TaskState.COMPLETED


async def test_events_parameters_and_errors_are_in_the_dialect_on_the_wire() -> None:
    async with served() as (url, http):
        body = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "SendStreamingMessage",
            "params": message({"text": "go"}),
        }
        answer = await http.post(url, json=body, headers={"A2A-Version": "9.2"})
        texts = [
            json.loads(line.removeprefix("data: "))["result"]
            for line in answer.text.splitlines()
            if line.startswith("data")
        ]
        assert [sorted(text) for text in texts] == [["happened", "over"]] * 4 + [["bye"]]
        assert [text.get("over") for text in texts] == [False, False, False, True, None]
        refused = await posted(http, url, "9.2", "SubscribeToTask", {"about": "nothing"})
        assert refused == {
            "jsonrpc": "2.0",
            "id": 1,
            "error": {"code": -32001, "message": "task_not_found"},
        }
        with pytest.raises(AgentRefusedError, match="in its words: task_not_found"):
            await anext(client_of(http, url, "9.2").subscribe("nothing"))


def test_only_the_gate_imports_a_dialect() -> None:
    dialects = {f"bridge.a2a.wire.{file.stem}" for file in (*WIRE.glob("v[0-9]*.py"), WIRE / "hermes.py")}
    assert len(dialects) >= len(VERSIONS.names)
    importing = {
        (file.relative_to(BRIDGE).as_posix(), module)
        for file in BRIDGE.rglob("*.py")
        for text in [file.read_text("utf-8")]
        if "a2a.wire" in text
        for node in ast.walk(ast.parse(text))
        for module in _imported(node)
        if module in dialects
    }
    # One that is another one in all but some points says so by inheriting from it, and all before 1.0 read on from it.
    inside = {
        one
        for one in importing
        if one[0].startswith(("a2a/wire/v", "a2a/wire/hermes", "a2a/wire/spelling"))
        and one[0] != "a2a/wire/versions.py"
    }
    assert importing - inside == {("a2a/wire/versions.py", dialect) for dialect in dialects}


OTHER_VERSIONS = {"a2a/server/discovery.py: 1.0", "cli/config/registry.py: /v0.1"}
"""Versions of the AI Catalog and of the registry's API, which are none of A2A."""


def test_no_module_but_those_of_the_wire_names_a_version() -> None:
    names = re.compile(rf"(?<![\d.])({'|'.join(map(re.escape, VERSIONS.names))})(?!\.?\d)")
    naming = {
        f"{file.relative_to(BRIDGE).as_posix()}: {node.value}"
        for file in BRIDGE.rglob("*.py")
        if WIRE not in file.parents
        for text in [file.read_text("utf-8")]
        if names.search(text)
        for node in _texts(ast.parse(text))
        if isinstance(node.value, str) and names.search(node.value)
    }
    assert naming == OTHER_VERSIONS


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.ImportFrom):
        yield node.module or ""
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)


def _texts(module: ast.Module) -> Iterator[ast.Constant]:
    """The texts in a module that are no documentation of it."""
    told = {id(node.value) for node in ast.walk(module) if isinstance(node, ast.Expr)}
    yield from (node for node in ast.walk(module) if isinstance(node, ast.Constant) and id(node) not in told)


def _remember(sent: list[str]) -> Any:
    async def remember(request: httpx2.Request) -> None:
        sent.append(request.content.decode())

    return remember
