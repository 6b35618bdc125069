"""Whom the `from` of a face, and the skills of a principal, may name. Pure, on plain values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

from bridge.config.text.document import Fault
from bridge.config.text.positions import KeyPath
from bridge.config.text.wording import listed, meant, title

_MADE_OF: Final = {
    "tools_as_agent": ("tool_servers",),
    "agents_as_tools": ("agents", "catalogs", "tools_as_agent"),
}
"""What each kind of face is made of."""

_NOUNS: Final = {
    "tool_servers": ("a tool server", "tool servers"),
    "agents": ("an agent", "agents"),
    "catalogs": ("a catalog", "catalogs"),
    "tools_as_agent": ("a published agent", "published agents"),
    "agents_as_tools": ("a published MCP server", "published MCP servers"),
}

Names = Mapping[str, frozenset[str]]


def source_faults(data: Mapping[str, Any], imported: frozenset[str] | None) -> Iterator[Fault]:
    """What is named and is not there, is there twice, or could be either of two.

    `imported` are tool servers that come from elsewhere; None when they cannot be known.
    """
    names = {section: frozenset(map(str, _table(data, section))) for section in _NOUNS}
    names["tool_servers"] |= imported or frozenset()
    for section in _MADE_OF:
        for face, named in sources_of(data, section).items():
            for fault in _from_faults((section, face), named, names):
                if section == "agents_as_tools" or imported is not None or not fault.unknown:
                    yield fault
    for principal, table in _table(data, "principals").items():
        written = table.get("skills") if isinstance(table, dict) else None
        if isinstance(written, list):
            yield from _face_faults(("principals", principal, "skills"), written, names)


def sources_of(data: Mapping[str, Any], section: str) -> dict[str, dict[int, str]]:
    """What the faces of a kind are made of: by name of the face, the names in its `from` with their places there."""
    return {
        name: {index: one for index, one in enumerate(written) if isinstance(one, str) and one}
        for name, face in _table(data, section).items()
        if isinstance(face, dict) and isinstance(written := face.get("from"), list)
    }


def _from_faults(face: KeyPath, named: Mapping[int, str], names: Names) -> Iterator[Fault]:
    section, seen = str(face[0]), set[str]()
    for index, name in named.items():
        where = (*face, "from", index)
        kinds = [kind for kind in _MADE_OF[section] if name in names[kind]]
        if name in seen:
            yield Fault(where, f"`{name}` is named twice")
        elif not kinds:
            yield _unknown(where, section, name, names)
        elif len(kinds) > 1:
            both = listed((_NOUNS[kind][0] for kind in kinds), "and")
            yield Fault(where, f"`{name}` is {both}: which is meant cannot be told", "rename one of them")
        seen.add(name)


def _unknown(where: KeyPath, section: str, name: str, names: Names) -> Fault:
    takes = listed(_NOUNS[kind][1] for kind in _MADE_OF[section])
    others = [noun for kind, (noun, _) in _NOUNS.items() if name in names[kind]]
    if others:
        return Fault(where, f"`{name}` is {others[0]}; {title(where[:2])} is made of {takes}")
    known = sorted(frozenset().union(*(names[kind] for kind in _MADE_OF[section])))
    nouns = listed(_NOUNS[kind][0] for kind in _MADE_OF[section])
    hint = meant(name, known) or f"add {nouns}"
    return Fault(where, f"there is no `{name}`: {title(where[:2])} is made of {takes}", hint, unknown=True)


def _face_faults(path: KeyPath, written: list[object], names: Names) -> Iterator[Fault]:
    faces = sorted(names["tools_as_agent"] | names["agents_as_tools"])
    for index, glob in enumerate(written):
        face, slash, rest = str(glob).partition("/")
        where = (*path, index)
        if slash and not any(fnmatchcase(name, face) for name in faces):
            yield Fault(where, f"there is no face `{face}`", meant(face, faces))
        elif (slash and not rest) or glob in faces:
            yield Fault(where, f"`{glob}` is a face, and no skill or tool of one", f'write "{face}/*"')


def _table(data: Mapping[str, Any], section: str) -> dict[str, Any]:
    found = data.get(section)
    return found if isinstance(found, dict) else {}
