"""Resources, prompts and completions of a tool server over A2A: what crosses to the letter, and what each principal may
use."""

from __future__ import annotations

import json
import shlex
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from bridge.assembly.plan import AuditPlan, ProcessPlan, ServerPlan
from bridge.config.tables.profile import Profile
from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import Credential
from bridge.mcp.client.eras import Era
from bridge.mcp.client.transports.streamable_http import HttpTarget
from bridge.process.preview import findings_of
from tests.assembly.test_bridge import PROFILE, Live, agent, live
from tests.support.command import ROOT
from tests.support.mcp_wire import LEGACY, MODERN
from tests.support.notes_server import FILE, PUBLIC, SECRET, Notes
from tests.support.recording_server import Answer, RecordingServer, Refusal
from tests.support.running import Rpc, message, profile_with

pytestmark = pytest.mark.proves("map-mcp-requests")

Json = dict[str, Any]
URI: Final = "urn:mcp-a2a:requests:v1"
SKILL: Final = "urn:mcp-a2a:tool:v1/skill"
BOTH: Final = ("resources", "prompts")
ACTIVE: Final = {"A2A-Extensions": URI}
ALL: Final[Json] = {
    "tools": {},
    "resources": {"subscribe": True, "listChanged": True},
    "prompts": {"listChanged": True},
    "completions": {},
}


def asked(method: str, params: Json | None = None, server: str | None = None, **fields: Any) -> Json:
    """The params of SendMessage for a request of MCP."""
    data: Json = {"method": method, **({} if params is None else {"params": params})}
    if server is not None:
        data["server"] = server
    return message({"data": data}, metadata={SKILL: URI}, extensions=[URI], **fields)


@dataclass(frozen=True)
class Client:
    """A client of the agent `desk`."""

    rpc: Rpc

    async def ask(self, method: str, params: Json | None = None) -> Json:
        """The data of the Message that answers a request."""
        answer = (await self.rpc.call("SendMessage", asked(method, params)))["message"]
        assert answer["extensions"] == [URI]
        assert answer["role"] == "ROLE_AGENT"
        (part,) = answer["parts"]
        data: Json = part["data"]
        return data

    async def result(self, method: str, params: Json | None = None) -> Json:
        """The result of a request."""
        data = await self.ask(method, params)
        assert list(data) == ["result"], data
        found: Json = data["result"]
        return found

    async def refusal(self, method: str, params: Json | None = None) -> str:
        """The reason of the error of A2A that answers a request."""
        response = await self.rpc.post("SendMessage", asked(method, params))
        found: str = response.json()["error"]["data"][0]["reason"]
        return found


def client_of(there: Live, token: str = "", name: str = "desk") -> Client:
    headers = {**ACTIVE, **({"Authorization": f"Bearer {token}"} if token else {})}
    return Client(Rpc(there.client, f"{there.url}/agents/{name}", headers))


@asynccontextmanager
async def raw(
    folder: Path, answers: Mapping[str, Answer], version: str = LEGACY, **plan: Any
) -> AsyncIterator[tuple[RecordingServer, Live]]:
    """A bridge with an agent `desk` that shares everything of a recording server."""
    tools = RecordingServer(version, answers=answers, capabilities=ALL)
    async with tools.serve() as url:
        target = HttpTarget(url, connect_seconds=20, result_limit_bytes=1 << 20, result_json_values=10_000)
        made = ServerPlan.as_profile_says(
            target, Era.MODERN if version == MODERN else Era.LEGACY, PROFILE.server, PROFILE.run
        )
        desk = agent("crm", share=BOTH)
        async with live(folder, servers={"crm": made}, published={"desk": desk}, **plan) as there:
            await there.bridge.upstreams["crm"].ready()
            yield tools, there


@asynccontextmanager
async def notes(
    folder: Path, era: Era = Era.MODERN, profile: Profile = PROFILE, **plan: Any
) -> AsyncIterator[tuple[Notes, Live]]:
    """A bridge with an agent `desk` that shares everything of a server of notes."""
    kept = Notes()
    made = ServerPlan.as_profile_says(kept.target, era, profile.server, profile.run)
    whole = {"servers": {"notes": made}, "published": {"desk": agent("notes", share=BOTH)}, **plan}
    async with live(folder, **whole) as there:
        await there.bridge.upstreams["notes"].ready()
        yield kept, there


