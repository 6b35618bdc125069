"""How a catalog of agents is read, stored and watched, and which agents are selected."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from bridge.a2a.client import catalog as catalog_source
from bridge.a2a.client.agent_card import CardSource
from bridge.a2a.client.catalog import CatalogEntry, CatalogSource, Selection
from bridge.a2a.client.interfaces import Trust
from bridge.a2a.server.catalog import CatalogApp
from bridge.errors import PeerError
from bridge.http.client import GuardedClient, PeerCredentials, fixed_credentials
from bridge.http.request_checks import FaceAddress
from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import Access, Credential, verifiers_of
from tests.a2a.client.test_http_cache import QUICK, Publisher
from tests.a2a.server.test_catalog import Shelf
from tests.support.limits import PROFILE, card_bounds
from tests.support.running import listening

pytestmark = pytest.mark.proves("catalog-source")

PUBLIC = "https://catalog.example.com/agents"
KEY = fixed_credentials(PeerCredentials({"X-Key": "k"}))
TOKEN = fixed_credentials(PeerCredentials({"Authorization": "Bearer token"}))

Json = dict[str, Any]

_NO_PORTS = (99999, 0, -1, 65536, "9" * 150)
_NO_URLS = ("http://[::1", "//[::1", "http://[v1.x]/", "http://a\tb.example/", "http://" + "a" * 70_000)


def agent(name: str, card_url: str | None = None) -> Json:
    """An agent as a catalog lists it."""
    return {"name": name, "cardUrl": card_url or f"https://{name}.example.com/card.json", "card": {}}


class Catalog(Publisher):
    """A catalog of someone else: its pages by their tokens, each with the token of the next one."""

    def __init__(self, *pages: list[Any], **more: Any) -> None:
        super().__init__()
        self.pages: dict[str, Any] = {}
        self.publish(*pages, **more)

    def publish(self, *pages: list[Any], **more: Any) -> None:
        """List these."""
        last = len(pages) - 1
        for number, agents in enumerate(pages):
            following = f"p{number + 1}" if number < last else ""
            page = {"agents": agents, "nextPageToken": following, **more}
            self.pages[f"p{number}" if number else ""] = page

    def text(self, request: Request) -> str:
        return json.dumps(self.pages[request.query_params.get("pageToken", "")])


def public_source(catalog: Any, **choices: Any) -> CatalogSource:
    """A catalog on the public network, as far as its client can tell."""
    http = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=catalog))
    return CatalogSource(http, PUBLIC, None, card_bounds(), **choices)


def names(entries: tuple[CatalogEntry, ...] | None) -> list[str]:
    return [entry.name for entry in entries or ()]


@pytest.mark.proves("catalog-source")
async def test_the_catalog_of_another_bridge_is_read_whole(tmp_path: Path, http: httpx2.AsyncClient) -> None:
    shelf = Shelf()
    for number in range(250):
        shelf.put(f"agent-{number:03}")
    access = Access(verifiers_of([Credential(Principal("us"), "token")]))
    async with listening(
        CatalogApp(shelf.published, access, FaceAddress(), PROFILE.card.max_age_seconds)
    ) as url:
        with pytest.raises(PeerError, match=r"401 .*asks for credentials: Bearer"):
            await CatalogSource(http, f"{url}/agents", None, card_bounds()).refresh()
        source = CatalogSource(http, f"{url}/agents", tmp_path, card_bounds(), credentials=TOKEN)
        entries = await source.refresh()
        assert entries == tuple(
            CatalogEntry(name, f"{url}/agents/{name}/.well-known/agent-card.json")
            for name in sorted(shelf.cards)
        )
        assert await source.refresh() is entries
        del shelf.cards["agent-007"]
        assert await source.refresh() == tuple(entry for entry in entries if entry.name != "agent-007")
        assert source.is_own(entries[0].card_url)
    assert not source.is_own("https://agent.example.com/")


async def test_a_stored_catalog_lists_the_selected_agents(tmp_path: Path, http: httpx2.AsyncClient) -> None:
    async with listening(Catalog([agent("a")], [agent("b")])) as url:
        await CatalogSource(http, url, tmp_path, card_bounds()).refresh()
    only_b = CatalogSource(http, url, tmp_path, card_bounds(), selection=Selection(exclude=("a",)))
    assert names(only_b.cached()) == ["b"]


async def test_each_page_is_requested_with_its_validators(tmp_path: Path, http: httpx2.AsyncClient) -> None:
    catalog = Catalog([agent("a")], [agent("b")])
    async with listening(catalog) as url:
        await CatalogSource(http, f"{url}/agents?of=us", tmp_path, card_bounds(), credentials=KEY).refresh()
        source = CatalogSource(http, f"{url}/agents?of=us", tmp_path, card_bounds(), credentials=KEY)
        assert names(await source.refresh()) == ["a", "b"]
        catalog.publish([agent("a")], [agent("c")])
        assert names(await source.refresh()) == ["a", "c"]
        assert names(await source.refresh()) == ["a", "c"]
    assert catalog.answered == [200, 200, 304, 304, 304, 200, 304, 304]
    assert {sent["x-key"] for sent in catalog.sent} == {"k"}
    queries = [dict(asked.params) for asked in catalog.asked[:2]]
    assert queries == [
        {"of": "us", "pageSize": "100"},
        {"of": "us", "pageSize": "100", "pageToken": "p1"},
    ]


@pytest.mark.proves("catalog-source")
@pytest.mark.parametrize(
    ("selection", "wanted"),
    [
        (Selection(), ["dev", "dev-old", "sales"]),
        (Selection(("dev*",)), ["dev", "dev-old"]),
        (Selection(("dev*", "sales"), ("*-old",)), ["dev", "sales"]),
        (Selection(exclude=("*",)), []),
        (Selection(("DEV",)), []),
        (Selection(()), []),
    ],
)
async def test_only_what_is_included_and_not_excluded_is_taken(
    selection: Selection, wanted: list[str]
) -> None:
    source = public_source(Catalog([agent("dev"), agent("dev-old"), agent("sales")]), selection=selection)
    assert names(await source.refresh()) == wanted


@pytest.mark.proves("catalog-source")
@pytest.mark.parametrize(
    "inside",
    [
        "http://localhost:8080/",
        "http://127.0.0.1/card.json",
        "http://[::1]/",
        "https://10.1.2.3/",
        "http://169.254.169.254/latest",
        "http://printer/",
        "https://db.internal/",
    ],
)
async def test_a_public_catalog_that_names_a_private_address_is_not_followed_there(
    inside: str, caplog: pytest.LogCaptureFixture
) -> None:
    catalog = Catalog([agent("inside", inside), agent("fine")])
    assert names(await public_source(catalog).refresh()) == ["fine"]
    assert (
        "the agent inside is left out: the catalog at https://catalog.example.com/agents is public"
        in caplog.text
    )
    allowed = public_source(catalog, trust=Trust(allow_private=True))
    assert names(await allowed.refresh()) == ["inside", "fine"]
    assert allowed.guard(inside) is None


async def test_a_private_catalog_may_name_its_neighbours(http: httpx2.AsyncClient) -> None:
    async with listening(Catalog([agent("inside", "http://10.1.2.3/"), agent("fine")])) as url:
        source = CatalogSource(http, url, None, card_bounds())
        assert names(await source.refresh()) == ["inside", "fine"]
        assert source.guard("http://10.1.2.3/") is None


@pytest.mark.proves("catalog-source")
async def test_a_public_name_of_a_private_address_gets_no_request() -> None:
    neighbour = Catalog([])
    async with GuardedClient() as http, listening(neighbour) as url:
        card_url = url.replace("127.0.0.1", "127.1")  # a name to us, and this machine to the system
        [entry] = await public_source(Catalog([agent("odd", card_url)])).refresh()
        guard = public_source(Catalog()).guard(entry.card_url)
        with pytest.raises(PeerError, match="which is a private address"):
            await CardSource(http, entry.card_url, None, card_bounds(), guard=guard).refresh()
        assert neighbour.asked == []
        with pytest.raises(PeerError, match="not an agent card"):
            await CardSource(http, entry.card_url, None, card_bounds()).refresh()
        assert neighbour.asked != []


@pytest.mark.proves("catalog-source")
async def test_credentials_do_not_follow_a_redirect_to_another_origin(http: httpx2.AsyncClient) -> None:
    thief = Catalog([agent("a")])
    async with listening(thief) as elsewhere:

        async def redirecting(scope: Scope, receive: Receive, send: Send) -> None:
            await Response(status_code=307, headers={"Location": elsewhere})(scope, receive, send)

        async with listening(redirecting) as url:
            source = CatalogSource(http, url, None, card_bounds(), credentials=TOKEN)
            with pytest.raises(PeerError, match="redirects to another origin"):
                await source.refresh()
    assert thief.asked == []


async def test_odd_agents_are_left_out_and_the_others_taken(caplog: pytest.LogCaptureFixture) -> None:
    odd: list[Any] = [
        None,
        "a",
        {},
        {"name": "", "cardUrl": "https://x.example.com/"},
        {"name": "x" * 201, "cardUrl": "https://x.example.com/"},
        {"name": "new\nline", "cardUrl": "https://x.example.com/"},
        {"name": "no-url"},
        {"name": "no-text", "cardUrl": 7},
        {"name": "ftp", "cardUrl": "ftp://x.example.com/card.json"},
        {"name": "script", "cardUrl": "javascript:alert(1)"},
        {"name": "login", "cardUrl": "https://a:b@x.example.com/"},
        {"name": "broken", "cardUrl": "https://x.example.com:port/"},
        *({"name": f"port{port}", "cardUrl": f"http://127.0.0.1:{port}/"} for port in _NO_PORTS),
        *({"name": f"odd{number}", "cardUrl": url} for number, url in enumerate(_NO_URLS)),
        {"name": "twice", "cardUrl": "https://one.example.com/"},
        {"name": "twice", "cardUrl": "https://two.example.com/"},
        {"name": "base", "url": "https://base.example.com/a2a"},
        {"name": "near", "cardUrl": "/agents/near/card.json#fragment"},
    ]
    assert await public_source(Catalog(odd, note="kept to itself")).refresh() == (
        CatalogEntry("twice", "https://one.example.com/"),
        CatalogEntry("base", "https://base.example.com/a2a"),
        CatalogEntry("near", "https://catalog.example.com/agents/near/card.json"),
    )
    assert "lists 8 agents without a name or a URL" in caplog.text
    assert "lists twice twice" in caplog.text


@pytest.mark.parametrize(
    "page",
    [
        [],
        {},
        "agents",
        {"agents": {}},
        {"agents": [], "nextPageToken": 1},
        {"name": "a card", "skills": []},
    ],
)
async def test_a_body_that_is_not_a_catalog_is_an_error(page: Any) -> None:
    catalog = Catalog([])
    catalog.pages[""] = page
    with pytest.raises(PeerError, match="is not a catalog of agents"):
        await public_source(catalog).refresh()


@pytest.mark.parametrize(
    ("status", "said"), [(404, "there is no catalog"), (500, "HTTP 500"), (403, "HTTP 403")]
)
async def test_an_invalid_catalog_does_not_replace_the_known_catalog(status: int, said: str) -> None:
    catalog = Catalog([agent("a")])
    source = public_source(catalog)
    entries = await source.refresh()
    catalog.status = status
    with pytest.raises(PeerError, match=said):
        await source.refresh()
    assert source.cached() is entries


async def test_a_304_for_a_catalog_that_was_never_read_is_an_error() -> None:
    catalog = Catalog([])
    catalog.status = 304
    with pytest.raises(PeerError, match="has never read it"):
        await public_source(catalog).refresh()


@pytest.mark.proves("catalog-source")
async def test_an_endless_catalog_is_given_up() -> None:
    catalog = Catalog(*([agent(f"a{number}")] for number in range(catalog_source.MOST_PAGES + 1)))
    with pytest.raises(PeerError, match=f"does not end within {catalog_source.MOST_PAGES} pages"):
        await public_source(catalog).refresh()
    circle = Catalog([agent("a")])
    circle.pages[""]["nextPageToken"] = "p1"
    circle.pages["p1"] = {"agents": [], "nextPageToken": "p1"}
    with pytest.raises(PeerError, match="does not end within 2 pages"):
        await public_source(circle).refresh()
    crowd = Catalog([agent(f"a{number}") for number in range(catalog_source.MOST_AGENTS + 1)])
    with pytest.raises(PeerError, match=f"more than {catalog_source.MOST_AGENTS} agents"):
        await public_source(crowd).refresh()


@pytest.mark.proves("catalog-source")
async def test_a_page_that_is_too_large_is_not_read_further() -> None:
    sent = 0

    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal sent
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(20):
            sent += 1 << 20
            await send({"type": "http.response.body", "body": b" " * (1 << 20), "more_body": True})

    async with listening(endless) as url, httpx2.AsyncClient() as http:
        with pytest.raises(PeerError, match="more than 16777216 bytes"):
            await CatalogSource(http, url, None, card_bounds()).refresh()


@pytest.mark.proves("catalog-source")
async def test_watchers_get_new_agents_and_no_known_agents(tmp_path: Path, http: httpx2.AsyncClient) -> None:
    catalog = Catalog([agent("a"), agent("hidden")])
    catalog.headers["Cache-Control"] = "no-cache"
    told: list[list[str]] = []
    moved = anyio.Event()

    async def on_change(entries: tuple[CatalogEntry, ...]) -> None:
        told.append(names(entries))
        moved.set()

    selection = Selection(exclude=("hidden*",))
    async with listening(catalog) as url, anyio.create_task_group() as tasks:
        await CatalogSource(http, url, tmp_path, card_bounds(), selection=selection).refresh()
        tasks.start_soon(CatalogSource(http, url, tmp_path, QUICK, selection=selection).watch, on_change)
        with anyio.fail_after(20):
            await catalog.until(304, 3)
            catalog.status = 500
            await catalog.until(500, 2)
            catalog.publish([agent("a"), agent("hidden-too")])
            catalog.status = 200
            await catalog.until(200, 2)
            await catalog.until(304, 5)
            assert told == []
            catalog.publish([agent("a"), agent("b")])
            await moved.wait()
        tasks.cancel_scope.cancel()
    assert told == [["a", "b"]]


async def test_a_watcher_that_fails_gets_the_change_again(
    http: httpx2.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    catalog = Catalog([agent("a")])
    told: list[list[str]] = []
    heard = anyio.Event()

    async def on_change(entries: tuple[CatalogEntry, ...]) -> None:
        told.append(names(entries))
        if len(told) == 1:
            raise ValueError("nobody foresaw this")
        heard.set()

    async with listening(catalog) as url, anyio.create_task_group() as tasks:
        tasks.start_soon(CatalogSource(http, url, None, QUICK).watch, on_change)
        with anyio.fail_after(20):
            await heard.wait()
        tasks.cancel_scope.cancel()
    assert told == [["a"], ["a"]]
    assert "continues to follow it" in caplog.text


def test_a_stored_catalog_that_cannot_be_read_is_ignored(tmp_path: Path) -> None:
    class Breaking(CatalogSource):
        def _read(self, kept: Any) -> tuple[CatalogEntry, ...]:
            raise ValueError("nobody foresaw this")

    source = Breaking(httpx2.AsyncClient(), PUBLIC, tmp_path, QUICK)
    assert source._file is not None
    source._file.write_text(json.dumps({"pages": [], "fresh_until": 0}))
    assert source.cached() is None


CARD_TYPE = "application/a2a-agent-card+json"


def listed(urn: str, **more: Any) -> Json:
    """An entry of ARD or AI Catalog for an Agent Card."""
    url = f"https://cards.example.com/{urn.rpartition(':')[2]}.json"
    return {"identifier": urn, "type": CARD_TYPE, "url": url, **more}


class Document(Catalog):
    """A document of someone else with entries."""

    def __init__(self, *entries: Any, **more: Any) -> None:
        super().__init__([])
        self.pages = {"": {"entries": [*entries], **more}}


async def entries_of(*entries: Any, **more: Any) -> list[tuple[str, str]]:
    found = await public_source(Document(*entries, **more)).refresh()
    return [(entry.name, entry.card_url) for entry in found]


@pytest.mark.proves("catalog-source")
async def test_the_entries_for_agent_cards_are_the_agents_of_a_document() -> None:
    found = await entries_of(
        listed("urn:air:example.com:finance:trader"),
        listed("https://example.com/agents/clerk", url="/cards/clerk.json"),
        listed("urn:air:example.com:old", type=f"{CARD_TYPE.title()}; charset=utf-8"),
        {"identifier": "urn:x:a:draft", "mediaType": CARD_TYPE, "url": "https://cards.example.com/draft"},
        listed("urn:air:example.com:mcp:weather", type="application/mcp-server-card+json"),
        listed("urn:air:example.com:catalog:more", type="application/ai-catalog+json"),
        specVersion="1.7",
    )
    assert found == [
        ("trader", "https://cards.example.com/trader.json"),
        ("clerk", "https://catalog.example.com/cards/clerk.json"),
        ("old", "https://cards.example.com/old.json"),
        ("draft", "https://cards.example.com/draft"),
    ]


@pytest.mark.parametrize(
    ("versions", "newest"),
    [
        (({"version": "2.0.0"}, {"version": "10.0.0"}, {"version": "9.1"}), 1),
        (({"version": "1.0.0-rc.1"}, {"version": "1.0.0"}), 1),
        (({"version": "1.0.0"}, {"version": "spring"}), 0),
        (({"updatedAt": "2026-01-01T00:00:00Z"}, {"updatedAt": "2026-02-01T00:00:00Z"}), 1),
        (({}, {}), 0),
    ],
)
async def test_the_newest_version_of_an_agent_counts(versions: tuple[Json, ...], newest: int) -> None:
    entries = [
        listed("urn:air:example.com:agent:a", url=f"https://cards.example.com/{number}", **version)
        for number, version in enumerate(versions)
    ]
    assert await entries_of(*entries) == [("a", f"https://cards.example.com/{newest}")]


@pytest.mark.parametrize("entry", [listed("urn:a:b", url=None) | {"data": {}}, listed("x", identifier=7)])
async def test_an_entry_without_an_address_or_a_name_is_left_out(
    entry: Json, caplog: pytest.LogCaptureFixture
) -> None:
    assert await entries_of(entry, listed("urn:air:example.com:agent:a")) == [
        ("a", "https://cards.example.com/a.json")
    ]
    assert "lists 1 agent without a name or a URL" in caplog.text


async def test_a_document_of_a_later_major_version_is_refused() -> None:
    with pytest.raises(PeerError, match=r"its specVersion is 2\.0, and the bridge reads 1\.x"):
        await entries_of(listed("urn:air:example.com:agent:a"), specVersion="2.0")


async def test_a_document_is_bounded_and_guarded_as_a_catalog_is(monkeypatch: pytest.MonkeyPatch) -> None:
    inside = listed("urn:air:example.com:agent:inside", url="http://127.0.0.1/card.json")
    assert await entries_of(inside, listed("urn:air:example.com:agent:a")) == [
        ("a", "https://cards.example.com/a.json")
    ]
    monkeypatch.setattr(catalog_source, "MOST_AGENTS", 1)
    with pytest.raises(PeerError, match="lists more than 1 agents"):
        await entries_of(listed("urn:air:example.com:agent:a"), listed("urn:air:example.com:agent:b"))
