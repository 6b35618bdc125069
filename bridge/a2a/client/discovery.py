"""The agents that a document in the formats ARD or AI Catalog lists.

Both formats have `entries` of any type. Only Agent Cards at an address count here: other types, embedded cards and
nested catalogs are left out.

Spec: Agentic Resource Discovery v0.91, section 4.2; AI Catalog 1.0, "Catalog Entry", "Multi-Version Entries" and
"Version Handling". Both are drafts.
"""

from __future__ import annotations

import re
from typing import Final

from pydantic import JsonValue

from bridge.errors import PeerError, echoed
from bridge.text.jsonvalues import JsonObject

_CARD_TYPE: Final = "application/a2a-agent-card+json"
_TYPE_KEYS: Final = ("type", "mediaType")
"""The keys of an entry's type. AI Catalog called the key `mediaType` until April 2026."""
_VERSION: Final = re.compile(r"v?(\d{1,9})(?:\.(\d{1,9}))?(?:\.(\d{1,9}))?([-+].*)?")
_MAJOR: Final = 1

_Age = tuple[tuple[int, int, int], bool, str]


def is_document(url_path: str) -> bool:
    """Whether a catalog at this path is one document, which takes no parameters for pages."""
    return url_path.endswith(".json")


def agents_in(document: JsonObject) -> list[JsonValue] | None:
    """The agents of a document, each as an object with its `name` and its `cardUrl`, or None in the place of an agent
    that has no name or no address; None if the value is no such document. The newest version of an agent counts.

    Raises:
        PeerError: the document is of a later major version of AI Catalog.
    """
    entries = document.get("entries")
    if not isinstance(entries, list):
        return None
    _require_known(document.get("specVersion"))
    newest: dict[str, tuple[_Age, JsonValue]] = {}
    nameless: list[JsonValue] = []
    for entry in entries:
        if not isinstance(entry, dict) or not _is_card(entry):
            continue
        identifier, url = entry.get("identifier"), entry.get("url")
        if not isinstance(identifier, str) or not isinstance(url, str):
            nameless.append(None)
            continue
        name = re.split("[:/]", identifier)[-1]
        age = _age_of(entry)
        if identifier not in newest or newest[identifier][0] < age:
            newest[identifier] = age, {"name": name, "cardUrl": url}
    return [agent for _, agent in newest.values()] + nameless


def _require_known(version: JsonValue) -> None:
    """Raises:
    PeerError: see `agents_in`.
    """
    major = version.partition(".")[0] if isinstance(version, str) else ""
    if major.isdecimal() and len(major) < 10 and int(major) > _MAJOR:
        raise PeerError(f"its specVersion is {echoed(str(version))}, and the bridge reads {_MAJOR}.x")


def _is_card(entry: JsonObject) -> bool:
    content_type = next((entry[key] for key in _TYPE_KEYS if key in entry), None)
    return isinstance(content_type, str) and content_type.partition(";")[0].strip().lower() == _CARD_TYPE


def _age_of(entry: JsonObject) -> _Age:
    """What orders the versions of an agent: by version if they are semantic, a release after its previews; then by the
    time of the last change."""
    version, updated = entry.get("version"), entry.get("updatedAt")
    match = _VERSION.fullmatch(version) if isinstance(version, str) else None
    numbers = [int(number or 0) for number in match.groups()[:3]] if match else [-1, 0, 0]
    is_release = match is not None and not (match[4] or "").startswith("-")
    return (numbers[0], numbers[1], numbers[2]), is_release, updated if isinstance(updated, str) else ""
