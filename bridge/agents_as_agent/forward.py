"""Sends a message to a remote agent and follows its task, as the work of a task of ours. Start reading here.

    new message ──▶ agent and context ──▶ send ──▶ events ──▶ settled: ended, or it asks
    answer ─────────────────────────────▶ send ─────┘
    after a restart ─────────────────────▶ follow ──┘
    remote task goes on while it waits ──▶ follow ──┘

A message is sent once. If nobody knows whether it arrived, the task says so. The id of the remote task is stored before
any of its events, so that another process can go on with the task. A cancellation is for the remote agent to decide.

Spec: A2A 1.0 sections 3.1.1, 3.1.2, 3.1.5, 3.4 (contexts), 7.6.1.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import anyio

from bridge.a2a.client.agent_client import AgentClient, AgentRefusedError
from bridge.a2a.client.follow import (
    OutcomeUnknownError,
    TaskListener,
    TaskLostError,
    converse,
    wait_until_settled,
)
from bridge.a2a.client.http import AgentBusyError, NotReachedError
from bridge.a2a.model.life import ENDED
from bridge.a2a.model.objects import (
    Message,
    Part,
    SendMessageConfiguration,
    SendMessageRequest,
    Task,
    TaskState,
    TaskStatus,
    made,
)
from bridge.a2a.tasks.agent import Commit, Job, Turn
from bridge.agents_as_agent.contexts import Contexts, RemoteContext
from bridge.agents_as_agent.ids import OwnIds, derived_id, message_to_agent
from bridge.agents_as_agent.kept import RemoteTask, kept_in
from bridge.agents_as_agent.options import ForwardOptions
from bridge.agents_as_agent.relay import TaskRelay
from bridge.agents_as_agent.skills import ForwardedSkill
from bridge.errors import BridgeError, PeerError, fault_policy_of
from bridge.identity.logins.login_credentials import LoginNeededError
from bridge.identity.tokens.caller_token import Caller
from bridge.identity.tokens.token_exchange import CallerTokenError
from bridge.remotes.remote_agent import RemoteAgent

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be sent."""

    turn: Turn
    """The turn of the message: the job's own, or an earlier one that waited for a choice of the client."""
    skill: ForwardedSkill | None = None
    """The skill that the message names."""
    context: RemoteContext | None = None
    """The conversation that the message continues."""
    task: RemoteTask | None = None
    """The remote task that the message answers; None for a new task."""


Exchange = Callable[[AgentClient, TaskListener], Awaitable[Task | Message]]


class _DownError(PeerError):
    """The agent cannot be called. Nothing was sent."""


