"""Gives pages of a long text, fetched again from its agent. The link names the task, so no state is kept here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from bridge.agents_as_tools.handles import Handles
from bridge.agents_as_tools.resources import part_at
from bridge.mcp.server.face import IncomingCall, McpRefusal
from bridge.remotes.remote_agent import RemoteAgent
from bridge.text.jsonvalues import JsonObject
from bridge.translate.call_to_message import BadArgumentsError
from bridge.translate.previews import page_of, page_result, text_in

_LINK_CHARACTERS: Final = 4000
"""The longest link that is read. The bridge's own links are shorter."""


async def page_for(
    incoming: IncomingCall, agents: Mapping[str, RemoteAgent], handles: Handles, limit_bytes: int
) -> JsonObject:
    """The page that a call of the page tool asks for. `agents` are by mark.

    Raises:
        BadArgumentsError: the arguments are not as the tool's schema asks, or name no text of this principal.
        PeerError: the agent cannot be asked.
    """
    link, first_byte = incoming.arguments.get("link"), incoming.arguments.get("first_byte", 0)
    if not isinstance(link, str) or len(link) > _LINK_CHARACTERS:
        raise BadArgumentsError("link: the link that an earlier result gave")
    if not isinstance(first_byte, int) or isinstance(first_byte, bool) or first_byte < 0:
        raise BadArgumentsError("first_byte: a whole number, 0 or more")
    caller = incoming.on_behalf_of
    try:
        part = await part_at(link, agents, handles, incoming.principal, caller.token)
    except McpRefusal as exc:
        raise BadArgumentsError(f"link: {exc}") from exc
    if (text := text_in(part)) is None:
        raise BadArgumentsError("link: this is no text. Read it as a resource")
    page = page_of(text, first_byte, limit_bytes)
    if page.first_byte >= page.whole_bytes > 0:
        raise BadArgumentsError(f"first_byte: the text has {page.whole_bytes} bytes")
    return page_result(page, link)
