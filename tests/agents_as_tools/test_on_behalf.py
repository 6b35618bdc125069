"""Agents that are called in the names of callers: each call carries the exchanged token of its caller."""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from bridge.assembly.plan import OfferedPlan, RemotePlan
from bridge.assembly.plan_from_file import plan_from_file
from bridge.config.load import load
from bridge.errors import ConfigError
from bridge.identity.callers.issuers import IntrospectionClient, IssuerPlace
from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import Credential
from bridge.identity.tokens.oauth import ClientToken
from bridge.identity.tokens.token_endpoint import OAuthClient
from bridge.identity.tokens.token_exchange import CallerTokens, Exchange
from bridge.process.place_findings import FindingFault
from bridge.process.preview import findings_of, offline_findings
from tests.assembly.test_bridge import PROFILE, Live, live
from tests.support.issuer import TokenIssuer, answer, bearer, issuer_at
from tests.support.mcp_wire import MODERN, Http, Json, messages_of
from tests.support.running import listening, profile_with
from tests.support.scripted_agent import plain_card
from tests.support.token_desk import TokenDesk, desk_at

pytestmark = pytest.mark.proves("oauth-callers")

CAPABILITIES: Json = {"elicitation": {"form": {}}, "extensions": {"io.modelcontextprotocol/tasks": {}}}


@dataclass
class SeeingAgent:
    """An agent of A2A 1.0 that says in each answer whose token it was shown. Its tasks ask once."""

    asks: bool = False
    works: bool = False
    """Whether its tasks are at work for ever."""
    refused: set[str] = field(default_factory=set)
    shown: list[str | None] = field(default_factory=list)
    cards: list[str | None] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    card: Json = field(default_factory=dict)

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        routes = [
            Route("/.well-known/agent-card.json", self._card),
            Route("/", self._answer, methods=["POST"]),
        ]
        async with listening(Starlette(routes=routes)) as url:
            yield url

    def _card(self, request: Request) -> Response:
        self.cards.append(request.headers.get("authorization"))
        plain = plain_card(str(request.base_url)) | {"capabilities": {"streaming": False}}
        return JSONResponse({**plain, **self.card})

    async def _answer(self, request: Request) -> Response:
        shown = request.headers.get("authorization")
        self.shown.append(shown)
        self.bodies.append(await request.body())
        if shown in self.refused:
            return Response(status_code=401)
        called = await request.json()
        message = called["params"].get("message", {})
        if self.works:
            task = self._task("WORKING", shown)
            result: Json = {"task": task} if called["method"] == "SendMessage" else task
        elif self.asks and called["method"] == "SendMessage" and "taskId" not in message:
            result = {"task": self._task("INPUT_REQUIRED", shown)}
        elif self.asks:
            task = self._task("COMPLETED" if "taskId" in message else "INPUT_REQUIRED", shown)
            result = {"task": task} if called["method"] == "SendMessage" else task
        else:
            result = {"message": _words(str(shown))}
        return JSONResponse({"jsonrpc": "2.0", "id": called["id"], "result": result})

    def _task(self, state: str, shown: str | None) -> Json:
        status = {"state": f"TASK_STATE_{state}", "message": _words(str(shown))}
        return {"id": "t-1", "contextId": "c-1", "status": status}


def _words(text: str) -> Json:
    return {"messageId": "a", "role": "ROLE_AGENT", "parts": [{"text": text}]}


@dataclass
class Team:
    """A bridge whose server `m` is made of such an agent, and the issuer of its callers."""

    live: Live
    agent: SeeingAgent
    issuer: TokenIssuer
    desk: TokenDesk

    def token(self, subject: str, **claims: Any) -> str:
        return self.issuer.token("api://m", subject, **claims)

    async def post(self, token: str, name: str = "act", version: str = MODERN, **params: Any) -> Any:
        """The response to a call."""
        http = Http(self.live.client, f"{self.live.url}/mcp/m", version, CAPABILITIES)
        arguments = {"message": "go"} if name == "act" else params.pop("arguments")
        whole = {"name": name, "arguments": arguments, **params}
        return await http.post(http.message(1, "tools/call", whole), **bearer(token))

    async def call(self, token: str, name: str = "act", **params: Any) -> Json:
        """The result of a call."""
        response = await self.post(token, name, **params)
        result: Json = messages_of(response)[-1]["result"]
        return result

    async def words(self, token: str) -> str:
        """What the agent says that it was shown."""
        result = await self.call(token)
        return str(result["content"][0]["text"])


