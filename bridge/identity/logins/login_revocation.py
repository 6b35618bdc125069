"""Revokes the tokens of a login at its authorization server when the login is deleted.

The server's current metadata is fetched, so that old logins need no stored endpoint. A failed revocation is reported,
and never prevents the deletion of a login.

Spec: RFC 7009 (revocation), RFC 8414 (`revocation_endpoint`), RFC 8705 section 5 (its alias).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Final

import anyio
import httpx2

from bridge.http.client import GuardedClient
from bridge.identity.logins.kept_logins import Login
from bridge.identity.logins.login_credentials import LoginConfig, allows_private, proof_of_client
from bridge.identity.tokens.token_endpoint import (
    TokenError,
    is_same_issuer,
    issuer_answer,
    issuer_guard,
    metadata_urls,
    secret_endpoint,
    with_mtls_aliases,
)
from bridge.text.jsonvalues import JsonObject
from bridge.text.safe_text import with_visible_characters

_REVOKE_SECONDS: Final = 10.0
"""How long an issuer may take for all tokens of a login, since the person who logs out waits."""

_LONGEST_WORDS: Final = 300
"""The most characters of an authorization server's words that a message repeats."""


async def revoke(login_config: LoginConfig, login: Login, seconds: float = _REVOKE_SECONDS) -> str:
    """Revoke the tokens of a login. Returns the reason of a failure; "" if the tokens are revoked, or there are
    none."""
    if not login.access_token:  # the person declined the login
        return ""
    try:
        with anyio.fail_after(seconds):
            async with GuardedClient(timeout=None) as http:
                await _Revocation(http, login_config, login).run()
    except TimeoutError:
        return f"{login.issuer} took more than {seconds:g} s"
    except TokenError as exc:
        return str(exc)
    return ""


@dataclass(frozen=True)
class _Revocation:
    http: httpx2.AsyncClient
    login_config: LoginConfig = field(repr=False)
    login: Login

    async def run(self) -> None:
        """Revoke the refresh token before the access token, since it can get new access tokens."""
        url = await self._endpoint()
        if self.login.refresh_token:
            await self._revoke(url, self.login.refresh_token, "refresh_token")
        await self._revoke(url, self.login.access_token, "access_token")

    async def _endpoint(self) -> str:
        issuer = self.login.issuer
        for url in metadata_urls(issuer):
            status, metadata = await self._asked(url)
            if status != 200 or metadata is None:
                continue
            if not is_same_issuer(metadata.get("issuer"), issuer):
                raise TokenError(f"{url} is the metadata of another issuer")
            shows = partial(self.login_config.shows_certificate, is_of_issuer=self._is_of_the_file)
            return secret_endpoint(url, with_mtls_aliases(metadata, shows), "revocation_endpoint")
        raise TokenError(f"{issuer} has no metadata")

    @property
    def _is_of_the_file(self) -> bool:
        """Whether the issuer is the configured issuer."""
        return is_same_issuer(self.login.issuer, self.login_config.issuer)

    async def _revoke(self, url: str, token: str, kind: str) -> None:
        proof, headers = proof_of_client(self.login_config, self.login)
        form = {"token": token, "token_type_hint": kind, **proof}
        status, answer = await self._asked(url, form, headers)
        if status != 200:
            texts = [str(text) for key in ("error", "error_description") if (text := (answer or {}).get(key))]
            words = with_visible_characters(": ".join(texts)[:_LONGEST_WORDS], in_one_line=True)
            name = kind.replace("_", " ")
            raise TokenError(f"{self.login.issuer} did not revoke the {name}: {words or f'HTTP {status}'}")

    async def _asked(
        self, url: str, form: dict[str, str] | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, JsonObject | None]:
        written = self.login_config.url, self.login_config.issuer
        allow_private = allows_private(self.login_config, self.login)
        guard = issuer_guard(url, written, allow_private=allow_private)
        certified = self.login_config.certified(url, is_of_issuer=self._is_of_the_file)
        return await issuer_answer(self.http, url, guard, form, headers, certified)
