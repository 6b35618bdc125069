"""Makes names from peers safe as file names, and finds names that Windows does not treat as files. Pure, except that
the system may add suffixes of media types. The rules of Windows hold for a `PureWindowsPath`, those of POSIX for a
`PurePosixPath`.

Windows reserves some names for devices, in every folder and with every ending. It cuts dots and spaces from the end of
a name, and by default it cannot open paths of more than 259 characters.

Source: learn.microsoft.com/windows/win32/fileio/naming-a-file.
"""

from __future__ import annotations

import mimetypes
import re
from pathlib import PurePath, PureWindowsPath
from typing import Final

_DEVICE: Final = re.compile(
    r"(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9\u00b9\u00b2\u00b3]) *", re.IGNORECASE
)
_CUT: Final = ". "
MOST_CHARACTERS: Final = 259
"""The most characters of a path on Windows, unless long paths are enabled."""


_NOT_IN_FILES: Final = re.compile(r"[^\w.-]+")
_NAME_CHARACTERS: Final = 100


def safe_file_name(name: str) -> str:
    """A safe file name from a name that a peer gave, without its folders; "" if nothing is left."""
    last = name.replace("\\", "/").rstrip("/").rpartition("/")[2]
    return fit_for_every_system(_NOT_IN_FILES.sub("_", last).lstrip(".")[-_NAME_CHARACTERS:])


def named_by_type(stem: str, media_type: str) -> str:
    """A safe file name: the stem with the suffix of the media type (`.bin` for an unknown type); "" if nothing is left
    of the stem."""
    safe = _NOT_IN_FILES.sub("_", stem).strip("._")[:_NAME_CHARACTERS]
    plain = media_type.partition(";")[0].strip()
    subtype = re.fullmatch(r"\w+/(?:x-)?([a-z0-9]{1,8})", plain)
    suffix = mimetypes.guess_extension(plain) or (f".{subtype[1]}" if subtype else ".bin")
    return fit_for_every_system(f"{safe}{suffix}") if safe else ""


def is_device(name: str) -> bool:
    """Whether Windows takes a file name for a device: `con`, `NUL.txt`, `com1.tar.gz`."""
    return _DEVICE.fullmatch(re.split(r"[.:]", name, maxsplit=1)[0]) is not None


def fit_for_every_system(name: str) -> str:
    """The name, changed if Windows would cut it or take it for a device. (The name has no separators.)"""
    trimmed = name.rstrip(_CUT)
    return f"_{trimmed}" if is_device(trimmed) else trimmed


def refusal_of(path: PurePath) -> str | None:
    """Why this path cannot name a file on its system, in words; None if it can."""
    if isinstance(path, PureWindowsPath) and is_device(path.name):
        return f"Windows takes {path.name} for a device: give it another name"
    return None


def length_hint(path: PurePath, more: int) -> str:
    """A hint for a path that could not be opened, if the path may be too long for its system; else "".

    Args:
        more: how many more characters the longest name of a file in the same folder has.
    """
    if isinstance(path, PureWindowsPath) and len(str(path)) + more > MOST_CHARACTERS:
        return f"; Windows takes {MOST_CHARACTERS} characters, unless long paths are switched on (LongPathsEnabled)"
    return ""
