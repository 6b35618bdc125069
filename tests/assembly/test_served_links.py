"""Linked resources as addresses of the bridge: what a client gets, and what other clients do not get."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest

from bridge.assembly.plan import ServerPlan
from bridge.config.load import load
from bridge.errors import ConfigError
from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import Credential
from bridge.mcp.client.eras import Era
from bridge.mcp.client.transports.streamable_http import HttpTarget
from bridge.seal import HandleError
from bridge.tools_as_agent.served_links import LIFETIME_SECONDS, LinkOrigin, ServedLinks
from bridge.translate.overrides import SkillOverride
from tests.assembly.test_bridge import PROFILE, Live, agent, live
from tests.support.mcp_wire import LEGACY
from tests.support.recording_server import Answer, RecordingServer, Refusal
from tests.support.running import Rpc, call_part, message, profile_with
from tests.tools_as_agent.test_prompt_resource_skills import BOTH, called, parts_of

pytestmark = pytest.mark.proves("map-served-links")

Json = dict[str, Any]
LINKED: Final = "note:///a/report.md"
ALL: Final[Json] = {"tools": {}, "resources": {}}


def link(uri: str = LINKED, **fields: Any) -> Json:
    return {"content": [{"type": "resource_link", "uri": uri, "name": "the report", **fields}]}


def contents(**fields: Any) -> Answer:
    return lambda got: {"contents": [{"uri": got.params["uri"], **fields}]}


def person(name: str, **rules: Any) -> Credential:
    return Credential(Principal(name, **rules), f"{name}-token")


@asynccontextmanager
async def serving(
    folder: Path, answers: Mapping[str, Answer], *, desk: Json | None = None, **plan: Any
) -> AsyncIterator[tuple[RecordingServer, Live]]:
    """A bridge with an agent `desk` that serves the links of a recording server."""
    said: Mapping[str, Answer] = {
        "tools/call": lambda _: link(),
        "resources/read": contents(text="the report", mimeType="text/markdown"),
        "resources/templates/list": lambda _: {"resourceTemplates": []},
        **answers,
    }
    tools = RecordingServer(LEGACY, answers=said, capabilities=ALL)
    async with tools.serve() as url:
        target = HttpTarget(url, connect_seconds=20, result_limit_bytes=1 << 20, result_json_values=10_000)
        made = replace(
            ServerPlan.as_profile_says(target, Era.LEGACY, PROFILE.server, PROFILE.run), stand_ins=BOTH
        )
        published = {"desk": agent("crm", serves_links=True, **(desk or {}))}
        async with live(folder, servers={"crm": made}, published=published, **plan) as there:
            await there.bridge.upstreams["crm"].ready()
            yield tools, there


async def address(there: Live, token: str = "", skill: str = "echo", **arguments: Any) -> str:
    """The address of the link in the result of a call."""
    part = parts_of(await called(there, skill, token, **arguments))[-1]
    found: str = part["url"]
    return found


async def got(there: Live, url: str, token: str = "", verb: str = "GET", **headers: str) -> httpx2.Response:
    shown = {"Authorization": f"Bearer {token}"} if token else {}
    return await there.client.request(verb, url, headers={**shown, **headers})


async def test_a_link_is_an_address_of_the_bridge_and_a_file_to_be_saved(tmp_path: Path) -> None:
    async with serving(tmp_path, {}) as (tools, there):
        url = await address(there)
        assert url.startswith(f"{there.url}/agents/desk/links/")
        assert "note" not in url
        assert tools.of("resources/read") == [], "the client reads the links that it wants"
        response = await got(there, url)
        assert (response.status_code, response.text) == (200, "the report")
        assert response.headers["content-type"] == "text/markdown; charset=utf-8"
        assert response.headers["content-disposition"].startswith('attachment; filename="report.md"')
        assert response.headers["x-content-type-options"] == "nosniff"
        assert "sandbox" in response.headers["content-security-policy"]
        assert response.headers["cache-control"] == "private, no-cache"
        assert "set-cookie" not in response.headers
        head = await got(there, url, verb="HEAD")
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-length"] == str(len("the report"))
        again = await got(there, url, **{"If-None-Match": response.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        posted = await got(there, url, verb="POST")
        assert (posted.status_code, posted.headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    ("fields", "content", "media_type"),
    [
        ({"text": "<script>", "mimeType": "text/html"}, b"<script>", "application/octet-stream"),
        ({"text": "<svg/>", "mimeType": "image/svg+xml"}, b"<svg/>", "application/octet-stream"),
        (
            {"text": "x", "mimeType": "text/plain; charset=x\r\nSet-Cookie: a=b"},
            b"x",
            "text/plain; charset=utf-8",
        ),
        ({"text": "é"}, "é".encode(), "text/plain; charset=utf-8"),
        ({"blob": base64.b64encode(b"\x00\xff").decode(), "mimeType": "image/png"}, b"\x00\xff", "image/png"),
        ({"blob": "AP8"}, b"\x00\xff", "application/octet-stream"),
        ({"odd": 1}, b'[{"uri": "note:///a/report.md", "odd": 1}]', "application/json"),
    ],
)
async def test_nothing_that_runs_is_said_to_be_what_it_is(
    fields: Json, content: bytes, media_type: str, tmp_path: Path
) -> None:
    async with serving(tmp_path, {"resources/read": contents(**fields)}) as (_, there):
        response = await got(there, await address(there))
        assert (response.content, response.headers["content-type"]) == (content, media_type)
        assert response.headers["content-disposition"].startswith("attachment;")
        assert "set-cookie" not in response.headers


@pytest.mark.parametrize(
    "uri", ["note:///a/%22;%20x=.html", "note:///%0d%0aX:%20y", "note:///ä/Über.txt", "note:x"]
)
async def test_no_name_of_a_server_leaves_the_header(uri: str, tmp_path: Path) -> None:
    async with serving(tmp_path, {"tools/call": lambda _: link(uri)}) as (_, there):
        header = (await got(there, await address(there))).headers["content-disposition"]
        named = header.removeprefix('attachment; filename="').partition("\"; filename*=UTF-8''")
        assert named[1], header
        assert not set('"\\;\r\n /') & set(named[0] + named[2]), header


async def test_web_links_stay_and_links_to_files_are_withheld(tmp_path: Path) -> None:
    answers: dict[str, Answer] = {"tools/call": lambda _: link("https://example.com/a")}
    async with serving(tmp_path, answers) as (tools, there):
        assert await address(there) == "https://example.com/a"
        for uri in ("file:///home/ann/d", "FILE:///home/ann/d", "javascript:alert(1)"):
            tools.answers = {**tools.answers, "tools/call": lambda _, uri=uri: link(uri)}
            (part,) = parts_of(await called(there, "echo"))
            assert "not passed on" in part["text"]
            assert "links/" not in str(part)
    passing = profile_with(content={"allow_file_links": True})
    async with serving(
        tmp_path / "files", {"tools/call": lambda _: link("file:///d")}, desk={"profile": passing}
    ) as (_, there):
        url = await address(there)
        assert (await got(there, url)).status_code == 200
        await there.apply(published={"desk": agent("crm", serves_links=True)})
        assert (await got(there, url)).status_code == 403


async def test_a_client_with_the_extension_gets_the_link_to_the_letter(tmp_path: Path) -> None:
    async with serving(tmp_path, {}) as (_, there):
        headers = {"A2A-Extensions": "urn:mcp-a2a:tool:v1"}
        rpc = Rpc(there.client, f"{there.url}/agents/desk", headers)
        task = (await rpc.call("SendMessage", message(call_part("echo"))))["task"]
        assert parts_of(task)[0]["url"] == LINKED


# Attacks


async def test_a_link_works_for_its_principal_alone_and_under_its_present_rights(tmp_path: Path) -> None:
    people = [person("ann"), person("bob"), person("cat", skills=("echo",))]
    async with serving(tmp_path, {}, credentials=people, allow_unauthenticated=False) as (tools, there):
        url = await address(there, "ann-token")
        assert (await got(there, url, "ann-token")).status_code == 200
        before = len(tools.of("resources/read"))
        for status, token in ((401, ""), (401, "wrong"), (404, "bob-token"), (404, "cat-token")):
            response = await got(there, url, token)
            assert response.status_code == status
            assert "report" not in response.text
        cats = await address(there, "cat-token")
        await there.apply(credentials=[*people[:2], person("cat", skills=("other",))])
        assert (await got(there, cats, "cat-token")).status_code == 403
        await there.apply(credentials=people[1:])
        assert (await got(there, url, "ann-token")).status_code == 401
        assert len(tools.of("resources/read")) == before


async def test_a_link_of_a_search_is_judged_by_the_resource_rules_again(tmp_path: Path) -> None:
    listed = {"resources": [{"uri": LINKED, "name": "r"}, {"uri": "note:///b", "name": "s"}]}
    ann = person("ann", skills=("resources",), resources=("note:///a/*",))
    plan = {"credentials": [ann], "allow_unauthenticated": False}
    async with serving(tmp_path, {"resources/list": lambda _: listed}, desk={"stand_ins": BOTH}, **plan) as (
        _,
        there,
    ):
        url = await address(there, "ann-token", "resources")
        assert (await got(there, url, "ann-token")).status_code == 200
        await there.apply(credentials=[person("ann", skills=("resources",), resources=("note:///b",))])
        assert (await got(there, url, "ann-token")).status_code == 403


async def test_a_link_ends_with_what_the_configuration_serves(tmp_path: Path) -> None:
    async with serving(tmp_path, {}) as (tools, there):
        url = await address(there)
        for desk in (
            agent("crm"),
            agent("crm", serves_links=True, overrides={"echo": SkillOverride(hidden=True)}),
        ):
            await there.apply(published={"desk": desk})
            assert (await got(there, url)).status_code in (403, 404)
        assert tools.of("resources/read") == []
        await there.apply(published={"desk": agent("crm", serves_links=True)})
        assert (await got(there, url)).status_code == 200


async def test_forged_addresses_are_all_refused_alike(tmp_path: Path) -> None:
    published = {name: agent("crm", serves_links=True) for name in ("desk", "other")}
    async with serving(tmp_path, {}) as (tools, there):
        await there.apply(published=published)
        url = await address(there)
        base, _, text = url.rpartition("/")
        tricks = (
            f"{base}/{text[:-2]}",
            f"{base}/{text[:-1]}{'A' if text[-1] != 'A' else 'B'}",
            f"{base}/{text}/../x",
            f"{base}/..%2f..%2fetc%2fpasswd",
            f"{base}/{text}=",
            f"{base}/",
            f"{base}/{'x' * 3_000}",
            url.replace("/agents/desk/", "/agents/other/"),
        )
        for trick in tricks:
            response = await got(there, trick)
            assert response.status_code == 404, f"{response.text[:200]} {trick[:100]}"
        assert tools.of("resources/read") == []


def test_a_link_expires_and_other_keys_do_not_open_it() -> None:
    now = [1000.0]
    links = ServedLinks("desk", "http://x/agents/desk", [b"k" * 32], lambda: now[0])
    url = links.address(LinkOrigin("ann", "c", "crm", "echo"), {"uri": LINKED, "name": "r"})
    assert url is not None
    text = url.rpartition("/")[2]
    assert links.opened(text).uri == LINKED
    with pytest.raises(HandleError):
        ServedLinks("desk", "", [b"q" * 32], lambda: now[0]).opened(text)
    now[0] += LIFETIME_SECONDS
    with pytest.raises(HandleError):
        links.opened(text)


def test_a_uri_that_is_too_long_keeps_its_own_address() -> None:
    links = ServedLinks("desk", "http://x", [b"k" * 32])
    assert links.address(LinkOrigin("ann", "c", "crm", "echo"), {"uri": "note:" + "x" * 2000}) is None


@pytest.mark.proves("mcp-bounded")
async def test_a_resource_that_grew_fails_and_the_server_goes_on(tmp_path: Path) -> None:
    async with serving(tmp_path, {"resources/read": contents(text="x" * (2 << 20))}) as (tools, there):
        url = await address(there)
        assert (await got(there, url)).status_code == 502
        tools.answers = {**tools.answers, "resources/read": contents(text="small")}
        assert (await got(there, url)).text == "small"

        def refuse(_: Any) -> Json:
            raise Refusal(-32002)

        tools.answers = {**tools.answers, "resources/read": refuse}
        assert (await got(there, url)).status_code == 404


async def test_a_page_of_another_origin_reads_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path, {}) as (tools, there):
        url = await address(there)
        assert (await got(there, url, Origin="https://evil.example")).status_code == 403
        assert (await got(there, url, Host="evil.example")).status_code == 421
        assert tools.of("resources/read") == []


async def test_without_the_key_links_are_read_as_before(tmp_path: Path) -> None:
    async with serving(tmp_path, {}) as (_, there):
        await there.apply(published={"desk": agent("crm")})
        (part,) = parts_of(await called(there, "echo"))
        assert part["text"] == "the report"


@pytest.mark.parametrize(
    ("place", "is_refused"),
    [
        ("", False),
        ('[bridge]\nhost = "0.0.0.0"\nallow_unauthenticated = true\n', True),
        (
            '[bridge]\nhost = "0.0.0.0"\nallow_unauthenticated = true\npublic_url = "https://b.example.com"\n',
            False,
        ),
    ],
)
def test_others_need_an_address_that_they_reach(place: str, is_refused: bool, tmp_path: Path) -> None:
    file = tmp_path / "bridge.toml"
    file.write_text(
        f'{place}[tool_servers.crm]\ncommand = ["x"]\n[tools_as_agent.desk]\nfrom = ["crm"]\nlinks = "serve"\n'
    )
    if is_refused:
        with pytest.raises(ConfigError, match="has no `public_url`"):
            load(file)
    else:
        load(file)
