"""Where each host keeps its MCP servers, on each system. Pure: the system, the home folder and the environment
are arguments, and paths are those of the system asked about, whichever it runs on.

All that is known of a host stands in one table, `HOSTS`. A place is a file, and the signs by which to tell that
the host is installed: a host that was never started here has none of them. Where a host has several places, the
first whose signs are there is meant, and the last when none is.

Sources, all of 2026: code.claude.com/docs/en/mcp, modelcontextprotocol.io/docs/develop/connect-local-servers,
cursor.com/docs/mcp, code.visualstudio.com/docs/agents/reference/mcp-configuration, zed.dev/docs/ai/mcp,
docs.windsurf.com/windsurf/cascade/mcp, google-gemini/gemini-cli docs/tools/mcp-server.md, and of aaif-goose/goose
docs/guides/config-files.md; for the packaged Claude Desktop on Windows, which never reads what others write into
%APPDATA%, github.com/anthropics/claude-code/issues/26073.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import PurePath, PurePosixPath, PureWindowsPath
from typing import Final

from bridge.errors import UsageError


class System(StrEnum):
    """The systems that hosts run on, as `sys.platform` names them."""

    MACOS = "darwin"
    WINDOWS = "win32"
    LINUX = "linux"


class InstallScope(StrEnum):
    """For whom a server is added."""

    USER = "user"
    """This person, in every project."""
    PROJECT = "project"
    """Everybody who works in the current folder."""


@dataclass(frozen=True)
class Template:
    """A file, and what tells that its host is installed; `{NAME}` stands for a folder of `_FOLDERS`."""

    file: str
    signs: tuple[str, ...]


@dataclass(frozen=True)
class Host:
    """What is known of a host."""

    title: str
    servers_key: str = "mcpServers"
    """Under which its file lists the servers."""
    typed: bool = True
    """Whether an entry says that it is spoken to over stdio."""
    comments: bool = False
    """Whether it reads comments, and commas behind the last entry."""
    from_shell: bool = False
    """Whether it starts from a shell, so that its servers see the variables that are set there."""
    variable: str = ""
    """How an entry's `env` names a variable of that shell, `{}` for its name, where the host passes on no others."""
    reserved: str = "${"
    """What the host takes for the beginning of a variable wherever it stands."""
    is_yaml: bool = False
    """Whether its file is YAML, which is only told what to put into it."""
    user: Mapping[System, tuple[Template, ...]] = field(default_factory=dict)
    project: tuple[str, ...] = ()
    """The file below a project's folder, if it has one there."""
    afterwards: str = ""
    """What makes it see the change."""


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
"""The variable that names each folder, and where it is when that is not set."""

_CLAUDE_PACKAGE: Final = "{local}/Packages/Claude_pzs8sxrjxfjjc"
"""Claude Desktop as a Windows package (since February 2026): the hash is of its publisher, and stays."""


def _everywhere(*templates: Template) -> Mapping[System, tuple[Template, ...]]:
    return dict.fromkeys(System, templates)


