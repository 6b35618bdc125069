"""Requests to the token endpoint of one authorization server, and checks of its answers.

The configuration names the authorization server by its issuer. So no peer can choose who gets the client's secret: the
authorization servers that a peer's 401 names are ignored. The SDK's provider does not fit here: it starts from a peer's
401, holds one lock for a whole request, and supports MCP servers only.

This module knows how the bridge authenticates as a client, not which token it requests (`oauth.py`).

Spec: RFC 6749 section 2.3.1 (secrets), 8705 (certificates), 8414 and OpenID Connect Discovery (metadata), 7523
(assertions).
"""

from __future__ import annotations

import base64
import json
import math
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from string import ascii_letters, digits
from typing import Any, Final, Literal
from urllib.parse import quote_plus, urlsplit

import anyio
import anyio.to_thread
import httpx2

from bridge.errors import PeerError, UsageError, reason_of
from bridge.http.client import GuardedClient, certified_by, guarded_by
from bridge.http.private_addresses import AddressGuard, PrivateAddressError, refusing_private
from bridge.http.request_checks import is_loopback
from bridge.http.tls import PeerTls
from bridge.local.private_files import read_regular
from bridge.text.jsonvalues import JsonObject
from bridge.text.safe_text import with_visible_characters

ANSWER_BYTES: Final = 256 * 1024
"""The largest metadata or token response to read. Real responses have a few KB, or tens of KB with many groups in a
JWT."""

_ASSERTION_SECONDS: Final = 60
"""How long a client assertion is valid. It is used at once."""

_PLATFORM_JWT_BYTES: Final = 64 * 1024
"""The largest file with a platform's JWT to read. Real JWTs have 1 to 4 KB."""

_LONGEST_ERROR: Final = 300
"""The most characters of an error description that a message repeats."""

_URL_CHARACTERS: Final = frozenset(f"{ascii_letters}{digits}-._~:/?#[]@!$&()*+,;=%")
"""The characters of RFC 3986 except the apostrophe, which ends a URL in some HTTP headers."""

_JWT: Final = re.compile(rb"[\w-]+\.[\w-]+\.[\w-]+")

_WELL_KNOWN: Final = ("oauth-authorization-server", "openid-configuration")

_ASKED_DIRECTLY: Final = ("token_endpoint", "revocation_endpoint", "introspection_endpoint")
"""The endpoints that the bridge itself calls, which may have aliases for clients with a certificate."""

_ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

ClientMethod = Literal["basic", "post", "private_key_jwt", "platform_jwt", "none"]
"""How the bridge authenticates as a client. `platform_jwt` is a JWT from a file of the platform on which the bridge
runs."""


class TokenError(PeerError):
    """No access token could be obtained. The message says why, without any secret."""


class UnsentError(TokenError):
    """A request to an authorization server was not sent, or no server accepted the connection."""


class GrantRefusedError(TokenError):
    """An authorization server refused to give a token."""


@dataclass(frozen=True)
class OAuthClient:
    """The bridge as a client of an authorization server, and the token to request there."""

    issuer: str
    client_id: str
    secret: str = field(repr=False)
    """The client's secret, or its private key as PEM; empty if it has neither."""
    method: ClientMethod
    scopes: Sequence[str] = ()
    resource: str = ""
    """The resource indicator; empty to send none."""
    allow_private: bool = False
    """Whether the metadata of the issuer may lead to a private address with another origin."""
    platform_jwt: Path | None = None
    """The file with the JWT in which the platform identifies the bridge. The JWT authenticates the client
    (`platform_jwt`), or is the assertion of the grant (`none`)."""
    tls: PeerTls | None = None
    """The client certificate for the authorization server, and the authorities that its own certificate may come
    from."""


@dataclass(frozen=True)
class AccessToken:
    """A token that a header can carry, and its lifetime."""

    value: str = field(repr=False)
    life_seconds: float = math.inf
    scopes: tuple[str, ...] = ()
    """The scopes in the issuer's answer; empty if the answer names none."""


