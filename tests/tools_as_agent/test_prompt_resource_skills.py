"""Prompts and resources as skills, for clients that know nothing of MCP: what the card shows, what a call answers, and
what each principal may read."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Literal

import anyio
import pytest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from bridge.assembly.plan import ServerPlan
from bridge.config.tables.profile import Profile
from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import Credential
from bridge.mcp.client.eras import Era
from bridge.mcp.client.transports.streamable_http import HttpTarget
from bridge.translate.overrides import SkillOverride
from tests.assembly.test_bridge import PROFILE, Live, agent, live
from tests.support.mcp_wire import LEGACY, MODERN
from tests.support.notes_server import FILE, PUBLIC, SECRET, Notes
from tests.support.recording_server import Answer, RecordingServer, Refusal
from tests.support.running import Rpc, call_part, message, profile_with

pytestmark = pytest.mark.proves("map-prompt-resource-skills")

Json = dict[str, Any]
ALL: Final[Json] = {
    "tools": {},
    "resources": {"listChanged": True},
    "prompts": {"listChanged": True},
}
BOTH: Final[frozenset[Literal["prompts", "resources"]]] = frozenset({"prompts", "resources"})
MESSAGE: Final = "urn:mcp-a2a:tool:v1/message"
PROMPT: Final[Json] = {
    "name": "weather",
    "title": "The weather",
    "description": "Asks for the weather",
    "icons": [{"src": "https://example.com/i.png"}],
    "_meta": {"vendor/k": 1},
    "arguments": [
        {"name": "city", "description": "Where", "required": True},
        {"name": "day", "title": "The day"},
    ],
}


def plan_of(target: Any, version: str = LEGACY, profile: Profile = PROFILE) -> ServerPlan:
    era = Era.MODERN if version == MODERN else Era.LEGACY
    made = ServerPlan.as_profile_says(target, era, profile.server, profile.run)
    return ServerPlan(**{**vars(made), "stand_ins": BOTH})


@asynccontextmanager
async def recorded(
    folder: Path, answers: Mapping[str, Answer], version: str = LEGACY, **plan: Any
) -> AsyncIterator[tuple[RecordingServer, Live]]:
    """A bridge with an agent `desk` that makes skills of everything that a recording server lists."""
    empty: Mapping[str, Answer] = {
        "prompts/list": lambda _: _page({"prompts": []}),
        "resources/templates/list": lambda _: _page({"resourceTemplates": []}),
    }
    tools = RecordingServer(version, answers={**empty, **answers}, capabilities=ALL)
    async with tools.serve() as url:
        target = HttpTarget(url, connect_seconds=20, result_limit_bytes=1 << 20, result_json_values=10_000)
        whole = {"published": {"desk": agent("crm", stand_ins=BOTH)}, **plan}
        async with live(folder, servers={"crm": plan_of(target, version)}, **whole) as there:
            await there.bridge.upstreams["crm"].ready()
            yield tools, there


@asynccontextmanager
async def notes(
    folder: Path, version: str = MODERN, profile: Profile = PROFILE, **plan: Any
) -> AsyncIterator[tuple[Notes, Live]]:
    """A bridge with an agent `desk` that makes skills of everything of a server of notes."""
    kept = Notes()
    whole = {"published": {"desk": agent("notes", stand_ins=BOTH, profile=profile)}, **plan}
    async with live(folder, servers={"notes": plan_of(kept.target, version, profile)}, **whole) as there:
        await there.bridge.upstreams["notes"].ready()
        yield kept, there


def _page(fields: Json) -> Json:
    return {**fields, "resultType": "complete", "ttlMs": 0, "cacheScope": "public"}


async def called(there: Live, skill: str, token: str = "", **arguments: Any) -> Json:
    """The task of a call."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    rpc = Rpc(there.client, f"{there.url}/agents/desk", headers)
    task: Json = (await rpc.call("SendMessage", message(call_part(skill, **arguments))))["task"]
    return task


def parts_of(task: Json) -> list[Json]:
    assert task["status"]["state"] == "TASK_STATE_COMPLETED", task["status"]
    (artifact,) = task["artifacts"]
    found: list[Json] = artifact["parts"]
    return found


