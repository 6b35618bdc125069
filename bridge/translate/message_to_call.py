"""Finds the tool call that a message means, by rules that are tried in order; never by a guess. Pure.

0. metadata that names a skill by the key of the bridge's extension, which nobody sets by accident
1. a data part that names a skill: `{"skill": id, "arguments": {...}}` (or `tool`)
2. metadata that names a skill by one of the configured keys
3. text that is JSON of form 1, or `name {json}`, or `name key=value ...`
4. the default skill, or the only one
5. plain text, as the value of the property that takes text
If no rule matches, the client is asked.

Between rules 3 and 4, a text part may be a sentence that means a skill (`plain_words.py`). If a default or only skill
takes text, only the phrases of the operator's file come before it.

Each text part is read alone, since some clients add texts of their own to a person's words. If at most one text part is
a call, and all texts together are a call, too, the call of all texts takes precedence. If parts name different calls,
the client is asked.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from io import StringIO
from typing import Final

from pydantic import JsonValue

from bridge.a2a.model.objects import Message, Part, text_of_parts
from bridge.frozen import frozen
from bridge.mcp.tools import Tool
from bridge.text.jsonvalues import JsonObject, is_same
from bridge.translate.arguments import (
    coerced,
    json_in,
    properties_of,
    required_of,
    resolved_properties,
    value_among,
)
from bridge.translate.extensions.bridge import ARGUMENTS, SKILL
from bridge.translate.files import place_files
from bridge.translate.language.doubtful_words import says_otherwise
from bridge.translate.language.phrases import has_shape
from bridge.translate.language.plain_words import (
    Doubtful,
    Language,
    PhraseBook,
    Said,
    Understood,
)
from bridge.translate.overrides import SkillOverride

_FORM_KEYS: Final = frozenset({"skill", "tool", "arguments"})
_PAIR: Final = re.compile(r"([^\s=]+)=(.*)", re.DOTALL)
_FIRST_KEY: Final = re.compile(r"\s*([^\s=]+)=")
_JSON_PAIR: Final = re.compile(r"\s*[^\s=]+=(?=[\[{])")
_END_OF_PAIR: Final = re.compile(r"\s|\Z")
_JSON: Final = json.JSONDecoder()
_QUOTE_MARKS: Final = ("<<<BEGIN_QUOTED_AGENT_CONTENT>>>", "<<<END_QUOTED_AGENT_CONTENT>>>")
"""What google-adk writes around the words of other agents."""
_CONTEXT: Final = re.compile(r"(?:for )?context\s?:\s*\S", re.IGNORECASE)
"""The beginning of a line that is no request."""
_MAX_SENTENCES: Final = 8
"""The most text parts that are read as sentences. Messages with more parts come from programs."""
_MAX_PAIRS_CHARACTERS: Final = 65_536
"""The most characters of a text that is read as `key=value` pairs. Splitting takes time, and no person types more."""


@dataclass(frozen=True, slots=True)
class RouteRules:
    """The configured parts of the rules."""

    metadata_keys: tuple[str, ...]
    """The metadata keys that may name the skill, in this order, besides the extension's key."""
    default_skill: str | None = None
    text_into: Mapping[str, str] = field(default_factory=dict)
    """The property that takes plain text, by skill id."""
    language: Language = "phrases"
    ready: Mapping[str, SkillOverride] = field(default_factory=dict)
    """The phrases of the mapping profile, and what it calls read-only, by pattern."""


@frozen
class SkillCall:
    """The call that a message means: a skill, its arguments, and the files that fit no property of the skill."""

    skill_id: str
    arguments: JsonObject
    unplaced: tuple[Part, ...] = ()
    said: Said | None = None
    """How a sentence named the skill; None if the message named it in another way."""


@frozen
class UnclearCall:
    """The message means no single call: no rule matched, the named skill does not exist, or it names several calls."""

    named: str | None = None
    several: tuple[str, ...] = ()
    """The ids of the skills in these calls, without duplicates."""
    fitting: tuple[str, ...] = ()
    """The ids of the skills that a sentence fits, if it is doubtful which call it means."""


