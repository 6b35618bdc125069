"""Cards of 0.3 as 1.0 has them, and cards of 1.0 that clients of 0.3 read, too."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from bridge.a2a.client.agent_card import card_from, found_card
from bridge.a2a.client.interfaces import interfaces_of
from bridge.a2a.model.objects import AgentCard
from bridge.a2a.wire.versions import VERSIONS
from bridge.errors import PeerError

OLD: Final[dict[str, Any]] = {
    "protocolVersion": "0.2.9",
    "name": "GeoSpatial Route Planner Agent",
    "description": "Provides advanced route planning.",
    "url": "https://georoute-agent.example.com/a2a/v1",
    "preferredTransport": "JSONRPC",
    "additionalInterfaces": [
        {"url": "https://georoute-agent.example.com/a2a/v1", "transport": "JSONRPC"},
        {"url": "https://georoute-agent.example.com/a2a/grpc", "transport": "GRPC"},
        {"url": "https://georoute-agent.example.com/a2a/json", "transport": "HTTP+JSON"},
    ],
    "provider": {"organization": "Example", "url": "https://www.example.com"},
    "version": "1.2.0",
    "capabilities": {"streaming": True, "pushNotifications": True, "stateTransitionHistory": False},
    "securitySchemes": {
        "google": {
            "type": "openIdConnect",
            "openIdConnectUrl": "https://accounts.google.com/.well-known/openid-configuration",
        },
        "key": {"type": "apiKey", "in": "header", "name": "X-Key", "description": "A key"},
    },
    "security": [{"google": ["openid", "profile"]}, {"key": []}],
    "defaultInputModes": ["application/json", "text/plain"],
    "defaultOutputModes": ["application/json"],
    "skills": [
        {
            "id": "route",
            "name": "Route",
            "description": "Plans",
            "tags": ["maps"],
            "security": [{"google": ["openid"]}],
        }
    ],
    "supportsAuthenticatedExtendedCard": True,
}
"""The card of A2A 0.3.0 section 5.7, shortened."""

BASE: Final = "https://agent.example.com"
NEW: Final[dict[str, Any]] = {
    "name": "New",
    "description": "Speaks both",
    "supportedInterfaces": [
        {"url": BASE, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
        {"url": BASE, "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"},
    ],
    "version": "1",
    "capabilities": {"streaming": True, "extendedAgentCard": False},
    "securitySchemes": {
        "bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}},
        "key": {"apiKeySecurityScheme": {"location": "query", "name": "key"}},
    },
    "securityRequirements": [{"schemes": {"bearer": {"list": ["a"]}}}, {"schemes": {"key": {}}}],
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [
        {
            "id": "s",
            "name": "S",
            "description": "d",
            "tags": ["t"],
            "securityRequirements": [{"schemes": {"key": {"list": []}}}],
        }
    ],
}


def read(**changes: Any) -> AgentCard:
    """The old card as a client reads it, with other fields; None leaves one out."""
    said = {name: value for name, value in {**OLD, **changes}.items() if value is not None}
    return card_from(json.dumps(said).encode(), "here")[0]


@pytest.mark.proves("a2a03-5.6.3-selected", "a2a03-6-objects")
def test_a_card_of_0_3_is_read_and_nothing_of_it_is_lost() -> None:
    card = read()
    assert card.to_object() == {
        **OLD,
        "supportedInterfaces": [
            {"url": f"https://georoute-agent.example.com/a2a/{path}", "protocolBinding": binding, **_OF_0_3}
            for path, binding in (("v1", "JSONRPC"), ("grpc", "GRPC"), ("json", "HTTP+JSON"))
        ],
        "capabilities": {**OLD["capabilities"], "extendedAgentCard": True},
        "securitySchemes": {
            "google": {
                "openIdConnectSecurityScheme": {
                    "openIdConnectUrl": "https://accounts.google.com/.well-known/openid-configuration"
                }
            },
            "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-Key", "description": "A key"}},
        },
        "securityRequirements": [
            {"schemes": {"google": {"list": ["openid", "profile"]}}},
            {"schemes": {"key": {"list": []}}},
        ],
        "skills": [
            {
                **OLD["skills"][0],
                "securityRequirements": [{"schemes": {"google": {"list": ["openid"]}}}],
            }
        ],
    }


_OF_0_3: Final = {"protocolVersion": "0.3"}


@pytest.mark.proves("a2a03-5.6.3-selected", "map-dialect")
def test_the_preferred_transport_comes_first_and_each_transport_has_its_url() -> None:
    spoken = interfaces_of(read(preferredTransport="HTTP+JSON", url=BASE))
    assert [(one.url, one.protocol_binding, dialect.version) for one, dialect in spoken] == [
        (BASE, "HTTP+JSON", "0.3"),
        ("https://georoute-agent.example.com/a2a/v1", "JSONRPC", "0.3"),
        ("https://georoute-agent.example.com/a2a/json", "HTTP+JSON", "0.3"),
    ]


@pytest.mark.proves("map-dialect")
@pytest.mark.parametrize("version", ["0.3.0", "0.3", "0.2.5", "0.2.6", None])
def test_an_older_card_without_a_transport_is_spoken_to_over_json_rpc(version: str | None) -> None:
    card = read(protocolVersion=version, preferredTransport=None, additionalInterfaces=None)
    [(interface, dialect)] = interfaces_of(card)
    assert (interface.url, interface.protocol_binding) == (OLD["url"], "JSONRPC")
    assert (dialect.version, dialect.bindings) == ("0.3", ("JSONRPC",))


@pytest.mark.proves("map-dialect", "map-agent-read-alone")
@pytest.mark.parametrize("version", ["0.1.0", "1.0", "1.0.0", "2"])
@pytest.mark.parametrize("newer", [{}, {"supportedInterfaces": []}, {"supportedInterfaces": None}])
def test_a_card_that_says_a_version_it_is_not_written_in_is_tried_at_its_url(
    version: str, newer: dict[str, Any]
) -> None:
    text = json.dumps({**OLD, "protocolVersion": version, **newer, "additionalInterfaces": None}).encode()
    for told, spoken in (
        ("", "0.3"),
        ("0.3", "0.3"),
        ("0.1", "1.0"),
        ("1.0", "1.0"),
    ):  # it knows the methods of 0.3, or not
        found = found_card("https://a.example/card.json", text, told)
        [(interface, dialect)] = interfaces_of(found.card)
        assert (interface.url, dialect.version) == (OLD["url"], spoken)
        assert found.is_open is (not told)
        [(_, chosen)] = interfaces_of(found.card, VERSIONS.chosen("1.0"))
        assert chosen.version == "1.0"


@pytest.mark.proves("a2a03-5.6-declared", "map-merged-card", "a2a01-5.1-card", "a2a01-5.5.3-no-secret")
def test_a_merged_card_is_one_of_1_0_with_all_that_0_3_asks_for() -> None:
    shown = VERSIONS.card(AgentCard.model_validate(NEW)).to_object()
    assert shown == {
        **NEW,
        "supportedInterfaces": [
            *NEW["supportedInterfaces"],
            {"url": BASE, "protocolBinding": "JSONRPC", "protocolVersion": "0.3"},
            {"url": BASE, "protocolBinding": "HTTP+JSON", "protocolVersion": "0.3"},
        ],
        "url": BASE,
        "preferredTransport": "JSONRPC",
        "protocolVersion": "0.3",
        "authentication": {"schemes": ["Bearer", "ApiKey"]},
        "additionalInterfaces": [
            {"url": BASE, "transport": "JSONRPC"},
            {"url": BASE, "transport": "HTTP+JSON"},
        ],
        "supportsAuthenticatedExtendedCard": False,
        "securitySchemes": {
            "bearer": {**NEW["securitySchemes"]["bearer"], "type": "http", "scheme": "Bearer"},
            "key": {**NEW["securitySchemes"]["key"], "type": "apiKey", "name": "key", "in": "query"},
        },
        "security": [{"bearer": ["a"]}, {"key": []}],
        "skills": [{**NEW["skills"][0], "security": [{"key": []}]}],
    }


@pytest.mark.proves("map-merged-card")
def test_a_card_is_of_1_0_only_if_configured() -> None:
    alone = VERSIONS.served(merges_cards=False, hermes=False)
    assert alone.card(AgentCard.model_validate(NEW)).to_object() == NEW
    assert alone.names == VERSIONS.names
    assert (alone.serves_older_card, VERSIONS.serves_older_card) == (False, True)


@pytest.mark.proves("map-dialect", "map-merged-card")
def test_a_merged_card_is_spoken_to_in_1_0_unless_told_otherwise() -> None:
    card = VERSIONS.card(AgentCard.model_validate(NEW))
    assert [dialect.version for _, dialect in interfaces_of(card)] == ["1.0", "1.0", "0.3", "0.3"]
    told = interfaces_of(card, VERSIONS.chosen("0.3"))
    assert [(one.protocol_binding, dialect.version) for one, dialect in told] == [
        ("JSONRPC", "0.3"),
        ("HTTP+JSON", "0.3"),
    ]
    assert VERSIONS.chosen("auto") is VERSIONS


@pytest.mark.proves("map-dialect")
def test_an_agent_whose_card_says_another_version_is_spoken_to_as_told() -> None:
    card = AgentCard.model_validate(NEW)
    spoken = interfaces_of(card, VERSIONS.chosen("0.3"))
    assert [(one.protocol_version, dialect.version, dialect.bindings) for one, dialect in spoken] == [
        ("1.0", "0.3", ("JSONRPC",)),
        ("1.0", "0.3", ("HTTP+JSON", "GRPC")),
    ]


@pytest.mark.proves("map-dialect")
@pytest.mark.parametrize(
    "changes",
    [
        {"security": [{"key": []}, "key"]},
        {"security": "key"},
    ],
    ids=str,
)
def test_a_requirement_that_cannot_be_read_stops_an_older_card(
    changes: dict[str, Any],
) -> None:
    with pytest.raises(PeerError, match="is not an agent card"):
        read(**changes)


@pytest.mark.proves("map-agent-read-alone")
@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"additionalInterfaces": ["x"]}, 'interface 2 cannot be used and is left out: "x"'),
        ({"additionalInterfaces": "x"}, 'interface 2 cannot be used and is left out: "x"'),
        ({"provider": {"organization": "x"}}, "provider cannot be read"),
        ({"signatures": [{"signature": 5}]}, "signatures cannot be read"),
        ({"skills": [*OLD["skills"], {"description": "d"}]}, "skill 2 cannot be used and is left out"),
    ],
    ids=str,
)
def test_a_faulty_dispensable_field_does_not_stop_an_older_card(changes: dict[str, Any], note: str) -> None:
    card, deviations = card_from(json.dumps({**OLD, **changes}).encode(), "here")
    assert any(one.startswith(note) for one in deviations), deviations
    assert [one.id for one in card.skills] == [one["id"] for one in OLD["skills"]]
    assert card.supported_interfaces[0].url == OLD["url"]
