"""Commands between replicas and their replies arrive unchanged."""

from __future__ import annotations

import json

import pytest

from bridge.a2a.layers.replica_commands import (
    CancelCommand,
    CanceledReply,
    Command,
    ElsewhereReply,
    Reply,
    SendCommand,
    TakenReply,
    command_bytes,
    command_from,
    refusal,
    reply_bytes,
    reply_from,
)
from bridge.a2a.model.errors import (
    INVALID_PARAMS,
    KINDS,
    UNAVAILABLE,
    A2AError,
    ErrorKind,
    Violation,
    invalid_params,
)
from bridge.a2a.tasks.callers import CallContext
from bridge.identity.callers.principals import Principal
from tests.support.agents import asked

pytestmark = pytest.mark.proves("replicas-one-agent")

CALLER = CallContext(
    Principal("carol", may_list_all=False, skills=("create_*", "devtools/read")),
    frozenset({"urn:one", "urn:two"}),
    names_tasks=True,
    comes_late=True,
)


@pytest.mark.parametrize(
    "command",
    [
        SendCommand(
            asked(
                {"text": "go"},
                {"data": {"a": None, "b": [1.5, "ä\u0000"]}},
                taskId="t1",
                metadata={"x": None, "y": {"z": 1}},
                configuration={"historyLength": 0, "acceptedOutputModes": ["text/plain"]},
                unknownField={"kept": True},
            ),
            CALLER,
            "t1",
        ),
        SendCommand(asked(), CallContext(Principal("dave")), "t1"),
        SendCommand(asked(), CallContext(Principal("dave"))),
        CancelCommand("t1", CALLER),
    ],
)
def test_a_command_arrives_as_it_was_made(command: Command) -> None:
    found = command_from(command_bytes(command))
    assert found == command
    if isinstance(command, SendCommand):
        assert isinstance(found, SendCommand)
        assert found.request.to_json() == command.request.to_json()


@pytest.mark.parametrize(
    "reply",
    [
        TakenReply("t1", 7),
        TakenReply("t1", 7, is_held=True, note={"urn:note": {"answeredAt": "now", "nothing": None}}),
        CanceledReply(),
        ElsewhereReply(),
    ],
)
def test_a_reply_arrives_as_it_was_made(reply: Reply) -> None:
    assert reply_from(reply_bytes(reply)) == reply


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.reason)
def test_an_error_arrives_whole(kind: ErrorKind) -> None:
    error = A2AError(
        kind,
        "what is wrong",
        metadata={"taskId": "t1"},
        violations=(Violation("message.parts", "too many"), Violation("pageToken", "is none")),
        headers={"Retry-After": "5"},
        names=("message.parts", "TASK_STATE_WORKING"),
    )
    with pytest.raises(A2AError) as caught:
        reply_from(reply_bytes(refusal(error)))
    found = caught.value
    assert (found.kind, str(found), found.details(), found.headers, found.names) == (
        kind,
        "what is wrong",
        error.details(),
        {"Retry-After": "5"},
        error.names,
    )


def test_fields_of_a_later_version_are_ignored_and_its_commands_are_refused() -> None:
    command = json.loads(command_bytes(CancelCommand("t1", CALLER)))
    assert command_from(json.dumps({**command, "later": 1}).encode()) == CancelCommand("t1", CALLER)
    for unreadable in (b'{"kind":"dance","task_id":"t1"}', b"{", b"[]"):
        with pytest.raises(A2AError) as caught:
            command_from(unreadable)
        assert caught.value.kind is UNAVAILABLE
    with pytest.raises(A2AError) as caught:
        reply_from(b'{"kind":"dance"}')
    assert caught.value.kind is UNAVAILABLE


def test_an_error_without_details_arrives_whole() -> None:
    with pytest.raises(A2AError) as caught:
        reply_from(reply_bytes(refusal(invalid_params(Violation("id", "is none")))))
    assert caught.value.kind is INVALID_PARAMS
    assert caught.value.violations == (Violation("id", "is none"),)
