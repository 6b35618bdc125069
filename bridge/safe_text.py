"""The words of peers as they may be shown: without what steers a terminal, turns a text around, or is not seen.

Pure. A terminal and a log are shown such characters spelled out; a host is given the words without. What the words
say is not judged.
"""

from __future__ import annotations

import json
import re
from typing import Final
from urllib.parse import urlsplit

_STEERING: Final = "\x00-\x08\x0b-\x1f\x7f-\x9f"
"""C0 but tab and line feed, DEL, and C1: what begins a terminal's commands."""
_HIDDEN: Final = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0"
    "\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""What turns text around (bidi), separates lines that few readers separate, or has no shape, the tags among them.
(Unicode: Bidi_Control, Zl, Zp, and most of Default_Ignorable_Code_Point.)"""
_JOINING: Final = "\u200c\u200d\ufe00-\ufe0f"
"""Joiners and variation selectors: Persian words and emoji are made with them, two in a row at most."""

_UNSEEN: Final = re.compile(f"[{_STEERING}{_HIDDEN}]")
_LINE_END: Final = re.compile(f"[{_STEERING}{_HIDDEN}\n]")
_LOST_JOINER: Final = re.compile(rf"(?:(?<=\s)|\A)[{_JOINING}]+|(?<=[{_JOINING}][{_JOINING}])[{_JOINING}]+")


def with_visible_characters(text: str, *, in_one_line: bool = False) -> str:
    """A text for a terminal or a text log: what is unseen in it as `\\x1b` or `\\u202e`, so that nothing is lost."""
    return (_LINE_END if in_one_line else _UNSEEN).sub(_code, text)


def spelled_as_json(text: str) -> str:
    """The same for what is JSON already: JSON's own escapes, which say the same to who reads it."""
    return _UNSEEN.sub(lambda found: json.dumps(found[0])[1:-1], text)


def without_hidden_characters(text: str) -> str:
    """A text for who reads every character of it, as a model does: without those that a person would not see."""
    seen = _UNSEEN.sub("", text)
    return seen if seen.isascii() else _LOST_JOINER.sub("", seen)


def web_link(url: str | None) -> str | None:
    """A URL that a person may be given to open: one of http or https; None for any other."""
    if url is None or not url.isprintable() or " " in url:
        return None
    try:
        place = urlsplit(url)
    except ValueError:
        return None
    return url if place.scheme in ("http", "https") and place.hostname else None


def _code(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
