"""Decides what to do with a turn: run a tool, ask a question, or end the task. Pure.

A call that needs a confirmation becomes a question; a yes is valid for this call only.

Spec: A2A 1.0 sections 3.4.3 and 7.6."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from bridge.a2a.model.errors import CONTENT_TYPE_NOT_SUPPORTED, A2AError, Violation, invalid_params
from bridge.a2a.model.objects import Part, TaskState, text_of_parts
from bridge.a2a.tasks.agent import Turn
from bridge.errors import echoed
from bridge.mcp.tools import Tool
from bridge.tools_as_agent.options import AgentOptions
from bridge.tools_as_agent.resume_state import (
    AskModel,
    Confirmation,
    Decision,
    End,
    Follow,
    FollowedTask,
    ModelWait,
    OwnQuestion,
    RequireInput,
    ResumeMode,
    RunTool,
    ServerQuestion,
    resume_state_from,
)
from bridge.tools_as_agent.skills import Skill, Skills
from bridge.translate import own_questions
from bridge.translate.arguments import (
    UNKNOWN_ARGUMENT,
    Problem,
    coerced_fields,
    describe,
    problems_of,
    properties_of,
    without_nulls,
)
from bridge.translate.confirmation import (
    answer_to_confirmation,
    beside_the_answer,
    call_digest,
    confirmation_key,
    confirmation_metadata,
    needs_confirmation,
    parts_of_confirmation,
)
from bridge.translate.elicitation import (
    Elicitation,
    answers_from,
    elicitation_from,
    fitting_answers,
    parts_of_questions,
    question_metadata,
    state_of_questions,
)
from bridge.translate.extensions.bridge import EXPLAIN, QUESTION, SKILL, URI
from bridge.translate.files import place_files
from bridge.translate.language.plain_words import Origin
from bridge.translate.message_to_call import (
    SkillCall,
    UnclearCall,
    answer_in,
    arguments_named_in,
    asks_for_help,
    call_from_message,
    data_in,
    skill_asked_for_in,
    skill_named_in,
    with_metadata,
    with_one_text,
)
from bridge.translate.overrides import ArgumentRule, hidden_arguments_in, is_hidden, with_default_arguments
from bridge.translate.skills import accepts_any, output_modes_of

_REFUSED: Final[Mapping[own_questions.ElicitAction, End]] = {
    own_questions.ElicitAction.CANCEL: End(TaskState.CANCELED, "Canceled in answer to the question"),
    own_questions.ElicitAction.DECLINE: End(
        TaskState.REJECTED, "The question was declined, so the skill was not run"
    ),
}
_NOT_CONFIGURED: Final = (
    "The bridge's configuration of {} does not fit the tool's schema; the bridge's log says more"
)
_MAX_LISTED: Final = 20
"""The most skills that an answer to "What can you do?" lists."""
_MAX_SHOWN: Final = 3
"""The most example sentences in that answer."""
_MAX_LINE: Final = 200
_MAX_VALUE: Final = 1000
"""The most characters of a value that an explanation repeats."""
_MISFITS: Final = "The question is not asked again after {} answers that do not fit"
_NEITHER: Final = "Neither a yes nor a no came in {} answers, so the skill was not run"
_TOGETHER: Final = "the combination of arguments does not fit the tool's schema"


def decide(turn: Turn, skills: Skills, options: AgentOptions) -> Decision:
    """What to do with a turn.

    Raises:
        A2AError: CONTENT_TYPE_NOT_SUPPORTED, when a file fits no property of the skill, or the client accepts none of
            the media types of the skill's results; INVALID_PARAMS, when an answer names a question that is not open.
    """
    question = resume_state_from(turn.kept)
    # In every rule below, the request's metadata counts as the message's metadata.
    whole = replace(turn, message=with_metadata(turn.message, turn.metadata)) if turn.metadata else turn
    match question:
        case ServerQuestion():
            return _answered(question, whole, skills, options)
        case FollowedTask():
            return Follow(question)
        case Confirmation():
            return _confirmed(question, turn, skills, options)
        case ModelWait():  # its process is gone, and the client was asked in its place
            return decide(replace(turn, kept=question.kept.encode()), skills, options)
        case _:
            decision = _understood(question, whole, skills, options)
            if question is not None:
                decision = _with_limited_tries(question, decision, options)
            return _or_model(question, decision, whole, skills, options)


def check_choice(call: SkillCall, turn: Turn, skills: Skills, options: AgentOptions) -> Decision:
    """Decide on a call that a model chose. The bridge checks the arguments even if the client leaves that to the
    server.

    Raises:
        A2AError: see `decide`.
    """
    skill = skills.by_id[call.skill_id]
    files = [part for part in turn.message.parts if part.kind in ("raw", "url")]
    arguments, unplaced = place_files(skill.tool, call.arguments, files)
    call = replace(call, arguments=arguments, unplaced=unplaced)
    return _checked(call, skill, replace(turn, extensions=turn.extensions - {URI}), options)


def _or_model(
    question: OwnQuestion | None, decision: Decision, turn: Turn, skills: Skills, options: AgentOptions
) -> Decision:
    """The decision, or to ask a model: if no rule understands a text, and the message names no skill."""
    if options.chooser is None or not isinstance(decision, RequireInput) or not skills.skills:
        return decision
    again = resume_state_from(decision.kept)
    if not isinstance(again, OwnQuestion) or _is_understood(question, again):
        return decision
    text = text_of_parts(turn.message.parts).strip()
    if not text or any(part.kind == "data" for part in turn.message.parts):
        return decision
    if skill_asked_for_in(turn.message, skills.tools, options.route) is not None:
        return decision
    asked = turn.task.status.message if question is not None and turn.task else None
    return AskModel(text, text_of_parts(asked.parts) if asked else "", decision, skills)


def _is_understood(question: OwnQuestion | None, again: OwnQuestion) -> bool:
    """Whether the rules understood a text, and only lack values, for which the client is asked. `question` is what the
    text answers, and `again` is what is asked next."""
    if question is None or not question.skill_id:
        return again.said is not None
    return again.skill_id != question.skill_id or not set(question.fields) <= set(again.fields)


def skill_named_by(turn: Turn, skills: Skills, options: AgentOptions) -> str | None:
    """The skill that a message names, among all skills; None if it names no single skill."""
    message = with_metadata(turn.message, turn.metadata)
    named = skill_asked_for_in(message, skills.tools, options.route)
    return named if isinstance(named, str) else None


def is_answer(turn: Turn, skills: Skills, options: AgentOptions) -> bool:
    """Whether a message that does not name the waiting task can only be an answer to it: the message names no skill (by
    rules 0 to 3), and fits the question. An answer to a confirmation always has to name the task."""
    message = with_metadata(turn.message, turn.metadata)
    if skill_asked_for_in(message, skills.tools, options.route) is not None:
        return False
    match resume_state_from(turn.kept):
        case ServerQuestion() as question:
            return bool(fitting_answers(message, open_questions(question)))
        case OwnQuestion() as question if question.fields and (skill := _asked_about(question, skills)):
            call = _merged(question, skill.tool, replace(turn, message=with_one_text(message)))
            arguments = with_default_arguments(
                call.arguments, skill.listed.input_schema, skill.override.arguments
            )
            is_new = call.arguments != question.arguments and not call.unplaced
            return is_new and not problems_of(skill.tool, arguments)
        case _:
            return False


def _answered(question: ServerQuestion, turn: Turn, skills: Skills, options: AgentOptions) -> Decision:
    """Decide on an answer to the server's questions."""
    answered = question_with_answers(question, turn, options)
    if not isinstance(answered, ServerQuestion):
        return answered
    key = question.source_key, question.tool_name
    skill = skills.by_key.get(key) if question.tool_name else skills.by_id.get(question.skill_id)
    if skill is None:
        return no_longer_there(question.skill_id)
    return RunTool(skill, question.arguments, answered)


