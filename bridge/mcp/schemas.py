"""Compiles the schemas of tools and forms, and checks values against them in bounded time. Pure.

Schemas and values are untrusted. Nothing is fetched, depth and references are bounded, and every check ends after a
number of steps. A check that takes too long for the event loop goes on in a worker, for some time. A value that cannot
be checked here is left to the server.

Spec: JSON Schema 2020-12 and the dialects before it.
"""

from __future__ import annotations

import hashlib
import marshal
import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import islice
from typing import Any, Final
from urllib.parse import unquote

from jsonschema import Draft3Validator, Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import extend, validator_for
from pydantic import JsonValue
from referencing import Registry, Resource, Specification
from referencing._core import Resolver
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012, UnknownDialect, specification_with

from bridge.concurrency import SlowWork
from bridge.errors import echoed
from bridge.mcp.schema_fast_path import is_plainly_valid, plainly_accepts
from bridge.mcp.schema_keywords import (
    KEYWORDS,
    MAX_STEPS,
    CheckSteps,
    CheckTime,
    CheckTooLongError,
    OutOfTimeError,
    passed_over,
)
from bridge.text.jsonvalues import JsonObject, is_deeper, values_in

MAX_SCHEMA_DEPTH: Final = 40
"""The most levels in a tool's schema. Deeper schemas only serve to exhaust their readers. a2a-sdk reads JSON through
protocol buffers, and cannot read a card with a schema of 45 levels."""

MAX_STEPS_A_VALUE: Final = 200
"""The steps that each checked value adds to MAX_STEPS."""

LOOP_SECONDS: Final = 0.005
"""How long a check may block the event loop."""
WORKER_SECONDS: Final = 2.0
"""How long a check may take in a worker, including its pauses. After that, the value is left to the server."""

_ODD_FACTOR: Final = 100
"""The factor of the cost of a value in a schema that is not plainly valid. The meta-schema takes 0.7 ms for each
subschema; faults are found and removed, and the schema is checked again."""

