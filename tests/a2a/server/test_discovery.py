"""The documents that list the public agents, over HTTP, as ARD and AI Catalog draft them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from bridge.a2a.client.catalog import CatalogEntry, CatalogSource
from bridge.a2a.client.interfaces import Trust
from bridge.a2a.model.objects import AgentSkill
from bridge.a2a.server.discovery import AI_CATALOG_PATH, ARD_PATH, DiscoveryApp
from bridge.http.request_checks import FaceAddress
from tests.a2a.server.test_catalog import Shelf
from tests.support.limits import PROFILE, card_bounds
from tests.support.running import listening

pytestmark = pytest.mark.proves("catalog-found")

PLACE = FaceAddress("https://bridge.example.com/base")

URN = re.compile(r"urn:air:[a-zA-Z0-9.-]+(:[a-zA-Z0-9._-]+)+")
"""The pattern of identifiers in the schema of ARD entries."""


@asynccontextmanager
async def discovered(shelf: Shelf, place: FaceAddress = PLACE) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of the documents."""
    app = DiscoveryApp(shelf.published, place, PROFILE.card.max_age_seconds)
    async with listening(app) as url, httpx2.AsyncClient(base_url=url) as http:
        yield http


@pytest.fixture
def shelf() -> Shelf:
    shelf = Shelf()
    shelf.put("weather", ("forecast", ("weather",)), ("alerts", ("weather", "sky")), description="The sky")
    shelf.put("archive", ("find", ("read-only",)))
    return shelf


async def test_each_public_agent_is_an_entry_with_the_address_of_its_card(shelf: Shelf) -> None:
    async with discovered(shelf) as http:
        document = (await http.get(ARD_PATH)).json()
    assert document["specVersion"] == "1.0"
    assert document["host"] == {"displayName": "bridge.example.com"}
    assert [entry["identifier"] for entry in document["entries"]] == [
        "urn:air:bridge.example.com:agent:archive",
        "urn:air:bridge.example.com:agent:weather",
    ]
    assert document["entries"][1] == {
        "identifier": "urn:air:bridge.example.com:agent:weather",
        "displayName": "Weather",
        "type": "application/a2a-agent-card+json",
        "url": "https://bridge.example.com/base/agents/weather/.well-known/agent-card.json",
        "description": "The sky",
        "tags": ["sky", "weather"],
        "capabilities": ["forecast", "alerts"],
        "version": shelf.cards["weather"].version,
    }
    assert all(URN.fullmatch(entry["identifier"]) for entry in document["entries"])


@pytest.mark.parametrize(
    ("examples", "queries"),
    [
        (("rain today?", '{"city": "Oslo"}', "wind in Oslo"), ["rain today?", "wind in Oslo"]),
        (("rain today?", '{"city": "Oslo"}'), None),
        (tuple(f"question {n}" for n in range(9)), [f"question {n}" for n in range(5)]),
    ],
)
async def test_two_to_five_sentences_among_the_examples_are_the_queries(
    shelf: Shelf, examples: tuple[str, ...], queries: list[str] | None
) -> None:
    skill = AgentSkill(id="ask", name="Ask", description="Asks", tags=("a",), examples=examples)
    card = shelf.cards["weather"]
    shelf.cards = {"weather": card.model_copy(update={"skills": (skill,)})}
    async with discovered(shelf) as http:
        (entry,) = (await http.get(ARD_PATH)).json()["entries"]
    assert entry.get("representativeQueries") == queries


async def test_both_paths_have_the_same_text_each_with_its_media_type(shelf: Shelf) -> None:
    async with discovered(shelf) as http:
        ard, ai_catalog = await http.get(ARD_PATH), await http.get(AI_CATALOG_PATH)
    assert ard.content == ai_catalog.content
    assert ard.headers["content-type"] == "application/json"
    assert ai_catalog.headers["content-type"] == "application/ai-catalog+json"


async def test_an_unchanged_document_is_not_sent_again(shelf: Shelf) -> None:
    async with discovered(shelf) as http:
        first = await http.get(ARD_PATH)
        assert first.headers["cache-control"] == f"public, max-age={PROFILE.card.max_age_seconds}"
        again = await http.get(ARD_PATH, headers={"If-None-Match": first.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        del shelf.cards["archive"]
        changed = await http.get(ARD_PATH, headers={"If-None-Match": first.headers["etag"]})
    assert (changed.status_code, len(changed.json()["entries"])) == (200, 1)


async def test_only_reading_is_served_and_only_under_the_names_of_the_bridge(shelf: Shelf) -> None:
    async with discovered(shelf, FaceAddress()) as http:
        posted = await http.post(ARD_PATH)
        rebound = await http.get(ARD_PATH, headers={"Host": "attacker.example"})
    assert (posted.status_code, posted.headers["allow"]) == (405, "GET, HEAD")
    assert rebound.status_code in (403, 421)


@pytest.mark.parametrize("path", [ARD_PATH, AI_CATALOG_PATH])
async def test_another_bridge_follows_the_document(shelf: Shelf, path: str) -> None:
    asked: list[Any] = []
    app = DiscoveryApp(shelf.published, FaceAddress(), 60)

    async def heard(scope: Any, receive: Any, send: Any) -> None:
        asked.append(scope["query_string"])
        await app(scope, receive, send)

    async with listening(heard) as url, httpx2.AsyncClient() as http:
        source = CatalogSource(http, f"{url}{path}", None, card_bounds(), trust=Trust(allow_private=True))
        assert await source.refresh() == tuple(
            CatalogEntry(name, f"{url}/agents/{name}/.well-known/agent-card.json")
            for name in ("archive", "weather")
        )
    assert asked == [b""], "a document takes no parameters for pages"
