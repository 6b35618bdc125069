"""Recorded answers of agents, exposed to the official MCP client: both versions, both bindings, streamed and polled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.support.exposing import exposing
from tests.support.real_answers import FORMS, POLLED, STREAMED, RawAgent
from tests.support.running import listening
from tests.support.scripted_agent import older_card, plain_card

pytestmark = pytest.mark.proves("map-agent-read-alone", "map-heard", "map-result")


def card_of(form: str, *, streams: bool) -> dict[str, Any]:
    """A card with one interface, of this form; `{url}` is its URL."""
    version, _, binding = form.rpartition(" ")
    interface = {"url": "{url}", "protocolBinding": binding, "protocolVersion": "1.0"}
    card = {
        **plain_card("{url}"),
        "supportedInterfaces": [interface],
        "capabilities": {"streaming": streams},
    }
    return older_card(card, binding) if version else card


def shown(block: Any) -> str:
    """A block as the rows write it."""
    held = getattr(block, "resource", block)
    return (
        block.text
        if block.type == "text"
        else f"{held.mime_type} {getattr(held, 'data', None) or getattr(held, 'blob', None)}"
    )


@pytest.mark.parametrize("streams", [True, False], ids=["streams", "polls"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.smoke("JSONRPC-streams", "0.3 HTTP+JSON-polls")
async def test_an_agents_answer_is_the_result(form: str, streams: bool, tmp_path: Path) -> None:
    rows = [row for row in (STREAMED if streams else POLLED) if form in row.forms]
    agent, odd = RawAgent(rows, form, card_of(form, streams=streams)), []
    with anyio.fail_after(120):
        async with (
            listening(agent) as url,
            exposing(tmp_path, url) as there,
            there.client("auto") as client,
        ):
            for row in rows:
                result = await client.call_tool("act", {"message": row.name})
                texts = [shown(block) for block in result.content]
                if texts and texts[-1].startswith("(To go on with this conversation"):
                    del texts[-1]
                if (texts, bool(result.is_error)) != ([*row.texts], row.is_error):
                    odd.append((row.name, texts))
    assert not odd, json.dumps(odd, indent=1)
