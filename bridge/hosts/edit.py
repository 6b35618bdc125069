"""One server put into, or taken out of, the text of a host's file. Pure, and it changes nothing else.

The text is cut open where the server stands and mended there, instead of being read and written anew: so
comments, the order of keys, the spelling of numbers, indentation and line ends all stay. To find the places,
comments and commas behind the last entry are blanked with spaces, which leaves JSON of the same length, and a
position in one is that position in the other. What comes out is read again and compared with what was meant.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from bridge.errors import UsageError
from bridge.jsonvalues import JsonObject

_STRING: Final = r'"(?:[^"\\\r\n]|\\.)*"'
_COMMENT: Final = re.compile(rf"{_STRING}|(?P<blank>//[^\r\n]*|/\*.*?\*/)", re.DOTALL)
_LAST_COMMA: Final = re.compile(rf"{_STRING}|(?P<blank>,)(?=\s*[}}\]])")
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_INDENT: Final = "  "
"""A level of indentation in a file that shows none."""


class BrokenFileError(UsageError):
    """The text is not what its host reads, or cannot be edited safely."""


@dataclass(frozen=True)
class Slot:
    """Where a server stands in a file: `{servers_key: {name: ...}}`."""

    servers_key: str
    name: str
    comments: bool = False
    """Whether the file may hold comments, and commas behind the last entry."""


@dataclass(frozen=True)
class _Member:
    """Where one key and its value stand."""

    key: str
    start: int
    value_start: int
    end: int


@dataclass(frozen=True)
class _Object:
    """Where an object stands, from its `{` to behind its `}`."""

    start: int
    end: int
    members: tuple[_Member, ...]

    def member(self, key: str) -> _Member | None:
        """The member of this key; the last one, as every reader of JSON takes it."""
        return next((member for member in reversed(self.members) if member.key == key), None)


def server_in(text: str, slot: Slot) -> JsonObject | None:
    """The server that stands in the slot, if any.

    Raises:
        BrokenFileError: the text is not JSON, or not built as the host builds it.
    """
    servers = _document(text, slot).get(slot.servers_key) or {}
    assert isinstance(servers, dict)  # _document has looked
    found = servers.get(slot.name)
    return found if isinstance(found, dict) else None


def servers_in(text: str, servers_key: str, *, comments: bool) -> Mapping[str, JsonObject]:
    """All servers of a file, by name.

    Raises:
        BrokenFileError: the text is not JSON, or not built as the host builds it.
    """
    if not text.strip():
        return {}
    servers = _document(text, Slot(servers_key, "", comments)).get(servers_key) or {}
    assert isinstance(servers, dict)  # _document has looked
    return {name: server for name, server in servers.items() if isinstance(server, dict)}


def with_server(text: str, slot: Slot, entry: JsonObject) -> str:
    """The text with this server in the slot; the same text when it stands there already.

    Raises:
        BrokenFileError: the text is not JSON, or not built as the host builds it.
    """
    if not text.strip():
        return json.dumps({slot.servers_key: {slot.name: entry}}, indent=_INDENT, ensure_ascii=False) + "\n"
    document = _document(text, slot)
    servers = document.get(slot.servers_key)
    if isinstance(servers, dict) and _same(servers.get(slot.name), entry):
        return text
    edited = _put(text, slot, entry)
    wanted = {**document, slot.servers_key: {**(servers or {}), slot.name: entry}}  # type: ignore[dict-item]
    return _proved(edited, slot, wanted)


def without_server(text: str, slot: Slot) -> str:
    """The text without the slot's server; the same text when it is not there.

    Raises:
        BrokenFileError: the text is not JSON, or not built as the host builds it.
    """
    if not text.strip():
        return text
    document = _document(text, slot)
    servers = document.get(slot.servers_key)
    if not isinstance(servers, dict) or slot.name not in servers:
        return text
    rest = {name: server for name, server in servers.items() if name != slot.name}
    edited = text
    while (found := _find(edited, slot)) and (member := found.member(slot.name)):
        edited = _cut(edited, found, member)
    return _proved(edited, slot, {**document, slot.servers_key: rest})


def _document(text: str, slot: Slot) -> JsonObject:
    try:
        document = json.loads(_plain(text, slot), parse_constant=_refuse)
    except RecursionError as exc:
        raise BrokenFileError("it is nested too deeply") from exc
    except json.JSONDecodeError as exc:
        raise BrokenFileError(_what_is_wrong(text, exc)) from exc
    except ValueError as exc:
        raise BrokenFileError(f"it is no JSON: {exc}") from exc
    if not isinstance(document, dict):
        raise BrokenFileError(f"it holds {_kind(document)} where an object belongs")
    servers = document.get(slot.servers_key)
    if servers is not None and not isinstance(servers, dict):
        raise BrokenFileError(f"its {slot.servers_key} is {_kind(servers)}, not an object")
    return document


def _what_is_wrong(text: str, exc: json.JSONDecodeError) -> str:
    """Line and column, and that it is a comment where that is all that is wrong."""
    where = f"line {exc.lineno}, column {exc.colno}"
    try:
        json.loads(_blanked(text))
    except (ValueError, RecursionError):
        return f"it is no JSON: {exc.msg} ({where})"
    return (
        f"it holds a comment or a comma too many, which this host does not read ({where}): take it out first"
    )


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number")


def _kind(value: object) -> str:
    names = {list: "a list", str: "a text", bool: "true or false", type(None): "null", dict: "an object"}
    return names.get(type(value), "a number")


def _plain(text: str, slot: Slot) -> str:
    return _blanked(text) if slot.comments else text


def _blanked(text: str) -> str:
    """The text as JSON of the same length, line for line."""
    return _blank(_LAST_COMMA, _blank(_COMMENT, text))


def _blank(pattern: re.Pattern[str], text: str) -> str:
    return pattern.sub(lambda found: re.sub(r"[^\r\n]", " ", found[0]) if found["blank"] else found[0], text)


def _same(one: object, other: object) -> bool:
    """Equal as JSON: 1 is not true, and the order of keys says nothing."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _proved(edited: str, slot: Slot, wanted: JsonObject) -> str:
    if not _same(_document(edited, slot), wanted):
        raise BrokenFileError("it is written in a way that cannot be edited safely")
    return edited


