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
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import mcp_types as types
import pytest
from mcp import Client, StdioServerParameters, stdio_client

from bridge.mcp.child import Command
from tests.interop.conversation import COMPLETED, FAILED, PEERS, Outcome, calling, client_of
from tests.peers import Json, PeerClient
from tests.peers.node import (
    everything_command,
    filesystem_command,
    memory_command,
    memory_environment,
    require_peers,
)
from tests.support.raw_server import PIXEL
from tests.support.running import Running, config_for, running

ALICE: Final = {"type": "entity", "name": "Alice", "entityType": "person", "observations": ["likes tea"]}
BOB: Final = {"type": "entity", "name": "Bob", "entityType": "person", "observations": []}
KNOWS: Final = {"type": "relation", "from": "Alice", "to": "Bob", "relationType": "knows"}
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
    Row(
        "everything", "simulate-research-query", {"topic": "tea"}, "requires task augmentation", state=FAILED
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
        "everything": Command(tuple(everything_command())),
        "filesystem": Command(tuple(filesystem_command(root))),
        "memory": Command(tuple(memory_command()), memory_environment(graph)),
    }
    made = Servers({}, {}, root, graph)
    made.make_world()
    async with AsyncExitStack() as stack:
        quiet = Path(os.devnull).open("w")  # noqa: SIM115 - the stack closes it
        stack.callback(quiet.close)
        for name, command in commands.items():
            program, *words = command.argv
            parameters = StdioServerParameters(command=program, args=words, env=dict(command.env))
            direct = Client(stdio_client(parameters, errlog=quiet), mode="legacy")
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
    # What takes a client that can sample, be asked or name its roots is listed to such a client only.
    assert {skill.id for skill in servers.bridges[server].bridge.agent.skills} == listed
    assert {row.tool for row in ROWS if row.server == server} == listed
    assert not servers.bridges[server].bridge.upstream.listing.left_out


@pytest.mark.proves("map-content", "map-is-error", "a2a-3.2.2-blocking", "a2a-3.1.2-stream")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
async def test_a_call_gives_and_does_what_it_does_directly(
    row: Row, servers: Servers, clients: dict[str, PeerClient]
) -> None:
    client = clients[row.server]
    arguments = servers.arguments(row)
    for streamed in (False, True):
        before = servers.make_world()
        expected = await _called_directly(servers.direct[row.server], row.tool, arguments)
        expected_world = servers.world()
        servers.make_world()
        request = calling(row.tool, **arguments)
        outcome = (
            await Outcome.after(client.stream(request))
            if streamed
            else Outcome.of(await client.send(request))
        )
        assert outcome.state == row.state, outcome
        given = outcome.parts if row.state == COMPLETED else outcome.said
        assert [_compared(part) for part in given] == [_compared(part) for part in expected]
        assert row.gives in "".join(part.get("text", "") for part in given)
        assert servers.world() == expected_world
        assert row.does(expected_world) if row.does else before == expected_world


async def _called_directly(client: Client, tool: str, arguments: Any) -> list[Json]:
    """The parts that a result has to become, written down without the bridge's own tables."""
    result = await client.call_tool(tool, arguments)
    parts = [part for block in result.content for part in await _parts_of(block, client)]
    if result.structured_content is not None:
        parts.append({"data": result.structured_content, "mediaType": "application/json"})
    return parts


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
    """Bytes that are text are compared as text: a time may stand in them."""
    try:
        return {**part, "raw": base64.b64decode(part["raw"]).decode()} if "raw" in part else part
    except UnicodeDecodeError:
        return part
