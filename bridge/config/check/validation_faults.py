"""Turns pydantic's errors into messages in the terms of the file: what a key accepts, what it has, and what the user
probably meant.

A message repeats a value only if the value is a number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date, time
from difflib import get_close_matches
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from bridge.config.check.schema_nodes import SchemaNode, accepted_by, node_at, range_of
from bridge.config.text.document import ConfigFault
from bridge.config.text.positions import KeyPath
from bridge.config.text.wording import (
    HEADER_NAME,
    NAME,
    SCOPE_NAME,
    key_name,
    listed,
    meant,
    table_name,
    title,
)

_TAKES: Final = {
    "int_type": "a whole number",
    "float_type": "a number",
    "string_type": "a text",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
    "model_attributes_type": "a table",
}
_KINDS: Final = (
    (bool, "true or false"),
    (int, "a whole number"),
    (float, "a number"),
    (str, "a text"),
    (list, "a list"),
    (dict, "a table"),
    (date | time, "a date or time"),
)
"""The words for types of values. In Python `True` is a number, too, so the order matters."""

_EMPTY: Final = frozenset(("string_too_short", "too_short"))
_RANGE: Final = frozenset(("greater_than", "greater_than_equal", "less_than", "less_than_equal"))
_NAMES: Final = {
    NAME: "is not a table name: small letters, digits, - and _, at most 40, the first a letter or digit",
    HEADER_NAME: "is not a header name",
    SCOPE_NAME: "is not a scope: a scope is one word of ASCII, without quotation marks and backslashes",
}
_INSTEAD: Final = {
    **{
        (section, "oauth2"): (
            "`oauth2` belongs in the table `auth`",
            'write auth.oauth2 = { grant = "client_credentials", ... }',
        )
        for section in ("tool_servers", "agents", "catalogs")
    },
    ("bridge", "console_content"): (
        "unknown key `console_content`",
        "the key is `operators_see_contents` now: it counts with and without the console",
    ),
    ("tool_servers", "each_worker"): ("unknown key `each_worker`", "the key is `each_replica` now"),
    ("tool_servers", "args"): ("unknown key `args`", "write the arguments after the command, in its list"),
}
"""Keys that users expect from other programs, by table and key: the message, and what to write instead."""


def validation_faults_of(
    error: ValidationError, schema: SchemaNode, data: Mapping[str, Any], under: KeyPath = ()
) -> list[ConfigFault]:
    """The faults of a document, or of the table at `under` if only that was validated."""
    return [
        _fault({**detail, "loc": (*under, *detail["loc"])}, schema, data)
        for detail in error.errors(include_url=False)
    ]


def without_guesses(faults: Iterable[ConfigFault]) -> list[ConfigFault]:
    """Remove the faults of missing keys in a table with an unknown key: the unknown key is probably the missing key,
    misspelt."""
    listed = list(faults)
    tables = {fault.path[:-1] for fault in listed if fault.unknown}
    return [fault for fault in listed if not (fault.missing and fault.path in tables)]


def _fault(detail: ErrorDetails, schema: SchemaNode, data: Mapping[str, Any]) -> ConfigFault:
    kind, context = detail["type"], detail.get("ctx", {})
    path = _written(detail["loc"], data)
    name = key_name(path)
    if kind == "missing":
        return _missing(path, str(detail["loc"][-1]), schema)
    if kind == "extra_forbidden":
        return _unknown(path, detail["input"], schema)
    if detail["loc"][-1:] == ("[key]",):
        pattern = context.get("pattern")
        hint = f"write `{table_name(name)}`" if pattern == NAME and table_name(name) else ""
        named = f"`{name}`" if name else f"a name in {title(path[:-1])}"
        return ConfigFault(path, f"{named} {_NAMES.get(str(pattern), 'is empty')}", hint, on_key=True)
    if kind == "refused":
        return ConfigFault(path, context["message"].replace("{key}", name), context["hint"])
    if kind == "literal_error":
        return _not_among(path, detail["input"], schema)
    if kind in _RANGE:
        return ConfigFault(path, f"`{name}` takes {range_of(node_at(schema, path))}, not {detail['input']}")
    if kind in _EMPTY:
        return ConfigFault(path, f"`{name}` is empty")
    if kind == "invalid-json-value":
        return ConfigFault(path, f"`{name}` takes JSON values: no dates and times, no infinity")
    if kind == "finite_number":
        return ConfigFault(path, f"`{name}` takes a finite number")
    takes = _TAKES.get(kind)
    if takes is None:
        return ConfigFault(path, f"`{name}`: {detail['msg'][:1].lower()}{detail['msg'][1:]}")
    return ConfigFault(path, f"`{name}` takes {takes}, not {_kind(detail['input'])}")


def _written(loc: tuple[int | str, ...], data: Any) -> KeyPath:
    """The part of a path that the file has. Pydantic appends its own names."""
    path: KeyPath = ()
    for step in loc:
        there = step in data if isinstance(data, dict) else isinstance(data, list) and isinstance(step, int)
        if not there:
            break
        path, data = (*path, step), data[step]
    return path


def _missing(path: KeyPath, key: str, schema: SchemaNode) -> ConfigFault:
    meaning = node_at(schema, (*path, key)).get("description", "")
    return ConfigFault(path, f"{title(path)} needs `{key}`", meaning, on_key=True, missing=key)


def _unknown(path: KeyPath, value: object, schema: SchemaNode) -> ConfigFault:
    key = str(path[-1])
    message, hint = _INSTEAD.get((str(path[0]), key), ("", ""))
    if not message:
        known = node_at(schema, path[:-1]).get("properties", {})
        hint = meant(key, known)
        is_table = len(path) == 1 and isinstance(value, dict)
        message = f"unknown table [{key}]" if is_table else f"unknown key `{key}` in {title(path[:-1])}"
    return ConfigFault(path, message, hint, on_key=True, unknown=True)


def _not_among(path: KeyPath, value: object, schema: SchemaNode) -> ConfigFault:
    accepted = accepted_by(node_at(schema, path))
    takes = listed(f'"{word}"' for word in accepted)
    if not isinstance(value, str):
        return ConfigFault(path, f"`{key_name(path)}` takes {takes}, not {_kind(value)}")
    close = get_close_matches(value, accepted, n=1)
    hint = f'did you mean "{close[0]}"?' if close else ""
    return ConfigFault(path, f"`{key_name(path)}` takes {takes}", hint)


def _kind(value: object) -> str:
    return next((words for kind, words in _KINDS if isinstance(value, kind)), "what it has")
