"""Agent cards as a client finds, reads and caches them: strictly where it has to call, tolerantly elsewhere.

A card that lacks what a client can do without is read, and its deviations are listed. Redirects are followed
within the origin only, since the client's credentials go with them. A card is cached as HTTP says
(`http_cache.py`).

Spec: A2A 1.0 section 8; 8.6 (caching)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Final

import httpx2
from pydantic import BeforeValidator, Field, ValidationError

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
    validation_faults,
)
from bridge.a2a.client.http_cache import (
    CachedResource,
    CachedValue,
    FreshnessBounds,
    StoredResponse,
    fresh_seconds,
    may_be_stored,
    validators_of,
)
from bridge.a2a.model import objects
from bridge.a2a.model.objects import AgentCard
from bridge.a2a.wire.rest import CARD_PATH, OLDER_CARD_PATH
from bridge.a2a.wire.versions import HEADER, VERSIONS
from bridge.errors import PeerError
from bridge.http.client import guarded_by
from bridge.http.peer_auth import NO_CREDENTIALS, CredentialsSource, PeerAuth
from bridge.http.private_addresses import AddressGuard
from bridge.http.probe import FaultExplainer, WantedKind, explained

CARD_LIMIT_BYTES: Final = 16 * 1024 * 1024
"""What a card may weigh: one that lists a thousand tools with their schemas has a few megabytes."""

_REDIRECTS: Final = 5
_STREAM: Final = "text/event-stream"
"""What no card is: it might never end."""
ABSENT: Final = (404, 405, 410)
"""The statuses that say that there is nothing to read here, so that the next place may be tried."""


class NoCardError(PeerError):
    """A server is there, and gives no card. It may be something else than an agent."""


@dataclass(frozen=True)
class FoundCard:
    """A card, where it was found, and its text as it was received."""

    url: str
    text: bytes
    card: AgentCard
    deviations: tuple[str, ...] = ()
    """What in it is not as the specification asks, field by field, though it can be read."""


async def fetch_card(
    http: httpx2.AsyncClient,
    url: str,
    credentials: CredentialsSource = NO_CREDENTIALS,
    guard: AddressGuard | None = None,
) -> FoundCard:
    """The card of the agent at `url`: below it at a well-known path, or, when there is none, `url` itself.

    Raises:
        NoCardError: there is a server that gives none.
        PeerError: it cannot be reached, or what is there is no card.
    """
    for place in (places := candidate_card_urls(url)):
        found = await read_url(http, place, credentials, guard)
        if found is not None:
            return found_card(place, found[1])
    raise no_card_at(places)


def no_card_at(places: Iterable[str]) -> NoCardError:
    """There is no card at any of these."""
    return NoCardError(f"there is no agent card at {' or '.join(map(redacted_url, places))}")


def found_card(place: str, text: bytes) -> FoundCard:
    """A card out of the text at a URL.

    Raises:
        PeerError: it cannot be read as a card of a version that is spoken.
    """
    card, deviations = card_from(text, redacted_url(place))
    return FoundCard(place, text, card, deviations)


def card_from(text: bytes, where: str) -> tuple[AgentCard, tuple[str, ...]]:
    """A card, and what in it is not as the specification asks.

    Raises:
        PeerError: it cannot be read as a card of a version that is spoken.
    """
    value = VERSIONS.card_from(json_from(text, where))
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
"""The version of an interface that says none: it is of the one that brought `supportedInterfaces`."""


class _SkillAsRead(objects.AgentSkill):
    """A skill of which no more is asked than that it can be called."""

    description: str = ""
    tags: objects.Several[str] = ()


class _InterfaceAsRead(objects.AgentInterface):
    """An interface that may say no version."""

    protocol_version: Annotated[str, BeforeValidator(lambda version: version or _UNSAID)] = _UNSAID


class _CardAsRead(AgentCard):
    """A card of which no more is asked than that its agent can be called."""

    supported_interfaces: Annotated[objects.Several[_InterfaceAsRead], Field(min_length=1)]
    description: str = ""
    version: str = ""
    capabilities: objects.AgentCapabilities = objects.AgentCapabilities()
    default_input_modes: objects.Several[str] = ()
    default_output_modes: objects.Several[str] = ()
    skills: objects.Several[_SkillAsRead] = ()


def candidate_card_urls(url: str) -> tuple[str, ...]:
    """Where the card of the agent at `url` may be, in the order in which they are tried."""
    place = url_from(url).copy_with(fragment=None)
    if place.path.endswith(".json"):
        return (str(place),)
    below = (place.copy_with(path=place.path.rstrip("/") + path) for path in (CARD_PATH, OLDER_CARD_PATH))
    return (*map(str, below), str(place))


async def read_url(
    http: httpx2.AsyncClient,
    url: str,
    credentials: CredentialsSource,
    guard: AddressGuard | None = None,
    validators: Mapping[str, str] = MappingProxyType({}),
) -> tuple[httpx2.Response, bytes] | None:
    """What is at a URL, or 304 with nothing when it is as the validators say; None when nothing is there.

    Redirects are followed within the origin, with the credentials. `guard` judges the connection, as a `Reach` has it
    done.

    Raises:
        PeerError: it cannot be reached, or answers with something else.
    """
    headers = {**validators, HEADER: VERSIONS.current.version, "Accept": "application/json"}
    asked = OutgoingRequest(
        "GET", url, headers, extensions=guarded_by(guard), auth=PeerAuth(url_from(url), credentials)
    )
    for _ in range(_REDIRECTS + 1):
        async with exchange(http, asked) as response:
            if response.has_redirect_location:
                asked = replace(asked, url=_next_place(asked.url, response.headers["location"]))
                continue
            if response.status_code in ABSENT or response.headers.get("content-type", "").startswith(_STREAM):
                return None
            if response.status_code == HTTPStatus.NOT_MODIFIED:
                return response, b""
            if not response.is_success:
                fault = NoCardError if response.is_client_error else PeerError
                raise fault(status_words(response))
            return response, await response_body(response, CARD_LIMIT_BYTES)
    raise PeerError(f"{redacted_url(url)} redirects more than {_REDIRECTS} times")


def _next_place(url: str, location: str) -> str:
    here = url_from(url)
    following = here.join(url_from(location))
    if origin_of(str(following)) != origin_of(url):
        raise PeerError(
            f"{redacted_url(url)} redirects to another origin, {redacted_url(str(following))}, which is not followed: "
            "give that URL itself if you trust it"
        )
    # Who is sent there is for the user to say: a user in the place would go along in place of the credentials.
    return str(following.copy_with(userinfo=here.userinfo))


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
        bounds: FreshnessBounds,
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
