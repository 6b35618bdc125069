"""Keywords of schemas whose checks by the library take more than linear time. Pure.

The library compares a value with all choices, compares all pairs of unique items, and repeats the whole value in each
message. Its patterns may backtrack exponentially. Here a choice is looked up, a message repeats only the beginning of a
value, and each check counts its steps and watches its time.

Spec: JSON Schema 2020-12 validation, sections 6 and 10; RFC 8259 (1 and 1.0 are the same number, and true is not a
number).
"""

from __future__ import annotations

import operator
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from jsonschema import FormatChecker
from jsonschema.exceptions import ValidationError
from pydantic import JsonValue

from bridge.mcp.patterns import Patterns, PatternTooSlowError
from bridge.text.jsonvalues import JsonObject

MAX_REFERENCES: Final = 64
"""The most nested references of a check, and the deepest nesting of a value. Python's recursion limit must not be
reached, since the library that stores the schemas panics at it."""

MAX_STEPS: Final = 100_000
"""The most keywords that a check evaluates, plus some for each checked value. A schema with branching references could
take exponentially many."""

PATTERNS: Final = Patterns()
"""The compiled patterns of the process."""

_LOOK_STEPS: Final = 16
"""The number of steps between two looks at the clock. A step takes some microseconds."""
_BREATH_SECONDS: Final = 0.001
_REST_SECONDS: Final = 0.000_5
"""The pause of a worker between two periods of work, in which the event loop's thread gets the interpreter."""
_FEW_CHOICES: Final = 32
"""Up to this number, comparing texts one by one is faster than looking them up."""
_SHOWN_VALUES: Final = 50
_SHOWN_CHARACTERS: Final = 400
_ANNOTATIONS: Final = frozenset({"title", "description", "default", "examples", "deprecated", "$comment"})


class CheckTooLongError(Exception):
    """The check takes too many steps, or its references are nested too deeply."""


class UnexpectedNamesError(Exception):
    """The names of unexpected properties, as the cause of the error about them."""

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__("unexpected properties")
        self.names = names


class OutOfTimeError(Exception):
    """The check has used up its time."""


@dataclass(frozen=True, slots=True)
class CheckTime:
    """The time of one check."""

    seconds: float
    in_worker: bool = False
    """Whether the check runs in a thread beside the event loop."""


class CheckSteps(FormatChecker):
    """Counts the steps of a check. This is a format checker because the library passes no other object into a check."""

    def __init__(self, formats: FormatChecker | None, steps: int, allowed: CheckTime | None = None) -> None:
        """Without a time, only the steps are bounded."""
        super().__init__(formats=())
        self._formats = formats
        self._left = steps
        self._references = 0
        self._allowed = allowed
        # On the loop only the CPU time of the check counts: while the system runs other processes, the check blocks
        # nothing.
        self._clock = time.perf_counter if allowed is None or allowed.in_worker else time.thread_time
        self._until = self._clock() + allowed.seconds if allowed else 0.0
        self._worked_since = self._clock()
        self._choices: dict[int, Choices | None] = {}

    @property
    def in_worker(self) -> bool:
        """Whether the check runs beside the event loop."""
        return self._allowed is not None and self._allowed.in_worker

    def check(self, instance: object, format: str) -> None:  # noqa: A002 - the library's name
        if self._formats is not None:
            self._formats.check(instance, format)

    @contextmanager
    def reference(self) -> Iterator[None]:
        """Count one more nested reference while this is open."""
        self._references += 1
        try:
            if self._references > MAX_REFERENCES:
                raise CheckTooLongError("the check follows too many nested references")
            yield
        finally:
            self._references -= 1

    def step(self) -> None:
        """Count one step.

        Raises:
            TooManyStepsError: the step is above the limit.
            OutOfTimeError: the time is used up.
        """
        self._left -= 1
        if self._left < 0:
            raise CheckTooLongError("the check takes too many steps")
        if self._allowed is not None and self._left % _LOOK_STEPS == 0:
            self._look_at_the_clock()

    def _look_at_the_clock(self) -> None:
        now = self._clock()
        if now > self._until:
            raise OutOfTimeError
        if self.in_worker and now - self._worked_since > _BREATH_SECONDS:
            time.sleep(_REST_SECONDS)
            self._worked_since = self._clock()

    def choices(
        self, listed: list[JsonValue], made: Callable[[list[JsonValue], CheckSteps], Choices | None]
    ) -> Choices | None:
        """The choices of a list in the schema. They are made only once in a check."""
        if id(listed) not in self._choices:
            self._choices[id(listed)] = made(listed, self)
        return self._choices[id(listed)]


class Choices:
    """Some JSON values with fast look-up."""

    def __init__(self, values: list[JsonValue], steps: CheckSteps) -> None:
        self._counts = Counter(key_of(value, steps) for value in values)
        self._has_containers = any(isinstance(value, dict | list) for value in values)

    def count(self, value: JsonValue, steps: CheckSteps) -> int:
        """How often the value is among the choices."""
        if isinstance(value, dict | list) and not self._has_containers:
            return 0
        return self._counts[key_of(value, steps)]


