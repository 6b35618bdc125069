"""A bridge that serves remote agents as one agent, in the test's own process, on a free port of loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bridge.assembly.bridge import Bridge
from bridge.assembly.plan import Plan, ProcessPlan, PublishedPlan, RemotePlan
from bridge.identity.callers.verifiers import Credential
from bridge.translate.overrides import SkillOverride
from tests.support.ports import free_port
from tests.support.running import listening, profile_with

NAME = "front"


@dataclass(frozen=True)
class Forwarding:
    """A bridge that serves remote agents as one agent, and its URL."""

    bridge: Bridge
    url: str


def forwarding_plan(
    folder: Path,
    agents: Mapping[str, str],
    *,
    store: str = "memory:",
    credentials: Sequence[Credential] = (),
    overrides: Mapping[str, SkillOverride] | None = None,
    public_url: str | None = None,
    is_public: bool = False,
    **agent_settings: Any,
) -> Plan:
    """The plan of an agent made of the agents at these URLs, by key."""
    profile = profile_with(agents=agent_settings)
    published = PublishedPlan(
        (), profile, agents=tuple(agents), store=store, overrides=overrides or {}, public=is_public
    )
    return Plan(
        profile,
        ProcessPlan(state=folder / "state", cache=folder / "cache", public_url=public_url),
        credentials,
        agents={key: RemotePlan(url) for key, url in agents.items()},
        published={NAME: published},
    )


@asynccontextmanager
async def forwarding(folder: Path, agents: Mapping[str, str], **plan: Any) -> AsyncIterator[Forwarding]:
    """Serve the agents at these URLs, by key, as one agent."""
    made = forwarding_plan(folder, agents, **plan)
    bridge = Bridge(made)
    async with bridge.run():
        await bridge.apply(made)
        async with listening(bridge.app, free_port()) as root_url:
            yield Forwarding(bridge, f"{root_url}/agents/{NAME}")