def person(name: str, **rules: Any) -> Credential:
    return Credential(Principal(name, **rules), f"{name}-token")


RESULT: Final[Json] = {
    "contents": [
        {
            "uri": "note:///x",
            "mimeType": "text/plain",
            "text": "é\u0000",
            "annotations": {"audience": ["user"], "priority": 0.5},
            "size": 3,
            "_meta": {"vendor/k": [1, None, {"a": 1.5}]},
        },
        {"uri": "note:///x", "blob": "AAA="},
    ],
    "ttlMs": 60_000,
    "cacheScope": "private",
    "futureField": {"kept": True},
    "_meta": {"a": 1},
}


@pytest.mark.parametrize("version", [LEGACY, MODERN])
async def test_params_and_results_cross_to_the_letter(tmp_path: Path, version: str) -> None:
    result = {**RESULT, **({"resultType": "complete"} if version == MODERN else {})}
    params = {"uri": "note:///x", "inputResponses": {"k": {"action": "accept"}}, "requestState": "s"}
    meta = {
        "vendor/k": "v",
        "progressToken": "p",
        "traceparent": "00-0-0-0",
        "io.modelcontextprotocol/logLevel": "info",
    }
    async with raw(tmp_path, {"resources/read": lambda _: result}, version) as (tools, there):
        assert await client_of(there).result("resources/read", {**params, "_meta": meta}) == result
        (got,) = tools.of("resources/read")
        sent = dict(got.params)
        sent_meta = sent.pop("_meta")
        assert sent == params
        assert sent_meta["vendor/k"] == "v"
        assert sent_meta["io.modelcontextprotocol/logLevel"] == "info"
        assert "progressToken" not in sent_meta
        assert sent_meta.get("traceparent") != "00-0-0-0"
        if version == MODERN:
            assert got.headers["mcp-method"] == "resources/read"
            assert got.headers["mcp-name"] == "note:///x"


async def test_a_request_crosses_http_with_json(tmp_path: Path) -> None:
    async with raw(tmp_path, {"resources/read": lambda _: RESULT}) as (_, there):
        response = await there.client.post(
            f"{there.url}/agents/desk/message:send",
            json=asked("resources/read", {"uri": "note:///x"}),
            headers={**ACTIVE, "A2A-Version": "1.0"},
        )
        (part,) = response.json()["message"]["parts"]
        assert part["data"] == {"result": RESULT}


async def test_an_error_of_the_server_crosses_to_the_letter(tmp_path: Path) -> None:
    def refuse(_: Any) -> Json:
        raise Refusal(-32002)

    async with raw(tmp_path, {"prompts/get": refuse}) as (_, there):
        answer = await client_of(there).ask("prompts/get", {"name": "x"})
        assert answer == {"error": {"code": -32002, "message": "refused with -32002"}}


async def test_a_server_that_asks_for_input_is_answered_by_the_caller(tmp_path: Path) -> None:
    result: Json = {
        "resultType": "input_required",
        "inputRequests": {"who": {"method": "elicitation/create", "params": {"message": "Who?"}}},
        "requestState": "opaque",
    }
    async with raw(tmp_path, {"prompts/get": lambda _: result}, MODERN) as (_, there):
        assert await client_of(there).result("prompts/get", {"name": "x"}) == result


async def test_a_cursor_crosses_to_the_letter(tmp_path: Path) -> None:
    page = {"resources": [{"uri": "a:b", "name": "b", "icons": [{"src": "data:,x"}]}], "nextCursor": "é=/&"}
    async with raw(tmp_path, {"resources/list": lambda _: page}) as (tools, there):
        assert await client_of(there).result("resources/list", {"cursor": "é=/&"}) == page
        assert tools.of("resources/list")[0].params["cursor"] == "é=/&"


