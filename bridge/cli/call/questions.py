"""The questions of an agent in a task, and their answers from a person at the terminal or from a command line.

A question with a schema is a form, a question with a URL is a visit, and any other question is plain text. If several
questions are open, the person answers each, and one message has all answers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from bridge.cli import forms
from bridge.text.safe_text import ascii_json, shell_word

if TYPE_CHECKING:
    from pydantic import JsonValue

    from bridge.a2a.model.objects import Part, TaskStatus
    from bridge.mcp.tools import Tool
    from bridge.text.jsonvalues import JsonObject

EXIT_UNANSWERED: Final = 3
"""The exit code of a call that asks a question without a terminal."""

_JSON: Final = "application/json"
_DECLINES: Final = " (Ctrl+D declines)"
_ENDS: Final = " (Ctrl+D declines, which cancels the task)"
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
    """The question's key in the answer, if the agent gave it one."""
    words: str
    """The text of the question, if there are several questions."""
    is_visit: bool
    """Whether the person does something at a URL, and then only confirms."""
    form: forms.Form | None
    is_confirmation: bool = False
    """Whether the person is asked to allow something, and fills in nothing."""
    takes_refusals: bool = False
    """Whether the agent declares the bridge's extension, which defines how a client declines."""

    @property
    def refusal(self) -> JsonObject | None:
        """The content that says no, if the schema of the question's form declares it."""
        from bridge.translate.refusals import refusal_content

        return None if self.form is None else refusal_content(self.form.tool.input_schema)


class DeclinedError(Exception):
    """The person declined, and the agent does not define how a client declines: the task has to be canceled."""


def is_question(data: JsonValue) -> bool:
    """Whether a data part is a question for programs. The text part of the same message asks the question in words."""
    return isinstance(data, dict) and ("questions" in data or "schema" in data or data.get("mode") == "url")


def questions_in(
    status: TaskStatus, tool_of: Callable[[str], Tool | None], *, takes_refusals: bool
) -> list[CallQuestion]:
    """The questions of a task, at least one. `tool_of` gives the tool behind a skill, if the card tells it.
    `takes_refusals` is as for `CallQuestion`."""
    found = _questions_in(status, tool_of)
    return [replace(question, takes_refusals=takes_refusals) for question in found]


def _questions_in(status: TaskStatus, tool_of: Callable[[str], Tool | None]) -> list[CallQuestion]:
    from bridge.translate.extensions.bridge import QUESTION

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
            listed = [_question(asked, tool_of) for asked in several if isinstance(asked, dict)]
            return [question for question in listed if question.key is not None] or [only]
        if (form := forms.form_from(data, tool_of)) is not None:
            return [CallQuestion(only.key, "", False, form, not form.names)]
    return [only]


def _question(data: JsonObject, tool_of: Callable[[str], Tool | None]) -> CallQuestion:
    key, words, form = data.get("key"), data.get("message"), forms.form_from(data, tool_of)
    text = words if isinstance(words, str) else ""
    if (url := data.get("url")) is not None:
        text = f"{text}\n{url}"
    confirms = form is not None and not form.names
    return CallQuestion(key if isinstance(key, str) else None, text, form is None, form, confirms)


# At the terminal


def answer_to(questions: list[CallQuestion], *, is_first: bool) -> AnswerParts:
    """Ask the person at the terminal. The first question says how to decline.

    Raises:
        DeclinedError: the person declined, and the agent cannot be told.
    """
    from bridge.a2a.model.objects import Part
    from bridge.cli import render

    if len(questions) == 1:
        (question,) = questions
        given = _ask(question, is_first=is_first)
        return declined(questions) if given is None else _answer(question, given)
    answers: JsonObject = {}
    for place, question in enumerate(questions):
        assert question.key is not None
        render.err.say_in_lines(question.words)
        given = _ask(question, is_first=is_first and place == 0)
        answers[question.key] = _decline(question) if given is None else _keyed(question, given)
    return (Part(data=answers, media_type=_JSON),), None


def _ask(question: CallQuestion, *, is_first: bool) -> str | JsonObject | None:
    """Ask one question; None if the person ends the input, or answers a yes-or-no question with no."""
    from bridge.cli import render

    can_be_told = question.takes_refusals or question.refusal is not None
    hint = (_DECLINES if can_be_told else _ENDS) if is_first or question.is_visit else ""
    if question.form is not None and not question.is_confirmation:
        return forms.filled_in(question.form, hint)
    if question.is_visit or question.is_confirmation:
        doing = "to confirm" if question.is_confirmation else "once that is done"
        words = render.ask(f"Press Enter {doing}{hint}")
        if words is None or _refuses(words):
            return None
        # A form without fields takes an empty object.
        return words or ({} if question.form is not None else _chosen_by_enter(question))
    return render.ask(f"Your answer:{hint}")


