"""What a tool server gives and asks: results and questions, through all that rewrites them, there and back."""

from __future__ import annotations

import json
from functools import partial
from random import Random
from typing import Any, Final

import mcp_types as types

from bridge.a2a.model.objects import Artifact, Message, Part, Role, Task, TaskState, TaskStatus
from bridge.concurrency import done_at_once
from bridge.translate.agent_questions import question_words, questions_of_agent
from bridge.translate.blocks import ResultRules
from bridge.translate.content import LinkRules, links_to_read, parts_from_result, peer_metadata
from bridge.translate.elicitation import (
    answers_from,
    parts_of_questions,
    question_metadata,
    required_urls,
    state_of_questions,
)
from bridge.translate.extensions.bridge import PEER, SKILL
from bridge.translate.outcome import error_metadata, parts_of_failure
from bridge.translate.result import result_from_message, result_from_task
from tests.hostile.a2a_answers import require_task, strict_json
from tests.hostile.json_grammar import as_plain, scalar, whole
from tests.hostile.mutations import mutated
from tests.hostile.schemas import elicitation_or_none, instance_of
from tests.hostile.target import Target, alone
from tests.support.raw_server import BLOCKS, LINKS

_RESULTS: Final[list[Any]] = [
    {"content": BLOCKS, "structuredContent": {"n": 1}, "_meta": {"example.com/run": "r1"}},
    {"content": LINKS, "isError": True},
    {
        "content": [{"type": "text", "text": '{"n": 1}'}],
        "structuredContent": {"n": 1},
        "resultType": "complete",
    },
    {"content": [], "isError": False},
]
_QUESTIONS: Final[list[Any]] = [
    {
        "mode": "form",
        "message": "Who?",
        "requestedSchema": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "format": "email", "minLength": 1},
                "n": {"type": "integer", "minimum": 1, "default": 2},
                "when": {"type": "string", "format": "date-time"},
                "kind": {"type": "string", "enum": ["a", "b"], "enumNames": ["A", "B"]},
            },
            "required": ["name"],
        },
    },
    {"mode": "url", "message": "Go", "url": "https://example.com/x", "elicitationId": "e1"},
]


def result_case(chance: Random) -> tuple[Any, Any, bool]:
    """A result, a question and its answer, and whether the extension is active."""
    result = as_plain(mutated(chance.choice(_RESULTS), chance))
    question = as_plain(mutated(chance.choice(_QUESTIONS), chance))
    return result, (question, as_plain(scalar(chance)), instance_of(chance)), chance.random() < 0.5


async def check_result(case: tuple[Any, Any, bool]) -> None:
    """It becomes a task that every client can read, and that becomes a result again."""
    result, (question, words, data), active = case
    if isinstance(result, dict):
        _check_task(result, active)
    _check_question(question, words, data, active)
    required_urls({"elicitations": [question]})


def _check_task(result: Any, active: bool) -> None:
    content = result.get("content")
    links = links_to_read(content) if isinstance(content, list) else {}
    read = {uri: [result] for uri in [*links][:1]}
    parts = parts_from_result(result, LinkRules(active, read=read))
    metadata: Any = {SKILL: "t", PEER: peer_metadata(result), **error_metadata(1, "x", result)}
    for state in (TaskState.COMPLETED, TaskState.FAILED):
        said = Message(message_id="1", role=Role.AGENT, parts=parts_of_failure(parts), metadata=metadata)
        artifacts = (Artifact(artifact_id="a", parts=parts, metadata=metadata),) if parts else None
        task = Task(id="1", context_id="c", status=TaskStatus(state=state, message=said), artifacts=artifacts)
        text = task.to_json()
        require_task(strict_json(text))
        _require_results(Task.model_validate_json(text))


def _require_results(task: Task) -> None:
    assert task.status.message is not None
    for active in (False, True):
        reading = ResultRules(extension_active=active, inline_limit_bytes=50, link_for=lambda _: "a2a://x/y")
        for made in (
            done_at_once(partial(result_from_task, task, reading)),
            done_at_once(partial(result_from_message, task.status.message, reading)),
        ):
            json.dumps(made)
            if not active:
                types.CallToolResult.model_validate(made)


def _check_question(question: Any, words: Any, data: Any, active: bool) -> None:
    asked = elicitation_or_none(question) if isinstance(question, dict) else None
    if asked is None:
        return
    parts, metadata = parts_of_questions([asked]), question_metadata([asked])
    state = state_of_questions([asked])
    message = Message(message_id="q", role=Role.AGENT, parts=parts, metadata=metadata)
    task = Task(id="1", context_id="c", status=TaskStatus(state=state, message=message))
    text = task.to_json()
    require_task(strict_json(text))
    asked_back = Task.model_validate_json(text).status.message
    for one in questions_of_agent(asked_back, state, extension_active=active):
        json.dumps(one.params)
    question_words(asked_back, state)
    said = Part(text=whole(words)) if isinstance(words, str) else Part(data=words)
    for part in (said, Part(data=data)):
        user = Message(message_id="1", role=Role.USER, parts=(part,))
        answers = done_at_once(partial(answers_from, user, [asked]))
        json.dumps([answers.given[key] for key in answers.given])


TARGETS: Final = (Target("results", result_case, partial(alone, check_result), share=50, examples=200),)
