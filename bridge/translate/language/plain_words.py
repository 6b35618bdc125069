"""Finds the skill and the arguments that a sentence means. Pure.

A sentence fits a skill by a phrase of the operator's file, by a phrase of the mapping profile, or by an unwritten
phrase: the skill's id or name, followed by the value of its one required text or number. Case, polite words and a
closing mark around the sentence do not count.

A sentence never runs a tool that is not meant. If it fits two skills, or a value holds a negation, a condition or a
second request, no skill is found, and the client is asked. A tool that may change something runs without a yes only by
a phrase that the operator wrote.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Final, Literal

from bridge.mcp.tools import Tool
from bridge.text.jsonvalues import JsonObject, is_same
from bridge.translate.arguments import properties_of, required_of, resolved_properties
from bridge.translate.examples import PLAIN, example_of
from bridge.translate.language.doubtful_words import is_doubtful, is_link, is_no_name
from bridge.translate.language.phrases import (
    MAX_SENTENCE_WORDS,
    Phrase,
    Reading,
    ReadingSteps,
    Sentence,
    TooAmbiguousError,
    is_sayable,
    sentence_of,
    starts_as_path,
)
from bridge.translate.language.templates import Slot, Template, expansions, spoken, template_of

Language = Literal["phrases", "strict"]
"""Which sentences are understood: also unwritten phrases, or only the configured ones."""

_POLITE_BEFORE: Final = re.compile(
    r"(?:please|kindly|hey|hi|hello|ok|okay|(?:could|can|would|will) you"
    r"|i(?:['\u2019]d| would) like (?:you )?to|i (?:want|need) (?:you )?to"
    r"|(?:tell|show) me(?=\s+(?:what|how|which|when|where|who)\b))"
    r"(?:\s*[,:!.]\s*|\s+)",
    re.IGNORECASE,
)
_POLITE_AFTER: Final = re.compile(r"(?:\s+|\s*,\s*)(?:please|thanks|thank you|for me)[.!?\s]*", re.IGNORECASE)
_SEES: Final = re.compile(r"see\s+", re.IGNORECASE)
"""What a person wants who would like to see something: that the agent shows it."""
_MAX_POLITE: Final = 4
_MAX_AFTER: Final = 20
"""The most characters of a polite word at the end, with the marks around it."""
_CLOSING: Final = ".!?\u2026\u3002\uff01\uff1f\u061f"

_ASKS_FOR_HELP: Final = frozenset(
    {
        *("help", "help me", "what can you do", "what can you do for me", "what do you do", "who are you"),
        *("what are you", "how can you help", "how can you help me", "how do you work"),
        *("hello", "hello there", "hi", "hi there", "hey", "good morning", "good afternoon", "good evening"),
        *("good day", "greetings"),
    }
)
"""What people say to learn what an agent does. Case and marks do not count."""

_ARTICLES: Final = frozenset({"the", "a", "an", "my", "our"})
_ANY: Final = frozenset({"a", "an", "any", "some"})
_BEFORE_ANY: Final = frozenset({"for", "of"})
"""Links before any value: "search nodes for Ada"."""
_WHERE: Final = frozenset({"at", "in"})
"""Links before a place: "get weather in Berlin", but not "find page in German"."""
_PLACES: Final = frozenset(
    (
        *("address", "area", "city", "country", "dir", "directory", "folder", "location", "path", "place"),
        *("region", "repo", "repository", "room", "timezone", "town", "zone"),
    )
)
"""Words in the names of properties that hold a place."""
_TEXTS: Final = (
    "body comment content contents description goal idea input instruction instructions keyword keywords line lines",
    "message note notes observation phrase prompt q query question reason request search sentence statement subject",
    "summary task term terms text thought title topic word words",
)
_TEXT_WORDS: Final = frozenset(" ".join(_TEXTS).split())
"""Words in the names of properties that hold any text. The value of another property is a name."""
_STATES: Final = (
    "is are was were isn't aren't wasn't does doesn't did didn't has had means works fails",
    "tool tools skill skills command function usage options",
)
_STATE_WORDS: Final = frozenset(" ".join(_STATES).split())
"""Words after a skill's name that begin a sentence about the skill: "greet is broken", "greet tool"."""
_NAME_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[^\W\d_A-Z]+|[A-Z][^\W\d_A-Z]*|\d+")
_HAS_MARKS: Final = re.compile(r"[>~#|*=]")
"""Marks of quoted, struck out or otherwise marked text. A sentence that begins with such a mark names no skill."""
_MAX_NAME_WORDS: Final = 12
_MAX_EXAMPLES: Final = 2
"""The most example sentences of one skill."""


