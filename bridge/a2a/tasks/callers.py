"""The caller of an operation, as far as tasks need to know it, and the gate before its work."""

from __future__ import annotations

from dataclasses import replace

from bridge.a2a.model.errors import temporarily_unavailable
from bridge.a2a.model.operators import OPERATOR_URI
from bridge.errors import AuditAwayError
from bridge.frozen import frozen
from bridge.identity.callers.principals import OperatorRole, Principal
from bridge.trace import Hop


@frozen
class CallContext:
    """The caller of an operation: its principal, and the extensions that it activated."""

    principal: Principal
    extensions: frozenset[str] = frozenset()
    names_tasks: bool = False
    """Whether the task ids in its requests are names that the caller gave to the tasks."""
    comes_late: bool = False
    """Whether the caller watches a task only after the task was made. It may then also watch an ended task, and is told
    the progress of tasks."""
    operator: OperatorRole | None = None
    """The role of the caller, if it asks as an operator for the tasks of all principals."""
    sees_contents: bool = False
    """Whether the caller also sees the contents of the tasks of others."""
    acting: str = ""
    """The operator that asks on behalf of the principal; empty if the principal itself asks."""
    client: str = ""
    """How the client describes itself. This is not verified."""
    patience_seconds: float | None = None
    """How long an answer to a message may wait for its task; then it has the task as it stands. None waits until the
    task has settled."""

    @property
    def asker(self) -> str:
        """The name of the operator or principal that asks."""
        return self.acting or self.principal.name

    def as_operator(self, *, sees_contents: bool) -> CallContext:
        """The caller as it asks for the tasks of all principals with the operator extension, if it is an operator."""
        if self.principal.operator is None:
            return self
        return replace(
            self,
            extensions=self.extensions | {OPERATOR_URI},
            operator=self.principal.operator,
            sees_contents=sees_contents,
        )


class _ClosedGate:
    """A gate that a request could not pass. The request is refused, and does not try again."""

    def __init__(self, why: AuditAwayError) -> None:
        self._why = why

    async def intend(self, _: Hop) -> int:
        """See `IntentWriter`."""
        raise self._why


async def pass_gate(hop: Hop | None) -> None:
    """Pass the audit's gate of a request, unless the request has passed it or there is no gate.

    Raises:
        A2AError: UNAVAILABLE, the operation must not be performed at the moment.
    """
    if hop is None:
        return
    try:
        await hop.intend()
    except AuditAwayError as exc:
        hop.gate = _ClosedGate(exc)
        raise temporarily_unavailable("The bridge cannot write its audit at the moment") from exc
