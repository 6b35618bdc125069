"""What agents really answer, through the client of agents: both versions, both bindings, streamed and polled."""

from __future__ import annotations

import httpx2
import pytest

from bridge.a2a.client.client import AgentClient
from bridge.a2a.client.follow import converse
from bridge.a2a.model.objects import Message, Part, Role, SendMessageRequest
from bridge.translate.blocks import ResultRules
from bridge.translate.result import result_from_message, result_from_task
from tests.support.agents import found_at
from tests.support.limits import client_options, pace_of
from tests.support.real_answers import FORMS, POLLED, STREAMED, RawAgent, Row

pytestmark = pytest.mark.proves("map-agent-read-alone", "map-heard")

PACE = pace_of(first_seconds=0.01, most_seconds=0.02, end_seconds=0.05, piece_seconds=0.2)
URL = "http://127.0.0.1:9"


def shown(block: object) -> str:
    """A block as the rows write it."""
    assert isinstance(block, dict)
    held = block.get("resource", block)
    return (
        str(block["text"]) if "text" in block else f"{held['mimeType']} {held.get('data', held.get('blob'))}"
    )


async def outcome_of(row: Row, form: str, *, streams: bool) -> tuple[list[str], bool]:
    """The texts that come of a row, and whether they are an error."""
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(RawAgent([row], form))) as http:
        found = found_at(URL, form, capabilities={"streaming": streams})
        client = AgentClient(http, found, client_options())
        message = Message(message_id="mine", role=Role.USER, parts=(Part(text=row.name),))
        outcome = await converse(client, SendMessageRequest(message=message), pace=PACE)
    read = result_from_message if isinstance(outcome, Message) else result_from_task
    result = read(outcome, ResultRules())  # type: ignore[operator]
    return [shown(block) for block in result["content"]], "isError" in result


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("row", STREAMED, ids=[row.name for row in STREAMED])
async def test_what_an_agent_streams_arrives(row: Row, form: str) -> None:
    if form in row.forms:
        assert await outcome_of(row, form, streams=True) == ([*row.texts], row.is_error)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("row", POLLED, ids=[row.name for row in POLLED])
async def test_what_an_agent_keeps_arrives(row: Row, form: str) -> None:
    if form in row.forms:
        assert await outcome_of(row, form, streams=False) == ([*row.texts], row.is_error)
