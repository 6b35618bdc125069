"""The agent card: complete whatever the server says, and valid for the protocol's own types."""

from __future__ import annotations

from typing import Any

import pytest
from a2a.types import a2a_pb2
from google.protobuf.json_format import MessageToDict, ParseDict

from bridge.a2a.model.objects import AgentCard
from bridge.mcp.client.values import Greeting
from bridge.mcp.tools import Tool
from bridge.tools_as_agent.card import ToolServerSummary, make_card
from bridge.tools_as_agent.options import AgentOptions
from bridge.tools_as_agent.skills import skills_of
from bridge.translate.extensions.availability import Unavailability, UnavailablePeer, unavailable_skills
from bridge.translate.extensions.bridge import URI
from bridge.translate.skills import skill_from
from tests.support.limits import url_at
from tests.support.mcp_face import Face
from tests.support.mcp_serving import served
from tests.support.running import config_for, running
from tests.support.tools import options_with, tool

BASE = "https://bridge.example.com/agents/demo"
OPTIONS = options_with()
GREETING = Greeting(
    "demo-server", "1.2.3", "Demo", "https://demo.example", "Tools for tests.", "https://demo.example/i.png"
)
ECHO = tool("echo", "text", text={"type": "string"})
UPLOAD = tool("upload", file={"type": "string", "contentMediaType": "image/png"})


def card_of(
    *tools: Tool,
    greeting: Greeting | None = GREETING,
    down: Unavailability | None = None,
    options: AgentOptions = OPTIONS,
    since_ms: int | None = None,
) -> AgentCard:
    skills = skills_of([("demo", one) for one in tools], {})
    server = ToolServerSummary("demo", greeting, down, bool(tools))
    listed = [UnavailablePeer("demo", down, since_ms)] if down and since_ms is not None else []
    return make_card(BASE, [server], skills, options, unavailable=listed)


CARDS = {
    "whole": card_of(ECHO, UPLOAD),
    "no tools": card_of(),
    "down": card_of(greeting=None, down=Unavailability.UNREACHABLE),
    "silent server": card_of(ECHO, greeting=Greeting("", "")),
}


@pytest.mark.proves("a2a-8.3-interfaces", "mcp-raw")
def test_the_card_of_a_server_takes_the_servers_own_description() -> None:
    skill = skill_from(ECHO, "echo", "demo")
    assert card_of(ECHO).to_object() == {
        "name": "Demo",
        "description": "Tools for tests.",
        "supportedInterfaces": [
            {"url": BASE, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
            {"url": BASE, "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"},
        ],
        "version": "1.2.3",
        "documentationUrl": "https://demo.example",
        "iconUrl": "https://demo.example/i.png",
        "capabilities": {
            "streaming": True,
            "pushNotifications": False,
            "extendedAgentCard": False,
            "extensions": [
                {
                    "uri": URI,
                    "description": "The MCP tools behind the skills, and their results block by block",
                    "required": False,
                    "params": {"tools": {"echo": ECHO.listed}},
                }
            ],
        },
        "defaultInputModes": ["application/json", "text/plain"],
        "defaultOutputModes": ["text/plain", "application/json", "*/*"],
        "skills": [skill.to_object()],
    }


@pytest.mark.proves("a2a-4.4.1-card", "a2a-5.7-sent")
@pytest.mark.parametrize("name", CARDS)
def test_every_required_field_is_there_and_no_required_array_is_empty(name: str) -> None:
    card = CARDS[name].to_object()
    required = "name description supportedInterfaces version capabilities defaultInputModes defaultOutputModes skills"
    assert [field for field in required.split() if field not in card or card[field] in ("", [], None)] == []
    skills: Any = card["skills"]
    for skill in skills:
        assert [field for field in ("id", "name", "description", "tags") if not skill.get(field)] == []


@pytest.mark.proves("a2a-4.4.1-card")
@pytest.mark.parametrize("name", CARDS)
def test_the_protocols_own_types_read_the_card_and_lose_nothing(name: str) -> None:
    written = CARDS[name].to_object()
    read = ParseDict(written, a2a_pb2.AgentCard())
    assert without_defaults(MessageToDict(read)) == without_defaults(written)


def without_defaults(value: Any) -> Any:
    """A JSON value without what protocol buffers leave out: false, and empty arrays and objects."""
    if isinstance(value, list):
        return [without_defaults(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {key: without_defaults(item) for key, item in value.items()}
    return {key: item for key, item in kept.items() if item is not False and item not in ([], {})}


@pytest.mark.proves("card-base")
def test_configured_values_override_the_servers_own() -> None:
    chosen = options_with(name="Mine", description="My tools")
    card = card_of(ECHO, options=chosen)
    assert (card.name, card.description) == ("Mine", "My tools")


@pytest.mark.proves("a2a-4.4.1-card")
@pytest.mark.parametrize(
    ("greeting", "said"),
    [
        (None, ("demo", "The tools of demo", "0")),
        (Greeting("server", "2"), ("server", "The tools of server", "2")),
        (Greeting("", ""), ("demo", "The tools of demo", "0")),
        (Greeting("server", "", "Title"), ("Title", "The tools of Title", "0")),
    ],
)
def test_a_server_with_little_description_still_has_a_complete_card(
    greeting: Greeting | None, said: tuple[str, str, str]
) -> None:
    card = card_of(ECHO, greeting=greeting)
    assert (card.name, card.description, card.version) == said


@pytest.mark.proves("a2a-4.4.1-card")
@pytest.mark.parametrize(
    ("down", "why"),
    [
        (Unavailability.UNREACHABLE, "cannot be reached"),
        (Unavailability.LOGIN_NEEDED, "waits for a login"),
        (None, "lists no tools"),
    ],
)
def test_without_tools_one_placeholder_says_why(down: Unavailability | None, why: str) -> None:
    (skill,) = card_of(down=down).skills
    assert skill.id == "unavailable"
    assert skill.description.endswith(f"its tool server {why}")


@pytest.mark.proves("map-availability")
def test_the_placeholder_is_listed_as_unavailable_once_its_server_has_been_down_for_a_while() -> None:
    assert unavailable_skills(card_of(down=Unavailability.UNREACHABLE)) == {}
    listed = unavailable_skills(card_of(down=Unavailability.UNREACHABLE, since_ms=60_000))
    assert listed == {"unavailable": ("unreachable", 60_000)}


@pytest.mark.proves("a2a-4.4.1-card")
def test_the_agents_default_modes_combine_the_modes_of_all_skills() -> None:
    assert card_of(ECHO, UPLOAD).default_input_modes == ("application/json", "text/plain", "image/png")


@pytest.mark.proves("mcp-icons")
async def test_a_servers_links_that_are_not_web_links_are_not_on_the_card() -> None:
    face = Face(website_url="javascript:alert(1)", icons=[{"src": "data:text/html,x"}])
    async with served(face) as url, running(config_for(url_at(url))) as there:
        (agent,) = there.bridge.whole.published
        card = agent.server.card(BASE)
    assert (card.name, card.documentation_url, card.icon_url) == ("A Face", None, None)
