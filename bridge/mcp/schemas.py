"""Compiles the schemas of tools and forms, and checks values against them in bounded time. Pure.

Neither the schemas nor the values are trusted. Nothing is fetched, depth and references are bounded, and every check
ends after a number of steps. A value that cannot be checked here is left to the server.

Spec: JSON Schema 2020-12 and the dialects before it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from functools import lru_cache
from itertools import islice
from typing import Any, Final
from urllib.parse import unquote

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
from referencing.jsonschema import DRAFT202012, UnknownDialect, specification_with

from bridge.jsonvalues import JsonObject, is_deeper, values_in
from bridge.mcp.schema_fast_path import is_plainly_valid, plainly_accepts

MAX_SCHEMA_DEPTH: Final = 40
"""The most levels in a tool's schema. Deeper schemas serve only to exhaust their readers. a2a-sdk, whose JSON goes
through protocol buffers, cannot read a card with a schema of 45 levels."""

MAX_STEPS: Final = 100_000
"""The most keywords that one check evaluates, plus MAX_STEPS_A_VALUE for each value that is checked. A schema whose
references fan out would take exponentially many."""
MAX_STEPS_A_VALUE: Final = 200

MAX_REFERENCES: Final = 64
"""The most nested references of one check; values may be nested as deep. Python's own recursion limit must not be
reached: the library that stores the schemas panics there."""

_ODD_FACTOR: Final = 100
"""How much more a value costs in a schema that is not plainly valid. The meta-schema takes 0.7 ms for each subschema,
and faults are found, removed, and the schema is checked again."""

_MAX_FAULTS: Final = 1000
"""The most faults that are removed from a schema. A schema with more is not used at all."""
_NAMING: Final = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""Keywords that hold schemas by name."""
_READ_TOGETHER: Final[Mapping[str, tuple[str, ...]]] = {
    "properties": ("additionalProperties",),
    "patternProperties": ("additionalProperties",),
    "prefixItems": ("items",),
    "items": ("additionalItems",),
}
"""For each keyword, those that apply to what it leaves over. Without it they would refuse values that they accepted,
so they are removed with it."""
_NARROWED_BY_LESS: Final = ("not", "oneOf", "if", "contains", "unevaluatedProperties", "unevaluatedItems")
"""Keywords by which a schema that accepts more in one place may accept less as a whole."""

_MAX_REFERENCES_SHOWN: Final = 8
"""The most references that are followed in a row to describe a schema."""

_REFERENCES: Final = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})


def validator_within(validator: Validator, schema: JsonObject) -> Validator:
    """A validator for a part of a compiled schema, or for a schema made of such parts."""
    part: Validator = validator.evolve(schema=_without_dialect(schema))
    return part


class InvalidSchemaError(ValueError):
    """The schema is invalid in its dialect."""


def validator_of(schema: JsonObject) -> Validator:
    """A schema, compiled by the dialect that its `$schema` names, by default 2020-12. Nothing is ever fetched.

    Raises:
        InvalidSchemaError: the schema is invalid in its dialect.
        ValueError: the schema is too deep, or refers to another document.
    """
    if is_deeper(schema, MAX_SCHEMA_DEPTH):
        raise ValueError(f"its schema is nested deeper than {MAX_SCHEMA_DEPTH} levels")
    if not isinstance(schema.get("$schema", ""), str):
        raise ValueError("its $schema is no text")  # noqa: TRY004
    kind = validator_for(schema, default=Draft202012Validator)
    _require_valid(schema, kind)
    meta = kind.META_SCHEMA
    dialect = specification_with(str(meta.get("$id") or meta.get("id")), default=DRAFT202012)
    root: Resource[JsonValue] = dialect.create_resource(schema)
    try:
        _require_own_references(root, Registry().resolver_with_root(root), dialect, set())
    except (AttributeError, TypeError) as exc:  # the library expects schemas wherever a reference may lead
        raise ValueError("its schema refers to what is no schema") from exc
    quick = _quick(kind, _names(schema, "patternProperties"))
    return quick(_without_dialect(schema), registry=Registry())


def schema_cost(schema: JsonObject) -> int:
    """The cost of compiling a schema, in values of a plainly valid schema."""
    if is_deeper(schema, MAX_SCHEMA_DEPTH):  # it is refused without any more work
        return 0
    return values_in(schema) * (1 if is_plainly_valid(schema) else _ODD_FACTOR)


