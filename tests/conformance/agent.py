"""An A2A agent with a skill for each tool that the suites call, which says all that A2A has words for.

Knows a2a-sdk's server and, of this project, only the names that its A2A extension fixes: with it the agent says which
arguments its skills take, how far it has come, and which JSON-RPC error stands behind a failure. Everything else is
said with parts, states and questions as any agent says it. Must not import `bridge`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
from a2a.helpers import new_data_part, new_raw_part, new_task_from_user_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import a2a_pb2
from google.protobuf.json_format import MessageToDict, ParseDict
from starlette.applications import Starlette

from tests.conformance.wanted_tools import (
    ASKING,
    PNG,
    STEPS,
    WANTS_ROOTS,
    WANTS_SAMPLING,
    WAV,
    WORK_SECONDS,
    Question,
    listed,
    words_of,
)

EXTENSION: Final = "urn:mcp-a2a:tool:v1"
_PROGRESS: Final = f"{EXTENSION}/progress"
_PEER: Final = f"{EXTENSION}/peer"
_QUESTION: Final = f"{EXTENSION}/question"
_ANSWER: Final = f"{EXTENSION}/answer"
_OCCASIONS: Final = f"{EXTENSION}/occasions"


@dataclass
class Turn:
    """One message to a task."""

    skill: str
    arguments: dict[str, Any]
    number: int
    """Of the message within its task, from 0."""
    said: dict[str, Any]
    """The message, as JSON of the wire."""
    answers: dict[str, Any]
    """What was answered in this task so far, by the key of the question."""
    update: TaskUpdater
    agent: FixtureAgent

    def words(self, *parts: a2a_pb2.Part | str, **metadata: Any) -> a2a_pb2.Message:
        """A message of the agent."""
        said = [new_text_part(part) if isinstance(part, str) else part for part in parts]
        return self.update.new_agent_message(said, metadata=metadata or None)

    async def give(self, *parts: a2a_pb2.Part | str) -> None:
        """Give an artifact, which is the result."""
        said = [new_text_part(part) if isinstance(part, str) else part for part in parts]
        await self.update.add_artifact(said, name=self.skill)
        await self.update.complete()


async def _simple_text(turn: Turn) -> None:
    await turn.give("A text, and nothing but a text.")


async def _image(turn: Turn) -> None:
    await turn.give(new_raw_part(PNG, media_type="image/png"))


async def _audio(turn: Turn) -> None:
    await turn.give(new_raw_part(WAV, media_type="audio/wav"))


async def _file(turn: Turn) -> None:
    await turn.give(new_raw_part(b"What stands in the file.", media_type="text/plain", filename="file.txt"))


async def _mixed(turn: Turn) -> None:
    await turn.give(
        "Several kinds:",
        new_raw_part(PNG, media_type="image/png"),
        new_raw_part(b'{"value": 123}', media_type="application/json", filename="value.json"),
    )


async def _fail(turn: Turn) -> None:
    await turn.update.failed(turn.words("This goes wrong, as it is meant to"))


async def _fail_at_work(turn: Turn) -> None:
    await anyio.sleep(WORK_SECONDS)
    await _fail(turn)


async def _protocol_error(turn: Turn) -> None:
    await anyio.sleep(WORK_SECONDS)
    error = {"code": -32603, "message": "Something broke"}
    await turn.update.failed(turn.words("Something broke", **{_PEER: {"error": error}}))


async def _cannot(turn: Turn) -> None:
    await turn.update.reject(turn.words("An agent has no way to ask its client for that"))


async def _progress(turn: Turn) -> None:
    for step in STEPS:
        await turn.update.update_status(
            a2a_pb2.TASK_STATE_WORKING,
            turn.words(f"{step} of {STEPS[-1]}"),
            metadata={_PROGRESS: {"progress": step, "total": STEPS[-1]}},
        )
    await turn.give("Done, step by step")


async def _greet(turn: Turn) -> None:
    await turn.give(f"Hello, {turn.arguments.get('name', 'you')}!")


async def _slow(turn: Turn) -> None:
    await turn.update.start_work()
    await anyio.sleep(turn.arguments.get("seconds", 0))
    await turn.give(f"Computed {turn.arguments.get('label', 'it')}")


async def _change(turn: Turn) -> None:
    turn.agent.grown = not turn.agent.grown
    await turn.give("The list is another one now")


async def _ask(turn: Turn) -> None:
    """Asks the round that comes next, or says what was answered."""
    asking = ASKING[turn.skill]
    if turn.number == 0 and asking.works_first:
        await turn.update.start_work()
        await anyio.sleep(WORK_SECONDS)
    refused = _take_answers(turn)
    left = [
        questions
        for round_ in asking.rounds
        if (questions := [one for one in round_ if one.key not in turn.answers])
    ]
    if refused:
        await turn.update.reject(turn.words("Then not"))
    elif left:
        await turn.update.requires_input(_asked(turn, left[0]))
    else:
        if asking.works_last:
            await turn.update.start_work()
            await anyio.sleep(WORK_SECONDS)
        await turn.give(words_of(turn.answers))


def _asked(turn: Turn, questions: list[Question]) -> a2a_pb2.Message:
    """What the task asks: in words, and with the form of each question in a data part."""
    described = [
        {"key": one.key, "message": one.words or turn.arguments.get("message", ""), "schema": one.schema}
        for one in questions
    ]
    words = "\n".join(str(one["message"]) for one in described)
    form = new_data_part(described[0] if len(described) == 1 else {"questions": described})
    form.metadata.update({_OCCASIONS: {one.key: one.key for one in questions}})  # none is asked twice
    named = {_QUESTION: questions[0].key} if len(questions) == 1 else {}
    return turn.words(words, form, **named)


def _take_answers(turn: Turn) -> bool:
    """Keep what a message answers; whether it refuses to."""
    if turn.number == 0:
        return False
    metadata = turn.said.get("metadata", {})
    data: dict[str, Any] = next((part["data"] for part in turn.said["parts"] if "data" in part), {})
    if metadata.get(_ANSWER, "accept") != "accept":
        return True
    if (key := metadata.get(_QUESTION)) is not None:
        turn.answers[key] = data
        return False
    turn.answers.update({key: result.get("content", {}) for key, result in data.items()})
    return any(result.get("action") != "accept" for result in data.values())


_BEHAVIOURS: Final[dict[str, Callable[[Turn], Awaitable[None]]]] = {
    "test_image_content": _image,
    "test_audio_content": _audio,
    "test_embedded_resource": _file,
    "test_multiple_content_types": _mixed,
    "test_error_handling": _fail,
    "test_tool_with_progress": _progress,
    "test_trigger_tool_change": _change,
    "test_trigger_prompt_change": _change,
    "greet": _greet,
    "slow_compute": _slow,
    "failing_job": _fail_at_work,
    "protocol_error_job": _protocol_error,
    **dict.fromkeys(WANTS_SAMPLING | WANTS_ROOTS, _cannot),
    **dict.fromkeys(ASKING, _ask),
}
"""What the skills do; the others say a text."""


@dataclass
class _Begun:
    skill: str
    arguments: dict[str, Any]
    turns: int = 0
    answers: dict[str, Any] = field(default_factory=dict)


class FixtureAgent(AgentExecutor):
    """Does what the skill of a task says."""

    def __init__(self) -> None:
        self.url = "http://127.0.0.1"
        """Where it is reached."""
        self.grown = False
        """Whether it has the skill that comes and goes."""
        self._tasks: dict[str, _Begun] = {}

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.message is not None
        assert context.task_id is not None
        said = MessageToDict(context.message)
        begun = self._tasks.get(context.task_id)
        if begun is None:
            call: dict[str, Any] = next((part["data"] for part in said["parts"] if "data" in part), {})
            begun = _Begun(call.get("skill", ""), call.get("arguments", {}))
            self._tasks[context.task_id] = begun
        if context.current_task is None:
            await event_queue.enqueue_event(new_task_from_user_message(context.message))
        assert context.context_id is not None
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        turn = Turn(begun.skill, begun.arguments, begun.turns, said, begun.answers, updater, self)
        begun.turns += 1
        await _BEHAVIOURS.get(begun.skill, _simple_text)(turn)

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.task_id is not None
        assert context.context_id is not None
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        await updater.cancel(updater.new_agent_message([new_text_part("Stopped")]))

    def card(self) -> a2a_pb2.AgentCard:
        """The card as it is now."""
        tools = {tool["name"]: tool for tool in listed(grown=self.grown)}
        declared = {"uri": EXTENSION, "description": "What the skills take", "params": {"tools": tools}}
        return a2a_pb2.AgentCard(
            name="Fixture",
            description="Does what the conformance suites call.",
            version="1.0.0",
            supported_interfaces=[
                a2a_pb2.AgentInterface(url=f"{self.url}/", protocol_binding="JSONRPC", protocol_version="1.0")
            ],
            capabilities=a2a_pb2.AgentCapabilities(
                streaming=True, extensions=[ParseDict(declared, a2a_pb2.AgentExtension())]
            ),
            default_input_modes=["text/plain"],
            default_output_modes=["text/plain"],
            skills=[
                a2a_pb2.AgentSkill(id=name, name=name, description=tool["description"], tags=["conformance"])
                for name, tool in tools.items()
            ],
        )


def build_app(agent: FixtureAgent) -> Starlette:
    """Return the agent as an ASGI application."""

    async def current(_: a2a_pb2.AgentCard) -> a2a_pb2.AgentCard:
        return agent.card()

    handler = DefaultRequestHandler(agent, InMemoryTaskStore(), agent.card())
    return Starlette(
        routes=[
            *create_agent_card_routes(agent.card(), card_modifier=current),
            *create_jsonrpc_routes(handler, "/"),
        ]
    )
