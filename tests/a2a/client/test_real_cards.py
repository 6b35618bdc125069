"""Recorded cards and errors of agents: each row is from a public report."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from bridge.a2a.client.agent_card import FoundCard, card_from, fetch_card
from bridge.a2a.client.agent_client import AgentClient
from bridge.a2a.client.bindings import AgentRefusedError
from bridge.a2a.client.card_places import LockedCardError, NoCardError
from bridge.a2a.client.credentials import Credentials, CredentialsMissingError, apply_credentials
from bridge.a2a.client.follow import converse, is_transient
from bridge.a2a.client.http import AgentBusyError, UnansweredError, retry_after_seconds
from bridge.a2a.client.interfaces import Trust, address_notes, permitted_interfaces
from bridge.a2a.model.objects import AgentCard, Message, Part, Role, SendMessageRequest
from bridge.errors import PeerError
from tests.support.agents import found_at
from tests.support.limits import client_options, pace_of
from tests.support.running import listening

pytestmark = pytest.mark.proves("map-agent-read-alone")

HERE = "https://agent.example.com/.well-known/agent-card.json"
NEWER: dict[str, Any] = {
    "name": "Real",
    "description": "d",
    "version": "1",
    "supportedInterfaces": [
        {"url": "https://agent.example.com/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    ],
    "capabilities": {"streaming": True},
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [{"id": "act", "name": "Act", "description": "Acts", "tags": ["test"]}],
}
OLDER: dict[str, Any] = {
    **{name: item for name, item in NEWER.items() if name != "supportedInterfaces"},
    "url": "https://agent.example.com/",
    "preferredTransport": "JSONRPC",
    "protocolVersion": "0.3.0",
}
_SKILL = NEWER["skills"][0]

ODD: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({"skills": [{**_SKILL, "tags": None, "examples": None, "inputModes": None}]}, ("act",)),
    ({"skills": None, "description": None, "version": None, "capabilities": None}, ()),
    ({"defaultInputModes": None, "defaultOutputModes": None}, ("act",)),
    ({"capabilities": {"streaming": True, "extensions": None, "pushNotifications": None}}, ("act",)),
    ({"capabilities": {"streaming": "yes", "extensions": [{"uri": 5}, "x"]}}, ("act",)),
    ({"provider": {"organization": "o"}}, ("act",)),
    ({"provider": None, "documentationUrl": None, "iconUrl": 7}, ("act",)),
    ({"skills": [_SKILL, {"description": "neither id nor name"}]}, ("act",)),
    ({"skills": [_SKILL, {"id": "by-id"}, {"name": "by name"}]}, ("act", "by-id", "by name")),
    ({"skills": [_SKILL, "x", None, {"id": 5}]}, ("act",)),
    ({"signatures": [{"protected": None}]}, ("act",)),
    ({"signatures": "x"}, ("act",)),
    ({"securitySchemes": None, "securityRequirements": None, "security": None}, ("act",)),
    ({"supportsAuthenticatedExtendedCard": None, "additionalInterfaces": None}, ("act",)),
]
"""What differs on a card, and the skills that are left."""


@pytest.mark.parametrize("card", [NEWER, OLDER], ids=["1.0", "0.3"])
@pytest.mark.parametrize(("changes", "skills"), ODD, ids=[json.dumps(one)[:60] for one, _ in ODD])
def test_a_faulty_dispensable_field_does_not_stop_a_card(
    card: dict[str, Any], changes: dict[str, Any], skills: tuple[str, ...]
) -> None:
    read, deviations = card_from(json.dumps({**card, **changes}).encode(), "here", HERE)
    assert tuple(skill.id for skill in read.skills) == skills
    assert read.supported_interfaces[0].url == "https://agent.example.com/"
    lost = len(changes.get("skills") or ()) - len(skills) if "skills" in changes else 0
    assert sum(one.startswith("skill ") for one in deviations) == max(lost, 0)


def test_an_interface_that_cannot_be_used_is_left_out() -> None:
    odd = [{"protocolBinding": "JSONRPC"}, "x", *NEWER["supportedInterfaces"]]
    read, deviations = card_from(json.dumps({**NEWER, "supportedInterfaces": odd}).encode(), "here")
    assert [one.url for one in read.supported_interfaces] == ["https://agent.example.com/"]
    assert sum(one.startswith("interface ") for one in deviations) == 2
    for none in ([], ["x"], None):
        with pytest.raises(PeerError, match="is not an agent card"):
            card_from(json.dumps({**NEWER, "supportedInterfaces": none}).encode(), "here")


# Where a card is


@asynccontextmanager
async def serving(routes: dict[str, Callable[[str], Response]], asked: list[str]) -> AsyncIterator[str]:
    """A server with these paths. Each path gets the server's URL; all other paths are 404."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        asked.append(request.url.path)
        made = routes.get(request.url.path, lambda _: Response(status_code=404))
        await made(str(request.base_url).rstrip("/"))(scope, receive, send)

    async with listening(app) as url:
        yield url


