"""An MCP server wrapped as an agent, and exposed as an MCP server again: a host sees the same server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import mcp_types as types
import pytest
from mcp import Client, MCPError, StdioServerParameters, stdio_client

from bridge.a2a.wire.versions import DialectChoice
from bridge.config.tables.profile import load_profile
from bridge.mcp.client.eras import Era
from bridge.mcp.client.transports.stdio import StdioTarget
from tests.peers.node import everything_command, require_peers
from tests.support.asking import asking_command
from tests.support.exposing import answering, exposing
from tests.support.limits import command_of
from tests.support.running import config_for, profile_with, raw_command, running
from tests.support.scripted_agent import card_served, first_card, older_card

pytestmark = pytest.mark.proves("map-round-trip")

FOLLOW_UPS = {"task_result", "task_reply", "task_cancel"}
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("echo", {"text": "grüße 🎈"}),
    ("add", {"a": 2, "b": 40.5}),
    ("add", {"a": "no number", "b": 1}),
    ("fail", {}),
    ("every-block", {}),
    ("empty", {}),
    ("odd", {}),
    ("link", {}),
    ("big", {"bytes": 500_000}),
    ("upload", {"file": "AAEC"}),
]
FIRST = "the first generation"
HERMES = "Hermes"
each_mode = pytest.mark.parametrize("mode", ["auto", "legacy"])


each_way = pytest.mark.parametrize(
    ("mode", "older"),
    [
        ("auto", ""),
        ("legacy", ""),
        ("auto", "JSONRPC"),
        ("auto", "HTTP+JSON"),
        ("auto", FIRST),
        ("auto", HERMES),
    ],
    ids=["auto", "legacy", "auto-0.3 JSONRPC", "auto-0.3 HTTP+JSON", "auto-0.1", "auto-hermes"],
)


@asynccontextmanager
async def both_ways(
    command: StdioTarget, mode: str, folder: Path, older: str = "", **options: Any
) -> AsyncIterator[list[Client]]:
    """A client of a server, and a client of the same server wrapped and exposed. `older` is an older binding between
    the bridges, `FIRST` or `HERMES`."""
    is_hermes = older == HERMES
    async with AsyncExitStack() as stack:
        parameters = StdioServerParameters(
            command=command.argv[0], args=list(command.argv[1:]), env=dict(command.env)
        )
        profile = profile_with(content={"allow_file_links": True}, card={"hermes": is_hermes})
        config = config_for(command, era=Era.AUTO, profile=profile)
        bridge = await stack.enter_async_context(running(config))
        url = bridge.base_url
        if older and not is_hermes:
            async with httpx2.AsyncClient() as http:
                card = (await http.get(f"{url}/.well-known/agent-card.json")).json()
            served = (
                card_served(first_card(card), "/.well-known/agent.json")
                if older == FIRST
                else card_served(older_card(card, older))
            )
            url = await stack.enter_async_context(served)
        dialect: DialectChoice = "hermes" if is_hermes else "auto"
        there = await stack.enter_async_context(exposing(folder, url, dialect=dialect))
        directly = Client(stdio_client(parameters), mode="auto", cache=None, **options)
        yield [
            await stack.enter_async_context(directly),
            await stack.enter_async_context(there.client(mode, **options)),
        ]


def listed(tools: list[types.Tool]) -> dict[str, Any]:
    """Tools by name, as they are listed, but for how they are run."""
    return {
        tool.name: tool.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"execution"})
        for tool in tools
        if tool.name not in FOLLOW_UPS
    }


async def raw(client: Client, name: str, arguments: dict[str, Any]) -> Any:
    """The raw result of a call, without the `_meta` keys that the bridges add."""
    data: dict[str, Any] = {"method": "tools/call", "params": {"name": name, "arguments": arguments}}
    options: Any = {}
    client.session._stamp(data, options)
    try:
        result = await client.session._dispatcher.send_raw_request("tools/call", data["params"], options)
    except MCPError as exc:
        return {"error": {"code": exc.code, "message": exc.message}}
    meta = {key: value for key, value in result.get("_meta", {}).items() if not key.startswith(_OURS)}
    kept = {key: value for key, value in result.items() if key not in ("resultType", "_meta")}
    return {**kept, **({"_meta": meta} if meta else {})}


_OURS = ("io.modelcontextprotocol/", "mcp-a2a/")


@each_way
@pytest.mark.smoke("auto", "legacy", "auto-0.3 JSONRPC")
async def test_the_tools_of_the_raw_server_are_listed_and_answer_as_they_do_directly(
    mode: str, older: str, tmp_path: Path
) -> None:
    async with both_ways(raw_command(), mode, tmp_path, older) as (directly, through):
        assert listed((await through.list_tools()).tools) == listed((await directly.list_tools()).tools)
        for name, arguments in CALLS:
            assert await raw(through, name, arguments) == await raw(directly, name, arguments), name


@each_way
@pytest.mark.smoke("auto", "legacy", "auto-0.1")
async def test_the_errors_of_a_server_come_back_as_errors(mode: str, older: str, tmp_path: Path) -> None:
    async with both_ways(raw_command(), mode, tmp_path, older) as (_, through):
        wrong = await raw(through, "refuse", {"code": -32602})
        assert wrong == {"error": {"code": -32602, "message": "not today"}}
        other = await raw(through, "refuse", {"code": -32099})
        assert other == {"error": {"code": -32603, "message": "not today"}}
        lacking = await raw(through, "refuse", {"code": -32021})
        assert lacking == {"error": {"code": -32021, "message": "not today"}}
        unknown = await raw(through, "nothing", {})
        assert unknown["error"]["code"] == -32602


@each_way
@pytest.mark.smoke("auto", "legacy", "auto-hermes")
async def test_progress_comes_through_in_order(mode: str, older: str, tmp_path: Path) -> None:
    async with both_ways(raw_command(), mode, tmp_path, older) as (_, through):
        seen: list[tuple[Any, ...]] = []

        async def see(*progress: Any) -> None:
            seen.append(progress)

        with anyio.fail_after(20):
            await through.call_tool("progress", {"steps": 3}, progress_callback=see)
        steps = [(n, 3, f"step {n}") for n in (1, 2, 3)]
        # A stream of Hermes is opened once the task is there, which may have gone on by then.
        assert seen == steps[3 - len(seen) :] if older == HERMES else sorted(seen) == steps


@each_way
@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("action", ["accept", "decline", "cancel"])
@pytest.mark.smoke(
    "accept-legacy-auto", "decline-modern-auto", "cancel-modern-legacy", "accept-legacy-auto-hermes"
)
async def test_questions_come_through_and_so_do_their_answers(
    era: str, mode: str, older: str, action: Any, tmp_path: Path
) -> None:
    content = {"name": "Ada", "age": 36} if action == "accept" else None
    answers = answering(*(types.ElicitResult(action=action, content=content) for _ in range(2)))
    async with both_ways(asking_command(era), mode, tmp_path, older, elicitation_callback=answers) as both:
        given = [(await client.call_tool("ask", {})).content for client in both]
        assert given[0] == given[1]
        asked = [one.model_dump(exclude_none=True, exclude={"meta"}) for one in answers.seen]
        assert asked[0] == asked[1]


@each_mode
@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.smoke("legacy-auto", "modern-legacy")
async def test_the_same_answer_to_the_same_question_of_two_calls_counts_twice(
    era: str, mode: str, tmp_path: Path
) -> None:
    answers = answering(*(types.ElicitResult(action="accept", content={"name": "Ada"}) for _ in range(4)))
    async with both_ways(asking_command(era), mode, tmp_path, elicitation_callback=answers) as (
        directly,
        through,
    ):
        for _ in range(2):
            given = [(await client.call_tool("ask", {})).content for client in (directly, through)]
            assert given[0] == given[1]
    assert len(answers.seen) == 4


@each_mode
async def test_two_equal_calls_are_confirmed_separately(mode: str, tmp_path: Path) -> None:
    answers = answering(*(types.ElicitResult(action="accept", content={}) for _ in range(2)))
    config = config_for(raw_command(), profile=profile_with(run={"confirm": "strict"}))
    async with (
        running(config) as bridge,
        exposing(tmp_path, bridge.base_url) as there,
        there.client(mode, elicitation_callback=answers) as client,
    ):
        for _ in range(2):
            (said,) = (await client.call_tool("add", {"a": 2, "b": 40})).content
            assert (said.type, said.text) == ("text", '{"sum": 42}')
    assert len(answers.seen) == 2


async def test_every_tool_of_server_everything_is_listed_unchanged(tmp_path: Path) -> None:
    require_peers()
    answers = answering()
    async with both_ways(
        command_of(tuple(everything_command())), "auto", tmp_path, elicitation_callback=answers
    ) as both:
        directly, through = [listed((await client.list_tools()).tools) for client in both]
        assert through == directly


async def test_a_host_is_notified_when_an_agents_skills_change(tmp_path: Path) -> None:
    profile = profile_with(card={"max_age_seconds": 0})
    config = config_for(raw_command(), profile=profile)
    async with (
        running(config) as bridge,
        exposing(tmp_path, bridge.base_url, card_min_seconds=0.05, card_max_seconds=0.1) as there,
        there.client("auto") as host,
        host.listen(tools_list_changed=True) as changes,
    ):
        before = listed((await host.list_tools()).tools)
        await host.call_tool("grow", {})
        after = before
        with anyio.fail_after(20):
            async for _ in changes:
                after = listed((await host.list_tools()).tools)
                if after.keys() != before.keys():
                    break
        assert after.keys() - before.keys() == {"grown-1"}


PROFILES = sorted(file.stem for file in Path("mappings").glob("*.toml"))


@pytest.mark.parametrize("mapping", PROFILES)
@pytest.mark.smoke("default", "strict")
async def test_every_profile_gives_what_the_server_gives(mapping: str, tmp_path: Path) -> None:
    """Completely, since both sides know the extension. Calls that need a confirmation are confirmed."""
    profile = load_profile(mapping)
    config = config_for(raw_command(), profile=profile)
    parameters = StdioServerParameters(command=raw_command().argv[0], args=list(raw_command().argv[1:]))
    agree = answering(*[types.ElicitResult(action="accept", content={})] * len(CALLS))
    with anyio.fail_after(60):
        async with AsyncExitStack() as stack:
            bridge = await stack.enter_async_context(running(config))
            there = await stack.enter_async_context(exposing(tmp_path, bridge.base_url, mapping=mapping))
            server = Client(stdio_client(parameters), mode="auto", cache=None)
            directly = await stack.enter_async_context(server)
            through = await stack.enter_async_context(there.client("legacy", elicitation_callback=agree))
            for name, arguments in CALLS:
                if name == "link":
                    continue  # a file: link goes out only where a profile allows it
                called = (name, arguments)
                if profile.agents.granularity == "search":
                    called = ("call_skill", {"skill": name, "arguments": arguments})
                result, expected = await raw(through, *called), await raw(directly, name, arguments)
                assert result == expected, name
    assert bool(agree.seen) == (profile.run.confirm == "strict")
