"""A task that waits for a login of its caller, after the bridge that asked has ended: who goes on with it, and when."""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import anyio
import httpx2
import pytest

from bridge.assembly.admission import Admission
from bridge.assembly.plan import Plan, ProcessPlan
from bridge.concurrency import Signal
from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import Credential
from bridge.identity.logins.kept_logins import DECLINED, AwaitedLogin, Login, LoginKey
from bridge.identity.pages.login_desk import LoginLooks
from tests.assembly.test_bridge import PROFILE, agent
from tests.assembly.test_caller_logins import TOKENS, Office, Town, link_in, town
from tests.assembly.test_logins import put
from tests.support.issuer import issuer_at
from tests.support.limits import engine_limits
from tests.support.running import call_part

pytestmark = pytest.mark.outside

AUTH: Final = "TASK_STATE_AUTH_REQUIRED"
ECHO: Final = {"parts": [call_part("echo")]}


@asynccontextmanager
async def opened(here: Town, **more: Any) -> AsyncIterator[Office]:
    """A bridge whose tasks outlive it."""
    kept = {"desk": agent("crm", store=str(here.folder / "tasks.db"))}
    async with here.opens(**{"published": kept, **more}) as bridge:
        yield bridge


async def left(here: Town, who: str = "alice", **more: Any) -> tuple[dict[str, Any], str]:
    """A task of a bridge that has ended, which waits for a login, and its link."""
    async with opened(here, **more) as bridge:
        return await bridge.asked(who)


async def logged_in(here: Town, who: str = "alice", **changes: Any) -> None:
    """Somebody else than the bridge writes a login."""
    await put(replace(here.login_config, principal=who), here.issuer, **changes)


def with_skills(*globs: str) -> list[Credential]:
    """Alice with these skills, and bob."""
    return [
        Credential(Principal(name, skills=globs if name == "alice" else ("*",)), token)
        for name, token in TOKENS.items()
    ]


async def rests(bridge: Office, task: dict[str, Any]) -> None:
    """The task waits for a message, and nothing works on it any more."""
    while bridge.there.bridge.running:
        await anyio.sleep(0.01)
    assert (await bridge.rpc("alice", "GetTask", {"id": task["id"]}))["status"] == task["status"]
    assert bridge.calls == []


async def test_a_task_waits_on_after_a_restart_says_nothing_anew_and_goes_on_once_there_is_a_login(
    tmp_path: Path,
) -> None:
    async with town(tmp_path) as here:
        task, _ = await left(here)
        async with opened(here) as bridge:
            now = await bridge.rpc("alice", "GetTask", {"id": task["id"]})
            assert now["status"] == task["status"]
            await logged_in(here, "bob")
            await logged_in(here)
            done = await bridge.becomes("alice", task, "TASK_STATE_COMPLETED")
            assert here.calls == ["access-3"]
            assert len(done["history"]) == len(task["history"]) + 1, "the question is told once"
        async with opened(here) as bridge:
            await bridge.becomes("alice", task, "TASK_STATE_COMPLETED")
        assert here.calls == ["access-3"]


async def test_the_link_of_before_a_restart_leads_to_the_call(tmp_path: Path) -> None:
    async with town(tmp_path) as here:
        task, link = await left(here)
        async with opened(here) as bridge:
            page = await bridge.logs_in("alice", re.sub(r"http://[^/]+", bridge.there.url, link), "decline")
            assert page.status_code == 200
            await bridge.becomes("alice", task, "TASK_STATE_REJECTED")
        assert here.calls == []


async def test_a_login_or_a_no_that_came_while_no_bridge_ran_counts_at_the_start(tmp_path: Path) -> None:
    async with town(tmp_path) as here:
        task, _ = await left(here)
        other, _ = await left(here, "bob")
        await logged_in(here)
        now = time.time()
        async with here.login_config.keeper.held(replace(here.login_config.key, principal="bob")) as held:
            await held.write(Login("", "", "", "", got_at=now, since=now, lost=DECLINED))
        async with opened(here) as bridge:
            await bridge.becomes("alice", task, "TASK_STATE_COMPLETED")
            await bridge.becomes("bob", other, "TASK_STATE_REJECTED")
        assert here.calls == ["access-2"]


async def test_a_message_after_a_restart_brings_no_login_and_renews_the_link(tmp_path: Path) -> None:
    async with town(tmp_path) as here:
        task, link = await left(here)
        async with opened(here) as bridge:
            await bridge.send("alice", {"taskId": task["id"], "parts": [{"text": "done"}]})
            while link_in(again := await bridge.becomes("alice", task, AUTH)).endswith(
                link.rpartition("/")[2]
            ):
                await anyio.sleep(0.01)
        async with opened(here) as bridge:
            assert (await bridge.rpc("alice", "GetTask", {"id": task["id"]}))["status"] == again["status"]
            await logged_in(here)
            await bridge.becomes("alice", task, "TASK_STATE_COMPLETED")
        assert here.calls == ["access-2"]


