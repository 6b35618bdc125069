"""Reads agent cards: strictly in the fields that a call needs, tolerantly elsewhere. Pure.

A card that lacks only unneeded fields is accepted, and its deviations are listed. An invalid card is read field by
field: null counts as absent, since Go writes unset lists as null; an unusable interface or skill is left out; and an
invalid field that no call needs is left out. The fields that are left out are listed as deviations.

Spec: A2A 1.0 section 4.4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Final

from pydantic import BeforeValidator, Field, JsonValue, ValidationError

from bridge.a2a.model import objects
from bridge.a2a.model.objects import AgentCard
from bridge.a2a.wire.reading import fields_alone
from bridge.a2a.wire.versions import VERSIONS
from bridge.errors import PeerError
from bridge.text.jsonvalues import shortened_json, validation_faults

_UNSAID: Final = VERSIONS.current.version
"""The version of an interface that does not name its version: the version that introduced `supportedInterfaces`."""
_MOST_NOTES: Final = 20
_NEEDED: Final = "security requirement"


class _SkillAsRead(objects.AgentSkill):
    """A skill that requires only the fields that a call needs."""

    description: str = ""
    tags: objects.Several[str] = ()


class _InterfaceAsRead(objects.AgentInterface):
    """An interface that may lack its version."""

    protocol_version: Annotated[str, BeforeValidator(lambda version: version or _UNSAID)] = _UNSAID


class _CardAsRead(AgentCard):
    """A card that requires only the fields that a call needs."""

    supported_interfaces: Annotated[objects.Several[_InterfaceAsRead], Field(min_length=1)]
    description: str = ""
    version: str = ""
    capabilities: objects.AgentCapabilities = objects.AgentCapabilities()
    default_input_modes: objects.Several[str] = ()
    default_output_modes: objects.Several[str] = ()
    skills: objects.Several[_SkillAsRead] = ()


def read_card(value: JsonValue, where: str) -> tuple[AgentCard, tuple[str, ...]]:
    """A card in the form of 1.0, and its deviations from the specification. Messages call the card `where`.

    Raises:
        PeerError: the value is not a card.
    """
    try:
        return AgentCard.model_validate(value), ()
    except ValidationError as strict:
        try:
            return _CardAsRead.model_validate(value), validation_faults(strict)
        except ValidationError as exc:
            left = _Left()
            try:
                card = _CardAsRead.model_validate(left.card(value))
            except ValidationError:
                raise PeerError(
                    f"what is at {where} is not an agent card: {'; '.join(validation_faults(exc))}"
                ) from exc
            return card, (*validation_faults(strict), *left.out)


class _Left:
    """Reads a card field by field, and lists the fields that it leaves out."""

    def __init__(self) -> None:
        self.out: list[str] = []

    def card(self, value: JsonValue) -> JsonValue:
        """The card without the fields that cannot be read."""
        if not isinstance(value, dict):
            return value
        nested: Mapping[str, Callable[[JsonValue], JsonValue]] = {
            "supportedInterfaces": lambda interfaces: self._each(interfaces, "interface", self._interface),
            "skills": lambda skills: self._each(skills, "skill", self._skill),
            "capabilities": self._capabilities,
            "securityRequirements": lambda requirements: self._each(requirements, _NEEDED, self._requirement),
            "securitySchemes": self._schemes,
            "name": lambda name: name,  # without a name it is no card
        }
        return fields_alone(_CardAsRead, value, nested, self._note)

    def _interface(self, value: JsonValue) -> JsonValue:
        if not isinstance(value, dict):
            return value
        return fields_alone(_InterfaceAsRead, value, {}, self._note)

    def _skill(self, value: JsonValue) -> JsonValue:
        """A skill. A missing name is replaced by the id, and a missing id by the name."""
        if not isinstance(value, dict):
            return value
        read = fields_alone(
            _SkillAsRead,
            value,
            {
                "securityRequirements": lambda requirements: self._each(
                    requirements, _NEEDED, self._requirement
                )
            },
            self._note,
        )
        name = read.get("id") or read.get("name")
        return {**read, "id": name, "name": read.get("name") or name} if name else value

    def _capabilities(self, value: JsonValue) -> JsonValue:
        if not isinstance(value, dict):
            return None
        nested: Mapping[str, Callable[[JsonValue], JsonValue]] = {
            "extensions": lambda extensions: self._each(extensions, "extension", self._extension)
        }
        return fields_alone(objects.AgentCapabilities, value, nested, self._note)

    def _extension(self, value: JsonValue) -> JsonValue:
        if not isinstance(value, dict):
            return value
        return fields_alone(objects.AgentExtension, value, {}, self._note)

    def _requirement(self, value: JsonValue) -> JsonValue:
        """A requirement whose scopes may be written as a plain list, or be null."""
        schemes = value.get("schemes", value) if isinstance(value, dict) else None
        if not isinstance(schemes, dict):
            return value
        return {
            "schemes": {
                name: scopes
                if isinstance(scopes, dict)
                else {"list": scopes if isinstance(scopes, list) else []}
                for name, scopes in schemes.items()
            }
        }

    def _schemes(self, value: JsonValue) -> JsonValue:
        if not isinstance(value, dict):
            return None
        return {name: scheme for name, scheme in value.items() if isinstance(scheme, dict)}

    def _each(self, value: JsonValue, word: str, read: Callable[[JsonValue], JsonValue]) -> JsonValue:
        """The items of a list that can be read."""
        readable: list[JsonValue] = []
        for number, item in enumerate(value if isinstance(value, list) else [value]):
            mended = read(item)
            if word == _NEEDED or (mended is not None and _KINDS[word](mended)):
                readable.append(mended)  # a needed field that cannot be read makes the card invalid
            else:
                self._add(f"{word} {number + 1} cannot be used and is left out: {shortened_json(item)}")
        return readable

    def _note(self, name: str, value: JsonValue) -> None:
        self._add(f"{name} cannot be read and is left out: {shortened_json(value)}")

    def _add(self, words: str) -> None:
        if len(self.out) < _MOST_NOTES:
            self.out.append(words)


def _is(model: type[objects.Model]) -> Callable[[JsonValue], bool]:
    def is_one(value: JsonValue) -> bool:
        try:
            model.model_validate(value)
        except ValidationError:
            return False
        return True

    return is_one


_KINDS: Final[Mapping[str, Callable[[JsonValue], bool]]] = {
    "interface": _is(_InterfaceAsRead),
    "skill": _is(_SkillAsRead),
    "extension": _is(objects.AgentExtension),
}
