"""One attempt to send a notification: the request, the addresses that it may go to, and the meaning of the answer.

The host name of a receiver is resolved for each connection, all its addresses are judged, and the connection is made to
one of them. Redirects are not followed. The proxy of the environment is not used, since it would resolve the name
again.

Spec: A2A 1.0 sections 4.3.3 and 13.2; Standard Webhooks 1.0.0.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final
from urllib.parse import urlsplit

import anyio
import httpcore2
import httpx2
from pydantic_core import from_json

from bridge.a2a.push.signatures import PushSigner
from bridge.a2a.tasks.webhooks import SealedWebhook, place_of
from bridge.a2a.wire.rest import MEDIA_TYPE, PLAIN_MEDIA_TYPE
from bridge.a2a.wire.versions import HEADER, VERSIONS
from bridge.http.client import GuardedTransport, guarded_by, registered_scheme
from bridge.http.private_addresses import AddressGuard, PrivateAddressError, addresses_of, refusing_private
from bridge.store.outbox import OutboxRow
from bridge.text.jsonvalues import json_bytes
from bridge.version import __version__

_CURRENT: Final = {"Content-Type": MEDIA_TYPE, HEADER: VERSIONS.current.version}
_OLDER: Final = {"Content-Type": PLAIN_MEDIA_TYPE}
_GONE: Final = 410
_REFUSAL: Final = "it leads to this machine or its network"


@dataclass(frozen=True, slots=True)
class Attempt:
    """The result of an attempt."""

    failure: str | None = None
    """Why the attempt failed; None if the receiver has the notification."""
    is_final: bool = False
    """Whether the receiver wants no more notifications."""
    wait_seconds: float = 0
    """How long the receiver asks the bridge to wait."""


@dataclass(frozen=True, slots=True)
class PushBounds:
    """The bounds of an attempt."""

    attempt_seconds: float
    """The time limit from the look-up of the host name to the end of the answer."""
    answer_bytes: int
    """The most bytes of an answer that are read."""


@dataclass
class PushClient:
    """Sends notifications."""

    signer: PushSigner
    bounds: PushBounds
    now_ms: Callable[[], int]
    allow: frozenset[str] = frozenset()
    """`host:port` of receivers that may be in private networks."""
    guard: AddressGuard = field(
        default_factory=lambda: AddressGuard(refusing_private(_REFUSAL), addresses_of)
    )
    """Judges the addresses of all other receivers."""
    verify: ssl.SSLContext | bool = True

    def __post_init__(self) -> None:
        self._transport = GuardedTransport(verify=self.verify)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()

    async def send(self, webhook: SealedWebhook, task_id: str, row: OutboxRow) -> Attempt:
        """Try once to send a row. It does not raise: what goes wrong is a failed attempt."""
        try:
            with anyio.fail_after(self.bounds.attempt_seconds):
                return await self._sent(webhook, task_id, row)
        except TimeoutError:
            return Attempt(f"it took longer than {self.bounds.attempt_seconds:g} s")
        except PrivateAddressError as exc:
            return Attempt(str(exc))
        except (httpx2.HTTPError, httpx2.InvalidURL, httpcore2.ConnectError, OSError, ValueError) as exc:
            return Attempt(f"it cannot be reached: {str(exc) or type(exc).__name__}")

    async def _sent(self, webhook: SealedWebhook, task_id: str, row: OutboxRow) -> Attempt:
        if webhook.gets_tasks:
            row = row._replace(event=_older_task(row.event))
        request = self._request(webhook, task_id, row)
        response = await self._transport.handle_async_request(request)
        try:
            await self._read(response)
        finally:
            await response.aclose()
        return self._judged(response)

    def _request(self, webhook: SealedWebhook, task_id: str, row: OutboxRow) -> httpx2.Request:
        config, seconds = webhook.config, self.now_ms() // 1000
        place = place_of(urlsplit(config.url))
        webhook_id = f"msg_{webhook.mark}_{row.seq}"
        headers = {
            "User-Agent": f"mcp-a2a/{__version__}",
            **(_OLDER if webhook.gets_tasks else _CURRENT),
            "webhook-id": webhook_id,
            "webhook-timestamp": str(seconds),
            "webhook-signature": self.signer.signatures(webhook_id, seconds, row.event, place),
        }
        if config.token:
            headers["X-A2A-Notification-Token"] = config.token
        if (authentication := config.authentication) is not None:
            credentials = authentication.credentials
            if not credentials and authentication.scheme.lower() == "bearer":
                credentials = self.signer.token(webhook_id, seconds, row.event, config.url, task_id)
            if credentials:
                headers["Authorization"] = f"{registered_scheme(authentication.scheme)} {credentials}"
        guard = None if place in self.allow else self.guard
        return httpx2.Request(
            "POST", config.url, headers=headers, content=row.event, extensions=guarded_by(guard)
        )

    async def _read(self, response: httpx2.Response) -> None:
        """Read the beginning of an answer, since a receiver may notice if nobody reads it."""
        size = 0
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        async for chunk in response.stream:
            size += len(chunk)
            if size >= self.bounds.answer_bytes:
                return

    def _judged(self, response: httpx2.Response) -> Attempt:
        status = response.status_code
        if response.is_success:
            return Attempt()
        if response.has_redirect_location or 300 <= status < 400:
            return Attempt(f"it answered {status}, and redirects are not followed")
        attempt = Attempt(f"it answered {status}", is_final=status == _GONE)
        return replace(attempt, wait_seconds=self._wait_seconds(response.headers.get("Retry-After", "")))

    def _wait_seconds(self, text: str) -> float:
        """The wait that `Retry-After` asks for: in seconds, or until a date (RFC 9110 section 10.2.3)."""
        if text.isdecimal() and text.isascii():
            return float(text[:9])
        with suppress(ValueError, TypeError):
            at = parsedate_to_datetime(text)
            at = at if at.tzinfo else at.replace(tzinfo=UTC)
            return max(0.0, (at - datetime.fromtimestamp(self.now_ms() / 1000, UTC)).total_seconds())
        return 0.0


def _older_task(event: bytes) -> bytes:
    """The task of an event in the form of A2A 0.3 (0.3 section 9.5). An event without a task gets the field names of
    0.3."""
    return json_bytes(VERSIONS.older_event(from_json(event)))
