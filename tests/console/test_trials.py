"""Skills that a person tries at the console: rights, checks, and the same call as a command."""

from __future__ import annotations

import json
from pathlib import Path

from bridge.assembly.call_lines import a2a_line
from bridge.console.call_lines import command_line
from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import Credential, Scheme
from bridge.text.jsonvalues import JsonObject
from bridge.translate.overrides import SkillOverride
from tests.console.test_task_pages import HOSTILE, served
from tests.support.console import ConsoleBrowser
from tests.support.running import profile_with

ADA = Credential(Principal("ada", skills=("echo",)), "key-of-ada", Scheme.API_KEY)


async def test_a_visitor_tries_the_skills_that_it_may_use(tmp_path: Path) -> None:
    async with served(tmp_path, ADA) as here:
        assert await here.browser.signs_in(ADA.token) == 200
        await here.browser.opens()
        (agent,) = (await here.browser.reads("/try"))["groups"]
        assert [skill["id"] for skill in agent["entries"]] == ["echo"]
        assert (await here.browser.opens("/try/devtools/hold")).status_code == 404
        assert (await here.browser.posts("/try/devtools/hold", {"arguments": {}})).status_code == 404
        assert here.server.calls == []


async def test_a_call_leads_to_the_page_of_its_task(tmp_path: Path) -> None:
    async with served(tmp_path) as here:
        await here.browser.opens("/try/devtools/echo")
        answer = await here.browser.posts("/try/devtools/echo", {"arguments": {"text": HOSTILE}})
        path = answer.json()["to"].removeprefix("/console")
        task = await here.settled(path.rpartition("/")[2])
        assert (task["skill"], task["agent"]) == ("echo", "devtools")
        assert here.server.calls == [("echo", {"text": HOSTILE})]
        again = await here.browser.reads(f"/try/devtools/echo?task={task['id']}")
        assert [field["value"] for field in again["fields"]] == [HOSTILE]


async def test_arguments_that_do_not_fit_are_not_sent(tmp_path: Path) -> None:
    async with served(tmp_path) as here:
        await here.browser.opens("/try/devtools/echo")
        answer = await here.browser.posts("/try/devtools/echo", {"arguments": {"text": 7}})
        assert (answer.status_code, [one["name"] for one in answer.json()["problems"]]) == (422, ["text"])
        assert (await here.browser.posts("/try/devtools/echo", {"arguments": "none"})).status_code == 400
        assert here.server.calls == []


async def test_a_skill_that_replies_without_a_task_gets_a_task_at_the_console(tmp_path: Path) -> None:
    async with served(tmp_path, echo=SkillOverride(reply="message")) as here:
        await here.browser.opens("/try/devtools/echo")
        answer = await here.browser.posts("/try/devtools/echo", {"arguments": {"text": "hi"}})
        task = await here.settled(answer.json()["to"].rpartition("/")[2])
        (artifact,) = task["artifacts"]
        assert json.loads(artifact["parts"][0]["text"]) == ["tools", "echo", {"text": "hi"}]


async def test_the_same_call_can_be_typed_elsewhere(tmp_path: Path) -> None:
    async with served(tmp_path, ADA) as here:
        assert await here.browser.signs_in(ADA.token) == 200
        await here.browser.opens()
        made = await here.browser.posts("/try/devtools/echo", {"arguments": {"text": 'it\'s "here" $HOME'}})
        task_id = made.json()["to"].rpartition("/")[2]
        lines = (await here.browser.reads(f"/try/devtools/echo?task={task_id}"))["lines"]
        assert ADA.token not in str(lines)
        given = {"text": 'it\'s "here" $HOME'}
        url = "http://127.0.0.1:8080/agents/devtools"
        assert lines == lines_of_echo(url, given)
        typed = await here.browser.posts("/lines/devtools/echo", {"arguments": {"text": 7, "more": HOSTILE}})
        assert typed.json() == lines_of_echo(url, {"text": 7, "more": HOSTILE})
        assert [call for call in here.server.calls if call != ("echo", given)] == []
        assert (await here.browser.posts("/lines/devtools/hold", {"arguments": {}})).status_code == 404
        assert (await here.browser.posts("/lines/devtools/echo", {})).status_code == 400


def lines_of_echo(url: str, arguments: JsonObject) -> JsonObject:
    """The lines of ada, who has an API key."""
    return {
        "call": command_line(url, "echo", arguments, ["--api-key", "env:MCP_A2A_TOKEN"]),
        "curl": a2a_line(url, "echo", arguments, '-H "X-API-Key: $MCP_A2A_TOKEN"'),
        "protocol": "A2A",
    }


ECHO = {"echo": SkillOverride(phrases=("say {text} again",))}


async def test_a_sentence_is_explained_and_nothing_is_run(tmp_path: Path) -> None:
    async with served(tmp_path, **ECHO) as here:
        await here.browser.opens("/try")
        (agent,) = (await here.browser.reads("/try"))["groups"]
        assert agent["explain"] == "/explain/devtools"
        answer = await here.browser.posts("/explain/devtools", {"text": f'Say "{HOSTILE}" again, please!'})
        assert answer.json() == {
            "explained": "rule: a phrase of the configuration: say {text} again\nskill: echo\n"
            f"text = {json.dumps(HOSTILE, ensure_ascii=False)}\nthen: the skill runs"
        }
        asked = await here.browser.posts("/explain/devtools", {"text": "don't say x again"})
        assert asked.json()["explained"].startswith("rule: none fits\nthen: the agent asks: ")
        (listed,) = (await here.browser.reads("/tasks"))["lists"]
        assert (here.server.calls, listed["tasks"]) == ([], [])


async def test_only_a_text_for_an_agent_is_explained(tmp_path: Path) -> None:
    async with served(tmp_path) as here:
        await here.browser.opens("/try")
        assert (await here.browser.posts("/explain/devtools", {"text": 7})).status_code == 400
        assert (await here.browser.posts("/explain/nobody", {"text": "echo x"})).status_code == 404
        assert (
            await ConsoleBrowser(here.bridge).posts("/explain/devtools", {"text": "x"})
        ).status_code == 403


async def test_a_sentence_is_explained_with_the_skills_of_the_visitor_alone(tmp_path: Path) -> None:
    async with served(tmp_path, ADA, hold=SkillOverride(phrases=("wait a while",))) as here:
        assert await here.browser.signs_in(ADA.token) == 200
        await here.browser.opens()
        answer = await here.browser.posts("/explain/devtools", {"text": "wait a while"})
        assert "hold" not in answer.json()["explained"]


async def test_a_skill_is_tried_only_from_our_own_page(tmp_path: Path) -> None:
    async with served(tmp_path) as here:
        await here.browser.opens("/try/devtools/echo")
        other = ConsoleBrowser(here.bridge)
        answer = await other.posts("/try/devtools/echo", {"arguments": {"text": "x"}})
        assert (answer.status_code, here.server.calls) == (403, [])


async def test_a_full_queue_answers_when_to_try_again(tmp_path: Path) -> None:
    profile = profile_with(run={"concurrency": 1, "queue": 1})
    async with served(tmp_path, profile=profile) as here:
        await here.browser.opens()
        answers = [await here.browser.posts("/try/devtools/hold", {"arguments": {}}) for _ in range(3)]
        assert [one.status_code for one in answers][::2] == [200, 503]
        assert int(answers[-1].headers["retry-after"]) > 0
