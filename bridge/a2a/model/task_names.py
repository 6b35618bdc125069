"""The names that clients give to tasks, in versions of A2A in which clients make the task ids. Pure.

A name belongs to one task of a principal at a time: after a task has ended, another task may have its name. So the
server still makes the id of a task, and puts the name into the id. The current task of a name is found by the id of the
message that began the task; this id is made from the name.
"""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final

NAME_BYTES: Final = 256
"""The longest name, so that an id that contains the name is within the bound on ids."""

_NAMED: Final = ".as."


def named_id(task_id: str, name: str) -> str:
    """The id of a task with this name of its client. The id is safe in a path, whatever the name is."""
    return f"{task_id}{_NAMED}{urlsafe_b64encode(name.encode()).decode().rstrip('=')}"


def name_of(task_id: str) -> str:
    """The name that a client gave to a task (the reverse of `named_id`), or the task's id if no client named it."""
    _, is_named, name = task_id.partition(_NAMED)
    if not is_named:
        return task_id
    try:
        return urlsafe_b64decode(name + "=" * (-len(name) % 4)).decode() or task_id
    except ValueError:
        return task_id


def beginning_of(name: str) -> str:
    """The id of the message that began the task of this name, as it is stored."""
    return f"begins-{hashlib.sha256(name.encode()).hexdigest()}"
