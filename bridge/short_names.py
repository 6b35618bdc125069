"""Short names for servers and agents that have not said theirs: in paths, in tables, in hosts' files. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

_RUNNER: Final = re.compile(r"npx|bunx?|deno|node|uvx?|pipx|python[\d.]*")
_PACKAGE: Final = re.compile(r"[@\w.][@\w./-]*")
_NOT_IN_NAMES: Final = re.compile(r"[^a-z0-9]+")

NAME_LIMIT: Final = 20
"""Characters of a name that we make: Cursor takes 60 for the server's and the tool's together, and a tool has 40."""

_SAID_BY_ALL: Final = frozenset(
    ("www", "api", "a2a", "mcp", "agent", "agents", ".well-known", "agent.json", "agent-card.json")
)
"""What in a URL says nothing of the agent behind it."""

_ADDRESS: Final = re.compile(r"localhost|[\d.]+|\[?[\da-f:]*:[\da-f:]*\]?", re.IGNORECASE)
_HEX_DIGITS: Final = 4


def slug(name: str) -> str:
    """A name as it stands in paths and file names."""
    return _NOT_IN_NAMES.sub("-", name.lower()).strip("-")[:40].strip("-") or "tools"


def name_of(place: str | Sequence[str]) -> str:
    """A name for a server that has not said its own: the host of a URL, the command, or what it runs."""
    if isinstance(place, str):
        return urlsplit(place).hostname or "tools"
    command, *words = place
    run = (
        [word for word in words if _PACKAGE.fullmatch(word)] if _RUNNER.fullmatch(Path(command).name) else []
    )
    return Path(run[0] if run else command).stem or command


def name_for(url: str) -> str:
    """A name for an agent, from what in its URL says most: the end of its path, else its host.

    At most `NAME_LIMIT` characters of `a-z`, `0-9` and `-`.
    """
    place = urlsplit(url)
    host = (place.hostname or "").lower()
    said = [part for part in place.path.lower().split("/") if part and part not in _SAID_BY_ALL]
    if not said and _ADDRESS.fullmatch(host):
        said = [f"agent-{place.port}" if place.port else "agent"]
    if not said:
        labels = host.split(".")
        said = [label for label in labels[:-1] or labels if label not in _SAID_BY_ALL][:1] or [host]
    return name_from(said[-1]) or "agent"


def name_from(words: str) -> str:
    """A name for an agent from what it is called; "" where none of that is a letter or a digit.

    At most `NAME_LIMIT` characters of `a-z`, `0-9` and `-`.
    """
    return short(re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-"))


def short(slug: str) -> str:
    """A name of at most `NAME_LIMIT` characters, which still tells it from others that begin alike."""
    if len(slug) <= NAME_LIMIT:
        return slug
    digest = hashlib.sha256(slug.encode()).hexdigest()[:_HEX_DIGITS]
    return f"{slug[: NAME_LIMIT - _HEX_DIGITS - 1].rstrip('-')}-{digest}"
