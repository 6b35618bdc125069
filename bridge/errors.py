"""Whose fault it is: the tree that every error of the bridge hangs in.

It has three branches: this bridge is at fault, the peer that it asks, or the caller that asks it. The branch says
who has to act, and so how each face tells the error (`TELLINGS`); the message says what happened, where, and what
to do. The errors of the protocols (`A2AError`, `McpRefusal`) are not part of this tree: they are answers.
"""

import logging
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal


class BridgeError(Exception):
    """Something went wrong that a person has to hear about.

    `str()` of it is one message fit for a terminal and for a peer: no traceback, no secret.
    """

    def __init__(self, message: str = "", *, detail: str = "") -> None:
        super().__init__(message)
        self.detail = detail
        """More, for the person who runs the bridge and never for a peer: what a child wrote to its stderr."""


class OwnError(BridgeError):
    """This bridge is at fault: how it was started, a bound of it, its store, or a mistake in it."""


class PeerError(BridgeError):
    """A server or agent on the other side is at fault."""


class CallerError(BridgeError):
    """Who asks the bridge is at fault: what it asks for cannot be done for it, and would not be the next time."""


class UsageError(OwnError):
    """The command, the configuration or this machine is at fault."""


class BusyError(OwnError):
    """A bound of the bridge is reached. Nothing was sent to a peer, so it may be asked again."""


class StoreError(OwnError):
    """The store could not keep what it was given; nothing of it was kept."""


class StoreLockedError(StoreError, UsageError):
    """Another process owns the store's file."""


class StoreConflictError(StoreError):
    """A change does not follow what is stored: the task has ended, or its sequence number is taken."""


@dataclass(frozen=True, slots=True)
class Telling:
    """How the faces tell an error. A failed call of a tool is a result with `isError`, whosever fault it is."""

    exit_code: int
    """What the command ends with."""
    log_level: int
    a2a_reason: str
    """The A2A error, when there is no task yet."""
    task_state: Literal["TASK_STATE_FAILED", "TASK_STATE_REJECTED"]
    """How the task ends, when there is one."""
    mcp_code: Literal[-32602, -32603]
    """The error of a request of MCP that is no call of a tool."""
    retry_after_seconds: int | None = None
    """When it may be asked again, of a binding that can say so."""


TELLINGS: Final[Mapping[type[BridgeError], Telling]] = {
    CallerError: Telling(2, logging.DEBUG, "INVALID_PARAMS", "TASK_STATE_REJECTED", -32602),
    PeerError: Telling(1, logging.INFO, "UNAVAILABLE", "TASK_STATE_FAILED", -32603),
    BusyError: Telling(2, logging.INFO, "OVERLOADED", "TASK_STATE_REJECTED", -32603, 1),
    OwnError: Telling(2, logging.WARNING, "INTERNAL", "TASK_STATE_FAILED", -32603),
}
"""By whose fault it is. Callers can bring about the first three as often as they like: those warn nobody."""


def telling_of(exc: BridgeError) -> Telling:
    """How an error is told: the row of the nearest branch above it."""
    return next(TELLINGS[kind] for kind in type(exc).__mro__ if kind in TELLINGS)


ECHO_CHARACTERS: Final = 200
"""As much of a name that a peer sent as an answer to it repeats: enough to find the fault, of 16 MB too."""


def echoed(name: str) -> str:
    """A name that a peer sent, as an error repeats it."""
    return name if len(name) <= ECHO_CHARACTERS else f"{name[:ECHO_CHARACTERS]}..."


def leaf_of(exc: BaseException) -> BaseException:
    """What went wrong first, out of the groups that task groups wrap it in."""
    while isinstance(exc, BaseExceptionGroup):
        exc = exc.exceptions[0]
    return exc


_TLS_FAULTS: Final = {
    "WRONG_VERSION_NUMBER": "it speaks plain HTTP there: write http://",
    "RECORD_LAYER_FAILURE": "it speaks plain HTTP there: write http://",
}
"""What OpenSSL finds when the other side does not speak TLS; by the newer releases' name, too."""


def reason_of(exc: BaseException) -> str:
    """Why a connection failed, in the words of the system where there are some."""
    words, step = str(exc) or type(exc).__name__, exc.__cause__ or exc.__context__
    while step is not None:
        step = leaf_of(step)
        words = str(step) or words
        if isinstance(step, ssl.SSLError):
            words = _TLS_FAULTS.get(step.reason or "", words)
        elif isinstance(step, OSError) and step.errno:
            words = os.strerror(step.errno) if step.errno > 0 else step.strerror or words
        step = step.__cause__ or step.__context__
    return words
