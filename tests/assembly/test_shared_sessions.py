"""Replicas that offer one MCP server to clients of 2025-11-25: any of them answers for a session of any other."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import anyio
import mcp_types as types
import psycopg
import pytest
from mcp import MCPError

from bridge.replicas.passed_requests import PASSED_HEADER, VALID_SECONDS, PassedHeaders, PassedRequest
from bridge.replicas.proofs import ProofPurpose, Proofs
from bridge.store.postgres.table_steps import Namespace
from tests.support.exposing import answering
from tests.support.face_replicas import (
    ALICE,
    BOB,
    KEYS,
    LEASE_SECONDS,
    PATH,
    PUBLIC_URL,
    SHORT_LEASE_SECONDS,
    Balancer,
    FaceReplica,
    elsewhere,
    face_replicas,
    sdk_client,
)
from tests.support.mcp_wire import MODERN, Http, Json, messages_of

pytestmark = pytest.mark.proves("replicas-one-server")

LIST = ("tools/list", {})
QUESTION = {"name": "ask-progress", "arguments": {}, "_meta": {"progressToken": "p"}}
YES = {"action": "accept", "content": {"sure": True}}


def words(result: Any) -> str:
    """The texts of a result."""
    return "\n".join(block.text for block in result.content if block.type == "text")


@dataclass
class Away:
    """A session at one of two replicas, as its client sees it at the other."""

    owner: FaceReplica
    other: FaceReplica
    home: Http
    """The client at the owner."""
    there: Http
    """The client at the other one."""

    async def status(self) -> tuple[int, Any]:
        """What the other replica answers to a request for the session."""
        return await status_of(self.there)


async def status_of(http: Http) -> tuple[int, Any]:
    """The status of the answer to a list, and its words if it is refused."""
    answer = await http.post(http.message(1, *LIST))
    (said,) = messages_of(answer)
    return answer.status_code, said.get("error", {}).get("message", "listed")


@asynccontextmanager
async def away(lease_seconds: float = LEASE_SECONDS) -> AsyncIterator[Away]:
    """Two replicas, and a session at one."""
    async with face_replicas(lease_seconds=lease_seconds) as group:
        owner, other = group.made
        async with owner.wire() as home:
            await home.open()
            yield Away(owner, other, home, elsewhere(home, other))


async def test_a_client_initializes_lists_and_calls_at_different_replicas() -> None:
    async with face_replicas(3) as group:
        balancer = Balancer(group.made)
        async with sdk_client(balancer) as client:
            assert client.protocol_version == "2025-11-25"
            names = {tool.name for tool in (await client.list_tools()).tools}
            assert {"echo", "ask"} <= names
            said = [words(await client.call_tool("echo", {"text": str(n)})) for n in range(4)]
            assert said == ["0", "1", "2", "3"]
        assert len({url for _, url in balancer.sent}) == 3


async def test_a_client_sees_progress_and_answers_a_question_through_a_balancer() -> None:
    async with face_replicas(3) as group:
        callback = answering(types.ElicitResult(action="accept", content={"sure": True}))
        seen: list[float] = []

        async def progress(done: float, *_: Any) -> None:
            seen.append(done)

        async with sdk_client(Balancer(group.made), elicitation_callback=callback) as client:
            answered = await client.call_tool("ask-progress", progress_callback=progress)
        assert not answered.is_error, answered
        assert len(callback.seen) == 1
        assert seen == sorted(seen)
        assert seen


async def test_a_call_at_one_replica_asks_and_the_answer_comes_to_a_third_one() -> None:
    async with face_replicas(3) as group:
        owner, second, third = group.made
        async with owner.wire() as home:
            await home.open()
            call = home.message("call", "tools/call", QUESTION)
            async with elsewhere(home, second).stream(call) as messages:
                said: list[Json] = []
                async for message in messages:
                    said.append(message)
                    if message.get("method") == "elicitation/create":
                        answer = {"jsonrpc": "2.0", "id": message["id"], "result": YES}
                        taken = await elsewhere(home, third).post(answer)
                        assert taken.status_code == 202
        assert said[-1]["id"] == "call"
        assert not said[-1]["result"].get("isError"), said[-1]
        assert "notifications/progress" in [message.get("method") for message in said]
        assert owner.hops == [("POST", 200), ("POST", 202)]
        assert not second.hops
        assert not third.hops


async def test_a_client_hears_of_changes_in_a_stream_at_another_replica() -> None:
    async with away() as session:
        headers = {**session.there.headers({}), "accept": "text/event-stream"}
        stream = session.there.client.stream("GET", session.there.url, headers=headers)
        with anyio.fail_after(30):
            async with stream as response:
                (offered,) = session.owner.bridge.offered
                offered.server.changed()
                async for line in response.aiter_lines():
                    if "tools/list_changed" in line:
                        break
        assert session.owner.hops == [("GET", 200)]


async def test_a_client_ends_its_session_at_another_replica() -> None:
    async with away() as session:
        ended = await session.there.client.delete(session.there.url, headers=session.there.headers({}))
        assert ended.status_code == 200
        assert await status_of(session.home) == (404, "Session not found")
        assert await session.status() == (404, "Session not found")


async def test_the_owner_gets_the_callers_own_headers_and_one_that_only_a_replica_can_make() -> None:
    async with away() as session:
        own = {
            "traceparent": f"00-{'1' * 32}-{'2' * 16}-01",
            "x-own": "kept",
            "connection": "x-once",
            "x-once": "no",
        }
        await session.there.post(session.there.message(1, *LIST), **own)
        _, headers, status = session.owner.seen[-1]
        assert status == 200
        assert headers["authorization"] == f"Bearer {ALICE.token}"
        assert headers["host"] == session.owner.url.removeprefix("http://")
        assert {name: headers.get(name) for name in own} == {**own, "connection": None, "x-once": None}
        assert headers["mcp-session-id"] == session.home.session


async def test_requests_without_a_session_and_those_of_2026_07_28_stay_where_they_are() -> None:
    async with face_replicas() as group:
        async with sdk_client(Balancer(group.made), "auto") as client:
            assert client.protocol_version == MODERN
            for _ in range(3):
                await client.call_tool("echo", {"text": "x"})
        async with sdk_client(Balancer([group.made[0]])) as client:
            await client.list_tools()
        assert [replica.hops for replica in group.made] == [[], []]


# Who is let in


def hop_to(replica: FaceReplica, given: str, body: bytes, **changes: Any) -> str:
    """The header of a hop to a replica, as another one makes it, unless something is changed."""
    said = {
        "epoch": replica.epoch,
        "path": PATH,
        "session": given,
        "keys": KEYS,
        "late_seconds": 0.0,
        **changes,
    }
    hops = PassedHeaders(Proofs([key.encode() for key in said["keys"]]))
    request = PassedRequest("POST", said["path"], said["session"])
    return hops.header(said["epoch"], request, body, replica.registry.now_seconds() - said["late_seconds"])


async def hopped(http: Http, replica: FaceReplica, **changes: Any) -> int:
    """The status of the answer to a request that claims to come by a hop."""
    body = changes.pop("body", None)
    request = http.client.build_request(
        "POST", http.url, json=http.message(1, *LIST), headers=http.headers(http.message(1, *LIST))
    )
    header = changes.pop("header", None) or hop_to(
        replica, http.session or "", body or request.content, **changes
    )
    request.headers[PASSED_HEADER] = header
    return (await http.client.send(request)).status_code


async def test_a_hop_that_no_replica_made_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    async with away() as session:
        forged = [
            {"keys": ("a secret of somebody else, with as many letters",)},
            {"path": "/mcp/other"},
            {"session": "another"},
            {"body": b"{}"},
            {"header": "1.2.3"},
        ]
        assert [await hopped(session.home, session.owner, **one) for one in forged] == [403] * 5
        assert await hopped(session.home, session.owner) == 200
    assert "a request that claims to be from another replica is refused" in caplog.text


async def test_a_hop_that_came_before_is_refused() -> None:
    async with away() as session:
        body = session.home.client.build_request("POST", "/", json=session.home.message(1, *LIST)).content
        header = hop_to(session.owner, session.home.session or "", body)
        assert await hopped(session.home, session.owner, header=header) == 200
        assert await hopped(session.home, session.owner, header=header) == 403


async def test_a_hop_that_is_too_old_or_from_the_future_is_refused() -> None:
    async with away() as session:
        late = [VALID_SECONDS - 5, VALID_SECONDS + 1, -VALID_SECONDS - 1]
        found = [await hopped(session.home, session.owner, late_seconds=seconds) for seconds in late]
        assert found == [200, 403, 403]


async def test_a_request_hops_once_at_most() -> None:
    async with away() as session:
        for target in (session.owner, session.other):
            assert await hopped(session.there, target) == 503
        assert session.owner.hops == []


async def test_a_session_is_its_principals_alone_at_every_replica() -> None:
    async with away() as session:
        async with session.owner.wire(BOB) as bob:
            bob.session = session.home.session
            for replica in (session.owner, session.other):
                assert await status_of(elsewhere(bob, replica)) == (404, "Session not found")
            assert await hopped(bob, session.owner) == 404
        assert await session.status() == (200, "listed")


async def test_the_owner_of_a_session_asks_by_itself_who_calls() -> None:
    async with face_replicas(0) as group:
        owner, other = await group.start(), await group.start()
        async with owner.wire() as home:
            await home.open()
            await owner.bridge.apply(replace(owner.plan, credentials=(BOB,)))
            assert (await elsewhere(home, other).post(home.message(1, *LIST))).status_code == 401


async def test_a_web_page_and_a_foreign_name_are_refused_where_they_come_and_hop_nowhere() -> None:
    async with away() as session:
        message = session.there.message(1, *LIST)
        page = await session.there.post(message, origin="http://evil.example")
        name = await session.there.post(message, host="evil.example")
        own = await session.there.post(message, origin=PUBLIC_URL, host="agents.example.com")
        assert [page.status_code, name.status_code, own.status_code] == [403, 421, 200]
        assert session.owner.hops == [("POST", 200)]
        assert (await session.home.post(message, host="evil.example")).status_code == 421


OLD, NEW = (f"the {name} secret of these replicas, of many letters" for name in ("old", "new"))


@pytest.mark.parametrize(
    ("before", "after"),
    [((OLD,), (OLD, NEW)), ((OLD, NEW), (NEW, OLD)), ((NEW, OLD), (NEW,))],
    ids=["behind", "first", "alone"],
)
async def test_sessions_go_on_while_keys_are_changed_one_replica_after_another(
    before: tuple[str, ...], after: tuple[str, ...]
) -> None:
    async with face_replicas(0) as group:
        old, new = await group.start(keys=before), await group.start(keys=after)
        for owner, other in ((old, new), (new, old)):
            async with owner.wire() as home:
                await home.open()
                assert await status_of(elsewhere(home, other)) == (200, "listed")


# Owners that are not there


@pytest.mark.long
async def test_a_paused_owner_is_answered_for_with_503_until_it_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with away(SHORT_LEASE_SECONDS) as session:
        for _ in range(2):
            session.owner.pause()
            for _ in range(2):
                answer = await session.there.post(session.there.message(1, *LIST))
                assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            session.owner.resume()
            assert await session.status() == (200, "listed")
        told = f"replica {session.owner.epoch} does not answer: no answer within 1.5 s"
    assert [record.message for record in caplog.records].count(told) == 2


async def test_a_call_that_was_given_up_while_its_owner_stood_still_is_not_made_later() -> None:
    async with away() as session:
        call = session.home.message(1, "tools/call", {"name": "echo", "arguments": {"text": "late"}})
        request = session.home.client.build_request(
            "POST", session.home.url, json=call, headers=session.home.headers(call)
        )
        request.headers[PASSED_HEADER] = hop_to(session.owner, session.home.session or "", request.content)
        lines = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
        place = request.url.host, request.url.port
        # The loop of the owner stands still meanwhile, and finds the call and its end at once.
        with socket.create_connection(place) as sender:
            sender.sendall(f"POST {PATH} HTTP/1.1\r\n{lines}\r\n".encode() + request.content)
        with anyio.fail_after(30):
            while not session.owner.hops:
                await anyio.sleep(0.01)
        assert session.owner.hops == [("POST", 503)]
        made = await session.home.tool(2, "requests")
        assert json.loads(made["result"]["content"][0]["text"])["tools/call"] == 1


@pytest.mark.parametrize(
    "proved_for",
    [None, (), (uuid4().bytes,)],
    ids=["another address", "an epoch of this number", "another start"],
)
async def test_an_address_that_no_replica_wrote_for_this_start_is_not_called(
    proved_for: tuple[bytes, ...] | None, caplog: pytest.LogCaptureFixture
) -> None:
    async with face_replicas() as group:
        owner, other = group.made
        evil = f"{owner.url}/evil"
        async with owner.wire() as home:
            await home.open()
            place = Namespace.of_replicas()
            with psycopg.connect(group.database_url, autocommit=True) as connection:
                connection.execute(place.sql("UPDATE {ns}.members SET address = %s"), (evil,))
                if proved_for is not None:
                    said = (str(owner.epoch).encode(), *proved_for, evil.encode())
                    proof = Proofs([key.encode() for key in KEYS]).proof(ProofPurpose.ADDRESS, *said)
                    connection.execute(place.sql("UPDATE {ns}.members SET proof = %s"), (proof,))
            with anyio.fail_after(30):
                while (entry := await other.registry.find(owner.epoch)) and entry.address != evil:
                    await anyio.sleep(0.01)
            assert (await status_of(elsewhere(home, other)))[0] == 503
        assert owner.hops == []
    assert f"the address of replica {owner.epoch} is not signed with the keys of this bridge" in caplog.text


async def test_the_session_of_a_killed_owner_is_not_found_and_its_client_initializes_anew() -> None:
    async with face_replicas(lease_seconds=SHORT_LEASE_SECONDS) as group:
        owner, other = group.made
        balancer = Balancer([owner])
        with anyio.fail_after(30):
            async with sdk_client(balancer) as client:
                owner.gate.end()
                await other.registry.gone(owner.epoch)
                balancer.go_to(other)
                with pytest.raises(MCPError) as lost:
                    await client.list_tools()
        assert str(lost.value) == "Session not found"
        async with sdk_client(Balancer([other])) as client:
            assert words(await client.call_tool("echo", {"text": "anew"})) == "anew"


async def test_a_call_whose_owner_dies_is_answered_that_its_outcome_is_not_known() -> None:
    async with away(SHORT_LEASE_SECONDS) as session:
        call = session.there.message("call", "tools/call", QUESTION)
        with anyio.fail_after(30):
            async with session.there.stream(call) as messages:
                said: list[Json] = []
                async for message in messages:
                    said.append(message)
                    if message.get("method") == "elicitation/create":
                        question = message["id"]
                        session.owner.gate.end()
        gone = "The replica of the bridge that worked on this request is gone or silent, so its outcome is not known"
        assert said[-1] == {"jsonrpc": "2.0", "id": "call", "error": {"code": -32603, "message": gone}}
        # The owner lives after all: a client that still comes to it finds its session.
        taken = await session.home.post({"jsonrpc": "2.0", "id": question, "result": YES})
        assert taken.status_code == 202


async def test_without_a_replica_url_a_session_is_answered_for_by_its_owner_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with face_replicas(has_address=False) as group:
        owner, other = group.made
        async with owner.wire() as home:
            await home.open()
            status, said = await status_of(elsewhere(home, other))
            assert status == 503
            assert "lets the balancer send each Mcp-Session-Id to the replica that gave it" in said
            assert await status_of(home) == (200, "listed")
    warned = [
        record for record in caplog.records if "let the balancer send each Mcp-Session-Id" in record.message
    ]
    assert len(warned) == 2


async def test_an_address_that_leads_to_another_replica_is_said_in_the_log_of_both(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with face_replicas(0) as group:
        third = await group.start()
        owner = await group.start(address=third.url)
        other = await group.start()
        async with owner.wire() as home:
            await home.open()
            assert (await status_of(elsewhere(home, other)))[0] == 503
    assert f"a request for replica {owner.epoch} was passed on to replica {third.epoch}" in caplog.text
    assert "a request was passed on and not accepted" in caplog.text


async def test_sessions_that_were_seen_go_on_at_every_replica_while_the_database_is_away() -> None:
    async with away(SHORT_LEASE_SECONDS) as session:
        assert await session.status() == (200, "listed")
        session.other.gate.refuse()
        with anyio.fail_after(30):
            while session.other.registry.failure is None:
                await anyio.sleep(0.01)
        assert await session.status() == (200, "listed")


# What replicas serve


async def test_readiness_says_that_the_database_is_away_and_the_log_alone_says_how(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with face_replicas(1, SHORT_LEASE_SECONDS) as group:
        (one,) = group.made
        one.gate.refuse()
        with anyio.fail_after(30):
            while one.registry.failure is None:
                await anyio.sleep(0.01)
        why = "the database cannot be used at the moment; the log says why"
        assert await one.report() == {"own": one.epoch, "others": {}, "why": why}
        assert "this replica is out of service" in caplog.text


async def test_a_replica_that_serves_another_plan_shows_once_in_the_log_and_in_readiness(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "bridge.assembly.other_replicas")
    async with face_replicas(1, SHORT_LEASE_SECONDS) as group:
        (first,) = group.made
        second = await group.start(title="Another")
        await first.until({second.epoch: "other"})
        await second.until({first.epoch: "other"})
        await second.bridge.apply(replace(second.plan, offered=first.plan.offered))
        await first.until({second.epoch: "same"})
        own, known = f"replica {second.epoch} ", [one.message for one in caplog.records]
        assert [words for words in known if words.startswith(own)] == [
            f"{own}serves another configuration, or has none of our `keys`: clients see different things until both"
            " are the same",
            f"{own}serves the same configuration again",
        ]
