"""The bridge as the client of the suites' servers: each is wrapped, and a person uses the agent that comes of it.

The person speaks A2A and knows nothing of MCP: calls every skill, and then answers what was asked, with as few
fields as a form takes. What that makes the bridge say to the server is what the suites look at. In the scenarios of
OAuth the bridge is the commands of a user (commands.py), and else in this process.
"""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
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

from bridge.mcp.client.eras import Era
from tests.conformance.commands import Commands, NoLoginError, NotServingError, by_file, by_url
from tests.support import forked
from tests.support.limits import url_at
from tests.support.running import EXTENSION, Rpc, call_part, config_for, listening, running

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
        if scenario.name.startswith(_AUTHORIZED):
            with tempfile.TemporaryDirectory(prefix="mcp-a2a-conformance-") as folder:
                return await by_commands(scenario, await commands_for(scenario, Path(folder), http), http)
        async with running(config_for(url_at(scenario.url), era=Era.AUTO)) as bridge:
            return await used(scenario, bridge.base_url, http)


async def commands_for(scenario: Scenario, folder: Path, http: httpx2.AsyncClient) -> Commands:
    """The commands with which a user gets to the tools of a scenario's server."""
    url, given = scenario.url, scenario.context
    if scenario.name.startswith(_OWN_RIGHTS) or (is_of_a_person(scenario) and "client_secret" in given):
        oauth2, secrets = grant_in(given, folder, is_of_a_person=is_of_a_person(scenario))
        issuer = await issuer_of(url, http)
        return by_file(url, folder, {"issuer": issuer, **oauth2}, **secrets)
    options = ["--client-metadata-url", "https://conformance-test.local/client-metadata.json"]
    options += ["--assume-pkce"] if scenario.name == _NO_METADATA else []
    return by_url(url, folder, *options)


def grant_in(
    given: Mapping[str, str], folder: Path, *, is_of_a_person: bool
) -> tuple[dict[str, str], dict[str, str]]:
    """What a file says of a grant, and its secrets."""
    client = {"client_id": given["client_id"]}
    if platform_jwt := given.get("valid_jwt"):
        (file := folder / "jwt").write_text(platform_jwt, "utf-8")
        return {"grant": "jwt_bearer", "assertion_file": str(file), **client}, {}
    if key := given.get("private_key_pem"):
        return {"grant": "client_credentials", **client}, {"private_key": key}
    grant = "authorization_code" if is_of_a_person else "client_credentials"
    return {"grant": grant, **client}, {"client_secret": given["client_secret"]}


def is_of_a_person(scenario: Scenario) -> bool:
    """Whether a person logs in for it."""
    return not scenario.name.startswith((*_OWN_RIGHTS, *_OTHER_GRANTS))


async def issuer_of(server: str, http: httpx2.AsyncClient) -> str:
    """The issuer of a server. Whoever writes a file with a secret looks it up there."""
    url = urlsplit(server)
    metadata = f"{url.scheme}://{url.netloc}/.well-known/oauth-protected-resource{url.path}"
    (issuer,) = (await http.get(metadata)).json()["authorization_servers"]
    return str(issuer)


async def by_commands(scenario: Scenario, commands: Commands, http: httpx2.AsyncClient) -> str:
    """Log in where a person does, serve and use the agent; what was done, in words.

    Whoever is told at the start or by a task that a login is needed logs in once more.
    """

    async def log_in() -> None:
        await commands.log_in(http, SCENARIO_SECONDS)

    again = log_in if is_of_a_person(scenario) else None
    try:
        if again is not None:
            await again()
    except NoLoginError as exc:
        if not exc.is_needless:
            raise
        again = None
    try:
        async with commands.serving() as agent:
            return await used(scenario, agent, http, again)
    except NotServingError as exc:
        if again is None or not exc.needs_login:
            raise
    await again()
    async with commands.serving() as agent:
        return await used(scenario, agent, http, again)


async def used(
    scenario: Scenario,
    agent: str,
    http: httpx2.AsyncClient,
    log_in: Callable[[], Awaitable[None]] | None = None,
) -> str:
    """Use the agent that is made of the scenario's server; what was done, in words.

    Whoever is told that a login is needed logs in once more, and calls again.
    """
    card = (await http.get(f"{agent}/.well-known/agent-card.json")).json()
    headers = {"A2A-Extensions": EXTENSION} if scenario.name in _RAW_ARGUMENTS else None
    person = Person(Rpc(http, f"{agent}/", headers), card)
    for skill, arguments in calls_of(scenario, person.schemas):
        await person.call(skill, arguments)
    if log_in is not None and person.needs_login:
        await log_in()
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

    try:
        async with listening(Starlette(routes=[Route("/", take, methods=["POST"])])) as url:
            yield int(url.rpartition(":")[2])
    finally:
        forked.stop()