def card_naming(path: str, card: dict[str, Any] = NEWER) -> Callable[[str], Response]:
    def made(root: str) -> Response:
        if "url" in card:
            return JSONResponse({**card, "url": f"{root}{path}"})
        return JSONResponse(
            {**card, "supportedInterfaces": [{**card["supportedInterfaces"][0], "url": f"{root}{path}"}]}
        )

    return made


@pytest.mark.proves("map-card-found", "map-trust")
@pytest.mark.parametrize("card", [NEWER, OLDER], ids=["1.0", "0.3"])
@pytest.mark.parametrize("place", ["/.well-known/agent-card.json", "/.well-known/agent.json"])
@pytest.mark.parametrize(
    ("named", "is_taken"), [("/a2a/v1", True), ("/a2a/v1/", True), ("/a2a/v2", False), ("", False)]
)
async def test_a_card_at_the_origin_is_taken_if_it_names_the_endpoint(
    card: dict[str, Any], place: str, named: str, is_taken: bool, http: httpx2.AsyncClient
) -> None:
    async with serving({place: card_naming(named, card)}, []) as url:
        if is_taken:
            assert (await fetch_card(http, f"{url}/a2a/v1")).url == f"{url}{place}"
            return
        with pytest.raises(NoCardError, match=f"card at {url}{place} is of another agent: it does not name"):
            await fetch_card(http, f"{url}/a2a/v1")


PAGE = Response("<html>welcome</html>", media_type="text/html")


@pytest.mark.proves("map-card-found")
@pytest.mark.parametrize(
    "first",
    [
        Response(status_code=401),
        Response(status_code=401, headers={"WWW-Authenticate": 'Bearer resource_metadata="https://x"'}),
        Response(status_code=403),
        Response(status_code=404),
        Response(status_code=400),
        PAGE,
        Response("[]"),
    ],
    ids=["401", "401 login", "403", "404", "400", "page", "list"],
)
async def test_the_older_card_path_is_tried_whatever_the_newer_path_answers(
    first: Response, http: httpx2.AsyncClient
) -> None:
    routes: dict[str, Callable[[str], Response]] = {"/.well-known/agent-card.json": lambda _: first}
    older: dict[str, Callable[[str], Response]] = {"/.well-known/agent.json": card_naming("/", OLDER)}
    async with serving({**routes, **older}, []) as url:
        assert (await fetch_card(http, url)).url == f"{url}/.well-known/agent.json"
    forbidden: dict[str, Callable[[str], Response]] = {
        "/.well-known/agent.json": lambda _: Response(status_code=403)
    }
    async with serving({**routes, **forbidden}, []) as url:
        with pytest.raises(PeerError) as refused:
            await fetch_card(http, url)
    words = str(refused.value)
    assert f"{url}/.well-known/agent.json answered HTTP 403 Forbidden" in words
    assert f"{url}/.well-known/agent-card.json" in words
    assert isinstance(refused.value, LockedCardError) == ("WWW-Authenticate" in first.headers)