def key_of(value: JsonValue, steps: CheckSteps | None) -> object:
    """A key that two values share if they are equal in JSON. It consists of texts, since a sender could choose numbers
    with equal hashes."""
    if steps is not None:
        steps.step()
    match value:
        case str():
            return f"s{value}"
        case bool() | None:
            return str(value)
        case float() if not value.is_integer():
            return repr(value)
        case int() | float():
            return hex(int(value))
        case list():
            return ("a", *(key_of(item, steps) for item in value))
        case _:
            return frozenset((name, key_of(item, steps)) for name, item in value.items())


def abbreviated(value: JsonValue) -> str:
    """A value for a message: the whole value if it is short, else its beginning or its size."""
    if value is None or isinstance(value, bool | int | float) or _is_short(value):
        return repr(value)
    if isinstance(value, str):
        return f"{value[:_SHOWN_CHARACTERS]!r}..."
    kind, parts = ("array", "items") if isinstance(value, list) else ("object", "properties")
    return f"an {kind} of {len(value)} {parts}"


def _is_short(value: JsonValue) -> bool:
    if isinstance(value, str):
        return len(value) <= _SHOWN_CHARACTERS
    inside: list[JsonValue] = [value]
    seen = 0
    while inside:
        item = inside.pop()
        seen += 1
        if seen > _SHOWN_VALUES or (isinstance(item, str | dict | list) and len(item) > _SHOWN_CHARACTERS):
            return False
        if isinstance(item, dict | list):
            inside += item.values() if isinstance(item, dict) else item
    return True


def _steps_of(validator: Any) -> CheckSteps | None:
    return validator.format_checker if isinstance(validator.format_checker, CheckSteps) else None


def _type(validator: Any, wanted: JsonValue, instance: JsonValue, _: JsonObject) -> Iterator[ValidationError]:
    kinds = wanted if isinstance(wanted, list) else [wanted]
    if not any(validator.is_type(instance, kind) for kind in kinds):
        yield ValidationError(f"{abbreviated(instance)} is not of type {', '.join(map(repr, kinds))}")


def _enum(validator: Any, listed: JsonValue, instance: JsonValue, _: JsonObject) -> Iterator[ValidationError]:
    if not isinstance(listed, list):
        return
    if isinstance(instance, str) and len(listed) <= _FEW_CHOICES:
        is_among = instance in listed
    else:
        steps = _steps_of(validator) or CheckSteps(None, MAX_STEPS)
        choices = steps.choices(listed, Choices)
        is_among = choices is not None and choices.count(instance, steps) > 0
    if not is_among:
        yield ValidationError(f"{abbreviated(instance)} is not one of {abbreviated(listed)}")


def _const(
    validator: Any, wanted: JsonValue, instance: JsonValue, _: JsonObject
) -> Iterator[ValidationError]:
    is_container = isinstance(instance, dict | list)
    steps = _steps_of(validator)
    if is_container is not isinstance(wanted, dict | list) or key_of(instance, steps) != key_of(
        wanted, steps
    ):
        yield ValidationError(f"{abbreviated(wanted)} was expected")


def _constants(listed: list[JsonValue], steps: CheckSteps) -> Choices | None:
    """The constants of a list of schemas, if the schemas have no other keywords. Two schemas can have the same
    constant."""
    values: list[JsonValue] = []
    for schema in listed:
        if not isinstance(schema, dict):
            return None
        match {key: value for key, value in schema.items() if key not in _ANNOTATIONS}:
            case {"const": value, **rest} if not rest or (
                rest == {"type": "string"} and isinstance(value, str)
            ):
                values.append(value)
            case {"enum": list() as several, **rest} if not rest or (
                rest == {"type": "string"} and all(isinstance(constant, str) for constant in several)
            ):
                values += {key_of(constant, steps): constant for constant in several}.values()
            case _:
                return None
    return Choices(values, steps)


def _any_of(
    validator: Any, listed: JsonValue, instance: JsonValue, _: JsonObject
) -> Iterator[ValidationError]:
    if isinstance(listed, list) and not _fitting(validator, listed, instance, most=1):
        yield ValidationError(f"{abbreviated(instance)} is not valid under any of the given schemas")


def _one_of(
    validator: Any, listed: JsonValue, instance: JsonValue, _: JsonObject
) -> Iterator[ValidationError]:
    if not isinstance(listed, list):
        return
    fitting = _fitting(validator, listed, instance, most=2)
    if not fitting:
        yield ValidationError(f"{abbreviated(instance)} is not valid under any of the given schemas")
    elif fitting > 1:
        yield ValidationError(f"{abbreviated(instance)} is valid under more than one of the given schemas")


def _fitting(validator: Any, listed: list[JsonValue], instance: JsonValue, most: int) -> int:
    """How many of the schemas accept a value, counted up to `most`."""
    if (steps := _steps_of(validator)) is not None:
        constants = steps.choices(listed, _constants)
        if constants is not None:
            return constants.count(instance, steps)
    fitting = (schema for schema in listed if validator.evolve(schema=schema).is_valid(instance))
    return len([*islice(fitting, most)])


