"""The language of phrases: templates of sentences with arguments in braces. Pure, and without knowledge of tools.

    how long do {kilometres} (km|kilometres) take [at {speed} (km/h|kph)]

- `[words]` may be absent, and of `(one|other)` one is there
- `{name}` is the value of an argument: its schema says whether it is a number, a date, one of a list, or any text
- `{name:word}` is one word, or a text in quotation marks; `{name:path}`, `{name:file}`, `{name:folder}` and
  `{name:time}` are such words of this shape
- `{name=value}` takes no words, and gives the argument this value

A template becomes a graph without loops whose edges take words, so that the time to match it is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, cast

from pydantic import JsonValue

MAX_TEMPLATE_CHARACTERS: Final = 500
"""The most characters of a template. The sentences that people write are shorter."""
_MAX_DEPTH: Final = 10
"""The most brackets inside each other."""
_MAX_PLACES: Final = 200
"""The most places of a template's graph."""
_MAX_EXPANSIONS: Final = 16
"""The most sentences that are made of one template, for examples and to find templates that overlap."""

_TOKEN: Final = re.compile(r"\{([^{}\[\]()|]*)\}|([\[\]()|])|([^\s{}\[\]()|]+)|\s+|(.)")
SHORT_IS: Final = re.compile(
    r"(?<![^\s(\[|])(what|who|where|when|how|that|there|here|it)(['\u2019]s)(?=$|[\s)\]|,;:.!?])",
    re.IGNORECASE,
)
"""A word with a short "is" behind it: "what's" is "what is"."""
_OPENING: Final = {")": "(", "]": "["}
_SLOT: Final = re.compile(r"([^:=\s]+)(?::(word|path|file|folder|time)|=(.*))?")
MARKS: Final = ",;:.!?\u2026\u3002\uff01\uff1f\u060c\u061f"
"""The marks at the end of a word that do not count."""


class TemplateError(ValueError):
    """A template is not written in the language of phrases."""


Shape = Literal["word", "path", "file", "folder", "time"]


@dataclass(frozen=True, slots=True)
class Slot:
    """An argument in a template."""

    name: str
    shape: Shape | None = None
    """The shape of the value, if it is one word, or a text in quotation marks."""
    value: str | None = None
    """The value that the argument has in this phrase, whatever the sentence says."""


Edge = tuple[int, int, "str | Slot | None"]
"""From a place to a later place: by a word, by the value of an argument, or by nothing."""


@dataclass(frozen=True, slots=True)
class Template:
    """A template as a graph. All edges lead from a lower to a higher place; the last place is the end."""

    text: str
    edges: tuple[Edge, ...]
    end: int
    needed: frozenset[str]
    """Words that each sentence of the template has."""

    @property
    def slots(self) -> tuple[Slot, ...]:
        """The arguments in the template, in their order."""
        return tuple(dict.fromkeys(by for _, _, by in self.edges if isinstance(by, Slot)))


def template_of(text: str) -> Template:
    """Read a template.

    Raises:
        TemplateError: it is too long, a bracket has no partner, a choice is empty, or no word is always there.
    """
    if len(text) > MAX_TEMPLATE_CHARACTERS:
        raise TemplateError(f"a phrase has at most {MAX_TEMPLATE_CHARACTERS} characters")
    return _TemplateReader(text).template()


