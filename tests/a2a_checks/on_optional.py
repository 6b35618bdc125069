"""Checks of what an agent may leave out: how it refuses it then; and of the extended card, where there is one.

Spec: A2A 1.0 sections 3.1.7 to 3.1.11 and 3.3.4.
"""

from __future__ import annotations

from typing import Any, Final

from tests.a2a_checks.bindings import CREATE_PUSH, DELETE_PUSH, EXTENDED_CARD, GET_PUSH, LIST_PUSH, SEND
from tests.a2a_checks.errors import Kind
from tests.a2a_checks.occasions import Occasions
from tests.a2a_checks.table import Check, Failed, Level, Need, Section, need, require
from tests.a2a_checks.talk import UNKNOWN_TASK, Talk

HOOK: Final = "https://example.com/a2a-checks"
_OF_UNKNOWN: Final = {"taskId": UNKNOWN_TASK, "id": "a2a-checks"}
PUSH: Final = (
    (CREATE_PUSH, {**_OF_UNKNOWN, "url": HOOK}),
    (GET_PUSH, _OF_UNKNOWN),
    (LIST_PUSH, {"taskId": UNKNOWN_TASK}),
    (DELETE_PUSH, _OF_UNKNOWN),
)


def _need(talk: Talk, capability: str, is_declared: bool) -> None:
    declared = talk.card.capabilities.get(capability) is True
    need(declared is is_declared, f"the agent declares {'' if declared else 'no '}{capability}")


async def refuses_push_undeclared(talk: Talk, agent: Occasions) -> None:
    _need(talk, "pushNotifications", False)
    for operation, params in PUSH:
        try:
            await talk.refused(Kind.PUSH_NOTIFICATION_NOT_SUPPORTED, operation, params)
        except Failed as exc:
            raise Failed(f"{operation}: {exc.expected}", exc.came) from None


async def refuses_push_in_send(talk: Talk, agent: Occasions) -> None:
    _need(talk, "pushNotifications", False)
    params = agent.send(configuration={"taskPushNotificationConfig": {"url": HOOK}})
    await talk.refused(Kind.PUSH_NOTIFICATION_NOT_SUPPORTED, SEND, params)


async def refuses_extended_undeclared(talk: Talk, agent: Occasions) -> None:
    _need(talk, "extendedAgentCard", False)
    await talk.refused(Kind.UNSUPPORTED_OPERATION, EXTENDED_CARD)


async def has_an_extended_card(talk: Talk, agent: Occasions) -> None:
    _need(talk, "extendedAgentCard", True)
    need(not talk.card.needs_credential or bool(talk.bearer), "it needs a token")
    reply = await talk.ask(EXTENDED_CARD)
    if reply.refusal is not None:
        talk.require_refusal(reply, Kind.EXTENDED_AGENT_CARD_NOT_CONFIGURED)
    else:
        require(isinstance(reply.result, dict) and bool(reply.result.get("skills")), "a card", reply.result)


async def keeps_the_extended_card_from_strangers(talk: Talk, agent: Occasions) -> None:
    _need(talk, "extendedAgentCard", True)
    need(talk.card.needs_credential, "the card requires no authentication")
    for authorization in ("", "Bearer a2a-checks-nobody"):
        answer = (await talk.ask(EXTENDED_CARD, Authorization=authorization)).answer
        require(answer.status in (401, 403), "status 401 or 403", answer.shown())


def _check(check_id: str, spec: str, sentence: str, run: Any, *needs: Need) -> Check:
    return Check(check_id, Section.OPTIONAL, spec, Level.MUST, sentence, run, needs)


CHECKS: Final = (
    _check(
        "push-undeclared",
        "3.3.4",
        "Without the capability, push configurations are PushNotificationNotSupported",
        refuses_push_undeclared,
        Need.NO_PUSH,
    ),
    _check(
        "push-undeclared-send",
        "3.3.4",
        "Without the capability, a message with a push configuration is refused likewise",
        refuses_push_in_send,
        Need.NO_PUSH,
    ),
    _check(
        "extended-undeclared",
        "3.3.4",
        "Without the capability, GetExtendedAgentCard is UnsupportedOperation",
        refuses_extended_undeclared,
        Need.NO_EXTENDED,
    ),
    _check(
        "extended-declared",
        "3.3.4",
        "With it, there is a card, or ExtendedAgentCardNotConfigured",
        has_an_extended_card,
        Need.EXTENDED,
    ),
    _check(
        "extended-strangers",
        "3.1.11",
        "The extended card is for callers with a credential",
        keeps_the_extended_card_from_strangers,
        Need.EXTENDED,
        Need.CREDENTIAL,
    ),
)