class TokenEndpoint:
    """The token endpoint of a client's issuer. Its URL is read once from the issuer's metadata, and again after a
    request that no token endpoint answered: it may have moved."""

    def __init__(self, client: OAuthClient) -> None:
        """Send no request yet.

        Raises:
            UsageError: the private key cannot sign.
        """
        self.client = client
        self._signing = _signing_key(client) if client.method == "private_key_jwt" else None
        self._url: str | None = None

    async def metadata(self) -> tuple[str, JsonObject]:
        """The URL of the issuer's metadata, and the metadata.

        Raises:
            TokenError: the metadata cannot be fetched, or is of another issuer.
        """
        async with GuardedClient(timeout=None) as http:
            return await _TokenRequests(http, self.client).metadata()

    async def answer(self, grant: Mapping[str, str]) -> JsonObject:
        """The answer to a grant. Its fields are sent with the authentication of the client.

        Raises:
            TokenError: the endpoint cannot be found or reached, or refuses.
        """
        # The connection is not kept: requests for tokens are minutes apart.
        async with GuardedClient(timeout=None) as http:
            requests = _TokenRequests(http, self.client)
            if self._url is None:
                self._url = await requests.token_url()
            try:
                return await requests.answer(self._url, grant, self._signing)
            except GrantRefusedError:
                raise
            except BaseException:
                self._url = None
                raise


@dataclass(frozen=True)
class _AssertionKey:
    pem: str = field(repr=False)
    algorithm: str


@dataclass(frozen=True)
class _TokenRequests:
    """The requests for one token."""

    http: httpx2.AsyncClient
    client: OAuthClient

    async def token_url(self) -> str:
        """The URL of the token endpoint, from the issuer's metadata."""
        return secret_endpoint(*await self.metadata(), "token_endpoint")

    async def metadata(self) -> tuple[str, JsonObject]:
        """The URL of the issuer's metadata, and the metadata."""
        lacks: list[str] = []
        for url in metadata_urls(self.client.issuer):
            status, metadata = await self._asked(url)
            if status != 200 or metadata is None:
                lacks.append(f"{url} answered HTTP {status}" + (", not JSON" if status == 200 else ""))
                continue
            metadata = without_blanks(metadata)
            if not is_same_issuer(metadata.get("issuer"), self.client.issuer):
                raise TokenError(
                    f"{url} is the metadata of another issuer: {_shown(str(metadata.get('issuer')))}."
                    " If this issuer is right, write `issuer` exactly like this"
                )
            tls = self.client.tls
            if tls is None or tls.certificate is None:
                return url, metadata
            return url, with_mtls_aliases(metadata, lambda _: True)
        raise TokenError(f"{self.client.issuer} has no metadata: {', '.join(lacks)}. Check `issuer`")

    async def answer(self, url: str, grant: Mapping[str, str], signing: _AssertionKey | None) -> JsonObject:
        """The answer to a grant."""
        client, form, headers = self.client, dict(grant), dict[str, str]()
        if signing is not None:
            form |= {"client_id": client.client_id, "client_assertion_type": _ASSERTION_TYPE}
            form["client_assertion"] = _assertion(client, signing)
        elif client.platform_jwt is not None and client.method == "platform_jwt":
            form |= {"client_id": client.client_id, "client_assertion_type": _ASSERTION_TYPE}
            form["client_assertion"] = await platform_jwt_in(client.platform_jwt)
        elif client.method == "none":
            form |= {"client_id": client.client_id} if client.client_id else {}
        elif client.method == "post":
            form |= {"client_id": client.client_id, "client_secret": client.secret}
        else:
            pair = f"{quote_plus(client.client_id)}:{quote_plus(client.secret)}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        status, answer = await self._asked(url, form, headers)
        if status != 200 or answer is None:
            is_refused = answer is not None and "error" in answer
            raise (GrantRefusedError if is_refused else TokenError)(_refusal(client, status, answer))
        return answer

    async def _asked(
        self,
        url: str,
        form: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, JsonObject | None]:
        client = self.client
        guard = issuer_guard(url, (client.issuer,), allow_private=client.allow_private)
        return await issuer_answer(self.http, url, guard, form, headers, certified_by(url, client.tls))


