"""One call as a line for a shell.

A shell hands the arguments on as they are, whatever they hold, also where the line is typed or pasted: the line is
printable ASCII, and all else is escapes of JSON or of the shell. No line has a secret; the page or command that shows
the line says where the shell takes the secret from. What is too long for a word of a command line comes over stdin.
"""

from __future__ import annotations

from typing import Final
from uuid import uuid4

from pydantic import JsonValue

from bridge.a2a.wire.versions import HEADER, VERSIONS
from bridge.text.jsonvalues import JsonObject
from bridge.text.safe_text import ascii_json, shell_word

WORD_BYTES: Final = 100_000
"""The longest JSON in a command line. Linux takes words of 128 KiB (MAX_ARG_STRLEN)."""

_ID: Final = "the id of this message"
"""Stands where the shell puts in a new one: an agent takes a second message with the same id for the first."""
_NEW_ID: Final = "'$(date +%s)'"
"""Closes the quotes, and opens them again."""
_END: Final = "JSON"
_EXCLAMATION: Final = "\\u0021"
JSON_TYPE: Final = "-H 'Content-Type: application/json'"


def a2a_line(url: str, skill_id: str, arguments: JsonObject, who: str = "") -> str:
    """A message to an agent with curl. `who` is the option that shows a secret, quoted for the shell."""
    message: JsonObject = {
        "messageId": _ID,
        "role": "ROLE_USER",
        "parts": [{"data": {"skill": skill_id, "arguments": arguments}}],
    }
    request: JsonObject = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    start = joined(f"curl -s {shell_word(url)}", f"-H '{HEADER}: {VERSIONS.current.version}'", JSON_TYPE, who)
    text, at = text_of(request), f'"messageId":"{_ID}"'
    if is_long(text):
        # No shell puts anything in there: sent again, the line gets the task of the first time.
        own = text.replace(at, at.replace(_ID, str(uuid4())), 1)
        return f"{start} --data-binary @- {over_stdin(own)}"
    return f"{start} -d {shell_word(text).replace(at, at.replace(_ID, _NEW_ID), 1)}"


def joined(*words: str) -> str:
    """These parts of a line, without the empty ones."""
    return " ".join(filter(None, words))


def text_of(value: JsonValue) -> str:
    """A value as JSON in printable ASCII."""
    return ascii_json(value, spaced=False)


def is_long(text: str) -> bool:
    """Whether a text is too long for a word of a command line."""
    return len(text) > WORD_BYTES


def over_stdin(text: str) -> str:
    """The end of a line with which JSON comes over stdin."""
    # JSON of one line is never the line that ends it. Shells recall earlier commands by `!` there, too.
    return f"<<'{_END}'\n{text.replace('!', _EXCLAMATION)}\n{_END}"
