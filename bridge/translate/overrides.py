"""The configured rules for single skills and tools, and their effect on a tool and its arguments. Pure.

A rule's pattern is a name or a glob. Matching rules are merged key by key: an exact name takes precedence over a glob,
and a later glob over an earlier one. So `"*"` can hold what all tools share, and a name only what differs. The rules
for arguments merge in the same way.

The name under which a skill or tool is shown depends on which others are known. Rules must not depend on that: see
`RuleNames`.

A rule may give an argument a default or another description, or hide it. Only the operator sets a hidden argument:
callers do not see it in the schema, and a call that sets it is refused like a call with an unknown argument. The
caller's value is not replaced, since a call meant for another value must not run with the operator's value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from fnmatch import fnmatchcase
from typing import Final, Literal, TypeVar

from pydantic import JsonValue

from bridge.mcp.tools import Tool
from bridge.text.jsonvalues import JsonObject


class Absent(Enum):
    """No value was given, which is not the same as null."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT
Rule = TypeVar("Rule", "SkillOverride", "ToolOverride", "ArgumentRule")

_SUBSCHEMAS: Final = ("allOf", "anyOf", "oneOf")
_SUBSCHEMA: Final = ("then", "else")
"""Keywords whose schema adds to the same object. `if` and `not` are left out: removing something from them would
reverse their meaning."""


@dataclass(frozen=True, slots=True)
class ArgumentRule:
    """The rule for one argument. None and ABSENT mean that nothing is configured."""

    default: JsonValue | Absent = ABSENT
    """The value that is sent when the caller gives none. An argument with a default is not required."""
    hidden: bool | None = None
    """Whether callers can neither see nor set the argument. Without a default, a hidden argument is never sent."""
    description: str | None = None
    """Replaces the server's description."""


@dataclass(frozen=True, slots=True)
class SkillOverride:
    """The rule for the skill of a tool. None means that nothing is configured."""

    id: str | None = None
    name: str | None = None
    description: str | None = None
    tags: tuple[str, ...] | None = None
    """Added to the tags of the skill."""
    examples: tuple[str, ...] | None = None
    """Replace the generated examples."""
    hidden: bool | None = None
    """Whether the skill is neither on the card nor callable."""
    public: bool | None = None
    """Whether the card shows the skill to everyone; if not, only to callers who may use it, or could with another
    scope."""
    text_into: str | None = None
    """The name of the argument that takes plain text."""
    arguments: Mapping[str, ArgumentRule] = field(default_factory=dict)
    call_timeout_seconds: float | None = None
    concurrency: int | None = None
    """The most calls of the skill at the same time."""
    reply: Literal["task", "message"] | None = None
    """Whether a call that ends without a question or a failure is answered with a Message instead of a task."""
    confirm: bool | None = None
    """Whether the client has to confirm each call."""
    phrases: tuple[str, ...] | None = None
    """The sentences that mean a call of the skill, as templates."""
    read_only: bool | None = None
    """Whether calls change nothing, so that a sentence may run the tool without a yes."""
    by_name: bool | None = None
    """Whether the skill's name with a value is a sentence that means it; only a ready mapping says no."""


@dataclass(frozen=True, slots=True)
class ToolOverride:
    """The rule for the tool of a skill. None means that nothing is configured."""

    name: str | None = None
    title: str | None = None
    description: str | None = None
    hidden: bool | None = None
    arguments: Mapping[str, ArgumentRule] = field(default_factory=dict)
    answer_within_seconds: float | None = None
    task_after_seconds: float | None = None
    concurrency: int | None = None


@dataclass(frozen=True, slots=True)
class RuleNames:
    """The names by which rules match one skill or tool, whatever name it is shown under now.

    A rule may restrict a tool (`hidden`, `confirm`, not `public`) or lift a restriction. It restricts by every name
    that the tool has, or may get once other tools are known. It lifts a restriction only by the tool's own name, the
    name that is shown, or the exact qualified name. A glob that matches only the qualified name lifts nothing.
    """

    every: tuple[str, ...]
    """All names, the most exact first. An exact rule for an earlier name takes precedence over a rule for a later name.
    Globs do not match here, since some names end with part of a hash."""
    own: frozenset[str]
    """The tool's own name, and the name that is shown."""
    qualified: frozenset[str] = frozenset()
    """The names prefixed by the server, which globs may match."""
    exact: frozenset[str] = frozenset()
    """The qualified names that no other tool has."""

    def match(self, pattern: str) -> bool:
        """Whether a rule with this pattern applies."""
        meant = (*self.own, *self.qualified)
        return pattern in self.every or any(fnmatchcase(name, pattern) for name in meant)

    def may_lift(self, pattern: str) -> bool:
        """Whether a matching rule with this pattern may also lift restrictions."""
        return (
            pattern in self.exact
            or pattern in self.own
            or any(fnmatchcase(name, pattern) for name in self.own)
        )


