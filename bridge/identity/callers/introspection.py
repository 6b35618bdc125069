"""Asks an issuer about opaque tokens (token introspection), and remembers the answers for a while.

Anyone can send such tokens, and each unknown token costs the issuer a request. So only a few requests run at the same
time, and a bounded number of refusals is remembered, too. A token that was active before never waits for unknown
tokens, and refusals never push it out of memory. A token is remembered by its hash.

Spec: RFC 7662; RFC 6749 section 2.3.1.
"""

from __future__ import annotations

import base64
import logging
import math
import time
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlsplit

import anyio
import httpx2

from bridge.bounded_map import BoundedMap
from bridge.http.documents import DocumentError, DocumentLimits, fetched_json
from bridge.identity.callers.issuers import Issuer
from bridge.identity.callers.json_web_tokens import LATEST, WrongTokenError
from bridge.identity.callers.key_sets import KeySource
from bridge.identity.callers.verifiers import NOT_KNOWN, digest_of
from bridge.settings import IssuerSettings

logger = logging.getLogger(__name__)

_REMEMBERED: Final = 10_000
"""The most active tokens to remember, and the most refused tokens. The oldest is forgotten first."""
_AT_ONCE: Final = 8
"""The most simultaneous requests to one issuer about unknown tokens, and the same number about tokens that were active
before."""
_LOG_SECONDS: Final = 60.0
"""The least time between two logged failures."""


class UnansweredTokenError(Exception):
    """The issuer cannot be asked about a token at the moment."""


@dataclass(frozen=True, slots=True)
class _Remembered:
    """The issuer's last answer about a token."""

    claims: Mapping[str, Any] | None
    """None if the token is not active."""
    until: float
    """When to ask again, on the clock of the event loop."""


