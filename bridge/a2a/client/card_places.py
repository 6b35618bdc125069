"""The URLs where the card of an agent may be, and how they are read over HTTP.

Redirects are followed within the origin only, since the client's credentials go with them.

Spec: A2A 1.0 section 8.2.
"""

from __future__ import annotations

import codecs
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from types import MappingProxyType
from typing import Final

import httpx2

from bridge.a2a.client.http import (
    OutgoingRequest,
    exchange,
    json_from,
    origin_of,
    redacted_url,
    response_body,
    status_words,
    url_from,
    url_within,
)
from bridge.a2a.wire.rest import CARD_PATH, OLDER_CARD_PATH
from bridge.a2a.wire.versions import HEADER, VERSIONS
from bridge.errors import UNAUTHORIZED, PeerError
from bridge.http.client import CredentialsSource, PeerAuth, guarded_by, wants_login
from bridge.http.private_addresses import AddressGuard

CARD_LIMIT_BYTES: Final = 16 * 1024 * 1024
"""The bound on a card. A card with a thousand tools and their schemas has a few megabytes."""

_REDIRECTS: Final = 5
_STREAM: Final = "text/event-stream"
"""The media type of an event stream, which is no card and might never end."""
ABSENT: Final = (404, 405, 410)
"""The statuses for a URL without a card. The next URL is then tried."""


class NoCardError(PeerError):
    """A server answers and has no card. It may be no agent at all."""


class NoObjectError(PeerError):
    """The body at a URL is not a JSON object: a web page, for example."""


class LockedCardError(NoCardError):
    """A server shows its card only after a login, and says where a person can log in."""


_FAULTS: Final = (LockedCardError, NoObjectError, NoCardError)
"""The kinds of errors, the most helpful first. If places answer with different errors, the most helpful error is
raised."""


async def looked_for(
    http: httpx2.AsyncClient,
    url: str,
    credentials: CredentialsSource,
    guard: AddressGuard | None,
    known: str = "",
    validators: Mapping[str, str] = MappingProxyType({}),
) -> tuple[str, httpx2.Response, bytes]:
    """The URL of the card of the agent at `url`, with the response and the text at that URL.

    The bridge asks at `known` first, with these validators. It tries each place, whatever the other places answer. A
    card at the root of the origin may belong to another agent, so it is accepted only if it names `url`.

    Raises:
        NoCardError, PeerError: as for `fetch_card`; each answer is named.
    """
    faults: list[PeerError] = []
    absent: list[str] = []
    foreign = ""
    own = candidate_card_urls(url)
    for card_url in sorted((*own, *origin_card_urls(url)), key=lambda candidate: candidate != known):
        conditions = validators if card_url == known else MappingProxyType({})
        try:
            answer = await read_url(http, card_url, credentials, guard, conditions)
            if answer is not None and card_url in own:
                _require_object(*answer, card_url)
                return card_url, *answer
        except (NoCardError, NoObjectError) as exc:
            faults += [exc] if card_url in own else []
            continue
        except PeerError:
            if card_url in own:
                raise
            continue
        if answer is None:
            absent.append(card_url)
            continue
        named = _urls_on(answer[1])
        if answer[0].status_code == HTTPStatus.NOT_MODIFIED or any(
            _is_same_place(named_url, url) for named_url in named
        ):
            return card_url, *answer
        if named:
            foreign = f". The card at {redacted_url(card_url)} is of another agent: it does not name this URL"
    raise _nowhere(faults, absent or list(own), own, foreign)


def _nowhere(
    faults: Sequence[PeerError], absent: Sequence[str], own: Container[str], foreign: str
) -> PeerError:
    """The error for an agent whose card was not found, with the answer at each place."""
    if not faults:
        return NoCardError(f"{no_card_at(absent)}{foreign}")
    kind = min((type(fault) for fault in faults), key=_FAULTS.index)
    missing = [place for place in absent if place in own]
    others = (str(no_card_at(missing)),) if missing else ()
    outcome = next((fault.outcome for fault in faults if fault.outcome), "")
    return kind("; ".join(dict.fromkeys([*map(str, faults), *others])) + foreign, outcome=outcome)


def _urls_on(text: bytes) -> list[str]:
    """The URLs of the agent that a card names; empty if the body is not a card."""
    try:
        value = json_from(text, "")
    except PeerError:
        return []
    card = value if isinstance(value, dict) else {}
    lists = [card.get("supportedInterfaces"), card.get("additionalInterfaces")]
    listed = [card, *(interface for several in lists if isinstance(several, list) for interface in several)]
    return [
        url
        for interface in listed
        if isinstance(interface, dict) and isinstance(url := interface.get("url"), str)
    ]


