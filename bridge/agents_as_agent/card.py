"""Makes the Agent Card of an agent made of remote agents. Pure.

Nothing of a remote agent's address, credentials or signatures is on it: clients reach the remote agents through this
agent alone. What is said of all of them together is what each of them says: the card has the extensions that all have.

Spec: A2A 1.0 sections 4.4 and 8.3. Required arrays have at least one element.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from bridge.a2a.model.objects import (
    BINDINGS,
    AgentCapabilities,
    AgentCard,
    AgentExtension,
    AgentInterface,
    AgentProvider,
    AgentSkill,
)
from bridge.a2a.wire.versions import VERSIONS
from bridge.agents_as_agent.ids import leads_to_private
from bridge.agents_as_agent.options import ForwardOptions
from bridge.translate.extensions.availability import AVAILABILITY_URI

_PLACEHOLDER: Final = AgentSkill(
    id="unavailable",
    name="No skills at the moment",
    description="This agent has no skills at the moment",
    tags=("unavailable",),
)
_TEXT: Final = "text/plain"
_NOT_PASSED: Final = frozenset({AVAILABILITY_URI})
"""The extensions of remote cards that say nothing about this agent."""


def make_card(
    base_url: str,
    remotes: Sequence[tuple[str, AgentCard]],
    skills: Sequence[AgentSkill],
    options: ForwardOptions,
) -> AgentCard:
    """The card of an agent that is reached at `base_url`. `remotes` are the cards of the remote agents that were read,
    by key. The A2A server adds the security schemes."""
    cards = [card for _, card in remotes]
    only = cards[0] if len(cards) == 1 else None
    return AgentCard(
        name=options.name or ", ".join(card.name for card in cards) or options.face,
        description=options.description or _description(cards),
        supported_interfaces=tuple(
            AgentInterface(url=base_url, protocol_binding=binding, protocol_version=VERSIONS.current.version)
            for binding in BINDINGS
        ),
        provider=_public_provider(only.provider) if only else None,
        version=only.version if only else ", ".join(f"{key} {card.version}" for key, card in remotes) or "0",
        documentation_url=_public(only.documentation_url) if only else None,
        icon_url=_public(only.icon_url) if only else None,
        capabilities=AgentCapabilities(
            streaming=True,
            push_notifications=options.push,
            extended_agent_card=False,
            extensions=shared_extensions(cards) or None,
        ),
        default_input_modes=_modes(card.default_input_modes for card in cards),
        default_output_modes=_modes(card.default_output_modes for card in cards),
        skills=tuple(skills) or (_PLACEHOLDER,),
    )


def shared_extensions(cards: Sequence[AgentCard]) -> tuple[AgentExtension, ...]:
    """The extensions that all cards declare, as the first declares them. An extension that any agent requires is
    required."""
    if not cards:
        return ()
    declared = [
        {extension.uri: extension for extension in card.capabilities.extensions or ()} for card in cards
    ]
    required = {uri for extensions in declared for uri, extension in extensions.items() if extension.required}
    return tuple(
        extension.changed(required=uri in required or None)
        for uri, extension in declared[0].items()
        if uri not in _NOT_PASSED and all(uri in extensions for extensions in declared)
    )


def _description(cards: Sequence[AgentCard]) -> str:
    if len(cards) == 1:
        return cards[0].description
    return (
        "\n\n".join(f"{card.name}: {card.description}" for card in cards) or "No agent has been reached yet"
    )


def _public(url: str | None) -> str | None:
    return None if url is None or leads_to_private(url) else url


def _public_provider(provider: AgentProvider | None) -> AgentProvider | None:
    return None if provider is None or leads_to_private(provider.url) else provider


def _modes(modes: Iterable[Sequence[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(mode for some in modes for mode in some)) or (_TEXT,)
