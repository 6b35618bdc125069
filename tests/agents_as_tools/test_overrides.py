"""The effect of configured rules for single tools: names, descriptions, arguments, time limits and concurrency."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp import MCPError

from bridge.agents_as_tools.tools import may_be_tool_name, published_tools, tool_remarks
from bridge.translate.overrides import ArgumentRule, ToolOverride
from bridge.translate.skill_tools import ToolSource, tools_of_agents
from tests.support.agent_faces import OPTIONS, Agents, serving, words_in
from tests.support.foreign import foreign_agent
from tests.support.limits import face_options, tool_rules
from tests.support.mcp_tasks import task_client
from tests.support.running import config_for, raw_command, running
from tests.translate.test_skill_tools import card, skill

pytestmark = pytest.mark.proves("map-tool-overrides")

WAIT_SECONDS = 20
HIDDEN = ToolOverride(hidden=True)
each_mode = pytest.mark.parametrize("mode", ["auto", "legacy"])


def one(url: str, **named: Any) -> Any:
    """A face of one agent."""

    def made(agents: Agents) -> list[Any]:
        return [agents(url, **named)]

    return made


@each_mode
async def test_a_tool_is_listed_and_called_as_configured(mode: str, tmp_path: Path) -> None:
    said = {"plain": ToolOverride(name="repeat-it", title="Repeat", description="Says it again.")}
    async with (
        foreign_agent() as agent,
        serving(tmp_path, one(agent.url), said) as there,
        there.client(mode) as host,
    ):
        tools = {tool.name: tool for tool in (await host.list_tools()).tools}
        assert "plain" not in tools
        shown = tools["repeat-it"]
        assert (shown.title, shown.description) == ("Repeat", "Says it again.")
        assert "You said: hi" in words_in(await host.call_tool("repeat-it", {"message": "hi"}))
        with pytest.raises(MCPError, match="Unknown tool"):
            await host.call_tool("plain", {"message": "hi"})


@each_mode
async def test_a_hidden_tool_is_neither_listed_nor_callable_and_names_override_globs(
    mode: str, tmp_path: Path
) -> None:
    said = {"*": HIDDEN, "plain": ToolOverride(hidden=False), "pl*": ToolOverride(title="Plainly")}
    async with (
        foreign_agent() as agent,
        serving(tmp_path, one(agent.url), said, face_options(follow_up_tools=False)) as there,
        there.client(mode) as host,
    ):
        assert [(tool.name, tool.title) for tool in (await host.list_tools()).tools] == [("plain", "Plainly")]
        with pytest.raises(MCPError, match="Unknown tool"):
            await host.call_tool("slow", {"message": "hi"})


async def test_a_search_finds_tools_as_they_are_shown(tmp_path: Path) -> None:
    said = {"plain": ToolOverride(name="repeat"), "slow": HIDDEN}
    async with (
        foreign_agent() as agent,
        serving(tmp_path, one(agent.url), said, face_options(granularity="search")) as there,
        there.client() as host,
    ):
        found = words_in(await host.call_tool("find_skill", {"query": "repeat"}))
        assert '"skill": "repeat"' in found
        assert '"inputSchema"' in found
        done = await host.call_tool("call_skill", {"skill": "repeat", "arguments": {"message": "hi"}})
        assert "You said: hi" in words_in(done)
        for name in ("plain", "slow"):
            assert (await host.call_tool("call_skill", {"skill": name, "arguments": {}})).is_error


async def test_arguments_are_filled_in_and_hidden_ones_stay_the_operators(tmp_path: Path) -> None:
    rules = {
        "message": ArgumentRule(default="hello", description="What to repeat"),
        "data": ArgumentRule(default={"tone": "polite"}, hidden=True),
        "files": ArgumentRule(hidden=True),
    }
    async with (
        foreign_agent() as agent,
        serving(tmp_path, one(agent.url), {"plain": ToolOverride(arguments=rules)}) as there,
        there.client() as host,
    ):
        (tool,) = [tool for tool in (await host.list_tools()).tools if tool.name == "plain"]
        assert list(tool.input_schema["properties"]) == ["message", "context"]
        assert tool.input_schema["required"] == []
        assert tool.input_schema["properties"]["message"]["default"] == "hello"
        assert "You said: hello" in words_in(await host.call_tool("plain", {}))
        assert agent.seen.said[-1]["parts"][1]["data"] == {"tone": "polite"}
        refused = await host.call_tool("plain", {"message": "hi", "data": {"tone": "rude"}})
        assert refused.is_error
        assert "data: the tool plain has no such argument" in words_in(refused)
        assert len(agent.seen.said) == 1


async def test_a_host_that_cannot_give_a_context_gets_no_hint_about_it(tmp_path: Path) -> None:
    rules = {"context": ArgumentRule(hidden=True)}
    async with (
        foreign_agent() as agent,
        serving(tmp_path, one(agent.url), {"plain": ToolOverride(arguments=rules)}) as there,
        there.client() as host,
    ):
        done = await host.call_tool("plain", {"message": "hi"})
        assert words_in(done) == "You said: hi"
        assert "mcp-a2a/context" not in (done.meta or {})


async def test_configured_arguments_are_filled_in_for_tools_of_another_bridge_too(tmp_path: Path) -> None:
    rules = {"text": ArgumentRule(default="from the operator", hidden=True)}
    async with (
        running(config_for(raw_command())) as bridge,
        serving(tmp_path, one(bridge.base_url), {"echo": ToolOverride("say", arguments=rules)}) as there,
        there.client() as host,
    ):
        (tool,) = [tool for tool in (await host.list_tools()).tools if tool.name == "say"]
        assert "text" not in tool.input_schema["properties"]
        assert "from the operator" in words_in(await host.call_tool("say", {}))
        assert (await host.call_tool("say", {"text": "mine"})).is_error


async def test_an_answer_goes_on_although_a_configured_argument_has_changed(tmp_path: Path) -> None:
    first = {"ask": ToolOverride(arguments={"data": ArgumentRule(default={"a": 1}, hidden=True)})}
    then = {"ask": ToolOverride(arguments={"data": ArgumentRule(default={"a": 2}, hidden=True)})}
    async with (
        foreign_agent() as agent,
        serving(tmp_path, one(agent.url), first) as there,
        _raw(there) as client,
    ):
        asked = await client.call("ask", message="go")
        there.face.update(there.made, OPTIONS, then)
        (key,) = asked["inputRequests"]
        answer = {"action": "accept", "content": {"answer": "red"}}
        again = {
            "name": "ask",
            "arguments": {"message": "go"},
            "requestState": asked["requestState"],
            "inputResponses": {key: answer},
        }
        assert (await client.ask("tools/call", again))["resultType"] == "input_required"


def _raw(there: Any, capabilities: Any = None) -> Any:
    return task_client(there, {"elicitation": {"form": {}}} if capabilities is None else capabilities)


async def test_each_tool_has_its_own_time_to_answer(tmp_path: Path) -> None:
    said = {"slow": ToolOverride(answer_within_seconds=0.2)}
    with anyio.fail_after(WAIT_SECONDS):
        async with (
            foreign_agent() as agent,
            serving(tmp_path, one(agent.url), said) as there,
            there.client() as host,
        ):
            assert "still at work after 0.2 s" in words_in(await host.call_tool("slow", {"message": "go"}))


async def test_each_tool_has_its_own_time_to_become_a_task(tmp_path: Path) -> None:
    said = {"slow": ToolOverride(task_after_seconds=0)}
    with anyio.fail_after(WAIT_SECONDS):
        async with (
            foreign_agent() as agent,
            serving(tmp_path, one(agent.url), said, face_options(task_after_seconds=600)) as there,
            task_client(there) as client,  # type: ignore[arg-type]  # it has a url too
        ):
            assert (await client.call("slow", message="go"))["resultType"] == "task"
            assert (await client.call("plain", message="hi"))["resultType"] == "complete"


@pytest.mark.proves("mcp-tools-rate")
async def test_calls_of_a_tool_wait_for_its_concurrency_limit(tmp_path: Path) -> None:
    said = {"slow": ToolOverride(concurrency=1)}
    results: list[str] = []
    with anyio.fail_after(WAIT_SECONDS):
        async with (
            foreign_agent() as agent,
            serving(tmp_path, one(agent.url), said) as there,
            there.client() as host,
            anyio.create_task_group() as tasks,
        ):

            async def call() -> None:
                results.append(words_in(await host.call_tool("slow", {"message": "go"})))

            for _ in range(3):
                tasks.start_soon(call)
            await agent.seen.begun.wait()
            assert "hi" in words_in(await host.call_tool("plain", {"message": "hi"}))
            assert len(agent.seen.tasks) == 2, "one slow call, and the plain one"
            agent.seen.released.set()
    assert [words.splitlines()[0] for words in results] == ["Slow but sure"] * 3


async def test_a_call_that_waits_too_long_for_the_limit_says_so_and_follow_ups_never_wait(
    tmp_path: Path,
) -> None:
    said = {"slow": ToolOverride(concurrency=1, answer_within_seconds=0.5), "*": ToolOverride(concurrency=1)}
    with anyio.fail_after(WAIT_SECONDS):
        async with (
            foreign_agent() as agent,
            serving(
                tmp_path,
                one(agent.url),
                said,
                face_options(answer_within_seconds=600),
            ) as there,
            there.client() as host,
            anyio.create_task_group() as tasks,
        ):
            handle = words_in(await host.call_tool("slow", {"message": "go"})).rpartition(" ")[2]
            there.face.update(
                there.made, OPTIONS, {"slow": ToolOverride(concurrency=1, answer_within_seconds=600)}
            )
            tasks.start_soon(host.call_tool, "slow", {"message": "first"})
            while len(agent.seen.tasks) < 2:
                await anyio.lowlevel.checkpoint()
            there.face.update(there.made, OPTIONS, said)
            busy = await host.call_tool("slow", {"message": "second"})
            assert busy.is_error
            assert "had to wait longer than 0.5 s, so it did not reach the agent" in words_in(busy)
            followed = await host.call_tool("task_result", {"handle": handle, "wait_seconds": 0})
            assert "still at work" in words_in(followed)
            assert len(agent.seen.tasks) == 2
            agent.seen.released.set()


# What is odd


def found(*sources: ToolSource) -> Any:
    return tools_of_agents(sources, tool_rules())


def test_a_name_that_cannot_be_assigned_gets_a_remark() -> None:
    tools = found(ToolSource("guide", card(skill("a"), skill("b"), skill("c"), skill("d"), skill("e"))))
    said = {
        "a": ToolOverride(name="same"),
        "b": ToolOverride(name="same"),
        "c": ToolOverride(name="d"),
        "d": ToolOverride(name="task_result"),
        "e": ToolOverride(name="what hosts refuse!"),
        "f": HIDDEN,
    }
    shown = published_tools(tools, said)
    assert [one.name for one in shown.published] == ["a", "b", "c", "d", "e"]
    assert tuple(map(str, tool_remarks(shown, said, are_known=True))) == (
        "tools.f: there is no such tool",
        "tools.a.name: another tool has or wants the name 'same', so it stays 'a'",
        "tools.b.name: another tool has or wants the name 'same', so it stays 'b'",
        "tools.c.name: another tool has or wants the name 'd', so it stays 'c'",
        "tools.d.name: 'task_result' is the name of a tool of the bridge, so it stays 'd'",
        "tools.e.name: hosts refuse the name 'what hosts refuse!' (they take 1 to 64 of A-Z, a-z, 0-9, _ and -),"
        " so it stays 'e'",
    )
    assert not any("no such tool" in line for line in map(str, tool_remarks(shown, said, are_known=False)))


def test_names_can_be_swapped_and_the_name_of_a_hidden_tool_can_be_reused() -> None:
    tools = found(ToolSource("guide", card(skill("a"), skill("b"), skill("c"))))
    said = {"a": ToolOverride(name="b"), "b": ToolOverride(name="a")}
    assert [one.name for one in published_tools(tools, said).published] == ["b", "a", "c"]
    said = {"a": ToolOverride(name="c"), "c": HIDDEN}
    assert [one.name for one in published_tools(tools, said).published] == ["c", "b"]


@given(
    st.lists(st.sampled_from("abcdef"), min_size=1, max_size=6, unique=True),
    st.dictionaries(
        st.sampled_from([*"abcdef", "*", "[a-c]"]),
        st.builds(
            ToolOverride,
            name=st.sampled_from([None, *"abcdef", "new", "task_result", "no name"]),
            hidden=st.sampled_from([None, True, False]),
        ),
    ),
)
def test_names_are_unique_and_accepted_by_hosts_with_any_configuration(
    skills: list[str], said: dict[str, ToolOverride]
) -> None:
    tools = found(ToolSource("guide", card(*(skill(one) for one in skills))))
    shown = published_tools(tools, said)
    names = [one.name for one in shown.published]
    assert len(set(names)) == len(names)
    assert all(may_be_tool_name(name) for name in names)
    assert all(one.listed["name"] == one.name for one in shown.published)
    assert len(names) + len(shown.hidden) == len(tools)
    for own, wish in shown.refused_names.items():
        assert own in names
        assert wish not in names or wish in {one.default_name for one in shown.published}


def test_a_rule_also_matches_the_skill_id_and_hiding_renames_no_other_tool() -> None:
    tools = found(ToolSource("one", card(skill("Plan trips"))), ToolSource("two", card(skill("Plan trips"))))
    assert [tool.name for tool in tools] == ["one_plan_trips", "two_plan_trips"]
    shown = published_tools(tools, {"Plan trips": ToolOverride(title="Both"), "one_plan_trips": HIDDEN})
    assert [(one.name, one.listed["title"]) for one in shown.published] == [("two_plan_trips", "Both")]


def test_faults_in_argument_rules_get_remarks() -> None:
    rules = {
        "message": ArgumentRule(hidden=True),
        "data": ArgumentRule(default="no object"),
        "colour": ArgumentRule(default="red"),
    }
    said = {
        "plan-trip": ToolOverride(arguments=rules),
        "*": ToolOverride(arguments={"size": ArgumentRule(1)}),
    }
    shown = published_tools(found(ToolSource("guide", card(skill()))), said)
    remarks = [str(remark) for remark in tool_remarks(shown, said, are_known=True)]
    assert [line.partition(": ")[0] for line in remarks] == [
        "tools.plan_trip.arguments.colour",
        "tools.plan_trip.arguments.message",
        "tools.plan_trip.arguments.data.default",
    ]


async def test_a_published_tool_names_its_agent_and_skill(tmp_path: Path) -> None:
    said = {"plain": ToolOverride(name="repeat"), "nothing": HIDDEN}
    async with foreign_agent() as agent, serving(tmp_path, one(agent.url, key="team"), said) as there:
        (tool,) = [tool for tool in there.face.published if tool.skill_id == "plain"]
        assert (tool.name, tool.agent_key, tool.default_name) == ("repeat", "team", "plain")
        assert tool.listed["name"] == "repeat"
        assert tuple(map(str, there.face.remarks)) == ("tools.nothing: there is no such tool",)