def _require_valid(schema: JsonObject, kind: type[Validator]) -> None:
    if is_plainly_valid(schema):
        return
    try:
        # No format checker: patterns are JavaScript's, and Python cannot read all of them.
        kind.check_schema(schema, format_checker=None)  # type: ignore[call-arg]  # the protocol lags behind
    except SchemaError as exc:
        where = "/".join(str(step) for step in exc.absolute_path)
        raise InvalidSchemaError(
            f"its schema is not valid at {where or 'the top'}: {exc.message[:200]}"
        ) from exc


def unknown_dialect(schema: JsonObject) -> str | None:
    """The dialect of a schema when it is not known here, so that the schema is read as 2020-12; else None."""
    named = schema.get("$schema")
    if not isinstance(named, str):
        return None
    try:
        specification_with(named)
    except UnknownDialect:
        return named
    return None


def without_faults(schema: JsonObject) -> JsonObject:
    """An invalid schema without its invalid keywords. The rest accepts at least what the schema accepted; `{}` when
    that is not certain."""
    if _names(schema, *_NARROWED_BY_LESS):
        return {}
    kind = validator_for(schema, default=Draft202012Validator)
    left = deepcopy(schema)
    for error in islice(kind(kind.META_SCHEMA).iter_errors(schema), _MAX_FAULTS):
        _drop(list(error.absolute_path), left)
    return left if kind(kind.META_SCHEMA).is_valid(left) else {}


def _drop(path: list[str | int], schema: JsonObject) -> None:
    """Remove the keyword at a path. A named schema there becomes `true`, which accepts anything."""
    names, holder = False, schema
    for number, step in enumerate(map(str, path), 1):
        inner = holder.get(step)
        if number < len(path) and isinstance(inner, dict):
            names = not names and step in _NAMING
            holder = inner
            continue
        if names:
            holder[step] = True
        else:
            for key in (step, *_READ_TOGETHER.get(step, ())):
                holder.pop(key, None)
        return


def _without_dialect(schema: JsonValue) -> Any:
    """A schema without `$schema`: at each one the library would return to its own, slow checks."""
    if isinstance(schema, dict):
        return {
            key: _without_dialect(inner)
            for key, inner in schema.items()
            if key != "$schema" or not isinstance(inner, str)
        }
    return [_without_dialect(inner) for inner in schema] if isinstance(schema, list) else schema


def resolved(schema: JsonObject, root: JsonObject) -> JsonObject:
    """A schema merged with the target of its `$ref` into the root; its own keywords take precedence.

    A reference of another kind (an anchor), or in a circle, stays.
    """
    for _ in range(_MAX_REFERENCES_SHOWN):
        reference = schema.get("$ref")
        target = _at(reference, root) if isinstance(reference, str) else None
        if not isinstance(target, dict):
            break
        schema = {**target, **{key: value for key, value in schema.items() if key != "$ref"}}
    return schema


def _at(reference: str, root: JsonObject) -> JsonValue:
    """The target of a JSON pointer in a reference; None when it is no pointer, or leads nowhere."""
    document, _, pointer = reference.partition("#")
    if document or (pointer and not pointer.startswith("/")):
        return None
    found: JsonValue = root
    for step in pointer.split("/")[1:]:
        key = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and key.isdecimal() and len(key) < 9 and int(key) < len(found):
            found = found[int(key)]
        else:
            found = found.get(key) if isinstance(found, dict) else None
    return found


class UncheckableError(Exception):
    """The value cannot be checked here: the check takes too long, or Python cannot do it."""


def errors_of(
    validator: Validator, value: JsonValue, most: int, steps: int = MAX_STEPS
) -> list[ValidationError]:
    """The errors of a value against a schema, at most `most`, in `steps` plus MAX_STEPS_A_VALUE for each value.

    Raises:
        UncheckableError: endless recursion or references, a reference that leads nowhere, a pattern that only
            JavaScript can read, a number beyond floats.
    """
    if plainly_accepts(validator.schema, value):  # type: ignore[arg-type]  # the protocol says Mapping or bool
        return []
    formats = validator.format_checker  # type: ignore[attr-defined]  # the protocol lags behind
    counted = validator.evolve(format_checker=_Steps(formats, steps + MAX_STEPS_A_VALUE * values_in(value)))
    try:
        return list(islice(counted.iter_errors(value), most))
    except (RecursionError, OverflowError, re.error, Unresolvable, _TooManyStepsError) as exc:
        raise UncheckableError(str(exc)) from exc


