"""Plays a release and its newcomer: `python -m tests.release`, and two parts of it for `.github/workflows/release.yml`.

- `build FOLDER` builds the files of a release twice, checks them, and lists what they need (CycloneDX).
- `try FOLDER` installs the wheel of a folder into empty environments, and makes the first call in each direction.

Without arguments, both happen in `dist/`, an MCP bundle is written, judged and started, the site is built, and each
command of the README is typed. Nothing is published.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.release import artifacts, newcomer, pages
from tests.run import ROOT

SBOM: Final = "mcp-a2a.cdx.json"
_EXTRAS: Final = "console,otel,postgres,yaml"


def main(words: Sequence[str] | None = None) -> int:
    """Build, try, or both; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.release", description="Play a release.")
    parser.add_argument("part", nargs="?", choices=("build", "try", "all"), default="all")
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "dist", help="default: dist")
    parser.add_argument("--tag", help="refuse to build if this tag does not name the version")
    parser.add_argument(
        "--python", action="append", help="try this Python, in place of those that uv finds; may be repeated"
    )
    options = parser.parse_args(words)
    try:
        if options.part != "try":
            _build(options.folder, options.tag)
        if options.part != "build":
            _try(options.folder, options.python or newcomer.pythons_here())
        if options.part == "all":
            _play_the_rest()
    except (artifacts.ReleaseError, newcomer.NewcomerError, pages.PagesError) as exc:
        print(exc, file=sys.stderr)
        return 1
    return 0


def _build(folder: Path, tag: str | None) -> None:
    version = artifacts.version()
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    if tag is not None:
        artifacts.require_tag(tag, version)
        artifacts.require_owner((ROOT / "server.json").read_text(encoding="utf-8"))
    if folder.exists() and any(folder.iterdir()):
        raise artifacts.ReleaseError(f"{folder} is not empty")
    folder.mkdir(parents=True, exist_ok=True)
    files = artifacts.build(folder)
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *map(str, files)], check=True)
    _list_parts(files, folder / SBOM)
    if tag is not None:
        (folder / artifacts.NOTES).write_text(artifacts.notes(text, version), encoding="utf-8")
    for path in sorted(folder.iterdir()):
        print(f"{path.stat().st_size:>10,} B  {artifacts.digest(path)}  {path.name}")
    print("Both builds gave the same bytes.")


def _list_parts(files: Sequence[Path], listed: Path) -> None:
    """List all packages that the wheel and its extras install today."""
    (wheel,) = (path for path in files if path.suffix == ".whl")
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        (python,) = Path(folder).glob("bin/python" if sys.platform != "win32" else "Scripts/python.exe")
        pip = [str(python), "-m", "pip", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", "--quiet", f"{wheel}[{_EXTRAS}]"], check=True, capture_output=True)
        subprocess.run([*pip, "uninstall", "--quiet", "--yes", "pip"], check=True, capture_output=True)
        command = [sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible"]
        command += ["--pyproject", str(ROOT / "pyproject.toml"), "--output-file", str(listed), str(python)]
        subprocess.run(command, check=True)


def _try(folder: Path, pythons: Sequence[str]) -> None:
    (wheel,) = folder.absolute().glob("*.whl")
    slow = []
    for way in newcomer.ways(wheel, pythons):
        taken = newcomer.play(*way)
        print(
            f"{taken.way:<22} installed in {taken.install_seconds:5.1f} s, agent called after"
            f" {taken.agent_seconds:4.1f} s, tool after {taken.tool_seconds:4.1f} s more;"
            f" {taken.cpu_seconds:4.1f} s of CPU",
            flush=True,
        )
        if taken.cpu_seconds > newcomer.SECONDS_MOST:
            slow.append(taken.way)
    if slow:
        raise newcomer.NewcomerError(f"more than {newcomer.SECONDS_MOST:g} s of CPU: {', '.join(slow)}")


def _play_the_rest() -> None:
    from tests.release import bundles  # it needs the extra `dev`

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        print(bundles.play(Path(folder)), flush=True)
        print(pages.site(Path(folder, "site")), flush=True)
    print(pages.readme(), flush=True)


if __name__ == "__main__":
    sys.exit(main())
