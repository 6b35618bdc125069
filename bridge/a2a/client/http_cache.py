"""Answers that are kept: for how long, as HTTP says, and on disk, so that a start need not wait for them.

What HTTP says holds within bounds that are ours. Files that cannot be read are as good as absent.

Spec: RFC 9111 sections 4.2 (freshness), 4.3 (validation) and 5.2.2.5 (no-store).
"""

from __future__ import annotations

import logging
import re
import time
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Final, Self

import httpx2
from pydantic import BaseModel, ConfigDict, ValidationError

from bridge.errors import UsageError
from bridge.pauses import Pauses
from bridge.private import write_privately

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

    def pauses(self) -> Pauses:
        """Between two attempts to have it."""
        return Pauses(self.retry_seconds, max(self.min_seconds, self.retry_seconds))


class Kept(BaseModel):
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