_Named = tuple[str, JsonObject]
"""The id of a skill, and the arguments for it."""


@frozen
class _Content:
    """The parts of a message by their use."""

    data: tuple[JsonValue, ...]
    texts: tuple[str, ...]
    """The texts without surrounding white space. (A text that becomes an argument keeps its white space.)"""
    text: str
    """All texts, joined and stripped."""
    files: tuple[Part, ...]
    parts: tuple[Part, ...]
    """All parts, unchanged."""

    def without_texts(self) -> _Content:
        """The data and files alone."""
        return _content_of([part for part in self.parts if part.text is None])


def call_from_message(
    message: Message,
    metadata: JsonObject,
    skills: Mapping[str, Tool],
    rules: RouteRules,
    book: PhraseBook | None = None,
) -> SkillCall | UnclearCall:
    """The call that a message means. `metadata` is the request's metadata; the message's own takes precedence. `book`
    has the phrases of the skills."""
    content = _content_of(message.parts)
    named = _named_in(content, {**metadata, **(message.metadata or {})}, skills, rules)
    origin = None
    if named is None:
        only = next(iter(skills)) if len(skills) == 1 else ""
        skill_id = only if rules.default_skill is None else rules.default_skill
        takes_text = rules.default_skill is not None or _takes_text(skill_id, content, skills, rules)
        meaning = None if book is None else _said_in(content, book, own_only=takes_text)
        if isinstance(meaning, Doubtful):
            return UnclearCall(fitting=meaning.skill_ids)
        if meaning is not None:
            named, origin = (meaning.skill_id, meaning.arguments), meaning.said
        elif not skill_id or (book is not None and not takes_text and asks_for_help(message, book)):
            return UnclearCall()
        elif book is not None and not takes_text and _text_into(skill_id, skills, rules) is not None:
            named = skill_id, _arguments_for(skill_id, content.without_texts(), skills, rules)
        else:
            named = skill_id, _arguments_for(skill_id, content, skills, rules)
    if isinstance(named, UnclearCall):
        return named
    skill_id, arguments = named
    tool = skills.get(skill_id)
    if tool is None:
        return UnclearCall(skill_id)
    arguments, unplaced = place_files(tool, arguments, content.files)
    return SkillCall(skill_id, arguments, unplaced, origin)


def asks_for_help(message: Message, book: PhraseBook) -> bool:
    """Whether a message is one text, which asks what the agent does."""
    texts = [part.text for part in message.parts if part.text is not None]
    return len(texts) == len(message.parts) == 1 and book.asks_for_help(texts[0])


def _takes_text(skill_id: str, content: _Content, skills: Mapping[str, Tool], rules: RouteRules) -> bool:
    """Whether the text of a message can be the value of the property that takes text. A sentence is no URL."""
    into = _text_into(skill_id, skills, rules)
    return into is not None and has_shape(content.text, into, skills[skill_id])


def _text_into(skill_id: str, skills: Mapping[str, Tool], rules: RouteRules) -> str | None:
    tool = skills.get(skill_id)
    return None if tool is None else rules.text_into.get(skill_id) or _text_property(tool.input_schema)


def _said_in(content: _Content, book: PhraseBook, *, own_only: bool) -> Understood | Doubtful | None:
    """The call that one of the text parts means as a sentence. The other parts may be old turns, so they must not mean
    another call, and must not say no."""
    texts = [line for text in content.texts if not _is_quote(text) for line in _lines_of(text)]
    if content.data or not 1 <= len(texts) <= _MAX_SENTENCES:
        return None
    meanings = [(text, book.find(text, own_only=own_only)) for text in texts]
    meant = [meaning for _, meaning in meanings if meaning is not None]
    if not meant:
        return None
    first, *others = meant
    if isinstance(first, Doubtful) or any(isinstance(other, Doubtful) for other in others):
        return Doubtful(tuple(dict.fromkeys(skill_id for meaning in meant for skill_id in _ids_in(meaning))))
    same = all(isinstance(other, Understood) and _is_same_call(first, other) for other in others)
    if not same or any(meaning is None and says_otherwise(text) for text, meaning in meanings):
        return Doubtful(tuple(dict.fromkeys(skill_id for meaning in meant for skill_id in _ids_in(meaning))))
    return first


