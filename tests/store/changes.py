"""Helpers that make and store changes, for the tests of every store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from bridge.store.records import Change, MessageKey, TaskHead, TaskOrigin

if TYPE_CHECKING:
    from bridge.store.contract import Store


def first(
    task_id: str,
    *,
    owner: str = "ann",
    context_id: str = "talk",
    created_ms: int = 10,
    head: TaskHead | None = None,
    message: MessageKey | None = None,
    replaces: str | None = None,
) -> Change:
    """The change that creates a task."""
    return Change(
        task_id,
        seq=1,
        event=b"made",
        head=head or TaskHead("submitted", ended=False, status_ms=created_ms),
        snapshot=b"task as made",
        origin=TaskOrigin(context_id, owner, created_ms),
        message=message,
        replaces=replaces,
    )


async def keep_all(store: Store, *changes: Change) -> list[Exception | None]:
    """Submit changes together, and wait for all outcomes, in the order of their arrival."""
    answers: list[Exception | None] = []
    answered = anyio.Event()

    def done(error: Exception | None) -> None:
        answers.append(error)
        if len(answers) == len(changes):
            answered.set()

    for change in changes:
        store.submit(change, done)
    with anyio.fail_after(10):
        await answered.wait()
    return answers


async def keep(store: Store, *changes: Change) -> None:
    """Store changes that must be accepted."""
    for error in await keep_all(store, *changes):
        if error is not None:
            raise error
