"""The table of errors against the specification's, and errors in both bindings."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_core import from_json

from bridge.a2a.model import errors, operations
from bridge.a2a.model.errors import A2AError, ErrorKind, Violation, invalid_params, task_not_found
from bridge.a2a.model.objects import Model
from bridge.a2a.model.operations import OPERATIONS, AnyOperation
from bridge.a2a.wire import jsonrpc
from bridge.a2a.wire.v1_0 import V1_0
from tests.support.drivers import A2A_REASONS

SPECIFIED: list[tuple[ErrorKind, int, str, int]] = [
    (errors.TASK_NOT_FOUND, -32001, "NOT_FOUND", 404),
    (errors.TASK_NOT_CANCELABLE, -32002, "FAILED_PRECONDITION", 400),
    (errors.PUSH_NOTIFICATION_NOT_SUPPORTED, -32003, "FAILED_PRECONDITION", 400),
    (errors.UNSUPPORTED_OPERATION, -32004, "FAILED_PRECONDITION", 400),
    (errors.CONTENT_TYPE_NOT_SUPPORTED, -32005, "INVALID_ARGUMENT", 400),
    (errors.VERSION_NOT_SUPPORTED, -32009, "FAILED_PRECONDITION", 400),
    (errors.PARSE_ERROR, -32700, "INVALID_ARGUMENT", 400),
    (errors.INVALID_REQUEST, -32600, "INVALID_ARGUMENT", 400),
    (errors.METHOD_NOT_FOUND, -32601, "NOT_FOUND", 404),
    (errors.INVALID_PARAMS, -32602, "INVALID_ARGUMENT", 400),
    (errors.INTERNAL, -32603, "INTERNAL", 500),
]
SERVED = [operation for operation in OPERATIONS if operation.request is not Model]
KINDS = [value for value in vars(errors).values() if isinstance(value, ErrorKind)]


@pytest.mark.proves("a2a-9.5-errors", "a2a-11.6-errors", "a2a-5.4-codes")
@pytest.mark.parametrize(("kind", "code", "status", "http"), SPECIFIED)
def test_each_error_has_the_codes_of_section_5_4(kind: ErrorKind, code: int, status: str, http: int) -> None:
    error = A2AError(kind, "No", metadata={"taskId": "t"})
    details: list[Any] = [
        {
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": kind.reason,
            "domain": "a2a-protocol.org" if -32099 <= code <= -32001 else "mcp-a2a",
            "metadata": {"taskId": "t"},
        }
    ]
    assert from_json(jsonrpc.error_bytes("r", V1_0().jsonrpc_error(error))) == {
        "jsonrpc": "2.0",
        "id": "r",
        "error": {"code": code, "message": "No", "data": details},
    }
    assert from_json(V1_0().http_error(error)) == {
        "error": {"code": http, "status": status, "message": "No", "details": details}
    }


@pytest.mark.proves("a2a-11.6-errors")
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.reason)
def test_only_the_errors_that_a2a_defines_name_its_domain(kind: ErrorKind) -> None:
    info = A2AError(kind, "No").details()[0]
    assert info["domain"] == ("a2a-protocol.org" if kind.reason in A2A_REASONS else "mcp-a2a")


@pytest.mark.proves("a2a-11.6-errors")
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.reason)
def test_reasons_are_upper_snake_case_and_tell_kinds_apart(kind: ErrorKind) -> None:
    assert kind.reason.replace("_", "").isalpha()
    assert kind.reason.isupper()
    assert [other.reason for other in KINDS].count(kind.reason) == 1


@pytest.mark.proves("a2a-9.5-errors")
def test_faulty_fields_are_listed_and_the_message_names_the_first() -> None:
    error = invalid_params(Violation("a.b", "is odd"), Violation("", "is even"))
    assert str(error) == "Invalid parameters: a.b: is odd (and 1 more)"
    assert error.details()[1] == {
        "@type": "type.googleapis.com/google.rpc.BadRequest",
        "fieldViolations": [
            {"field": "a.b", "description": "is odd"},
            {"field": "", "description": "is even"},
        ],
    }
    assert str(invalid_params(Violation("", "is no object"))) == "Invalid parameters: params: is no object"


@pytest.mark.proves("a2a-9.5-errors")
def test_the_number_of_named_faulty_fields_is_limited() -> None:
    refused = errors.invalid_params(*(errors.Violation(f"field{n}", "wrong") for n in range(10_000)))
    assert len(refused.violations) == 10_000
    assert len(jsonrpc.error_bytes(1, V1_0().jsonrpc_error(refused))) < 20_000


@pytest.mark.proves("a2a-5.7-required", "a2a-3.3.2-validation", "a2a-14.1.1-validated")
def test_every_faulty_field_has_its_wire_name_and_no_value() -> None:
    params = {"message": {"messageId": 5, "role": "secret", "parts": [{"text": "a"}, {}]}}
    with pytest.raises(A2AError) as refused:
        V1_0().request_from(operations.SEND_MESSAGE, params)
    assert refused.value.kind is errors.INVALID_PARAMS
    assert [one.field for one in refused.value.violations] == [
        "message.messageId",
        "message.role",
        "message.parts.1",
    ]
    assert "secret" not in repr(refused.value.details())


@pytest.mark.proves("a2a-3.3.2-validation")
@pytest.mark.parametrize("operation", SERVED, ids=str)
@pytest.mark.parametrize("params", [[], "text", 5, None])
def test_parameters_that_are_not_an_object_are_invalid(operation: AnyOperation, params: Any) -> None:
    with pytest.raises(A2AError, match="Invalid parameters: params") as refused:
        V1_0().request_from(operation, params)
    assert refused.value.kind is errors.INVALID_PARAMS


@pytest.mark.proves("a2a-13.1-scope", "a2a-3.3.2-not-found", "a2a-3.3.2-unrevealed")
def test_not_found_does_not_reveal_whether_the_task_exists() -> None:
    error = task_not_found("t")
    assert (error.kind, str(error), error.metadata) == (
        errors.TASK_NOT_FOUND,
        "The task does not exist or is not accessible",
        {"taskId": "t"},
    )
