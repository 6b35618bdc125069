"""Replaces characters that the encoding of a terminal or pipe lacks, so that output neither fails nor loses text.

The command's own marks become ASCII. Any other character becomes a JSON escape, so that JSON stays valid.
"""

from __future__ import annotations

import codecs
import json
import sys
from collections.abc import Mapping
from io import TextIOWrapper
from typing import Final

REPLACING: Final = "mcp-a2a"
"""The name of the error handler that replaces."""

_MARKS: Final[Mapping[str, str]] = {
    "\N{CHECK MARK}": "+",
    "\N{BALLOT X}": "x",
    "\N{HORIZONTAL ELLIPSIS}": "...",
    "\N{EM DASH}": "-",
    "\N{EN DASH}": "-",
    "\N{BOX DRAWINGS HEAVY HORIZONTAL}": "-",
    "\N{BOX DRAWINGS HEAVY LEFT}": "-",
    "\N{BOX DRAWINGS HEAVY RIGHT}": "-",
}
"""Marks of this command, and of the progress bars of rich."""


def replace_unencodable_characters() -> None:
    """Make stdout and stderr accept every character, whatever their encoding."""
    codecs.register_error(REPLACING, _replacement)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors=REPLACING)


def _replacement(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    return "".join(_MARKS.get(character) or json.dumps(character)[1:-1] for character in missing), error.end
