"""A card that is kept: on disk so that a start need not wait for it, and fresh while a bridge runs.

It knows what HTTP says about how long an answer holds, within bounds that are ours. A card that cannot be
fetched anew stays what it was. Files that cannot be read are as good as absent.

Spec: A2A 1.0 section 8.6; RFC 9111 sections 4.2 (freshness) and 4.3 (validation).
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Final, NoReturn
from uuid import uuid4

import anyio
import anyio.to_thread
import httpx2
from pydantic import BaseModel, ConfigDict, ValidationError

from bridge.a2a.card import NOT_MODIFIED, FoundCard, absent, card_places, found_card, read_place
from bridge.a2a.fetch import Guard, UnansweredError, shown
from bridge.errors import PeerError

logger = logging.getLogger(__name__)

_MAX_AGE: Final = re.compile(r'(?:^|,)\s*max-age\s*=\s*"?(\d{1,10})', re.IGNORECASE)
_NO_STORE: Final = re.compile(r"(?:^|,)\s*no-store\b", re.IGNORECASE)
_NO_CACHE: Final = re.compile(r"(?:^|,)\s*no-cache\s*(?:,|$)", re.IGNORECASE)
_VALIDATORS: Final = {"etag": "If-None-Match", "last-modified": "If-Modified-Since"}
"""What an answer gives, and how it is given back."""


@dataclass(frozen=True, slots=True)
class CardBounds:
    """How long a card holds, whatever its server says, and how it is asked for anew."""

    min_seconds: float = 60.0
    max_seconds: float = 3600.0
    retry_seconds: float = 2.0
    """Until it is asked for again when it could not be had; doubled each time, up to `min_seconds`."""
    answer_seconds: float = 30.0
    """How long its server may take."""


class _Kept(BaseModel):
    """A card as it is kept."""

    model_config = ConfigDict(frozen=True)

    place: str
    text: str
    validators: dict[str, str]
    """The conditional headers by which it is asked for anew."""
    fresh_until: float
    """Seconds since the epoch: it outlives the process."""
    may_be_stored: bool = True


@dataclass(slots=True)
class _Held:
    """What a source has in its hands: the kept form of a card, and the card."""

    kept: _Kept
    found: FoundCard = field(repr=False)


class CardSource:
    """Where one agent's card comes from."""

    def __init__(
        self,
        http: httpx2.AsyncClient,
        url: str,
        folder: Path | None,
        bounds: CardBounds = CardBounds(),
        headers: Mapping[str, str] | None = None,
        guard: Guard | None = None,
    ) -> None:
        """`folder` keeps the card between two runs; None keeps it in memory alone. `headers` go to `url`'s origin,
        connections to which `guard` judges."""
        self.url = url
        self._http = http
        self._bounds = bounds
        self._headers = dict(headers or {})
        self._guard = guard
        name = hashlib.sha256(url.encode()).hexdigest()[:32]
        self._file = folder / f"{name}.json" if folder else None
        self._held: _Held | None = None

    def cached(self) -> FoundCard | None:
        """The card as it was last seen, by this run or an earlier one, however old; None when it never was."""
        if self._held is None and self._file is not None:
            self._held = _read(self._file)
        return self._held.found if self._held else None

    async def refresh(self) -> FoundCard:
        """The card as it is now, asked for with what is known of it. An unchanged card is the same object.

        Raises:
            PeerError: it cannot be reached, or what is there is no card. What was known stays `cached`.
        """
        known = self._held.kept.place if self.cached() and self._held else ""
        try:
            with anyio.fail_after(self._bounds.answer_seconds):
                for place in sorted(card_places(self.url), key=lambda place: place != known):
                    if (answer := await self._ask(place)) is not None:
                        return await self._take(place, *answer)
        except TimeoutError as exc:
            late = f"{shown(self.url)} gave no card within {self._bounds.answer_seconds:g} s"
            raise UnansweredError(late) from exc
        raise absent(card_places(self.url))

    async def watch(self, on_change: Callable[[FoundCard], Awaitable[None]]) -> NoReturn:
        """Ask for the card whenever it has grown old, for ever, and tell of each one that says something new.

        A card that was not there at the start is new when it comes. What goes wrong is logged, and asked for again.
        """
        pause_seconds = self._bounds.retry_seconds
        while True:
            before = self.cached()
            await anyio.sleep(self._seconds_left() if before else 0)
            try:
                found = await self.refresh()
            except PeerError as exc:
                logger.warning("the card of an agent is not read anew: %s", exc)
                await anyio.sleep(pause_seconds)
                pause_seconds = min(2 * pause_seconds, max(self._bounds.min_seconds, pause_seconds))
                continue
            pause_seconds = self._bounds.retry_seconds
            if before is None or found.text != before.text:
                await on_change(found)

    def _seconds_left(self) -> float:
        """Until the card is to be asked for again; a clock that was set back does not make it older than it may be."""
        left = self._held.kept.fresh_until - time.time() if self._held else 0
        return min(max(left, 0), self._bounds.max_seconds)

    async def _ask(self, place: str) -> tuple[httpx2.Response, bytes] | None:
        known = self._held.kept.validators if self._held and self._held.kept.place == place else {}
        return await read_place(self._http, place, {**self._headers, **known}, self._guard)

    async def _take(self, place: str, response: httpx2.Response, text: bytes) -> FoundCard:
        held = self._held
        if response.status_code == NOT_MODIFIED:
            if held is None:
                raise PeerError(
                    f"{shown(self.url)} says that its card has not changed, but it was never seen"
                )
            text = held.kept.text.encode()
        is_same = held is not None and (held.found.url, held.found.text) == (place, text)
        found = held.found if held and is_same else found_card(place, text)
        validators = validators_in(response.headers)
        if response.status_code == NOT_MODIFIED and held:
            validators = {**held.kept.validators, **validators}
        kept = _Kept(
            place=place,
            text=found.text.decode(),
            validators=validators,
            fresh_until=time.time() + fresh_seconds(response.headers, self._bounds),
            may_be_stored=may_be_stored(response.headers),
        )
        self._held = _Held(kept, found)
        if self._file is not None:
            await anyio.to_thread.run_sync(_write, self._file, kept)
        return found


