"""The pages of mapping, configuration and people: who may see them, and that they show no secret."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from httpx2 import AsyncClient

from bridge.assembly.plan import CatalogPlan, OfferedPlan, Plan, ProcessPlan, RemotePlan
from bridge.assembly.plan_from_file import plan_from_file
from bridge.config.load import load
from bridge.config.text.document import ValueSource
from bridge.config.toml_text import ShownValue, shown_values
from bridge.console.app import mount_console
from bridge.identity.callers.principals import OperatorRole, Principal
from bridge.identity.callers.verifiers import Credential, Scheme
from bridge.identity.logins.kept_logins import Login
from bridge.identity.logins.login_credentials import LoginConfig, LoginToken
from bridge.identity.logins.login_files import LoginFiles
from bridge.translate.overrides import ArgumentRule, SkillOverride
from tests.console.test_task_pages import HOSTILE, PROFILE, served
from tests.support.console import ConsoleBrowser, console_of
from tests.support.observed import wrapping
from tests.support.running import Rpc, call_part, listening, raw_command

ADA = Credential(Principal("ada", skills=("devtools/e*",)), "token-of-ada", reference="env:ADA")
OPS = Credential(
    Principal("ops", operator=OperatorRole.READ), "token-of-ops", Scheme.API_KEY, "file:/run/ops"
)


async def signed_in(browser: ConsoleBrowser, credential: Credential) -> ConsoleBrowser:
    assert await browser.signs_in(credential.token) == 200
    await browser.opens()
    return browser


async def test_only_operators_see_what_the_file_hides_of_a_tool(tmp_path: Path) -> None:
    rules = {"text": ArgumentRule(default="tenant-7", hidden=True)}
    echo = SkillOverride(description="For everyone", arguments=rules)
    async with served(tmp_path, ADA, OPS, echo=echo) as here:
        ada = await signed_in(ConsoleBrowser(here.bridge), ADA)
        (face,) = (await ada.reads("/mapping"))["faces"]
        (row,) = face["rows"]
        assert row["changed"] == ["has its own description"]
        assert (row["left"]["description"], row["left"]["inputSchema"]["properties"]) == ("For everyone", {})
        assert "tenant-7" not in (await ada.opens("/mapping")).text
        ops = await signed_in(ConsoleBrowser(here.bridge), OPS)
        (face,) = (await ops.reads("/mapping"))["faces"]
        row = next(row for row in face["rows"] if row["to"] == "echo")
        assert "the argument text is hidden and set" in row["changed"]
        assert row["left"]["inputSchema"]["properties"] == {"text": {"type": "string"}}
        assert row["left"] == here.bridge.upstreams["tools"].listing.tools[0].listed


async def test_a_visitor_without_a_role_reads_nothing_of_others_on_the_overview(tmp_path: Path) -> None:
    eve = Credential(Principal("eve", skills=("other/*",)), "token-of-eve")
    async with served(tmp_path, ADA, OPS, eve) as here:
        ops = await signed_in(ConsoleBrowser(here.bridge), OPS)
        await ops.posts("/try/devtools/hold", {"arguments": {}})
        await here.server.holding(1)
        page = await ops.reads("")
        assert (page["load"]["running"], [face["running"] for face in page["faces"]]) == (1, [1])
        ada = await signed_in(ConsoleBrowser(here.bridge), ADA)
        page = await ada.reads("")
        assert (page["load"], [face["name"] for face in page["faces"]]) == ({"running": 0}, ["devtools"])
        assert "running" not in page["faces"][0]
        nobody = await signed_in(ConsoleBrowser(here.bridge), eve)
        page = await nobody.reads("")
        assert (page["faces"], page["load"]) == ([], {"running": 0})
        for path, name in (("/try", "groups"), ("/mapping", "faces")):
            assert (await nobody.reads(path))[name] == []
            assert "devtools" not in (await nobody.opens(path)).text


async def test_the_address_of_grpc_is_on_the_overview_if_there_is_one(tmp_path: Path) -> None:
    async with served(tmp_path, OPS) as here:
        ops = await signed_in(ConsoleBrowser(here.bridge), OPS)
        assert "grpc" not in (await ops.reads(""))["faces"][0]
        here.bridge.grpc_ports = {"": 50051}
        (face,) = (await ops.reads(""))["faces"]
        assert face["grpc"].endswith(":50051")
        assert f'gRPC: <code class="wrap">{face["grpc"]}</code>' in (await ops.opens("")).text


async def test_each_tool_is_shown_beside_its_skill_with_the_changes_of_the_file(tmp_path: Path) -> None:
    rules = {"text": ArgumentRule(default="x", hidden=True)}
    echo = SkillOverride(id="say", description=HOSTILE, arguments=rules, confirm=True)
    async with served(
        tmp_path, echo=echo, hold=SkillOverride(hidden=True), none=SkillOverride(hidden=True)
    ) as here:
        (face,) = (await here.browser.reads("/mapping"))["faces"]
        say, fail = face["rows"]
        assert (say["from"], say["of"], say["to"]) == ("echo", "tools", "say")
        assert say["changed"] == [
            "has its own description",
            "the argument text is hidden and set",
            "confirm = true",
            "has the id say",
        ]
        assert (say["left"]["name"], say["right"]["id"]) == ("echo", "say")
        assert fail["changed"] == []
        assert face["hidden"] == [{"from": "hold", "of": "tools", "to": "hold"}]
        assert face["remarks"] == ["tools_as_agent.devtools.skills.none: there is no such tool"]
        page = (await here.browser.opens("/mapping")).text
        assert "<img src=x" not in page


async def test_a_visitor_sees_only_the_mapping_of_its_own_skills(tmp_path: Path) -> None:
    async with served(tmp_path, ADA, OPS, hold=SkillOverride(hidden=True)) as here:
        ada = await signed_in(ConsoleBrowser(here.bridge), ADA)
        (face,) = (await ada.reads("/mapping"))["faces"]
        assert ([row["to"] for row in face["rows"]], "hidden" in face) == (["echo"], False)
        overview = await ada.reads("")
        assert "peers" not in overview
        assert [one["offers"] for one in overview["faces"]] == [1]
        ops = await signed_in(ConsoleBrowser(here.bridge), OPS)
        (face,) = (await ops.reads("/mapping"))["faces"]
        assert len(face["hidden"]) == 1
        assert [peer["name"] for peer in (await ops.reads(""))["peers"]] == ["tools"]


@pytest.mark.parametrize("path", ["/configuration", "/people"])
async def test_the_configuration_and_who_may_call_are_for_operators(path: str, tmp_path: Path) -> None:
    async with served(tmp_path, ADA, OPS) as here:
        ada = await signed_in(ConsoleBrowser(here.bridge), ADA)
        assert (await ada.opens(path)).status_code == 403
        assert f'href="/console{path}"' not in (await ada.opens("")).text
        ops = await signed_in(ConsoleBrowser(here.bridge), OPS)
        assert (await ops.opens(path)).status_code == 200
        assert f'href="/console{path}"' in (await ops.opens("")).text


async def test_the_names_on_the_overview_lead_to_their_pages(tmp_path: Path) -> None:
    async with served(tmp_path) as here:
        page = await here.browser.reads("")
        assert [face["path"] for face in page["faces"]] == ["/try?part=agent%2Fdevtools"]
        assert [peer["path"] for peer in page["peers"]] == ["/configuration?table=tool_servers.tools"]
        text = (await here.browser.opens("")).text
        for one in (*page["faces"], *page["peers"]):
            assert f'<a href="/console{one["path"]}">{one["name"]}</a>' in text
            assert (await here.browser.opens(one["path"])).status_code == 200
        assert '<a href="#peer-tools">tools</a>' in text
        assert 'id="peer-tools"' in text
        assert len((await here.browser.reads(page["faces"][0]["path"]))["groups"]) == 1


async def test_people_are_shown_with_their_rights_and_without_secrets(tmp_path: Path) -> None:
    async with served(tmp_path, ADA, OPS) as here:
        ops = await signed_in(ConsoleBrowser(here.bridge), OPS)
        told = await ops.reads("/people")
        assert told["principals"] == [
            {
                "name": "ada",
                "shows": ["a bearer token (env:ADA)"],
                "operator": None,
                "globs": ["devtools/e*"],
                "uses": [{"face": "devtools", "of": 3, "may": 1, "noun": "skill"}],
            },
            {
                "name": "ops",
                "shows": ["an API key (file:/run/ops)"],
                "operator": "read",
                "globs": ["*"],
                "uses": [{"face": "devtools", "of": 3, "may": 3, "noun": "skill"}],
            },
        ]
        page = (await ops.opens("/people")).text
        assert ADA.token not in page
        assert OPS.token not in page


async def test_logins_at_peers_are_told_without_their_tokens(tmp_path: Path) -> None:
    keeper = LoginFiles(tmp_path)
    kept, missing = (LoginConfig(f"https://{name}.example/mcp", keeper, name) for name in ("crm", "wiki"))
    async with keeper.held(kept.key) as held:
        await held.write(
            Login(
                "https://issuer.example",
                "https://issuer.example/token",
                "client",
                "a-token-of-crm",
                got_at=1.0,
                since=1.0,
                scopes=("read",),
            )
        )
    plan = Plan(
        PROFILE,
        ProcessPlan(console=True, keys=("k" * 32,), state=tmp_path),
        agents={"crm": RemotePlan("https://crm.example", tokens=LoginToken(kept, 1.0))},
        catalogs={"wiki": CatalogPlan("https://wiki.example", tokens=LoginToken(missing, 1.0))},
    )
    async with console_of(plan) as bridge:
        browser = ConsoleBrowser(bridge)
        told = (await browser.reads("/people"))["logins"]
        assert [(one["peer"], one["since"], one["scopes"]) for one in told] == [
            ("agents.crm", "1970-01-01T00:00:01.000Z", ["read"]),
            ("catalogs.wiki", "", []),
        ]
        assert "mcp-a2a login wiki" in told[1]["lost"]
        assert "a-token" not in (await browser.opens("/people")).text


@dataclass
class Files:
    """The files of a bridge, which were read."""

    values: Sequence[ShownValue]
    read_at: float | None = None
    fault: str = ""
    is_watched: bool = True


async def test_the_configuration_shows_the_source_of_each_value_and_no_secret(tmp_path: Path) -> None:
    file = tmp_path / "bridge.toml"
    file.write_text(
        '[bridge]\nconsole = true\n[tool_servers.a]\nurl = "https://a.example/mcp?key=hidden-1"\n'
        'headers = { Authorization = { env = "HEADER" } }\n[tools_as_agent.devtools]\nfrom = ["a"]\n'
        '[principals.ada]\nbearer = { env = "ADA" }\n'
    )
    loaded = load(file, {"ADA": "hidden-3-which-is-long-enough", "HEADER": "hidden-2"})
    assert plan_from_file(loaded).place.console
    files = Files(shown_values(loaded))
    plan = Plan(PROFILE, ProcessPlan(console=True, keys=("k" * 32,), state=tmp_path))
    async with console_of(plan) as bridge:
        mount_console(bridge, files)
        browser = ConsoleBrowser(bridge)
        told = await browser.reads("/configuration")
        found: dict[str, Any] = {
            f"{section['name']}.{row['key']}": (row["value"], row["source"])
            for section in told["sections"]
            for row in section["values"]
        }
        assert found["bridge.console"] == ("true", f"file {file}:2")
        assert found["principals.ada.bearer"] == ('{ env = "ADA" }', f"file {file}:9")
        assert "bridge.port" not in found
        alone = await browser.reads("/configuration?table=tool_servers.a")
        assert [section["name"] for section in alone["sections"]] == ["tool_servers.a"]
        assert "No value of" in (await browser.opens("/configuration?table=tool_servers.b")).text
        everything = await browser.opens("/configuration?all=yes")
        assert "8080" in everything.text
        assert "hidden-" not in everything.text + str(told)
        files.fault, files.read_at = "bridge.toml:3: a fault \u202e", 1_700_000_000.0
        told = await browser.reads("/configuration")
        assert (told["fault"], told["read_at"]) == (
            ["bridge.toml:3: a fault \\u202e"],
            "2023-11-14T22:13:20.000Z",
        )
        assert "was refused" in (await browser.opens("/configuration")).text


async def test_a_process_without_reload_shows_its_values_and_says_so(tmp_path: Path) -> None:
    plan = Plan(PROFILE, ProcessPlan(console=True, keys=("k" * 32,), state=tmp_path))
    value = ShownValue("bridge.port", "8080", ValueSource("command line", "--port"))
    async with console_of(plan) as bridge:
        mount_console(bridge, Files([value], is_watched=False))
        told = await ConsoleBrowser(bridge).reads("/configuration")
        assert told["sections"] == [
            {"name": "bridge", "values": [{"key": "port", "value": "8080", "source": "command line --port"}]}
        ]
        page = (await ConsoleBrowser(bridge).opens("/configuration")).text
        assert "changes of a file are not taken over" in page


async def test_an_embedded_bridge_knows_of_no_file_and_says_so(tmp_path: Path) -> None:
    plan = Plan(PROFILE, ProcessPlan(console=True, keys=("k" * 32,), state=tmp_path))
    async with console_of(plan) as bridge:
        assert "was started by another program" in (await ConsoleBrowser(bridge).opens("/configuration")).text


@pytest.mark.outside
async def test_a_server_whose_agents_are_down_is_reported_with_the_reason(tmp_path: Path) -> None:
    plan = Plan(
        PROFILE,
        ProcessPlan(console=True, keys=("k" * 32,), state=tmp_path, cache=tmp_path / "cache"),
        agents={"far": RemotePlan("http://127.0.0.1:9")},
        offered={"team": OfferedPlan(("far",), PROFILE)},
    )
    async with console_of(plan) as bridge:
        browser = ConsoleBrowser(bridge)
        told = await browser.reads("")
        (face,), (peer,) = told["faces"], told["peers"]
        assert (face["up"], face["down"], peer["name"], peer["up"]) == (False, ["far"], "far", False)
        assert "http://127.0.0.1:9" in peer["why"]
        assert told["status"] == "not ready"
        assert "nothing that is served can do its work" in (await browser.opens("")).text
        for path in ("", "/mapping"):
            assert (await browser.opens(path)).status_code == 200


async def test_the_overview_says_that_a_part_is_down(tmp_path: Path) -> None:
    place = ProcessPlan(console=True, keys=("k" * 32,), state=tmp_path, cache=tmp_path / "cache")
    plan = wrapping(raw_command(), place)
    offered = {"far": OfferedPlan(("far",), PROFILE)}
    plan = replace(plan, agents={"far": RemotePlan("http://127.0.0.1:9")}, offered=offered)
    async with console_of(plan) as bridge:
        browser = ConsoleBrowser(bridge)
        assert (await browser.reads(""))["status"] == "degraded"
        assert "Degraded: a part of what is served cannot be called" in words_of(
            (await browser.opens("")).text
        )
        await bridge.drain(0)


def words_of(page: str) -> str:
    """The words of a page."""
    return " ".join(re.sub(r"<[^>]*>", "", page).split())


async def test_a_call_that_waits_for_the_turn_of_its_tool_is_queued_on_the_overview(tmp_path: Path) -> None:
    place = ProcessPlan(console=True, keys=("k" * 32,), state=tmp_path, cache=tmp_path / "cache")
    plan = wrapping(raw_command(), place)
    rules = {"wait": SkillOverride(concurrency=1)}
    plan = replace(plan, published={"tools": replace(plan.published["tools"], overrides=rules)})
    async with console_of(plan) as bridge, listening(bridge.app) as url, AsyncClient(timeout=30) as client:
        rpc, browser = Rpc(client, f"{url}/agents/tools"), ConsoleBrowser(bridge)
        for _ in range(2):
            await rpc.send(call_part("wait"), configuration={"returnImmediately": True})
        with anyio.fail_after(30):
            while (told := await browser.reads(""))["load"]["queued"] != 1:
                await anyio.sleep(0.01)
        assert [peer["queued"] for peer in told["peers"]] == [1]
        await bridge.drain(0)
