"""The patterns of schemas: their cost, a cache of compiled patterns, and matching in bounded time. Pure.

A pattern of 11 characters can compile to 10 MB: `\\w{1,150}x` repeats a class of 140,000 characters. So the cost of a
pattern is estimated from its text before it is compiled. A heavy pattern is not compiled at all, and a text that would
take long to match is not matched; then the server has to check it. Matching takes linear time, but a match cannot be
interrupted.

Spec: JSON Schema 2020-12 validation, section 6.3.3; the syntax is that of the engine, Rust's regex.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Final

from pydantic_core import SchemaError as BadSchemaError
from pydantic_core import SchemaValidator, core_schema

LIGHT_WEIGHT: Final = 5_000
"""Up to this weight a pattern is compiled at once, in half a millisecond: `^\\d{4}-\\d{2}-\\d{2}$` weighs 1,200, and
`^[A-Za-z0-9_-]{1,64}$` weighs 1,700."""
MOST_WEIGHT: Final = 80_000
"""The heaviest pattern that is compiled. This takes 8 ms and 3 MB: `^\\w{1,32}$` weighs 70,000."""
KEPT_WEIGHT: Final = 500_000
"""The weight of all cached patterns, about 20 MB. The least recently used patterns are dropped first."""
KEPT_MOST: Final = 1_000
"""The most cached patterns, including refused patterns."""
MOST_CHARACTERS: Final = 5_000
"""The longest pattern that is considered."""

LIGHT_WORK: Final = 500_000
"""The bound for matching at once, as positions in the program times characters of the text: at most 4 ms."""
MOST_WORK: Final = 12_500_000
"""The bound for matching in a worker: at most 0.1 s, in which the rest of the process stands still."""

_ANY: Final = 30
_PROPERTY: Final = 2_200
_CLASS_WEIGHTS: Final[Mapping[str, int]] = {
    **dict.fromkeys("dD", 150),
    **dict.fromkeys("sS", 100),
    **dict.fromkeys("wWpP", _PROPERTY),
    **dict.fromkeys("bB", 10),
}
"""The weights of classes with a backslash. A letter weighs 1, which stands for 0.1 microseconds and 40 bytes."""
_REPEATED: Final = re.compile(r"\{(\d*)(,?)(\d*)\}")
_GROUP: Final = re.compile(r"\?(?:P?<[^>]*>|[a-zA-Z-]*:?)")
_LONGEST_NUMBER: Final = 6


@dataclass(frozen=True, slots=True)
class PatternCost:
    """The cost of a pattern."""

    weight: int
    """The weight of the compiled program."""
    positions: int
    """The number of positions in the program at which a search may be at the same time."""


def cost_of(pattern: str) -> PatternCost:
    """An upper bound on the cost of a pattern, from its text. An invalid pattern has a cost, too."""
    reader = _Weigher(pattern)
    reader.read()
    return PatternCost(reader.weight, max(reader.positions, 1))


class _Weigher:
    """Reads a pattern from left to right, and adds up its cost. Open groups are on a stack."""

    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0
        self._above: list[tuple[int, int]] = []
        self.weight = self.positions = 0
        self._last = (0, 0)
        """The weight and positions of the item that a following repetition would repeat."""

    def read(self) -> None:
        while self._at < len(self._text):
            character = self._text[self._at]
            self._at += 1
            match character:
                case "(":
                    self._above.append((self.weight, self.positions))
                    self.weight, self.positions, self._last = 0, 0, (0, 0)
                    if match := _GROUP.match(self._text, self._at):
                        self._at = match.end()
                case ")" if self._above:
                    self._last = self.weight + 2, self.positions
                    weight, positions = self._above.pop()
                    self.weight, self.positions = weight + self._last[0], positions + self._last[1]
                case "{" if match := _REPEATED.match(self._text, self._at - 1):
                    self._at = match.end()
                    self._repeat(_number(match[3]) or _number(match[1]) or 1)
                case "*" | "+" | "?":
                    self._add(1, 0, keeps=True)
                case "[":
                    self._add(self._class(), 1)
                case "\\":
                    self._add(self._escape(), 1)
                case ".":
                    self._add(_ANY, 1)
                case _:
                    self._add(1 if character.isascii() else 4, 1)

    def _add(self, weight: int, positions: int, *, keeps: bool = False) -> None:
        self.weight += weight
        self.positions += positions
        if not keeps:
            self._last = weight, positions

    def _repeat(self, times: int) -> None:
        weight, positions = self._last
        self.weight += weight * (times - 1)
        self.positions += positions * (times - 1)
        self._last = weight * times, positions * times

    def _escape(self) -> int:
        letter = self._text[self._at : self._at + 1]
        self._at += 1
        if letter in ("p", "P", "x", "u", "U") and self._text[self._at : self._at + 1] == "{":
            self._at = (self._text.find("}", self._at) + 1) or len(self._text)
        return _CLASS_WEIGHTS.get(letter, 1)

    def _class(self) -> int:
        """The weight of a class of characters. Classes may be nested."""
        weight, depth = _ANY if self._text[self._at : self._at + 1] == "^" else 2, 1
        while self._at < len(self._text) and depth:
            character = self._text[self._at]
            self._at += 1
            if character == "\\":
                weight += self._escape()
            elif character == "[":
                depth += 1
            elif character == "]":
                depth -= 1
            else:
                weight += 2 if character.isascii() else 16
        return weight


def _number(digits: str) -> int:
    return int(digits) if 0 < len(digits) <= _LONGEST_NUMBER else 10**_LONGEST_NUMBER if digits else 0


@dataclass(frozen=True, slots=True)
class _Known:
    cost: PatternCost
    matcher: SchemaValidator | None
    """The compiled pattern; None if it is too heavy, or needs more than linear time (lookaround, backreferences)."""


class PatternTooSlowError(Exception):
    """The pattern or its match takes too long for the event loop, but not for a worker."""


class Patterns:
    """A cache of compiled and refused patterns. It is thread-safe."""

    def __init__(self, kept_weight: int = KEPT_WEIGHT, kept_most: int = KEPT_MOST) -> None:
        self._kept_weight = kept_weight
        self._kept_most = kept_most
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._weight = 0
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._known)

    def found_in(self, pattern: str, text: str, *, in_worker: bool) -> bool | None:
        """Whether a pattern is found in a text; None if the search takes more than linear time, or costs too much.

        Raises:
            PatternTooSlowError: the caller is on the event loop, and a worker could find the answer.
        """
        known = self._of(pattern, LIGHT_WEIGHT if not in_worker else MOST_WEIGHT)
        if known.matcher is None:
            return None
        work = known.cost.positions * len(text)
        if work > MOST_WORK:
            return None
        if work > LIGHT_WORK and not in_worker:
            raise PatternTooSlowError
        return known.matcher.isinstance_python(text)

    def _of(self, pattern: str, most_weight: int) -> _Known:
        if len(pattern) > MOST_CHARACTERS:
            return _TOO_LONG
        with self._lock:
            if (known := self._known.get(pattern)) is not None:
                self._known.move_to_end(pattern)
                return known
        cost = cost_of(pattern)
        if most_weight < cost.weight <= MOST_WEIGHT:
            raise PatternTooSlowError
        known = _Known(cost, None if cost.weight > MOST_WEIGHT else _compiled(pattern))
        with self._lock:
            if self._known.setdefault(pattern, known) is known:
                self._weight += _kept_weight(known)
            while self._weight > self._kept_weight or len(self._known) > self._kept_most:
                self._weight -= _kept_weight(self._known.popitem(last=False)[1])
        return known


_TOO_LONG: Final = _Known(PatternCost(MOST_WEIGHT + 1, 1), None)


def _kept_weight(known: _Known) -> int:
    return 0 if known.matcher is None else known.cost.weight


def _compiled(pattern: str) -> SchemaValidator | None:
    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
    except BadSchemaError:
        return None
