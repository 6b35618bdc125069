"""`frozen`: the decorator for values that every call makes.

A frozen dataclass sets each field by `object.__setattr__`, because its own `__setattr__` refuses. That takes four times
as long as a plain assignment, and a call makes about forty such values. A class with `@frozen` is frozen for mypy only,
and mypy checks the whole bridge. Its objects have the comparison and the hash of a frozen dataclass.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

_ValueT = TypeVar("_ValueT")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(kind: type[_ValueT]) -> type[_ValueT]:
    """Make a class a dataclass with slots, whose objects no code may change."""
    return dataclass(slots=True, unsafe_hash=True)(kind)
