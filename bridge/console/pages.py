"""Renders pages as HTML or JSON. A page is one JSON value, and its template shows only that value.

Texts of peers stay text: templates escape markup, and hidden characters become visible escapes. Only this module
imports the package of the extra `console`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from pydantic import JsonValue
from starlette.responses import Response

from bridge.a2a.model.objects import milliseconds
from bridge.console.console_access import Visit
from bridge.console.paths import path_of
from bridge.errors import UsageError
from bridge.local.installation import adding_extra
from bridge.text.jsonvalues import JsonObject
from bridge.text.safe_text import with_visible_characters
from bridge.version import __version__

try:
    import jinja2
except ImportError as exc:
    raise UsageError(f"`console` in [bridge] needs Jinja2: {adding_extra('console')}") from exc

_HERE: Final = Path(__file__).parent

POLICY: Final = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "media-src 'self' data:",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ]
)
"""The content security policy: a page loads and runs files of the bridge only, and no script turns text into markup."""

HEADERS: Final[Mapping[str, str]] = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

_LONG_TEXT: Final = 400
"""The most characters of a text in raw JSON on a page."""

STATIC: Final[Mapping[str, str]] = {"console.css": "text/css", "console.js": "text/javascript"}
"""The files that pages load, and their media types."""

NAVIGATION: Final = (
    ("", "Overview"),
    ("/tasks", "Tasks"),
    ("/answer", "Answer"),
    ("/try", "Try"),
    ("/mapping", "Mapping"),
)
FOR_OPERATORS: Final = (
    ("/configuration", "Configuration"),
    ("/people", "People"),
)
"""Pages for operators only. Menus of other visitors leave them out."""


def page_response(visit: Visit, template: str, told: JsonObject, status: int = 200) -> Response:
    """A page as HTML, or as JSON if the browser asks for JSON."""
    if visit.wants_json:
        return json_response(told, status)
    around = {
        "root": visit.root,
        "csrf": visit.session.csrf,
        "path": visit.path,
        "who": None if visit.principal is None else visit.principal.name,
        "is_open": visit.is_open,
        "navigation": _navigation_for(visit),
        "version": __version__,
        "marks": {name: _mark(name) for name in STATIC},
    }
    text = _environment().get_template(template).render(**around, told=told)
    return Response(text, status, dict(HEADERS), "text/html; charset=utf-8")


def _navigation_for(visit: Visit) -> Sequence[tuple[str, str]]:
    is_operator = visit.principal is not None and visit.reads_all
    return (*NAVIGATION, *FOR_OPERATORS) if is_operator else NAVIGATION


def json_response(told: JsonObject, status: int = 200) -> Response:
    """A JSON value as a response."""
    return Response(json.dumps(told, ensure_ascii=False), status, dict(HEADERS), "application/json")


def static_response(name: str) -> Response:
    """A file that pages load. Its URL contains its hash, so a browser may cache it."""
    headers = {**HEADERS, "Cache-Control": "private, max-age=86400"}
    return Response(_file(name), 200, headers, f"{STATIC[name]}; charset=utf-8")


@cache
def _file(name: str) -> bytes:
    return (_HERE / "static" / name).read_bytes()


@cache
def _mark(name: str) -> str:
    return hashlib.sha256(_file(name)).hexdigest()[:12]


@cache
def _environment() -> jinja2.Environment:
    found = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_visible,
    )
    found.filters["pretty"] = lambda value: json.dumps(_shortened(value), indent=2, ensure_ascii=False)
    found.filters["path"] = lambda segments: path_of(*segments)
    found.filters["minute"] = _minute
    found.filters["state"] = lambda word: word.replace("_", " ")
    found.filters["span"] = span_words
    found.filters["count"] = lambda number, noun: f"{number} {noun}{'' if number == 1 else 's'}"
    return found


def _shortened(value: JsonValue) -> JsonValue:
    """A value with its long texts cut. The JSON of the page has the whole texts."""
    if isinstance(value, dict):
        return {key: _shortened(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_shortened(inner) for inner in value]
    if isinstance(value, str) and len(value) > _LONG_TEXT:
        return f"{value[:_LONG_TEXT]} … ({len(value)} characters)"
    return value


def _visible(value: Any) -> Any:
    """A value in a template: hidden characters of a text become visible, and our own markup stays."""
    return with_visible_characters(value) if type(value) is str else value


def span_words(milliseconds: int) -> str:
    """A duration for a person: `0.4 s`, `12 s`, `3 min 5 s`, `2 h 10 min`, `3 d 4 h`."""
    seconds = milliseconds / 1000
    if seconds < 10:
        return f"{seconds:.1f} s"
    for size, noun, smaller, less in _SPANS:
        if seconds >= size:
            rest = int(seconds % size // smaller)
            return f"{int(seconds // size)} {noun}{f' {rest} {less}' if rest else ''}"
    return f"{int(seconds)} s"


_SPANS: Final = ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s"))
"""Units of a duration in seconds, each with the next smaller unit."""


def _minute(text: str) -> str:
    """A timestamp for a person, in UTC. The page also has the exact timestamp."""
    milliseconds(text)
    return text[:16].replace("T", " ")
