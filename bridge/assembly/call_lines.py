"""One call as a line for a shell: with this command, or with curl.

A shell hands the arguments on as they are, whatever they hold, also where the line is typed or pasted: the line is
printable ASCII, and all else is escapes of JSON or of the shell. No line has a secret; the page or command that shows
the line says where the shell takes the secret from. What is too long for a word of a command line comes over stdin.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import uuid4

from pydantic import JsonValue

from bridge.a2a.wire.versions import HEADER, VERSIONS
from bridge.text.jsonvalues import JsonObject
from bridge.text.safe_text import ascii_json, shell_line, shell_word

WORD_BYTES: Final = 100_000
"""The longest JSON in a command line. Linux takes words of 128 KiB (MAX_ARG_STRLEN)."""

_ID: Final = "the id of this message"
"""Stands where the shell puts in a new one: an agent takes a second message with the same id for the first."""
_NEW_ID: Final = "'$(date +%s)'"
"""Closes the quotes, and opens them again."""
_END: Final = "JSON"
_EXCLAMATION: Final = "\\u0021"
_TYPE: Final = "-H 'Content-Type: application/json'"
_MCP: Final = "2026-07-28"
"""The revision in which a tool is called without a session."""


def command_line(url: str, name: str, arguments: JsonObject, who: Sequence[str] = ()) -> str:
    """A call of a skill or tool with `mcp-a2a call`. `who` are the options that show a secret."""
    words, text = ["mcp-a2a", "call", url, name], _text_of(arguments)
    if not arguments:
        return shell_line([*words, *who])
    if _is_long(text):
        return f"{shell_line([*words, '--json', '@-', *who])} {_over_stdin(text)}"
    return shell_line([*words, "--json", text, *who])


def a2a_line(url: str, skill_id: str, arguments: JsonObject, who: str = "") -> str:
    """A message to an agent with curl. `who` is the option that shows a secret, quoted for the shell."""
    message: JsonObject = {
        "messageId": _ID,
        "role": "ROLE_USER",
        "parts": [{"data": {"skill": skill_id, "arguments": arguments}}],
    }
    request: JsonObject = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    start = _joined(f"curl -s {shell_word(url)}", f"-H '{HEADER}: {VERSIONS.current.version}'", _TYPE, who)
    text, at = _text_of(request), f'"messageId":"{_ID}"'
    if _is_long(text):
        # No shell puts anything in there: sent again, the line gets the task of the first time.
        own = text.replace(at, at.replace(_ID, str(uuid4())), 1)
        return f"{start} --data-binary @- {_over_stdin(own)}"
    return f"{start} -d {shell_word(text).replace(at, at.replace(_ID, _NEW_ID), 1)}"


def mcp_line(url: str, tool: str, arguments: JsonObject, who: str = "") -> str | None:
    """A call of a tool of an MCP server with curl; None for a name that no header can carry as it is."""
    if not tool.isascii() or not tool.isprintable():
        return None
    meta: JsonObject = {
        "io.modelcontextprotocol/protocolVersion": _MCP,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params: JsonObject = {"name": tool, "arguments": arguments, "_meta": meta}
    text = _text_of({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    start = _joined(
        f"curl -s {shell_word(url)} -H 'MCP-Protocol-Version: {_MCP}' -H 'Mcp-Method: tools/call'",
        f"-H {shell_word(f'Mcp-Name: {tool}')} -H 'Accept: application/json, text/event-stream'",
        _TYPE,
        who,
    )
    if _is_long(text):
        return f"{start} --data-binary @- {_over_stdin(text)}"
    return f"{start} -d {shell_word(text)}"


def _joined(*words: str) -> str:
    return " ".join(filter(None, words))


def _text_of(value: JsonValue) -> str:
    return ascii_json(value, spaced=False)


def _is_long(text: str) -> bool:
    return len(text) > WORD_BYTES


def _over_stdin(text: str) -> str:
    # JSON of one line is never the line that ends it. Shells recall earlier commands by `!` there, too.
    return f"<<'{_END}'\n{text.replace('!', _EXCLAMATION)}\n{_END}"
