"""What the comments of a TOML file say of its keys. Pure.

The comment behind a value means its key; where there is none, the lines of comment right above do.
"""

from __future__ import annotations

import re
from typing import Final

from bridge.config.text.document import Document
from bridge.config.text.positions import KeyPath

_BEHIND: Final = re.compile(r"[ \t]*#[ \t]*(?P<said>[^\n]*)")


def meanings_in(document: Document) -> dict[KeyPath, str]:
    """What is said of each key in a table of the file, by table and key; "" when nothing is."""
    return {
        (table, key): _meaning(document, (table, key))
        for table, keys in document.data.items()
        if isinstance(keys, dict)
        for key in keys
    }


def _meaning(document: Document, path: KeyPath) -> str:
    text, place = document.masked, document.positions[path]
    behind = _BEHIND.match(text, place.value.end)
    if behind:
        return behind["said"].strip()
    above = text[: text.rfind("\n", 0, place.start.start) + 1].split("\n")[:-1]
    said: list[str] = []
    while above and above[-1].startswith("#"):
        said.insert(0, above.pop().removeprefix("#").strip())
    return " ".join(said)
