"""A tool server that wants a login of each caller, from the task without one to the call with it."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import anyio
import httpx2
import pytest
from starlette.responses import JSONResponse, Response

from bridge.assembly.plan import AuditPlan, ProcessPlan, ServerPlan
from bridge.identity.callers.issuers import IssuerPlace, LoginClient
from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import Credential
from bridge.identity.logins.kept_logins import DAY_SECONDS, OPERATOR, AwaitedLogin, LoginKeeper, LoginKey
from bridge.identity.logins.login_credentials import LoginConfig
from bridge.identity.logins.login_files import LoginFiles
from bridge.mcp.client.eras import Era
from bridge.mcp.client.transports.streamable_http import HttpTarget
from tests.assembly.test_bridge import Live, agent, live
from tests.assembly.test_logins import PROFILE, TOOLS, put
from tests.support.issuer import issuer_at
from tests.support.login_server import LoginServer
from tests.support.mcp_wire import LEGACY, MODERN
from tests.support.recording_server import Answer, Got, RecordingServer
from tests.support.running import call_part

pytestmark = pytest.mark.outside

TOKENS: Final = {"alice": "token-of-alice", "bob": "token-of-bob"}
KEEP_SECONDS: Final = 30 * DAY_SECONDS


@dataclass
class Office:
    """A bridge with an agent of one server, `crm`, which wants a login of each caller."""

    there: Live
    login_config: LoginConfig
    issuer: LoginServer
    calls: list[str]
    """The tokens with which the tool was called."""

    client: str = "tests/1"
    """What the client says of itself."""

    async def rpc(self, who: str, method: str, params: dict[str, Any]) -> Any:
        answer = await self.there.client.post(
            f"{self.there.url}/agents/desk",
            json={"jsonrpc": "2.0", "id": 1, "method": method, "params": params},
            headers=httpx2.Headers(
                {
                    "Authorization": f"Bearer {TOKENS[who]}",
                    "A2A-Version": "1.0",
                    "User-Agent": self.client,
                },
                encoding="latin-1",
            ),
        )
        return answer.json()["result"]

    async def send(self, who: str, message: dict[str, Any]) -> dict[str, Any]:
        said = {"messageId": str(anyio.current_time()), "role": "ROLE_USER", **message}
        sent = {"message": said, "configuration": {"returnImmediately": True}}
        task: dict[str, Any] = (await self.rpc(who, "SendMessage", sent))["task"]
        return task

    async def becomes(self, who: str, task: dict[str, Any], state: str) -> dict[str, Any]:
        """The task once it is in this state."""
        while (now := await self.rpc(who, "GetTask", {"id": task["id"]}))["status"]["state"] != state:
            await anyio.sleep(0.01)
        return dict(now)

    async def asked(self, who: str) -> tuple[dict[str, Any], str]:
        """A task of this principal that waits for its login, and the link."""
        task = await self.send(who, {"parts": [call_part("echo")]})
        task = await self.becomes(who, task, "TASK_STATE_AUTH_REQUIRED")
        return task, link_in(task)

    async def is_asked(self, who: str, link: str) -> dict[str, str]:
        """What the page asks this principal to approve: each name, and its HTML."""
        async with httpx2.AsyncClient(timeout=30, follow_redirects=True) as browser:
            csrf = re.findall(r'name="csrf" value="([^"]+)"', (await browser.get(link)).text)[0]
            page = await browser.post(link, data={"csrf": csrf, "token": TOKENS[who]})
        return dict(re.findall("<dt>(.*?)</dt><dd>(.*?)</dd>", page.text))

    async def logs_in(self, who: str, link: str, act: str = "approve") -> httpx2.Response:
        """A browser of this principal goes all the way."""
        async with httpx2.AsyncClient(timeout=30, follow_redirects=True) as browser:
            page = await browser.get(link)
            for form in ({"token": TOKENS[who]}, {act: "yes"}):
                csrf = re.findall(r'name="csrf" value="([^"]+)"', page.text)[0]
                page = await browser.post(link, data={"csrf": csrf, **form})
            if act != "approve":
                return page
            return await browser.get(re.findall(r'<a href="([^"]+)"', page.text)[0].replace("&amp;", "&"))


def link_in(task: dict[str, Any]) -> str:
    text = "".join(part.get("text", "") for part in task["status"]["message"]["parts"])
    return re.findall(r"http://\S+/login/start/[\w-]+", text)[0]


@dataclass
class Town:
    """A server that wants a login of each caller, for the bridges of a test."""

    folder: Path
    login_config: LoginConfig
    issuer: LoginServer
    calls: list[str]
    """The tokens with which the tool was called, also at bridges of before."""
    server: ServerPlan

    @asynccontextmanager
    async def opens(self, **more: Any) -> AsyncIterator[Office]:
        """A bridge, for as long as this is entered."""
        people = [Credential(Principal(name), token) for name, token in TOKENS.items()]
        plan: dict[str, Any] = {"published": {"desk": agent("crm")}, "credentials": people, **more}
        async with live(self.folder, servers={"crm": self.server}, **plan) as there:
            while (await there.client.get(f"{there.url}/readyz")).status_code != 200:
                await anyio.sleep(0.01)
            yield Office(there, self.login_config, self.issuer, self.calls)


@asynccontextmanager
async def office(tmp_path: Path, link_seconds: float = 600, **more: Any) -> AsyncIterator[Office]:
    async with town(tmp_path, link_seconds) as here, here.opens(**more) as bridge:
        yield bridge


Answers = Callable[[str], Any]
"""The answer of the server to a call with some token; None for the usual one."""


@asynccontextmanager
async def town(
    tmp_path: Path,
    link_seconds: float = 600,
    keeper: LoginKeeper | None = None,
    answers: Answers = lambda _: None,
    era: Era = Era.LEGACY,
    others: Mapping[str, Answer] | None = None,
    capabilities: Mapping[str, Any] | None = None,
    **wished: float,
) -> AsyncIterator[Town]:
    issuer, calls = LoginServer(), []

    def called(got: Got) -> Any:
        calls.append(got.headers["authorization"].removeprefix("Bearer "))
        return answers(calls[-1]) or {"content": [{"type": "text", "text": "done"}]}

    speaks = LEGACY if era is Era.LEGACY else MODERN
    tools = RecordingServer(
        speaks,
        answers={"tools/list": lambda _: TOOLS, "tools/call": called, **(others or {})},
        capabilities={"tools": {}, **(capabilities or {})},
    )
    with anyio.fail_after(60):
        async with issuer.serve(), tools.serve() as url:
            # The issuer's own resource asks for the login; the tools stand at another address.
            login_config = LoginConfig(
                url,
                keeper or LoginFiles(tmp_path / "state"),
                "crm",
                allow_private=True,
                of_each=True,
                link_seconds=link_seconds,
                keep_seconds=KEEP_SECONDS,
                **wished,
            )
            target = HttpTarget(
                url,
                oauth=login_config,
                connect_seconds=20,
                result_limit_bytes=1 << 20,
                result_json_values=10_000,
            )
            made = ServerPlan.as_profile_says(target, era, PROFILE.server, PROFILE.run)
            plan = replace(made, settings=made.settings.having(session="principal"))
            await put(login_config, issuer)
            yield Town(tmp_path, login_config, issuer, calls, plan)


async def test_a_task_goes_on_by_itself_once_its_caller_has_a_login(tmp_path: Path) -> None:
    async with office(tmp_path) as here:
        task, link = await here.asked("alice")
        assert link.startswith(f"{here.there.url}/login/start/")
        assert here.issuer.issuer not in str(task)
        words = task["status"]["message"]["parts"][0]["text"]
        assert words == (
            f"crm wants you to log in\nOpen this address of 127.0.0.1: {link}\n"
            "The task goes on by itself once you are logged in."
        )
        await put(replace(here.login_config, principal="alice"), here.issuer)
        await here.becomes("alice", task, "TASK_STATE_COMPLETED")
        assert here.calls == ["access-2"]


@pytest.mark.parametrize(
    ("client", "shown"),
    [
        ("acme-agents/2.1 (linux)", "; the client calls itself &quot;acme-agents/2.1 (linux)&quot;"),
        (
            'x" approved by <b>\x9b\xad admin',
            "; the client calls itself &quot;x&#x27; approved by &lt;b&gt; admin&quot;",
        ),
        ("a" * 3000, f"; the client calls itself &quot;{'a' * 64}...&quot;"),
        ("", ""),
    ],
)
async def test_the_page_names_the_server_and_the_agent_that_was_called_and_what_its_client_says_of_itself(
    client: str, shown: str, tmp_path: Path
) -> None:
    async with office(tmp_path) as here:
        here.client = client
        _, link = await here.asked("alice")
        asked = await here.is_asked("alice", link)
        assert asked["Server"] == f"crm ({here.login_config.url})"
        assert asked["Asked by"] == f"the agent desk over A2A{shown}"
        assert asked["You are"] == "alice"


async def test_each_caller_is_called_with_its_own_login_and_never_with_the_operators(tmp_path: Path) -> None:
    async with office(tmp_path) as here:
        for who in TOKENS:
            await put(replace(here.login_config, principal=who), here.issuer)
        for who in TOKENS:
            task = await here.send(who, {"parts": [call_part("echo")]})
            await here.becomes(who, task, "TASK_STATE_COMPLETED")
        assert here.calls == ["access-2", "access-3"]


async def test_a_login_that_is_gone_is_not_used_from_memory_nor_once_another_account_has_logged_in(
    tmp_path: Path,
) -> None:
    async with office(tmp_path) as here:
        own = replace(here.login_config, principal="alice")
        await put(own, here.issuer, access_token="of-the-first-account")
        task = await here.send("alice", {"parts": [call_part("echo")]})
        await here.becomes("alice", task, "TASK_STATE_COMPLETED")
        async with own.keeper.held(own.key) as held:
            await held.remove()
        task, _ = await here.asked("alice")
        await put(own, here.issuer, access_token="of-the-second-account")
        await here.becomes("alice", task, "TASK_STATE_COMPLETED")
        await put(
            own, here.issuer, access_token="of-the-third-account"
        )  # over the login before, as a page does
        task = await here.send("alice", {"parts": [call_part("echo")]})
        await here.becomes("alice", task, "TASK_STATE_COMPLETED")
        accounts = ["of-the-first-account", "of-the-second-account", "of-the-third-account"]
        assert here.calls == accounts


def needs(scope: str, *tokens: str) -> Answers:
    """A server that misses a scope in all but these tokens."""
    told = {"WWW-Authenticate": f'Bearer error="insufficient_scope", scope="{scope}"'}
    return lambda token: None if token in tokens else Response(status_code=403, headers=told)


def refuses_all_but(*tokens: str) -> Answers:
    """A server that takes these tokens alone."""
    told = {"jsonrpc": "2.0", "id": None, "error": {"code": -32001, "message": "who are you?"}}
    return lambda token: None if token in tokens else JSONResponse(told, 401, {"WWW-Authenticate": "Bearer"})


@asynccontextmanager
async def refusing(tmp_path: Path, answers: Answers, **login: Any) -> AsyncIterator[Office]:
    """A bridge whose server does not take each login, and alice's first login."""
    async with town(tmp_path, answers=answers) as here, here.opens() as bridge:
        await put(replace(here.login_config, principal="alice"), here.issuer, **login)
        yield bridge


