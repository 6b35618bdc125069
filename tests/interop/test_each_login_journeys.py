"""Two people log in for themselves at a server that wants a login of each caller, and none of the peers is ours.

The issuers are oidc-provider's, the server is the MCP SDK's, and scripts are the people. The operator is a third
person, whose login lists the tools.
"""

from __future__ import annotations

import html
import json
import logging
import os
import re
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
import httpx2
import pytest

from bridge.identity.logins.login_files import LoginFiles
from bridge.local.user_folders import state_folder
from tests.interop.conversation import Outcome, calling
from tests.interop.test_login_journeys import claims_in, ran
from tests.interop.test_oauth_journeys import bearer
from tests.peers import Json, PeerClient, Transport
from tests.peers.js_client import JsClient
from tests.peers.oidc_provider import Browser, OidcProvider
from tests.peers.py_client import PyClient
from tests.support.command import process_of
from tests.support.files import started
from tests.support.ports import free_port
from tests.support.postgres import new_database_url
from tests.support.protected_server import ProtectedServer
from tests.support.running import Rpc, call_part, texts
from tests.support.serving_file import serving_file

pytestmark = [pytest.mark.outside, pytest.mark.long]

Issuers = Mapping[str, OidcProvider]
WAIT_SECONDS: Final = 60
TOKENS: Final = {"alice": "the-token-of-alice-in-the-file", "bob": "the-token-of-bob-in-the-file"}
SECRETS: Final = {f"TOKEN_OF_{name.upper()}": token for name, token in TOKENS.items()}
AUTH: Final = "TASK_STATE_AUTH_REQUIRED"

BRIDGE = """
[bridge]
public_url = "{root}"

[tool_servers.crm]
url = "{tools}"
auth = { oauth2 = { grant = "authorization_code", issuer = "{partner}" } }
login = "each"

[tools_as_agent.desk]
from = ["crm"]
"""
OF_THE_FILE = """
[principals.alice]
bearer = { env = "TOKEN_OF_ALICE" }

[principals.bob]
bearer = { env = "TOKEN_OF_BOB" }
"""
OF_AN_ISSUER = """
[issuers.corp]
issuer = "{corp}"
login = { client_id = "{client}" }
"""


@dataclass
class Visitor:
    """Somebody with a browser, to whom a link is given."""

    name: str
    """At the issuers, and in the file."""
    token: str | None
    """That the page asks for; None for a principal of an issuer."""
    browser: Browser = field(init=False)

    def __post_init__(self) -> None:
        self.browser = Browser(self.name)

    async def shows_who(self, link: str) -> httpx2.Response:
        """Opens a link, and shows who is in the browser."""
        page = await self.browser.visit(link)
        if 'name="csrf"' not in page.text or 'name="approve"' in page.text:
            return page
        shown = {"token": self.token} if self.token else {"who": "yes"}
        page = await self.browser.sends(link, csrf=csrf_in(page), **shown)
        if self.token or page.status_code != 200:
            return page
        return await self.browser.visit(page_in(page))

    async def approves(self, link: str) -> str:
        """Approves at the page; where that leads to."""
        page = await self.shows_who(link)
        assert page.status_code == 200, page.text
        return page_in(await self.browser.sends(link, csrf=csrf_in(page), approve="yes"))

    async def logs_in(self, link: str, peer: str = "crm") -> None:
        """Goes all the way."""
        page = await self.browser.visit(await self.approves(link))
        assert f"You are logged in at {peer}" in page.text


@dataclass
class Person(Visitor):
    """Who calls the agent as well."""

    rpc: Rpc

    @property
    def shown(self) -> str:
        """The token with which this person calls."""
        return self.rpc.headers["Authorization"].removeprefix("Bearer ")

    async def asks(self) -> tuple[dict[str, Any], str]:
        """A task that waits for the login, and its link."""
        sent = await self.rpc.send(call_part("whoami"), configuration={"returnImmediately": True})
        task = await self.becomes(sent, AUTH)
        return task, link_in(texts(task["status"]["message"]["parts"]))

    async def task(self, task_id: str) -> dict[str, Any]:
        """A task as it is now."""
        found: dict[str, Any] = await self.rpc.call("GetTask", {"id": task_id})
        return found

    async def becomes(self, task: dict[str, Any], state: str) -> dict[str, Any]:
        """The task once it is in this state, by itself."""
        while (now := await self.task(task["id"]))["status"]["state"] != state:
            await anyio.sleep(0.02)
        return now


def link_in(said: Sequence[str]) -> str:
    """The link to a page of the bridge in what was said."""
    return re.findall(r"http://\S+/login/start/[\w-]+", " ".join(said))[0]


def csrf_in(page: httpx2.Response) -> str:
    return re.findall(r'name="csrf" value="([^"]+)"', page.text)[0]