def fresh_seconds(headers: httpx2.Headers, bounds: CardBounds) -> float:
    """How long an answer holds by its headers, within the bounds (RFC 9111 section 4.2). A private cache's reading."""
    said = headers.get("cache-control", "")
    seconds = 0.0
    if _NO_CACHE.search(said) or _NO_STORE.search(said):
        pass
    elif found := _MAX_AGE.search(said):
        age = headers.get("age", "")
        seconds = float(found[1]) - (float(age) if age.isdecimal() else 0)
    elif "expires" in headers:
        with suppress(ValueError, TypeError):
            until = parsedate_to_datetime(headers["expires"]).timestamp()
            date = parsedate_to_datetime(headers["date"]).timestamp() if "date" in headers else time.time()
            seconds = until - date
    return min(max(seconds, bounds.min_seconds), bounds.max_seconds)


def validators_in(headers: httpx2.Headers) -> dict[str, str]:
    """The headers by which what was answered with these is asked for anew."""
    given = {asked: headers.get(got, "") for got, asked in _VALIDATORS.items()}
    # What cannot be sent as a header is not given back.
    return {asked: said for asked, said in given.items() if said and said.isascii() and said.isprintable()}


def may_be_stored(headers: httpx2.Headers) -> bool:
    """Whether an answer may be kept on disk."""
    return not _NO_STORE.search(headers.get("cache-control", ""))


def write_privately(file: Path, text: bytes) -> None:
    """Keep a text: whole or not at all, and for its owner's eyes, as the URLs in it may hold keys."""
    beside = file.with_name(f"{file.name}.{uuid4().hex}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            out.write(text)
        beside.replace(file)
    except OSError as exc:
        logger.warning("%s cannot be kept: %s", file, exc)
        with suppress(OSError):
            beside.unlink(missing_ok=True)


def _read(file: Path) -> _Held | None:
    try:
        kept = _Kept.model_validate_json(file.read_bytes())
        return _Held(kept, found_card(kept.place, kept.text.encode()))
    except FileNotFoundError:
        return None
    except (OSError, ValidationError, PeerError) as exc:
        logger.debug("%s is passed over: %s", file, exc)
        return None


def _write(file: Path, kept: _Kept) -> None:
    if kept.may_be_stored:
        write_privately(file, kept.model_dump_json().encode())
        return
    with suppress(OSError):
        file.unlink(missing_ok=True)
