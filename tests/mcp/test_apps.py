"""Who a tool is for, and whether a client shows MCP Apps."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.mcp.apps import DECLARED, EXTENSION, is_for_app, is_for_model, shows_apps

pytestmark = pytest.mark.proves("map-apps")

UNLIMITED: list[Any] = [
    {},
    {"_meta": None},
    {"_meta": {}},
    {"_meta": {"ui": "x"}},
    {"_meta": {"ui": {}}},
    *(
        {"_meta": {"ui": {"visibility": value}}}
        for value in (None, 7, {}, ["model", "app"], ["app", 1, "model"])
    ),
]


@pytest.mark.parametrize("tool", UNLIMITED)
def test_a_tool_without_visibility_is_for_everyone(tool: Any) -> None:
    assert is_for_model(tool)
    assert is_for_app(tool)


@pytest.mark.parametrize(
    ("visibility", "model", "app"),
    [
        (["model"], True, False),
        (["app"], False, True),
        ("app", False, True),
        ("model", True, False),
        ([], False, False),
        (["other", 1, None], False, False),
    ],
)
def test_a_limited_tool_is_for_those_whom_its_server_names(
    visibility: Any, *, model: bool, app: bool
) -> None:
    tool: Any = {"_meta": {"ui": {"visibility": visibility}}}
    assert (is_for_model(tool), is_for_app(tool)) == (model, app)


@pytest.mark.parametrize(
    "extensions",
    [
        None,
        {},
        {EXTENSION: {}},
        {EXTENSION: None},
        {EXTENSION: {"mimeTypes": "text/html;profile=mcp-app"}},
        {EXTENSION: {"mimeTypes": ["text/html"]}},
    ],
)
def test_a_client_that_names_no_media_type_of_apps_shows_none(extensions: Any) -> None:
    assert not shows_apps(extensions)
    assert shows_apps(DECLARED)