def _find(text: str, slot: Slot) -> _Object | None:
    """Where the servers stand."""
    plain = _plain(text, slot)
    member = _scan(plain, _skip(plain, 0)).member(slot.servers_key)
    return _scan(plain, member.value_start) if member and plain[member.value_start] == "{" else None


def _scan(plain: str, start: int) -> _Object:
    """Where the members of the object at `start` stand; the text is known to be JSON."""
    decoder = json.JSONDecoder()
    members: list[_Member] = []
    at = _skip(plain, start + 1)
    while plain[at] != "}":
        key, behind = decoder.raw_decode(plain, at)
        value_start = _skip(plain, _skip(plain, behind) + 1)
        end = decoder.raw_decode(plain, value_start)[1]
        members.append(_Member(key, at, value_start, end))
        at = _skip(plain, end)
        if plain[at] == ",":
            at = _skip(plain, at + 1)
    return _Object(start, at + 1, tuple(members))


def _skip(plain: str, at: int) -> int:
    found = _SPACE.match(plain, at)
    return found.end() if found else at


def _put(text: str, slot: Slot, entry: JsonObject) -> str:
    plain = _plain(text, slot)
    root = _scan(plain, _skip(plain, 0))
    holder = root.member(slot.servers_key)
    if holder is None:
        return _insert(text, root, plain, slot.servers_key, {slot.name: entry})
    if plain[holder.value_start] != "{":  # null, as some hosts write it when there is none
        return _replace(text, holder, {slot.name: entry}, _unit(text, root))
    servers = _scan(plain, holder.value_start)
    member = servers.member(slot.name)
    if member is None:
        return _insert(text, servers, plain, slot.name, entry)
    return _replace(text, member, entry, _unit(text, root))


