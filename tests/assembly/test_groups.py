"""Groups of principals: what their members have in common, two tokens while one is rotated, and the limit of each."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from bridge.assembly.plan_from_file import plan_from_file
from bridge.config.load import load
from bridge.http.request_checks import RefusedError
from bridge.identity.callers.principals import OperatorRole, Principal
from bridge.identity.callers.verifiers import Access, Credential, verifiers_of
from tests.assembly.test_admission import bearer, guarded
from tests.support.command import WAIT_SECONDS
from tests.support.running import Rpc, call_part, message

NEW_TOKEN = "a-token-that-the-file-knows-by-its-hash"
FILE = f"""
[tool_servers.a]
command = ["a"]

[tools_as_agent.desk]
from = ["a"]

[groups.team]
skills = ["desk/greet"]
operator = "read"
open_tasks = 2

[principals.ann]
group = "team"
tokens = [{{ env = "ANN" }}, {{ sha256 = "{hashlib.sha256(NEW_TOKEN.encode()).hexdigest().upper()}" }}]

[principals.bob]
group = "team"
bearer = {{ env = "BOB" }}
skills = ["*"]
operator = "answer"
open_tasks = 9

[principals.cy]
bearer = {{ env = "CY" }}
"""
READ, ANSWER = OperatorRole.READ, OperatorRole.ANSWER


def credentials(folder: Path, text: str = FILE) -> list[Credential]:
    file = folder / "bridge.toml"
    file.write_text(text, encoding="utf-8")
    return list(
        plan_from_file(load(file, {"ANN": "ann-token", "BOB": "bob-token", "CY": "cy-token"})).credentials
    )


def test_what_a_principal_leaves_out_is_as_its_group_has_it(tmp_path: Path) -> None:
    found = {one.principal.name: one.principal for one in credentials(tmp_path)}
    assert found == {
        "ann": Principal("ann", skills=("desk/greet",), operator=READ, open_tasks=2),
        "bob": Principal("bob", skills=("*",), resources=(), prompts=(), operator=ANSWER, open_tasks=9),
        "cy": Principal("cy"),
    }
    assert [one.group for one in found.values()] == ["team", "", ""]


@pytest.mark.parametrize("token", ["ann-token", NEW_TOKEN])
async def test_either_token_lets_the_same_principal_in(token: str, tmp_path: Path) -> None:
    access = Access(verifiers_of(credentials(tmp_path)))
    found = await access.principal_of({"authorization": f"Bearer {token}"}, "/agents/desk")
    assert found.name == "ann"


async def test_a_hash_is_no_token(tmp_path: Path) -> None:
    access = Access(verifiers_of(credentials(tmp_path)))
    digest = hashlib.sha256(NEW_TOKEN.encode()).hexdigest()
    for shown in (digest, digest.upper(), f"sha256:{digest}"):
        with pytest.raises(RefusedError):
            await access.principal_of({"authorization": f"Bearer {shown}"}, "/agents/desk")


async def test_the_old_token_is_refused_once_it_is_taken_out_and_the_new_one_goes_on(tmp_path: Path) -> None:
    ann = Principal("ann")
    old, new = (Credential(ann, f"{age}-token-of-ann") for age in ("old", "new"))
    kept_as_hash = Credential(ann, "", sha256=hashlib.sha256(new.token.encode()).hexdigest())
    async with guarded(tmp_path, old) as (there, _):

        async def status(one: Credential) -> int:
            answer = await there.client.get(f"{there.url}/agents", headers=bearer(one))
            return answer.status_code

        assert (await status(old), await status(new)) == (200, 401)
        await there.apply(credentials=[old, kept_as_hash])
        assert (await status(old), await status(new)) == (200, 200)
        await there.apply(credentials=[kept_as_hash])
        assert (await status(old), await status(new)) == (401, 200)


LIMITED, FREE = (
    Credential(Principal("ann", open_tasks=1), "ann-token"),
    Credential(Principal("bob"), "bob-token"),
)


async def test_the_limit_of_a_group_bounds_the_tasks_of_each_of_its_people_at_an_agent(
    tmp_path: Path,
) -> None:
    mate = Credential(replace(LIMITED.principal, name="amy"), "amy-token")
    async with guarded(tmp_path, LIMITED, mate, FREE) as (there, one):

        async def begins(who: Credential) -> Any:
            rpc = Rpc(there.client, f"{there.url}/agents/a", bearer(who))
            asked = {
                "message": message(call_part("hold"))["message"],
                "configuration": {"returnImmediately": True},
            }
            return (await rpc.post("SendMessage", asked)).json()

        assert "result" in await begins(LIMITED)
        refused = await begins(LIMITED)
        assert "1 of your tasks have not ended" in refused["error"]["message"]
        assert "result" in await begins(mate)
        for _ in range(2):
            assert "result" in await begins(FREE)
        one.released.set()


async def test_the_limit_of_a_group_bounds_the_calls_of_each_of_its_people_at_an_mcp_server(
    tmp_path: Path,
) -> None:
    async with guarded(tmp_path, LIMITED, FREE) as (there, one), anyio.create_task_group() as group:
        results: list[Any] = []

        async def hold(client: Any) -> None:
            results.append(await client.call_tool("hold", {}))

        async with (
            httpx2.AsyncClient(headers=bearer(LIMITED), timeout=WAIT_SECONDS) as http,
            Client(streamable_http_client(f"{there.url}/mcp/m", http_client=http), cache=None) as ann,
            httpx2.AsyncClient(headers=bearer(FREE), timeout=WAIT_SECONDS) as others,
            Client(streamable_http_client(f"{there.url}/mcp/m", http_client=others), cache=None) as bob,
        ):
            group.start_soon(hold, ann)
            await one.holding(1)
            refused = await ann.call_tool("echo", {})
            assert refused.is_error
            assert "1 of your calls are under way here" in refused.content[0].text
            assert not (await bob.call_tool("echo", {})).is_error
            one.released.set()
            while not results:
                await anyio.lowlevel.checkpoint()
            assert not results[0].is_error
            assert not (await ann.call_tool("echo", {})).is_error, "its call has ended"
