"""What one turn asks for: a tool to run, a question to ask back, or an end. Decides; does nothing.

Spec: A2A 1.0 section 3.4.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from bridge.a2a.errors import CONTENT_TYPE_NOT_SUPPORTED, A2AError
from bridge.a2a.job import Turn
from bridge.a2a.models import Part, TaskState
from bridge.jsonvalues import JsonObject
from bridge.mcp.tools import Tool
from bridge.tools_as_agent.kept import FollowedTask, OwnQuestion, ServerQuestion, Way, kept_from
from bridge.tools_as_agent.options import AgentOptions
from bridge.translate import questions
from bridge.translate.arguments import Problem, coerced_fields, describe, problems_of, properties_of
from bridge.translate.elicitation import (
    Elicitation,
    answers_from,
    elicitation_from,
    parts_of_questions,
    question_metadata,
    state_of_questions,
)
from bridge.translate.extension import QUESTION, URI
from bridge.translate.files import place_files
from bridge.translate.message_to_call import (
    Call,
    Unclear,
    answer_in,
    call_from_message,
    data_in,
    skill_named_in,
)
from bridge.translate.skills import accepts_any, output_modes_of


@dataclass(frozen=True, slots=True)
class RunTool:
    """Call this tool."""

    skill_id: str
    tool: Tool
    arguments: JsonObject
    answered: ServerQuestion | None = None
    """What the server asked in the call that this one goes on with, with the answers."""


@dataclass(frozen=True, slots=True)
class Follow:
    """Go on with a call that the server made a task of."""

    skill_id: str
    task: FollowedTask


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask the client."""

    state: TaskState
    parts: tuple[Part, ...]
    metadata: JsonObject
    kept: bytes
    """What the answer will be understood by."""


@dataclass(frozen=True, slots=True)
class End:
    """End the task, saying why."""

    state: TaskState
    words: str


_DECLINED: Final = End(TaskState.REJECTED, "The question was declined, so the skill was not run")
_CANCELED: Final = End(TaskState.CANCELED, "Canceled in answer to the question")

Decision = RunTool | Follow | Ask | End


def decide(turn: Turn, skills: Mapping[str, Tool], options: AgentOptions) -> Decision:
    """What to do with a turn.

    Raises:
        A2AError: CONTENT_TYPE_NOT_SUPPORTED, when a file fits no property of the skill, or the client takes
            none of the media types that the skill gives; INVALID_PARAMS, when an answer names a question that is
            not open.
    """
    kept = kept_from(turn.kept)
    match kept:
        case ServerQuestion():
            return _answered(kept, turn, skills)
        case FollowedTask():
            return Follow(kept.skill_id, kept)
        case _:
            return _understood(kept, turn, skills, options)


def _answered(asked: ServerQuestion, turn: Turn, skills: Mapping[str, Tool]) -> Decision:
    """An answer to what the server asked."""
    open_ones = open_questions(asked)
    answers = answers_from(turn.message, open_ones, fill_defaults=URI not in turn.extensions)
    answered = replace(asked, given={**asked.given, **answers.given})
    if left := open_questions(answered):
        return ask_server_questions(answered, left, answers.problems)
    if asked.way is Way.AGAIN:
        actions = {answer["action"] for answer in answered.given.values()}
        if "cancel" in actions:
            return _CANCELED
        if "decline" in actions:
            return _DECLINED
    tool = skills.get(asked.skill_id)
    if tool is None:
        return End(TaskState.FAILED, f"The server no longer lists the tool {asked.skill_id}")
    return RunTool(asked.skill_id, tool, asked.arguments, answered)


def open_questions(asked: ServerQuestion) -> list[Elicitation]:
    """Those that have no answer yet.

    Raises:
        PeerError: one cannot be passed on.
    """
    return [
        elicitation_from(key, params) for key, params in asked.questions.items() if key not in asked.given
    ]


def ask_server_questions(
    asked: ServerQuestion,
    open_ones: Sequence[Elicitation],
    problems: Mapping[str, tuple[Problem, ...]] | None = None,
) -> Ask:
    """Pass on what the server asked."""
    parts = parts_of_questions(open_ones, problems)
    return Ask(state_of_questions(open_ones), parts, question_metadata(open_ones), asked.to_bytes())


