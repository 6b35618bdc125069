"""Where each host keeps its MCP servers, on each system. Pure except `this_machine`: the system, the home folder and
the environment are arguments, and paths have the form of that system.

The table `HOSTS` holds all facts about hosts. A place is a file with signs, paths that exist if the host is installed.
If a host has several places, the first place with an existing sign counts, or the last place if there is no sign.

Sources, all of 2026: code.claude.com/docs/en/mcp, modelcontextprotocol.io/docs/develop/connect-local-servers,
cursor.com/docs/mcp, code.visualstudio.com/docs/agents/reference/mcp-configuration, zed.dev/docs/ai/mcp,
docs.windsurf.com/windsurf/cascade/mcp, google-gemini/gemini-cli docs/tools/mcp-server.md, and of aaif-goose/goose
docs/guides/config-files.md; for the packaged Claude Desktop on Windows, which never reads what others write into
%APPDATA%, github.com/anthropics/claude-code/issues/26073.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Final

from bridge.errors import UsageError


class System(StrEnum):
    """The systems that hosts run on, as `sys.platform` names them."""

    MACOS = "darwin"
    WINDOWS = "win32"
    LINUX = "linux"


class InstallScope(StrEnum):
    """The users for whom a server is added."""

    USER = "user"
    """This user, in every project."""
    PROJECT = "project"
    """Everyone who works in the current folder."""


@dataclass(frozen=True)
class FilePlace:
    """A file, and the signs that its host is installed. `{NAME}` stands for a folder from `_FOLDERS`."""

    file: str
    signs: tuple[str, ...]


@dataclass(frozen=True)
class Host:
    """The facts about a host."""

    title: str
    servers_key: str = "mcpServers"
    """The key of the servers in the host's file."""
    typed: bool = True
    """Whether an entry has the field `type`, with the value `stdio`."""
    comments: bool = False
    """Whether the host reads comments and trailing commas."""
    from_shell: bool = False
    """Whether the host starts from a shell, so that its servers get the shell's variables."""
    variable: str = ""
    """The reference to a shell variable in an entry's `env`, with `{}` for the name, if the host passes on only
    variables that `env` names; else empty."""
    reserved: str = "${"
    """The text that begins a reference to a variable in the host's file."""
    inputs_key: str = ""
    """The key of the inputs, which the host asks its user for and keeps as secrets; empty if it has none."""
    is_yaml: bool = False
    """Whether the file is YAML. YAML is not edited; the user is told what to add."""
    user: Mapping[System, tuple[FilePlace, ...]] = field(default_factory=dict)
    project: tuple[str, ...] = ()
    """The path of the file below a project's folder; empty if the host has none."""
    afterwards: str = ""
    """What the user must do so that the host sees the change."""


@dataclass(frozen=True)
class HostFilePlace:
    """A host's file on this machine."""

    file: PurePath
    signs: tuple[PurePath, ...]


_FOLDERS: Final[Mapping[System, Mapping[str, tuple[str | None, str]]]] = {
    System.MACOS: {
        "support": (None, "{home}/Library/Application Support"),
        "claude": ("CLAUDE_CONFIG_DIR", "{home}"),
    },
    System.WINDOWS: {
        "roaming": ("APPDATA", "{home}/AppData/Roaming"),
        "local": ("LOCALAPPDATA", "{home}/AppData/Local"),
        "claude": ("CLAUDE_CONFIG_DIR", "{home}"),
    },
    System.LINUX: {
        "config": ("XDG_CONFIG_HOME", "{home}/.config"),
        "claude": ("CLAUDE_CONFIG_DIR", "{home}"),
    },
}
"""The environment variable of each folder, and the default if the variable is not set."""

_CLAUDE_PACKAGE: Final = "{local}/Packages/Claude_pzs8sxrjxfjjc"
"""Claude Desktop as a Windows package (since February 2026). The hash belongs to the publisher, and never changes."""


def _everywhere(*templates: FilePlace) -> Mapping[System, tuple[FilePlace, ...]]:
    return dict.fromkeys(System, templates)