async def test_a_call_that_lacks_a_scope_asks_for_another_login_and_goes_on_with_it(tmp_path: Path) -> None:
    async with refusing(tmp_path, needs("write", "wider"), scopes=("read",)) as here:
        own = replace(here.login_config, principal="alice")
        first, second = await here.asked("alice"), await here.asked("alice")
        assert here.calls == ["access-2", "access-2"], "each is asked for once it was refused"
        kept = await own.keeper.find(own.key)
        assert kept is not None
        assert (kept.wanted_scopes, kept.lost) == (("write",), "")
        await put(own, here.issuer, access_token="wider", scopes=("read", "write"))
        for task, _ in (first, second):
            await here.becomes("alice", task, "TASK_STATE_COMPLETED")


async def test_a_no_to_a_wider_login_ends_the_task_and_leaves_the_login(tmp_path: Path) -> None:
    async with refusing(tmp_path, needs("write"), scopes=("read",)) as here:
        task, link = await here.asked("alice")
        assert (await here.logs_in("alice", link, "decline")).status_code == 200
        await here.becomes("alice", task, "TASK_STATE_REJECTED")
        own = replace(here.login_config, principal="alice")
        kept = await own.keeper.find(own.key)
        assert kept is not None
        assert (kept.access_token, kept.lost) == ("access-2", "")


