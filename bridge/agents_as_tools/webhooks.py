"""Webhooks for tasks of agents. A webhook is created once no call waits for its task, and deleted when the task has
ended.

    ask ──▶ create ──refused──▶ the task is polled, as without a webhook
              │
              ▼
            hint ──somebody waits: they read the task──┐
              ▲  └─nobody waits: it is read here───────┤
              └───────────not ended────────────────────┴──ended──▶ delete

A webhook outlives the process that created it: every bridge with the same keys accepts its token.

Spec: A2A 1.0 sections 3.1.7, 3.1.10, 4.3.1.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import anyio
import anyio.abc

from bridge.a2a.client.agent_client import AgentClient
from bridge.a2a.client.follow import Pause, is_transient
from bridge.a2a.model.life import ENDED
from bridge.a2a.model.objects import AuthenticationInfo, TaskPushNotificationConfig
from bridge.agents_as_tools.handles import FarTask, FarWebhook, Handles, webhook_of
from bridge.agents_as_tools.push_hints import HintWaiter, PushHints
from bridge.concurrency import border
from bridge.errors import PeerError
from bridge.remotes.remote_agent import RemoteAgent
from bridge.seal import LIFETIME_SECONDS, HandlePurpose, HandleTooLongError
from bridge.settings import AgentSettings

logger = logging.getLogger(__name__)

_ID_BEGINS: Final = "mcp-a2a-"


@dataclass(eq=False, slots=True)
class _WebhookHere:
    """A webhook that this process asked for."""

    agent: RemoteAgent
    client: AgentClient
    webhook: FarWebhook
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    """Cancelled when the task has ended, or when the webhook must make room for another."""


class TaskWebhooks:
    """The webhooks of one MCP server."""

    def __init__(
        self,
        hints: PushHints,
        handles: Handles,
        group: anyio.abc.TaskGroup,
        settings: Callable[[], AgentSettings],
    ) -> None:
        self._hints = hints
        self._handles = handles
        self._group = group
        self._settings = settings
        self._kept: dict[str, _WebhookHere] = {}
        self._refused: set[str] = set()
        """The marks of the agents that refused a webhook. A refusal is logged once for each agent."""

    def ask(self, agent: RemoteAgent, client: AgentClient, task: FarTask, principal: str) -> None:
        """Ask an agent to send notifications about a task until the task has ended. This returns at once."""
        url, webhook = self._hints.url, webhook_of(task, principal)
        if url is None or not agent.may_notify or not client.notifies or webhook.key in self._kept:
            return
        try:
            token = self._handles.of_webhook(webhook)
        except HandleTooLongError as exc:
            logger.info("%s: no webhook is created: %s", agent.key, exc)
            return
        while len(self._kept) >= self._settings().push_tasks:
            self._drop(next(iter(self._kept)))
        created = self._kept[webhook.key] = _WebhookHere(agent, client, webhook)
        config = TaskPushNotificationConfig(
            id=f"{_ID_BEGINS}{webhook.key}",
            task_id=task.task_id,
            url=url,
            token=token,
            authentication=AuthenticationInfo(scheme="Bearer", credentials=token),
        )
        self._group.start_soon(self._keep, created, config)

    @contextmanager
    def waiting(self, task: FarTask, principal: str) -> Iterator[Pause]:
        """Wait for a task while the context is open. Gives the pause between two reads of the task, which notifications
        shorten."""
        with self._hints.waiting(webhook_of(task, principal), self._settings()) as waiter:
            yield waiter.pause

    def ended(self, task: FarTask, principal: str) -> None:
        """Delete the webhook of a task that has ended, if there is one."""
        self._drop(webhook_of(task, principal).key)

    def keep_only(self, agents: Collection[RemoteAgent]) -> None:
        """Delete the webhooks at all agents except these. From now on, notifications of other agents are refused."""
        for key in [key for key, created in self._kept.items() if created.agent not in agents]:
            self._drop(key)

    def _drop(self, key: str) -> None:
        if (created := self._kept.pop(key, None)) is not None:
            created.scope.cancel()

    async def _keep(self, created: _WebhookHere, config: TaskPushNotificationConfig) -> None:
        webhook = created.webhook
        with border(logger, str(created.agent.key)), self._hints.waiting(webhook, self._settings()) as waiter:
            try:
                made = await created.client.create_push_config(config)
            except PeerError as exc:
                self._refuses(created.agent, exc)
            else:
                longest = anyio.move_on_after(LIFETIME_SECONDS[HandlePurpose.WEBHOOK])
                with created.scope, longest, self._hints.in_place(webhook):
                    await self._until_ended(created, waiter)
                await self._delete(created, made.id or config.id or "")
        if self._kept.get(webhook.key) is created:
            del self._kept[webhook.key]

    async def _until_ended(self, created: _WebhookHere, waiter: HintWaiter) -> None:
        """Wait until the task has ended. At a hint, the task is read here, unless somebody else waits for it and reads
        it."""
        while True:
            await waiter.hint()
            if self._hints.count(created.webhook) > 1:
                continue
            try:
                task = await created.client.get(created.webhook.task_id)
            except PeerError as exc:
                logger.debug("%s: a task that it notified of cannot be read: %s", created.agent.key, exc)
                if not is_transient(exc):
                    return
            else:
                if task.status.state in ENDED:
                    return

    async def _delete(self, created: _WebhookHere, config_id: str) -> None:
        try:
            await created.client.delete_push_config(created.webhook.task_id, config_id)
        except PeerError as exc:
            logger.debug("%s: a webhook could not be deleted: %s", created.agent.key, exc)

    def _refuses(self, agent: RemoteAgent, exc: PeerError) -> None:
        if agent.mark not in self._refused:
            self._refused.add(agent.mark)
            logger.warning("%s takes no webhook, so its tasks are polled: %s", agent.key, exc)
