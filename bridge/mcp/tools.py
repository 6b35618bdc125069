"""The tools of a server as it lists them, and which of them can be served. Pure.

What a server lists is kept verbatim. A tool that cannot be served (no name, a schema that is none) is left
out and reported; the others stay.

Spec: MCP 2026-07-28 and 2025-11-25, server/tools.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any, Final

from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import extend, validator_for
from pydantic import JsonValue
from pydantic_core import SchemaError as BadSchemaError
from pydantic_core import SchemaValidator, core_schema
from referencing import Registry, Resource, Specification
from referencing._core import Resolver
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012, specification_with

from bridge.jsonvalues import JsonObject, exceeds_floats, is_deeper, values_in

MAX_SCHEMA_DEPTH: Final = 40
"""Levels in a tool's schema. Deeper ones exist only to exhaust who reads them: a2a-sdk, whose JSON goes through
protocol buffers, cannot read a card in which one of 45 levels stands."""

MAX_STEPS: Final = 100_000
"""How many keywords one check looks at, and MAX_STEPS_A_VALUE for each value in what is checked: a schema whose
references fan out takes exponentially many."""
MAX_STEPS_A_VALUE: Final = 200


@dataclass(frozen=True, slots=True, eq=False)
class Tool:
    """One tool: its name, the object that the server listed, and the compiled schema of its arguments."""

    name: str
    listed: JsonObject
    input_schema: JsonObject
    validator: Validator

    def text(self, key: str) -> str | None:
        """A text that the server gave it, such as `title` or `description`; None when absent or empty."""
        value = self.listed.get(key)
        return value if isinstance(value, str) and value else None

    @property
    def output_schema(self) -> JsonObject | None:
        """The schema of its structured result, if it has one."""
        value = self.listed.get("outputSchema")
        return value if isinstance(value, dict) else None

    @property
    def annotations(self) -> JsonObject:
        """What the server explicitly says of it (hints)."""
        value = self.listed.get("annotations")
        return value if isinstance(value, dict) else {}

    @property
    def runs_only_as_task(self) -> bool:
        """Whether it has to be called as a task (MCP 2025-11-25 basic/utilities/tasks, tool-level negotiation)."""
        execution = self.listed.get("execution")
        return isinstance(execution, dict) and execution.get("taskSupport") == "required"

    @property
    def is_repeatable(self) -> bool:
        """Whether its server says that calling it twice does no more than calling it once."""
        return any(self.annotations.get(hint) is True for hint in ("readOnlyHint", "idempotentHint"))


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A listed tool that cannot be served."""

    name: str
    reason: str


def tools_from(listed: Iterable[JsonValue]) -> tuple[tuple[Tool, ...], tuple[LeftOut, ...]]:
    """The tools that can be served, in the server's order, and those that cannot."""
    tools: dict[str, Tool] = {}
    left_out: list[LeftOut] = []
    for number, item in enumerate(listed, 1):
        name = _name_of(item) or f"number {number}"
        try:
            tool = _tool_from(item)
            if tool.name in tools:
                raise ValueError("an earlier tool has this name")
        except ValueError as exc:
            left_out.append(LeftOut(name, str(exc)))
        else:
            tools[tool.name] = tool
    return tuple(tools.values()), tuple(left_out)


def _name_of(item: JsonValue) -> str | None:
    name = item.get("name") if isinstance(item, dict) else None
    return name if isinstance(name, str) and name else None


def _tool_from(item: JsonValue) -> Tool:
    if not isinstance(item, dict):
        raise ValueError("it is no object")  # noqa: TRY004 - one kind of error for one kind of reader
    name = _name_of(item)
    if name is None:
        raise ValueError("it has no name")
    schema = item.get("inputSchema")
    if not isinstance(schema, dict):
        raise ValueError("its inputSchema is no object")  # noqa: TRY004
    if schema.get("type", "object") != "object":
        raise ValueError(f"its inputSchema has the type {schema['type']!r}, not 'object'")
    from mcp.shared.inbound import (
        find_invalid_x_mcp_header,  # brings the whole SDK, which a client of A2A never needs
    )

    if (reason := find_invalid_x_mcp_header(schema)) is not None:
        raise ValueError(f"its inputSchema has an invalid x-mcp-header: {reason}")
    validator = validator_of(schema)
    if is_deeper(item, MAX_SCHEMA_DEPTH + 1):
        raise ValueError(f"it is nested deeper than {MAX_SCHEMA_DEPTH} levels")
    if exceeds_floats(item):
        raise ValueError("a number in it is out of range")
    return Tool(name, item, schema, validator)


