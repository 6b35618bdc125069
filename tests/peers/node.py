"""The commands that start the peers that run on Node.js, and the check that they are installed.

Knows how an npm package names its program. What is installed, and how, is `install`'s business.
"""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.peers import Json, Transport
from tests.peers.install import PEERS, NotInstalled, check_installed, node

JS_CLIENT: Final = Path(__file__).with_name("js_client.mjs")
JS_AGENT: Final = Path(__file__).with_name("js_agent.mjs")
JS_MCP_CLIENT: Final = Path(__file__).with_name("js_mcp_client.mjs")
JS_CARD_SIGNATURES: Final = Path(__file__).with_name("js_card_signatures.mjs")
JS_RECEIVER: Final = Path(__file__).with_name("js_receiver.mjs")
OIDC_PROVIDER: Final = Path(__file__).with_name("oidc_provider.mjs")


def require_peers() -> None:
    """Skip the calling test if the peers are not installed; fail it instead where CI=true."""
    reason = missing_peers()
    if reason and os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    if reason:
        pytest.skip(reason)


def missing_peers() -> str | None:
    """Return what is missing and how to install it, or None."""
    try:
        check_installed()
    except NotInstalled as exc:
        return f"{exc}; run `make peers`"
    return None


def everything_command() -> list[str]:
    """Return the command of the MCP reference server, on stdio: every feature of the protocol."""
    return package_command("@modelcontextprotocol/server-everything", "stdio")


def everything_sse_command() -> list[str]:
    """Return the command of the same server over HTTP+SSE, on loopback and the port in PORT, at `/sse`."""
    return everything_http_command("sse")


def everything_http_command(transport: str) -> list[str]:
    """Return the command of the same server over `sse` or `streamableHttp`, on loopback and the port in PORT."""
    program, *words = package_command("@modelcontextprotocol/server-everything", transport)
    return [program, "--require", str(Path(__file__).with_name("loopback.cjs")), *words]


def filesystem_command(root: Path) -> list[str]:
    """Return the command of the MCP file server, on stdio, which sees nothing outside `root`."""
    return package_command("@modelcontextprotocol/server-filesystem", str(root))


def memory_command() -> list[str]:
    """Return the command of the MCP knowledge graph server, on stdio; start it with `memory_environment`."""
    return package_command("@modelcontextprotocol/server-memory")


def memory_environment(file: Path) -> dict[str, str]:
    """Return the variables that make the memory server keep its graph in `file`.

    Without them it writes into its own package, and one test finds what another one left.
    """
    return {"MEMORY_FILE_PATH": str(file.absolute())}


def js_client_command(
    base_url: str, transport: Transport, headers: Mapping[str, str] | None = None
) -> list[str]:
    """Return the command of the driver of the JavaScript SDK's client; its protocol is in `js_client.mjs`."""
    sdk = str(package_manifest("@a2a-js/sdk"))
    return [str(node()), str(JS_CLIENT), sdk, base_url, transport, json.dumps(dict(headers or {}))]


def js_mcp_client_command(
    sdk: str, server: str, redirect: str, person: str, calls: Sequence[tuple[str, Json]]
) -> list[str]:
    """Return the command of a person with an MCP client of the TypeScript SDK; see `js_mcp_client.mjs`."""
    manifest = str(package_manifest(f"@modelcontextprotocol/{sdk}"))
    return [str(node()), str(JS_MCP_CLIENT), manifest, server, redirect, person, json.dumps(calls)]


def js_agent_command() -> list[str]:
    """Return the command of an agent on the JavaScript SDK's server; its skills are in `js_agent.mjs`."""
    return [str(node()), str(JS_AGENT), str(package_manifest("@a2a-js/sdk"))]


def js_receiver_command(token: str) -> list[str]:
    """Return the command of a receiver of push notifications on the JavaScript SDK, which expects a token."""
    return [str(node()), str(JS_RECEIVER), str(package_manifest("@a2a-js/sdk")), token]


def js_card_signatures_command() -> list[str]:
    """Return the command that verifies and signs a card with the JavaScript SDK."""
    return [str(node()), str(JS_CARD_SIGNATURES), str(package_manifest("@a2a-js/sdk"))]


def oidc_provider_command(*names: str) -> list[str]:
    """Return the command of issuers with these names; what they do is in `oidc_provider.py`."""
    return [str(node()), str(OIDC_PROVIDER), str(package_manifest("oidc-provider")), *names]


def inspector_command(*args: str) -> list[str]:
    """Return the command of the MCP inspector without its web page: a client on the TypeScript SDK."""
    return package_command("@modelcontextprotocol/inspector", "--cli", *args, program="mcp-inspector")


def package_command(package: str, *args: str, program: str | None = None) -> list[str]:
    """Return the command of a program of an installed npm package, by default of its only one.

    Raises NotInstalled without the package.
    """
    manifest = package_manifest(package)
    programs = json.loads(manifest.read_text(encoding="utf-8"))["bin"]
    if program is None:
        (program,) = [programs] if isinstance(programs, str) else programs.values()
    else:
        program = programs[program]
    return [str(node()), str(manifest.parent / program), *args]


def package_manifest(package: str) -> Path:
    """Return the package.json of an installed npm package; raise NotInstalled without it."""
    manifest = PEERS / "node_modules" / package / "package.json"
    if not manifest.is_file():
        raise NotInstalled(f"the peer {package} is not installed; run `make peers`")
    return manifest
