"""The pinned keys of an agent, as a plan says them. Imported only for an agent that has some: PyJWT takes time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx2

from bridge.a2a.client.card_pins import CardPins, KeyFile
from bridge.assembly.plan import Plan, SignerPlan
from bridge.errors import UsageError
from bridge.identity.callers.issuers import IssuerPlace
from bridge.identity.callers.key_sets import KeySource
from bridge.settings import IssuerSettings


def pins_of(
    key: str, signer: SignerPlan, http: httpx2.AsyncClient, table: IssuerSettings, *, allow_private: bool
) -> CardPins:
    """The keys of which one must have signed the card of an agent. `key` is its name in the configuration."""
    place, form = signer.place, signer.form
    if isinstance(place, Path):
        file = KeyFile(place)
        return CardPins(file, form, file.text_if_any)
    where = IssuerPlace(place, place, allow_private=allow_private)
    source = KeySource(key, where, http, table, section="agents")
    return CardPins(source, form, place.encode)


def pin_faults(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield the agents of a plan whose keys cannot be read from their file, and why."""
    for name, remote in plan.agents.items():
        if remote.signed_by is not None and isinstance(remote.signed_by.place, Path):
            try:
                KeyFile(remote.signed_by.place).read()
            except UsageError as exc:
                yield name, str(exc)