def qualified_names_of_one(
    things: Iterable[tuple[str, str, Iterable[str]]], unknown: Collection[str] = ()
) -> frozenset[str]:
    """The qualified names that only one tool has. SERVER_TOOL may be split in two ways: `a` and `b_c`, or `a_b` and
    `c`. `things` holds the server's key, the qualified name, and the other names of each tool. `unknown` are the keys
    of servers whose tools are not all known."""
    named = tuple((key, qualified, frozenset((qualified, *others))) for key, qualified, others in things)
    counted = Counter(name for _, _, names in named for name in names)
    return frozenset(
        qualified
        for key, qualified, _ in named
        if counted[qualified] == 1
        and not qualified.startswith(tuple(f"{other}_" for other in unknown if other != key))
    )


NEVER_GIVEN: Final = "it is hidden and required, and has no default, so that no call can succeed"
"""The remark on a required argument that is hidden and has no default."""


@dataclass(frozen=True, slots=True)
class Remark:
    """A configured rule that has no effect on the current tools, or cannot be applied to them."""

    path: tuple[str, ...]
    """The path of the key, below the table of its face."""
    words: str
    is_of_nothing: bool = False
    """Whether no tool matches the rule. More tools could change that."""

    def __str__(self) -> str:
        return f"{'.'.join(self.path)}: {self.words}"


def override_for(rules: Mapping[str, Rule], names: RuleNames) -> Rule | None:
    """The merged rules for a tool with these names; None when no rule matches.

    `rules` are by pattern, in the order of the configuration.
    """
    merged_rule: Rule | None = None
    for pattern in _weakest_first(list(rules), names):
        rule = rules[pattern] if names.may_lift(pattern) else _without_lifting(rules[pattern])
        merged_rule = rule if merged_rule is None else merged(merged_rule, rule)
    return merged_rule


def unmatched_patterns(
    rules: Mapping[str, Rule], things: Iterable[RuleNames], noun: str = "tool"
) -> Mapping[str, str]:
    """The patterns that match none of these tools, most likely by mistake, each with the words of its remark. `noun` is
    what the rules are for."""
    there = tuple(things)
    return {
        pattern: f"it matches no {noun}"
        if any(sign in pattern for sign in "*?[")
        else f"there is no such {noun}"
        for pattern in sorted(rules)
        if not any(names.match(pattern) for names in there)
    }


def _weakest_first(patterns: Sequence[str], names: RuleNames) -> list[str]:
    exact = [name for name in dict.fromkeys(reversed(names.every)) if name in patterns]
    globs = [pattern for pattern in patterns if pattern not in exact and names.match(pattern)]
    return [*globs, *exact]


_LIFTING_VALUES: Final[Mapping[str, bool]] = {
    "hidden": False,
    "confirm": False,
    "public": True,
    "read_only": True,
}
"""The value with which each of these keys lifts a restriction."""


def _without_lifting(rule: Rule) -> Rule:
    """The rule without the keys that lift restrictions."""
    changes: dict[str, object] = {}
    for rule_field in fields(rule):
        value = getattr(rule, rule_field.name)
        if rule_field.name == "arguments":
            changes[rule_field.name] = {name: _without_lifting(argument) for name, argument in value.items()}
        elif rule_field.name in _LIFTING_VALUES and value is _LIFTING_VALUES[rule_field.name]:
            changes[rule_field.name] = None
    return replace(rule, **changes)  # type: ignore[arg-type]  # each is a field's value


def merged(weaker: Rule, stronger: Rule) -> Rule:
    """Two rules for the same tool as one. A key of the stronger rule takes precedence."""
    changes: dict[str, object] = {}
    for rule_field in fields(stronger):
        value = getattr(stronger, rule_field.name)
        if rule_field.name == "arguments":
            changes[rule_field.name] = _merged_arguments(getattr(weaker, rule_field.name), value)
        elif value is not rule_field.default:
            changes[rule_field.name] = value
    return replace(weaker, **changes)  # type: ignore[arg-type]  # each is a field's value


def _merged_arguments(
    weaker: Mapping[str, ArgumentRule], stronger: Mapping[str, ArgumentRule]
) -> dict[str, ArgumentRule]:
    both = {name: merged(weaker[name], rule) for name, rule in stronger.items() if name in weaker}
    return {**weaker, **stronger, **both}


