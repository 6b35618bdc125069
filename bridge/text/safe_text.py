"""Makes the texts of peers safe to show: no control characters, bidirectional controls or invisible characters.

Pure. A terminal and a log get such characters as escapes; a host gets the text without them. The meaning of the text
is not judged.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

WEB_SCHEMES: Final = frozenset({"http", "https"})
"""The schemes of what a person is given to open."""
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
"""Schemes that name no resource of a server, since a browser or another program acts on them."""
_OF_PROGRAMS_BEGIN: Final = ("ms-", "x-apple", "com.apple")

_STEERING: Final = "\x00-\x08\x0b-\x1f\x7f-\x9f"
"""C0 except tab and line feed, DEL, and C1: these begin the commands of a terminal."""
_HIDDEN: Final = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0"
    "\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Bidirectional controls, line separators that few readers know, and characters without a shape, tags included.
(Unicode: Bidi_Control, Zl, Zp, and most of Default_Ignorable_Code_Point.)"""
_JOINING: Final = "\u200c\u200d\ufe00-\ufe0f"
"""Joiners and variation selectors. Persian words and emoji need them, at most two in a row."""

_HALVES: Final = "\ud800-\udfff"
"""Halves of surrogate pairs, which UTF-8 cannot carry. JavaScript leaves them where it cuts a text."""

_UNSEEN: Final = re.compile(f"[{_STEERING}{_HIDDEN}]")
_SPELLED: Final = re.compile(f"[{_STEERING}{_HIDDEN}{_HALVES}]")
_LINE_END: Final = re.compile(f"[{_STEERING}{_HIDDEN}{_HALVES}\n]")
_LOST_JOINER: Final = re.compile(rf"(?:(?<=\s)|\A)[{_JOINING}]+|(?<=[{_JOINING}][{_JOINING}])[{_JOINING}]+")


def with_visible_characters(text: str, *, in_one_line: bool = False) -> str:
    """A text for a terminal or a text log: hidden characters, and halves of characters, become
    escapes such as `\\x1b` or `\\u202e`."""
    return (_LINE_END if in_one_line else _SPELLED).sub(_code, text)


def spelled_as_json(text: str) -> str:
    """The same for a text that is JSON already: hidden characters become JSON escapes, so its value stays the same."""
    return _SPELLED.sub(lambda found: json.dumps(found[0])[1:-1], text)


def without_hidden_characters(text: str) -> str:
    """A text for a model, which reads every character: without the characters that a person would not see."""
    seen = _UNSEEN.sub("", text)
    return seen if seen.isascii() else _LOST_JOINER.sub("", seen)


def shell_word(text: str) -> str:
    """A text as a word of a line that a person copies into a shell: printable ASCII alone, whatever it holds.

    What is pasted into a shell counts as typed where the terminal does not mark it as pasted, so that a control
    character does there what its key does, even between quotes. Other characters are octal escapes between `$'` and
    `'`, which bash, zsh, ksh and POSIX 2024 have. So is `!`, with which csh and bash recall earlier commands.
    """
    if text.isascii() and text.isprintable():
        return shlex.quote(text)
    return f"$'{''.join(map(_shell_escape, text.encode(errors='surrogatepass')))}'"


def shell_line(words: Iterable[str]) -> str:
    """The line for a shell that has these words, each quoted as by `shell_word`."""
    return " ".join(map(shell_word, words))


def ascii_json(value: object, *, spaced: bool = True) -> str:
    """JSON of printable ASCII alone, for a line of a shell: its escapes stay readable."""
    text = json.dumps(value) if spaced else json.dumps(value, separators=(",", ":"))
    return text.replace("\x7f", "\\u007f")


def web_link(url: str | None) -> str | None:
    """The URL if it is safe to give a person to open (`http` or `https`); else None."""
    if url is None or not url.isprintable() or " " in url:
        return None
    try:
        place = urlsplit(url)
    except ValueError:
        return None
    return url if place.scheme in WEB_SCHEMES and place.hostname else None


def icon_link(source: str | None) -> str | None:
    """The source of an icon if a host may show it: a web address, or the image itself (MCP `icons`); else None."""
    return source if web_link(source) or (source and source.startswith("data:image/")) else None


def resource_link(uri: str | None) -> str | None:
    """The URI of a resource if it may be given as a link; else None: a web address, or the name that a server has for
    a resource of its own, as `demo://notes/one`. What a browser or another program would run, read or open is none."""
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


def _code(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
