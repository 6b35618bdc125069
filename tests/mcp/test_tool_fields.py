"""The fields of a tool, each of a wrong type."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.mcp.tools import tools_from

pytestmark = pytest.mark.proves("mcp-odd")

TOOL: dict[str, Any] = {"name": "t", "inputSchema": {"type": "object"}}
ICON = {"src": "https://a/i.png"}

WRONG: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"title": 5}, {}, "its title is left out: 5 is not a text"),
    ({"description": ["a"]}, {}, 'its description is left out: ["a"] is not a text'),
    ({"annotations": "none"}, {}, 'its annotations is left out: "none" is not an object'),
    ({"_meta": [1]}, {}, "its _meta is left out"),
    ({"outputSchema": True}, {}, "its outputSchema is left out"),
    ({"execution": "no"}, {}, "its execution is left out"),
    ({"icons": ICON}, {}, "its icons is left out"),
    (
        {"icons": [ICON, "x", {"src": 5}]},
        {"icons": [ICON]},
        "its icons[1] is left out: it is not an object with a src",
    ),
    ({"icons": [{**ICON, "sizes": "48x48"}]}, {"icons": [ICON]}, "its icons[0].sizes is left out"),
    ({"icons": [{**ICON, "theme": "blue"}]}, {"icons": [ICON]}, "its icons[0].theme is left out"),
    (
        {"annotations": {"readOnlyHint": "true", "destructiveHint": False}},
        {"annotations": {"destructiveHint": False}},
        'its annotations.readOnlyHint is left out: "true" is not true or false',
    ),
]


@pytest.mark.parametrize(("wrong", "kept", "words"), WRONG)
def test_a_field_of_a_wrong_type_is_left_out_and_named_and_the_tool_stays(
    wrong: dict[str, Any], kept: dict[str, Any], words: str
) -> None:
    (tool,), left_out = tools_from([{**TOOL, **wrong}])
    assert left_out == ()
    assert tool.listed == {**TOOL, **kept}
    assert tool.odd[0].startswith(words)


@pytest.mark.parametrize(
    "field", ["title", "description", "annotations", "_meta", "icons", "outputSchema", "execution"]
)
def test_a_field_that_is_null_is_absent_and_nothing_is_said_of_it(field: str) -> None:
    (tool,), _ = tools_from([{**TOOL, field: None}])
    assert (tool.listed, tool.odd) == (TOOL, ())
    (tool,), _ = tools_from([{**TOOL, "annotations": {"title": None, "readOnlyHint": True}}])
    assert (tool.listed["annotations"], tool.odd) == ({"readOnlyHint": True}, ())