@dataclass(frozen=True, slots=True)
class SkillWords:
    """The words by which people mean one skill."""

    skill_id: str
    names: tuple[str, ...]
    tool: Tool
    own: tuple[str, ...] = ()
    """The templates of the operator's file."""
    ready: tuple[str, ...] = ()
    """The templates of the mapping profile, or of the server's ready mapping."""
    examples: tuple[str, ...] = ()
    """Sentences of the ready mapping for the card."""
    is_read_only: bool = False
    text_into: str | None = None
    """The configured property that takes plain text."""


Origin = Literal["phrase", "ready phrase", "name", "model"]


@dataclass(frozen=True, slots=True)
class Said:
    """How a sentence was understood."""

    origin: Origin
    by: str
    """The template, or the name."""


@dataclass(frozen=True, slots=True)
class Understood:
    """The call that a sentence means."""

    skill_id: str
    arguments: JsonObject
    said: Said


@dataclass(frozen=True, slots=True)
class Doubtful:
    """A sentence that fits, but may mean something else."""

    skill_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Fit:
    skill_id: str
    reading: Reading
    said: Said
    length: int = 0
    """The number of words of the name."""


class PhraseBook:
    """The phrases of an agent."""

    def __init__(self, skills: Sequence[SkillWords], language: Language = "phrases") -> None:
        self._skills = {words.skill_id: words for words in skills}
        self._is_strict = language == "strict"

    @cached_property
    def _phrases(self) -> Sequence[tuple[str, Said, Phrase]]:
        return [
            (words.skill_id, Said(origin, text), Phrase(_template(text), words.tool))
            for words in self._skills.values()
            for origin, texts in _by_origin(words)
            for text in texts
            if all(slot.name in properties_of(words.tool.input_schema) for slot in _template(text).slots)
        ]

    @cached_property
    def _names(self) -> Mapping[str, Sequence[tuple[tuple[str, ...], str, str]]]:
        """The names by their first words: as words, the skill's id, and the name."""
        names: dict[str, list[tuple[tuple[str, ...], str, str]]] = {}
        for words in self._skills.values():
            for name in dict.fromkeys(words.names):
                if pieces := _words_of_name(name):
                    names.setdefault(pieces[0], []).append((pieces, words.skill_id, name))
        return names

    def find(self, text: str, *, own_only: bool = False) -> Understood | Doubtful | None:
        """The call that a text means; None if it fits no skill. With `own_only`, only the operator's phrases count."""
        steps = ReadingSteps()
        try:
            for plain in dict.fromkeys((_without_polite_words(text), text)):
                sentence = sentence_of(plain)
                fits = [] if sentence is None else [*self._fits(sentence, steps, own_only=own_only)]
                if fits:
                    return self._meaning(fits)
        except TooAmbiguousError:
            return Doubtful(())
        return None

    def asks_for_help(self, text: str) -> bool:
        """Whether a text is a greeting or asks what the agent does, and is not the name of a skill."""
        if self._is_strict:
            return False
        for plain in (text, _without_polite_words(text)):
            sentence = sentence_of(plain)
            words = "" if sentence is None else " ".join(word.text.strip(_CLOSING) for word in sentence.words)
            if words in _ASKS_FOR_HELP:
                return not any(
                    words == " ".join(name) for name, _, _ in self._names.get(words.split()[0], ())
                )
        return False

    def examples(self, skill_id: str) -> tuple[str, ...]:
        """Sentences for a skill that the agent understands: as the skill, and without a doubt."""
        words = self._skills[skill_id]
        made: list[str] = []
        for sentence in _sentences_for(words, with_name=not self._is_strict):
            meaning = self.find(sentence)
            if isinstance(meaning, Understood) and meaning.skill_id == skill_id:
                made.append(sentence)
            if len(made) == _MAX_EXAMPLES:
                break
        return tuple(dict.fromkeys(made))

    def overlaps(self, ready: Collection[str] = ()) -> Iterator[tuple[str, Said, tuple[str, ...]]]:
        """The phrases that other skills fit, too: the skill's id, the phrase, and the other skills' ids. They are
        phrases of the operator's file, or among these ready ones."""
        for skill_id, origin, phrase in self._phrases:
            if origin.origin != "phrase" and origin.by not in ready:
                continue
            others: dict[str, None] = {}
            for pieces in expansions(phrase.template):
                sentence = spoken(pieces, _stand_ins(pieces, self._skills[skill_id].tool))
                meaning = None if sentence is None else self.find(sentence)
                if isinstance(meaning, Doubtful):
                    others |= dict.fromkeys(other for other in meaning.skill_ids if other != skill_id)
            if others:
                yield skill_id, origin, tuple(others)

    def _meaning(self, fits: Sequence[_Fit]) -> Understood | Doubtful:
        skill_ids = tuple(dict.fromkeys(fit.skill_id for fit in fits))
        if len(skill_ids) > 1:
            return Doubtful(skill_ids)
        best = min(fits, key=lambda fit: fit.reading.cost)
        same = [fit for fit in fits if fit.reading.cost == best.reading.cost]
        is_clear = all(
            fit.reading.is_clear and is_same(fit.reading.arguments, best.reading.arguments) for fit in same
        )
        # "search nodes in the graph" means the tool search_nodes, and no nodes that are called "nodes".
        own = _words_of_name(best.skill_id)
        text_into = self._skills[best.skill_id].text_into
        for name, value in best.reading.free:
            takes_text = name == text_into or not _TEXT_WORDS.isdisjoint(_words_of_name(name))
            is_clear &= value.casefold() not in own and not _is_doubtful(value, takes_text=takes_text)
        if not is_clear:
            return Doubtful(skill_ids)
        return Understood(best.skill_id, best.reading.arguments, best.said)

    def _fits(self, sentence: Sentence, steps: ReadingSteps, *, own_only: bool) -> Iterator[_Fit]:
        for skill_id, origin, phrase in self._phrases:
            if own_only and origin.origin != "phrase":
                continue
            if (reading := phrase.reading_of(sentence, steps)) is not None:
                yield _Fit(skill_id, reading, origin)
        if not own_only and not self._is_strict:
            yield from self._fits_by_name(sentence)

    def _fits_by_name(self, sentence: Sentence) -> Iterator[_Fit]:
        """The skills whose names begin a sentence. Only the longest names count."""
        spelled: list[tuple[str, int]] = []
        for number, word in enumerate(sentence.words):
            if len(spelled) > _MAX_NAME_WORDS:
                break
            if word.quoted is None and (word.text not in _ARTICLES or not spelled):
                written = sentence.text[word.start : word.end]
                if not spelled and _HAS_MARKS.search(written):
                    return
                spelled += [(piece, number) for piece in _words_of_name(written)]
            elif word.quoted is not None:
                spelled.append(("", number))
        if not spelled:
            return
        pieces = tuple(piece for piece, _ in spelled)
        fits: list[_Fit] = []
        for name, skill_id, full_name in self._names.get(pieces[0], ()):
            count = len(name)
            if pieces[:count] != name or (
                count < len(spelled) and spelled[count][1] == spelled[count - 1][1]
            ):
                continue
            rest = spelled[count - 1][1] + 1
            fits.append(_Fit(skill_id, self._rest(skill_id, sentence, rest), Said("name", full_name), count))
        longest = max((fit.length for fit in fits), default=0)
        yield from (fit for fit in fits if fit.length == longest)

    def _rest(self, skill_id: str, sentence: Sentence, start: int) -> Reading:
        """What stands after the name, as the value of the property that takes it."""
        words = self._skills[skill_id]
        end = len(sentence.words)
        if start == end:
            return Reading({}, 0)
        rest = Sentence(sentence.text, sentence.words[start:])
        spoken_rest = rest.between(0, len(rest.words))
        # Words that no property takes are not dropped: the client is asked, for the required values if there are any.
        not_taken = Reading(
            {}, MAX_SENTENCE_WORDS + 1, (("", spoken_rest),), bool(required_of(words.tool.input_schema))
        )
        taking = words.text_into or _one_required(words.tool)
        if taking is None:
            return not_taken
        if rest.words[0].quoted is None:
            if rest.words[0].text in _STATE_WORDS or rest.words[0].text.startswith("-"):
                return replace(not_taken, is_clear=False)
            if is_link(rest.words[0].text):
                if not words.is_read_only or not _is_linked(rest, taking):
                    return replace(not_taken, is_clear=False)
                rest = Sentence(sentence.text, rest.words[1:])
            if len(rest.words) > 1 and not _is_name(rest, taking, is_read_only=words.is_read_only):
                return replace(not_taken, is_clear=False)
        return Phrase(_only_value(taking), words.tool).reading_of(rest, ReadingSteps()) or not_taken


