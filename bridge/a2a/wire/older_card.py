"""Cards of 0.3 and before, and merged cards, which clients of 0.3 and of 1.0 can read. Pure.

A merged card is a card of 1.0 with the fields of 0.3 added: a reader ignores fields that it does not know. If both
versions have a field, such as the security schemes, its value has the keys of both.

Spec: A2A 0.3.0 sections 5.5 and 5.6; A2A 1.0 sections 4.4 and 4.5.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from pydantic import JsonValue

from bridge.a2a.model.objects import JSONRPC, AgentCard, AgentInterface, SecurityRequirement
from bridge.text.jsonvalues import JsonObject

_SCHEMES: Final[Mapping[str, str]] = {
    "apiKey": "apiKeySecurityScheme",
    "http": "httpAuthSecurityScheme",
    "oauth2": "oauth2SecurityScheme",
    "openIdConnect": "openIdConnectSecurityScheme",
    "mutualTLS": "mtlsSecurityScheme",
}
"""The kinds of schemes: the `type` in OpenAPI and 0.3, and the wrapper in 1.0."""
_FIRST_NAMES: Final[Mapping[str, str]] = {
    "apiKey": "ApiKey",
    "oauth2": "OAuth2",
    "openIdConnect": "OpenIdConnect",
    "mutualTLS": "MutualTLS",
}
"""The names of the kinds of schemes in the first generation. HTTP schemes have the names of their HTTP scheme."""
_OF_0_2: Final = frozenset(
    {
        *("security", "securitySchemes", "preferredTransport", "additionalInterfaces"),
        *("supportsAuthenticatedExtendedCard", "iconUrl"),
    }
)
"""Fields of a card that the first generation does not have."""
_TYPES: Final = {wrapper: kind for kind, wrapper in _SCHEMES.items()}
_VERSIONS: Final = re.compile(r"0\.[23](\.\d+)*")
"""The versions whose messages are written as in 0.3."""


def is_of_0_3(card: JsonObject) -> bool:
    """Whether a card is of 0.3 or 0.2: it has a top-level URL, and either names one of these versions, or names none
    and has a field that 0.2 introduced."""
    if not _names_url(card):
        return False
    if version := card.get("protocolVersion"):
        return bool(_VERSIONS.fullmatch(str(version)))
    return "authentication" not in card and not _OF_0_2.isdisjoint(card)


def is_of_first(card: JsonObject) -> bool:
    """Whether a card is of the first generation: it has a top-level URL, no version, and the field `authentication`."""
    return says_no_version(card) and "authentication" in card


def says_no_version(card: JsonObject) -> bool:
    """Whether a card from before 1.0 does not name its version."""
    return _names_url(card) and not card.get("protocolVersion")


def misnames_version(card: JsonObject) -> bool:
    """Whether a card names a version that contradicts its form: for example 1.0, with a top-level URL as before 1.0."""
    return _names_url(card) and bool(card.get("protocolVersion")) and not is_of_0_3(card)


def is_json_rpc(card: JsonObject) -> bool:
    """Whether the URL on a card from before 1.0 is for JSON-RPC."""
    return (card.get("preferredTransport") or JSONRPC) == JSONRPC


def _names_url(card: JsonObject) -> bool:
    return not card.get("supportedInterfaces") and isinstance(card.get("url"), str)


def with_authentication(card: AgentCard) -> AgentCard:
    """The card with the field `authentication` of the first generation: the names of its security schemes."""
    kinds = [_flat(scheme) for scheme in (card.security_schemes or {}).values()]
    names = [
        str(scheme["scheme"]).capitalize() if scheme["type"] == "http" else _FIRST_NAMES[str(scheme["type"])]
        for scheme in kinds
        if scheme
    ]
    if not names or "authentication" in (card.model_extra or {}):
        return card
    return card.model_copy(update={"authentication": {"schemes": [*dict.fromkeys(names)]}})


def read_first(card: JsonObject, version: str) -> JsonObject:
    """A card of the first generation in the form of 1.0. Fields that 1.0 does not have stay in it."""
    present: JsonObject = {name: item for name, item in card.items() if item is not None}
    interface: JsonObject = {
        "url": card["url"],
        "protocolBinding": JSONRPC,
        "protocolVersion": version,
    }
    converted: JsonObject = {"capabilities": {}, **present, "supportedInterfaces": [interface]}
    named = _object(present.get("authentication")).get("schemes")
    schemes = [str(name).lower() for name in named] if isinstance(named, list) else []
    if names := [name for name in schemes if name in ("bearer", "basic")]:
        converted["securitySchemes"] = {name: {"httpAuthSecurityScheme": {"scheme": name}} for name in names}
        converted["securityRequirements"] = [{"schemes": {name: {"list": []}}} for name in names]
    return converted


def merged(card: AgentCard, version: str, bindings: Sequence[str]) -> AgentCard:
    """The card with the fields of an older version. The interfaces of that version are the card's first interface for
    each of these bindings. An interface with a tenant is left out, because older versions have no tenants."""
    known = {
        interface.protocol_binding: interface.url
        for interface in reversed(card.supported_interfaces)
        if not interface.tenant
    }
    urls = {binding: known[binding] for binding in bindings if binding in known}
    if not urls:
        return card
    older = tuple(
        AgentInterface(url=url, protocol_binding=binding, protocol_version=version)
        for binding, url in urls.items()
    )
    extra = dict(card.model_extra or {})
    transports = extra.get("additionalInterfaces", [])
    interfaces = [*(transports if isinstance(transports, list) else ()), *map(_transport, older)]
    top: JsonObject = {
        "url": older[0].url,
        "preferredTransport": older[0].protocol_binding,
        "protocolVersion": version,
        "supportsAuthenticatedExtendedCard": bool(card.capabilities.extended_agent_card),
    }
    update = {
        **top,
        **extra,
        "additionalInterfaces": interfaces,
        "supported_interfaces": (*card.supported_interfaces, *older),
    }
    return card.model_copy(update={**update, **_security(card)})


def read(card: JsonObject, version: str) -> JsonObject:
    """A card of 0.3 in the form of 1.0. Fields that 1.0 does not have stay in it."""
    preferred: JsonObject = {"url": card["url"], "transport": card.get("preferredTransport") or JSONRPC}
    interfaces: list[JsonValue] = []
    for interface in [preferred, *_several(card.get("additionalInterfaces"))]:
        transport = _interface(interface, version)
        if transport not in interfaces:
            interfaces.append(transport)
    present: JsonObject = {name: item for name, item in card.items() if item is not None}
    converted: JsonObject = {**present, "supportedInterfaces": interfaces, **_requirements(present)}
    if present.get("supportsAuthenticatedExtendedCard") is True and isinstance(
        present.get("capabilities"), dict
    ):
        converted["capabilities"] = {**_object(present["capabilities"]), "extendedAgentCard": True}
    if isinstance(schemes := present.get("securitySchemes"), dict):
        converted["securitySchemes"] = {
            name: _wrapped(scheme) if isinstance(scheme, dict) else scheme for name, scheme in schemes.items()
        }
    if isinstance(skills := present.get("skills"), list):
        converted["skills"] = [
            {**skill, **_requirements(skill)} if isinstance(skill, dict) else skill for skill in skills
        ]
    return converted


def _several(value: JsonValue) -> list[JsonValue]:
    """The items of a list that may be absent. Another value counts as an item, so that the strict reader refuses it."""
    return value if isinstance(value, list) else [] if value is None else [value]


def _interface(value: JsonValue, version: str) -> JsonValue:
    """An interface on a card of 0.3, in the form of 1.0."""
    if not isinstance(value, dict):
        return value
    return {
        "url": value.get("url"),
        "protocolBinding": value.get("transport"),
        "protocolVersion": version,
    }


def _transport(interface: AgentInterface) -> JsonObject:
    return {"url": interface.url, "transport": interface.protocol_binding}


def _security(card: AgentCard) -> dict[str, object]:
    """The security fields of a merged card."""
    skills = tuple(
        skill.model_copy(update={"security": _flat_requirements(skill.security_requirements)})
        if skill.security_requirements
        else skill
        for skill in card.skills
    )
    fields: dict[str, object] = {"skills": skills}
    if card.security_schemes:
        fields["security_schemes"] = {
            name: {**scheme, **_flat(scheme)} for name, scheme in card.security_schemes.items()
        }
    if card.security_requirements:
        fields["security"] = _flat_requirements(card.security_requirements)
    return fields


def _flat(scheme: JsonObject) -> JsonObject:
    """A scheme of 1.0 in the form of OpenAPI."""
    for wrapper, kind in _TYPES.items():
        if isinstance(inner := scheme.get(wrapper), dict):
            rest = {name: item for name, item in inner.items() if name != "location"}
            return {"type": kind, **rest, **({"in": inner["location"]} if "location" in inner else {})}
    return {}


def _wrapped(scheme: JsonObject) -> JsonObject:
    """The reverse of `_flat`. A scheme of an unknown kind is returned unchanged."""
    wrapper = _SCHEMES.get(str(scheme.get("type")))
    if wrapper is None:
        return scheme
    inner = {name: item for name, item in scheme.items() if name not in ("type", "in") and item is not None}
    return {wrapper: {**inner, **({"location": scheme["in"]} if "in" in scheme else {})}}


def _flat_requirements(requirements: Sequence[SecurityRequirement] | None) -> list[JsonValue]:
    return [
        {name: scopes.get("list", []) for name, scopes in requirement.schemes.items()}
        for requirement in requirements or ()
    ]


def _requirements(value: JsonObject) -> JsonObject:
    """The `security` of a card or a skill in the form of 1.0."""
    security = value.get("security")
    if security is None:
        return {}
    return {
        "securityRequirements": [
            {"schemes": {name: {"list": scopes} for name, scopes in requirement.items()}}
            if isinstance(requirement, dict)
            else requirement
            for requirement in _several(security)
        ]
    }


def _object(value: JsonValue) -> JsonObject:
    return value if isinstance(value, dict) else {}