@pytest.mark.parametrize(
    "login", [{"refresh_token": None}, {"expires_at": 60.0, "got_at": 0.0}], ids=["refused", "not renewed"]
)
async def test_a_login_that_turns_out_lost_asks_for_another_one_in_the_same_task(
    tmp_path: Path, login: dict[str, Any]
) -> None:
    async with refusing(tmp_path, refuses_all_but("another"), **login) as here:
        here.issuer.revoked = True
        own = replace(here.login_config, principal="alice")
        task, _ = await here.asked("alice")
        kept = await own.keeper.find(own.key)
        assert kept is not None
        assert kept.lost
        await put(own, here.issuer, access_token="another")
        await here.becomes("alice", task, "TASK_STATE_COMPLETED")
        assert here.calls[-1] == "another"


async def test_a_server_that_takes_no_login_has_nobody_log_in_for_ever(tmp_path: Path) -> None:
    async with refusing(tmp_path, refuses_all_but()) as here:
        own = replace(here.login_config, principal="alice")
        task, _ = await here.asked("alice")
        await put(own, here.issuer)
        while link_in(await here.becomes("alice", task, "TASK_STATE_AUTH_REQUIRED")) == link_in(task):
            await anyio.sleep(0.01)
        await put(own, here.issuer)
        failed = await here.becomes("alice", task, "TASK_STATE_FAILED")
        assert "The peer does not accept the token of the login" in str(failed["status"])


