"""Each sentence does what it has to do, or the client is asked. No sentence runs a wrong tool."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from bridge.tools_as_agent.resume_state import RequireInput, RunTool
from tests.language.agents import ROUNDS, agent, decided, outcome_of, read, sentences, wanted

SERVERS = ("filesystem", "memory", "fetch", "git", "time", "everything", "demo", "notes")


def test_there_are_340_sentences_of_which_105_must_ask() -> None:
    texts = {(sentence["server"], sentence["text"]) for sentence in sentences()}

    assert len(texts) == 340
    assert sum("ask" in sentence for sentence in sentences()) == 105


@pytest.mark.parametrize("sentence", sentences(), ids=lambda one: f"{one['server']}: {one['text']}")
def test_a_sentence_never_does_what_it_does_not_say(sentence: Any) -> None:
    found, verdict = read(sentence)

    assert verdict != "wrong", f"{found}, not {wanted(sentence)}"


@pytest.mark.parametrize("some", ROUNDS.values(), ids=ROUNDS)
def test_most_sentences_that_should_run_do(some: slice) -> None:
    verdicts = Counter(read(sentence)[1] for sentence in sentences()[some] if "ask" not in sentence)

    assert verdicts["right"] >= 0.85 * verdicts.total()


@pytest.mark.parametrize("server", SERVERS)
def test_each_example_on_a_card_is_understood_by_its_agent(server: str) -> None:
    skills = agent(server)

    for shown in skills.on_card:
        for example in shown.examples or ():
            found = outcome_of(decided(skills, example))
            assert (found.kind in ("run", "confirm"), found.skill_id) == (True, shown.id), example


@pytest.mark.parametrize("server", SERVERS)
def test_sentences_come_first_among_the_examples(server: str) -> None:
    for shown in agent(server).on_card:
        is_call = [example.startswith("{") for example in shown.examples or ()]
        assert is_call == [False] * is_call.index(True) + [True] + [False] * (
            len(is_call) - is_call.index(True) - 1
        )


@pytest.mark.parametrize(
    "sentence", [one for one in sentences() if "confirm" in one], ids=lambda one: one["text"]
)
def test_a_yes_to_a_sentence_is_for_that_one_call(sentence: Any) -> None:
    skills = agent(sentence["server"])
    asked = decided(skills, sentence["text"])
    assert isinstance(asked, RequireInput)

    assert outcome_of(decided(skills, "yes", kept=asked.kept)).kind == "run"
    assert outcome_of(decided(skills, "no", kept=asked.kept)).kind == "refuse"
    name = next(iter(sentence.get("arguments") or {"": ""}))
    if name:
        changed = decided(skills, f"{name}=other", kept=asked.kept)
        assert not isinstance(changed, RunTool)