HOSTS: Final[Mapping[str, Host]] = {
    "claude-desktop": Host(
        "Claude Desktop",
        typed=False,
        user={
            System.MACOS: (FilePlace("{support}/Claude/claude_desktop_config.json", ("{support}/Claude",)),),
            System.WINDOWS: (
                FilePlace(
                    f"{_CLAUDE_PACKAGE}/LocalCache/Roaming/Claude/claude_desktop_config.json",
                    (_CLAUDE_PACKAGE,),
                ),
                FilePlace("{roaming}/Claude/claude_desktop_config.json", ("{roaming}/Claude",)),
            ),
            System.LINUX: (FilePlace("{config}/Claude/claude_desktop_config.json", ("{config}/Claude",)),),
        },
        afterwards="Quit Claude Desktop and start it again",
    ),
    "claude-code": Host(
        "Claude Code",
        from_shell=True,
        user=_everywhere(FilePlace("{claude}/.claude.json", ("{claude}/.claude.json", "{claude}/.claude"))),
        project=(".mcp.json",),
        afterwards="Sessions that start from now on have it; /mcp lists it",
    ),
    "cursor": Host(
        "Cursor",
        comments=True,
        user=_everywhere(FilePlace("{home}/.cursor/mcp.json", ("{home}/.cursor",))),
        project=(".cursor", "mcp.json"),
        afterwards="Restart Cursor, then switch the server on under Customize > MCPs",
    ),
    "vscode": Host(
        "VS Code",
        servers_key="servers",
        comments=True,
        inputs_key="inputs",
        user={
            System.MACOS: (FilePlace("{support}/Code/User/mcp.json", ("{support}/Code/User",)),),
            System.WINDOWS: (FilePlace("{roaming}/Code/User/mcp.json", ("{roaming}/Code/User",)),),
            System.LINUX: (FilePlace("{config}/Code/User/mcp.json", ("{config}/Code/User",)),),
        },
        project=(".vscode", "mcp.json"),
        afterwards='Start it with "MCP: List Servers" in the command palette',
    ),
    "gemini": Host(
        "Gemini CLI",
        typed=False,
        comments=True,
        from_shell=True,
        variable="${}",
        reserved="$",
        user=_everywhere(FilePlace("{home}/.gemini/settings.json", ("{home}/.gemini",))),
        project=(".gemini", "settings.json"),
        afterwards="Sessions that start from now on have it; /mcp lists it",
    ),
    "windsurf": Host(
        "Windsurf",
        typed=False,
        user=_everywhere(
            FilePlace("{home}/.codeium/windsurf/mcp_config.json", ("{home}/.codeium/windsurf",))
        ),
        afterwards="Refresh the MCP servers in Cascade, or restart Windsurf",
    ),
    "zed": Host(
        "Zed",
        servers_key="context_servers",
        typed=False,
        comments=True,
        user={
            System.MACOS: (FilePlace("{home}/.config/zed/settings.json", ("{home}/.config/zed",)),),
            System.WINDOWS: (FilePlace("{roaming}/Zed/settings.json", ("{roaming}/Zed",)),),
            System.LINUX: (FilePlace("{config}/zed/settings.json", ("{config}/zed",)),),
        },
        afterwards="Zed uses it at once; the Agent Panel's settings show a green dot beside it",
    ),
    "goose": Host(
        "Goose",
        servers_key="extensions",
        typed=False,
        is_yaml=True,
        user={
            System.MACOS: (FilePlace("{home}/.config/goose/config.yaml", ("{home}/.config/goose",)),),
            System.WINDOWS: (
                FilePlace("{roaming}/Block/goose/config/config.yaml", ("{roaming}/Block/goose",)),
            ),
            System.LINUX: (FilePlace("{config}/goose/config.yaml", ("{config}/goose",)),),
        },
        afterwards="Sessions that start from now on have it",
    ),
}

ANY_HOST: Final = Host("another host", typed=False)
"""Any other host that reads `mcpServers`."""

DESKTOP_PATH: Final[Mapping[System, str | None]] = {
    System.MACOS: "/usr/bin:/bin:/usr/sbin:/sbin",
    System.WINDOWS: None,
    System.LINUX: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
}
"""The PATH of programs started from the desktop; None if it is the same as in a shell."""


@dataclass(frozen=True)
class Machine:
    """The machine for which places are determined."""

    system: System
    home: str
    environment: Mapping[str, str] = field(repr=False)

    def path(self, *parts: str) -> PurePath:
        """A path in the form of this system."""
        return (PureWindowsPath if self.system is System.WINDOWS else PurePosixPath)(*parts)


def this_machine() -> Machine:
    """The machine on which this process runs."""
    return Machine(system_of(sys.platform), str(Path.home()), os.environ)


def system_of(platform: str) -> System:
    """The system that `sys.platform` names. Unknown systems are treated as Linux."""
    return System(platform) if platform in tuple(System) else System.LINUX


def desktop_environment(machine: Machine) -> dict[str, str]:
    """The environment variables that differ between a program started from the desktop and a shell."""
    path = DESKTOP_PATH[machine.system]
    return {"HOME": machine.home} | ({"PATH": path} if path else {})


def user_places(host: Host, machine: Machine) -> tuple[HostFilePlace, ...]:
    """The places of a host's servers for this user, most likely first."""
    folders = {"home": machine.home}
    for name, (variable, otherwise) in _FOLDERS[machine.system].items():
        folders[name] = machine.environment.get(variable or "") or otherwise.format_map(folders)
    return tuple(
        HostFilePlace(
            machine.path(template.file.format_map(folders)),
            tuple(machine.path(sign.format_map(folders)) for sign in template.signs),
        )
        for template in host.user[machine.system]
    )


def found_place(host: Host, machine: Machine, exists: Callable[[PurePath], bool]) -> HostFilePlace | None:
    """The place of an installed host; None if no sign shows that it is installed."""
    return next((place for place in user_places(host, machine) if any(map(exists, place.signs))), None)


def project_place(host: Host, folder: PurePath) -> HostFilePlace:
    """The place of a host's servers for the project in a folder.

    Raises:
        UsageError: the host has no servers for projects.
    """
    if not host.project:
        raise UsageError(
            f"{host.title} has no servers for a project: leave out --scope, or give --scope user"
        )
    return HostFilePlace(folder.joinpath(*host.project), (folder,))
