"""All checks against one agent, one after the other, each within its time; nothing is left running."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from itertools import chain
from typing import Any, Final

import anyio
import httpx2

from tests.a2a_checks import (
    on_access,
    on_callers,
    on_card,
    on_extensions,
    on_http,
    on_json,
    on_jsonrpc,
    on_listing,
    on_messages,
    on_optional,
    on_push,
    on_sending,
    on_skills,
    on_streams,
    on_subscriptions,
    on_tasks,
    on_turns,
    on_versions,
)
from tests.a2a_checks.card import Card, read_card
from tests.a2a_checks.hooks import Hooks
from tests.a2a_checks.occasions import Occasions
from tests.a2a_checks.on_card import Look
from tests.a2a_checks.report import Outcome, Report, Result, Verdict
from tests.a2a_checks.table import ONCE, Check, Failed, NotTried
from tests.a2a_checks.talk import SILENCE_SECONDS, Talk
from tests.a2a_checks.wire import Wire

CHECKS: Final[tuple[Check, ...]] = tuple(
    chain.from_iterable(
        module.CHECKS
        for module in (
            on_card,
            on_jsonrpc,
            on_http,
            on_sending,
            on_skills,
            on_tasks,
            on_listing,
            on_streams,
            on_subscriptions,
            on_turns,
            on_messages,
            on_versions,
            on_extensions,
            on_optional,
            on_push,
            on_access,
            on_callers,
            on_json,
        )
    )
)
"""The checks of JSON come last: they look at what all others were answered."""

DEFAULT_DEADLINE_SECONDS: Final = 10.0
CARD_SECONDS: Final = 10.0
"""How long the card may take: without it there is nothing to check."""


MakeClient = Callable[[], AbstractAsyncContextManager[httpx2.AsyncClient]]


def over_sockets() -> httpx2.AsyncClient:
    """A client for an agent that listens somewhere; each check has its own deadline."""
    return httpx2.AsyncClient(timeout=None)


async def run_checks(
    url: str,
    *,
    bearer: str | None = None,
    other_bearer: str | None = None,
    hooks: Hooks | None = None,
    messages: Mapping[str, Mapping[str, Any]] | None = None,
    deadline_seconds: float = DEFAULT_DEADLINE_SECONDS,
    only: frozenset[str] | None = None,
    silence_seconds: float = SILENCE_SECONDS,
    client: MakeClient = over_sockets,
) -> Report:
    """Everything that can be checked of the agent at `url`, its base or its card.

    `other_bearer` is the token of another caller, and `hooks` are where the agent may post push notifications.
    `messages` say how the agent is brought to do what a check needs: purpose (see `occasions`) to A2A message.
    `silence_seconds` is how long an answer that must not come is waited for. `client` makes what sends all requests but
    those that are written by hand.

    Raises:
        Failed: nobody answers there.
        TimeoutError: the card does not come in time.
    """
    async with client() as http:
        wire = Wire(http)
        headers = {"A2A-Version": "1.0", **({"Authorization": f"Bearer {bearer}"} if bearer else {})}
        with anyio.fail_after(CARD_SECONDS):
            card = await read_card(wire, url, headers)
        run = _Run(card, deadline_seconds)
        await run.look(Look(card, wire, headers), only)
        make = partial(Talk, card, wire=wire, silence_seconds=silence_seconds, hooks=hooks)
        talks = [make(binding, bearer=bearer) for binding in card.bindings()]
        for talk in talks:
            talk.others = tuple(other for other in talks if other is not talk)
            if other_bearer is not None:
                talk.stranger = make(talk.binding, bearer=other_bearer)
        for talk in talks:
            await run.talk(talk, Occasions(talk, messages or {}), only)
    return Report(url, str(card.fields.get("name", "")), run.results(only))


class _Run:
    """The outcomes so far."""

    def __init__(self, card: Card, deadline_seconds: float) -> None:
        self._card = card
        self._deadline_seconds = deadline_seconds
        self._outcomes: dict[tuple[str, str], Outcome] = {}

    async def look(self, look: Look, only: frozenset[str] | None) -> None:
        """Check what is checked once."""
        for check in _chosen(only):
            if check.bindings == ONCE:
                self._outcomes[check.id, ONCE[0]] = await self._outcome(partial(check.run, look))

    async def talk(self, talk: Talk, agent: Occasions, only: frozenset[str] | None) -> None:
        """Check what is checked over this binding."""
        for check in _chosen(only):
            if talk.binding.name in check.bindings:
                outcome = await self._outcome(partial(check.run, talk, agent))
                self._outcomes[check.id, talk.binding.name] = outcome
                await talk.clean()

    async def _outcome(self, run: Callable[[], Awaitable[None]]) -> Outcome:
        try:
            with anyio.fail_after(self._deadline_seconds):
                await run()
        except TimeoutError:
            return Outcome(Verdict.FAIL, f"an end within {self._deadline_seconds:g} s", "none")
        except (Exception, BaseExceptionGroup) as exc:  # noqa: BLE001  what an agent sends may break any line of a check
            return _told(exc)
        return Outcome(Verdict.PASS)

    def results(self, only: frozenset[str] | None) -> tuple[Result, ...]:
        """One result a check, in the order of the table."""
        return tuple(
            Result(check, {binding: self._of(check, binding) for binding in check.bindings})
            for check in _chosen(only)
        )

    def _of(self, check: Check, binding: str) -> Outcome:
        missing = "there is no card" if not self._card.fields else f"the card declares no {binding} 1.0"
        return self._outcomes.get((check.id, binding)) or Outcome(Verdict.NOT_TRIED, why=missing)


def _chosen(only: frozenset[str] | None) -> list[Check]:
    return [check for check in CHECKS if only is None or check.id in only]


def _told(exc: BaseException) -> Outcome:
    while isinstance(exc, BaseExceptionGroup):
        exc = exc.exceptions[0]
    match exc:
        case NotTried():
            return Outcome(Verdict.NOT_TRIED, why=str(exc))
        case Failed():
            return Outcome(Verdict.FAIL, exc.expected, exc.came)
        case _:
            return Outcome(
                Verdict.FAIL, "an answer of the shape that A2A has", f"{type(exc).__name__}: {exc}"
            )
