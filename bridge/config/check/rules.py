"""What one key of the file means for another. Pure: it looks at the file as it was read, and never repeats a secret.

It works on plain values, of which any may be of the wrong type: that is said elsewhere, and what is of another
type than expected is passed over here. So all that is wrong with a file is found at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from bridge.config.check.override_rules import override_faults
from bridge.config.check.source_rules import source_faults
from bridge.config.text.document import Fault
from bridge.config.text.positions import KeyPath
from bridge.config.text.secret_values import HOW_TO_REFER
from bridge.config.text.secrets import is_secret_header
from bridge.config.text.wording import listed, title


@dataclass(frozen=True)
class Choice:
    """Keys of a table of which one has to be there."""

    path: KeyPath
    """Of the table; `*` stands for any name and any element."""
    keys: tuple[str, ...]
    only_one: bool = True


CHOICES: Final = (
    Choice(("bridge", "keys", "*"), ("file", "env")),
    Choice(("tool_servers", "*"), ("command", "url")),
    Choice(("tool_servers", "*", "auth"), ("bearer", "api_key")),
    Choice(("agents", "*", "auth"), ("bearer", "api_key"), only_one=False),
    Choice(("catalogs", "*", "auth"), ("bearer", "api_key")),
    Choice(("principals", "*"), ("bearer", "api_key"), only_one=False),
)

_GOES_WITH: Final = {"env": "command", "cwd": "command", "headers": "url", "auth": "url"}
"""Keys of a tool server that say nothing about one that is reached the other way."""

_INSTEAD: Final = {"env": "write `headers` or `auth`", "headers": "write `env`", "auth": "write `env`"}


_SETTINGS: Final = {"env": "variables", "headers": "headers"}
"""Tables of which each entry may be a secret."""


def rule_faults(data: Mapping[str, Any], imported: frozenset[str] | None = frozenset()) -> Iterator[Fault]:
    """All that is wrong between the keys of a file; `imported` are tool servers that come from elsewhere, None when
    they are not known."""
    for choice in CHOICES:
        yield from _choice_faults(data, choice)
    for path, table in tables_at(data, ("tool_servers", "*")):
        yield from _misplaced(path, table)
    for section in ("tool_servers", "agents", "catalogs"):
        for path, table in tables_at(data, (section, "*")):
            yield from _header_faults(path, table)
            yield from _reference_faults(path, table)
    yield from source_faults(data, imported)
    for section in ("tools_as_agent", "agents_as_tools"):
        for path, face in tables_at(data, (section, "*")):
            yield from override_faults(path, face)


def tables_at(data: Mapping[str, Any], pattern: KeyPath) -> Iterator[tuple[KeyPath, dict[str, Any]]]:
    """The tables at a path in which `*` stands for any name and any element."""
    found: list[tuple[KeyPath, Any]] = [((), data)]
    for step in pattern:
        found = [((*path, name), inner) for path, value in found for name, inner in _inner(value, step)]
    yield from ((path, value) for path, value in found if isinstance(value, dict))


def _inner(value: object, step: str | int) -> Iterable[tuple[str | int, object]]:
    if isinstance(value, list):
        return enumerate(value) if step == "*" else ()
    if not isinstance(value, dict):
        return ()
    return value.items() if step == "*" else [(step, value[step])] if step in value else ()


def _choice_faults(data: Mapping[str, Any], choice: Choice) -> Iterator[Fault]:
    for path, table in tables_at(data, choice.path):
        there = [key for key in choice.keys if key in table]
        if len(there) > 1 and choice.only_one:
            message = f"{title(path)} has both `{there[0]}` and `{there[1]}`"
            yield Fault((*path, there[1]), message, "keep one of them", on_key=True)
        elif not there:
            either = listed(f"`{key}`" for key in choice.keys)
            yield Fault(path, f"{title(path)} needs {either}", on_key=True, missing=choice.keys[0])


def _misplaced(path: KeyPath, table: Mapping[str, Any]) -> Iterator[Fault]:
    for key, companion in _GOES_WITH.items():
        other = "url" if companion == "command" else "command"
        if key in table and companion not in table and other in table:
            message = f"`{key}` is for a `{companion}`, and {title(path)} has a `{other}`"
            yield Fault((*path, key), message, _INSTEAD.get(key, ""), on_key=True)


def _header_faults(path: KeyPath, table: Mapping[str, Any]) -> Iterator[Fault]:
    """Secrets in plain, and headers that are said twice: case does not tell them apart."""
    headers = table.get("headers")
    named: dict[str, str] = {}
    for header in _headers_of_auth(table.get("auth")):
        named[header.lower()] = "`auth`"
    for header, value in headers.items() if isinstance(headers, dict) else ():
        where = (*path, "headers", header)
        if isinstance(value, str) and is_secret_header(header):
            yield Fault(
                where,
                f"`{header}` is a secret: it does not stand in the file in plain",
                f"write {HOW_TO_REFER}",
            )
        if header.lower() in named:
            message = f"the header {header} is there twice: {named[header.lower()]} sets it too"
            yield Fault(where, message, on_key=True)
        named.setdefault(header.lower(), f"`{header}`")


def _reference_faults(path: KeyPath, table: Mapping[str, Any]) -> Iterator[Fault]:
    """A reference where a table of them belongs, which would else be one setting, called `env` or `file`."""
    for key, named in _SETTINGS.items():
        match table.get(key):
            case {"env": str(), **rest} | {"file": str(), **rest} if not rest:
                message = f"`{key}` is a table of {named}, and this is where one of them is"
                yield Fault((*path, key), message, f'write {key} = {{ NAME = {{ env = "VARIABLE" }} }}')


def _headers_of_auth(auth: object) -> Iterator[str]:
    match auth:
        case {"bearer": _}:
            yield "Authorization"
        case {"api_key": {"header": str(header)}}:
            yield header