def question_with_answers(
    question: ServerQuestion, turn: Turn, options: AgentOptions
) -> ServerQuestion | RequireInput | End:
    """The question with the answers of a message, or what follows if the message leaves something open, or refuses."""
    open_ones = open_questions(question)
    answers = answers_from(turn.message, open_ones, fill_defaults=URI not in turn.extensions)
    answered = replace(question, given={**question.given, **answers.given})
    if left := open_questions(answered):
        tries = question.tries + bool(answers.problems)
        if tries >= options.run.answer_tries:
            return End(TaskState.FAILED, words_on_misfits(tries, left, answers.problems))
        return ask_server_questions(replace(answered, tries=tries), left, answers.problems)
    if question.way is ResumeMode.AGAIN:
        actions = {answer["action"] for answer in answered.given.values()}
        for refusal, end in _REFUSED.items():
            if refusal in actions:
                return end
    return answered


def words_on_misfits(
    tries: int, questions: Sequence[Elicitation], problems: Mapping[str, Sequence[Problem]]
) -> str:
    """The text that says why a question is not asked again."""
    wrong = [
        describe(question.form, problem)
        for question in questions
        if question.form is not None
        for problem in problems.get(question.key, ())
    ]
    return f"{_MISFITS.format(tries)}: {'; '.join(wrong)}"


