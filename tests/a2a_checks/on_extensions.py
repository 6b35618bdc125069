"""Checks of extensions. Spec: A2A 1.0 sections 3.3.4 and 4.6."""

from __future__ import annotations

from typing import Any, Final

from tests.a2a_checks.bindings import SEND, STREAM
from tests.a2a_checks.errors import Kind
from tests.a2a_checks.occasions import Occasions
from tests.a2a_checks.table import Check, Level, Need, Section, need, require
from tests.a2a_checks.talk import Talk

UNHEARD_OF: Final = "urn:a2a-checks:no-such-extension:v1"


async def ignores_unknown_ones(talk: Talk, agent: Occasions) -> None:
    asked = [*talk.card.required_extensions, UNHEARD_OF, f"{UNHEARD_OF}1"]
    reply = await talk.ask(SEND, agent.send(), A2A_Extensions=", ".join(asked))
    reply.value()
    echoed = reply.answer.headers.get("a2a-extensions", "")
    require(UNHEARD_OF not in echoed, "no activation of what it does not know", echoed)


async def echoes_what_is_active(talk: Talk, agent: Occasions) -> None:
    uris = [str(one["uri"]) for one in talk.card.extensions]
    need(bool(uris), "the card declares no extension")
    reply = await talk.ask(SEND, agent.send(), A2A_Extensions=",".join([UNHEARD_OF, *uris]))
    reply.value()
    header = reply.answer.headers.get("a2a-extensions", "")
    echoed = {uri.strip() for uri in header.split(",")}
    require(bool(echoed & set(uris)), f"A2A-Extensions with the activated ones of {uris}", header or "none")


async def is_quiet_unasked(talk: Talk, agent: Occasions) -> None:
    need(not talk.card.required_extensions, "an extension is required")
    reply = await talk.ask(SEND, agent.send())
    reply.value()
    header = reply.answer.headers.get("a2a-extensions", "")
    require(not header, "no active extension", header)


async def insists_on_required_ones(talk: Talk, agent: Occasions) -> None:
    need(bool(talk.card.required_extensions), "the card requires no extension")
    for asked in ("", UNHEARD_OF):
        await talk.refused(Kind.EXTENSION_SUPPORT_REQUIRED, SEND, agent.send(), A2A_Extensions=asked)
    if talk.card.capabilities.get("streaming") is True:
        await talk.refused(Kind.EXTENSION_SUPPORT_REQUIRED, STREAM, agent.send(), A2A_Extensions="")


def _check(check_id: str, spec: str, level: Level, sentence: str, run: Any, *needs: Need) -> Check:
    return Check(check_id, Section.EXTENSIONS, spec, level, sentence, run, needs)


CHECKS: Final = (
    _check(
        "ext-unknown",
        "4.6.3",
        Level.SHOULD,
        "An extension that the agent does not know is passed over",
        ignores_unknown_ones,
    ),
    _check(
        "ext-echo",
        "4.6",
        Level.SHOULD,
        "The activated extensions are repeated in the answer",
        echoes_what_is_active,
        Need.EXTENSION,
    ),
    _check(
        "ext-unasked", "4.6", Level.SHOULD, "No extension is active that was not asked for", is_quiet_unasked
    ),
    _check(
        "ext-required",
        "3.3.4",
        Level.MUST,
        "Without a required extension, sending is ExtensionSupportRequired",
        insists_on_required_ones,
        Need.REQUIRED_EXTENSION,
    ),
)
