"""Issuers built on npm's oidc-provider (`oidc_provider.mjs`): one Node.js process for all of them and all tests.

The fixture `issuers` starts them at first use, in a second or so. They are `issuers["corp"]` and `issuers["partner"]`.
Tests share them and change nothing of them: each registers clients of its own, so that none sees another's tokens.

    async def test_something(issuers):
        corp = issuers["corp"]
        client = await corp.register(grant_types=["client_credentials"], redirect_uris=[], response_types=[])
        token = await client.token(resource="http://127.0.0.1:1234/mcp", scope="tools:read")

        client = await corp.register(redirect_uris=[CALLBACK], grant_types=["authorization_code", "refresh_token"])
        token = await client.token_of("alice", resource="...", scope="tools:read")

- Any absolute URL is a resource. Its access tokens are JSON Web Tokens (ES256) with that `aud`, and SCOPES are its
  scopes. A resource on a host that begins with `forbidden.` is `invalid_target`.
- Registration (RFC 7591) is open at `URL/reg`. Beside the usual metadata, a client may register
  `access_token_seconds`, `access_token_format` (`"opaque"` for tokens that are only known by introspection) and
  `id_jag_client_id`.
- Logins are scripted: a `Browser` is one person's, and follows redirects as a browser does. Whoever is in its cookie
  `person` (else in the `login_hint`) is logged in and approves, unless its cookie `answer` is `no`.
- Refresh tokens rotate. One that is used twice ends all that came of its login, and `seen` then has `grant.revoked`.
- Token exchange (RFC 8693): a client with that grant gets a token for `resource` or `audience` from a token of any of
  the issuers, with the same `sub`, an `act` that names the client, and no scope that the subject token lacks.
- ID-JAG: the same grant with `requested_token_type` `...:id-jag` gives one whose `aud` is `audience`. The other issuer
  takes it with the grant `urn:ietf:params:oauth:grant-type:jwt-bearer`. Register the client there first and give its
  id as `id_jag_client_id` here.
- `seen` tells what came of each request, in order, for the clients of one test.
"""

from __future__ import annotations

import json
import secrets
import subprocess
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2

from tests.peers import WAIT_SECONDS
from tests.peers.node import oidc_provider_command

NAMES: Final = ("corp", "partner")
SCOPES: Final = ("read", "write", "admin", "tools:read", "tools:write")
EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
ASSERTION: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
TOKEN_TYPE: Final = "urn:ietf:params:oauth:token-type:"
"""How the types of tokens begin (RFC 8693 section 3)."""
CALLBACK: Final = "http://127.0.0.1/callback"
"""A redirect URI at which nobody listens: the browser stops before it."""


@contextmanager
def running_issuers() -> Iterator[Mapping[str, OidcProvider]]:
    """Start the issuers; they end with the context, and with this process."""
    command = oidc_provider_command(*NAMES)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            urls = json.loads(process.stdout.readline())
            yield {name: OidcProvider(url) for name, url in urls.items()}
        finally:
            process.stdin.close()


class AuthorizationRefused(Exception):
    """An issuer answered a request of the tests with an error."""


@dataclass(frozen=True)
class OidcProvider:
    """One of the issuers."""

    url: str
    """Its issuer identifier."""

    async def register(self, **metadata: Any) -> RegisteredClient:
        """Register a client of the test's own."""
        asked = {"redirect_uris": [CALLBACK], "application_type": "native", **metadata}
        return RegisteredClient(self, await self.answer("/reg", json=asked))

    async def machine(self, **metadata: Any) -> RegisteredClient:
        """Register a client that may have tokens for itself (the grant `client_credentials`)."""
        return await self.register(
            grant_types=["client_credentials"],
            redirect_uris=[],
            response_types=[],
            application_type="web",
            **metadata,
        )

    async def seen(self, client_id: str) -> list[dict[str, Any]]:
        """What came of the requests of a client, in order."""
        async with _http() as http:
            found = (await http.get(f"{self.url}/seen")).json()
        return [event for event in found if event.get("client_id") == client_id]

    async def answer(self, path: str, **request: Any) -> dict[str, Any]:
        """POST a request; what is answered.

        Raises:
            AuthorizationRefused: it is an error.
        """
        async with _http() as http:
            response = await http.post(self.url + path, **request)
        if response.status_code >= 400:
            raise AuthorizationRefused(response.text)
        found: dict[str, Any] = response.json() if response.content else {}
        return found


