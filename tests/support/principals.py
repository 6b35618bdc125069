"""Two principals, Ada and Bob, who are told apart by secrets of the file or by tokens of issuers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

import httpx2

from bridge.identity.callers.issuer_verifier import IssuerVerifier
from bridge.identity.callers.key_sets import KeySource
from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import Access, Credential, verifiers_of
from tests.support.issuer import LIMITS, TokenIssuer, issuer_at


@dataclass(frozen=True)
class KnownPrincipals:
    """Who is let in, and the token of each by name."""

    access: Access
    tokens: Mapping[str, str]


@asynccontextmanager
async def by_secrets() -> AsyncIterator[KnownPrincipals]:
    """Each has a token in the file."""
    tokens = {name: f"token-{name}" for name in ("ada", "bob")}
    credentials = [Credential(Principal(name), token) for name, token in tokens.items()]
    yield KnownPrincipals(Access(verifiers_of(credentials)), tokens)


@asynccontextmanager
async def by_issuers() -> AsyncIterator[KnownPrincipals]:
    """Each has an issuer, and both issuers call them by the same subject. The face is at `/mcp`."""
    issuers = {"ada": TokenIssuer("https://corp.example"), "bob": TokenIssuer("https://partner.example")}
    async with AsyncExitStack() as stack:
        verifiers = []
        for name, issuer in issuers.items():
            trusted = issuer_at(issuer.url, {"/mcp": frozenset({"api://mcp"})}, name=name)
            http = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=issuer))
            await stack.enter_async_context(http)
            # No connection is made, so no address is judged.
            source = KeySource(name, replace(trusted.place, allow_private=True), http, LIMITS)
            verifiers.append(IssuerVerifier(trusted, source, LIMITS))
        tokens = {name: issuer.token("api://mcp", "ada") for name, issuer in issuers.items()}
        yield KnownPrincipals(Access(verifiers), tokens)


Knowing = Callable[[], AbstractAsyncContextManager[KnownPrincipals]]
WAYS: Final[tuple[Knowing, ...]] = (by_secrets, by_issuers)
