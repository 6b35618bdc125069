"""Checks of values against schemas: what is one value in JSON, in how much time, and what goes on in a worker."""

from __future__ import annotations

import threading
from contextlib import suppress
from functools import partial
from typing import Any

import anyio
import pytest

from bridge.concurrency import SlowWork, done_at_once, done_slowly
from bridge.mcp.patterns import MOST_WEIGHT, Patterns, PatternTooSlowError, cost_of
from bridge.mcp.schema_keywords import PATTERNS
from bridge.mcp.schemas import UncheckableError, errors_of, validator_of
from bridge.translate.elicitation import elicitation_from

MANY = 20_000
OBJECTS = [
    {"type": "object", "properties": {"kind": {"const": f"k{n}"}}, "required": ["kind"], "minProperties": 2}
    for n in range(20)
]


def fits(schema: dict[str, Any], value: Any) -> bool:
    """Whether a value fits, whatever time that takes."""
    return not done_at_once(partial(errors_of, validator_of(schema), value, 1))


@pytest.mark.parametrize(
    ("choices", "taken", "refused"),
    [
        ([1, "1"], [1, 1.0, "1"], [True, 1.5, "1.0", None, [1]]),
        ([True, None], [True, None], [1, 1.0, "True", "None", False, 0, ""]),
        ([0.5, 10**30], [0.5, 10**30, 1e30 if int(1e30) == 10**30 else 10**30], [5, "0.5"]),
        ([{"a": [1, {"b": 2.0}]}], [{"a": [1.0, {"b": 2}]}], [{"a": [True, {"b": 2}]}, {"a": [1]}, {}, []]),
        ([[], {}], [[], {}], ["", 0, None, [[]], [{}]]),
        (["s", "a"], ["s"], [["s"], {"s": "s"}]),
    ],
)
@pytest.mark.parametrize("keyword", ["enum", "anyOf", "oneOf", "titled"])
def test_a_choice_is_found_by_what_json_takes_for_one_value(
    keyword: str, choices: list[Any], taken: list[Any], refused: list[Any]
) -> None:
    several = [{"const": one, **({"title": "T"} if keyword == "titled" else {})} for one in choices]
    schema = {"enum": choices} if keyword == "enum" else {keyword: several}
    if keyword == "titled":
        schema = {"oneOf": several}
    assert [one for one in taken if not fits(schema, one)] == []
    assert [one for one in refused if fits(schema, one)] == []


def test_one_of_refuses_what_is_named_twice_and_any_of_takes_it() -> None:
    twice = [{"const": 1}, {"enum": [1.0, 1, 2]}]
    assert [fits({"oneOf": twice}, one) for one in (1, 2, 3)] == [False, True, False]
    assert [fits({"anyOf": twice}, one) for one in (1, 2, 3)] == [True, True, False]
    assert [fits({"anyOf": [{"const": 1, "minimum": 2}]}, 1)] == [
        False
    ]  # which asks for more than the constant


def test_items_are_unique_as_json_has_it() -> None:
    unique = {"uniqueItems": True}
    assert fits(unique, [1, True, "1", [1], {"a": 1}, {"a": True}, None, 0, False])
    assert not fits(unique, [1, 1.0])
    assert not fits(unique, [{"a": 1, "b": 2}, {"b": 2.0, "a": 1}])


@pytest.mark.parametrize(
    ("items", "value"),
    [
        ({"anyOf": [{"const": n, "minimum": 0} for n in range(100)]}, -1),
        ({"oneOf": OBJECTS}, {"kind": "none", "size": 1}),
        ({"not": {"anyOf": OBJECTS}}, {"kind": "none", "size": 1}),
        ({"patternProperties": {f"^{n}$": {} for n in range(50)}, "additionalProperties": False}, {"x": 1}),
        ({"contains": {"const": 1}}, [2, 3]),
    ],
)
@pytest.mark.smoke("items0--1", "items3-value3")
async def test_a_slow_check_asks_for_a_worker_which_ends_it_while_the_loop_goes_on(
    items: dict[str, Any], value: Any
) -> None:
    check = partial(errors_of, validator_of({"type": "array", "items": items}), [value] * MANY, 1000)
    with pytest.raises(SlowWork):
        check()
    where: list[int] = []
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await anyio.sleep(0)

    def noted() -> Any:
        where.append(threading.get_ident())
        return check()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(turn)
        with suppress(UncheckableError):  # it may take too long in the worker, too
            assert len(await done_slowly(noted)) <= 1000
        tasks.cancel_scope.cancel()
    assert turns > 10
    assert set(where) == {threading.get_ident()}  # the worker knows nothing of what wanted the check
    with pytest.raises(SlowWork):
        check()  # the verdict was forgotten with the work that wanted it