def _is_quote(text: str) -> bool:
    """Whether a text part quotes another agent, as google-adk sends such parts after the words of a person."""
    return all(mark in text for mark in _QUOTE_MARKS)


def _lines_of(text: str) -> list[str]:
    """A text as one sentence. If the lines before the last line all say that they are context, each line stands alone:
    frameworks put such lines before the words of a person."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    is_context = [_CONTEXT.match(line) is not None for line in lines]
    if len(lines) > 1 and all(is_context[:-1]) and not is_context[-1]:
        return lines
    return [text] if text else []


def _ids_in(meaning: Understood | Doubtful) -> tuple[str, ...]:
    return meaning.skill_ids if isinstance(meaning, Doubtful) else (meaning.skill_id,)


def _is_same_call(call: Understood, other: Understood) -> bool:
    return call.skill_id == other.skill_id and is_same(call.arguments, other.arguments)


def arguments_in(parts: Sequence[Part], tool: Tool, text_into: str | None) -> JsonObject:
    """The arguments in the parts of a message whose skill is known (rules 0, 2 and 5)."""
    content = _content_of(parts)
    objects = [value for value in content.data if isinstance(value, dict)]
    arguments: JsonObject = {}
    for values in objects:
        arguments |= _arguments_of(values, tool)
    if not objects:
        arguments = _arguments_in_texts(content, tool)
    takes_text = text_into or _text_property(tool.input_schema)
    if content.text and not arguments and takes_text is not None:
        arguments = {takes_text: text_of_parts(parts)}
    return arguments


def data_in(message: Message, tool: Tool) -> JsonObject:
    """The arguments for a tool in the data parts of a message that did not name the skill."""
    content = _content_of(message.parts)
    values = {
        name: value
        for item in content.data
        if isinstance(item, dict)
        for name, value in _arguments_of(item, tool).items()
    }
    return {name: value for name, value in values.items() if name in properties_of(tool.input_schema)}


def with_metadata(message: Message, metadata: JsonObject) -> Message:
    """A message with the request's metadata added. Its own metadata takes precedence."""
    return message.changed(metadata={**metadata, **(message.metadata or {})}) if metadata else message


def with_one_text(message: Message) -> Message:
    """A message with its text parts joined into one part, so that no part is read alone."""
    if sum(part.text is not None for part in message.parts) < 2:
        return message
    others = tuple(part for part in message.parts if part.text is None)
    return message.changed(parts=(*others, Part(text=text_of_parts(message.parts))))


def skill_named_in(message: Message) -> str | UnclearCall | None:
    """The skill that a message names by the extension's key, or by a data part (rules 0 and 1)."""
    skill = (message.metadata or {}).get(SKILL)
    if isinstance(skill, str) and skill:
        return skill
    named = tuple(dict.fromkeys(skill_id for skill_id, _ in _named_in_data(_content_of(message.parts).data)))
    return UnclearCall(several=named) if len(named) > 1 else next(iter(named), None)


def skill_asked_for_in(
    message: Message, skills: Mapping[str, Tool], rules: RouteRules
) -> str | UnclearCall | None:
    """The skill that a message names in any way (rules 0 to 3)."""
    named = _named_in(_content_of(message.parts), message.metadata or {}, skills, rules)
    return named[0] if isinstance(named, tuple) else named


def arguments_named_in(message: Message) -> JsonObject | None:
    """The arguments in the metadata of a message, under the extension's key."""
    arguments = (message.metadata or {}).get(ARGUMENTS)
    return arguments if isinstance(arguments, dict) else None


