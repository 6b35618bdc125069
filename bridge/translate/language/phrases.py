"""Matches a sentence against the template of a phrase. Pure.

The words of the sentence are read from left to right, with the best reading of each place of the template. So the time
is bounded by (places of the template) x (words of the sentence) x (words of a value), and by a number of steps for all
phrases. Of several readings, the one with the fewest words in values is meant; if two such readings differ, none is.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from bridge.mcp.tools import Tool
from bridge.text.jsonvalues import JsonObject, is_same
from bridge.translate.arguments import coerced, resolved_properties
from bridge.translate.language.templates import MARKS, SHORT_IS, Slot, Template, compared

MAX_SENTENCE_CHARACTERS: Final = 1000
MAX_SENTENCE_WORDS: Final = 100
"""The most characters and words of a sentence. A longer text is not matched."""
_MAX_STEPS: Final = 50_000
"""The most steps for one text, a step for each word that is read: well below a second. A sentence of ten words takes
some hundred steps."""

_QUOTES: Final[Mapping[str, str]] = {
    '"': '"', "'": "'", "`": "`", "\u201c": "\u201d", "\u2018": "\u2019", "\u201e": "\u201c", "\u00ab": "\u00bb",
}  # fmt: skip
_PIECE: Final = re.compile(r"\S+")
_NUMBER: Final = re.compile(
    r"[+-]?(\d{1,30}(\.\d{1,30})?|\.\d{1,30})(e[+-]?\d{1,3})?", re.ASCII | re.IGNORECASE
)
_UNITS: Final = (
    *(
        "zero",
        "one",
        "two",
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
        "eleven",
        "twelve",
    ),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
_TENS: Final = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_NUMBER_WORDS: Final[Mapping[str, int]] = {
    **{word: number for number, word in enumerate(_UNITS)},
    **{word: 10 * number for number, word in enumerate(_TENS, 2)},
    **{
        f"{ten} {unit}": 10 * number + one
        for number, ten in enumerate(_TENS, 2)
        for one, unit in enumerate(_UNITS[1:10], 1)
    },
    "hundred": 100,
    "a hundred": 100,
    "one hundred": 100,
}
_MINUS: Final = frozenset({"minus", "negative"})
_MONTHS: Final = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_SHAPES: Final[Mapping[str, re.Pattern[str]]] = {
    "uri": re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S+"),
    "email": re.compile(r"[^\s@]+@[^\s@]+"),
    "uuid": re.compile(r"[0-9A-Fa-f-]{36}"),
    "time": re.compile(r"\d\S*"),
    "date-time": re.compile(r"\d\S*"),
}
"""The shape of a value of a format. Other words are not such a value, even if the schema does not check the format."""
_THE: Final = "the"
"""The article alone is no value."""
_WORD_SHAPES: Final[Mapping[str, re.Pattern[str]]] = {
    "path": re.compile(r"(?!\w+://)\S*[/\\.~]\S*"),
    "file": re.compile(r"(?!\w+://)[^\s*]*[^/\\\s*]\.[^/\\.\s*]+"),
    "folder": re.compile(r"(?!\w+://)([^\s*]*[/\\~]|([^\s*]*[/\\])?\.\.?|[^\s*]*[/\\]\.?[^/\\.\s*]+)"),
    "time": re.compile(r"([01]?\d|2[0-3]):[0-5]\d(:[0-5]\d)?"),
}
"""The shape of a word that a template asks for, as in `{name:path}`. A text in quotation marks has any shape."""
_TRUE_AND_FALSE: Final[Mapping[str, bool]] = {
    "true": True, "yes": True, "on": True, "false": False, "no": False, "off": False,
}  # fmt: skip
_MAX_VALUE_WORDS: Final = 8
"""The most words of a number, a date, or a value of a list."""


class TooAmbiguousError(Exception):
    """The templates are too ambiguous for a sentence."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a sentence, or a text in quotation marks."""

    text: str
    """As it is compared: in lower case, without marks around it."""
    start: int
    end: int
    quoted: str | None = None
    """The text between the quotation marks."""
    is_short: bool = False
    """Whether it is the short "is" of "what's". No value begins with it, or ends before it."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence and its words."""

    text: str
    words: tuple[Word, ...]

    def between(self, start: int, end: int) -> str:
        """The text from one word up to another, with marks between them but without a comma at the end."""
        return self.text[self.words[start].start : self.words[end - 1].end]


