"""Where hosts keep their servers: every host on every system."""

from __future__ import annotations

from pathlib import PurePosixPath, PureWindowsPath

import pytest

from bridge.errors import UsageError
from bridge.hosts.places import (
    ANY_HOST,
    HOSTS,
    Machine,
    System,
    desktop_environment,
    project_place,
    system_of,
    user_places,
)

HOMES = {System.MACOS: "/Users/ada", System.WINDOWS: r"C:\Users\ada", System.LINUX: "/home/ada"}
ROAMING = r"C:\Users\ada\AppData\Roaming"
PACKAGE = r"C:\Users\ada\AppData\Local\Packages\Claude_pzs8sxrjxfjjc"

USER = [
    (
        "claude-desktop",
        System.MACOS,
        ["/Users/ada/Library/Application Support/Claude/claude_desktop_config.json"],
    ),
    (
        "claude-desktop",
        System.WINDOWS,
        [
            rf"{PACKAGE}\LocalCache\Roaming\Claude\claude_desktop_config.json",
            rf"{ROAMING}\Claude\claude_desktop_config.json",
        ],
    ),
    ("claude-desktop", System.LINUX, ["/home/ada/.config/Claude/claude_desktop_config.json"]),
    ("claude-code", System.MACOS, ["/Users/ada/.claude.json"]),
    ("claude-code", System.WINDOWS, [r"C:\Users\ada\.claude.json"]),
    ("claude-code", System.LINUX, ["/home/ada/.claude.json"]),
    ("cursor", System.MACOS, ["/Users/ada/.cursor/mcp.json"]),
    ("cursor", System.WINDOWS, [r"C:\Users\ada\.cursor\mcp.json"]),
    ("cursor", System.LINUX, ["/home/ada/.cursor/mcp.json"]),
    ("vscode", System.MACOS, ["/Users/ada/Library/Application Support/Code/User/mcp.json"]),
    ("vscode", System.WINDOWS, [rf"{ROAMING}\Code\User\mcp.json"]),
    ("vscode", System.LINUX, ["/home/ada/.config/Code/User/mcp.json"]),
    ("gemini", System.MACOS, ["/Users/ada/.gemini/settings.json"]),
    ("gemini", System.WINDOWS, [r"C:\Users\ada\.gemini\settings.json"]),
    ("gemini", System.LINUX, ["/home/ada/.gemini/settings.json"]),
    ("windsurf", System.MACOS, ["/Users/ada/.codeium/windsurf/mcp_config.json"]),
    ("windsurf", System.WINDOWS, [r"C:\Users\ada\.codeium\windsurf\mcp_config.json"]),
    ("windsurf", System.LINUX, ["/home/ada/.codeium/windsurf/mcp_config.json"]),
    ("zed", System.MACOS, ["/Users/ada/.config/zed/settings.json"]),
    ("zed", System.WINDOWS, [rf"{ROAMING}\Zed\settings.json"]),
    ("zed", System.LINUX, ["/home/ada/.config/zed/settings.json"]),
    ("goose", System.MACOS, ["/Users/ada/.config/goose/config.yaml"]),
    ("goose", System.WINDOWS, [rf"{ROAMING}\Block\goose\config\config.yaml"]),
    ("goose", System.LINUX, ["/home/ada/.config/goose/config.yaml"]),
]


@pytest.mark.parametrize(
    ("name", "system", "expected"), USER, ids=[f"{row[0]}-{row[1].name}" for row in USER]
)
def test_each_host_has_its_file_on_each_system(name: str, system: System, expected: list[str]) -> None:
    found = user_places(HOSTS[name], Machine(system, HOMES[system], {}))
    assert [str(place.file) for place in found] == expected


def test_the_table_of_this_test_misses_no_host_and_no_system() -> None:
    assert {(name, system) for name, system, _ in USER} == {
        (name, system) for name in HOSTS for system in System
    }


MOVED = [
    ("claude-desktop", System.LINUX, {"XDG_CONFIG_HOME": "/cfg"}, "/cfg/Claude/claude_desktop_config.json"),
    ("vscode", System.LINUX, {"XDG_CONFIG_HOME": "/cfg"}, "/cfg/Code/User/mcp.json"),
    ("vscode", System.WINDOWS, {"APPDATA": r"D:\Roam"}, r"D:\Roam\Code\User\mcp.json"),
    ("claude-code", System.MACOS, {"CLAUDE_CONFIG_DIR": "/srv/claude"}, "/srv/claude/.claude.json"),
    (
        "claude-code",
        System.MACOS,
        {"XDG_CONFIG_HOME": "/cfg", "CLAUDE_CONFIG_DIR": ""},
        "/Users/ada/.claude.json",
    ),
    ("cursor", System.LINUX, {"XDG_CONFIG_HOME": "/cfg"}, "/home/ada/.cursor/mcp.json"),
]


@pytest.mark.parametrize(("name", "system", "environment", "expected"), MOVED)
def test_a_folder_that_was_moved_is_followed(
    name: str, system: System, environment: dict[str, str], expected: str
) -> None:
    assert str(user_places(HOSTS[name], Machine(system, HOMES[system], environment))[-1].file) == expected


def test_the_packaged_claude_desktop_is_known_by_its_package() -> None:
    machine = Machine(System.WINDOWS, HOMES[System.WINDOWS], {"LOCALAPPDATA": r"D:\Local"})
    packaged, plain = user_places(HOSTS["claude-desktop"], machine)
    assert packaged.signs == (PureWindowsPath(r"D:\Local\Packages\Claude_pzs8sxrjxfjjc"),)
    assert plain.signs == (PureWindowsPath(rf"{ROAMING}\Claude"),)


@pytest.mark.parametrize(
    ("system", "environment"),
    [
        (System.MACOS, {"HOME": "/Users/ada", "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"}),
        (System.WINDOWS, {"HOME": r"C:\Users\ada"}),
        (
            System.LINUX,
            {"HOME": "/home/ada", "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
        ),
    ],
)
def test_a_program_of_the_desktop_has_no_path_of_a_shell(system: System, environment: dict[str, str]) -> None:
    assert desktop_environment(Machine(system, HOMES[system], {"PATH": "/opt/mine"})) == environment


PROJECT = [("claude-code", ".mcp.json"), ("cursor", ".cursor/mcp.json"), ("vscode", ".vscode/mcp.json")]


@pytest.mark.parametrize(("name", "expected"), PROJECT)
def test_a_project_has_its_file_in_its_folder(name: str, expected: str) -> None:
    folder = PurePosixPath("/srv/project")
    place = project_place(HOSTS[name], folder)
    assert place.file == folder / expected
    assert place.signs == (folder,)


@pytest.mark.parametrize("host", [HOSTS["claude-desktop"], ANY_HOST])
def test_a_host_without_projects_says_so(host: object) -> None:
    with pytest.raises(UsageError, match="has no servers for a project"):
        project_place(host, PurePosixPath("/work"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("platform", "system"),
    [
        ("darwin", System.MACOS),
        ("win32", System.WINDOWS),
        ("linux", System.LINUX),
        ("freebsd14", System.LINUX),
    ],
)
def test_each_platform_is_one_of_three_systems(platform: str, system: System) -> None:
    assert system_of(platform) is system
