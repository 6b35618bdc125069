"""Turns hops into audit lines: who asked whom for what, the decision and the outcome. Never the content of messages.

A request to an endpoint gets a line when it has been answered: a call, an answer, a cancellation, a webhook, and every
request refused because of its sender. A request to a peer gets a line too, because a call may be answered before its
work is done. A principal gets a line when its credential is first seen. Requests that only read get no line, unless an
operator reads the tasks of somebody else.

Anybody can send requests that are refused, so the lines about unknown senders are bounded.
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
    DefinitionDiffers,
    LoginNotice,
    LoginTaken,
    ModelAsked,
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
"""The method of a question in an open call. The line about the host's answer names it."""

_EVENTS: Final[Mapping[str, str]] = {
    "SendMessage": _CALL,
    "SendStreamingMessage": _CALL,
    "tools/call": _CALL,
    "ReadLink": _CALL,
    "tasks/update": _ANSWER,
    _ELICIT: _ANSWER,
    "CancelTask": _CANCEL,
    "tasks/cancel": _CANCEL,
    "CreateTaskPushNotificationConfig": "webhook_added",
    "DeleteTaskPushNotificationConfig": "webhook_removed",
}
"""The methods that get a line, and the event of each."""

_REQUESTS: Final = frozenset(
    {
        *("resources/list", "resources/templates/list", "resources/read", "resources/subscribe"),
        *("prompts/list", "prompts/get", "completion/complete"),
    }
)
"""The requests of MCP that get a line if an agent answers them."""

_OWN_TOOLS: Final[Mapping[str, str]] = {"task_reply": _ANSWER, "task_cancel": _CANCEL}
"""The bridge's own MCP tools whose calls are another event than `call`."""

_NOT_ADMITTED: Final = frozenset(
    {"UNAUTHENTICATED", "FORBIDDEN", "MISDIRECTED", "HTTP_400", "HTTP_401", "HTTP_403", "HTTP_421"}
)
"""The errors of requests that were refused because of their sender."""

_READS: Final = frozenset({"GetTask", "ListTasks", "SubscribeToTask"})
"""The methods that get a line if an operator reads the tasks of somebody else."""

_BY_ANYBODY: Final = frozenset({"refused", "failed"})
"""The events of a login that a request of an unknown sender can cause."""

_SEEN_MOST: Final = 10_000
"""The most sign-ins, logins and operators' reads that are remembered. Above it all are forgotten and recorded again."""

_READ_AGAIN_SECONDS: Final = 600.0
"""The time after which the same read by an operator gets another line. An open page reads repeatedly."""

_MINUTE_SECONDS: Final = 60.0