async def test_a_message_after_a_restart_may_decline(tmp_path: Path) -> None:
    async with town(tmp_path) as here:
        task, _ = await left(here)
        async with opened(here) as bridge:
            await bridge.send("alice", {"taskId": task["id"], "parts": [{"data": {"action": "decline"}}]})
            await bridge.becomes("alice", task, "TASK_STATE_REJECTED")


async def test_a_task_that_waits_after_a_restart_is_cancelled_and_counted_like_any_other(
    tmp_path: Path,
) -> None:
    async with town(tmp_path) as here:
        task, _ = await left(here)
        async with opened(here) as bridge:
            engine = bridge.there.bridge.published[0].engine
            engine.limits = engine_limits(open_tasks=1)
            headers = {"Authorization": f"Bearer {TOKENS['alice']}", "A2A-Version": "1.0"}
            said = {"message": {"messageId": "2", "role": "ROLE_USER", **ECHO}}
            asked = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": said}
            url = f"{bridge.there.url}/agents/desk"
            refused = (await bridge.there.client.post(url, json=asked, headers=headers)).json()
            assert "1 of your tasks have not ended" in refused["error"]["message"]
            await bridge.rpc("alice", "CancelTask", {"id": task["id"]})
            await bridge.becomes("alice", task, "TASK_STATE_CANCELED")


async def test_a_link_that_expired_leaves_the_task_to_a_message_also_after_a_restart(tmp_path: Path) -> None:
    async with town(tmp_path, link_seconds=0.01) as here:
        task, _ = await left(here)
        await logged_in(here, since=time.time() + 1)  # later than the link allows
        async with opened(here) as bridge:
            await rests(bridge, task)
            await bridge.send("alice", {"taskId": task["id"], "parts": [{"text": "done"}]})
            await bridge.becomes("alice", task, "TASK_STATE_COMPLETED")
        assert here.calls == ["access-2"]


async def test_a_message_that_comes_when_the_link_expires_is_taken_in_or_begins_anew(tmp_path: Path) -> None:
    async with town(tmp_path, link_seconds=0.2) as here, opened(here) as bridge:

        async def asks_and_says(number: int) -> None:
            task, _ = await bridge.asked("alice")
            await anyio.sleep(0.15 + 0.003 * number)
            said = {"taskId": task["id"], "messageId": f"said-{number}", "parts": [{"text": "done"}]}
            await bridge.send("alice", said)
            now = await bridge.becomes("alice", task, AUTH)
            assert len([one for one in now["history"] if one["role"] == "ROLE_USER"]) == 2

        async with anyio.create_task_group() as group:
            for number in range(30):
                group.start_soon(asks_and_says, number)


async def test_a_login_in_time_counts_though_the_bridge_comes_back_late(tmp_path: Path) -> None:
    async with town(tmp_path, link_seconds=0.01) as here:
        before = time.time()
        task, _ = await left(here)
        await logged_in(here, since=before)
        async with opened(here) as bridge:
            await bridge.becomes("alice", task, "TASK_STATE_COMPLETED")


async def test_a_login_whose_issuer_answers_after_the_link_has_expired_is_taken_up(tmp_path: Path) -> None:
    async with town(tmp_path, link_seconds=0.3, late_seconds=60) as here:
        async with opened(here) as bridge:
            waiting, _ = await bridge.asked("alice")
            left_behind, link = await bridge.asked("bob")
            async with httpx2.AsyncClient() as browser:
                while (await browser.get(link)).status_code != 410:
                    await anyio.sleep(0.01)
            await logged_in(here)
            await bridge.becomes("alice", waiting, "TASK_STATE_COMPLETED")
        async with opened(here) as bridge:
            await logged_in(here, "bob")
            await bridge.becomes("bob", left_behind, "TASK_STATE_COMPLETED")
        assert here.calls == ["access-2", "access-3"]


async def test_a_login_in_time_counts_for_ten_minutes_and_no_longer(tmp_path: Path) -> None:
    async with town(tmp_path) as here, opened(here) as bridge:
        logins = bridge.there.bridge.upstreams["crm"].logins
        assert logins is not None
        now = time.time()
        await logged_in(here, since=now - 1300)
        link = AwaitedLogin("alice", "a call", ("*",), (), now - 1400, now - 800)
        assert await logins.settled(link, is_patient=True) is None
        assert await logins.settled(replace(link, expires_at=now - 500), is_patient=True) is True
        assert await logins.settled(replace(link, expires_at=now - 1350), is_patient=True) is None


async def test_a_principal_that_lost_the_skill_meanwhile_is_not_gone_on_for(tmp_path: Path) -> None:
    async with town(tmp_path) as here:
        task, _ = await left(here)
        async with opened(here, credentials=with_skills("other/*", "look")) as bridge:
            await logged_in(here)
            ended = await bridge.becomes("alice", task, "TASK_STATE_REJECTED")
            assert "may no longer use the skill echo" in json.dumps(ended)
        assert here.calls == []


