"""Which credentials a card asks for, and where they go."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from bridge.a2a.client.agent_client import AgentClient
from bridge.a2a.client.bindings import binding_of
from bridge.a2a.client.credentials import AppliedCredentials, Credentials, apply_credentials
from bridge.a2a.client.interfaces import interfaces_of
from bridge.a2a.client.transports import ANSWER_LIMIT_BYTES, HttpTransport, TransportOptions
from bridge.a2a.model.objects import AgentCard, CancelTaskRequest
from bridge.a2a.model.operations import CANCEL_TASK
from bridge.errors import PeerError, UsageError
from bridge.http.client import PeerCredentials
from bridge.http.tls import PeerTls
from bridge.text.jsonvalues import DEFAULT_MAX_VALUES
from tests.support.agents import found_at
from tests.support.limits import client_options, deadlines
from tests.support.running import listening

pytestmark = pytest.mark.proves("a2a-13.4-secrets")

SCHEMES: dict[str, Any] = {
    "token": {"httpAuthSecurityScheme": {"scheme": "Bearer"}},
    "basic": {"httpAuthSecurityScheme": {"scheme": "Basic"}},
    "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-Key"}},
    "asked": {"apiKeySecurityScheme": {"location": "query", "name": "key"}},
    "eaten": {"apiKeySecurityScheme": {"location": "cookie", "name": "session"}},
    "flat": {"type": "apiKey", "in": "header", "name": "X-Flat"},
    "oauth": {"oauth2SecurityScheme": {"flows": {}}},
    "oidc": {"openIdConnectSecurityScheme": {"openIdConnectUrl": "https://x.test"}},
    "tls": {"mtlsSecurityScheme": {}},
}


def card_with(*alternatives: str, schemes: dict[str, Any] | None = None) -> AgentCard:
    """A card of which any one alternative lets in, each the names of schemes."""
    required = [{"schemes": {name: {"list": []} for name in one.split()}} for one in alternatives]
    declared = SCHEMES if schemes is None else schemes
    return found_at("http://127.0.0.1/", securitySchemes=declared, securityRequirements=required).card


@pytest.mark.parametrize(
    ("alternatives", "credentials", "expected"),
    [
        (["token"], Credentials(bearer="t"), AppliedCredentials({"Authorization": "Bearer t"})),
        (["key"], Credentials(api_key="k"), AppliedCredentials({"X-Key": "k"})),
        (["asked"], Credentials(api_key="k"), AppliedCredentials({}, {"key": "k"})),
        (["eaten"], Credentials(api_key="k"), AppliedCredentials({}, {}, {"session": "k"})),
        (["flat"], Credentials(api_key="k"), AppliedCredentials({"X-Flat": "k"})),
        (["oauth"], Credentials(bearer="t"), AppliedCredentials({"Authorization": "Bearer t"})),
        (["oidc"], Credentials(schemes={"oidc": "t"}), AppliedCredentials({"Authorization": "Bearer t"})),
        (
            ["basic"],
            Credentials(schemes={"basic": "dTpw"}),
            AppliedCredentials({"Authorization": "Basic dTpw"}),
        ),
        (
            ["key asked"],
            Credentials(api_key="k", schemes={"asked": "q"}),
            AppliedCredentials({"X-Key": "k"}, {"key": "q"}),
        ),
        (["tls", "token key", "asked"], Credentials(api_key="k"), AppliedCredentials({}, {"key": "k"})),
        (["", "token"], Credentials(bearer="t"), AppliedCredentials({"Authorization": "Bearer t"})),
        (["", "token"], Credentials(), AppliedCredentials()),
        (["token"], Credentials({"authorization": "Own x"}), AppliedCredentials({"authorization": "Own x"})),
        (["tls"], Credentials(tls=PeerTls(Path("c.pem"), Path("c.key"))), AppliedCredentials()),
        (["key"], Credentials({"x-key": "k"}, bearer="t"), AppliedCredentials({"x-key": "k"})),
        ([], Credentials({"X-Plain": "yes"}), AppliedCredentials({"X-Plain": "yes"})),
    ],
)
def test_the_first_alternative_that_is_satisfied_is_applied(
    alternatives: list[str], credentials: Credentials, expected: AppliedCredentials
) -> None:
    assert apply_credentials(card_with(*alternatives), credentials) == expected


def test_with_sends_all_every_credential_is_sent_to_its_place() -> None:
    given = Credentials(bearer="t", api_key="k")
    card = card_with("token", schemes={name: SCHEMES[name] for name in ("token", "key")})
    assert apply_credentials(card, given) == AppliedCredentials({"Authorization": "Bearer t"})
    all_of_it = AppliedCredentials({"Authorization": "Bearer t", "X-Key": "k"})
    assert apply_credentials(card, replace(given, sends_all=True)) == all_of_it
    bare = card_with("token", schemes={"token": SCHEMES["token"]})
    with pytest.raises(UsageError, match="does not say where its API key goes"):
        apply_credentials(bare, replace(given, sends_all=True))


def test_a_token_is_sent_although_the_card_requires_none() -> None:
    assert apply_credentials(card_with(schemes={}), Credentials(bearer="t")).headers == {
        "Authorization": "Bearer t"
    }
    with pytest.raises(UsageError, match="does not say where its API key goes"):
        apply_credentials(card_with(schemes={}), Credentials(api_key="k"))


@pytest.mark.parametrize(
    ("alternatives", "credentials", "words"),
    [
        (["token"], Credentials(), "not configured: token \\(HTTP Bearer authentication\\)"),
        (["basic"], Credentials(bearer="t"), "basic \\(HTTP Basic authentication\\)"),
        (["asked"], Credentials(bearer="t"), "asked \\(API key, query key\\)"),
        (["oauth"], Credentials(api_key="k"), "oauth \\(an access token: oauth2 in a file, or bearer"),
        (["tls"], Credentials(bearer="t"), "tls \\(a client certificate: `tls` of the agent in a file\\)"),
        (["tls"], Credentials(tls=PeerTls(ca=Path("ca.pem"))), "tls \\(a client certificate"),
        (["ghost"], Credentials(bearer="t"), "ghost \\(the card does not describe it\\)"),
        (
            ["token key", "oauth"],
            Credentials(),
            "token \\(.*\\) and key \\(.*\\), or oauth \\(an access token",
        ),
    ],
)
def test_missing_credentials_are_named(alternatives: list[str], credentials: Credentials, words: str) -> None:
    with pytest.raises(PeerError, match=words):
        apply_credentials(card_with(*alternatives), credentials)


def test_secrets_are_not_shown() -> None:
    credentials = Credentials({"X": "s3cret"}, "s3cret", "s3cret", {"x": "s3cret"})
    assert "s3cret" not in repr(credentials) + repr(
        AppliedCredentials({"X": "s3cret"}, {"x": "s3cret"}, {"x": "s3cret"})
    )
    assert credentials
    assert not Credentials()


def test_which_credentials_are_sent_for_the_card() -> None:
    assert Credentials({"X": "y"}, "t").card_headers() == {"Authorization": "Bearer t", "X": "y"}
    assert Credentials({"authorization": "Own x"}, "t").card_headers() == {"authorization": "Own x"}


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
async def test_every_request_carries_the_credentials(binding: str) -> None:
    sent: list[Request] = []

    async def agent(scope: Scope, receive: Receive, send: Send) -> None:
        sent.append(request := Request(scope, receive))
        await request.body()
        result: Any = {"id": "t", "status": {"state": "TASK_STATE_WORKING"}}
        answer = result if binding == "HTTP+JSON" else {"jsonrpc": "2.0", "id": 1, "result": result}
        await Response(json.dumps(answer))(scope, receive, send)

    required = [{"schemes": {name: {"list": []} for name in ("token", "key", "asked", "eaten")}}]
    credentials = Credentials({"X-Plain": "yes", "Cookie": "a=b"}, bearer="t", api_key="k")
    async with listening(agent) as url, httpx2.AsyncClient() as http:
        found = found_at(f"{url}/?fixed=1", binding, securitySchemes=SCHEMES, securityRequirements=required)
        client = AgentClient(http, found, client_options(credentials=credentials))
        await client.get("t", history_length=1)
        await client.cancel("t")
    for request in sent:
        assert request.headers["authorization"] == "Bearer t"
        assert request.headers["x-key"] == "k"
        assert request.headers["x-plain"] == "yes"
        assert request.headers["cookie"] == "a=b; session=k"
        assert request.query_params["key"] == "k"
        assert request.query_params["fixed"] == "1"


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
async def test_a_header_of_the_user_replaces_no_header_of_a2a(binding: str) -> None:
    sent: list[Request] = []

    async def agent(scope: Scope, receive: Receive, send: Send) -> None:
        sent.append(request := Request(scope, receive))
        await request.body()
        await Response("{}")(scope, receive, send)

    credentials = Credentials({"a2a-version": "0.1", "content-type": "text/plain", "user-agent": "me"})
    async with listening(agent) as url, httpx2.AsyncClient() as http:
        client = AgentClient(http, found_at(url, binding), client_options(credentials=credentials))
        with pytest.raises(PeerError):
            await client.cancel("t")
    (request,) = sent
    assert request.headers.getlist("a2a-version") == ["1.0"]
    assert len(request.headers.getlist("content-type")) == 1
    assert request.headers["content-type"] != "text/plain"
    assert request.headers.getlist("user-agent") == ["me"]


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
async def test_the_credentials_are_read_anew_for_each_request_to_an_agent(binding: str) -> None:
    sent: list[str] = []
    tokens = iter(("one", "two"))

    async def agent(scope: Scope, receive: Receive, send: Send) -> None:
        sent.append(Request(scope, receive).headers["authorization"])
        await Response("{}")(scope, receive, send)

    async def source() -> PeerCredentials:
        await anyio.lowlevel.checkpoint()
        return PeerCredentials({"Authorization": f"Bearer {next(tokens)}"})

    async with listening(agent) as url, httpx2.AsyncClient() as http:
        ((interface, dialect),) = interfaces_of(found_at(url, binding).card)
        terms = TransportOptions(
            source, (), lambda _: None, deadlines(), ANSWER_LIMIT_BYTES, frozenset(), on_hop=None
        )
        transport = HttpTransport(http, binding_of(interface, dialect, DEFAULT_MAX_VALUES), terms)
        for _ in range(2):
            with pytest.raises(PeerError):
                await transport.perform(CANCEL_TASK, CancelTaskRequest(id="t"))
    assert sent == ["Bearer one", "Bearer two"]
