"""The command that adds an extra is right for how the bridge was installed."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bridge.local.installation import Installation, adding_extra, source_of

GIT = "git+https://git.example.com/mcp-a2a"


def installed(prefix: Path, *, has_pip: bool = False, source: str | None = GIT) -> Installation:
    return Installation(prefix, prefix / "bin" / "python", prefix / "lib" / "site-packages", has_pip, source)


def test_an_environment_with_pip_uses_pip(tmp_path: Path) -> None:
    assert installed(tmp_path, has_pip=True).adding("console") == "pip install 'mcp-a2a[console]'"


def test_an_environment_of_uv_has_no_pip(tmp_path: Path) -> None:
    command = shlex.split(installed(tmp_path).adding("console"))
    assert command == ["uv", "pip", "install", "--python", f"{tmp_path}/bin/python", "mcp-a2a[console]"]


def test_a_tool_of_uv_is_installed_again_from_its_source_with_the_extras_that_it_has(tmp_path: Path) -> None:
    receipt = (
        '[tool]\nrequirements = [{ name = "mcp-a2a", extras = ["otel"], git = "x" }, { name = "other" }]\n'
    )
    (tmp_path / "uv-receipt.toml").write_text(receipt)
    command = shlex.split(installed(tmp_path).adding("console"))
    assert command == ["uv", "tool", "install", f"mcp-a2a[console,otel] @ {GIT}"]
    (tmp_path / "uv-receipt.toml").write_text('[tool]\nrequirements = [{ name = "mcp-a2a" }]\n')
    assert shlex.split(installed(tmp_path, source=None).adding("grpc"))[-1] == "mcp-a2a[grpc]"


def test_pipx_runs_pip_in_the_environment_that_it_hides(tmp_path: Path) -> None:
    prefix = tmp_path / "mcp-a2a"
    prefix.mkdir()
    (prefix / "pipx_metadata.json").write_text("{}")
    command = shlex.split(installed(prefix, has_pip=True).adding("yaml"))
    assert command == ["pipx", "runpip", "mcp-a2a", "install", "mcp-a2a[yaml]"]


def test_uvx_names_the_extra_at_each_run(tmp_path: Path) -> None:
    command = shlex.split(installed(tmp_path / "archive-v0" / "x").adding("yaml"))
    assert command == ["uvx", "--from", f"mcp-a2a[yaml] @ {GIT}", "mcp-a2a"]


def test_a_bundle_takes_no_extras(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{}")
    inside = Installation(tmp_path / ".venv", tmp_path / "python", tmp_path / "server", False, None)
    assert inside.adding("yaml").startswith("a bundle takes no extras")


@pytest.mark.parametrize(
    ("record", "source"),
    [
        ({"url": "file:///dist/a.whl", "archive_info": {}}, "file:///dist/a.whl"),
        (
            {"url": "https://x.example/r", "vcs_info": {"vcs": "git", "commit_id": "c"}},
            "git+https://x.example/r",
        ),
        (
            {"url": "https://x.example/r", "vcs_info": {"vcs": "git", "requested_revision": "v1"}},
            "git+https://x.example/r@v1",
        ),
    ],
)
def test_the_source_is_that_of_the_installer(record: dict[str, object], source: str) -> None:
    assert source_of(record) == source


def test_this_installation_has_a_command() -> None:
    assert "mcp-a2a[grpc]" in adding_extra("grpc")


@pytest.mark.slow  # and it asks an index of packages
@pytest.mark.long
@pytest.mark.skipif(shutil.which("uv") is None, reason="uv is not installed")
def test_the_command_of_a_real_tool_of_uv_adds_the_extra(tmp_path: Path) -> None:
    """A small package stands in for the bridge: `installation.py` is all that it has."""
    package = tmp_path / "package"
    (package / "bridge" / "local").mkdir(parents=True)
    here = Path(sys.modules["bridge.local.installation"].__file__ or "")
    (package / "bridge" / "local" / "installation.py").write_text(here.read_text(encoding="utf-8"))
    shutil.copytree(
        here.parents[1] / "text", package / "bridge" / "text", ignore=shutil.ignore_patterns("__pycache__")
    )
    (package / "bridge" / "say.py").write_text(
        "import importlib.util\nfrom bridge.local.installation import adding_extra\n"
        "def main():\n    print(adding_extra('more'))\n    print(importlib.util.find_spec('idna') is not None)\n"
    )
    (package / "pyproject.toml").write_text(
        '[project]\nname = "mcp-a2a"\nversion = "1"\n[project.optional-dependencies]\nmore = ["idna"]\n'
        '[project.scripts]\nmcp-a2a = "bridge.say:main"\n'
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[tool.hatch.build.targets.wheel]\npackages = ["bridge"]\n'
    )
    places = {"UV_TOOL_DIR": str(tmp_path / "tools"), "UV_TOOL_BIN_DIR": str(tmp_path / "bin")}

    def run(*command: str) -> str:
        done = subprocess.run(
            command, env={**os.environ, **places}, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("uv", "tool", "install", "--python", sys.executable, str(package))
    command, has_extra = run(str(tmp_path / "bin" / "mcp-a2a")).splitlines()
    assert has_extra == "False"
    run(*shlex.split(command))
    assert run(str(tmp_path / "bin" / "mcp-a2a")).splitlines()[1] == "True"
    assert command.startswith("uv tool install ")
