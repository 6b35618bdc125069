"""What the bridge uses of other packages although they do not promise it: all of it, named in one place.

A version of a package in which one is gone, and a place in the bridge that uses another one, both fail here. How what
is named works together is what the other tests see.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import socket
import sys
import textwrap
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import anyio
import uvicorn
from mcp.server import MCPServer
from mcp.server.session import ServerSession
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

import bridge

MODULES: Final = {
    "mcp.client._transport": {"TransportStreams"},
    "mcp.shared._context_streams": {"create_context_streams"},
    "referencing._core": {"Resolver"},
}
"""Module to what is imported of it, where the one or the other is private."""

OF_OTHERS: Final[dict[type, set[str]]] = {ServerSession: {"_connection"}, MCPServer: {"_lowlevel_server"}}
"""Class to those of its private attributes that are read on an object that another package made."""

INHERITED: Final[dict[str, set[str]]] = {
    "mcp.shared.jsonrpc_dispatcher.JSONRPCDispatcher": {
        "_closed",
        "_dispatch_request",
        "_fan_out_closed",
        "_handle_request",
        "_resolve_pending",
        "_tg",
        "_write",
        "_write_stream",
    },
    "httpx2.AsyncClient": {"_init_proxy_transport", "_init_transport"},
    "mcp.client.streamable_http.StreamableHTTPTransport": {
        "_handle_json_response",
        "_handle_sse_event",
        "_in_flight_posts",
    },
    "mcp.client.auth.oauth2.OAuthClientProvider": {
        "_expected_issuer",
        "_perform_authorization",
        "_select_authorization_server",
    },
    "httpx2.AsyncHTTPTransport": {"_pool"},
}
"""Class to those of its private names that a class of the bridge replaces, calls or sets."""

KEYWORDS: Final = {"_related_request_id"}
"""Private arguments that are passed on."""

UVICORN: Final = {
    HttpToolsProtocol: {
        "connection_made",
        "connection_lost",
        "data_received",
        "on_headers_complete",
        "on_message_complete",
        "on_response_complete",
    },
    uvicorn.Server: {"serve", "shutdown", "capture_signals"},
}
"""Class to its methods that are replaced and called; uvicorn documents none of them."""

_PLAIN: Final = {"_replace", "_meta", "_fields"}
"""Public, for all their names: of named tuples, and of MCP."""

ROOT: Final = Path(bridge.__file__).parent


@cache
def _trees() -> dict[Path, ast.Module]:
    """The parsed modules of the bridge. No module level constant: each worker collects this file, and one runs it."""
    return {path: ast.parse(path.read_text("utf-8")) for path in ROOT.rglob("*.py")}


def test_every_private_module_or_name_that_is_imported_is_listed_and_there() -> None:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for module, name in _foreign_imports():
        if any(_is_private(step) for step in (*module.split("."), name)):
            found[module].add(name)
    assert dict(found) == MODULES
    for module, names in MODULES.items():
        assert names <= set(dir(import_module(module)))


def test_every_private_attribute_of_anothers_object_is_listed_and_there() -> None:
    found = {
        node.attr
        for tree in _trees().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and _is_private(node.attr)
        and ast.unparse(node.value) not in ("self", "cls", "super()")
        and node.attr not in _own_names(tree)
    }
    assert found - _PLAIN == set().union(*OF_OTHERS.values())
    for kind, names in OF_OTHERS.items():
        assert names <= _names_of(kind)


def test_every_private_that_a_class_of_the_bridge_inherits_and_uses_is_listed_and_there() -> None:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for path, tree in _trees().items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.ClassDef) or path.name == "__main__.py":
                continue
            used = _private_names_in(node)
            kind = vars(import_module(_module_of(path))).get(node.name) if used else None
            for base in _foreign_bases(kind) if isinstance(kind, type) else ():
                if names := used & _names_of(base):
                    found[_name_of(base)] |= names
    assert dict(found) == INHERITED


def test_every_private_argument_that_is_passed_on_is_listed() -> None:
    found = {
        keyword.arg
        for tree in _trees().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg is not None and _is_private(keyword.arg)
    }
    assert found - _PLAIN == KEYWORDS


async def _quick(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


async def test_uvicorn_has_what_is_used_of_its_insides() -> None:
    for kind, names in UVICORN.items():
        assert names <= vars(kind).keys()
    server = uvicorn.Server(
        uvicorn.Config(_quick, lifespan="off", ws="none", http="httptools", log_config=None)
    )
    server.config.load()
    server.lifespan = server.config.lifespan_class(server.config)
    assert (server.should_exit, server.server_state.total_requests, server.lifespan.state) == (False, 0, {})
    protocol = HttpToolsProtocol(server.config, server.server_state, server.lifespan.state)
    assert (protocol.cycle, [*protocol.pipeline], protocol.client) == (None, [], None)
    assert callable(protocol.parser.feed_data)
    near, far = socket.socketpair()
    with near, far:
        transport, _ = await asyncio.get_running_loop().connect_accepted_socket(lambda: protocol, near)
        assert (protocol.transport, protocol.flow.read_paused) == (transport, False)
        protocol.flow.pause_reading()
        protocol.flow.resume_reading()
        assert not protocol.flow.read_paused
        protocol.data_received(b"POST /quick HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nx")
        cycle = protocol.cycle
        assert (protocol.url, protocol.headers) == (
            b"/quick",
            [(b"host", b"localhost"), (b"content-length", b"5")],
        )
        assert (bytes(cycle.body), cycle.message_event.is_set(), cycle.keep_alive) == (b"x", True, True)
        assert (cycle.response_started, cycle.response_complete, cycle.disconnected) == (False, False, False)
        protocol.data_received(b"xxxx")
        assert b"200 OK" in await anyio.to_thread.run_sync(far.recv, 1000)
        transport.abort()


def _foreign_imports() -> Iterator[tuple[str, str]]:
    for tree in _trees().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module and _is_foreign(node.module):
                yield from ((node.module, alias.name) for alias in node.names)
            elif isinstance(node, ast.Import):
                yield from ((alias.name, "") for alias in node.names if _is_foreign(alias.name))


def _is_foreign(module: str) -> bool:
    return module.split(".", maxsplit=1)[0] not in {"bridge", *sys.stdlib_module_names}


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _module_of(path: Path) -> str:
    steps = ("bridge", *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(step for step in steps if step != "__init__")


def _private_names_in(tree: ast.AST) -> set[str]:
    """What is read and written on `self`, and what is called of the class above."""
    return {
        node.attr if isinstance(node, ast.Attribute) else node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute | ast.FunctionDef | ast.AsyncFunctionDef)
        if _is_private(node.attr if isinstance(node, ast.Attribute) else node.name)
        if not isinstance(node, ast.Attribute) or ast.unparse(node.value) in ("self", "cls", "super()")
    }


def _own_names(tree: ast.AST) -> set[str]:
    fields = {
        node.target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    return _private_names_in(tree) | fields


def _foreign_bases(kind: type) -> list[type]:
    return [base for base in kind.__mro__ if _is_foreign(base.__module__)]


def _names_of(kind: type) -> set[str]:
    """The names of a class, also those that its own methods set on its objects."""
    names = set(vars(kind))
    for member in vars(kind).values():
        if inspect.isfunction(member) and Path(member.__code__.co_filename).is_file():
            names |= _private_names_in(ast.parse(textwrap.dedent(inspect.getsource(member))))
    return names


def _name_of(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
