"""The peers of the matrix, and an environment for each: what its folder pins, installed under `.peers/matrix`.

A peer is a folder of `peers/` with `requirements.txt` (Python) or `package.json` (Node.js), and with `client` or
`agent` or both as a script. An environment is made once, and again when what is pinned has changed: a stamp holds its
hash. Registries are those that pip and npm are configured for.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.matrix.scenarios import Side
from tests.peers.install import NPM_INSTALL, PEERS, node, node_root

FOLDER: Final = Path(__file__).with_name("peers")
ENVIRONMENTS: Final = PEERS / "matrix"
INSTALL_SECONDS: Final = 1200
"""The longest installation that is not called a hang: the largest framework has two hundred packages."""
GRPC_PACKAGES: Final = frozenset({"grpcio", "@grpc/grpc-js"})
"""The packages that only the environments of peers over gRPC name."""
_PIN: Final = re.compile(r"^([A-Za-z0-9_.-]+)(?:\[[a-z0-9_,-]+\])?==(\S+)$", re.MULTILINE)


class NotInstalledError(Exception):
    """An environment could not be made; the message has the end of what the installer said."""


@dataclass(frozen=True)
class Peer:
    """A framework, in one version."""

    name: str

    @property
    def folder(self) -> Path:
        """Its scripts, and what it pins."""
        return FOLDER / self.name

    @property
    def environment(self) -> Path:
        """Where what it needs is installed."""
        return ENVIRONMENTS / self.name

    @property
    def manifest(self) -> Path:
        """The file that pins what it needs."""
        of_node = self.folder / "package.json"
        return of_node if of_node.is_file() else self.folder / "requirements.txt"

    @property
    def versions(self) -> dict[str, str]:
        """What is pinned: package to version, the framework first."""
        text = self.manifest.read_text("utf-8")
        if self.manifest.suffix == ".json":
            return dict(json.loads(text)["dependencies"])
        return dict(_PIN.findall(text))

    @property
    def is_over_grpc(self) -> bool:
        """Whether its client calls agents over gRPC."""
        return bool(self.versions.keys() & GRPC_PACKAGES)

    def command(self, side: Side) -> list[str] | None:
        """The command of its script for one side, or None when it has none."""
        if self.manifest.suffix == ".json":
            script = self.folder / f"{side}.mjs"
            command = [str(node()), str(script), str(self.environment / "node_modules")]
        else:
            script = self.folder / f"{side}.py"
            command = [str(self.environment / "bin" / "python"), str(script)]
        return command if script.is_file() else None

    def install(self) -> bool:
        """Make the environment unless it is there; whether it had to be made.

        Raises:
            NotInstalledError: the installer failed.
        """
        stamp = self.environment / "stamp"
        wanted = hashlib.sha256(self.manifest.read_bytes()).hexdigest()
        if stamp.is_file() and stamp.read_text() == wanted:
            return False
        shutil.rmtree(self.environment, ignore_errors=True)
        self.environment.mkdir(parents=True)
        for command in self._installers():
            _run(command, self.environment)
        stamp.write_text(wanted)
        return True

    def _installers(self) -> list[list[str]]:
        if self.manifest.suffix == ".json":
            npm = node_root() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
            shutil.copyfile(self.manifest, self.environment / self.manifest.name)
            return [[str(node()), str(npm), *NPM_INSTALL]]
        python = str(self.environment / "bin" / "python")
        return [
            [sys.executable, "-m", "venv", str(self.environment)],
            [python, "-m", "pip", "install", "--quiet", "--no-compile", "--requirement", str(self.manifest)],
        ]


def peers() -> list[Peer]:
    """All peers, by name."""
    return [Peer(folder.name) for folder in sorted(FOLDER.iterdir()) if Peer(folder.name).manifest.is_file()]


def _run(command: list[str], folder: Path) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as exc:
        raise NotInstalledError(f"the installation did not end within {INSTALL_SECONDS} s") from exc
    if done.returncode:
        raise NotInstalledError((done.stderr or done.stdout).strip()[-2000:])
