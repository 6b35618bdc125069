"""Edits the text of a configuration file, and changes nothing else in it. Pure.

The text is edited in place, so comments, the order of keys and line ends all stay. The new text is parsed and compared
with the intended configuration, so a text with another meaning is never written.
"""

from __future__ import annotations

import tomllib
from typing import Any

from bridge.config.text.positions import KeyPath, Span, locate
from bridge.errors import UsageError


def with_table(text: str, path: tuple[str, str], lines: list[str]) -> str:
    """The text with a new table of these lines at its end.

    Raises:
        UsageError: the table exists already, or TOML does not allow an addition to the section.
    """
    section, name = path
    before = _parsed(text)
    if name in before.get(section, {}):
        raise UsageError(f"there is a table [{section}.{name}] already")
    table = tomllib.loads("\n".join(lines))
    body = [f"[{section}.{name}]", *lines]
    end = "\r\n" if "\r\n" in text else "\n"
    gap = "" if not text.strip() else end if text.endswith("\n") else end * 2
    edited = f"{text}{gap}{end.join(body)}{end}"
    wanted = {**before, section: {**before.get(section, {}), name: table}}
    return _proved(
        edited, wanted, f"[{section}.{name}]", "write the section as tables, [" + section + ".NAME]"
    )


def with_another(text: str, table: KeyPath, value: str) -> str:
    """The text with a second token in the table. The `bearer`, or the only token in `tokens`, becomes the first of two
    `tokens`.

    Raises:
        UsageError: the table already has two tokens, or has none.
    """
    before, where = _parsed(text), ".".join(map(str, table))
    own = _table_at(before, table)
    tokens = own.get("tokens", [])
    if len(tokens) > 1:
        raise UsageError(f"{where} has two tokens already: remove the old token first (--finish)")
    if not tokens and "bearer" not in own:
        raise UsageError(f"{where} has no `bearer` and no `tokens`, so there is no token to rotate")
    positions = locate(text)
    new = tomllib.loads(f"value = {value}")["value"]
    if tokens:
        at = positions[(*table, "tokens", 0)].value.end
        edited = f"{text[:at]}, {value}{text[at:]}"
    else:
        spot = positions[(*table, "bearer")]
        assert spot.key is not None, "it is a key of the file"
        first = _of(text, spot.value)
        edited = _replaced(text, spot.value, f"[{first}, {value}]")
        edited = _replaced(edited, spot.key, "tokens")
    changed = {key: member for key, member in own.items() if key != "bearer"}
    changed["tokens"] = [*(tokens or [own["bearer"]]), new]
    return _proved(edited, _with_table_at(before, table, changed), where, "change it by hand")


def without_the_first(text: str, table: KeyPath) -> str:
    """The text without the first of two `tokens` in a table.

    Raises:
        UsageError: the table does not have two tokens.
    """
    before, where = _parsed(text), ".".join(map(str, table))
    own = _table_at(before, table)
    tokens = own.get("tokens", [])
    if len(tokens) != 2:
        raise UsageError(f"{where} has fewer than two tokens, so none is removed")
    positions = locate(text)
    first, second = (positions[(*table, "tokens", number)].value for number in range(2))
    edited = text[: first.start] + text[second.start :]
    changed = {**own, "tokens": tokens[1:]}
    return _proved(edited, _with_table_at(before, table, changed), where, "change it by hand")


def _parsed(text: str) -> dict[str, Any]:
    return tomllib.loads(text)


def _of(text: str, span: Span) -> str:
    return text[span.start : span.end].rstrip()


def _replaced(text: str, span: Span, by: str) -> str:
    old = text[span.start : span.end]
    return f"{text[: span.start]}{by}{old[len(old.rstrip()) :]}{text[span.end :]}"


def _table_at(data: dict[str, Any], path: KeyPath) -> dict[str, Any]:
    table: Any = data
    for step in path:
        table = table.get(step) if isinstance(table, dict) else None
    if not isinstance(table, dict):
        raise UsageError(f"there is no table [{'.'.join(map(str, path))}]")
    return table


def _with_table_at(data: dict[str, Any], path: KeyPath, table: dict[str, Any]) -> dict[str, Any]:
    step, *rest = path
    return {**data, str(step): _with_table_at(data[str(step)], tuple(rest), table) if rest else table}


def _proved(text: str, wanted: dict[str, Any], where: str, hint: str) -> str:
    """The text, if it has the intended meaning.

    Raises:
        UsageError: it has another meaning, for instance if a section stands on one line.
    """
    try:
        is_right = tomllib.loads(text) == wanted
    except tomllib.TOMLDecodeError:
        is_right = False
    if not is_right:
        raise UsageError(f"{where} cannot be edited in place, so nothing was written: {hint}")
    return text