class TokenQuestions:
    """Introspects tokens at one issuer."""

    def __init__(
        self,
        issuer: Issuer,
        source: KeySource,
        http: httpx2.AsyncClient,
        limits: IssuerSettings,
        withheld: Container[bytes] = (),
    ) -> None:
        """`source` has the metadata of the issuer, and the rules for the addresses of connections. `withheld` are the
        digests of secrets that the issuer must not see."""
        self.issuer = issuer
        self._source = source
        self._http = http
        self._limits = limits
        self._withheld = withheld
        self._asking = anyio.CapacityLimiter(_AT_ONCE)
        self._renewing = anyio.CapacityLimiter(_AT_ONCE)
        self._active = BoundedMap[bytes, _Remembered](_REMEMBERED)
        """Entries stay after their time, so that the next request about them counts as a renewal."""
        self._refused = BoundedMap[bytes, _Remembered](_REMEMBERED)
        self._logged_at = -math.inf

    async def claims_of(self, token: str, face: str) -> Mapping[str, Any]:
        """The claims of an active token for the endpoint at the path `face`.

        Raises:
            WrongTokenError: the token is not active, is from another issuer, is for another endpoint, or is a
                configured secret.
            UnansweredTokenError: the issuer cannot be asked.
            NoKeysError: the metadata with the introspection endpoint was never fetched.
        """
        digest = digest_of(token)
        if digest in self._withheld:
            raise WrongTokenError(NOT_KNOWN.fault)
        known = self._known(digest)
        if known is None:
            try:
                known = await self._asked(token, digest)
            except TimeoutError as exc:
                raise UnansweredTokenError("too many tokens wait for its issuer at the moment") from exc
        if known.claims is None:
            raise WrongTokenError("is not active")
        self._require_valid(known.claims, face)
        return known.claims

    def _known(self, digest: bytes) -> _Remembered | None:
        known = self._active.get(digest) or self._refused.get(digest)
        return known if known is not None and anyio.current_time() < known.until else None

    async def _asked(self, token: str, digest: bytes) -> _Remembered:
        """Wait for this token's turn, and ask the issuer.

        Raises:
            TimeoutError: the turn does not come within the time of one answer, or the answer takes too long.
            UnansweredTokenError, NoKeysError: see `claims_of`.
        """
        turns = self._renewing if digest in self._active else self._asking
        # The wait has its own time limit: otherwise no answer would come in time when many requests wait.
        with anyio.fail_after(self._limits.fetch_seconds):
            await turns.acquire()
        try:
            with anyio.fail_after(2 * self._limits.fetch_seconds):  # metadata, and the answer
                return self._known(digest) or await self._ask(token, digest)
        finally:
            turns.release()

    async def _ask(self, token: str, digest: bytes) -> _Remembered:
        try:
            answer = await self._said_of(token)
        except DocumentError as exc:
            self._log(exc)
            raise UnansweredTokenError("its issuer cannot be asked at the moment") from exc
        claims = answer if isinstance(answer, dict) and answer.get("active") is True else None
        known = _Remembered(claims, anyio.current_time() + self._limits.introspection_seconds)
        self._active.pop(digest, None)
        self._refused.pop(digest, None)
        kind = self._refused if claims is None else self._active
        kind[digest] = known
        return known

    async def _said_of(self, token: str) -> object:
        """The issuer's answer about a token.

        Raises:
            DocumentError: the issuer cannot be asked.
            NoKeysError: the metadata with the introspection endpoint was never fetched.
        """
        url = self.issuer.place.introspection_url or await self._url_in_metadata()
        form = {"token": token, "token_type_hint": "access_token"}
        try:
            request = self._http.build_request("POST", url, data=form, headers=self._client_headers())
            guard = self._source.guard(url)
        except (httpx2.InvalidURL, ValueError) as exc:
            raise DocumentError("its introspection_endpoint is not a URL") from exc
        limits = DocumentLimits(self._limits.document_limit_bytes, self._limits.fetch_seconds)
        return await fetched_json(self._http, request, limits, guard)

    async def _url_in_metadata(self) -> str:
        metadata = await self._source.known_metadata()
        url = metadata.text("introspection_endpoint") if metadata is not None else None
        secure = ("https", urlsplit(self.issuer.place.issuer).scheme)
        if url is None or url.partition(":")[0].lower() not in secure:
            raise DocumentError("its metadata names no usable introspection_endpoint")
        return url

    def _client_headers(self) -> dict[str, str]:
        client = self.issuer.client
        assert client is not None, "only an issuer with a client is asked"
        words = f"{quote(client.id, safe='')}:{quote(client.secret, safe='')}"
        return {"Authorization": f"Basic {base64.b64encode(words.encode()).decode()}"}

    def _require_valid(self, claims: Mapping[str, Any], face: str) -> None:
        now, leeway = time.time(), self._limits.leeway_seconds
        if _time_in(claims, "exp", math.inf) + leeway < now:
            raise WrongTokenError("has expired")
        if _time_in(claims, "nbf", -math.inf) - leeway > now:
            raise WrongTokenError("is not valid yet")
        if claims.get("iss", self.issuer.place.issuer) != self.issuer.place.issuer:
            raise WrongTokenError("is of another issuer")
        audience = claims.get("aud")
        named = audience if isinstance(audience, list) else [audience]
        if not any(
            isinstance(audience_name, str) and audience_name in self.issuer.audiences.get(face, ())
            for audience_name in named
        ):
            raise WrongTokenError("is for another audience")

    def _log(self, exc: DocumentError) -> None:
        now = anyio.current_time()
        if now - self._logged_at >= _LOG_SECONDS:
            self._logged_at = now
            logger.warning("issuers.%s: a token cannot be introspected: %s", self.issuer.name, exc)


def _time_in(claims: Mapping[str, Any], name: str, default: float) -> float:
    """The claim `name` as a time, in seconds since the epoch; `default` if it is missing.

    Raises:
        WrongTokenError: the claim is not a number, or is out of range.
    """
    if name not in claims:
        return default
    value = claims[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not -LATEST <= value <= LATEST:
        raise WrongTokenError(f"has a claim `{name}` that is not a time")
    return value
