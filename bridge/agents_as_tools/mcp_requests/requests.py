"""Implements `bridge.mcp.server.face.RequestFace`: passes requests of MCP to the agents that share MCP servers.

Nothing is cached: each request goes to the agent, with the credentials for its caller. A list over several servers has
at least one page for each server. Its cursor names the server and holds the server's own cursor.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final
from uuid import uuid4

import anyio

from bridge import trace
from bridge.a2a.client.agent_client import AgentClient
from bridge.a2a.client.follow import FollowPace, wait_until_settled
from bridge.a2a.model.life import SETTLED
from bridge.a2a.model.objects import Message, Part, SendMessageRequest, Task, TaskState, text_of_parts
from bridge.agents_as_tools.mcp_requests.shared_servers import LISTS, SharedServer
from bridge.agents_as_tools.mcp_requests.subscriptions import AgentSubscriptions, Listener, Sharing
from bridge.errors import BridgeError, PeerError, echoed
from bridge.identity.callers.principals import Principal
from bridge.identity.callers.resource_rights import ALL, may_become, may_lead_there, may_use
from bridge.identity.tokens.caller_token import Caller
from bridge.mcp.server.face import INVALID_PARAMS, McpRefusal, refusal_of
from bridge.text.jsonvalues import JsonObject
from bridge.translate.extensions.mcp_requests import (
    COMPLETE,
    McpError,
    McpRequest,
    answer_from_parts,
    message_of_request,
)
from bridge.translate.extensions.shared_results import SharedView, visible

logger = logging.getLogger(__name__)

_CAPABILITIES: Final[Mapping[str, str]] = {
    "resources/list": "resources",
    "resources/templates/list": "resources",
    "resources/read": "resources",
    "prompts/list": "prompts",
    "prompts/get": "prompts",
    COMPLETE: "completions",
}
_SUBJECT_CHARACTERS: Final = 2000
"""How much of a URI or a name is told to the audit."""
_PROTOCOL_META: Final = "io.modelcontextprotocol/"
_HOP_META: Final = frozenset({"progressToken", *trace.NAMES})
"""Fields of `_meta` that belong to one connection. The bridge has its own at the next one."""


class AgentRequests:
    """The requests that the agents of one MCP server of the bridge answer."""

    def __init__(
        self,
        sharing: Sharing,
        subscriptions: AgentSubscriptions,
        *,
        is_own: Callable[[str, str], bool],
        is_example: Callable[[str], bool],
    ) -> None:
        """`is_own` says whether a URI is a resource of the bridge itself, for a principal; `is_example`, whether a
        prompt of this name is an example of a skill."""
        self._sharing = sharing
        self._is_own = is_own
        self._is_example = is_example
        self._subscriptions = subscriptions

    @property
    def capabilities(self) -> JsonObject:
        """See `RequestFace`."""
        return self._sharing.servers().capabilities

    def takes(self, method: str, params: JsonObject, principal: Principal) -> bool:
        """See `RequestFace`."""
        shared = self._sharing.servers()
        if method not in _CAPABILITIES or _CAPABILITIES[method] not in shared.capabilities:
            return False
        if method in LISTS or method == COMPLETE:
            return True
        return self._server_for(method, params, principal) is not None

    def meant(self, method: str, params: JsonObject, principal: Principal) -> tuple[str, str]:
        """See `RequestFace`. A list over several servers begins with the first of them."""
        if not self.takes(method, params, principal):
            return "", ""
        server: SharedServer | None
        if method in LISTS:
            servers = self._sharing.servers().with_capability(_CAPABILITIES[method])
            try:
                place, _ = (0, params) if len(servers) == 1 else _place_in(servers, params)
            except McpRefusal:
                return "", ""
            server = servers[place]
        else:
            server = self._server_for(method, params, principal)
        return ("", "") if server is None else (server.agent_key, _subject_of(method, params))

    async def answer(self, method: str, params: JsonObject, principal: Principal) -> JsonObject:
        """See `RequestFace`."""
        own = _without_hop_fields(params)
        if method in LISTS:
            return await self._page(method, own, principal)
        server = self._server_for(method, own, principal)
        if server is None:
            raise _unknown(method, params)
        return await self._answer(server, method, own, principal)

    def listener(self, principal: Principal, tell: Callable[[JsonObject], None]) -> Listener:
        """See `RequestFace`."""
        return self._subscriptions.listener(principal, tell)

    # Which server

    def _server_for(self, method: str, params: JsonObject, principal: Principal) -> SharedServer | None:
        """The server that a read, a prompt or a completion is meant for, if the principal may use it."""
        about = params.get("ref") if method == COMPLETE else params
        if not isinstance(about, dict):
            return None
        shared, uri, name = self._sharing.servers(), about.get("uri"), about.get("name")
        if isinstance(uri, str) and method != "prompts/get":
            is_allowed = may_lead_there if method == COMPLETE else may_use
            if not is_allowed(principal.resource_globs, uri) or self._is_own(uri, principal.name):
                return None
            server = shared.of_uri(uri)
        elif isinstance(name, str) and method != "resources/read":
            is_open = principal.may_use_prompt(name) and not self._is_example(name)
            server = shared.of_prompt(name) if is_open else None
        else:
            return None
        return None if server is None or not server.can(_CAPABILITIES[method]) else server

    # Lists

    async def _page(self, method: str, params: JsonObject, principal: Principal) -> JsonObject:
        """A page of the list: of one server. A server among several that cannot be asked is passed over."""
        servers = self._sharing.servers().with_capability(_CAPABILITIES[method])
        if len(servers) == 1:
            return await self._answer(servers[0], method, params, principal)
        place, params = _place_in(servers, params)
        for number, server in enumerate(servers[place:], place):
            following = servers[number + 1].id if number + 1 < len(servers) else None
            try:
                page = await self._answer(server, method, params, principal)
            except McpRefusal as exc:
                if "cursor" in params:
                    raise
                logger.warning("%s is left out of %s: %s", server.id, method, exc.message)
                continue
            return _with_cursor(page, server.id, following)
        return {LISTS[method][0]: []}

    # Asking an agent

    async def _answer(
        self, server: SharedServer, method: str, params: JsonObject, principal: Principal
    ) -> JsonObject:
        if (hop := trace.hop.get()) is not None:
            hop.peer, hop.subject = server.agent_key, _subject_of(method, params)
        try:
            answer = await self._asked(server, method, params, principal)
            if isinstance(answer, McpError):
                raise McpRefusal(answer.code, answer.message, answer.data)
            shown = visible(method, params, server.shown(method, answer), _view_of(principal))
            return self._without_hidden(server, method, shown, principal)
        except BridgeError as exc:
            raise refusal_of(exc) from exc

    async def _asked(
        self, server: SharedServer, method: str, params: JsonObject, principal: Principal
    ) -> JsonObject | McpError:
        agent, options = self._sharing.agent(server.agent_key), self._sharing.options()
        if agent is None:
            raise PeerError(f"The agent {server.agent_key} is no longer there")
        client = agent.client_for(Caller(principal.name, principal.token))
        request = McpRequest(method, server.own_params(method, params), server.key)
        seconds = options.agents.answer_within_seconds
        with anyio.move_on_after(seconds):
            return answer_from_parts(await _reply(client, request, options.pace))
        raise PeerError(f"The agent {server.agent_key} did not answer {method} within {seconds:g} s")

    def _without_hidden(
        self, server: SharedServer, method: str, result: JsonObject, principal: Principal
    ) -> JsonObject:
        """A list without the entries that another server's prefix, or something of the bridge itself, hides."""
        if method not in LISTS:
            return result
        field_name, name = LISTS[method]
        entries = result[field_name]
        assert isinstance(entries, list)
        shared = self._sharing.servers()

        def is_shown(entry: object) -> bool:
            assert isinstance(entry, dict)
            shown = entry[name]
            if name == "name":
                return not self._is_example(shown) and shared.of_prompt(shown) == server
            if name == "uri" and self._is_own(shown, principal.name):
                return False  # a read of this URI gives the bridge's own resource, which is listed already
            return shared.of_uri(shown) == server

        return {**result, field_name: [entry for entry in entries if is_shown(entry)]}


