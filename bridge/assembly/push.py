"""Push notifications of a plan: who signs them, where they may go, and the sender of each agent. And those of remote
agents: who takes them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from bridge.a2a.model.life import IdsAndClock
from bridge.a2a.push.sender import PushPace, PushSender, WallClock
from bridge.a2a.push.signatures import PushSigner, shared_secret
from bridge.a2a.push.webhook_client import PushBounds, PushClient
from bridge.a2a.tasks.webhooks import WebhookRecords, WebhookRules, Webhooks
from bridge.a2a.wire.extensions import ExtensionFilter
from bridge.agents_as_tools.handles import Handles
from bridge.agents_as_tools.push_receiver import PushReceiver, ReceiverBounds
from bridge.assembly.plan import ProcessPlan
from bridge.assembly.remote_agents import SharedResources
from bridge.config.tables.profile import Profile
from bridge.local.private_files import private_folder
from bridge.local.user_folders import state_folder
from bridge.notices import Notify, ignore_notice
from bridge.remotes.remote_agent import RemoteAgent
from bridge.seal import key_in, keys_in
from bridge.store.contract import Store
from bridge.store.outbox import WebhookLimits


def push_signer(place: ProcessPlan) -> PushSigner | None:
    """What signs the push notifications of a process; None if it sends none.

    Raises:
        UsageError: a key cannot be read or made.
    """
    if place.push is None:
        return None
    secrets = {receiver: shared_secret(text) for receiver, text in place.push.secrets.items()}
    issuer = place.public_url or f"{place.scheme}://{place.host}:{place.port}"
    return PushSigner(issuer, tuple(_keys(place)), secrets)


def _keys(place: ProcessPlan) -> list[bytes]:
    if place.keys:
        return keys_in(place.keys)
    folder = place.state or state_folder()
    private_folder(folder)
    return [key_in(folder)]


@dataclass(frozen=True)
class AgentPush:
    """The push notifications of one agent."""

    webhooks: Webhooks
    sender: PushSender


@asynccontextmanager
async def webhooks_of(
    store: Store,
    place: ProcessPlan,
    process: Profile,
    ids: IdsAndClock,
    gate: ExtensionFilter,
    face: str = "",
    notify: Notify = ignore_notice,
) -> AsyncIterator[AgentPush | None]:
    """The webhooks of an agent's tasks, to which is sent while the context is open; None if nothing is sent.

    `notify` is told of them and of each attempt, with the name of the agent, `face`.

    Raises:
        UsageError: a key cannot be read or made.
    """
    signer, table = push_signer(place), process.push
    if signer is None or place.push is None:
        yield None
        return
    allow = place.push.allow
    records = WebhookRecords(signer.keys)
    rules = WebhookRules(WebhookLimits(table.each_task, table.each_principal, table.ended_bytes), allow)
    webhooks = Webhooks(store, records, rules, ids, notify=notify, face=face)
    bounds = PushBounds(table.attempt_seconds, table.answer_limit_bytes)
    async with AsyncExitStack() as stack:
        client = PushClient(signer, bounds, ids.now_ms, allow)
        stack.push_async_callback(client.aclose)
        clock, pace = WallClock(ids.now_ms), push_pace(process)
        sender = PushSender(
            store.outbox,
            records,
            client,
            pace,
            clock,
            webhooks.row_of,
            gate.filtered,
            notify=notify,
            face=face,
        )
        await stack.enter_async_context(sender)
        yield AgentPush(webhooks, sender)


def push_pace(process: Profile) -> PushPace:
    """When and how often is tried to send, and how much at the same time."""
    table = process.push
    return PushPace(
        retry_seconds=tuple(table.pauses_seconds),
        jitter=table.jitter_percent / 100,
        each_host=table.each_host,
        at_once=table.at_once,
        folded_rows=table.folded_events,
    )


def notified(shared: SharedResources, agent_of: Callable[[str], RemoteAgent | None]) -> PushReceiver | None:
    """What takes the notifications of remote agents; None if none is asked for any. `agent_of` gives an agent by its
    mark."""
    if shared.hints.url is None:
        return None

    def knows(mark: str) -> bool:
        return (agent := agent_of(mark)) is not None and agent.may_notify

    def key_of(mark: str) -> str:
        return agent.key if (agent := agent_of(mark)) is not None else ""

    table = shared.process.push
    bounds = ReceiverBounds(table.received_limit_bytes, table.received_each_second)
    return PushReceiver(
        Handles(shared.seal), shared.hints, knows, bounds, key_of=key_of, notify=shared.notify
    )
