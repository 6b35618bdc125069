"""All conversations, by the names of their files."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import anyio

from bridge.mcp.client.eras import Era
from tests.goldens import agent, client, exposed, routes, wrapped
from tests.goldens.agents import BINDINGS, FIRST_BINDINGS, OLDER_BINDINGS
from tests.goldens.recording import Recording
from tests.support.mcp_wire import LEGACY, MODERN

RECORDINGS: Final = Path(__file__).with_name("recordings")
_MOST_SECONDS: Final = 20
_TAIL_CHARACTERS: Final = 9000

Conversation = Callable[[Recording, Path], Awaitable[None]]


def _with(of: Callable[..., Awaitable[None]], *arguments: object) -> Conversation:
    """One that is held with these arguments."""

    async def conversation(record: Recording, folder: Path) -> None:
        await of(record, folder, *arguments)

    return conversation


def _alone(of: Callable[..., Awaitable[None]], *arguments: object, **named: object) -> Conversation:
    """One that keeps nothing in a folder."""

    async def conversation(record: Recording, _: Path) -> None:
        await of(record, *arguments, **named)

    return conversation


CONVERSATIONS: Final[dict[str, Conversation]] = {
    **{
        f"agent-{topic.__name__}-{binding}": _alone(topic, kind)
        for topic in (agent.sending, agent.streams, agent.tasks, agent.errors, agent.bounds)
        for binding, kind in BINDINGS.items()
    },
    **{
        f"agent-{topic.__name__}-0.3-{binding}": _alone(topic, kind)
        for topic in (agent.sending, agent.streams, agent.tasks)
        for binding, kind in OLDER_BINDINGS.items()
    },
    **{
        f"agent-{topic.__name__}-0.1-{binding}": _alone(topic, kind)
        for topic in (agent.sending, agent.streams, agent.tasks)
        for binding, kind in FIRST_BINDINGS.items()
    },
    "agent-wire-jsonrpc": _alone(agent.jsonrpc),
    "agent-wire-http-json": _alone(agent.http_json),
    "agent-hermes": _alone(agent.hermes),
    "agent-access": agent.access,
    "agent-cards": agent.cards,
    **{
        f"client-{topic.__name__.replace('_', '-')}-{binding}": _alone(topic, kind.binding)
        for topic in (client.operations, client.service_parameters, client.refusals)
        for binding, kind in BINDINGS.items()
    },
    "client-cards": client.cards,
    "client-catalogs": client.catalogs,
    **{
        f"exposed-{topic.__name__}-{binding}": _with(topic, kind.binding)
        for topic in (exposed.following, exposed.polling)
        for binding, kind in BINDINGS.items()
    },
    **{f"exposed-asking-{version}": _with(exposed.asking, version) for version in (LEGACY, MODERN)},
    **{f"exposed-hanging-up-{version}": _with(exposed.hanging_up, version) for version in (LEGACY, MODERN)},
    "exposed-granularities": exposed.granularities,
    "exposed-coming-back": exposed.coming_back,
    "exposed-tasks": exposed.tasks,
    "exposed-legacy": exposed.legacy,
    "exposed-credentials": exposed.credentials,
    "exposed-access": _alone(exposed.access),
    "routes": routes.routes,
    **{f"wrapped-stdio-{era.value}": _with(wrapped.over_stdio, era) for era in (Era.LEGACY, Era.MODERN)},
    "wrapped-legacy": _alone(wrapped.server, Era.LEGACY, is_modern=False),
    "wrapped-modern": _alone(wrapped.server, Era.MODERN, is_modern=True),
    "wrapped-found-to-be-legacy": _alone(wrapped.server, Era.AUTO, is_modern=False),
    **{f"agent-questions-{era}": _alone(agent.questions, era) for era in ("legacy", "modern")},
}


async def recorded(name: str, folder: Path) -> str:
    """A conversation, held now; `folder` is for what a bridge keeps."""
    record = Recording()
    try:
        with anyio.fail_after(_MOST_SECONDS):
            await CONVERSATIONS[name](record, folder)
    except Exception as exc:
        raise AssertionError(f"{name} broke off; it ended with\n{record.text()[-_TAIL_CHARACTERS:]}") from exc
    return record.text()
