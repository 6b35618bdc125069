"""What the tests say through a client of a peer, and how they read what comes back."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import uuid4

import pytest

from tests.peers import Json, PeerClient, Transport
from tests.peers.js_client import JsClient
from tests.peers.py_client import PyClient

CLIENTS: Final[dict[str, type[PeerClient]]] = {"py": PyClient, "js": JsClient}
PEERS: Final[Sequence[tuple[str, Transport]]] = [
    ("py", "JSONRPC"),
    ("py", "HTTP+JSON"),
    ("js", "JSONRPC"),
    ("js", "HTTP+JSON"),
]
each_peer = pytest.mark.parametrize("peer", PEERS, ids="-".join)

PROGRESS: Final = "urn:mcp-a2a:tool:v1/progress"
QUESTION: Final = "urn:mcp-a2a:tool:v1/question"
ANSWER: Final = "urn:mcp-a2a:tool:v1/answer"
WORKING: Final = "TASK_STATE_WORKING"
COMPLETED: Final = "TASK_STATE_COMPLETED"
FAILED: Final = "TASK_STATE_FAILED"
CANCELED: Final = "TASK_STATE_CANCELED"
INPUT_REQUIRED: Final = "TASK_STATE_INPUT_REQUIRED"
AUTH_REQUIRED: Final = "TASK_STATE_AUTH_REQUIRED"


def client_of(peer: tuple[str, Transport], base_url: str) -> PeerClient:
    """The client of a peer, to be entered."""
    kind, transport = peer
    return CLIENTS[kind](base_url, transport)


def calling(skill: str, *, at_once: bool = False, **arguments: Any) -> Json:
    """A SendMessageRequest that calls a skill; `at_once` does not wait for its end."""
    return saying({"data": {"skill": skill, "arguments": arguments}}, at_once=at_once)


def saying(*parts: Json, at_once: bool = False, **message: Any) -> Json:
    """A SendMessageRequest with these parts; other fields join the message."""
    said = {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": list(parts), **message}
    return {"message": said, **({"configuration": {"returnImmediately": True}} if at_once else {})}


@dataclass
class Outcome:
    """A task as its client knows it, from one answer or from the events of a stream."""

    task_id: str = ""
    state: str = ""
    parts: list[Json] = field(default_factory=list)
    """Of all its artifacts."""
    said: list[Json] = field(default_factory=list)
    """The parts of its newest status message."""
    states: list[str] = field(default_factory=list)
    progress: list[Json] = field(default_factory=list)
    """The numbers of its progress."""
    asked_in: str = ""
    """The id of its newest status message."""

    @classmethod
    def of(cls, answer: Json) -> Outcome:
        """From a Task, alone or as SendMessage answers with it."""
        outcome = cls()
        outcome.see(answer if "task" in answer else {"task": answer})
        return outcome

    @classmethod
    async def after(cls, events: AsyncIterator[Json]) -> Outcome:
        """From all events of a stream."""
        outcome = cls()
        async for event in events:
            outcome.see(event)
        return outcome

    def see(self, event: Json) -> None:
        """Take in one event."""
        if task := event.get("task"):
            self.task_id = task["id"]
            self.parts = [part for artifact in task.get("artifacts", []) for part in artifact["parts"]]
            self._status(task["status"])
        elif update := event.get("artifactUpdate"):
            self.parts += update["artifact"]["parts"]
        else:
            update = event["statusUpdate"]
            self._status(update["status"])
            if numbers := (update.get("metadata") or {}).get(PROGRESS):
                self.progress.append(numbers)

    def _status(self, status: Json) -> None:
        self.state = status["state"]
        self.states.append(self.state)
        message = status.get("message") or {}
        self.said, self.asked_in = message.get("parts", []), message.get("messageId", "")

    @property
    def words(self) -> str:
        """The first text of the newest status message."""
        return str(next(part["text"] for part in self.said if "text" in part))

    @property
    def question(self) -> Json:
        """What the newest status message asks, as data."""
        return next(part["data"] for part in self.said if "data" in part)


@dataclass(frozen=True)
class Reply:
    """The answer to one question of a server: what comes to the server as ElicitResult."""

    to: str
    """What stands in the question."""
    content: Json | None = None
    action: str = "accept"
    visits: str | None = None
    """The URL that the question sends to, when it does."""

    @property
    def state(self) -> str:
        """The state of a task that asks this."""
        return INPUT_REQUIRED if self.visits is None else AUTH_REQUIRED

    def request_for(self, asked: Outcome) -> Json:
        """The SendMessageRequest that answers, once the question was looked at."""
        assert asked.state == self.state, asked
        assert self.to in asked.words
        assert asked.question.get("url") == self.visits
        key = {QUESTION: asked.question["key"]}
        if self.action != "accept":
            return saying({"text": "no"}, taskId=asked.task_id, metadata={**key, ANSWER: self.action})
        part = {"text": "done"} if self.content is None else {"data": self.content}
        return saying(part, taskId=asked.task_id, metadata=key)


async def converse(
    client: PeerClient, request: Json, replies: Sequence[Reply] = (), *, streamed: bool = False
) -> Outcome:
    """Send a message, answer what is asked, and give the task as it is after that.

    Streamed, each turn is a stream; but what is asked at AUTH_REQUIRED, where a stream stays open, is answered
    beside it, and a subscription tells what becomes of it.
    """
    outcome = await _turn(client, request, streamed=streamed)
    for reply in replies:
        answer = reply.request_for(outcome)
        if streamed and reply.state == AUTH_REQUIRED:
            outcome = await _answered_beside(client, answer, outcome)
        else:
            outcome = await _turn(client, answer, streamed=streamed, before=outcome)
    return outcome


async def _turn(
    client: PeerClient, request: Json, *, streamed: bool, before: Outcome | None = None
) -> Outcome:
    if not streamed:
        return Outcome.of(await client.send(request))
    outcome = Outcome()
    async with aclosing(client.stream(request)) as events:
        await _until_asked(events, outcome, before)
    return outcome


async def _answered_beside(client: PeerClient, answer: Json, asked: Outcome) -> Outcome:
    outcome = Outcome()
    async with aclosing(client.subscribe(asked.task_id)) as events:
        outcome.see(await anext(events))
        assert (outcome.state, outcome.asked_in) == (AUTH_REQUIRED, asked.asked_in)
        await client.send({**answer, "configuration": {"returnImmediately": True}})
        await _until_asked(events, outcome, asked)
    return outcome


async def _until_asked(events: AsyncGenerator[Json], outcome: Outcome, before: Outcome | None) -> None:
    """Read a stream to its end, or to a question at which it would stay open; `before` was answered already."""
    async for event in events:
        outcome.see(event)
        if outcome.state == AUTH_REQUIRED and (before is None or outcome.asked_in != before.asked_in):
            return
