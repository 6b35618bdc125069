"""Turns an agent's questions into elicitations, and the answers into a message. Pure.

The other direction is `elicitation.py`. An agent asks in words, or with data that holds a form. A form becomes an
elicitation if it is in the subset that MCP allows; any other question becomes a form with one text field. A user who
has to authenticate is sent to a URL, if the agent names one unambiguously. No form ever asks for secrets.

Spec: A2A 1.0 sections 3.4.3 and 7.6; MCP client/elicitation.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from pydantic import JsonValue

from bridge.a2a.model.objects import Message, Part, Role, Task, TaskState, TaskStatus, text_of_parts
from bridge.errors import CallerError
from bridge.text.jsonvalues import JsonObject
from bridge.text.safe_text import web_link
from bridge.translate.arguments import properties_of, required_of
from bridge.translate.extensions.bridge import ANSWER, BLOCK, OCCASIONS, QUESTION, SKILL
from bridge.translate.own_questions import ElicitAction
from bridge.translate.refusals import UntoldRefusal, refusal_content

TEXT_FIELD: Final = "answer"
"""The field of a form that asks for text."""
MAX_QUESTION_CHARACTERS: Final = 4000
"""The most characters of an artifact's part that are shown as a question. The result holds the whole part."""

_INTERRUPT: Final = frozenset({"id", "value"})
"""The fields of the data in which LangGraph asks (langgraph-api 0.16). `value` holds the question."""

_NO_WORDS: Final[Mapping[TaskState, str]] = {
    TaskState.INPUT_REQUIRED: "The agent asks for more information",
    TaskState.AUTH_REQUIRED: "The agent asks you to authenticate",
}

_URL_NAMES: Final = ("url", "authUrl", "auth_url", "authorizationUrl", "authorization_url", "uri", "href")
"""Names of fields that may hold the URL to visit, the likeliest first."""

_SAID: Final = frozenset({"type", "title", "description", "default"})
_KEYWORDS: Final[Mapping[str, frozenset[str]]] = {
    "string": _SAID | {"minLength", "maxLength", "format", "enum", "enumNames", "oneOf"},
    "number": _SAID | {"minimum", "maximum"},
    "integer": _SAID | {"minimum", "maximum"},
    "boolean": _SAID,
    "array": _SAID | {"minItems", "maxItems", "items"},
}
"""The keywords that MCP allows for each type of field. Other keywords only narrow the values, which the agent checks
itself."""
_FORMATS: Final = frozenset({"email", "uri", "date", "date-time"})


class UnfitAnswerError(CallerError):
    """An answer with the action `accept` that holds nothing to pass on."""


@dataclass(frozen=True, slots=True)
class AgentQuestion:
    """One question of an agent."""

    key: str
    """The question's key in `inputRequests`, see `with_lasting_keys`."""
    own_key: str | None
    """The agent's own key for the question; None without a key."""
    params: JsonObject
    """The params of elicitation/create."""
    text_field: str | None = None
    """The only field of a form that the bridge made. Its value is the answer in words."""
    fields: frozenset[str] | None = None
    """The fields of a form that an agent described; other fields of an answer are dropped. None for an MCP server's own
    form, whose answer is passed on unchanged."""
    takes_refusals: bool = False
    """Whether the agent takes a refusal, as agents with the bridge's extension do."""

    @property
    def mode(self) -> str:
        """`form` or `url`."""
        return str(self.params.get("mode", "form"))

    @property
    def names(self) -> frozenset[str]:
        """The names of the fields in the question's form."""
        form = self.params.get("requestedSchema")
        return frozenset(properties_of(form)) if isinstance(form, dict) else frozenset()


@dataclass(frozen=True, slots=True)
class AskingTask:
    """The task that asks."""

    state: str
    """Identifies the question for the host: the same answer to the same state gives the same message id. For a host
    that is asked during its call, the id of the task."""
    task_id: str
    context_id: str | None
    skill_id: str | None = None
    """The skill of the task. The answer names the skill, so that no agent takes the answer for a call of another
    skill."""


def status_with_question(task: Task) -> TaskStatus:
    """The status of a task with its question as message. Some agents put the question into an artifact, and send a
    status without a message. Only for agents without the bridge's extension."""
    status, artifacts = task.status, task.artifacts
    if status.message is not None or not artifacts or status.state is not TaskState.INPUT_REQUIRED:
        return status
    parts = tuple(map(_question_part, artifacts[-1].parts))
    question = Message(message_id=artifacts[-1].artifact_id, role=Role.AGENT, parts=parts)
    return status.changed(message=question)


