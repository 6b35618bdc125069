"""Turns a server's questions (elicitation) into one A2A question, and the answers into ElicitResults. Pure.

A form makes the task INPUT_REQUIRED; a URL to visit makes it AUTH_REQUIRED, also together with a form. All open
questions are asked in one message: in words, and in one data part with the key of each question. An answer is checked
against its form. If it does not fit, the question is asked again, with the faults.

Spec: MCP 2026-07-28 and 2025-11-25 client/elicitation; A2A 1.0 sections 3.4.3 and 7.6.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from jsonschema import FormatChecker
from jsonschema.protocols import Validator
from pydantic import JsonValue

from bridge.a2a.model.errors import A2AError, Violation, invalid_params
from bridge.a2a.model.objects import Message, Part, TaskState, milliseconds
from bridge.errors import PeerError
from bridge.mcp.schemas import schema_cost, validator_of
from bridge.mcp.tools import Tool
from bridge.text.jsonvalues import JsonObject, exceeds_floats, is_deeper
from bridge.text.safe_text import web_link
from bridge.translate.arguments import (
    Problem,
    coerced_fields,
    describe,
    problems_of,
    properties_of,
    whole_numbers,
    with_chosen_values,
)
from bridge.translate.confirmation import answer_to_confirmation, refuses_in_words
from bridge.translate.content import MAX_DATA_DEPTH
from bridge.translate.extensions.bridge import ANSWER, BLOCK, OCCASIONS, QUESTION
from bridge.translate.message_to_call import answer_in, with_one_text
from bridge.translate.own_questions import ElicitAction, action_of_message

MAX_QUESTION_BYTES: Final = 262_144
"""The most bytes of a question, as JSON. A question is shown to people, and kept with the task each time it is
asked."""

FORMS_REMEMBERED: Final = 64
"""How many validators of forms are cached. A tool mostly asks with the same form each time."""

FORM_COST: Final = 10_000
"""The highest cost of a form's schema that is compiled, see `schema_cost`: it takes tens of milliseconds. For a form
that costs more, only the server checks the answer."""

REMEMBERED_FORM_BYTES: Final = 16_384
"""The validator of a larger form is not cached, since it takes many times the size of the form."""

_EMAIL: Final = re.compile(r"[^@\s]+@[^@\s]+")
"""A loose check: only a sent mail could show that a mailbox exists."""

_WHICH: Final = (
    "several forms are open: answer with a data part that has the key of each, or name one in metadata"
)

_YES_OR_NO: Final = 'there is nothing to fill in: answer "yes" or "no"'
_NOTHING_OF_FORM: Final = (
    "the answer fills in no field of the form; to accept the form as it is, send an empty data part"
)
_RESULT_KEYS: Final = frozenset({"action", "content"})
"""The fields of an ElicitResult, since an answer may have this shape."""
_REFUSALS: Final = (ElicitAction.DECLINE, ElicitAction.CANCEL)


@dataclass(frozen=True, slots=True)
class Elicitation:
    """One question of a server: a form, or a URL to be visited."""

    key: str
    params: JsonObject
    """The params of elicitation/create, unchanged."""
    form: Tool | None
    """The form, as the tool whose arguments it asks for; None for a URL."""
    is_login: bool = False
    """Whether the URL is a login page of the bridge, which notices the login by itself."""

    @property
    def message(self) -> str:
        """The server's words to the person."""
        words = self.params.get("message")
        return words if isinstance(words, str) and words else "The tool asks for more information"

    @property
    def url(self) -> str:
        """The URL to visit. Only for a question that is not a form."""
        return str(self.params.get("url"))


@dataclass(frozen=True, slots=True)
class Answers:
    """The content of an answer: ElicitResults for the questions that it settles, and the problems with its other
    answers."""

    given: Mapping[str, JsonObject] = field(default_factory=dict)
    problems: Mapping[str, tuple[Problem, ...]] = field(default_factory=dict)


