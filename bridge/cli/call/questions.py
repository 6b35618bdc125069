"""The questions of an agent in a task, and their answers from a person at the terminal or from a command line.

A question with a schema is a form, a question with a URL is a visit, and any other question is asked in its own words.
If several are open, each is asked, and one message answers all of them.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bridge.cli import forms
from bridge.errors import UsageError

if TYPE_CHECKING:
    from pydantic import JsonValue

    from bridge.a2a.model.objects import Part, TaskStatus
    from bridge.jsonvalues import JsonObject
    from bridge.mcp.tools import Tool

EXIT_UNANSWERED: Final = 3
"""The exit code of a call that asks something when there is no terminal."""

_JSON: Final = "application/json"
_DECLINES: Final = " (Ctrl+D declines)"
_CANCELS: Final = " (Ctrl+D cancels the task)"
_DONE: Final = "done"
"""The answer after a visit."""
_YES: Final = "yes"
"""The answer that allows a call."""

AnswerParts = tuple[tuple["Part", ...], "JsonObject | None"]
"""The parts of a message and its metadata."""


@dataclass(frozen=True)
class CallQuestion:
    """One question of an agent."""

    key: str | None
    """The question's key in the answer. A question without a key cannot be declined."""
    words: str
    """The question in words, if it is one of several."""
    is_visit: bool
    """Whether the person does something at a URL, and only reports that it is done."""
    form: forms.Form | None
    is_confirmation: bool = False
    """Whether the person is asked to allow a call."""


def is_question(data: JsonValue) -> bool:
    """Whether the data of a message is a question for programs; the text has it for people."""
    return isinstance(data, dict) and ("questions" in data or "schema" in data or data.get("mode") == "url")


def questions_in(status: TaskStatus, tool_of: Callable[[str], Tool | None]) -> list[CallQuestion]:
    """The questions of a task, at least one. `tool_of` gives the tool behind a skill, if the card tells it."""
    from bridge.translate.extension import QUESTION

    message = status.message
    key = ((message.metadata if message else None) or {}).get(QUESTION)
    is_visit = status.state.name == "AUTH_REQUIRED"
    confirms = any(
        isinstance(part.data, dict) and part.data.get("mode") == "confirm"
        for part in (message.parts if message else ())
    )
    only = CallQuestion(key if isinstance(key, str) else None, "", is_visit, None, confirms)
    for data in [part.data for part in message.parts if is_question(part.data)] if message else ():
        assert isinstance(data, dict)
        several = data.get("questions")
        if isinstance(several, list):
            listed = [_question(one, tool_of) for one in several if isinstance(one, dict)]
            return [one for one in listed if one.key is not None] or [only]
        if (form := forms.form_from(data, tool_of)) is not None:
            return [CallQuestion(only.key, "", False, form)]
    return [only]


def _question(data: JsonObject, tool_of: Callable[[str], Tool | None]) -> CallQuestion:
    key, words, form = data.get("key"), data.get("message"), forms.form_from(data, tool_of)
    text = words if isinstance(words, str) else ""
    if (url := data.get("url")) is not None:
        text = f"{text}\n{url}"
    return CallQuestion(key if isinstance(key, str) else None, text, form is None, form)


# At the terminal


def answer_to(questions: list[CallQuestion], *, is_first: bool) -> AnswerParts | None:
    """Ask the person at the terminal; None means to cancel the task. The first question says how to decline."""
    from bridge.a2a.model.objects import Part
    from bridge.cli import render

    if len(questions) == 1:
        (question,) = questions
        given = _asked(question, is_first=is_first)
        if given is None:
            return declined(questions) if question.key is not None else None
        return _answer(question, given)
    answers: JsonObject = {}
    for place, question in enumerate(questions):
        assert question.key is not None
        render.say(question.words)
        given = _asked(question, is_first=is_first and place == 0)
        if given is None:
            answers[question.key] = {"action": "decline"}
        else:
            answers[question.key] = given if isinstance(given, dict) else {}
    return (Part(data=answers, media_type=_JSON),), None