@dataclass(frozen=True)
class RegisteredClient:
    """A client, as its issuer registered it."""

    issuer: OidcProvider
    metadata: Mapping[str, Any] = field(repr=False)

    @property
    def id(self) -> str:
        """Its `client_id`."""
        return str(self.metadata["client_id"])

    @property
    def secret(self) -> str:
        """Its `client_secret`."""
        return str(self.metadata["client_secret"])

    async def token(self, **asked: str) -> str:
        """An access token for the client itself: `resource`, `scope`."""
        return str((await self.grant("client_credentials", **asked))["access_token"])

    async def token_of(self, person: str, resource: str, scope: str = "") -> str:
        """An access token of a person, who logs in for it."""
        return str((await self.login(Browser(person), resource, scope))["access_token"])

    async def login(self, browser: Browser, resource: str, scope: str = "") -> dict[str, Any]:
        """What the token endpoint answers to the code of a login."""
        verifier = secrets.token_urlsafe(32)
        challenge = urlsafe_b64encode(sha256(verifier.encode()).digest()).decode().rstrip("=")
        asked = {
            "client_id": self.id,
            "response_type": "code",
            "redirect_uri": CALLBACK,
            "resource": resource,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
            **({"scope": scope} if scope else {}),
        }
        async with browser:
            came = await browser.redirected(f"{self.issuer.url}/auth?{urlencode(asked)}", CALLBACK)
        if "code" not in came:
            raise AuthorizationRefused(str(came))
        return await self.grant(
            "authorization_code", code=came["code"], redirect_uri=CALLBACK, code_verifier=verifier
        )

    async def grant(self, grant_type: str, **form: str) -> dict[str, Any]:
        """What the token endpoint answers; the client shows its secret if it has one."""
        body = {"grant_type": grant_type, **form}
        if "client_secret" not in self.metadata:
            return await self.issuer.answer("/token", data={**body, "client_id": self.id})
        return await self.issuer.answer("/token", data=body, auth=(self.id, self.secret))


class Browser:
    """The browser of one person, with its cookies: `async with Browser("alice") as browser`."""

    def __init__(self, person: str | None, *, approves: bool = True) -> None:
        """Without a person nobody can be logged in."""
        cookies = {"person": person} if person else {}
        self._http = _http()
        self._http.cookies.update(cookies if approves else {**cookies, "answer": "no"})

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        raised: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        await self._http.__aexit__(kind, raised, traceback)

    def becomes(self, person: str) -> None:
        """Somebody else sits down before it, and is nowhere logged in yet."""
        self._http.cookies.clear()
        self._http.cookies.update({"person": person})

    async def visit(self, url: str) -> httpx2.Response:
        """Open a page and follow redirects, also to a client that listens on loopback."""
        return await self._http.get(url, follow_redirects=True)

    async def sends(self, url: str, **form: str) -> httpx2.Response:
        """Send a form and follow redirects."""
        return await self._http.post(url, data=form, follow_redirects=True)

    async def redirected(self, url: str, before: str) -> dict[str, str]:
        """Open a page and follow redirects up to one that begins with `before`; the query of that one.

        Raises:
            AuthorizationRefused: the way ends elsewhere.
        """
        while not url.startswith(before):
            response = await self._http.get(url)
            if response.next_request is None:
                raise AuthorizationRefused(f"{url} answered {response.status_code}: {response.text}")
            url = str(response.next_request.url)
        return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}


def _http() -> httpx2.AsyncClient:
    return httpx2.AsyncClient(timeout=WAIT_SECONDS)
