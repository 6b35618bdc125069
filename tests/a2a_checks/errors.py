"""The errors of A2A, and what an agent said went wrong, whatever the binding.

Spec: A2A 1.0 section 5.4.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from tests.a2a_checks.table import shown
from tests.a2a_checks.wire import Answer

ERROR_INFO: Final = "type.googleapis.com/google.rpc.ErrorInfo"
BAD_REQUEST: Final = "type.googleapis.com/google.rpc.BadRequest"
DOMAIN: Final = "a2a-protocol.org"


class Kind(Enum):
    """Name: the reason of its ErrorInfo. Value: the JSON-RPC code and the HTTP status."""

    TASK_NOT_FOUND = (-32001, 404)
    TASK_NOT_CANCELABLE = (-32002, 400)
    PUSH_NOTIFICATION_NOT_SUPPORTED = (-32003, 400)
    UNSUPPORTED_OPERATION = (-32004, 400)
    CONTENT_TYPE_NOT_SUPPORTED = (-32005, 400)
    EXTENDED_AGENT_CARD_NOT_CONFIGURED = (-32007, 400)
    EXTENSION_SUPPORT_REQUIRED = (-32008, 400)
    VERSION_NOT_SUPPORTED = (-32009, 400)

    @property
    def code(self) -> int:
        """As JSON-RPC says it."""
        return self.value[0]

    @property
    def status(self) -> int:
        """As HTTP says it."""
        return self.value[1]


A2A_REASONS: Final = frozenset(kind.name for kind in Kind) | {"INVALID_AGENT_RESPONSE"}
"""The reasons of the errors that A2A defines: those, and one that no request of a check calls forth."""


class Fault(Enum):
    """The errors of JSON-RPC, and the HTTP status that says the same. The reason is not fixed."""

    PARSE = (-32700, 400)
    INVALID_REQUEST = (-32600, 400)
    METHOD_NOT_FOUND = (-32601, 404)
    INVALID_PARAMS = (-32602, 400)


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error that an agent answered with."""

    answer: Answer
    code: Any
    """`error.code` as it came."""
    message: Any
    details: Any
    """`error.data` or `error.details` as it came."""

    def detail_objects(self) -> list[dict[str, Any]]:
        """The details that are objects."""
        found = self.details if isinstance(self.details, list) else []
        return [detail for detail in found if isinstance(detail, dict)]

    @property
    def reason(self) -> Any:
        """What its ErrorInfo says, whether or not that says that it is one."""
        return next((detail["reason"] for detail in self.detail_objects() if "reason" in detail), None)

    def typed(self, type_url: str) -> dict[str, Any] | None:
        """The detail of this type."""
        return next((one for one in self.detail_objects() if one.get("@type") == type_url), None)

    def shown(self) -> str:
        """For the report."""
        return shown(f"an error: {self.answer.shown()}")
