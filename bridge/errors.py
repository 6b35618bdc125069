"""Whose fault it is: the tree that every error of the bridge hangs in.

The branch says who has to act, and so which exit code the command line ends with; the message says what
happened, where, and what to do. Protocol errors (A2A's codes) are values of `bridge.a2a.model.errors`, raised
through `bridge.a2a.model.errors.A2AError`, and are not part of this tree: they go to a peer, these go to a person.
"""

import os
import ssl
from typing import Final


class BridgeError(Exception):
    """Something went wrong that a person has to hear about.

    `str()` of it is one message fit for a terminal and for a peer: no traceback, no secret.
    """

    def __init__(self, message: str = "", *, detail: str = "") -> None:
        super().__init__(message)
        self.detail = detail
        """More, for the person who runs the bridge and never for a peer: what a child wrote to its stderr."""


class UsageError(BridgeError):
    """The command, the configuration or this machine is at fault (exit code 2)."""


class PeerError(BridgeError):
    """A server or agent on the other side is at fault (exit code 1)."""


class StoreError(BridgeError):
    """The store could not keep what it was given; nothing of it was kept."""


class StoreLockedError(StoreError, UsageError):
    """Another process owns the store's file."""


class StoreConflictError(StoreError):
    """A change does not follow what is stored: the task has ended, or its sequence number is taken."""


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
