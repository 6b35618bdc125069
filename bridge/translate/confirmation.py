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

from bridge.a2a.models import Message, Part, text_of
from bridge.jsonvalues import JsonObject
from bridge.mcp.tools import Tool
from bridge.translate.arguments import properties_of
from bridge.translate.extension import ANSWER, ARGUMENTS, QUESTION, SKILL
from bridge.translate.questions import Answer

When = Literal["never", "destructive", "strict"]
"""Which tools are confirmed: none, those that say of themselves that they destroy, or all that do not say that they
only read."""

_KEY: Final = "confirm-"
_MAX_WORDS: Final = 1000
"""How much of one argument is said in words."""
_MAX_ECHO: Final = 10_000
"""How large the arguments may be, as JSON, to be repeated in metadata."""
_RESULT_KEYS: Final = frozenset({"action", "content"})
"""The fields of an ElicitResult, in which shape an answer may be given."""
_REFUSES: Final = re.compile(
    r"\W*(no|nope|n|not|never|don'?t|do not|stop|cancel|abort|decline\w*|den(y|ied)|reject\w*|refuse\w*)\b",
    re.I,
)
"""Words with which nobody says yes. Anywhere else refusing is not guessed from words; here, to guess wrong in this
direction costs a question, and in the other what cannot be taken back."""


def is_needed(tool: Tool, when: When, said: bool | None) -> bool:
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


def digest_of(source_key: str, tool: Tool, arguments: JsonObject) -> str:
    """What a confirmation is bound to; `arguments` are those that the server would get."""
    said = json.dumps([source_key, tool.name, tool.listed, arguments], sort_keys=True)
    return hashlib.sha256(said.encode()).hexdigest()


def key_of(digest: str) -> str:
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
            'Answer this task to go ahead, or with "no" to refuse.',
        ]
    )
    data: JsonObject = {"key": key_of(digest), "mode": "confirm", "skill": skill_id}
    return Part(text=text), Part(data=data, media_type="application/json")


def confirmation_metadata(skill_id: str, shown: JsonObject, digest: str) -> JsonObject:
    """The metadata of the message that asks."""
    echo: JsonObject = {ARGUMENTS: shown} if len(json.dumps(shown)) <= _MAX_ECHO else {}
    return {QUESTION: key_of(digest), SKILL: skill_id, **echo}


def answer_to_confirmation(message: Message, tool: Tool) -> Answer:
    """Whether a message goes ahead; any message does that does not refuse."""
    said = [(message.metadata or {}).get(ANSWER, Answer.ACCEPT)]
    said += [_action_in(part, tool) for part in message.parts]
    refused = [action for action in said if action not in (Answer.ACCEPT, None)]
    if refused:
        return Answer.CANCEL if Answer.CANCEL in refused else Answer.DECLINE
    return Answer.DECLINE if _REFUSES.match(text_of(message.parts)) else Answer.ACCEPT


def beside_the_answer(message: Message, tool: Tool) -> Message:
    """The message without the parts that only go ahead: what is left says what is to be done otherwise."""
    parts = tuple(part for part in message.parts if _action_in(part, tool) is None)
    return message.model_copy(update={"parts": parts})


def _action_in(part: Part, tool: Tool) -> JsonValue:
    """What a data part does with the question; None when it says nothing of that."""
    if part.kind != "data":
        return None
    if isinstance(part.data, bool):
        return (Answer.ACCEPT if part.data else Answer.DECLINE).value
    if isinstance(part.data, str):
        return (Answer.DECLINE if _REFUSES.match(part.data) else Answer.ACCEPT).value
    is_result = isinstance(part.data, dict) and "action" in part.data and part.data.keys() <= _RESULT_KEYS
    if not is_result or _RESULT_KEYS & properties_of(tool.input_schema).keys():
        return None
    assert isinstance(part.data, dict)
    return part.data["action"]


def _why(tool: Tool) -> str:
    if tool.annotations.get("destructiveHint") is True:
        return " (it says of itself that it may destroy something)"
    return ""


def _in_words(value: JsonValue) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_WORDS else f"{text[:_MAX_WORDS]}... ({len(text)} characters)"