async def issuer_answer(
    http: httpx2.AsyncClient,
    url: str,
    guard: AddressGuard | None,
    form: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    certified: Mapping[str, Any] | None = None,
) -> tuple[int, JsonObject | None]:
    """The status of an authorization server's answer, and its body if that is a JSON object. A form is posted.

    `certified` says which hosts may see the client certificate (`certified_by`). Redirects are not followed.

    Raises:
        UnsentError: nothing was sent, or no server accepted the connection.
        TokenError: the answer is too large, or broke off.
    """
    try:
        request = http.build_request(
            "GET" if form is None else "POST",
            url,
            data=form,
            headers={"Accept": "application/json", **(headers or {})},
            extensions={**guarded_by(guard), **(certified or {})},
        )
        response = await http.send(request, stream=True, follow_redirects=False)
        try:
            body = b""
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > ANSWER_BYTES:
                    raise TokenError(f"{url} answered with more than {ANSWER_BYTES} bytes")
        finally:
            await response.aclose()
    except PrivateAddressError as exc:
        raise UnsentError(str(exc)) from exc
    except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError, httpx2.InvalidURL) as exc:
        raise UnsentError(f"{url} cannot be reached for a token: {reason_of(exc)}") from exc
    except httpx2.HTTPError as exc:
        raise TokenError(f"{url} failed during a request for a token: {reason_of(exc)}") from exc
    return response.status_code, object_in(body)


def issuer_guard(url: str, written: Sequence[str], *, allow_private: bool) -> AddressGuard | None:
    """The guard for the addresses of connections to a URL; None if any address is allowed. The user has written the
    URLs in `written`, so their origins may be private. Any other origin must be public.

    Raises:
        UnsentError: the host of the URL is a private address.
    """
    place_asked = urlsplit(url)
    origins = [
        (written_url.scheme, written_url.netloc) for written_url in map(urlsplit, filter(None, written))
    ]
    if allow_private or (place_asked.scheme, place_asked.netloc) in origins:
        return None
    place = place_asked.netloc.rpartition("@")[2]
    judge = refusing_private(
        f"the authorization server leads to {place}, a private address, where nothing was sent."
        " If that is right, set `allow_private = true` (--allow-private)"
    )
    try:
        judge([place_asked.hostname or ""])  # a proxy resolves names itself, and is not guarded
    except PrivateAddressError as exc:
        raise UnsentError(str(exc)) from exc
    return AddressGuard(judge)


async def platform_jwt_in(file: Path) -> str:
    """The JWT in a file. It is read each time, because platforms replace it while programs run.

    Raises:
        TokenError: the file holds no JWT.
    """
    try:
        content = await anyio.to_thread.run_sync(read_regular, file, _PLATFORM_JWT_BYTES)
    except OSError as exc:
        raise TokenError(f"the JWT of the platform cannot be read: {file}: {exc.strerror}") from exc
    token = content.strip()
    if not _JWT.fullmatch(token):
        raise TokenError(f"{file} holds no JWT")
    return token.decode()


def metadata_urls(issuer: str) -> Sequence[str]:
    """The possible URLs of an issuer's metadata (RFC 8414 section 3.1; OpenID Connect also appends to the path)."""
    place = urlsplit(issuer)
    path = place.path.rstrip("/")
    root = f"{place.scheme}://{place.netloc}"
    inserted = [f"{root}/.well-known/{name}{path}" for name in _WELL_KNOWN]
    return [*inserted, f"{root}{path}/.well-known/{_WELL_KNOWN[1]}"] if path else inserted