def _question_part(part: Part) -> Part:
    """A part of an artifact as a part of a question, with its text cut to MAX_QUESTION_CHARACTERS."""
    if isinstance(part.data, dict) and part.data.keys() == _INTERRUPT:
        value = part.data["value"]
        part = Part(text=value) if isinstance(value, str) else Part(data=value)
    words = part.text or ("" if part.data is None else json.dumps(part.data, ensure_ascii=False))
    return (
        part if len(words) <= MAX_QUESTION_CHARACTERS else Part(text=f"{words[:MAX_QUESTION_CHARACTERS]} ...")
    )


def questions_of_agent(
    message: Message | None, state: TaskState, *, extension_active: bool
) -> tuple[AgentQuestion, ...]:
    """The questions of a task in INPUT_REQUIRED or AUTH_REQUIRED. Empty when the task asks in words only, or is in
    another state."""
    if state not in _NO_WORDS:
        return ()
    if message is None:
        # A form for text still fits: the state alone says that the agent waits for an answer.
        return () if state is TaskState.AUTH_REQUIRED else (_for_text(question_words(None, state), "input"),)
    questions = _originals(message) if extension_active else ()
    if not questions:
        questions = _described(message, state)
    if not questions and state is TaskState.AUTH_REQUIRED and not _asks_several(message):
        url = _url_in(message.parts)
        questions = () if url is None else (_for_url(_text_of(message, state), url, message.message_id),)
    if not questions and state is TaskState.INPUT_REQUIRED:
        questions = (_for_text(question_words(message, state), message.message_id, _key_of(message)),)
    return tuple(replace(question, takes_refusals=extension_active) for question in questions)


def with_lasting_keys(questions: Iterable[AgentQuestion], status: TaskStatus) -> tuple[AgentQuestion, ...]:
    """The same questions with lasting keys: each key is unique within the task, and stays the same while its question
    is open.

    Another bridge sends with each question an id of the occasion on which it asks. Other agents send none, so each
    new message counts as new questions with new keys.
    """
    message = status.message
    occasions: dict[str, JsonValue] = {}
    for part in message.parts if message else ():
        named = (part.metadata or {}).get(OCCASIONS)
        occasions |= named if isinstance(named, dict) else {}
    occasion = message.message_id if message else status.timestamp
    return tuple(
        replace(
            question,
            key=_hashed(json.dumps([occasions.get(question.own_key or "", occasion), question.own_key])),
        )
        for question in questions
    )


def with_own_keys(questions: tuple[AgentQuestion, ...]) -> tuple[AgentQuestion, ...]:
    """The same questions, each with the agent's own key where that key is unique among them.

    Later questions of the task may have the same keys. So the requestState sent with these questions has to hold their
    `questions_mark`.
    """
    names = [question.own_key for question in questions]
    return tuple(
        replace(question, key=question.own_key)
        if question.own_key and names.count(question.own_key) == 1
        else question
        for question in questions
    )


def questions_mark(questions: Iterable[AgentQuestion]) -> str:
    """A short digest of these questions' lasting keys. Other questions of the same task have another digest."""
    return _hashed(json.dumps(sorted(question.key for question in questions)))[:8]


def as_answered(
    questions: tuple[AgentQuestion, ...], status: TaskStatus, responses: Mapping[str, JsonValue]
) -> tuple[AgentQuestion, ...]:
    """The questions of a task that was read again, with the keys that the answers use.

    When the agent now sends a status without a message, the only question counts as the question that was answered.
    """
    if status.message is not None or len(questions) != 1 or len(responses) != 1:
        return questions
    return (replace(questions[0], key=next(iter(responses))),)


def elicitation_modes_of(questions: Iterable[AgentQuestion]) -> frozenset[str]:
    """The elicitation modes that a client must support to be asked these questions."""
    return frozenset(question.mode for question in questions)


def question_words(message: Message | None, state: TaskState) -> str:
    """A question as text for a person, with the URLs and data that the text itself does not mention."""
    parts = message.parts if message else ()
    words = text_of_parts(parts).strip()
    lines = [part.url for part in parts if part.url is not None and part.url not in words]
    lines += [
        json.dumps(part.data, ensure_ascii=False)
        for part in parts
        if _is_unmentioned_data(part, words, message)
    ]
    return "\n".join(filter(None, [words or _NO_WORDS[state], *lines]))