def page_in(page: httpx2.Response) -> str:
    """The address of an issuer's page that a page leads to."""
    return html.unescape(re.findall(r'<a href="([^"]+)"', page.text)[0])


def told(task: dict[str, Any]) -> Any:
    """What `whoami` says of the rights with which it was called."""
    assert task["status"]["state"] == "TASK_STATE_COMPLETED", task
    return json.loads(texts(task["artifacts"][0]["parts"])[0])


@dataclass
class Journey:
    """A bridge that serves, its callers, and the server that wants their logins."""

    alice: Person
    bob: Person
    server: ProtectedServer

    def as_subject(self, name: str) -> set[str]:
        """The tokens that were shown to the server for this subject."""
        return {token for token in self.server.shown if token and claims_in(token)["sub"] == name}


def with_places(text: str, server: ProtectedServer) -> str:
    return text.replace("{tools}", server.url).replace("{partner}", server.issuer)


async def logins() -> set[tuple[str, str]]:
    """Whose logins there are, and why they are lost."""
    return {(key.principal, login.lost) for key, login in (await LoginFiles(state_folder()).all()).logins}


async def operator_logs_in(folder: Path, text: str, **secrets: str) -> None:
    """With the command, before anybody calls."""
    (file := folder / "login.toml").write_text(text)
    await ran(folder, "login", "crm", str(file), person="operator", **SECRETS, **secrets)


async def file_of(kind: str, server: ProtectedServer, corp: OidcProvider) -> str:
    """The file of a bridge whose principals are of this kind, but for the address of the bridge."""
    text = with_places(BRIDGE + (OF_THE_FILE if kind == "file" else OF_AN_ISSUER), server)
    if kind == "file":
        return text
    back = ["http://127.0.0.1/login/who"]  # of any port (RFC 8252 section 7.3)
    client = await corp.register(redirect_uris=back, token_endpoint_auth_method="none")
    return text.replace("{corp}", corp.url).replace("{client}", client.id)


async def two_people(
    stack: AsyncExitStack, kind: str, root: str, corp: OidcProvider, http: httpx2.AsyncClient
) -> tuple[Person, Person]:
    """Alice and Bob, with tokens of the file, or of their issuer for the agent."""
    agent, people = f"{root}/agents/desk", []
    caller = None if kind == "file" else await corp.register(token_endpoint_auth_method="none")
    for name, token in TOKENS.items():
        shown = token if caller is None else await caller.token_of(name, agent)
        person = Person(name, token if caller is None else None, Rpc(http, agent, bearer(shown)))
        await stack.enter_async_context(person.browser)
        people.append(person)
    alice, bob = people
    return alice, bob


@asynccontextmanager
async def journey(kind: str, issuers: Issuers, folder: Path) -> AsyncIterator[Journey]:
    """Serve a file whose principals are of this kind. The server's issuer is another one than theirs."""
    corp, partner = issuers["corp"], issuers["partner"]
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(ProtectedServer(partner.url).run())
        text = await file_of(kind, server, corp)
        await operator_logs_in(folder, text.replace("{root}", "http://127.0.0.1:9"))
        root = await stack.enter_async_context(serving_file(folder, text, SECRETS))
        http = await stack.enter_async_context(httpx2.AsyncClient(timeout=WAIT_SECONDS))
        while (await http.get(f"{root}/readyz")).status_code != 200:
            await anyio.sleep(0.02)
        yield Journey(*await two_people(stack, kind, root, corp, http), server)


@pytest.mark.parametrize("kind", ["file", "issuer"])
async def test_two_people_log_in_by_their_links_and_each_is_called_for_with_its_own_token(
    kind: str, issuers: Issuers, tmp_path: Path
) -> None:
    with anyio.fail_after(WAIT_SECONDS):
        async with journey(kind, issuers, tmp_path) as here:
            asked = {person.name: await person.asks() for person in (here.alice, here.bob)}
            assert issuers["partner"].url not in str(asked)
            for person in (here.alice, here.bob):
                task, link = asked[person.name]
                await person.logs_in(link)
                assert told(await person.becomes(task, "TASK_STATE_COMPLETED"))["subject"] == person.name
            # Later calls ask nobody, and each goes with the login of its caller.
            for person in (here.bob, here.alice):
                assert told(await person.rpc.send(call_part("whoami")))["subject"] == person.name
            assert len(here.as_subject("alice")) == len(here.as_subject("bob")) == 1
            prefix = "" if kind == "file" else "corp:"
            assert await logins() == {("", ""), (f"{prefix}alice", ""), (f"{prefix}bob", "")}


