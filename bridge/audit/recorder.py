"""What an audit tells of hops: who asked whom for what, what was decided, and how it went. Never what was said.

A request of a face has a line once it has been answered: a call, an answer, a cancellation, a webhook, and whatever was
refused because of who asked. A request to a peer has one too, since a call may be answered before its work is done. A
principal has one when it is first seen with its credential. Requests that only read have none, unless an operator reads
the tasks of somebody else.

Anybody can have requests refused, so there is a bound for the lines of those whose sender is not known.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final

from bridge.audit.journal import AuditJournal
from bridge.identity.callers.principals import EVERYONE
from bridge.notices import (
    AnswerTaken,
    LoginNotice,
    LoginTaken,
    Notice,
    PushAttempt,
    PushReceived,
    TokenNotice,
    WebhookAsked,
)
from bridge.text.jsonvalues import JsonObject
from bridge.trace import Hop

_CALL: Final = "call"
_ANSWER: Final = "answer"
_CANCEL: Final = "cancel"
_REFUSED: Final = "refused"
_READ: Final = "read"

_ELICIT: Final = "elicitation/create"
"""The answer of a host to a question of its open call names the method of the question."""

_EVENTS: Final[Mapping[str, str]] = {
    "SendMessage": _CALL,
    "SendStreamingMessage": _CALL,
    "tools/call": _CALL,
    "tasks/update": _ANSWER,
    _ELICIT: _ANSWER,
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

_READS: Final = frozenset({"GetTask", "ListTasks", "SubscribeToTask"})
"""The methods that have a line where an operator reads the tasks of somebody else."""

_BY_ANYBODY: Final = frozenset({"refused", "failed"})
"""What happens to a login by requests of which nobody knows whose they are."""

_SEEN_MOST: Final = 10_000
"""Principals whose sign-ins are remembered, and readings of operators. After that they are told again."""

_READ_AGAIN_SECONDS: Final = 600.0
"""How much later it is told again that an operator reads the same: a page that is open reads again and again."""

_MINUTE_SECONDS: Final = 60.0


class AuditRecorder:
    """Listens to hops, and has their lines written."""

    def __init__(
        self,
        journal: AuditJournal,
        principal: Callable[[str], str],
        refused_each_minute: int,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`principal` gives the name of a principal as the audit has it. `refused_each_minute` bounds the lines of
        refusals whose sender is not known."""
        self._journal = journal
        self._principal = principal
        self._now = now
        self._seen: set[str] = set()
        self._logins: dict[str, float] = {}
        """When the operator's login was made that is used at a peer, by peer: each session asks for its token."""
        self._read_at: dict[tuple[str, ...], float] = {}
        """When it was told last that an operator read a task."""
        self._refusals = _MinuteBound(refused_each_minute, now)
        self.plan = ""
        """The digest of the plan in force."""

    def began(self, hop: Hop) -> None:
        """See `HopListener`."""
        if hop.side != "server" or not hop.is_authenticated or hop.principal in self._seen:
            return
        if len(self._seen) >= _SEEN_MOST:
            self._seen.clear()
        self._seen.add(hop.principal)
        self.signed_in(hop.principal, hop.face, hop.protocol)

    def signed_in(self, principal: str, face: str, protocol: str = "") -> None:
        """Tell that a principal has shown its credential."""
        self.note("sign_in", principal=self._principal(principal), face=face, protocol=protocol)

    def refused(self, face: str, error: str, principal: str = "") -> None:
        """Tell that somebody was refused at a page, as far as there is room for such lines. A foreign page may have
        had the browser of a principal send what was refused."""
        if self._refusals.takes_one():
            who = self._principal(principal) if principal else ""
            self.note(_REFUSED, principal=who, face=face, decision="refused", outcome="failed", error=error)

    def noticed(self, notice: Notice) -> None:
        """Tell what happened beside the hops."""
        match notice:
            case TokenNotice():
                self.note(
                    "token",
                    principal=self._owner(notice.principal),
                    peer=notice.peer,
                    grant=notice.grant,
                    outcome=notice.outcome,
                    ms=round(notice.seconds * 1000, 1),
                )
            case LoginNotice():
                # Whoever has a link can open it again and again.
                if notice.event in _BY_ANYBODY and not self._refusals.takes_one():
                    return
                principal = self._owner(notice.principal)
                self.note(f"login_{notice.event}", principal=principal, peer=notice.peer)
            case LoginTaken():
                self._take(notice)
            case WebhookAsked():
                principal = self._principal(notice.principal)
                told = {"face": notice.face, "protocol": "a2a", "task": notice.task, "target": notice.target}
                self.note("webhook_added", principal=principal, **told, decision="allowed")
            case AnswerTaken():
                self.note(
                    _ANSWER,
                    principal=self._principal(notice.principal),
                    face=notice.face,
                    protocol="mcp",
                    method=_ELICIT,
                    skill=notice.skill,
                    peer=notice.peer,
                    trace=notice.trace,
                    decision="allowed",
                    outcome="done",
                    intent=notice.intent,
                )
            case PushAttempt(outcome="given_up"):
                self.note("webhook_given_up", face=notice.face, task=notice.task, target=notice.target)
            case PushReceived(outcome="refused"):
                self.refused("push", f"HTTP_{notice.status}")
            case PushAttempt() | PushReceived():
                pass

    def _take(self, notice: LoginTaken) -> None:
        if self._logins.get(notice.peer) == notice.since:
            return
        if len(self._logins) >= _SEEN_MOST:
            self._logins.clear()
        self._logins[notice.peer] = notice.since
        self.note(
            "login_taken", peer=notice.peer, since=_timestamp(datetime.fromtimestamp(notice.since, UTC))
        )

    def waited(self, hop: Hop, peer: str, seconds: float) -> None:
        """See `HopListener`."""

    def ended(self, hop: Hop) -> None:
        """See `HopListener`."""
        event = _event_of(hop)
        if event is None:
            if hop.owner and hop.method in _READS:
                self.read(hop.principal, hop.face, hop.owner, hop.task_id, hop)
            return
        if event == _REFUSED and not hop.principal and not self._refusals.takes_one():
            return
        self.note(
            event,
            **self._of_hop(hop),
            target=hop.target,
            decision=_decision(hop),
            outcome=hop.state or ("failed" if hop.error else "done"),
            error=hop.error,
            ms=round(hop.seconds * 1000, 1),
            intent=hop.intent,
            **self._for_another(hop, event),
        )

    def read(self, principal: str, face: str, owner: str, task: str, hop: Hop | None = None) -> None:
        """Tell that an operator has read a task of somebody else, or with `EVERYONE` those of all. It is told once in a
        while: the same reading again has no line."""
        what, now = (principal, face, owner, task), self._now()
        if (before := self._read_at.get(what)) is not None and now - before < _READ_AGAIN_SECONDS:
            return
        if len(self._read_at) >= _SEEN_MOST:
            self._read_at.clear()
        self._read_at[what] = now
        told = {"face": face, "task": task} if hop is None else self._of_hop(hop)
        error = "" if hop is None else hop.error
        decision = "refused" if error else "allowed"
        self.note(
            _READ,
            **{**told, "principal": self._principal(principal)},
            owner=self._owner(owner),
            decision=decision,
            error=error,
        )

    async def intend(self, hop: Hop) -> int:
        """See `IntentWriter`."""
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
        self._journal.note(self._entry(event, **told, unlisted=self._refusals.taken_over()))

    def _owner(self, owner: str) -> str:
        return owner if owner in ("", EVERYONE) else self._principal(owner)

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
        return {"owner": self._owner(hop.owner), "answered_by": answered_by}

    def _entry(self, event: str, **told: str | float) -> JsonObject:
        """A line without what is empty."""
        full = {"plan": self.plan, **told}
        return {
            "event": event,
            "time": _timestamp(datetime.now(UTC)),
            **{name: one for name, one in full.items() if one not in ("", 0)},
        }


