"""The reference servers of MCP, wrapped: each tool that they list to us, called by the official A2A clients.

What a call gives is held against what the same tool of the same server gives the official MCP client, and
what it does against what it does then: before each call the world that the servers work on is made anew.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
import mcp_types as types
import pytest
from mcp import Client, MCPError, StdioServerParameters, stdio_client

from tests.interop.conversation import (
    COMPLETED,
    FAILED,
    PEERS,
    WORKING,
    Outcome,
    Reply,
    calling,
    client_of,
    converse,
)
from tests.peers import Json, PeerClient
from tests.peers.node import (
    everything_command,
    filesystem_command,
    memory_command,
    memory_environment,
    require_peers,
)
from tests.support.limits import command_of
from tests.support.raw_server import PIXEL
from tests.support.running import Running, config_for, running

pytestmark = pytest.mark.long

ALICE: Final = {"type": "entity", "name": "Alice", "entityType": "person", "observations": ["likes tea"]}
BOB: Final = {"type": "entity", "name": "Bob", "entityType": "person", "observations": []}
KNOWS: Final = {"type": "relation", "from": "Alice", "to": "Bob", "relationType": "knows"}
FIELDS: Final = "Please provide inputs for the following fields"
FILLED: Final = {
    "name": "Ada",
    "check": True,
    "firstLine": "grüße 🎈",
    "email": "ada@example.com",
    "homepage": "https://example.com/",
    "birthdate": "1815-12-10",
    "integer": 7,
    "number": 2.5,
    "untitledSingleSelectEnum": "Joey",
    "untitledMultipleSelectEnum": ["Piano", "Bass"],
    "titledSingleSelectEnum": "hero-2",
    "titledMultipleSelectEnum": ["fish-1", "fish-3"],
    "legacyTitledEnum": "pet-4",
}
VISIT: Final = {"url": "https://example.com/sign-in?x=1", "message": "Sign in", "elicitationId": "e-1"}
VISITED: Final = Reply("Sign in", visits=VISIT["url"])
URL_REQUIRED: Final = -32042
_TIME: Final = re.compile(r"\d\d?:\d\d:\d\d( [AP]M)?")

World = dict[str, str]
"""What there is: files by their path with their content, folders with a slash; entities and relations."""


@dataclass(frozen=True)
class Row:
    """One call of one tool. `@` in its arguments stands for the folder of the file server."""

    server: str
    tool: str
    arguments: Json = field(default_factory=dict)
    gives: str = ""
    """What stands in the text of the result, to be sure that there is one."""
    does: Callable[[World], bool] | None = None
    """What the world is like after it; by default as it was."""
    state: str = COMPLETED
    replies: tuple[Reply, ...] = ()
    """The answers to what the server asks, in order."""
    is_task: bool = False
    """Whether the server makes a task of it, which takes seconds and which the official client cannot follow."""

    @property
    def id(self) -> str:
        return f"{self.server}-{self.tool}"


def _graph(*lines: Json) -> Callable[[World], bool]:
    return lambda world: [json.loads(line) for line in world["graph"].splitlines()] == list(lines)


ROWS: Final = [
    Row("everything", "echo", {"message": "grüße 🎈\u2028"}, "Echo: grüße 🎈\u2028"),
    Row("everything", "get-annotated-message", {"messageType": "error", "includeImage": True}, "Error: "),
    Row("everything", "get-env", {}, "PATH"),
    Row("everything", "get-resource-links", {"count": 4}, "4 resource links"),
    Row("everything", "get-resource-reference", {"resourceType": "Text", "resourceId": 3}, "Resource 3"),
    Row("everything", "get-resource-reference", {"resourceType": "Blob", "resourceId": 2}, "Resource 2"),
    Row("everything", "get-structured-content", {"location": "Chicago"}, "temperature"),
    Row("everything", "get-sum", {"a": 2, "b": 40.5}, "The sum of 2 and 40.5 is 42.5."),
    Row("everything", "get-tiny-image", {}, "MCP"),
    Row(
        "everything",
        "gzip-file-as-resource",
        {"name": "a.gz", "data": "data:text/plain;base64,aGVsbG8=", "outputType": "resource"},
    ),
    Row(
        "everything",
        "gzip-file-as-resource",
        {"name": "b.gz", "data": "data:text/plain,hello", "outputType": "resourceLink"},
    ),
    Row("everything", "toggle-simulated-logging", {}, "imulated"),
    Row("everything", "toggle-subscriber-updates", {}, "imulated"),
    Row("everything", "trigger-long-running-operation", {"duration": 0.02, "steps": 2}, "Steps: 2"),
    Row("everything", "trigger-elicitation-request", {}, "- Name: Ada", replies=(Reply(FIELDS, FILLED),)),
    Row(
        "everything",
        "trigger-elicitation-request",
        {},
        "User declined",
        replies=(Reply(FIELDS, action="decline"),),
    ),
    Row(
        "everything",
        "trigger-elicitation-request",
        {},
        "User cancelled",
        replies=(Reply(FIELDS, action="cancel"),),
    ),
    Row("everything", "trigger-url-elicitation", VISIT, "User completed", replies=(VISITED,)),
    Row(
        "everything",
        "trigger-url-elicitation",
        VISIT,
        "User declined",
        replies=(Reply("Sign in", action="decline", visits=VISIT["url"]),),
    ),
    Row(
        "everything",
        "trigger-url-elicitation",
        {**VISIT, "errorPath": True},
        "User completed",
        replies=(Reply("satisfy the prerequisite", visits="https://modelcontextprotocol.io"), VISITED),
    ),
    Row(
        "everything",
        "simulate-research-query",
        {"topic": "tea"},
        "# Research Report: tea\n",
        is_task=True,
    ),
    Row(
        "everything",
        "simulate-research-query",
        {"topic": "python", "ambiguous": True},
        "# Research Report: python (snake)\n",
        replies=(Reply("Which interpretation of the topic", {"interpretation": "snake"}),),
        is_task=True,
    ),
    Row("filesystem", "read_file", {"path": "@/one.txt", "head": 2}, "first\nsecond"),
    Row("filesystem", "read_text_file", {"path": "@/one.txt"}, "first\nsecond\nthird"),
    Row("filesystem", "read_text_file", {"path": "@/../secret"}, "Access denied", state=FAILED),
    Row("filesystem", "read_media_file", {"path": "@/pixel.png"}),
    Row("filesystem", "read_multiple_files", {"paths": ["@/one.txt", "@/sub/two.md"]}, "# Two"),
    Row(
        "filesystem",
        "write_file",
        {"path": "@/new.txt", "content": "grüße"},
        "Successfully wrote",
        lambda world: world["new.txt"] == "grüße",
    ),
    Row(
        "filesystem",
        "edit_file",
        {"path": "@/one.txt", "edits": [{"oldText": "second", "newText": "2nd"}]},
        "+2nd",
        lambda world: world["one.txt"] == "first\n2nd\nthird",
    ),
    Row(
        "filesystem",
        "edit_file",
        {"path": "@/one.txt", "edits": [{"oldText": "second", "newText": "2nd"}], "dryRun": True},
        "+2nd",
    ),
    Row("filesystem", "create_directory", {"path": "@/a/b"}, "created", lambda world: "a/b/" in world),
    Row("filesystem", "list_directory", {"path": "@"}, "[DIR] sub"),
    Row("filesystem", "list_directory_with_sizes", {"path": "@", "sortBy": "size"}, "Total: 2 files"),
    Row("filesystem", "directory_tree", {"path": "@", "excludePatterns": ["*.png"]}, "two.md"),
    Row(
        "filesystem",
        "move_file",
        {"source": "@/one.txt", "destination": "@/sub/moved.txt"},
        "Successfully moved",
        lambda world: "one.txt" not in world and world["sub/moved.txt"].startswith("first"),
    ),
    Row("filesystem", "search_files", {"path": "@", "pattern": "**/*.md"}, "sub/two.md"),
    Row("filesystem", "get_file_info", {"path": "@/one.txt"}, "isFile: true"),
    Row("filesystem", "list_allowed_directories", {}, "Allowed directories"),
    Row(
        "memory",
        "create_entities",
        {"entities": [{"name": "Eve", "entityType": "person", "observations": ["grüßt"]}]},
        "Eve",
        lambda world: "Eve" in world["graph"],
    ),
    Row(
        "memory",
        "create_relations",
        {"relations": [{"from": "Bob", "to": "Alice", "relationType": "likes"}]},
        "likes",
        lambda world: "likes" in world["graph"].rpartition("\n")[2],
    ),
    Row(
        "memory",
        "add_observations",
        {"observations": [{"entityName": "Bob", "contents": ["sleeps"]}]},
        "sleeps",
        _graph(ALICE, {**BOB, "observations": ["sleeps"]}, KNOWS),
    ),
    Row("memory", "delete_entities", {"entityNames": ["Bob"]}, "deleted", _graph(ALICE)),
    Row(
        "memory",
        "delete_observations",
        {"deletions": [{"entityName": "Alice", "observations": ["likes tea"]}]},
        "deleted",
        _graph({**ALICE, "observations": []}, BOB, KNOWS),
    ),
    Row(
        "memory",
        "delete_relations",
        {"relations": [{"from": "Alice", "to": "Bob", "relationType": "knows"}]},
        "deleted",
        _graph(ALICE, BOB),
    ),
    Row("memory", "read_graph", {}, "Alice"),
    Row("memory", "search_nodes", {"query": "tea"}, "Alice"),
    Row("memory", "open_nodes", {"names": ["Bob"]}, "Bob"),
    Row(
        "memory",
        "add_observations",
        {"observations": [{"entityName": "Nobody", "contents": ["x"]}]},
        "Entity with name Nobody not found",
        state=FAILED,
    ),
]
SERVERS: Final = ("everything", "filesystem", "memory")


@dataclass(frozen=True)
class Servers:
    """Each server twice, behind the bridge and directly, and the world that both work on."""

    bridges: dict[str, Running]
    direct: dict[str, Client]
    root: Path
    graph: Path
    replies: list[Reply] = field(default_factory=list)
    """What the direct clients answer next."""

    async def answer(self, _: object, params: Any) -> types.ElicitResult:
        """What a direct client answers."""
        reply = self.replies.pop(0)
        assert getattr(params, "url", None) == reply.visits
        return types.ElicitResult(action=reply.action, content=reply.content)

    def arguments(self, row: Row) -> Any:
        """The arguments of a row, with the folder in its place."""
        return json.loads(json.dumps(row.arguments).replace("@", str(self.root)))

    def make_world(self) -> World:
        """Make the world anew."""
        for path in self.root.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        (self.root / "one.txt").write_text("first\nsecond\nthird")
        (self.root / "pixel.png").write_bytes(PIXEL.encode())
        (self.root / "sub").mkdir()
        (self.root / "sub" / "two.md").write_text("# Two")
        self.graph.write_text("\n".join(json.dumps(line) for line in (ALICE, BOB, KNOWS)))
        return self.world()

    def world(self) -> World:
        """What there is now."""
        found = {"graph": self.graph.read_text()}
        for path in self.root.rglob("*"):
            name = str(path.relative_to(self.root))
            found.update({f"{name}/": ""} if path.is_dir() else {name: path.read_text()})
        return found


@pytest.fixture(scope="module")
async def servers(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Servers]:
    """All servers, started once for this file."""
    require_peers()
    root = tmp_path_factory.mktemp("files").resolve()
    graph = tmp_path_factory.mktemp("memory") / "graph.jsonl"
    commands = {
        "everything": command_of(tuple(everything_command())),
        "filesystem": command_of(tuple(filesystem_command(root))),
        "memory": command_of(tuple(memory_command()), memory_environment(graph)),
    }
    made = Servers({}, {}, root, graph)
    made.make_world()
    async with AsyncExitStack() as stack:
        quiet = Path(os.devnull).open("w")  # noqa: SIM115 - the stack closes it
        stack.callback(quiet.close)
        for name, command in commands.items():
            program, *words = command.argv
            env = {"PYTHONUTF8": "1", **command.env}  # which `get-env` tells
            parameters = StdioServerParameters(command=program, args=words, env=env)
            transport = stdio_client(parameters, errlog=quiet)
            direct = Client(transport, mode="legacy", elicitation_callback=made.answer)
            made.direct[name] = await stack.enter_async_context(direct)
            made.bridges[name] = await stack.enter_async_context(running(config_for(command)))
        yield made


@pytest.fixture(scope="module", params=PEERS, ids="-".join)
async def clients(servers: Servers, request: pytest.FixtureRequest) -> AsyncIterator[dict[str, PeerClient]]:
    """A client of one kind for each server."""
    async with AsyncExitStack() as stack:
        yield {
            name: await stack.enter_async_context(client_of(request.param, bridge.base_url))
            for name, bridge in servers.bridges.items()
        }


@pytest.mark.proves("map-skill")
@pytest.mark.parametrize("server", SERVERS)
async def test_each_tool_that_a_server_lists_is_a_skill_and_has_a_row(server: str, servers: Servers) -> None:
    direct = await servers.direct[server].list_tools()
    listed = {tool.name for tool in direct.tools}
    # What takes a client that can sample or name its roots is listed to such a client only.
    assert {skill.id for skill in servers.bridges[server].bridge.agent.skills} == listed
    assert {row.tool for row in ROWS if row.server == server} == listed
    assert not servers.bridges[server].bridge.upstream.listing.left_out


@pytest.mark.proves("map-content", "map-is-error", "a2a-3.2.2-blocking", "a2a-3.1.2-stream")
@pytest.mark.parametrize("row", [row for row in ROWS if not row.is_task], ids=lambda row: row.id)
async def test_a_call_gives_and_does_what_it_does_directly(
    row: Row, servers: Servers, clients: dict[str, PeerClient]
) -> None:
    client = clients[row.server]
    arguments = servers.arguments(row)
    for streamed in (False, True):
        before = servers.make_world()
        servers.replies[:] = row.replies
        expected = await _called_directly(servers.direct[row.server], row.tool, arguments)
        assert not servers.replies
        expected_world = servers.world()
        servers.make_world()
        outcome = await converse(client, calling(row.tool, **arguments), row.replies, streamed=streamed)
        assert outcome.state == row.state, outcome
        given = outcome.parts if row.state == COMPLETED else outcome.said
        assert [_compared(part) for part in given] == [_compared(part) for part in expected]
        assert row.gives in "".join(part.get("text", "") for part in given)
        assert servers.world() == expected_world
        assert row.does(expected_world) if row.does else before == expected_world


@pytest.mark.proves("map-server-tasks", "map-elicitation-form")
async def test_calls_of_which_the_server_makes_tasks_are_followed_side_by_side(servers: Servers) -> None:
    """Each takes four seconds: all of them at once, of all clients."""
    rows = [row for row in ROWS if row.is_task]
    outcomes: list[tuple[Row, bool, Outcome]] = []

    async def hold(client: PeerClient, row: Row, *, streamed: bool) -> None:
        request = calling(row.tool, **servers.arguments(row))
        outcomes.append((row, streamed, await converse(client, request, row.replies, streamed=streamed)))

    async with AsyncExitStack() as stack:
        base_url = servers.bridges["everything"].base_url
        clients = [await stack.enter_async_context(client_of(peer, base_url)) for peer in PEERS]
        async with anyio.create_task_group() as tasks:
            for client, row, streamed in product(clients, rows, (False, True)):
                tasks.start_soon(partial(hold, client, row, streamed=streamed))
    assert len(outcomes) == len(PEERS) * len(rows) * 2
    for row, streamed, outcome in outcomes:
        assert outcome.state == COMPLETED, outcome
        (part,) = outcome.parts
        assert part["text"].startswith(row.gives)
        assert part["text"].count("✓") == 4
        assert not streamed or WORKING in outcome.states


async def _called_directly(client: Client, tool: str, arguments: Any) -> list[Json]:
    """The parts that a result has to become, written down without the bridge's own tables."""
    try:
        result = await client.call_tool(tool, arguments)
    except MCPError as exc:
        if exc.code != URL_REQUIRED:
            raise
        for elicitation in exc.data["elicitations"]:
            await client.elicitation_callback(None, types.ElicitRequestURLParams.model_validate(elicitation))
        result = await client.call_tool(tool, arguments)
    parts = [part for block in result.content for part in await _parts_of(block, client)]
    if result.structured_content is not None and not _is_said(result.structured_content, parts):
        parts.append({"data": result.structured_content, "mediaType": "application/json"})
    return parts


