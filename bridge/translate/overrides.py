"""What a configuration says of single skills and tools, and what that makes of a tool and its arguments. Pure.

A rule is found by a name or a glob. Where several match they are merged key by key: an exact name goes before a
glob, a later glob before an earlier one, and the first that says a key decides it. So `"*"` can say what holds
for all, and a name only what differs. Arguments merge in the same way, each by its own keys.

An argument may be given a default, another description, or be hidden. A hidden one is the operator's alone: it
leaves the schema that is shown, and a caller who sets it is refused as for an argument that does not exist.
Refusing, not overwriting: a call that was meant for another value must not run with ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from fnmatch import fnmatchcase
from typing import Final, Literal, TypeVar

from pydantic import JsonValue

from bridge.jsonvalues import JsonObject
from bridge.mcp.tools import Tool


class Absent(Enum):
    """Nothing was said, which is not the same as null."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT
Rule = TypeVar("Rule", "SkillOverride", "ToolOverride", "ArgumentRule")

_SUBSCHEMAS: Final = ("allOf", "anyOf", "oneOf")
_SUBSCHEMA: Final = ("then", "else")
"""Where a schema says more of the same object. `if` and `not` are left: taking something out of them would turn
what they mean around."""


@dataclass(frozen=True, slots=True)
class ArgumentRule:
    """What is said of one argument; None and ABSENT say nothing."""

    default: JsonValue | Absent = ABSENT
    """Sent when the caller gives none; it need not be given then."""
    hidden: bool | None = None
    """Whether callers neither see nor set it. Without a default it is never sent."""
    description: str | None = None
    """In place of the server's."""


@dataclass(frozen=True, slots=True)
class SkillOverride:
    """What is said of the skill that stands for a tool; None says nothing."""

    id: str | None = None
    name: str | None = None
    description: str | None = None
    tags: tuple[str, ...] | None = None
    """Added to those that the skill has."""
    examples: tuple[str, ...] | None = None
    """In place of the generated ones."""
    hidden: bool | None = None
    """Whether it is neither on the card nor callable."""
    text_into: str | None = None
    """The argument that takes plain text."""
    arguments: Mapping[str, ArgumentRule] = field(default_factory=dict)
    call_timeout_seconds: float | None = None
    concurrency: int | None = None
    """Calls of it at the same time."""
    reply: Literal["task", "message"] | None = None
    """Whether a call that ends without a question or a failure is answered with a Message alone."""
    confirm: bool | None = None
    """Whether its client has to say yes to each call."""


@dataclass(frozen=True, slots=True)
class ToolOverride:
    """What is said of the tool that stands for a skill; None says nothing."""

    name: str | None = None
    title: str | None = None
    description: str | None = None
    hidden: bool | None = None
    arguments: Mapping[str, ArgumentRule] = field(default_factory=dict)
    answer_within_seconds: float | None = None
    task_after_seconds: float | None = None
    concurrency: int | None = None


NEVER_GIVEN: Final = "it is hidden and required, and has no default, so that no call can succeed"
"""What is wrong with an argument that nobody gives."""


@dataclass(frozen=True, slots=True)
class Remark:
    """What a configuration says for nothing, or what cannot be done, with the tools that there are."""

    path: tuple[str, ...]
    """Of the key, below the table of its face."""
    words: str
    is_of_nothing: bool = False
    """Whether it is that nothing of the name is there, which more tools could change."""

    def __str__(self) -> str:
        return f"{'.'.join(self.path)}: {self.words}"


def override_for(rules: Mapping[str, Rule], *names: str) -> Rule | None:
    """What the rules say of something, merged; None when none matches.

    `rules` are by pattern, in the order in which they were written. It has several `names` when it can be spoken
    of in more than one way; an exact match of an earlier name goes before one of a later.
    """
    merged: Rule | None = None
    for pattern in _weakest_first(list(rules), names):
        merged = rules[pattern] if merged is None else _merged(merged, rules[pattern])
    return merged


def unmatched_patterns(rules: Mapping[str, Rule], names: Iterable[str]) -> Mapping[str, str]:
    """The patterns that match none of these names, most likely by mistake; with what is wrong, in words."""
    there = frozenset(names)
    return {
        pattern: "it matches no tool" if any(sign in pattern for sign in "*?[") else "there is no such tool"
        for pattern in sorted(rules)
        if pattern not in there and not any(fnmatchcase(name, pattern) for name in there)
    }


def _weakest_first(patterns: Sequence[str], names: Sequence[str]) -> list[str]:
    exact = [name for name in dict.fromkeys(reversed(names)) if name in patterns]
    globs = [
        pattern
        for pattern in patterns
        if pattern not in exact and any(fnmatchcase(name, pattern) for name in names)
    ]
    return [*globs, *exact]


def _merged(weaker: Rule, stronger: Rule) -> Rule:
    changes: dict[str, object] = {}
    for one in fields(stronger):
        said = getattr(stronger, one.name)
        if one.name == "arguments":
            changes[one.name] = _merged_arguments(getattr(weaker, one.name), said)
        elif said is not one.default:
            changes[one.name] = said
    return replace(weaker, **changes)  # type: ignore[arg-type]  # each is a field's value