def _text_of(message: Message, state: TaskState) -> str:
    """The text of a question for a person who also sees its form or its URL."""
    return text_of_parts(message.parts).strip() or _NO_WORDS[state]


def _is_unmentioned_data(part: Part, words: str, message: Message | None) -> bool:
    """Whether a part is data that the words do not mention. In a bridge's questions, the words mention all data."""
    if part.kind != "data":
        return False
    is_ours = isinstance(part.data, dict) and bool(part.data.keys() & {"key", "questions"})
    return not words or not (is_ours or _key_of(message))


def answer_message(
    questions: Sequence[AgentQuestion], responses: Mapping[str, JsonValue], waiting: AskingTask
) -> Message | UntoldRefusal | None:
    """The message that answers an agent; None when there is nothing to tell it.

    `responses` are ElicitResults by the keys of `questions`. An agent that sent the user to a URL notices the visit by
    itself, unless it gave its question a key: then it waits for an answer. A refusal goes to the agent only if the
    agent declares how to refuse; otherwise the result is an UntoldRefusal. The bridge never sends words of its own as
    an answer.

    Raises:
        UnfitAnswerError: an answer accepts the question, and holds nothing that was asked for.
    """
    answered = [
        (question, _asked_for(question, result))
        for question in questions
        if (result := _result(responses.get(question.key))) is not None
    ]
    if (refusal := _refusal_in(answered)) is not None:
        return refusal
    answered = [(question, _declared(question, result)) for question, result in answered]
    if not answered or all(_needs_no_words(question, result) for question, result in answered):
        return None
    parts, metadata = _one_answer(*answered[0]) if len(questions) == 1 else _keyed_answers(answered)
    return Message(
        message_id=message_id_of(waiting.state, {question.key: result for question, result in answered}),
        role=Role.USER,
        task_id=waiting.task_id,
        context_id=waiting.context_id,
        parts=(*parts,),
        metadata={**(metadata or {}), **({SKILL: waiting.skill_id} if waiting.skill_id else {})} or None,
    )


def _refusal_in(answered: Sequence[tuple[AgentQuestion, JsonObject]]) -> UntoldRefusal | None:
    """The refusal that cannot be sent to the agent; None when every answer can be sent."""
    untold = {
        ElicitAction(str(result["action"]))
        for question, result in answered
        if not _can_be_told(question, result)
    }
    return next(
        (UntoldRefusal(action) for action in (ElicitAction.CANCEL, ElicitAction.DECLINE) if action in untold),
        None,
    )


def _can_be_told(question: AgentQuestion, result: JsonObject) -> bool:
    if question.takes_refusals or result["action"] == ElicitAction.ACCEPT:
        return True
    return result["action"] == ElicitAction.DECLINE and _refusal_in_form(question) is not None


def _refusal_in_form(question: AgentQuestion) -> JsonObject | None:
    """The content that refuses in an agent's own form; None if the form has no such content."""
    return None if question.fields is None else refusal_content(question.params.get("requestedSchema"))


def _declared(question: AgentQuestion, result: JsonObject) -> JsonObject:
    """An answer in the form that the agent takes: to decline an agent's own form, content of that form that says no."""
    if question.takes_refusals or result["action"] != ElicitAction.DECLINE:
        return result
    return {"action": ElicitAction.ACCEPT.value, "content": _refusal_in_form(question)}


def message_id_of(state: str, answer: JsonValue) -> str:
    """The id of the message with an answer. A request that is sent again gets the same id."""
    digest = hashlib.sha256(json.dumps([state, answer], sort_keys=True).encode()).digest()
    return str(UUID(bytes=digest[:16], version=5))


def _originals(message: Message) -> tuple[AgentQuestion, ...]:
    """The original elicitations of the MCP server behind an agent of another bridge."""
    return tuple(
        AgentQuestion(key, key, _with_faults(params, part.data, message))
        for part in message.parts
        if part.kind == "data" and isinstance(blocks := (part.metadata or {}).get(BLOCK), dict)
        for key, params in blocks.items()
        if isinstance(params, dict) and (params.get("mode") != "url" or _is_web(params.get("url")))
    )


