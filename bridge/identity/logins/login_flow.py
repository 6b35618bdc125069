"""A person's login at the authorization server of a peer: the code flow, from the peer's 401 to the tokens.

The flow has two halves. The person acts between them, and the answer may come to another process. The SDK's provider
runs the first half (`login_provider.py`): metadata, the client, the scopes, the resource. It serves one login only,
with its own HTTP client. Its result is a value (`BegunLogin`), with which the second half checks the answer and
exchanges the code.

This module requests the 401 of an MCP server. For another peer the caller passes a `LoginLead`, and the provider
continues from it.

Spec: MCP 2026-07-28 authorization, RFC 7636 (PKCE), 8252 (native apps), 8707 (resources), 9207 (`iss`), 9728.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Final, NoReturn

import anyio
import httpx2
from mcp.client.auth.exceptions import OAuthFlowError
from mcp_types.version import LATEST_PROTOCOL_VERSION
from pydantic import ValidationError

from bridge.errors import PeerError, UsageError, reason_of
from bridge.http.private_addresses import PrivateAddressError
from bridge.identity.logins.kept_logins import BegunLogin, Login, LoginLead
from bridge.identity.logins.login_clients import RegisteredClients
from bridge.identity.logins.login_credentials import (
    LoginConfig,
    token_answer,
    with_tokens,
    words_of_refusal,
)
from bridge.identity.logins.login_landing import LoginLanding
from bridge.identity.logins.login_provider import BegunSignal, LoginProvider, challenge_of, login_client
from bridge.identity.tokens.token_endpoint import TokenError, code_in
from bridge.text.jsonvalues import words_of
from bridge.text.safe_text import with_visible_characters

_LONGEST_WORDS: Final = 400
"""The most characters of a server's words that a message repeats."""

ShowPage = Callable[[str], Awaitable[None]]
"""Shows a person the page of the authorization server."""


class LoginFlowError(PeerError):
    """The login failed. The message says why, without any secret."""


async def log_in(
    login_config: LoginConfig,
    landing: LoginLanding,
    show: ShowPage,
    seconds: float,
    lead: LoginLead | None = None,
) -> Login:
    """Log in at the authorization server of a peer. `seconds` limits the requests before the page, and the exchange of
    the code, but not the person. `lead` is for a peer that is no MCP server. At the same issuer, the scopes of the
    current login, and the scopes that it lacked, are requested, too.

    Raises:
        LoginFlowError: a server or the person refused, or an answer of a server is not safe.
        UsageError: the server requires no login, or the store of logins cannot be used.
    """
    begun = await begin_login(login_config, landing.redirect_uri, seconds, lead)
    landing.state = begun.state
    await show(begun.page)
    await landing.came.wait()
    return await finish_login(login_config, begun, landing.answer, seconds)


async def begin_login(
    login_config: LoginConfig,
    redirect_uri: str,
    seconds: float,
    lead: LoginLead | None = None,
    clients: RegisteredClients | None = None,
) -> BegunLogin:
    """Find the page at which a person logs in. `seconds` and `lead` are as for `log_in`. A client in `clients` is not
    registered again.

    Raises:
        LoginFlowError: a server refused, or its answer is not safe.
        UsageError: the server requires no login."""
    async with login_config.keeper.held(login_config.key) as held:
        provider = LoginProvider(login_config, redirect_uri, held.login, lead, clients or RegisteredClients())
    try:
        with anyio.fail_after(
            seconds
        ):  # the timeout of each request does not limit a server that sends byte by byte
            async with login_client(login_config, seconds, lead) as http:
                if lead is not None:
                    await _led(http, lead, provider)
                status = await _challenged(http, login_config, provider)
    except BegunSignal as signal:
        return signal.begun
    except TimeoutError as exc:
        words = f"the requests before its page took longer than {seconds:g} s"
        raise LoginFlowError(f"no login at {login_config.key.url}: {words}") from exc
    except (OAuthFlowError, ValidationError) as exc:
        is_other = "issuer mismatch" in str(exc) and not login_config.issuer
        hint = ". If you trust the first of the two, set `issuer` to it (--issuer)" if is_other else ""
        raise LoginFlowError(f"no login at {login_config.key.url}: {_shown(words_of(exc))}{hint}") from exc
    except (httpx2.HTTPError, httpx2.InvalidURL) as exc:
        raise LoginFlowError(f"no login at {login_config.key.url}: {reason_of(exc)}") from exc
    except (TokenError, PrivateAddressError) as exc:
        raise LoginFlowError(f"no login at {login_config.key.url}: {exc}") from exc
    raise UsageError(f"{login_config.key.url} requires no login: it answered HTTP {status}")