def _with_limited_tries(question: OwnQuestion, decision: Decision, options: AgentOptions) -> Decision:
    """The decision, with a limit on answers to a question of the bridge. An answer that corrects nothing that was asked
    for counts as a try; after the last try, the question is not asked again."""
    if not isinstance(decision, RequireInput):
        return decision
    again = resume_state_from(decision.kept)
    if not isinstance(again, OwnQuestion) or again.skill_id != question.skill_id:
        return decision
    tries = question.tries + (set(question.fields) <= set(again.fields))
    if tries >= options.run.answer_tries:
        words = next((part.text for part in decision.parts if part.text), "")
        return End(TaskState.REJECTED, f"{_MISFITS.format(tries)}. {words}")
    return replace(decision, kept=replace(again, tries=tries).to_bytes())


def open_questions(question: ServerQuestion) -> list[Elicitation]:
    """The questions that have no answer yet.

    Raises:
        PeerError: a question cannot be passed on.
    """
    return [
        elicitation_from(key, params)
        for key, params in question.questions.items()
        if key not in question.given
    ]


def ask_server_questions(
    question: ServerQuestion,
    open_ones: Sequence[Elicitation],
    problems: Mapping[str, tuple[Problem, ...]] | None = None,
) -> RequireInput:
    """Pass on the server's questions. A question whose answer did not fit is asked again, with a new occasion."""
    again = {key: f"{question.occasions.get(key, '')}+" for key in problems or ()}
    question = replace(question, occasions={**question.occasions, **again})
    now = {
        elicitation.key: question.occasions[elicitation.key]
        for elicitation in open_ones
        if elicitation.key in question.occasions
    }
    parts = parts_of_questions(open_ones, problems, now)
    metadata = question_metadata(open_ones)
    return RequireInput(
        state_of_questions(open_ones), parts, metadata, question.to_bytes(), stays=question.is_of_process
    )


def _understood(question: OwnQuestion | None, turn: Turn, skills: Skills, options: AgentOptions) -> Decision:
    """Decide on a message that asks for something new, or answers a question of the bridge."""
    if question is None and (turn.message.metadata or {}).get(SKILL) == EXPLAIN:
        return _explained(turn, skills, options)
    skill = None if question is None else _asked_about(question, skills)
    if question is not None:
        answer = own_questions.action_of_message(turn.message, frozenset(question.fields))
        if answer is not own_questions.ElicitAction.ACCEPT:
            return _REFUSED[answer]
        named = skill_named_in(turn.message)
        if skill is not None and named in (None, question.skill_id):
            return _checked(_merged(question, skill.tool, turn), skill, turn, options)
    call = call_from_message(turn.message, turn.metadata, skills.tools, options.route, skills.book)
    if question is not None and question.skill_id and skill is None:
        whole = with_metadata(turn.message, turn.metadata)
        if skill_asked_for_in(whole, skills.tools, options.route) in (None, question.skill_id):
            call = UnclearCall()  # an answer to a question about one skill never calls another skill
    if (
        call == UnclearCall()
        and turn.task is None
        and skills.skills
        and asks_for_help(turn.message, skills.book)
    ):
        return End(TaskState.COMPLETED, _words_on_skills(skills), is_brief=True)
    if isinstance(call, UnclearCall):
        asking = own_questions.ask_which_skill(call, skills.tools, holds_back=skills.holds_back)
        return _ask(own_questions.WHICH_SKILL, asking, OwnQuestion("", {}, ()))
    skill = skills.by_id[call.skill_id]
    return _checked(_with_first(call, skill.tool, turn) if question else call, skill, turn, options)


