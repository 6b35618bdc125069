"""What is written where a terminal, or the encoding of a pipe, lacks a character: never a traceback, and nothing lost.

Our own marks become plain ones. Any other character is written as JSON escapes it, so that JSON stays JSON.
"""

from __future__ import annotations

import codecs
import json
import sys
from collections.abc import Mapping
from io import TextIOWrapper
from typing import Final

_HANDLER: Final = "mcp-a2a"

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
"""What this command, and the bars of rich, draw with."""


def write_what_the_terminal_lacks_otherwise() -> None:
    """Have stdout and stderr take every character, whatever their encoding."""
    codecs.register_error(_HANDLER, _otherwise)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors=_HANDLER)


def _otherwise(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(_MARKS.get(one) or json.dumps(one)[1:-1] for one in lacking), error.end
