"""Plans for a bridge beside the real one: for one face alone, or for a look at what there is. Pure.

Such a bridge listens for nobody but itself, and keeps nothing where another may keep something too: a bridge that
runs on the same file is not disturbed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from bridge.access.principals import Principal
from bridge.access.verifiers import Credential
from bridge.assembly.plan import OfferedPlan, Plan, ProcessPlan, PublishedPlan
from bridge.config.tables.profile import Profile
from bridge.config.tables.values import MEMORY_STORE

LOOPBACK_HOST: Final = "127.0.0.1"
STDIO_PRINCIPAL: Final = Principal("nobody")


def calls_itself(plan: Plan) -> bool:
    """Whether an offered server is made of agents that are published beside it, which are called over HTTP."""
    return any(source in plan.published for one in plan.offered.values() for source in one.sources)


def with_one_agent(plan: Plan, name: str) -> Plan:
    """What one published agent needs, and nothing else."""
    return replace(plan, published={name: plan.published[name]}, offered={})


def with_one_server(plan: Plan, name: str) -> Plan:
    """What one offered server needs, and nothing else. Agents that are published for it are in memory."""
    one = plan.offered[name]
    published = {source: plan.published[source] for source in one.sources if source in plan.published}
    return in_memory(replace(plan, published=published, offered={name: one}))


def for_stdio(plan: Plan, name: str, token: str) -> Plan:
    """One offered server for whoever starts it. What it is made of takes a token that nobody is told, so that the
    bridge alone calls it."""
    place = ProcessPlan(
        keys=plan.place.keys, state=plan.place.state, cache=plan.place.cache, host=LOOPBACK_HOST
    )
    return replace(
        with_one_server(plan, name), place=place, credentials=(Credential(STDIO_PRINCIPAL, token),)
    )


def for_preview(plan: Plan, folder: Path, key: str, within_seconds: float) -> Plan:
    """All that is served, with nobody waited for longer than so long, whoever is down, and all of it kept nowhere.

    Nothing remembered counts: what is seen is what is there now.
    """
    patient = in_memory(plan)
    return replace(
        patient,
        profile=_waiting(plan.profile, within_seconds),
        place=replace(plan.place, keys=(key,), cache=folder),
        servers={
            name: replace(
                one,
                fail="open",
                pace=replace(one.pace, connect_seconds=min(one.pace.connect_seconds, within_seconds)),
            )
            for name, one in plan.servers.items()
        },
        published={name: replace(one, fail="open") for name, one in patient.published.items()},
        offered=_offered_waiting(plan.offered, within_seconds),
    )


def in_memory(plan: Plan) -> Plan:
    """The same, with all tasks in memory."""
    published: Mapping[str, PublishedPlan] = {
        name: replace(one, store=MEMORY_STORE) for name, one in plan.published.items()
    }
    return replace(plan, published=published)


def _offered_waiting(offered: Mapping[str, OfferedPlan], seconds: float) -> dict[str, OfferedPlan]:
    return {name: replace(one, profile=_waiting(one.profile, seconds)) for name, one in offered.items()}


def _waiting(profile: Profile, seconds: float) -> Profile:
    agents = profile.agents.model_copy(update={"first_cards_seconds": seconds})
    return profile.model_copy(update={"agents": agents})