async def test_a_request_that_needs_a_task_gets_one_with_the_same_part(tmp_path: Path) -> None:
    async with notes(tmp_path) as (_, there):
        rpc = client_of(there).rpc
        sent = asked("resources/read", {"uri": PUBLIC[0]}, configuration={"returnImmediately": True})
        task = (await rpc.call("SendMessage", sent))["task"]
        while task["status"]["state"] != "TASK_STATE_COMPLETED":
            task = await rpc.call("GetTask", {"id": task["id"]})
        (part,) = task["status"]["message"]["parts"]
        assert part["data"]["result"]["contents"][0]["text"] == f"the text of {PUBLIC[0]}"
        assert task["status"]["message"]["extensions"] == [URI]
        assert task["history"][-1] == task["status"]["message"]


async def test_a_stream_gives_the_message_alone(tmp_path: Path) -> None:
    async with notes(tmp_path) as (_, there):
        rpc = client_of(there).rpc
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": asked("prompts/list")}
        response = await there.client.post(rpc.url, json=body, headers=rpc.headers)
        events = [line for line in response.text.splitlines() if line.startswith("data:")]
        assert len(events) == 1
        assert '"prompts":[{"name":"greet"' in events[0].replace(" ", "")


async def test_a_server_that_is_down_fails_a_task(tmp_path: Path) -> None:
    async with raw(tmp_path, {}) as (tools, there):
        tools.answers = {"resources/list": lambda _: _nothing()}
        task = (await client_of(there).rpc.call("SendMessage", asked("resources/list")))["task"]
        assert task["status"]["state"] == "TASK_STATE_FAILED"


def _nothing() -> Json:
    return {"resources": ["x" * (2 << 20)]}


# The card


async def test_the_card_declares_what_is_shared_in_mcps_own_shape(tmp_path: Path) -> None:
    async with raw(tmp_path, {}) as (_, there):
        card = await there.json("/agents/desk/.well-known/agent-card.json")
        assert _declared(card) == {"crm": {"capabilities": {key: ALL[key] for key in ALL if key != "tools"}}}
        etag = (await there.client.get(f"{there.url}/agents/desk/.well-known/agent-card.json")).headers[
            "etag"
        ]
        await there.apply(published={"desk": agent("crm", share=("prompts",))})
        response = await there.client.get(f"{there.url}/agents/desk/.well-known/agent-card.json")
        assert _declared(response.json()) == {
            "crm": {"capabilities": {"prompts": ALL["prompts"], "completions": {}}}
        }
        assert response.headers["etag"] != etag


async def test_an_agent_that_shares_nothing_knows_nothing_of_it(tmp_path: Path) -> None:
    async with notes(tmp_path, published={"desk": agent("notes")}) as (kept, there):
        card = await there.json("/agents/desk/.well-known/agent-card.json")
        assert _declared(card) is None
        assert there.bridge.published[0].agent._requests is None
        task = (await client_of(there).rpc.call("SendMessage", asked("resources/read", {"uri": PUBLIC[0]})))[
            "task"
        ]
        assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        assert kept.read == []


async def test_each_card_declares_what_its_reader_may_use(tmp_path: Path) -> None:
    people = [
        person("ann"),
        person("bob", skills=("count",)),
        person("cat", skills=("x",), prompts=("greet",)),
    ]
    async with notes(tmp_path, credentials=people) as (_, there):
        assert _declared(await there.json("/agents/desk/.well-known/agent-card.json")) is None
        shown = {name: _declared(await _extended(there, name)) for name in ("ann", "bob", "cat")}
        assert shown["bob"] is None
        assert sorted((shown["ann"] or {})["notes"]["capabilities"]) == [
            "completions",
            "prompts",
            "resources",
        ]
        assert sorted((shown["cat"] or {})["notes"]["capabilities"]) == ["completions", "prompts"]


async def _extended(there: Live, name: str) -> Json:
    rpc = client_of(there, f"{name}-token").rpc
    card: Json = await rpc.call("GetExtendedAgentCard", {})
    return card


def _declared(card: Json) -> Json | None:
    extensions = card["capabilities"]["extensions"]
    return next((one["params"]["servers"] for one in extensions if one["uri"] == URI), None)


# What `check` says