def _is_said(structured: Any, parts: list[Json]) -> bool:
    """Whether one text says all of it: as JSON, or as the one text that is wrapped in it."""
    texts = [part["text"] for part in parts if "text" in part]
    return any(structured in ({"result": text}, *_json_in(text)) for text in texts)


def _json_in(text: str) -> list[Any]:
    try:
        return [json.loads(text)]
    except ValueError:
        return []


async def _parts_of(block: types.ContentBlock, client: Client) -> list[Json]:
    match block:
        case types.TextContent():
            return [{"text": block.text}]
        case types.ImageContent() | types.AudioContent():
            return [{"raw": block.data, "mediaType": block.mime_type}]
        case types.EmbeddedResource():
            return [_part_of_resource(block.resource)]
        case types.ResourceLink():
            # Only the server can open such a link, so the bridge reads it and hands on what it holds.
            read = await client.read_resource(block.uri)
            return [_part_of_resource(contents) for contents in read.contents]


def _part_of_resource(resource: types.TextResourceContents | types.BlobResourceContents) -> Json:
    content = {"text": resource.text} if hasattr(resource, "text") else {"raw": resource.blob}
    return {
        **content,
        "mediaType": resource.mime_type,
        "filename": urlsplit(str(resource.uri)).path.rpartition("/")[2],
    }


def _compared(part: Json) -> Json:
    """A part without metadata, and without the time of day at which two servers made it."""
    kept = {
        key: part[key] for key in ("text", "raw", "data", "url", "mediaType", "filename") if part.get(key)
    }
    return json.loads(_TIME.sub("TIME", json.dumps(_opened(kept), ensure_ascii=False)))


def _opened(part: Json) -> Json:
    """Bytes that are text are compared as text: a time may stand in them. An answer that a server repeats is
    compared as data: protocol buffers keep no order of names."""
    _, repeats, answer = part.get("text", "").partition("Raw result: ")
    if repeats:
        return {**part, "text": json.loads(answer)}
    try:
        return {**part, "raw": base64.b64decode(part["raw"]).decode()} if "raw" in part else part
    except UnicodeDecodeError:
        return part