@dataclass(frozen=True, slots=True)
class Reading:
    """What a sentence means by a template."""

    arguments: JsonObject
    cost: int
    """The number of words in values. The fewer, the more of the sentence is words of the template."""
    free: tuple[tuple[str, str], ...] = ()
    """The arguments that are texts without quotation marks, with their values as they stand in the sentence."""
    is_clear: bool = True
    """Whether no other reading of the same cost has other arguments."""


def sentence_of(text: str) -> Sentence | None:
    """The words of a text of one line; None for longer texts, and for texts without words."""
    text = text.strip()
    if not text or len(text) > MAX_SENTENCE_CHARACTERS or len(text.splitlines()) > 1:
        return None
    words: list[Word] = []
    place = 0
    while piece := _PIECE.search(text, place):
        word = _quoted_at(text, piece.start()) or _plain(piece[0], piece.start())
        place = max(word.end, piece.start() + 1)
        if word.quoted is None:
            place = piece.end()
        if word.quoted is None and (short := SHORT_IS.fullmatch(text[word.start : word.end])) is not None:
            middle = word.start + short.end(1)
            words.append(Word(compared(short[1]), word.start, middle))
            words.append(Word("is", middle, word.end, is_short=True))
        elif word.text or word.quoted is not None:
            words.append(word)
        if len(words) > MAX_SENTENCE_WORDS:
            return None
    return Sentence(text, tuple(words)) if words else None


def _quoted_at(text: str, start: int) -> Word | None:
    """The text in quotation marks that begins here, and ends at the end of a word."""
    closing = _QUOTES.get(text[start])
    place = start
    while closing is not None and (place := text.find(closing, place + 1)) > start:
        after = text[place + 1 : place + 2]
        if not after or after.isspace() or after in MARKS:
            inner = text[start + 1 : place]
            end = place + 1
            while end < len(text) and text[end] in MARKS:
                end += 1
            return Word("", start, end, inner) if inner.strip() else None
    return None


def _plain(piece: str, start: int) -> Word:
    """A word without the marks at its end. A word of marks alone is itself."""
    bare = piece.rstrip(MARKS)
    text = bare or ("" if set(piece) <= set(",;") else piece)
    return Word(compared(text), start, start + len(text))


@dataclass(frozen=True, slots=True)
class _Value:
    """The value of an argument in a sentence."""

    value: JsonValue
    free: str | None = None


_ReadValue = Callable[[Sentence, int, int], _Value | None]
"""Reads the words from one place up to another as a value."""


class ReadingSteps:
    """Bounds the time for one message."""

    def __init__(self, most: int = _MAX_STEPS) -> None:
        self._left = most

    def take(self, number: int) -> None:
        """Take some steps.

        Raises:
            TooManyStepsError: there are not so many left.
        """
        self._left -= number
        if self._left < 0:
            raise TooAmbiguousError("the sentence takes too many steps")


class Phrase:
    """A template for one tool."""

    def __init__(self, template: Template, tool: Tool) -> None:
        self.template = template
        self._from: dict[int, list[tuple[int, str | tuple[Slot, _ReadValue, int] | None]]] = {}
        for start, after, by in template.edges:
            step = (by, *_reader_of(by, tool)) if isinstance(by, Slot) else by
            self._from.setdefault(start, []).append((after, step))

    def reading_of(self, sentence: Sentence, steps: ReadingSteps) -> Reading | None:
        """What a sentence means by this phrase; None if it does not fit.

        Raises:
            TooManyStepsError: the steps are used up.
        """
        words = sentence.words
        if not self.template.needed <= {word.text for word in words}:
            return None
        best: list[dict[int, Reading]] = [{} for _ in range(len(words) + 1)]
        best[0][0] = Reading({}, 0)
        for at, readings in enumerate(best):
            for place in range(self.template.end):
                if (reading := readings.get(place)) is None:
                    continue
                for after, step in self._from.get(place, ()):
                    for end, next_reading in _steps(step, reading, sentence, at):
                        steps.take(1 + end - at)
                        _keep(best[end], after, next_reading)
        return best[-1].get(self.template.end)


