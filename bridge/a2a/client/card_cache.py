"""A card that is followed: where it is looked for, what is kept of it, and what stands there when it is no card.

Spec: A2A 1.0 section 8.6.
"""

from __future__ import annotations

import time
from http import HTTPStatus
from pathlib import Path

import httpx2

from bridge.a2a.client.card import FoundCard, candidate_card_urls, found_card, no_card_at, read_url
from bridge.a2a.client.followed import (
    CachedResource,
    CachedValue,
    FreshnessBounds,
    StoredResponse,
    fresh_seconds,
    may_be_stored,
    validators_of,
)
from bridge.a2a.client.http import NotReachedError, redacted_url
from bridge.address import FaultExplainer, WantedKind, explained
from bridge.errors import PeerError
from bridge.networks import AddressGuard
from bridge.peer_auth import NO_CREDENTIALS, CredentialsSource


class _StoredCard(StoredResponse):
    """A card as it is kept."""

    place: str
    text: str
    validators: dict[str, str]
    """The conditional headers by which it is asked for anew."""


_CachedCard = CachedValue[_StoredCard, FoundCard]


class CardSource(CachedResource[_StoredCard, FoundCard]):
    """Where one agent's card comes from."""

    word = "card"
    kept_type = _StoredCard

    def __init__(
        self,
        http: httpx2.AsyncClient,
        url: str,
        folder: Path | None,
        bounds: FreshnessBounds | None = None,
        credentials: CredentialsSource = NO_CREDENTIALS,
        guard: AddressGuard | None = None,
        *,
        is_learned: bool = False,
    ) -> None:
        """`credentials` go to `url`'s origin, connections to which `guard` judges. `is_learned` says that the URL is
        not the user's own."""
        super().__init__(http, url, folder, bounds, kept_as=url)
        self._credentials = credentials
        self._guard = guard
        self._is_learned = is_learned
        self._explanation = FaultExplainer(self._explained)

    async def refresh(self) -> FoundCard:
        """The card as it is now; see `CachedResource`.

        Raises:
            PeerError: as there; of what is no card it says what it is instead, where the URL is the user's own.
        """
        try:
            return await super().refresh()
        except NotReachedError:
            raise
        except PeerError as exc:
            if self._held is not None or self._is_learned:
                raise
            raise await self._explanation.of(exc) from exc

    async def _explained(self, fault: PeerError) -> PeerError:
        within_seconds = self._bounds.answer_seconds
        return await explained(fault, self._http, self.url, WantedKind.AGENT, self._guard, within_seconds)

    async def _fetch(self, held: _CachedCard | None) -> _CachedCard:
        known = held.kept.place if held else ""
        for place in sorted(candidate_card_urls(self.url), key=lambda place: place != known):
            conditions = held.kept.validators if held and known == place else {}
            answer = await read_url(self._http, place, self._credentials, self._guard, conditions)
            if answer is not None:
                return self._taken(held, place, *answer)
        raise no_card_at(candidate_card_urls(self.url))

    def _taken(
        self, held: _CachedCard | None, place: str, response: httpx2.Response, text: bytes
    ) -> _CachedCard:
        if response.status_code == HTTPStatus.NOT_MODIFIED:
            if held is None:
                raise PeerError(
                    f"{redacted_url(self.url)} says that its card has not changed, but it was never seen"
                )
            text = held.value.text
        is_same = held is not None and (held.value.url, held.value.text) == (place, text)
        found = held.value if held and is_same else found_card(place, text)
        kept = _StoredCard(
            place=place,
            text=found.text.decode(),
            validators=validators_of(response, held.kept.validators if held else {}),
            fresh_until=time.time() + fresh_seconds(response.headers, self._bounds),
            may_be_stored=may_be_stored(response.headers),
        )
        return CachedValue(kept, found)

    def _read(self, kept: _StoredCard) -> FoundCard:
        return found_card(kept.place, kept.text.encode())

    def _is_news(self, before: FoundCard, now: FoundCard) -> bool:
        return now.text != before.text