def _is_doubtful(value: str, *, takes_text: bool) -> bool:
    return any(is_doubtful(item) or (not takes_text and is_no_name(item)) for item in value.split(" \n "))


def phrase_faults(texts: Iterable[str], tool: Tool) -> Iterator[str]:
    """What is wrong with phrases for a tool."""
    properties = resolved_properties(tool.input_schema)
    for text in texts:
        slots = [slot.name for slot in _template(text).slots]
        for name in slots:
            if name not in properties:
                yield f"the phrase {text!r} is not used: the tool has no argument {name!r}"
            elif not is_sayable(properties[name]):
                yield f"the phrase {text!r} fits no sentence: no words can say {name!r}"
        if not slots and required_of(tool.input_schema):
            yield f"the phrase {text!r} names no argument, though the tool needs some: each call asks for them"


def _without_polite_words(text: str) -> str:
    text = text.strip()
    if len(text) > 2000:
        return text
    for _ in range(_MAX_POLITE):
        before = _POLITE_BEFORE.match(text)
        if before is None or before.end() == len(text):
            break
        text = text[before.end() :]
        if " to" in before[0].casefold():
            text = _SEES.sub("show me ", text, count=1) if _SEES.match(text) else text
    for _ in range(_MAX_POLITE):
        start = max(len(text) - _MAX_AFTER, 0)
        after = next((m for m in _POLITE_AFTER.finditer(text, start) if m.end() == len(text)), None)
        if after is None or after.start() == 0:
            break
        text = text[: after.start()]
    return text


