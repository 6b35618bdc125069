"""Makes texts from peers safe to show: without control characters, bidirectional controls or invisible characters.

Pure. A terminal and a log get such characters as escapes; a host gets the text without them. Nothing here judges what a
text means.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

WEB_SCHEMES: Final = frozenset({"http", "https"})
"""The schemes of links that a person may be asked to open."""
_OF_PROGRAMS: Final = frozenset(
    {
        *(
            "javascript",
            "livescript",
            "vbscript",
            "data",
            "blob",
            "filesystem",
            "jar",
            "view-source",
            "about",
        ),
        *("file", "chrome", "edge", "resource", "moz-extension", "chrome-extension", "intent", "android-app"),
        *("smb", "cifs", "nfs", "ftp", "ftps", "sftp", "ssh", "telnet", "rlogin", "ldap", "ldaps", "gopher"),
        *("mailto", "tel", "sms", "facetime", "vscode", "vscode-insiders", "cursor", "jetbrains", "steam"),
        *("search-ms", "shell", "itms-services", "x-apple-helpbasic", "rdp", "vnc", "ws", "wss"),
    }
)
"""Schemes that make a browser or another program act, so they cannot name a resource of a server."""
_OF_PROGRAMS_BEGIN: Final = ("ms-", "x-apple", "com.apple")

_STEERING: Final = "\x00-\x08\x0b-\x1f\x7f-\x9f"
"""C0 except tab and line feed, DEL, and C1. Terminal commands begin with these characters."""
_HIDDEN: Final = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0"
    "\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Bidirectional controls, rarely supported line separators, and characters without a shape, including tags. (Unicode:
Bidi_Control, Zl, Zp, and most of Default_Ignorable_Code_Point.)"""
_JOINING: Final = "\u200c\u200d\ufe00-\ufe0f"
"""Joiners and variation selectors. Persian words and emoji need them, at most two in a row."""

_HALVES: Final = "\ud800-\udfff"
"""Lone surrogates, which UTF-8 cannot carry. JavaScript leaves them where it cuts a text."""

_UNSEEN: Final = re.compile(f"[{_STEERING}{_HIDDEN}]")
_SPELLED: Final = re.compile(f"[{_STEERING}{_HIDDEN}{_HALVES}]")
_LINE_END: Final = re.compile(f"[{_STEERING}{_HIDDEN}{_HALVES}\n]")
_LOST_JOINER: Final = re.compile(rf"(?:(?<=\s)|\A)[{_JOINING}]+|(?<=[{_JOINING}][{_JOINING}])[{_JOINING}]+")


def with_visible_characters(text: str, *, in_one_line: bool = False) -> str:
    """A text for a terminal or a text log: hidden characters and lone surrogates become escapes such as `\\x1b` or
    `\\u202e`."""
    return (_LINE_END if in_one_line else _SPELLED).sub(_code, text)


def spelled_as_json(text: str) -> str:
    """A JSON text for a text log: hidden characters become JSON escapes, so the value stays the same."""
    return _SPELLED.sub(lambda match: json.dumps(match[0])[1:-1], text)


def without_hidden_characters(text: str) -> str:
    """A text for a model, without the characters that a person would not see. (A model reads every character.)"""
    seen = _UNSEEN.sub("", text)
    return seen if seen.isascii() else _LOST_JOINER.sub("", seen)


def shell_word(text: str) -> str:
    """A text as one word of a line that a person pastes into a shell. The result is always printable ASCII.

    Unless the terminal marks pasted text, the shell treats a pasted control character as a key press, even between
    quotes. So control and non-ASCII characters become octal escapes between `$'` and `'`, which bash, zsh, ksh and
    POSIX 2024 support. So does `!`, which recalls earlier commands in csh and bash.
    """
    if text.isascii() and text.isprintable():
        return shlex.quote(text)
    return f"$'{''.join(map(_shell_escape, text.encode(errors='surrogatepass')))}'"


def shell_line(words: Iterable[str]) -> str:
    """A shell line of these words, each quoted by `shell_word`."""
    return " ".join(map(shell_word, words))


def ascii_json(value: object, *, spaced: bool = True) -> str:
    """A value as JSON in printable ASCII, for a shell line: `shell_word` need not escape it further."""
    text = json.dumps(value) if spaced else json.dumps(value, separators=(",", ":"))
    return text.replace("\x7f", "\\u007f")


def web_link(url: str | None) -> str | None:
    """The URL if a person may be asked to open it (`http` or `https`); else None."""
    if url is None or not url.isprintable() or " " in url:
        return None
    try:
        place = urlsplit(url)
    except ValueError:
        return None
    return url if place.scheme in WEB_SCHEMES and place.hostname else None


def icon_link(source: str | None) -> str | None:
    """The source of an icon if a host may show it: a web address or a data URL of an image (MCP `icons`); else None."""
    return source if web_link(source) or (source and source.startswith("data:image/")) else None


def resource_link(uri: str | None) -> str | None:
    """The URI of a resource if it may be passed on as a link; else None. A link is a web address, or a server's own
    name for a resource, such as `demo://notes/one`. A URI that makes a browser or another program act is not a link."""
    if uri is None or web_link(uri) is not None:
        return uri
    scheme, colon, _ = uri.partition(":")
    scheme = scheme.lower() if colon else ""
    if not uri.isprintable() or " " in uri or scheme in _OF_PROGRAMS:
        return None
    return None if scheme.startswith(_OF_PROGRAMS_BEGIN) else uri


def _shell_escape(byte: int) -> str:
    char = chr(byte)
    return char if char.isascii() and char.isprintable() and char not in "\\'!" else f"\\{byte:03o}"


def _code(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