def _steps(
    step: str | tuple[Slot, _ReadValue, int] | None, reading: Reading, sentence: Sentence, at: int
) -> Iterator[tuple[int, Reading]]:
    words = sentence.words
    if step is None:
        yield at, reading
    elif isinstance(step, str):
        if at < len(words) and words[at].quoted is None and words[at].text == step:
            yield at + 1, reading
    else:
        slot, read, most = step
        if slot.value is not None:
            if (value := read(sentence, 0, 0)) is not None:
                yield at, _with(reading, slot, value, 0)
            return
        for end in range(at + 1, min(len(words), at + most) + 1):
            if words[at].is_short or (end < len(words) and words[end].is_short):
                continue
            if (value := read(sentence, at, end)) is not None:
                yield end, _with(reading, slot, value, end - at)


def _with(reading: Reading, slot: Slot, value: _Value, cost: int) -> Reading:
    free = reading.free if value.free is None else (*reading.free, (slot.name, value.free))
    arguments = {**reading.arguments, slot.name: value.value}
    return Reading(arguments, reading.cost + cost, free, reading.is_clear)


def _keep(readings: dict[int, Reading], place: int, new: Reading) -> None:
    old = readings.get(place)
    if old is None or new.cost < old.cost:
        readings[place] = new
    elif new.cost == old.cost and not is_same(new.arguments, old.arguments):
        readings[place] = Reading(old.arguments, old.cost, (*old.free, *new.free), is_clear=False)


def _reader_of(slot: Slot, tool: Tool) -> tuple[_ReadValue, int]:
    """How the value of an argument is read, and the most words that it has."""
    schema = resolved_properties(tool.input_schema).get(slot.name, {})
    if slot.value is not None:
        constant = _Value(coerced(slot.value, slot.name, tool, json_first=schema.get("type") != "string"))
        return (lambda _sentence, _start, _end: constant), 0
    kinds = _kinds_of(schema)
    choices = schema.get("enum")
    if isinstance(choices, list):
        named = {" ".join(str(choice).casefold().split()): choice for choice in choices if choice is not None}
        return _read_choice(named), _MAX_VALUE_WORDS
    if kinds & {"number", "integer"}:
        return _read_number, _MAX_VALUE_WORDS
    if "boolean" in kinds:
        return _read_choice(_TRUE_AND_FALSE), 1
    if "string" in kinds and schema.get("format") == "date":
        return _read_date, _MAX_VALUE_WORDS
    most = MAX_SENTENCE_WORDS if slot.shape is None else 1
    if "array" in kinds:
        items = schema.get("items")
        is_texts = isinstance(items, dict) and "string" in _kinds_of(items)
        return (_read_list(slot.shape is not None) if is_texts else _read_nothing), MAX_SENTENCE_WORDS
    if "object" in kinds:
        return _read_nothing, most
    read: _ReadValue = _read_text
    if (shape := _SHAPES.get(str(schema.get("format")))) is not None:
        read = _read_shape(shape)
    if (word_shape := _WORD_SHAPES.get(slot.shape or "")) is not None:
        read = _read_word(word_shape, read)
    return read, most


def _kinds_of(schema: JsonObject) -> frozenset[str]:
    """The types that a schema allows, besides null."""
    kinds = schema.get("type")
    named = [kind for kind in (kinds if isinstance(kinds, list) else [kinds]) if isinstance(kind, str)]
    if not named:
        for key in ("anyOf", "oneOf"):
            choices = schema.get(key)
            for choice in choices if isinstance(choices, list) else ():
                named += _kinds_of(choice) if isinstance(choice, dict) and choice is not schema else ()
    return frozenset(named) - {"null"}


def _read_text(sentence: Sentence, start: int, end: int) -> _Value | None:
    words = sentence.words[start:end]
    if len(words) == 1 and words[0].quoted is not None:
        return _Value(words[0].quoted)
    if len(words) == 1 and words[0].text == _THE:
        return None
    text = sentence.between(start, end)
    return _Value(text, text)


def is_sayable(schema: JsonObject) -> bool:
    """Whether words can say a value of a schema."""
    kinds, items = _kinds_of(schema), schema.get("items")
    is_texts = isinstance(items, dict) and "string" in _kinds_of(items)
    return "object" not in kinds and ("array" not in kinds or is_texts)