async def test_a_call_that_the_server_has_taken_is_not_made_again_for_a_login(tmp_path: Path) -> None:
    rounds = iter(["taken"])
    refused = needs("write")

    def answers(token: str) -> Any:
        return (
            {"resultType": "input_required", "requestState": next(rounds)}
            if rounds_left()
            else refused(token)
        )

    def rounds_left() -> bool:
        return len(here.calls) == 1

    async with town(tmp_path, answers=answers, era=Era.MODERN) as here, here.opens() as bridge:
        await put(replace(here.login_config, principal="alice"), here.issuer, scopes=("read",))
        task = await bridge.send("alice", {"parts": [call_part("echo")]})
        failed = await bridge.becomes("alice", task, "TASK_STATE_FAILED")
        assert "the scopes write" in str(failed["status"])
        assert len(here.calls) == 2


async def test_a_task_of_the_server_is_followed_on_with_the_login_that_its_caller_has_now(
    tmp_path: Path,
) -> None:
    shown: list[str] = []
    first = {"resultType": "task", "taskId": "t-1", "status": "working", "pollIntervalMs": 10}

    def look(got: Got) -> Any:
        shown.append(got.headers["authorization"].removeprefix("Bearer "))
        done = {"status": "completed", "result": {"content": []}} if shown[-1] == "second" else {}
        return {**first, "resultType": "complete", **done}

    def answers(token: str) -> Any:
        return first if token == "first" else None

    async with (
        town(tmp_path, answers=answers, era=Era.MODERN, others={"tasks/get": look}) as here,
        here.opens() as bridge,
    ):
        own = replace(here.login_config, principal="alice")
        await put(own, here.issuer, access_token="first")
        task = await bridge.send("alice", {"parts": [call_part("echo")]})
        while "first" not in shown:
            await anyio.sleep(0.01)
        await put(own, here.issuer, access_token="second")
        other = await bridge.send("alice", {"parts": [call_part("echo")]})
        for one in (other, task):
            await bridge.becomes("alice", one, "TASK_STATE_COMPLETED")
        assert here.calls == ["first", "second"]
        assert shown == ["first"] * shown.count("first") + ["second"]


