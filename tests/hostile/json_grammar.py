"""JSON as the hostile write it: values that parsers disagree on, and texts that no writer would make.

Everything is made from a `random.Random`, so that a seed, Hypothesis, or a coverage-guided fuzzer can stand behind it.
"""

from __future__ import annotations

import json
import re
from random import Random
from typing import Any, Final

DEPTHS: Final = (2, 31, 62, 63, 64, 65, 66, 99, 101, 199, 201, 1001, 50_000)
"""Around the limits of ours (64), of protocol buffers (100), of the JSON parser (200) and of Python's stack."""

TEXTS: Final = (
    "",
    " ",
    "\x00",
    "a\x00b",
    "\ud800",
    "half \ud83d.",
    "\udfff\ud800",
    "\u202eevil\u202c",
    "\u2028\u2029\u0085\x0b\x0c",
    "\ufeffbom",
    "e\u0301" * 50,
    "a" * 513,
    "a" * 70_000,
    "\U0001f469\u200d\U0001f467",
    "__proto__",
    "../../etc/passwd",
    "%00%0a%0d",
    "\r\nX-Injected: 1\r\n\r\n",
    "data: x\n\nevent: y\n\n",
    "${jndi:x}",
    "{}{0}%s%n",
    "1e999",
    "NaN",
    "null",
    "true",
    "-0",
    "2026-01-31T12:00:00.000Z",
    "0001-01-01T00:00:00+23:59",
    "9999-12-31T23:59:59-23:59",
    "\u0662\u0660\u0662\u0666-\u0660\u0661-\u0660\u0661T00:00:00Z",
    "AAAA",
    "A===",
    "_-_-",
    "http://[::1%25eth0]/",
    "http://127.0.0.1:99999/",
    "http://127.0.0.1:-1/",
    "http://u:p@127.0.0.1:1/",
    "http://[",
    "http://xn--a/",
    "file:///etc/passwd",
    "data:text/plain,x",
    "TASK_STATE_COMPLETED",
    "TASK_STATE_UNSPECIFIED",
    "ROLE_USER",
    "(a+)+$",
    "[",
    "^(?=a)(?<!b)\\1$",
    "x" * 10 + "{1000}" * 3,
)

NUMBERS: Final = (
    0,
    -1,
    1,
    0.0,
    -0.0,
    1.5,
    1e-308,
    1e308,
    2**31,
    2**53 + 1,
    -(2**63) - 1,
    2**64,
    10**400,
    -(10**4000),
    1e22,
    0.1,
    float("nan"),
    float("inf"),
    float("-inf"),
)

_TOKENS: Final = (
    "1" * 5000,
    "-" + "9" * 4299,
    "1e999",
    "-1e999",
    "1e-999",
    "0." + "0" * 2000 + "1",
    "01",
    "+1",
    ".5",
    "0x10",
    "'single'",
    "undefined",
    '"\\ud800"',
    '"\\udc00\\ud800"',
    '"\\u0000"',
    '"\\x41"',
    '"tab\there"',
    "{,}",
    "[1,]",
    '{"a":1,"a":2}',
    "/* no */ 1",
    "\ufeff1",
    "tru",
    "",
)
"""Texts in the place of a value, which no value could be written as."""

_MARK: Final = "\x01RAW"
_DEEP: Final = re.compile(r"\x01RAW[\[{](\d+)")
_MARKED: Final = re.compile(r'"\\u0001RAW(t|\[|\{)(\d+)"')


def text(chance: Random) -> str:
    """Some text."""
    match chance.randrange(5):
        case 0 | 1 | 2:
            return chance.choice(TEXTS)
        case 3:
            return "".join(chr(chance.randrange(0x250)) for _ in range(chance.randrange(12)))
        case _:
            return chance.choice(TEXTS)[:40] + chance.choice(TEXTS)[:40]


def number(chance: Random) -> Any:
    """Some number; not all of them can be written as JSON."""
    return chance.choice(NUMBERS) if chance.random() < 0.7 else chance.randrange(-(2**40), 2**40)


def raw_token(chance: Random) -> str:
    """What `spelled` replaces by a text that no value could be written as, or by a very deep one."""
    kind = chance.choice("ttt[{")
    if kind == "t":
        return f"{_MARK}t{chance.randrange(len(_TOKENS))}"
    return f"{_MARK}{kind}{chance.choice(DEPTHS)}"


def scalar(chance: Random) -> Any:
    """Some value that holds no others."""
    match chance.randrange(6):
        case 0 | 1:
            return text(chance)
        case 2 | 3:
            return number(chance)
        case 4:
            return raw_token(chance)
        case _:
            return chance.choice([None, True, False])


def value(chance: Random, levels: int = 3) -> Any:
    """Any value."""
    kind = chance.randrange(8)
    if levels == 0 or kind < 4:
        return scalar(chance)
    if kind == 4:
        return nested(chance.choice(DEPTHS[:9]), chance.choice(["list", "dict"]))
    size = chance.choice([0, 1, 1, 2, 3])
    if kind == 5:
        return [scalar(chance)] * chance.choice([0, 1, 2, 300])
    if kind == 6:
        return [value(chance, levels - 1) for _ in range(size)]
    return {text(chance): value(chance, levels - 1) for _ in range(size)}


def nested(levels: int, kind: str = "list") -> Any:
    """A value of so many levels."""
    made: Any = None
    for _ in range(levels):
        made = [made] if kind == "list" else {"a": made}
    return made


def spelled(document: Any, chance: Random) -> bytes:
    """A document as JSON text, or nearly: with NaN, halves of characters as bytes, and what `raw_token` stands for."""
    if chance.random() < 0.3:
        written = json.dumps(document, ensure_ascii=False)
        return _with_tokens(written.replace("\x01", "\\u0001")).encode("utf-8", "surrogatepass")
    return _with_tokens(json.dumps(document)).encode("utf-8", "surrogatepass")


def _with_tokens(written: str) -> str:
    return (
        _MARKED.sub(lambda found: _token(found[1], int(found[2])), written) if "RAW" in written else written
    )


def _token(kind: str, number: int) -> str:
    if kind == "t":
        return _TOKENS[number % len(_TOKENS)]  # a mutation may have made another number of it
    return "[" * number + "]" * number if kind == "[" else '{"a":' * number + "1" + "}" * number


def as_plain(document: Any) -> Any:
    """A document without what only a text can say: for parsers that take values."""
    if isinstance(document, dict):
        return {whole(key): as_plain(item) for key, item in document.items()}
    if isinstance(document, list):
        return [as_plain(item) for item in document]
    if isinstance(document, str):
        deep = _DEEP.fullmatch(document)
        return nested(min(int(deep[1]), 90)) if deep else whole(document)
    return document


def whole(said: str) -> str:
    """A text without halves of characters, as no wire brings them."""
    return said.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
