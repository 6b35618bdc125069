"""Issuers of a bridge: which token opens which door, and what a change of the plan takes away."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from bridge.assembly.admission import Admission
from bridge.assembly.bridge import Bridge
from bridge.assembly.issuers import Issuers, issuers_of
from bridge.assembly.plan import OfferedPlan, Plan, ProcessPlan, PublishedPlan, with_one_agent
from bridge.assembly.plan_from_file import plan_from_file
from bridge.config.load import load
from bridge.errors import UsageError
from bridge.http.request_checks import RefusedError
from bridge.identity.callers.issuers import Issuer, IssuerPlace
from bridge.identity.callers.principals import OperatorRole, Principal
from bridge.identity.callers.verifiers import Credential, Scheme
from tests.assembly.test_admission import ADA, BOB, cannot_be_taken_over, guarded, statuses
from tests.assembly.test_admission import bearer as shown_by
from tests.assembly.test_bridge import NOWHERE, PROFILE, Live, agent, live, said, server
from tests.identity.callers.test_introspection import CLIENT, Asked, active
from tests.identity.callers.test_issuers import WRONG, gone
from tests.support.drivers import JsonRpcDriver, new_client, shape_of
from tests.support.issuer import LIMITS, TokenIssuer, bearer, issuer_at, jwk, rsa_jwk
from tests.support.limits import url_at
from tests.support.running import Rpc, call_part, listening, message, profile_with
from tests.support.tool_server import ToolServer, listed

AUDIENCES = {"a": frozenset({"api://a"}), "m": frozenset({"api://m"})}


@dataclass
class Guarded:
    """A bridge that trusts an issuer."""

    live: Live
    tools: ToolServer
    issuer: TokenIssuer
    trusted: Issuer

    def rpc(self, token: str) -> Rpc:
        """A client of the agent with a token."""
        return Rpc(self.live.client, f"{self.live.url}/agents/a", bearer(token))


@asynccontextmanager
async def trusting(
    folder: Path, *credentials: Any, metadata: Mapping[str, Any] | None = None, **changes: Any
) -> AsyncIterator[Guarded]:
    """Such a bridge, with an agent `a` and a server `m` made of it."""
    issuer = TokenIssuer("", metadata=dict(metadata or {}))
    async with listening(issuer) as issuer.url:
        trusted = issuer_at(issuer.url, AUDIENCES, **changes)
        async with guarded(folder, *credentials, issuers={"corp": trusted}) as (there, tools):
            yield Guarded(there, tools, issuer, trusted)


DOORS: Mapping[str, frozenset[str]] = {
    "api://a": frozenset({"json-rpc", "rest", "rest send", "alias", "catalog"}),
    "api://m": frozenset({"mcp", "mcp alias", "mcp stream"}),
}
"""The doors that a token for each audience opens."""


@pytest.mark.proves("oauth-jwt", "web-auth")
@pytest.mark.parametrize("audience", DOORS)
async def test_a_token_of_one_face_is_refused_at_the_other(audience: str, tmp_path: Path) -> None:
    async with trusting(tmp_path) as there:
        found = await statuses(there.live, bearer(there.issuer.token(audience)))
        assert {door for door, status in found.items() if status != 401} == DOORS[audience]
        assert set((await statuses(there.live, bearer(there.issuer.token("api://x")))).values()) == {401}
        assert set((await statuses(there.live, {})).values()) == {401}


@pytest.mark.parametrize("audience", DOORS)
async def test_readiness_names_peers_to_an_operator_with_a_token_for_any_endpoint(
    audience: str, tmp_path: Path
) -> None:
    async with trusting(tmp_path, operators={OperatorRole.READ: frozenset({"ops"})}) as there:
        told = [
            (await there.live.client.get(f"{there.live.url}/readyz", headers=bearer(token))).json()
            for token in (
                there.issuer.token(audience, scope="ops"),
                there.issuer.token(audience),
                there.issuer.token("api://x", scope="ops"),
            )
        ]
        assert told[0]["agents"].keys() == {"a"}
        assert told[1:] == [{"status": "ready"}] * 2


@pytest.mark.proves("oauth-jwt", "web-auth", "oauth-bad-input")
async def test_no_door_opens_to_a_token_that_is_not_valid(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    audiences = {face: frozenset({"api://desk"}) for face in AUDIENCES}
    async with trusting(tmp_path) as there:
        await there.live.apply(issuers={"corp": replace(there.trusted, audiences=audiences)})
        there.issuer.keys = [jwk("one"), rsa_jwk("two")]
        wrong = {case: make(there.issuer) for case, (make, _) in WRONG.items()}
        for case, token in wrong.items():
            found = await statuses(there.live, bearer(token))
            assert set(found.values()) == {401}, case
            assert token not in caplog.text
        right = await statuses(there.live, bearer(there.issuer.token("api://desk")))
        assert 401 not in right.values()


@pytest.mark.proves("oauth-keys", "oauth-bad-input")
async def test_an_issuer_that_is_down_stops_nobody_else(tmp_path: Path) -> None:
    down = TokenIssuer("http://127.0.0.1:9")
    trusted = issuer_at(down.url, AUDIENCES)
    async with guarded(tmp_path, ADA, issuers={"corp": trusted}) as (there, _):
        await there.json("/readyz")
        await there.json("/agents/a/.well-known/agent-card.json")
        assert 401 not in (await statuses(there, shown_by(ADA))).values()
        for audience, doors in DOORS.items():
            found = await statuses(there, bearer(down.token(audience)))
            assert {found[door] for door in doors} == {503}
        assert set((await statuses(there, bearer(down.token("api://a", iss="x")))).values()) == {401}


@pytest.mark.proves("oauth-jwt")
async def test_a_call_with_a_token_runs_a_tool_and_the_token_goes_no_further(tmp_path: Path) -> None:
    async with trusting(tmp_path) as there:
        assert said(await there.rpc(there.issuer.token("api://a")).send(call_part("echo")))
        assert there.tools.calls == [("echo", {})]


@pytest.mark.proves("oauth-scopes", "web-skills")
async def test_a_token_without_the_scope_of_a_skill_does_not_run_it(tmp_path: Path) -> None:
    async with trusting(tmp_path, scopes=(("read", ("echo",)), ("all", ("*",)))) as there:
        task = await there.rpc(there.issuer.token("api://a", scope="read")).send(call_part("echo"))
        assert said(task)
        none = there.rpc(there.issuer.token("api://a", scope=""))
        assert (await none.post("SendMessage", message(call_part("echo")))).status_code == 403
        assert there.tools.calls == [("echo", {})]


@pytest.mark.proves("web-never-opens")
async def test_the_principals_of_an_issuer_that_is_taken_away_are_refused_and_their_streams_end(
    tmp_path: Path,
) -> None:
    async with trusting(tmp_path, ADA) as there, new_client() as client:
        client.headers.update(bearer(there.issuer.token("api://a")))
        alice = JsonRpcDriver(client, f"{there.live.url}/agents/a")
        async with alice.working(call_part("hold")) as (_, events):
            await there.live.apply(issuers={})
            assert await events.rest() == []
            there.tools.released.set()
        assert set((await statuses(there.live, dict(client.headers))).values()) == {401}
        assert 401 not in (await statuses(there.live, shown_by(ADA))).values()
        await there.live.apply(issuers={"corp": there.trusted})
        found = await statuses(there.live, {"authorization": client.headers["authorization"]})
        assert found["json-rpc"] == 200


@pytest.mark.proves("web-never-opens")
async def test_without_its_last_issuer_a_bridge_lets_nobody_in(tmp_path: Path) -> None:
    async with trusting(tmp_path) as there:
        token = there.issuer.token("api://a")
        down = server(url_at(NOWHERE), fail="closed")
        broken: dict[str, Any] = {
            "servers": {"one": server(there.tools.target), "two": down},
            "published": {"a": agent("one"), "b": agent("two")},
        }
        await cannot_be_taken_over(there.live, issuers={}, **broken)
        assert set((await statuses(there.live, bearer(token))).values()) == {401}
        assert set((await statuses(there.live, {})).values()) == {401}
        assert "the configuration has no principal" in (await there.live.json("/readyz", 503))["access"]


async def test_streams_go_on_when_the_rules_of_an_issuer_change_and_new_rules_hold_from_then_on(
    tmp_path: Path,
) -> None:
    async with trusting(tmp_path) as there, new_client() as client:
        client.headers.update(bearer(there.issuer.token("api://a")))
        alice = JsonRpcDriver(client, f"{there.live.url}/agents/a")
        async with alice.working(call_part("hold")) as (_, events):
            changed = replace(there.trusted, audiences={"a": frozenset({"api://b"}), "m": frozenset()})
            await there.live.apply(issuers={"corp": changed})
            there.tools.released.set()
            assert shape_of(await events.rest())[-1] == "statusUpdate COMPLETED"
        assert (await statuses(there.live, bearer(there.issuer.token("api://a"))))["json-rpc"] == 401
        assert (await statuses(there.live, bearer(there.issuer.token("api://b"))))["json-rpc"] == 200


FILE = """
[bridge]
public_url = "https://bridge.example.com/base"

