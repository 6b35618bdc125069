"""That the check of the suite sees every example of a card, and what the agent makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.a2a.model.objects import AgentSkill
from bridge.a2a.tasks.agent import Job
from bridge.tools_as_agent.skills import Skills
from bridge.translate.overrides import SkillOverride
from tests.console.test_task_pages import served
from tests.language.agents import agent
from tests.support import validated_again
from tests.support.agents import Scripted
from tests.support.examples_understood import meaning, misunderstood
from tests.support.tools import options_with


async def nothing(job: Job) -> None: ...


def _on_card_with_nonsense(skills: Skills) -> tuple[AgentSkill, ...]:
    return tuple(skill.shown.changed(examples=("sing a song",)) for skill in skills.skills)


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("greet Ada", "greet"),
        ("book Lisbon", "book"),
        ('{"skill": "greet", "arguments": {"name": "x"}}', "greet"),
    ],
)
def test_an_example_means_the_skill_that_it_runs_or_asks_a_yes_for(text: str, means: str) -> None:
    skills = agent("demo")

    assert meaning(text, skills, options_with(route=skills.route)) == means


@pytest.mark.parametrize("text", ["greet", "sing", "greet Ada, then Bob", "help"])
def test_an_example_that_asks_or_says_something_else_is_a_mistake(text: str) -> None:
    skills = agent("demo")
    shown = skills.on_card[0].changed(examples=("greet Ada", text))
    card = Scripted(nothing).card("http://127.0.0.1").changed(skills=(shown,))

    (fault,) = misunderstood(card, skills, options_with(route=skills.route))

    assert repr(text) in fault


async def test_each_card_of_a_bridge_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "noted"
    file.touch()
    monkeypatch.setenv(validated_again.VARIABLE, str(file))
    async with served(tmp_path) as here:
        monkeypatch.setattr(Skills, "on_card", property(_on_card_with_nonsense))
        await here.browser.client.get("/agents/devtools/.well-known/agent-card.json")

    assert "the example 'sing a song' of echo on the card of" in validated_again.mistakes(file)


async def test_the_examples_of_the_operator_are_left_to_check(tmp_path: Path) -> None:
    rule = SkillOverride(examples=("whatever you like",))
    async with served(tmp_path, echo=rule) as here:
        answer = await here.browser.client.get("/agents/devtools/.well-known/agent-card.json")

    assert "whatever you like" in answer.text