def words_of(task: Json) -> str:
    return " ".join(part.get("text", "") for part in task["status"]["message"]["parts"])


async def skills_of(there: Live, token: str = "") -> dict[str, Json]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    response = await there.client.get(f"{there.url}/agents/desk/.well-known/agent-card.json", headers=headers)
    return {skill["id"]: skill for skill in response.json()["skills"]}


def person(name: str, **rules: Any) -> Credential:
    return Credential(Principal(name, **rules), f"{name}-token")


# Prompts


@pytest.mark.parametrize("version", [LEGACY, MODERN])
async def test_a_prompt_is_a_skill_whose_schema_is_its_arguments(tmp_path: Path, version: str) -> None:
    async with recorded(tmp_path, {"prompts/list": lambda _: _page({"prompts": [PROMPT]})}, version) as (
        _,
        there,
    ):
        card = await there.json("/agents/desk/.well-known/agent-card.json")
        (skill,) = [one for one in card["skills"] if one["id"] == "prompt:weather"]
        assert (skill["name"], skill["description"]) == ("The weather", "Asks for the weather")
        assert skill["tags"] == ["crm", "read-only"]
        declared = card["capabilities"]["extensions"][0]["params"]["tools"]["prompt:weather"]
        assert declared["icons"] == PROMPT["icons"]
        assert declared["_meta"] == PROMPT["_meta"]
        assert declared["inputSchema"] == {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Where"},
                "day": {"type": "string", "title": "The day"},
            },
            "required": ["city"],
            "additionalProperties": False,
        }


async def test_the_messages_of_a_prompt_are_the_artifact_and_nothing_is_lost(tmp_path: Path) -> None:
    answer = {
        "description": "How it is",
        "_meta": {"vendor/k": 1},
        "messages": [
            {"role": "user", "content": {"type": "text", "text": "Hi", "annotations": {"priority": 1}}},
            {
                "role": "assistant",
                "content": {"type": "image", "data": "AAAA", "mimeType": "image/png"},
                "x": 1,
            },
            {"role": "user", "content": {"type": "resource", "resource": {"uri": "a:b", "text": "inside"}}},
            {
                "role": "user",
                "content": {"type": "resource_link", "uri": "https://example.com/p", "name": "p"},
            },
            {"role": "user", "content": {"type": "resource_link", "uri": "file:///home/ann/d", "name": "d"}},
            {
                "role": "assistant",
                "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}],
            },
            "odd",
        ],
    }
    answers: Mapping[str, Answer] = {
        "prompts/list": lambda _: {"prompts": [PROMPT]},
        "prompts/get": lambda _: answer,
    }
    async with recorded(tmp_path, answers) as (tools, there):
        task = await called(there, "prompt:weather", city="Köln")
        (got,) = tools.of("prompts/get")
        assert {key: got.params[key] for key in ("name", "arguments")} == {
            "name": "weather",
            "arguments": {"city": "Köln"},
        }
        parts = parts_of(task)
        assert [part.get("metadata", {}).get(MESSAGE) for part in parts] == [
            {"role": "user"},
            {"role": "assistant", "x": 1},
            {"role": "user"},
            {"role": "user"},
            {"role": "user"},
            {"role": "assistant"},
            {"role": "assistant"},
            None,
        ]
        assert parts[0]["text"] == "Hi"
        assert (parts[1]["raw"], parts[1]["mediaType"]) == ("AAAA", "image/png")
        assert parts[2]["text"] == "inside"
        assert parts[3]["url"] == "https://example.com/p"
        assert "not passed on" in parts[4]["text"]
        assert "/home/ann" not in str(task)
        assert [part["text"] for part in parts[5:7]] == ["one", "two"]
        assert parts[7]["data"] == "odd"
        peer = task["artifacts"][0]["metadata"]["urn:mcp-a2a:tool:v1/peer"]
        assert (peer["description"], peer["_meta"]) == ("How it is", {"vendor/k": 1})


