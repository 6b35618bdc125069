"""The caller of an operation, as far as tasks need to know it."""

from __future__ import annotations

from dataclasses import dataclass

from bridge.identity.callers.principals import OperatorRole, Principal


@dataclass(frozen=True, slots=True)
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

    @property
    def asker(self) -> str:
        """The name of the operator or principal that asks."""
        return self.acting or self.principal.name
