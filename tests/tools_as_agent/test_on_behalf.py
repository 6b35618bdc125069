"""Tool servers that are called in the names of callers: each call carries the exchanged token of its caller, on a
session for that token."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from starlette.responses import JSONResponse, Response

from bridge.assembly.plan import OfferedPlan, ServerPlan
from bridge.assembly.plan_from_file import plan_from_file
from bridge.config.load import load
from bridge.errors import ConfigError
from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import Credential
from bridge.identity.tokens.token_endpoint import OAuthClient
from bridge.identity.tokens.token_exchange import CallerTokens, Exchange
from bridge.mcp.client.eras import Era
from bridge.mcp.client.transports.streamable_http import HttpTarget
from bridge.process.place_findings import FindingFault
from bridge.process.preview import findings_of, offline_findings
from tests.assembly.test_bridge import PROFILE, Live, agent, live, said
from tests.support.issuer import TokenIssuer, bearer, issuer_at
from tests.support.mcp_wire import LEGACY, MODERN, Http, messages_of
from tests.support.recording_server import Answer, Got, RecordingServer, held_open
from tests.support.running import Rpc, call_part, listening, message
from tests.support.token_desk import TokenDesk, desk_at

pytestmark = [pytest.mark.outside, pytest.mark.proves("oauth-callers")]

Json = dict[str, Any]
ECHO: Json = {"name": "echo", "inputSchema": {"type": "object"}}
CALL = call_part("echo")
SERVER_TASK: Json = {
    "taskId": "t-1",
    "createdAt": "2026-11-23T10:00:00Z",
    "lastUpdatedAt": "2026-11-23T10:00:00Z",
    "ttlMs": None,
    "pollIntervalMs": 10,
}
INFO: Json = {"name": "crm", "version": "1"}


@dataclass
class Desk:
    """A bridge with an agent of one server, `crm`, which is called in the names of callers."""

    live: Live
    tools: RecordingServer
    issuer: TokenIssuer
    tokens: TokenDesk
    folder: Path

    def token(self, subject: str, **claims: Any) -> str:
        return self.issuer.token("api://desk", subject, **claims)

    def rpc(self, token: str) -> Rpc:
        return Rpc(self.live.client, f"{self.live.url}/agents/desk", bearer(token))

    async def says(self, token: str) -> str:
        """What the server says that it was shown."""
        return said(await self.rpc(token).send(CALL))

    @property
    def shown(self) -> list[str | None]:
        """What was shown with each call."""
        return [shown_in(got) for got in self.tools.of("tools/call")]


def shown_in(got: Got) -> str | None:
    return got.headers.get("authorization")


def telling(got: Got) -> Json:
    return {"content": [{"type": "text", "text": str(shown_in(got))}]}


@dataclass(frozen=True)
class Wanted:
    """How such a bridge differs."""

    version: str = LEGACY
    own: bool = False
    answers: Mapping[str, Answer] = field(default_factory=dict)


@asynccontextmanager
async def desk(folder: Path, wanted: Wanted = Wanted(), **plan: Any) -> AsyncIterator[Desk]:
    """Such a bridge. With `own`, the tools are listed with a token of the bridge."""
    issuer = TokenIssuer("")
    answers = {"tools/list": lambda _: {"tools": [ECHO]}, "tools/call": telling, **wanted.answers}
    tools = RecordingServer(wanted.version, answers=answers)
    with anyio.fail_after(60):
        async with listening(issuer) as issuer.url, tools.serve() as url:
            tokens = desk_at(issuer)
            client = OAuthClient(issuer.url, "bridge", "s3cret", "basic", ("read",), url)
            target = HttpTarget(
                url,
                oauth=client if wanted.own else None,
                callers=CallerTokens(Exchange(client), 20, 10),
                connect_seconds=20,
                result_limit_bytes=1 << 20,
                result_json_values=10_000,
            )
            era = Era.MODERN if wanted.version == MODERN else Era.LEGACY
            made = ServerPlan.as_profile_says(target, era, PROFILE.server, PROFILE.run)
            trusted = {
                "corp": issuer_at(issuer.url, {name: frozenset({f"api://{name}"}) for name in ("desk", "m")})
            }
            whole = {"issuers": trusted, "servers": {"crm": made}, "published": {"desk": agent("crm")}}
            async with live(folder, **{**whole, **plan}) as there:
                while (await there.client.get(f"{there.url}/readyz")).status_code != 200:
                    await anyio.sleep(0.01)
                yield Desk(there, tools, issuer, tokens, folder)


@pytest.mark.parametrize("version", [LEGACY, MODERN])
async def test_each_call_carries_the_exchanged_token_of_its_caller(version: str, tmp_path: Path) -> None:
    async with desk(tmp_path, Wanted(version)) as there:
        alice, bob = there.token("alice"), there.token("bob")
        assert await there.says(alice) == "Bearer alice-1"
        assert await there.says(bob) == "Bearer bob-2"
        assert await there.says(alice) == "Bearer alice-1"
        assert await there.says(there.token("alice", jti="another")) == "Bearer alice-3"
    # What nobody called for went without a token, and no token of a caller went to the server.
    assert {shown_in(got) for got in there.tools.got} == {
        None,
        "Bearer alice-1",
        "Bearer bob-2",
        "Bearer alice-3",
    }


async def test_no_session_of_the_server_ever_carries_the_token_of_another_caller(tmp_path: Path) -> None:
    numbers = iter(range(1, 100))

    def hello(got: Got) -> Response:
        result = {"protocolVersion": LEGACY, "capabilities": {"tools": {}}, "serverInfo": INFO}
        body = {"jsonrpc": "2.0", "id": got.message["id"], "result": result}
        return JSONResponse(body, headers={"mcp-session-id": f"s-{next(numbers)}"})

    async with desk(tmp_path, Wanted(answers={"initialize": hello})) as there:
        tokens = {name: there.token(name) for name in ("alice", "bob", "carol")}
        heard: list[tuple[str, str]] = []

        async def call(name: str) -> None:
            heard.append((name, await there.says(tokens[name])))

        async with anyio.create_task_group() as tasks:
            for name in [*tokens] * 4:
                tasks.start_soon(call, name)
    assert len(heard) == 12
    assert all(words.startswith(f"Bearer {name}-") for name, words in heard)
    assert sorted(there.tokens.subjects) == sorted(tokens)
    by_session: dict[str | None, set[str | None]] = {}
    for got in there.tools.got:
        if (session := got.headers.get("mcp-session-id")) is not None:
            by_session.setdefault(session, set()).add(shown_in(got))
    assert len(by_session) == 4
    assert all(len(shown) == 1 for shown in by_session.values())


async def test_the_tools_are_listed_with_a_token_of_the_bridge_if_configured(tmp_path: Path) -> None:
    async with desk(tmp_path, Wanted(own=True)) as there:
        assert [shown_in(got) for got in there.tools.of("tools/list")] == ["Bearer bridge-1"]
        assert await there.says(there.token("alice")) == "Bearer alice-2"
    assert there.shown == ["Bearer alice-2"]


async def test_a_link_in_a_result_is_read_with_the_rights_of_the_call(tmp_path: Path) -> None:
    link = {"type": "resource_link", "uri": "notes://one", "name": "one"}
    answers: Mapping[str, Answer] = {
        "tools/call": lambda _: {"content": [link]},
        "resources/read": lambda got: {"contents": [{"uri": "notes://one", "text": str(shown_in(got))}]},
    }
    async with desk(tmp_path, Wanted(own=True, answers=answers)) as there:
        assert await there.says(there.token("alice")) == "Bearer alice-2"


async def test_a_principal_without_a_token_of_the_issuer_is_refused(tmp_path: Path) -> None:
    fixed = [Credential(Principal("ada"), "ada-secret")]
    async with desk(tmp_path, credentials=fixed) as there:
        refused = await there.rpc("ada-secret").post("SendMessage", message(CALL))
        assert refused.status_code == 403
        assert refused.json()["error"]["message"] == (
            f"The skill echo acts with the rights of its caller, and needs a token of {there.issuer.url}"
        )
        assert await there.says(there.token("alice")) == "Bearer alice-1"
    assert there.shown == ["Bearer alice-1"]


@pytest.mark.proves("oauth-callers")
async def test_a_caller_whose_token_has_just_expired_is_asked_for_another_one(tmp_path: Path) -> None:
    async with desk(tmp_path) as there:
        rpc = there.rpc(there.token("alice", exp=int(time.time()) - 1))
        refused = await rpc.post("SendMessage", message(CALL))
        assert refused.status_code == 401
        assert refused.headers["www-authenticate"] == 'Bearer realm="mcp-a2a", error="invalid_token"'
        words = "The skill echo acts with the rights of its caller, whose token has expired"
        assert refused.json()["error"]["message"] == words
        assert (await rpc.call("ListTasks", {}))["tasks"] == []
        assert await there.says(there.token("alice")) == "Bearer alice-1"


async def test_check_says_which_principals_have_no_token_for_a_server_that_acts_for_callers(
    tmp_path: Path,
) -> None:
    fixed = [
        Credential(Principal("ada"), "ada-secret"),
        Credential(Principal("eve", skills=("other",)), "eve-secret"),
    ]
    async with desk(tmp_path, credentials=fixed) as there:
        found = await findings_of(there.live.plan, there.live.bridge)
        assert (
            "principals.ada: its calls of tool_servers.crm in desk are refused (403): they take an access token of"
            f" {there.issuer.url}"
        ) in found.all_notes
        assert not [note for note in found.all_notes if "principals.eve: its calls" in note]


async def test_check_says_that_no_caller_can_have_a_token_of_an_issuer_that_is_not_trusted(
    tmp_path: Path,
) -> None:
    async with desk(tmp_path, issuers={}) as there:
        words = f"no caller can show a token of {there.issuer.url}: no table of `issuers` trusts it"
        fault = FindingFault(
            ("tool_servers", "crm", "auth", "oauth2", "issuer"),
            f"tool_servers.crm: auth.oauth2.issuer: {words}",
        )
        for found in (
            await findings_of(there.live.plan, there.live.bridge),
            offline_findings(there.live.plan),
        ):
            assert found.faults == (fault,)


async def test_a_caller_whose_token_is_not_exchanged_is_told_and_the_server_is_not_asked(
    tmp_path: Path,
) -> None:
    async with desk(tmp_path) as there:
        there.tokens.said = lambda form: (400, {"error": "invalid_grant"})
        alice = there.token("alice")
        task = await there.rpc(alice).send(CALL)
        assert task["status"]["state"] == "TASK_STATE_FAILED"
        assert "gave no token to bridge: invalid_grant" in str(task["status"]["message"])
        assert alice not in str(task)
        there.tokens.said = lambda form: None
        assert await there.says(there.token("bob")) == f"Bearer bob-{len(there.tokens.asked)}"
    assert len(there.shown) == 1


async def test_no_token_of_a_caller_is_logged_or_kept_in_a_file_or_sent_to_the_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    stored = {"desk": agent("crm", store=str(tmp_path / "tasks.db"))}
    answers: Mapping[str, Answer] = {"tools/call": lambda _: {"content": [{"type": "text", "text": "done"}]}}
    async with desk(tmp_path, Wanted(answers=answers), published=stored) as there:
        alice = there.token("alice")
        assert await there.says(alice) == "done"
        there.tokens.said = lambda form: (400, {"error": "invalid_grant", "error_description": "no"})
        refused = there.token("alice", jti="refused")
        await there.rpc(refused).send(CALL)
        kept = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    kept += [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    assert any(b"TASK_STATE_FAILED" in one for one in kept)
    for secret in (alice, refused, "alice-1"):
        assert secret not in caplog.text
        assert not [one for one in kept if secret.encode() in one]
        assert not [got for got in there.tools.got if secret in str(got.message)]
        assert secret == "alice-1" or not [got for got in there.tools.got if secret in str(got.headers)]


async def test_a_task_of_the_server_waits_after_a_restart_until_a_message_brings_a_token(
    tmp_path: Path,
) -> None:
    statuses = {"now": "working"}
    answers: Mapping[str, Answer] = {
        "tools/call": lambda _: {**SERVER_TASK, "resultType": "task", "status": "working"},
        "tasks/get": lambda got: {
            **SERVER_TASK,
            "resultType": "complete",
            "status": statuses["now"],
            **({"result": telling(got)} if statuses["now"] == "completed" else {}),
        },
    }
    wanted = Wanted(MODERN, answers=answers)
    stored = {"desk": agent("crm", store=str(tmp_path / "tasks.db"))}
    async with desk(tmp_path, wanted, published=stored) as there:
        rpc = there.rpc(there.token("alice"))
        task = await rpc.send(CALL, configuration={"returnImmediately": True})
        await there.tools.until(lambda: bool(there.tools.of("tasks/get")))
    statuses["now"] = "completed"
    async with desk(tmp_path, wanted, published=stored) as there:
        rpc = there.rpc(there.token("alice"))
        waiting = await becomes(rpc, task, "AUTH_REQUIRED")
        assert f"a valid token of {there.issuer.url}" in str(waiting["status"]["message"])
        assert there.tokens.asked == []
        stolen = await there.rpc(there.token("bob")).error(
            "SendMessage", message({"text": "go"}, taskId=task["id"])
        )
        assert stolen["message"] == "The task does not exist or is not accessible"
        await rpc.send({"text": "go on"}, taskId=task["id"])
        assert said(await becomes(rpc, task, "COMPLETED")) == "Bearer alice-1"
        assert there.tokens.subjects == ["alice"]
        assert there.shown == []


TASKS: dict[str, Answer] = {
    MODERN: lambda _: {**SERVER_TASK, "resultType": "task", "status": "working"},
    LEGACY: lambda _: {"task": {**SERVER_TASK, "ttl": None, "pollInterval": 10, "status": "working"}},
}
"""How a server says, by version, that it made a task of a call."""


@pytest.mark.long
@pytest.mark.parametrize("version", [LEGACY, MODERN])
async def test_a_task_of_the_server_waits_for_a_message_as_soon_as_the_token_of_its_caller_expires(
    version: str, tmp_path: Path
) -> None:
    statuses = {"now": "working"}

    def looked_at(got: Got) -> Json:
        kept = {} if version == LEGACY else {"resultType": "complete"}
        done = {"result": telling(got)} if statuses["now"] == "completed" and version == MODERN else {}
        return {**SERVER_TASK, **kept, "ttl": None, "pollInterval": 10, "status": statuses["now"], **done}

    answers = {"tools/call": TASKS[version], "tasks/get": looked_at, "tasks/result": telling}
    listed = {"name": "echo", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "optional"}}
    wanted = Wanted(version, answers={**answers, "tools/list": lambda _: {"tools": [listed]}})
    async with desk(tmp_path, wanted) as there:
        there.tools.capabilities |= {"tasks": {"requests": {"tools": {"call": {}}}}}
        rpc = there.rpc(there.token("alice", exp=int(time.time()) + 2))
        task = await rpc.send(CALL, configuration={"returnImmediately": True})
        await there.tools.until(lambda: bool(there.tools.of("tasks/get")))
        later = there.rpc(there.token("alice", jti="later"))
        # Ten tries with growing pauses would take longer.
        with anyio.fail_after(15):
            waiting = await becomes(later, task, "AUTH_REQUIRED")
        assert f"a valid token of {there.issuer.url}" in str(waiting["status"]["message"])
        assert there.tools.of("tasks/cancel") == []
        statuses["now"] = "completed"
        await later.send({"text": "go on"}, taskId=task["id"])
        assert said(await becomes(later, task, "COMPLETED")) == shown_in(there.tools.got[-1])
    assert len(there.shown) == 1


@pytest.mark.long
async def test_a_task_of_the_server_goes_on_with_the_token_of_the_message_that_answered_it(
    tmp_path: Path,
) -> None:
    form = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    question = {
        "method": "elicitation/create",
        "params": {"mode": "form", "message": "Who?", "requestedSchema": form},
    }
    given: list[Json] = []

    def looked_at(got: Got) -> Json:
        open_now: Json = {"status": "input_required", "inputRequests": {"name": question}}
        done: Json = {"status": "completed", "result": telling(got)}
        return {**SERVER_TASK, "resultType": "complete", **(done if given else open_now)}

    def updated(got: Got) -> Json:
        given.append(got.params["inputResponses"])
        return {"resultType": "complete"}

    answers: Mapping[str, Answer] = {
        "tools/call": TASKS[MODERN],
        "tasks/get": looked_at,
        "tasks/update": updated,
    }
    async with desk(tmp_path, Wanted(MODERN, answers=answers)) as there:
        first = there.token("alice", exp=(ends_at := int(time.time()) + 2))
        task = await there.rpc(first).send(CALL, configuration={"returnImmediately": True})
        later = there.rpc(there.token("alice", jti="later"))
        asked = await becomes(later, task, "INPUT_REQUIRED")
        await anyio.sleep(max(ends_at - time.time(), 0) + 0.05)
        # Nothing could be sent with the first token any more. What was not taken is asked again.
        states = [asked["status"]["state"]]
        while states[-1] != "TASK_STATE_COMPLETED":
            if states[-1] == "TASK_STATE_INPUT_REQUIRED":
                await later.send({"data": {"name": "Ada"}}, taskId=task["id"])
            states.append((await later.call("GetTask", {"id": task["id"]}))["status"]["state"])
    assert "TASK_STATE_AUTH_REQUIRED" not in states
    assert len(given) == 1
    assert shown_in(there.tools.of("tasks/update")[0]) != there.shown[0]


@pytest.mark.long
async def test_a_question_in_an_open_call_whose_token_expires_is_withdrawn_with_the_reason(
    tmp_path: Path,
) -> None:
    form = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    params = {"mode": "form", "message": "Who?", "requestedSchema": form}
    question = {"jsonrpc": "2.0", "id": 99, "method": "elicitation/create", "params": params}
    async with desk(tmp_path, Wanted(answers={"tools/call": lambda _: held_open(question)})) as there:
        rpc = there.rpc(there.token("alice", exp=int(time.time()) + 2))
        task = await rpc.send(CALL)
        assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        later = there.rpc(there.token("alice", jti="later"))
        with anyio.fail_after(15):
            failed = await becomes(later, task, "FAILED")
        assert "the token with which the call began has expired" in str(failed["status"]["message"])
        assert "Call again with a valid token" in str(failed["status"]["message"])
    assert [got for got in there.tools.got if got.message.get("id") == 99] == []
    assert len(there.shown) == 1


async def becomes(rpc: Rpc, task: Json, state: str) -> Json:
    """A task once it is in this state."""
    while (now := await rpc.call("GetTask", {"id": task["id"]}))["status"]["state"] != f"TASK_STATE_{state}":
        await anyio.sleep(0.01)
    return dict(now)


async def test_a_question_is_answered_with_the_token_of_the_message_that_answers(tmp_path: Path) -> None:
    def asking(got: Got) -> Json:
        if "inputResponses" in got.params:
            return telling(got)
        form = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
        params = {"mode": "form", "message": f"asked by {shown_in(got)}", "requestedSchema": form}
        asked = {"name": {"method": "elicitation/create", "params": params}}
        return {"resultType": "input_required", "inputRequests": asked, "requestState": "s-1"}

    async with desk(tmp_path, Wanted(MODERN, answers={"tools/call": asking})) as there:
        task = await there.rpc(there.token("alice", jti="first")).send(CALL)
        assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        answer = {"data": {"name": "Ada"}}
        second = there.rpc(there.token("alice", jti="second"))
        assert said(await second.send(answer, taskId=task["id"])) == "Bearer alice-2"
        assert there.tokens.subjects == ["alice", "alice"]
    assert there.shown == ["Bearer alice-1", "Bearer alice-2"]


async def test_an_mcp_server_of_this_bridge_made_of_such_an_agent_acts_for_its_caller(
    tmp_path: Path,
) -> None:
    async with desk(tmp_path, offered={"m": OfferedPlan(("desk",), PROFILE)}) as there:
        http = Http(there.live.client, f"{there.live.url}/mcp/m", MODERN)
        call = http.message(1, "tools/call", {"name": "echo", "arguments": {}})
        response = await http.post(call, **bearer(there.issuer.token("api://m", "alice")))
        assert "isError" not in messages_of(response)[-1]["result"]
        assert there.tokens.subjects == ["alice"]
    assert there.shown == ["Bearer alice-1"]


FILE = """
[bridge]
public_url = "https://bridge.example.com"