@asynccontextmanager
async def team(
    folder: Path, agent: SeeingAgent | None = None, *, own: bool = False, **plan: Any
) -> AsyncIterator[Team]:
    """Such a bridge. With `own`, what no caller asks is asked with a token of the bridge."""
    issuer, agent = TokenIssuer(""), agent or SeeingAgent()
    async with listening(issuer) as issuer.url, agent.serve() as url:
        desk = desk_at(issuer)
        client = OAuthClient(issuer.url, "bridge", "s3cret", "basic", ("read",), url)
        remote = RemotePlan(
            url,
            tokens=ClientToken(client, 20) if own else None,
            callers=CallerTokens(Exchange(client), 20, 10),
        )
        trusted = {"corp": issuer_at(issuer.url, {"m": frozenset({"api://m"})})}
        whole = {"issuers": trusted, "agents": {"a": remote}, "offered": {"m": OfferedPlan(("a",), PROFILE)}}
        async with live(folder, **{**whole, **plan}) as there:
            yield Team(there, agent, issuer, desk)


async def test_each_call_carries_the_exchanged_token_of_its_caller(tmp_path: Path) -> None:
    async with team(tmp_path) as there:
        alice, bob = there.token("alice"), there.token("bob")
        assert await there.words(alice) == "Bearer alice-1"
        assert await there.words(bob) == "Bearer bob-2"
        assert await there.words(alice) == "Bearer alice-1"
        assert await there.words(there.token("alice", jti="another")) == "Bearer alice-3"
    # The card is nobody's business, and no token of a caller went to the agent.
    assert set(there.agent.cards) == {None}
    assert not [one for one in there.agent.shown if one and (alice in one or bob in one)]


async def test_calls_of_many_callers_at_the_same_time_never_mix(tmp_path: Path) -> None:
    async with team(tmp_path) as there:
        tokens = {name: there.token(name) for name in ("alice", "bob", "carol", "dave")}
        heard: list[tuple[str, str]] = []

        async def call(name: str) -> None:
            heard.append((name, await there.words(tokens[name])))

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                for name in tokens:
                    tasks.start_soon(call, name)
        assert len(heard) == 20
        assert all(words.startswith(f"Bearer {name}-") for name, words in heard)
        assert sorted(there.desk.subjects) == sorted(tokens)


async def test_requests_without_a_caller_use_a_token_of_the_bridge_if_configured(
    tmp_path: Path,
) -> None:
    async with team(tmp_path, own=True) as there:
        assert there.agent.cards == ["Bearer bridge-1"]
        assert await there.words(there.token("alice")) == "Bearer alice-2"


async def test_an_introspected_token_is_exchanged_too(tmp_path: Path) -> None:
    said = {"active": True, "sub": "alice", "aud": "api://m"}
    issuer, agent = TokenIssuer(""), SeeingAgent()
    async with listening(issuer) as issuer.url, agent.serve() as url:
        desk = desk_at(issuer)
        desk.opaque["opaque-1"] = "alice"
        issuer.answers["/introspect"] = partial(_introspected, said)
        place = IssuerPlace(issuer.url, f"{issuer.url}/jwks", f"{issuer.url}/introspect")
        asking = IntrospectionClient("bridge", "s3cret")
        trusted = issuer_at(issuer.url, {"m": frozenset({"api://m"})}, client=asking, place=place)
        client = OAuthClient(issuer.url, "bridge", "s3cret", "basic", ("read",), url)
        remote = RemotePlan(url, callers=CallerTokens(Exchange(client), 20, 10))
        plan = {"agents": {"a": remote}, "offered": {"m": OfferedPlan(("a",), PROFILE)}}
        async with live(tmp_path, issuers={"corp": trusted}, **plan) as served:
            there = Team(served, agent, issuer, desk)
            assert await there.words("opaque-1") == "Bearer alice-1"
    assert agent.shown == ["Bearer alice-1"]


