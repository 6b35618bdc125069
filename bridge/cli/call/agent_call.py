"""Calls an agent: the turns of one task, until the task has ended or nobody can answer its question.

Each turn runs in its own event loop. The person is asked between turns, in the main thread, where Ctrl+C and Ctrl+D
reach the prompt. `bridge.a2a.client.follow` follows the task through broken streams.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from bridge.cli.call import questions as answers
from bridge.cli.call.arguments import CallRequest
from bridge.cli.card import AgentConnection, has_extension, tool_on
from bridge.errors import PeerError, UsageError
from bridge.text.safe_text import shell_word

if TYPE_CHECKING:
    from bridge.a2a.client.agent_card import FoundCard
    from bridge.a2a.client.agent_client import AgentClient
    from bridge.a2a.model.objects import Message, Part, StreamResponse, TaskStatus
    from bridge.cli.call.results import CallView
    from bridge.mcp.tools import Tool
    from bridge.text.jsonvalues import JsonObject

_CANCEL_SECONDS: Final = 10.0
"""How long an agent may take to cancel a task after Ctrl+C."""

CODES: Final[Mapping[str, int]] = {"COMPLETED": 0, "FAILED": 1, "REJECTED": 1, "CANCELED": 1}
"""The exit code for each state in which a task ends."""

ASKING: Final = frozenset({"INPUT_REQUIRED", "AUTH_REQUIRED"})
"""The states in which a task waits for an answer."""


class AgentCalling:
    """One call of an agent. `opened` or `resumed` makes the message that `run` or `begin` sends."""

    def __init__(
        self, connection: AgentConnection, found: FoundCard, view: CallView, timeout_seconds: float | None
    ) -> None:
        self._connection = connection
        self._found = found
        self._card = found.card
        self._view = view
        self._timeout_seconds = timeout_seconds
        self._task_id: str | None = None
        self._context_id: str | None = None
        self._status: TaskStatus | None = None
        """The task's newest status; None when there is no task."""
        self._replied = False
        """Whether the agent answered with a message instead of a task."""
        self._answered: TaskStatus | None = None
        """The question that was answered last. The task may still show it when the next turn begins."""

    def opened(self, request: CallRequest) -> Message:
        """The first message of a new task."""
        return self.message(request.parts(self._card), request.metadata)

    def resumed(self, task_id: str, request: CallRequest) -> Message | None:
        """Fetch an existing task; return the message that answers it, or None if the command line has no answer.

        Raises:
            UsageError: the answer does not fit the question, or the task asks nothing.
            DeclinedError: the answer is a no, and the agent cannot be told: call `decline`.
        """
        import anyio

        anyio.run(self._fetch, task_id)
        if not request.has_answer:
            return None
        if self._state not in ASKING:
            raise UsageError(f"the task asks for nothing: it is {self._state}")
        answer = request.answer(self._questions())
        self._answered = self._status
        return self.message(*answer)

    def begin(self, message: Message) -> int:
        """Send a message, and do not follow the task."""
        import anyio

        anyio.run(self._turn, message, True)
        if self._task_id is None:
            return self._code()
        self._view.left(self._task_id)
        if self._state in ASKING:
            return self._unanswered("--no-wait does not")
        return CODES.get(self._state or "", 0)

    def run(self, message: Message | None) -> int:
        """Send a message, show events, and answer questions; return the exit code. None only watches the task."""
        import anyio

        from bridge.cli.render import can_ask

        if message is not None or (self._state not in ASKING and self._state not in CODES):
            anyio.run(self._turn, message)
        while True:
            self._view.settle()
            if self._state not in ASKING or not can_ask():
                return self._code()
            try:
                answer = answers.answer_to(self._questions(), is_first=self._answered is None)
            except answers.DeclinedError:
                return self.decline()
            self._answered = self._status
            anyio.run(self._turn, self.message(*answer))

    def decline(self) -> int:
        """Cancel the task, since the person declined and the agent cannot be told; return the exit code."""
        self._view.declined()
        self.cancel()
        return 1

    def cancel(self) -> None:
        """Cancel the task, if there is a task that still runs."""
        import anyio

        self._view.settle()
        if self._task_id is not None and self._state not in CODES:
            anyio.run(self._cancel, self._task_id)

    def message(self, parts: tuple[Part, ...], metadata: JsonObject | None) -> Message:
        """A message of the conversation."""
        from bridge.a2a.model.objects import Message, Role

        return Message(
            message_id=str(uuid4()),
            task_id=self._task_id,
            context_id=self._context_id,
            role=Role.USER,
            parts=parts,
            metadata=metadata,
        )

    def _questions(self) -> list[answers.CallQuestion]:
        assert self._status is not None
        return answers.questions_in(self._status, self._tool, takes_refusals=has_extension(self._card))

    def _tool(self, skill: str) -> Tool | None:
        return tool_on(self._card, skill)

    @property
    def _state(self) -> str | None:
        return self._status.state.name if self._status else None

    def _code(self) -> int:
        if self._replied:
            return 0
        if self._state in ASKING:
            return self._unanswered("there is no terminal to ask for it")
        if (code := CODES.get(self._state or "")) is not None:
            return code
        raise AssertionError("a task is followed until it has settled")

    def _unanswered(self, reason: str) -> int:
        questions = self._questions()
        answer = f"--task {shell_word(self._task_id or '')} {answers.words_for(questions)}"
        self._view.unanswered(
            reason,
            f"{self._connection.line('call')} {answer}",
            answers.how_declined(questions),
        )
        return answers.EXIT_UNANSWERED

    def _how_to_find(self) -> str:
        """A hint how to find a task that is no longer watched."""
        if self._task_id is None:
            return "If the agent began a task, the task may still run; the agent did not give its id."
        return f"The task may still run. To show it: {self._connection.line('tasks')} {self._task_id}"

    async def _fetch(self, task_id: str) -> None:
        from bridge.a2a.model.objects import StreamResponse

        async with self._connection.agent(self._found) as agent:
            self._take(StreamResponse(task=await agent.get(task_id)))

    async def _turn(self, message: Message | None, no_wait: bool = False) -> None:
        """Send a message, if any, and follow the task until it settles, unless `no_wait`."""
        import anyio

        from bridge.a2a.client.follow import OutcomeUnknownError

        try:
            with anyio.fail_after(self._timeout_seconds):
                async with self._connection.agent(self._found) as client:
                    if no_wait and message is not None:
                        await self._begin(client, message)
                    else:
                        await self._follow(client, message)
        except TimeoutError as exc:
            task = f"; the task {self._task_id} goes on" if self._task_id else ""
            raise PeerError(f"the agent did not finish within {self._timeout_seconds:g} s{task}") from exc
        except PeerError as exc:
            if isinstance(exc, OutcomeUnknownError) or self._goes_on:
                raise PeerError(f"{exc}. {self._how_to_find()}") from exc
            raise

    async def _follow(self, agent: AgentClient, message: Message | None) -> None:
        from bridge.a2a.client.follow import TaskListener, converse, wait_until_settled
        from bridge.a2a.model.objects import SendMessageRequest

        listener, pace = TaskListener(self._take), self._connection.pace
        if message is None or (self._state == "AUTH_REQUIRED" and await self._has_gone_on(agent)):
            assert self._task_id is not None
            await wait_until_settled(agent, self._task_id, listener, pace=pace, answered=self._answered)
        else:
            await converse(
                agent, SendMessageRequest(message=message), listener, pace=pace, answered=self._answered
            )

    async def _begin(self, agent: AgentClient, message: Message) -> None:
        from bridge.a2a.client.follow import event_of
        from bridge.a2a.model.objects import SendMessageConfiguration, SendMessageRequest

        configuration = SendMessageConfiguration(return_immediately=True)
        request = SendMessageRequest(message=message, configuration=configuration)
        self._take(event_of(await agent.send(request)))

    async def _has_gone_on(self, agent: AgentClient) -> bool:
        """Whether the task went on after it was authorised (A2A section 7.6.1). It may now ask something else."""
        assert self._task_id is not None
        assert self._status is not None
        status = (await agent.get(self._task_id)).status
        if status.state.name not in ASKING:
            return True
        before, now = self._status.message, status.message
        return before is not None and now is not None and before.message_id != now.message_id

    def _take(self, event: StreamResponse) -> None:
        """Show an event, and keep its status."""
        self._view.show(event)
        if event.message is not None:
            self._replied = True
        elif event.task is not None:
            self._task_id, self._context_id = event.task.id, event.task.context_id
            self._status = event.task.status
        elif event.status_update is not None:
            self._task_id, self._context_id = event.status_update.task_id, event.status_update.context_id
            self._status = event.status_update.status

    @property
    def _goes_on(self) -> bool:
        """Whether there is a task that was at work at its last event."""
        return self._task_id is not None and self._state not in CODES and self._state not in ASKING

    async def _cancel(self, task_id: str) -> None:
        import anyio

        from bridge.a2a.model.objects import StreamResponse

        try:
            with anyio.fail_after(_CANCEL_SECONDS):
                async with self._connection.agent(self._found) as agent:
                    task = await agent.cancel(task_id)
        except (PeerError, TimeoutError) as exc:
            self._view.not_canceled(task_id, str(exc) or "it did not answer")
        else:
            self._view.show(StreamResponse(task=task))
