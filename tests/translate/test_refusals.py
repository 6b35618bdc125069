"""Which forms can refuse, by their schemas."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.translate.own_questions import ElicitAction
from bridge.translate.refusals import UntoldRefusal, refusal_among, refusal_content

YES_OR_NO: Any = {"type": "boolean"}


def form(required: tuple[str, ...] = (), **fields: Any) -> Any:
    return {"type": "object", "properties": fields, "required": [*required]}


def one_of(*values: str, **more: Any) -> Any:
    return {"type": "string", "enum": [*values], **more}


@pytest.mark.proves("map-ask-back-no")
@pytest.mark.parametrize(
    ("asked", "no"),
    [
        (form(approved=YES_OR_NO), {"approved": False}),
        (form(("confirm",), confirm=YES_OR_NO), {"confirm": False}),
        (form(isApproved=YES_OR_NO), {"isApproved": False}),
        (form(user_consent={**YES_OR_NO, "default": True}), {"user_consent": False}),
        (form(goAhead=YES_OR_NO, comment={"type": "string"}), {"goAhead": False}),
        (form(decision=one_of("approve", "reject")), {"decision": "reject"}),
        (form(action=one_of("accept", "decline", "cancel")), {"action": "decline"}),
        (form(Response=one_of("Allow", "Deny")), {"Response": "Deny"}),
        (form(approve=one_of("yes", "no")), {"approve": "no"}),
        (
            form(decision={"type": "string", "oneOf": [{"const": "accept"}, {"const": "DECLINED"}]}),
            {"decision": "DECLINED"},
        ),
    ],
)
def test_a_form_about_consent_alone_can_refuse(asked: Any, no: Any) -> None:
    assert refusal_content(asked) == no


@pytest.mark.proves("map-ask-back-no")
@pytest.mark.parametrize(
    "asked",
    [
        None,
        [],
        form(),
        form(answer={"type": "string"}),
        # False would be an answer about the thing, or even the yes.
        form(window_seat=YES_OR_NO),
        form(cancel=YES_OR_NO),
        form(confirm_cancellation=YES_OR_NO),
        form(keep=YES_OR_NO),
        form(decline=YES_OR_NO),
        # These choices are about the thing, too.
        form(answer=one_of("yes", "no")),
        form(seat=one_of("accept", "decline")),
        form(order=one_of("keep", "cancel")),
        form(decision=one_of("approve", "cancel")),
        form(decision=one_of("accept", "decline", "tentative")),
        # No choice, or no single one, is the no.
        form(decision=one_of("approve", "accept")),
        form(decision=one_of("reject", "refuse")),
        form(decision=one_of("approve", "reject", "deny")),
        form(decision=one_of()),
        # More than the no would have to be said, or it could stand in two places.
        form(("approved", "reason"), approved=YES_OR_NO, reason={"type": "string"}),
        form(approved=YES_OR_NO, confirmed=YES_OR_NO),
        form(approved={"type": "array", "items": {"enum": ["yes", "no"]}}),
        form(approved={"type": "integer"}),
    ],
)
def test_no_other_form_can_refuse(asked: Any) -> None:
    assert refusal_content(asked) is None


@pytest.mark.proves("map-ask-back-no")
@pytest.mark.parametrize(
    ("responses", "told"),
    [
        ({}, None),
        ({"a": {"action": "accept"}}, None),
        ({"a": 7, "b": {"action": "maybe"}}, None),
        ({"a": {"action": "accept"}, "b": {"action": "decline"}}, ElicitAction.DECLINE),
        ({"a": {"action": "decline"}, "b": {"action": "cancel"}}, ElicitAction.CANCEL),
    ],
)
def test_a_refusal_is_found_among_answers(responses: Any, told: ElicitAction | None) -> None:
    assert refusal_among(responses) == (UntoldRefusal(told) if told else None)
