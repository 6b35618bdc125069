"""A map with a bound on its entries. A new entry above the bound replaces the oldest."""

from __future__ import annotations

from collections import UserDict
from typing import TypeVar

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class BoundedMap(UserDict[_Key, _Value]):
    """A map that drops its oldest entry when a new entry exceeds the bound. An entry that is set again becomes the
    newest.

    If each read sets the entry again, the map drops the least recently used entry.
    """

    def __init__(self, most: int) -> None:
        """`most` is 1 or more."""
        super().__init__()
        self.most = most

    def __setitem__(self, key: _Key, item: _Value) -> None:
        """Set an entry as the newest."""
        self.data.pop(key, None)
        self.data[key] = item
        while len(self.data) > self.most:
            del self.data[next(iter(self.data))]
