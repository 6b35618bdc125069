"""ListTasks: requests to queries, rows to pages, and tokens between them."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import pytest

from bridge.a2a.model.errors import INVALID_PARAMS, A2AError
from bridge.a2a.model.objects import ListTasksRequest, Task
from bridge.a2a.tasks.task_listing import bounded, query_from, response_from
from bridge.identity.callers.principals import ANONYMOUS, LOCAL, Principal
from bridge.store.records import Cursor, Query, StoredTask, TaskHead, TaskOrigin, TaskPage

ALICE = Principal("alice")


def request(**fields: Any) -> ListTasksRequest:
    return ListTasksRequest.model_validate(fields)


def task(task_id: str) -> Task:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
    return Task.model_validate(
        {
            "id": task_id,
            "contextId": "c",
            "status": {"state": "TASK_STATE_COMPLETED"},
            "artifacts": [{"artifactId": "a", "parts": [{"text": "x"}]}],
            "history": [message, {**message, "messageId": "n"}],
        }
    )


def row(task_id: str, status_ms: int) -> StoredTask:
    return StoredTask(task_id, TaskOrigin("c", "alice", 0), TaskHead("s", True, status_ms), 1, b"", (), b"")


@pytest.mark.proves("a2a-3.1.4-list")
@pytest.mark.parametrize(
    ("fields", "query"),
    [
        ({}, Query("alice", 50)),
        (
            {
                "contextId": "c",
                "status": "TASK_STATE_WORKING",
                "pageSize": 7,
                "statusTimestampAfter": "1970-01-01T00:00:01Z",
                "pageToken": "",
            },
            Query("alice", 7, context_id="c", state="TASK_STATE_WORKING", status_from_ms=1000),
        ),
        ({"contextId": ""}, Query("alice", 50)),
        ({"pageSize": "100"}, Query("alice", 100)),
    ],
)
def test_a_request_asks_for_rows_of_its_principal(fields: Any, query: Query) -> None:
    assert query_from(request(**fields), ALICE) == query


@pytest.mark.proves("a2a-13.1-scope")
def test_an_anonymous_caller_lists_by_context_only() -> None:
    with pytest.raises(A2AError, match="contextId") as refused:
        query_from(request(contextId=""), ANONYMOUS)
    assert refused.value.kind is INVALID_PARAMS
    assert query_from(request(contextId="c"), ANONYMOUS).context_id == "c"
    assert query_from(request(), LOCAL).context_id is None


@pytest.mark.proves("a2a-3.1.4-list")
@pytest.mark.parametrize("last", [row("t2", 1234), row("id:with:colons-é", 0)])
def test_the_token_of_a_page_leads_to_the_row_after_it(last: StoredTask) -> None:
    listing = TaskPage((row("t1", 2000), last), total=9, more=True)
    page = response_from(listing, [task("t1"), task(last.task_id)], request(pageSize=2))
    assert (page.page_size, page.total_size) == (2, 9)
    following = query_from(request(pageSize=2, pageToken=page.next_page_token), ALICE)
    assert following.after == Cursor(last.head.status_ms, last.task_id)


@pytest.mark.proves("a2a-3.1.4-list")
def test_the_last_page_has_an_empty_token() -> None:
    listing = TaskPage((row("t1", 1),), total=1, more=False)
    assert response_from(listing, [task("t1")], request(historyLength=0)).to_object() == {
        "tasks": [{"id": "t1", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}}],
        "nextPageToken": "",
        "pageSize": 50,
        "totalSize": 1,
    }
    assert response_from(TaskPage((), 0, more=False), [], request()).to_object() == {
        "tasks": [],
        "nextPageToken": "",
        "pageSize": 50,
        "totalSize": 0,
    }


@pytest.mark.proves("a2a-3.1.4-artifacts", "a2a-3.2.4-history")
@pytest.mark.parametrize(
    ("fields", "artifacts", "history"),
    [
        ({}, 0, 2),
        ({"includeArtifacts": False, "historyLength": 1}, 0, 1),
        ({"includeArtifacts": True, "historyLength": 0}, 1, 0),
        ({"includeArtifacts": True, "historyLength": 9}, 1, 2),
    ],
)
def test_artifacts_and_history_are_shown_as_asked(fields: Any, artifacts: int, history: int) -> None:
    listing = TaskPage((row("t1", 1),), total=1, more=False)
    (shown,) = response_from(listing, [task("t1")], request(**fields)).tasks
    assert (len(shown.artifacts or ()), len(shown.history or ())) == (artifacts, history)


def token(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()


@pytest.mark.proves("a2a-3.1.4-list")
@pytest.mark.parametrize(
    "made_up",
    [
        "x",
        "!",
        "é",
        token("5"),
        token(":t"),
        token("five:t"),
        token("-1:t"),
        token("1:t\0"),
        token(f"{2**63}:t"),
        token("9" * 5000 + ":t"),
        base64.urlsafe_b64encode(b"\xff\xfe").decode(),
    ],
)
def test_a_foreign_page_token_is_invalid(made_up: str) -> None:
    with pytest.raises(A2AError, match="pageToken") as refused:
        query_from(request(pageToken=made_up), ALICE)
    assert refused.value.kind is INVALID_PARAMS


@pytest.mark.proves("a2a-3.1.4-list")
@pytest.mark.parametrize(
    ("texts", "kept"),
    [
        ([b"{}"] * 100, 100),
        ([b"{}," * 20_000] * 100, 2),
        ([b"[]" * 60_000, b"{}"], 1),
        ([b"x" * (3 << 20)] * 9, 2),
        ([b"x" * (9 << 20), b"x"], 1),
        ([], 0),
    ],
)
def test_a_page_ends_before_its_tasks_are_too_large_to_be_read_and_says_that_more_follow(
    texts: list[bytes], kept: int
) -> None:
    rows = [replace(row(f"t{place}", place), snapshot=text) for place, text in enumerate(texts)]
    page = bounded(TaskPage(tasks=tuple(rows), total=len(rows), more=False))
    assert page.tasks == tuple(rows[:kept])
    assert page.more is (kept < len(rows))
    assert page.total == len(rows)