[tool_servers.a]
command = ["a"]

[tools_as_agent.desk]
from = ["a"]

[tools_as_agent.help]
from = ["a"]

[agents_as_tools.team]
from = ["desk"]

[issuers.corp]
issuer = "https://login.example.com/"
audience.desk = ["api://desk", "https://desk.example.com"]
scopes."tools:read" = ["search", "desk/get_*"]
scopes."tools:write" = ["put"]
"""


def test_a_file_says_the_issuers_and_the_audience_of_each_face(tmp_path: Path) -> None:
    file = tmp_path / "bridge.toml"
    file.write_text(FILE)
    plan = plan_from_file(load(file, {}))
    issuer = issuers_of(plan)["corp"]
    root, desk = "https://bridge.example.com/base", {"api://desk", "https://desk.example.com"}
    assert issuer.place.issuer == "https://login.example.com/"
    assert issuer.audiences == {
        "/agents/desk": desk,
        "/agents/help": {f"{root}/agents/help"},
        "/mcp/team": {f"{root}/mcp/team", f"{root}/mcp"},
        "/agents": {*desk, f"{root}/agents/help"},
        "/readyz": {*desk, f"{root}/agents/help", f"{root}/mcp/team", f"{root}/mcp"},
    }
    assert issuer.scopes == (("tools:read", ("search", "desk/get_*")), ("tools:write", ("put",)))
    assert issuer.first_scopes == ("tools:read",)
    two = replace(plan, offered={"team": plan.offered["team"], "more": OfferedPlan(("desk",), PROFILE)})
    assert issuers_of(two)["corp"].audiences["/mcp/team"] == {f"{root}/mcp/team"}
    assert set(issuers_of(with_one_agent(plan, "help"))["corp"].audiences) == {
        "/agents/help",
        "/agents",
        "/readyz",
    }


def test_a_bridge_with_issuers_may_listen_beyond_loopback(tmp_path: Path) -> None:
    file = tmp_path / "bridge.toml"
    file.write_text(FILE)
    plan = replace(plan_from_file(load(file, {})), place=ProcessPlan(host="0.0.0.0"))
    plan.require_safe()
    with pytest.raises(UsageError, match=r"\[issuers.NAME\]"):
        replace(plan, issuers={}).require_safe()


@pytest.mark.proves("oauth-keys")
async def test_an_issuer_that_is_down_at_the_start_is_known_once_it_is_up() -> None:
    issuer = TokenIssuer("")
    issuer.answers["/jwks"] = gone
    limits = LIMITS.having(retry_seconds=0.01, keys_seconds=0.02)
    async with listening(issuer) as issuer.url, anyio.create_task_group() as tasks:
        issuers = Issuers(limits)
        (verifier,) = issuers.verifiers({"corp": issuer_at(issuer.url, {})})
        tasks.start_soon(issuers.fetch_new_keys)
        while issuer.asked.count("/jwks") < 3:
            await anyio.sleep(0.01)
        issuer.answers.clear()
    # The context waits until the keys are known.
    assert verifier.metadata is not None
    await issuers.close()


@asynccontextmanager
async def closing(issuers: Issuers) -> AsyncIterator[None]:
    """Close the connections to issuers after a block, whatever happened in it."""
    try:
        yield
    finally:
        await issuers.close()


@asynccontextmanager
async def asked_there() -> AsyncIterator[tuple[Asked, Issuer]]:
    """An issuer that listens and is asked about tokens."""
    there = Asked(TokenIssuer(""))
    there.issuer.answers["/introspect"] = there
    async with listening(there.issuer) as url:
        place = IssuerPlace(url, f"{url}/jwks", f"{url}/introspect")
        yield there, issuer_at(url, AUDIENCES, client=CLIENT, place=place)


@pytest.mark.proves("oauth-introspection")
async def test_what_an_issuer_said_of_a_token_stays_while_its_table_does() -> None:
    issuers, questions = Issuers(LIMITS), list[int]()
    async with asked_there() as (there, issuer), closing(issuers):
        there.tokens["opaque"] = active(iss=None, aud="api://a")
        for one in (issuer, issuer, replace(issuer, algorithms=("ES256",))):
            there.access.update(issuers.verifiers({"corp": one}))
            await there.access.principal_of(bearer("opaque"), "a")
            questions.append(len(there.questions))
        assert questions == [1, 1, 2]


@pytest.mark.parametrize("change", [{"place": IssuerPlace("https://b.example")}, {"principal_claim": "oid"}])
async def test_where_another_claim_or_issuer_names_principals_those_of_before_are_turned_away(
    change: dict[str, Any],
) -> None:
    issuer = issuer_at("https://a.example", {})
    plan = Plan(PROFILE, ProcessPlan(), (ADA,), issuers={"corp": issuer})
    admission = Admission(plan)
    async with closing(admission.issuers):
        assert "corp:ann" not in admission.turn_away(plan)
        assert "corp:ann" in admission.turn_away(replace(plan, issuers={"corp": replace(issuer, **change)}))


@pytest.mark.proves("oauth-introspection")
async def test_no_issuer_is_asked_about_a_secret_that_the_file_has_or_had() -> None:
    key = Credential(Principal("bob"), "bobs-key", Scheme.API_KEY)
    async with asked_there() as (there, issuer):
        plan = Plan(PROFILE, ProcessPlan(), (ADA, key), issuers={"corp": issuer})
        admission = Admission(plan)
        async with closing(admission.issuers):
            for left, known in [
                ((ADA, key), {ADA.token, admission.own_token}),
                ((key,), set[str]()),
                ((), {admission.own_token}),
            ]:
                admission.turn_away(replace(plan, credentials=left))
                admission.admit(replace(plan, credentials=left))
                for token in (ADA.token, key.token, admission.own_token, "mistyped"):
                    assert await is_known(admission, token) == (token in known)
            admission.turn_away(replace(plan, credentials=(BOB,)))
            assert not await is_known(admission, BOB.token)
        assert there.questions == ["mistyped"]


async def is_known(admission: Admission, token: str) -> bool:
    """Whether a bearer token is anyone's."""
    try:
        await admission.access.principal_of(bearer(token))
    except RefusedError as exc:
        return exc.status != 401
    return True


