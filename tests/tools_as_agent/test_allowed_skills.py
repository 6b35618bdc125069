"""Which skills of an agent a principal may use, over HTTP in both bindings. Other skills do not exist for the
principal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from bridge.a2a.client.agent_card import fetch_card
from bridge.a2a.client.agent_client import AgentClient
from bridge.a2a.client.bindings import AgentRefusedError
from bridge.a2a.client.credentials import Credentials
from bridge.a2a.server.app import AgentServer
from bridge.a2a.server.service import AgentService
from bridge.a2a.wire.extensions import ExtensionFilter
from bridge.http.request_checks import FaceAddress
from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import Access, Credential, Scheme, verifiers_of
from bridge.translate.extensions.bridge import GATED, SKILL
from tests.support.drivers import DRIVERS, Driver, new_client
from tests.support.limits import PROFILE, agent_limits, client_options
from tests.support.running import call_part, listening, message, mounted
from tests.support.several import BASE, said_by, state, team, words
from tests.support.tool_server import ToolServer, listed

TEXT = {"type": "string"}
TOOLS = [
    listed("create_issue", "title", title=TEXT),
    listed("delete_issue", "id", id=TEXT),
    listed("search", "words place", words=TEXT, place=TEXT),
]
MAY = {"ada": ("*",), "bob": ("create_*",), "cy": ("devtools/*_issue", "search"), "dan": ("other/*",)}


def credentials(**may: tuple[str, ...]) -> list[Credential]:
    """A token and a key for a principal that may use these skills."""
    people = [Principal(name, skills=skills) for name, skills in {**MAY, **may}.items()]
    tokens = [Credential(one, f"token-{one.name}") for one in people]
    return [*tokens, *(Credential(one, f"key-{one.name}", Scheme.API_KEY) for one in people)]


@dataclass
class Devtools:
    """An agent that is served as `devtools`, its tool server, and its callers."""

    server: ToolServer
    access: Access
    base_url: str
    client: httpx2.AsyncClient
    kind: type[Driver]

    def by(self, name: str) -> Driver:
        """A client with someone's token."""
        return self.kind(self.client, self.base_url).with_headers(Authorization=f"Bearer token-{name}")


@pytest.fixture(params=DRIVERS, ids=lambda kind: kind.binding)
async def devtools(request: pytest.FixtureRequest) -> AsyncIterator[Devtools]:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(ToolServer("tracker", TOOLS).run())
        served = await stack.enter_async_context(team({"tracker": server.target}))
        access = Access(verifiers_of(credentials()))
        service = AgentService(served.engine, ExtensionFilter(GATED), PROFILE.requests.parts)
        agent = AgentServer(served.agent, service, access, FaceAddress(), agent_limits(), name="devtools")
        root_url = await stack.enter_async_context(listening(mounted(BASE, agent.at(BASE))))
        client = await stack.enter_async_context(new_client())
        yield Devtools(server, access, root_url + BASE, client, request.param)


def forms_of(skill: str) -> list[dict[str, Any]]:
    """The ways to ask for a skill."""
    arguments: dict[str, Any] = {"id": "7"}
    return [
        message(call_part(skill, **arguments)),
        message({"data": arguments}, metadata={SKILL: skill}),
        message({"text": f"{skill} id=7"}),
        message({"text": f'{skill} {{"id": "7"}}'}),
    ]


@pytest.mark.proves("web-skills")
async def test_an_allowed_skill_is_run(devtools: Devtools) -> None:
    for name, skill in (
        ("ada", "delete_issue"),
        ("bob", "create_issue"),
        ("cy", "delete_issue"),
        ("cy", "search"),
    ):
        arguments = {"create_issue": {"title": "x"}, "search": {"words": "x", "place": "y"}}
        asked = arguments.get(skill, {"id": "7"})
        task = await devtools.by(name).send(call_part(skill, **asked))
        assert said_by(task) == ["tracker", skill, asked]


@pytest.mark.proves("web-skills", "a2a-3.3.2-unrevealed")
async def test_a_forbidden_skill_is_answered_like_an_unknown_skill(
    devtools: Devtools,
) -> None:
    bob = devtools.by("bob")
    for forbidden, unknown in zip(forms_of("delete_issue"), forms_of("destroy_issue"), strict=True):
        told, compared = [(await bob.call("SendMessage", **form))["task"] for form in (forbidden, unknown)]
        assert state(told) == state(compared)
        if state(told) == "INPUT_REQUIRED":
            assert words(told).replace("delete_issue", "destroy_issue") == words(compared)
            assert "create_issue" in words(told)
            parts = [task["status"]["message"]["parts"][1:] for task in (told, compared)]
            assert parts[0] == parts[1]
            assert "search" not in str(told["status"])
    assert "delete_issue" not in {tool for tool, _ in devtools.server.calls}
    assert "search" not in {tool for tool, _ in devtools.server.calls}


@pytest.mark.proves("web-skills")
async def test_a_stream_does_not_run_a_forbidden_skill_either(devtools: Devtools) -> None:
    async with devtools.by("dan").stream(
        "SendStreamingMessage", **message(call_part("search", words="x", place="y"))
    ) as events:
        seen = await events.until("INPUT_REQUIRED")
    assert "create_issue" not in str(seen)
    assert "This agent has no skills at the moment" in str(seen)
    assert devtools.server.calls == []


