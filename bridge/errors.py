"""The tree of the bridge's errors, by who is at fault.

The tree has three branches: the bridge, the peer that the bridge calls, or the caller of the bridge is at fault. The
branch says who has to act, and so how each endpoint reports the error (`FAULT_POLICIES`). The message says what
happened, where, and what to do. The errors of the protocols (`A2AError`, `McpRefusal`) are answers, and not part of
this tree.
"""

import logging
import os
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from bridge.text.diagnostics import Diagnostic, in_order, render

UNAUTHORIZED: Final = "unauthorized"
"""The outcome of a call whose peer does not accept the bridge's credentials (HTTP 401)."""


class BridgeError(Exception):
    """An error with a message for a person.

    `str()` gives the message, which fits a terminal and a peer: it has no traceback and no secret.
    """

    def __init__(self, message: str = "", *, detail: str = "", outcome: str = "") -> None:
        super().__init__(message)
        self.detail = detail
        """Details for the operator, never for a peer: for example, the stderr of a child process."""
        self.outcome = outcome
        """The outcome of a call that this error ends, if it is a special one; else empty."""


class OwnError(BridgeError):
    """The bridge is at fault: its command or configuration, a bound, its store, or a bug."""


class PeerError(BridgeError):
    """A server or agent on the other side is at fault."""


class CallerError(BridgeError):
    """The caller is at fault: the bridge cannot do what the caller asks for, and a retry would not help."""


class UsageError(OwnError):
    """The command, the configuration or this machine is at fault."""


class ConfigError(UsageError):
    """A configuration has mistakes. `diagnostics` has all mistakes, each with its file, line and hint."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics: tuple[Diagnostic, ...] = in_order(diagnostics)
        super().__init__(render(self.diagnostics))


class BusyError(OwnError):
    """A bound of the bridge is reached. Nothing was sent to a peer, so the caller may try again."""


class AuditAwayError(OwnError):
    """Each call needs an audit line before anything is sent to a peer, and the audit cannot be written now."""

    retry_after_seconds: Final = 5
    """When the caller may try again."""

    def __init__(self, message: str) -> None:
        super().__init__(message, outcome="HTTP_503")


class StoreError(OwnError):
    """The store could not write; it kept nothing of the change."""


class StoreLockedError(StoreError, UsageError):
    """Other processes use the store."""


class StoreAwayError(StoreError):
    """The store cannot be reached now. The last change may or may not be stored."""


class StoreConflictError(StoreError):
    """A change does not follow the stored state: the task has ended, the sequence number is taken, or another replica
    holds the task."""


class RepeatedMessageError(StoreConflictError):
    """Another replica has stored a message with this id since this replica looked for the message."""


class HolderGoneError(StoreError):
    """The replica that held a task is gone, so the task has another holder or none."""


@dataclass(frozen=True, slots=True)
class FaultPolicy:
    """How the endpoints report an error. A failed tool call is always a result with `isError`, whoever is at fault."""

    exit_code: int
    """The exit code of the command."""
    log_level: int
    a2a_reason: str
    """The reason of the A2A error, if there is no task yet."""
    task_state: Literal["TASK_STATE_FAILED", "TASK_STATE_REJECTED"]
    """The state in which the task ends, if there is a task."""
    mcp_code: Literal[-32602, -32603]
    """The error code of an MCP request other than `tools/call`."""
    retry_after_seconds: int | None = None
    """When the caller may try again, for bindings with a `Retry-After`."""


FAULT_POLICIES: Final[Mapping[type[BridgeError], FaultPolicy]] = {
    CallerError: FaultPolicy(2, logging.DEBUG, "INVALID_PARAMS", "TASK_STATE_REJECTED", -32602),
    PeerError: FaultPolicy(1, logging.INFO, "UNAVAILABLE", "TASK_STATE_FAILED", -32603),
    BusyError: FaultPolicy(2, logging.INFO, "OVERLOADED", "TASK_STATE_REJECTED", -32603, 1),
    OwnError: FaultPolicy(2, logging.WARNING, "INTERNAL", "TASK_STATE_FAILED", -32603),
}
"""A row for each kind of fault. Callers can cause the first three at will, so the first three are not logged as
warnings."""


def fault_policy_of(exc: BridgeError) -> FaultPolicy:
    """The row of the error's nearest class in `FAULT_POLICIES`."""
    return next(FAULT_POLICIES[kind] for kind in type(exc).__mro__ if kind in FAULT_POLICIES)


ECHO_CHARACTERS: Final = 200
"""The most characters of a peer's name that an error repeats: enough to find the fault, even if the name has 16 MB."""


def echoed(name: str) -> str:
    """Cut a name that a peer sent to the length that an error may repeat."""
    return name if len(name) <= ECHO_CHARACTERS else f"{name[:ECHO_CHARACTERS]}..."


def counted(count: int, noun: str, several: str = "") -> str:
    """A number with its noun: `1 tool`, `2 tools`. `several` is the plural, if it is not the noun with an s."""
    return f"{count} {noun if count == 1 else several or f'{noun}s'}"


def leaves_of(exc: BaseException) -> list[BaseException]:
    """Return all errors inside nested exception groups, in their order."""
    if isinstance(exc, BaseExceptionGroup):
        return [leaf for inner in exc.exceptions for leaf in leaves_of(inner)]
    return [exc]


def leaf_of(exc: BaseException) -> BaseException:
    """Return the first error inside nested exception groups."""
    while isinstance(exc, BaseExceptionGroup):
        exc = exc.exceptions[0]
    return exc


_TLS_FAULTS: Final = {
    "WRONG_VERSION_NUMBER": "it speaks plain HTTP there: write http://",
    "RECORD_LAYER_FAILURE": "it speaks plain HTTP there: write http://",
}
"""OpenSSL's reasons if the other side does not speak TLS. Newer releases use the second."""

_UNKNOWN_AUTHORITY: Final = (
    "its certificate comes from an authority that is not trusted here: name the authority with --ca FILE, or with"
    " tls.ca in a file"
)
_CERTIFICATE_FAULTS: Final = {
    2: _UNKNOWN_AUTHORITY,
    9: "its certificate is not valid yet: is the clock of this machine right?",
    10: "its certificate has expired: its operator has to renew it",
    18: "its certificate is self-signed and not trusted here: trust it with --ca FILE, or with tls.ca in a file",
    19: _UNKNOWN_AUTHORITY,
    20: _UNKNOWN_AUTHORITY,
    21: _UNKNOWN_AUTHORITY,
    23: "its certificate was revoked",
    62: "its certificate is for another host name",
    64: "its certificate is for another address",
}
"""OpenSSL's codes for a certificate that is not trusted (`X509_V_ERR_...`)."""


def reason_of(exc: BaseException) -> str:
    """The reason why a connection failed, with the system's message if the system has a code for it."""
    words, step = str(exc) or type(exc).__name__, exc.__cause__ or exc.__context__
    while step is not None:
        step = leaf_of(step)
        words = str(step) or words
        if isinstance(step, ssl.SSLCertVerificationError):
            words = _CERTIFICATE_FAULTS.get(
                step.verify_code, f"its certificate is refused: {step.verify_message}"
            )
        elif isinstance(step, ssl.SSLError):
            words = _TLS_FAULTS.get(step.reason or "", words)
        elif isinstance(step, OSError) and step.errno:
            words = os.strerror(step.errno) if step.errno > 0 else step.strerror or words
        step = step.__cause__ or step.__context__
    return words
