"""Makes short names for servers and agents that have no name yet, for paths, tables and hosts' files. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

_RUNNER: Final = re.compile(
    r"(npx|bunx?|deno|node|uvx?|pipx|python[\d.]*|py|cmd)(\.(exe|cmd|bat))?", re.IGNORECASE
)
_PACKAGE: Final = re.compile(r"[@\w.][@\w./-]*")
_NOT_IN_NAMES: Final = re.compile(r"[^a-z0-9]+")

NAME_LIMIT: Final = 20
"""The most characters of a generated name. Cursor allows 60 for server and tool name together, and a tool name takes
40."""

_COMMON_PARTS: Final = frozenset(
    ("www", "api", "a2a", "mcp", "agent", "agents", ".well-known", "agent.json", "agent-card.json")
)
"""Parts of a URL that are the same for many agents."""

_ADDRESS: Final = re.compile(r"localhost|[\d.]+|\[?[\da-f:]*:[\da-f:]*\]?", re.IGNORECASE)
_HEX_DIGITS: Final = 4


def slug(name: str) -> str:
    """A name for paths and file names: at most 40 characters of `a-z`, `0-9` and `-`."""
    return _NOT_IN_NAMES.sub("-", name.lower()).strip("-")[:40].strip("-") or "tools"


def name_of(place: str | Sequence[str]) -> str:
    """Name a server by the host of its URL, by its command, or by the package that its command runs."""
    if isinstance(place, str):
        return urlsplit(place).hostname or "tools"
    command, *words = (word.rpartition("\\")[2] for word in place)  # of a path of Windows, too
    is_runner = _RUNNER.fullmatch(Path(command).name)
    packages = [word for word in words if _PACKAGE.fullmatch(word) and not _RUNNER.fullmatch(word)]
    return Path(packages[0] if is_runner and packages else command).stem or command


def name_for(url: str) -> str:
    """Name an agent after the last distinctive part of its URL's path; without such a part, after its host.

    At most `NAME_LIMIT` characters of `a-z`, `0-9` and `-`.
    """
    place = urlsplit(url)
    host = (place.hostname or "").lower()
    words = [part for part in place.path.lower().split("/") if part and part not in _COMMON_PARTS]
    if not words and _ADDRESS.fullmatch(host):
        words = [f"agent-{place.port}" if place.port else "agent"]
    if not words:
        labels = host.split(".")
        words = [label for label in labels[:-1] or labels if label not in _COMMON_PARTS][:1] or [host]
    return name_from(words[-1]) or "agent"


def name_from(words: str) -> str:
    """Make a short name from an agent's own name; "" if the name has neither a letter nor a digit.

    At most `NAME_LIMIT` characters of `a-z`, `0-9` and `-`.
    """
    return short(re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-"))


def short(slug: str) -> str:
    """Cut a name to `NAME_LIMIT` characters. A cut name ends with a hash, so that names with the same beginning stay
    distinct."""
    if len(slug) <= NAME_LIMIT:
        return slug
    digest = hashlib.sha256(slug.encode()).hexdigest()[:_HEX_DIGITS]
    return f"{slug[: NAME_LIMIT - _HEX_DIGITS - 1].rstrip('-')}-{digest}"