def _merged_arguments(
    weaker: Mapping[str, ArgumentRule], stronger: Mapping[str, ArgumentRule]
) -> dict[str, ArgumentRule]:
    both = {name: _merged(weaker[name], rule) for name, rule in stronger.items() if name in weaker}
    return {**weaker, **stronger, **both}


# Arguments


def shown_schema(schema: JsonObject, rules: Mapping[str, ArgumentRule]) -> JsonObject:
    """The inputSchema as callers see it: without hidden arguments, and with the defaults and words of the rules."""
    known = declared_arguments(schema)
    hidden = frozenset(name for name, rule in rules.items() if rule.hidden)
    optional = frozenset(name for name, rule in rules.items() if rule.default is not ABSENT and name in known)
    return _shown(schema, rules, hidden, optional) if rules else schema


def with_default_arguments(
    arguments: JsonObject, schema: JsonObject, rules: Mapping[str, ArgumentRule]
) -> JsonObject:
    """The arguments as the server gets them: with the defaults of the rules, and hidden ones as the rules say.

    `schema` is the server's own. A default for an argument that it does not name is not sent.
    """
    known = declared_arguments(schema)
    given = {name: value for name, value in arguments.items() if not is_hidden(name, rules)}
    defaults = {
        name: rule.default
        for name, rule in rules.items()
        if rule.default is not ABSENT and name in known and name not in given
    }
    return {**given, **defaults} if defaults or len(given) < len(arguments) else arguments


def hidden_arguments_in(arguments: JsonObject, rules: Mapping[str, ArgumentRule]) -> tuple[str, ...]:
    """The hidden arguments that a caller sets all the same."""
    return tuple(name for name in arguments if is_hidden(name, rules))


def declared_arguments(schema: JsonObject) -> frozenset[str]:
    """The names of the arguments that a schema speaks of, also in what it says under conditions."""
    properties = schema.get("properties")
    own = frozenset(properties) if isinstance(properties, dict) else frozenset()
    return own.union(*(declared_arguments(inner) for _, inner in _inner(schema)))


def is_hidden(name: str, rules: Mapping[str, ArgumentRule]) -> bool:
    """Whether callers neither see nor set an argument."""
    return name in rules and rules[name].hidden is True


def _shown(
    schema: JsonObject,
    rules: Mapping[str, ArgumentRule],
    hidden: frozenset[str],
    optional: frozenset[str],
) -> JsonObject:
    shown = dict(schema)
    properties, required = schema.get("properties"), schema.get("required")
    if isinstance(properties, dict):
        shown["properties"] = {
            name: _described(prop, rules.get(name)) for name, prop in properties.items() if name not in hidden
        }
    if isinstance(required, list):
        shown["required"] = [name for name in required if name not in hidden and name not in optional]
    if isinstance(together := schema.get("dependentRequired"), dict):
        shown["dependentRequired"] = {
            name: _without(names, hidden) for name, names in together.items() if name not in hidden
        }
    if isinstance(examples := schema.get("examples"), list):
        shown["examples"] = [_without(example, hidden) for example in examples]
    if "default" in schema:
        shown["default"] = _without(schema["default"], hidden)
    for key, inner in _inner(schema):
        changed = _shown(inner, rules, hidden, optional)
        listed = shown[key]
        shown[key] = (
            [changed if one is inner else one for one in listed] if isinstance(listed, list) else changed
        )
    return shown


def _inner(schema: JsonObject) -> list[tuple[str, JsonObject]]:
    """The schemas in a schema that say more of the same object, each with where it stands."""
    found: list[tuple[str, JsonObject]] = []
    for key in _SUBSCHEMAS:
        if isinstance(several := schema.get(key), list):
            found += [(key, one) for one in several if isinstance(one, dict)]
    for key in _SUBSCHEMA:
        if isinstance(one := schema.get(key), dict):
            found.append((key, one))
    return found


def _described(prop: JsonValue, rule: ArgumentRule | None) -> JsonValue:
    if rule is None or not isinstance(prop, dict):
        return prop
    said: JsonObject = {} if rule.description is None else {"description": rule.description}
    if rule.default is not ABSENT:
        said["default"] = rule.default
    return {**prop, **said}


def _without(value: JsonValue, hidden: frozenset[str]) -> JsonValue:
    if isinstance(value, dict):
        return {name: inner for name, inner in value.items() if name not in hidden}
    if isinstance(value, list):
        return [item for item in value if not (isinstance(item, str) and item in hidden)]
    return value


# Tools


def overridden(tool: Tool, override: SkillOverride) -> Tool:
    """The tool as callers see it; its name in calls, and the schema that calls are checked by, stay the server's."""
    changes: JsonObject = {
        key: value
        for key, value in (
            ("name", override.id),
            ("title", override.name),
            ("description", override.description),
        )
        if value is not None
    }
    listed_schema = tool.listed["inputSchema"]
    if override.arguments and isinstance(listed_schema, dict):
        changes["inputSchema"] = shown_schema(listed_schema, override.arguments)
    if not changes:
        return tool
    schema = shown_schema(tool.input_schema, override.arguments)
    return replace(tool, listed={**tool.listed, **changes}, input_schema=schema)