def elicitation_from(key: str, params: JsonObject, *, is_login: bool = False) -> Elicitation:
    """The question in the params of an elicitation/create. For `is_login` see `Elicitation`.

    Raises:
        PeerError: the question cannot be passed on.
    """
    if len(json.dumps(params)) > MAX_QUESTION_BYTES:
        raise PeerError(f"The tool's question is larger than {MAX_QUESTION_BYTES} bytes")
    if is_deeper(params, MAX_DATA_DEPTH) or exceeds_floats(params):
        raise PeerError("The tool's question is nested too deeply, or a number in it is out of range")
    mode = params.get("mode", "form")
    if mode == "url":
        url = params.get("url")
        if not isinstance(url, str) or web_link(url) is None:
            raise PeerError("The tool sends its user to a URL that is not a web address")
        return Elicitation(key, params, None, is_login)
    if mode != "form":
        raise PeerError(f"The tool asks in an unknown mode: {str(mode)[:50]!r}")
    schema = params.get("requestedSchema", {"type": "object"})
    try:
        if not isinstance(schema, dict):
            raise ValueError("its requestedSchema is not a JSON object")  # noqa: TRY004 - one kind of error for one kind of reader
        is_small = schema_cost(schema) <= FORM_COST
        form = Tool(key, {}, schema, _form_validator(schema if is_small else {}))
    except ValueError as exc:
        raise PeerError(f"The tool asks with a form that is not valid: {exc}") from exc
    return Elicitation(key, params, form)


def _form_validator(form: JsonObject) -> Validator:
    """The validator of a form. It is cached: making a validator takes far longer than all other work on a question.

    Raises:
        ValueError: the schema is not valid.
    """
    text = json.dumps(form)
    return _remembered_validator(text) if len(text) <= REMEMBERED_FORM_BYTES else _new_validator(text)


def _new_validator(form: str) -> Validator:
    return validator_of(json.loads(form)).evolve(format_checker=_FORMATS)


_remembered_validator: Final = lru_cache(maxsize=FORMS_REMEMBERED)(_new_validator)


def _format_checker() -> FormatChecker:
    """A checker for the formats of forms (client/elicitation, requested schema). A value that is not a string
    passes."""
    checker = FormatChecker(formats=())
    for name, is_right in _FORMAT_CHECKS.items():
        checker.checks(name)(lambda value, is_right=is_right: not isinstance(value, str) or is_right(value))
    return checker


def _is_date(text: str) -> bool:
    try:
        return len(text) == len("2026-01-31") and bool(date.fromisoformat(text))
    except ValueError:
        return False


def _is_time(text: str) -> bool:
    try:
        return milliseconds(text) is not None
    except ValueError:
        return False


def _is_uri(text: str) -> bool:
    try:
        return bool(urlsplit(text).scheme) and " " not in text
    except ValueError:
        return False


_FORMAT_CHECKS: Final[Mapping[str, Callable[[str], bool]]] = {
    "email": lambda text: bool(_EMAIL.fullmatch(text)),
    "uri": _is_uri,
    "date": _is_date,
    "date-time": _is_time,
}
_FORMATS: Final = _format_checker()


def state_of_questions(questions: Sequence[Elicitation]) -> TaskState:
    """The state of a task that asks these questions."""
    needs_visit = any(question.form is None for question in questions)
    return TaskState.AUTH_REQUIRED if needs_visit else TaskState.INPUT_REQUIRED


def parts_of_questions(
    questions: Sequence[Elicitation],
    problems: Mapping[str, tuple[Problem, ...]] | None = None,
    occasions: Mapping[str, str] | None = None,
) -> tuple[Part, ...]:
    """The questions in words and as one data part. `problems` are the faults of the last answer, by question. For
    `occasions` see `extension.OCCASIONS`."""
    wrong = problems or {}
    text = "\n\n".join(_words(question, wrong.get(question.key, ())) for question in questions)
    items = [_data(question, wrong.get(question.key, ())) for question in questions]
    data: JsonObject = items[0] if len(items) == 1 else {"questions": [*items]}
    blocks: JsonObject = {question.key: question.params for question in questions}
    metadata: JsonObject = {BLOCK: blocks, **({OCCASIONS: {**occasions}} if occasions else {})}
    return Part(text=text), Part(data=data, media_type="application/json", metadata=metadata)


def question_metadata(questions: Sequence[Elicitation]) -> JsonObject:
    """The metadata of the message that asks: the key of the question, if there is only one question."""
    return {QUESTION: questions[0].key} if len(questions) == 1 else {}