def answer_in(
    parts: Sequence[Part], tool: Tool, fields: Sequence[str], skill_id: str | None = None
) -> JsonObject:
    """The arguments of a tool in an answer to a form. `fields` are the names that the form asked for.

    A text counts as data if it holds JSON or `key=value` pairs of known arguments; it may begin with `skill_id`. Any
    other text is the value of the only field; with several fields, it is ignored. If all texts together do not fit the
    field, the one text that fits is taken, since some clients add texts of their own to a person's words.
    """
    content = _content_of(parts)
    objects = [value for value in content.data if isinstance(value, dict)]
    if objects:
        return {name: value for values in objects for name, value in _arguments_of(values, tool).items()}
    name, _, rest = content.text.partition(" ")
    arguments = _arguments_in_text(rest.strip() if name == skill_id else content.text, tool)
    if arguments is not None and arguments.keys() <= properties_of(tool.input_schema).keys():
        return arguments
    if len(fields) != 1:
        return arguments or {}
    texts = [part.text for part in parts if part.text is not None]
    return {fields[0]: value_among(texts, fields[0], tool)}


def _arguments_of(values: JsonObject, tool: Tool) -> JsonObject:
    """The arguments in an object: its own fields, or its `arguments` when it names a skill."""
    inner = values.get("arguments")
    alone = len(values) == 1 and "arguments" in properties_of(tool.input_schema)
    return inner if isinstance(inner, dict) and set(values) <= _FORM_KEYS and not alone else values


def _content_of(parts: Sequence[Part]) -> _Content:
    return _Content(
        data=tuple(part.data for part in parts if part.kind == "data"),
        texts=tuple(part.text.strip() for part in parts if part.text is not None),
        text=text_of_parts(parts).strip(),
        files=tuple(part for part in parts if part.kind in ("raw", "url")),
        parts=tuple(parts),
    )


def _named_in(
    content: _Content, metadata: JsonObject, skills: Mapping[str, Tool], rules: RouteRules
) -> _Named | UnclearCall | None:
    """Rules 0 to 3. `metadata` is the merged metadata."""
    return (
        _named_in_metadata((SKILL,), metadata, content, skills, rules)
        or _the_one(_named_in_data(content.data))
        or _named_in_metadata(rules.metadata_keys, metadata, content, skills, rules)
        or _the_one(_named_in_texts(content, skills))
    )


def _the_one(named: Sequence[_Named]) -> _Named | UnclearCall | None:
    """The call that all entries name; an UnclearCall if they differ, None if there are none."""
    if not named:
        return None
    (first_id, first), *others = named
    if all(skill_id == first_id and is_same(arguments, first) for skill_id, arguments in others):
        return first_id, first
    return UnclearCall(several=tuple(dict.fromkeys(skill_id for skill_id, _ in named)))


def _named_in_data(data: Sequence[JsonValue]) -> list[_Named]:
    """Rule 1."""
    return [form for value in data if (form := _form(value)) is not None]


def _form(value: JsonValue) -> _Named | None:
    """`{"skill" | "tool": id, "arguments"?: {...}}` and nothing else."""
    if not isinstance(value, dict) or not set(value) <= _FORM_KEYS or {"skill", "tool"} <= set(value):
        return None
    skill_id, arguments = value.get("skill", value.get("tool")), value.get("arguments", {})
    if isinstance(skill_id, str) and isinstance(arguments, dict):
        return skill_id, arguments
    return None


def _named_in_metadata(
    keys: Sequence[str],
    metadata: JsonObject,
    content: _Content,
    skills: Mapping[str, Tool],
    rules: RouteRules,
) -> _Named | None:
    """Rules 0 and 2."""
    for key in keys:
        skill_id = metadata.get(key)
        if isinstance(skill_id, str) and skill_id:
            arguments = metadata.get(ARGUMENTS)
            if isinstance(arguments, dict):
                return skill_id, arguments
            return skill_id, _arguments_for(skill_id, content, skills, rules)
    return None


