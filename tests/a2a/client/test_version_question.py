"""How an agent is asked for the version that its card lacks, and how the answer is read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import anyio
import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from bridge.a2a.client.agent_card import CardSource, FoundCard, UnknownVersionError, fetch_card
from bridge.a2a.client.credentials import Credentials
from bridge.a2a.client.interfaces import ConnectionPolicy, Trust, interfaces_of
from bridge.a2a.client.version_question import version_question
from bridge.a2a.wire.versions import VERSIONS
from bridge.http.client import GuardedClient
from tests.support.limits import card_bounds, client_options, deadlines
from tests.support.running import listening
from tests.support.scripted_agent import Json, plain_card, unsaid_card

pytestmark = pytest.mark.proves("map-version-asked")


def refusal(code: int) -> Json:
    return {"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": "No"}}


QUESTION: Final[Json] = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {}}
OF_SDK_0_2_5: Final[Json] = {
    "jsonrpc": "2.0",
    "error": {
        "code": -32600,
        "message": "Request payload validation error",
        "data": [
            {"type": "missing", "loc": ["SendMessageRequest", "params", "message"], "msg": "Field required"},
            {"type": "literal_error", "loc": ["GetTaskRequest", "method"], "input": "message/send"},
        ],
    },
}
"""How a2a-sdk 0.2.5 refuses a message without content, shortened."""
OF_SAMPLES: Final[Json] = {
    "jsonrpc": "2.0",
    "error": {
        "code": -32600,
        "message": "Request payload validation error",
        "data": [{"type": "union_tag_invalid", "loc": [], "msg": "Input tag 'message/send' found"}],
    },
}
"""How the server of the 2025 samples refuses it, under HTTP 400, shortened."""


def said(body: object, status: int = 200) -> Response:
    return JSONResponse(body, status)


@dataclass
class Agent:
    """Serves a card that says no version, and answers every request with the same."""

    answer: Response
    card_url: str = ""
    """Where the card says to call it; "" for where it is."""
    name: str = "Unsaid"
    path: str = "/.well-known/agent-card.json"
    more: Json = field(default_factory=dict)
    url: str = ""
    asked: list[Any] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    released: anyio.Event | None = None
    """When it answers; None for at once."""

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        routes = [Route(self.path, self._card), Route("/", self._answer, methods=["POST"])]
        async with listening(Starlette(routes=routes)) as self.url:
            yield self.url

    async def _card(self, _: Request) -> Response:
        card = unsaid_card(plain_card(self.card_url or f"{self.url}/"))
        return said({**card, "name": self.name, **self.more})

    async def _answer(self, request: Request) -> Response:
        self.asked.append(await request.json())
        self.headers.append(dict(request.headers))
        if self.released is not None:
            await self.released.wait()
        return self.answer


@pytest.fixture
async def http() -> AsyncIterator[httpx2.AsyncClient]:
    async with GuardedClient() as http:
        yield http


async def found(http: httpx2.AsyncClient, url: str, **options: Any) -> FoundCard:
    """The card of the agent at a URL, whose version is asked for with these options."""
    return await fetch_card(http, url, ask_version=version_question(http, client_options(**options)))


def source(http: httpx2.AsyncClient, url: str, folder: Path, **options: Any) -> CardSource:
    question = version_question(http, client_options(**options))
    return CardSource(http, url, folder, card_bounds(), ask_version=question)


def version_of(card: FoundCard) -> str:
    [(_, dialect)] = interfaces_of(card.card)
    return dialect.version


@pytest.mark.parametrize(
    ("answer", "version"),
    [
        (said(refusal(-32602)), "0.3"),
        (said(refusal(-32602), 400), "0.3"),
        (said(OF_SDK_0_2_5), "0.3"),
        (said(OF_SAMPLES, 400), "0.1"),
        (said(refusal(-32601)), "0.1"),
        (said(refusal(-32600)), "0.1"),
        (said(refusal(-32600), 400), "0.1"),
        (said({"error": {"code": 404, "message": "Not Found"}}, 404), "0.1"),
        (said({"detail": "what is this?"}, 400), "0.1"),
        (Response("Not Found", 404), "0.1"),
        (Response("Method Not Allowed", 405), "0.1"),
    ],
)
async def test_the_refusal_of_an_empty_message_shows_the_version(
    http: httpx2.AsyncClient, answer: Response, version: str
) -> None:
    agent = Agent(answer)
    async with agent.serve() as url:
        card = await found(http, url)
    assert (version_of(card), card.told_version, card.is_open) == (version, version, False)
    assert agent.asked == [QUESTION]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            said(refusal(-32603)),
            'HTTP 200: {"jsonrpc": "2.0", "id": 1, "error": {"code": -32603, "message": "No"}}',
        ),
        (
            said({"jsonrpc": "2.0", "id": 1, "result": {}}),
            'HTTP 200: {"jsonrpc": "2.0", "id": 1, "result": {}}',
        ),
        (said({"detail": "broken"}, 500), 'HTTP 500: {"detail": "broken"}'),
        (Response("Welcome", 200), "HTTP 200"),
        (Response("Log in", 401), "HTTP 401"),
    ],
)
async def test_any_other_answer_is_an_error_that_says_how_to_configure_the_version(
    http: httpx2.AsyncClient, answer: Response, words: str
) -> None:
    async with Agent(answer).serve() as url:
        with pytest.raises(UnknownVersionError) as caught:
            await found(http, url)
    assert str(caught.value) == (
        f"the card at {url}/.well-known/agent-card.json does not say which version of A2A its agent speaks, as it"
        f" should (`protocolVersion`), and the agent answered a message without content with {words}."
        ' If you know the version, write `dialect = "0.3"` or `dialect = "0.1"` into its table [agents.NAME]'
    )


async def test_an_unreachable_agent_is_asked_again_later(http: httpx2.AsyncClient, tmp_path: Path) -> None:
    agent = Agent(said(refusal(-32603)))
    async with agent.serve() as url:
        card = source(http, url, tmp_path, trust=Trust(on_command_line=True))
        with pytest.raises(UnknownVersionError, match=r"give --dialect 0\.3 or --dialect 0\.1$"):
            await card.refresh()
        assert (card.cached(), list(tmp_path.iterdir())) == (None, [])
        agent.answer = said(refusal(-32601))
        assert version_of(await card.refresh()) == "0.1"


async def test_an_agent_that_does_not_answer_is_waited_for_as_long_as_for_any_other_answer(
    http: httpx2.AsyncClient,
) -> None:
    agent = Agent(Response())
    async with agent.serve() as url:
        agent.released = anyio.Event()
        with pytest.raises(UnknownVersionError, match=r"the agent gave no answer within 0\.05 s\."):
            await found(http, url, deadlines=deadlines(answer_seconds=0.05))
        agent.released.set()


async def test_the_version_is_asked_for_once_and_remembered_until_the_card_changes(
    http: httpx2.AsyncClient, tmp_path: Path
) -> None:
    agent = Agent(said(refusal(-32601)))
    async with agent.serve() as url:
        first = source(http, url, tmp_path)
        assert [version_of(await first.refresh()) for _ in range(3)] == ["0.1"] * 3
        second = source(http, url, tmp_path)
        cached = second.cached()
        assert cached is not None
        agent.answer = said(refusal(-32602))
        assert (version_of(cached), version_of(await second.refresh())) == ("0.1", "0.1")
        assert len(agent.asked) == 1
        agent.name = "Renewed"
        assert version_of(await second.refresh()) == "0.3"
    assert len(agent.asked) == 2


async def test_a_card_without_a_version_does_not_replace_the_known_card(
    http: httpx2.AsyncClient, tmp_path: Path
) -> None:
    agent = Agent(said(refusal(-32601)))
    async with agent.serve() as url:
        card = source(http, url, tmp_path)
        known = await card.refresh()
        agent.answer, agent.name = said({}, 503), "Renewed"
        with pytest.raises(UnknownVersionError):
            await card.refresh()
        assert card.cached() is known


async def test_a_stored_card_with_a_configured_version_is_asked_about_without_the_configuration(
    http: httpx2.AsyncClient, tmp_path: Path
) -> None:
    agent = Agent(said(refusal(-32602)))
    async with agent.serve() as url:
        chosen = VERSIONS.chosen("0.1")
        told = source(http, url, tmp_path, versions=chosen)
        card = await told.refresh()
        [(_, dialect)] = interfaces_of(card.card, chosen)
        assert (dialect.version, agent.asked) == ("0.1", [])
        assert source(http, url, tmp_path, versions=chosen).cached() == card
        untold = source(http, url, tmp_path)
        assert untold.cached() is None
        assert version_of(await untold.refresh()) == "0.3"


@pytest.mark.parametrize(
    ("path", "more", "version"),
    [
        ("/.well-known/agent-card.json", {"protocolVersion": "0.3.0"}, "0.3"),
        ("/.well-known/agent-card.json", {"authentication": {"schemes": []}}, "0.1"),
        ("/.well-known/agent-card.json", {"security": []}, "0.3"),
        ("/.well-known/agent.json", {"authentication": {"schemes": []}}, "0.1"),
        ("/.well-known/agent.json", {"security": []}, "0.3"),
    ],
)
async def test_a_card_that_says_its_version_in_any_way_is_believed(
    http: httpx2.AsyncClient, path: str, more: Json, version: str
) -> None:
    agent = Agent(said({}, 500), path=path, more=more)
    async with agent.serve() as url:
        assert version_of(await found(http, url)) == version
    assert agent.asked == []


@pytest.mark.parametrize(
    ("answer", "version", "told"),
    [
        (said(refusal(-32602)), "0.3", "0.3"),
        (said(OF_SDK_0_2_5), "0.3", "0.3"),
        (said(OF_SAMPLES, 400), "0.1", "0.1"),
        (said({}, 500), "0.1", ""),
    ],
)
async def test_an_agent_whose_card_is_only_at_the_older_place_is_of_the_first_generation_unless_it_tells_another(
    http: httpx2.AsyncClient, tmp_path: Path, answer: Response, version: str, told: str
) -> None:
    """a2a-sdk 0.2.5 serves its card there, and says nothing on it that the first generation would not say."""
    agent = Agent(answer, path="/.well-known/agent.json")
    async with agent.serve() as url:
        card = await source(http, url, tmp_path).refresh()
        assert (version_of(card), card.told_version) == (version, told)
        again = source(http, url, tmp_path)
        assert again.cached() == card
        assert await again.refresh() == card
    assert agent.asked == [QUESTION]


async def test_an_agent_is_asked_with_its_credentials_and_only_at_its_own_origin(
    http: httpx2.AsyncClient,
) -> None:
    key = {"credentials": Credentials({"X-Key": "k"}, bearer="t")}
    here, there = Agent(said(refusal(-32601))), Agent(said(refusal(-32601)))
    async with there.serve() as other_url, here.serve() as url:
        await found(http, url, **key)
        here.card_url = f"{other_url}/"
        with pytest.raises(
            UnknownVersionError, match="another origin, so the credentials are not sent there"
        ):
            await found(http, url, **key)
        assert there.asked == []
        trust = Trust(frozenset({other_url}))
        await found(http, url, **key, trust=trust)
    [seen] = here.headers
    assert (seen["x-key"], seen["authorization"]) == ("k", "Bearer t")
    assert len(there.asked) == 1


async def test_a_public_card_causes_no_request_to_a_private_address(http: httpx2.AsyncClient) -> None:
    agent = Agent(said(refusal(-32601)))

    async def inside(_: str, __: int) -> list[str]:
        return ["127.0.0.1"]

    async with agent.serve() as url:
        port = httpx2.URL(url).port
        agent.card_url = f"http://rebound.example.com:{port}/"
        card = await fetch_card(http, url)
        public = replace(card, url="http://agent.example.com/.well-known/agent-card.json")
        reach = ConnectionPolicy(public.url, resolve=inside)
        ask = version_question(http, client_options(reach=reach))
        assert ask is not None
        with pytest.raises(UnknownVersionError, match="private address"):
            await ask(public)
    assert agent.asked == []