class _TemplateReader:
    """Reads one template by recursive descent."""

    def __init__(self, text: str) -> None:
        self._text = text
        long = SHORT_IS.sub(r"\1 is", text)
        self._tokens = [match for match in _TOKEN.finditer(long) if not match[0].isspace()]
        self._next = 0
        self._places = 1
        self._edges: list[Edge] = []

    def template(self) -> Template:
        end, needed = self._choice(0, closing="", depth=0)
        edges = tuple(sorted(self._edges, key=lambda edge: edge[:2]))
        without_words = {0}
        for start, after, by in edges:
            if start in without_words and not isinstance(by, str):
                without_words.add(after)
        if end in without_words:
            raise TemplateError("a phrase without a word of its own would match every sentence")
        return Template(self._text, edges, end, frozenset(needed))

    def _new_place(self) -> int:
        self._places += 1
        if self._places > _MAX_PLACES:
            raise TemplateError("a phrase has too many words and brackets")
        return self._places - 1

    def _choice(self, start: int, closing: str, depth: int) -> tuple[int, set[str]]:
        """One or several sequences, between bars. Returns the place after them, and the words that all of them have."""
        if depth > _MAX_DEPTH:
            raise TemplateError(f"a phrase has at most {_MAX_DEPTH} brackets inside each other")
        ends: list[int] = []
        needed: set[str] | None = None
        while True:
            begin = self._next
            first = self._new_place()
            self._edges.append((start, first, None))
            end, words = self._sequence(first, depth)
            if self._next == begin:
                raise TemplateError("a phrase has no empty choices: [words] are words that may be absent")
            ends.append(end)
            needed = words if needed is None else needed & words
            token = self._tokens[self._next] if self._next < len(self._tokens) else None
            self._next += 1
            if token is None or token[2] != "|":
                if (token[2] if token else "") != closing:
                    alone = token[2] if token else _OPENING[closing]
                    raise TemplateError(f"`{alone}` has no partner")
                break
        after = self._new_place()
        self._edges += [(end, after, None) for end in ends]
        return after, needed

    def _sequence(self, place: int, depth: int) -> tuple[int, set[str]]:
        needed: set[str] = set()
        while self._next < len(self._tokens) and self._tokens[self._next][2] not in ("|", ")", "]"):
            token = self._tokens[self._next]
            self._next += 1
            if token[2] in ("(", "["):
                after, words = self._choice(place, {"(": ")", "[": "]"}[token[2]], depth + 1)
                if token[2] == "[":
                    self._edges.append((place, after, None))
                else:
                    needed |= words
                place = after
                continue
            by = self._step(token)
            if by is not None:
                after = self._new_place()
                self._edges.append((place, after, by))
                place = after
                needed |= {by} if isinstance(by, str) else set()
        return place, needed

    @staticmethod
    def _step(token: re.Match[str]) -> str | Slot | None:
        """A word or an argument; None for a mark that stands alone."""
        if token[1] is not None:
            slot = _SLOT.fullmatch(token[1].strip())
            if slot is None:
                raise TemplateError(
                    f"`{token[0]}` is not {{name}}, {{name:word}}, {{name:path}}, {{name:file}}, {{name:folder}},"
                    " {name:time} or {name=value}"
                )
            return Slot(slot[1], cast(Shape | None, slot[2]), slot[3])
        if token[3] is None:
            raise TemplateError(f"`{token[0]}` has no partner")
        return compared(token[3].rstrip(MARKS)) or None


def expansions(template: Template) -> tuple[tuple[str | Slot, ...], ...]:
    """Some sentences of a template: as words and arguments. The first has all that may be absent."""
    by_start: dict[int, list[Edge]] = {}
    for edge in template.edges:
        by_start.setdefault(edge[0], []).append(edge)
    made: list[tuple[str | Slot, ...]] = []
    waiting: list[tuple[int, tuple[str | Slot, ...]]] = [(0, ())]
    while waiting and len(made) < _MAX_EXPANSIONS:
        place, steps = waiting.pop()
        if place == template.end:
            made.append(steps)
            continue
        for _, after, by in reversed(by_start.get(place, [])):
            waiting.append((after, steps if by is None else (*steps, by)))
    return tuple(dict.fromkeys(made))


def compared(word: str) -> str:
    """A word as it is compared: in lower case, with straight apostrophes."""
    return word.replace("\u2019", "'").casefold()


def spoken(pieces: Sequence[str | Slot], values: Mapping[str, JsonValue]) -> str | None:
    """A sentence for words and arguments; None if an argument has no value that can be said."""
    words: list[str] = []
    for piece in pieces:
        if isinstance(piece, str):
            words.append(piece)
        elif piece.value is None:
            if (word := _said(values.get(piece.name), is_word=piece.shape is not None)) is None:
                return None
            words.append(word)
    return " ".join(words)


def _said(value: JsonValue, *, is_word: bool) -> str | None:
    match value:
        case bool():
            return "yes" if value else "no"
        case int() | float():
            return str(value)
        case list():
            words = [_said(item, is_word=is_word) for item in value]
            return " and ".join(word for word in words if word) if words and all(words) else None
        case str() if value.strip() and len(value.splitlines()) == 1:
            return value if not is_word or len(value.split()) == 1 else f'"{value}"'
        case _:
            return None
