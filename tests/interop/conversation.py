"""What the tests say through a client of a peer, and how they read what comes back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
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
WORKING: Final = "TASK_STATE_WORKING"
COMPLETED: Final = "TASK_STATE_COMPLETED"
FAILED: Final = "TASK_STATE_FAILED"
CANCELED: Final = "TASK_STATE_CANCELED"
INPUT_REQUIRED: Final = "TASK_STATE_INPUT_REQUIRED"


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
        self.said = (status.get("message") or {}).get("parts", [])

    @property
    def words(self) -> str:
        """The first text of the newest status message."""
        return str(next(part["text"] for part in self.said if "text" in part))
