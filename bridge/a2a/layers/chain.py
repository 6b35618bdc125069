"""Puts the layers around an engine."""

from __future__ import annotations

from bridge.a2a.layers.operations import TaskOperations
from bridge.a2a.layers.operators import Operators
from bridge.a2a.layers.replicated import Replicated
from bridge.a2a.tasks.engine import Engine
from bridge.store.contract import Store


def shared_tasks(engine: Engine, store: Store) -> TaskOperations:
    """The operations of a running engine. If other replicas use its store, they are served from now on."""
    if store.replicas is None:
        return engine
    replicated = Replicated(engine, store.replicas)
    replicated.start()
    return replicated


def layers_around(tasks: TaskOperations, engine: Engine, *, operators: bool) -> TaskOperations:
    """The operations with the layers that the configuration asks for. `tasks` are those of `shared_tasks`. `operators`
    says that some callers may be operators."""
    return Operators(tasks, engine) if operators else tasks