async def test_a_task_of_the_server_is_not_followed_without_a_login(tmp_path: Path) -> None:
    shown: list[str] = []
    first = {"resultType": "task", "taskId": "t-1", "status": "working", "pollIntervalMs": 10}

    def look(got: Got) -> Any:
        shown.append(got.headers["authorization"].removeprefix("Bearer "))
        return {**first, "resultType": "complete"}

    async with (
        town(tmp_path, answers=lambda _: first, era=Era.MODERN, others={"tasks/get": look}) as here,
        here.opens() as bridge,
    ):
        own = replace(here.login_config, principal="alice")
        await put(own, here.issuer, access_token="first")
        task = await bridge.send("alice", {"parts": [call_part("echo")]})
        while "first" not in shown:
            await anyio.sleep(0.01)
        async with own.keeper.held(own.key) as held:
            await held.remove()
        await bridge.asked("alice")
        failed = await bridge.becomes("alice", task, "TASK_STATE_FAILED")
        assert "nobody has logged in" in str(failed["status"])
        assert here.calls == ["first"]


async def test_a_message_brings_no_login_and_renews_the_link(tmp_path: Path) -> None:
    async with office(tmp_path) as here:
        task, link = await here.asked("alice")
        again = await here.send("alice", {"taskId": task["id"], "parts": [{"text": "done"}]})
        while link_in(again := await here.becomes("alice", again, "TASK_STATE_AUTH_REQUIRED")) == link:
            await anyio.sleep(0.01)
        assert here.calls == []
        await put(replace(here.login_config, principal="alice"), here.issuer)
        await here.becomes("alice", task, "TASK_STATE_COMPLETED")


@pytest.mark.proves("map-ask-again")
async def test_who_says_three_times_that_it_has_logged_in_and_has_not_is_not_asked_again(
    tmp_path: Path,
) -> None:
    async with office(tmp_path) as here:
        task, link = await here.asked("alice")
        said = {"taskId": task["id"], "parts": [{"text": "done"}]}
        for _ in range(2):
            again, before = await here.send("alice", said), link
            while (link := link_in(await here.becomes("alice", again, "TASK_STATE_AUTH_REQUIRED"))) == before:
                await anyio.sleep(0.01)
        await here.send("alice", said)
        ended = await here.becomes("alice", task, "TASK_STATE_REJECTED")
        assert "but no login at" in str(ended["status"])
        assert here.calls == []


async def test_a_task_that_waits_while_its_server_gets_another_url_goes_on_with_the_next_message(
    tmp_path: Path,
) -> None:
    async with town(tmp_path) as here, here.opens() as bridge:
        task, _ = await bridge.asked("alice")
        url = here.login_config.url.replace("127.0.0.1", "localhost")
        login_config, target = replace(here.login_config, url=url), here.server.target
        assert isinstance(target, HttpTarget)
        for who in (OPERATOR, "alice"):
            await put(replace(login_config, principal=who), here.issuer)
        moved = replace(here.server, target=replace(target, url=url, oauth=login_config))
        await bridge.there.apply(servers={"crm": moved})
        while bridge.there.bridge.running:
            await anyio.sleep(0.01)
        await bridge.send("alice", {"taskId": task["id"], "parts": [{"text": "done"}]})
        await bridge.becomes("alice", task, "TASK_STATE_COMPLETED")
        assert here.calls == ["access-3"]


async def test_whoever_declines_on_the_page_ends_the_task(tmp_path: Path) -> None:
    async with office(tmp_path) as here:
        task, link = await here.asked("alice")
        assert (await here.logs_in("alice", link, "decline")).status_code == 200
        await here.becomes("alice", task, "TASK_STATE_REJECTED")
        assert here.calls == []
        assert await here.login_config.keeper.find(LoginKey(here.login_config.key.peer, "bob")) is None


