"""An MCP server as a protected resource: who gives tokens, what a refused client is told, and what scopes open."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bridge.assembly.plan import OfferedPlan
from tests.assembly.test_admission import ADA
from tests.assembly.test_bridge import PROFILE
from tests.assembly.test_issuers import Guarded, trusting
from tests.support.issuer import bearer
from tests.support.mcp_wire import LEGACY, MODERN, Http
from tests.support.running import profile_with

PLACE = "/.well-known/oauth-protected-resource"
SCOPES = (("tools:read", ("echo",)), ("tools:write", ("hold",)), ("all", ("*",)))


def challenge(**values: str) -> str:
    """The challenge of a refusal."""
    return "Bearer " + ", ".join(
        f'{name}="{value}"' for name, value in {"realm": "mcp-a2a", **values}.items()
    )


async def called(there: Guarded, tool: str, token: str, version: str = MODERN, **arguments: Any) -> Any:
    """The answer to a call of a tool."""
    http = Http(there.live.client, f"{there.live.url}/mcp/m", version)
    params = {"name": tool, "arguments": arguments}
    return await http.post(http.message(1, "tools/call", params), **bearer(token))


@pytest.mark.proves("mcp25-oauth-resource", "mcp26-oauth-resource")
async def test_the_metadata_of_each_server_names_the_issuers_and_the_very_url_of_the_server(
    tmp_path: Path,
) -> None:
    async with trusting(tmp_path, scopes=SCOPES) as there:
        url = there.live.url
        for path, resource in {"/mcp/m": "/mcp/m", "/mcp": "/mcp", "": "/mcp/m", "/mcp/m/": "/mcp/m"}.items():
            assert await there.live.json(f"{PLACE}{path}") == {
                "resource": f"{url}{resource}",
                "authorization_servers": [there.issuer.url],
                "bearer_methods_supported": ["header"],
                "scopes_supported": ["tools:read"],
            }
        await there.live.json(f"{PLACE}/mcp/other", 404)
        await there.live.json(f"{PLACE}/agents/a", 404)
        posted = await there.live.client.post(f"{url}{PLACE}/mcp/m")
        foreign = await there.live.client.get(f"{url}{PLACE}/mcp/m", headers={"host": "evil.example"})
        assert (posted.status_code, foreign.status_code) == (405, 421)
        two = {"m": OfferedPlan(("a",), PROFILE), "n": OfferedPlan(("a",), PROFILE)}
        await there.live.apply(offered=two)
        assert (await there.live.json(f"{PLACE}/mcp/n"))["resource"] == f"{url}/mcp/n"
        await there.live.json(PLACE, 404)
        await there.live.json(f"{PLACE}/mcp", 404)
        await there.live.apply(issuers={}, credentials=[ADA])
        await there.live.json(f"{PLACE}/mcp/m", 404)


@pytest.mark.proves("mcp25-oauth-resource", "mcp26-oauth-resource")
@pytest.mark.parametrize("prefix", ["/base", "/mcp", "/m"])
async def test_behind_a_path_of_a_proxy_the_metadata_is_found_in_both_ways(
    prefix: str, tmp_path: Path
) -> None:
    async with trusting(tmp_path) as there:
        proxied = {
            "x-forwarded-host": "localhost",
            "x-forwarded-proto": "https",
            "x-forwarded-prefix": prefix,
        }
        for path in (f"{prefix}/mcp/m", "/mcp/m", prefix + "/mcp", "/mcp"):
            found = await there.live.client.get(f"{there.live.url}{PLACE}{path}", headers=proxied)
            face = "/mcp/m" if path.endswith("/m") else "/mcp"
            assert found.json()["resource"] == f"https://localhost{prefix}{face}"
        refused = await there.live.client.post(f"{there.live.url}/mcp/m", json={}, headers=proxied)
        assert refused.headers["www-authenticate"] == challenge(
            resource_metadata=f"https://localhost{prefix}{PLACE}/mcp/m"
        )


@pytest.mark.proves(
    "mcp25-oauth-errors", "mcp26-oauth-errors", "mcp25-oauth-audience", "mcp26-oauth-audience"
)
@pytest.mark.parametrize("path", ["/mcp/m", "/mcp"])
async def test_a_refused_client_is_told_where_it_gets_a_token_and_for_what(path: str, tmp_path: Path) -> None:
    async with trusting(tmp_path, scopes=SCOPES) as there:
        url = f"{there.live.url}{path}"
        told = {"scope": "tools:read", "resource_metadata": f"{there.live.url}{PLACE}{path}"}
        for headers, more in (
            ({}, {}),
            (bearer(there.issuer.token("api://a")), {"error": "invalid_token"}),
            (bearer("what is no token"), {"error": "invalid_token"}),
            ({"authorization": "Basic YTpi"}, {}),
        ):
            refused = await there.live.client.post(url, json={}, headers=headers)
            assert refused.status_code == 401
            assert refused.headers["www-authenticate"] == challenge(**more, **told)


@pytest.mark.proves("mcp25-oauth-errors", "mcp26-oauth-errors", "oauth-scopes")
@pytest.mark.parametrize(("version", "named"), [(LEGACY, "tools:read tools:write"), (MODERN, "tools:write")])
async def test_a_call_that_takes_another_scope_is_403_and_names_the_scope_beside_those_that_an_older_client_loses(
    version: str, named: str, tmp_path: Path
) -> None:
    async with trusting(tmp_path, scopes=SCOPES) as there:
        token = there.issuer.token("api://m", scope="tools:read")
        http = Http(there.live.client, f"{there.live.url}/mcp/m", version)
        if version == LEGACY:
            opened = Http(there.live.client, http.url, version)
            opened.client.headers.update(bearer(token))
            await opened.open()
            http = opened
        params = {"name": "hold", "arguments": {}}
        refused = await http.post(http.message(1, "tools/call", params), **bearer(token))
        assert refused.status_code == 403
        assert refused.headers["www-authenticate"] == challenge(
            error="insufficient_scope",
            scope=named,
            resource_metadata=f"{there.live.url}{PLACE}/mcp/m",
        )
        assert "takes a token with the scope tools:write" in refused.json()["error"]["message"]
        params = {"name": "echo", "arguments": {}}
        answered = await http.post(http.message(2, "tools/call", params), **bearer(token))
        assert answered.status_code == 200
        assert there.tools.calls == [("echo", {})]


@pytest.mark.proves("oauth-scopes", "web-skills")
async def test_a_list_shows_what_a_token_opens_and_what_a_further_scope_would_open(tmp_path: Path) -> None:
    async with trusting(tmp_path, scopes=SCOPES[:1]) as there:
        http = Http(there.live.client, f"{there.live.url}/mcp/m", MODERN)
        for scope in ("tools:read", ""):
            token = there.issuer.token("api://m", scope=scope)
            listed = await http.post(http.message(1, "tools/list"), **bearer(token))
            result = listed.json()["result"]
            assert result["cacheScope"] == "private"
            names = [tool["name"] for tool in result["tools"]]
            assert "echo" in names
            assert "hold" not in names
        assert (await called(there, "echo", token)).status_code == 403
        unknown = await called(there, "hold", token)
        assert (unknown.status_code, unknown.json()["error"]["code"]) == (
            200,
            -32602,
        ) or unknown.status_code == 400
        assert (await called(there, "task_result", token, handle="x")).status_code == 200
        assert there.tools.calls == []


@pytest.mark.proves("oauth-scopes")
async def test_a_skill_that_is_called_by_name_takes_its_scope(tmp_path: Path) -> None:
    searching = profile_with(agents={"granularity": "search"})
    async with trusting(tmp_path, scopes=SCOPES) as there:
        await there.live.apply(offered={"m": OfferedPlan(("a",), searching)})
        token = there.issuer.token("api://m", scope="tools:read")
        refused = await called(there, "call_skill", token, skill="hold", arguments={})
        assert refused.status_code == 403
        assert 'scope="tools:write"' in refused.headers["www-authenticate"]
        found = (await called(there, "find_skill", token, query="")).json()["result"]
        assert {one["name"] for one in found["structuredContent"]["skills"]} == {"echo", "hold"}
        assert (await called(there, "call_skill", token, skill="echo", arguments={})).status_code == 200
        assert there.tools.calls == [("echo", {})]