class Forward:
    """The work of one turn at one remote agent."""

    def __init__(
        self,
        agent: RemoteAgent,
        options: ForwardOptions,
        contexts: Contexts,
        watch: Callable[[Job, RemoteTask], None],
        admit: Callable[[Turn, RemoteTask], None],
    ) -> None:
        """`watch` watches a remote task that waits for its client. `admit` raises an A2AError for a message that may
        not go to a remote task."""
        self._agent = agent
        self._watch = watch
        self._admit = admit
        self._options = options
        self._contexts = contexts
        self._named = anyio.Event()
        self._following = anyio.CancelScope()

    async def send(self, job: Job, order: Order) -> None:
        """Send a message, and pass on what comes of it, until the task ends or asks."""
        task = order.task
        skill = order.skill.id if order.skill else task.skill_id if task else ""
        known = task or RemoteTask(
            self._agent.key, "", order.context.context_id if order.context else None, skill
        )
        answered = None if task is None else task.answered
        sent_context = self._context_to_send(order)
        await job.accepted  # a repeat of the message, also after a crash, then finds the task
        job.sent(self._agent.key)

        async def exchange(client: AgentClient, listener: TaskListener) -> Task | Message:
            request = await self._request(order, sent_context)
            return await converse(client, request, listener, pace=self._options.pace, answered=answered)

        await self._run(job, known, exchange, order.turn.message.context_id, sent_context)

    async def follow(self, job: Job, task: RemoteTask) -> None:
        """Go on with the task of an earlier process."""
        job.outlive()
        if await self._is_reached(job):
            await self._run(job, task, self._until_settled(task.task_id, task.answered), None, None)

    async def _is_reached(self, job: Job) -> bool:
        """Wait until the agent's card is known, at most as long as the agent may be out of reach. If it stays unknown,
        the task fails."""
        pace = self._options.pace
        pauses = pace.pauses()
        with anyio.move_on_after(pace.outage_seconds):
            while self._agent.down is not None:  # noqa: ASYNC110 - nothing tells of each attempt
                await anyio.sleep(pauses.next())
        if self._agent.down is None:
            return True
        words = f"The agent {self._agent.key} has been out of reach for {pace.outage_seconds:g} s: {self._agent.down}"
        await self._fail(job, PeerError(words))
        return False

    async def cancel_at_rest(self, job: Job, task: RemoteTask) -> bool:
        """Cancel a remote task that waits for its client. Returns whether the agent cancels it.

        Raises:
            PeerError: the agent cannot be asked.
        """
        relay = self._relay(job, task, None, None)
        return await self._cancel(self._client(job.turn), relay)

    async def _run(
        self, job: Job, task: RemoteTask, exchange: Exchange, asked: str | None, sent: str | None
    ) -> None:
        relay = self._relay(job, task, asked, sent)
        try:
            client = self._client(job.turn)
            async with anyio.create_task_group() as group:
                job.cancel_with(lambda: self._cancel_running(client, relay))
                if task.task_id:
                    self._know(job, relay, group, client, task.task_id)
                listener = TaskListener(
                    relay.take, lambda task_id: self._know(job, relay, group, client, task_id)
                )
                with self._following:
                    await self._settle(job, client, relay, exchange, listener)
                group.cancel_scope.cancel()
        except BaseExceptionGroup as exc:
            await self._fail(job, _only_fault(exc))
        except BridgeError as exc:
            await self._fail(job, exc)
        finally:
            self._named.set()
            job.listen(None)

    async def _settle(
        self, job: Job, client: AgentClient, relay: TaskRelay, exchange: Exchange, listener: TaskListener
    ) -> None:
        """Pass the exchange on, and go on after AUTH_REQUIRED: the credential may come out of band (7.6.1)."""
        outcome = await exchange(client, listener)
        while True:
            await relay.end(outcome)
            if isinstance(outcome, Task) and outcome.status.state is TaskState.INPUT_REQUIRED:
                self._watch(job, relay.far)
            if isinstance(outcome, Message) or outcome.status.state is not TaskState.AUTH_REQUIRED:
                return
            waiting = self._until_settled(outcome.id, outcome.status)
            outcome = await waiting(client, listener)

    def _until_settled(self, task_id: str, answered: TaskStatus | None) -> Exchange:
        async def exchange(client: AgentClient, listener: TaskListener) -> Task:
            return await wait_until_settled(
                client, task_id, listener, pace=self._options.pace, answered=answered
            )

        return exchange

    def _know(
        self, job: Job, relay: TaskRelay, group: anyio.abc.TaskGroup, client: AgentClient, task_id: str
    ) -> None:
        """Note the id of the remote task. From now on, messages of the client go to that task."""
        relay.name(task_id)
        job.outlive()
        self._named.set()

        def hear(turn: Turn) -> Callable[[Commit], None]:
            self._admit(turn, relay.far)

            def send(stored: Commit) -> None:
                group.start_soon(self._also_send, client, relay, turn, stored)

            return send

        job.listen(hear)

    async def _also_send(self, client: AgentClient, relay: TaskRelay, turn: Turn, stored: Commit) -> None:
        """Send a message that came while the task is working. If the agent refuses the message, the task says so."""
        order = Order(turn, task=relay.far)
        try:
            await stored
            request = await self._request(order, relay.far.context_id)
            configuration = SendMessageConfiguration(return_immediately=True)
            await client.send(request.changed(configuration=configuration))
        except PeerError as exc:
            logger.info("%s did not take a message for a working task: %s", self._agent.key, exc)
            words = words_for_clients(self._agent.key, exc)
            relay.say(f"Your message {turn.message.message_id} did not reach the task: {words}")

    # Cancelling

    async def _cancel_running(self, client: AgentClient, relay: TaskRelay) -> bool:
        """Cancel the remote task while it is followed; see `CancelAtPeer`.

        Raises:
            PeerError: the agent cannot be asked, or has not named its task in time.
        """
        seconds = self._options.run.cancel_grace_seconds
        with anyio.move_on_after(seconds):
            await self._named.wait()
        if not relay.far.task_id:
            raise PeerError(f"the agent {self._agent.key} has named no task within {seconds:g} s")
        return await self._cancel(client, relay)

    async def _cancel(self, client: AgentClient, relay: TaskRelay) -> bool:
        task_id, seconds = relay.far.task_id, self._options.run.cancel_grace_seconds
        is_accepted = True
        with anyio.CancelScope(shield=True), anyio.move_on_after(seconds) as limit:
            try:
                task = await client.cancel(task_id)
            except AgentRefusedError:
                task, is_accepted = await client.get(task_id), False
        if limit.cancelled_caught:
            raise PeerError(f"the agent {self._agent.key} gave no answer within {seconds:g} s")
        if task.status.state in ENDED:
            self._following.cancel()
            await relay.end(task)
        return is_accepted

    # What is sent

    async def _request(self, order: Order, context_id: str | None) -> SendMessageRequest:
        turn, message = order.turn, order.turn.message
        owner = turn.principal.name
        outgoing = message_to_agent(
            message,
            message_id=derived_id("message", self._agent.key, owner, message.message_id),
            task_id=order.task.task_id if order.task else None,
            context_id=context_id,
            references=[
                reference
                for task_id in message.reference_task_ids or ()
                if (reference := await self._remote_id(task_id, owner)) is not None
            ],
            skill={} if order.skill is None else dict.fromkeys(self._named_by(turn), order.skill.remote_id),
        )
        accepted = turn.configuration.accepted_output_modes
        configuration = SendMessageConfiguration(
            return_immediately=False, accepted_output_modes=tuple(accepted) if accepted else None
        )
        return made(
            SendMessageRequest,
            message=outgoing,
            configuration=configuration,
            metadata={
                key: order.skill.remote_id if order.skill and key in self._options.skill_keys else value
                for key, value in turn.metadata.items()
            }
            or None,
        )

    def _named_by(self, turn: Turn) -> list[str]:
        """The keys of the message's metadata that name a skill."""
        return [key for key in self._options.skill_keys if key in (turn.message.metadata or {})]

    async def _remote_id(self, task_id: str, owner: str) -> str | None:
        """The id at the remote agent of another task of the client; None if the task is not there."""
        try:
            kept = kept_in(await self._contexts.records.of_task(task_id, owner))
        except ValueError:
            return None
        is_there = isinstance(kept, RemoteTask) and kept.agent == self._agent.key
        return kept.task_id if is_there and isinstance(kept, RemoteTask) else None

    def _context_to_send(self, order: Order) -> str | None:
        """The context of the message at the remote agent; None lets the agent begin a new one."""
        if order.task is not None:
            return order.task.context_id
        if order.context is not None:
            return order.context.context_id
        asked = order.turn.message.context_id
        if asked is None:
            return None
        return self._contexts.of_own_choice(asked, order.turn.principal.name, self._agent.key)

    # What comes back

    def _client(self, turn: Turn) -> AgentClient:
        caller = Caller(turn.principal.name, turn.principal.token, turn.client)
        if self._agent.down is not None:
            raise _DownError(self._agent.down)
        return self._agent.client_for(caller, turn.extensions)

    def _relay(self, job: Job, task: RemoteTask, asked: str | None, sent: str | None) -> TaskRelay:
        key, events, owner = self._agent.key, job.events, job.turn.principal.name
        ids = OwnIds(key, events.task_id, events.context_id, self._options.is_local)

        def context_of_reply(context_id: str | None) -> str:
            remote = RemoteContext(key, context_id)
            return self._contexts.of_reply(remote, owner, asked, sent) or events.context_id

        return TaskRelay(job, ids, task, context_of_reply)

    async def _fail(self, job: Job, fault: BridgeError) -> None:
        """End the task, since the remote agent gave no answer."""
        policy = fault_policy_of(fault)
        logger.log(policy.log_level, "the agent %s failed: %s", self._agent.key, fault)
        words = words_for_clients(self._agent.key, fault)
        await job.status(TaskState(policy.task_state), job.message((Part(text=words),)))


