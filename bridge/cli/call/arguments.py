"""The command line of `call`: it calls a skill, answers a task that waits for input, or calls a tool."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bridge.cli import forms
from bridge.cli.call import questions as answers
from bridge.cli.card import tool_on
from bridge.errors import UsageError

if TYPE_CHECKING:
    from bridge.a2a.model.objects import AgentCard, Part
    from bridge.text.jsonvalues import JsonObject

_PAIR: Final = re.compile(r"([^=]+)=(.*)", re.DOTALL)
_JSON: Final = "application/json"

_SIMILAR: Final = "did you mean"
"""The beginning of a hint that names only similar words."""
_EXPLAINS_TEXT: Final = "--explain takes a text: words in quotation marks, or --text"
_MOST_NAMES: Final = 10
"""The most skills that a message names if none is similar."""


@dataclass(frozen=True)
class CallRequest:
    """The request on a command line."""

    skill: str | None
    """The skill, or the tool of an MCP server."""
    pairs: dict[str, tuple[str, ...]]
    """The texts of each argument. An argument that was given several times has several."""
    arguments: JsonObject | None
    text: str | None
    declines: bool = False
    explains: bool = False
    """Whether the agent only says what the text means."""

    @classmethod
    def from_options(cls, options: dict[str, Any]) -> CallRequest:
        words: list[str] = list(options["words"])
        skill = words.pop(0) if words and "=" not in words[0] else None
        pairs = [_PAIR.fullmatch(word) for word in words]
        text, given, declines = options["text"], options["arguments"], options["decline"]
        try:
            " ".join([*options["words"], text or "", given or ""]).encode()
        except UnicodeEncodeError as exc:
            raise UsageError("the command line is not in UTF-8") from exc
        if wrong := [word for word, pair in zip(words, pairs, strict=True) if pair is None]:
            raise UsageError(f"arguments are given as KEY=VALUE, not {wrong[0]!r}; --text sends a text")
        if sum((bool(pairs), given is not None, text is not None)) > 1:
            raise UsageError("give only one of KEY=VALUE, --json and --text")
        _require_one_purpose(options, skill, bool(pairs) or given is not None or text is not None)
        values: dict[str, tuple[str, ...]] = {}
        for pair in filter(None, pairs):
            values[pair[1]] = (*values.get(pair[1], ()), pair[2])
        return cls(skill, values, _object_from(given), text, declines, options["explain"])

    def for_agent(self, card: AgentCard) -> CallRequest:
        """The request, whose only word is a text if it holds a space and names no skill."""
        text = self.skill
        is_alone = text is not None and not self.has_answer and (self.explains or len(text.split()) > 1)
        is_skill = not self.explains and text in {skill.id for skill in card.skills}
        if text is None or not is_alone or is_skill:
            return self
        return replace(self, skill=None, text=text)

    @property
    def has_answer(self) -> bool:
        """Whether the command line has an answer for a task that asks."""
        return self.declines or bool(self.pairs) or self.arguments is not None or self.text is not None

    def answer(self, questions: list[answers.CallQuestion]) -> answers.AnswerParts:
        """The answer on the command line.

        Raises:
            UsageError: the answer does not fit the questions.
        """
        if self.declines:
            return answers.declined(questions)
        return answers.answer_given(questions, self.text, self.arguments, self.pairs)

    @property
    def metadata(self) -> JsonObject | None:
        """Metadata with the skill's name, for agents that read it there."""
        from bridge.translate.call_to_message import skill_metadata
        from bridge.translate.extensions.bridge import EXPLAIN, SKILL

        if self.explains:
            return {SKILL: EXPLAIN}
        return skill_metadata(self.skill) if self.skill else None

    @property
    def asks_for_list(self) -> bool:
        """Whether the command line has neither a skill nor an answer, so that the skills are listed."""
        return self.skill is None and not self.has_answer

    def parts(self, card: AgentCard) -> tuple[Part, ...]:
        """The parts to send: the text, or the arguments as data. An agent without the bridge's extension may read only
        text, so it gets the arguments as text, too.

        Raises:
            UsageError: there is no such skill, neither a skill nor a text is given, an argument has two values, or the
                skill's schema forbids an argument.
        """
        from bridge.a2a.model.objects import Part
        from bridge.translate.call_to_message import arguments_in_words
        from bridge.translate.extensions.bridge import URI

        is_ours = any(extension.uri == URI for extension in card.capabilities.extensions or ())
        if self.explains and self.text is None:
            raise UsageError(_EXPLAINS_TEXT)
        if self.explains and not is_ours:
            raise UsageError(
                "--explain is for agents of mcp-a2a: this agent would run what the text asks for"
            )
        self._require_skill_on(card)
        if self.text is not None:
            return (Part(text=self.text),)
        if self.skill is None:
            raise UsageError(
                "which skill? Name it after the URL, or give --text (mcp-a2a call URL lists the skills)"
            )
        tool = tool_on(card, self.skill)
        arguments = self.arguments
        if arguments is None:
            arguments = {name: forms.typed_all(texts, name, tool) for name, texts in self.pairs.items()}
        if tool is not None:
            forms.check_names(arguments, tool, self.skill)
        data = Part(data=arguments, media_type=_JSON)
        if is_ours:
            return (data,)
        text = Part(text=arguments_in_words(arguments, otherwise=self.skill))
        return (text, data) if arguments else (text,)

    def _require_skill_on(self, card: AgentCard) -> None:
        """Refuse a skill that is not on the card: the agent would make a task that only asks for the skill.

        If the agent has an extended card, it may have further skills, which only the agent knows.
        """
        from bridge.config.text.wording import meant

        names = [skill.id for skill in card.skills]
        if self.skill is None or self.skill in names or not names or card.capabilities.extended_agent_card:
            return
        hint = meant(self.skill, names)
        if not hint.startswith(_SIMILAR) and len(names) > _MOST_NAMES:
            hint = "mcp-a2a call URL lists the skills"
        raise UsageError(f"there is no skill {self.skill!r}: {hint}")


def _require_one_purpose(options: dict[str, Any], skill: str | None, says_something: bool) -> None:
    if options["task_id"] and skill is not None:
        raise UsageError(f"give a skill or --task, not both: {skill!r} is not KEY=VALUE")
    if options["explain"] and (options["task_id"] or options["no_wait"]):
        raise UsageError("--explain takes no --task and no --no-wait: it makes no task, and answers none")
    if options["explain"] and not (skill or says_something):
        raise UsageError(_EXPLAINS_TEXT)
    if options["decline"] and not options["task_id"]:
        raise UsageError("--decline needs --task with the id of the task")
    if options["task_id"] and options["no_wait"] and not (says_something or options["decline"]):
        raise UsageError("--no-wait with --task needs an answer")
    if options["decline"] and says_something:
        raise UsageError("give an answer or --decline, not both")


def _object_from(given: str | None) -> JsonObject | None:
    from bridge.translate.arguments import json_in

    if given is None:
        return None
    text = _text_in(given[1:]) if given.startswith("@") else given
    value = next(iter(json_in(text)), None)
    if not isinstance(value, dict):
        where = "" if text is given else f" in {given[1:]}" if given != "@-" else " on stdin"
        raise UsageError(f"--json takes a JSON object, not {text[:80]!r}{where}")
    return value


def _text_in(name: str) -> str:
    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        return data.decode()
    except OSError as exc:
        raise UsageError(f"--json @{name}: {exc.strerror}") from exc
    except UnicodeDecodeError as exc:
        raise UsageError(f"--json @{name}: the text is not UTF-8") from exc