async def test_somebody_elses_login_does_not_let_a_task_go_on(tmp_path: Path) -> None:
    async with office(tmp_path) as here:
        task, link = await here.asked("alice")
        await put(replace(here.login_config, principal="bob"), here.issuer)
        async with httpx2.AsyncClient(timeout=30) as browser:
            page = await browser.get(link)
            csrf = re.findall(r'name="csrf" value="([^"]+)"', page.text)[0]
            refused = await browser.post(link, data={"csrf": csrf, "token": TOKENS["bob"]})
        assert refused.status_code == 403
        other = await here.send("bob", {"parts": [call_part("echo")]})
        await here.becomes("bob", other, "TASK_STATE_COMPLETED")
        assert here.calls == ["access-2"]
        now = await here.rpc("alice", "GetTask", {"id": task["id"]})
        assert now["status"]["state"] == "TASK_STATE_AUTH_REQUIRED"


async def test_a_link_that_nobody_used_leaves_the_task_to_the_next_message(tmp_path: Path) -> None:
    async with office(tmp_path, link_seconds=0.01) as here:
        task, link = await here.asked("alice")
        while here.there.bridge.running:
            await anyio.sleep(0.01)
        async with httpx2.AsyncClient() as browser:
            assert (await browser.get(link)).status_code == 410
        await put(replace(here.login_config, principal="alice"), here.issuer)
        await here.send("alice", {"taskId": task["id"], "parts": [{"text": "done"}]})
        await here.becomes("alice", task, "TASK_STATE_COMPLETED")
        assert here.calls == ["access-2"]


async def kept(here: Office) -> set[tuple[str, str]]:
    """The peers and principals of the logins that are kept."""
    return {(key.peer, key.principal) for key, _ in (await here.login_config.keeper.all()).logins}


async def test_a_callers_login_is_deleted_when_nobody_used_it_for_so_long(tmp_path: Path) -> None:
    async with office(tmp_path) as here:
        own, other = here.login_config.key.peer, replace(here.login_config, url="https://other.example/mcp")
        then = time.time() - KEEP_SECONDS - 2 * DAY_SECONDS
        old = {"got_at": then, "since": then}
        await put(
            replace(here.login_config, principal="bob"),
            here.issuer,
            **old,
            used_at=time.time() - KEEP_SECONDS,
        )
        for login_config in (here.login_config, other, replace(other, principal="alice")):
            await put(login_config, here.issuer, **old)
        await put(replace(here.login_config, principal="alice"), here.issuer, **old)
        await here.there.apply()
        while (own, "alice") in (left := await kept(here)):
            await anyio.sleep(0.01)
        assert left == {(own, OPERATOR), (own, "bob"), (other.key.peer, OPERATOR), (other.key.peer, "alice")}


async def test_the_logins_of_a_principal_go_with_it_and_no_others(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    place = ProcessPlan(state=tmp_path / "state", audit=AuditPlan(file, 1 << 20, 600))
    trusted = {"corp": issuer_at("http://127.0.0.1:9", {})}
    async with office(tmp_path, place=place, issuers=trusted) as here:
        own, other = here.login_config.key.peer, replace(here.login_config, url="https://other.example/mcp")
        for login_config in (here.login_config, other):
            for who in (*TOKENS, "corp:ann", "of another bridge"):
                await put(replace(login_config, principal=who), here.issuer)
        before, over = await kept(here), {(own, "alice"), (own, "corp:ann")}
        await here.there.apply(credentials=here.there.plan.credentials[1:], issuers={})
        while over & (left := await kept(here)):
            await anyio.sleep(0.01)
        assert left == before - over
        assert (own, OPERATOR) in left
    told = [json.loads(line) for line in file.read_text().splitlines()]
    deleted = [(one["principal"], one["peer"]) for one in told if one["event"] == "login_deleted"]
    assert deleted == [("alice", "crm"), ("corp:ann", "crm")]


async def test_a_login_that_is_deleted_is_revoked_at_its_issuer(tmp_path: Path) -> None:
    async with office(tmp_path) as here:
        here.issuer.metadata |= {"revocation_endpoint": f"{here.issuer.issuer}/revoke"}
        for who in TOKENS:
            tokens = {"access_token": f"access-of-{who}", "refresh_token": f"refresh-of-{who}"}
            await put(replace(here.login_config, principal=who), here.issuer, **tokens)
        await here.there.apply(credentials=here.there.plan.credentials[1:])
        with anyio.fail_after(30):
            while len(here.issuer.given_back) < 2:
                await anyio.sleep(0.01)
        assert await kept(here) == {(here.login_config.key.peer, who) for who in (OPERATOR, "bob")}
    assert [form["token"] for form in here.issuer.given_back] == ["refresh-of-alice", "access-of-alice"]


async def test_a_login_that_its_issuer_does_not_revoke_is_deleted_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "bridge.identity.pages.login_desk")
    async with office(tmp_path) as here:
        await put(replace(here.login_config, principal="alice"), here.issuer)
        await here.there.apply(credentials=here.there.plan.credentials[1:])
        with anyio.fail_after(30):
            while len(caplog.messages) < 2:
                await anyio.sleep(0.01)
        assert await kept(here) == {(here.login_config.key.peer, OPERATOR)}
    deleted, unrevoked = caplog.messages
    assert deleted == "deleted the login of alice at crm, who is no principal any more"
    assert unrevoked.startswith("not all tokens of alice at crm are revoked: ")
    assert unrevoked.endswith("names no revocation_endpoint")


