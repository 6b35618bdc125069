"""Somebody who reads a page at a machine of their own, and types what stands there.

The machine has a copy of what the pages name, free ports in the place of theirs, and the commands of this
installation: `npx` starts what `make peers` has installed, and `make run` takes the environment as it is.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.command import ROOT, WAIT_SECONDS, run_here
from tests.support.forked import through_server
from tests.support.pages import Block, Typed, typed_in
from tests.support.ports import free_port

COPIED = ("examples", "mappings", "Makefile")
PORTS = ("8080", "8081", "8090", "8100")
"""The ports of the pages."""
HOSTS = (".config/Claude", ".cursor", ".claude", ".config/Code/User")
"""What tells that MCP hosts are installed."""
TAKEN_OVER = "read again and taken over"

_SERVES = re.compile(
    r"mcp-a2a (serve|wrap|proxy)\b(?!.*(--stdio|--help|--print-toml))|mcp-a2a expose .*--http|.*demo_agent|uvicorn"
    r"|make run"
)
_IS_THERE = re.compile(r"^(Agent|MCP) |serving MCP at|Uvicorn running")
_NEEDS_SHELL = re.compile(r"[|<>;&$`*~]")
_PORT = re.compile(rf"(?<![\d.])({'|'.join(PORTS)})(?!\d)")
_TASK = re.compile(r"^task ([0-9a-f-]{36})$", re.MULTILINE)

_NPX = f"""#!{sys.executable}
import json, os, sys
sys.path.insert(0, {str(ROOT)!r})
from tests.peers.install import PEERS, node
package, *words = [word for word in sys.argv[1:] if word != "-y"]
manifest = PEERS / "node_modules" / package / "package.json"
(program,) = json.loads(manifest.read_text())["bin"].values()
os.execv(node(), [str(node()), str(manifest.parent / program), *words])
"""


class Server:
    """Something that was started and goes on."""

    def __init__(self, line: str, folder: Path, variables: dict[str, str]) -> None:
        self.line = line
        self._folder = folder
        self.said: list[str] = []
        self._heard = threading.Condition()
        self._process = subprocess.Popen(
            ["sh", "-c", f"exec {line}"],
            cwd=folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._listening = threading.Thread(target=self._listen, daemon=True)
        self._listening.start()

    def _listen(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            with self._heard:
                self.said.append(line)
                self._heard.notify_all()
        with self._heard:
            self.said.append("")  # it has ended
            self._heard.notify_all()

    def wait_for(self, words: re.Pattern[str], after: int = 0) -> None:
        """Wait until one of its lines, not of the first so many, holds these words."""
        with self._heard:
            self._heard.wait_for(lambda: self._has(words, after) or self._is_over(), WAIT_SECONDS)
            assert self._has(words, after), f"{self.line}:\n{''.join(self.said)}"

    def serves(self, file: Path) -> bool:
        """Whether it serves what a configuration file says."""
        words = self.line.split()
        named = next((word for word in words if word.endswith(".toml")), "bridge.toml")
        return words[:2] == ["mcp-a2a", "serve"] and self._folder / named == file

    def interrupt(self) -> None:
        """As Ctrl+C does."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGINT)

    def wait(self) -> None:
        """Wait for the end of it and of all that it started."""
        try:
            self._process.wait(WAIT_SECONDS)
        finally:
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
            self._listening.join(WAIT_SECONDS)
            assert not self._listening.is_alive(), f"{self.line}: something that it started goes on"
            assert self._process.stderr is not None
            self._process.stderr.close()

    def _has(self, words: re.Pattern[str], after: int) -> bool:
        return any(words.search(line) for line in self.said[after:])

    def _is_over(self) -> bool:
        return self.said[-1:] == [""]


