"""The card of the agent under test: where it is, what it declares, and which of its interfaces are spoken here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from tests.a2a_checks.bindings import BINDINGS, HttpJson, JsonRpc
from tests.a2a_checks.table import BOTH, Failed, require
from tests.a2a_checks.wire import Answer, Request, Wire

WELL_KNOWN: Final = "/.well-known/agent-card.json"
SPOKEN: Final = "1.0"


@dataclass(frozen=True, slots=True)
class Card:
    """A card as it came."""

    url: str
    answer: Answer
    fields: Mapping[str, Any] = field(default_factory=dict)

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What the agent declares; nothing when that is no object."""
        found = self.fields.get("capabilities")
        return found if isinstance(found, dict) else {}

    @property
    def extensions(self) -> list[Mapping[str, Any]]:
        """The extensions that it declares."""
        return _objects(self.capabilities.get("extensions"))

    @property
    def required_extensions(self) -> list[str]:
        """The URIs that a client has to declare."""
        return [str(one.get("uri")) for one in self.extensions if one.get("required") is True]

    @property
    def interfaces(self) -> list[Mapping[str, Any]]:
        """Its interfaces, as far as they are objects."""
        return _objects(self.fields.get("supportedInterfaces"))

    @property
    def skills(self) -> list[Mapping[str, Any]]:
        """Its skills, as far as they are objects."""
        return _objects(self.fields.get("skills"))

    def schema_of(self, skill_id: str) -> Mapping[str, Any] | None:
        """What a skill's arguments have to be, as an extension says it that lists the tools behind the skills."""
        for one in self.extensions:
            found = one.get("params")
            for step in ("tools", skill_id, "inputSchema"):
                found = found.get(step) if isinstance(found, dict) else None
            if isinstance(found, dict):
                return found
        return None

    @property
    def needs_credential(self) -> bool:
        """Whether it requires authentication of everybody."""
        asked = _objects(self.fields.get("securityRequirements"))
        return bool(asked) and all(one.get("schemes") for one in asked)

    def bindings(self) -> Iterator[JsonRpc | HttpJson]:
        """The first interface of each binding that speaks 1.0."""
        for name in BOTH:
            spoken = [one for one in self.interfaces if _is_spoken(one, name)]
            if spoken:
                yield BINDINGS[name](spoken[0])

    def speaks(self, url: str, binding: str, version: str) -> bool:
        """Whether it declares this version at this URL and binding."""
        return any(
            one.get("url") == url
            and one.get("protocolBinding") == binding
            and str(one.get("protocolVersion")).startswith(version)
            for one in self.interfaces
        )

    def example(self) -> str:
        """A text that the agent says it understands, or a greeting."""
        for skill in self.skills:
            for example in skill.get("examples") or ():
                if isinstance(example, str) and example:
                    return example
        return "hello"


def _is_spoken(interface: Mapping[str, Any], binding: str) -> bool:
    return (
        interface.get("protocolBinding") == binding
        and isinstance(interface.get("url"), str)
        and str(interface.get("protocolVersion")).startswith(SPOKEN)
    )


def _objects(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def card_urls(url: str) -> Iterator[str]:
    """Where the card may be: at the URL itself when that is a card's, else below it, else at its origin."""
    if urlsplit(url).path.endswith(".json"):
        yield url
        return
    yield url.rstrip("/") + WELL_KNOWN
    parts = urlsplit(url)
    if parts.path.strip("/"):
        yield f"{parts.scheme}://{parts.netloc}{WELL_KNOWN}"


async def read_card(wire: Wire, url: str, headers: Mapping[str, str]) -> Card:
    """The first card that is found; what came instead when there is none."""
    card: Card | None = None
    for card_url in card_urls(url):
        answer = await wire.send(Request("GET", card_url, headers))
        card = Card(card_url, answer, _fields_in(answer))
        if card.fields:
            return card
    assert card is not None
    return card


def _fields_in(answer: Answer) -> Mapping[str, Any]:
    try:
        found = answer.json() if answer.status == 200 else {}
    except Failed:
        return {}
    return found if isinstance(found, dict) else {}


def require_card(card: Card) -> None:
    """Fail unless there is a card at all."""
    require(bool(card.fields), "an Agent Card, 200 with a JSON object", card.answer.shown())
