"""What an audit tells of hops: who asked whom for what, what was decided, and how it went. Never what was said.

A request of a face has a line once it has been answered: a call, an answer, a cancellation, a webhook, and whatever was
refused because of who asked. A request to a peer has one too, since a call may be answered before its work is done. A
principal has one when it is first seen with its credential. Requests that only read have none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final

from bridge.audit.journal import AuditJournal
from bridge.jsonvalues import JsonObject
from bridge.trace import Hop

_CALL: Final = "call"
_ANSWER: Final = "answer"
_CANCEL: Final = "cancel"

_EVENTS: Final[Mapping[str, str]] = {
    "SendMessage": _CALL,
    "SendStreamingMessage": _CALL,
    "tools/call": _CALL,
    "tasks/update": _ANSWER,
    "CancelTask": _CANCEL,
    "tasks/cancel": _CANCEL,
    "CreateTaskPushNotificationConfig": "webhook_added",
    "DeleteTaskPushNotificationConfig": "webhook_removed",
}
"""The methods that have a line, and the event that each is."""

_OWN_TOOLS: Final[Mapping[str, str]] = {"task_reply": _ANSWER, "task_cancel": _CANCEL}
"""Tools of the bridge's own MCP server that are more than a call."""

_NOT_ADMITTED: Final = frozenset(
    {"UNAUTHENTICATED", "FORBIDDEN", "MISDIRECTED", "HTTP_400", "HTTP_401", "HTTP_403", "HTTP_421"}
)
"""Errors of a request that was refused because of who sent it, whatever it asked for."""

_SEEN_MOST: Final = 10_000
"""Principals whose sign-ins are remembered. After that they are told again."""


class AuditRecorder:
    """Listens to hops, and has their lines written."""

    def __init__(self, journal: AuditJournal, principal: Callable[[str], str]) -> None:
        """`principal` gives the name of a principal as the audit has it."""
        self._journal = journal
        self._principal = principal
        self._seen: set[str] = set()
        self.plan = ""
        """The digest of the plan in force."""

    def began(self, hop: Hop) -> None:
        """See `HopListener`."""
        if hop.side != "server" or not hop.is_authenticated or hop.principal in self._seen:
            return
        if len(self._seen) >= _SEEN_MOST:
            self._seen.clear()
        self._seen.add(hop.principal)
        self.note("sign_in", principal=self._principal(hop.principal), face=hop.face, protocol=hop.protocol)

    def login_deleted(self, principal: str, peer: str) -> None:
        """Tell that the bridge has deleted the login of a principal at a tool server."""
        self.note("login_deleted", principal=self._principal(principal), peer=peer)

    def waited(self, hop: Hop, peer: str, seconds: float) -> None:
        """See `HopListener`."""

    def ended(self, hop: Hop) -> None:
        """See `HopListener`."""
        event = _event_of(hop)
        if event is None:
            return
        self.note(
            event,
            **self._of_hop(hop),
            decision=_decision(hop),
            outcome=hop.state or ("failed" if hop.error else "done"),
            error=hop.error,
            ms=round(hop.seconds * 1000, 1),
            intent=hop.intent,
            **self._for_another(hop, event),
        )

    async def intend(self, hop: Hop) -> int:
        """See `HopGate`."""
        if hop.method not in _EVENTS:
            return 0
        return await self._journal.commit(self._entry("intent", **self._of_hop(hop)))

    async def begin(self, **told: str | float) -> None:
        """Write the first line of a process.

        Raises:
            AuditAwayError: it cannot be written.
        """
        await self._journal.commit(self._entry("start", **told))

    def note(self, event: str, **told: str | float) -> None:
        """Have a line written."""
        self._journal.note(self._entry(event, **told))

    def _of_hop(self, hop: Hop) -> Mapping[str, str]:
        return {
            "principal": self._principal(hop.principal) if hop.principal else "",
            "face": hop.face,
            "protocol": hop.protocol,
            "method": hop.method,
            "skill": hop.skill,
            "peer": hop.peer,
            "task": hop.task_id,
            "context": hop.context_id,
            "trace": hop.trace_id,
        }

    def _for_another(self, hop: Hop, event: str) -> Mapping[str, str]:
        """Whose task it is, and who answered, where an operator asked for somebody else."""
        if not hop.owner:
            return {}
        answered_by = self._principal(hop.principal) if event == _ANSWER else ""
        return {"owner": self._principal(hop.owner), "answered_by": answered_by}

    def _entry(self, event: str, **told: str | float) -> JsonObject:
        """A line without what is empty."""
        when = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        full = {"plan": self.plan, **told}
        return {
            "event": event,
            "time": when,
            **{name: one for name, one in full.items() if one not in ("", 0)},
        }


def _event_of(hop: Hop) -> str | None:
    """The event that a hop is; None when it has no line."""
    event = _EVENTS.get(hop.method)
    if hop.side == "client":
        return None if event is None else "sent"
    if hop.error in _NOT_ADMITTED:
        return "refused"
    if event == _CALL:
        return _ANSWER if hop.is_answer else _OWN_TOOLS.get(hop.skill, _CALL)
    return event


def _decision(hop: Hop) -> str:
    """Whether the request was let through. One that failed before its peer was chosen was not."""
    return "refused" if hop.error and not hop.peer and hop.side == "server" else "allowed"
