"""An MCP server with notes as resources, prompts and completions, in this process and in either era.

Built on the official SDK. It keeps who has subscribed to what, and tells of changes when a test says so.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
import mcp_types as types
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from bridge.mcp.client.transports.in_process import InProcessTarget, low_level

Context = ServerRequestContext[Any, Any]

PUBLIC: Final = ("note:///public/a", "note:///public/b")
SECRET: Final = "note:///secret/c"
FILE: Final = "file:///home/ann/d"


@dataclass
class Notes:
    """The notes of one server, and what was asked of it."""

    uris: list[str] = field(default_factory=lambda: [*PUBLIC, SECRET, FILE])
    subscribed: Counter[str] = field(default_factory=Counter)
    """How often each resource was subscribed to and not given up, under MCP 2025-11-25."""
    listening: int = 0
    """How many requests `subscriptions/listen` are open, besides that of the bridge for its tools."""
    prompts: tuple[str, ...] = ("greet", "leak")
    templates: tuple[str, ...] = (
        "note:///public/{name}",
        "note:///secret/{name}",
        "note:///{+path}",
        "file:///{+path}",
    )
    read: list[str] = field(default_factory=list)
    moved: anyio.Event = field(default_factory=anyio.Event)
    bus: InMemorySubscriptionBus = field(default_factory=InMemorySubscriptionBus)
    _sessions: list[Any] = field(default_factory=list)

    @property
    def target(self) -> InProcessTarget:
        """The server as a bridge reaches it."""
        return InProcessTarget(
            "notes",
            low_level("notes", self.server()),
            exit_seconds=2.0,
            result_limit_bytes=1 << 20,
            result_json_values=20_000,
        )

    def server(self) -> Server[Any]:
        """The server of the SDK."""
        self._listen = ListenHandler(self.bus)
        return Server(
            "notes",
            version="1",
            on_list_tools=self._tools,
            on_call_tool=self._call,
            on_list_resources=self._resources,
            on_list_resource_templates=self._templates,
            on_read_resource=self._read,
            on_subscribe_resource=self._subscribe,
            on_unsubscribe_resource=self._unsubscribe,
            on_subscriptions_listen=self._listened,
            on_list_prompts=self._prompts,
            on_get_prompt=self._prompt,
            on_completion=self._complete,
        )

    async def update(self, uri: str) -> None:
        """Tell the subscribers of a resource that it has changed."""
        await self.bus.publish(ResourceUpdated(uri))
        for session in self._sessions:
            await session.send_resource_updated(uri)

    async def change_lists(self) -> None:
        """Tell the subscribers of lists that they have changed."""
        await self.bus.publish(ResourcesListChanged())
        await self.bus.publish(PromptsListChanged())
        for session in self._sessions:
            await session.send_resource_list_changed()
            await session.send_prompt_list_changed()

    def end_subscriptions(self) -> None:
        """End every request `subscriptions/listen` as a server does that stops."""
        self._listen.close()

    async def until(self, condition: Any) -> None:
        """Wait until something is so."""
        with anyio.fail_after(10):
            while not condition():
                await self.moved.wait()

    def _move(self) -> None:
        self.moved.set()
        self.moved = anyio.Event()

    async def _tools(self, context: Context, params: Any) -> types.ListToolsResult:
        if context.protocol_version not in MODERN_PROTOCOL_VERSIONS and context.session not in self._sessions:
            self._sessions.append(context.session)
        tool = types.Tool(
            name="count",
            input_schema={"type": "object", "properties": {"to": {"type": "integer"}}, "required": ["to"]},
        )
        return types.ListToolsResult(tools=[tool])

    async def _call(self, context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        return types.CallToolResult(content=self._links())

    def _links(self) -> list[Any]:
        """A link to each note, one to the web, and an embedded note."""
        uris = [*self.uris, "https://example.com/a"]
        links = [types.ResourceLink(type="resource_link", uri=uri, name=uri) for uri in uris]
        return [*links, types.EmbeddedResource(type="resource", resource=_text(SECRET))]

    async def _resources(self, context: Context, params: Any) -> types.ListResourcesResult:
        start = int(params.cursor) if params and params.cursor else 0
        listed = [types.Resource(uri=uri, name=uri[-1]) for uri in self.uris[start : start + 2]]
        following = str(start + 2) if start + 2 < len(self.uris) else None
        return types.ListResourcesResult(
            resources=listed, next_cursor=following, ttl_ms=1000, cache_scope="public"
        )

    async def _templates(self, context: Context, params: Any) -> types.ListResourceTemplatesResult:
        listed = [types.ResourceTemplate(uri_template=one, name=one) for one in self.templates]
        return types.ListResourceTemplatesResult(resource_templates=listed, ttl_ms=0, cache_scope="public")

    async def _read(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        uri = str(params.uri)
        self.read.append(uri)
        if uri == "note:///public/":
            return types.ReadResourceResult(
                contents=[_text(one) for one in self.uris], ttl_ms=0, cache_scope="public"
            )
        if uri not in self.uris:
            raise MCPError(-32002, "Resource not found", {"uri": uri})
        return types.ReadResourceResult(contents=[_text(uri)], ttl_ms=0, cache_scope="private")

    async def _subscribe(self, context: Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
        if str(params.uri) not in self.uris:
            raise MCPError(-32002, "Resource not found")
        self.subscribed[str(params.uri)] += 1
        self._move()
        return types.EmptyResult()

    async def _unsubscribe(
        self, context: Context, params: types.UnsubscribeRequestParams
    ) -> types.EmptyResult:
        self.subscribed[str(params.uri)] -= 1
        self.subscribed += Counter()
        self._move()
        return types.EmptyResult()

    async def _listened(self, context: Context, params: Any) -> types.SubscriptionsListenResult:
        is_counted = not params.notifications.tools_list_changed
        self.listening += is_counted
        self._move()
        try:
            return await self._listen(context, params)
        finally:
            self.listening -= is_counted
            self._move()

    async def _prompts(self, context: Context, params: Any) -> types.ListPromptsResult:
        listed = [types.Prompt(name=name) for name in self.prompts]
        return types.ListPromptsResult(prompts=listed, ttl_ms=0, cache_scope="public")

    async def _prompt(self, context: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        content: list[Any] = [types.TextContent(type="text", text=f"Hello {params.arguments}")]
        if params.name == "leak":
            content = self._links()
        messages = [types.PromptMessage(role="user", content=one) for one in content]
        return types.GetPromptResult(messages=messages)

    async def _complete(self, context: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        values = (
            ["a", "b", "c"] if isinstance(params.ref, types.PromptReference) else ["public/a", "secret/c"]
        )
        return types.CompleteResult(
            completion=types.Completion(values=values, total=len(values), has_more=False)
        )


def _text(uri: str) -> types.TextResourceContents:
    return types.TextResourceContents(uri=uri, text=f"the text of {uri}")
