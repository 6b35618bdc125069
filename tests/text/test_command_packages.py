"""Which package a command starts."""

from __future__ import annotations

import shlex

import pytest

from bridge.text.command_packages import Package, package_of

FILES = Package("npm", "@modelcontextprotocol/server-filesystem")
GIT = Package("pypi", "mcp-server-git")
IMAGE = Package("image", "mcp/git")


@pytest.mark.parametrize(
    ("command", "package"),
    [
        ("npx @modelcontextprotocol/server-filesystem /tmp", FILES),
        ("npx -y @modelcontextprotocol/server-filesystem@2026.8.31 /tmp", FILES),
        ("npx --yes @modelcontextprotocol/server-filesystem@latest", FILES),
        ("/usr/bin/npx -q --registry https://npm.example.com @modelcontextprotocol/server-filesystem", FILES),
        ("npm exec -y -- @modelcontextprotocol/server-filesystem /tmp", FILES),
        ("pnpm dlx @modelcontextprotocol/server-filesystem /tmp", FILES),
        ("bunx @modelcontextprotocol/server-filesystem /tmp", FILES),
        ("cmd /c npx -y @modelcontextprotocol/server-filesystem C:/x", FILES),
        ("env DEBUG=1 npx -y @modelcontextprotocol/server-filesystem /tmp", FILES),
        (r"'C:\Program Files\nodejs\npx.cmd' -y @modelcontextprotocol/server-filesystem", FILES),
        (
            "npx -y -p @modelcontextprotocol/server-filesystem mcp-server-filesystem /tmp",
            Package(FILES.kind, FILES.name, "mcp-server-filesystem"),
        ),
        ("node node_modules/@modelcontextprotocol/server-filesystem/dist/index.js /tmp", FILES),
        ("node --no-warnings /a/node_modules/@modelcontextprotocol/server-filesystem/dist/index.js", FILES),
        (r"node 'C:\a\node_modules\@modelcontextprotocol\server-filesystem\dist\index.js'", FILES),
        ("/a/node_modules/@modelcontextprotocol/server-filesystem/dist/index.js /tmp", FILES),
        ("/a/node_modules/.bin/mcp-server-filesystem /tmp", Package("command", "mcp-server-filesystem")),
        ("uvx mcp-server-git", GIT),
        ("uvx mcp-server-git==2026.10.19 --repository /r", GIT),
        ("uvx mcp-server-git@latest", GIT),
        ("uvx -p 3.12 --quiet MCP_Server.Git", GIT),
        ("uvx --from mcp-server-git mcp-server-git", Package(GIT.kind, GIT.name, "mcp-server-git")),
        ("uv tool run mcp-server-git", GIT),
        ("pipx run mcp-server-git", GIT),
        ("uv run mcp-server-git", Package("command", "mcp-server-git")),
        ("uv --directory /srv/git run mcp-server-git", Package("command", "mcp-server-git")),
        ("uv run --with x python -m mcp_server_git", GIT),
        ("python -m mcp_server_git -r /r", GIT),
        ("/venv/bin/python3.12 -u -m mcp_server_git", GIT),
        ("py -3.12 -m mcp_server_git", GIT),
        ("/venv/bin/mcp-server-git -r /r", Package("command", "mcp-server-git")),
        ("docker run -i --rm mcp/git", IMAGE),
        ("docker run -it --rm -v/r:/r --mount type=bind,src=/r,dst=/r docker.io/mcp/git:latest -r /r", IMAGE),
        (f"podman run -i --network=none mcp/git@sha256:{'0' * 64}", IMAGE),
    ],
)
def test_a_command_names_its_package(command: str, package: Package) -> None:
    assert package_of(shlex.split(command)) == package