def is_same_issuer(issuer: object, other: object) -> bool:
    """Whether two values name the same issuer. A slash at the end does not matter, since servers write it
    inconsistently."""
    if not isinstance(issuer, str) or not isinstance(other, str):
        return False
    return issuer.removesuffix("/") == other.removesuffix("/")


def without_blanks(metadata: JsonObject) -> JsonObject:
    """The metadata of a server without blank fields, with which some servers say that they have no such endpoint."""
    if not any(isinstance(value, str) and not value.strip() for value in metadata.values()):
        return metadata
    return {key: value for key, value in metadata.items() if not isinstance(value, str) or value.strip()}


def with_mtls_aliases(metadata: JsonObject, is_shown: Callable[[str], bool]) -> JsonObject:
    """The metadata of an issuer for a client with a certificate: the mTLS aliases replace the endpoints.

    `is_shown` says whether the client sends its certificate to a URL. Only the endpoints that the bridge itself calls
    are replaced: the authorization endpoint is for a browser, which has no such certificate.

    Spec: RFC 8705 section 5.
    """
    aliases = metadata.get("mtls_endpoint_aliases")
    if not isinstance(aliases, dict):
        return metadata
    named = {name: url for name in _ASKED_DIRECTLY if isinstance(url := aliases.get(name), str)}
    return {**metadata, **{name: url for name, url in named.items() if is_shown(url)}}


def is_metadata_of_issuer(path: str) -> bool:
    """Whether an issuer's metadata may be at this path of a URL: see `metadata_urls`."""
    return any(f"/.well-known/{name}" in path for name in _WELL_KNOWN)


def secret_endpoint(metadata_url: str, metadata: JsonObject, name: str) -> str:
    """The URL of an endpoint of an authorization server, to which a secret may be sent.

    Raises:
        TokenError: the metadata does not name the endpoint, or its URL is invalid, or neither https nor on this
            machine.
    """
    endpoint = metadata.get(name)
    if not isinstance(endpoint, str):
        raise TokenError(f"{metadata_url} names no {name}")
    try:
        if not _URL_CHARACTERS.issuperset(endpoint):
            raise ValueError("a URL has no such characters")
        place = urlsplit(endpoint)
        host = place.hostname or ""
        if place.port == 0:
            raise ValueError("there is no port 0")
    except ValueError as exc:
        raise TokenError(f"{metadata_url} names a {name} that is not a URL") from exc
    if "@" in place.netloc or (
        place.scheme != "https" and not (place.scheme == "http" and is_loopback(host))
    ):
        raise TokenError(f"{metadata_url} names a {name} that is no https:// URL: nothing was sent there")
    return endpoint


