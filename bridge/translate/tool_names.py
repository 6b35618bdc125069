"""The names of tools that hosts see: accepted by every host, unique, and independent of the order of the tools. Pure.

Hosts refuse a whole server because of one name that they do not accept, and some hosts identify tools of several
servers by name alone. A name depends only on its tool, and on other tools that want the same name.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

MAX_NAME_CHARACTERS: Final = 40
"""The most characters of a generated name: Cursor accepts 60 for server and tool together."""
PAGE_TOOL: Final = "task_page"
"""The tool that gives a page of a long text."""
RESERVED: Final = frozenset(
    {"task_result", "task_reply", "task_cancel", PAGE_TOOL, "find_skill", "call_skill"}
)
"""The names of the bridge's own tools."""

_EXACT: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""The names that the strictest host accepts (Claude Desktop)."""
_UUID: Final = re.compile(
    r"(?<![0-9a-z])([0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32})(?![0-9a-z])", re.IGNORECASE
)
"""A UUID within an id: LangGraph's ids end with a word that is the same for every agent."""
_OTHER: Final = re.compile(r"[^a-z0-9]+")
_DIGEST_CHARACTERS: Final = (0, 0, 8, 16, 24)
"""The length of the hash at the end of a name, at each step: no hash, no hash but the source as prefix, then longer
hashes."""
_FIRST_WITH_SOURCE: Final = 1


@dataclass(frozen=True, slots=True)
class ToolToName:
    """A tool that needs a name."""

    source_key: str
    skill_id: str
    exact: str | None = None
    """The tool's name on its own server; None when that is not known."""
    title: str = ""
    """The name for people. It replaces an id that holds a UUID, which says nothing."""


def tool_names(tools: Iterable[ToolToName], *, always_prefixed: bool = False) -> dict[ToolToName, str]:
    """A name for each tool.

    When several tools want the same name, all of them are prefixed by their source. `always_prefixed` prefixes all
    names: then a name depends on its tool alone, unless both source and skill are spelled alike.
    """
    steps = dict.fromkeys(tools, _FIRST_WITH_SOURCE if always_prefixed else 0)
    while True:
        names = {tool: _name(tool, step) for tool, step in steps.items()}
        wanted = Counter(names.values())
        again = [tool for tool, name in names.items() if wanted[name] > 1 or name in RESERVED]
        going_on = [tool for tool in again if steps[tool] < len(_DIGEST_CHARACTERS) - 1]
        if not going_on:
            return names
        for tool in going_on:
            steps[tool] += 1


def names_of(tool: ToolToName) -> tuple[str, ...]:
    """All names that a tool may get, depending on other tools, the longest first. The list depends on this tool
    alone."""
    steps = reversed(range(len(_DIGEST_CHARACTERS)))
    return tuple(dict.fromkeys(_name(tool, step) for step in steps))


def qualified_name(tool: ToolToName) -> str:
    """The name of a tool, prefixed by its source."""
    return _name(tool, _FIRST_WITH_SOURCE)


def hosts_accept(name: str) -> bool:
    """Whether the strictest host accepts this name."""
    return _EXACT.fullmatch(name) is not None


def slug(text: str) -> str:
    """The text reduced to `[a-z0-9_]`, beginning with a letter; "skill" when nothing is left."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    words = _OTHER.sub("_", plain).strip("_")
    return words if words[:1].isalpha() else f"skill_{words}".rstrip("_")


def _name(tool: ToolToName, step: int) -> str:
    if step < _FIRST_WITH_SOURCE:
        if tool.exact is not None and hosts_accept(tool.exact):
            return tool.exact
        return _short(_own(tool), tool, 0)
    return _short(f"{slug(tool.source_key)}_{_own(tool)}", tool, _DIGEST_CHARACTERS[step])


def _own(tool: ToolToName) -> str:
    plain = tool.title if tool.title and _UUID.search(tool.skill_id) else tool.skill_id
    return slug(tool.exact or plain)


def _short(name: str, tool: ToolToName, digest_characters: int) -> str:
    if len(name) > MAX_NAME_CHARACTERS:
        digest_characters = max(digest_characters, 8)
    if not digest_characters:
        return name
    digest = hashlib.sha256(f"{tool.source_key}\0{tool.skill_id}".encode()).hexdigest()[:digest_characters]
    return f"{name[: MAX_NAME_CHARACTERS - 1 - digest_characters].rstrip('_')}_{digest}"