def has_shape(text: str, name: str, tool: Tool) -> bool:
    """Whether a text has the shape of the format that a property asks for; True if the format has no known shape."""
    shape = _SHAPES.get(str(resolved_properties(tool.input_schema).get(name, {}).get("format")))
    return shape is None or shape.fullmatch(text) is not None


def _read_shape(shape: re.Pattern[str]) -> _ReadValue:
    def read(sentence: Sentence, start: int, end: int) -> _Value | None:
        value = _read_text(sentence, start, end)
        return value if value is not None and shape.fullmatch(str(value.value)) else None

    return read


def _read_word(shape: re.Pattern[str], read: _ReadValue) -> _ReadValue:
    def read_word(sentence: Sentence, start: int, end: int) -> _Value | None:
        word = sentence.words[start]
        has_shape = word.quoted is not None or shape.fullmatch(sentence.between(start, end)) is not None
        return read(sentence, start, end) if has_shape else None

    return read_word


def starts_as_path(sentence: Sentence) -> bool:
    """Whether the first word of a sentence looks like a path."""
    return _WORD_SHAPES["path"].fullmatch(sentence.between(0, 1)) is not None


def _read_nothing(_sentence: Sentence, _start: int, _end: int) -> None:
    return None


def _read_list(is_word: bool) -> _ReadValue:
    """Reads a list of texts: `a`, `a and b`, `a, b and c`. With `is_word`, each is one word or in quotation marks."""

    def read(sentence: Sentence, start: int, end: int) -> _Value | None:
        items: list[JsonValue] = []
        free: list[str] = []
        begin = start
        for at in range(start, end + 1):
            is_end = at == end or (sentence.words[at].quoted is None and sentence.words[at].text == "and")
            if not is_end and not sentence.text[sentence.words[at].end :].startswith(","):
                continue
            stop = at if is_end else at + 1
            if is_word and stop > begin + 1:
                return None
            if stop > begin and (value := _read_text(sentence, begin, stop)) is not None:
                items.append(value.value)
                free += [] if value.free is None else [value.free]
            elif is_end:
                return None
            begin = at + 1
        return _Value(items, " \n ".join(free) if free else None)

    return read


def _read_choice(named: Mapping[str, JsonValue]) -> _ReadValue:
    def read(sentence: Sentence, start: int, end: int) -> _Value | None:
        words = sentence.words[start:end]
        spoken_words = " ".join(
            word.text if word.quoted is None else word.quoted.casefold() for word in words
        )
        return _Value(named[spoken_words]) if spoken_words in named else None

    return read


def _read_number(sentence: Sentence, start: int, end: int) -> _Value | None:
    words = [word.text for word in sentence.words[start:end]]
    sign = 1
    if words[0] in _MINUS and len(words) > 1:
        sign, words = -1, words[1:]
    number: int | float | None = _NUMBER_WORDS.get(" ".join(words).replace("-", " "))
    if number is None and len(words) == 1 and _NUMBER.fullmatch(words[0]):
        with suppress(ValueError, OverflowError):
            number = int(words[0]) if words[0].lstrip("+-").isdigit() else float(words[0])
    if number is None or abs(number) == float("inf") or (sign < 0 and words[0][0] in "+-"):
        return None
    return _Value(sign * number)


def _read_date(sentence: Sentence, start: int, end: int) -> _Value | None:
    """`2026-01-31`, `31 January 2026` or `January 31, 2026`."""
    words = [word.text for word in sentence.words[start:end]]
    with suppress(ValueError):
        if len(words) == 1 and re.fullmatch(r"\d{4}-\d\d-\d\d", words[0], re.ASCII):
            return _Value(dt.date.fromisoformat(words[0]).isoformat())
        if len(words) == 3:
            day, month, year = words if words[1] in _MONTHS else (words[1], words[0], words[2])
            day = re.sub(r"(?<=\d)(st|nd|rd|th)$", "", day)
            if month in _MONTHS and re.fullmatch(r"\d{1,2} \d{4}", f"{day} {year}", re.ASCII):
                return _Value(dt.date(int(year), _MONTHS.index(month) + 1, int(day)).isoformat())
    return None