def _replace(text: str, member: _Member, value: JsonObject, unit: str) -> str:
    written = _written(value, _indent_at(text, member.start), unit, _newline(text))
    return text[: member.value_start] + written + text[member.end :]


def _insert(text: str, holder: _Object, plain: str, key: str, value: JsonObject) -> str:
    """Put a member behind the last one, laid out as that is."""
    newline, root = _newline(text), _scan(plain, _skip(plain, 0))
    unit = _unit(text, root)
    last = holder.members[-1] if holder.members else None
    outer = _indent_at(text, holder.start)
    inner = _indent_at(text, last.start) if last and _starts_line(text, last.start) else outer + unit
    member = f"{json.dumps(key, ensure_ascii=False)}: {_written(value, inner, unit, newline)}"
    if last is None:
        kept = text[holder.start + 1 : holder.end - 1].rstrip()  # a comment, maybe
        return f"{text[: holder.start + 1]}{kept}{newline}{inner}{member}{newline}{outer}{text[holder.end - 1 :]}"
    ends = text[last.end : holder.end - 1]
    comma = _behind_comma(ends)
    if comma is not None:  # one stands there already: ours goes behind it and ends with one as well
        head, tail, member = text[: last.end] + ends[:comma], ends[comma:], member + ","
    else:
        head, tail = text[: last.end] + ",", ends
    kept = tail.rstrip()
    closing = tail[len(kept) :] if "\n" in tail[len(kept) :] else f"{newline}{outer}"
    return f"{head}{kept}{newline}{inner}{member}{closing}{text[holder.end - 1 :]}"


def _behind_comma(between: str) -> int | None:
    """How far it is to behind the comma in what stands between two members, or behind the last one."""
    return _blank(_COMMENT, between).find(",") + 1 or None


def _cut(text: str, holder: _Object, member: _Member) -> str:
    """Take a member out, with its comma and the line it stood on."""
    at = holder.members.index(member)
    last = at + 1 == len(holder.members)
    behind = holder.end - 1 if last else holder.members[at + 1].start
    comma = _behind_comma(text[member.end : behind])
    start, end = member.start, member.end + (comma or 0)
    if comma is None and at:  # the last of several: the comma before it goes
        before = holder.members[at - 1]
        cut = before.end + (_behind_comma(text[before.end : start]) or 0)
        text, start, end = text[: cut - 1] + text[cut:], start - 1, end - 1
    return _without_line(text, start, end)


def _without_line(text: str, start: int, end: int) -> str:
    """Cut, together with the white space that would be left of its line."""
    line = text.rfind("\n", 0, start) + 1
    found = re.compile(r"[ \t]*\r?\n").match(text, end)
    if _starts_line(text, start) and found:
        return text[:line] + text[found.end() :]
    blank = re.compile(r"[ \t]*").match(text, end)
    return text[:start].rstrip(" \t") + text[blank.end() if blank else end :]


def _written(value: JsonObject, indent: str, unit: str, newline: str) -> str:
    lines = json.dumps(value, indent=unit, ensure_ascii=False).split("\n")
    return f"{newline}{indent}".join(lines)


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _starts_line(text: str, at: int) -> bool:
    return not text[text.rfind("\n", 0, at) + 1 : at].strip()


def _indent_at(text: str, at: int) -> str:
    """The white space that the line of this position begins with."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _unit(text: str, root: _Object) -> str:
    """One level of indentation, as the first member of the file shows it."""
    first = root.members[0].start if root.members else None
    return (first is not None and _starts_line(text, first) and _indent_at(text, first)) or _INDENT