def _timestamp(when: datetime) -> str:
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _MinuteBound:
    """Bounds how many lines of one sort are written in a minute, and counts the others."""

    def __init__(self, most: int, now: Callable[[], float]) -> None:
        self._most = most
        self._now = now
        self._began = now()
        self._taken = 0
        self._over = 0

    def takes_one(self) -> bool:
        """Whether there is room for one more in this minute."""
        now = self._now()
        if now - self._began >= _MINUTE_SECONDS:
            self._began, self._taken = now, 0
        if self._taken >= self._most:
            self._over += 1
            return False
        self._taken += 1
        return True

    def taken_over(self) -> int:
        """How many had no room since this was asked last."""
        over, self._over = self._over, 0
        return over


def _event_of(hop: Hop) -> str | None:
    """The event that a hop is; None when it has no line."""
    event = _EVENTS.get(hop.method)
    if hop.side == "client":
        return None if event is None else "sent"
    if hop.error in _NOT_ADMITTED:
        return _REFUSED
    if event == _CALL:
        return _ANSWER if hop.is_answer else _OWN_TOOLS.get(hop.skill, _CALL)
    return event


def _decision(hop: Hop) -> str:
    """Whether the request was let through. One that failed before its peer was chosen was not."""
    return "refused" if hop.error and not hop.peer and hop.side == "server" else "allowed"