def _refuses(words: str) -> bool:
    from bridge.a2a.model.objects import Message, Part, Role
    from bridge.translate.confirmation import refuses_in_words

    answer = Message(message_id="-", role=Role.USER, parts=(Part(text=words),))
    return refuses_in_words(answer)


def _keyed(question: CallQuestion, given: str | JsonObject) -> JsonObject:
    """The answer to one of several questions. Any text other than the yes goes to the agent unchanged."""
    if isinstance(given, dict):
        return given
    return {"action": "accept"} if given == _chosen_by_enter(question) else {"answer": given}


def _decline(question: CallQuestion) -> JsonObject:
    if question.takes_refusals:
        return {"action": "decline"}
    if (refusal := question.refusal) is not None:
        return refusal
    raise DeclinedError


# On the command line


def answer_given(
    questions: list[CallQuestion],
    text: str | None,
    arguments: JsonObject | None,
    pairs: dict[str, tuple[str, ...]],
) -> AnswerParts:
    """The answer on a command line.

    Raises:
        UsageError: an argument has two values, or the form forbids an argument.
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
        DeclinedError: the agent cannot be told.
    """
    from bridge.a2a.model.objects import Part
    from bridge.translate.extensions.bridge import ANSWER, QUESTION

    if all(question.takes_refusals for question in questions):
        # As data: the agent could take words for an answer.
        key: JsonObject = {QUESTION: questions[0].key} if len(questions) == 1 and questions[0].key else {}
        return (Part(data={"action": "decline"}, media_type=_JSON),), {**key, ANSWER: "decline"}
    refusals: JsonObject = {str(question.key): _decline(question) for question in questions}
    data = _decline(questions[0]) if len(questions) == 1 else refusals
    return (Part(data=data, media_type=_JSON),), None


def reply_for(questions: list[CallQuestion]) -> str:
    """A sample answer to these questions: a JSON object to fill in, or a text."""
    (question, *others) = questions
    if others:
        example = {
            str(asked.key): dict.fromkeys(asked.form.names, "...") if asked.form else {}
            for asked in questions
        }
        return ascii_json(example)
    if question.form is not None and not question.is_confirmation:
        return ascii_json(dict.fromkeys(question.form.names, "..."))
    if question.is_confirmation:
        return _YES
    return _chosen_by_enter(question) if question.is_visit else "..."


def how_declined(questions: list[CallQuestion]) -> str:
    """What --decline does with these questions, in words."""
    are_told = all(question.takes_refusals or question.refusal is not None for question in questions)
    return "declines" if are_told else "declines, which cancels the task"


def words_for(questions: list[CallQuestion]) -> str:
    """The arguments of `call` that answer these questions."""
    if len(questions) > 1:
        return f"--json {shell_word(reply_for(questions))}"
    (question,) = questions
    if question.form is not None and not question.is_confirmation:
        return " ".join(shell_word(f"{name}=...") for name in question.form.names)
    if question.is_confirmation:
        return f"--text {_YES}"
    return f"--text {_chosen_by_enter(question)}" if question.is_visit else "--text ..."


def _chosen_by_enter(question: CallQuestion) -> str:
    return _YES if question.is_confirmation else _DONE


def _answer(question: CallQuestion, given: str | JsonObject, *, is_of_several: bool = False) -> AnswerParts:
    from bridge.a2a.model.objects import Part
    from bridge.translate.call_to_message import arguments_in_words
    from bridge.translate.extensions.bridge import ANSWER, QUESTION

    part = Part(text=given) if isinstance(given, str) else Part(data=given, media_type=_JSON)
    if question.key is None:
        if isinstance(given, str) or is_of_several or question.form is not None:
            return (part,), None
        # An agent that asks without a form may read only text.
        return (Part(text=arguments_in_words(given)), part), None
    # Only the expected word is marked as a yes: the agent judges any other text or data.
    is_yes_alone = question.is_confirmation or question.is_visit
    is_yes = given == _chosen_by_enter(question) or (question.form is not None and not given)
    is_for_agent = is_yes_alone and not is_yes
    return (part,), {QUESTION: question.key, **({} if is_for_agent else {ANSWER: "accept"})}
