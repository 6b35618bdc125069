"""The bridge's client of A2A: what it sends for each operation over both bindings, and how it reads the answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

from bridge.a2a.client.agent_card import CardSource, FoundCard
from bridge.a2a.client.agent_client import AgentClient
from bridge.a2a.client.catalog import CatalogSource
from bridge.a2a.client.credentials import Credentials
from bridge.a2a.model.objects import ListTasksRequest, Model, SendMessageRequest, StreamResponse, TaskState
from bridge.errors import PeerError
from bridge.http.client import PeerCredentials, fixed_credentials
from tests.goldens.peer import PARTS, Json, Peer, gives, message, refuses, task, turns_to
from tests.goldens.recording import ROOT, Recording
from tests.support.agents import found_at
from tests.support.in_process import client_of
from tests.support.limits import card_bounds, client_options
from tests.support.running import EXTENSION

WORDS = {"text": "hello"}
TOKEN = fixed_credentials(PeerCredentials({"Authorization": "Bearer token-1"}))


def _script(operation: str, params: Json) -> list[Any]:
    """Answers each operation with all that it can be answered with."""
    told: dict[str, list[Any]] = {
        "SendMessage": [
            {"task": task("COMPLETED", WORDS, artifacts=[{"artifactId": "a-1", "parts": PARTS}])}
        ],
        "SendStreamingMessage": [
            {"task": task("SUBMITTED")},
            turns_to("WORKING", WORDS),
            gives({"text": "one "}, append=False),
            gives({"text": "two"}, append=True, lastChunk=True),
            gives(*PARTS, artifact_id="a-2"),
            turns_to("COMPLETED"),
        ],
        "SubscribeToTask": [{"task": task("WORKING")}, turns_to("CANCELED", WORDS)],
        "GetTask": [task("INPUT_REQUIRED", WORDS, history=[message("h-1", WORDS)], unknown=1)],
        "ListTasks": [{"tasks": [task("FAILED")], "nextPageToken": "p-2", "pageSize": 1, "totalSize": 2}],
        "CancelTask": [task("CANCELED")],
    }
    return told[operation]


async def operations(record: Recording, binding: str) -> None:
    """Each operation, with all that it may carry."""
    async with client_of(record.of(Peer(_script, binding).app(), hides_client=True)) as http:
        client = AgentClient(http, found_at(ROOT, binding), client_options())
        await _all_operations(record, client)


async def _all_operations(record: Recording, client: AgentClient) -> None:
    request = SendMessageRequest.model_validate(
        {
            "message": {
                "messageId": "m-1",
                "role": "ROLE_USER",
                "parts": PARTS,
                "contextId": "c-1",
                "taskId": "t-1",
                "metadata": {"m": None},
                "extensions": [EXTENSION],
                "referenceTaskIds": ["t-0"],
            },
            "configuration": {
                "acceptedOutputModes": ["text/plain"],
                "historyLength": 0,
                "returnImmediately": True,
            },
            "metadata": {"r": [1.5]},
        }
    )
    await _asked(record, "SendMessage", client.send(request))
    await _heard(record, "SendStreamingMessage", client.stream(request))
    await _heard(record, "SubscribeToTask", client.subscribe("t/1 é"))
    await _asked(record, "GetTask", client.get("t-1"))
    for length in (0, 3):
        await _asked(record, f"GetTask with a history of {length}", client.get("t-1", length))
    await _asked(record, "ListTasks", client.list_tasks(ListTasksRequest()))
    filters = ListTasksRequest(
        context_id="c-1",
        status=TaskState.FAILED,
        page_size=1,
        page_token="p/1",
        history_length=2,
        include_artifacts=True,
    )
    await _asked(record, "ListTasks with filters", client.list_tasks(filters))
    await _asked(record, "CancelTask", client.cancel("t-1"))


async def service_parameters(record: Recording, binding: str) -> None:
    """Credentials, extensions, a tenant: what goes along with each request."""
    declared = {"streaming": True, "extensions": [{"uri": EXTENSION}, {"uri": "urn:other"}]}
    schemes = {
        "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-Key"}},
        "query": {"apiKeySecurityScheme": {"location": "query", "name": "key"}},
        "cookie": {"apiKeySecurityScheme": {"location": "cookie", "name": "key"}},
        "token": {"httpAuthSecurityScheme": {"scheme": "Bearer"}},
    }
    interface = {
        "url": f"{ROOT}/base/?v=1",
        "protocolBinding": binding,
        "protocolVersion": "1.0",
        "tenant": "blue/green",
    }
    async with client_of(record.of(Peer(_script, binding).app(), hides_client=True)) as http:
        for name in schemes:
            found = found_at(
                ROOT,
                binding,
                supportedInterfaces=[interface],
                capabilities=declared,
                securitySchemes=schemes,
                securityRequirements=[{"schemes": {name: {"list": []}}}],
            )
            credentials = Credentials(headers={"X-Extra": "extra"}, bearer="token-1", api_key="key-1")
            options = client_options(extensions=(EXTENSION, "urn:not-declared"), credentials=credentials)
            client = AgentClient(http, found, options)
            await _asked(record, f"With {name}: GetTask", client.get("t-1", 0))
            request = SendMessageRequest.model_validate(record.message(WORDS))
            await _asked(record, f"With {name}: SendMessage", client.send(request))


async def refusals(record: Recording, binding: str) -> None:
    """Errors of the agent, and what is no answer of A2A, as they are told."""
    told: dict[str, list[Any]] = {
        "unknown": [refuses(-32001, "No such task", "TASK_NOT_FOUND")],
        "ended": [refuses(-32002, "It has ended", "TASK_NOT_CANCELABLE")],
        "unsupported": [refuses(-32004, "Not so", "UNSUPPORTED_OPERATION")],
        "old": [refuses(-32009, "Another version", "VERSION_NOT_SUPPORTED")],
        "bare": [{"error": {"code": -32603, "message": "Broken"}}],
        "no-task": [{"id": 5}],
        "nothing": [{}],
    }
    peer = Peer(lambda _, params: told[params.get("id") or params["message"]["messageId"]], binding)
    async with client_of(record.of(peer.app(), hides_client=True)) as http:
        client = AgentClient(http, found_at(ROOT, binding), client_options())
        for name in told:
            await _asked(record, f"GetTask: {name}", client.get(name))
        for name in ("unsupported", "nothing"):
            request = SendMessageRequest.model_validate(record.message(WORDS, messageId=name))
            await _asked(record, f"SendMessage: {name}", client.send(request))
            await _heard(record, f"SendStreamingMessage: {name}", client.stream(request))


async def cards(record: Recording, folder: Path) -> None:
    """How a card is fetched, and fetched again."""
    async with client_of(record.of(Peer(_script).app(), hides_client=True)) as http:
        record.heading("For the first time")
        source = CardSource(http, ROOT, folder, card_bounds(), credentials=TOKEN)
        await _shown(record, source)
        record.heading("Again")
        await _shown(record, source)
        record.heading("After a restart")
        await _shown(record, CardSource(http, ROOT, folder, card_bounds()))
        record.heading("By the address of the card itself")
        await _shown(record, CardSource(http, f"{ROOT}/.well-known/agent-card.json", None, card_bounds()))
        record.heading("Below a path that has none")
        await _shown(record, CardSource(http, f"{ROOT}/deep", None, card_bounds()))


async def catalogs(record: Recording, folder: Path) -> None:
    """How a catalog of agents is read, and read again."""
    async with client_of(record.of(Peer(_script).app(), hides_client=True)) as http:
        source = CatalogSource(http, f"{ROOT}/agents", folder, card_bounds(), credentials=TOKEN)
        for heading in ("For the first time", "Again"):
            record.heading(heading)
            record.value("the agents", str([(one.name, one.card_url) for one in await source.refresh()]))
        record.heading("What is no catalog")
        try:
            await CatalogSource(http, f"{ROOT}/.well-known/agent-card.json", None, card_bounds()).refresh()
        except PeerError as exc:
            record.value("refused", str(exc))


async def _shown(record: Recording, source: CardSource) -> None:
    try:
        found: FoundCard = await source.refresh()
        record.value("the card", found.card.to_object())
    except PeerError as exc:
        record.value("refused", str(exc))


async def _asked(record: Recording, heading: str, answer: Awaitable[Model]) -> None:
    record.heading(heading)
    try:
        record.value("read as", (await answer).to_object())
    except PeerError as exc:
        record.value("told as", str(exc))


async def _heard(record: Recording, heading: str, events: AsyncIterator[StreamResponse]) -> None:
    record.heading(heading)
    try:
        async for event in events:
            record.value("read as", event.to_object())
    except PeerError as exc:
        record.value("told as", str(exc))
