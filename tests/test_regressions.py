"""Faults that were found by looking for them, each once more from outside."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest

from bridge.concurrency import done_at_once
from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import Credential
from bridge.mcp.tools import tools_from
from bridge.translate.arguments import problems_of
from tests.support.limits import command_of
from tests.support.running import Rpc, call_part, config_for, profile_with, raw_command, running, texts

ANSWERS = """
import json, sys

def say(number, **answer):
    print(json.dumps({"jsonrpc": "2.0", "id": number, **answer}), flush=True)

HALF = '{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"half \\\\ud83d"}]}}'
for line in sys.stdin:
    message = json.loads(line)
    method, number = message.get("method"), message.get("id")
    if method == "initialize":
        info = {"name": "odd", "version": "1"}
        say(number, result={"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info})
    elif method == "tools/list":
        say(number, result={"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("half", "deep")]})
    elif method == "tools/call" and message["params"]["name"] == "half":
        print(HALF % number, flush=True)
    elif method == "tools/call":
        deep = "x"
        for _ in range(150):
            deep = [deep]
        say(number, error={"code": -32000, "message": "deep", "data": deep})
"""


async def test_half_a_character_in_a_result_does_not_keep_the_call_waiting() -> None:
    async with (
        running(config_for(command_of((sys.executable, "-c", ANSWERS)))) as bridge,
        httpx2.AsyncClient() as http,
    ):
        task = await Rpc(http, bridge.base_url).send(call_part("half"))
        assert texts(task["artifacts"][0]["parts"]) == ["half \ufffd"]


async def test_an_error_that_is_nested_deeply_can_be_read_and_listed() -> None:
    async with (
        running(config_for(command_of((sys.executable, "-c", ANSWERS)))) as bridge,
        httpx2.AsyncClient() as http,
    ):
        rpc = Rpc(http, bridge.base_url)
        task = await rpc.send(call_part("deep"))
        assert task["status"]["state"] == "TASK_STATE_FAILED"
        assert await rpc.call("GetTask", {"id": task["id"]}) == task
        assert (await rpc.call("ListTasks", {}))["totalSize"] == 1


async def test_what_a_child_says_before_it_dies_is_not_on_the_card(tmp_path: Path) -> None:
    program = command_of((sys.executable, "-c", "raise SystemExit('password=hunter2')"))
    profile = profile_with(server={"fail": "open", "longest_pause_seconds": 0.3})
    config = config_for(program, profile=profile, credentials=[Credential(Principal("ada"), "t")])
    async with running(config) as bridge, httpx2.AsyncClient() as http:
        card = (await http.get(f"{bridge.base_url}/.well-known/agent-card.json")).text
        assert "its tool server cannot be reached" in card
        assert "ended before" not in card
        assert "hunter2" not in card


async def test_a_server_that_is_down_keeps_its_agents_address(tmp_path: Path) -> None:
    program = tmp_path / "server.py"
    target = command_of((sys.executable, str(program)))
    profile = profile_with(server={"fail": "open", "longest_pause_seconds": 0.3})
    program.write_text(ANSWERS)
    async with running(config_for(target, profile=profile)) as bridge:
        address = bridge.bridge.path
    program.write_text("raise SystemExit(1)")
    async with running(config_for(target, profile=profile)) as bridge:
        assert bridge.bridge.path == address == "/agents/odd"


@pytest.mark.proves("a2a-13.1-scope")
async def test_callers_without_a_name_are_not_given_each_others_tasks() -> None:
    config = replace(config_for(raw_command()), host="0.0.0.0", allow_unauthenticated=True)
    async with running(config) as bridge, httpx2.AsyncClient() as http:
        rpc = Rpc(http, bridge.base_url)
        same = {"messageId": "1"}
        first = await rpc.send(call_part("echo", text="hello"), **same)
        second = await rpc.send(call_part("echo", text="hello"), **same)
        other = await rpc.send(call_part("echo", text="else"), **same)
        assert len({task["id"] for task in (first, second, other)}) == 3
        assert len({task["contextId"] for task in (first, second, other)}) == 3


def test_many_items_are_told_apart_without_comparing_all_pairs() -> None:
    schema = {"type": "object", "properties": {"all": {"type": "array", "uniqueItems": True}}}
    (tool,), _ = tools_from([{"name": "many", "inputSchema": schema}])
    items = [{"n": n} for n in range(20_000)]
    assert done_at_once(lambda: problems_of(tool, {"all": items})) == ()
    twice = done_at_once(lambda: problems_of(tool, {"all": [*items, {"n": 7}]}))
    assert [found.name for found in twice] == ["all"]
    assert problems_of(tool, {"all": [1, True, "1", None, [1]]}) == ()
    assert len(problems_of(tool, {"all": [1, 1.0]})) == 1


def test_a_pattern_that_only_javascript_knows_leaves_the_tool_and_its_check_to_the_server() -> None:
    schema = {"type": "object", "properties": {"name": {"type": "string", "pattern": "^\\p{L}+$"}}}
    (tool,), left_out = tools_from([{"name": "letters", "inputSchema": schema}])
    assert left_out == ()
    assert problems_of(tool, {"name": "x"}) == ()


@pytest.mark.parametrize(
    ("words", "lost"),
    [
        ("Bad Request: No valid session ID provided", True),
        ("Session not found", True),
        ("Invalid session ID", True),
        ("browser session already closed after payment", False),
        ("the session of parliament is over", False),
    ],
)
def test_only_a_session_of_mcp_that_is_unknown_counts_as_lost(words: str, lost: bool) -> None:
    from bridge.mcp.client.transports.streamable_http import means_session_lost

    assert means_session_lost(400, words) is lost


def test_a_peers_words_cannot_forge_a_line_of_the_log() -> None:
    import logging

    from bridge.cli.logs import TextFormat

    record = logging.LogRecord(
        "x", logging.INFO, "x", 1, "read %s", ("a\n12:00:00 ERROR forged\x1b[2J",), None
    )
    assert not re.search(r"[\n\x1b]", TextFormat().format(record))