def words_for_clients(agent: str, fault: BridgeError) -> str:
    """What a client is told about a fault. The log has the addresses of the remote agent, and clients do not get
    them."""
    match fault:
        case AgentRefusedError():
            return str(fault)
        case OutcomeUnknownError():
            return f"The agent {agent} gave no answer. Whether it took the message is unknown; it is not sent again"
        case TaskLostError():
            return (
                f"The agent {agent} has been out of reach for too long, or sends too much. Its task may go on"
            )
        case NotReachedError() | _DownError():
            return f"The agent {agent} cannot be reached, so it did not get the message"
        case AgentBusyError():
            return f"The agent {agent} is busy, and did not take the message"
        case CallerTokenError() | LoginNeededError():
            return f"The agent {agent} needs other credentials of yours: {fault}"
        case PeerError():
            return f"The agent {agent} gave an answer that cannot be used"
        case _:
            return str(fault)


def _only_fault(group: BaseExceptionGroup[BaseException]) -> BridgeError:
    """The fault of an exchange.

    Raises:
        BaseExceptionGroup: something else went wrong, too.
    """
    faults, others = group.split(BridgeError)
    if others is not None or faults is None:
        raise group
    fault: BaseException = faults
    while isinstance(fault, BaseExceptionGroup):
        fault = fault.exceptions[0]
    assert isinstance(fault, BridgeError)
    return fault
