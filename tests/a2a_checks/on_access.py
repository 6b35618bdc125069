"""Checks of authentication. Spec: A2A 1.0 sections 3.3.2 and 7.4."""

from __future__ import annotations

from typing import Any, Final

from tests.a2a_checks.bindings import GET, LIST, SEND
from tests.a2a_checks.occasions import Occasions
from tests.a2a_checks.table import Check, Level, Need, Section, need, require
from tests.a2a_checks.talk import UNKNOWN_TASK, Talk
from tests.a2a_checks.wire import Answer


async def _answers(talk: Talk, agent: Occasions, authorization: str) -> list[Answer]:
    need(talk.card.needs_credential, "the card requires no authentication")
    need(bool(talk.bearer), "no token was given")
    asked: tuple[tuple[str, dict[str, Any]], ...] = (
        (GET, {"id": UNKNOWN_TASK}),
        (LIST, {}),
        (SEND, agent.send()),
    )
    return [
        (await talk.ask(operation, params, Authorization=authorization)).answer for operation, params in asked
    ]


async def _is_refused(talk: Talk, agent: Occasions, authorization: str) -> None:
    for answer in await _answers(talk, agent, authorization):
        require(answer.status in (401, 403), "status 401 or 403", answer.shown())


async def refuses_strangers(talk: Talk, agent: Occasions) -> None:
    await _is_refused(talk, agent, "")


async def refuses_wrong_tokens(talk: Talk, agent: Occasions) -> None:
    await _is_refused(talk, agent, f"Bearer {talk.bearer}x")


async def says_how_to_come_in(talk: Talk, agent: Occasions) -> None:
    for answer in await _answers(talk, agent, ""):
        require("www-authenticate" in answer.headers, "WWW-Authenticate", answer.shown())


def _check(check_id: str, spec: str, level: Level, sentence: str, run: Any) -> Check:
    return Check(check_id, Section.ACCESS, spec, level, sentence, run, (Need.CREDENTIAL,))


CHECKS: Final = (
    _check("auth-missing", "7.4", Level.MUST, "Requests without a credential are refused", refuses_strangers),
    _check(
        "auth-wrong", "7.4", Level.MUST, "Requests with a wrong credential are refused", refuses_wrong_tokens
    ),
    _check(
        "auth-challenge",
        "7.4",
        Level.SHOULD,
        "The refusal says which scheme is asked for",
        says_how_to_come_in,
    ),
)
