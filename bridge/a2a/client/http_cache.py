"""What is followed at a URL: kept on disk, so that a start need not wait for it, and fresh while a bridge runs.

It holds for as long as HTTP says, within bounds that are ours. What cannot be read anew stays what it was. Files that
cannot be read are as good as absent. What an answer means is for those to say who follow it: `card_cache.py` a card,
`catalog.py` a catalog.

Spec: RFC 9111 sections 4.2 (freshness), 4.3 (validation) and 5.2.2.5 (no-store).
"""

from __future__ import annotations

import hashlib
import logging
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, Final, Generic, NoReturn, Self, TypeVar

import anyio
import anyio.to_thread
import httpx2
from pydantic import BaseModel, ConfigDict, ValidationError

from bridge.a2a.client.http import UnansweredError, redacted_url
from bridge.backoff import Backoff
from bridge.errors import PeerError, UsageError
from bridge.private_files import write_privately

logger = logging.getLogger(__name__)

_MAX_AGE: Final = re.compile(r'(?:^|,)\s*max-age\s*=\s*"?(\d{1,10})', re.IGNORECASE)
_NO_STORE: Final = re.compile(r"(?:^|,)\s*no-store\b", re.IGNORECASE)
_NO_CACHE: Final = re.compile(r"(?:^|,)\s*no-cache\s*(?:,|$)", re.IGNORECASE)
_VALIDATORS: Final = {"etag": "If-None-Match", "last-modified": "If-Modified-Since"}
"""What an answer gives, and how it is given back."""


@dataclass(frozen=True, slots=True)
class FreshnessBounds:
    """How long a card holds, whatever its server says, and how it is asked for anew."""

    min_seconds: float
    max_seconds: float
    retry_seconds: float = 2.0
    """Until it is asked for again when it could not be had; doubled each time, up to `min_seconds`."""
    answer_seconds: float = 30.0
    """How long its server may take."""

    def pauses(self) -> Backoff:
        """Between two attempts to have it."""
        return Backoff(self.retry_seconds, max(self.min_seconds, self.retry_seconds))


class StoredResponse(BaseModel):
    """What is kept of an answer."""

    model_config = ConfigDict(frozen=True)

    fresh_until: float
    """Seconds since the epoch: it outlives the process."""
    may_be_stored: bool = True

    @classmethod
    def read(cls, file: Path) -> Self | None:
        """What a file holds; None when there is none, or it cannot be read."""
        try:
            return cls.model_validate_json(file.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as exc:
            logger.debug("%s is passed over: %s", file, exc)
            return None

    def write(self, file: Path) -> None:
        """Put it into a file, in the place of what was kept before; or nothing, when it may not be stored."""
        if self.may_be_stored:
            try:
                # For its owner's eyes, as the URLs in it may hold keys.
                write_privately(file, self.model_dump_json().encode())
            except (OSError, UsageError) as exc:
                logger.warning("%s cannot be kept: %s", file, exc)
            return
        with suppress(OSError):
            file.unlink(missing_ok=True)


KeptT = TypeVar("KeptT", bound=StoredResponse)
ValueT = TypeVar("ValueT")


@dataclass(frozen=True, slots=True)
class CachedValue(Generic[KeptT, ValueT]):
    """What is in hand: an answer as it is kept, and what was read of it."""

    kept: KeptT
    value: ValueT = field(repr=False)


class CachedResource(ABC, Generic[KeptT, ValueT]):
    """Where something comes from that is followed."""

    word: ClassVar[str]
    """What it is called in messages."""
    kept_type: type[KeptT]

    def __init__(
        self, http: httpx2.AsyncClient, url: str, folder: Path | None, bounds: FreshnessBounds, kept_as: str
    ) -> None:
        """`folder` keeps it between two runs; None keeps it in memory alone. There its name is made of `kept_as`."""
        self.url = url
        self._http = http
        self._bounds = bounds
        name = hashlib.sha256(kept_as.encode()).hexdigest()[:32]
        self._file = folder / f"{name}.json" if folder else None
        self._held: CachedValue[KeptT, ValueT] | None = None

    @abstractmethod
    async def _fetch(self, held: CachedValue[KeptT, ValueT] | None) -> CachedValue[KeptT, ValueT]:
        """What is there now, asked for with what is held of it. What has not changed is the same object.

        Raises:
            PeerError: it cannot be reached, or what is there is something else.
        """

    @abstractmethod
    def _read(self, kept: KeptT) -> ValueT:
        """What was kept, read again.

        Raises:
            PeerError: it cannot be read.
        """

    @abstractmethod
    def _is_news(self, before: ValueT, now: ValueT) -> bool:
        """Whether something is to be told of."""

    def cached(self) -> ValueT | None:
        """What was seen last, by this run or an earlier one, however old; None when it never was."""
        if self._held is None and self._file is not None:
            self._held = self._held_in(self._file)
        return self._held.value if self._held else None

    def _held_in(self, file: Path) -> CachedValue[KeptT, ValueT] | None:
        kept = self.kept_type.read(file)
        try:
            return CachedValue(kept, self._read(kept)) if kept else None
        except PeerError as exc:
            logger.debug("%s is passed over: %s", file, exc)
            return None

    async def refresh(self) -> ValueT:
        """What is there now, asked for with what is known of it. What has not changed is the same object.

        Raises:
            PeerError: it cannot be reached, or what is there is something else. What was known stays `cached`.
        """
        self.cached()
        try:
            with anyio.fail_after(self._bounds.answer_seconds):
                held = self._held = await self._fetch(self._held)
        except TimeoutError as exc:
            late = f"{redacted_url(self.url)} gave no {self.word} within {self._bounds.answer_seconds:g} s"
            raise UnansweredError(late) from exc
        if self._file is not None:
            await anyio.to_thread.run_sync(held.kept.write, self._file)
        return held.value

    async def watch(self, on_change: Callable[[ValueT], Awaitable[None]]) -> NoReturn:
        """Ask anew whenever it has grown old, for ever, and tell of what is new.

        What was not there at the start is new when it comes. What goes wrong is logged, and asked for again.
        """
        pauses = self._bounds.pauses()
        while True:
            before = self.cached()
            await anyio.sleep(self._seconds_left())
            try:
                now = await self.refresh()
            except PeerError as exc:
                logger.warning("a %s is not read anew: %s", self.word, exc)
                await anyio.sleep(pauses.next())
                continue
            pauses.reset()
            if before is None or self._is_news(before, now):
                await on_change(now)

    def _seconds_left(self) -> float:
        """Until it is to be asked for again; a clock that was set back does not make it older than it may be."""
        left = self._held.kept.fresh_until - time.time() if self._held else 0
        return min(max(left, 0), self._bounds.max_seconds)


def fresh_seconds(headers: httpx2.Headers, bounds: FreshnessBounds) -> float:
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


def validators_of(
    response: httpx2.Response, known: Mapping[str, str] = MappingProxyType({})
) -> dict[str, str]:
    """The headers by which what was answered is asked for anew; unchanged, it has those that were known besides."""
    given = {asked: response.headers.get(got, "") for got, asked in _VALIDATORS.items()}
    # What cannot be sent as a header is not given back.
    new = {asked: said for asked, said in given.items() if said and said.isascii() and said.isprintable()}
    return {**known, **new} if response.status_code == HTTPStatus.NOT_MODIFIED else new


def may_be_stored(headers: httpx2.Headers) -> bool:
    """Whether an answer may be kept on disk."""
    return not _NO_STORE.search(headers.get("cache-control", ""))
