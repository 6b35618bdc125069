"""Finds, fetches and keeps the keys of an issuer, or of the signer of an agent's card.

The last good key set stays until a fetch brings a new set. One fetch runs at a time, and other requests wait for its
result. A token that no known key has signed starts a fetch. Such fetches are throttled: a flood of such tokens must not
reach the issuer.

A URL in the configuration may lead to a private address, unless its name led to a public address before. A URL in
metadata must have the issuer's origin, lead to a public address, or be allowed by the configuration.

Spec: RFC 8414 section 3; OpenID Connect Discovery 1.0 section 4; RFC 7517.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import Final, TypeVar
from urllib.parse import urlsplit

import anyio
import httpx2

from bridge.http.documents import DocumentError, DocumentLimits, MissingDocumentError, fetched_json
from bridge.http.private_addresses import (
    AddressGuard,
    RebindingJudge,
    ResolveName,
    addresses_of,
    allowing_private,
    is_private_host,
    refusing_private,
)
from bridge.identity.callers.issuers import OPENID, IssuerMetadata, IssuerPlace
from bridge.identity.callers.json_web_tokens import IssuerKey, UnknownSignerError, keys_in
from bridge.settings import IssuerSettings

logger = logging.getLogger(__name__)

_OAUTH: Final = "/.well-known/oauth-authorization-server"

_Verified = TypeVar("_Verified")


class NoKeysError(Exception):
    """No key set of the issuer was ever fetched."""

    def __init__(self, retry_seconds: float) -> None:
        super().__init__("the keys of its issuer are not known yet")
        self.retry_seconds = retry_seconds


class KeySource:
    """The keys and the metadata of one issuer."""

    def __init__(
        self,
        name: str,
        place: IssuerPlace,
        http: httpx2.AsyncClient,
        limits: IssuerSettings,
        resolve: ResolveName = addresses_of,
        section: str = "issuers",
    ) -> None:
        """`name` is the issuer's name in the configuration, in the table `section`."""
        self.metadata: IssuerMetadata | None = None
        """The metadata; None until it is fetched."""
        self._name = f"{section}.{name}"
        self._place = place
        self._http = http
        self._limits = limits
        self._resolve = resolve
        self._seen: dict[str, RebindingJudge] = {}
        self._fetching = anyio.Lock()
        self._keys: tuple[IssuerKey, ...] = ()
        self._fetched_at = self._tried_at = -math.inf

    async def keys(self) -> Sequence[IssuerKey]:
        """The keys; fetches them if they are too old.

        Raises:
            NoKeysError: no key set was ever fetched.
        """
        if self._is_old() and not (self._keys and self._fetching.statistics().locked):
            await self._fetch_unless_tried(self._retry_pause())
        return self._known()

    async def keys_after_unknown(self) -> Sequence[IssuerKey]:
        """Fetch the keys again, because none of them has signed a token, and return them. After a recent fetch, the
        known keys are returned.

        Raises:
            NoKeysError: no key set was ever fetched.
        """
        await self._fetch_unless_tried(self._limits.unknown_key_seconds)
        return self._known()

    async def verified(self, verify: Callable[[Sequence[IssuerKey]], _Verified]) -> _Verified:
        """The result of `verify` for the keys. If none of the keys has signed the token, the keys are fetched again,
        unless the last fetch was too recent: the token may name a new key, reuse the id of an old key, or name no key.

        Raises:
            NoKeysError: no key set was ever fetched.
            WrongTokenError: see `verify`.
        """
        keys = await self.keys()
        try:
            return verify(keys)
        except UnknownSignerError:
            again = await self.keys_after_unknown()
            if again is keys:
                raise
            return verify(again)

    async def known_metadata(self) -> IssuerMetadata | None:
        """The metadata; fetches it with the keys. None if the configuration gives the URL of the keys. An issuer of
        opaque tokens needs no keys (RFC 8414 section 2).

        Raises:
            NoKeysError: neither metadata nor keys were ever fetched.
        """
        try:
            if self._keys or self.metadata is None:
                await self.keys()
        except NoKeysError:
            if self.metadata is None:
                raise
        return self.metadata

    async def prefetch(self) -> bool:
        """Fetch the keys before the first token comes. Returns whether the keys are known; a failure is logged."""
        if not self._keys:
            await self._fetch_unless_tried(0)
        return bool(self._keys)

    def _known(self) -> Sequence[IssuerKey]:
        if not self._keys:
            raise NoKeysError(max(1, self._tried_at + self._limits.retry_seconds - anyio.current_time()))
        return self._keys

    def _is_old(self) -> bool:
        return anyio.current_time() - self._fetched_at >= self._limits.keys_seconds

    def _retry_pause(self) -> float:
        return self._limits.retry_seconds if self._tried_at > self._fetched_at else 0

    async def _fetch_unless_tried(self, pause_seconds: float) -> None:
        """Fetch the key set, unless a fetch was tried less than `pause_seconds` ago, or another fetch ends while this
        waits."""
        tried_before = self._tried_at
        async with self._fetching:
            now = anyio.current_time()
            if self._tried_at != tried_before or now - self._tried_at < pause_seconds:
                return
            try:
                with anyio.fail_after(self._limits.fetch_seconds):
                    self._keys = await self._fetched()
            except TimeoutError:
                self._told_of(f"the keys did not come within {self._limits.fetch_seconds:g} s")
            except (DocumentError, ValueError) as exc:
                self._told_of(str(exc))
            else:
                self._fetched_at = now
            self._tried_at = now  # not after a cancellation: then the next waiting request fetches

    def _told_of(self, why: str) -> None:
        consequence = "the last good keys stay" if self._keys else "its tokens cannot be checked"
        logger.warning("%s: its keys cannot be fetched, and %s: %s", self._name, consequence, why)

    async def _fetched(self) -> tuple[IssuerKey, ...]:
        """Fetch the key set of the issuer.

        Raises:
            DocumentError: it cannot be fetched.
            ValueError: the document is no usable key set, or no metadata of this issuer.
        """
        url = self._place.jwks_url
        if url is None:
            url = await self._url_in_metadata()
        return keys_in(await self._json(url), self._limits.keys_most)

    async def _url_in_metadata(self) -> str:
        self.metadata = document = await self._found_metadata()
        url = document.text("jwks_uri")
        if url is None or urlsplit(url).scheme not in ("http", "https"):
            raise ValueError(f"{document.url} has no jwks_uri")
        if urlsplit(document.url).scheme == "https" and urlsplit(url).scheme != "https":
            raise ValueError(f"{document.url} names keys that are not served over HTTPS")
        return url

    async def _found_metadata(self) -> IssuerMetadata:
        """Fetch the metadata from the first well-known URL that has it. At the other URLs a site may answer with a web
        page, a redirect or an error."""
        faults: list[DocumentError] = []
        for url in metadata_urls(self._place.issuer):
            try:
                values = await self._json(url)
            except DocumentError as exc:
                faults.append(exc)
                continue
            if not isinstance(values, dict) or values.get("issuer") != self._place.issuer:
                raise ValueError(f"{url} is the metadata of another issuer")
            return IssuerMetadata(values, url)
        raise next((fault for fault in faults if not isinstance(fault, MissingDocumentError)), faults[0])

    async def _json(self, url: str) -> object:
        limits = DocumentLimits(self._limits.document_limit_bytes, self._limits.fetch_seconds)
        try:
            request = self._http.build_request("GET", url)
        except (httpx2.InvalidURL, ValueError) as exc:
            raise ValueError("it names something that is not a URL") from exc
        return await fetched_json(self._http, request, limits, self.guard(url))

    def guard(self, url: str) -> AddressGuard | None:
        """The guard for the addresses of connections to a URL; None if any address is allowed.

        Raises:
            DocumentError: metadata leads to a private host name.
        """
        if self._place.allow_private:
            return None
        place, hint = urlsplit(url), allowing_private(on_command_line=False)
        written = {
            _origin(configured_url)
            for configured_url in (self._place.issuer, self._place.jwks_url, self._place.introspection_url)
            if configured_url
        }
        if _origin(url) in written:
            seen = self._seen.setdefault(place.netloc, RebindingJudge())
            return AddressGuard(seen.judge(place.netloc, hint), self._resolve)
        words = (
            f"the metadata of {self._name} leads to {place.netloc}, a private address: nothing was sent there."
            f" If this is right, {hint}"
        )
        if is_private_host(place.hostname or ""):
            raise DocumentError(words)
        return AddressGuard(refusing_private(words), self._resolve)


def metadata_urls(issuer: str) -> Sequence[str]:
    """The well-known URLs of an issuer's metadata, in the order to try (MCP 2026-07-28, authorization)."""
    place = urlsplit(issuer)
    root, path = f"{place.scheme}://{place.netloc}", place.path.rstrip("/")
    urls = (f"{root}{_OAUTH}{path}", f"{root}{OPENID}{path}", f"{root}{path}{OPENID}")
    return tuple(dict.fromkeys(urls))


def _origin(url: str) -> tuple[str, str | None, int | None]:
    place = urlsplit(url)
    return place.scheme, place.hostname, place.port or {"http": 80, "https": 443}.get(place.scheme)
