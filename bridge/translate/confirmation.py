"""Asks a client whether a tool may be called, and reads the answer. Pure.

A confirmation is for one call: a tool of a server, with its description and arguments. The question's key holds a
digest of these, so that a yes to one call does not confirm another call. The arguments are repeated in words and in
metadata, but never in a data part, where a client could take a URL among them for the address to visit.

Spec: A2A 1.0 section 7.6 (in-task authorization).
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Final, Literal

from pydantic import JsonValue

from bridge.a2a.model.objects import Message, Part, text_of_parts
from bridge.mcp.tools import Tool
from bridge.text.jsonvalues import JsonObject
from bridge.translate.arguments import json_in, properties_of
from bridge.translate.extensions.bridge import ANSWER, ARGUMENTS, QUESTION, SKILL
from bridge.translate.own_questions import ElicitAction

ConfirmPolicy = Literal["never", "destructive", "strict"]
"""Which tools need a confirmation: none, tools with `destructiveHint`, or all tools without `readOnlyHint`."""

_KEY: Final = "confirm-"
_HOW: Final = 'Answer "yes" to go ahead, or "no" to refuse. Anything else is taken for neither.'
_MAX_WORDS: Final = 1000
"""The most characters of one argument that are repeated in words."""
_MAX_ECHO: Final = 10_000
"""The most characters of the arguments, as JSON, that are repeated in metadata."""
_RESULT_KEYS: Final = frozenset({"action", "content"})
"""The fields of an ElicitResult, since an answer may have this shape. A yes has no content."""
_YES: Final = frozenset(
    {
        *("yes", "y", "yes please", "yes go ahead", "yes do it", "ok", "okay"),
        *(
            "confirm",
            "confirmed",
            "i confirm",
            "accept",
            "accepted",
            "i accept",
            "approve",
            "approved",
            "agreed",
        ),
        *("go ahead", "do it", "proceed", "done"),
    }
)
"""Words that mean yes if the message says nothing else. Case and surrounding punctuation are ignored."""
_AROUND: Final = " \t\r\n.,;:!\"'`*_()"
"""The characters that are ignored around these words. A question mark is not among them: "yes?" is not a yes."""
_REFUSES: Final = re.compile(
    r"\W*(i\s+)?(no|nope|n|not|never|don['\u2019]?t|do not|won['\u2019]?t|will not|can['\u2019]?t|cannot|stop|cancel"
    r"|abort|decline\w*|den(y|ied)|reject\w*|refuse\w*)\b(?!\s*=)",
    re.I,
)
"""Matches the beginning of a refusal. Only here is a refusal guessed from words: a wrongly guessed refusal costs one
more question, but a wrongly guessed yes cannot be undone. `n=5` is an argument, not a refusal."""


def needs_confirmation(tool: Tool, when: ConfirmPolicy, rule: bool | None) -> bool:
    """Whether calls of a tool need a confirmation. `rule` is the tool's own rule in the configuration."""
    if rule is not None:
        return rule
    match when:
        case "never":
            return False
        case "destructive":
            return tool.annotations.get("destructiveHint") is True
        case "strict":
            return tool.annotations.get("readOnlyHint") is not True


