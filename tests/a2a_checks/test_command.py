"""The command, and the table of checks itself."""

from __future__ import annotations

import ast
import json
from functools import partial
from pathlib import Path

import anyio.to_thread
import httpx2
import pytest

from tests.a2a_checks import CHECKS, Level, Verdict, run_checks
from tests.a2a_checks.__main__ import main
from tests.a2a_checks.known import KNOWN_FAILURES
from tests.a2a_checks.occasions import PURPOSES
from tests.a2a_checks.runs import OF_AGAIN, OF_BRIDGE, OF_SDK, TOKEN
from tests.a2a_checks.table import BOTH, ONCE
from tests.a2a_checks.wire import events_of
from tests.support.foreign import foreign_agent
from tests.support.ports import free_port
from tests.support.running import config_for, raw_command, running

FOLDER = Path(__file__).parent
KNOWS_THE_BRIDGE = {"runs.py", "spoiling.py"}


async def command(*arguments: str) -> int:
    """The command's exit code, run beside the agent that it asks."""
    return await anyio.to_thread.run_sync(partial(main, arguments))


async def open_tasks_of(base_url: str) -> list[object]:
    """The tasks of an agent that have not ended."""
    tasks = []
    async with httpx2.AsyncClient(headers={"A2A-Version": "1.0"}) as http:
        for state in ("SUBMITTED", "WORKING", "INPUT_REQUIRED", "AUTH_REQUIRED"):
            asked = {"status": f"TASK_STATE_{state}"}
            tasks += (await http.get(f"{base_url}/tasks", params=asked)).json()["tasks"]
    return tasks


async def test_the_command_prints_a_table_and_writes_json_and_leaves_nothing_running(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    messages, results = tmp_path / "messages.json", tmp_path / "results.json"
    messages.write_text(json.dumps({name: said for name, said in OF_BRIDGE.items() if name != "needs-auth"}))
    async with running(config_for(raw_command())) as bridge:
        url = f"{bridge.base_url}/.well-known/agent-card.json"
        code = await command(url, "--messages", str(messages), "--json", str(results))
        open_tasks = await open_tasks_of(bridge.base_url)
    assert open_tasks == []
    printed = capsys.readouterr().out
    assert code == 0
    assert printed.startswith(f"Raw Server at {url}\n")
    assert all(check.sentence in printed for check in CHECKS)
    written = json.loads(results.read_text())["results"]
    assert [one["id"] for one in written] == [check.id for check in CHECKS]
    assert {one["outcomes"]["card"]["verdict"] for one in written if one["id"] == "card-served"} == {"pass"}


async def test_a_must_that_fails_is_exit_code_1_and_what_a_plain_greeting_cannot_bring_about_is_not_tried(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "results.json"
    async with foreign_agent() as agent:
        assert await command(agent.url, "--json", str(results)) == 1
    printed = capsys.readouterr().out
    assert "fail       MUST    JSONRPC    version-query" in printed
    assert "expected: error -32001 (TASK_NOT_FOUND)" in printed
    untried = {
        result["id"]
        for result in json.loads(results.read_text())["results"]
        if "not tried" in {outcome["verdict"] for outcome in result["outcomes"].values()}
    }
    assert not untried & {check.id for check in CHECKS if not check.needs}
    assert untried >= {"subscribe-closes", "turn-mismatch", "stream-message"}


async def test_wrong_usage_and_nobody_there_are_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    assert await command(url) == 2
    assert await command(url, "--bearer", TOKEN) == 2
    (tmp_path / "messages.json").write_text('{"dances": {}}')
    assert await command(url, "--messages", str(tmp_path / "messages.json")) == 2
    said = capsys.readouterr().err
    assert "expected an HTTP answer" in said
    assert "env:NAME" in said
    assert "unknown purpose dances" in said
    assert TOKEN not in said


async def test_without_a_card_nothing_passes() -> None:
    async with foreign_agent() as agent:
        report = await run_checks(f"{agent.url}/no/agent/card.json")
    verdicts = {outcome.verdict for result in report.results for outcome in result.outcomes.values()}
    assert verdicts == {Verdict.FAIL, Verdict.NOT_TRIED}


def test_each_check_has_an_id_a_sentence_and_bindings_of_its_own() -> None:
    assert len({check.id for check in CHECKS}) == len(CHECKS)
    assert len({(check.sentence, check.section) for check in CHECKS}) == len(CHECKS)
    for check in CHECKS:
        assert check.bindings == ONCE or set(check.bindings) <= set(BOTH)
        assert check.sentence
        assert not check.sentence.endswith(".")
    assert set(KNOWN_FAILURES) <= {check.id for check in CHECKS}
    assert {check.level for check in CHECKS} == set(Level)


def test_the_messages_at_hand_are_for_known_purposes() -> None:
    assert set(OF_BRIDGE) | set(OF_SDK) | set(OF_AGAIN) == set(PURPOSES)


def test_the_checks_know_nothing_of_the_bridge() -> None:
    for path in FOLDER.glob("*.py"):
        if path.name.startswith("test_") or path.name in KNOWS_THE_BRIDGE:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [one.name for one in node.names] if isinstance(node, ast.Import) else []
            assert not any(name.split(".")[0] == "bridge" for name in names), path.name


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
async def test_events_are_read_however_they_are_cut(size: int) -> None:
    text = ': hi\r\n\r\ndata: {"a":\rdata: "\u2028\u0085"}\n\nevent: x\ndata:two\r\n\r\ndata: unfinished'.encode()

    async def cut() -> object:
        for start in range(0, len(text), size):
            yield text[start : start + size]

    response = httpx2.Response(200, content=cut())  # type: ignore[arg-type]
    assert [event async for event in events_of(response)] == ['{"a":\n"\u2028\u0085"}', "two"]