@dataclass
class Reader:
    """Types what a page says, where the page is."""

    home: Path
    folder: Path
    ports: dict[str, str] = field(default_factory=lambda: {port: str(free_port()) for port in PORTS})
    variables: dict[str, str] = field(default_factory=dict)
    servers: list[Server] = field(default_factory=list)
    leaves_out: Callable[[str], bool] = lambda _: False
    """Which lines are not typed."""
    task: str = ""
    """The last task that was told of."""

    def read(self, block: Block) -> None:
        """Do what a block says."""
        if block.file is not None:
            self.write(block.file, block.text, adds=block.adds)
        elif block.language == "console":
            for typed in typed_in(block):
                if not self.leaves_out(typed.line):
                    self.type(typed)
        elif block.language == "python":
            self.type(Typed(f"python -c {shlex.quote(block.text)}"))

    def write(self, name: str, text: str, *, adds: bool) -> None:
        """Write a file, and wait until those have taken it over who serve it."""
        path = self.folder / name
        before = {server: len(server.said) for server in self.servers if server.serves(path)}
        text = self.with_ports(text)
        path.write_text(path.read_text() + "\n" + text if adds else text)
        for server, said in before.items():
            server.wait_for(re.compile(TAKEN_OVER), said)

    def type(self, typed: Typed) -> None:
        """Type a line, and look at what comes of it."""
        line = self.with_ports(typed.line)
        words = shlex.split(line)
        if words[0] == "cd":
            self.folder = (self.folder / words[1]).resolve()
        elif words[0] == "export":
            self.variables |= dict(word.split("=", 1) for word in words[1:])
        elif _SERVES.match(line):
            self.servers.append(Server(self._as_installed(line), self.folder, self._environment()))
            self.servers[-1].wait_for(_IS_THERE)
        else:
            self._run(line, typed)

    def with_ports(self, text: str) -> str:
        """A text with this machine's ports in the place of the pages'."""
        return _PORT.sub(lambda found: self.ports[found[1]], text)

    def _run(self, line: str, typed: Typed) -> None:
        line = line.replace("--task TASK", f"--task {self.task}")
        words = shlex.split(line)
        if words[0] == "mcp-a2a" and not _NEEDS_SHELL.search(line):
            done = run_here(
                *words[1:],
                state=self.home / "state",
                folder=self.folder,
                python=str(self.home / "bin" / "python"),
                **self._environment(),
            )
        else:
            done = subprocess.run(
                ["sh", "-c", line],
                cwd=self.folder,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=WAIT_SECONDS,
                check=False,
            )
        said = done.stdout + done.stderr
        assert done.returncode == typed.exit_code, f"{line}\n{said}"
        self.task = next(iter(_TASK.findall(said)), self.task)
        missing = [words for words in typed.says if self.with_ports(words) not in " ".join(said.split())]
        assert not missing, f"{line}\n{said}"

    def _as_installed(self, line: str) -> str:
        return (
            f"{line} --old-file=.venv/installed BIN={self.home / 'bin'}" if line.startswith("make") else line
        )

    def _environment(self) -> dict[str, str]:
        """What the machine says of itself; nothing of the one that the tests run on."""
        return {
            "HOME": str(self.home),
            "PATH": f"{self.home / 'bin'}:/usr/bin:/bin",
            "XDG_STATE_HOME": str(self.home / "state"),
            "XDG_CACHE_HOME": str(self.home / "cache"),
            "XDG_CONFIG_HOME": str(self.home / ".config"),
            "NO_COLOR": "1",
            **{name: self.with_ports(value) for name, value in self.variables.items()},
        }


@contextmanager
def reading(home: Path, leaves_out: Callable[[str], bool] = lambda _: False) -> Iterator[Reader]:
    """A machine of one's own, with everything stopped at the end."""
    checkout = home / "mcp-a2a"
    checkout.mkdir()
    reader = Reader(home, checkout, leaves_out=leaves_out)
    for name in COPIED:
        _copy(ROOT / name, checkout / name)
    for file in [checkout / "Makefile", *(checkout / "examples").rglob("*.*")]:
        if file.is_file():
            file.write_text(reader.with_ports(file.read_text()))
    _install(home / "bin")
    for host in HOSTS:
        (home / host).mkdir(parents=True)
    try:
        yield reader
    finally:
        with ExitStack() as ends:
            for server in reader.servers:
                ends.callback(server.wait)
            for server in reversed(reader.servers):
                server.interrupt()


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copyfile(source, target)


def _install(folder: Path) -> None:
    """The commands that the pages take for granted."""
    folder.mkdir()
    python = f'PYTHONPATH="{ROOT}" exec {shlex.join(through_server())}'
    ours = {
        "python": f'#!/bin/sh\n{python} "$@"\n',
        "mcp-a2a": f'#!/bin/sh\n{python} -m bridge "$@"\n',
        "uvicorn": f'#!/bin/sh\n{python} -m uvicorn "$@"\n',
        "npx": _NPX,
    }
    for name, text in ours.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