class _TooManyStepsError(Exception):
    pass


class _Steps(FormatChecker):
    """Counts the steps of one check. It is a format checker, since the library passes nothing else into a check."""

    def __init__(self, formats: FormatChecker | None, steps: int) -> None:
        super().__init__(formats=())
        self._formats = formats
        self._left = steps
        self._references = 0

    def check(self, instance: object, format: str) -> None:  # noqa: A002 - the library's name
        if self._formats is not None:
            self._formats.check(instance, format)

    @contextmanager
    def reference(self) -> Iterator[None]:
        """Count one more nested reference while this is open."""
        self._references += 1
        try:
            if self._references > MAX_REFERENCES:
                raise _TooManyStepsError("the check follows too many references into one another")
            yield
        finally:
            self._references -= 1

    def step(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise _TooManyStepsError("the check takes too many steps")


@lru_cache
def _quick(kind: type[Validator], has_patterns: bool) -> type[Validator]:
    """The dialect with checks in linear time, so that a client's value cannot stall the bridge.

    The library compares all pairs of unique items, and its patterns may backtrack exponentially. It uses such
    patterns for unevaluated properties, too. Where there are patterns, that keyword is left to the server.
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
    counted = {
        keyword: _bounded(_counted(check)) if keyword in _REFERENCES else _counted(check)
        for keyword, check in checks.items()
    }
    quick: type[Validator] = extend(kind, counted)  # type: ignore[no-untyped-call]
    return quick


def _counted(check: Any) -> Any:
    def counting(validator: Any, wanted: JsonValue, instance: JsonValue, schema: JsonObject) -> Any:
        if isinstance(validator.format_checker, _Steps):
            validator.format_checker.step()
        return check(validator, wanted, instance, schema)

    return counting


def _bounded(check: Any) -> Any:
    def bounding(
        validator: Any, wanted: JsonValue, instance: JsonValue, schema: JsonObject
    ) -> Iterator[ValidationError]:
        steps = (
            validator.format_checker
            if isinstance(validator.format_checker, _Steps)
            else _Steps(None, MAX_STEPS)
        )
        with steps.reference():
            yield from check(validator, wanted, instance, schema) or ()

    return bounding


def _passed_over(_: Any, __: JsonValue, ___: JsonValue, ____: JsonObject) -> Iterator[ValidationError]:
    return iter(())


def _names(schema: JsonValue, *keywords: str) -> bool:
    """Whether a schema has one of some keywords anywhere."""
    if isinstance(schema, dict):
        return any(keyword in schema for keyword in keywords) or any(
            _names(inner, *keywords) for inner in schema.values()
        )
    return isinstance(schema, list) and any(_names(inner, *keywords) for inner in schema)


@lru_cache(maxsize=4096)
def _matcher(pattern: str) -> SchemaValidator | None:
    """A matcher in linear time for a pattern; None when there is none, as for lookaround and backreferences."""
    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
    except BadSchemaError:
        return None


def matches(pattern: JsonValue, text: str, *, unknown: bool) -> bool:
    """Whether a pattern is found in a text; `unknown` when linear time does not suffice."""
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
    """The properties of an object that match neither a name nor a pattern of its schema."""
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
    """The value with equal numbers written alike: 1.0 becomes 1."""
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
    """Refuse a schema with a reference that leads out of the schema, and that a check could follow."""
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
        except (Unresolvable, TypeError) as exc:  # TypeError: a step into a number
            raise ValueError(
                f"its schema refers to {reference}, which it does not hold; nothing is fetched"
            ) from exc
        if not isinstance(found.contents, dict | bool):
            raise ValueError(f"its schema refers to {reference}, which is no schema")  # noqa: TRY004
        _require_own_references(dialect.create_resource(found.contents), found.resolver, dialect, seen)
    for inner in schema.subresources():
        if not isinstance(inner.contents, dict):
            continue  # a boolean refers to nothing, and the library's older dialects do not expect it
        _require_own_references(inner, resolver.in_subresource(inner), dialect, seen)