async def finish_login(
    login_config: LoginConfig, begun: BegunLogin, answer: Mapping[str, str], seconds: float
) -> Login:
    """Exchange the code in the answer of a page for the tokens of a login. The answer's `iss` is checked before the
    code is sent.

    Raises:
        LoginFlowError: the answer does not belong to this login, or the person or the issuer refused.
    """
    try:
        code = code_in(answer, begun.iss or begun.bare.issuer, begun.state, says_issuer=begun.says_issuer)
        with anyio.fail_after(seconds):
            status, tokens = await token_answer(
                login_config,
                begun.bare,
                {
                    "grant_type": "authorization_code",
                    "code": code,
                    "redirect_uri": begun.redirect_uri,
                    "client_id": begun.bare.client_id,
                    "code_verifier": begun.verifier,
                },
            )
        if status not in (200, 201) or tokens is None:
            raise TokenError(f"{begun.bare.issuer} gave no tokens: {words_of_refusal(status, tokens)}")
        now = time.time()
        return with_tokens(replace(begun.bare, since=now), tokens, now)
    except TimeoutError as exc:
        words = f"{begun.bare.issuer} gave no tokens in {seconds:g} s"
        raise LoginFlowError(f"no login at {login_config.key.url}: {words}") from exc
    except (TokenError, PrivateAddressError) as exc:
        raise LoginFlowError(f"no login at {login_config.key.url}: {exc}") from exc


async def _challenged(http: httpx2.AsyncClient, login_config: LoginConfig, provider: LoginProvider) -> int:
    """Send requests that a server may refuse without a login, until it refuses one. Returns the status of its last
    answer."""
    headers, status = dict(_HEADERS), 0
    for message in (_INITIALIZE, _LIST_TOOLS):
        request = httpx2.Request("POST", login_config.url, json=message, headers=headers)
        response = await http.send(request, auth=provider, stream=True, follow_redirects=False)
        await response.aclose()
        status = response.status_code
        if session := response.headers.get(_SESSION):
            headers[_SESSION] = session
    return status


async def _led(http: httpx2.AsyncClient, lead: LoginLead, provider: LoginProvider) -> NoReturn:
    """Run the provider from a peer's lead.

    Raises:
        OAuthFlowError: the lead does not lead to a login.
    """
    is_named, has_issuer = "resource_metadata" in lead.challenge, bool(provider.context.auth_server_url)
    if lead.authorization_url and not is_named and not has_issuer:
        await provider.authorize_as_the_card_says(lead)
    request = httpx2.Request("GET", lead.url)
    response = httpx2.Response(401, headers={"WWW-Authenticate": challenge_of(lead)}, request=request)
    async with aclosing(provider.async_auth_flow(request)) as flow:
        await anext(flow)
        while True:
            outgoing = await flow.asend(response)
            if outgoing.method == "POST" and provider.context.oauth_metadata is None:
                raise OAuthFlowError(f"{provider.context.auth_server_url} has no metadata. Check `issuer`")
            if has_issuer and not is_named and outgoing.url.path.startswith(_RESOURCE_METADATA):
                # The peer did not name this URL: it may hold the metadata of another resource at the same host.
                response = httpx2.Response(404, request=outgoing)
            else:
                response = await http.send(outgoing, follow_redirects=False)


_RESOURCE_METADATA: Final = "/.well-known/oauth-protected-resource"
_SESSION: Final = "mcp-session-id"
_HEADERS: Final = {"Accept": "application/json, text/event-stream"}
_INITIALIZE: Final = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": LATEST_PROTOCOL_VERSION,
        "capabilities": {},
        "clientInfo": {"name": "mcp-a2a", "version": "0"},
    },
}
"""The first request, which most servers refuse without a login."""
_LIST_TOOLS: Final = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
"""The second request, for servers that let everyone initialize."""


def _shown(words: str) -> str:
    return with_visible_characters(words[:_LONGEST_WORDS], in_one_line=True)