def _understood(
    asked: OwnQuestion | None, turn: Turn, skills: Mapping[str, Tool], options: AgentOptions
) -> Decision:
    """A message that asks for something by itself, or answers a question of ours."""
    if asked is not None:
        answer = questions.answer_of(turn.message, frozenset(asked.fields))
        if answer is questions.Answer.DECLINE:
            return _DECLINED
        if answer is questions.Answer.CANCEL:
            return _CANCELED
        named = skill_named_in(turn.message)
        if (tool := skills.get(asked.skill_id)) and named in (None, asked.skill_id):
            return _checked(_merged(asked, tool, turn), tool, turn, options)
    found = call_from_message(turn.message, turn.metadata, skills, options.route)
    if isinstance(found, Unclear):
        return _ask(questions.WHICH_SKILL, questions.which_skill(found, skills), OwnQuestion("", {}, ()))
    tool = skills[found.skill_id]
    return _checked(_with_first(found, tool, turn) if asked else found, tool, turn, options)


def _with_first(call: Call, tool: Tool, turn: Turn) -> Call:
    """A call whose skill was only named in answer, with the data and files that came with the first message."""
    first = turn.task.history[0] if turn.task and turn.task.history else turn.message
    arguments = {**data_in(first, tool), **call.arguments}
    arguments, unplaced = place_files(
        tool, arguments, [part for part in first.parts if part.kind in ("raw", "url")]
    )
    return Call(call.skill_id, arguments, (*call.unplaced, *unplaced))


def _checked(call: Call, tool: Tool, turn: Turn, options: AgentOptions) -> Decision:
    if call.unplaced:
        raise _file_fits_nothing(call)
    _require_output_accepted(turn, call.skill_id, tool)
    if URI in turn.extensions:
        # The client knows the schema, and wants the server's own word on its arguments.
        return RunTool(call.skill_id, tool, call.arguments)
    problems = problems_of(tool, call.arguments)
    if not problems:
        return RunTool(call.skill_id, tool, call.arguments)
    if options.incomplete == "reject":
        faults = "; ".join(describe(tool, problem) for problem in problems)
        return End(
            TaskState.REJECTED, f"The arguments of {call.skill_id} are not as its schema asks: {faults}"
        )
    parts = questions.arguments(call.skill_id, tool, call.arguments, problems)
    return _ask(questions.ARGUMENTS, parts, _asked_for(call, tool, problems))


def _ask(key: str, parts: tuple[Part, ...], asked: OwnQuestion) -> Ask:
    return Ask(TaskState.INPUT_REQUIRED, parts, {QUESTION: key}, asked.to_bytes())


def _asked_for(call: Call, tool: Tool, problems: tuple[Problem, ...]) -> OwnQuestion:
    """What is kept: the arguments without those that the schema does not let in, which no answer could mend."""
    known = properties_of(tool.input_schema)
    at_fault = [problem.name for problem in problems if problem.name]
    kept = {name: value for name, value in call.arguments.items() if name in known or name not in at_fault}
    return OwnQuestion(call.skill_id, kept, tuple(name for name in at_fault if name in known))


def _merged(asked: OwnQuestion, tool: Tool, turn: Turn) -> Call:
    """The arguments so far, with what the answer adds or mends."""
    given = coerced_fields(answer_in(turn.message.parts, tool, asked.fields), tool)
    arguments = {**asked.arguments, **given}
    files = [part for part in turn.message.parts if part.kind in ("raw", "url")]
    replaced = {name: value for name, value in arguments.items() if name in given or name not in asked.fields}
    if files:
        arguments = replaced  # a property that was wrong makes room for the file
    arguments, unplaced = place_files(tool, arguments, files)
    return Call(asked.skill_id, arguments, unplaced)


def _file_fits_nothing(call: Call) -> A2AError:
    types = ", ".join(sorted({part.media_type or "a file without media type" for part in call.unplaced}))
    return A2AError(
        CONTENT_TYPE_NOT_SUPPORTED,
        f"The skill {call.skill_id} takes no file of this kind: {types}",
        metadata={"skill": call.skill_id},
    )


def _require_output_accepted(turn: Turn, skill_id: str, tool: Tool) -> None:
    accepted, offered = turn.configuration.accepted_output_modes or (), output_modes_of(tool)
    if not accepts_any(accepted, offered):
        raise A2AError(
            CONTENT_TYPE_NOT_SUPPORTED,
            f"The skill {skill_id} answers with {', '.join(offered)}, and none of it is accepted",
            metadata={"skill": skill_id},
        )
