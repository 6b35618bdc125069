"""What is refused about a task because of the state that it is in. Pure."""

from __future__ import annotations

from bridge.a2a.model.errors import (
    OVERLOADED,
    TASK_NOT_CANCELABLE,
    UNAVAILABLE,
    UNSUPPORTED_OPERATION,
    A2AError,
)
from bridge.a2a.model.life import ENDED, INTERRUPTED
from bridge.a2a.model.objects import Task


def require_answerable(task: Task) -> None:
    """Only a task that asks for something takes messages (sections 3.1.1 and 3.4.3).

    Raises:
        A2AError: UNSUPPORTED_OPERATION.
    """
    state = task.status.state
    if state in ENDED:
        raise A2AError(
            UNSUPPORTED_OPERATION,
            f"The task has ended ({state}) and takes no more messages; leave out taskId to start another",
            metadata={"taskId": task.id},
        )
    if state not in INTERRUPTED:
        raise task_is_at_work(task)


def task_is_at_work(task: Task) -> A2AError:
    """The task takes no more messages until it asks."""
    return A2AError(
        UNSUPPORTED_OPERATION,
        "The task is at work and takes no more messages until it asks for input",
        metadata={"taskId": task.id},
    )


def task_history_is_full(task: Task) -> A2AError:
    """The task holds as much as one may."""
    return A2AError(
        UNSUPPORTED_OPERATION,
        "The task's history is full, so it takes no more messages; cancel it, or leave out taskId to start another",
        metadata={"taskId": task.id},
    )


def too_many_open_tasks(most: int) -> A2AError:
    """A principal has as many tasks that have not ended as it may."""
    return A2AError(
        OVERLOADED,
        f"{most} of your tasks have not ended, and there may be no more: answer or cancel some",
        headers={"Retry-After": "5"},
    )


def task_not_cancelable(task: Task) -> A2AError:
    """Its end came first (section 3.1.5)."""
    return A2AError(
        TASK_NOT_CANCELABLE,
        f"The task has already ended ({task.status.state})",
        metadata={"taskId": task.id},
    )


def temporarily_unavailable(why: str) -> A2AError:
    """Nothing is taken in at the moment; try again."""
    return A2AError(UNAVAILABLE, why, headers={"Retry-After": "5"})


def task_has_ended(task: Task) -> A2AError:
    """There is nothing left to watch (section 3.1.6)."""
    return A2AError(
        UNSUPPORTED_OPERATION,
        f"The task has ended ({task.status.state}); get it with GetTask",
        metadata={"taskId": task.id},
    )