def _confirmed(question: Confirmation, turn: Turn, skills: Skills, options: AgentOptions) -> Decision:
    """Decide on an answer to a confirmation. Changed arguments make a different call, which needs its own
    confirmation."""
    # Another tool under the same id needs a new confirmation, since its call has another digest.
    skill = _asked_about(question, skills) or skills.by_id.get(question.skill_id)
    if skill is None:
        return no_longer_there(question.skill_id)
    require_names_question(turn, question)
    answer = answer_to_confirmation(turn.message, turn.metadata, skill.tool)
    if answer is not None and answer in _REFUSED:
        return _REFUSED[answer]
    beside = beside_the_answer(with_metadata(turn.message, turn.metadata), skill.tool)
    named = skill_asked_for_in(beside, skills.tools, options.route)
    if named not in (None, question.skill_id):
        return _understood(None, turn, skills, options)
    asked = OwnQuestion(skill.id, question.arguments, (), said=question.said)
    call = _merged(asked, skill.tool, replace(turn, message=beside))
    if answer is own_questions.ElicitAction.ACCEPT:
        return _checked(call, skill, turn, options, question.digest)
    if named is None and arguments_named_in(beside) is None:
        call = without_unknown_arguments(call, question, skill.tool)
    decision = _checked(call, skill, turn, options)
    decision = confirmation(decision, call) if isinstance(decision, RunTool) else decision
    return _with_limited_confirmations(question, decision, options)


def _with_limited_confirmations(
    question: Confirmation, decision: Decision, options: AgentOptions
) -> Decision:
    """The decision, with a limit on answers that are neither a yes nor a no. A different call is a new question."""
    again = resume_state_from(decision.kept) if isinstance(decision, RequireInput) else None
    if not isinstance(decision, RequireInput) or not isinstance(again, Confirmation):
        return decision
    if again.digest != question.digest:
        return decision
    if question.tries + 1 >= options.run.answer_tries:
        return End(TaskState.REJECTED, _NEITHER.format(question.tries + 1))
    return replace(decision, kept=replace(again, tries=question.tries + 1).to_bytes())


def _asked_about(question: OwnQuestion | Confirmation, skills: Skills) -> Skill | None:
    return skills.of_question(question.skill_id, question.source_key, question.tool_name)


def no_longer_there(skill_id: str) -> End:
    """The end of a task whose tool is gone, or is no longer allowed for the caller."""
    return End(TaskState.FAILED, f"The server no longer lists the tool {skill_id}")


def _with_first(call: SkillCall, tool: Tool, turn: Turn) -> SkillCall:
    """A call whose skill was named only in an answer, together with the data and files of the first message."""
    first = turn.task.history[0] if turn.task and turn.task.history else turn.message
    arguments = {**data_in(first, tool), **call.arguments}
    arguments, unplaced = place_files(
        tool, arguments, [part for part in first.parts if part.kind in ("raw", "url")]
    )
    return SkillCall(call.skill_id, arguments, (*call.unplaced, *unplaced), call.said)


def _checked(
    call: SkillCall, skill: Skill, turn: Turn, options: AgentOptions, confirmed: str | None = None
) -> Decision:
    """Decide on a call: make it, ask for arguments or a confirmation, or refuse it. `confirmed` is the digest of a call
    that was confirmed."""
    if call.unplaced:
        raise _file_fits_nothing(call)
    _require_output_accepted(turn, skill)
    tool, rules = skill.tool, skill.override.arguments
    if URI not in turn.extensions:
        call = replace(call, arguments=without_nulls(tool, call.arguments))
    foreign = hidden_arguments_in(call.arguments, rules)
    run = RunTool(skill, with_default_arguments(call.arguments, skill.listed.input_schema, rules))
    if URI in turn.extensions:
        # A client with the extension knows the schema, and wants the server itself to check the arguments.
        return (
            _unknown_arguments(skill, foreign)
            if foreign
            else unless_confirmation(run, call, options, confirmed)
        )
    unknown = tuple(Problem(name, UNKNOWN_ARGUMENT) for name in foreign)
    all_problems = problems_of(tool, run.arguments)
    if any(is_hidden(problem.name, rules) for problem in all_problems):
        return End(TaskState.FAILED, _NOT_CONFIGURED.format(skill.id))
    problems = (*unknown, *(_without_hidden_values(problem, rules) for problem in all_problems))
    if not problems:
        return unless_confirmation(run, call, options, confirmed)
    if options.arguments.incomplete == "reject":
        faults = "; ".join(describe(tool, problem) for problem in problems)
        return End(TaskState.REJECTED, f"The arguments do not fit the schema of {skill.id}: {faults}")
    parts = own_questions.arguments(skill.id, tool, call.arguments, problems, is_said=call.said is not None)
    return _ask(own_questions.ARGUMENTS, parts, _asked_for(call, skill, problems))