def _arguments_for(
    skill_id: str, content: _Content, skills: Mapping[str, Tool], rules: RouteRules
) -> JsonObject:
    tool = skills.get(skill_id)
    if tool is None:
        return {}
    return arguments_in(content.parts, tool, rules.text_into.get(skill_id))


def _named_in_texts(content: _Content, skills: Mapping[str, Tool]) -> list[_Named]:
    """Find the tools that text parts name (rule 3). The name may stand in one part and the arguments in others."""
    alone = [named for text in content.texts if (named := _named_in_text(text, skills))]
    whole = _named_in_text(content.text, skills) if len(alone) < 2 else None
    return alone if whole is None else [whole]


def _named_in_text(text: str, skills: Mapping[str, Tool]) -> _Named | None:
    if (form := _form(_json(text))) is not None:
        return form
    name, rest = [*text.split(maxsplit=1), "", ""][:2]
    tool = skills.get(name)
    if tool is None:
        return None
    arguments = _arguments_in_text(rest.strip(), tool)
    return None if arguments is None else (name, arguments)


def _arguments_in_texts(content: _Content, tool: Tool) -> JsonObject:
    """The arguments in the whole text; else the arguments in text parts that hold nothing but arguments of the tool."""
    whole = _arguments_in_text(content.text, tool)
    if whole is not None:
        return whole
    alone = (_arguments_in_text(text, tool) or {} for text in content.texts)
    known = properties_of(tool.input_schema).keys()
    return {name: value for values in alone if values.keys() <= known for name, value in values.items()}


def _arguments_in_text(text: str, tool: Tool) -> JsonObject | None:
    """Reads `{json}`, or `key=value ...` with keys that the tool knows; None when the text is neither."""
    if not text:
        return {}
    value = _json(text)
    if isinstance(value, dict):
        return _arguments_of(value, tool)
    return _pairs(text, tool)


def _pairs(text: str, tool: Tool) -> JsonObject | None:
    if len(text) > _MAX_PAIRS_CHARACTERS:
        return None
    properties, first = properties_of(tool.input_schema), _FIRST_KEY.match(text)
    if first is None or first[1] not in properties:
        return None
    try:
        words = _words(text)
    except ValueError:
        return None
    arguments: JsonObject = {}
    for word in words:
        pair = _PAIR.fullmatch(word)
        if pair is None or pair[1] not in properties:
            return None
        arguments[pair[1]] = coerced(pair[2], pair[1], tool)
    return arguments


def _words(text: str) -> list[str]:
    """The words of a text, split like a shell does, except that `key={...}` and `key=[...]` extend to the end of the
    JSON.

    Raises:
        ValueError: a quotation mark is not closed.
    """
    stream = StringIO(text)
    shell = shlex.shlex(stream, posix=True)
    shell.whitespace_split, shell.commenters = True, ""
    words: list[str] = []
    while True:
        start = stream.tell()
        pair = _JSON_PAIR.match(text, start)
        end = _end_of_json(text, pair.end()) if pair else None
        if end is not None:
            words.append(text[start:end].lstrip())
            stream.seek(end)
        elif (word := shell.get_token()) is not None:
            words.append(word)
        else:
            return words


def _end_of_json(text: str, start: int) -> int | None:
    """The end of the JSON value that begins at `start`; None without a value, or if other text follows it directly."""
    try:
        _, end = _JSON.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None
    return end if _END_OF_PAIR.match(text, end) else None


def _text_property(schema: JsonObject) -> str | None:
    """Rule 5: the only required property of type string; None if there are none or several."""
    properties = resolved_properties(schema)
    strings = [name for name in required_of(schema) if properties.get(name, {}).get("type") == "string"]
    return strings[0] if len(strings) == 1 else None


def _json(text: str) -> JsonValue:
    """The JSON object in a text; None for any other text."""
    return next(iter(json_in(text)), None) if text.startswith("{") else None