[issuers.corp]
issuer = "https://login.example.com"

[tool_servers.crm]
url = "https://crm.example.com/mcp"
connect_seconds = 7

[tool_servers.crm.auth.oauth2]
GRANT
issuer = "https://login.example.com"
client_id = "bridge"
client_secret = { env = "SECRET" }
scopes = ["read"]

[tools_as_agent.desk]
from = ["crm"]
"""
CLIENT = OAuthClient(
    "https://login.example.com", "bridge", "s3", "basic", ("read",), "https://crm.example.com/mcp"
)
OTHER = 'id_jag = { issuer = "https://as.example.com", client_id = "b", client_secret = { env = "SECRET" } }'
THERE = replace(CLIENT, issuer="https://as.example.com", client_id="b")


@pytest.mark.parametrize(
    ("grant", "own", "exchange"),
    [
        ('grant = "client_credentials"', CLIENT, None),
        ('grant = "token_exchange"', None, Exchange(CLIENT)),
        ('grant = "client_credentials"\non_behalf_of = "caller"', CLIENT, Exchange(CLIENT)),
        ('grant = "token_exchange"\naudience = "crm"', None, Exchange(CLIENT, "crm")),
        (
            f'grant = "client_credentials"\non_behalf_of = "caller"\n{OTHER}',
            THERE,
            Exchange(CLIENT, id_jag=THERE),
        ),
    ],
)
def test_the_configuration_says_with_whose_tokens_a_server_is_called(
    grant: str, own: OAuthClient | None, exchange: Exchange | None, tmp_path: Path
) -> None:
    file = tmp_path / "bridge.toml"
    file.write_text(FILE.replace("GRANT", grant))
    plan = plan_from_file(load(file, {"SECRET": "s3"}))
    target = plan.servers["crm"].target
    assert isinstance(target, HttpTarget)
    most = plan.profile.agents.caller_tokens
    assert (target.oauth, target.callers) == (own, CallerTokens(exchange, 7, most) if exchange else None)


@pytest.mark.parametrize("key", ['audience = "crm"', OTHER])
def test_the_keys_of_a_token_exchange_are_refused_without_an_exchange(key: str, tmp_path: Path) -> None:
    file = tmp_path / "bridge.toml"
    file.write_text(FILE.replace("GRANT", f'grant = "client_credentials"\n{key}'))
    with pytest.raises(ConfigError, match="is for tokens on behalf of callers"):
        load(file, {"SECRET": "s3"})
