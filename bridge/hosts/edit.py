"""Adds a server to the text of a host's file, or removes a server from it, and changes nothing else. Pure.

Only the text of the server itself is replaced; the file is not reformatted. So comments, the order of keys, the
spelling of numbers, indentation and line ends all stay. The new text is parsed and compared with the intended value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from bridge.errors import UsageError
from bridge.text.jsonc import JsonMember, JsonNode, parse_jsonc
from bridge.text.jsonvalues import JsonObject

_INDENT: Final = "  "
"""The indentation for a file without any."""


class BrokenFileError(UsageError):
    """The host cannot read the text, or the text cannot be edited safely."""


@dataclass(frozen=True)
class ServerPlace:
    """The place of a server in a file: `{servers_key: {name: ...}}`."""

    servers_key: str
    name: str
    comments: bool = False
    """Whether the file may hold comments and trailing commas."""


def server_in(text: str, slot: ServerPlace) -> JsonObject | None:
    """The server in the slot, if there is one.

    Raises:
        BrokenFileError: the text is not JSON, or has another structure than the host's file.
    """
    entry = _servers(_document(text, slot), slot).get(slot.name)
    return entry if isinstance(entry, dict) else None


def servers_in(text: str, servers_key: str, *, comments: bool) -> Mapping[str, JsonObject]:
    """All servers of a file, by name.

    Raises:
        BrokenFileError: the text is not JSON, or has another structure than the host's file.
    """
    if not text.strip():
        return {}
    slot = ServerPlace(servers_key, "", comments)
    servers = _servers(_document(text, slot), slot)
    return {name: server for name, server in servers.items() if isinstance(server, dict)}


def with_server(text: str, slot: ServerPlace, entry: JsonObject) -> str:
    """The text with this server in the slot; the same text if the slot holds the server already.

    Raises:
        BrokenFileError: the text is not JSON, or has another structure than the host's file.
    """
    if not text.strip():
        return json.dumps({slot.servers_key: {slot.name: entry}}, indent=_INDENT, ensure_ascii=False) + "\n"
    root = _document(text, slot)
    servers = _servers(root, slot)
    if _same(servers.get(slot.name), entry):
        return text
    return _proved(_put(text, root, slot, entry), slot, root, {**servers, slot.name: entry})


def without_server(text: str, slot: ServerPlace) -> str:
    """The text without the slot's server; the same text if the slot is empty.

    Raises:
        BrokenFileError: the text is not JSON, or has another structure than the host's file.
    """
    if not text.strip():
        return text
    root = _document(text, slot)
    servers = _servers(root, slot)
    rest = {name: server for name, server in servers.items() if name != slot.name}
    edited, now = text, root
    while (holder := now.member(slot.servers_key)) and (member := holder.node.member(slot.name)):
        edited = _cut(edited, holder.node, member)
        now = _document(edited, slot)
    return _proved(edited, slot, root, rest) if edited != text else text


def with_input(text: str, inputs_key: str, new_input: JsonObject, *, comments: bool) -> str:
    """The text with an input, a value that the host asks its user for. It replaces an input with the same id.

    Raises:
        BrokenFileError: the text is not JSON, or has another structure than the host's file.
    """
    root = _document(text, ServerPlace("", "", comments))
    listed = _listed(root, inputs_key)
    holder = root.member(inputs_key)
    if holder is None or holder.node.value is None:
        added: list[JsonValue] = [new_input]
        edited = (
            _insert(text, root, root, inputs_key, added)
            if holder is None
            else _replace(text, root, holder.node, added)
        )
        return _proved_as(edited, root, inputs_key, added, comments=comments)
    here = [node for node in holder.node.elements if _id_of(node.value) == new_input["id"]]
    if here and _same(here[0].value, new_input):
        return text
    edited = _replace(text, root, here[0], new_input) if here else _append(text, root, holder.node, new_input)
    inputs = [
        new_input if input_entry is not None and _id_of(input_entry) == new_input["id"] else input_entry
        for input_entry in listed
    ]
    return _proved_as(edited, root, inputs_key, inputs if here else [*listed, new_input], comments=comments)


def without_input(text: str, inputs_key: str, input_id: str, *, comments: bool) -> str:
    """The text without the input of this id; the same text if there is none, or if a comment stands beside it.

    Raises:
        BrokenFileError: the text is not JSON, or has another structure than the host's file.
    """
    root = _document(text, ServerPlace("", "", comments))
    listed, holder = _listed(root, inputs_key), root.member(inputs_key)
    nodes = holder.node.elements if holder is not None else ()
    place = next((at for at, node in enumerate(nodes) if _id_of(node.value) == input_id), None)
    if place is None or holder is None:
        return text
    if len(nodes) == 1:
        start, end = holder.node.start + 1, holder.node.end - 1
    elif place:
        start, end = nodes[place - 1].end, nodes[place].end
    else:
        start, end = nodes[0].start, nodes[1].start
    rest = text[start : nodes[place].start] + text[nodes[place].end : end]
    if rest.strip(" \t\r\n,"):
        return text
    left = [input_entry for at, input_entry in enumerate(listed) if at != place]
    return _proved_as(text[:start] + text[end:], root, inputs_key, left, comments=comments)


def _listed(root: JsonNode, key: str) -> list[JsonValue]:
    assert isinstance(root.value, dict)  # `_document` has checked it
    listed = root.value.get(key)
    if listed is not None and not isinstance(listed, list):
        raise BrokenFileError(f"its {key} is {_kind(listed)}, not a list")
    return listed or []


def _id_of(value: JsonValue) -> JsonValue:
    return value.get("id") if isinstance(value, dict) else None


def _append(text: str, root: JsonNode, holder: JsonNode, value: JsonObject) -> str:
    """Add an element after the last one, with the same layout."""
    newline, unit, last = _newline(text), _unit(text, root), holder.elements[-1] if holder.elements else None
    outer = _indent_at(text, holder.start)
    inner = _indent_at(text, last.start) if last and _starts_line(text, last.start) else outer + unit
    written = f"{newline}{inner}{_written(value, inner, unit, newline)}"
    if last is not None:
        return f"{text[: last.end]},{written}{text[last.end :]}"
    before = text[holder.start + 1 : holder.end - 1].rstrip()  # a comment, maybe
    return f"{text[: holder.start + 1]}{before}{written}{newline}{outer}{text[holder.end - 1 :]}"


def _proved_as(edited: str, before: JsonNode, key: str, value: list[JsonValue], *, comments: bool) -> str:
    assert isinstance(before.value, dict)  # `_document` has checked it
    if not _same(_document(edited, ServerPlace("", "", comments)).value, {**before.value, key: value}):
        raise BrokenFileError("it is written in a way that cannot be edited safely")
    return edited


def _document(text: str, slot: ServerPlace) -> JsonNode:
    try:
        root = parse_jsonc(text, comments=slot.comments)
    except RecursionError as exc:
        raise BrokenFileError("it is nested too deeply") from exc
    except json.JSONDecodeError as exc:
        raise BrokenFileError(_what_is_wrong(text, exc)) from exc
    except ValueError as exc:
        raise BrokenFileError(f"it is not valid JSON: {exc}") from exc
    if not isinstance(root.value, dict):
        raise BrokenFileError(f"it is {_kind(root.value)}, not an object")
    servers = root.value.get(slot.servers_key)
    if servers is not None and not isinstance(servers, dict):
        raise BrokenFileError(f"its {slot.servers_key} is {_kind(servers)}, not an object")
    return root


def _servers(root: JsonNode, slot: ServerPlace) -> JsonObject:
    """All servers. Some hosts write null if there are none."""
    servers = root.value.get(slot.servers_key) if isinstance(root.value, dict) else None
    return servers if isinstance(servers, dict) else {}


def _what_is_wrong(text: str, exc: json.JSONDecodeError) -> str:
    """The error and its place. Comments and trailing commas get their own message."""
    where = f"line {exc.lineno}, column {exc.colno}"
    try:
        parse_jsonc(text)
    except (ValueError, RecursionError):
        return f"it is not valid JSON: {exc.msg} ({where})"
    return f"it has a comment or a trailing comma, which this host does not read ({where}): remove it first"


def _kind(value: object) -> str:
    names = {list: "a list", str: "a text", bool: "true or false", type(None): "null", dict: "an object"}
    return names.get(type(value), "a number")


def _same(value: object, other: object) -> bool:
    """Whether two values are equal as JSON: 1 is not `true`, and the order of keys does not matter."""
    return json.dumps(value, sort_keys=True) == json.dumps(other, sort_keys=True)


def _proved(edited: str, slot: ServerPlace, before: JsonNode, servers: JsonObject) -> str:
    assert isinstance(before.value, dict)  # `_document` has checked it
    if not _same(_document(edited, slot).value, {**before.value, slot.servers_key: servers}):
        raise BrokenFileError("it is written in a way that cannot be edited safely")
    return edited


def _put(text: str, root: JsonNode, slot: ServerPlace, entry: JsonObject) -> str:
    holder = root.member(slot.servers_key)
    if holder is None:
        return _insert(text, root, root, slot.servers_key, {slot.name: entry})
    if holder.node.value is None:
        return _replace(text, root, holder.node, {slot.name: entry})
    member = holder.node.member(slot.name)
    if member is None:
        return _insert(text, root, holder.node, slot.name, entry)
    return _replace(text, root, member.node, entry)


def _replace(text: str, root: JsonNode, node: JsonNode, value: JsonValue) -> str:
    written = _written(value, _indent_at(text, node.start), _unit(text, root), _newline(text))
    return text[: node.start] + written + text[node.end :]


def _insert(text: str, root: JsonNode, holder: JsonNode, key: str, value: JsonValue) -> str:
    """Add a member after the last one, with the same layout."""
    newline, unit = _newline(text), _unit(text, root)
    last = holder.members[-1] if holder.members else None
    outer = _indent_at(text, holder.start)
    inner = _indent_at(text, last.start) if last and _starts_line(text, last.start) else outer + unit
    member = f"{json.dumps(key, ensure_ascii=False)}: {_written(value, inner, unit, newline)}"
    if last is None:
        before = text[holder.start + 1 : holder.end - 1].rstrip()  # a comment, maybe
        return f"{text[: holder.start + 1]}{before}{newline}{inner}{member}{newline}{outer}{text[holder.end - 1 :]}"
    end = last.node.end
    if last.comma is not None:  # the new member follows this comma, and ends with a comma too
        head, tail, member = text[: last.comma + 1], text[last.comma + 1 : holder.end - 1], member + ","
    else:
        head, tail = text[:end] + ",", text[end : holder.end - 1]
    before = tail.rstrip()
    closing = tail[len(before) :] if "\n" in tail[len(before) :] else f"{newline}{outer}"
    return f"{head}{before}{newline}{inner}{member}{closing}{text[holder.end - 1 :]}"


def _cut(text: str, holder: JsonNode, member: JsonMember) -> str:
    """Remove a member, with its comma and its line."""
    index = holder.members.index(member)
    start, end = member.start, member.node.end if member.comma is None else member.comma + 1
    before = holder.members[index - 1].comma if index else None
    # Together with the last of several members, remove the comma before it.
    if member.comma is None and before is not None:
        text, start, end = text[:before] + text[before + 1 :], start - 1, end - 1
    return _without_line(text, start, end)


def _without_line(text: str, start: int, end: int) -> str:
    """Remove a piece of the text, together with its line if only white space would remain there."""
    line = text.rfind("\n", 0, start) + 1
    rest_of_line = re.compile(r"[ \t]*\r?\n").match(text, end)
    if _starts_line(text, start) and rest_of_line:
        return text[:line] + text[rest_of_line.end() :]
    blank = re.compile(r"[ \t]*").match(text, end)
    return text[:start].rstrip(" \t") + text[blank.end() if blank else end :]


def _written(value: JsonValue, indent: str, unit: str, newline: str) -> str:
    lines = json.dumps(value, indent=unit, ensure_ascii=False).split("\n")
    return f"{newline}{indent}".join(lines)


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _starts_line(text: str, at: int) -> bool:
    return not text[text.rfind("\n", 0, at) + 1 : at].strip()


def _indent_at(text: str, at: int) -> str:
    """The indentation of the line at this position."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _unit(text: str, root: JsonNode) -> str:
    """A level of indentation: that of the first member of the file."""
    first = root.members[0].start if root.members else None
    return (first is not None and _starts_line(text, first) and _indent_at(text, first)) or _INDENT
