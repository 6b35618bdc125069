"""The canonical forms of an agent's card: the bytes that its signatures sign. Pure.

The strict form follows the specification: absent fields and defaults are left out, required and `optional` fields are
kept, and the rest is RFC 8785. The form of both SDKs leaves out all empty fields, even required fields. So it does not
cover a requirement without scopes, or a scheme without settings. Neither form covers fields that A2A 1.0 does not have,
such as the fields of 0.3 on a merged card. A signer that does not know protocol buffers keeps such fields in the strict
form, and adds no absent fields. This is the `literal` reading.

A number in `params` is a double, as in protocol buffers.

Spec: A2A 1.0 sections 8.4.1 and 5.7; `a2a.proto`; RFC 8785.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Literal

import rfc8785
from pydantic import JsonValue

from bridge.text.jsonvalues import JsonObject, is_deeper

CARD_DEPTH: Final = 64
"""The most levels of arrays and objects in a card that can be signed. The SDKs stop at a hundred."""

_EXACT: Final = 2**53 - 1
"""The largest integer below which every integer is a double."""


class CardForm(StrEnum):
    """The part of a card that a signature covers."""

    STRICT = "strict"
    """The form of section 8.4."""
    SDK = "sdk"
    """The strict form without empty fields, as in a2a-sdk and a2a-js."""


class NotCanonicalError(ValueError):
    """A card has no canonical form; `str()` says why."""


@dataclass(frozen=True, slots=True)
class _CardField:
    """A field of a message."""

    kind: Literal["value", "message", "messages", "map", "open"]
    """`value` is a value or several texts; `open` is any JSON."""
    of: str = ""
    """The name of the message."""
    default: JsonValue = None
    """The value of an absent field."""
    is_required: bool = False


def _required(default: JsonValue = "") -> _CardField:
    return _CardField("value", default=default, is_required=True)


def _several(of: str, *, is_required: bool = False) -> _CardField:
    return _CardField("messages", of, [], is_required)


_TEXT: Final = _CardField("value", default="")
_FLAG: Final = _CardField("value", default=False)
_TEXTS: Final = _CardField("value", default=[])
_OPTIONAL: Final = _CardField("value")
_SCOPES: Final = _CardField("value", default={})
_REQUIRED_SCOPES: Final = _required({})
_REQUIREMENTS: Final = _several("SecurityRequirement")

_MESSAGES: Final[Mapping[str, Mapping[str, _CardField]]] = {
    "AgentCard": {
        "name": _required(),
        "description": _required(),
        "supportedInterfaces": _several("AgentInterface", is_required=True),
        "provider": _CardField("message", "AgentProvider"),
        "version": _required(),
        "documentationUrl": _OPTIONAL,
        "capabilities": _CardField("message", "AgentCapabilities"),
        "securitySchemes": _CardField("map", "SecurityScheme", {}),
        "securityRequirements": _REQUIREMENTS,
        "defaultInputModes": _required([]),
        "defaultOutputModes": _required([]),
        "skills": _several("AgentSkill", is_required=True),
        "iconUrl": _OPTIONAL,
    },
    "AgentInterface": {
        "url": _required(),
        "protocolBinding": _required(),
        "tenant": _TEXT,
        "protocolVersion": _required(),
    },
    "AgentProvider": {"url": _required(), "organization": _required()},
    "AgentCapabilities": {
        "streaming": _OPTIONAL,
        "pushNotifications": _OPTIONAL,
        "extensions": _several("AgentExtension"),
        "extendedAgentCard": _OPTIONAL,
    },
    "AgentExtension": {"uri": _TEXT, "description": _TEXT, "required": _FLAG, "params": _CardField("open")},
    "AgentSkill": {
        "id": _required(),
        "name": _required(),
        "description": _required(),
        "tags": _required([]),
        "examples": _TEXTS,
        "inputModes": _TEXTS,
        "outputModes": _TEXTS,
        "securityRequirements": _REQUIREMENTS,
    },
    "SecurityRequirement": {"schemes": _CardField("map", "StringList", {})},
    "StringList": {"list": _TEXTS},
    "SecurityScheme": {
        "apiKeySecurityScheme": _CardField("message", "APIKeySecurityScheme"),
        "httpAuthSecurityScheme": _CardField("message", "HTTPAuthSecurityScheme"),
        "oauth2SecurityScheme": _CardField("message", "OAuth2SecurityScheme"),
        "openIdConnectSecurityScheme": _CardField("message", "OpenIdConnectSecurityScheme"),
        "mtlsSecurityScheme": _CardField("message", "MutualTlsSecurityScheme"),
    },
    "APIKeySecurityScheme": {"description": _TEXT, "location": _required(), "name": _required()},
    "HTTPAuthSecurityScheme": {"description": _TEXT, "scheme": _required(), "bearerFormat": _TEXT},
    "OAuth2SecurityScheme": {
        "description": _TEXT,
        "flows": _CardField("message", "OAuthFlows"),
        "oauth2MetadataUrl": _TEXT,
    },
    "OpenIdConnectSecurityScheme": {"description": _TEXT, "openIdConnectUrl": _required()},
    "MutualTlsSecurityScheme": {"description": _TEXT},
    "OAuthFlows": {
        "authorizationCode": _CardField("message", "AuthorizationCodeOAuthFlow"),
        "clientCredentials": _CardField("message", "ClientCredentialsOAuthFlow"),
        "implicit": _CardField("message", "ImplicitOAuthFlow"),
        "password": _CardField("message", "PasswordOAuthFlow"),
        "deviceCode": _CardField("message", "DeviceCodeOAuthFlow"),
    },
    "AuthorizationCodeOAuthFlow": {
        "authorizationUrl": _required(),
        "tokenUrl": _required(),
        "refreshUrl": _TEXT,
        "scopes": _REQUIRED_SCOPES,
        "pkceRequired": _FLAG,
    },
    "ClientCredentialsOAuthFlow": {
        "tokenUrl": _required(),
        "refreshUrl": _TEXT,
        "scopes": _REQUIRED_SCOPES,
    },
    "ImplicitOAuthFlow": {"authorizationUrl": _TEXT, "refreshUrl": _TEXT, "scopes": _SCOPES},
    "PasswordOAuthFlow": {"tokenUrl": _TEXT, "refreshUrl": _TEXT, "scopes": _SCOPES},
    "DeviceCodeOAuthFlow": {
        "deviceAuthorizationUrl": _required(),
        "tokenUrl": _required(),
        "refreshUrl": _TEXT,
        "scopes": _REQUIRED_SCOPES,
    },
}
"""The messages of a card, with their fields by name. A default stands for an absent field; a field without a default
distinguishes absent from empty."""


@dataclass(frozen=True, slots=True)
class CardProof:
    """A valid signature of a card."""

    key_id: str
    form: CardForm
    inside: JsonObject = field(repr=False)
    """The part of the card that the signature covers."""
    outside: tuple[str, ...] = ()
    """The paths of the card's unsigned content."""