def _asked(question: CallQuestion, *, is_first: bool) -> str | JsonObject | None:
    """Ask one question; None when the person ends the input."""
    from bridge.cli import render

    hint = (_CANCELS if question.key is None else _DECLINES) if is_first or question.is_visit else ""
    if question.form is not None:
        return forms.filled_in(question.form, hint)
    if question.is_visit:
        doing = "to confirm" if question.is_confirmation else "once that is done"
        words = render.ask(f"Press Enter {doing}{hint}")
        return None if words is None else words or _chosen_by_enter(question)
    return render.ask(f"Your answer:{hint}")


# On the command line


def answer_given(
    questions: list[CallQuestion],
    text: str | None,
    arguments: JsonObject | None,
    pairs: dict[str, tuple[str, ...]],
) -> AnswerParts:
    """The answer on a command line.

    Raises:
        UsageError: an argument has two values, or the form says that it has no such field.
    """
    question = questions[0]
    if text is not None:
        return (
            _answer(question, text)
            if len(questions) == 1
            else _answer(CallQuestion(None, "", False, None), text)
        )
    tool = question.form.tool if question.form is not None and len(questions) == 1 else None
    if arguments is None:
        arguments = {name: forms.typed_all(texts, name, tool) for name, texts in pairs.items()}
    if tool is not None:
        forms.check_names(arguments, tool, "The form")
    if len(questions) == 1:
        return _answer(question, arguments)
    return _answer(CallQuestion(None, "", False, None), arguments, is_of_several=True)


def declined(questions: list[CallQuestion]) -> AnswerParts:
    """The answer that declines all questions.

    Raises:
        UsageError: a question cannot be declined.
    """
    from bridge.a2a.model.objects import Part
    from bridge.translate.extension import ANSWER, QUESTION

    if any(question.key is None for question in questions):
        raise UsageError("the agent does not say how its question is declined: answer it, or cancel the task")
    key: JsonObject = {QUESTION: questions[0].key} if len(questions) == 1 else {}
    # Refusing is never said in words alone, which could be taken for the answer.
    return (Part(text="declined"),), {**key, ANSWER: "decline"}


def reply_for(questions: list[CallQuestion]) -> str:
    """A sample answer to these questions: a JSON object to fill in, or words."""
    (question, *others) = questions
    if others:
        example = {
            str(one.key): dict.fromkeys(one.form.names, "...") if one.form else {} for one in questions
        }
        return json.dumps(example, ensure_ascii=False)
    if question.form is not None:
        return json.dumps(dict.fromkeys(question.form.names, "..."), ensure_ascii=False)
    return _chosen_by_enter(question) if question.is_visit else "..."


def words_for(questions: list[CallQuestion]) -> str:
    """The arguments of `call` that answer these questions."""
    if len(questions) > 1:
        return f"--json {shlex.quote(reply_for(questions))}"
    (question,) = questions
    if question.form is not None:
        return " ".join(shlex.quote(f"{name}=...") for name in question.form.names) or "--json '{}'"
    return f"--text {_chosen_by_enter(question)}" if question.is_visit else "--text ..."


def _chosen_by_enter(question: CallQuestion) -> str:
    return _YES if question.is_confirmation else _DONE


def _answer(question: CallQuestion, given: str | JsonObject, *, is_of_several: bool = False) -> AnswerParts:
    from bridge.a2a.model.objects import Part
    from bridge.translate.call_to_message import arguments_in_words
    from bridge.translate.extension import ANSWER, QUESTION

    part = Part(text=given) if isinstance(given, str) else Part(data=given, media_type=_JSON)
    if question.key is None:
        if isinstance(given, str) or is_of_several or question.form is not None:
            return (part,), None
        # An agent that asks in words may read only text.
        return (Part(text=arguments_in_words(given)), part), None
    # Other words than these, and data, are for the agent to judge: they may be no yes at all.
    is_left_open = question.is_confirmation and given != _YES
    return (part,), {QUESTION: question.key, **({} if is_left_open else {ANSWER: "accept"})}
