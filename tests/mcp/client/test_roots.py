"""The folders that the file names for a tool server: declared to this server only, and told when it asks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from bridge.config.load import load
from bridge.errors import UsageError
from bridge.mcp.client.roots import LIST, with_roots_declared
from bridge.mcp.client.rounds import Round, result_in_rounds
from bridge.mcp.client.values import ToolCall
from tests.support.asking import asking_argv
from tests.support.running import Rpc, call_part, texts
from tests.support.serving_file import serving_file
from tests.support.several import state

FILE = """
[bridge]
port = 0
store = "memory:"
keys = [{ env = "KEY" }]

[tool_servers.told]
command = {command}
era = "{era}"
roots = ["./data & more"]

[tool_servers.untold]
command = {command}
era = "{era}"

[tools_as_agent.told]
from = ["told"]

[tools_as_agent.untold]
from = ["untold"]
"""


@pytest.mark.outside
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_server_is_told_its_own_folders_and_no_other_server_is(tmp_path: Path, era: str) -> None:
    (tmp_path / "data & more").mkdir()
    values = {"command": json.dumps(asking_argv(era)), "era": era}
    async with (
        serving_file(tmp_path, FILE, {"KEY": "k" * 40}, **values) as root,
        httpx2.AsyncClient(timeout=30) as http,
    ):
        told = await Rpc(http, f"{root}/agents/told").send(
            call_part("roots", roots=["file:///"]), metadata={"roots": ["file:///"]}
        )
        untold = await Rpc(http, f"{root}/agents/untold").send(call_part("roots"))
    assert state(told) == "COMPLETED"
    said = texts(told["artifacts"][0]["parts"])[0]
    assert (tmp_path / "data & more").as_uri() in said
    assert said.count("file://") == 1
    assert "file://" not in json.dumps(untold)
    assert state(untold) == ("COMPLETED" if era == "legacy" else "FAILED")


def asks(*keys: str, state: str = "s") -> dict[str, Any]:
    methods = {"folders": LIST, "name": "elicitation/create"}
    requests = {key: {"method": methods[key], "params": {"message": key}} for key in keys}
    return {"resultType": "input_required", "inputRequests": requests, "requestState": state}


async def test_folders_are_told_beside_the_answers_of_a_person() -> None:
    results = [asks("folders", state="1"), asks("folders", "name", state="2"), {"content": []}]
    sent: list[ToolCall] = []

    async def once(call: ToolCall) -> dict[str, Any]:
        sent.append(call)
        return results[len(sent) - 1]

    asked: list[Round] = []

    async def answers_to(now: Round) -> dict[str, Any]:
        asked.append(now)
        return {"name": {"action": "accept", "content": {"name": "Ada"}}}

    assert await result_in_rounds(ToolCall("t", {}, task_ttl_ms=0), once, answers_to, ("file:///data",)) == {
        "content": []
    }
    folders = {"folders": {"roots": [{"uri": "file:///data"}]}}
    assert [call.input_responses for call in sent[:2]] == [None, folders]
    assert sent[2].input_responses == {**folders, "name": {"action": "accept", "content": {"name": "Ada"}}}
    assert [[*now.questions] for now in asked] == [["name"]]


def test_the_capability_is_declared_without_changes_of_the_list() -> None:
    declared = with_roots_declared({"capabilities": {"elicitation": {}}})
    assert declared == {"capabilities": {"elicitation": {}, "roots": {}}}
    key = "io.modelcontextprotocol/clientCapabilities"
    assert with_roots_declared({"_meta": {key: {}, "a": 1}}) == {"_meta": {key: {"roots": {}}, "a": 1}}


@pytest.mark.parametrize(
    ("roots", "fault"),
    [
        ('["./none"]', "there is no folder"),
        ('["bridge.toml"]', "there is no folder"),
        ('["file:///tmp"]', "there is no"),
    ],
)
def test_a_folder_that_is_not_there_is_a_fault_of_the_file(tmp_path: Path, roots: str, fault: str) -> None:
    file = tmp_path / "bridge.toml"
    file.write_text(f'[tool_servers.s]\ncommand = ["s"]\nroots = {roots}\n[tools_as_agent.s]\nfrom = ["s"]\n')
    with pytest.raises(UsageError) as caught:
        load(file, {})
    assert fault in str(caught.value) + caught.value.detail


def test_the_path_of_a_folder_counts_from_the_file(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    file = tmp_path / "in" / "bridge.toml"
    file.write_text(
        '[tool_servers.s]\ncommand = ["s"]\nroots = [".", ".."]\n[tools_as_agent.s]\nfrom = ["s"]\n'
    )
    roots = load(file, {}).config.tool_servers["s"].roots
    assert [root.resolve() for root in roots] == [(tmp_path / "in").resolve(), tmp_path.resolve()]
    assert all(root.is_absolute() for root in roots)