# Arguments


def shown_schema(schema: JsonObject, rules: Mapping[str, ArgumentRule]) -> JsonObject:
    """The inputSchema that callers see: without hidden arguments, with the defaults and descriptions of the rules."""
    known = declared_arguments(schema)
    hidden = frozenset(name for name, rule in rules.items() if rule.hidden)
    optional = frozenset(name for name, rule in rules.items() if rule.default is not ABSENT and name in known)
    return _changed_schema(schema, rules, hidden, optional) if rules else schema


def with_default_arguments(
    arguments: JsonObject, schema: JsonObject, rules: Mapping[str, ArgumentRule]
) -> JsonObject:
    """The arguments that the server gets: with the rules' defaults, including those of hidden arguments.

    `schema` is the server's own schema. A default for an argument that the schema does not declare is not sent.
    """
    known = declared_arguments(schema)
    visible = {name: value for name, value in arguments.items() if not is_hidden(name, rules)}
    defaults = {
        name: rule.default
        for name, rule in rules.items()
        if rule.default is not ABSENT and name in known and name not in visible
    }
    return {**visible, **defaults} if defaults or len(visible) < len(arguments) else arguments


def hidden_arguments_in(arguments: JsonObject, rules: Mapping[str, ArgumentRule]) -> tuple[str, ...]:
    """The hidden arguments that a caller tries to set."""
    return tuple(name for name in arguments if is_hidden(name, rules))


def declared_arguments(schema: JsonObject) -> frozenset[str]:
    """The names of all arguments in a schema, including its conditional subschemas."""
    properties = schema.get("properties")
    own = frozenset(properties) if isinstance(properties, dict) else frozenset()
    return own.union(*(declared_arguments(inner) for _, inner in _inner(schema)))


def is_hidden(name: str, rules: Mapping[str, ArgumentRule]) -> bool:
    """Whether an argument is hidden from callers."""
    return name in rules and rules[name].hidden is True


def _changed_schema(
    schema: JsonObject,
    rules: Mapping[str, ArgumentRule],
    hidden: frozenset[str],
    optional: frozenset[str],
) -> JsonObject:
    visible = dict(schema)
    properties, required = schema.get("properties"), schema.get("required")
    if isinstance(properties, dict):
        visible["properties"] = {
            name: _described(prop, rules.get(name)) for name, prop in properties.items() if name not in hidden
        }
    if isinstance(required, list):
        visible["required"] = [name for name in required if name not in hidden and name not in optional]
    if isinstance(together := schema.get("dependentRequired"), dict):
        visible["dependentRequired"] = {
            name: _without(names, hidden) for name, names in together.items() if name not in hidden
        }
    if isinstance(examples := schema.get("examples"), list):
        visible["examples"] = [_without(example, hidden) for example in examples]
    if "default" in schema:
        visible["default"] = _without(schema["default"], hidden)
    for key, inner in _inner(schema):
        changed = _changed_schema(inner, rules, hidden, optional)
        listed = visible[key]
        visible[key] = (
            [changed if item is inner else item for item in listed] if isinstance(listed, list) else changed
        )
    return visible


def _inner(schema: JsonObject) -> list[tuple[str, JsonObject]]:
    """The subschemas that add to the same object, each with its keyword."""
    schemas: list[tuple[str, JsonObject]] = []
    for key in _SUBSCHEMAS:
        if isinstance(several := schema.get(key), list):
            schemas += [(key, item) for item in several if isinstance(item, dict)]
    for key in _SUBSCHEMA:
        if isinstance(inner := schema.get(key), dict):
            schemas.append((key, inner))
    return schemas


def _described(prop: JsonValue, rule: ArgumentRule | None) -> JsonValue:
    if rule is None or not isinstance(prop, dict):
        return prop
    changes: JsonObject = {} if rule.description is None else {"description": rule.description}
    if rule.default is not ABSENT:
        changes["default"] = rule.default
    return {**prop, **changes}


def _without(value: JsonValue, hidden: frozenset[str]) -> JsonValue:
    if isinstance(value, dict):
        return {name: inner for name, inner in value.items() if name not in hidden}
    if isinstance(value, list):
        return [item for item in value if not (isinstance(item, str) and item in hidden)]
    return value


# Tools


def overridden(tool: Tool, override: SkillOverride) -> Tool:
    """The tool that callers see. Calls to the server still use its own name and its own validator."""
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
