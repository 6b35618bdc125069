"""Asking a client whether a tool may be called, and what its message says to that. Pure.

What is confirmed is one call: this tool of this server, as it is described, with these arguments. A digest of all
that stands in the question's key, so that a yes to one call is none to another. The arguments are repeated in
words and in metadata, never in a data part: a reader would take a URL among them for the place to go to.

Spec: A2A 1.0 section 7.6 (in-task authorization).
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Final, Literal

from pydantic import JsonValue

from bridge.a2a.model.objects import Message, Part, text_of_parts
from bridge.jsonvalues import JsonObject
from bridge.mcp.tools import Tool
from bridge.translate.arguments import json_in, properties_of
from bridge.translate.extension import ANSWER, ARGUMENTS, QUESTION, SKILL
from bridge.translate.own_questions import ElicitAction

ConfirmPolicy = Literal["never", "destructive", "strict"]
"""Which tools are confirmed: none, those that say of themselves that they destroy, or all that do not say that they
only read."""

_KEY: Final = "confirm-"
_HOW: Final = 'Answer "yes" to go ahead, or "no" to refuse. Anything else is taken for neither.'
_MAX_WORDS: Final = 1000
"""How much of one argument is said in words."""
_MAX_ECHO: Final = 10_000
"""How large the arguments may be, as JSON, to be repeated in metadata."""
_RESULT_KEYS: Final = frozenset({"action", "content"})
"""The fields of an ElicitResult, in which shape an answer may be given. In a yes there is no content."""
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
"""Words that are a yes when they are all that is said, whatever their case and the punctuation around them."""
_AROUND: Final = " \t\r\n.,;:!\"'`*_()"
"""What does not matter around these words. A question mark does: who asks has not agreed."""
_REFUSES: Final = re.compile(
    r"\W*(no|nope|n|not|never|don'?t|do not|stop|cancel|abort|decline\w*|den(y|ied)|reject\w*|refuse\w*)\b(?!\s*=)",
    re.I,
)
"""Words with which nobody says yes. Anywhere else refusing is not guessed from words; here, to guess wrong in this
direction costs a question, and in the other what cannot be taken back. `n=5` is an argument."""


def needs_confirmation(tool: Tool, when: ConfirmPolicy, said: bool | None) -> bool:
    """Whether calls of a tool are confirmed; `said` is what the configuration says of this one."""
    if said is not None:
        return said
    match when:
        case "never":
            return False
        case "destructive":
            return tool.annotations.get("destructiveHint") is True
        case "strict":
            return tool.annotations.get("readOnlyHint") is not True


def call_digest(source_key: str, tool: Tool, arguments: JsonObject) -> str:
    """What a confirmation is bound to; `arguments` are those that the server would get."""
    said = json.dumps([source_key, tool.name, tool.listed, arguments], sort_keys=True)
    return hashlib.sha256(said.encode()).hexdigest()


def confirmation_key(digest: str) -> str:
    """The key of the question."""
    return f"{_KEY}{digest[:16]}"


def parts_of_confirmation(skill_id: str, tool: Tool, shown: JsonObject, digest: str) -> tuple[Part, ...]:
    """Ask whether the tool may be called; `shown` are the arguments that a caller may see."""
    lines = [f"- {name}: {_in_words(value)}" for name, value in shown.items()]
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


def confirmation_metadata(skill_id: str, shown: JsonObject, digest: str) -> JsonObject:
    """The metadata of the message that asks."""
    echo: JsonObject = {ARGUMENTS: shown} if len(json.dumps(shown)) <= _MAX_ECHO else {}
    return {QUESTION: confirmation_key(digest), SKILL: skill_id, **echo}


def answer_to_confirmation(message: Message, metadata: JsonObject, tool: Tool) -> ElicitAction | None:
    """What a message says to the question; None when it is neither a clear yes nor a clear no.

    `metadata` is the request's: a refusal there counts as much as one in the message's own.
    """
    explicit = [one[ANSWER] for one in (metadata, message.metadata or {}) if one.get(ANSWER) is not None]
    read = [_action_from(action) for action in explicit]
    said = {*read, *(_answer_in(part, tool) for part in message.parts), _answer_in_text(message, tool)}
    for refusal in (ElicitAction.CANCEL, ElicitAction.DECLINE):
        if refusal in said:
            return refusal
    return ElicitAction.ACCEPT if ElicitAction.ACCEPT in said and None not in read else None


def beside_the_answer(message: Message, tool: Tool) -> Message:
    """The message without what only answers: what is left says what is to be done otherwise."""
    is_answer = _answer_in_text(message, tool) is not None
    parts = tuple(
        part
        for part in message.parts
        if _answer_in(part, tool) is None and not (is_answer and part.kind == "text")
    )
    return message.model_copy(update={"parts": parts})


def _answer_in(part: Part, tool: Tool) -> ElicitAction | None:
    """What a data part answers."""
    return _answer_from(part.data, tool) if part.kind == "data" else None


def _answer_in_text(message: Message, tool: Tool) -> ElicitAction | None:
    """What the words of a message answer. JSON among them counts as data does."""
    text = text_of_parts(message.parts).strip()
    for value in json_in(text):
        if isinstance(value, bool | dict):
            return _answer_from(value, tool)
    if _REFUSES.match(text):
        return ElicitAction.DECLINE
    words = " ".join(text.strip(_AROUND).replace(",", " ").casefold().split())
    return ElicitAction.ACCEPT if words in _YES else None


def _answer_from(value: JsonValue, tool: Tool) -> ElicitAction | None:
    """What data answers. A refusal may have more beside it; a yes is one of few shapes, and nothing else."""
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
    """What is said as an action, or in metadata."""
    if value is False:
        return ElicitAction.DECLINE
    if not isinstance(value, str):
        return None
    if value in set(ElicitAction):
        return ElicitAction(value)
    return ElicitAction.DECLINE if _REFUSES.match(value) else None


def _why(tool: Tool) -> str:
    if tool.annotations.get("destructiveHint") is True:
        return " (it says of itself that it may destroy something)"
    return ""


def _in_words(value: JsonValue) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_WORDS else f"{text[:_MAX_WORDS]}... ({len(text)} characters)"