class AuditRecorder:
    """Listens to hops and notices, and queues their lines."""

    def __init__(
        self,
        journal: AuditJournal,
        principal: Callable[[str], str],
        refused_each_minute: int,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`principal` returns the name of a principal in the audit. `refused_each_minute` bounds the lines about
        refusals of unknown senders."""
        self._journal = journal
        self._principal = principal
        self._now = now
        self._seen: set[str] = set()
        self._logins: dict[str, float] = {}
        """The time of the operator's login at each peer. Each session asks for its token, but only a new login gets a
        line."""
        self._read_at: dict[tuple[str, ...], float] = {}
        """The time of the last line about each read by an operator."""
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
        """Record that a principal has shown its credential."""
        self.note("sign_in", principal=self._principal(principal), face=face, protocol=protocol)

    def refused(self, face: str, error: str, principal: str = "") -> None:
        """Record a refusal at a page, within the bound for such lines. The principal may not be the sender: a foreign
        web page can make its browser send requests."""
        if self._refusals.has_room():
            who = self._principal(principal) if principal else ""
            self.note(_REFUSED, principal=who, face=face, decision="refused", outcome="failed", error=error)

    def noticed(self, notice: Notice) -> None:
        """Record an event that is no hop."""
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
                # Anyone with the link can open it repeatedly.
                if notice.event in _BY_ANYBODY and not self._refusals.has_room():
                    return
                principal = self._owner(notice.principal)
                self.note(f"login_{notice.event}", principal=principal, peer=notice.peer)
            case LoginTaken():
                self._note_login(notice)
            case WebhookAsked():
                principal = self._principal(notice.principal)
                fields = {
                    "face": notice.face,
                    "protocol": "a2a",
                    "task": notice.task,
                    "target": notice.target,
                }
                self.note("webhook_added", principal=principal, **fields, decision="allowed")
            case AnswerTaken():
                self._note_answer(notice)
            case ModelAsked():
                self._note_model(notice)
            case DefinitionDiffers():
                decision = "allowed" if notice.is_offered else "refused"
                self.note(
                    "definition",
                    peer=notice.peer,
                    skill=notice.name,
                    change=notice.change,
                    decision=decision,
                )
            case PushAttempt(outcome="given_up"):
                self.note("webhook_given_up", face=notice.face, task=notice.task, target=notice.target)
            case PushReceived(outcome="refused"):
                self.refused("push", f"HTTP_{notice.status}")
            case PushAttempt() | PushReceived():
                pass

    def _note_answer(self, notice: AnswerTaken) -> None:
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

    def _note_model(self, notice: ModelAsked) -> None:
        self.note(
            "model",
            principal=self._principal(notice.principal),
            face=notice.face,
            protocol="a2a",
            task=notice.task,
            skill=notice.skill,
            model=notice.model,
            target=notice.host,
            tokens=notice.tokens,
            trace=notice.traceparent[3:35],
            outcome=notice.outcome,
            ms=round(notice.seconds * 1000, 1),
        )

    def _note_login(self, notice: LoginTaken) -> None:
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
        if event == _REFUSED and not hop.principal and not self._refusals.has_room():
            return
        self.note(
            event,
            **self._hop_fields(hop),
            target=hop.target,
            decision=_decision(hop),
            outcome=hop.state or ("failed" if hop.error else "done"),
            error=hop.error,
            ms=round(hop.seconds * 1000, 1),
            intent=hop.intent,
            **self._operator_fields(hop, event),
        )

    def read(self, principal: str, face: str, owner: str, task: str, hop: Hop | None = None) -> None:
        """Record that an operator has read a task of somebody else, or, with `EVERYONE`, the tasks of all. The same
        read within `_READ_AGAIN_SECONDS` gets no further line."""
        what, now = (principal, face, owner, task), self._now()
        if (before := self._read_at.get(what)) is not None and now - before < _READ_AGAIN_SECONDS:
            return
        if len(self._read_at) >= _SEEN_MOST:
            self._read_at.clear()
        self._read_at[what] = now
        fields = {"face": face, "task": task} if hop is None else self._hop_fields(hop)
        error = "" if hop is None else hop.error
        decision = "refused" if error else "allowed"
        self.note(
            _READ,
            **{**fields, "principal": self._principal(principal)},
            owner=self._owner(owner),
            decision=decision,
            error=error,
        )

    async def intend(self, hop: Hop) -> int:
        """See `IntentWriter`."""
        if hop.method not in _EVENTS and not (hop.peer and hop.method in _REQUESTS):
            return 0
        return await self._journal.commit(self._entry("intent", **self._hop_fields(hop)))

    async def begin(self, **fields: str | float) -> None:
        """Write the first line of a process.

        Raises:
            AuditAwayError: the line cannot be written.
        """
        await self._journal.commit(self._entry("start", **fields))

    def note(self, event: str, **fields: str | float) -> None:
        """Queue a line."""
        self._journal.note(self._entry(event, **fields, unlisted=self._refusals.take_excess()))

    def _owner(self, owner: str) -> str:
        return owner if owner in ("", EVERYONE) else self._principal(owner)

    def _hop_fields(self, hop: Hop) -> Mapping[str, str]:
        return {
            "principal": self._principal(hop.principal) if hop.principal else "",
            "face": hop.face,
            "protocol": hop.protocol,
            "method": hop.method,
            "skill": hop.skill,
            "subject": hop.subject,
            "peer": hop.peer,
            "task": hop.task_id,
            "context": hop.context_id,
            "trace": hop.trace_id,
        }

    def _operator_fields(self, hop: Hop, event: str) -> Mapping[str, str]:
        """The owner of the task, and who answered, if an operator acted for somebody else."""
        if not hop.owner:
            return {}
        answered_by = self._principal(hop.principal) if event == _ANSWER else ""
        return {"owner": self._owner(hop.owner), "answered_by": answered_by}

    def _entry(self, event: str, **fields: str | float) -> JsonObject:
        """A line without empty fields."""
        full = {"plan": self.plan, **fields}
        return {
            "event": event,
            "time": _timestamp(datetime.now(UTC)),
            **{name: value for name, value in full.items() if value not in ("", 0)},
        }


def _timestamp(when: datetime) -> str:
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _MinuteBound:
    """Bounds the lines of a kind in a minute, and counts the rest."""

    def __init__(self, most: int, now: Callable[[], float]) -> None:
        self._most = most
        self._now = now
        self._began = now()
        self._taken = 0
        self._over = 0

    def has_room(self) -> bool:
        """Whether another line fits into this minute. If not, it is counted."""
        now = self._now()
        if now - self._began >= _MINUTE_SECONDS:
            self._began, self._taken = now, 0
        if self._taken >= self._most:
            self._over += 1
            return False
        self._taken += 1
        return True

    def take_excess(self) -> int:
        """The number of lines that did not fit since the last call of this method."""
        over, self._over = self._over, 0
        return over


def _event_of(hop: Hop) -> str | None:
    """The event of a hop; None if it gets no line."""
    event = _EVENTS.get(hop.method)
    if hop.side == "server" and hop.peer and hop.method in _REQUESTS:
        return _CALL
    if hop.side == "client":
        return None if event is None else "sent"
    if hop.error in _NOT_ADMITTED:
        return _REFUSED
    if event == _CALL:
        return _ANSWER if hop.is_answer else _OWN_TOOLS.get(hop.skill, _CALL)
    return event


def _decision(hop: Hop) -> str:
    """Whether the request was allowed. A request that failed before its peer was chosen counts as refused."""
    return "refused" if hop.error and not hop.peer and hop.side == "server" else "allowed"
