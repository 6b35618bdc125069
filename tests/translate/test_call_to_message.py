"""Arguments of tool calls as messages to agents, and back if the agent belongs to a bridge."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.a2a.model.objects import Part
from bridge.mcp.tools import tools_from
from bridge.translate.call_to_message import (
    BadArgumentsError,
    MessageIds,
    context_in,
    message_from_call,
    message_from_reply,
)
from bridge.translate.extensions.bridge import SKILL, URI
from bridge.translate.message_to_call import RouteRules, SkillCall, call_from_message
from bridge.translate.skill_tools import AgentTool, ToolSource, tools_of_agents
from tests.support.limits import tool_rules
from tests.translate.test_skill_tools import card, ours, skill

pytestmark = pytest.mark.proves("map-call-message")

NEW = MessageIds("m1")


def tool_of(made: Any, **rules: Any) -> AgentTool:
    return tools_of_agents([ToolSource("x", made)], tool_rules(**rules))[0]


ORIGINAL = {
    "name": "t",
    "inputSchema": {"type": "object", "properties": {"skill": {}, "arguments": {}, "a": {}}},
}


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"a": 1, "b": None},
        {"skill": "other", "arguments": {"x": 1}},
        {"arguments": {}},
        {"a": [{"deep": [1.5, True, "é"]}]},
        {"message": "m", "files": []},
    ],
)
def test_the_arguments_of_an_original_tool_reach_its_server_unchanged(arguments: Any) -> None:
    message = message_from_call(tool_of(ours(ORIGINAL)), arguments, NEW)
    assert message.extensions == (URI,)
    assert message.to_object()["parts"] == [
        {"data": {"skill": "t", "arguments": arguments}, "mediaType": "application/json"}
    ]
    skills = {tool.name: tool for tool in tools_from([ORIGINAL, {**ORIGINAL, "name": "other"}])[0]}
    assert call_from_message(message, {}, skills, RouteRules(())) == SkillCall("t", arguments)


def test_a_skill_gets_text_data_and_files_and_the_skill_in_metadata() -> None:
    arguments = {
        "message": "Go",
        "data": {"n": 1},
        "files": [
            {"name": "a.png", "mediaType": "image/png", "base64": "-_-_"},
            {"url": "https://example.com/b"},
        ],
        "context": "sealed",
    }
    conversation = MessageIds("m1", context_id="c", reference_task_ids=("t1",))
    assert message_from_call(tool_of(card(skill())), arguments, conversation).to_object() == {
        "messageId": "m1",
        "contextId": "c",
        "referenceTaskIds": ["t1"],
        "role": "ROLE_USER",
        "parts": [
            {"text": "Go"},
            {"data": {"n": 1}, "mediaType": "application/json"},
            {"raw": "+/+/", "filename": "a.png", "mediaType": "image/png"},
            {"url": "https://example.com/b"},
        ],
        "metadata": {SKILL: "plan-trip", "skillId": "plan-trip"},
    }


def test_the_text_can_name_the_skill_too() -> None:
    message = message_from_call(tool_of(card(skill())), {"message": "Go"}, NEW, skill_in_text=True)
    assert message.parts == (Part(text="Go\n\n(Skill: plan-trip)"),)


def test_a_message_to_a_whole_agent_names_a_skill_only_if_the_caller_does() -> None:
    tool = tool_of(card(skill(), skill("eat")), granularity="agent")
    assert message_from_call(tool, {"message": "Go"}, NEW, skill_in_text=True).to_object() == {
        "messageId": "m1",
        "role": "ROLE_USER",
        "parts": [{"text": "Go"}],
    }
    chosen = message_from_call(tool, {"message": "Go", "skill": "eat"}, NEW)
    assert (chosen.metadata or {})[SKILL] == "eat"
    with pytest.raises(BadArgumentsError, match="skill"):
        message_from_call(tool, {"message": "Go", "skill": "fly"}, NEW)


@pytest.mark.proves("mcp-tools-input")
@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({}, "message .*missing"),
        ({"message": 7}, "message"),
        ({"message": "m", "skill": "x"}, "skill"),
        ({"message": "m", "data": []}, "data"),
        ({"message": "m", "files": ["x"]}, "files"),
        ({"message": "m", "files": [{"name": "x"}]}, r"files\[0\] needs either"),
        ({"message": "m", "files": [{"url": "https://a/", "base64": "AAAA"}]}, r"files\[0\] needs either"),
        ({"message": "m", "files": [{"base64": "%%%"}]}, r"files\[0\].base64 is not base64"),
        ({"message": "m", "files": [{"url": "file:///etc/passwd"}]}, r"files\[0\].url"),
        ({"message": "m", "files": [{"url": "/etc/passwd"}]}, r"files\[0\].url"),
        ({"message": "m", "files": [{"url": "http://[x"}]}, r"files\[0\].url"),
    ],
)
def test_arguments_that_cannot_become_a_message_are_named(arguments: Any, fault: str) -> None:
    with pytest.raises(BadArgumentsError, match=fault):
        message_from_call(tool_of(card(skill())), arguments, NEW)


@pytest.mark.proves("mcp-tools-input")
def test_data_too_deep_for_its_readers_is_refused() -> None:
    deep: Any = {}
    for _ in range(70):
        deep = {"a": deep}
    with pytest.raises(BadArgumentsError, match="40 levels"):
        message_from_call(tool_of(card(skill())), {"message": "m", "data": deep}, NEW)


@pytest.mark.proves("a2a-3.4.2-existing")
def test_a_reply_goes_to_its_task() -> None:
    conversation = MessageIds("m2", context_id="c", task_id="t")
    reply = message_from_reply({"handle": "h", "message": "yes", "data": {"a": 1}}, conversation)
    assert reply.to_object() == {
        "messageId": "m2",
        "contextId": "c",
        "taskId": "t",
        "role": "ROLE_USER",
        "parts": [{"text": "yes"}, {"data": {"a": 1}, "mediaType": "application/json"}],
    }
    with pytest.raises(BadArgumentsError, match="message"):
        message_from_reply({"handle": "h"}, conversation)


@pytest.mark.parametrize(
    ("given", "context"), [({}, None), ({"context": " "}, None), ({"context": " x\n"}, "x")]
)
def test_white_space_around_a_context_is_ignored(given: Any, context: str | None) -> None:
    assert context_in(given) == context