def _without_hidden_values(problem: Problem, rules: Mapping[str, ArgumentRule]) -> Problem:
    """A problem as the caller may see it, without hidden values. The message of a problem with the arguments as a whole
    would repeat all of them."""
    if problem.name or not any(rule.hidden for rule in rules.values()):
        return problem
    return Problem("", _TOGETHER)


def _unknown_arguments(skill: Skill, names: Sequence[str]) -> End:
    return End(TaskState.REJECTED, f"{skill.id} has no argument {', '.join(map(echoed, names))}")


def _ask(key: str, parts: tuple[Part, ...], question: OwnQuestion) -> RequireInput:
    return RequireInput(TaskState.INPUT_REQUIRED, parts, {QUESTION: key}, question.to_bytes())


def _asked_for(call: SkillCall, skill: Skill, problems: tuple[Problem, ...]) -> OwnQuestion:
    """The question to keep. Arguments that the schema does not know are dropped, since no answer could correct them."""
    known = properties_of(skill.tool.input_schema)
    at_fault = [problem.name for problem in problems if problem.name]
    arguments = {
        name: value for name, value in call.arguments.items() if name in known or name not in at_fault
    }
    fields = tuple(name for name in at_fault if name in known)
    return OwnQuestion(skill.id, arguments, fields, *skill.key, said=call.said)


def _merged(question: OwnQuestion, tool: Tool, turn: Turn) -> SkillCall:
    """The call with the arguments so far, and those that the answer adds or corrects."""
    named = arguments_named_in(turn.message)
    fields = (
        question.fields if named is None else ()
    )  # if the message names its arguments, plain text is not an argument
    answered = answer_in(turn.message.parts, tool, fields, question.skill_id if not question.fields else None)
    answers = {**(named or {}), **coerced_fields(answered, tool)}
    arguments = {**question.arguments, **answers}
    files = [part for part in turn.message.parts if part.kind in ("raw", "url")]
    replaced = {
        name: value for name, value in arguments.items() if name in answers or name not in question.fields
    }
    if files:
        arguments = replaced  # a wrong value makes room for the file
    arguments, unplaced = place_files(tool, arguments, files)
    return SkillCall(question.skill_id, arguments, unplaced, question.said)


def _file_fits_nothing(call: SkillCall) -> A2AError:
    types = ", ".join(sorted({part.media_type or "a file without media type" for part in call.unplaced}))
    return A2AError(
        CONTENT_TYPE_NOT_SUPPORTED,
        f"The skill {call.skill_id} takes no file of this kind: {types}",
        metadata={"skill": call.skill_id},
    )


def _require_output_accepted(turn: Turn, skill: Skill) -> None:
    accepted, offered = turn.configuration.accepted_output_modes or (), output_modes_of(skill.tool)
    if not accepts_any(accepted, offered):
        raise A2AError(
            CONTENT_TYPE_NOT_SUPPORTED,
            f"The skill {skill.id} answers with {', '.join(offered)}, and none of it is accepted",
            metadata={"skill": skill.id},
        )


def require_names_question(turn: Turn, question: Confirmation) -> None:
    """Refuse an answer that names a question other than this.

    Raises:
        A2AError: INVALID_PARAMS, when the metadata of the message or of the request names another question.
    """
    for where, metadata in (("message.metadata", turn.message.metadata), ("metadata", turn.metadata)):
        if (metadata or {}).get(QUESTION) not in (None, confirmation_key(question.digest)):
            fault = f"names no open question; open: {confirmation_key(question.digest)}"
            raise invalid_params(Violation(f'{where}["{QUESTION}"]', fault))


def without_unknown_arguments(call: SkillCall, question: Confirmation, tool: Tool) -> SkillCall:
    """A call without its unknown arguments, for a message without a clear yes: they may be an answer that was not
    understood."""
    known = {*properties_of(tool.input_schema), *question.arguments}
    return replace(call, arguments={name: value for name, value in call.arguments.items() if name in known})


