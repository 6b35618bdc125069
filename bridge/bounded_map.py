"""A map of at most so many entries, whose oldest entry goes first."""

from __future__ import annotations

from collections import UserDict
from typing import TypeVar

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class BoundedMap(UserDict[_Key, _Value]):
    """A map that drops its oldest entry when an entry too many is set. An entry that is set again is the newest.

    A map whose reads set what they have read drops the entry that was not used for the longest time.
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
