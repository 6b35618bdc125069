"""Puts the layers around an engine."""

from __future__ import annotations

from bridge.a2a.layers.operations import TaskOperations
from bridge.a2a.layers.operators import Operators
from bridge.a2a.tasks.engine import Engine


def layers_around(engine: Engine, *, operators: bool) -> TaskOperations:
    """The operations of an engine with the layers that the configuration asks for. `operators` says that some callers
    may be operators."""
    tasks: TaskOperations = engine
    if operators:
        tasks = Operators(tasks, engine)
    return tasks
