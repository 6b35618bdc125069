"""Prometheus and promtool of Debian's package, unpacked below `.peers` by `python -m tests.operate.installed`.

They are looked for in the folder that the variable `PROMETHEUS_PROGRAMS` names, on the path, and below `.peers`.
Unpacking takes neither root nor an installation: nothing of the package is started, and `make clean` removes it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.peers.install import PEERS

PACKAGE: Final = "prometheus"
_UNPACKED: Final = PEERS / PACKAGE
_SECONDS: Final = 300


class NotInstalledError(Exception):
    """Prometheus is not there and cannot be fetched; the message says why."""


@dataclass(frozen=True)
class Programs:
    """Where the programs are."""

    prometheus: Path
    promtool: Path


def programs() -> Programs:
    """The programs of this machine.

    Raises:
        NotInstalledError: there are none.
    """
    named = os.environ.get("PROMETHEUS_PROGRAMS")
    folders = named or os.pathsep.join((os.environ.get("PATH", ""), str(_UNPACKED / "usr" / "bin")))
    found = [shutil.which(name, path=folders) for name in ("prometheus", "promtool")]
    missing = [name for name, one in zip(("prometheus", "promtool"), found, strict=True) if one is None]
    if missing:
        where = f"not in {named}" if named else "not installed (make operate fetches Debian's package)"
        raise NotInstalledError(f"{' and '.join(missing)}: {where}")
    return Programs(*(Path(one) for one in found if one is not None))


def install() -> Programs:
    """Fetch the package and unpack it, unless the programs are there.

    Raises:
        NotInstalledError: they are not there, and this is no machine on which that can be done.
    """
    try:
        return programs()
    except NotInstalledError:
        if os.environ.get("PROMETHEUS_PROGRAMS"):
            raise
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise NotInstalledError(
            "prometheus is not installed, and fetching it takes apt-get and dpkg-deb: install it yourself, or name the"
            " folder of its programs in PROMETHEUS_PROGRAMS"
        )
    PEERS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=PEERS) as place:
        _fetch(Path(place))
        (package,) = Path(place).glob("*.deb")
        _run(["dpkg-deb", "--extract", str(package), str(_UNPACKED)], Path(place))
    return programs()


def _fetch(folder: Path) -> None:
    """Download the package; the lists of packages are read first where they are missing and this is root."""
    download = ["apt-get", "download", "-qq", PACKAGE]
    if os.geteuid() != 0:
        _run(download, folder)
        return
    # Root hands what it downloads to the user _apt, who cannot write here.
    download[1:1] = ["-o", "APT::Sandbox::User=root"]
    try:
        _run(download, folder)
    except NotInstalledError:
        _run(["apt-get", "update", "-qq"], folder)
        _run(download, folder)


def _run(words: list[str], folder: Path) -> None:
    try:
        done = subprocess.run(
            words, cwd=folder, capture_output=True, text=True, check=False, timeout=_SECONDS
        )
    except subprocess.TimeoutExpired as exc:
        raise NotInstalledError(f"`{' '.join(words)}` took more than {_SECONDS} s") from exc
    if done.returncode:
        raise NotInstalledError(f"`{' '.join(words)}` failed: {done.stderr.strip()}")


def main() -> int:
    """Fetch Prometheus unless it is there; gives the exit code."""
    try:
        found = install()
    except NotInstalledError as exc:
        print(f"operate: {exc}", file=sys.stderr)
        return 1
    done = subprocess.run([found.prometheus, "--version"], capture_output=True, text=True, check=True)
    print((done.stdout + done.stderr).splitlines()[0])
    return 0


if __name__ == "__main__":
    sys.exit(main())
