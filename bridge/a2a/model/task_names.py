"""The names that clients give to tasks, in generations where they make the ids themselves. Pure.

A name holds for one principal and one task at a time: once a task has ended, the next one may have it. So a task has
an id that the server made all the same, and the name stands in it. Which task has a name now is asked by the id of
the message that began it, which is made of the name.
"""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final

NAME_BYTES: Final = 256
"""How long a name may be, so that an id with it in it is not longer than ids may be."""

_NAMED: Final = ".as."


def named_id(task_id: str, name: str) -> str:
    """The id of a task that its client calls so: safe in a path, whatever the name is."""
    return f"{task_id}{_NAMED}{urlsafe_b64encode(name.encode()).decode().rstrip('=')}"


def name_of(task_id: str) -> str:
    """What its client calls a task: the reverse of `named_id`, or its id where no client named it."""
    _, is_named, name = task_id.partition(_NAMED)
    if not is_named:
        return task_id
    try:
        return urlsafe_b64decode(name + "=" * (-len(name) % 4)).decode() or task_id
    except ValueError:
        return task_id


def beginning_of(name: str) -> str:
    """The id under which the message is kept that began the task of this name."""
    return f"begins-{hashlib.sha256(name.encode()).hexdigest()}"