async def held(client: PeerClient, events: AsyncGenerator[Json], person: Person) -> Outcome:
    """Read a stream to its end. Whoever calls logs in by the link that comes on it, and says nothing more."""
    outcome, visited = Outcome(), ""
    async with aclosing(events):
        async for event in events:
            outcome.see(event)
            if outcome.state == AUTH and not visited:
                visited = link_in(texts(outcome.said))
                await person.logs_in(visited)
    assert visited
    found = await client.get(outcome.task_id)
    assert (found["status"]["state"], outcome.state) == ("TASK_STATE_COMPLETED", "TASK_STATE_COMPLETED")
    return outcome


@pytest.mark.parametrize("transport", ["JSONRPC", "HTTP+JSON"])
@pytest.mark.parametrize("sdk", [PyClient, JsClient])
@pytest.mark.parametrize("kind", ["file", "issuer"])
async def test_a_task_goes_on_by_itself_on_the_stream_that_an_official_client_holds(
    kind: str, sdk: type[PeerClient], transport: Transport, issuers: Issuers, tmp_path: Path
) -> None:
    """Alice's is the stream of her message, Bob's a subscription to a task that waits already."""
    with anyio.fail_after(WAIT_SECONDS):
        async with journey(kind, issuers, tmp_path) as here:
            url = here.alice.rpc.url
            async with (
                sdk(url, transport, headers=bearer(here.alice.shown)) as alice,
                sdk(url, transport, headers=bearer(here.bob.shown)) as bob,
            ):
                of_alice = await held(alice, alice.stream(calling("whoami")), here.alice)
                sent = Outcome.of(await bob.send(calling("whoami", at_once=True)))
                of_bob = await held(bob, bob.subscribe(sent.task_id), here.bob)
                found = [json.loads(one.parts[0]["text"])["subject"] for one in (of_alice, of_bob)]
                assert found == ["alice", "bob"]
                after = of_alice.states[of_alice.states.index(AUTH) + 1 :]
                assert {*after} == {"TASK_STATE_WORKING", "TASK_STATE_COMPLETED"}
                # Later calls of the same clients ask nobody.
                again = Outcome.of(await alice.send(calling("whoami")))
                assert json.loads(again.parts[0]["text"])["subject"] == "alice"
            assert len(here.as_subject("alice")) == len(here.as_subject("bob")) == 1


@pytest.mark.parametrize("kind", ["file", "issuer"])
async def test_whoever_is_logged_out_gets_a_link_with_the_next_call_and_no_longer_the_old_account(
    kind: str, issuers: Issuers, tmp_path: Path
) -> None:
    """By the command, while the bridge runs and has called with that login, whose access token is a JWT: the issuer
    cannot revoke it, and the server would still take it."""
    with anyio.fail_after(WAIT_SECONDS):
        async with journey(kind, issuers, tmp_path) as here:
            alice, bob = here.alice, here.bob
            for person in (alice, bob):
                task, link = await person.asks()
                await person.logs_in(link)
                assert told(await person.becomes(task, "TASK_STATE_COMPLETED"))["subject"] == person.name
            name = "bob" if kind == "file" else "corp:bob"
            said = await ran(
                tmp_path, "logout", "crm", str(tmp_path / "login.toml"), "--principal", name, **SECRETS
            )
            assert f"forgotten: the login of {name} at {here.server.url}" in said
            sent = await bob.rpc.send(call_part("whoami"))
            assert sent["status"]["state"] == AUTH, sent
            # Nobody else is asked, and the link is for a new login of whatever account is in the browser then.
            assert told(await alice.rpc.send(call_part("whoami")))["subject"] == "alice"
            if kind == "file":
                bob.browser.becomes("robert")
            await bob.logs_in(link_in(texts(sent["status"]["message"]["parts"])))
            account = "robert" if kind == "file" else "bob"
            assert told(await bob.becomes(sent, "TASK_STATE_COMPLETED"))["subject"] == account
            assert told(await bob.rpc.send(call_part("whoami")))["subject"] == account


@pytest.mark.parametrize("kind", ["file", "issuer"])
async def test_bob_opens_alices_link_in_vain_before_and_after_she_has_approved_and_she_may_decline(
    kind: str, issuers: Issuers, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "bridge")
    with anyio.fail_after(WAIT_SECONDS):
        async with journey(kind, issuers, tmp_path) as here:
            task, link = await here.alice.asks()
            assert (await here.bob.shows_who(link)).status_code == 403
            page = await here.alice.approves(link)
            assert (await here.bob.shows_who(link)).status_code == 403
            # He is at the issuer with her link as well, and brings its answer to him.
            assert (await here.bob.browser.visit(page)).status_code == 403
            assert await logins() == {("", "")}
            assert (await here.alice.task(task["id"]))["status"]["state"] == AUTH
            assert here.as_subject("alice") == here.as_subject("bob") == set()

            assert "You are logged in at crm" in (await here.alice.browser.visit(page)).text
            assert (await here.bob.shows_who(link)).status_code == 403
            assert told(await here.alice.becomes(task, "TASK_STATE_COMPLETED"))["subject"] == "alice"

            no, own = await here.bob.asks()
            shown = await here.bob.shows_who(own)
            assert (await here.bob.browser.sends(own, csrf=csrf_in(shown), decline="yes")).status_code == 200
            await here.bob.becomes(no, "TASK_STATE_REJECTED")
            assert here.as_subject("bob") == set()
    prefix = "" if kind == "file" else "corp:"
    opened = f"tool_servers.crm: {prefix}bob opened the login of {prefix}alice, and nothing was stored"
    foreign = "an answer to a login was refused, and nothing was stored: this browser began no login"
    loggers = ("bridge.identity.pages.login", "bridge.http.connections")
    said = [
        record.getMessage().removesuffix(", from 127.0.0.1")
        for record in caplog.records
        if record.name.startswith(loggers)
    ]
    assert said == [opened, opened, foreign, opened]
    assert not [token for token in (*TOKENS.values(), *here.server.shown) if token and token in caplog.text]


