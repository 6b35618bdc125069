"""What a supervisor and its workers tell each other over their link, as values.

A plan holds values of many kinds, and secrets. It goes to a worker as Python pickles it: both ends are one program, and
the link is a pair of sockets that nobody else has.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from bridge.assembly.plan import Plan
from bridge.errors import BridgeError, PeerError, UsageError
from bridge.identity.callers.verifiers import Scheme
from bridge.process.served_values import ConfigurationState

_KINDS: Final[Mapping[str, type[BridgeError]]] = {"UsageError": UsageError, "PeerError": PeerError}
"""The kinds of fault that a start or a reload may have."""


@dataclass(frozen=True, slots=True)
class WorkerStart:
    """What a worker is started with."""

    number: int
    workers: int
    is_first: bool
    """Whether the worker tells a person what is served."""
    others_serve: bool
    """Whether other workers take the requests until this one is ready. Else it says itself that it starts."""
    plan: Plan
    own_url: str
    own_token: str
    own_scheme: Scheme | None
    """See `WorkerSharing`."""
    secret: str
    """Known to the workers of one supervisor."""
    address: str
    """The unix socket at which other workers reach it."""
    holders: dict[str, str]
    log_format: str
    log_level: str
    configuration: ConfigurationState
    """What is known of the files that are served; without a console, nothing."""


def packed(value: Plan | WorkerStart | ConfigurationState) -> str:
    """A value as text."""
    return base64.b64encode(pickle.dumps(value)).decode()


def unpacked(text: str) -> Any:
    """The value again."""
    return pickle.loads(base64.b64decode(text))  # noqa: S301 - the link belongs to one program


def packed_fault(fault: BridgeError) -> dict[str, Any]:
    """A fault, to be raised at the other end."""
    kind = "UsageError" if isinstance(fault, UsageError) else "PeerError"
    return {"kind": kind, "message": str(fault), "detail": fault.detail}


def unpacked_fault(told: Mapping[str, Any]) -> BridgeError:
    """The fault again."""
    return _KINDS[told["kind"]](told["message"], detail=told["detail"])
