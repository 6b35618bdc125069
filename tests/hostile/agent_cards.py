"""Hostile Agent Cards: as texts, and at places on the network that do not play by the rules."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final

import httpx2
import mcp_types as types

from bridge.a2a.client.agent_card import CardSource, FoundCard, found_card
from bridge.a2a.client.agent_client import AgentClient, Deadlines
from bridge.a2a.client.credentials import Credentials
from bridge.a2a.client.interfaces import ConnectionPolicy, interface_guard
from bridge.errors import PeerError
from bridge.translate.extensions.bridge import URI
from bridge.translate.skill_tools import ToolSource, listed_tools, tools_of_agents
from tests.hostile.a2a_answers import strict_json
from tests.hostile.mutations import hostile_json
from tests.hostile.raw_peer import Reply, raw_peer, reply_of
from tests.hostile.schemas import schema
from tests.hostile.scripted_server import TOOLS
from tests.hostile.target import Check, Target
from tests.support.limits import card_bounds, client_options, tool_rules

URLS: Final = (
    "http://127.0.0.1:99999/",
    "http://127.0.0.1:-1/",
    "http://user:pass@127.0.0.1:1/",
    "http://[::1%25lo]:1/",
    "http://[::ffff:127.0.0.1]:1/",
    "http://xn--a/",
    "http://exa\u200bmple.com/",
    "http://\u0130.example/",
    "https://169.254.169.254/latest",
    "http://2130706433/",
    "http://127.1/",
    "file:///etc/passwd",
    "unix:/tmp/x",
    "//x/y",
    "http://",
    "",
    "http://a b/",
    "http://example.com/\r\nX: y",
    "http://example.com/" + "a" * 70_000,
)
_LIMIT_BYTES: Final = 300_000
QUICK: Final = client_options(extensions=(URI,), deadlines=Deadlines(1.0, 0.5, 0.3), limit_bytes=_LIMIT_BYTES)


def card_of(url: str, *, ours: bool = False, streaming: bool = True, binding: str = "JSONRPC") -> Any:
    """The card of an agent that works."""
    params = {"tools": {tool["name"]: tool for tool in TOOLS}}
    extensions = [{"uri": URI, "required": False, "params": params}] if ours else []
    names = [tool["name"] for tool in TOOLS] if ours else ["talk"]
    return {
        "name": "Hostile",
        "description": "Says anything",
        "version": "1",
        "supportedInterfaces": [{"url": url, "protocolBinding": binding, "protocolVersion": "1.0"}],
        "capabilities": {"streaming": streaming, "extensions": extensions},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "securitySchemes": {"b": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}},
        "securityRequirements": [{"schemes": {"b": {"list": []}}}],
        "skills": [
            {"id": name, "name": name, "description": "d", "tags": ["t"], "examples": ["e"]} for name in names
        ],
    }


def card_case(chance: Random) -> tuple[str, bytes]:
    """Where a card was found, and its text."""
    seed = card_of(chance.choice([*URLS, "https://example.com/a2a"]), ours=chance.random() < 0.5)
    if chance.random() < 0.3:
        params = {
            "tools": {"talk": {"name": "talk", "inputSchema": schema(chance), "outputSchema": schema(chance)}}
        }
        seed["capabilities"]["extensions"] = [{"uri": URI, "params": params}]
        seed["iconUrl"] = chance.choice(URLS)
    return chance.choice(["https://example.com/", "http://127.0.0.1:9/"]), hostile_json([seed], chance)


@asynccontextmanager
async def _card_scene() -> AsyncIterator[Check]:
    async with httpx2.AsyncClient() as http:

        async def check(case: tuple[str, bytes]) -> None:
            place, text = case
            with suppress(PeerError):
                found = found_card(place, text)
                _check_card(http, found)

        yield check


def _check_card(http: httpx2.AsyncClient, found: FoundCard) -> None:
    """What a card offers can be listed, and whether it may be called is said."""
    for granularity in ("skill", "agent", "search"):
        rules = tool_rules(granularity=granularity)
        tools = tools_of_agents([ToolSource("one", found.card), ToolSource("two", found.card)], rules)
        for listed in listed_tools(tools, rules, longest_wait_seconds=49):
            types.Tool.model_validate(strict_json(json.dumps(listed).encode()))
    for interface in found.card.supported_interfaces:
        interface_guard(found, interface.url, ConnectionPolicy(found.url, QUICK.trust))
    for options in (QUICK, client_options(credentials=Credentials(bearer="secret"))):
        with suppress(PeerError):
            str(AgentClient(http, found, options).interface)


def card_http_case(chance: Random) -> list[Reply]:
    """What a place for cards answers, request by request."""
    text = hostile_json([card_of("http://127.0.0.1:9/")], chance)
    return [reply_of(text, chance, honest=0.3) for _ in range(4)]


@asynccontextmanager
async def _card_http_scene() -> AsyncIterator[Check]:
    with TemporaryDirectory() as folder:
        numbers = itertools.count()
        async with raw_peer() as peer, httpx2.AsyncClient() as http:

            async def check(case: list[Reply]) -> None:
                peer.answer = in_order(case)
                url = f"{peer.url}/{next(numbers) % 50}"
                source = CardSource(http, url, Path(folder), card_bounds(answer_seconds=0.3))
                for _ in range(2):
                    with suppress(PeerError):
                        await source.refresh()
                source.cached()

            yield check


def in_order(replies: list[Reply], last: Callable[[bytes], Reply] = lambda _: Reply(())) -> Any:
    left = list(replies)
    return lambda _, body: left.pop(0) if left else last(body)


TARGETS: Final = (
    Target("cards", card_case, _card_scene, share=15, examples=150),
    Target("cards-http", card_http_case, _card_http_scene, share=6, examples=60),
)
