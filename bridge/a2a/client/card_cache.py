"""A card that is kept: on disk so that a start need not wait for it, and fresh while a bridge runs.

A card that cannot be fetched anew stays what it was.

Spec: A2A 1.0 section 8.6.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import anyio
import anyio.to_thread
import httpx2

from bridge.a2a.client.card import NOT_MODIFIED, FoundCard, absent, card_places, found_card, read_place
from bridge.a2a.client.http import NotReachedError, UnansweredError, shown
from bridge.a2a.client.http_cache import CardBounds, Kept, fresh_seconds, may_be_stored, validators_in
from bridge.address import Wanted, explained
from bridge.errors import PeerError
from bridge.networks import Guard

logger = logging.getLogger(__name__)


class _Kept(Kept):
    """A card as it is kept."""

    place: str
    text: str
    validators: dict[str, str]
    """The conditional headers by which it is asked for anew."""


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
        bounds: CardBounds | None = None,
        headers: Mapping[str, str] | None = None,
        guard: Guard | None = None,
        *,
        is_learned: bool = False,
    ) -> None:
        """`folder` keeps the card between two runs; None keeps it in memory alone. `headers` go to `url`'s origin,
        connections to which `guard` judges. `is_learned` says that the URL is not the user's own."""
        self.url = url
        self._http = http
        self._bounds = bounds or CardBounds()
        self._headers = dict(headers or {})
        self._guard = guard
        self._is_learned = is_learned
        name = hashlib.sha256(url.encode()).hexdigest()[:32]
        self._file = folder / f"{name}.json" if folder else None
        self._held: _Held | None = None
        self._fault, self._explained = "", ""
        """What was wrong when it was read last, and the same with what stands there instead."""

    def cached(self) -> FoundCard | None:
        """The card as it was last seen, by this run or an earlier one, however old; None when it never was."""
        if self._held is None and self._file is not None:
            self._held = _read(self._file)
        return self._held.found if self._held else None

    async def refresh(self) -> FoundCard:
        """The card as it is now, asked for with what is known of it. An unchanged card is the same object.

        Raises:
            PeerError: it cannot be reached, or what is there is no card; then what it is instead, where the URL is
            the user's own. What was known stays `cached`.
        """
        try:
            return await self._read()
        except NotReachedError:
            raise
        except PeerError as exc:
            if self._held is not None or self._is_learned:
                raise
            if str(exc) != self._fault:
                self._fault = str(exc)
                self._explained = str(
                    await explained(
                        exc, self._http, self.url, Wanted.AGENT, self._guard, self._bounds.answer_seconds
                    )
                )
            raise type(exc)(self._explained, detail=exc.detail) from exc

    async def _read(self) -> FoundCard:
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
        pauses = self._bounds.pauses()
        while True:
            before = self.cached()
            await anyio.sleep(self._seconds_left() if before else 0)
            try:
                found = await self.refresh()
            except PeerError as exc:
                logger.warning("the card of an agent is not read anew: %s", exc)
                await anyio.sleep(pauses.next())
                continue
            pauses.reset()
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
            await anyio.to_thread.run_sync(kept.write, self._file)
        return found


def _read(file: Path) -> _Held | None:
    kept = _Kept.read(file)
    if kept is None:
        return None
    try:
        return _Held(kept, found_card(kept.place, kept.text.encode()))
    except PeerError as exc:
        logger.debug("%s is passed over: %s", file, exc)
        return None