def _view_of(principal: Principal) -> SharedView:
    """What a principal may use of resources and prompts, by the names that hosts know."""
    globs = principal.resource_globs
    return SharedView(
        ALL not in globs or ALL not in principal.prompt_globs,
        partial(may_use, globs),
        partial(may_lead_there, globs),
        partial(may_become, globs),
        principal.may_use_prompt,
    )


async def _reply(client: AgentClient, request: McpRequest, pace: FollowPace) -> tuple[Part, ...]:
    """The parts of the agent's answer. Some versions of A2A, and some gateways, make a task of each message.

    Raises:
        PeerError: the agent cannot be asked, or its task has failed.
    """
    answer = await client.send(SendMessageRequest(message=message_of_request(request, str(uuid4()))))
    if isinstance(answer, Task) and answer.status.state not in SETTLED:
        answer = await wait_until_settled(client, answer.id, pace=pace)
    if isinstance(answer, Message):
        return answer.parts
    last = answer.status.message or (answer.history[-1] if answer.history else None)
    parts = () if last is None else last.parts
    if answer.status.state is TaskState.AUTH_REQUIRED:
        # A host has no task to come back to, so it asks again once its user has logged in.
        with suppress(BridgeError):
            await client.cancel(answer.id)
        raise PeerError(f"{text_of_parts(parts)}\nThen ask again: this request was canceled")
    if answer.status.state is not TaskState.COMPLETED and not any(part.kind == "data" for part in parts):
        raise PeerError(text_of_parts(parts) or f"the agent's task is {answer.status.state.word}")
    return parts


