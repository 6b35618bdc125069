"""How a system finds the program of a command line, and which arguments it can pass to the program.

POSIX starts a program from the folders of the child's PATH, with any arguments. Windows itself starts only programs
(.exe). So this module finds `npx.cmd` for `npx` by PATHEXT. A shell runs a batch file, and interprets some characters
of its arguments. The batch files of npm only start Node with a script, so Node is started with the script directly.
Other batch files get only harmless arguments.

The system is a parameter, so that the rules for Windows are tested on every system.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

_STARTED: Final = (".com", ".exe", ".bat", ".cmd")
"""The extensions that Windows can start, in its own order. PATHEXT also names scripts, which only a shell can start."""

_BATCH: Final = (".bat", ".cmd")

_TAKEN_BY_THE_SHELL: Final = frozenset('"%!^&|<>()\r\n\0')
"""Characters that cmd.exe may interpret in the arguments of a batch file, quoted or not."""

_TAKEN_IN_PATHS: Final = _TAKEN_BY_THE_SHELL - frozenset("()")
"""Characters that cmd.exe may interpret in the path of a batch file. A path with spaces is quoted: C:\\Program Files
(x86)."""

_SHIM_BYTES: Final = 8192
"""How much of a batch file is read. The batch files of npm have a few hundred bytes."""

_SCRIPTS: Final = (
    re.compile(r'^"%NODE_EXE%" "%NP[MX]_CLI_JS%" %\*\s*\Z', re.MULTILINE),
    re.compile(r'(?:"%_prog%"|"%~dp0\\node\.exe"|\bnode)\s+"%(?:~dp0|dp0%)\\([^"%]+)"\s+%\*'),
)
"""How a batch file of npm starts Node: in `npm` and `npx` themselves, and in files that `npm install` writes
(cmd-shim)."""

_OWN_SCRIPT: Final = re.compile(r'^SET "NP[MX]_CLI_JS=%~dp0\\([^"%]+)"', re.MULTILINE)
"""The script of `npm` and `npx`, if no other version of npm is installed."""

_SET: Final = re.compile(r"\bSET\s+\"?(\w+)=", re.IGNORECASE)
_SET_BY_NPM: Final = re.compile(r"dp0|_prog|PATHEXT|NODE_EXE|NPM_PREFIX_\w+|NP[MX]_CLI_JS")
"""The variables that such a file sets. A file that sets other variables does more than start Node."""


def environment_of(inherited: Mapping[str, str], own: Mapping[str, str], *, windows: bool) -> dict[str, str]:
    """The variables of a child. Its own variables take precedence over those of every child. On Windows, `Path` is
    `PATH`."""
    if not windows:
        return {**inherited, **own}
    named = {name.upper() for name in own}
    return {**{name: value for name, value in inherited.items() if name.upper() not in named}, **own}


def argv_of(argv: Sequence[str], env: Mapping[str, str], cwd: str | None, *, windows: bool) -> Sequence[str]:
    """The command line to start, for the variables and the folder of the child.

    Raises:
        FileNotFoundError: there is no such program.
        ValueError: the program is a batch file that cannot get these arguments safely.
    """
    if not windows:
        return argv
    variables = {name.upper(): value for name, value in env.items()}
    program, *words = argv
    file = next(_candidate_files(program, variables, cwd), None)
    if file is None:
        where = "its folder" if _has_folder(program) else "the folders of PATH"
        raise FileNotFoundError(errno.ENOENT, f"there is no such program in {where}")
    if file.suffix.lower() not in _BATCH:
        return [str(file), *words]
    if started := _started_by(file, variables):
        return [*map(str, started), *words]
    _require_harmless(file, words)
    return [str(file), *words]


def _candidate_files(program: str, variables: Mapping[str, str], cwd: str | None) -> Iterator[Path]:
    """The files that a name may mean, in the order of preference."""
    here = Path(cwd or "")
    folders = [here] if _has_folder(program) else map(Path, variables.get("PATH", "").split(";"))
    names = (
        [program] if program.lower().endswith(_STARTED) else [program + end for end in _endings(variables)]
    )
    for folder in folders:
        for name in names:
            file = folder / name
            if os.path.exists(file) and not os.path.isdir(file):
                yield file


def _has_folder(program: str) -> bool:
    return "/" in program or "\\" in program or ":" in program


def _endings(variables: Mapping[str, str]) -> Sequence[str]:
    endings = [ending for ending in variables.get("PATHEXT", "").lower().split(";") if ending in _STARTED]
    return endings or _STARTED


def _started_by(batch: Path, variables: Mapping[str, str]) -> tuple[Path, Path] | None:
    """Node and the script that a batch file of npm starts; None for any other batch file."""
    with batch.open("rb") as file:
        text = file.read(_SHIM_BYTES).decode("utf-8", "replace").replace("\r\n", "\n")
    if any(not _SET_BY_NPM.fullmatch(name) for name in _SET.findall(text)):
        return None
    own, installed = (pattern.search(text) for pattern in _SCRIPTS)
    place = _OWN_SCRIPT.search(text) if own else installed
    if place is None:
        return None
    script = batch.parent.joinpath(*place[1].split("\\"))
    beside = batch.with_name("node.exe")
    node = beside if beside.is_file() else next(_candidate_files("node.exe", variables, None), None)
    return (node, script) if node is not None and script.is_file() else None


def _require_harmless(batch: Path, words: Sequence[str]) -> None:
    taken = _TAKEN_IN_PATHS.intersection(str(batch))
    what = "path"
    for number, word in enumerate(words, 1):
        if not taken and (taken := _TAKEN_BY_THE_SHELL.intersection(word)):
            what = f"argument {number}"
    if taken:
        raise ValueError(
            f"{batch.name} is a batch file, and Windows runs it by a shell, which would take {min(taken)!r} in its"
            f" {what} for its own: name the program that it starts, and its arguments"
        )
