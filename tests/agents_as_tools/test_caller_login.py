"""An agent that is called with the login of each caller: from the call without one to the call with it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import anyio
import httpx2
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from bridge.assembly.plan import AuditPlan, OfferedPlan, ProcessPlan, RemotePlan
from bridge.errors import PeerError
from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import Credential
from bridge.identity.logins.each_login import EachLogin
from bridge.identity.logins.kept_logins import DAY_SECONDS, LoginKey
from bridge.identity.logins.login_credentials import LoginConfig, LoginToken
from bridge.identity.logins.login_files import LoginFiles
from tests.agents_as_tools.test_agent_logins import PROFILE
from tests.assembly.test_bridge import Live, live
from tests.assembly.test_logins import put
from tests.audit.test_gates import AuditPlace, told_in
from tests.support.login_agent import LoginAgent
from tests.support.login_server import LoginServer
from tests.support.mcp_wire import MODERN, Http

pytestmark = [pytest.mark.outside, pytest.mark.proves("oauth-each")]

TOKENS: Final = {"alice": "token-of-alice", "bob": "token-of-bob"}
MODES: Final = ["legacy", "auto"]


@dataclass
class Office:
    """A bridge that offers the agent `desk`, which wants a login of each caller."""

    bridge: Live
    issuer: LoginServer
    agent: LoginAgent
    login_config: LoginConfig

    @asynccontextmanager
    async def host(
        self, who: str, answer: Callable[[str], Any] | None = None, mode: str = "auto"
    ) -> AsyncIterator[Client]:
        """The official client of a host, which opens URLs if `answer` says how."""

        async def opens(_: Any, asked: types.ElicitRequestParams) -> types.ElicitResult:
            assert isinstance(asked, types.ElicitRequestURLParams)
            assert answer is not None
            return types.ElicitResult(action=await answer(asked.url))

        headers = {"Authorization": f"Bearer {TOKENS[who]}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=60) as http,
            Client(
                streamable_http_client(f"{self.bridge.url}/mcp/team", http_client=http),
                mode=mode,  # type: ignore[arg-type]
                cache=None,
                client_info=types.Implementation(name="Äcme\u202e <b>", version="3"),
                elicitation_callback=None if answer is None else opens,
            ) as client,
        ):
            yield client

    async def goes_to(self, link: str, who: str, act: str = "approve") -> httpx2.Response:
        """A browser of this principal opens a link, shows who it is, and goes all the way."""
        async with httpx2.AsyncClient(timeout=30, follow_redirects=True) as browser:
            page = await browser.get(link)
            for form in ({"token": TOKENS[who]}, {act: "yes"}):
                if "look" in form:
                    return page
                csrf = re.findall(r'name="csrf" value="([^"]+)"', page.text)
                if not csrf:
                    return page
                page = await browser.post(link, data={"csrf": csrf[0], **form})
            if act != "approve":
                return page
            return await browser.get(re.findall(r'<a href="([^"]+)"', page.text)[0].replace("&amp;", "&"))


@asynccontextmanager
async def office(
    folder: Path, link_seconds: float = 600, audit: AuditPlan | None = None, **profile: Any
) -> AsyncIterator[Office]:
    place = ProcessPlan(state=folder / "state", cache=folder / "cache", audit=audit)
    issuer = LoginServer()
    agent = LoginAgent(lambda: issuer.given)
    people = [Credential(Principal(name), token) for name, token in TOKENS.items()]
    with anyio.fail_after(60):
        async with issuer.serve(), agent.serve() as url:
            agent.issuer = issuer.issuer
            login_config = LoginConfig(
                url,
                LoginFiles(folder / "state"),
                "desk",
                allow_private=True,
                kind="agents",
                of_each=True,
                link_seconds=link_seconds,
                keep_seconds=30 * DAY_SECONDS,
            )
            agents = {"desk": RemotePlan(url, tokens=EachLogin(login_config, 20, 10))}
            chosen = PROFILE.having(agents=PROFILE.agents.model_copy(update=profile))
            offered = {"team": OfferedPlan(("desk",), chosen)}
            async with live(folder, agents=agents, offered=offered, credentials=people, place=place) as there:
                yield Office(there, issuer, agent, login_config)


async def called(host: Client) -> tuple[bool, str]:
    """Whether a call failed, and its words."""
    names = [tool.name for tool in (await host.list_tools()).tools if "act" in tool.name]
    result = await host.call_tool(names[0], {"message": "go"})
    return bool(result.is_error), result.content[0].text  # type: ignore[union-attr]


@pytest.mark.parametrize("mode", MODES)
async def test_a_host_gets_a_link_of_the_bridge_and_the_call_goes_on_with_the_callers_login(
    tmp_path: Path, mode: str
) -> None:
    async with office(tmp_path) as here:
        links: list[str] = []
        shown: list[str] = []

        async def logs_in(link: str) -> str:
            links.append(link)
            shown.append((await here.goes_to(link, "alice", "look")).text)
            assert (await here.goes_to(link, "alice")).status_code == 200
            return "accept"

        async with here.host("alice", logs_in, mode) as host:
            assert [await called(host), await called(host)] == [(False, "done")] * 2
        (link,) = links
        assert link.startswith(f"{here.bridge.url}/login/start/")
        told = re.findall("<dt>Asked by</dt><dd>(.*?)</dd>", shown[0])
        assert told == ["the MCP server team; the client calls itself &quot;Äcme &lt;b&gt; 3&quot;"]
        login = await here.login_config.keeper.find(LoginKey(here.login_config.key.peer, "alice"))
        assert login is not None
        assert set(here.agent.shown) == {f"Bearer {login.access_token}"}


@pytest.mark.parametrize("mode", MODES)
async def test_a_hosts_answer_about_a_link_does_not_reach_the_agent(tmp_path: Path, mode: str) -> None:
    audit = AuditPlace(tmp_path)
    async with office(tmp_path, audit=audit.plan()) as here:

        async def logs_in(link: str) -> str:
            assert (await here.goes_to(link, "alice")).status_code == 200
            return "accept"

        async with here.host("alice", logs_in, mode) as host:
            assert await called(host) == (False, "done")
    told = [event for event, *_ in told_in(audit.file)]
    assert "call" in told
    assert "sent" in told
    assert "answer" not in told


async def test_calls_for_two_callers_use_their_own_logins_and_never_the_operators(
    tmp_path: Path,
) -> None:
    async with office(tmp_path) as here:
        await put(here.login_config, here.issuer)
        for who in TOKENS:
            await put(replace(here.login_config, principal=who), here.issuer)
            async with here.host(who) as host:
                assert await called(host) == (False, "done")
        first, second = here.agent.shown
        operators = await here.login_config.keeper.find(here.login_config.key)
        assert operators is not None
        assert len({first, second, f"Bearer {operators.access_token}"}) == 3


async def test_a_host_that_opens_no_urls_gets_the_link_in_words_and_calls_again(tmp_path: Path) -> None:
    async with office(tmp_path) as here, here.host("bob") as host:
        is_error, words = await called(host)
        assert is_error
        (link,) = re.findall(r"http://\S+/login/start/[\w-]+", words)
        assert here.agent.shown == []
        assert (await here.goes_to(link, "bob")).status_code == 200
        assert await called(host) == (False, "done")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("where", ["host", "page"])
async def test_a_refusal_ends_the_call_with_a_reason_and_the_agent_is_not_called(
    tmp_path: Path, mode: str, where: str
) -> None:
    async with office(tmp_path) as here:

        async def declines(link: str) -> str:
            if where == "page":
                await here.goes_to(link, "bob", "decline")
            return "decline" if where == "host" else "accept"

        async with here.host("bob", declines, mode) as host:
            assert await called(host) == (True, "You declined to log in at desk, so it was not called")
        assert here.agent.shown == []


async def test_another_person_cannot_use_the_link(tmp_path: Path) -> None:
    async with office(tmp_path) as here, here.host("alice") as host:
        (link,) = re.findall(r"http://\S+/login/start/[\w-]+", (await called(host))[1])
        assert (await here.goes_to(link, "bob")).status_code == 403
        assert [*(await here.login_config.keeper.all()).logins] == []
        assert (await called(host))[0]


@pytest.mark.parametrize("mode", MODES)
async def test_a_host_that_agreed_and_did_not_log_in_is_told_so_in_time(tmp_path: Path, mode: str) -> None:
    async with office(tmp_path, answer_within_seconds=1.0) as here:

        async def agrees(_: str) -> str:
            return "accept"

        async with here.host("bob", agrees, mode) as host:
            is_error, words = await called(host)
            assert is_error
            assert "log in" in words
        assert here.agent.shown == []


async def test_a_link_that_expired_is_replaced_when_the_host_comes_back(tmp_path: Path) -> None:
    async with office(tmp_path, link_seconds=0.2) as here:
        headers = {"Authorization": f"Bearer {TOKENS['alice']}"}
        async with httpx2.AsyncClient(headers=headers, timeout=60) as client:
            http = Http(client, f"{here.bridge.url}/mcp/team", MODERN, {"elicitation": {"url": {}}})
            (listed,) = await http.call(1, "tools/list")
            name = next(tool["name"] for tool in listed["result"]["tools"] if "act" in tool["name"])
            asked = (await http.tool(2, name, message="go"))["result"]
            again = {
                "name": name,
                "arguments": {"message": "go"},
                "requestState": asked["requestState"],
                "inputResponses": {"login": {"action": "accept"}},
            }
            (renewed,) = await http.call(3, "tools/call", again)
            assert renewed["result"]["resultType"] == "input_required"
            assert renewed["result"]["requestState"] != asked["requestState"]
            # What proves one call is worth nothing for another one, or for somebody else.
            (other,) = await http.call(4, "tools/call", {**again, "arguments": {"message": "stop"}})
            assert "error" in other
        assert here.agent.shown == []


async def test_a_host_of_2025_11_25_whose_link_has_expired_gets_another_one_in_words(tmp_path: Path) -> None:
    async with office(tmp_path, link_seconds=0.2) as here:
        links: list[str] = []

        async def agrees(link: str) -> str:
            links.append(link)
            return "accept"

        async with here.host("bob", agrees, "legacy") as host:
            is_error, words = await called(host)
        assert is_error
        (another,) = re.findall(r"http://\S+/login/start/[\w-]+", words)
        assert another not in links
        assert len(links) == 1


async def test_a_lost_login_asks_for_another_one(tmp_path: Path) -> None:
    async with office(tmp_path) as here, here.host("alice") as host:
        login_config = replace(here.login_config, principal="alice")
        await put(login_config, here.issuer)
        assert await called(host) == (False, "done")
        async with login_config.keeper.held(login_config.key) as held:
            assert held.login is not None
            await held.write(replace(held.login, lost="the issuer took it back", expires_at=0.0))
        is_error, words = await called(host)
        assert is_error
        assert "/login/start/" in words


async def test_a_login_that_is_gone_is_not_used_from_memory_once_another_account_has_logged_in(
    tmp_path: Path,
) -> None:
    async with office(tmp_path) as here, here.host("alice") as host:
        login_config = replace(here.login_config, principal="alice")
        await put(login_config, here.issuer)
        assert await called(host) == (False, "done")
        async with login_config.keeper.held(login_config.key) as held:
            await held.remove()
        assert "/login/start/" in (await called(host))[1]
        await put(login_config, here.issuer)
        assert await called(host) == (False, "done")
        await put(login_config, here.issuer)
        assert await called(host) == (False, "done")
        assert here.agent.shown == ["Bearer access-1", "Bearer access-2", "Bearer access-3"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "login",
    [{"expires_at": 60.0, "got_at": 0.0}, {"refresh_token": None}, {}],
    ids=["not renewed", "refused", "renewed and refused"],
)
async def test_a_login_that_turns_out_lost_has_the_host_open_a_link_in_the_same_call(
    tmp_path: Path, mode: str, login: dict[str, Any]
) -> None:
    async with office(tmp_path) as here:
        links: list[str] = []

        async def logs_in(link: str) -> str:
            links.append(link)
            here.agent.known = lambda: here.issuer.given
            assert (await here.goes_to(link, "alice")).status_code == 200
            return "accept"

        await put(replace(here.login_config, principal="alice"), here.issuer, **login)
        here.issuer.revoked = bool(login)
        here.agent.known = list
        async with here.host("alice", logs_in, mode) as host:
            assert await called(host) == (False, "done")
        assert len(links) == 1


async def test_a_host_that_comes_back_without_a_later_login_is_still_asked_for_one(tmp_path: Path) -> None:
    async with office(tmp_path, answer_within_seconds=1.0) as here:
        here.agent.known = list
        await put(replace(here.login_config, principal="alice"), here.issuer)

        async def agrees(_: str) -> str:
            return "accept"

        async with here.host("alice", agrees) as host:
            is_error, words = await called(host)
        assert is_error
        assert "still wants you to log in" in words


@pytest.mark.parametrize(("mode", "most"), [("legacy", 3), ("auto", 2)])
async def test_an_agent_that_refuses_every_login_does_not_cause_endless_logins(
    tmp_path: Path, mode: str, most: int
) -> None:
    async with office(tmp_path) as here:
        here.agent.known = list
        links: list[str] = []

        async def logs_in(link: str) -> str:
            links.append(link)
            await put(replace(here.login_config, principal="alice"), here.issuer)
            return "accept"

        async with here.host("alice", logs_in, mode) as host:
            is_error, words = await called(host)
        assert is_error
        assert "The peer does not accept the token of the login" in words
        assert len(links) == most


async def test_without_a_caller_there_is_no_token_and_the_number_of_remembered_callers_is_limited(
    tmp_path: Path,
) -> None:
    login_config = LoginConfig("https://a.example", LoginFiles(tmp_path), "desk", kind="agents", of_each=True)
    each = EachLogin(login_config, 20, 2)
    with pytest.raises(PeerError, match="needs the login of a caller"):
        await each()
    ann = each.of("ann")
    assert isinstance(ann, LoginToken)
    assert (ann.login_config.principal, each.of("ann") is ann) == ("ann", True)
    each.of("bob"), each.of("cy")
    assert each.of("ann") is not ann
    assert "Call one of its tools" in ann.login_config.remedy