async def test_check_says_what_is_shared_and_who_may_use_it(tmp_path: Path) -> None:
    people = [person("ann"), person("bob", skills=("count",), resources=("note:///public/*",))]
    async with notes(tmp_path, credentials=people) as (_, there):
        (face,) = (await findings_of(there.plan, there.bridge)).faces
        assert face.shared == (
            "shares resources, prompts, completions of notes",
            "ann may use resources *; prompts *",
            "bob may use resources note:///public/*; prompts (none)",
        )
        await there.apply(published={"desk": agent("notes", share=("prompts",))})
        found = await findings_of(there.plan, there.bridge)
        assert [fault.words for fault in found.useless] == [
            "principals.bob: resources: no agent shares resources"
        ]
        await there.apply(published={"desk": agent("notes")})
        assert (await findings_of(there.plan, there.bridge)).faces[0].shared == ()


# Refusals


async def test_faults_of_the_request_are_errors_of_a2a(tmp_path: Path) -> None:
    async with notes(tmp_path) as (kept, there):
        client = client_of(there)
        assert await client.refusal("tools/call", {"name": "count"}) == "INVALID_PARAMS"
        unknown = await client.rpc.error("SendMessage", asked("resources/list", server="other"))
        assert "notes" in str(unknown)
        assert await client.rpc.call("SendMessage", asked("resources/list", server="notes"))
        inactive = Rpc(there.client, client.rpc.url)
        error = await inactive.error("SendMessage", asked("resources/list"))
        assert error["data"][0]["reason"] == "EXTENSION_SUPPORT_REQUIRED"
        await there.apply(published={"desk": agent("notes", share=("prompts",))})
        for method, params in [
            ("resources/list", {}),
            ("resources/read", {"uri": PUBLIC[0]}),
            ("completion/complete", {"ref": {"type": "ref/resource", "uri": "note:///{x}"}}),
        ]:
            assert await client.refusal(method, params) == "UNSUPPORTED_OPERATION"
        assert kept.read == []


