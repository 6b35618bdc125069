"""How much of a text is read for messages: what one text holds must not hold up all others."""

from __future__ import annotations

import pytest
from mcp.shared.message import SessionMessage

from bridge.mcp.messages import UnreadableError, messages_in
from bridge.text.jsonvalues import DEFAULT_MAX_VALUES, holds_more_values

ANSWER = b'{"jsonrpc":"2.0","id":7,"result":{}}'

pytestmark = pytest.mark.proves("mcp-odd")


@pytest.mark.parametrize("text", [b"1 " * 200_000, b"[" + b"1," * 200_000 + b"1]", b"[]\n" * 200_000])
def test_a_text_of_many_values_is_read_no_further_than_a_bound(text: bytes) -> None:
    assert not holds_more_values(text, 2 * DEFAULT_MAX_VALUES)
    first, *others = messages_in(ANSWER + text)
    assert isinstance(first, SessionMessage)
    assert len(others) <= 1000
    assert all(isinstance(one, UnreadableError) for one in others)


def test_a_batch_is_read_as_far_as_its_bound_and_the_rest_is_told_of() -> None:
    whole = messages_in(b"[" + b",".join([ANSWER] * 1000) + b"]")
    assert [type(one) for one in whole] == [SessionMessage] * 1000
    *read, rest = messages_in(b"[" + b",".join([ANSWER] * 1001) + b"]")
    assert [type(one) for one in read] == [SessionMessage] * 1000
    assert str(rest) == "it holds more than 1000 messages"