def object_in(body: bytes) -> JsonObject | None:
    """The JSON object in a body; None if the body is something else."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _shown(text: str) -> str:
    return with_visible_characters(text[:_LONGEST_ERROR], in_one_line=True)


_HINTS: Final[Mapping[str, str]] = {
    "invalid_client": ". Check `client_id` and its secret or key",
    "invalid_target": '. Set `resource` to a name that the issuer knows, or to "" to send none',
    "invalid_grant": ". The issuer does not accept the token or JWT: check its issuer, audience and expiry",
    "invalid_scope": ". Check `scopes`",
    "unauthorized_client": ". Allow this client the grant at the issuer",
    "unsupported_grant_type": ". The issuer does not support the grant: choose another `grant`",
}
"""The advice for each error of a token endpoint (RFC 6749 section 5.2, RFC 8707 section 2)."""


def _refusal(client: OAuthClient, status: int, answer: JsonObject | None) -> str:
    texts = [str(text) for key in ("error", "error_description") if (text := (answer or {}).get(key))]
    if not texts:
        return f"{client.issuer} answered HTTP {status} instead of a token"
    words, hint = _shown(": ".join(texts)), _HINTS.get(texts[0], "")
    return f"{client.issuer} gave no token to {client.client_id or 'the bridge'}: {words}{hint}"


def code_in(answer: Mapping[str, str], issuer: str, state: str, *, says_issuer: bool) -> str:
    """The code in the authorization response that a browser brings. With `says_issuer` the response must name its
    issuer.

    `issuer` is exactly as in the issuer's metadata: `iss` is compared with it letter by letter (RFC 9207 section 2.4).

    Raises:
        TokenError: the response belongs to another login, is from another issuer, or is a refusal.
    """
    iss = answer.get("iss")
    if not secrets.compare_digest(answer.get("state", "").encode(), state.encode()):
        raise TokenError("the answer does not belong to this login. Begin again")
    if error := answer.get("error"):
        words = ": ".join(filter(None, [error, answer.get("error_description")]))
        raise TokenError(f"{issuer} gave no code: {_shown(words)}")
    if iss != issuer and (iss is not None or says_issuer):
        named = "no issuer" if iss is None else f"the issuer {_shown(iss)}"
        raise TokenError(
            f"the answer names {named} in `iss`, and the login is at {issuer}: the code was not sent. Begin again;"
            " if this repeats, ask the operator of the issuer"
        )
    if not answer.get("code"):
        raise TokenError(f"{issuer} answered without a code")
    return answer["code"]


def access_token_in(answer: JsonObject, issuer: str) -> AccessToken:
    """The access token in an issuer's answer. A token without a type is a bearer token: no other type was requested,
    and some issuers omit `token_type` (RFC 6749 section 5.1).

    Raises:
        TokenError: there is no token, or no header can carry it.
    """
    token, kind = answer.get("access_token"), answer.get("token_type", "Bearer")
    if (
        not isinstance(token, str)
        or not token
        or not token.isascii()
        or not token.isprintable()
        or " " in token
    ):
        raise TokenError(f"{issuer} answered without an access token that a header can carry")
    if not isinstance(kind, str) or kind.lower() != "bearer":
        raise TokenError(f"{issuer} gave a token that is not of the type Bearer")
    return AccessToken(token, _life_in(answer), scopes_in(answer))


def _life_in(answer: JsonObject) -> float:
    """The lifetime of a token in seconds; infinite if its issuer names none. Some issuers write it as a string."""
    lifetime = answer.get("expires_in")
    try:
        life = float(lifetime) if isinstance(lifetime, int | float | str) else math.inf
    except (ValueError, OverflowError):
        return math.inf
    return life if life > 0 and not isinstance(lifetime, bool) else math.inf


def scopes_in(answer: JsonObject) -> tuple[str, ...]:
    """The scopes that an issuer's answer names."""
    scope = answer.get("scope")
    return tuple(scope.split()) if isinstance(scope, str) else ()


def union_of(*scopes: Sequence[str]) -> tuple[str, ...]:
    """The scopes of all sequences, each scope once."""
    return tuple(dict.fromkeys(chain.from_iterable(scopes)))


def _signing_key(client: OAuthClient) -> _AssertionKey:
    """The private key of the client, with an algorithm that fits it."""
    import jwt  # few clients sign, and it loads all of cryptography

    for algorithm in ("RS256", "ES256", "ES384", "EdDSA"):
        try:
            jwt.encode({}, client.secret, algorithm=algorithm)
        except (ValueError, TypeError, jwt.PyJWTError):
            continue
        return _AssertionKey(client.secret, algorithm)
    raise UsageError(
        f"the private key of the client {client.client_id} cannot sign: give a PEM of RSA, P-256, P-384 or Ed25519"
    )


def _assertion(client: OAuthClient, signing: _AssertionKey) -> str:
    import jwt  # see above

    now = int(time.time())
    claims = {
        "iss": client.client_id,
        "sub": client.client_id,
        "aud": client.issuer,
        "iat": now,
        "exp": now + _ASSERTION_SECONDS,
        "jti": secrets.token_urlsafe(16),
    }
    return jwt.encode(claims, signing.pem, algorithm=signing.algorithm)