_MAX_FAULTS: Final = 1000
"""The most faults that are removed from a schema. A schema with more is not used at all."""
_MAX_FOREIGN_REFERENCES: Final = 50
"""The most references that are removed from a schema. Each is searched for from the top."""
_NAMING: Final = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""Keywords that hold schemas by name."""
_READ_TOGETHER: Final[Mapping[str, tuple[str, ...]]] = {
    "properties": ("additionalProperties",),
    "patternProperties": ("additionalProperties",),
    "prefixItems": ("items",),
    "items": ("additionalItems",),
}
"""For each keyword, the keywords that apply to the items or properties that it leaves over. Without it, they would
refuse values that they accepted before, so they are removed with it."""
_NARROWED_BY_LESS: Final = ("not", "oneOf", "if", "contains", "unevaluatedProperties", "unevaluatedItems")
"""Keywords that can make a schema accept less as a whole if one of its parts accepts more."""

_MAX_REFERENCES_SHOWN: Final = 8
"""The most successive references that are followed to describe a schema."""

_REFERENCES: Final = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})


def validator_within(validator: Validator, schema: JsonObject) -> Validator:
    """A validator for a part of a compiled schema, or for a schema made of such parts."""
    part: Validator = validator.evolve(schema=_without_dialect(schema))
    return part


class InvalidSchemaError(ValueError):
    """The schema is invalid in its dialect."""


class ForeignReferenceError(ValueError):
    """The schema refers to something outside of the schema, or to something that is not a schema."""

    def __init__(self, words: str, holder: JsonObject | None = None, key: str = "") -> None:
        """`holder` is the part of the schema that has the reference under `key`; None if it is not known."""
        super().__init__(words)
        self.holder = holder
        self.key = key


def checkable(schema: JsonObject) -> tuple[Validator, JsonObject, str | None]:
    """The compiled schema; the part of it that was compiled; and why this is not the whole schema, or None if it is.

    Raises:
        ValueError: the schema is too deep.
    """
    why, rest = None, schema
    try:
        return validator_of(schema), schema, None
    except InvalidSchemaError as exc:
        why, rest = str(exc), without_faults(schema)
    except ForeignReferenceError as exc:
        why = str(exc)
    rest = without_foreign_references(rest)
    return validator_of(rest), rest, why


def validator_of(schema: JsonObject) -> Validator:
    """A schema, compiled by the dialect that its `$schema` names, by default 2020-12. Nothing is fetched.

    Raises:
        InvalidSchemaError: the schema is invalid in its dialect.
        ForeignReferenceError: the schema refers to another document, or to nothing.
        ValueError: the schema is too deep.
    """
    if is_deeper(schema, MAX_SCHEMA_DEPTH):
        raise ValueError(f"its schema is nested deeper than {MAX_SCHEMA_DEPTH} levels")
    if not isinstance(schema.get("$schema", ""), str):
        raise InvalidSchemaError("its schema is not valid at $schema: the value is not a string")
    kind = validator_for(schema, default=Draft202012Validator)
    _require_valid(schema, kind)
    _require_whole(schema, kind)
    quick = _quick(kind, _names(schema, "patternProperties"))
    return quick(_without_dialect(schema), registry=Registry())


def _require_whole(schema: JsonObject, kind: type[Validator]) -> None:
    """Raise ForeignReferenceError if a reference leads out of the schema."""
    dialect = _dialect(kind)
    root: Resource[JsonValue] = dialect.create_resource(schema)
    try:
        _require_own_references(root, Registry().resolver_with_root(root), dialect, set())
    except (
        AttributeError,
        TypeError,
    ) as exc:  # the library expects a schema at the target of every reference
        raise ForeignReferenceError("its schema refers to something that is not a schema") from exc


def _dialect(kind: type[Validator]) -> Specification[JsonValue]:
    meta = kind.META_SCHEMA
    return specification_with(str(meta.get("$id") or meta.get("id")), default=DRAFT202012)


def schema_cost(schema: JsonObject) -> int:
    """The cost of compiling a schema, in values of a plainly valid schema."""
    if is_deeper(schema, MAX_SCHEMA_DEPTH):  # it is refused without further work
        return 0
    return values_in(schema) * (1 if is_plainly_valid(schema) else _ODD_FACTOR)


def _require_valid(schema: JsonObject, kind: type[Validator]) -> None:
    if is_plainly_valid(schema):
        return
    try:
        # No format checker: patterns are of JavaScript, and Python cannot read all of them.
        kind.check_schema(schema, format_checker=None)  # type: ignore[call-arg]  # the protocol lags behind
    except SchemaError as exc:
        where = "/".join(str(step) for step in exc.absolute_path)
        raise InvalidSchemaError(
            f"its schema is not valid at {where or 'the top'}: {exc.message[:200]}"
        ) from exc


def unknown_dialect(schema: JsonObject) -> str | None:
    """The dialect of a schema if it is unknown, so that the schema is read as 2020-12; else None."""
    named = schema.get("$schema")
    if not isinstance(named, str):
        return None
    try:
        specification_with(named)
    except UnknownDialect:
        return named
    return None


def without_faults(schema: JsonObject) -> JsonObject:
    """An invalid schema without its invalid keywords. The rest accepts at least what the schema accepted; `{}` if this
    is not certain."""
    if is_narrowed_by_less(schema):
        return {}
    left = deepcopy(schema)
    if not isinstance(schema.get("$schema", ""), str):
        schema = {key: value for key, value in schema.items() if key != "$schema"}
        del left["$schema"]
    kind = validator_for(schema, default=Draft202012Validator)
    for error in islice(kind(kind.META_SCHEMA).iter_errors(schema), _MAX_FAULTS):
        _drop(list(error.absolute_path), left)
    return left if kind(kind.META_SCHEMA).is_valid(left) else {}


def without_foreign_references(schema: JsonObject) -> JsonObject:
    """A valid schema without references that lead out of the schema. The rest accepts at least what the schema
    accepted; `{}` if this is not certain."""
    left, kind = deepcopy(schema), validator_for(schema, default=Draft202012Validator)
    for _ in range(_MAX_FOREIGN_REFERENCES):
        try:
            _require_whole(left, kind)
        except ForeignReferenceError as exc:
            if exc.holder is None or is_narrowed_by_less(schema):
                return {}
            del exc.holder[exc.key]
        else:
            return left
    return {}


def is_narrowed_by_less(schema: JsonObject) -> bool:
    """Whether a schema may accept less as a whole if one of its parts accepts more."""
    return _names(schema, *_NARROWED_BY_LESS)


def subschemas(schema: JsonObject) -> Iterator[JsonObject]:
    """A valid schema and each schema in it that is an object."""
    dialect = _dialect(validator_for(schema, default=Draft202012Validator))
    waiting: list[Resource[JsonValue]] = [dialect.create_resource(schema)]
    while waiting:
        resource = waiting.pop()
        if isinstance(resource.contents, dict):
            yield resource.contents
            waiting += resource.subresources()


def _drop(path: list[str | int], schema: JsonObject) -> None:
    """Remove the keyword at a path. A named schema at the path becomes `true`, which accepts anything."""
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
    """A schema without any `$schema`: at each `$schema` the library would return to its own slow checks."""
    if isinstance(schema, dict):
        return {
            key: _without_dialect(inner)
            for key, inner in schema.items()
            if key != "$schema" or not isinstance(inner, str)
        }
    return [_without_dialect(inner) for inner in schema] if isinstance(schema, list) else schema


def resolved(schema: JsonObject, root: JsonObject) -> JsonObject:
    """A schema merged with the target of its `$ref` in the root; its own keywords take precedence.

    Other kinds of references (anchors) and circular references stay.
    """
    for _ in range(_MAX_REFERENCES_SHOWN):
        reference = schema.get("$ref")
        target = _at(reference, root) if isinstance(reference, str) else None
        if not isinstance(target, dict):
            break
        schema = {**target, **{key: value for key, value in schema.items() if key != "$ref"}}
    return schema


def _at(reference: str, root: JsonObject) -> JsonValue:
    """The target of a JSON pointer in a reference; None if the reference is not a pointer, or leads nowhere."""
    document, _, pointer = reference.partition("#")
    if document or (pointer and not pointer.startswith("/")):
        return None
    value: JsonValue = root
    for step in pointer.split("/")[1:]:
        key = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(value, list) and key.isdecimal() and len(key) < 9 and int(key) < len(value):
            value = value[int(key)]
        else:
            value = value.get(key) if isinstance(value, dict) else None
    return value


class UncheckableError(Exception):
    """The value cannot be checked here: the check takes too long, or is impossible in Python."""


def errors_of(
    validator: Validator, value: JsonValue, most: int, steps: int = MAX_STEPS
) -> list[ValidationError]:
    """The errors of a value against a schema, at most `most`, in `steps` plus MAX_STEPS_A_VALUE for each value.

    Raises:
        UncheckableError: endless recursion or references, a reference that leads nowhere, a pattern that only
            JavaScript can read, a number beyond floats; or a check that took too long in a worker, too.
        SlowWork: the check takes more than LOOP_SECONDS. See `SlowWork`.
    """
    if plainly_accepts(validator.schema, value):  # type: ignore[arg-type]  # the protocol says Mapping or bool
        return []
    check = _Check(validator, value, most, steps + MAX_STEPS_A_VALUE * values_in(value))
    try:
        return check.errors(CheckTime(LOOP_SECONDS))
    except OutOfTimeError:
        return _VERDICTS.of(check)


@dataclass(frozen=True, slots=True, eq=False)
class _Check:
    validator: Validator
    value: JsonValue
    most: int
    steps: int

    def errors(self, allowed: CheckTime) -> list[ValidationError]:
        """The errors. Raises UncheckableError, OutOfTimeError."""
        formats = self.validator.format_checker  # type: ignore[attr-defined]  # the protocol lags behind
        counted = self.validator.evolve(format_checker=CheckSteps(formats, self.steps, allowed))
        try:
            return list(islice(counted.iter_errors(self.value), self.most))
        except (RecursionError, OverflowError, re.error, Unresolvable, CheckTooLongError) as exc:
            raise UncheckableError(str(exc)) from exc

    def digest(self) -> bytes:
        """A digest that identifies the check. (Writing JSON instead would take ten times as long.)"""
        formats = id(self.validator.format_checker)  # type: ignore[attr-defined]  # the protocol lags behind
        parts = (
            type(self.validator).__name__,
            formats,
            self.validator.schema,
            self.value,
            self.most,
            self.steps,
        )
        return hashlib.blake2b(
            marshal.dumps(parts, _WITHOUT_REFERENCES),  # type: ignore[arg-type]  # JSON all through
            digest_size=16,
        ).digest()


_WITHOUT_REFERENCES: Final = 2
"""The version of the format in which equal values have equal bytes."""


class _Verdicts:
    """The results of slow schema checks. A result is kept until the work that asked for it has ended. Thread-safe."""

    def __init__(self) -> None:
        self._made: dict[bytes, list[ValidationError] | UncheckableError] = {}

    def of(self, check: _Check) -> list[ValidationError]:
        """The result of a check that has run out of time on the loop. Raises UncheckableError, SlowWork."""
        digest = check.digest()
        match self._made.get(digest):
            case None:
                forget = partial(self._made.pop, digest, None)
                raise SlowWork(partial(self._make, check, digest), forget)
            case UncheckableError() as fault:
                raise UncheckableError(str(fault))
            case errors:
                return errors

    def _make(self, check: _Check, digest: bytes) -> None:
        verdict: list[ValidationError] | UncheckableError
        try:
            verdict = check.errors(CheckTime(WORKER_SECONDS, in_worker=True))
        except UncheckableError as exc:
            verdict = exc
        except OutOfTimeError:
            verdict = UncheckableError("the check takes too long")
        self._made[digest] = verdict


_VERDICTS: Final = _Verdicts()


@lru_cache
def _quick(kind: type[Validator], has_patterns: bool) -> type[Validator]:
    """The dialect with checks in linear time, so that a client's value cannot stall the bridge.

    The library also uses backtracking patterns for unevaluated properties. In a schema with patterns, this keyword is
    left to the server.
    """
    ours = {**KEYWORDS, **({"unevaluatedProperties": passed_over} if has_patterns else {})}
    if kind is Draft3Validator:
        del ours["type"]  # in draft 3, a type may be a schema
    checks: dict[str, Any] = {name: ours.get(name, check) for name, check in kind.VALIDATORS.items()}
    counted = {
        keyword: _bounded(_counted(check)) if keyword in _REFERENCES else _counted(check)
        for keyword, check in checks.items()
    }
    quick: type[Validator] = extend(kind, counted)  # type: ignore[no-untyped-call]
    return quick


def _counted(check: Any) -> Any:
    def counting(validator: Any, wanted: JsonValue, instance: JsonValue, schema: JsonObject) -> Any:
        if isinstance(validator.format_checker, CheckSteps):
            validator.format_checker.step()
        return check(validator, wanted, instance, schema)

    return counting


def _bounded(check: Any) -> Any:
    def bounding(
        validator: Any, wanted: JsonValue, instance: JsonValue, schema: JsonObject
    ) -> Iterator[ValidationError]:
        steps = (
            validator.format_checker
            if isinstance(validator.format_checker, CheckSteps)
            else CheckSteps(None, MAX_STEPS)
        )
        with steps.reference():
            yield from check(validator, wanted, instance, schema) or ()

    return bounding


def _names(schema: JsonValue, *keywords: str) -> bool:
    """Whether a schema has one of these keywords anywhere."""
    if isinstance(schema, dict):
        return any(keyword in schema for keyword in keywords) or any(
            _names(inner, *keywords) for inner in schema.values()
        )
    return isinstance(schema, list) and any(_names(inner, *keywords) for inner in schema)


def _require_own_references(
    schema: Resource[JsonValue],
    resolver: Resolver[JsonValue],
    dialect: Specification[JsonValue],
    seen: set[int],
) -> None:
    """Refuse a schema in which a check could follow a reference out of the schema."""
    contents = schema.contents
    if id(contents) in seen:
        return
    seen.add(id(contents))
    for key in ("$ref", "$dynamicRef"):
        holder = contents if isinstance(contents, dict) else {}
        reference = holder.get(key)
        if not isinstance(reference, str):
            continue
        try:
            resolved = resolver.lookup(reference)
        except (Unresolvable, TypeError) as exc:  # TypeError: a step into a number
            words = (
                f"its schema refers to {echoed(reference)}, which is not in the schema; nothing is fetched"
            )
            raise ForeignReferenceError(words, holder, key) from exc
        if not isinstance(resolved.contents, dict | bool):
            words = f"its schema refers to {echoed(reference)}, which is not a schema"
            raise ForeignReferenceError(words, holder, key)
        _require_own_references(dialect.create_resource(resolved.contents), resolved.resolver, dialect, seen)
    for inner in schema.subresources():
        if not isinstance(inner.contents, dict):
            continue  # a boolean has no references, and the library's older dialects do not expect it
        _require_own_references(inner, resolver.in_subresource(inner), dialect, seen)
