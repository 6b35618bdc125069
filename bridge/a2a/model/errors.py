"""The errors of A2A: one table with the codes for every binding, and the errors about a task. Pure.

Spec: A2A 1.0 sections 3.1 (which operation), 3.3.2 (kinds), 5.4 (codes), 9.5 (JSON-RPC), 11.6 (HTTP+JSON)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bridge.a2a.model.life import ENDED, INTERRUPTED
from bridge.a2a.model.objects import Task
from bridge.errors import BridgeError, fault_policy_of

if TYPE_CHECKING:
    from pydantic import ValidationError

    from bridge.text.jsonvalues import JsonObject


A2A_DOMAIN: Final = "a2a-protocol.org"
"""The ErrorInfo domain of the reasons that A2A defines."""
BRIDGE_DOMAIN: Final = "mcp-a2a"
"""The ErrorInfo domain of all other reasons, which this bridge defines."""
_A2A_CODES: Final = range(-32099, -32000)
"""Section 9.5: the codes of the errors that A2A defines."""
MAX_VIOLATIONS: Final = 50
"""The most invalid fields that one error lists, so that an error is no larger than its request."""
_INFO_TYPE: Final = "type.googleapis.com/google.rpc.ErrorInfo"
_BAD_REQUEST_TYPE: Final = "type.googleapis.com/google.rpc.BadRequest"


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """One kind of error, with its code in each binding."""

    reason: str
    jsonrpc_code: int
    http_status: int
    rpc_status: str
    at_http_level: bool = False
    """Whether JSON-RPC answers with `http_status` instead of 200, too: the transport refuses the request, not the
    method."""

    @property
    def domain(self) -> str:
        """The ErrorInfo domain of the reason: A2A's for its own errors, else this bridge's."""
        return A2A_DOMAIN if self.jsonrpc_code in _A2A_CODES else BRIDGE_DOMAIN


TASK_NOT_FOUND: Final = ErrorKind("TASK_NOT_FOUND", -32001, 404, "NOT_FOUND")
TASK_NOT_CANCELABLE: Final = ErrorKind("TASK_NOT_CANCELABLE", -32002, 400, "FAILED_PRECONDITION")
PUSH_NOTIFICATION_NOT_SUPPORTED: Final = ErrorKind(
    "PUSH_NOTIFICATION_NOT_SUPPORTED", -32003, 400, "FAILED_PRECONDITION"
)
UNSUPPORTED_OPERATION: Final = ErrorKind("UNSUPPORTED_OPERATION", -32004, 400, "FAILED_PRECONDITION")
CONTENT_TYPE_NOT_SUPPORTED: Final = ErrorKind("CONTENT_TYPE_NOT_SUPPORTED", -32005, 400, "INVALID_ARGUMENT")
EXTENSION_SUPPORT_REQUIRED: Final = ErrorKind(
    "EXTENSION_SUPPORT_REQUIRED", -32008, 400, "FAILED_PRECONDITION"
)
VERSION_NOT_SUPPORTED: Final = ErrorKind("VERSION_NOT_SUPPORTED", -32009, 400, "FAILED_PRECONDITION")
PARSE_ERROR: Final = ErrorKind("PARSE_ERROR", -32700, 400, "INVALID_ARGUMENT")
INVALID_REQUEST: Final = ErrorKind("INVALID_REQUEST", -32600, 400, "INVALID_ARGUMENT")
METHOD_NOT_FOUND: Final = ErrorKind("METHOD_NOT_FOUND", -32601, 404, "NOT_FOUND")
METHOD_NOT_ALLOWED: Final = ErrorKind(
    "METHOD_NOT_ALLOWED", -32600, 405, "INVALID_ARGUMENT", at_http_level=True
)
INVALID_PARAMS: Final = ErrorKind("INVALID_PARAMS", -32602, 400, "INVALID_ARGUMENT")
INTERNAL: Final = ErrorKind("INTERNAL", -32603, 500, "INTERNAL")
UNAUTHENTICATED: Final = ErrorKind("UNAUTHENTICATED", -32600, 401, "UNAUTHENTICATED", at_http_level=True)
FORBIDDEN: Final = ErrorKind("FORBIDDEN", -32600, 403, "PERMISSION_DENIED", at_http_level=True)
MISDIRECTED: Final = ErrorKind("MISDIRECTED", -32600, 421, "FAILED_PRECONDITION", at_http_level=True)
TOO_LARGE: Final = ErrorKind("PAYLOAD_TOO_LARGE", -32600, 413, "OUT_OF_RANGE", at_http_level=True)
ANSWER_TOO_LARGE: Final = ErrorKind("ANSWER_TOO_LARGE", -32603, 500, "RESOURCE_EXHAUSTED")
OVERLOADED: Final = ErrorKind("OVERLOADED", -32603, 503, "UNAVAILABLE", at_http_level=True)
UNAVAILABLE: Final = ErrorKind("UNAVAILABLE", -32603, 503, "UNAVAILABLE", at_http_level=True)

KINDS: Final = {kind.reason: kind for kind in tuple(vars().values()) if isinstance(kind, ErrorKind)}
"""All kinds of errors, by reason."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One invalid field of a request, and what is wrong with it."""

    field: str
    description: str