def answers_from(
    message: Message, questions: Sequence[Elicitation], *, fill_defaults: bool = True
) -> Answers:
    """The answers in a message.

    A message answers the question that its metadata names, else the questions whose keys its data part has, else all
    questions.

    Raises:
        A2AError: INVALID_PARAMS, when the message names a question that is not open.
    """
    named = (message.metadata or {}).get(QUESTION)
    if named is not None:
        addressed = [question for question in questions if question.key == named]
        if not addressed:
            keys = ", ".join(question.key for question in questions)
            raise invalid_params(
                Violation(f'message.metadata["{QUESTION}"]', f"names no open question; open: {keys}")
            )
        return _answers([(question, message) for question in addressed], fill_defaults)
    by_key = _keyed(message, questions)
    if by_key is not None:
        return _answers(by_key, fill_defaults)
    if sum(question.form is not None for question in questions) > 1 and not _refuses(message, questions):
        # Nothing says which form the message fills in.
        forms = [question for question in questions if question.form is not None]
        return Answers(problems={question.key: (Problem("", _WHICH),) for question in forms})
    return _answers([(question, message) for question in questions], fill_defaults)


def fitting_answers(message: Message, questions: Sequence[Elicitation]) -> dict[str, JsonObject]:
    """The answers to all of these forms in a message that names no question. Empty unless the message fits every form,
    and fills in a field of each. Such a message never answers a URL, and no single text is picked out of several."""
    if any(question.form is None for question in questions):
        return {}
    message = with_one_text(message)
    try:
        answers = answers_from(message, questions, fill_defaults=False)
    except A2AError:
        return {}
    says_all = len(answers.given) == len(questions) and all(
        result.get("content") for result in answers.given.values()
    )
    return {**answers_from(message, questions).given} if says_all else {}


def named_answers(message: Message, questions: Sequence[Elicitation]) -> dict[str, JsonObject]:
    """The answer in a message that names its question, if the question is one of these forms and the answer fits."""
    forms = [question for question in questions if question.form is not None]
    try:
        return {**answers_from(message, forms).given}
    except A2AError:
        return {}


def _refuses(message: Message, questions: Sequence[Elicitation]) -> bool:
    """Whether a message declines or cancels all questions."""
    fields = frozenset(name for question in questions for name in _fields(question))
    return _action_of(message, fields) is not ElicitAction.ACCEPT


def _action_of(message: Message, fields: frozenset[str]) -> ElicitAction:
    """The action of a message. Unlike `action_of_message`, this also reads an ElicitResult with content."""
    answer = action_of_message(message, fields)
    if answer is ElicitAction.ACCEPT and ANSWER not in (message.metadata or {}) and not _RESULT_KEYS & fields:
        for part in message.parts:
            data = part.data if part.kind == "data" else None
            if isinstance(data, dict) and set(data) == _RESULT_KEYS and data["action"] in _REFUSALS:
                return ElicitAction(str(data["action"]))
    return answer


def _answers(answers: Sequence[tuple[Elicitation, Message]], fill_defaults: bool) -> Answers:
    results: dict[str, JsonObject] = {}
    problems: dict[str, tuple[Problem, ...]] = {}
    has_forms = any(question.form is not None for question, _ in answers)
    for question, message in answers:
        answer = _action_of(message, _fields(question))
        if answer is not ElicitAction.ACCEPT:
            results[question.key] = {"action": answer.value}
        elif question.form is None:
            # Beside a form, the words are about the form. Without a form, a refusal must not be reported as a visit.
            refuses = not has_forms and refuses_in_words(message)
            results[question.key] = {"action": "decline" if refuses else "accept"}
        else:
            result = _filled_in(question.form, message, fill_defaults)
            if isinstance(result, tuple):
                problems[question.key] = result
            else:
                results[question.key] = result
    return Answers(results, problems)


def _filled_in(form: Tool, message: Message, fill_defaults: bool) -> JsonObject | tuple[Problem, ...]:
    """Fill in a form with the values of a message. Returns the ElicitResult, or the problems with the values."""
    content, fields = _content(form, message), properties_of(form.input_schema)
    if not fields:
        # A form without fields takes only a yes or a no. Any other words are not a yes.
        is_yes = answer_to_confirmation(message, {}, form) or _accepts_without_fields(message)
        if is_yes in _REFUSALS:
            return {"action": str(is_yes)}
        if not is_yes:
            return (Problem("", _YES_OR_NO),)
    is_empty = bool(fields) and not content.keys() & fields.keys() and not _accepts_without_fields(message)
    content = _with_defaults(form, content) if fill_defaults else content
    # The defaults alone are the answer only if the message clearly accepts them: other words may be a refusal.
    nothing = (Problem("", _NOTHING_OF_FORM),) if is_empty else ()
    return problems_of(form, content) or nothing or {"action": "accept", "content": _whole(content)}