def _described(message: Message, state: TaskState) -> tuple[AgentQuestion, ...]:
    """The questions in data parts that have a schema or a URL. Empty unless all questions can be asked this way."""
    questions: list[AgentQuestion] = []
    for part in message.parts:
        several = part.data.get("questions") if isinstance(part.data, dict) else None
        for data in several if isinstance(several, list) else [part.data]:
            question = _question_from(data, message, state) if isinstance(data, dict) else None
            if question is None and isinstance(several, list):
                return ()
            questions += [] if question is None else [question]
    is_clear = len({question.key for question in questions}) == len(questions)
    return (
        tuple(questions)
        if is_clear and (len(questions) < 2 or all(question.own_key for question in questions))
        else ()
    )


def _asks_several(message: Message) -> bool:
    """Whether a message has a list of questions as data, which a visit to a URL would not answer."""
    return any(isinstance(part.data, dict) and "questions" in part.data for part in message.parts)


def _question_from(data: JsonObject, message: Message, state: TaskState) -> AgentQuestion | None:
    key = data.get("key")
    own_key = key if isinstance(key, str) and key else _key_of(message)
    words = data.get("message")
    text = words if isinstance(words, str) and words and "errors" not in data else _text_of(message, state)
    url = data.get("url")
    if data.get("mode") == "url" and isinstance(url, str) and _is_web(url):
        url_question = _for_url(text, url, message.message_id)
        request_key = own_key or _hashed(message.message_id)
        elicitation_id = data.get("elicitationId", url_question.params["elicitationId"])
        return AgentQuestion(request_key, own_key, {**url_question.params, "elicitationId": elicitation_id})
    if data.get("mode") == "confirm" and own_key is not None:
        return AgentQuestion(own_key, own_key, _permission(text))
    form = next(
        (
            readable
            for name in ("schema", "requestedSchema")
            if (readable := elicitation_form_from(data.get(name)))
        ),
        None,
    )
    form = form or elicitation_form_from(data)
    if form is None or state is TaskState.AUTH_REQUIRED:
        return None
    params: JsonObject = {"mode": "form", "message": text, "requestedSchema": form}
    fields = frozenset(properties_of(form))
    return AgentQuestion(own_key or _hashed(message.message_id), own_key, params, fields=fields)


def elicitation_form_from(schema: JsonValue) -> JsonObject | None:
    """A schema reduced to the schema of an MCP form; None when no form can express the schema."""
    if not isinstance(schema, dict) or schema.get("type") != "object" or not properties_of(schema):
        return None
    fields: JsonObject = {}
    for name, prop in properties_of(schema).items():
        known = _KEYWORDS.get(str(prop.get("type")))
        if known is None or not _fits_form(prop):
            return None
        fields[name] = {key: value for key, value in prop.items() if key in known and _is_known(key, value)}
    required: list[JsonValue] = [name for name in required_of(schema) if name in fields]
    return {"type": "object", "properties": fields, **({"required": required} if required else {})}


def _fits_form(prop: JsonObject) -> bool:
    """Whether an MCP form can express a field: its choices are strings, and no keyword combines schemas."""
    items = prop.get("items")
    if prop.get("type") == "array":
        return isinstance(items, dict) and ("enum" in items or "anyOf" in items) and _are_texts(items)
    return _are_texts(prop) and not prop.keys() & {"const", "anyOf", "allOf", "not", "$ref"}


def _are_texts(prop: JsonObject) -> bool:
    named = [
        choice
        for key in ("oneOf", "anyOf")
        if isinstance(choices := prop.get(key), list)
        for choice in choices
    ]
    plain = prop.get("enum", [])
    return (
        isinstance(plain, list)
        and all(isinstance(item, str) for item in plain)
        and all(isinstance(choice, dict) and isinstance(choice.get("const"), str) for choice in named)
        and (prop.get("type") == "string" or not (plain or "oneOf" in prop))
    )


def _is_known(key: str, value: JsonValue) -> bool:
    return key != "format" or value in _FORMATS


def _permission(words: str) -> JsonObject:
    """A form without fields, which can only be accepted or refused."""
    return {"mode": "form", "message": words, "requestedSchema": {"type": "object", "properties": {}}}


def _for_text(words: str, message_id: str, own_key: str | None = None) -> AgentQuestion:
    field: JsonObject = {"type": "string", "title": "Answer"}
    form: JsonObject = {"type": "object", "properties": {TEXT_FIELD: field}, "required": [TEXT_FIELD]}
    params: JsonObject = {"mode": "form", "message": words, "requestedSchema": form}
    return AgentQuestion(own_key or _hashed(message_id), own_key, params, TEXT_FIELD)