async def test_a_bridge_ends_while_an_issuer_is_asked(tmp_path: Path) -> None:
    asked = anyio.Event()

    async def hangs(*_: Any) -> None:
        asked.set()
        await anyio.sleep_forever()

    issuer = TokenIssuer("")
    issuer.answers["/.well-known/oauth-authorization-server"] = hangs
    with anyio.fail_after(10):
        async with listening(issuer) as issuer.url:
            place = ProcessPlan(keys=("k" * 32,), state=tmp_path)
            plan = Plan(PROFILE, place, issuers={"corp": issuer_at(issuer.url, AUDIENCES)})
            bridge = Bridge(plan)
            async with bridge.run():
                await bridge.apply(plan)
                await asked.wait()
    assert issuer.asked == ["/.well-known/oauth-authorization-server"]


@pytest.mark.proves("oauth-scopes", "web-skills")
@pytest.mark.parametrize("asks_for", ["arguments", "confirmation"])
async def test_a_question_takes_the_scope_of_the_skill_that_asks_and_waits_for_a_token_with_it(
    asks_for: str, tmp_path: Path
) -> None:
    text = {"text": {"type": "string"}}
    asking = listed("put", "text", hints={"destructive": True}, **text)
    rules = {"confirm": "destructive" if asks_for == "confirmation" else "never"}
    if asks_for == "arguments":
        first, then = call_part("put"), {"text": "hello"}
    else:
        first, then = call_part("put", text="hello"), {"data": {"confirm": True}}
    issuer = TokenIssuer("")
    async with (
        listening(issuer) as issuer.url,
        ToolServer("one", [listed("echo", **text), asking]).run() as tools,
    ):
        trusted = issuer_at(issuer.url, AUDIENCES, scopes=(("read", ("echo",)), ("write", ("put",))))
        plan = PublishedPlan(("one",), profile_with(run=rules), "memory:")
        async with live(
            tmp_path, servers={"one": server(tools.target)}, published={"a": plan}, issuers={"corp": trusted}
        ) as there:
            wide, narrow = (
                Rpc(there.client, f"{there.url}/agents/a", bearer(issuer.token("api://a", scope=scope)))
                for scope in ("read write", "read")
            )
            task = await wide.send(first)
            assert task["status"]["state"].endswith("_REQUIRED")
            answer = {"taskId": task["id"], "contextId": task["contextId"]}
            refused = await narrow.post("SendMessage", message(then, **answer))
            assert refused.status_code == 403
            assert 'error="insufficient_scope", scope="write"' in refused.headers["www-authenticate"]
            assert tools.calls == []
            assert said((await wide.call("SendMessage", message(then, **answer)))["task"])
            assert tools.calls == [("put", {"text": "hello"})]
