"""Changes of valid documents and texts that keep most of what they are: what gets past the first check."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

from tests.hostile.json_grammar import raw_token, scalar, spelled, text, value

_BYTES: Final = (
    b"\x00",
    b"\xff",
    b"\xed\xa0\x80",
    b"\xc0\x80",
    b"\xf5\x80\x80\x80",
    b'"',
    b"\\",
    b"\\u",
    b"\\ud83d",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\n",
    b"\r",
    b"\r\n\r\n",
    b"\xef\xbb\xbf",
    b"\xc2\x85",
    b"\xe2\x80\xa8",
    b"NaN",
    b"1e999",
    b"A" * 5000,
    b"[" * 5000,
)


def mutated(document: Any, chance: Random, most: int = 3) -> Any:
    """A copy of a document in which a few things are different."""
    holder = [copy.deepcopy(document)]
    for _ in range(chance.randint(1, most)):
        parent, key = chance.choice(_places(holder))
        chance.choice(_CHANGES)(parent, key, chance, holder)
    return holder[0]


def mutated_text(said: bytes, chance: Random, most: int = 3) -> bytes:
    """A text in which a few bytes are different."""
    for _ in range(chance.randint(1, most)):
        at = chance.randint(0, len(said))
        until = min(len(said), at + chance.choice([0, 0, 1, 1, 2, 8, 64, 4096]))
        match chance.randrange(5):
            case 0:
                said = said[:at] + chance.choice(_BYTES) + said[until:]
            case 1:
                said = said[:at] + said[until:]
            case 2:
                said = said[:at]
            case 3:
                said = said[:at] + said[at:until] * chance.choice([2, 3, 50]) + said[until:]
            case _:
                said = said[:at] + bytes([chance.randrange(256)]) + said[at + 1 :]
    return said


def hostile_json(seeds: Sequence[Any], chance: Random) -> bytes:
    """A JSON text near one of these documents; seldom any value, or a text that is none."""
    kind = chance.randrange(10)
    if kind == 0:
        return spelled(value(chance), chance)
    document = chance.choice(seeds)
    said = spelled(document if kind == 1 else mutated(document, chance), chance)
    return mutated_text(said, chance) if kind in (1, 2) else said


def cut(said: bytes, chance: Random) -> list[bytes]:
    """A text in pieces: whole, byte by byte, or anyhow."""
    match chance.randrange(3):
        case 0:
            return [said]
        case 1 if len(said) < 3000:
            return [said[at : at + 1] for at in range(len(said))]
        case _:
            places = sorted(chance.randint(0, len(said)) for _ in range(chance.randint(1, 8)))
            return [said[a:b] for a, b in zip([0, *places], [*places, len(said)], strict=True)]


def _places(root: list[Any]) -> list[tuple[Any, Any]]:
    """Every place in a document, as what holds it and under which key."""
    found: list[tuple[Any, Any]] = []
    left: list[Any] = [root]
    while left and len(found) < 2000:
        holder = left.pop()
        for key in range(len(holder)) if isinstance(holder, list) else list(holder):
            found.append((holder, key))
            if isinstance(holder[key], dict | list):
                left.append(holder[key])
    return found


def _replace(holder: Any, key: Any, chance: Random, _: list[Any]) -> None:
    holder[key] = value(chance)


def _set_scalar(holder: Any, key: Any, chance: Random, _: list[Any]) -> None:
    holder[key] = scalar(chance)


def _set_raw(holder: Any, key: Any, chance: Random, _: list[Any]) -> None:
    holder[key] = raw_token(chance)


def _remove(holder: Any, key: Any, _: Random, root: list[Any]) -> None:
    if holder is not root:
        del holder[key]


def _rename(holder: Any, key: Any, chance: Random, _: list[Any]) -> None:
    if isinstance(holder, dict):
        holder[chance.choice([text(chance), str(key).upper(), f"{key} ", f"_{key}"])] = holder.pop(key)


def _add(holder: Any, key: Any, chance: Random, _: list[Any]) -> None:
    inner = holder[key]
    if isinstance(inner, dict):
        inner[text(chance)] = value(chance)
    elif isinstance(inner, list):
        inner.insert(chance.randint(0, len(inner)), value(chance))


def _wrap(holder: Any, key: Any, chance: Random, _: list[Any]) -> None:
    holder[key] = [holder[key]] if chance.random() < 0.5 else {text(chance): holder[key]}


def _repeat(holder: Any, key: Any, chance: Random, _: list[Any]) -> None:
    if isinstance(holder[key], list):
        holder[key] = holder[key] * chance.choice([0, 2, 40])
    elif isinstance(holder[key], str) and len(holder[key]) < 2000:
        holder[key] = holder[key] * chance.choice([0, 2, 300])


def _graft(holder: Any, key: Any, chance: Random, root: list[Any]) -> None:
    """Another part of the document, where it does not belong."""
    other, other_key = chance.choice(_places(root))
    holder[key] = copy.deepcopy(other[other_key])


def _extend(holder: Any, key: Any, chance: Random, _: list[Any]) -> None:
    if isinstance(holder[key], str):
        holder[key] += text(chance)


_CHANGES: Final[tuple[Callable[[Any, Any, Random, list[Any]], None], ...]] = (
    _replace,
    _set_scalar,
    _set_scalar,
    _set_raw,
    _remove,
    _rename,
    _add,
    _wrap,
    _repeat,
    _graft,
    _extend,
)
