"""How a person's no reaches an agent. Pure.

An agent with the bridge's extension has said how a client declines. To any other agent a decline goes only as content
of the agent's own form, and only where the form can say nothing but yes and no: one field about consent, by the tables
here. For any other form nothing is sent, and the task is canceled: a task that is canceled in vain can be begun again,
but an agent acts on a word that stands in the place of an answer.

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
"""Names of fields, and values, that stand for a yes to what is asked."""
_REFUSALS: Final = frozenset(
    {"decline", "declined", "denied", "deny", "disallow", "refuse", "refused", "reject", "rejected"}
)
"""Values that stand for a no to what is asked."""
_DECISIONS: Final = frozenset({"action", "answer", "choice", "decision", "reply", "response"})
"""Names of fields whose values alone say what they are about."""
_YES: Final = frozenset({"yes", "true"})
_NO: Final = frozenset({"no", "false"})
"""Values that are a yes and a no only in a field about consent: elsewhere a no may be an answer like any other, as to
"Keep the old seat?"."""
_LEAVES: Final = frozenset({"abort", "cancel"})
"""Values that end the question. They may stand beside a yes and a no, and are never chosen."""
_AROUND: Final = frozenset({"is", "i", "user"})
"""Words around the name of a field that change nothing about it."""
_WORDS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")


@dataclass(frozen=True, slots=True)
class UntoldRefusal:
    """A no that the agent has no form for: the bridge cannot send it, so the task has to be canceled."""

    action: ElicitAction
    """DECLINE or CANCEL."""

    def said_of(self, agent: str) -> str:
        """What the person did, in words."""
        return f"The person {_DID[self.action]} what the agent {agent} asked"


_DID: Final = {ElicitAction.DECLINE: "declined", ElicitAction.CANCEL: "canceled"}


def refusal_among(responses: Mapping[str, JsonValue]) -> UntoldRefusal | None:
    """The no among a host's answers, by key and unread; None when there is none."""
    said = {response.get("action") for response in responses.values() if isinstance(response, dict)}
    return next(
        (UntoldRefusal(action) for action in (ElicitAction.CANCEL, ElicitAction.DECLINE) if action in said),
        None,
    )


def no_in_form(form: JsonValue) -> JsonObject | None:
    """The content of a form that says no and nothing else; None when its schema does not declare one."""
    if not isinstance(form, dict):
        return None
    found = {
        name: no for name, field in properties_of(form).items() if (no := _no_of(name, field)) is not None
    }
    if len(found) != 1 or not set(required_of(form)) <= found.keys():
        return None
    return {**found}


def _no_of(name: str, field: JsonObject) -> bool | str | None:
    """The value of a field that says no."""
    about = _about(name)
    if field.get("type") == "boolean":
        return False if about in _CONSENTS else None
    values = _values(field)
    if field.get("type") != "string" or about not in _CONSENTS | _DECISIONS:
        return None
    is_consent = about in _CONSENTS
    yes = _CONSENTS | (_YES if is_consent else frozenset())
    no = _REFUSALS | (_NO if is_consent else frozenset())
    said = {value: _about(value) for value in values}
    refusals = [value for value, words in said.items() if words in no]
    is_clear = all(words in yes | no | _LEAVES for words in said.values())
    has_yes = any(words in yes for words in said.values())
    return refusals[0] if is_clear and has_yes and len(refusals) == 1 else None


def _values(field: JsonObject) -> list[str]:
    """The choices of a field, as they are sent."""
    plain, named = field.get("enum"), field.get("oneOf")
    values: list[JsonValue] = list(plain) if isinstance(plain, list) else []
    values += [one.get("const") for one in named if isinstance(one, dict)] if isinstance(named, list) else []
    return [value for value in values if isinstance(value, str)]


def _about(name: str) -> str:
    """A name in small letters, as words, without those that change nothing: `isApproved` is "approved"."""
    words = [word.lower() for word in _WORDS.findall(name)]
    return " ".join(word for word in words if word not in _AROUND) or " ".join(words)
