"""Skills of agents as tools."""

from __future__ import annotations

import json
from typing import Any

import pytest
from mcp_types import ListToolsResult

from bridge.a2a.model.objects import (
    AgentCapabilities,
    AgentCard,
    AgentExtension,
    AgentInterface,
    AgentSkill,
)
from bridge.mcp.tools import UnservableTool, tools_from
from bridge.translate.call_to_message import MessageIds, message_from_call
from bridge.translate.extensions.bridge import URI, declaration
from bridge.translate.own_tools import follow_ups, search_tools
from bridge.translate.skill_tools import (
    ToolRules,
    ToolSource,
    find_skills,
    found_as_text,
    listed_tools,
    tools_of_agents,
)
from tests.support.limits import tool_rules

ADD = {
    "name": "add-Numbers",
    "title": "Add",
    "inputSchema": {"type": "object", "properties": {"a": {"type": "number"}}},
    "outputSchema": {"type": "object", "required": ["sum"]},
    "annotations": {"readOnlyHint": True},
    "_meta": {"example.com/k": 1},
    "execution": {"taskSupport": "optional"},
}


def skill(skill_id: str = "plan-trip", **more: Any) -> AgentSkill:
    said = {"name": "Plan a trip", "description": "Plans trips.", "tags": ("travel", "fun"), **more}
    return AgentSkill(id=skill_id, **said)


def card(*skills: AgentSkill, extensions: Any = None, **more: Any) -> AgentCard:
    made = AgentCard(
        name="Guide",
        description="Knows the world.",
        supported_interfaces=(
            AgentInterface(url="https://a/", protocol_binding="JSONRPC", protocol_version="1.0"),
        ),
        version="1",
        capabilities=AgentCapabilities(extensions=extensions),
        default_input_modes=("text/plain",),
        default_output_modes=("text/plain",),
        skills=skills or (skill(),),
        **more,
    )
    return made if skills else made.model_copy(update={"skills": ()})


def ours(*listed: Any) -> AgentCard:
    tools, _ = tools_from(listed)
    return card(*(skill(tool.name) for tool in tools), extensions=(declaration((t.name, t) for t in tools),))


def listed(*sources: ToolSource, rules: ToolRules = tool_rules()) -> list[Any]:  # noqa: B008 - frozen
    return [tool.listed for tool in tools_of_agents(sources, rules)]


@pytest.mark.proves("map-tool-original")
def test_a_tool_of_the_extension_is_listed_unchanged_without_its_execution() -> None:
    shown = {key: value for key, value in ADD.items() if key != "execution"}
    assert listed(ToolSource("calc", ours(ADD))) == [shown]
    (tool,) = tools_of_agents([ToolSource("calc", ours(ADD))], tool_rules())
    assert (tool.skill_id, tool.source_key) == ("add-Numbers", "calc")
    assert tool.output is not None
    assert tool.original is not None


@pytest.mark.proves("map-tool-original")
@pytest.mark.parametrize("prop", [{"type": "any"}, {"type": "number", "exclusiveMinimum": True}])
def test_a_tool_of_the_extension_with_an_invalid_schema_is_listed_unchanged_and_can_be_called(
    prop: Any,
) -> None:
    odd = {"name": "t", "inputSchema": {"type": "object", "properties": {"p": prop}, "required": ["p"]}}
    assert listed(ToolSource("x", ours(odd))) == [odd]
    (tool,) = tools_of_agents([ToolSource("x", ours(odd))], tool_rules())
    sent = message_from_call(tool, {"p": 5}, MessageIds(message_id="m"))
    assert sent.parts[0].data == {"skill": "t", "arguments": {"p": 5}}


@pytest.mark.proves("mcp-schema-made")
def test_a_schema_without_a_type_gets_the_required_type() -> None:
    (shown,) = listed(ToolSource("x", ours({"name": "t", "inputSchema": {}})))
    assert shown == {"name": "t", "inputSchema": {"type": "object"}}


@pytest.mark.proves("map-tools")
def test_a_skill_becomes_a_tool_that_takes_a_message_and_describes_the_skill() -> None:
    made = card(skill(examples=("To Rome", "To Oslo")), icon_url="https://a/icon.png")
    (shown,) = listed(ToolSource("guide", made))
    schema = shown.pop("inputSchema")
    assert shown == {
        "name": "plan_trip",
        "title": "Plan a trip",
        "description": "Plans trips.\nThe skill Plan a trip of the agent Guide.\nTags: travel, fun\n"
        "Examples:\n- To Rome\n- To Oslo",
        "annotations": {"openWorldHint": True},
        "icons": [{"src": "https://a/icon.png"}],
    }
    assert {name: prop["type"] for name, prop in schema["properties"].items()} == {
        "message": "string",
        "data": "object",
        "files": "array",
        "context": "string",
    }
    assert schema["required"] == ["message"]