async def _introspected(said: Json, scope: Any, receive: Any, send: Any) -> None:
    await answer(send, 200, json.dumps(said).encode())


async def test_a_principal_without_a_token_of_the_issuer_is_refused(tmp_path: Path) -> None:
    fixed = [Credential(Principal("ada"), "ada-secret")]
    async with team(tmp_path, credentials=fixed) as there:
        refused = await there.post("ada-secret")
        assert refused.status_code == 403
        assert refused.json()["error"]["message"] == (
            f"The tool act acts with the rights of its caller, and takes a token of {there.issuer.url}"
        )
        assert await there.words(there.token("alice")) == "Bearer alice-1"
    assert there.agent.shown == ["Bearer alice-1"]


async def test_a_caller_whose_token_has_just_expired_is_asked_for_another_one(tmp_path: Path) -> None:
    async with team(tmp_path) as there:
        refused = await there.post(there.token("alice", exp=int(time.time()) - 1))
        assert refused.status_code == 401
        metadata = f"{there.live.url}/.well-known/oauth-protected-resource/mcp/m"
        assert refused.headers["www-authenticate"] == (
            f'Bearer realm="mcp-a2a", error="invalid_token", resource_metadata="{metadata}"'
        )
        assert await there.words(there.token("alice")) == "Bearer alice-1"


async def test_check_says_which_principals_have_no_token_for_an_agent_that_acts_for_callers(
    tmp_path: Path,
) -> None:
    fixed = [
        Credential(Principal("ada"), "ada-secret"),
        Credential(Principal("eve", skills=("other",)), "eve-secret"),
    ]
    async with team(tmp_path, credentials=fixed) as there:
        found = await findings_of(there.live.plan, there.live.bridge)
        assert found.all_notes == (
            "principals.ada: its calls of agents.a in m are refused (403): they take an access token of"
            f" {there.issuer.url}",
        )
        assert found.peers[0].down is None


async def test_check_says_that_no_caller_can_have_a_token_of_an_issuer_that_is_not_trusted(
    tmp_path: Path,
) -> None:
    async with team(tmp_path, issuers={}) as there:
        for found in (
            await findings_of(there.live.plan, there.live.bridge),
            offline_findings(there.live.plan),
        ):
            words = f"no caller can show a token of {there.issuer.url}: no table of `issuers` trusts it"
            assert found.faults == (
                FindingFault(
                    ("agents", "a", "auth", "oauth2", "issuer"), f"agents.a: auth.oauth2.issuer: {words}"
                ),
            )


async def test_without_authentication_no_caller_has_a_token(tmp_path: Path) -> None:
    async with team(tmp_path, issuers={}) as there:
        http = Http(there.live.client, f"{there.live.url}/mcp/m", MODERN)
        call = http.message(1, "tools/call", {"name": "act", "arguments": {"message": "go"}})
        assert (await http.post(call)).status_code == 403
    assert there.agent.shown == []


async def test_a_caller_whose_token_the_issuer_does_not_exchange_is_told_and_the_agent_is_not_asked(
    tmp_path: Path,
) -> None:
    async with team(tmp_path) as there:
        there.desk.said = lambda form: (400, {"error": "invalid_grant"})
        alice = there.token("alice")
        result = await there.call(alice)
        assert result["isError"] is True
        words = result["content"][0]["text"]
        assert "gave no token to bridge: invalid_grant" in words
        assert alice not in words
        there.desk.said = lambda form: None
        assert await there.words(there.token("bob")) == "Bearer bob-2"
    assert there.agent.shown == ["Bearer bob-2"]


