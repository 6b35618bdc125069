"""How a client finds, reads and caches agent cards: strictly where it has to call, tolerantly elsewhere.

A card that lacks only fields that a client can do without is accepted, and its deviations are listed. Redirects are
followed within the origin only, since the client's credentials go with them. Cards are cached by the rules of HTTP
(`http_cache.py`).

If the user has pinned keys, only the part of a card that these keys have signed is read (`card_pins.py`). This happens
before any request to a URL on the card.

Spec: A2A 1.0 section 8; 8.4.3 (signatures); 8.6 (caching)."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import NoReturn, Protocol

import httpx2
from pydantic import BaseModel, ConfigDict

from bridge.a2a.client.card_places import LockedCardError, looked_for
from bridge.a2a.client.card_reading import read_card
from bridge.a2a.client.http import (
    NotReachedError,
    json_from,
    redacted_url,
)
from bridge.a2a.client.http_cache import (
    CachedResource,
    CachedValue,
    DistrustedError,
    FreshnessBounds,
    StoredResponse,
    fresh_seconds,
    may_be_stored,
    validators_of,
)
from bridge.a2a.model.objects import AgentCard
from bridge.a2a.wire.canonical_card import CardForm, CardProof
from bridge.a2a.wire.versions import VERSIONS
from bridge.concurrency import Signal
from bridge.errors import PeerError
from bridge.http.client import NO_CREDENTIALS, CredentialsSource
from bridge.http.private_addresses import AddressGuard
from bridge.http.probe import FaultExplainer, WantedKind, explained
from bridge.identity.tokens.token_endpoint import TokenError
from bridge.text.jsonvalues import JsonObject


class UnverifiedCardError(DistrustedError):
    """A card is not signed by any pinned key."""


class VerifiesCards(Protocol):
    """The keys that are pinned for an agent; see `CardPins`."""

    @property
    def mark(self) -> str:
        """A text that identifies these keys."""
        ...

    async def proof_of(self, card: JsonObject, where: str) -> CardProof:
        """See `CardPins.proof_of`.

        Raises:
            UnverifiedCardError: no pinned key has signed the card.
            PeerError: the keys are not known.
        """
        ...


@dataclass(frozen=True)
class FoundCard:
    """A card, the URL where it was found, and its text as it was received."""

    url: str
    text: bytes
    card: AgentCard
    deviations: tuple[str, ...] = ()
    """The deviations of a readable card from the specification, field by field."""
    told_version: str = ""
    """The version of A2A that the agent gave when it was asked. The card does not say the version."""
    is_open: bool = False
    """Whether the version is unknown: neither the card nor the agent says it."""
    is_readable: bool = False
    """Whether the card can be read although its version is unknown, by a presumed version."""
    proof: CardProof | None = None
    """Who has signed the card, if keys are pinned. The card then holds only the signed part of the text."""


AskVersion = Callable[[FoundCard], Awaitable[str]]
"""Asks the agent of an open card for its version. Raises UnknownVersionError if the answer does not show the
version."""


class UnknownVersionError(PeerError):
    """Neither a card nor its agent says which version of A2A the agent speaks."""


async def fetch_card(
    http: httpx2.AsyncClient,
    url: str,
    credentials: CredentialsSource = NO_CREDENTIALS,
    guard: AddressGuard | None = None,
    ask_version: AskVersion | None = None,
    pins: VerifiesCards | None = None,
) -> FoundCard:
    """The card of the agent at `url`: at a well-known path below `url`, or else at `url` itself. `ask_version` asks the
    agent for its version if the card does not say it; None leaves the version unknown. `pins` are the keys that must
    have signed the card.

    Raises:
        NoCardError: a server answers and has no card.
        UnverifiedCardError: as for `pins`.
        UnknownVersionError: as for `ask_version`.
        PeerError: the server cannot be reached, or its answer is not a card.
    """
    card_url, _, text = await looked_for(http, url, credentials, guard)
    proof = await _proof(text, card_url, pins)
    return await _with_version(found_card(card_url, text, proof=proof), ask_version)


async def _proof(text: bytes, url: str, pins: VerifiesCards | None) -> CardProof | None:
    """The proof that a pinned key has signed a card; None if no key is pinned."""
    if pins is None:
        return None
    where = redacted_url(url)
    value = json_from(text, where)
    if not isinstance(value, dict):
        raise PeerError(f"what is at {where} is not an agent card")
    return await pins.proof_of(value, where)


async def _with_version(card: FoundCard, ask_version: AskVersion | None) -> FoundCard:
    """The card with its version. If the card does not say the version, `ask_version` asks the agent."""
    if not card.is_open or ask_version is None:
        return card
    try:
        version = await ask_version(card)
    except UnknownVersionError:
        if not card.is_readable:
            raise
        return card
    return found_card(card.url, card.text, version, card.proof)


def found_card(url: str, text: bytes, told_version: str = "", proof: CardProof | None = None) -> FoundCard:
    """The card in the text at a URL. `told_version` is the version that the agent gave; a version that this bridge does
    not know is ignored. If the card has a proof, only its signed part is read.

    Raises:
        PeerError: the text is not a card of a supported version.
    """
    where = redacted_url(url)
    value = json_from(text, where) if proof is None else proof.inside
    known_version = told_version if told_version in (*VERSIONS.tellable, VERSIONS.current.version) else ""
    card, deviations = read_card(VERSIONS.card_from(value, url, known_version), where)
    if proof is not None and proof.form is CardForm.SDK:
        deviations = ()  # this form of signature leaves out required fields that are empty
    is_open = not known_version and VERSIONS.leaves_open(value)
    is_readable = VERSIONS.presumed(url) is not None or VERSIONS.misnames(value)
    return FoundCard(url, text, card, deviations, known_version, is_open, is_readable, proof)


def card_from(text: bytes, where: str, place: str = "") -> tuple[AgentCard, tuple[str, ...]]:
    """A card, and its deviations from the specification. Messages call the card `where`; `place` is its URL.

    Raises:
        PeerError: the text is not a card of a supported version.
    """
    return read_card(VERSIONS.card_from(json_from(text, where), place), where)


class _StoredProof(BaseModel):
    """The proof of a card in the cache. It is trusted, since only the owner can read and write the file."""

    model_config = ConfigDict(frozen=True)

    pins: str
    """The mark of the keys that were pinned."""
    key_id: str
    form: CardForm
    inside: JsonObject
    outside: tuple[str, ...]


class _StoredCard(StoredResponse):
    """A card in the cache."""

    place: str
    """The URL where the card was found."""
    text: str
    validators: dict[str, str]
    """The conditional headers for the next request."""
    told_version: str = ""
    """The version that the agent gave. It holds until the card changes."""
    proof: _StoredProof | None = None


_CachedCard = CachedValue[_StoredCard, FoundCard]


class CardSource(CachedResource[_StoredCard, FoundCard]):
    """The card of one agent, cached and refreshed."""

    word = "card"
    kept_type = _StoredCard
    is_settled = True
    """A card that was read holds the final names of its agent."""

    def __init__(
        self,
        http: httpx2.AsyncClient,
        url: str,
        folder: Path | None,
        bounds: FreshnessBounds,
        credentials: CredentialsSource = NO_CREDENTIALS,
        guard: AddressGuard | None = None,
        *,
        is_learned: bool = False,
        ask_version: AskVersion | None = None,
        pins: VerifiesCards | None = None,
    ) -> None:
        """`guard` judges connections to the origin of `url`. `is_learned` says that the URL came from a catalog and not
        from the user. `ask_version` asks the agent once for its version if the card does not say it; None leaves the
        version unknown. `pins` are the keys that must have signed each card."""
        super().__init__(http, url, folder, bounds, credentials)
        self._guard = guard
        self._is_learned = is_learned
        self._ask_version = ask_version
        self._pins = pins
        self._explanation = FaultExplainer(self._explained)

    async def refresh(self) -> FoundCard:
        """The current card; see `CachedResource.refresh`.

        Raises:
            PeerError: as for `CachedResource.refresh`. If no card is known and the user gave the URL, the message also
                says what else is at that URL.
        """
        try:
            return await super().refresh()
        except (NotReachedError, LockedCardError, UnknownVersionError, TokenError, UnverifiedCardError):
            raise
        except PeerError as exc:
            if self._held is not None or self._is_learned:
                raise
            raise await self._explanation.of(exc) from exc

    async def _explained(self, fault: PeerError) -> PeerError:
        within_seconds = self._bounds.answer_seconds
        return await explained(fault, self._http, self.url, WantedKind.AGENT, self._guard, within_seconds)

    async def _fetch(self, held: _CachedCard | None) -> _CachedCard:
        known, validators = (held.kept.place, held.kept.validators) if held else ("", {})
        response = await looked_for(self._http, self.url, self._credentials, self._guard, known, validators)
        return await self._taken(held, *response)

    async def _taken(
        self, held: _CachedCard | None, card_url: str, response: httpx2.Response, text: bytes
    ) -> _CachedCard:
        if response.status_code == HTTPStatus.NOT_MODIFIED:
            if held is None:
                raise PeerError(
                    f"{redacted_url(self.url)} says that its card has not changed, but the bridge has never read it"
                )
            text = held.value.text
        proof = await _proof(text, card_url, self._pins)
        known = held and (held.value.url, held.value.text, held.value.proof)
        if held is not None and known == (card_url, text, proof):
            found_now = held.value
        else:
            found_now = await _with_version(found_card(card_url, text, proof=proof), self._ask_version)
        stored_card = _StoredCard(
            place=card_url,
            text=found_now.text.decode(),
            validators=validators_of(response, held.kept.validators if held else {}),
            fresh_until=time.time() + fresh_seconds(response.headers, self._bounds),
            may_be_stored=may_be_stored(response.headers),
            told_version=found_now.told_version,
            proof=self._stored(proof),
        )
        return CachedValue(stored_card, found_now)

    def _stored(self, proof: CardProof | None) -> _StoredProof | None:
        if proof is None or self._pins is None:
            return None
        return _StoredProof(
            pins=self._pins.mark,
            key_id=proof.key_id,
            form=proof.form,
            inside=proof.inside,
            outside=proof.outside,
        )

    def _read(self, stored_card: _StoredCard) -> FoundCard:
        stored, pinned = stored_card.proof, self._pins.mark if self._pins else None
        if pinned != (stored.pins if stored else None):
            raise PeerError(
                f"the card at {redacted_url(stored_card.place)} was verified by keys that are no longer configured"
            )
        proof = CardProof(stored.key_id, stored.form, stored.inside, stored.outside) if stored else None
        card = found_card(stored_card.place, stored_card.text.encode(), stored_card.told_version, proof)
        if card.is_open and self._ask_version is not None and not card.is_readable:
            raise PeerError(
                f"nobody has asked yet for the version of the agent at {redacted_url(stored_card.place)}"
            )
        return card

    def _is_news(self, before: FoundCard, now: FoundCard) -> bool:
        return now.text != before.text


class OwnCard:
    """The card of an agent that this process publishes, for MCP servers of the same process that offer the agent.

    The card needs no request, so a start neither waits for it nor needs a listening socket. It names the address at
    which the process reaches itself, which may differ from its public address. Watchers are told of a change at once.

    Implements `bridge.remotes.remote_agent.CardProvider`. Compared by identity.
    """

    def __init__(
        self, base_url: str, card: Callable[[str], AgentCard], settled: Callable[[], bool] = lambda: True
    ) -> None:
        """`card` gives the card of the agent at a base URL, and `settled` says whether the names on it are final."""
        self._base_url = base_url
        self._card = card
        self._settled = settled
        self._news = Signal()

    @property
    def is_settled(self) -> bool:
        """Whether the names on the card are final: they do not depend on a server that was never reached."""
        return self._settled()

    def note_change(self) -> None:
        """Tell the watchers that the card may have changed."""
        self._news.notify()

    def cached(self) -> FoundCard:
        """The card."""
        return found_card(self._base_url, self._card(self._base_url).to_json())

    async def refresh(self) -> FoundCard:
        """The card."""
        return self.cached()

    async def watch(
        self,
        on_change: Callable[[FoundCard], Awaitable[None]],
        on_distrust: Callable[[DistrustedError], None] = lambda _: None,  # noqa: ARG002 - it trusts itself
    ) -> NoReturn:
        """Call `on_change` with each changed card, for ever."""
        known, was_settled = self.cached().text, self.is_settled
        while True:
            news = self._news.next
            card = self.cached()
            if (card.text, self.is_settled) != (known, was_settled):
                known, was_settled = card.text, self.is_settled
                await on_change(card)
            else:
                await news.wait()
