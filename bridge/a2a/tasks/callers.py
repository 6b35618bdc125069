"""Who asks an agent for something, as far as its tasks need to know."""

from __future__ import annotations

from dataclasses import dataclass

from bridge.identity.callers.principals import OperatorRole, Principal


@dataclass(frozen=True, slots=True)
class CallContext:
    """The caller of an operation: its principal, and the extensions that it activated."""

    principal: Principal
    extensions: frozenset[str] = frozenset()
    names_tasks: bool = False
    """Whether the ids of tasks in its requests are names that it gave them itself."""
    comes_late: bool = False
    """Whether it watches a task only once the task is there. Then it watches one that has ended, too, to see how, and
    is told how far a task is."""
    operator: OperatorRole | None = None
    """Its role, where it asks as an operator for the tasks of all."""
    sees_contents: bool = False
    """Whether it sees the contents of the tasks of others as well."""
    acting: str = ""
    """The operator that asks in the place of the principal; empty where the principal asks itself."""
    client: str = ""
    """What its client says of itself. Nobody has checked it."""

    @property
    def asker(self) -> str:
        """The name of who asks."""
        return self.acting or self.principal.name
