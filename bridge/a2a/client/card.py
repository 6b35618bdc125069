"""How a client finds, reads and caches agent cards: strictly where it has to call, tolerantly elsewhere.

A card that lacks only fields that a client can do without is accepted, and its deviations are listed. Redirects are
followed within the origin only, since the client's credentials go with them. Cards are cached by the rules of HTTP
(`http_cache.py`).

Where the user has pinned keys, only what they have signed of a card is read (`card_pins.py`), before anything that the
card names is asked.

Spec: A2A 1.0 section 8; 8.4.3 (signatures); 8.6 (caching)."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Final, NoReturn, Protocol

import httpx2
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, ValidationError

from bridge.a2a.client.http import (
    NotReachedError,
    OutgoingRequest,
    exchange,
    json_from,
    origin_of,
    redacted_url,
    response_body,
    status_words,
    url_from,
    url_within,
    validation_faults,
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
from bridge.a2a.model import objects
from bridge.a2a.model.objects import AgentCard
from bridge.a2a.wire.canonical_card import CardForm, CardProof
from bridge.a2a.wire.rest import CARD_PATH, OLDER_CARD_PATH
from bridge.a2a.wire.versions import HEADER, VERSIONS
from bridge.concurrency import Signal
from bridge.errors import PeerError
from bridge.http.client import NO_CREDENTIALS, CredentialsSource, PeerAuth, guarded_by, wants_login
from bridge.http.private_addresses import AddressGuard
from bridge.http.probe import FaultExplainer, WantedKind, explained
from bridge.http.token_endpoint import TokenError
from bridge.jsonvalues import JsonObject

CARD_LIMIT_BYTES: Final = 16 * 1024 * 1024
"""The bound on a card. A card with a thousand tools and their schemas has a few megabytes."""

_REDIRECTS: Final = 5
_STREAM: Final = "text/event-stream"
"""A media type that no card has: such an answer might never end."""
ABSENT: Final = (404, 405, 410)
"""The statuses that mean that there is no card at a URL, so that the next URL may be tried."""


class NoCardError(PeerError):
    """A server answers and has no card. It may not be an agent."""


class LockedCardError(NoCardError):
    """A server gives no card to those who have not logged in, and says where a person may."""


class UnverifiedCardError(DistrustedError):
    """No key that its user has pinned has signed a card."""


class VerifiesCards(Protocol):
    """The keys that are pinned for an agent; see `CardPins`."""

    @property
    def mark(self) -> str:
        """Tells these keys from others."""
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
    """The version of A2A that the agent told when it was asked, because its card does not say one."""
    is_open: bool = False
    """Whether neither the card nor the agent has told the version."""
    proof: CardProof | None = None
    """Who has signed it, where keys are pinned. Then the card holds what is signed, and nothing else of the text."""


AskVersion = Callable[[FoundCard], Awaitable[str]]
"""Asks the agent of an open card for its version. Raises UnknownVersionError if its answer does not tell it."""


class UnknownVersionError(PeerError):
    """Neither a card nor its agent tells the version of A2A that the agent speaks."""


async def fetch_card(
    http: httpx2.AsyncClient,
    url: str,
    credentials: CredentialsSource = NO_CREDENTIALS,
    guard: AddressGuard | None = None,
    ask_version: AskVersion | None = None,
    pins: VerifiesCards | None = None,
) -> FoundCard:
    """The card of the agent at `url`: at a well-known path below it, or else at `url` itself. `ask_version` asks for
    a version that the card does not say; None leaves it open. `pins` are the keys that must have signed it.

    Raises:
        NoCardError: a server answers and has no card.
        UnverifiedCardError: as for `pins`.
        UnknownVersionError: as for `ask_version`.
        PeerError: the server cannot be reached, or its answer is not a card.
    """
    for card_url in (card_urls := candidate_card_urls(url)):
        found = await read_url(http, card_url, credentials, guard)
        if found is not None:
            proof = await _proof(found[1], card_url, pins)
            return await _told(found_card(card_url, found[1], proof=proof), ask_version)
    raise no_card_at(card_urls)


async def _proof(text: bytes, url: str, pins: VerifiesCards | None) -> CardProof | None:
    """The proof that a pinned key has signed a card; None where none is pinned."""
    if pins is None:
        return None
    where = redacted_url(url)
    value = json_from(text, where)
    if not isinstance(value, dict):
        raise PeerError(f"what is at {where} is no agent card")
    return await pins.proof_of(value, where)


async def _told(found: FoundCard, ask_version: AskVersion | None) -> FoundCard:
    """The card with the version that its agent tells, if it leaves the version open and the agent may be asked."""
    if not found.is_open or ask_version is None:
        return found
    try:
        told = await ask_version(found)
    except UnknownVersionError:
        if VERSIONS.presumed(found.url) is None:
            raise
        return found
    return found_card(found.url, found.text, told, found.proof)


def no_card_at(card_urls: Iterable[str]) -> NoCardError:
    """The error for an agent without a card at any of these URLs."""
    return NoCardError(f"there is no agent card at {' or '.join(map(redacted_url, card_urls))}")


def found_card(url: str, text: bytes, told_version: str = "", proof: CardProof | None = None) -> FoundCard:
    """The card in the text at a URL. `told_version` is what its agent told of its version; a version that this bridge
    does not know counts as none. Of a card with a proof, only what is signed is read.

    Raises:
        PeerError: the text is not a card of a supported version.
    """
    where = redacted_url(url)
    value = json_from(text, where) if proof is None else proof.inside
    told = told_version if told_version in VERSIONS.tellable else ""
    card, deviations = _card_from(VERSIONS.card_from(value, url, told), where)
    if proof is not None and proof.form is CardForm.SDK:
        deviations = ()  # what is required and empty is not signed in this form
    return FoundCard(url, text, card, deviations, told, not told and VERSIONS.leaves_open(value), proof)


def card_from(text: bytes, where: str, place: str = "") -> tuple[AgentCard, tuple[str, ...]]:
    """A card, and what in it is not as the specification asks; `where` is said of it, `place` is its URL.

    Raises:
        PeerError: the text is not a card of a supported version.
    """
    return _card_from(VERSIONS.card_from(json_from(text, where), place), where)


def _card_from(value: JsonValue, where: str) -> tuple[AgentCard, tuple[str, ...]]:
    try:
        return AgentCard.model_validate(value), ()
    except ValidationError as strict:
        if isinstance(value, dict) and "supportedInterfaces" not in value and "url" in value:
            version = value.get("protocolVersion", "another version, which it does not say")
            raise PeerError(
                f"the card at {where} is of A2A {version}, and this client speaks {', '.join(VERSIONS.names)}: "
                "supportedInterfaces is missing"
            ) from strict
        try:
            return _CardAsRead.model_validate(value), validation_faults(strict)
        except ValidationError as exc:
            raise PeerError(
                f"what is at {where} is no agent card: {'; '.join(validation_faults(exc))}"
            ) from exc


_UNSAID: Final = VERSIONS.current.version
"""The version of an interface that names none: the version that introduced `supportedInterfaces`."""


class _SkillAsRead(objects.AgentSkill):
    """A skill for reading, which requires only what is needed to call it."""

    description: str = ""
    tags: objects.Several[str] = ()


class _InterfaceAsRead(objects.AgentInterface):
    """An interface for reading, which may lack its version."""

    protocol_version: Annotated[str, BeforeValidator(lambda version: version or _UNSAID)] = _UNSAID


class _CardAsRead(AgentCard):
    """A card for reading, which requires only what is needed to call its agent."""

    supported_interfaces: Annotated[objects.Several[_InterfaceAsRead], Field(min_length=1)]
    description: str = ""
    version: str = ""
    capabilities: objects.AgentCapabilities = objects.AgentCapabilities()
    default_input_modes: objects.Several[str] = ()
    default_output_modes: objects.Several[str] = ()
    skills: objects.Several[_SkillAsRead] = ()


def candidate_card_urls(url: str) -> tuple[str, ...]:
    """The URLs where the card of the agent at `url` may be, in the order in which they are tried."""
    parsed = url_from(url).copy_with(fragment=None)
    if parsed.path.endswith(".json"):
        return (str(parsed),)
    below = (parsed.copy_with(path=parsed.path.rstrip("/") + path) for path in (CARD_PATH, OLDER_CARD_PATH))
    return (*map(str, below), str(parsed))


def base_url(url: str) -> str:
    """The URL of an agent itself, given that or the URL of its card at a well-known path."""
    parsed = url_from(url)
    for path in (CARD_PATH, OLDER_CARD_PATH):
        if parsed.path.endswith(path):
            return str(parsed.copy_with(path=parsed.path.removesuffix(path) or "/"))
    return url


def agent_url(url: str) -> str:
    """The same, without a user, a query and a fragment."""
    return str(url_from(base_url(url)).copy_with(userinfo=b"", query=None, fragment=None))


async def read_url(
    http: httpx2.AsyncClient,
    url: str,
    credentials: CredentialsSource,
    guard: AddressGuard | None = None,
    validators: Mapping[str, str] = MappingProxyType({}),
) -> tuple[httpx2.Response, bytes] | None:
    """The response and the body at a URL; None if nothing is there. The body is empty for a 304.

    `validators` are the conditional headers. Redirects are followed within the origin, with the credentials. `guard`
    judges the connection; a `ConnectionPolicy` makes it.

    Raises:
        NoCardError: the server answers with another client error (4xx): a LockedCardError if it wants a login.
        PeerError: the server cannot be reached, or answers with an error or too many redirects.
    """
    headers = {**validators, HEADER: VERSIONS.current.version, "Accept": "application/json"}
    asked = OutgoingRequest(
        "GET", url, headers, extensions=guarded_by(guard), auth=PeerAuth(url_from(url), credentials)
    )
    for _ in range(_REDIRECTS + 1):
        async with exchange(http, asked) as response:
            if response.has_redirect_location:
                asked = replace(asked, url=_redirect_target(asked.url, response.headers["location"]))
                continue
            if response.status_code in ABSENT or response.headers.get("content-type", "").startswith(_STREAM):
                return None
            if response.status_code == HTTPStatus.NOT_MODIFIED:
                return response, b""
            if not response.is_success:
                fault = NoCardError if response.is_client_error else PeerError
                raise (LockedCardError if wants_login(response) else fault)(status_words(response))
            return response, await response_body(response, CARD_LIMIT_BYTES)
    raise PeerError(f"{redacted_url(url)} redirects more than {_REDIRECTS} times")


def _redirect_target(url: str, location: str) -> str:
    following = url_within(url, location)
    if origin_of(str(following)) != origin_of(url):
        raise PeerError(
            f"{redacted_url(url)} redirects to another origin, {redacted_url(str(following))}, which is not followed: "
            "give that URL itself if you trust it"
        )
    # A user name in the redirect would replace the credentials, and only the user may choose them.
    return str(following.copy_with(userinfo=url_from(url).userinfo))


class _StoredProof(BaseModel):
    """The proof of a card in the cache. The file is its owner's alone, so that it is believed."""

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
    """The version that the agent told. It holds for as long as the card is the same."""
    proof: _StoredProof | None = None