@pytest.mark.proves("map-tools")
def test_all_skills_that_take_a_message_share_one_schema() -> None:
    tools = listed(ToolSource("a", card(*(skill(f"s{number}") for number in range(10)))))
    assert len({id(tool["inputSchema"]) for tool in tools}) == 1


@pytest.mark.proves("map-tool-names")
def test_a_skill_whose_id_is_a_uuid_is_named_after_its_name_and_called_by_its_id() -> None:
    skill_id = "7c5865b5-0e10-5c5f-8442-9225c0215d23-main"
    (tool,) = tools_of_agents([ToolSource("guide", card(skill(skill_id)))], tool_rules())
    assert (tool.name, tool.listed["name"], tool.skill_id) == ("plan_a_trip", "plan_a_trip", skill_id)


@pytest.mark.proves("mcp-icons")
@pytest.mark.parametrize(
    "icon_url", ["javascript:alert(1)", "file:///x", "data:text/html,x", "https://", " http://a", ""]
)
def test_an_icon_that_no_host_should_open_is_left_out(icon_url: str) -> None:
    assert "icons" not in listed(ToolSource("guide", card(skill(), icon_url=icon_url)))[0]


@pytest.mark.proves("map-tools")
def test_words_reach_a_host_without_invisible_characters_and_values_unchanged() -> None:
    evil, seen = "read\u202e \u200bme\x1b[2J\U000e0041 \u200d👩\u200d💻", "read me[2J 👩\u200d💻"
    said = {"title": evil, "description": evil}
    property_of_any_name = {"type": "string", **said, "default": evil, "enum": [evil], "const": evil}
    schema = {"type": "object", "properties": {"default": property_of_any_name, "title": {"type": "string"}}}
    tool = {"name": "t", **said, "inputSchema": schema, "annotations": {"title": evil}, "_meta": said}
    (shown,) = listed(ToolSource("x", ours(tool)))
    words = {"title": seen, "description": seen}
    assert shown == {
        "name": "t",
        **words,
        "inputSchema": {
            "type": "object",
            "properties": {"default": {**property_of_any_name, **words}, "title": {"type": "string"}},
        },
        "annotations": {"title": seen},
        "_meta": said,
    }
    (message,) = listed(ToolSource("x", card(skill(name=evil, description=evil, tags=(evil,)))))
    assert message["title"] == seen
    assert message["description"].startswith(f"{seen}\nThe skill {seen} of the agent Guide.\nTags: {seen}")


@pytest.mark.proves("mcp-icons")
def test_only_icons_that_a_host_can_show_reach_it() -> None:
    good = [{"src": "https://a/i.png"}, {"src": "data:image/png;base64,AAAA"}]
    bad = [{"src": "javascript:alert(1)"}, {"src": "data:text/html,x"}, {"src": "file:///x"}]
    (shown,) = listed(
        ToolSource("x", ours({"name": "t", "inputSchema": {"type": "object"}, "icons": good + bad}))
    )
    assert shown["icons"] == good


@pytest.mark.proves("map-tools")
def test_an_agent_without_skills_gets_one_tool_for_messages() -> None:
    (tool,) = tools_of_agents([ToolSource("guide", card())], tool_rules())
    assert (tool.name, tool.skill_id) == ("message", None)


@pytest.mark.proves("map-tool-original")
def test_an_agent_of_a_bridge_whose_server_is_down_has_no_tools() -> None:
    down = card(skill("unavailable"), extensions=(declaration([]),))
    assert listed(ToolSource("x", down)) == []


@pytest.mark.proves("map-tool-original")
def test_a_skill_outside_the_extension_takes_a_message_and_a_broken_tool_is_left_out() -> None:
    params: Any = {"tools": {"broken": {"name": "broken", "inputSchema": 7}, "add": {**ADD, "name": "add"}}}
    made = card(
        skill("add"), skill("broken"), skill("ask"), extensions=(AgentExtension(uri=URI, params=params),)
    )
    tools = tools_of_agents([ToolSource("x", made)], tool_rules())
    assert [(tool.name, tool.original is None) for tool in tools] == [("add", False), ("ask", True)]


