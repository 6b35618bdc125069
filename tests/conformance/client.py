"""The bridge as the client of the suites' servers: each is wrapped, and a person uses the agent that comes of it.

The person speaks A2A and knows nothing of MCP: calls every skill, and then answers what was asked, with as few
fields as a form takes. What that makes the bridge say to the server is what the suites look at.
"""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
import httpx2
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from bridge.errors import UsageError, leaf_of
from bridge.http.login_credentials import LoginWish
from bridge.http.login_flow import log_in
from bridge.http.login_landing import login_landing
from bridge.http.token_endpoint import OAuthClient
from bridge.mcp.client.eras import Era
from bridge.store.login_files import LoginFiles
from tests.support.limits import url_at
from tests.support.running import (
    EXTENSION,
    Rpc,
    WrapConfig,
    call_part,
    config_for,
    listening,
    running,
)

logger = logging.getLogger(__name__)

SCENARIO_SECONDS: Final = 20
AT_THE_SAME_TIME: Final = 3
"""Scenarios; the suites start all of them at once, and one measures how soon a client comes back."""

_ANSWERS: Final = 8
_VALUES: Final = {"number": 2, "integer": 2, "boolean": True, "object": {}, "array": []}
_RAW_ARGUMENTS: Final = frozenset({"http-custom-headers"})
"""Scenarios whose arguments are not as the schema says, which only a client with our extension may send."""
_OWN_RIGHTS: Final = ("auth/client-credentials-", "auth/wif-")
"""Scenarios in which the bridge is a client of the authorization server in its own name."""
_AUTHORIZED: Final = "auth/"
"""Scenarios in which a person logs in at the authorization server, but for those before."""
_NO_METADATA: Final = "auth/2025-03-26-oauth-endpoint-fallback"
"""A scenario whose authorization server has no metadata, and so cannot say that it checks PKCE: the operator does."""
_OTHER_GRANTS: Final = ("auth/dpop", "auth/enterprise-")
"""Scenarios of extensions that the bridge does not have, or has for other tokens than these."""
_LOGIN_NEEDED: Final = "Run `mcp-a2a login"
_ECHO: Final = ("json-schema-2020-12-preservation", "json_schema_echo", "json_schema_2020_12_tool")
"""A scenario in which a tool is called with the schema of another one."""


class Scenario(BaseModel):
    """What a suite wants done."""

    name: str
    url: str
    context: dict[str, Any] = {}


@dataclass
class Person:
    """Someone who uses an agent."""

    rpc: Rpc
    card: dict[str, Any]
    asked: list[dict[str, Any]] = field(default_factory=list)
    """The tasks that asked something."""
    needs_login: bool = False
    """Whether a task said that a login is needed."""

    @property
    def schemas(self) -> dict[str, dict[str, Any]]:
        """What each skill takes, as the card says."""
        for extension in self.card["capabilities"].get("extensions", ()):
            if extension["uri"] == EXTENSION:
                tools = extension["params"]["tools"]
                return {skill: tool["inputSchema"] for skill, tool in tools.items()}
        return {}

    async def call(self, skill: str, arguments: dict[str, Any]) -> None:
        """Call a skill."""
        self._note(await self.rpc.send(call_part(skill, **arguments)))

    async def answer_all(self) -> None:
        """Answer what is asked; some forms nobody can fill in without knowing what they are about."""
        for _ in range(_ANSWERS):
            if not self.asked:
                break
            task = self.asked.pop(0)
            parts = task["status"]["message"]["parts"]
            forms = (part["data"]["schema"] for part in parts if "schema" in part.get("data", {}))
            self._note(await self.rpc.send({"data": arguments_for(next(forms, {}))}, taskId=task["id"]))

    def _note(self, task: dict[str, Any]) -> None:
        if task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED":
            self.asked.append(task)
        self.needs_login = self.needs_login or _LOGIN_NEEDED in json.dumps(task["status"])


def arguments_for(schema: dict[str, Any]) -> dict[str, Any]:
    """As few fields as a schema takes."""
    properties = schema.get("properties", {})
    return {
        name: _VALUES.get(properties.get(name, {}).get("type"), "x") for name in schema.get("required", ())
    }


async def act(scenario: Scenario) -> str:
    """Do what a scenario wants; what was done, in words."""
    async with httpx2.AsyncClient(timeout=SCENARIO_SECONDS) as http:
        with tempfile.TemporaryDirectory(prefix="mcp-a2a-conformance-") as folder:
            oauth = await oauth_of(scenario, Path(folder), http)
            config = config_for(url_at(scenario.url, oauth=oauth), era=Era.AUTO)
            wish = oauth if isinstance(oauth, LoginWish) else None
            try:
                return await used(scenario, config, http, wish)
            except ExceptionGroup as exc:
                if wish is None or _LOGIN_NEEDED not in str(leaf_of(exc)):
                    raise
                await log_in_to(wish, http)
            return await used(scenario, config, http, wish)


