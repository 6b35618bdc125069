"""The bridge's own notes in a task, such as on calls that wait for each other and on messages that had no effect.

At the end of a task, a note is a part of the last message, and also stands in the message's metadata under its own key.
So a reader can tell the note from the tool's result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from bridge.a2a.model.objects import Message, Part, timestamp
from bridge.a2a.tasks.agent import Job
from bridge.mcp.client.call_queue import Claimant, SlotHold
from bridge.text.jsonvalues import JsonObject
from bridge.translate.extensions.bridge import BESIDE, LOST_SESSION, UNATTRIBUTED, UNUSED

UNANSWERED: Final = (
    "The question of the tool server {} was not answered within {:g} s, so the call was given up"
)
RIGHTS_ENDED: Final = (
    "The tool server {} asked a question during a call with the rights of its caller, and the token with which the call"
    " began has expired, so no answer can be sent any more. Call again with a valid token"
)
GAVE_WAY: Final = (
    "Other calls waited for this server, which takes no other call while this task waits for an answer, so the question"
    " was withdrawn without an answer. Send the message again to be asked again"
)
_CONTENDED: Final = (
    "Other calls wait for this server, which takes no other call while this task waits for an answer. Without an answer"
    " by {}, the question may be withdrawn"
)
MISSED: Final = (
    "While {} calls were running, the server asked a question that may have belonged to this task, so nobody could be"
    " asked. If the result is not what it should be, send the message again: from now on, a session with this server"
    " runs one call at a time"
)
_UNUSED: Final = (
    "{} of the messages that arrived while this task worked answered none of its questions, and had no effect"
)
SESSION_IS_LOST: Final = (
    "The replica of the bridge that had the session with the tool server is gone, so this task ran in a new session,"
    " without the state of the lost session"
)
_BESIDE: Final = "In this context, {} for an answer; name the task in taskId to give it"


def notes_of(job: Job, missed: str | None = None) -> dict[str, str]:
    """The notes by metadata key. `missed` is the note about a question that may have belonged to this task."""
    notes: Mapping[str, str | None] = {
        UNATTRIBUTED: missed,
        UNUSED: _UNUSED.format(len(job.held)) if job.held else None,
        BESIDE: _BESIDE.format(_waiting(job.turn.beside)) if job.turn.beside else None,
        LOST_SESSION: SESSION_IS_LOST if job.turn.lost_session else None,
    }
    return {key: words for key, words in notes.items() if words is not None}


def message_with_notes(
    job: Job, parts: Sequence[Part], metadata: JsonObject | None = None, missed: str | None = None
) -> Message:
    """A message of the task, with its notes."""
    asides = notes_of(job, missed)
    content = (*parts, *(Part(text=words) for words in asides.values()))
    return job.message(content, {**(metadata or {}), **asides} or None)


def _waiting(task_ids: Sequence[str]) -> str:
    if len(task_ids) == 1:
        return f"task {task_ids[0]} still waits"
    return f"tasks {', '.join(task_ids)} still wait"


def words_on_contention(seconds: float, now_ms: int) -> str:
    """The text that tells a client that other calls wait for the server whose question is open."""
    return _CONTENDED.format(timestamp(now_ms + round(seconds * 1000)))


def words_on_waiting(server: str, hold: SlotHold, mine: Claimant, now_ms: int) -> str:
    """The text that tells a client that its call waits for another call, which waits for an answer."""
    holder = hold.caller
    is_known = holder.principal == mine.principal and not holder.is_secret
    by = timestamp(now_ms + round(hold.ends_in_seconds * 1000))
    if is_known:
        return (
            f"This task waits for {server}, which takes no other call while task {holder.task_id} waits for an answer."
            f" Answer that task or cancel it. Without an answer by {by}, its question is withdrawn"
        )
    return (
        f"This task waits for {server}, which takes no other call while another caller's task waits for an answer."
        f" Without an answer by {by}, the question is withdrawn"
    )