@pytest.mark.proves("map-tool-original")
def test_unreadable_tools_and_unreadable_fields_are_named() -> None:
    odd = {"type": "object", "properties": {"a": {"$ref": "#/gone"}}}
    params: Any = {
        "tools": {
            "odd": {"name": "odd", "inputSchema": {"type": "object"}, "outputSchema": odd, "title": 5},
            "broken": {"name": "broken", "inputSchema": 7},
        }
    }
    made = card(skill("odd"), skill("broken"), extensions=(AgentExtension(uri=URI, params=params),))
    left_out: list[Any] = []
    (tool,) = tools_of_agents([ToolSource("x", made)], tool_rules(), left_out)
    assert tool.listed["outputSchema"] == {"type": "object", "properties": {"a": {}}}
    assert "title" not in tool.listed
    assert tool.notes == (
        "its title is left out: 5 is not a text",
        "a part of its output schema is left out: its schema refers to #/gone, which is not in the schema; nothing is"
        " fetched",
    )
    assert left_out == [("x", UnservableTool("broken", "its inputSchema is no object"))]


@pytest.mark.proves("map-tools")
def test_of_two_skills_with_one_id_the_first_counts() -> None:
    (shown,) = listed(ToolSource("x", card(skill("a", name="One"), skill("a", name="Two"))))
    assert shown["title"] == "One"


@pytest.mark.proves("map-tool-names")
def test_names_that_collide_are_prefixed_and_still_call_their_skill() -> None:
    tools = tools_of_agents([ToolSource("a", ours(ADD)), ToolSource("b", ours(ADD))], tool_rules())
    assert [(tool.name, tool.listed["name"], tool.skill_id) for tool in tools] == [
        ("a_add_numbers", "a_add_numbers", "add-Numbers"),
        ("b_add_numbers", "b_add_numbers", "add-Numbers"),
    ]


@pytest.mark.proves("map-tools")
def test_a_tool_can_stand_for_an_agent() -> None:
    (shown,) = listed(ToolSource("guide", card(skill(), skill("eat"))), rules=tool_rules(granularity="agent"))
    assert shown["name"] == "guide"
    assert shown["inputSchema"]["properties"]["skill"]["enum"] == ["plan-trip", "eat"]
    assert "- eat: Plans trips." in shown["description"]


@pytest.mark.proves("map-tools")
def test_searching_always_lists_two_tools() -> None:
    rules = tool_rules(granularity="search")
    skills = [
        skill("eat", name="Eat well"),
        skill("sleep", name="Sleep"),
        skill("fly", description="Eat in the air"),
    ]
    tools = tools_of_agents([ToolSource("x", card(*skills))], rules)
    assert listed_tools(tools, rules, follow_up_tools=False, longest_wait_seconds=49) == search_tools(
        rules.found_most
    )
    assert [tool.name for tool in find_skills(tools, "where to EAT", 10, 20)] == ["eat", "fly"]
    assert [tool.name for tool in find_skills(tools, "", 2, 20)] == ["eat", "sleep"]
    assert find_skills(tools, "zebra", 5, 20) == ()
    awake = [tool.name for tool in find_skills(tools, "", 2, 20, lambda tool: tool.name != "eat")]
    assert awake[0] != "eat"
    assert len(find_skills(tools * 30, "", 1000, 20)) == 20
    found = json.loads(found_as_text(tools))
    assert [one["skill"] for one in found] == ["eat", "sleep", "fly"]
    assert found[0]["inputSchema"]["required"] == ["message"]


@pytest.mark.proves("mcp-schema-made")
@pytest.mark.parametrize("granularity", ["skill", "agent", "search"])
def test_the_listed_tools_fit_the_protocol(granularity: Any) -> None:
    rules = tool_rules(granularity=granularity)
    tools = tools_of_agents([ToolSource("a", card(skill(), skill("b"))), ToolSource("c", ours(ADD))], rules)
    shown = listed_tools(tools, rules, longest_wait_seconds=49)
    ListToolsResult.model_validate({"tools": list(shown)})
    served, left_out = tools_from(shown)
    assert not left_out
    assert len(served) == len(shown)
    assert shown[-3:] == follow_ups(49)
    assert [tool["name"] for tool in follow_ups(49)] == ["task_result", "task_reply", "task_cancel"]