# Addresses of a server's own


def named(url: str, at: str) -> FoundCard:
    interface = {**NEWER["supportedInterfaces"][0], "url": url}
    return FoundCard(at, b"", AgentCard.model_validate({**NEWER, "supportedInterfaces": [interface]}))


@pytest.mark.proves("map-trust")
@pytest.mark.parametrize(
    ("url", "at", "called"),
    [
        ("http://0.0.0.0:9/a", "http://10.0.0.5:9/card", "http://10.0.0.5:9/a"),
        ("http://[::]:9/a", "http://10.0.0.5:9/card", "http://10.0.0.5:9/a"),
        ("http://localhost:9/a", "http://10.0.0.5:9/card", "http://10.0.0.5:9/a"),
        ("http://127.0.0.1:9/a", "http://10.0.0.5:9/card", "http://10.0.0.5:9/a"),
        ("http://0.0.0.0:9/a", "http://127.0.0.1:9/card", "http://127.0.0.1:9/a"),
        ("http://0.0.0.0:9/a", "http://[::1]:9/card", "http://[::1]:9/a"),
        ("http://localhost:9/a", "http://127.0.0.1:9/card", "http://localhost:9/a"),
        ("https://0.0.0.0/a", HERE, "https://agent.example.com/a"),
        ("http://localhost:8000/a", HERE, "http://agent.example.com:8000/a"),
        ("https://other.example.com/a", HERE, "https://other.example.com/a"),
    ],
)
def test_the_address_at_which_a_server_listens_is_called_at_the_cards_host(
    url: str, at: str, called: str
) -> None:
    found = named(url, at)
    [(interface, _)] = permitted_interfaces(found, Trust(), has_credentials=False)
    assert interface.url == called
    notes = address_notes(found, Trust())
    assert bool(notes) == (url != called)
    assert all(url in note and called in note for note in notes)


@pytest.mark.proves("map-trust")
def test_an_address_of_a_server_is_refused_where_the_cards_host_is_not_allowed_either() -> None:
    for url in ("http://a:0/", "http://a:99999/"):
        with pytest.raises(PeerError, match="is not a URL"):
            permitted_interfaces(named(url, HERE), Trust(), has_credentials=False)
    with pytest.raises(PeerError, match="which is another origin, so the credentials are not sent there"):
        permitted_interfaces(named("http://localhost:8000/", HERE), Trust(), has_credentials=True)
    with pytest.raises(PeerError, match="is public and says to call"):
        permitted_interfaces(named("http://127.0.0.1:8000/", HERE), Trust(), has_credentials=False)
    for trust in (Trust(allow_private=True), Trust(frozenset({"http://localhost:8000"}))):
        found = named("http://localhost:8000/", HERE)
        [(kept, _)] = permitted_interfaces(found, trust, has_credentials=False)
        assert (kept.url, address_notes(found, trust)) == ("http://localhost:8000/", ())


@pytest.mark.proves("map-trust")
def test_an_interface_without_a_url_does_not_stop_the_others() -> None:
    listed = [{**NEWER["supportedInterfaces"][0], "url": url} for url in ("http://a:0/", f"{HERE}/a")]
    card = AgentCard.model_validate({**NEWER, "supportedInterfaces": listed})
    found = FoundCard(HERE, b"", card)
    [(interface, _)] = permitted_interfaces(found, Trust(), has_credentials=False)
    assert interface.url == f"{HERE}/a"
    assert address_notes(found, Trust()) == ()


# Credentials


