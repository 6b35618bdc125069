"""What a person who reads definitions cannot see, or would not expect. Pure.

Everything here is a reason to look, and no proof: nothing is removed for it. The phrases are those that published
attacks on MCP servers use ("tool poisoning", "shadowing").
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from bridge.pinned.definitions import NOUNS, Definitions, ItemKind
from bridge.pinned.differences import Difference
from bridge.text.jsonvalues import JsonObject
from bridge.text.safe_text import with_visible_characters, without_hidden_characters

_PLACES_MOST: Final = 3
"""The most oddities of one sort that are named for one item."""
_EXCERPT_CHARACTERS: Final = 80
_SAYING_NAME: Final = re.compile(r"[a-z0-9]+(?:[_-][a-z0-9]+)+|[a-z]+[A-Z][A-Za-z0-9]+")
"""A name that no sentence holds by chance: several words joined, as in `send_email` or `sendEmail`."""

_TO_A_MODEL: Final = re.compile(
    r"""
      <\s*/?\s*(?:important|system|secret|instructions?|hidden|admin|override)\s*>
    | \b(?:ignore|disregard|forget|override)\s+(?:all\s+|any\s+|the\s+|your\s+)*
        (?:previous|prior|earlier|above|other|preceding)\s+(?:instructions?|prompts?|messages?|rules?|tools?)
    | \b(?:do\s+not|don't|never|without)\s+(?:tell|telling|inform|informing|mention|mentioning|notify|notifying|
        alert|alerting|show|showing|reveal|revealing)\s+(?:\w+\s+){0,3}?(?:the\s+|your\s+)?(?:users?|humans?|person|anyone)
    | \b(?:system|developer)\s+prompt\b
    | \b(?:secretly|covertly|silently)\s+(?:send|read|call|include|forward|add|copy|post|upload)
    | \b(?:before|prior\s+to|when|whenever|after)\s+(?:using|calling|invoking|you\s+use|you\s+call)\s+
        (?:this|any|other|every|all|another)\s+(?:\w+\s+)?tools?\b.{0,80}?\b(?:must|always|first|have\s+to|read|send|pass)\b
    | ~/\.(?:ssh|aws|cursor|config|gnupg|netrc|docker|kube)\b | \bid_(?:rsa|ed25519)\b | \bmcp\.json\b
    """,
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
"""Words that tell a model what to do, or hide from the person what it does."""


@dataclass(frozen=True, slots=True)
class Oddity:
    """One reason to look at an item."""

    title: str
    """The server or agent, such as `tool_servers.github`."""
    kind: ItemKind
    name: str
    words: str

    def __str__(self) -> str:
        return f"the {NOUNS[self.kind]} {with_visible_characters(self.name, in_one_line=True)}: {self.words}"


def oddities(sources: Mapping[str, Definitions]) -> Iterator[Oddity]:
    """What stands out in the definitions of servers and agents, by their titles: instructions to a model, and names
    that stand for several things."""
    yield from _shadows(sources)
    for title, kind, name, definition in _items(sources):
        for words in _instructions(definition):
            yield Oddity(title, kind, name, words)


def hidden_characters(sources: Mapping[str, Definitions]) -> Iterator[Oddity]:
    """The names and texts with characters that a person cannot see, or that reverse a text."""
    for title, kind, name, definition in _items(sources):
        places = [("its name", name), *_texts("", definition)]
        for path, text in [place for place in places if without_hidden_characters(place[1]) != place[1]][
            :_PLACES_MOST
        ]:
            seen = without_hidden_characters(text)
            codes = sorted({f"U+{ord(character):04X}" for character in text if character not in seen})
            yield Oddity(
                title, kind, name, f"{path} has hidden characters: {', '.join(codes[:_PLACES_MOST])}"
            )


def vanished(title: str, differences: tuple[Difference, ...]) -> Iterator[Oddity]:
    """The tools that had an output schema when they were approved, and have none now: nothing checks their results any
    more."""
    for difference in differences:
        for edit in difference.edits:
            if edit.path.split(".")[-1] == "outputSchema" and edit.after is None:
                words = "its output schema is gone, so nothing checks its results any more"
                yield Oddity(title, difference.kind, difference.name, words)


def _items(sources: Mapping[str, Definitions]) -> Iterator[tuple[str, ItemKind, str, JsonObject]]:
    for title, definitions in sources.items():
        for kind, items in definitions.items():
            for name, definition in items.items():
                yield title, kind, name, definition


def _texts(path: str, value: JsonValue) -> Iterator[tuple[str, str]]:
    """Each text of a definition with its path; a key of an object counts as a text."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _texts(f"{path}[{number}]", inner)
    elif isinstance(value, dict):
        for key, inner in value.items():
            inside = f"{path}.{key}" if path else key
            yield inside, key
            yield from _texts(inside, inner)


def _instructions(definition: JsonObject) -> Iterator[str]:
    matches = (
        (path, match[0])
        for path, text in _texts("", definition)
        for match in _TO_A_MODEL.finditer(without_hidden_characters(text))
    )
    for _, (path, words) in zip(range(_PLACES_MOST), matches, strict=False):
        shown = with_visible_characters(" ".join(words.split()), in_one_line=True)[:_EXCERPT_CHARACTERS]
        yield f'{path} seems to instruct a model: "{shown}"'


def _shadows(sources: Mapping[str, Definitions]) -> Iterator[Oddity]:
    """Names that two servers or agents have, exactly or to the eye, and names of another server's tools in a
    description."""
    owners: dict[str, list[tuple[str, ItemKind, str]]] = defaultdict(list)
    for title, kind, name, _ in _items(sources):
        if kind in ("tools", "skills"):
            owners[_as_seen(name)].append((title, kind, name))
    for same in owners.values():
        for title, kind, name in same:
            others = sorted({other for other, _, _ in same} - {title})
            looks = sorted({other for _, _, other in same} - {name})
            if others and looks:
                yield Oddity(title, kind, name, f"looks like {', '.join(looks)} of {', '.join(others)}")
            elif others:
                yield Oddity(title, kind, name, f"{', '.join(others)} has the same name")
    for title, kind, name, definition in _items(sources):
        yield from _mentions(title, kind, name, definition, owners)


def _mentions(
    title: str,
    kind: ItemKind,
    name: str,
    definition: JsonObject,
    owners: Mapping[str, list[tuple[str, ItemKind, str]]],
) -> Iterator[Oddity]:
    own = {word for word, of in owners.items() if any(owner == title for owner, _, _ in of)}
    named: dict[str, str] = {}
    for path, text in _texts("", definition):
        if path.rpartition(".")[2] == "description":
            for match in _SAYING_NAME.finditer(text):
                word = _as_seen(match[0])
                if word in owners and word not in own:
                    named.setdefault(match[0], ", ".join(sorted({owner for owner, _, _ in owners[word]})))
    for word, whose in [*named.items()][:_PLACES_MOST]:
        yield Oddity(title, kind, name, f"its description speaks of {word}, which belongs to {whose}")


def _as_seen(name: str) -> str:
    """A name as the eye takes it: without hidden characters, case, and the difference of `-` and `_`."""
    plain = unicodedata.normalize("NFKC", without_hidden_characters(name)).casefold()
    return plain.translate(_LOOKALIKES).replace("-", "_")


_LOOKALIKES: Final = str.maketrans(
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0455\u0501\u04bb\u03bf\u03b1\u03bd\u03c1\u0131\u217c",
    "aeopcyxisdhoavpil",
)
"""Letters of other scripts that look like Latin letters, in the order of their Latin twins."""