async def test_a_no_that_is_deleted_has_nothing_to_revoke(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "bridge.identity.pages.login_desk")
    async with office(tmp_path) as here:
        here.issuer.metadata |= {"revocation_endpoint": f"{here.issuer.issuer}/revoke"}
        _, link = await here.asked("alice")
        assert (await here.logs_in("alice", link, "decline")).status_code == 200
        await put(replace(here.login_config, principal="bob"), here.issuer)
        await here.there.apply(credentials=[Credential(Principal("cy"), "token-of-cy")])
        with anyio.fail_after(30):
            while not here.issuer.given_back:  # that of bob is revoked beside
                await anyio.sleep(0.01)
    assert [line for line in caplog.messages if "revoked" in line] == []


async def test_a_deletion_that_failed_is_made_up_for_soon(tmp_path: Path) -> None:
    async with office(tmp_path) as here:
        own = here.login_config.key.peer
        await put(replace(here.login_config, principal="alice"), here.issuer)
        in_the_way = Path(here.login_config.keeper.where) / "a folder.login"
        in_the_way.mkdir()
        with pytest.raises(OSError, match="irectory"):
            await here.login_config.keeper.all()
        await here.there.apply(credentials=here.there.plan.credentials[1:])
        await anyio.sleep(0.1)
        in_the_way.rmdir()
        while (own, "alice") in await kept(here):
            await anyio.sleep(0.01)


@pytest.mark.parametrize(
    "change", [{"place": IssuerPlace("http://127.0.0.1:10")}, {"principal_claim": "oid"}]
)
async def test_another_issuer_of_the_same_name_takes_no_logins_over(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    before = issuer_at("http://127.0.0.1:9", {}, login=LoginClient("bridge"))
    after = replace(before, **change)
    async with office(tmp_path, issuers={"corp": before}) as here:
        for who, vouched_by in (
            ("corp:ann", before.identity),
            ("corp:old", ""),
            ("corp:new", after.identity),
            ("corp:of another bridge", "sub of https://elsewhere.example"),
        ):
            await put(replace(here.login_config, principal=who), here.issuer, vouched_by=vouched_by)
        logins = here.there.bridge.upstreams["crm"].logins
        assert logins is not None
        assert await logins.usable_since("corp:ann") is not None
        assert await logins.usable_since("corp:old") is not None, "of an older release"
        assert await logins.usable_since("corp:new") is None, "what counts at a start as well"
        now = time.time()
        awaited = AwaitedLogin("corp:new", "", (), (), now, now + 600, before.identity)
        await here.there.apply(issuers={"corp": after})
        own = here.login_config.key.peer
        while len(left := await kept(here)) > 3:
            await anyio.sleep(0.01)
        assert left == {(own, OPERATOR), (own, "corp:new"), (own, "corp:of another bridge")}
        assert await logins.usable_since("corp:new") is not None
        assert await logins.settled(awaited, is_patient=True) is None, "whoever asked was somebody else"