async def test_neither_is_one_that_lost_it_by_a_reload_while_its_task_waited(tmp_path: Path) -> None:
    async with town(tmp_path) as here, opened(here) as bridge:
        task, _ = await bridge.asked("alice")
        await bridge.there.apply(credentials=with_skills("look"))
        await logged_in(here)
        await bridge.becomes("alice", task, "TASK_STATE_REJECTED")
        assert here.calls == []


async def test_a_task_of_a_principal_that_is_gone_stays_as_it_is(tmp_path: Path) -> None:
    async with town(tmp_path) as here:
        task, _ = await left(here)
        async with opened(here, credentials=with_skills("*")[1:]) as bridge:
            await logged_in(here)
            while bridge.there.bridge.running:
                await anyio.sleep(0.01)
        assert here.calls == []
        async with opened(here) as bridge:
            await bridge.becomes("alice", task, "TASK_STATE_COMPLETED")


@pytest.mark.parametrize("change", ["arguments", "tool_name", "proof", "of another task"])
async def test_whoever_can_write_to_the_store_makes_no_call_in_the_name_of_somebody(
    tmp_path: Path, change: str
) -> None:
    async with town(tmp_path) as here:
        task, _ = await left(here)
        other, _ = await left(here)
        with closing(sqlite3.connect(here.folder / "tasks.db")) as file, file:
            rows = dict(file.execute("SELECT task_id, private FROM privates"))
            kept = json.loads(rows[task["id"]])
            match change:
                case "arguments":
                    kept["arguments"] = {"text": "mine"}
                case "tool_name":
                    kept["tool_name"] = "another"
                case "proof":
                    kept["login"]["proof"] = kept["login"]["proof"][::-1]
                case _:
                    kept["login"] = json.loads(rows[other["id"]])["login"]
            file.execute(
                "UPDATE privates SET private = ? WHERE task_id = ?", (json.dumps(kept).encode(), task["id"])
            )
        await logged_in(here)
        async with opened(here) as bridge:
            await bridge.becomes("alice", other, "TASK_STATE_COMPLETED")
            while bridge.there.bridge.running:
                await anyio.sleep(0.01)
            assert (await bridge.rpc("alice", "GetTask", {"id": task["id"]}))["status"]["state"] == AUTH
        assert here.calls == ["access-2"]


def test_a_principal_of_an_issuer_has_the_rights_of_its_token_as_long_as_the_rules_are_the_same() -> None:
    rules = (("tools:read", ("desk/look", "other/*")), ("tools:write", ("put",)))
    issuer = issuer_at("http://127.0.0.1:9", {})
    plan = Plan(PROFILE, ProcessPlan(), issuers={"corp": replace(issuer, scopes=rules)})
    asked = Principal("corp:alice", skills=("desk/look",), scopes=rules).in_face("desk")
    assert Admission(plan).present(asked, "desk") == asked
    assert Admission(plan).present(asked, "other") is None
    assert Admission(replace(plan, issuers={"other": plan.issuers["corp"]})).present(asked, "desk") is None
    fewer = replace(issuer, scopes=rules[1:])
    assert Admission(replace(plan, issuers={"corp": fewer})).present(asked, "desk") is None


def test_a_principal_of_the_file_has_the_rights_that_the_file_gives_it_now() -> None:
    asked = Principal("alice", skills=("look",))
    plan = Plan(PROFILE, ProcessPlan(), with_skills("desk/put", "other/look"))
    present = Principal("alice", skills=("put",), resources=(), prompts=())
    assert Admission(plan).present(asked, "desk") == present
    assert Admission(plan).present(Principal("carol"), "desk") is None


@dataclass
class CountingKeeper:
    """Keeps one login, and says how often it was looked for."""

    login: Login | None = None
    found: list[LoginKey] = field(default_factory=list)
    gate: anyio.Event = field(default_factory=anyio.Event)

    def __hash__(self) -> int:
        return id(self)

    async def find(self, key: LoginKey) -> Login | None:
        self.found.append(key)
        await self.gate.wait()
        return self.login


async def test_however_many_tasks_wait_for_logins_few_looks_are_made() -> None:
    keeper, looks = CountingKeeper(), LoginLooks(moved := Signal())
    keys = [LoginKey("https://crm.example", f"person-{number}") for number in range(10)]
    begun_at = anyio.current_time()
    async with anyio.create_task_group() as group:
        for key in keys * 20:
            group.start_soon(looks.find, keeper, key, begun_at)
        await anyio.wait_all_tasks_blocked()
        assert len(keeper.found) == 4
        keeper.gate.set()
    assert sorted(keeper.found, key=str) == sorted(keys, key=str)
    keeper.login = Login("", "", "", "", got_at=0, since=0)
    moved.notify()
    assert await looks.find(keeper, keys[0], begun_at) is keeper.login
