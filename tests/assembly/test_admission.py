"""Who is let in while the file changes: secrets that are taken away, the last of them, and whoever still listens."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from bridge.a2a.model.operators import OPERATOR_URI
from bridge.assembly.admission import NOBODY_LEFT, Admission
from bridge.assembly.plan import OfferedPlan, Plan, ProcessPlan
from bridge.assembly.routes import FINDINGS_PATH
from bridge.errors import PeerError, leaf_of
from bridge.http.request_checks import API_KEY_HEADER
from bridge.identity.callers.issuers import LoginClient
from bridge.identity.callers.principals import OperatorRole, Principal
from bridge.identity.callers.verifiers import Credential, Scheme
from tests.assembly.test_bridge import NOWHERE, PROFILE, Live, agent, live, said, server, servers
from tests.support.drivers import DRIVERS, Driver, JsonRpcDriver, new_client, shape_of
from tests.support.issuer import issuer_at
from tests.support.limits import url_at
from tests.support.mcp_wire import LEGACY, MODERN, Http
from tests.support.running import VERSION, Rpc, call_part, message
from tests.support.tool_server import ToolServer

ADA, BOB = (Credential(Principal(name), f"{name}-token") for name in ("ada", "bob"))
KEY = Credential(Principal("carol"), "carol-key", Scheme.API_KEY)
ANSWER, READ = OperatorRole.ANSWER, OperatorRole.READ
CARD = "/.well-known/agent-card.json"


@asynccontextmanager
async def guarded(
    folder: Path, *credentials: Credential, **more: Any
) -> AsyncIterator[tuple[Live, ToolServer]]:
    """A bridge with an agent and a server made of it, which asks for these."""
    async with servers("one") as (one,):
        plan: dict[str, Any] = {
            "servers": {"one": server(one.target)},
            "published": {"a": agent("one")},
            "offered": {"m": OfferedPlan(("a",), PROFILE)},
            "credentials": credentials,
            **more,
        }
        async with live(folder, **plan) as there:
            yield there, one


def test_a_browser_shows_who_it_is_by_a_token_or_at_an_issuer_with_a_client_and_by_nothing_else() -> None:
    trusted = {
        "corp": issuer_at("https://login.example", {}, login=LoginClient("bridge")),
        "machines": issuer_at("https://machines.example", {}, name="machines"),
    }
    by_proxy = Credential(Principal("dave"), "CN=dave", Scheme.CONNECTION)
    admission = Admission(Plan(PROFILE, credentials=(ADA, KEY, by_proxy), issuers=trusted))
    names = ("ada", "carol", "dave", "corp:ann", "machines:job", "other:ann", "corp", "nobody")
    assert [name for name in names if admission.can_log_in(name)] == ["ada", "carol", "corp:ann"]
    assert admission.issuer_of("corp:ann") == admission.trusted["corp"]
    assert admission.issuer_of("ada") is None


def bearer(credential: Credential) -> dict[str, str]:
    """What shows a token."""
    return {"authorization": f"Bearer {credential.token}"}


async def statuses(there: Live, headers: dict[str, str]) -> dict[str, int]:
    """What each door that asks for credentials answers."""
    http = Http(there.client, f"{there.url}/mcp/m", MODERN)
    base = f"{there.url}/agents/a"
    answers = {
        "json-rpc": await Rpc(there.client, base, headers).post("ListTasks", {}),
        "rest": await there.client.get(f"{base}/tasks", headers={**VERSION, **headers}),
        "rest send": await there.client.post(
            f"{base}/message:send", json=message(call_part("echo")), headers={**VERSION, **headers}
        ),
        "alias": await Rpc(there.client, there.url, headers).post("ListTasks", {}),
        "catalog": await there.client.get(f"{there.url}/agents", headers=headers),
        "mcp": await http.post(http.message(1, "tools/list"), **headers),
        "mcp alias": await Http(there.client, f"{there.url}/mcp", LEGACY).post({}, **headers),
        "mcp stream": await there.client.get(f"{there.url}/mcp/m", headers=headers),
    }
    return {door: answer.status_code for door, answer in answers.items()}


async def cannot_be_taken_over(there: Live, **changes: Any) -> None:
    """Give it a plan with a server that is down and has to be up."""
    with pytest.raises(ExceptionGroup) as refused:
        await there.bridge.apply(replace(there.plan, **changes))
    assert isinstance(leaf_of(refused.value), PeerError)


@pytest.mark.proves("web-auth", "web-never-opens")
@pytest.mark.parametrize("last", [ADA, KEY], ids=["bearer", "api key"])
async def test_without_its_last_principal_a_bridge_lets_nobody_in_until_one_is_added(
    last: Credential, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shown = bearer(last) if last.scheme is Scheme.BEARER else {API_KEY_HEADER: last.token}
    async with guarded(tmp_path, last) as (there, _):
        card = await there.json(f"/agents/a{CARD}")
        with caplog.at_level(logging.WARNING, "bridge"):
            await there.apply(credentials=())
        for headers in ({}, shown, bearer(BOB), {API_KEY_HEADER: "other"}):
            assert set((await statuses(there, headers)).values()) == {401}
        refused = await there.client.get(f"{there.url}/agents")
        assert NOBODY_LEFT[1:] in refused.json()["error"]["message"]
        assert refused.headers["www-authenticate"]
        assert await there.json(f"/agents/a{CARD}") == card
        assert (await there.json("/healthz"))["status"] == "ok"
        ready = await there.json("/readyz", 503)
        assert (ready["status"], ready["access"]) == ("not ready", NOBODY_LEFT)
        assert [NOBODY_LEFT in one.getMessage() for one in caplog.records] == [True]

        await there.apply(published={"a": agent("one", card_name="Another")})
        assert set((await statuses(there, {})).values()) == {401}

        await there.apply(credentials=[BOB])
        assert 401 not in (await statuses(there, bearer(BOB))).values()
        assert set((await statuses(there, shown)).values()) == {401}
        assert "access" not in await there.json("/readyz")


async def test_readiness_names_peers_to_operators_alone_where_callers_need_a_token(tmp_path: Path) -> None:
    operator = Credential(Principal("ops", operator=OperatorRole.READ), "the token of ops")
    async with guarded(tmp_path, ADA, operator) as (there, _):
        told = [
            (await there.client.get(f"{there.url}/readyz", headers=headers)).json()
            for headers in ({}, bearer(ADA), {"authorization": "Bearer wrong"}, bearer(operator))
        ]
        assert told[:3] == [{"status": "ready"}] * 3
        assert told[3]["agents"].keys() == {"a"}


async def test_only_operators_read_what_the_bridge_lacks_where_callers_need_a_token(tmp_path: Path) -> None:
    operator = Credential(Principal("ops", operator=OperatorRole.READ), "the token of ops")
    async with guarded(tmp_path, ADA, operator) as (there, _):
        answers = [
            await there.client.get(f"{there.url}{FINDINGS_PATH}", headers=headers)
            for headers in ({}, bearer(ADA), {"authorization": "Bearer wrong"}, bearer(operator))
        ]
        assert [answer.status_code for answer in answers] == [401, 403, 401, 200]
        assert answers[3].headers["cache-control"] == "no-store"
        told = answers[3].json()
        assert (told["ok"], told["failures"]) == (True, [])
        assert ("peers", "tool_servers.one") in {(one["area"], one["name"]) for one in told["findings"]}
        assert (await there.client.post(f"{there.url}{FINDINGS_PATH}")).status_code == 405


@pytest.mark.parametrize(
    ("place", "headers", "is_told"),
    [
        ({}, {}, True),
        ({}, {"Host": "localhost"}, True),
        ({}, {"X-Forwarded-For": "192.0.2.7"}, False),
        ({}, {"Host": "192.0.2.1"}, False),
        ({"host": "0.0.0.0"}, {}, False),
        ({"public_url": "https://bridge.example.com"}, {}, False),
    ],
)
async def test_without_credentials_readiness_names_peers_to_this_machine_alone(
    place: dict[str, Any], headers: dict[str, str], is_told: bool, tmp_path: Path
) -> None:
    plan = {"gone": server(url_at(NOWHERE))}
    where = ProcessPlan(state=tmp_path / "state", cache=tmp_path / "cache", **place)
    async with live(tmp_path, servers=plan, published={"a": agent("gone")}, place=where) as there:
        told = (await there.client.get(f"{there.url}/readyz", headers=headers)).json()
        assert ("agents" in told) is is_told
        assert (NOWHERE in str(told)) is is_told
        answer = await there.client.get(f"{there.url}{FINDINGS_PATH}", headers=headers)
        assert answer.status_code == (200 if is_told else 403)
        assert (NOWHERE in answer.text) is is_told


async def test_readiness_names_no_peers_over_a_connection_of_another_machine(tmp_path: Path) -> None:
    async with live(
        tmp_path, servers={"gone": server(url_at(NOWHERE))}, published={"a": agent("gone")}
    ) as there:
        way = httpx2.ASGITransport(there.bridge.app, client=("192.0.2.7", 5000))
        async with httpx2.AsyncClient(transport=way, base_url="http://127.0.0.1:8080") as client:
            assert (await client.get("/readyz")).json() == {"status": "not ready"}


@pytest.mark.proves("web-never-opens")
async def test_without_its_last_principal_a_bridge_is_opened_by_the_word_that_says_so(tmp_path: Path) -> None:
    async with guarded(tmp_path, ADA) as (there, _):
        await there.apply(credentials=())
        await there.apply(allow_unauthenticated=True)
        assert 401 not in (await statuses(there, {})).values()
        assert (await there.json("/readyz"))["status"] == "ready"
        assert "securitySchemes" not in await there.json(f"/agents/a{CARD}")


@pytest.mark.proves("web-never-opens")
async def test_a_secret_that_is_taken_away_is_refused_even_if_the_rest_cannot_be_taken_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    down = server(url_at(NOWHERE), fail="closed")
    async with guarded(tmp_path, ADA, BOB) as (there, one):
        broken: dict[str, Any] = {
            "servers": {"one": server(one.target), "two": down},
            "published": {"a": agent("one"), "b": agent("two")},
        }
        with caplog.at_level(logging.WARNING, "bridge.assembly"):
            await cannot_be_taken_over(there, credentials=[BOB, KEY], **broken)
        assert "access ends although the file is refused: ada" in caplog.text
        assert set((await statuses(there, bearer(ADA))).values()) == {401}
        assert set((await statuses(there, {API_KEY_HEADER: KEY.token})).values()) == {401}
        assert 401 not in (await statuses(there, bearer(BOB))).values()
        await cannot_be_taken_over(there, credentials=(), **broken)
        for headers in ({}, bearer(ADA), bearer(BOB)):
            assert set((await statuses(there, headers)).values()) == {401}


async def test_skills_that_are_to_be_given_wait_until_the_rest_is_taken_over(tmp_path: Path) -> None:
    few, down = Principal("ada", skills=("echo",)), server(url_at(NOWHERE), fail="closed")
    async with guarded(tmp_path, Credential(few, "ada-token")) as (there, one):
        rpc = Rpc(there.client, f"{there.url}/agents/a", bearer(ADA))
        await cannot_be_taken_over(
            there,
            credentials=[ADA],
            servers={"one": server(one.target), "two": down},
            published={"a": agent("one"), "b": agent("two")},
        )
        assert said(await rpc.send(call_part("echo")))
        refused = await rpc.call("SendMessage", message(call_part("hold")))
        assert refused["task"]["status"]["state"] != "TASK_STATE_WORKING"
        assert one.calls == [("echo", {})]


@pytest.mark.proves("web-never-opens", "ops-role")
@pytest.mark.parametrize(
    ("was", "becomes", "counts"),
    [(ANSWER, READ, READ), (ANSWER, None, None), (READ, ANSWER, READ), (None, ANSWER, None)],
)
async def test_a_lesser_role_counts_at_once_and_a_greater_one_once_the_rest_is_taken_over(
    was: OperatorRole | None, becomes: OperatorRole | None, counts: OperatorRole | None, tmp_path: Path
) -> None:
    before, now = (Credential(Principal("ops", operator=role), "ops-token") for role in (was, becomes))
    down = server(url_at(NOWHERE), fail="closed")
    async with guarded(tmp_path, ADA, before) as (there, one):
        task = await Rpc(there.client, f"{there.url}/agents/a", bearer(ADA)).send({"text": "?"})
        acting = Rpc(there.client, f"{there.url}/agents/a", bearer(before))
        acting.headers["A2A-Extensions"] = OPERATOR_URI
        await cannot_be_taken_over(
            there,
            credentials=[ADA, now],
            servers={"one": server(one.target), "two": down},
            published={"a": agent("one"), "b": agent("two")},
        )
        may_cancel, may_see = [
            "result" in (await acting.post(method, {"id": task["id"]})).json()
            for method in ("CancelTask", "GetTask")
        ]
        assert (may_see, may_cancel) == (counts is not None, counts is ANSWER)


@pytest.mark.proves("web-never-opens")
@pytest.mark.parametrize("kind", DRIVERS, ids=lambda kind: kind.binding)
@pytest.mark.parametrize("left", [(BOB,), ()], ids=["another is left", "nobody is left"])
async def test_streams_of_whoever_is_let_in_no_more_end_and_the_task_goes_on(
    kind: type[Driver], left: tuple[Credential, ...], tmp_path: Path
) -> None:
    async with guarded(tmp_path, ADA, BOB) as (there, one), AsyncExitStack() as stack:
        drivers: dict[Credential, Driver] = {}
        for who in (ADA, BOB):
            client = await stack.enter_async_context(new_client())
            client.headers.update(bearer(who))
            drivers[who] = kind(client, f"{there.url}/agents/a")
        ada, bob = drivers[ADA], drivers[BOB]
        task_id, sent = await stack.enter_async_context(ada.working(call_part("hold")))
        other_id, others = await stack.enter_async_context(bob.working(call_part("hold")))
        subscribed = await stack.enter_async_context(ada.stream("SubscribeToTask", id=task_id))
        await subscribed.next()
        await there.apply(credentials=left)
        assert await sent.rest() == []
        assert await subscribed.rest() == []
        one.released.set()
        if left:
            assert shape_of(await others.rest())[-1] == "statusUpdate COMPLETED"
            assert other_id != task_id
        await there.apply(credentials=[ADA])
        while (await ada.get(task_id))["status"]["state"] != "TASK_STATE_COMPLETED":
            await anyio.sleep(0.01)


@pytest.mark.proves("web-never-opens")
async def test_the_streams_of_both_eras_of_mcp_end_for_whoever_is_let_in_no_more(tmp_path: Path) -> None:
    async with guarded(tmp_path, ADA, BOB) as (there, _), AsyncExitStack() as stack:
        ended: dict[str, list[str]] = {"ada": [], "bob": []}

        async def listen(who: Credential, opened: anyio.Event) -> None:
            async with httpx2.AsyncClient(timeout=30, headers=bearer(who)) as client:
                modern = Http(client, f"{there.url}/mcp/m", MODERN)
                wanted = {"notifications": {"toolsListChanged": True}}
                async with modern.stream(modern.message("l", "subscriptions/listen", wanted)) as messages:
                    assert (await anext(messages))["method"].endswith("acknowledged")
                    opened.set()
                    ended[who.principal.name] += [one["method"] async for one in messages if "method" in one]
                    ended[who.principal.name].append("listen")

        async def hear(who: Credential, opened: anyio.Event) -> None:
            async with httpx2.AsyncClient(timeout=30, headers=bearer(who)) as client:
                legacy = Http(client, f"{there.url}/mcp/m", LEGACY)
                await legacy.open()
                headers = {**legacy.headers({}), "accept": "text/event-stream"}
                async with client.stream("GET", legacy.url, headers=headers) as response:
                    assert response.status_code == 200
                    opened.set()
                    lines = [line async for line in response.aiter_lines()]
                    ended[who.principal.name] += [line for line in lines if "method" in line]
                    ended[who.principal.name].append("GET")
                assert (await legacy.post(legacy.message(1, "tools/list"))).status_code == 401

        async with anyio.create_task_group() as tasks:
            ada_tasks = await stack.enter_async_context(anyio.create_task_group())
            for who, group in ((ADA, ada_tasks), (BOB, tasks)):
                for way in (listen, hear):
                    opened = anyio.Event()
                    group.start_soon(way, who, opened)
                    await opened.wait()
            await there.apply(credentials=[BOB])
            await stack.aclose()
            assert sorted(ended["ada"]) == ["GET", "listen"]
            assert ended["bob"] == []
            tasks.cancel_scope.cancel()


async def test_a_bridge_that_begins_to_ask_for_credentials_ends_the_streams_of_everyone(
    tmp_path: Path,
) -> None:
    async with guarded(tmp_path) as (there, one), new_client() as client:
        driver = JsonRpcDriver(client, f"{there.url}/agents/a")
        async with driver.working(call_part("hold")) as (_, events):
            await there.apply(credentials=[ADA])
            assert await events.rest() == []
            one.released.set()
        assert set((await statuses(there, {})).values()) == {401}


async def called_while_it_changes(
    there: Live, path: str, token: dict[str, str], *credentials: Credential
) -> httpx2.Response:
    """The answer to a call of `echo` that is sent in two pieces, between which the credentials become these."""
    if path == "/agents/a":
        call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": message(call_part("echo"))}
        headers = {**VERSION, "content-type": "application/json"}
    else:
        http = Http(there.client, f"{there.url}{path}", MODERN)
        call = http.message(1, "tools/call", {"name": "echo", "arguments": {}})
        headers = http.headers(call)
    body = json.dumps(call).encode()
    reading, changed, answers = anyio.Event(), anyio.Event(), list[httpx2.Response]()

    async def slowly() -> AsyncIterator[bytes]:
        yield body[:10]
        reading.set()
        await changed.wait()
        yield body[10:]

    async def send() -> None:
        url = f"{there.url}{path}"
        answers.append(await there.client.post(url, content=slowly(), headers={**headers, **token}))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(send)
        await reading.wait()
        await there.json("/healthz")  # which is answered after the head of the other was read
        await there.apply(credentials=credentials)
        changed.set()
    return answers[0]


@pytest.mark.proves("web-never-opens")
@pytest.mark.parametrize("path", ["/agents/a", "/mcp/m"])
async def test_what_was_still_being_sent_when_its_secret_was_taken_away_is_not_done(
    path: str, tmp_path: Path
) -> None:
    async with guarded(tmp_path, ADA, BOB) as (there, one):
        answer = await called_while_it_changes(there, path, bearer(ADA), BOB)
        assert (answer.status_code, "error" in answer.json()) == (401, True)
        assert one.calls == []


@pytest.mark.proves("web-skills")
@pytest.mark.parametrize("path", ["/agents/a", "/mcp/m"])
async def test_what_was_still_being_sent_when_its_principal_lost_the_skill_is_not_done(
    path: str, tmp_path: Path
) -> None:
    async with guarded(tmp_path, ADA, BOB) as (there, one):
        less = Credential(Principal("ada", skills=("hold",)), ADA.token)
        await called_while_it_changes(there, path, bearer(ADA), less, BOB)
        assert one.calls == []


async def test_a_call_that_was_taken_goes_on_without_the_principal_that_made_it(tmp_path: Path) -> None:
    async with guarded(tmp_path, ADA) as (there, one):
        results: list[Any] = []

        async def call() -> None:
            rpc = Rpc(there.client, f"{there.url}/agents/a", bearer(ADA))
            results.append(await rpc.send(call_part("hold")))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await one.holding(1)
            await there.apply(credentials=())
            one.released.set()
        assert said(results[0])