@pytest.mark.proves("web-skills")
async def test_plain_text_goes_to_the_only_allowed_skill(devtools: Devtools) -> None:
    task = await devtools.by("bob").send({"text": "The printer burns"})
    assert said_by(task) == ["tracker", "create_issue", {"title": "The printer burns"}]
    asked = await devtools.by("ada").send({"text": "The printer burns"})
    assert state(asked) == "INPUT_REQUIRED"


@pytest.mark.proves("web-skills")
async def test_an_answer_does_not_reach_a_forbidden_skill(devtools: Devtools) -> None:
    bob = devtools.by("bob")
    asked = await bob.send(call_part("nothing"))
    assert state(asked) == "INPUT_REQUIRED"
    again = await bob.send(call_part("delete_issue", id="7"), taskId=asked["id"])
    assert state(again) == "INPUT_REQUIRED"
    assert "There is no skill 'delete_issue'" in words(again)
    assert devtools.server.calls == []


@pytest.mark.proves("web-skills")
async def test_an_answer_for_a_skill_that_is_no_longer_allowed_calls_no_other_skill(
    devtools: Devtools,
) -> None:
    ada = devtools.by("ada")
    asked = await ada.send(call_part("delete_issue"))
    devtools.access.update(verifiers_of(credentials(ada=("create_issue",))))
    answered = await ada.send({"text": "7"}, taskId=asked["id"])
    assert state(answered) == "INPUT_REQUIRED"
    assert words(answered).startswith("Which skill do you mean?")
    assert devtools.server.calls == []
    done = await ada.send(call_part("create_issue", title="7"), taskId=asked["id"])
    assert said_by(done) == ["tracker", "create_issue", {"title": "7"}]


@pytest.mark.proves("web-skills")
async def test_a_skill_that_is_no_longer_allowed_does_not_go_on(devtools: Devtools) -> None:
    ada = devtools.by("ada")
    asked = await ada.send(call_part("delete_issue"))
    assert state(asked) == "INPUT_REQUIRED"
    devtools.access.update(verifiers_of(credentials(ada=("create_*",))))
    answered = await ada.send({"data": {"id": "7"}}, taskId=asked["id"])
    assert "delete_issue" not in {tool for tool, _ in devtools.server.calls}
    assert state(answered) == "INPUT_REQUIRED"
    devtools.access.update(verifiers_of(credentials()))
    done = await ada.send(call_part("delete_issue", id="7"), taskId=asked["id"])
    assert said_by(done) == ["tracker", "delete_issue", {"id": "7"}]


@pytest.mark.proves("web-auth")
async def test_a_token_and_a_key_identify_the_same_principal_with_its_tasks(devtools: Devtools) -> None:
    task = await devtools.by("ada").send(call_part("delete_issue", id="7"))
    bare = devtools.kind(devtools.client, devtools.base_url)
    assert (await bare.with_headers(X_API_Key="key-ada").get(task["id"]))["id"] == task["id"]
    assert (await bare.with_headers(X_API_Key="key-bob").refused("GetTask", id=task["id"])).reason == (
        "TASK_NOT_FOUND"
    )
    both = bare.with_headers(X_API_Key="key-bob", Authorization="Bearer token-ada")
    refused = await both.answer("GetTask", {"id": task["id"]})
    assert (refused.http.status_code, refused.http.headers["WWW-Authenticate"]) == (
        401,
        'Bearer realm="mcp-a2a", ApiKey realm="mcp-a2a", header="X-API-Key"',
    )


@pytest.mark.proves("web-auth")
async def test_the_card_is_public_and_declares_the_accepted_credentials(devtools: Devtools) -> None:
    response = await devtools.client.get(f"{devtools.base_url}/.well-known/agent-card.json")
    card = response.json()
    assert {skill["id"] for skill in card["skills"]} == {"create_issue", "delete_issue", "search"}
    assert card["securitySchemes"] == {
        "bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}, "type": "http", "scheme": "Bearer"},
        "apiKey": {
            "apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"},
            "type": "apiKey",
            "name": "X-API-Key",
            "in": "header",
        },
    }
    assert card["security"] == [{"bearer": []}, {"apiKey": []}]
    assert card["securityRequirements"] == [
        {"schemes": {"bearer": {"list": []}}},
        {"schemes": {"apiKey": {"list": []}}},
    ]
    devtools.access.update(verifiers_of([Credential(Principal("ada"), "key-ada", Scheme.API_KEY)]))
    changed = await devtools.client.get(f"{devtools.base_url}/.well-known/agent-card.json")
    assert list(changed.json()["securitySchemes"]) == ["apiKey"]
    assert changed.headers["ETag"] != response.headers["ETag"]
    devtools.access.update([])
    opened = (await devtools.client.get(f"{devtools.base_url}/.well-known/agent-card.json")).json()
    assert {"securitySchemes", "securityRequirements", "security"}.isdisjoint(opened)


@pytest.mark.proves("web-auth")
@pytest.mark.parametrize(
    ("credentials", "reason"),
    [
        (Credentials(api_key="key-ada"), "TASK_NOT_FOUND"),
        (Credentials(bearer="token-ada"), "TASK_NOT_FOUND"),
        (Credentials(api_key="other"), "UNAUTHENTICATED"),
    ],
    ids=["key", "token", "wrong key"],
)
async def test_the_bridges_client_sends_the_credentials_that_the_card_asks_for(
    devtools: Devtools, credentials: Credentials, reason: str
) -> None:
    found = await fetch_card(devtools.client, devtools.base_url)
    client = AgentClient(devtools.client, found, client_options(credentials=credentials))
    with pytest.raises(AgentRefusedError, match=reason):
        await client.get("no-such-task")