async def test_a_missing_argument_is_asked_for_and_another_is_refused(tmp_path: Path) -> None:
    async with recorded(tmp_path, {"prompts/list": lambda _: {"prompts": [PROMPT]}}) as (tools, there):
        asked = await called(there, "prompt:weather")
        assert asked["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        refused = await called(there, "prompt:weather", city="a", country="b")
        assert refused["status"]["state"] != "TASK_STATE_COMPLETED"
        assert tools.of("prompts/get") == []


async def test_a_prompt_that_the_server_refuses_is_a_task_that_says_so(tmp_path: Path) -> None:
    def refuse(_: Any) -> Json:
        raise Refusal(-32602)

    answers: Mapping[str, Answer] = {"prompts/list": lambda _: {"prompts": [PROMPT]}, "prompts/get": refuse}
    async with recorded(tmp_path, answers) as (_, there):
        task = await called(there, "prompt:weather", city="a")
        assert task["status"]["state"] == "TASK_STATE_REJECTED"
        assert "refused with -32602" in words_of(task)


async def test_a_prompt_may_ask_for_input_as_a_tool_may(tmp_path: Path) -> None:
    def answer(got: Any) -> Json:
        if "inputResponses" in got.params:
            return {
                "resultType": "complete",
                "messages": [{"role": "user", "content": {"type": "text", "text": "ok"}}],
            }
        question = {"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": SCHEMA}}
        return {"resultType": "input_required", "inputRequests": {"who": question}, "requestState": "opaque"}

    answers: Mapping[str, Answer] = {
        "prompts/list": lambda _: _page({"prompts": [PROMPT]}),
        "prompts/get": answer,
    }
    async with recorded(tmp_path, answers, MODERN) as (tools, there):
        asked = await called(there, "prompt:weather", city="a")
        assert asked["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        answered = message({"text": "Ann"}, taskId=asked["id"], contextId=asked["contextId"])
        task = (await there.rpc("desk").call("SendMessage", answered))["task"]
        assert parts_of(task)[0]["text"] == "ok"
        again = tools.of("prompts/get")[-1].params
        assert again["requestState"] == "opaque"
        assert again["inputResponses"]["who"]["content"] == {"who": "Ann"}


SCHEMA: Final[Json] = {"type": "object", "properties": {"who": {"type": "string"}}, "required": ["who"]}


async def test_names_that_no_skill_can_have_are_left_out_and_said(tmp_path: Path) -> None:
    prompts = [
        {"name": "fine"},
        {"name": "fine"},
        {"name": "a\nb"},
        {"name": "x" * 201},
        {"name": 7},
        "odd",
        {"name": "args", "arguments": [{"description": "nameless"}]},
        {"name": "über/../x", "arguments": "none"},
    ]
    tool = {"name": "prompt:taken", "inputSchema": {"type": "object"}, "description": "a tool"}
    answers: Mapping[str, Answer] = {
        "prompts/list": lambda _: {"prompts": [*prompts, {"name": "taken"}]},
        "tools/list": lambda _: {"tools": [tool]},
    }
    async with recorded(tmp_path, answers) as (_, there):
        skills = await skills_of(there)
        assert set(skills) == {"prompt:taken", "prompt:fine", "prompt:über/../x", "resources"}
        assert skills["prompt:taken"]["description"] == "a tool"
        reasons = {one.reason for one in there.bridge.upstreams["crm"].listing.left_out}
        assert reasons == {
            "a tool or an earlier entry has this name",
            "its name has control characters",
            "its name has more than 200 characters",
            "it has no name",
            "an argument of it has no name",
        }


async def test_two_servers_with_one_prompt_get_their_prefixes(tmp_path: Path) -> None:
    one, other = Notes(), Notes()
    servers = {"one": plan_of(one.target, MODERN), "two": plan_of(other.target, MODERN)}
    async with live(
        tmp_path, servers=servers, published={"desk": agent("one", "two", stand_ins=BOTH)}
    ) as there:
        for key in servers:
            await there.bridge.upstreams[key].ready()
        skills = await skills_of(there)
        assert {"one_prompt:greet", "two_prompt:greet", "one_resources", "two_resources"} <= set(skills)
        await called(there, "two_resources", uri=PUBLIC[0])
        assert (one.read, other.read) == ([], [PUBLIC[0]])


async def test_the_rules_of_skills_hold_for_prompts(tmp_path: Path) -> None:
    rules = {
        "prompt:*": SkillOverride(tags=("mine",)),
        "prompt:greet": SkillOverride(name="Greet", description="Says hello", examples=("hello",)),
        "prompt:leak": SkillOverride(hidden=True),
        "resource:*": SkillOverride(hidden=True),
    }
    published = {"desk": agent("notes", stand_ins=BOTH, overrides=rules)}
    async with notes(tmp_path, published=published) as (_, there):
        skills = await skills_of(there)
        assert set(skills) == {"count", "prompt:greet", "resources"}
        shown = skills["prompt:greet"]
        assert (shown["name"], shown["description"], shown["examples"]) == ("Greet", "Says hello", ["hello"])
        assert shown["tags"] == ["notes", "read-only", "mine"]


@pytest.mark.parametrize("version", [LEGACY, MODERN])
async def test_a_changed_list_changes_the_card(tmp_path: Path, version: str) -> None:
    async with notes(tmp_path, version) as (kept, there):
        assert "prompt:greet" in await skills_of(there)
        kept.prompts = ("other",)
        kept.templates = ("note:///new/{id}",)
        await kept.change_lists()
        upstream = there.bridge.upstreams["notes"]
        while {tool.name for tool in upstream.listing.stand_ins} != NEW:
            await there.rpc("desk").call("SendMessage", message(call_part("count", to=1)))
        skills = await skills_of(there)
        while "prompt:greet" in skills:
            skills = await skills_of(there)
        assert set(skills) >= NEW


NEW: Final = {"prompt:other", "resources", "resource:note:///new/{id}"}


# Resources


async def test_a_template_is_a_skill_that_reads(tmp_path: Path) -> None:
    async with notes(tmp_path) as (kept, there):
        card = await there.json("/agents/desk/.well-known/agent-card.json")
        declared = card["capabilities"]["extensions"][0]["params"]["tools"]
        name = "resource:note:///public/{name}"
        assert declared[name]["inputSchema"]["required"] == ["name"]
        (part,) = parts_of(await called(there, name, name="a"))
        assert part["text"] == "the text of note:///public/a"
        refused = await called(there, name, name="a/../../secret/c")
        assert refused["status"]["state"] == "TASK_STATE_FAILED"
        assert kept.read == [PUBLIC[0], "note:///public/a%2F..%2F..%2Fsecret%2Fc"]


async def test_templates_with_one_name_are_told_apart(tmp_path: Path) -> None:
    templates = [{"name": "x", "uriTemplate": f"a:{letter}/{{i}}"} for letter in "bc"]
    odd = [{"name": "y", "uriTemplate": "a:{"}, {"name": "z"}]
    answers: Mapping[str, Answer] = {
        "resources/templates/list": lambda _: {"resourceTemplates": [*templates, *odd]},
        "resources/read": lambda got: {"contents": [{"uri": got.params["uri"], "blob": "AAAA"}]},
    }
    async with recorded(tmp_path, answers) as (tools, there):
        names = sorted(name for name in await skills_of(there) if name.startswith("resource:"))
        assert len(names) == 2
        for name in names:
            (part,) = parts_of(await called(there, name, i="1"))
            assert part["raw"] == "AAAA"
        assert sorted(got.params["uri"] for got in tools.of("resources/read")) == ["a:b/1", "a:c/1"]
        assert len(there.bridge.upstreams["crm"].listing.left_out) == 2


async def test_a_search_answers_links_or_the_one_resource_that_is_meant(tmp_path: Path) -> None:
    async with notes(tmp_path) as (kept, there):
        listed = parts_of(await called(there, "resources"))
        assert listed[0]["text"] == "3 resources"
        assert [part["url"] for part in listed[1:]] == [*PUBLIC, SECRET]
        found = parts_of(await called(there, "resources", query="Public"))
        assert [part["url"] for part in found[1:]] == [*PUBLIC]
        assert kept.read == []
        for arguments in ({"query": SECRET}, {"query": "c"}, {"uri": SECRET}):
            (part,) = parts_of(await called(there, "resources", **arguments))
            assert part["text"] == f"the text of {SECRET}"
        (none,) = parts_of(await called(there, "resources", query="nowhere"))
        assert none["text"] == "0 resources of 3 with 'nowhere' in the name"


@pytest.mark.proves("mcp-bounded")
async def test_a_search_in_an_endless_list_is_bounded_and_says_so(tmp_path: Path) -> None:
    def page(got: Any) -> Json:
        start = int(got.params.get("cursor", 0))
        listed = [{"uri": f"a:{number}", "name": f"n{number}"} for number in range(start, start + 1000)]
        return {"resources": listed, "nextCursor": str(start + 1000)}

    async with recorded(tmp_path, {"resources/list": page}) as (tools, there):
        parts = parts_of(await called(there, "resources", query="n"))
        assert len(parts) == 51
        assert "the first 50 follow" in parts[0]["text"]
        assert "more than 10000" in parts[0]["text"]
        assert len(tools.of("resources/list")) == 11
        tools.answers = {**tools.answers, "resources/list": lambda _: {"resources": [], "nextCursor": "same"}}
        assert "never advances" in parts_of(await called(there, "resources"))[0]["text"]


@pytest.mark.proves("mcp-bounded")
async def test_a_resource_above_the_limit_fails_its_call_alone(tmp_path: Path) -> None:
    answers: Mapping[str, Answer] = {
        "resources/read": lambda got: {
            "contents": [{"uri": "a:b", "text": "x" * (2 << 20 if got.params["uri"] == "a:b" else 1)}]
        }
    }
    async with recorded(tmp_path, answers) as (_, there):
        grown = await called(there, "resources", uri="a:b")
        assert grown["status"]["state"] == "TASK_STATE_FAILED"
        assert parts_of(await called(there, "resources", uri="a:c"))[0]["text"] == "x"


async def test_a_list_that_fails_hides_no_tool(tmp_path: Path) -> None:
    def refuse(_: Any) -> Json:
        raise Refusal(-32603)

    answers: Mapping[str, Answer] = {
        "prompts/list": refuse,
        "resources/templates/list": lambda _: {"resourceTemplates": "none"},
    }
    async with recorded(tmp_path, answers) as (_, there):
        assert set(await skills_of(there)) == {"echo", "resources"}
        assert "its list of prompts is not whole" in there.bridge.upstreams["crm"].listing.odd


@pytest.mark.long
async def test_a_list_that_hangs_hides_no_tool(tmp_path: Path) -> None:
    async def never() -> None:
        await anyio.sleep_forever()

    answers: Mapping[str, Answer] = {"prompts/list": lambda _: _Hanging(never)}
    async with recorded(tmp_path, answers) as (_, there):
        assert set(await skills_of(there)) == {"echo", "resources"}
        assert "did not come in 5 s" in there.bridge.upstreams["crm"].listing.odd


class _Hanging(Response):
    """An answer that never comes."""

    def __init__(self, wait: Callable[[], Awaitable[None]]) -> None:
        super().__init__()
        self._wait = wait

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._wait()


# Rights


async def test_each_principal_reads_what_its_rules_allow(tmp_path: Path) -> None:
    people = [
        person("ann"),
        person("bob", skills=("prompt:greet",)),
        person("cat", skills=("resources", "resource:*"), resources=("note:///public/*",)),
        person("dan", skills=("resources", "resource:*")),
    ]
    async with notes(tmp_path, credentials=people, allow_unauthenticated=False) as (kept, there):
        assert {"prompt:greet", "resources"} <= set(await skills_of(there, "ann-token"))
        assert "Hello" in parts_of(await called(there, "prompt:greet", "bob-token"))[0]["text"]
        for skill, arguments in (("prompt:leak", {}), ("resources", {"uri": PUBLIC[0]})):
            task = await called(there, skill, "bob-token", **arguments)
            assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED", "bob has no such skill"
        kept.read.clear()
        found = parts_of(await called(there, "resources", "cat-token"))
        assert [part["url"] for part in found[1:]] == [*PUBLIC]
        for skill, arguments in READS_OF_CAT:
            task = await called(there, skill, "cat-token", **arguments)
            assert task["status"]["state"] == "TASK_STATE_REJECTED", arguments
            assert "You may not read this resource" in words_of(task)
        assert kept.read == []
        refused = await called(there, "resources", "dan-token", uri=PUBLIC[0])
        assert refused["status"]["state"] == "TASK_STATE_REJECTED"
        seen = parts_of(await called(there, "resources", "cat-token", uri="note:///public/"))
        assert [part["text"] for part in seen] == [f"the text of {uri}" for uri in PUBLIC]


READS_OF_CAT: Final[tuple[tuple[str, Json], ...]] = (
    ("resources", {"uri": SECRET}),
    ("resources", {"uri": "note:///public/../secret/c"}),
    ("resources", {"uri": "note:///public/%2e%2e/secret/c"}),
    ("resource:note:///public/{name}", {"name": ".."}),
    ("resource:note:///public/{name}", {"name": "../secret/c"}),
    ("resource:note:///secret/{name}", {"name": "c"}),
    ("resource:note:///{+path}", {"path": "secret/c"}),
    ("resource:note:///{+path}", {"path": "public/..%252fsecret/c"}),
    ("resource:file:///{+path}", {"path": "home/ann/d"}),
)


async def test_a_file_is_withheld_unless_the_operator_passes_files_on(tmp_path: Path) -> None:
    async with notes(tmp_path) as (kept, there):
        for skill, arguments in (
            ("resources", {"uri": FILE}),
            ("resource:file:///{+path}", {"path": "home/ann/d"}),
        ):
            task = await called(there, skill, **arguments)
            assert task["status"]["state"] == "TASK_STATE_REJECTED"
        assert kept.read == []
    allowing = profile_with(content={"allow_file_links": True})
    async with notes(tmp_path / "allowing", profile=allowing) as (kept, there):
        assert parts_of(await called(there, "resources", uri=FILE))[0]["text"] == f"the text of {FILE}"


# Off


async def test_an_agent_without_the_keys_asks_for_no_list(tmp_path: Path) -> None:
    published = {"desk": agent("crm")}
    plain = RecordingServer(LEGACY, capabilities=ALL)
    async with plain.serve() as url:
        target = HttpTarget(url, connect_seconds=20, result_limit_bytes=1 << 20, result_json_values=10_000)
        made = ServerPlan.as_profile_says(target, Era.LEGACY, PROFILE.server, PROFILE.run)
        async with live(tmp_path, servers={"crm": made}, published=published) as there:
            await there.bridge.upstreams["crm"].ready()
            assert set(await skills_of(there)) == {"echo"}
        assert {got.method for got in plain.got if got.verb == "POST"} == {
            "initialize",
            "notifications/initialized",
            "tools/list",
        }


async def test_another_agent_of_the_same_server_shows_its_tools_alone(tmp_path: Path) -> None:
    published = {"desk": agent("notes", stand_ins=BOTH), "plain": agent("notes")}
    async with notes(tmp_path, published=published) as (_, there):
        assert await there.skills("plain") == ["count"]
        assert "prompt:greet" in await there.skills("desk")
        await there.apply(published={**published, "desk": agent("notes", stand_ins=frozenset({"prompts"}))})
        assert sorted(await there.skills("desk")) == ["count", "prompt:greet", "prompt:leak"]


async def test_skills_stay_on_the_card_of_a_start_while_the_server_is_down(tmp_path: Path) -> None:
    answers: Mapping[str, Answer] = {
        "prompts/list": lambda _: {"prompts": [PROMPT]},
        "resources/templates/list": lambda _: {"resourceTemplates": [{"name": "t", "uriTemplate": "a:{x}"}]},
    }
    async with recorded(tmp_path, answers) as (_, there):
        target = there.plan.servers["crm"].target
        before = await skills_of(there)
    assert {"prompt:weather", "resource:t", "resources"} <= set(before)
    published = {"desk": agent("crm", stand_ins=BOTH)}
    async with live(tmp_path, servers={"crm": plan_of(target)}, published=published) as there:
        assert await skills_of(there) == before


def test_a_bridge_without_the_keys_imports_nothing_of_it() -> None:
    script = (
        "import sys; import bridge.assembly.bridge, bridge.process.serve\n"
        "print([name for name in sys.modules if 'as_tools.' in name and name.startswith('bridge.mcp')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