@pytest.mark.parametrize("scheme", ["bearer", "Bearer", "BEARER"])
@pytest.mark.parametrize("is_older", [True, False])
def test_a_scheme_is_sent_as_its_registered_name_is_written(scheme: str, is_older: bool) -> None:
    card = OLDER if is_older else NEWER
    described = {"type": "http", "scheme": scheme}
    wrapped = described if is_older else {"httpAuthSecurityScheme": {"scheme": scheme}}
    asks = {"security": [{"b": []}]} if is_older else {"securityRequirements": [{"schemes": {"b": {}}}]}
    read, _ = card_from(json.dumps({**card, **asks, "securitySchemes": {"b": wrapped}}).encode(), "here")
    assert apply_credentials(read, Credentials(bearer="T")).headers == {"Authorization": "Bearer T"}


@pytest.mark.parametrize(
    "schemes",
    [{}, None, {"odd": {"type": "quantum"}}, {"odd": {}}, {"odd": {"type": "apiKey", "in": "body"}}],
)
def test_a_configured_header_satisfies_a_scheme_that_the_card_does_not_describe(schemes: Any) -> None:
    asks = {"securitySchemes": schemes, "securityRequirements": [{"schemes": {"odd": {}}}]}
    read, _ = card_from(json.dumps({**NEWER, **asks}).encode(), "here")
    assert apply_credentials(read, Credentials(headers={"X-Key": "k"})).headers == {"X-Key": "k"}
    for lacking in (Credentials(), Credentials(bearer="T")):
        with pytest.raises(CredentialsMissingError, match="odd"):
            apply_credentials(read, lacking)


# Errors in a server's own words


SAID: list[tuple[int, Any, str, str]] = [
    (401, {"detail": "Token expired"}, "application/json", "Token expired"),
    (
        422,
        {"detail": [{"loc": ["body", "x"], "msg": "field required"}]},
        "application/json",
        "field required",
    ),
    (400, {"title": "Bad", "detail": "No such skill"}, "application/problem+json", "Bad: No such skill"),
    (403, {"error": "insufficient_scope"}, "application/json", "insufficient_scope"),
    (403, {"message": "Not\u0007 \n you"}, "application/json", "Not you"),
    (400, "plain words", "text/plain", "plain words"),
    (500, "<html>secret stack</html>", "text/html", ""),
    (502, {"detail": "upstream"}, "application/json", "upstream"),
    (400, {"detail": "x" * 5000}, "application/json", "x" * 296 + " ..."),
    (400, {"detail": "too long to be read", "more": "x" * 70_000}, "application/json", ""),
]


def saying() -> SendMessageRequest:
    return SendMessageRequest(message=Message(message_id="m", role=Role.USER, parts=(Part(text="hi"),)))


@asynccontextmanager
async def refusing(response: Response) -> AsyncIterator[str]:
    async with listening(response) as url:
        yield url


def body_of(said: Any, status: int, media_type: str, **headers: str) -> Response:
    text = said if isinstance(said, str) else json.dumps(said)
    return PlainTextResponse(text, status, headers=headers, media_type=media_type)


@pytest.mark.proves("map-agent-told")
@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON", "0.3 JSONRPC", "0.3 HTTP+JSON"])
@pytest.mark.parametrize(
    ("status", "said", "media_type", "words"), SAID, ids=[str(one[1])[:30] for one in SAID]
)
async def test_an_error_quotes_the_server(
    status: int, said: Any, media_type: str, words: str, binding: str, http: httpx2.AsyncClient
) -> None:
    async with refusing(body_of(said, status, media_type)) as url:
        client = AgentClient(http, found_at(url, binding), client_options())
        for ask in (lambda: converse(client, saying(), pace=pace_of()), lambda: client.get("t")):
            with pytest.raises(PeerError) as refused:
                await ask()
            if isinstance(refused.value, AgentRefusedError):  # 0.3 has an error for this status
                assert words in str(refused.value)
                continue
            assert f"answered HTTP {status}" in str(refused.value)
            assert (f": {words}" in str(refused.value)) == bool(words)
            assert "secret" not in str(refused.value)


