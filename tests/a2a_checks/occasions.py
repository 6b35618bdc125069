"""How an agent is brought to do what a check needs: messages by purpose, and the tasks that come of them.

A need that cannot be met leaves the check untried, and is not tried twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tests.a2a_checks.bindings import CANCEL, GET, SEND
from tests.a2a_checks.shapes import TERMINAL
from tests.a2a_checks.table import NotTried, need, require, shown
from tests.a2a_checks.talk import Talk, new_id, state_of

COMPLETES: Final = "completes"
ASKS: Final = "asks"
ANSWERS: Final = "answers"
ANSWERS_IN_PART: Final = "answers-in-part"
LONG: Final = "runs-long"
SAYS: Final = "says"
LOGIN: Final = "needs-auth"
CALLS: Final = "calls-in-words"
CALLS_ANOTHER: Final = "calls-another-in-words"
GIVES_DATA: Final = "gives-data"
PURPOSES: Final = (
    *(COMPLETES, ASKS, ANSWERS, ANSWERS_IN_PART, LONG, SAYS, LOGIN),
    *(CALLS, CALLS_ANOTHER, GIVES_DATA),
)
_BY_DEFAULT: Final = (COMPLETES, ASKS, SAYS)
"""What the agent's own example, or a greeting, is tried for."""

Message = Mapping[str, Any]


class Occasions:
    """What one agent can be brought to do over one binding."""

    def __init__(self, talk: Talk, messages: Mapping[str, Message]) -> None:
        self._talk = talk
        self._messages = messages
        self._in_vain: dict[str, str] = {}
        self._completed: dict[str, Any] | None = None

    def message(self, purpose: str = COMPLETES, **fields: Any) -> dict[str, Any]:
        """A message for a purpose, with a new id."""
        said = self._messages.get(purpose)
        if said is None:
            need(purpose in _BY_DEFAULT, f'no message is known for "{purpose}"')
            said = {"parts": [{"text": self._talk.card.example()}]}
        return {"role": "ROLE_USER", **said, "messageId": new_id(), **fields}

    def send(self, purpose: str = COMPLETES, /, **fields: Any) -> dict[str, Any]:
        """The parameters of SendMessage; `configuration` goes beside the message."""
        configuration = fields.pop("configuration", None)
        beside = {"configuration": configuration} if configuration is not None else {}
        return {"message": self.message(purpose, **fields), **beside}

    async def task(self, purpose: str = COMPLETES, /, **fields: Any) -> dict[str, Any]:
        """A new task of a message for this purpose, in whatever state."""
        if purpose in self._in_vain:
            raise NotTried(self._in_vain[purpose])
        result = await self._talk.result(SEND, self.send(purpose, **fields))
        task = result.get("task") if isinstance(result, dict) else None
        if not isinstance(task, dict):
            raise self._in_vain_for(purpose, "it is answered without a task")
        require(isinstance(task.get("id"), str), "a task with an id", task)
        return task

    async def completed(self) -> dict[str, Any]:
        """A task that has completed with an artifact; the same one each time."""
        if self._completed is None:
            self._completed = await self.completing(COMPLETES)
        return self._completed

    async def completing(self, purpose: str) -> dict[str, Any]:
        """A new task of a message for this purpose that has completed with an artifact."""
        task = await self._in_state(purpose, {"TASK_STATE_COMPLETED"})
        if not task.get("artifacts"):
            raise self._in_vain_for(purpose, "its task completes without an artifact")
        return task

    async def ended(self) -> dict[str, Any]:
        """A task that has ended, canceled if need be."""
        task = await self.task()
        if state_of(task) in TERMINAL:
            return task
        return await self.canceled(task)

    async def canceled(self, task: Mapping[str, Any]) -> dict[str, Any]:
        """The task once it is canceled."""
        ended = await self._talk.result(CANCEL, {"id": task["id"]})
        need(state_of(ended) in TERMINAL, f"a canceled task is {state_of(ended)}")
        return dict(ended)

    async def asking(self) -> dict[str, Any]:
        """A new task that asks for input."""
        return await self._in_state(ASKS, {"TASK_STATE_INPUT_REQUIRED"})

    async def wanting_login(self) -> dict[str, Any]:
        """A new task that asks for a login."""
        return await self._in_state(LOGIN, {"TASK_STATE_AUTH_REQUIRED"})

    async def asking_again(self, asking: Mapping[str, Any]) -> dict[str, Any]:
        """A task that asks, once it was answered and asks again."""
        return await self._in_state(ANSWERS_IN_PART, {"TASK_STATE_INPUT_REQUIRED"}, taskId=asking["id"])

    async def working(self, **fields: Any) -> dict[str, Any]:
        """A new task that works until it is canceled."""
        task = await self.task(LONG, configuration={"returnImmediately": True}, **fields)
        if state_of(task) not in ("TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"):
            raise self._in_vain_for(LONG, f"its task is {state_of(task)}")
        return task

    async def open(self) -> dict[str, Any]:
        """A new task that does not end by itself."""
        return await (self.working() if LONG in self._messages else self.asking())

    async def now(self, task: Mapping[str, Any]) -> dict[str, Any]:
        """The task as it is now."""
        return dict(await self._talk.result(GET, {"id": task["id"]}))

    async def _in_state(self, purpose: str, states: set[str], **fields: Any) -> dict[str, Any]:
        task = await self.task(purpose, **fields)
        if state_of(task) not in states:
            raise self._in_vain_for(purpose, f"its task is {state_of(task)}")
        return task

    def _in_vain_for(self, purpose: str, why: str) -> NotTried:
        said = shown(str(self._messages.get(purpose) or self._talk.card.example()), 80)
        self._in_vain[purpose] = f'the message for "{purpose}" does not do: {why} ({said})'
        return NotTried(self._in_vain[purpose])


def need_streams(talk: Talk) -> None:
    """Leave the check untried unless the agent declares streaming."""
    need(talk.card.capabilities.get("streaming") is True, "the agent declares no streaming")
