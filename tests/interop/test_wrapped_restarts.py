"""Wrapped servers whose login is older than the bridge that calls them: it was made once, and nobody is asked again.

The issuer is oidc-provider's, the server is the MCP SDK's, and the caller is a2a-sdk. The access tokens live for
seconds, and really expire while no bridge runs.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
import pytest

from tests.interop.conversation import calling
from tests.interop.test_login_journeys import claims_in, login_at, ran, renewals
from tests.interop.test_oauth_journeys import answered
from tests.peers.oidc_provider import OidcProvider
from tests.peers.py_client import PyClient
from tests.support.command import process_of
from tests.support.files import started
from tests.support.protected_server import ProtectedServer

pytestmark = [pytest.mark.outside, pytest.mark.long]

WAIT_SECONDS: Final = 60
LIFE_SECONDS: Final = 4
"""Of the access tokens."""

FILE: Final = """
[tool_servers.crm]
url = "{server}"
auth = { oauth2 = { grant = "authorization_code", issuer = "{issuer}", client_id = "{client}" } }

[tools_as_agent.desk]
from = ["crm"]
"""


async def subject_after_a_start(serve: tuple[str, ...], until: str) -> str:
    """Start a bridge, call its agent with a2a-sdk, and stop it; whom the server took the call to be of."""
    state = Path(os.environ["XDG_STATE_HOME"])
    async with process_of(started(*serve, "--port", state=state, until=until)) as bridge:
        async with PyClient(f"{bridge.url}/{'agents/desk' if serve[0] == 'serve' else ''}") as caller:
            task = (await caller.send(calling("whoami")))["task"]
        assert await anyio.to_thread.run_sync(bridge.stop, signal.SIGTERM) == 0
    told: dict[str, Any] = json.loads(answered(task))
    return str(told["subject"])


@pytest.mark.parametrize("way", ["command line", "file"])
async def test_a_bridge_that_starts_again_calls_by_the_refresh_token_after_the_access_token_has_expired(
    way: str, issuers: Mapping[str, OidcProvider], tmp_path: Path
) -> None:
    corp = issuers["corp"]
    client = await corp.register(
        grant_types=["authorization_code", "refresh_token"],
        token_endpoint_auth_method="none",
        access_token_seconds=LIFE_SECONDS,
    )
    with anyio.fail_after(WAIT_SECONDS):
        async with ProtectedServer(corp.url).run() as server:
            if way == "file":
                text = FILE.replace("{server}", server.url).replace("{issuer}", corp.url)
                (file := tmp_path / "bridge.toml").write_text(text.replace("{client}", client.id))
                serve, until = ("serve", str(file)), "/agents/desk"
                await ran(tmp_path, "login", "crm", str(file))
            else:
                serve, until = ("wrap", server.url), "Card "
                await ran(tmp_path, "login", server.url, "--issuer", corp.url, "--client-id", client.id)
            assert await subject_after_a_start(serve, until) == "alice"
            before, renewed = await login_at(server.url), len(await renewals(corp, client.id))
            while any(claims_in(token)["exp"] >= time.time() for token in server.shown):
                await anyio.sleep(0.05)
            of_the_first = set(server.shown)
            server.shown.clear()
            assert await subject_after_a_start(serve, until) == "alice"
            after = await login_at(server.url)
    # The expired token was not even shown, and the refresh token rotated.
    assert server.shown
    assert not of_the_first & set(server.shown)
    assert after.refresh_token != before.refresh_token
    assert len(await renewals(corp, client.id)) > renewed
    events = [event["event"] for event in await corp.seen(client.id)]
    assert events.count("authorization.success") == 1
    assert set(events) == {"registration", "authorization.success", "grant.success"}