@pytest.mark.proves("map-agent-told")
@pytest.mark.parametrize("header", ["Authorization", "X-API-Key", "Cookie"])
async def test_the_words_of_a_server_do_not_repeat_the_credentials_that_it_was_shown(
    header: str, http: httpx2.AsyncClient
) -> None:
    shown = {"Authorization": "Bearer s3cret-token", "Cookie": "id=s3cret-token"}.get(header, "s3cret-token")
    words = "The token s3cret-token is not known"
    for said in ({"detail": words}, {"jsonrpc": "2.0", "id": 1, "error": {"code": -32099, "message": words}}):
        async with refusing(body_of(said, 403, "application/json")) as url:
            options = client_options(credentials=Credentials(headers={header: shown}))
            client = AgentClient(http, found_at(url, "JSONRPC"), options)
            with pytest.raises(PeerError, match=r"The token \*\*\* is not known"):
                await client.get("t")


@pytest.mark.proves("map-agent-told")
async def test_a_bare_status_is_an_error_of_the_agent(http: httpx2.AsyncClient) -> None:
    status = {"code": 5, "status": "NOT_FOUND", "message": "No such task", "details": []}
    async with refusing(body_of(status, 404, "application/json")) as url:
        client = AgentClient(http, found_at(url, "HTTP+JSON"), client_options())
        with pytest.raises(AgentRefusedError, match="refused: No such task"):
            await client.get("t")


@pytest.mark.proves("map-call-once", "map-agent-told")
@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
@pytest.mark.parametrize(
    ("status", "fault"), [(429, AgentBusyError), (502, UnansweredError), (503, UnansweredError)]
)
async def test_an_error_of_a_proxy_in_the_form_of_the_binding_is_read_by_its_status(
    binding: str, status: int, fault: type[PeerError], http: httpx2.AsyncClient
) -> None:
    error = {"code": status, "message": "Not now"}
    for said in ({"error": error}, error):
        async with refusing(body_of(said, status, "application/json")) as url:
            client = AgentClient(http, found_at(url, binding), client_options())
            with pytest.raises(fault, match=f"HTTP {status} .*: Not now") as refused:
                await client.get("t")
        assert is_transient(refused.value)


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("7", 7),
        ("", 0),
        ("soon", 0),
        ("-1", 0),
        ("Mon, 01 Jan 2024 00:00:00 GMT", 0),
        ("Mon, 01 Jan 2024 00:00:00 +99999999999999999999", 0),
        ("Mon, 99999999999999999999 Jan 2024 00:00:00 GMT", 0),
    ],
)
def test_an_unreadable_retry_after_is_ignored(said: str, seconds: float) -> None:
    assert retry_after_seconds(httpx2.Response(429, headers={"Retry-After": said})) == seconds


@pytest.mark.proves("map-call-once", "map-agent-told")
@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
@pytest.mark.parametrize("streams", [True, False])
async def test_a_429_says_that_the_message_was_not_taken(
    binding: str, streams: bool, http: httpx2.AsyncClient
) -> None:
    busy = body_of({"detail": "Slow down"}, 429, "application/json", **{"Retry-After": "7"})
    async with refusing(busy) as url:
        found = found_at(url, binding, capabilities={"streaming": streams})
        client = AgentClient(http, found, client_options())
        with pytest.raises(AgentBusyError) as refused:
            await converse(client, saying(), pace=pace_of())
    assert refused.value.retry_after_seconds == 7
    words = "429 Too Many Requests: Slow down (it asks to wait for 7 s). The agent did not take the message"
    assert str(refused.value).endswith(words)
    async with refusing(Response(status_code=503)) as url:
        client = AgentClient(http, found_at(url, binding), client_options())
        with pytest.raises(UnansweredError):
            await client.get("t")