async def test_a_small_check_is_done_at_once() -> None:
    schema = {"type": "object", "properties": {"a": {"enum": ["x", "y"]}}, "required": ["a"]}
    assert [error.message for error in errors_of(validator_of(schema), {"a": "z"}, 9)] == [
        "'z' is not one of ['x', 'y']"
    ]


def test_a_message_repeats_only_the_beginning_of_a_long_value() -> None:
    (error,) = done_at_once(partial(errors_of, validator_of({"type": "string"}), list(range(90_000)), 9))
    assert error.message == "an array of 90000 items is not of type 'string'"
    (error,) = done_at_once(partial(errors_of, validator_of({"maxLength": 3}), "x" * 90_000, 9))
    assert len(error.message) < 500
    assert error.message.endswith("is too long")


@pytest.mark.parametrize(
    ("pattern", "is_light"),
    [
        (r"^[a-z0-9-]+$", True),
        (r"^[A-Za-z0-9_-]{1,64}$", True),
        (r"^\d{4}-\d{2}-\d{2}$", True),
        (r"^(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?\.)+[a-zA-Z]{2,63}$", True),
        (r"^\w+$", True),
        (r"\w{1,150}x", False),
        (r"(?:\w{10}){15}", False),
        (r"((\w{9}){9}){9}", False),
        (r"[\w\s]{150}", False),
        (r"\p{L}{100}", False),
        (r".{1,9999}", False),
        (r"[^a]{9}{9}{99}", False),
        (r"(?P<a>[[:alpha:]\W]{60})", False),
    ],
)
def test_a_pattern_is_weighed_by_its_text(pattern: str, is_light: bool) -> None:
    patterns = Patterns()
    assert (cost_of(pattern).weight <= MOST_WEIGHT) is is_light
    assert (patterns.found_in(pattern, "a", in_worker=True) is None) is not is_light
    assert len(patterns) == 1  # also that it was refused is remembered


def test_only_a_light_pattern_is_compiled_on_the_loop_and_only_a_short_text_matched() -> None:
    patterns = Patterns()
    with pytest.raises(PatternTooSlowError):
        patterns.found_in(r"\w{30}", "a", in_worker=False)
    assert patterns.found_in(r"\w{30}", "a" * 30, in_worker=True) is True
    assert patterns.found_in(r"\w{30}", "a" * 30, in_worker=False) is True
    with pytest.raises(PatternTooSlowError):
        patterns.found_in(r"\w{30}", "a" * 100_000, in_worker=False)
    assert patterns.found_in(r"\w{30}", "-" * 100_000, in_worker=True) is False
    assert patterns.found_in(r"\w{30}", "-" * 10_000_000, in_worker=True) is None
    assert patterns.found_in("a" * 6_000, "a", in_worker=True) is None


def test_few_patterns_are_kept() -> None:
    patterns = Patterns(kept_weight=10_000, kept_most=10)
    for number in range(100):
        patterns.found_in(rf"\w{number}", "a", in_worker=True)
    assert len(patterns) <= 4
    for number in range(100):
        patterns.found_in(rf"a{number}", "a", in_worker=True)
    assert len(patterns) == 10


def test_a_schema_with_heavy_patterns_compiles_none_until_it_is_called() -> None:
    before = len(PATTERNS)
    schema = {"properties": {f"p{n}": {"type": "string", "pattern": rf"\w{{1,150}}y{n}"} for n in range(300)}}
    checked = validator_of(schema)
    assert len(PATTERNS) == before
    assert done_at_once(partial(errors_of, checked, {f"p{n}": "a" for n in range(300)}, 9)) == []


def test_a_form_that_is_dear_to_compile_is_asked_and_its_answer_left_to_the_server() -> None:
    properties = {f"p{n}": {"type": "string", "$anchor": f"a{n}"} for n in range(5_000)}
    question = elicitation_from(
        "k", {"message": "?", "requestedSchema": {"type": "object", "properties": properties}}
    )
    assert question.form is not None
    assert question.form.validator.schema == {}
    assert len(question.form.input_schema["properties"]) == 5_000  # type: ignore[arg-type]