def validator_of(schema: JsonObject) -> Validator:
    """A schema, compiled by the dialect that its `$schema` names, by default 2020-12. Nothing is ever fetched.

    Raises:
        ValueError: it is no valid schema, is too deep, or refers to a schema elsewhere.
    """
    if is_deeper(schema, MAX_SCHEMA_DEPTH):
        raise ValueError(f"its schema is nested deeper than {MAX_SCHEMA_DEPTH} levels")
    if not isinstance(schema.get("$schema", ""), str):
        raise ValueError("its $schema is no text")  # noqa: TRY004
    kind = validator_for(schema, default=Draft202012Validator)
    try:
        # No format checker: patterns are JavaScript's, of which Python does not know all.
        kind.check_schema(schema, format_checker=None)  # type: ignore[call-arg]  # the protocol lags behind
    except SchemaError as exc:
        where = "/".join(str(step) for step in exc.absolute_path)
        raise ValueError(f"its schema is not valid at {where or 'the top'}: {exc.message[:200]}") from exc
    meta = kind.META_SCHEMA
    dialect = specification_with(str(meta.get("$id") or meta.get("id")), default=DRAFT202012)
    root: Resource[JsonValue] = dialect.create_resource(schema)
    try:
        _require_own_references(root, Registry().resolver_with_root(root), dialect, set())
    except (AttributeError, TypeError) as exc:  # the library expects schemas wherever a reference may lead
        raise ValueError("its schema refers to what is no schema") from exc
    quick = _quick(kind, _names(schema, "patternProperties"))
    return quick(_without_dialect(schema), registry=Registry())


def _without_dialect(schema: JsonValue) -> Any:
    """A schema that names no dialect: at each name the library would go back to its own, slow checks."""
    if isinstance(schema, dict):
        return {
            key: _without_dialect(inner)
            for key, inner in schema.items()
            if key != "$schema" or not isinstance(inner, str)
        }
    return [_without_dialect(inner) for inner in schema] if isinstance(schema, list) else schema


class UncheckableError(Exception):
    """A value cannot be checked against a schema here: that takes too long, or more than Python can do."""


def errors_of(validator: Validator, value: JsonValue, most: int) -> list[ValidationError]:
    """What a schema finds wrong with a value, at most so much.

    Raises:
        UncheckableError: recursion or references without end, a pattern that only JavaScript knows, a number
            beyond floats.
    """
    formats = validator.format_checker  # type: ignore[attr-defined]  # the protocol lags behind
    counted = validator.evolve(format_checker=_Steps(formats, values_in(value)))
    try:
        return list(islice(counted.iter_errors(value), most))
    except (RecursionError, OverflowError, re.error, _TooManyStepsError) as exc:
        raise UncheckableError(str(exc)) from exc


class _TooManyStepsError(Exception):
    pass


