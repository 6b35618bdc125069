"""Writes names of tables, keys and URLs for messages. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

from bridge.config.text.positions import KeyPath

TABLE_NAME_LIMIT: Final = 40
"""The most characters of a table's name, which stands in paths, in file names, and before the names of tools."""

NAME: Final = rf"^[a-z0-9][a-z0-9_-]{{0,{TABLE_NAME_LIMIT - 1}}}$"
"""The pattern of a table's name."""

HEADER_NAME: Final = r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$"
"""The pattern of a header's name (RFC 9110 section 5.6.2: token)."""

SCOPE_NAME: Final = r"^[\x21\x23-\x5B\x5D-\x7E]+$"
"""The pattern of a scope (RFC 6749 section 3.3)."""

_ONLY_ONE: Final = frozenset(("bridge", "import", "push", "model", "audit"))
"""Tables that exist only once, without a name."""
_CLOSE: Final = 0.75
"""The least similarity of a word to its misspelling. Below it, a hint names only the closest word."""

_BEHIND_PATH: Final = re.compile(r"[?#]")
_NOT_IN_NAMES: Final = re.compile(r"[^a-z0-9_-]+")


def title(path: KeyPath) -> str:
    """The title of a table: `[agents.research]` or, for a nested table, ``auth` of [agents.research]``."""
    depth = 1 if path[:1] and path[0] in _ONLY_ONE else 2
    if len(path) < depth:
        return f"[{path[0]}]" if path else "the file"
    head = f"[{'.'.join(map(str, path[:depth]))}]"
    return f"`{spelled(path[depth:])}` of {head}" if len(path) > depth else head


def spelled(path: KeyPath) -> str:
    """A path as keys and indexes: `keys[0].file`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


def key_name(path: KeyPath) -> str:
    """The last key of a path, with its index."""
    last = max((index for index, step in enumerate(path) if isinstance(step, str)), default=0)
    return spelled(path[last:])


POSTGRES_SCHEMES: Final = ("postgresql://", "postgres://")
"""The possible starts of the URL of a PostgreSQL database."""


def shown_url(url: str) -> str:
    """A URL without user, query and fragment. Any other text is returned unchanged."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return url
    rest = _BEHIND_PATH.split(rest, maxsplit=1)[0]
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"


def listed(words: Iterable[str], last: str = "or") -> str:
    """Join words: `a, b or c`."""
    *most, end = words
    return f"{', '.join(most)} {last} {end}" if most else end


def table_name(written: str) -> str:
    """A name in the form of a table name; "" if it has no letters or digits. A name in another script becomes a hash of
    it."""
    name = _NOT_IN_NAMES.sub("-", written.lower()).strip("-_")[:TABLE_NAME_LIMIT].strip("-_")
    if name or not any(character.isalnum() for character in written):
        return name
    return f"x-{hashlib.sha256(written.encode(errors='surrogatepass')).hexdigest()[:8]}"


def meant(word: str, known: Iterable[str]) -> str:
    """A hint with the names that the user probably meant, or with all names; "" if there are no names."""
    names = list(known)
    close = (
        get_close_matches(word, names, n=2, cutoff=_CLOSE)
        or get_close_matches(word, names, n=1)
        or get_close_matches(word.lower(), names, n=1)
    )
    if close:
        return f"did you mean {listed(f'`{name}`' for name in close)}?"
    return f"there is {listed((f'`{name}`' for name in names), 'and')}" if names else ""