def _not(validator: Any, refused: JsonValue, instance: JsonValue, _: JsonObject) -> Iterator[ValidationError]:
    if validator.evolve(schema=refused).is_valid(instance):
        yield ValidationError(f"{abbreviated(instance)} should not be valid under {abbreviated(refused)}")


def _sized(kind: type, is_wrong: Callable[[float, float], bool], at: int, at_that: str, words: str) -> Any:
    """The check of a size. At the bound `at`, the message is `at_that`."""

    def check(_: Any, bound: JsonValue, instance: JsonValue, __: JsonObject) -> Iterator[ValidationError]:
        if not isinstance(instance, kind) or not isinstance(bound, int | float):
            return
        if is_wrong(len(instance), bound):  # type: ignore[arg-type]  # a str, list or dict
            yield ValidationError(f"{abbreviated(instance)} {at_that if bound == at else words}")

    return check


def _pattern(
    validator: Any, pattern: JsonValue, instance: JsonValue, _: JsonObject
) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not _is_found(validator, pattern, instance, unknown=True):
        yield ValidationError(f"{abbreviated(instance)} does not match {pattern!r}")


def _is_found(validator: Any, pattern: JsonValue, text: str, *, unknown: bool) -> bool:
    steps = _steps_of(validator)
    try:
        return matches(pattern, text, unknown=unknown, in_worker=steps is not None and steps.in_worker)
    except PatternTooSlowError as exc:
        raise OutOfTimeError from exc


def matches(pattern: JsonValue, text: str, *, unknown: bool, in_worker: bool = False) -> bool:
    """Whether a pattern is found in a text; `unknown` if the search takes more than linear time, or costs too much.

    Raises:
        PatternTooSlowError: see `Patterns`.
    """
    is_match = PATTERNS.found_in(pattern, text, in_worker=in_worker) if isinstance(pattern, str) else None
    return unknown if is_match is None else is_match


def _pattern_properties(
    validator: Any, schemas: JsonObject, instance: JsonValue, _: JsonObject
) -> Iterator[ValidationError]:
    if not isinstance(instance, dict):
        return
    steps = _steps_of(validator)
    for pattern, schema in schemas.items():
        for name, value in instance.items():
            if steps is not None:
                steps.step()
            if _is_found(validator, pattern, name, unknown=False):
                yield from validator.descend(value, schema, path=name, schema_path=pattern)


def _additional_properties(
    validator: Any, wanted: JsonValue, instance: JsonValue, schema: JsonObject
) -> Iterator[ValidationError]:
    if not isinstance(instance, dict):
        return
    extras = [*_unexpected(validator, schema, instance)]
    if isinstance(wanted, dict):
        for name in extras:
            yield from validator.descend(instance[name], wanted, path=name)
    elif wanted is False and extras:
        named = ", ".join(map(abbreviated, islice(extras, _SHOWN_VALUES)))
        yield ValidationError(
            f"Additional properties are not allowed ({named})", cause=UnexpectedNamesError(tuple(extras))
        )


def _unexpected(validator: Any, schema: JsonObject, instance: JsonObject) -> Iterator[str]:
    """The properties of an object that match neither a name nor a pattern of its schema."""
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    assert isinstance(known, dict)
    assert isinstance(patterns, dict)
    steps = _steps_of(validator)
    for name in instance:
        for pattern in patterns if name not in known else ():
            if steps is not None:
                steps.step()
            if _is_found(validator, pattern, name, unknown=True):
                break
        else:
            if name not in known:
                yield name


def _unique_items(
    validator: Any, wanted: JsonValue, instance: JsonValue, _: JsonObject
) -> Iterator[ValidationError]:
    if wanted and isinstance(instance, list):
        steps = _steps_of(validator)
        if len({key_of(item, steps) for item in instance}) < len(instance):
            yield ValidationError("has items that are not unique")


def passed_over(_: Any, __: JsonValue, ___: JsonValue, ____: JsonObject) -> Iterator[ValidationError]:
    """A check that is left to the server."""
    return iter(())


KEYWORDS: Final[Mapping[str, Any]] = {
    "type": _type,
    "enum": _enum,
    "const": _const,
    "anyOf": _any_of,
    "oneOf": _one_of,
    "not": _not,
    "minItems": _sized(list, operator.lt, 1, "should be non-empty", "is too short"),
    "maxItems": _sized(list, operator.gt, 0, "is expected to be empty", "is too long"),
    "minLength": _sized(str, operator.lt, 1, "should be non-empty", "is too short"),
    "maxLength": _sized(str, operator.gt, 0, "is expected to be empty", "is too long"),
    "minProperties": _sized(dict, operator.lt, 1, "should be non-empty", "does not have enough properties"),
    "maxProperties": _sized(dict, operator.gt, 0, "is expected to be empty", "has too many properties"),
    "uniqueItems": _unique_items,
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
}
"""The checks that take the place of the library's."""