_CachedCard = CachedValue[_StoredCard, FoundCard]


class CardSource(CachedResource[_StoredCard, FoundCard]):
    """The card of one agent, cached and refreshed."""

    word = "card"
    kept_type = _StoredCard
    is_settled = True
    """The names on a card that was read are its agent's own."""

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
        from the user. `ask_version` asks once for a version that the card does not say; None leaves it open. `pins` are
        the keys that must have signed each card."""
        super().__init__(http, url, folder, bounds, credentials)
        self._guard = guard
        self._is_learned = is_learned
        self._ask_version = ask_version
        self._pins = pins
        self._explanation = FaultExplainer(self._explained)

    async def refresh(self) -> FoundCard:
        """The current card; see `CachedResource.refresh`.

        Raises:
            PeerError: as there. If no card is known and the URL is the user's own, the message also says what else is
                at that URL.
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
        known = held.kept.place if held else ""
        for card_url in sorted(candidate_card_urls(self.url), key=lambda candidate: candidate != known):
            conditions = held.kept.validators if held and known == card_url else {}
            answer = await read_url(self._http, card_url, self._credentials, self._guard, conditions)
            if answer is not None:
                return await self._taken(held, card_url, *answer)
        raise no_card_at(candidate_card_urls(self.url))

    async def _taken(
        self, held: _CachedCard | None, card_url: str, response: httpx2.Response, text: bytes
    ) -> _CachedCard:
        if response.status_code == HTTPStatus.NOT_MODIFIED:
            if held is None:
                raise PeerError(
                    f"{redacted_url(self.url)} says that its card has not changed, but it was never seen"
                )
            text = held.value.text
        proof = await _proof(text, card_url, self._pins)
        known = held and (held.value.url, held.value.text, held.value.proof)
        if held is not None and known == (card_url, text, proof):
            found = held.value
        else:
            found = await _told(found_card(card_url, text, proof=proof), self._ask_version)
        kept = _StoredCard(
            place=card_url,
            text=found.text.decode(),
            validators=validators_of(response, held.kept.validators if held else {}),
            fresh_until=time.time() + fresh_seconds(response.headers, self._bounds),
            may_be_stored=may_be_stored(response.headers),
            told_version=found.told_version,
            proof=self._stored(proof),
        )
        return CachedValue(kept, found)

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

    def _read(self, kept: _StoredCard) -> FoundCard:
        stored, pinned = kept.proof, self._pins.mark if self._pins else None
        if pinned != (stored.pins if stored else None):
            raise PeerError(f"the card at {redacted_url(kept.place)} was verified by other keys")
        proof = CardProof(stored.key_id, stored.form, stored.inside, stored.outside) if stored else None
        found = found_card(kept.place, kept.text.encode(), kept.told_version, proof)
        if found.is_open and self._ask_version is not None and VERSIONS.presumed(kept.place) is None:
            raise PeerError(
                f"nobody has asked yet for the version of the agent at {redacted_url(kept.place)}"
            )
        return found

    def _is_news(self, before: FoundCard, now: FoundCard) -> bool:
        return now.text != before.text


class OwnCard:
    """The card of an agent that this process publishes, for those of its own MCP servers that are made of the agent.

    The card needs no request, so a start neither waits for it nor needs a listening socket. It names the address at
    which the process reaches itself, whatever address others are given. Its users hear of a change at once.

    Implements `bridge.agents_as_tools.remote_agent.CardProvider`. Compared by identity.
    """

    def __init__(
        self, base_url: str, card: Callable[[str], AgentCard], settled: Callable[[], bool] = lambda: True
    ) -> None:
        """`card` gives the card of the agent at a base URL, and `settled` says whether its names stay."""
        self._base_url = base_url
        self._card = card
        self._settled = settled
        self._news = Signal()

    @property
    def is_settled(self) -> bool:
        """Whether the names on the card no longer depend on a server that nobody knows."""
        return self._settled()

    def look(self) -> None:
        """Tell the watchers that the card may have changed."""
        self._news.tell()

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
            found = self.cached()
            if (found.text, self.is_settled) != (known, was_settled):
                known, was_settled = found.text, self.is_settled
                await on_change(found)
            else:
                await news.wait()
