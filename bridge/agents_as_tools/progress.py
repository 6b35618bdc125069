"""What an agent says on its way, as the progress of a call."""

from __future__ import annotations

from bridge.a2a.model.life import SETTLED
from bridge.a2a.model.objects import StreamResponse, text_of
from bridge.mcp.server.face import Report
from bridge.translate.extension import PROGRESS


def tell_progress(event: StreamResponse, report: Report, *, extension_active: bool) -> str | None:
    """Report an event; gives the words of the agent in it, if there are any."""
    update, artifact = event.status_update, event.artifact_update
    if update is not None and update.status.state not in SETTLED:
        numbers = (update.metadata or {}).get(PROGRESS)
        found = numbers if isinstance(numbers, dict) else {}
        words = text_of(update.status.message.parts) if update.status.message else ""
        if found or words:
            report(_number(found.get("progress")), _number(found.get("total")), words or None)
        return words or None
    if artifact is not None and not extension_active:
        # (What an agent of ours gives is its tool's result, which says nothing before it is there.)
        report(None, None, f"{artifact.artifact.name or 'a result'} is coming in")
    return None


def _number(value: object) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
