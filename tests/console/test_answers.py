"""Questions of tasks as forms, and the answers of people."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from bridge.assembly.plan import Plan, ProcessPlan, PublishedPlan, ServerPlan
from bridge.console.forms import fields_of, form_problems
from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import Credential
from bridge.mcp.client.eras import Era
from bridge.text.jsonvalues import JsonObject
from tests.console.test_task_pages import PROFILE, WAIT_SECONDS, Served, served
from tests.support.asking import asking_command
from tests.support.console import ConsoleBrowser, console_of

SCHEMA: Any = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Your name", "maxLength": 40, "description": "As it is written"},
        "story": {"type": "string"},
        "mail": {"type": "string", "format": "email"},
        "age": {"type": "integer", "minimum": 18, "default": 30},
        "sure": {"type": "boolean"},
        "color": {"type": "string", "enum": ["red", "blue"], "enumNames": ["Red", "Blue"]},
        "tags": {"type": "array", "items": {"anyOf": [{"const": "a", "title": "An A"}]}, "default": ["a"]},
        "deep": {"type": "object", "properties": {"x": {"type": "number"}}},
    },
    "required": ["name"],
}


def test_flat_properties_are_fields_and_all_else_is_json() -> None:
    fields: Any = {field["name"]: field for field in fields_of(SCHEMA)}
    assert {name: field["is"] for name, field in fields.items()} == {
        "name": "text",
        "story": "words",
        "mail": "text",
        "age": "integer",
        "sure": "boolean",
        "color": "choice",
        "tags": "choices",
        "deep": "json",
    }
    assert fields["name"] == {
        "name": "name",
        "label": "Your name",
        "hint": "As it is written",
        "type": "string",
        "required": True,
        "is": "text",
        "value": "",
        "input": "text",
        "example": "",
    }
    assert fields["color"]["options"] == [
        {"value": '"red"', "label": "Red"},
        {"value": '"blue"', "label": "Blue"},
    ]
    assert (fields["age"]["value"], fields["tags"]["value"]) == ("30", ['"a"'])


def test_a_form_is_filled_in_with_the_values_of_an_earlier_call() -> None:
    fields: Any = {
        field["name"]: field["value"]
        for field in fields_of(SCHEMA, {"age": 44, "sure": False, "deep": {"x": 1}})
    }
    assert (fields["age"], fields["sure"], fields["deep"]) == ("44", "false", '{\n  "x": 1\n}')


def test_a_problem_is_shown_beside_its_field() -> None:
    assert [one["name"] for one in form_problems(SCHEMA, {"age": 3, "color": "green"})] == [
        "name",
        "age",
        "color",
    ]
    assert form_problems(SCHEMA, {"name": "Ada"}) == []


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"age": "five"}, "This takes a whole number, such as 5"),
        ({"age": None}, "This takes a whole number, such as 5"),
        ({"story": 7}, "This takes a text"),
        ({"sure": "maybe"}, "This takes yes or no"),
        ({"deep": {"x": "a"}}, "at x: This takes a number, such as 2.5"),
        ({"age": 3}, "3 is less than the minimum of 18"),
    ],
)
def test_a_value_of_another_type_is_refused_in_words(values: JsonObject, words: str) -> None:
    (problem,) = form_problems(SCHEMA, {"name": "Ada", **values})
    assert problem["message"] == words


@asynccontextmanager
async def asking(tmp_path: Path, *credentials: Credential) -> AsyncIterator[Served]:
    target = ServerPlan.as_profile_says(asking_command("legacy"), Era.LEGACY, PROFILE.server, PROFILE.run)
    plan = Plan(
        PROFILE,
        ProcessPlan(console=True, keys=("k" * 32,), state=tmp_path),
        credentials,
        servers={"asking": target},
        published={"devtools": PublishedPlan(("asking",), PROFILE, "memory:")},
    )
    with anyio.fail_after(WAIT_SECONDS):
        async with console_of(plan) as bridge:
            yield Served(bridge, plan, None, ConsoleBrowser(bridge))  # type: ignore[arg-type]
            await bridge.drain(0)


@pytest.mark.outside
async def test_a_person_answers_a_form_and_faults_appear_beside_the_fields(tmp_path: Path) -> None:
    async with asking(tmp_path) as here:
        task = await here.calls("ask")
        page = await here.browser.opens("/answer")
        assert "data-question=" in page.text
        (waiting,) = (await here.browser.reads("/answer"))["tasks"]
        assert waiting["id"] == task
        (question,) = waiting["questions"]
        assert [field["name"] for field in question["fields"]] == ["name", "age", "color", "tags"]
        path, key, mark = f"/tasks/devtools/{task}/answer", question["key"], waiting["mark"]
        wrong = {"mark": mark, "action": "accept", "answers": {key: {"age": "old"}}}
        answer = await here.browser.posts(path, wrong)
        assert answer.status_code == 422
        assert {(one["question"], one["name"]) for one in answer.json()["problems"]} == {
            (key, "name"),
            (key, "age"),
        }
        right = {
            "mark": mark,
            "action": "accept",
            "answers": {key: {"name": "Ada", "age": 36, "color": "red"}},
        }
        assert (await here.browser.posts(path, right)).json() == {"to": f"/console/tasks/devtools/{task}"}
        ended = await here.settled(task)
        assert ended["state"] == "completed"
        assert "Ada" in str(ended["artifacts"])
        assert (await here.browser.posts(path, right)).status_code == 409


@pytest.mark.outside
@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_question_may_be_refused(action: str, tmp_path: Path) -> None:
    async with asking(tmp_path) as here:
        task = await here.calls("ask")
        await here.browser.opens("/answer")
        (waiting,) = (await here.browser.reads("/answer"))["tasks"]
        body = {"mark": waiting["mark"], "action": action, "answers": {}}
        assert (await here.browser.posts(f"/tasks/devtools/{task}/answer", body)).status_code == 200
        assert action in str((await here.settled(task))["artifacts"])


async def test_missing_arguments_are_asked_for_on_the_page_of_their_task(tmp_path: Path) -> None:
    async with served(tmp_path) as here:
        here.server.tools[0]["inputSchema"]["required"] = ["text"]
        await here.bridge.apply(here.plan)
        task = await here.calls("echo", text=7)
        page = await here.browser.reads(f"/tasks/devtools/{task}")
        assert (page["state"], [one["fields"][0]["name"] for one in page["questions"]]) == (
            "input_required",
            ["text"],
        )
        assert 'data-kind="answer"' in (await here.browser.opens(f"/tasks/devtools/{task}")).text
        body = {
            "mark": page["mark"],
            "action": "accept",
            "answers": {page["questions"][0]["key"]: {"text": "x"}},
        }
        assert (await here.browser.posts(f"/tasks/devtools/{task}/answer", body)).status_code == 200
        assert (await here.settled(task))["state"] == "completed"


@pytest.mark.parametrize(
    ("change", "status"),
    [({"mark": "another"}, 409), ({"action": "maybe"}, 400), ({"action": None}, 400), ({}, 422)],
)
async def test_an_answer_to_something_else_is_refused(
    change: dict[str, Any], status: int, tmp_path: Path
) -> None:
    async with served(tmp_path) as here:
        task = await here.calls("echo", text=7)
        page = await here.browser.reads(f"/tasks/devtools/{task}")
        await here.browser.opens()
        key = page["questions"][0]["key"]
        body = {"mark": page["mark"], "action": "accept", "answers": {key: {"text": 3}}, **change}
        assert (await here.browser.posts(f"/tasks/devtools/{task}/answer", body)).status_code == status


async def test_nobody_answers_for_another(tmp_path: Path) -> None:
    ada, bob = (Credential(Principal(name), f"token-of-{name}") for name in ("ada", "bob"))
    async with served(tmp_path, ada, bob) as here:
        task = await here.calls("echo", ada.token, text=7)
        other = ConsoleBrowser(here.bridge)
        assert await other.signs_in(bob.token) == 200
        await other.opens()
        assert (await other.reads("/answer"))["tasks"] == []
        assert (await other.posts(f"/tasks/devtools/{task}/answer", {"action": "cancel"})).status_code == 404
