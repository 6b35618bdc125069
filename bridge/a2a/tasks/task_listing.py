"""ListTasks: requests to queries, rows to tasks and pages, and page tokens. Pure.

Spec: A2A 1.0 section 3.1.4.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from bridge.a2a.model.errors import Violation, invalid_params
from bridge.a2a.model.life import with_history, without_artifacts
from bridge.a2a.model.objects import (
    ListTasksRequest,
    ListTasksResponse,
    Task,
    TaskState,
    TaskStatus,
    is_id,
    made,
    milliseconds,
    timestamp,
)
from bridge.a2a.tasks.moments import NO_LINES, MomentLines
from bridge.a2a.tasks.rows import folded
from bridge.identity.callers.principals import Principal
from bridge.store.records import Cursor, Query, StoredTask, TaskPage

logger = logging.getLogger(__name__)

DEFAULT_PAGE_SIZE: Final = 50
"""The size of a page if pageSize is absent (section 3.1.4)."""

PAGE_BYTES: Final = 8 * 1024 * 1024
"""The bound on the size of a page's tasks in the store. A task beyond it begins the next page."""
PAGE_CONTAINERS: Final = 50_000
"""The bound on the objects and arrays in the tasks of a page, as counted in the text. A text like `{},{},` takes a
hundred times its size once it is parsed. A task with a few answers has some dozens."""
HEAVY_CONTAINERS: Final = 2_000
"""A task with more objects and arrays is parsed in a thread."""

_BEYOND_ANY_TIME: Final = 2**53
"""A time in milliseconds. A token with a later time is refused: a client made it up, and a store may be unable to
compare it."""


def query_from(request: ListTasksRequest, principal: Principal) -> Query:
    """The query for a request, over the tasks of this principal only.

    Raises:
        A2AError: INVALID_PARAMS for a foreign page token, or for an anonymous caller without a contextId.
    """
    if request.context_id is None and not principal.may_list_all:
        raise invalid_params(Violation("contextId", "is needed to list tasks without authentication"))
    since = request.status_timestamp_after
    return Query(
        owner=principal.name,
        limit=request.page_size or DEFAULT_PAGE_SIZE,
        context_id=request.context_id,
        state=request.status.value if request.status else None,
        status_from_ms=None if since is None else milliseconds(since),
        after=_cursor_from(request.page_token) if request.page_token else None,
    )


def containers_in(row: StoredTask) -> int:
    """An upper bound of the objects and arrays in a stored task. Brackets in texts are counted, too."""
    return sum(text.count(b"{") + text.count(b"[") for text in (row.snapshot, *row.events))


def bounded(listing: TaskPage) -> TaskPage:
    """The first tasks of a page that are within PAGE_BYTES and PAGE_CONTAINERS, and at least one task."""
    left_bytes, left_containers = PAGE_BYTES, PAGE_CONTAINERS
    for place, row in enumerate(listing.tasks):
        left_bytes -= len(row.snapshot) + sum(map(len, row.events))
        left_containers -= containers_in(row)
        if place and (left_bytes < 0 or left_containers < 0):
            return replace(listing, tasks=listing.tasks[:place], more=True)
    return listing


def response_from(listing: TaskPage, tasks: Sequence[Task], request: ListTasksRequest) -> ListTasksResponse:
    """The page that answers a request, with artifacts only if the request includes them."""
    listed = [with_history(task, request.history_length) for task in tasks]
    if not request.include_artifacts:
        listed = [without_artifacts(task) for task in listed]
    last = listing.tasks[-1] if listing.more and listing.tasks else None
    return made(
        ListTasksResponse,
        tasks=tuple(listed),
        next_page_token="" if last is None else _token_from(Cursor(last.head.status_ms, last.task_id)),
        page_size=request.page_size or DEFAULT_PAGE_SIZE,
        total_size=listing.total,
    )


def _token_from(cursor: Cursor) -> str:
    return base64.urlsafe_b64encode(f"{cursor.status_ms}:{cursor.task_id}".encode()).decode().rstrip("=")


def _cursor_from(token: str) -> Cursor:
    try:
        text = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()
        milliseconds_text, colon, task_id = text.partition(":")
        if not colon or not is_id(task_id):
            raise ValueError("no task")
        status_ms = int(milliseconds_text)
        if not 0 <= status_ms < _BEYOND_ANY_TIME:
            raise ValueError("no time")
        return Cursor(status_ms, task_id)
    except ValueError as exc:
        raise invalid_params(Violation("pageToken", "is not a token that ListTasks gave out")) from exc


def listed_task(stored: StoredTask) -> tuple[Task, MomentLines]:
    """A task for a list. A task that cannot be read is shown with its state alone, so that the list does not fail."""
    try:
        return folded(stored)
    except ValueError:
        logger.exception("task %s cannot be read", stored.task_id)
        status = made(
            TaskStatus, state=TaskState(stored.head.state), timestamp=timestamp(stored.head.status_ms)
        )
        return made(Task, id=stored.task_id, context_id=stored.origin.context_id, status=status), NO_LINES
