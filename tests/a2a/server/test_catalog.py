"""The catalog of the agents that are published, over HTTP."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import httpx2
import pytest

from bridge.a2a.model.objects import AgentCard, AgentSkill
from bridge.a2a.server import catalog
from bridge.a2a.server.catalog import CatalogAgent, CatalogApp
from bridge.http.request_checks import FaceAddress
from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import Access, Credential, Scheme, verifiers_of
from tests.support.agents import found_at
from tests.support.limits import PROFILE
from tests.support.running import listening

pytestmark = pytest.mark.proves("catalog")

Json = dict[str, Any]


@dataclass
class Shelf:
    """What is published, which a test may change."""

    cards: dict[str, AgentCard] = field(default_factory=dict)

    def put(self, name: str, *skills: tuple[str, tuple[str, ...]], **said: Any) -> None:
        """An agent with these skills, each with its tags."""
        made = [
            AgentSkill(id=skill, name=f"The {skill}", description=f"Does {skill}", tags=tags)
            for skill, tags in skills or (("act", ("test",)),)
        ]
        card = found_at("http://127.0.0.1/").card
        self.cards[name] = card.model_copy(update={"name": name.title(), "skills": tuple(made), **said})

    def published(self) -> list[CatalogAgent]:
        """As the catalog takes them: the same card for the same base."""
        return [
            CatalogAgent(name, f"/agents/{name}", lambda base_url, card=card: card)  # type: ignore[misc]
            for name, card in self.cards.items()
        ]


@dataclass
class Reader:
    """A client of the catalog."""

    http: httpx2.AsyncClient
    url: str

    async def get(self, **query: Any) -> httpx2.Response:
        """One answer."""
        return await self.http.get(self.url, params=query)

    async def page(self, **query: Any) -> Json:
        """One page."""
        answer = await self.get(**query)
        assert answer.status_code == 200, answer.text
        page: Json = answer.json()
        assert set(page) == {"agents", "nextPageToken"}
        return page

    async def names(self, **query: Any) -> list[str]:
        """The agents that one page lists."""
        return [agent["name"] for agent in (await self.page(**query))["agents"]]

    async def refused(self, **query: Any) -> str:
        """Why a request is a bad one."""
        answer = await self.get(**query)
        assert answer.status_code == 400, answer.text
        error: Json = answer.json()
        assert set(error) == {"error"}
        assert set(error["error"]) == {"message"}
        return str(error["error"]["message"])


@asynccontextmanager
async def reading(
    shelf: Shelf, access: Access | None = None, place: FaceAddress | None = None
) -> AsyncIterator[Reader]:
    """A catalog that is served, and a client of it."""
    app = CatalogApp(
        shelf.published, access or Access(()), place or FaceAddress(), PROFILE.card.max_age_seconds
    )
    async with listening(app) as url, httpx2.AsyncClient() as http:
        yield Reader(http, f"{url}/agents")


@pytest.fixture
def shelf() -> Shelf:
    shelf = Shelf()
    shelf.put("weather", ("forecast", ("Weather", "read-only")), description="Knows the sky over Zürich")
    shelf.put("devtools", ("create_issue", ("github",)), ("delete_issue", ("github", "destructive")))
    shelf.put("archive", ("find", ("read-only",)))
    return shelf


@pytest.mark.proves("catalog")
async def test_all_agents_are_listed_by_name_with_where_they_are_and_their_whole_cards(shelf: Shelf) -> None:
    async with reading(shelf) as reader:
        page = await reader.page()
        root_url = reader.url.removesuffix("/agents")
    assert page == {
        "agents": [
            {
                "name": name,
                "url": f"{root_url}/agents/{name}",
                "cardUrl": f"{root_url}/agents/{name}/.well-known/agent-card.json",
                "card": shelf.cards[name].to_object(),
            }
            for name in ("archive", "devtools", "weather")
        ],
        "nextPageToken": "",
    }


async def test_a_catalog_of_nothing_is_an_empty_page() -> None:
    async with reading(Shelf()) as reader:
        assert await reader.page() == {"agents": [], "nextPageToken": ""}
        assert await reader.names(query="x") == []


async def test_the_addresses_are_those_of_the_public_url(shelf: Shelf) -> None:
    async with reading(shelf, place=FaceAddress("https://bridge.example.com/base")) as reader:
        urls = [agent["url"] for agent in (await reader.page())["agents"]]
    assert urls[0] == "https://bridge.example.com/base/agents/archive"


@pytest.mark.proves("catalog")
@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({"query": "issue"}, ["devtools"]),
        ({"query": "DELETE_issue  github"}, ["devtools"]),
        ({"query": "issue sky"}, []),
        ({"query": "ZÜRICH"}, ["weather"]),
        ({"query": "arch"}, ["archive"]),
        ({"query": "read-only"}, ["archive", "weather"]),
        ({"query": ""}, ["archive", "devtools", "weather"]),
        ({"tag": "weather"}, ["weather"]),
        ({"tag": "READ-ONLY"}, ["archive", "weather"]),
        ({"tag": "read"}, []),
        ({"tag": ["github", "destructive"]}, ["devtools"]),
        ({"tag": ["github", "read-only"]}, []),
        ({"tag": ""}, ["archive", "devtools", "weather"]),
        ({"skill": "find"}, ["archive"]),
        ({"skill": "Find"}, []),
        ({"skill": ["create_issue", "delete_issue"]}, ["devtools"]),
        ({"skill": "find", "tag": "read-only", "query": "does"}, ["archive"]),
        ({"skill": "find", "tag": "github"}, []),
        ({"unheard-of": "x"}, ["archive", "devtools", "weather"]),
    ],
)
async def test_agents_are_found_by_words_tags_and_skills(
    shelf: Shelf, query: dict[str, Any], names: list[str]
) -> None:
    async with reading(shelf) as reader:
        assert await reader.names(**query) == names


@pytest.mark.proves("catalog")
@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
async def test_pages_together_are_the_whole(size: int) -> None:
    shelf, seen = Shelf(), []
    for number in range(7):
        shelf.put(f"agent-{number}", ("odd" if number % 2 else "even", ("t",)))
    async with reading(shelf) as reader:
        token = ""
        for _ in range(10):
            page = await reader.page(pageSize=size, pageToken=token)
            assert 0 < len(page["agents"]) <= size
            seen += [agent["name"] for agent in page["agents"]]
            if not (token := page["nextPageToken"]):
                break
        first = await reader.page(pageSize=2, skill="even")
        second = await reader.page(pageSize=2, skill="even", pageToken=first["nextPageToken"])
    assert seen == sorted(shelf.cards)
    assert [agent["name"] for agent in first["agents"]] == ["agent-0", "agent-2"]
    assert [agent["name"] for agent in second["agents"]] == ["agent-4", "agent-6"]
    assert second["nextPageToken"] == ""


async def test_fifty_agents_are_a_page_unless_another_size_is_asked_for() -> None:
    shelf = Shelf()
    for number in range(101):
        shelf.put(f"agent-{number:03}")
    async with reading(shelf) as reader:
        assert len(await reader.names()) == 50
        assert len(await reader.names(pageSize="")) == 50
        assert len(await reader.names(pageSize=100)) == 100


@pytest.mark.proves("catalog")
async def test_a_page_token_stays_good_when_agents_come_and_go(shelf: Shelf) -> None:
    async with reading(shelf) as reader:
        token = (await reader.page(pageSize=2))["nextPageToken"]
        assert (await reader.page(pageSize=2))["nextPageToken"] == token
        del shelf.cards["devtools"]
        shelf.put("early")
        shelf.put("late")
        shelf.put("a-first")
        assert await reader.names(pageToken=token) == ["early", "late", "weather"]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"pageSize": "0"}, "1 to 100"),
        ({"pageSize": "101"}, "1 to 100"),
        ({"pageSize": "-1"}, "1 to 100"),
        ({"pageSize": "ten"}, "1 to 100"),
        ({"pageSize": "٣"}, "1 to 100"),
        ({"pageSize": "9" * 5000}, "1 to 100"),
        ({"query": "x" * 201}, "200 characters"),
        ({"pageToken": "x"}, "pageToken"),
        ({"pageToken": "ä" * 4}, "pageToken"),
        ({"pageToken": "/w=="}, "pageToken"),
        ({"pageToken": base64.urlsafe_b64encode(b"0000000000000000:archive").decode()}, "pageToken"),
    ],
)
@pytest.mark.proves("catalog")
async def test_a_parameter_out_of_range_is_a_bad_request(
    shelf: Shelf, query: dict[str, str], said: str
) -> None:
    async with reading(shelf) as reader:
        assert said in await reader.refused(**query)


async def test_a_page_token_of_another_search_is_a_bad_request(shelf: Shelf) -> None:
    async with reading(shelf) as reader:
        token = (await reader.page(pageSize=1, tag="read-only"))["nextPageToken"]
        assert await reader.names(tag="Read-Only", pageToken=token) == ["weather"]
        for query in ({}, {"tag": "github"}, {"skill": "read-only"}, {"query": "read-only"}):
            assert "pageToken" in await reader.refused(pageToken=token, **query)


async def test_a_page_ends_before_it_weighs_too_much(shelf: Shelf) -> None:
    heavy = "x" * (catalog.PAGE_BYTES // 2)
    shelf.put("b-heavy", description=heavy)
    shelf.put("c-heavy", description=heavy)
    shelf.put("d-heavy", description=heavy * 3)
    async with reading(shelf) as reader:
        pages, token = [], "start"
        while token:
            page = await reader.page(pageToken="" if token == "start" else token)
            pages.append([agent["name"] for agent in page["agents"]])
            token = page["nextPageToken"]
    assert pages == [["archive", "b-heavy"], ["c-heavy"], ["d-heavy"], ["devtools", "weather"]]


@pytest.mark.proves("catalog")
async def test_an_unchanged_catalog_is_not_sent_again(shelf: Shelf) -> None:
    async with reading(shelf) as reader:
        answer = await reader.get()
        assert answer.headers["Cache-Control"] == "public, max-age=60"
        assert "Host" in answer.headers["Vary"]
        again = {"If-None-Match": f'"other", W/{answer.headers["ETag"]}'}
        unchanged = await reader.http.get(reader.url, headers=again)
        assert (unchanged.status_code, unchanged.content) == (304, b"")
        assert unchanged.headers["ETag"] == answer.headers["ETag"]
        other = await reader.http.get(reader.url, params={"tag": "github"}, headers=again)
        assert other.status_code == 200
        shelf.put("archive", ("find_anew", ("read-only",)))
        changed = await reader.http.get(reader.url, headers=again)
        assert changed.status_code == 200
        assert changed.headers["ETag"] != answer.headers["ETag"]
        assert changed.json()["agents"][0]["card"]["skills"][0]["id"] == "find_anew"


async def test_head_has_the_headers_of_get(shelf: Shelf) -> None:
    async with reading(shelf) as reader:
        got, head = await reader.get(), await reader.http.head(reader.url)
        refused = await reader.http.head(reader.url, params={"pageSize": "0"})
    assert (head.status_code, head.content) == (200, b"")
    for name in ("ETag", "Content-Length", "Content-Type", "Cache-Control"):
        assert head.headers[name] == got.headers[name]
    assert refused.status_code == 400


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
async def test_the_catalog_can_only_be_read(shelf: Shelf, method: str) -> None:
    async with reading(shelf) as reader:
        answer = await reader.http.request(method, reader.url)
    assert (answer.status_code, answer.headers["Allow"]) == (405, "GET, HEAD")
    assert answer.json() == {"error": {"message": "The catalog is read with GET"}}


@pytest.mark.proves("web-host")
@pytest.mark.parametrize(
    ("headers", "status"), [({"Host": "evil.example"}, 421), ({"Origin": "https://evil.example"}, 403)]
)
async def test_a_web_page_does_not_read_the_catalog(
    shelf: Shelf, headers: dict[str, str], status: int
) -> None:
    async with reading(shelf) as reader:
        answer = await reader.http.get(reader.url, headers=headers)
    assert answer.status_code == status
    assert "archive" not in answer.text
    assert answer.json()["error"]["message"]


@pytest.mark.proves("web-auth")
async def test_the_catalog_needs_the_credentials_that_the_agents_need(shelf: Shelf) -> None:
    one, other = Principal("one", skills=("archive/*",)), Principal("other")
    access = Access(verifiers_of([Credential(one, "token"), Credential(other, "key", Scheme.API_KEY)]))
    async with reading(shelf, access) as reader:
        stranger = await reader.http.post(reader.url, params={"pageSize": "0"})
        wrong = await reader.http.get(reader.url, headers={"X-API-Key": "token"})
        by_token = await reader.http.get(reader.url, headers={"Authorization": "Bearer token"})
        by_key = await reader.http.get(reader.url, headers={"X-API-Key": "key"})
    for refused in (stranger, wrong):
        assert refused.status_code == 401
        assert refused.headers["WWW-Authenticate"].startswith('Bearer realm="mcp-a2a"')
        assert "needed" in refused.json()["error"]["message"]
    assert by_token.status_code == by_key.status_code == 200
    assert by_token.content == by_key.content
    assert by_token.headers["Cache-Control"] == "private, max-age=60"
    assert {"Authorization", "X-API-Key"} <= set(by_token.headers["Vary"].split(", "))


async def test_the_error_for_a_failed_card_reveals_no_details(
    shelf: Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(base_url: str) -> AgentCard:
        raise RuntimeError(f"the password of {base_url} is swordfish")

    app = CatalogApp(
        lambda: [replace(one, card=broken) for one in shelf.published()],
        Access(()),
        FaceAddress(),
        PROFILE.card.max_age_seconds,
    )
    async with listening(app) as url, httpx2.AsyncClient() as http:
        answer = await http.get(f"{url}/agents")
    assert answer.status_code == 500
    assert answer.json() == {"error": {"message": "The bridge failed to answer; its log says why"}}
    assert "swordfish" in caplog.text