# Cursors


def _place_in(servers: list[SharedServer], params: JsonObject) -> tuple[int, JsonObject]:
    """The number of the server that a cursor names, and the params with the server's own cursor.

    Raises:
        McpRefusal: the cursor is not of this list.
    """
    if "cursor" not in params:
        return 0, params
    rest = {key: value for key, value in params.items() if key != "cursor"}
    cursor: JsonObject = {}
    try:
        match json.loads(str(params["cursor"])):
            case [str(server_id)]:
                pass
            case [str(server_id), str(inner)]:
                cursor = {"cursor": inner}
            case _:
                server_id = ""
    except (ValueError, RecursionError):
        server_id = ""
    number = next((number for number, server in enumerate(servers) if server.id == server_id), None)
    if number is None:
        raise McpRefusal(INVALID_PARAMS, "The cursor is not known")
    return number, {**rest, **cursor}


def _with_cursor(page: JsonObject, server_id: str, following: str | None) -> JsonObject:
    """A page whose cursor names the server: of its next page, or the following server."""
    inner = page.get("nextCursor")
    rest = {key: value for key, value in page.items() if key != "nextCursor"}
    if isinstance(inner, str):
        return {**rest, "nextCursor": json.dumps([server_id, inner])}
    return rest if following is None else {**rest, "nextCursor": json.dumps([following])}


def _without_hop_fields(params: JsonObject) -> JsonObject:
    """The params without the fields of `_meta` that belong to the host's connection."""
    meta = params.get("_meta")
    if not isinstance(meta, dict):
        return params
    rest = {
        key: value
        for key, value in meta.items()
        if key not in _HOP_META and not key.startswith(_PROTOCOL_META)
    }
    without = {key: value for key, value in params.items() if key != "_meta"}
    return {**without, "_meta": rest} if rest else without


def _subject_of(method: str, params: JsonObject) -> str:
    """The URI or the name that a request is about; "" for a list."""
    about = params.get("ref") if method == COMPLETE else params
    names = about if isinstance(about, dict) else {}
    return str(names.get("uri") or names.get("name") or "")[:_SUBJECT_CHARACTERS]


def _unknown(method: str, params: JsonObject) -> McpRefusal:
    """The refusal of a request about something that is not there for the principal."""
    about = params.get("ref") if method == COMPLETE else params
    names = about if isinstance(about, dict) else {}
    if isinstance(uri := names.get("uri"), str):
        return McpRefusal(INVALID_PARAMS, f"There is no resource {echoed(uri)}", {"uri": echoed(uri)})
    return McpRefusal(INVALID_PARAMS, f"There is no prompt {echoed(str(names.get('name')))}")
