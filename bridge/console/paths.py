"""Paths below the console. A segment may be any name of a tool, with any characters.

The slashes of a name are quoted, so that the name stays one segment. A path that ends with `.json` asks for the JSON of
a page, so this ending of a name is quoted, too: `/try/devtools/export%2Ejson` is the page of the skill `export.json`,
and `/try/devtools/export.json` the JSON of the skill `export`.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote

from starlette.types import Scope

from bridge.assembly.plan import CONSOLE

JSON_ENDING: Final = ".json"
"""The ending of a path that asks for the JSON of a page."""


def path_of(*segments: str) -> str:
    """The path of these segments, quoted for a link."""
    return "".join(f"/{_quoted(segment)}" for segment in segments)


def segments_of(path: str) -> tuple[str, ...]:
    """The segments of a path, as names."""
    return tuple(unquote(segment) for segment in path.split("/")[1:])


def asked_path(scope: Scope) -> tuple[str, bool]:
    """The path of a request below the console, as `path_of` writes it, and whether its ending asks for JSON. Only GET
    and HEAD have such an ending."""
    raw: bytes | None = scope.get("raw_path")
    sent = (quote(scope["path"]) if raw is None else raw.decode("latin-1")).rstrip("/")
    is_json = sent.endswith(JSON_ENDING) and scope["method"] in ("GET", "HEAD")
    segments = segments_of(sent.removesuffix(JSON_ENDING) if is_json else sent)
    root = segments_of(f"{quote(scope.get('root_path', ''))}{CONSOLE}")
    is_below = segments[: len(root)] == root
    return path_of(*segments[len(root) if is_below else -1 :]), is_json


def _quoted(segment: str) -> str:
    quoted = quote(segment, safe="")
    if not quoted.endswith(JSON_ENDING):
        return quoted
    return f"{quoted.removesuffix(JSON_ENDING)}%2E{JSON_ENDING[1:]}"