class _Steps(FormatChecker):
    """Counts the steps of one check, into which the library takes a format checker along and nothing else."""

    def __init__(self, formats: FormatChecker | None, values: int) -> None:
        super().__init__(formats=())
        self._formats = formats
        self._left = MAX_STEPS + MAX_STEPS_A_VALUE * values

    def check(self, instance: object, format: str) -> None:  # noqa: A002 - the library's name
        if self._formats is not None:
            self._formats.check(instance, format)

    def step(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise _TooManyStepsError("the check takes too many steps")


@lru_cache
def _quick(kind: type[Validator], has_patterns: bool) -> type[Validator]:
    """A dialect in which no check takes more time than the value is long: a client's text could hold the bridge up.

    The library compares all pairs of unique items, and its patterns may try exponentially many ways to match.
    Which properties are unevaluated it tells by such patterns; where there are any, that is for the server to say.
    """
    checks: dict[str, Any] = {
        **kind.VALIDATORS,
        "uniqueItems": _unique_items,
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
    }
    if has_patterns:
        checks["unevaluatedProperties"] = _passed_over
    counted = {keyword: _counted(check) for keyword, check in checks.items()}
    quick: type[Validator] = extend(kind, counted)  # type: ignore[no-untyped-call]
    return quick


def _counted(check: Any) -> Any:
    def counting(validator: Any, wanted: JsonValue, instance: JsonValue, schema: JsonObject) -> Any:
        if isinstance(validator.format_checker, _Steps):
            validator.format_checker.step()
        return check(validator, wanted, instance, schema)

    return counting


def _passed_over(_: Any, __: JsonValue, ___: JsonValue, ____: JsonObject) -> Iterator[ValidationError]:
    return iter(())


def _names(schema: JsonValue, keyword: str) -> bool:
    """Whether a schema has a keyword anywhere."""
    if isinstance(schema, dict):
        return keyword in schema or any(_names(inner, keyword) for inner in schema.values())
    return isinstance(schema, list) and any(_names(inner, keyword) for inner in schema)


@lru_cache(maxsize=4096)
def _matcher(pattern: str) -> SchemaValidator | None:
    """A pattern that is matched in linear time; None when it needs more (it looks around, or back)."""
    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
    except BadSchemaError:
        return None


def matches(pattern: JsonValue, text: str, *, unknown: bool) -> bool:
    """Whether a pattern is found in a text; `unknown` where that cannot be told in linear time."""
    matcher = _matcher(pattern) if isinstance(pattern, str) else None
    return unknown if matcher is None else matcher.isinstance_python(text)


def _pattern(
    _: Validator, pattern: JsonValue, instance: JsonValue, __: JsonObject
) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not matches(pattern, instance, unknown=True):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, schemas: JsonObject, instance: JsonValue, _: JsonObject
) -> Iterator[ValidationError]:
    if isinstance(instance, dict):
        for pattern, schema in schemas.items():
            for name, value in instance.items():
                if matches(pattern, name, unknown=False):
                    yield from validator.descend(value, schema, path=name, schema_path=pattern)


def _additional_properties(
    validator: Any, wanted: JsonValue, instance: JsonValue, schema: JsonObject
) -> Iterator[ValidationError]:
    if not isinstance(instance, dict):
        return
    extras = unexpected_properties(schema, instance)
    if isinstance(wanted, dict):
        for name in extras:
            yield from validator.descend(instance[name], wanted, path=name)
    elif wanted is False and extras:
        yield ValidationError(f"Additional properties are not allowed ({', '.join(map(repr, extras))})")


def unexpected_properties(schema: JsonObject, instance: JsonObject) -> list[str]:
    """The properties of an object that its schema neither names nor has a pattern for."""
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    assert isinstance(known, dict)
    assert isinstance(patterns, dict)
    return [
        name
        for name in instance
        if name not in known and not any(matches(pattern, name, unknown=True) for pattern in patterns)
    ]


def _unique_items(
    _: Validator, wanted: JsonValue, instance: JsonValue, __: JsonObject
) -> Iterator[ValidationError]:
    if wanted and isinstance(instance, list):
        spelled = {json.dumps(_plain(item), sort_keys=True) for item in instance}
        if len(spelled) < len(instance):
            yield ValidationError("has items that are not unique")


def _plain(value: JsonValue) -> JsonValue:
    """A value in which equal numbers are spelled alike: 1.0 is 1."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _require_own_references(
    schema: Resource[JsonValue],
    resolver: Resolver[JsonValue],
    dialect: Specification[JsonValue],
    seen: set[int],
) -> None:
    """Every reference that a check could follow leads to a place in the schema itself."""
    contents = schema.contents
    if id(contents) in seen:
        return
    seen.add(id(contents))
    for key in ("$ref", "$dynamicRef"):
        reference = contents.get(key) if isinstance(contents, dict) else None
        if not isinstance(reference, str):
            continue
        try:
            found = resolver.lookup(reference)
        except (Unresolvable, TypeError) as exc:  # the latter of a step into what has none, such as a number
            raise ValueError(
                f"its schema refers to {reference}, which it does not hold; nothing is fetched"
            ) from exc
        if not isinstance(found.contents, dict | bool):
            raise ValueError(f"its schema refers to {reference}, which is no schema")  # noqa: TRY004
        _require_own_references(dialect.create_resource(found.contents), found.resolver, dialect, seen)
    for inner in schema.subresources():
        if not isinstance(inner.contents, dict):
            continue  # it refers to nothing, and the library's older dialects do not expect it
        _require_own_references(inner, resolver.in_subresource(inner), dialect, seen)
