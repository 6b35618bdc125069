"""The files of the examples of deployments, the tools that judge them, and bounds that they have to keep."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NoReturn

import pytest
import yaml

from bridge.config.tables.profile import Profile
from tests.support.command import ROOT, WAIT_SECONDS

DEPLOY: Final = ROOT / "examples" / "deploy"
CHART: Final = DEPLOY / "chart"
COMPOSE: Final = DEPLOY / "compose"
SYSTEMD: Final = DEPLOY / "systemd"

USER: Final = 10001
"""The user of the image."""
SECRETS: Final = "/run/secrets/"


def require_module(name: str, of: str) -> None:
    """Skip a test, by name, where a module of the extra `dev` cannot be installed; fail it in CI where it can be."""
    if find_spec(name) is None:
        _miss(of)


def require_program(name: str, of: str) -> str:
    """The path of a program beside this Python, or a skip by name as in `require_module`."""
    return shutil.which(name, path=str(Path(sys.executable).parent)) or _miss(of)


def _miss(package: str) -> NoReturn:
    if os.environ.get("CI") and sys.platform == "linux" and platform.machine() == "x86_64":
        raise RuntimeError(f"{package} is not installed")
    pytest.skip(f"{package} is not installed")


def ran(*words: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    return subprocess.run(words, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False, **more)


def compose_file() -> dict[str, Any]:
    """The compose file, with its anchors and merges resolved."""
    loaded: dict[str, Any] = yaml.safe_load((COMPOSE / "compose.yaml").read_text())
    return loaded


def end_seconds(profile: Profile) -> float:
    """How long a bridge may take to end after `drain_seconds`: its cancelled calls, its tool servers, its store."""
    run, server, store = profile.run, profile.server, profile.store
    children = server.child_flush_seconds + 2 * server.child_exit_seconds
    children += max(server.child_quiet_seconds, server.child_output_seconds)
    return run.cancel_grace_seconds + children + store.close_seconds


def most_bytes(profile: Profile) -> int:
    """What requests and a store that waits for its database may hold in memory."""
    return profile.requests.bodies_limit_bytes + profile.store.waiting_limit_bytes
