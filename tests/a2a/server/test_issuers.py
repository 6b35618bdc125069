"""An agent that trusts an issuer: what its card says, and what a token without the scope of a skill is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from bridge.a2a.client.credentials import Credentials, apply_credentials
from bridge.a2a.model.objects import AgentCard
from bridge.identity.callers.issuers import IssuerMetadata
from tests.assembly.test_admission import ADA, KEY
from tests.assembly.test_issuers import Guarded, trusting
from tests.support.drivers import Driver
from tests.support.issuer import OAUTH, OPENID, bearer
from tests.support.older_drivers import EVERY_DRIVER, name_of
from tests.support.running import call_part, message

CARD = "/agents/a/.well-known/agent-card.json"
SCOPES = (("tools:read", ("echo",)), ("tools:write", ("a/hold",)))
METADATA = {
    "authorization_endpoint": "https://login.example.com/authorize",
    "token_endpoint": "https://login.example.com/token",
    "grant_types_supported": ["authorization_code", "client_credentials"],
}


async def card_once_known(there: Guarded) -> dict[str, Any]:
    """The card, once the metadata of the issuer is known."""
    while True:
        card: dict[str, Any] = await there.live.json(CARD)
        if "corp-token" not in card["securitySchemes"]:
            return card
        await anyio.sleep(0.01)


@pytest.mark.proves("a2a-4.4.1-card", "oauth-scopes")
async def test_the_card_says_which_issuer_gives_tokens_and_which_scope_each_skill_takes(
    tmp_path: Path,
) -> None:
    async with trusting(tmp_path, ADA, KEY, scopes=SCOPES, metadata=METADATA) as there:
        card = await card_once_known(there)
        url, scopes = (
            f"{there.issuer.url}{OPENID}",
            {scope: f"Skills that take {scope}" for scope, _ in SCOPES},
        )
        token = {"tokenUrl": METADATA["token_endpoint"], "scopes": scopes}
        code = {"authorizationUrl": METADATA["authorization_endpoint"], **token}
        flows = {"corp-oauth2": {"authorizationCode": code}, "corp-client": {"clientCredentials": token}}
        shown = AgentCard.model_validate(card).to_object()
        assert {name: shown["securitySchemes"][name]["oauth2SecurityScheme"] for name in flows} == {
            name: {"flows": flow, "oauth2MetadataUrl": url} for name, flow in flows.items()
        }
        assert shown["securitySchemes"]["corp-openid"]["openIdConnectSecurityScheme"] == {
            "openIdConnectUrl": url
        }
        assert set(shown["securitySchemes"]) == {
            "bearer",
            "apiKey",
            "corp-oauth2",
            "corp-client",
            "corp-openid",
        }

        def needed(scope: str) -> list[dict[str, Any]]:
            secrets = [{"schemes": {name: {"list": []}}} for name in ("bearer", "apiKey")]
            names = ("corp-oauth2", "corp-client", "corp-openid")
            return [*secrets, *({"schemes": {name: {"list": [scope]}}} for name in names)]

        assert card["securityRequirements"] == needed("tools:read")
        skills = {skill["id"]: skill for skill in card["skills"]}
        assert "securityRequirements" not in skills["echo"]
        assert skills["hold"]["securityRequirements"] == needed("tools:write")
        found = apply_credentials(AgentCard.model_validate(card), Credentials(bearer="x"))
        assert found.headers == {"Authorization": "Bearer x"}


@pytest.mark.proves("a2a-4.4.1-card")
async def test_a_card_without_metadata_of_its_issuer_still_requires_a_token(tmp_path: Path) -> None:
    async with trusting(tmp_path, metadata={"issuer": "https://other.example"}) as there:
        card = AgentCard.model_validate(await there.live.json(CARD)).to_object()
        assert list(card["securitySchemes"]) == ["corp-token"]
        scheme = card["securitySchemes"]["corp-token"]["httpAuthSecurityScheme"]
        assert scheme == {"scheme": "Bearer", "bearerFormat": "JWT"}
        assert card["securityRequirements"] == [{"schemes": {"corp-token": {"list": []}}}]


@pytest.mark.proves("oauth-scopes", "a2a-5.1-equivalent")
@pytest.mark.parametrize("kind", EVERY_DRIVER, ids=name_of)
async def test_a_skill_that_takes_another_scope_is_403_in_every_binding(kind: Any, tmp_path: Path) -> None:
    async with trusting(tmp_path, scopes=SCOPES) as there, httpx2.AsyncClient(timeout=30) as client:
        driver: Driver = kind(client, f"{there.live.url}/agents/a")
        reading = driver.with_headers(**bearer(there.issuer.token("api://a", scope="tools:read")))
        none = driver.with_headers(**bearer(there.issuer.token("api://a", scope="")))
        challenge = 'Bearer realm="mcp-a2a", error="insufficient_scope", scope="{}"'
        for caller, part, scope in (
            (reading, call_part("hold"), "tools:write"),
            (none, call_part("echo"), "tools:read"),
            (none, {"text": "do something"}, "tools:read"),
        ):
            refused = (await caller.answer("SendMessage", message(part))).http
            assert (refused.status_code, refused.headers["www-authenticate"]) == (
                403,
                challenge.format(scope),
            )
        assert there.tools.calls == []
        done = await reading.send(call_part("echo"))
        assert done["status"]["state"].upper().endswith("COMPLETED")


@pytest.mark.proves("a2a-3.3.2-authentication")
@pytest.mark.parametrize("kind", EVERY_DRIVER, ids=name_of)
async def test_a_token_that_cannot_be_verified_yet_is_503_in_every_binding(kind: Any, tmp_path: Path) -> None:
    async with (
        trusting(tmp_path, metadata={"issuer": "x"}) as there,
        httpx2.AsyncClient(timeout=30) as client,
    ):
        driver: Driver = kind(client, f"{there.live.url}/agents/a")
        caller = driver.with_headers(**bearer(there.issuer.token("api://a")))
        refused = await client.send(caller.request("SendMessage", message(call_part("echo"))))
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) >= 1


@pytest.mark.proves("a2a-4.4.1-card")
@pytest.mark.parametrize(
    ("url", "more", "openid"),
    [
        (f"https://a.example{OPENID}", {}, f"https://a.example{OPENID}"),
        (f"https://a.example{OAUTH}", {}, None),
        (
            f"https://a.example{OAUTH}",
            {"id_token_signing_alg_values_supported": []},
            f"https://a.example{OPENID}",
        ),
    ],
)
def test_an_issuer_with_openid_connect_is_declared_as_such(
    url: str, more: dict[str, Any], openid: str | None
) -> None:
    assert IssuerMetadata({"issuer": "https://a.example/", **more}, url).openid_url == openid
