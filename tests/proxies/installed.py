"""The proxies from Debian's packages, and nothing of them started."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PROXIES = ("nginx", "caddy")
POLICY = Path("/usr/sbin/policy-rc.d")
"""Debian asks it whether what was installed may be started: here it may not, as that would listen for everyone."""


class NotInstalledError(Exception):
    """The proxies are not there and cannot be installed; the message says why."""


def install() -> None:
    """Install the proxies with apt, unless they are there.

    Raises:
        NotInstalledError: they are not there, and this is no machine on which that can be done.
    """
    missing = [name for name in PROXIES if shutil.which(name) is None]
    if not missing:
        return
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise NotInstalledError(
            f"{' and '.join(missing)} are not installed, and installing them takes root and apt-get:"
            f" run `apt-get install {' '.join(missing)}` yourself"
        )
    with _nothing_started():
        for words in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", *missing]):
            done = subprocess.run(
                ["apt-get", *words],
                env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                raise NotInstalledError(f"apt-get {words[0]} failed: {done.stderr.strip()}")


@contextmanager
def _nothing_started() -> Iterator[None]:
    if POLICY.exists():
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()


def version_of(program: str) -> str:
    """What a proxy calls itself."""
    words = [program, "-v"] if program == "nginx" else [program, "version"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return (done.stdout + done.stderr).strip()