class A2AError(Exception):
    """An error that answers a request.

    `str()` gives the message that the peer reads. It names no internals.
    """

    def __init__(
        self,
        kind: ErrorKind,
        message: str,
        *,
        metadata: Mapping[str, str] | None = None,
        violations: Sequence[Violation] = (),
        headers: Mapping[str, str] | None = None,
        names: Sequence[str] = (),
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.outcome = kind.reason
        """The outcome of the request's hop."""
        self.metadata = dict(metadata or {})
        self.violations = tuple(violations)
        self.headers = dict(headers or {})
        """HTTP headers of the answer, such as Retry-After."""
        self.names = tuple(names)
        """The states, roles, fields and operations of A2A 1.0 that the message names. Other versions spell these names
        differently."""

    def spelled(self, spellings: Mapping[str, str]) -> A2AError:
        """The error with its names spelled as in another version."""
        changed = {name: spelling for name, spelling in spellings.items() if spelling != name}
        if not changed:
            return self
        longest_first = sorted(changed, key=len, reverse=True)
        pattern = re.compile("|".join(map(re.escape, longest_first)))

        def respelled(text: str) -> str:
            return pattern.sub(lambda match: changed[match[0]], text)

        violations = [
            Violation(changed.get(violation.field, violation.field), respelled(violation.description))
            for violation in self.violations
        ]
        return A2AError(
            self.kind,
            respelled(str(self)),
            metadata=self.metadata,
            violations=violations,
            headers=self.headers,
        )

    def details(self) -> list[JsonObject]:
        """The error's details as JSON: an ErrorInfo, and a BadRequest if fields are invalid."""
        info: JsonObject = {"@type": _INFO_TYPE, "reason": self.kind.reason, "domain": self.kind.domain}
        if self.metadata:
            info["metadata"] = dict(self.metadata)
        if not self.violations:
            return [info]
        fields: JsonObject = {
            "@type": _BAD_REQUEST_TYPE,
            "fieldViolations": [
                {"field": v.field, "description": v.description} for v in self.violations[:MAX_VIOLATIONS]
            ],
        }
        return [info, fields]


def a2a_error_of(exc: BridgeError) -> A2AError:
    """The A2AError for a failure that comes before a task exists."""
    telling = fault_policy_of(exc)
    seconds = telling.retry_after_seconds
    headers = {} if seconds is None else {"Retry-After": str(seconds)}
    return A2AError(KINDS[telling.a2a_reason], str(exc), headers=headers)


def invalid_params(*violations: Violation, names: Sequence[str] = ()) -> A2AError:
    """INVALID_PARAMS for these fields. The message names the first field, for people. `names` are further names in the
    descriptions."""
    first = violations[0]
    rest = f" (and {len(violations) - 1} more)" if len(violations) > 1 else ""
    message = f"Invalid parameters: {first.field or 'params'}: {first.description}{rest}"
    fields = [violation.field for violation in violations if violation.field]
    return A2AError(INVALID_PARAMS, message, violations=violations, names=(*fields, *names))


def violations_from(error: ValidationError) -> tuple[Violation, ...]:
    """The violations of a validation error, field by field, without the invalid values."""
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    inner = {error["loc"][:depth] for error in errors for depth in range(len(error["loc"]))}
    return tuple(
        Violation(
            ".".join(str(step) for step in error["loc"]),
            error["msg"].removeprefix("Value error, "),
        )
        for error in errors
        # pydantic does not count invalid items, so it also reports an array of only invalid items as too short.
        if not (error["type"] == "too_short" and error["loc"] in inner)
    )


def task_not_found(task_id: str) -> A2AError:
    """TASK_NOT_FOUND, with the same words for a missing task and for another caller's task (section 13.1)."""
    return A2AError(
        TASK_NOT_FOUND,
        "The task does not exist or is not accessible",
        metadata={"taskId": task_id},
    )


def require_answerable(task: Task) -> None:
    """Require a task that waits for its client: no other task accepts messages (sections 3.1.1 and 3.4.3).

    Raises:
        A2AError: UNSUPPORTED_OPERATION.
    """
    state = task.status.state
    if state in ENDED:
        raise A2AError(
            UNSUPPORTED_OPERATION,
            f"The task has ended ({state}) and takes no more messages; leave out taskId to start another",
            metadata={"taskId": task.id},
            names=(state,),
        )
    if state not in INTERRUPTED:
        raise task_is_at_work(task)


def task_is_at_work(task: Task) -> A2AError:
    """UNSUPPORTED_OPERATION: a working task accepts no message until it asks for one."""
    return A2AError(
        UNSUPPORTED_OPERATION,
        "The task is at work and takes no more messages until it asks for input",
        metadata={"taskId": task.id},
    )


def task_history_is_full(task: Task) -> A2AError:
    """UNSUPPORTED_OPERATION: the task's history is full."""
    return A2AError(
        UNSUPPORTED_OPERATION,
        "The task's history is full, so it takes no more messages; cancel it, or leave out taskId to start another",
        metadata={"taskId": task.id},
    )


def too_many_open_tasks(most: int) -> A2AError:
    """OVERLOADED: the principal has `most` unfinished tasks, the most that it may have."""
    return A2AError(
        OVERLOADED,
        f"{most} of your tasks have not ended, and there may be no more: answer or cancel some",
        headers={"Retry-After": "5"},
    )


def task_not_cancelable(task: Task) -> A2AError:
    """TASK_NOT_CANCELABLE: the task ended before it could be canceled (section 3.1.5)."""
    return A2AError(
        TASK_NOT_CANCELABLE,
        f"The task has already ended ({task.status.state})",
        metadata={"taskId": task.id},
        names=(task.status.state,),
    )


_OF_FULL_DISKS: Final = ("disk is full", "No space left", "could not extend file")
"""The messages of SQLite, the system and PostgreSQL for a full disk."""


def cannot_store(why: str) -> A2AError:
    """UNAVAILABLE: the store cannot write. `why` may name files or hosts, so a client learns only whether a disk is
    full."""
    if any(words in why for words in _OF_FULL_DISKS):
        return temporarily_unavailable(
            "The disk of the bridge is full, so it cannot store tasks at the moment"
        )
    return temporarily_unavailable("The bridge cannot store tasks at the moment")


def temporarily_unavailable(why: str) -> A2AError:
    """UNAVAILABLE: the bridge accepts no messages at the moment, and the client should try again."""
    return A2AError(UNAVAILABLE, why, headers={"Retry-After": "5"})


def task_has_ended(task: Task) -> A2AError:
    """UNSUPPORTED_OPERATION: a task that has ended has no more events to watch (section 3.1.6)."""
    return A2AError(
        UNSUPPORTED_OPERATION,
        f"The task has ended ({task.status.state}); get it with GetTask",
        metadata={"taskId": task.id},
        names=(task.status.state, "GetTask"),
    )