async def test_no_token_of_a_caller_is_logged_kept_in_a_file_or_sent_to_the_agent(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    agent = SeeingAgent(asks=True)
    async with team(tmp_path, agent) as there:
        alice = there.token("alice")
        asked = await there.call(alice)
        (key,) = asked["inputRequests"]
        response = {key: {"action": "accept", "content": {"answer": "yes"}}}
        await there.call(alice, requestState=asked["requestState"], inputResponses=response)
        there.desk.said = lambda form: (400, {"error": "invalid_grant", "error_description": "no"})
        refused = there.token("alice", jti="refused")
        await there.call(refused)
    kept = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    for secret in (alice, refused, "alice-1"):
        assert secret not in caplog.text
        assert not [one for one in kept if secret.encode() in one]
        assert not [body for body in agent.bodies if secret.encode() in body]
    assert len(agent.bodies) >= 2


async def test_a_token_that_the_agent_refuses_is_exchanged_anew_once(tmp_path: Path) -> None:
    agent = SeeingAgent(refused={"Bearer alice-1"})
    async with team(tmp_path, agent) as there:
        assert await there.words(there.token("alice")) == "Bearer alice-2"
    assert agent.shown == ["Bearer alice-1", "Bearer alice-2"]


async def test_a_question_is_answered_with_the_token_of_the_request_that_answers(tmp_path: Path) -> None:
    async with team(tmp_path, SeeingAgent(asks=True)) as there:
        asked = await there.call(there.token("alice", jti="first"))
        assert asked["resultType"] == "input_required"
        (key,) = asked["inputRequests"]
        answer = {
            "requestState": asked["requestState"],
            "inputResponses": {key: {"action": "accept", "content": {"answer": "yes"}}},
        }
        # To another caller, the question does not exist: nothing is exchanged, and the agent is not asked.
        stolen = await there.post(there.token("bob"), **answer)
        assert "error" in messages_of(stolen)[-1]
        done = await there.call(there.token("alice", jti="second"), **answer)
        assert done.get("isError") is not True
        assert there.desk.subjects == ["alice", "alice"]
    assert there.agent.shown == ["Bearer alice-1", "Bearer alice-2", "Bearer alice-2"]


async def test_a_task_behind_a_handle_is_called_with_the_token_of_each_request(
    tmp_path: Path,
) -> None:
    async with team(tmp_path, SeeingAgent(asks=True)) as there:
        http = Http(there.live.client, f"{there.live.url}/mcp/m", MODERN)
        call = http.message(1, "tools/call", {"name": "act", "arguments": {"message": "go"}})
        told = messages_of(await http.post(call, **bearer(there.token("alice"))))[-1]["result"]
        reply = {"handle": told["_meta"]["mcp-a2a/unfinished"]["handle"], "message": "yes"}
        # To another caller, the handle is not valid: nothing is exchanged, and the agent is not asked.
        stolen = await there.call(there.token("bob"), "task_reply", arguments=reply)
        assert stolen["isError"] is True
        done = await there.call(there.token("alice", jti="second"), "task_reply", arguments=reply)
        assert done.get("isError") is not True
    assert there.desk.subjects == ["alice", "alice"]
    assert there.agent.shown[0] == "Bearer alice-1"
    assert set(there.agent.shown[1:]) == {"Bearer alice-2"}


NOT_NOW: Json = {"error": "temporarily_unavailable"}


@pytest.mark.parametrize("has_expired", [True, False])
async def test_a_task_is_working_while_its_caller_has_no_token_for_its_agent(
    has_expired: bool, tmp_path: Path
) -> None:
    profile = profile_with(agents={"task_after_seconds": 0})
    plan = {"offered": {"m": OfferedPlan(("a",), profile)}}
    async with team(tmp_path, SeeingAgent(works=True), **plan) as there:
        task_id = (await there.call(there.token("alice")))["taskId"]
        http = Http(there.live.client, f"{there.live.url}/mcp/m", MODERN, CAPABILITIES)

        async def seen(token: str) -> Json:
            asked = http.message(2, "tasks/get", {"taskId": task_id})
            found = messages_of(await http.post(asked, **bearer(token), **{"mcp-name": task_id}))
            result: Json = found[-1]["result"]
            return result

        there.desk.said = lambda form: (503, NOT_NOW)
        expiry = int(time.time()) - 1 if has_expired else int(time.time()) + 600
        lacking = await seen(there.token("alice", jti="lacking", exp=expiry))
        assert lacking["status"] == "working"
        assert "cannot be reached at the moment" in lacking["statusMessage"]
        there.desk.said = lambda form: None
        assert (await seen(there.token("alice", jti="next")))["status"] == "working"
    assert there.agent.shown[-1] == "Bearer alice-" + str(len(there.desk.asked))


FILE = """
[bridge]
public_url = "https://bridge.example"
[issuers.corp]
issuer = "https://login.example"
[agents.research]
card = "https://research.example/.well-known/agent-card.json"
[agents.research.auth.oauth2]
GRANT
issuer = "https://login.example"
client_id = "b"
client_secret = { env = "SECRET" }
[agents_as_tools.team]
from = ["research"]
"""


@pytest.mark.parametrize(
    ("grant", "own", "audience"),
    [
        ('grant = "token_exchange"\naudience = "api://r"', False, "api://r"),
        ('grant = "token_exchange"\non_behalf_of = "caller"', False, ""),
        ('grant = "client_credentials"\non_behalf_of = "caller"', True, ""),
    ],
)
def test_the_configuration_says_that_an_agent_is_called_in_the_names_of_callers(
    grant: str, own: bool, audience: str, tmp_path: Path
) -> None:
    file = tmp_path / "bridge.toml"
    file.write_text(FILE.replace("GRANT", grant))
    plan = plan_from_file(load(file, {"SECRET": "s3"}))
    agents, remote = plan.profile.agents, plan.agents["research"]
    client = OAuthClient("https://login.example", "b", "s3", "basic", (), "https://research.example/")
    assert remote.callers == CallerTokens(
        Exchange(client, audience), agents.agent_connect_seconds, agents.caller_tokens
    )
    assert remote.tokens == (ClientToken(client, agents.agent_connect_seconds) if own else None)


def test_the_configuration_names_the_authorization_server_of_an_agent(tmp_path: Path) -> None:
    file = tmp_path / "bridge.toml"
    there = (
        'id_jag = { issuer = "https://theirs.example", client_id = "c", client_secret = { env = "SECRET" } }'
    )
    file.write_text(FILE.replace("GRANT", f'grant = "token_exchange"\nscopes = ["read"]\n{there}'))
    plan = plan_from_file(load(file, {"SECRET": "s3"}))
    resource = "https://research.example/"
    exchange = Exchange(
        OAuthClient("https://login.example", "b", "s3", "basic", ("read",), resource),
        id_jag=OAuthClient("https://theirs.example", "c", "s3", "basic", ("read",), resource),
    )
    agents = plan.profile.agents
    assert plan.agents["research"].callers == CallerTokens(
        exchange, agents.agent_connect_seconds, agents.caller_tokens
    )


@pytest.mark.parametrize(
    ("grant", "words"),
    [
        (
            'grant = "client_credentials"\naudience = "api://r"',
            "`audience` is for tokens on behalf of callers",
        ),
        (
            'grant = "token_exchange"\nid_jag = { issuer = "https://t.example", client_id = "c" }',
            "needs `client_secret` or `private_key`",
        ),
    ],
)
def test_a_configuration_that_cannot_act_for_callers_is_refused(
    grant: str, words: str, tmp_path: Path
) -> None:
    file = tmp_path / "bridge.toml"
    file.write_text(FILE.replace("GRANT", grant))
    with pytest.raises(ConfigError, match=re.escape(words)):
        load(file, {"SECRET": "s3"})