def covered(card: JsonObject, form: CardForm, *, literal: bool = False) -> JsonObject:
    """The part of a card that a signature in this form covers. With `literal`, fields that A2A 1.0 does not have stay,
    and absent required fields are not added.

    Raises:
        NotCanonicalError: the card is nested too deeply.
    """
    if is_deeper(card, CARD_DEPTH):
        raise NotCanonicalError(f"it is nested deeper than {CARD_DEPTH} levels")
    unsigned = {name: value for name, value in card.items() if name != "signatures"}
    strict = _message(unsigned, _MESSAGES["AgentCard"], literal=literal)
    if form is CardForm.STRICT:
        return strict
    filled = _filled(strict)
    return filled if isinstance(filled, dict) else {}


def canonical_bytes(value: JsonObject) -> bytes:
    """The bytes that are signed, for the covered part of a card.

    Almost every card has names in ASCII and no fractions. For such a card, sorted JSON equals RFC 8785, and takes a
    fifth of the time.

    Raises:
        NotCanonicalError: a text is not valid Unicode, or a number is not a double.
    """
    try:
        if _is_plain(value):
            return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()
        return rfc8785.dumps(_with_doubles(value))
    except (rfc8785.CanonicalizationError, UnicodeEncodeError, OverflowError) as exc:
        raise NotCanonicalError("it holds a value that RFC 8785 cannot represent") from exc


def outside(card: JsonObject, inside: JsonObject) -> Iterator[str]:
    """Yield the paths of a card's content that is not covered, such as `skills[0].security`. Empty texts and lists do
    not count."""
    yield from _outside(covered(card, CardForm.STRICT, literal=True), inside, "")


def _message(value: JsonObject, fields: Mapping[str, _CardField], *, literal: bool) -> JsonObject:
    """A message without its absent fields, and without fields whose value means absent."""
    made: JsonObject = {
        name: item for name, item in value.items() if literal and name not in fields and item is not None
    }
    for name, member in fields.items():
        item = value.get(name)
        if item is None and not literal:
            item = member.default
        if item is None or (item == member.default and not member.is_required):
            continue
        made[name] = _value(item, member, literal=literal)
    return made


def _value(value: JsonValue, field: _CardField, *, literal: bool) -> JsonValue:
    """The value of a field. A value of another kind is left unchanged, so that the reader of the card refuses it."""

    def inner(item: JsonValue) -> JsonValue:
        if not isinstance(item, dict):
            return item
        return _message(item, _MESSAGES[field.of], literal=literal)

    match field.kind, value:
        case "message", dict():
            return inner(value)
        case "messages", list():
            return [inner(item) for item in value]
        case "map", dict():
            return {key: inner(item) for key, item in value.items()}
    return value


def _filled(value: JsonValue) -> JsonValue:
    """A value without empty parts; None if nothing is left."""
    if isinstance(value, dict):
        return {
            name: filled for name, inner in value.items() if (filled := _filled(inner)) is not None
        } or None
    if isinstance(value, list):
        return [filled for inner in value if (filled := _filled(inner)) is not None] or None
    return None if value == "" else value


def _is_plain(value: JsonValue) -> bool:
    """Whether the canonical form needs only sorting by code points and the digits of integers."""
    values = [value]
    for item in values:
        if isinstance(item, dict):
            if not all(map(str.isascii, item)):
                return False
            values.extend(item.values())
        elif isinstance(item, list):
            values.extend(item)
        elif isinstance(item, float) or (isinstance(item, int) and abs(item) > _EXACT):
            return False
    return True


def _with_doubles(value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        return {name: _with_doubles(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_with_doubles(item) for item in value]
    return float(value) if isinstance(value, int) and abs(value) > _EXACT else value


def _outside(value: JsonValue, inside: JsonValue, path: str) -> Iterator[str]:
    match value, inside:
        case dict(), dict():
            for name, item in value.items():
                where = f"{path}.{name}" if path else name
                if name in inside:
                    yield from _outside(item, inside[name], where)
                elif item not in ("", []):
                    yield where
        case list(), list() if len(value) == len(inside):
            for number, (item, other) in enumerate(zip(value, inside, strict=True)):
                yield from _outside(item, other, f"{path}[{number}]")
        case list(), list():
            yield path
