"""The bytes of a card that are signed: as the specification writes them, and as a2a-sdk does."""

from __future__ import annotations

import json
from typing import Any

import pytest
import rfc8785
from a2a.client.card_resolver import parse_agent_card
from a2a.utils.signing import _canonicalize_agent_card
from hypothesis import given
from hypothesis import strategies as st

from bridge.a2a.wire.canonical_card import (
    CARD_DEPTH,
    CardForm,
    NotCanonicalError,
    canonical_bytes,
    covered,
    outside,
)
from tests.support.signed_cards import CARD

pytestmark = pytest.mark.proves("a2a-8.4.1-canonical")


def canonical(card: Any, form: CardForm, *, literal: bool = False) -> Any:
    """A canonical form, read again."""
    return json.loads(canonical_bytes(covered(card, form, literal=literal)))


def test_the_example_of_the_specification_has_its_canonical_form() -> None:
    fragment: Any = {
        "name": "Example Agent",
        "description": "",
        "capabilities": {"streaming": False, "pushNotifications": False, "extensions": []},
        "skills": [],
    }
    assert (
        canonical_bytes(covered(fragment, CardForm.STRICT, literal=True))
        == b'{"capabilities":{"pushNotifications":false,"streaming":false},"description":"",'
        b'"name":"Example Agent","skills":[]}'
    )


def test_the_strict_form_keeps_required_fields_and_fields_with_explicit_presence() -> None:
    [first, second] = CARD["skills"]
    assert canonical({**CARD, "iconUrl": "", "provider": None, "url": "x"}, CardForm.STRICT) == {
        **CARD,
        "iconUrl": "",
        "capabilities": {
            **CARD["capabilities"],
            "extensions": [
                {
                    "uri": "urn:x",
                    "params": {
                        **CARD["capabilities"]["extensions"][0]["params"],
                        "n": 1,
                        "big": 1152921504606847000,
                    },
                }
            ],
        },
        "securityRequirements": [{"schemes": {"bearer": {}}}, {"schemes": {"oauth": {"list": ["read"]}}}],
        "skills": [{name: one for name, one in first.items() if name != "examples"}, second],
    }


def test_a_required_absent_field_gets_the_empty_value_of_protocol_buffers() -> None:
    bare = {name: one for name, one in CARD.items() if name != "description"}
    assert canonical(bare, CardForm.STRICT) == canonical(CARD, CardForm.STRICT)
    assert "description" not in canonical(bare, CardForm.STRICT, literal=True)


def test_a_literal_reading_keeps_fields_of_other_versions() -> None:
    merged = {**CARD, "url": "https://x", "skills": [{**CARD["skills"][1], "security": [{"a": []}]}]}
    read = canonical(merged, CardForm.STRICT, literal=True)
    assert (read["url"], read["skills"][0]["security"]) == ("https://x", [{"a": []}])
    assert "url" not in canonical(merged, CardForm.STRICT)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"iconUrl": ""},
        {"provider": {"url": "", "organization": ""}},
        {"signatures": [{"protected": "a", "signature": "b"}]},
        {"skills": [{"id": "a", "name": "", "description": "", "tags": [""]}]},
        {"securityRequirements": [{"schemes": {}}]},
        {"unknown": {"a": 1}},
        {"capabilities": {"extensions": [{"uri": "u", "params": {"x": [None, 0, False, 1.5, -0.0, 1e21]}}]}},
    ],
    ids=lambda changes: next(iter(changes), "as-it-is"),
)
def test_the_form_of_the_sdks_is_that_of_a2a_sdk_byte_for_byte(changes: dict[str, Any]) -> None:
    card = {**CARD, **changes}
    theirs = _canonicalize_agent_card(parse_agent_card(json.loads(json.dumps(card)))).encode()
    assert canonical_bytes(covered(card, CardForm.SDK)) == theirs


def test_fields_that_the_form_of_the_sdks_omits_are_named() -> None:
    assert list(outside({**CARD, "url": "x"}, covered(CARD, CardForm.SDK))) == [
        "url",
        "capabilities.extensions[0].params.none",
        "capabilities.extensions[0].params.deep",
        "securitySchemes.cert",
        "securitySchemes.oauth.oauth2SecurityScheme.flows.clientCredentials.scopes",
        "securityRequirements",
    ]
    assert list(outside(CARD, covered(CARD, CardForm.STRICT))) == []


def test_a_card_that_is_nested_too_deeply_or_not_unicode_has_no_form() -> None:
    deep: Any = "x"
    for _ in range(CARD_DEPTH):
        deep = [deep]
    with pytest.raises(NotCanonicalError, match="nested deeper than 64 levels"):
        covered({**CARD, "deep": deep}, CardForm.STRICT)
    with pytest.raises(NotCanonicalError, match="a value that RFC 8785 cannot represent"):
        canonical_bytes(covered({**CARD, "name": "\ud800"}, CardForm.STRICT))


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=4), JSON, max_size=4))
def test_the_bytes_are_those_of_rfc_8785_whatever_a_card_holds(value: Any) -> None:
    assert canonical_bytes(value) == rfc8785.dumps(with_doubles(value))


@given(st.dictionaries(st.text('\x00\x1f\x7f"\\/ab\n\t\u2028', max_size=3), st.text(max_size=9), max_size=5))
def test_texts_are_escaped_as_rfc_8785_has_it(value: Any) -> None:
    assert canonical_bytes(value) == rfc8785.dumps(value)


def with_doubles(value: Any) -> Any:
    """A value whose numbers are doubles, as those of protocol buffers are."""
    if isinstance(value, dict):
        return {name: with_doubles(one) for name, one in value.items()}
    if isinstance(value, list):
        return [with_doubles(one) for one in value]
    return value if isinstance(value, bool | str | None) else float(value)
