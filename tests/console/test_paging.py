"""Long lists come in pages: each entry once, and every page is small."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bridge.assembly.plan import Plan, ProcessPlan, PublishedPlan, ServerPlan
from bridge.console.answers import WAITING_MOST
from bridge.console.paging import PAGE_SIZE, Paging
from bridge.http.request_checks import RefusedError
from bridge.identity.callers.principals import OperatorRole, Principal
from bridge.identity.callers.verifiers import Credential
from bridge.mcp.client.eras import Era
from bridge.translate.overrides import SkillOverride
from tests.console.test_task_pages import PROFILE, served
from tests.support.console import ConsoleBrowser, console_of
from tests.support.tool_server import ToolServer, listed

TOOLS = [f"tool-{number:03}" for number in range(120)]


def plan_of(tmp_path: Path, server: ToolServer, agents: int, *credentials: Credential) -> Plan:
    """Agents of the same server."""
    target = ServerPlan.as_profile_says(server.target, Era.MODERN, PROFILE.server, PROFILE.run)
    one = PublishedPlan(("tools",), PROFILE, "memory:", overrides={"*9": SkillOverride(hidden=True)})
    return Plan(
        PROFILE,
        ProcessPlan(console=True, keys=("k" * 32,), state=tmp_path),
        credentials,
        servers={"tools": target},
        published={f"desk{number}": one for number in range(agents)},
    )


@pytest.mark.parametrize("agents", [1, 2])
@pytest.mark.parametrize(
    ("path", "faces", "rows", "key"),
    [
        ("/mapping", "faces", "rows", "to"),
        ("/try", "groups", "entries", "id"),
    ],
)
async def test_many_skills_come_in_pages_and_each_once(
    agents: int, path: str, faces: str, rows: str, key: str, tmp_path: Path
) -> None:
    async with (
        ToolServer("tools", [listed(name) for name in TOOLS]).run() as server,
        console_of(plan_of(tmp_path, server, agents)) as bridge,
    ):
        browser, found = ConsoleBrowser(bridge), list[str]()
        asked: str | None = path
        while asked:
            assert (await browser.opens(asked)).status_code == 200
            face = (await browser.reads(asked))[faces][0]
            assert len(face[rows]) <= PAGE_SIZE
            assert face["name"] == "desk0"
            found += [row[key] for row in face[rows]]
            asked = face["paging"]["next"]
        shown = [name for name in TOOLS if not name.endswith("9")]
        assert found == shown
        assert face["paging"]["total"] == len(shown)
        first = (await browser.reads(face["paging"]["first"]))[faces]
        assert [row[key] for row in first[0][rows]] == shown[:PAGE_SIZE]
        assert len(first) == 1
        await bridge.drain(0)


async def test_the_hidden_tools_of_an_endpoint_have_their_own_pages(tmp_path: Path) -> None:
    async with (
        ToolServer("tools", [listed(f"t{number}9") for number in range(70)]).run() as server,
        console_of(plan_of(tmp_path, server, 1)) as bridge,
    ):
        browser, found = ConsoleBrowser(bridge), list[str]()
        asked: str | None = "/mapping"
        while asked:
            (face,) = (await browser.reads(asked))["faces"]
            found += [row["from"] for row in face["hidden"]]
            asked = face["hidden_paging"]["next"]
        assert found == [f"t{number}9" for number in range(70)]
        await bridge.drain(0)


async def test_many_principals_come_in_pages_and_each_once(tmp_path: Path) -> None:
    known = [Credential(Principal(f"p{number}"), f"token-{number:04}") for number in range(120)]
    ops = Credential(Principal("ops", operator=OperatorRole.READ), "token-of-ops")
    async with served(tmp_path, *known, ops) as here:
        found: list[Any] = []
        browser = here.browser
        assert await browser.signs_in(ops.token) == 200
        asked: str | None = "/people"
        while asked:
            assert (await browser.opens(asked)).status_code == 200
            page = await browser.reads(asked)
            found += [one["name"] for one in page["principals"]]
            asked = page["principals_paging"]["next"]
        assert found == [*(f"p{number}" for number in range(120)), "ops"]


async def test_all_that_waits_is_reached_by_the_links_of_the_page(tmp_path: Path) -> None:
    async with served(tmp_path, echo=SkillOverride(confirm=True)) as here:
        made = [await here.calls("echo", text=str(number)) for number in range(45)]
        page = await here.browser.reads("/answer")
        assert (len(page["tasks"]), page["total"]) == (WAITING_MOST, 45)
        found = [task["id"] for task in page["tasks"]]
        while page["more"]:
            (more,) = page["more"]
            assert (await here.browser.opens(more["next"])).status_code == 200
            page = await here.browser.reads(more["next"])
            found += [task["id"] for task in page["tasks"]]
        assert sorted(found) == sorted(made)
        assert (await here.browser.opens("/answer?state=working")).status_code == 400


@pytest.mark.parametrize("page", ["x", "-1", "1.5", "9" * 40, "\u0661"])
def test_a_page_that_is_no_number_is_refused(page: str) -> None:
    with pytest.raises(RefusedError):
        Paging.asked("/mapping", {"page": page})
