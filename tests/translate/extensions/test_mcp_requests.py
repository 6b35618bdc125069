"""MCP requests as messages of A2A: the declaration, requests, answers and notifications, each in both directions."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.a2a.model.errors import EXTENSION_SUPPORT_REQUIRED, INVALID_PARAMS, A2AError
from bridge.a2a.model.objects import AgentExtension, Message, Part, Role
from bridge.errors import PeerError
from bridge.translate.extensions.bridge import SKILL
from bridge.translate.extensions.mcp_requests import (
    URI,
    McpError,
    McpRequest,
    Subscription,
    acknowledgment,
    answer_from_parts,
    declaration,
    declared_servers,
    is_request,
    message_of_request,
    notifications_from_parts,
    part_of_answer,
    part_of_notifications,
    request_from_message,
    shared_of,
    subscription_from,
)

pytestmark = pytest.mark.proves("map-mcp-requests")

ALL: Any = {
    "tools": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True, "x": 1},
    "prompts": {"listChanged": True},
    "completions": {},
    "logging": {},
}


def test_a_request_crosses_to_the_letter() -> None:
    params: Any = {"uri": "note:///a%20b", "_meta": {"k": [1, None, {"é": 1.5}]}, "more": None}
    request = McpRequest("resources/read", params, "notes")
    message = message_of_request(request, "m-1")
    assert message.to_object() == {
        "messageId": "m-1",
        "role": "ROLE_USER",
        "parts": [{"data": {"server": "notes", "method": "resources/read", "params": params}}],
        "metadata": {SKILL: URI},
        "extensions": [URI],
    }
    assert is_request(message, {})
    assert request_from_message(message, {URI}) == request


def test_a_request_to_the_only_server_names_no_server() -> None:
    message = message_of_request(McpRequest("prompts/list", {}), "m-1")
    assert message.parts[0].data == {"method": "prompts/list", "params": {}}
    assert request_from_message(message, {URI}) == McpRequest("prompts/list", {})


def test_params_may_be_absent() -> None:
    message = _message({"method": "resources/list"})
    assert request_from_message(message, {URI}) == McpRequest("resources/list", {})


def test_the_metadata_of_the_a2a_request_counts_as_well() -> None:
    message = Message(message_id="m", role=Role.USER, parts=(Part(text="hello"),))
    assert is_request(message, {SKILL: URI})
    assert not is_request(message, {SKILL: "search"})
    assert not is_request(message, {})


def test_a_request_needs_the_extension() -> None:
    with pytest.raises(A2AError) as caught:
        request_from_message(_message({"method": "resources/list"}), set())
    assert caught.value.kind is EXTENSION_SUPPORT_REQUIRED


@pytest.mark.parametrize(
    "content",
    [
        [],
        "resources/list",
        {"params": {}},
        {"method": 1},
        {"method": "tools/call"},
        {"method": "resources/subscribe"},
        {"method": "resources/list", "params": []},
        {"method": "resources/list", "server": 1},
    ],
)
def test_a_request_in_another_form_is_refused(content: Any) -> None:
    with pytest.raises(A2AError) as caught:
        request_from_message(_message(content), {URI})
    assert caught.value.kind is INVALID_PARAMS


def test_a_request_is_one_part() -> None:
    part = Part(data={"method": "resources/list"})
    for parts in ((part, part), (part, Part(text="x")), (Part(text="x"),)):
        with pytest.raises(A2AError, match="exactly one data part"):
            request_from_message(Message(message_id="m", role=Role.USER, parts=parts), {URI})


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"contents": [{"uri": "a:b", "text": "", "_meta": {"n": None}}], "ttlMs": 5, "cacheScope": "private"},
        McpError(-32002, "Resource not found", {"uri": "a:b"}),
        McpError(-32601, ""),
    ],
)
def test_an_answer_crosses_to_the_letter(answer: Any) -> None:
    assert answer_from_parts([part_of_answer(answer)]) == answer


def test_an_error_that_crossed_grpc_has_a_whole_code() -> None:
    answer = answer_from_parts([Part(data={"error": {"code": -32002.0, "message": "gone"}})])
    assert answer == McpError(-32002, "gone")
    assert isinstance(answer, McpError)
    assert isinstance(answer.code, int)


@pytest.mark.parametrize(
    "data", [{}, {"result": []}, {"error": {}}, {"error": {"code": "x", "message": "m"}}, []]
)
def test_a_message_without_an_answer_is_the_agents_fault(data: Any) -> None:
    with pytest.raises(PeerError, match="no result and no error"):
        answer_from_parts([Part(text="words"), Part(data=data)])


def test_a_card_declares_what_the_agent_shares() -> None:
    servers = {"notes": shared_of(ALL, {"resources"}), "docs": shared_of(ALL, {"prompts", "resources"})}
    extension = declaration(servers)
    assert extension.params == {
        "servers": {
            "notes": {"capabilities": {"resources": ALL["resources"], "completions": {}}},
            "docs": {
                "capabilities": {
                    "resources": ALL["resources"],
                    "prompts": {"listChanged": True},
                    "completions": {},
                }
            },
        }
    }
    assert declared_servers([extension]) == servers


def test_nothing_shared_leaves_no_capability() -> None:
    assert shared_of(ALL, ()) == {}
    assert shared_of({"tools": {}, "completions": {}}, {"resources", "prompts"}) == {}


@pytest.mark.parametrize(
    "params",
    [
        None,
        {},
        {"servers": []},
        {"servers": {"a": []}},
        {"servers": {"a": {"capabilities": 1}}},
        {"servers": {"a": {}}},
    ],
)
def test_a_strange_declaration_declares_nothing(params: Any) -> None:
    assert declared_servers([AgentExtension(uri=URI, params=params)]) == {}
    assert declared_servers(None) == {}


def test_a_subscription_is_read_and_acknowledged() -> None:
    asked: Any = {
        "notifications": {
            "toolsListChanged": True,
            "promptsListChanged": True,
            "resourcesListChanged": False,
            "resourceSubscriptions": ["a:b", "a:b", 1, "c:d"],
        }
    }
    subscription = subscription_from(asked)
    assert subscription == Subscription(frozenset({"promptsListChanged"}), ("a:b", "c:d"))
    said = acknowledgment(subscription)
    assert said == {
        "method": "notifications/subscriptions/acknowledged",
        "params": {"notifications": {"promptsListChanged": True, "resourceSubscriptions": ["a:b", "c:d"]}},
    }
    params = said["params"]
    assert isinstance(params, dict)
    assert subscription_from(params) == subscription
    assert not subscription_from({"notifications": []})


def test_notifications_cross_to_the_letter() -> None:
    batch: Any = [{"method": "notifications/resources/updated", "params": {"uri": "a:b", "_meta": {"k": 1}}}]
    assert notifications_from_parts([part_of_notifications(batch)]) == tuple(batch)
    assert notifications_from_parts([Part(text="words")]) == ()
    assert notifications_from_parts([Part(data={"notifications": [1]})]) == ()


def _message(content: Any) -> Message:
    return Message(message_id="m", role=Role.USER, parts=(Part(data=content),), metadata={SKILL: URI})
