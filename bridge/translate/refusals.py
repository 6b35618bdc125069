"""Passes a person's refusal on to an agent. Pure.

An agent with the bridge's extension takes a refusal as such. Any other agent gets a decline only as content of its own
form, and only if the form has nothing but a yes and a no: one field about consent, by the tables here. For other forms
nothing is sent, and the task is canceled: a task that was canceled needlessly can be started again, but an agent acts
on any words that it takes for an answer.

Spec: MCP 2026-07-28 client/elicitation (response actions); A2A 1.0 section 3.1.5 (CancelTask).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from bridge.text.jsonvalues import JsonObject
from bridge.translate.arguments import properties_of, required_of
from bridge.translate.own_questions import ElicitAction

_CONSENTS: Final = frozenset(
    {
        *("accept", "accepted", "agree", "agreed", "allow", "allowed", "approval", "approve", "approved"),
        *("authorise", "authorised", "authorize", "authorized", "confirm", "confirmation", "confirmed"),
        *("consent", "go ahead", "ok", "okay", "permission", "permit", "permitted", "proceed", "sure"),
    }
)
"""Field names and values that mean consent."""
_REFUSALS: Final = frozenset(
    {"decline", "declined", "denied", "deny", "disallow", "refuse", "refused", "reject", "rejected"}
)
"""Values that mean a refusal."""
_DECISIONS: Final = frozenset({"action", "answer", "choice", "decision", "reply", "response"})
"""Field names that say nothing, so that only the values show whether the field is about consent."""
_YES: Final = frozenset({"yes", "true"})
_NO: Final = frozenset({"no", "false"})
"""Values that consent and refuse only in a field about consent. Elsewhere "no" may be an ordinary answer, as to "Keep
the old seat?"."""
_LEAVES: Final = frozenset({"abort", "cancel"})
"""Values that end the question. A form may offer them beside a yes and a no; they are never chosen."""
_AROUND: Final = frozenset({"is", "i", "user"})
"""Words in a field's name that do not change its meaning."""
_WORDS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")


@dataclass(frozen=True, slots=True)
class UntoldRefusal:
    """A refusal that the agent cannot be sent, so that its task has to be canceled."""

    action: ElicitAction
    """DECLINE or CANCEL."""

    def sentence_about(self, agent: str) -> str:
        """A sentence that says what the person did."""
        return f"The person {_DID[self.action]} what the agent {agent} asked"


_DID: Final = {ElicitAction.DECLINE: "declined", ElicitAction.CANCEL: "canceled"}


def refusal_among(responses: Mapping[str, JsonValue]) -> UntoldRefusal | None:
    """The refusal among a host's answers, which are by key; None without a refusal."""
    actions = {response.get("action") for response in responses.values() if isinstance(response, dict)}
    return next(
        (
            UntoldRefusal(action)
            for action in (ElicitAction.CANCEL, ElicitAction.DECLINE)
            if action in actions
        ),
        None,
    )


def refusal_content(form: JsonValue) -> JsonObject | None:
    """The content that refuses in a form, and says nothing else; None when the schema declares no such content."""
    if not isinstance(form, dict):
        return None
    values = {
        name: no
        for name, field in properties_of(form).items()
        if (no := _refusing_value(name, field)) is not None
    }
    if len(values) != 1 or not set(required_of(form)) <= values.keys():
        return None
    return {**values}


def _refusing_value(name: str, field: JsonObject) -> bool | str | None:
    """The value of a field that means a refusal."""
    about = _about(name)
    if field.get("type") == "boolean":
        return False if about in _CONSENTS else None
    values = _values(field)
    if field.get("type") != "string" or about not in _CONSENTS | _DECISIONS:
        return None
    is_consent = about in _CONSENTS
    yes = _CONSENTS | (_YES if is_consent else frozenset())
    no = _REFUSALS | (_NO if is_consent else frozenset())
    words_of = {value: _about(value) for value in values}
    refusals = [value for value, words in words_of.items() if words in no]
    is_clear = all(words in yes | no | _LEAVES for words in words_of.values())
    has_yes = any(words in yes for words in words_of.values())
    return refusals[0] if is_clear and has_yes and len(refusals) == 1 else None


def _values(field: JsonObject) -> list[str]:
    """The choices of a field, as values."""
    plain, named = field.get("enum"), field.get("oneOf")
    values: list[JsonValue] = list(plain) if isinstance(plain, list) else []
    values += (
        [choice.get("const") for choice in named if isinstance(choice, dict)]
        if isinstance(named, list)
        else []
    )
    return [value for value in values if isinstance(value, str)]


def _about(name: str) -> str:
    """A name as lower-case words, without the words that do not change its meaning: `isApproved` becomes "approved"."""
    words = [word.lower() for word in _WORDS.findall(name)]
    return " ".join(word for word in words if word not in _AROUND) or " ".join(words)
