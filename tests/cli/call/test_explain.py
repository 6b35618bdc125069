"""`mcp-a2a call` with sentences: what runs, what is only explained, and agents that cannot explain."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from bridge.translate.extensions.bridge import EXPLAIN, SKILL
from bridge.translate.overrides import SkillOverride
from tests.cli.call.test_command import Run, Screen, command
from tests.support.running import config_for, running
from tests.support.scripted_agent import Json, scripted_agent
from tests.support.tool_server import ToolServer, listed

READS = {"annotations": {"readOnlyHint": True}}
TEXT = {"type": "string"}
EXPLAINED = """\
rule: a phrase of the configuration: say hello to {whom}
skill: greet
whom = "Ada"
then: the skill runs
"""


@pytest.fixture(scope="module")
async def server() -> AsyncIterator[ToolServer]:
    tools = [{**listed("greet", "whom", whom=TEXT), **READS}, listed("wipe", "folder", folder=TEXT)]
    async with ToolServer("tools", tools).run() as server:
        yield server


@pytest.fixture(scope="module")
async def url(server: ToolServer) -> AsyncIterator[str]:
    phrases = SkillOverride(phrases=("say hello to {whom}",))
    async with running(config_for(server.target, overrides={"greet": phrases})) as bridge:
        yield bridge.base_url


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, server: ToolServer) -> Run:
    server.calls.clear()
    return command("call", monkeypatch)


@pytest.mark.parametrize(
    "words",
    [("Please say hello to Ada!",), ("--text", "Please say hello to Ada!"), ("--text", "greet Ada")],
    ids=" ".join,
)
async def test_words_with_a_space_are_a_text_for_the_agent(
    words: tuple[str, ...], run: Run, url: str, server: ToolServer
) -> None:
    done = await run(url, *words)
    assert (done.code, json.loads(done.out)) == (0, ["tools", "greet", {"whom": "Ada"}])
    assert server.calls == [("greet", {"whom": "Ada"})]


async def test_a_word_without_a_space_is_a_text_only_with_the_option(
    run: Run, url: str, server: ToolServer
) -> None:
    done = await run(url, "hello")
    assert (done.code, done.out) == (2, "")
    assert "there is no skill 'hello'" in done.err
    helped = await run(url, "--text", "hello")
    assert (helped.code, helped.out.splitlines()[0]) == (0, "I can do this:")
    assert server.calls == []


@pytest.mark.parametrize("dialect", ["1.0", "0.3", "0.1"])
async def test_an_explanation_shows_rule_and_values_in_each_version_of_a2a(
    dialect: str, run: Run, url: str, server: ToolServer
) -> None:
    done = await run(url, "--dialect", dialect, "--explain", "Please say hello to Ada!")
    assert (done.code, done.out, server.calls) == (0, EXPLAINED, [])


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("wipe /tmp", 'folder = "/tmp"\nthen: the agent asks for a yes\n'),
        ("greet whom=Ada", 'whom = "Ada"\nthen: the skill runs\n'),
        (
            "greet",
            "skill: greet\nthen: the agent asks: To run greet I need:\n- whom (string, required) [missing]\n",
        ),
        ("sing", "rule: none fits\nthen: the agent asks: "),
        ("greet Ada unless Bob comes", "rule: none fits\nthen: the agent asks: "),
        ("", "rule: none fits\nthen: the agent asks: "),
        ("greet עדה\u202e", "rule: none fits\nthen: the agent asks: "),
    ],
)
async def test_what_would_happen_is_explained_and_nothing_runs(
    text: str, end: str, run: Run, url: str, server: ToolServer
) -> None:
    done = await run(url, "--explain", "--text", text)
    assert (done.code, server.calls) == (0, [])
    assert end in done.out


async def test_an_explanation_is_an_event_of_the_json_output(run: Run, url: str, server: ToolServer) -> None:
    done = await run(url, "--explain", "--json-output", "say hello to Ada")
    (line,) = done.out.splitlines()
    (part,) = json.loads(line)["message"]["parts"]
    assert (done.code, part["text"], server.calls) == (0, EXPLAINED.strip(), [])


async def test_an_explanation_at_a_terminal_is_the_same_text(
    monkeypatch: pytest.MonkeyPatch, url: str, run: Run, server: ToolServer
) -> None:
    done = await command("call", monkeypatch, Screen)(url, "--explain", "say hello to Ada")
    assert (done.code, done.out, server.calls) == (0, EXPLAINED, [])


async def test_the_trace_shows_that_an_explanation_was_asked_for(run: Run, url: str) -> None:
    done = await run(url, "--explain", "--trace", "say hello to Ada")
    assert json.dumps(EXPLAIN) in done.err
    assert done.out == EXPLAINED


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ((), "--explain takes a text"),
        (("greet", "whom=Ada"), "--explain takes a text"),
        (("greet", "--json", '{"whom": "Ada"}'), "--explain takes a text"),
        (("--task", "1", "--text", "greet Ada"), "--explain takes no --task and no --no-wait"),
        (("--no-wait", "greet Ada"), "--explain takes no --task and no --no-wait"),
    ],
)
async def test_only_a_text_that_makes_no_task_is_explained(
    words: tuple[str, ...], fault: str, run: Run, url: str, server: ToolServer
) -> None:
    done = await run(url, "--explain", *words)
    assert (done.code, done.out, server.calls) == (2, "", [])
    assert fault in done.err


async def test_a_tool_of_an_mcp_server_is_not_explained_and_not_called(run: Run, server: ToolServer) -> None:
    by_url = await run(server.url, "--explain", "greet", "whom=Ada")
    by_command = await run("--explain", "greet", "whom=Ada", "--", "no-such-command")
    assert (by_url.code, by_command.code, server.calls) == (1, 2, [])
    assert "--explain is for agents, and this is an MCP server" in by_command.err


@pytest.mark.parametrize("is_older", [False, True])
async def test_an_agent_that_cannot_explain_gets_no_message(is_older: bool, run: Run) -> None:
    methods: list[str] = []

    def script(method: str, params: Json) -> list[Json]:
        methods.append(method)
        return [{"error": {"code": -32603, "message": "not expected"}}]

    async with scripted_agent(script, is_older=is_older) as url:
        done = await run(url, "--explain", "say hello to Ada")
    assert (done.code, done.out, methods) == (2, "", [])
    assert "--explain is for agents of mcp-a2a: this agent would run what the text asks for" in done.err


async def test_an_agent_without_the_extension_gets_a_sentence_as_a_text(run: Run) -> None:
    heard: list[Json] = []

    def script(method: str, params: Json) -> list[Json]:
        heard.append(params["message"])
        said = {"messageId": "1", "role": "ROLE_AGENT", "parts": [{"text": "Hi, Ada"}]}
        return [{"message": said}]

    async with scripted_agent(script) as url:
        done = await run(url, "say hello to Ada")
    (message,) = heard
    assert (done.code, done.out) == (0, "Hi, Ada\n")
    assert message["parts"] == [{"text": "say hello to Ada"}]
    assert SKILL not in message.get("metadata", {})