def _accepts_without_fields(message: Message) -> bool:
    """Whether a message accepts a form without filling in a field: in its metadata, or with an empty answer as data."""
    if (message.metadata or {}).get(ANSWER) == ElicitAction.ACCEPT:
        return True
    return bool(message.parts) and all(
        part.kind == "data" and part.data in ({}, {"action": "accept"}, {"action": "accept", "content": {}})
        for part in message.parts
    )


def _whole(content: JsonObject) -> JsonObject:
    return {name: whole_numbers(value) for name, value in content.items()}


def _content(form: Tool, message: Message) -> JsonObject:
    """The fields of a form that a message fills in, without defaults."""
    fields = tuple(properties_of(form.input_schema))
    content = answer_in(message.parts, form, fields)
    inner = content.get("content")
    if set(content) == _RESULT_KEYS and isinstance(inner, dict) and not _RESULT_KEYS & set(fields):
        content = inner
    elif content == {"action": "accept"} and "action" not in fields:
        content = {}
    return with_chosen_values(coerced_fields(content, form), form)


def _with_defaults(form: Tool, content: JsonObject) -> JsonObject:
    in_order: JsonObject = {}
    for name, prop in properties_of(form.input_schema).items():
        if name in content or "default" in prop:
            in_order[name] = content.get(name, prop.get("default"))
    return in_order | content


def _keyed(message: Message, questions: Sequence[Elicitation]) -> list[tuple[Elicitation, Message]] | None:
    """The answers in a data part, by the keys of their questions."""
    known = {question.key: question for question in questions if not _has_object_for(question.key, question)}
    for part in message.parts:
        data = part.data if part.kind == "data" else None
        if not isinstance(data, dict) or not data:
            continue
        if data.keys() <= known.keys() and all(isinstance(value, dict) for value in data.values()):
            return [(known[key], message.changed(parts=(Part(data=value),))) for key, value in data.items()]
    return None


def _has_object_for(name: str, question: Elicitation) -> bool:
    """Whether a form has a field of this name that takes an object, as only forms beyond the specification do."""
    properties = properties_of(question.form.input_schema) if question.form else {}
    return properties.get(name, {}).get("type") == "object"


def _fields(question: Elicitation) -> frozenset[str]:
    return frozenset(properties_of(question.form.input_schema)) if question.form else frozenset()


_GOES_ON: Final = "The task goes on by itself once you are logged in."


def _words(question: Elicitation, problems: Sequence[Problem]) -> str:
    if question.form is None:
        host = urlsplit(question.url).hostname
        if question.is_login:
            return f"{question.message}\nOpen this address of {host}: {question.url}\n{_GOES_ON}"
        return f"{question.message}\nOpen this address of {host}, and answer this task when it is done: {question.url}"
    names = dict.fromkeys(properties_of(question.form.input_schema), "") | {
        problem.name: problem.message for problem in problems
    }
    lines = [f"- {describe(question.form, Problem(name, wrong))}" for name, wrong in names.items()]
    lead = "That answer does not fit the form. " if problems else ""
    return "\n".join([f"{lead}{question.message}", *lines])


def _data(question: Elicitation, problems: Sequence[Problem]) -> JsonObject:
    data: JsonObject = {"key": question.key, "message": question.message}
    if question.form is None:
        data |= {"mode": "url", "url": question.url}
        if "elicitationId" in question.params:
            data["elicitationId"] = question.params["elicitationId"]
        return data
    data |= {"mode": "form", "schema": question.form.input_schema}
    if problems:
        data["errors"] = [{"property": problem.name, "message": problem.message} for problem in problems]
    return data


def required_urls(data: JsonValue) -> dict[str, JsonObject]:
    """The URLs that the user has to visit first, by key, from the data of a server's error -32042 (2025-11-25)."""
    listed = data.get("elicitations") if isinstance(data, dict) else None
    items = [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
    return {str(item.get("elicitationId") or f"url-{place}"): item for place, item in enumerate(items, 1)}
