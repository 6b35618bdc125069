"""Makes an MCP bundle (`.mcpb`): an archive that Claude Desktop installs by a double click. Pure.

The archive has the manifest, the modules of the bridge and the names of the packages that they need. The host starts
it with uv, which installs these packages. The host asks its user for the agent's URL and for secrets, keeps the
secrets, and gives them to the server as environment variables. So an archive never has a secret.

Source: github.com/modelcontextprotocol/mcpb, MANIFEST.md, version 0.4 for servers that uv starts.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bridge.text.jsonvalues import JsonObject

MANIFEST: Final = "manifest.json"
PROJECT: Final = "pyproject.toml"
FOLDER: Final = "server"
ENTRY: Final = f"{FOLDER}/main.py"
CONFIGURATION: Final = "bridge.toml"

TOKEN_VARIABLE: Final = "MCP_A2A_AGENT_TOKEN"  # noqa: S105, the name of a variable
API_KEY_VARIABLE: Final = "MCP_A2A_AGENT_API_KEY"
OPTIONS_OF_VARIABLES: Final[Mapping[str, str]] = {TOKEN_VARIABLE: "--bearer", API_KEY_VARIABLE: "--api-key"}
"""The option of `expose` for each variable that may be empty."""

_URL_KEY: Final = "url"
_MANIFEST_VERSION: Final = "0.4"
_DATE: Final = (2020, 2, 2, 0, 0, 0)
"""The date of each file: the same contents make the same archive."""


@dataclass(frozen=True)
class FormField:
    """A field of the form in which the host asks its user."""

    title: str
    description: str
    is_secret: bool
    is_required: bool
    default: str | None = None

    def to_object(self) -> JsonObject:
        """The field in the manifest."""
        default: JsonObject = {} if self.default is None else {"default": self.default}
        secret: JsonObject = {"sensitive": True} if self.is_secret else {}
        return {
            "type": "string",
            "title": self.title,
            "description": self.description,
            "required": self.is_required,
            **secret,
            **default,
        }


@dataclass(frozen=True)
class Bundle:
    """A server, as a host starts it from an archive."""

    name: str
    description: str
    version: str
    arguments: Sequence[str]
    fields: Mapping[str, FormField]
    variables: Mapping[str, str]
    """The variables of the server, each with the key of the field that gives its value."""

    def manifest(self) -> JsonObject:
        """The manifest of the archive."""
        start = ["run", "--directory", "${__dirname}", ENTRY, *self.arguments]
        return {
            "manifest_version": _MANIFEST_VERSION,
            "name": self.name,
            "version": self.version,
            "description": self.description,
            "author": {"name": "mcp-a2a"},
            "license": "Apache-2.0",
            "server": {
                "type": "uv",
                "entry_point": ENTRY,
                "mcp_config": {
                    "command": "uv",
                    "args": [*start],
                    "env": {name: answer(key) for name, key in self.variables.items()},
                },
            },
            "tools_generated": True,
            "compatibility": {"platforms": ["darwin", "win32", "linux"], "runtimes": {"python": ">=3.11"}},
            "user_config": {key: field.to_object() for key, field in self.fields.items()},
        }


def answer(key: str) -> str:
    """The placeholder that the host replaces with the answer to a field."""
    return f"${{user_config.{key}}}"


def of_agent(name: str, version: str, options: Sequence[str], url: str | None) -> Bundle:
    """A bundle that exposes the agent whose URL the host asks for. `options` are options of `expose`."""
    fields = {
        _URL_KEY: FormField("Address", "The URL of the A2A agent, or of its card", False, True, url),
        "token": FormField("Token", "The token for the agent, if it needs one", True, False),
        "api_key": FormField("API key", "The API key for the agent, if it needs one", True, False),
    }
    return Bundle(
        name,
        "The skills of an A2A agent, as tools",
        version,
        ("expose", *options, answer(_URL_KEY)),
        fields,
        {TOKEN_VARIABLE: "token", API_KEY_VARIABLE: "api_key"},
    )


def of_file(name: str, version: str, face: str, variables: Sequence[str]) -> Bundle:
    """A bundle that serves an MCP server of a configuration file. The host asks for each of its variables."""
    fields = {
        variable: FormField(variable, f"The secret that {CONFIGURATION} names {variable}", True, True)
        for variable in variables
    }
    return Bundle(
        name,
        "The skills of A2A agents, as tools",
        version,
        ("serve", CONFIGURATION, "--stdio", face),
        fields,
        {variable: variable for variable in variables},
    )


def project_of(version: str, dependencies: Sequence[str]) -> str:
    """The file from which uv learns what to install."""
    listed = "".join(f"  {json.dumps(dependency)},\n" for dependency in dependencies)
    return (
        f'[project]\nname = "mcp-a2a-bundle"\nversion = "{version}"\nrequires-python = ">=3.11"\n'
        f"dependencies = [\n{listed}]\n\n[tool.uv]\npackage = false\n"
    )


def archive_of(bundle: Bundle, files: Mapping[str, bytes]) -> bytes:
    """The bytes of the archive. `files` has the other files by their paths in it."""
    manifest = json.dumps(bundle.manifest(), indent=2, ensure_ascii=False).encode() + b"\n"
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in sorted({**files, MANIFEST: manifest}.items()):
            info = zipfile.ZipInfo(path, _DATE)
            info.external_attr = 0o644 << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, content)
    return out.getvalue()