def unless_confirmation(
    run: RunTool, call: SkillCall, options: AgentOptions, confirmed: str | None
) -> RunTool | RequireInput:
    """The call, or the question that asks for its confirmation. `confirmed` is the digest of a call that was
    confirmed."""
    skill = run.skill
    is_free = not _needs_yes(skill, call.said.origin if call.said else None, options)
    if is_free or call_digest(skill.source_key, skill.tool, run.arguments) == confirmed:
        return run
    return confirmation(run, call)


def _needs_yes(skill: Skill, said: Origin | None, options: AgentOptions) -> bool:
    """Whether a call needs a confirmation: by the rules, or since a sentence named a tool that may change something.
    The operator's own phrases run what is not destructive."""
    rule = skill.override.confirm
    if needs_confirmation(skill.tool, options.run.confirm, rule):
        return True
    match said:
        case None:
            return False
        case "phrase":
            is_destructive = skill.tool.annotations.get("destructiveHint") is True
            return is_destructive and rule is None and not skill.is_read_only
        case _:
            return not skill.is_read_only


def _explained(turn: Turn, skills: Skills, options: AgentOptions) -> End:
    """What a message means, and by which rule. Nothing is run."""
    metadata = {key: value for key, value in (turn.message.metadata or {}).items() if key != SKILL}
    turn = replace(turn, message=turn.message.changed(metadata=metadata or None), metadata={})
    call = call_from_message(turn.message, {}, skills.tools, options.route, skills.book)
    decision = _or_model(None, _understood(None, turn, skills, options), turn, skills, options)
    lines = [*_rule_in_words(call, turn, skills, options), *_next_in_words(decision)]
    return End(TaskState.COMPLETED, "\n".join(lines), is_brief=True)


def _rule_in_words(
    call: SkillCall | UnclearCall, turn: Turn, skills: Skills, options: AgentOptions
) -> Iterator[str]:
    if isinstance(call, UnclearCall):
        yield "rule: none fits"
        return
    by = call.said.by if call.said else ""
    match call.said.origin if call.said else None:
        case "phrase":
            yield f"rule: a phrase of the configuration: {by}"
        case "ready phrase":
            yield f"rule: a phrase of the mapping: {by}"
        case "name":
            yield f"rule: the name of the skill: {by}"
        case None if skill_asked_for_in(turn.message, skills.tools, options.route) is not None:
            yield "rule: the message names the skill"
        case None:
            yield "rule: the default skill, or the only one"
    yield f"skill: {call.skill_id}"
    for name, value in call.arguments.items():
        yield f"{name} = {json.dumps(value, ensure_ascii=False)[:_MAX_VALUE]}"


def _next_in_words(decision: Decision) -> Iterator[str]:
    match decision:
        case RunTool():
            yield "then: the skill runs"
        case RequireInput(state=TaskState.AUTH_REQUIRED):
            yield "then: the agent asks for a yes"
        case RequireInput():
            words = next((part.text for part in decision.parts if part.text), "")
            yield f"then: the agent asks: {words}"
        case End():
            yield f"then: the agent answers: {decision.words}"
        case AskModel():
            yield "then: the agent asks a model"
        case Follow():
            return


def _words_on_skills(skills: Skills) -> str:
    """What the agent does, in words, with example sentences."""
    shown = skills.on_card
    lines = [f"- {skill.name}: {_first_line(skill.description)}" for skill in shown[:_MAX_LISTED]]
    if len(shown) > _MAX_LISTED:
        lines.append(f"- and {len(shown) - _MAX_LISTED} more, in the agent card")
    sentences = [skill.examples[0] for skill in shown[:_MAX_LISTED] if skill.examples][:_MAX_SHOWN]
    said = ["For example:", *(f"- {sentence}" for sentence in sentences)] if sentences else []
    return "\n".join(["I can do this:", *lines, *said])


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0][:_MAX_LINE]


def confirmation(run: RunTool, call: SkillCall) -> RequireInput:
    """The question that asks whether a call may be made."""
    skill = run.skill
    digest = call_digest(skill.source_key, skill.tool, run.arguments)
    shown = {
        name: value for name, value in run.arguments.items() if not is_hidden(name, skill.override.arguments)
    }
    parts = parts_of_confirmation(skill.id, skill.tool, shown, digest)
    question = Confirmation(skill.id, call.arguments, digest, *skill.key, said=call.said)
    metadata = confirmation_metadata(skill.id, shown, digest)
    return RequireInput(TaskState.AUTH_REQUIRED, parts, metadata, question.to_bytes())
