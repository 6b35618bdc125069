"""One call as a line for a shell, for the page of a skill or tool: with this command, or with curl over MCP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bridge.assembly.call_lines import JSON_TYPE, is_long, joined, over_stdin, text_of
from bridge.text.jsonvalues import JsonObject
from bridge.text.safe_text import shell_line, shell_word

_MCP: Final = "2026-07-28"
"""The revision in which a tool is called without a session."""


def command_line(url: str, name: str, arguments: JsonObject, who: Sequence[str] = ()) -> str:
    """A call of a skill or tool with `mcp-a2a call`. `who` are the options that show a secret."""
    words, text = ["mcp-a2a", "call", url, name], text_of(arguments)
    if not arguments:
        return shell_line([*words, *who])
    if is_long(text):
        return f"{shell_line([*words, '--json', '@-', *who])} {over_stdin(text)}"
    return shell_line([*words, "--json", text, *who])


def mcp_line(url: str, tool: str, arguments: JsonObject, who: str = "") -> str | None:
    """A call of a tool of an MCP server with curl; None for a name that no header can carry as it is."""
    if not tool.isascii() or not tool.isprintable():
        return None
    meta: JsonObject = {
        "io.modelcontextprotocol/protocolVersion": _MCP,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params: JsonObject = {"name": tool, "arguments": arguments, "_meta": meta}
    text = text_of({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    start = joined(
        f"curl -s {shell_word(url)} -H 'MCP-Protocol-Version: {_MCP}' -H 'Mcp-Method: tools/call'",
        f"-H {shell_word(f'Mcp-Name: {tool}')} -H 'Accept: application/json, text/event-stream'",
        JSON_TYPE,
        who,
    )
    if is_long(text):
        return f"{start} --data-binary @- {over_stdin(text)}"
    return f"{start} -d {shell_word(text)}"