def call_digest(source_key: str, tool: Tool, arguments: JsonObject) -> str:
    """The digest of a call, to which a confirmation is bound. `arguments` are the arguments that the server would
    get."""
    content = json.dumps([source_key, tool.name, tool.listed, arguments], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def confirmation_key(digest: str) -> str:
    """The key of the question, which holds the digest."""
    return f"{_KEY}{digest[:16]}"


def parts_of_confirmation(skill_id: str, tool: Tool, visible: JsonObject, digest: str) -> tuple[Part, ...]:
    """The parts that ask whether the tool may be called. `visible` are the arguments that the caller may see."""
    lines = [f"- {name}: {_in_words(value)}" for name, value in visible.items()]
    lead = f"{skill_id} is run once you confirm it{_why(tool)}"
    text = "\n".join(
        [
            f"{lead}, with:" if lines else f"{lead}, without arguments.",
            *lines,
            _HOW,
        ]
    )
    data: JsonObject = {"key": confirmation_key(digest), "mode": "confirm", "skill": skill_id}
    return Part(text=text), Part(data=data, media_type="application/json")


def confirmation_metadata(skill_id: str, visible: JsonObject, digest: str) -> JsonObject:
    """The metadata of the message that asks."""
    echo: JsonObject = {ARGUMENTS: visible} if len(json.dumps(visible)) <= _MAX_ECHO else {}
    return {QUESTION: confirmation_key(digest), SKILL: skill_id, **echo}


def answer_to_confirmation(message: Message, metadata: JsonObject, tool: Tool) -> ElicitAction | None:
    """The answer in a message; None when the message is neither a clear yes nor a clear no.

    `metadata` is the request's metadata. A refusal in it counts like a refusal in the message's metadata.
    """
    explicit = [
        values[ANSWER] for values in (metadata, message.metadata or {}) if values.get(ANSWER) is not None
    ]
    read = [_action_from(action) for action in explicit]
    actions = {*read, *(_answer_in(part, tool) for part in message.parts), _answer_in_text(message, tool)}
    for refusal in (ElicitAction.CANCEL, ElicitAction.DECLINE):
        if refusal in actions:
            return refusal
    return ElicitAction.ACCEPT if ElicitAction.ACCEPT in actions and None not in read else None


def refuses_in_words(message: Message) -> bool:
    """Whether a message refuses, in words or with `false` as data. For questions that have no form to fill in."""
    text = text_of_parts(message.parts).strip()
    data = [part.data for part in message.parts if part.kind == "data"] + list(json_in(text))
    is_no = any(
        value is False or (isinstance(value, dict) and value.get("confirm") is False) for value in data
    )
    return is_no or bool(_REFUSES.match(text))


def beside_the_answer(message: Message, tool: Tool) -> Message:
    """The message without the parts that answer. The other parts may ask for another call. A message has at least one
    part, so an empty text stands for no other parts."""
    is_answer = _answer_in_text(message, tool) is not None
    parts = tuple(
        part
        for part in message.parts
        if _answer_in(part, tool) is None and not (is_answer and part.kind == "text")
    )
    return message.changed(parts=parts or (Part(text=""),))


def _answer_in(part: Part, tool: Tool) -> ElicitAction | None:
    """The answer in a data part."""
    return _answer_from(part.data, tool) if part.kind == "data" else None


def _answer_in_text(message: Message, tool: Tool) -> ElicitAction | None:
    """The answer in the words of a message. JSON in a text counts as data."""
    text = text_of_parts(message.parts).strip()
    for value in json_in(text):
        if isinstance(value, bool | dict):
            return _answer_from(value, tool)
    if _REFUSES.match(text):
        return ElicitAction.DECLINE
    words = " ".join(text.strip(_AROUND).replace(",", " ").casefold().split())
    return ElicitAction.ACCEPT if words in _YES else None


def _answer_from(value: JsonValue, tool: Tool) -> ElicitAction | None:
    """The answer in data. A refusal may have other fields beside it; a yes must have one of a few exact shapes."""
    match value:
        case bool():
            return ElicitAction.ACCEPT if value else ElicitAction.DECLINE
        case str():
            return ElicitAction.DECLINE if _REFUSES.match(value) else None
        case dict():
            return _answer_in_fields(value, tool)
        case _:
            return None


def _answer_in_fields(data: JsonObject, tool: Tool) -> ElicitAction | None:
    theirs = properties_of(tool.input_schema).keys()
    action = _action_from(data.get("action")) if "action" not in theirs else None
    if action in (ElicitAction.CANCEL, ElicitAction.DECLINE):
        return action
    if "confirm" not in theirs and data.get("confirm") is False:
        return ElicitAction.DECLINE
    is_yes = action is ElicitAction.ACCEPT or ("confirm" not in theirs and data.get("confirm") is True)
    is_all = len(data) == 1 or (
        data.keys() == _RESULT_KEYS and "content" not in theirs and not data["content"]
    )
    return ElicitAction.ACCEPT if is_yes and is_all else None


def _action_from(value: JsonValue) -> ElicitAction | None:
    """The answer in an `action` field or in metadata."""
    if value is False:
        return ElicitAction.DECLINE
    if not isinstance(value, str):
        return None
    if value in set(ElicitAction):
        return ElicitAction(value)
    return ElicitAction.DECLINE if _REFUSES.match(value) else None


def _why(tool: Tool) -> str:
    if tool.annotations.get("destructiveHint") is True:
        return " (its server says that it may destroy something)"
    return ""


def _in_words(value: JsonValue) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_WORDS else f"{text[:_MAX_WORDS]}... ({len(text)} characters)"
