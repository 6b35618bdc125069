"""Somebody who installs the wheel into an empty environment, and makes the first call in each direction.

Only the standard library is needed here, so this runs wherever Python is, on each system of CI.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.run import ROOT

SECONDS_MOST: Final = 60.0
"""CPU seconds from the empty environment to the second answer. The wall time depends on what else the machine does."""
_INSTALL_SECONDS: Final = 600
_CALL_SECONDS: Final = 180
_PROGRAMS: Final = "Scripts" if sys.platform == "win32" else "bin"
_ANSWER: Final = "Hello, Ada!"


class NewcomerError(Exception):
    """Something that a newcomer types did not work. The message has what the program said."""


@dataclass(frozen=True)
class Taken:
    """How long an installation and the first calls took."""

    way: str
    install_seconds: float
    agent_seconds: float
    """From the start of the bridge to the answer of the agent that is made of tools."""
    tool_seconds: float
    """The call of the MCP tool that is made of the agent."""
    cpu_seconds: float
    """What all processes of it computed."""


def ways(
    wheel: Path, pythons: Sequence[str]
) -> Iterator[tuple[str, Sequence[Sequence[str]], Mapping[str, str], str]]:
    """Each way to install: its name, its commands, its variables, and the folder of the installed programs.

    `{}` stands for a new folder.
    """
    env = "{}" + os.sep + "env"
    for python in pythons:
        yield (
            f"pip, {_name_of(python)}",
            [
                [python, "-m", "venv", env],
                [os.path.join(env, _PROGRAMS, "python"), "-m", "pip", "install", "--quiet", str(wheel)],
            ],
            {"PIP_DISABLE_PIP_VERSION_CHECK": "1"},
            os.path.join(env, _PROGRAMS),
        )
    if shutil.which("uv"):
        yield (
            "uv tool",
            [["uv", "tool", "install", "--quiet", "--python", pythons[0], str(wheel)]],
            {"UV_TOOL_DIR": env, "UV_TOOL_BIN_DIR": "{}"},
            os.path.join(env, "mcp-a2a", _PROGRAMS),
        )
    if shutil.which("pipx", path=_path()):
        pipx = shutil.which("pipx", path=_path()) or "pipx"
        yield (
            "pipx",
            [[pipx, "install", "--quiet", "--python", pythons[0], str(wheel)]],
            {"PIPX_HOME": env, "PIPX_BIN_DIR": "{}"},
            os.path.join(env, "venvs", "mcp-a2a", _PROGRAMS),
        )


def pythons_here() -> list[str]:
    """The Pythons of this machine that the project supports, the newest first; this one if there is no uv."""
    if not shutil.which("uv"):
        return [sys.executable]
    found = []
    for minor in (14, 13, 12, 11):
        command = ["uv", "python", "find", "--no-python-downloads", "--no-project", "--system", f"3.{minor}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_CALL_SECONDS, check=False)
        if done.returncode == 0:
            found.append(done.stdout.strip())
    return found or [sys.executable]


def play(way: str, commands: Sequence[Sequence[str]], variables: Mapping[str, str], programs: str) -> Taken:
    """Install in one way, and make the first calls.

    Raises:
        NewcomerError: a command failed, or an answer is not the expected one.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        env = {name: value.format(folder) for name, value in variables.items()}
        start, computed = time.monotonic(), _children_seconds()
        for command in commands:
            _run([word.format(folder) for word in command], {**os.environ, **env}, _INSTALL_SECONDS)
        installed = time.monotonic()
        there = programs.format(folder)
        own = {
            **os.environ,
            "PATH": there + os.pathsep + os.environ["PATH"],
            "XDG_STATE_HOME": os.path.join(folder, "state"),
        }
        program = os.path.join(there, "mcp-a2a")
        with _serving(program, own) as url:
            _wait_until_ready(url)
            _require_answer(_run([program, "call", url, "greet", "name=Ada"], own, _CALL_SECONDS))
            agent = time.monotonic()
            _require_answer(_run([program, "call", f"{url}/mcp", "greet", "name=Ada"], own, _CALL_SECONDS))
            tool = time.monotonic()
    computed = _children_seconds() - computed
    return Taken(way, installed - start, agent - installed, tool - agent, computed)


@contextmanager
def _serving(program: str, env: Mapping[str, str]) -> Iterator[str]:
    """Serve the demo of the examples in both directions, at a free port; gives the URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [program, "serve", "--port", str(port), str(ROOT / "examples" / "demo.toml")]
    bridge = subprocess.Popen(words, env=env, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        bridge.terminate()
        bridge.wait(_CALL_SECONDS)


def _wait_until_ready(url: str) -> None:
    """Wait until the bridge and its tool server are up.

    Raises:
        NewcomerError: they are not up in time.
    """
    last = time.monotonic() + _CALL_SECONDS
    while time.monotonic() < last:
        try:
            with urllib.request.urlopen(f"{url}/readyz", timeout=_CALL_SECONDS):
                return
        except OSError:  # refused, or 503
            time.sleep(0.05)
    raise NewcomerError(f"the bridge was not ready within {_CALL_SECONDS} s")


def _children_seconds() -> float:
    """CPU seconds of all ended child processes; Windows does not count them."""
    times = os.times()
    return times.children_user + times.children_system


def _run(words: Sequence[str], env: Mapping[str, str], seconds: float) -> str:
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=seconds, check=False)
    if done.returncode:
        raise NewcomerError(f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def _require_answer(said: str) -> None:
    if said.strip() != _ANSWER:
        raise NewcomerError(f"the answer is {said.strip()!r}, and not {_ANSWER!r}")


def _name_of(python: str) -> str:
    return _run([python, "--version"], os.environ, _CALL_SECONDS).strip()


def _path() -> str:
    """The programs beside this Python, then those of the path."""
    return str(Path(sys.executable).parent) + os.pathsep + os.environ["PATH"]
