"""Results of tools, as servers write them."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.mcp.messages import result_as_specified, state_of_result

pytestmark = pytest.mark.proves("mcp-odd")


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (True, True),
        (False, False),
        ("true", True),
        ("True", True),
        ("yes", True),
        ("failed", True),
        (1, True),
        ("false", False),
        ("False ", False),
        ("", False),
        (0, False),
        (None, False),
    ],
)
def test_an_error_is_an_error_however_the_server_writes_it(written: Any, read: bool) -> None:
    result = result_as_specified({"content": [], "isError": written})
    assert result == {"content": [], "isError": read}
    assert state_of_result(result) == ("failed" if read else "completed")


@pytest.mark.parametrize(
    ("given", "text"), [("x", "x"), ({"a": "é"}, '{"a": "é"}'), ([1], "[1]"), (None, "null")]
)
def test_the_result_of_the_first_version_of_mcp_keeps_its_content(given: Any, text: str) -> None:
    result = result_as_specified({"toolResult": given, "_meta": {"a": 1}})
    assert result == {"content": [{"type": "text", "text": text}], "_meta": {"a": 1}}


def test_a_result_as_it_is_specified_stays_the_object_that_it_is() -> None:
    for result in (
        {"content": []},
        {"content": [], "toolResult": 1},
        {"resultType": "task", "isError": True},
    ):
        assert result_as_specified(result) is result