def _for_url(words: str, url: str, message_id: str) -> AgentQuestion:
    key = _hashed(message_id)
    return AgentQuestion(key, None, {"mode": "url", "message": words, "url": url, "elicitationId": key})


def _key_of(message: Message | None) -> str | None:
    key = ((message.metadata if message else None) or {}).get(QUESTION)
    return key if isinstance(key, str) and key else None


def _with_faults(params: JsonObject, data: JsonValue, message: Message) -> JsonObject:
    """The params of a server's question. When the question is asked again, its message names the faults of the last
    answer."""
    is_again = isinstance(data, dict) and "errors" in data
    return {**params, "message": text_of_parts(message.parts)} if is_again else params


def _hashed(message_id: str) -> str:
    return hashlib.sha256(message_id.encode()).hexdigest()[:16]


def _url_in(parts: Sequence[Part]) -> str | None:
    """The URL to visit: the only URL of the url parts, else the likeliest URL in the data parts; None when neither is
    clear."""
    urls = dict.fromkeys(part.url for part in parts if part.url is not None and _is_web(part.url))
    if len(urls) == 1:
        return next(iter(urls))
    url_pairs = [pair for part in parts if part.kind == "data" for pair in _urls_of("", part.data)]
    for wanted in _URL_NAMES:
        named = dict.fromkeys(url for name, url in url_pairs if name == wanted)
        if len(named) == 1 and not urls:
            return next(iter(named))
    others = dict.fromkeys(url for _, url in url_pairs)
    return next(iter(others)) if len(others) == 1 and not urls else None


def _urls_of(name: str, value: JsonValue) -> list[tuple[str, str]]:
    """Every string in the data that is a web address, with the name of its field."""
    match value:
        case str() if _is_web(value):
            return [(name, value)]
        case dict():
            return [pair for inner_name, inner in value.items() for pair in _urls_of(inner_name, inner)]
        case list():
            return [pair for inner in value for pair in _urls_of(name, inner)]
        case _:
            return []


def _is_web(url: JsonValue) -> bool:
    return isinstance(url, str) and web_link(url) is not None


def _result(response: JsonValue) -> JsonObject | None:
    """The response reduced to the fields of an ElicitResult; None when it is not an ElicitResult."""
    if not isinstance(response, dict) or response.get("action") not in set(ElicitAction):
        return None
    content = response.get("content")
    held: JsonObject = {"content": content} if isinstance(content, dict) else {}
    is_accepted = response["action"] == ElicitAction.ACCEPT
    return {"action": response["action"], **(held if is_accepted else {})}


def _asked_for(question: AgentQuestion, result: JsonObject) -> JsonObject:
    """An ElicitResult with the fields that were asked for, and no others."""
    content = result.get("content")
    if question.fields is None or not isinstance(content, dict):
        return result
    return {**result, "content": {name: value for name, value in content.items() if name in question.fields}}


def _needs_no_words(question: AgentQuestion, result: JsonObject) -> bool:
    return question.mode == "url" and question.own_key is None and result["action"] == ElicitAction.ACCEPT


def _one_answer(question: AgentQuestion, result: JsonObject) -> tuple[list[Part], JsonObject]:
    metadata: JsonObject = {ANSWER: result["action"]}
    if question.own_key is not None:
        metadata[QUESTION] = question.own_key
    content = result.get("content", {})
    if result["action"] != ElicitAction.ACCEPT or question.mode == "url":
        # Sent as data: an agent could take a text for the answer itself.
        return [Part(data={"action": result["action"]}, media_type="application/json")], metadata
    if question.text_field is not None and isinstance(content, dict):
        return [Part(text=_text_in(content, question.text_field))], metadata
    return [Part(data=content, media_type="application/json")], metadata


def _text_in(content: JsonObject, field: str) -> str:
    """The text of an answer. A host may send a number instead of a string."""
    value = content.get(field)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise UnfitAnswerError(f"The answer has no text in the field {field!r}, so nothing was passed on")
    return value if isinstance(value, str) else json.dumps(value)


def _keyed_answers(
    answered: Sequence[tuple[AgentQuestion, JsonObject]],
) -> tuple[list[Part], JsonObject | None]:
    """Several answers as one data part, each by the key of its question."""
    data: JsonObject = {question.own_key or question.key: result for question, result in answered}
    return [Part(data=data, media_type="application/json")], None
