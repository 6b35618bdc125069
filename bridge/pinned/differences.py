"""How the definitions of a server or agent differ from those in the lock. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from pydantic import JsonValue

from bridge.pinned.definitions import KINDS, NOUNS, Definitions, ItemKind
from bridge.text.jsonvalues import JsonObject, is_same
from bridge.text.safe_text import with_visible_characters

Change = Literal["new", "changed", "gone"]

_CHARACTERS: Final = 240
"""How much of a value one line of a difference shows."""
_LEAD_CHARACTERS: Final = 40
"""How much of it before the first difference."""
_SUMMED_MOST: Final = 3
"""The most values in the summary of a difference."""
_LINES_MOST: Final = 20
"""The most values that a difference shows for one item."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One value of a definition that differs. An absent value is None."""

    path: str
    before: JsonValue
    after: JsonValue

    def lines(self) -> Iterator[str]:
        """The value before and after, each in one line, without characters that a person cannot see."""
        yield self.path
        texts = [None if value is None else _text(value) for value in (self.before, self.after)]
        start = _first_difference(*texts) if None not in texts else 0
        for mark, text in zip("-+", texts, strict=True):
            if text is not None:
                yield f"  {mark} {_excerpt(text, start)}"


@dataclass(frozen=True, slots=True)
class Difference:
    """An item that is not as in the lock."""

    kind: ItemKind
    name: str
    change: Change
    edits: tuple[Edit, ...] = ()
    """What differs in a changed item."""

    @property
    def words(self) -> str:
        """The difference as the end of a sentence."""
        fields = ", ".join(dict.fromkeys(edit.path.partition(".")[0] for edit in self.edits))
        said = {
            "new": "is new",
            "changed": f"has changed since it was pinned: {fields}",
            "gone": "is gone",
        }[self.change]
        return f"the {NOUNS[self.kind]} {with_visible_characters(self.name, in_one_line=True)} {said}"

    @property
    def summary(self) -> str:
        """The difference in one line, with the first values before and after."""
        edits = [
            f"{edit.path} was {_shown(edit.before)} and is {_shown(edit.after)}"
            for edit in self.edits[:_SUMMED_MOST]
        ]
        more = len(self.edits) - _SUMMED_MOST
        return "; ".join([self.words, *edits, *([f"and {more} more"] if more > 0 else [])])

    def lines(self) -> Iterator[str]:
        """The difference for a person: a sentence, and below it each value before and after."""
        yield self.words
        for edit in self.edits[:_LINES_MOST]:
            yield from (f"  {line}" for line in edit.lines())
        if (more := len(self.edits) - _LINES_MOST) > 0:
            yield f"  and {more} more"

    def to_object(self) -> JsonObject:
        """The difference as JSON."""
        return {
            "kind": NOUNS[self.kind],
            "name": self.name,
            "change": self.change,
            "edits": [{"path": edit.path, "before": edit.before, "after": edit.after} for edit in self.edits],
        }


def differences(locked: Definitions, present: Definitions) -> tuple[Difference, ...]:
    """What differs, by kind and name. A kind that `present` lacks was not read, and is not compared."""
    return tuple(
        difference
        for kind in KINDS
        if kind in present
        for difference in _of_kind(kind, locked.get(kind, {}), present[kind])
    )


def difference_of(
    kind: ItemKind, name: str, locked: JsonObject | None, present: JsonObject
) -> Difference | None:
    """How one item differs from the lock, in which None says that it does not stand; None if it does not differ."""
    if locked is None:
        return Difference(kind, name, "new")
    if is_same(locked, present):
        return None
    return Difference(kind, name, "changed", tuple(_edits("", locked, present)))


def _of_kind(
    kind: ItemKind, locked: Mapping[str, JsonObject], present: Mapping[str, JsonObject]
) -> Iterator[Difference]:
    for name in sorted(locked.keys() | present.keys()):
        if name not in present:
            yield Difference(kind, name, "gone")
        elif (difference := difference_of(kind, name, locked.get(name), present[name])) is not None:
            yield difference


def _edits(path: str, before: JsonValue, after: JsonValue) -> Iterator[Edit]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted(before.keys() | after.keys()):
            yield from _edits(f"{path}.{key}" if path else key, before.get(key), after.get(key))
    elif not is_same(before, after):
        yield Edit(path, before, after)


def _shown(value: JsonValue) -> str:
    return "absent" if value is None else f'"{_excerpt(_text(value), 0)}"'


def _text(value: JsonValue) -> str:
    # Imported only where a difference is shown.
    import json

    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
    return with_visible_characters(text, in_one_line=True)


def _first_difference(before: str | None, after: str | None) -> int:
    pairs = zip(before or "", after or "", strict=False)
    return next(
        (at for at, (old, new) in enumerate(pairs) if old != new), min(len(before or ""), len(after or ""))
    )


def _excerpt(text: str, at: int) -> str:
    start = max(at - _LEAD_CHARACTERS, 0) if len(text) > _CHARACTERS else 0
    shown = text[start : start + _CHARACTERS]
    return f"{'...' if start else ''}{shown}{'...' if start + len(shown) < len(text) else ''}"
