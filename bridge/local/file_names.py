"""File names: those of others made safe, and those that Windows takes for something else. Pure but for the suffixes of
media types, which the system may add to: paths are taken as on the system of their class.

Windows gives some names to devices, whatever folder and ending stand with them, cuts dots and spaces from the end of
a name, and by default finds no path of more than 259 characters.

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
"""Characters of a path on Windows, unless long paths are switched on there."""


_NOT_IN_FILES: Final = re.compile(r"[^\w.-]+")
_NAME_CHARACTERS: Final = 100


def safe_file_name(given: str) -> str:
    """The name of a file without any path that others may have given it; "" when nothing is left."""
    last = given.replace("\\", "/").rstrip("/").rpartition("/")[2]
    return fit_for_every_system(_NOT_IN_FILES.sub("_", last).lstrip(".")[-_NAME_CHARACTERS:])


def named_by_type(stem: str, media_type: str) -> str:
    """A safe file name of a stem, with the suffix of a media type (`.bin` for an unknown type); "" without a stem."""
    safe = _NOT_IN_FILES.sub("_", stem).strip("._")[:_NAME_CHARACTERS]
    plain = media_type.partition(";")[0].strip()
    subtype = re.fullmatch(r"\w+/(?:x-)?([a-z0-9]{1,8})", plain)
    suffix = mimetypes.guess_extension(plain) or (f".{subtype[1]}" if subtype else ".bin")
    return fit_for_every_system(f"{safe}{suffix}") if safe else ""


def is_device(name: str) -> bool:
    """Whether Windows takes a file name for a device: `con`, `NUL.txt`, `com1.tar.gz`."""
    return _DEVICE.fullmatch(re.split(r"[.:]", name, maxsplit=1)[0]) is not None


def fit_for_every_system(name: str) -> str:
    """The name, changed if a system would take it for a device or cut it. (The name has no separators.)"""
    kept = name.rstrip(_CUT)
    return f"_{kept}" if is_device(kept) else kept


def refusal_of(path: PurePath) -> str | None:
    """Why the system of this path takes its name for no file, in words; None when it is one."""
    if isinstance(path, PureWindowsPath) and is_device(path.name):
        return f"Windows takes {path.name} for a device: give it another name"
    return None


def length_hint(path: PurePath, more: int) -> str:
    """What to do about a path that cannot be opened, if the system of this path may find it too long; else "".

    Args:
        more: the characters by which the names of files beside it are longer.
    """
    if isinstance(path, PureWindowsPath) and len(str(path)) + more > MOST_CHARACTERS:
        return f"; Windows takes {MOST_CHARACTERS} characters, unless long paths are switched on (LongPathsEnabled)"
    return ""
