"""A resource that is cached on disk and refreshed while a bridge runs. A start need not wait for it.

A cached response is fresh for as long as HTTP says, within configured bounds. If a refresh fails, the last value stays.
A file that cannot be read counts as absent. Subclasses know the content: `agent_card.py` and `catalog.py`.

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
from functools import partial
from http import HTTPStatus
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, Final, Generic, NoReturn, Self, TypeVar

import anyio
import anyio.to_thread
import httpx2
from pydantic import BaseModel, ConfigDict, ValidationError

from bridge.a2a.client.http import UnansweredError, redacted_url
from bridge.concurrency import Backoff, border
from bridge.errors import PeerError, UsageError
from bridge.http.client import NO_CREDENTIALS, CredentialsSource
from bridge.local.private_files import STATE_BYTES, read_regular, write_privately

logger = logging.getLogger(__name__)

_MAX_AGE: Final = re.compile(r'(?:^|,)\s*max-age\s*=\s*"?(\d{1,10})', re.IGNORECASE)
_NO_STORE: Final = re.compile(r"(?:^|,)\s*no-store\b", re.IGNORECASE)
_NO_CACHE: Final = re.compile(r"(?:^|,)\s*no-cache\s*(?:,|$)", re.IGNORECASE)
_VALIDATORS: Final = {"etag": "If-None-Match", "last-modified": "If-Modified-Since"}
"""The validators of a response, and the conditional header that sends each back."""


@dataclass(frozen=True, slots=True)
class FreshnessBounds:
    """The bounds on the freshness of a response, whatever its server says, and the times of a refresh."""

    min_seconds: float
    max_seconds: float
    retry_seconds: float = 2.0
    """The pause after a failed refresh. It doubles with each failure, up to `min_seconds`."""
    answer_seconds: float = 30.0
    """How long the server may take to answer."""

    def pauses(self) -> Backoff:
        """The pauses between failed refreshes."""
        return Backoff(self.retry_seconds, max(self.min_seconds, self.retry_seconds))


class StoredResponse(BaseModel):
    """A response as it is stored in a file."""

    model_config = ConfigDict(frozen=True)

    fresh_until: float
    """Seconds since the epoch, since the file outlives the process."""
    may_be_stored: bool = True

    @classmethod
    def read(cls, file: Path) -> Self | None:
        """The response in a file; None if there is no such file, or it cannot be read."""
        try:
            return cls.model_validate_json(read_regular(file, STATE_BYTES))
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as exc:
            logger.debug("%s is ignored: %s", file, exc)
            return None

    def write(self, file: Path) -> None:
        """Write the response into a file, or delete the file if the response may not be stored."""
        if self.may_be_stored:
            try:
                # The file is private to its owner, since the URLs in it may hold keys.
                write_privately(file, self.model_dump_json().encode())
            except (OSError, UsageError) as exc:
                logger.warning("%s cannot be kept: %s", file, exc)
            return
        with suppress(OSError):
            file.unlink(missing_ok=True)


class DistrustedError(PeerError):
    """The answer of a server must not be used, and neither may its earlier answers."""


KeptT = TypeVar("KeptT", bound=StoredResponse)
ValueT = TypeVar("ValueT")


@dataclass(frozen=True, slots=True)
class CachedValue(Generic[KeptT, ValueT]):
    """A stored response and the value that was read from it."""

    kept: KeptT
    value: ValueT = field(repr=False)


class CachedResource(ABC, Generic[KeptT, ValueT]):
    """A resource at a URL, cached and refreshed."""

    word: ClassVar[str]
    """The name of the resource in messages."""
    kept_under: ClassVar[str] = ""
    """A prefix of the URL in the hash that names the file, so that a card and a catalog at one URL have different
    files."""
    kept_type: type[KeptT]

    def __init__(
        self,
        http: httpx2.AsyncClient,
        url: str,
        folder: Path | None,
        bounds: FreshnessBounds,
        credentials: CredentialsSource = NO_CREDENTIALS,
    ) -> None:
        """`folder` keeps the resource between two runs; None keeps it in memory only. `credentials` are sent to the
        origin of `url` only."""
        self.url = url
        self._http = http
        self._bounds = bounds
        self._credentials = credentials
        name = hashlib.sha256(f"{self.kept_under}{url}".encode()).hexdigest()[:32]
        self._file = folder / f"{name}.json" if folder else None
        self._held: CachedValue[KeptT, ValueT] | None = None

    @abstractmethod
    async def _fetch(self, held: CachedValue[KeptT, ValueT] | None) -> CachedValue[KeptT, ValueT]:
        """Fetch the resource, conditionally on the `held` value. The value of an unchanged resource is the same object.

        Raises:
            PeerError: the server cannot be reached, or its answer is not such a resource.
        """

    @abstractmethod
    def _read(self, stored: KeptT) -> ValueT:
        """The value of a stored response.

        Raises:
            PeerError: the stored response cannot be read.
        """

    @abstractmethod
    def _is_news(self, before: ValueT, now: ValueT) -> bool:
        """Whether watchers are told of the change."""

    def cached(self) -> ValueT | None:
        """The last known value, of this run or an earlier one, however old; None if there is none."""
        if self._held is None and self._file is not None:
            self._held = self._held_in(self._file)
        return self._held.value if self._held else None

    def _held_in(self, file: Path) -> CachedValue[KeptT, ValueT] | None:
        stored = self.kept_type.read(file)
        try:
            return CachedValue(stored, self._read(stored)) if stored else None
        except PeerError as exc:
            logger.debug("%s is ignored: %s", file, exc)
        except Exception:  # a file that stopped one run of the process must not stop the next
            logger.exception("%s is ignored", file)
        return None

    async def refresh(self) -> ValueT:
        """Fetch the resource anew. The value of an unchanged resource is the same object.

        Raises:
            DistrustedError: the answer must not be used. The `cached` value is dropped.
            PeerError: the server cannot be reached, or its answer is not such a resource. The last value stays
                `cached`.
        """
        self.cached()
        try:
            with anyio.fail_after(self._bounds.answer_seconds):
                held = self._held = await self._fetch(self._held)
        except DistrustedError:
            self._held = None
            if self._file is not None:
                await anyio.to_thread.run_sync(partial(self._file.unlink, missing_ok=True))
            raise
        except TimeoutError as exc:
            late = f"{redacted_url(self.url)} gave no {self.word} within {self._bounds.answer_seconds:g} s"
            raise UnansweredError(late) from exc
        if self._file is not None:
            await anyio.to_thread.run_sync(held.kept.write, self._file)
        return held.value

    async def watch(
        self,
        on_change: Callable[[ValueT], Awaitable[None]],
        on_distrust: Callable[[DistrustedError], None] = lambda _: None,
    ) -> NoReturn:
        """Refresh the resource whenever it is stale, for ever, and call `on_change` with each new value.

        The first value counts as new if nothing was cached at the start. A failed refresh is logged and tried again. If
        an answer must not be used, `on_distrust` is called with the reason.
        """
        pauses = self._bounds.pauses()
        is_told = True
        while True:
            before = self.cached()
            await anyio.sleep(self._seconds_left())
            was_read = False
            with border(logger, f"the {self.word} at {redacted_url(self.url)}"):
                try:
                    now = await self.refresh()
                except PeerError as exc:
                    logger.warning("a %s could not be refreshed: %s", self.word, exc)
                    if isinstance(exc, DistrustedError):
                        on_distrust(exc)
                else:
                    was_read, is_news = True, before is None or self._is_news(before, now)
                    if is_news or not is_told:
                        is_told = False
                        await on_change(now)
                        is_told = True
            if was_read:
                pauses.reset()
            else:
                await anyio.sleep(pauses.next())

    def _seconds_left(self) -> float:
        """The time until the next refresh. It is bounded, so that a clock that was set back does not delay it."""
        left = self._held.kept.fresh_until - time.time() if self._held else 0
        return min(max(left, 0), self._bounds.max_seconds)


def fresh_seconds(headers: httpx2.Headers, bounds: FreshnessBounds) -> float:
    """How long a response is fresh for a private cache, within the bounds (RFC 9111 section 4.2)."""
    directives = headers.get("cache-control", "")
    seconds = 0.0
    if _NO_CACHE.search(directives) or _NO_STORE.search(directives):
        pass
    elif max_age := _MAX_AGE.search(directives):
        age = headers.get("age", "")
        seconds = float(max_age[1]) - (float(age) if age.isdecimal() else 0)
    elif "expires" in headers:
        with suppress(ValueError, TypeError):
            until = parsedate_to_datetime(headers["expires"]).timestamp()
            date = parsedate_to_datetime(headers["date"]).timestamp() if "date" in headers else time.time()
            seconds = until - date
    return min(max(seconds, bounds.min_seconds), bounds.max_seconds)


def validators_of(
    response: httpx2.Response, known: Mapping[str, str] = MappingProxyType({})
) -> dict[str, str]:
    """The conditional headers for the next request. A 304 keeps the known ones."""
    validators = {name: response.headers.get(got, "") for got, name in _VALIDATORS.items()}
    # A value that cannot be sent as a header is left out.
    new = {
        name: value for name, value in validators.items() if value and value.isascii() and value.isprintable()
    }
    return {**known, **new} if response.status_code == HTTPStatus.NOT_MODIFIED else new


def may_be_stored(headers: httpx2.Headers) -> bool:
    """Whether a response may be stored on disk."""
    return not _NO_STORE.search(headers.get("cache-control", ""))