async def test_a_request_is_not_for_a_task_that_exists(tmp_path: Path) -> None:
    async with notes(tmp_path) as (_, there):
        client = client_of(there)
        asking = await client.rpc.send({"text": "who knows"})
        assert asking["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        error = await client.rpc.error("SendMessage", asked("prompts/list", taskId=asking["id"]))
        assert "not for a task that exists" in error["message"]
        beside = await client.rpc.call("SendMessage", asked("prompts/list", contextId=asking["contextId"]))
        assert "message" in beside


# Rights

LIMITED: Final = {"skills": ("count",), "resources": ("note:///public/*",), "prompts": ("greet", "leak")}


@pytest.mark.parametrize("era", [Era.MODERN, Era.LEGACY])
async def test_what_a_principal_may_not_use_it_does_not_see(tmp_path: Path, era: Era) -> None:
    people = [person("ann"), person("bob", **LIMITED)]
    async with notes(tmp_path, era, credentials=people) as (kept, there):
        ann, bob = client_of(there, "ann-token"), client_of(there, "bob-token")
        assert [one["uri"] for one in await _all(ann, "resources/list", "resources")] == [*PUBLIC, SECRET]
        assert [one["uri"] for one in await _all(bob, "resources/list", "resources")] == [*PUBLIC]
        page = await bob.result("resources/list")
        assert page.get("cacheScope") in (None, "private")
        assert (await ann.result("resources/list")).get("cacheScope") in (None, "public")
        templates = [
            one["name"] for one in (await bob.result("resources/templates/list"))["resourceTemplates"]
        ]
        assert templates == ["note:///public/{name}", "note:///{+path}"]
        for uri in (SECRET, FILE, "note:///public/../secret/c", "note:///public/%2e%2e/secret/c"):
            assert await bob.refusal("resources/read", {"uri": uri}) == "FORBIDDEN"
        assert kept.read == []
        assert (await bob.result("resources/read", {"uri": PUBLIC[0]}))["contents"][0]["uri"] == PUBLIC[0]
        folder = await bob.result("resources/read", {"uri": "note:///public/"})
        assert [one["uri"] for one in folder["contents"]] == [*PUBLIC]
        assert await ann.refusal("resources/read", {"uri": FILE}) == "FORBIDDEN"
        assert (await ann.result("resources/read", {"uri": SECRET}))["contents"][0]["uri"] == SECRET
        leaked = str(await bob.result("prompts/get", {"name": "leak"}))
        assert SECRET not in leaked
        assert FILE not in leaked
        assert PUBLIC[0] in leaked
        assert "a resource that is not passed on" in leaked
        shown = str(await ann.result("prompts/get", {"name": "leak"}))
        assert SECRET in shown
        assert FILE not in shown


async def test_a_principal_with_skills_alone_gets_nothing_of_it(tmp_path: Path) -> None:
    async with notes(tmp_path, credentials=[person("eve", skills=("count",))]) as (kept, there):
        eve = client_of(there, "eve-token")
        assert await eve.refusal("resources/list") == "FORBIDDEN"
        assert await eve.refusal("prompts/get", {"name": "greet"}) == "FORBIDDEN"
        ref = {"type": "ref/prompt", "name": "greet"}
        assert await eve.refusal("completion/complete", {"ref": ref}) == "FORBIDDEN"
        assert kept.read == []


async def test_prompts_and_their_completion_follow_the_rule_for_prompts(tmp_path: Path) -> None:
    rules = {"skills": ("*",), "resources": (), "prompts": ("desk/gre*",)}
    async with notes(tmp_path, credentials=[person("bob", **rules)]) as (_, there):
        bob = client_of(there, "bob-token")
        assert [one["name"] for one in (await bob.result("prompts/list"))["prompts"]] == ["greet"]
        assert await bob.refusal("prompts/get", {"name": "leak"}) == "FORBIDDEN"
        argument = {"name": "x", "value": ""}
        ref = {"type": "ref/prompt", "name": "greet"}
        completed = await bob.result("completion/complete", {"ref": ref, "argument": argument})
        assert completed["completion"]["values"] == ["a", "b", "c"]
        ref = {"type": "ref/prompt", "name": "leak"}
        assert await bob.refusal("completion/complete", {"ref": ref, "argument": argument}) == "FORBIDDEN"


async def test_completion_suggests_no_resource_that_the_caller_may_not_use(tmp_path: Path) -> None:
    async with notes(tmp_path, credentials=[person("ann"), person("bob", **LIMITED)]) as (_, there):
        params = {
            "ref": {"type": "ref/resource", "uri": "note:///{+path}"},
            "argument": {"name": "path", "value": ""},
        }
        bob, ann = client_of(there, "bob-token"), client_of(there, "ann-token")
        completion = (await bob.result("completion/complete", params))["completion"]
        assert completion["values"] == ["public/a"]
        assert "total" not in completion
        assert (await ann.result("completion/complete", params))["completion"]["total"] == 2
        params["ref"] = {"type": "ref/resource", "uri": "note:///secret/{name}"}
        assert await bob.refusal("completion/complete", params) == "FORBIDDEN"


async def test_files_pass_if_the_profile_allows_them(tmp_path: Path) -> None:
    profile = profile_with(content={"allow_file_links": True})
    desk = replace(agent("notes", share=BOTH), profile=profile)
    async with notes(tmp_path, published={"desk": desk}) as (_, there):
        client = client_of(there)
        assert (await client.result("resources/read", {"uri": FILE}))["contents"][0]["uri"] == FILE
        listed = [one["uri"] for one in await _all(client, "resources/list", "resources")]
        assert listed == [*PUBLIC, SECRET, FILE]
        assert FILE in str(await client.result("prompts/get", {"name": "leak"}))


async def test_the_example_of_the_documentation_works_with_curl(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "extensions.md").read_text()
    (line,) = [
        line for line in page.splitlines() if line.startswith("$ curl -s http://127.0.0.1:8080/agents/desk")
    ]
    async with notes(tmp_path) as (_, there):
        words = shlex.split(line.removeprefix("$ ").replace("http://127.0.0.1:8080", there.url))
        answer = json.loads((await anyio.run_process(words)).stdout)["result"]["message"]
        assert answer["parts"][0]["data"]["result"]["contents"][0]["text"] == f"the text of {PUBLIC[0]}"


async def test_audit_lines_name_the_method_the_server_and_the_subject(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    place = ProcessPlan(
        state=tmp_path / "state", cache=tmp_path / "cache", audit=AuditPlan(file, 1 << 20, 10)
    )
    async with notes(tmp_path, place=place, credentials=[person("bob", **LIMITED)]) as (_, there):
        bob = client_of(there, "bob-token")
        await bob.result("resources/read", {"uri": PUBLIC[0]})
        await bob.result("prompts/get", {"name": "greet"})
        await bob.refusal("resources/read", {"uri": SECRET})
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    keys = ("event", "skill", "peer", "subject", "decision")
    told = [tuple(line.get(key) for key in keys) for line in lines if line.get("skill")]
    assert told == [
        ("call", "resources/read", "notes", PUBLIC[0], "allowed"),
        ("call", "prompts/get", "notes", "greet", "allowed"),
        ("refused", "resources/read", None, SECRET, "refused"),
    ]


async def test_each_principal_has_its_own_session_where_the_server_wants_it(tmp_path: Path) -> None:
    profile = profile_with(server={"fail": "open", "session": "principal"})
    async with notes(tmp_path, credentials=[person("ann"), person("bob")], profile=profile) as (_, there):
        upstream = there.bridge.upstreams["notes"]
        for name in ("ann", "bob", "ann"):
            await client_of(there, f"{name}-token").result("prompts/list")
        assert sorted(upstream._own) == [("ann",), ("bob",)]


# Hostile servers


async def test_a_list_beyond_the_bounds_fails_its_request_alone(tmp_path: Path) -> None:
    answers: dict[str, Answer] = {
        "resources/list": lambda _: {"resources": [{"uri": f"a:{n}", "name": "n"} for n in range(100_000)]},
        "resources/read": lambda _: {"contents": [{"uri": "a:1", "blob": "A" * (2 << 20)}]},
        "prompts/list": lambda _: {"prompts": []},
    }
    async with raw(tmp_path, answers) as (_, there):
        client = client_of(there)
        for method, params in (("resources/list", {}), ("resources/read", {"uri": "a:1"})):
            task = (await client.rpc.call("SendMessage", asked(method, params)))["task"]
            assert task["status"]["state"] == "TASK_STATE_FAILED"
            assert "is the limit" in task["status"]["message"]["parts"][0]["text"]
        assert await client.result("prompts/list") == {"prompts": []}


async def test_cursors_without_end_cost_one_request_each(tmp_path: Path) -> None:
    page = {"resources": [{"uri": "a:b", "name": "b"}], "nextCursor": "again"}
    async with raw(tmp_path, {"resources/list": lambda _: page}) as (tools, there):
        client = client_of(there)
        for _ in range(3):
            assert await client.result("resources/list", {"cursor": "again"}) == page
        assert len(tools.of("resources/list")) == 3


async def test_a_template_that_matches_all_gives_no_right(tmp_path: Path) -> None:
    everything = {"resourceTemplates": [{"uriTemplate": "{+uri}", "name": "all"}]}
    answers: dict[str, Answer] = {
        "resources/templates/list": lambda _: everything,
        "resources/read": lambda got: {"contents": [{"uri": got.params["uri"], "text": "x"}]},
    }
    async with raw(tmp_path, answers, credentials=[person("bob", **LIMITED)]) as (tools, there):
        bob = client_of(there, "bob-token")
        assert await bob.result("resources/templates/list") == everything
        for uri in ("file:///etc/passwd", "FILE:///x", "http://[", "note:///public/../x", "x"):
            assert await bob.refusal("resources/read", {"uri": uri}) == "FORBIDDEN"
        assert tools.of("resources/read") == []


async def test_odd_params_reach_the_server_of_a_caller_with_all_rights_alone(tmp_path: Path) -> None:
    people = [person("ann"), person("bob", **LIMITED)]

    def refuse(_: Any) -> Json:
        raise Refusal(-32602)

    async with raw(tmp_path, {"resources/read": refuse}, credentials=people) as (tools, there):
        for params in ({}, {"uri": 1}, {"uri": None}):
            answer = await client_of(there, "ann-token").ask("resources/read", params)
            assert answer["error"]["code"] == -32602
            assert await client_of(there, "bob-token").refusal("resources/read", params) == "FORBIDDEN"
        assert len(tools.of("resources/read")) == 3


async def _all(client: Client, method: str, key: str) -> list[Json]:
    found, cursor = [], None
    while True:
        page = await client.result(method, {} if cursor is None else {"cursor": cursor})
        found += page[key]
        cursor = page.get("nextCursor")
        if cursor is None:
            return found