async def oauth_of(
    scenario: Scenario, folder: Path, http: httpx2.AsyncClient
) -> OAuthClient | LoginWish | None:
    """How the bridge gets the token for a scenario; None if it needs none."""
    if scenario.name.startswith(_OWN_RIGHTS):
        return await client_of(scenario, folder, http)
    if scenario.name.startswith(_AUTHORIZED) and not scenario.name.startswith(_OTHER_GRANTS):
        return await logged_in(scenario, folder, http)
    return None


async def logged_in(scenario: Scenario, folder: Path, http: httpx2.AsyncClient) -> LoginWish | None:
    """The login of a person, who does as `mcp-a2a login` says before the server is wrapped; None if none is needed."""
    wish = LoginWish(
        scenario.url,
        LoginFiles(folder),
        client_id=scenario.context.get("client_id", ""),
        secret=scenario.context.get("client_secret", ""),
        client_metadata_url="https://conformance-test.local/client-metadata.json",
        pkce="assume" if scenario.name == _NO_METADATA else "required",
        allow_private=True,
    )

    try:
        await log_in_to(wish, http)
    except UsageError:
        return None
    return wish


async def log_in_to(wish: LoginWish, http: httpx2.AsyncClient) -> None:
    """Log in and keep the login, as `mcp-a2a login` does."""

    async def browse(url: str) -> None:
        await http.get(url, follow_redirects=True)

    async with login_landing("127.0.0.1", 0) as landing:
        login = await log_in(wish, landing, browse, SCENARIO_SECONDS)
    async with wish.keeper.held(wish.key) as held:
        await held.write(login)


async def client_of(scenario: Scenario, folder: Path, http: httpx2.AsyncClient) -> OAuthClient:
    """What a file says of the bridge as a client. Whoever writes it looks the issuer up at the server."""
    url = urlsplit(scenario.url)
    metadata = f"{url.scheme}://{url.netloc}/.well-known/oauth-protected-resource{url.path}"
    (issuer,) = (await http.get(metadata)).json()["authorization_servers"]
    if platform_jwt := scenario.context.get("valid_jwt"):
        (file := folder / "jwt").write_text(platform_jwt, "utf-8")
        client_id = scenario.context["client_id"]
        return OAuthClient(issuer, client_id, "", "none", resource=scenario.url, platform_jwt=file)
    key = scenario.context.get("private_key_pem")
    return OAuthClient(
        issuer,
        scenario.context["client_id"],
        key or scenario.context["client_secret"],
        "private_key_jwt" if key else "basic",
        resource=scenario.url,
    )


async def used(
    scenario: Scenario, config: WrapConfig, http: httpx2.AsyncClient, wish: LoginWish | None
) -> str:
    """Use the agent that is made of the scenario's server; what was done, in words.

    Whoever is told that a login is needed logs in once more, and calls again.
    """
    async with running(config) as bridge:
        card = (await http.get(f"{bridge.base_url}/.well-known/agent-card.json")).json()
        headers = {"A2A-Extensions": EXTENSION} if scenario.name in _RAW_ARGUMENTS else None
        person = Person(Rpc(http, f"{bridge.base_url}/", headers), card)
        for skill, arguments in calls_of(scenario, person.schemas):
            await person.call(skill, arguments)
        if wish is not None and person.needs_login:
            await log_in_to(wish, http)
            for skill, arguments in calls_of(scenario, person.schemas):
                await person.call(skill, arguments)
        await person.answer_all()
        return f"called {', '.join(person.schemas) or 'nothing'}"


def calls_of(scenario: Scenario, schemas: dict[str, dict[str, Any]]) -> Sequence[tuple[str, dict[str, Any]]]:
    """The calls of a scenario: those that it names, else each skill."""
    if wanted := scenario.context.get("toolCalls"):
        return [(call["name"], call["arguments"]) for call in wanted]
    calls = {skill: arguments_for(schema) for skill, schema in schemas.items()}
    name, echo, shown = _ECHO
    if scenario.name == name and {echo, shown} <= schemas.keys():
        calls[echo] = {"schema": schemas[shown]}
    return list(calls.items())


@asynccontextmanager
async def client_service() -> AsyncIterator[int]:
    """Take scenarios from `client_command.py`; the port."""
    limiter = anyio.CapacityLimiter(AT_THE_SAME_TIME)

    async def take(request: Request) -> JSONResponse:
        scenario = Scenario.model_validate_json(await request.body())
        async with limiter:
            try:
                with anyio.fail_after(SCENARIO_SECONDS):
                    said, done = await act(scenario), True
            except Exception as exc:  # noqa: BLE001 - whatever it is, it is for the suite's log
                said, done = f"{scenario.name}: {exc!r}", False
                logger.info("a scenario ended with an error: %s", said)
        return JSONResponse({"said": said, "done": done})

    async with listening(Starlette(routes=[Route("/", take, methods=["POST"])])) as url:
        yield int(url.rpartition(":")[2])