def _is_same_place(first: str, other: str) -> bool:
    try:
        places = [(origin_of(url), url_from(url).path.rstrip("/")) for url in (first, other)]
    except PeerError:
        return False
    return places[0] == places[1]


def no_card_at(card_urls: Iterable[str]) -> NoCardError:
    """The error for an agent without a card at any of these URLs."""
    return NoCardError(f"there is no agent card at {' or '.join(map(redacted_url, card_urls))}")


def candidate_card_urls(url: str) -> tuple[str, ...]:
    """The URLs where the card of the agent at `url` may be, in the order in which they are tried."""
    parsed = url_from(url).copy_with(fragment=None)
    if parsed.path.endswith(".json"):
        return (str(parsed),)
    below = (parsed.copy_with(path=parsed.path.rstrip("/") + path) for path in (CARD_PATH, OLDER_CARD_PATH))
    return (*map(str, below), str(parsed))


def origin_card_urls(url: str) -> tuple[str, ...]:
    """The URLs of cards at the root of the origin. Many agents on a path serve their card only there."""
    parsed = url_from(url).copy_with(fragment=None, query=None)
    if parsed.path.endswith(".json") or not parsed.path.strip("/"):
        return ()
    return tuple(str(parsed.copy_with(path=path)) for path in (CARD_PATH, OLDER_CARD_PATH))


def _require_object(response: httpx2.Response, text: bytes, url: str) -> None:
    """Refuse a body that is not a JSON object.

    Raises:
        NoObjectError: the body is not a JSON object.
    """
    is_object = text.removeprefix(codecs.BOM_UTF8).lstrip()[:1] == b"{"
    if is_object or response.status_code == HTTPStatus.NOT_MODIFIED:
        return
    try:
        json_from(text, redacted_url(url))
    except PeerError as exc:
        raise NoObjectError(str(exc)) from exc
    raise NoObjectError(f"what is at {redacted_url(url)} is not an agent card")


def base_url(url: str) -> str:
    """The URL of an agent, from this URL itself or from the URL of its card at a well-known path."""
    parsed = url_from(url)
    for path in (CARD_PATH, OLDER_CARD_PATH):
        if parsed.path.endswith(path):
            return str(parsed.copy_with(path=parsed.path.removesuffix(path) or "/"))
    return url


def agent_url(url: str) -> str:
    """The URL of an agent as `base_url` gives it, without a user, a query and a fragment."""
    return str(url_from(base_url(url)).copy_with(userinfo=b"", query=None, fragment=None))


async def read_url(
    http: httpx2.AsyncClient,
    url: str,
    credentials: CredentialsSource,
    guard: AddressGuard | None = None,
    validators: Mapping[str, str] = MappingProxyType({}),
) -> tuple[httpx2.Response, bytes] | None:
    """The response and the body at a URL; None if nothing is there. The body of a 304 is empty.

    `validators` are the conditional headers. Redirects are followed within the origin, with the credentials. `guard`
    judges the connection; a `ConnectionPolicy` makes it.

    Raises:
        NoCardError: the server answers with another client error (4xx): a LockedCardError if the server requires a
            login.
        PeerError: the server cannot be reached, or answers with an error or too many redirects.
    """
    headers = {**validators, HEADER: VERSIONS.current.version, "Accept": "application/json"}
    request = OutgoingRequest(
        "GET", url, headers, extensions=guarded_by(guard), auth=PeerAuth(url_from(url), credentials)
    )
    for _ in range(_REDIRECTS + 1):
        async with exchange(http, request) as response:
            if response.has_redirect_location:
                request = replace(request, url=_redirect_target(request.url, response.headers["location"]))
                continue
            if response.status_code in ABSENT or response.headers.get("content-type", "").startswith(_STREAM):
                return None
            if response.status_code == HTTPStatus.NOT_MODIFIED:
                return response, b""
            if not response.is_success:
                fault = NoCardError if response.is_client_error else PeerError
                kind = LockedCardError if wants_login(response) else fault
                outcome = UNAUTHORIZED if response.status_code == HTTPStatus.UNAUTHORIZED else ""
                raise kind(status_words(response), outcome=outcome)
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
