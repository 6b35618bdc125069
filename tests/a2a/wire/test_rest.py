"""Verbs and paths of HTTP+JSON to operations, and their parameters."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

import pytest

from bridge.a2a.model import operations
from bridge.a2a.model.errors import INVALID_PARAMS, METHOD_NOT_ALLOWED, METHOD_NOT_FOUND, A2AError
from bridge.a2a.model.operations import OPERATIONS, AnyOperation
from bridge.a2a.wire.rest import media_type_for
from bridge.a2a.wire.v1_0 import V1_0

CONFIGS = "/tasks/t/pushNotificationConfigs"
ROUTES = V1_0.routes
PATHS: list[tuple[str, str, AnyOperation, dict[str, str]]] = [
    ("POST", "/message:send", operations.SEND_MESSAGE, {}),
    ("POST", "/message:stream", operations.SEND_STREAMING_MESSAGE, {}),
    ("GET", "/tasks", operations.LIST_TASKS, {}),
    ("GET", "/tasks/t-1", operations.GET_TASK, {"id": "t-1"}),
    ("GET", "/tasks/a:b", operations.GET_TASK, {"id": "a:b"}),
    ("POST", "/tasks/t:cancel", operations.CANCEL_TASK, {"id": "t"}),
    ("POST", "/tasks/a:b:cancel", operations.CANCEL_TASK, {"id": "a:b"}),
    ("GET", "/tasks/t:subscribe", operations.SUBSCRIBE_TO_TASK, {"id": "t"}),
    ("POST", "/tasks/t:subscribe", operations.SUBSCRIBE_TO_TASK, {"id": "t"}),
    ("POST", CONFIGS, operations.CREATE_PUSH_CONFIG, {"taskId": "t"}),
    ("GET", CONFIGS, operations.LIST_PUSH_CONFIGS, {"taskId": "t"}),
    ("GET", f"{CONFIGS}/c", operations.GET_PUSH_CONFIG, {"taskId": "t", "id": "c"}),
    ("DELETE", f"{CONFIGS}/c", operations.DELETE_PUSH_CONFIG, {"taskId": "t", "id": "c"}),
    ("GET", "/extendedAgentCard", operations.GET_EXTENDED_AGENT_CARD, {}),
]


@pytest.mark.proves("a2a-11.3-paths")
@pytest.mark.parametrize(("verb", "path", "operation", "params"), PATHS)
def test_a_verb_and_a_path_are_an_operation(
    verb: str, path: str, operation: AnyOperation, params: dict[str, str]
) -> None:
    assert ROUTES.match(verb, path) == (operation, params)


@pytest.mark.proves("a2a-5.1-equivalent", "a2a-11.3-paths")
def test_every_operation_has_a_path() -> None:
    assert {operation for _, _, operation, _ in PATHS} == set(OPERATIONS)


@pytest.mark.proves("a2a-11.3-paths")
@pytest.mark.parametrize(
    ("verb", "path", "allowed"),
    [
        ("GET", "/message:send", "POST"),
        ("POST", "/tasks", "GET"),
        ("DELETE", "/tasks/t", "GET"),
        ("PUT", "/tasks/t:subscribe", "GET, POST"),
        ("PUT", CONFIGS, "GET, POST"),
        ("POST", f"{CONFIGS}/c", "DELETE, GET"),
    ],
)
def test_another_verb_is_not_allowed_and_the_allowed_are_named(verb: str, path: str, allowed: str) -> None:
    with pytest.raises(A2AError) as refused:
        ROUTES.match(verb, path)
    assert refused.value.kind is METHOD_NOT_ALLOWED
    assert set(refused.value.headers["Allow"].split(", ")) >= set(allowed.split(", "))


@pytest.mark.proves("a2a-11.3-paths")
@pytest.mark.parametrize(
    "path", ["/", "/message", "/tasks/", "/tasks/a/b", "/v1/message:send", "/tenant/tasks"]
)
def test_an_unknown_path_is_not_found(path: str) -> None:
    with pytest.raises(A2AError) as refused:
        ROUTES.match("GET", path)
    assert refused.value.kind is METHOD_NOT_FOUND


@pytest.mark.proves("a2a-11.5-query")
def test_list_takes_its_filters_from_the_query() -> None:
    query = [
        ("contextId", "c"),
        ("pageSize", "1"),
        ("pageSize", "2"),
        ("includeArtifacts", "true"),
        ("A2A-Version", "1.0"),
        ("context_id", "no"),
    ]
    assert ROUTES.params_from(operations.LIST_TASKS, {}, query, {}) == {
        "contextId": "c",
        "pageSize": "2",
        "includeArtifacts": True,
    }


@pytest.mark.proves("a2a-11.3-paths")
def test_the_path_wins_over_the_query_and_the_body() -> None:
    body = {"id": "body", "metadata": {"a": 1}}
    assert ROUTES.params_from(operations.CANCEL_TASK, {"id": "path"}, [("id", "query")], body) == {
        "id": "path",
        "metadata": {"a": 1},
    }
    query = [("historyLength", "3"), ("id", "query")]
    assert ROUTES.params_from(operations.GET_TASK, {"id": "path"}, query, {}) == {
        "id": "path",
        "historyLength": "3",
    }


@pytest.mark.proves("a2a-3.3.2-validation")
@pytest.mark.parametrize(
    ("operation", "query", "body"),
    [
        (operations.SEND_MESSAGE, [], []),
        (operations.SEND_MESSAGE, [], "text"),
        (operations.SEND_MESSAGE, [], None),
        (operations.LIST_TASKS, [("includeArtifacts", "1")], {}),
        (operations.LIST_TASKS, [("includeArtifacts", "")], {}),
    ],
)
def test_a_body_that_is_not_an_object_and_an_invalid_flag_are_refused(
    operation: AnyOperation, query: list[tuple[str, str]], body: Any
) -> None:
    with pytest.raises(A2AError) as refused:
        ROUTES.params_from(operation, {}, query, body)
    assert refused.value.kind is INVALID_PARAMS


@pytest.mark.proves("a2a-11.5-query")
def test_what_a_client_writes_is_what_a_server_reads() -> None:
    asked: dict[str, Any] = {"id": "a:b c", "taskId": "t?1", "historyLength": 0, "includeArtifacts": True}
    for _, _, operation, fields in PATHS:
        target = ROUTES.target_of(operation, dict(asked))
        expected = (operation, {name: asked[name] for name in fields})
        assert ROUTES.match(target.verb, unquote(target.path)) == expected
        assert target.path.isascii()
        rest = {name: value for name, value in asked.items() if name not in fields}
        if target.body is None:
            assert target.query == {
                name: "true" if value is True else str(value) for name, value in rest.items()
            }
        else:
            assert (target.body, target.query) == (rest, {})


@pytest.mark.proves("a2a-8.3.2-tenant")
def test_a_tenant_stands_in_the_path_and_in_a_body() -> None:
    sent = ROUTES.target_of(operations.CANCEL_TASK, {"id": "t", "tenant": "a/b"})
    assert (sent.path, sent.body) == ("/a%2Fb/tasks/t:cancel", {"tenant": "a/b"})
    asked = ROUTES.target_of(operations.GET_TASK, {"id": "t", "tenant": "a"})
    assert (asked.path, asked.query) == ("/a/tasks/t", {})


@pytest.mark.proves("a2a-11.1-accept")
@pytest.mark.parametrize(
    ("accept", "answered"),
    [
        ("", "application/a2a+json"),
        ("*/*", "application/a2a+json"),
        ("application/*", "application/a2a+json"),
        ("application/json", "application/json"),
        ("Application/JSON; charset=utf-8", "application/json"),
        ("application/a2a+json, application/json", "application/a2a+json"),
        ("application/json, application/a2a+json;q=0.9", "application/json"),
        ("application/json;q=0.5, application/a2a+json", "application/a2a+json"),
        ("application/json;q=0.5, */*", "application/a2a+json"),
        ("application/json, text/plain, */*", "application/json"),
        ("application/json, */*;q=0.8", "application/json"),
        ("application/a2a+json;q=0, application/*", "application/json"),
        ("application/json;q=0, */*", "application/a2a+json"),
        ("application/json;q=0", "application/a2a+json"),
        ("text/html, application/xhtml+xml", "application/a2a+json"),
        ("text/event-stream, application/json", "application/json"),
        ("application/json;q=much, application/a2a+json;q=0.1", "application/a2a+json"),
        (",;,/;q=, q=1 ;", "application/a2a+json"),
    ],
)
def test_the_media_type_of_an_answer_is_the_one_that_the_client_prefers(accept: str, answered: str) -> None:
    assert media_type_for(accept) == answered