def _by_origin(words: SkillWords) -> Iterator[tuple[Origin, tuple[str, ...]]]:
    yield "phrase", words.own
    yield "ready phrase", words.ready


@lru_cache(1024)
def _template(text: str) -> Template:
    return template_of(text)


@lru_cache(1024)
def _only_value(name: str) -> Template:
    return Template(name, ((0, 1, Slot(name)),), 1, frozenset())


def _words_of_name(name: str) -> tuple[str, ...]:
    return tuple(piece.casefold() for piece in _NAME_WORD.findall(name))[:_MAX_NAME_WORDS]


def _is_linked(rest: Sentence, taking: str) -> bool:
    """Whether the first word of a rest links the name of a tool that only reads with a value of this property."""
    link, is_place = rest.words[0].text, not _PLACES.isdisjoint(_words_of_name(taking))
    is_linked = link in _BEFORE_ANY or (link in _WHERE and is_place) or (link == "about" and not is_place)
    return len(rest.words) > 1 and is_linked


def _is_name(rest: Sentence, taking: str, *, is_read_only: bool) -> bool:
    """Whether several words may be a value: no kind of thing for a tool that writes ("book a flight to Lisbon"), and a
    path if the property holds a path ("git reset hard /srv/repo")."""
    if "path" in _words_of_name(taking) and not starts_as_path(rest):
        return rest.words[0].quoted is not None
    return is_read_only or rest.words[0].text not in _ANY


def _one_required(tool: Tool) -> str | None:
    """The one required property, if it is a text or a number."""
    required = required_of(tool.input_schema)
    if len(required) != 1:
        return None
    schema = resolved_properties(tool.input_schema).get(required[0], {})
    return required[0] if schema.get("type") in ("string", "number", "integer") else None


def _sentences_for(words: SkillWords, *, with_name: bool) -> Iterator[str]:
    """Sentences that a skill may be meant by, the best first."""
    if words.examples:
        yield from words.examples
        return
    values = example_of(words.tool) or {}
    optional = _all_examples(words.tool, values)
    templates = [_template(text) for texts in (words.own, words.ready) for text in texts]
    for template in templates:
        for pieces in expansions(template):
            if (sentence := spoken(pieces, optional)) is not None:
                yield sentence
                break
    name = min(words.names, key=len, default="")
    if with_name and words.is_read_only and name:
        spoken_name = " ".join(_words_of_name(words.skill_id)) or name
        taking = words.text_into or _one_required(words.tool)
        if taking is not None and (sentence := spoken((spoken_name, Slot(taking)), optional)) is not None:
            yield sentence
        elif not required_of(words.tool.input_schema):
            yield spoken_name


def _all_examples(tool: Tool, values: JsonObject) -> JsonObject:
    """Example values of all properties of a tool."""
    made = dict(values)
    for name in properties_of(tool.input_schema):
        if name not in made:
            schema: JsonObject = {**tool.input_schema, "required": [name]}
            made |= example_of(replace(tool, input_schema=schema)) or {}
    # A text that says nothing is replaced by the name of its property: "move source to destination".
    return {name: name if value == PLAIN else value for name, value in made.items()}


def _stand_ins(pieces: Sequence[str | Slot], tool: Tool) -> JsonObject:
    """Values for the arguments in a phrase, for sentences that only check the phrase."""
    values = _all_examples(tool, example_of(tool) or {})
    return {piece.name: values.get(piece.name, "text") for piece in pieces if isinstance(piece, Slot)}
