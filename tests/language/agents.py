"""The agents that read the sentences of `sentences.toml`, and what each sentence leads to."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

from bridge.a2a.model.objects import Message, Part, Role, SendMessageConfiguration, TaskState
from bridge.a2a.tasks.agent import Turn
from bridge.config.ready_mappings import ReadyMapping, ready_mapping_files, ready_mapping_for
from bridge.identity.callers.principals import LOCAL
from bridge.mcp.tools import Tool, tools_from
from bridge.tools_as_agent.resume_state import (
    Confirmation,
    Decision,
    End,
    RequireInput,
    RunTool,
    resume_state_from,
)
from bridge.tools_as_agent.route import decide
from bridge.tools_as_agent.skills import Skills, skills_of
from bridge.translate.message_to_call import RouteRules
from bridge.translate.overrides import SkillOverride
from tests.support.tools import options_with

HERE: Final = Path(__file__).parent
DEMO: Final = HERE.parent.parent / "examples" / "demo.toml"
NOTES: Final = {
    "list_notes": (
        "(show|list) [me] [all] [the] notes (in|of) [the folder] {folder}",
        "what is in the folder {folder}",
        "(which|what) notes are in {folder}",
    ),
    "add_note": (
        "(note|remember) {text:word} in {folder:word}",
        "(add|keep) [the|a] note {text:word} (in|to) {folder:word}",
    ),
    "delete_notes": ("delete [all] [the] notes (in|of) {folder:word}",),
}
"""Phrases as an operator writes them."""
ROUNDS: Final = {
    "from the tool lists": slice(100),
    "with knowledge of the phrases": slice(100, 200),
    "from the tool lists again": slice(200, 260),
    "attacks on the values": slice(260, None),
}
"""The sentences of the file, in the order in which they were written."""
KEYS: Final = ("skillId", "skill_id", "skill", "toolName", "tool")

Verdict = Literal["right", "asked", "wrong"]


@dataclass(frozen=True)
class Outcome:
    """What a message leads to: `run`, `confirm`, `ask`, `help` or `refuse`."""

    kind: str
    skill_id: str = ""
    arguments: Mapping[str, Any] | None = None

    def __str__(self) -> str:
        said = json.dumps(self.arguments, ensure_ascii=False) if self.arguments else ""
        return " ".join(filter(None, [self.kind, self.skill_id, said]))


def sentences() -> Sequence[Mapping[str, Any]]:
    """The sentences, in the order of the file."""
    return tuple(tomllib.loads((HERE / "sentences.toml").read_text(encoding="utf-8"))["sentence"])


@cache
def agent(server: str) -> Skills:
    """The skills of an agent, with their phrases."""
    demo = tomllib.loads(DEMO.read_text(encoding="utf-8"))["tools_as_agent"]["demo"]["skills"]
    phrases = {"demo": {name: rules["phrases"] for name, rules in demo.items()}, "notes": NOTES}
    own = {name: SkillOverride(phrases=tuple(texts)) for name, texts in phrases.get(server, {}).items()}
    ready = {} if server in phrases else {server: ready_mapping(server).tools}
    return skills_of([(server, tool) for tool in tools_of(server)], own, route=RouteRules(KEYS), ready=ready)


def tools_of(server: str) -> Sequence[Tool]:
    """The tools of a server, as it lists them."""
    listed = json.loads((HERE / "tool_lists" / f"{server}.json").read_text(encoding="utf-8"))
    tools, left_out = tools_from(listed)
    assert not left_out
    return tools


def ready_mapping(server: str) -> ReadyMapping:
    """The ready mapping of a well-known server."""
    found = ready_mapping_for([ready_mapping_files()[server].command])
    assert found is not None
    return found


def turn_of(*texts: str, kept: bytes = b"", metadata: Any = None) -> Turn:
    """A message of texts."""
    parts = tuple(Part(text=text) for text in texts)
    message = Message(message_id="m", role=Role.USER, parts=parts, metadata=metadata)
    return Turn(LOCAL, message, SendMessageConfiguration(), {}, frozenset(), kept=kept)


def decided(skills: Skills, *texts: str, kept: bytes = b"", **options: Any) -> Decision:
    """The decision about a message of texts."""
    rules = options.pop("route", None) or skills.route
    return decide(turn_of(*texts, kept=kept), skills, options_with(route=rules, **options))


def outcome_of(decision: Decision) -> Outcome:
    """A decision in short."""
    match decision:
        case RunTool():
            return Outcome("run", decision.skill.id, dict(decision.arguments))
        case RequireInput(state=TaskState.AUTH_REQUIRED):
            question = resume_state_from(decision.kept)
            assert isinstance(question, Confirmation)
            return Outcome("confirm", question.skill_id, dict(question.arguments))
        case RequireInput():
            return Outcome("ask")
        case End(state=TaskState.COMPLETED):
            return Outcome("help")
        case _:
            return Outcome("refuse")


def wanted(sentence: Mapping[str, Any]) -> Outcome:
    """What a sentence has to lead to."""
    for kind in ("run", "confirm"):
        if kind in sentence:
            return Outcome(kind, sentence[kind], sentence.get("arguments", {}))
    return Outcome("ask" if "ask" in sentence else "help")


def read(sentence: Mapping[str, Any]) -> tuple[Outcome, Verdict]:
    """What a sentence leads to, and whether that is right. A client that is asked has lost nothing."""
    found = outcome_of(decided(agent(sentence["server"]), sentence["text"]))
    if found == wanted(sentence):
        return found, "right"
    return found, "asked" if found.kind == "ask" else "wrong"