HOSTS: Final[Mapping[str, Host]] = {
    "claude-desktop": Host(
        "Claude Desktop",
        typed=False,
        user={
            System.MACOS: (Template("{support}/Claude/claude_desktop_config.json", ("{support}/Claude",)),),
            System.WINDOWS: (
                Template(
                    f"{_CLAUDE_PACKAGE}/LocalCache/Roaming/Claude/claude_desktop_config.json",
                    (_CLAUDE_PACKAGE,),
                ),
                Template("{roaming}/Claude/claude_desktop_config.json", ("{roaming}/Claude",)),
            ),
            System.LINUX: (Template("{config}/Claude/claude_desktop_config.json", ("{config}/Claude",)),),
        },
        afterwards="Quit Claude Desktop and start it again",
    ),
    "claude-code": Host(
        "Claude Code",
        from_shell=True,
        user=_everywhere(Template("{claude}/.claude.json", ("{claude}/.claude.json", "{claude}/.claude"))),
        project=(".mcp.json",),
        afterwards="Sessions that start from now on have it; /mcp lists it",
    ),
    "cursor": Host(
        "Cursor",
        comments=True,
        user=_everywhere(Template("{home}/.cursor/mcp.json", ("{home}/.cursor",))),
        project=(".cursor", "mcp.json"),
        afterwards="Restart Cursor, then switch the server on under Customize > MCPs",
    ),
    "vscode": Host(
        "VS Code",
        servers_key="servers",
        comments=True,
        user={
            System.MACOS: (Template("{support}/Code/User/mcp.json", ("{support}/Code/User",)),),
            System.WINDOWS: (Template("{roaming}/Code/User/mcp.json", ("{roaming}/Code/User",)),),
            System.LINUX: (Template("{config}/Code/User/mcp.json", ("{config}/Code/User",)),),
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
        user=_everywhere(Template("{home}/.gemini/settings.json", ("{home}/.gemini",))),
        project=(".gemini", "settings.json"),
        afterwards="Sessions that start from now on have it; /mcp lists it",
    ),
    "windsurf": Host(
        "Windsurf",
        typed=False,
        user=_everywhere(Template("{home}/.codeium/windsurf/mcp_config.json", ("{home}/.codeium/windsurf",))),
        afterwards="Refresh the MCP servers in Cascade, or restart Windsurf",
    ),
    "zed": Host(
        "Zed",
        servers_key="context_servers",
        typed=False,
        comments=True,
        user={
            System.MACOS: (Template("{home}/.config/zed/settings.json", ("{home}/.config/zed",)),),
            System.WINDOWS: (Template("{roaming}/Zed/settings.json", ("{roaming}/Zed",)),),
            System.LINUX: (Template("{config}/zed/settings.json", ("{config}/zed",)),),
        },
        afterwards="Zed takes it over at once; the Agent Panel's settings show a green dot beside it",
    ),
    "goose": Host(
        "Goose",
        servers_key="extensions",
        typed=False,
        is_yaml=True,
        user={
            System.MACOS: (Template("{home}/.config/goose/config.yaml", ("{home}/.config/goose",)),),
            System.WINDOWS: (
                Template("{roaming}/Block/goose/config/config.yaml", ("{roaming}/Block/goose",)),
            ),
            System.LINUX: (Template("{config}/goose/config.yaml", ("{config}/goose",)),),
        },
        afterwards="Sessions that start from now on have it",
    ),
}

ANY_HOST: Final = Host("another host", typed=False)
"""A host of which nothing is known but that it reads `mcpServers`."""

DESKTOP_PATH: Final[Mapping[System, str | None]] = {
    System.MACOS: "/usr/bin:/bin:/usr/sbin:/sbin",
    System.WINDOWS: None,
    System.LINUX: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
}
"""The PATH of a program that is started from the desktop; None where it is the same as in a shell."""


@dataclass(frozen=True)
class Machine:
    """What the places depend on."""

    system: System
    home: str
    environment: Mapping[str, str] = field(repr=False)

    def path(self, *parts: str) -> PurePath:
        """A path as this system writes it."""
        return (PureWindowsPath if self.system is System.WINDOWS else PurePosixPath)(*parts)


def system_of(platform: str) -> System:
    """The system that `sys.platform` names; what is neither macOS nor Windows keeps its files as Linux does."""
    return System(platform) if platform in tuple(System) else System.LINUX


def user_places(host: Host, machine: Machine) -> tuple[HostFilePlace, ...]:
    """Where a host keeps the servers of this person, the likeliest place first."""
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


def project_place(host: Host, folder: PurePath) -> HostFilePlace:
    """Where a host keeps the servers of the project in a folder.

    Raises:
        UsageError: it has no such place.
    """
    if not host.project:
        raise UsageError(f"{host.title} has no servers of a project: leave out --scope, or give --scope user")
    return HostFilePlace(folder.joinpath(*host.project), (folder,))