@pytest.mark.parametrize("kind", ["file", "issuer"])
async def test_a_bridge_that_is_killed_while_people_log_in_goes_on_with_their_tasks(
    kind: str, issuers: Issuers, tmp_path: Path
) -> None:
    port = free_port()
    root, state = f"http://127.0.0.1:{port}", Path(os.environ["XDG_STATE_HOME"])
    with anyio.fail_after(WAIT_SECONDS):
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(ProtectedServer(issuers["partner"].url).run())
            text = await file_of(kind, server, issuers["corp"])
            await operator_logs_in(tmp_path, text.replace("{root}", root))
            file = str(tmp_path / "login.toml")
            serve = partial(started, "serve", file, "--port", state=state, until="/agents/desk", port=port)
            http = await stack.enter_async_context(httpx2.AsyncClient(timeout=WAIT_SECONDS))
            alice, bob = await two_people(stack, kind, root, issuers["corp"], http)
            async with process_of(serve(**SECRETS)) as first:
                task, link = await alice.asks()
                no, own = await bob.asks()
                page = await alice.approves(link)  # she is at the issuer when it dies
                first.process.send_signal(signal.SIGKILL)
                await anyio.to_thread.run_sync(first.process.wait)
            async with process_of(serve(**SECRETS)):
                assert "You are logged in at crm" in (await alice.browser.visit(page)).text
                assert told(await alice.becomes(task, "TASK_STATE_COMPLETED"))["subject"] == "alice"
                shown = await bob.shows_who(own)
                await bob.browser.sends(own, csrf=csrf_in(shown), decline="yes")
                await bob.becomes(no, "TASK_STATE_REJECTED")
    assert {claims_in(token)["sub"] for token in server.shown if token} == {"operator", "alice"}


async def test_a_replica_that_is_killed_while_people_log_in_leaves_their_tasks_to_the_other(
    issuers: Issuers, tmp_path: Path
) -> None:
    there, port = free_port(), free_port()
    roots, state = [f"http://127.0.0.1:{one}" for one in (there, port)], Path(os.environ["XDG_STATE_HOME"])
    secrets = {**SECRETS, "KEY": "the same secret for both of them, of many letters"}
    # A proxy would stand before both. Here the address for browsers is that of the second one.
    shared = f'[bridge]\nstore = "{new_database_url()}"\nkeys = [{{ env = "KEY" }}]\nmapping = "quick.toml"\n'
    (tmp_path / "quick.toml").write_text('extends = "default"\n[store]\nlease_seconds = 2\n')
    with anyio.fail_after(WAIT_SECONDS):
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(ProtectedServer(issuers["partner"].url).run())
            text = with_places(BRIDGE.replace("[bridge]\n", shared) + OF_THE_FILE, server)
            await operator_logs_in(tmp_path, text.replace("{root}", roots[1]), KEY=secrets["KEY"])
            file = str(tmp_path / "login.toml")
            serve = partial(started, "serve", file, "--port", state=state, until="/agents/desk", **secrets)
            one = await stack.enter_async_context(process_of(serve(port=there)))
            await stack.enter_async_context(process_of(serve(port=port)))
            http = await stack.enter_async_context(httpx2.AsyncClient(timeout=WAIT_SECONDS))
            one_rpc, two_rpc = (Rpc(http, f"{root}/agents/desk", bearer(TOKENS["alice"])) for root in roots)
            alice = Person("alice", TOKENS["alice"], one_rpc)
            await stack.enter_async_context(alice.browser)
            task, link = await alice.asks()
            page = await alice.approves(link)
            one.process.send_signal(signal.SIGKILL)
            alice.rpc = two_rpc
            assert "You are logged in at crm" in (await alice.browser.visit(page)).text
            assert told(await alice.becomes(task, "TASK_STATE_COMPLETED"))["subject"] == "alice"
