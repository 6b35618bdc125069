"""What an agent makes of a message, without running anything."""

from __future__ import annotations

import pytest

from bridge.a2a.model.objects import TaskState
from bridge.tools_as_agent.resume_state import End
from bridge.tools_as_agent.route import decide
from bridge.translate.extensions.bridge import EXPLAIN, SKILL
from tests.language.agents import agent, turn_of
from tests.support.tools import options_with


@pytest.mark.parametrize(
    ("server", "text", "words"),
    [
        (
            "demo",
            "Please say hello to Ada",
            'rule: a phrase of the configuration: say (hello|hi) to {name}\nskill: greet\nname = "Ada"\n'
            "then: the skill runs",
        ),
        (
            "git",
            "switch to main in /r",
            "rule: a phrase of the mapping: (check out|checkout|switch to) [the branch] {branch_name:word} in "
            '{repo_path:path}\nskill: git_checkout\nbranch_name = "main"\nrepo_path = "/r"\n'
            "then: the agent asks for a yes",
        ),
        (
            "demo",
            "greet Ada",
            'rule: the name of the skill: greet\nskill: greet\nname = "Ada"\nthen: the skill runs',
        ),
        (
            "demo",
            "greet name=Ada",
            'rule: the message names the skill\nskill: greet\nname = "Ada"\nthen: the skill runs',
        ),
        (
            "fetch",
            "https://example.com",
            'rule: the default skill, or the only one\nskill: fetch\nurl = "https://example.com"\n'
            "then: the skill runs",
        ),
        (
            "demo",
            "how long does a trip take?",
            "rule: a phrase of the configuration: how long does a trip [of {kilometres} (km|kilometres|kilometers)] "
            "take [at {speed} (km/h|kph)]\nskill: trip\nthen: the agent asks: How many kilometres? (How far)",
        ),
    ],
)
def test_an_explanation_says_the_rule_and_the_values_and_runs_nothing(
    server: str, text: str, words: str
) -> None:
    skills = agent(server)
    turn = turn_of(text, metadata={SKILL: EXPLAIN})

    said = decide(turn, skills, options_with(route=skills.route))

    assert said == End(TaskState.COMPLETED, words, is_brief=True)


@pytest.mark.parametrize("text", ["don't greet Ada", "sing", "help", ""])
def test_what_is_not_understood_is_explained_too(text: str) -> None:
    skills = agent("demo")

    said = decide(turn_of(text, metadata={SKILL: EXPLAIN}), skills, options_with(route=skills.route))

    assert isinstance(said, End)
    assert said.words.startswith("rule: none fits\nthen: the agent ")
