"""Builds the files of a release: the wheel, the archive of the source, and the section of the changelog.

The files are built twice, in two folders, from the committed files. Both builds must give the same bytes: then anybody
can build a tag again, and compare the result with the published file.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from tests.run import ROOT

NOTES: Final = "NOTES.md"
"""The file with the section of the changelog, beside the built files."""
_BUILD_SECONDS: Final = 300
_SECTION: Final = re.compile(r"^## (\S+) - (\S+)\n(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)


class ReleaseError(Exception):
    """The release cannot be made. The message says why."""


def version() -> str:
    """The version of the checkout."""
    text = (ROOT / "bridge" / "version.py").read_text(encoding="utf-8")
    return text.rpartition("= ")[2].strip().strip('"')


def notes(changelog: str, wanted: str) -> str:
    """The section of a version in the changelog, without its heading.

    Raises:
        ReleaseError: the changelog has no such section, or the section has no date.
    """
    sections = {found[1]: (found[2], found[3].strip()) for found in _SECTION.finditer(changelog)}
    if wanted not in sections:
        raise ReleaseError(f"CHANGELOG.md has no section for {wanted}")
    date, text = sections[wanted]
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", date):
        raise ReleaseError(f"CHANGELOG.md says {date!r} in place of the date of {wanted}")
    return text + "\n"


def require_tag(tag: str, wanted: str) -> None:
    """Refuse a tag of another version.

    Raises:
        ReleaseError: the tag does not name the version.
    """
    if tag != f"v{wanted}":
        raise ReleaseError(f"the tag {tag} does not name the version of bridge/version.py, which is {wanted}")


def require_owner(entry: str) -> None:
    """Refuse an entry for the MCP registry in which the owner is still open.

    Raises:
        ReleaseError: the entry says OWNER.
    """
    if "/OWNER/" in entry or ".OWNER/" in entry:
        raise ReleaseError("server.json and README.md say OWNER in place of the owner: docs/releasing.md")


def build(folder: Path) -> list[Path]:
    """Build the wheel and the archive of the commit into a folder, twice, and return the files.

    Raises:
        ReleaseError: the two builds differ.
        subprocess.CalledProcessError: a build failed.
    """
    with tempfile.TemporaryDirectory() as other:
        first, second = (_built(Path(place), mask) for place, mask in ((folder, 0o022), (other, 0o077)))
        differing = [path.name for path in first if digest(path) != digest(Path(other, path.name))]
        if differing or len(first) != len(second):
            raise ReleaseError(f"two builds of one commit differ: {', '.join(differing)}")
    return first


def digest(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _built(folder: Path, mask: int) -> list[Path]:
    """Build from a copy of the commit whose files have the rights that this mask leaves, and the present time."""
    packed = subprocess.run(
        ["git", "archive", "--format=tar", "HEAD"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=_BUILD_SECONDS,
    )
    with tempfile.TemporaryDirectory() as source:
        with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
            archive.extractall(source, filter="data")
        for path in Path(source).rglob("*"):
            os.utime(path)
            path.chmod(path.stat().st_mode & ~mask)
        command = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder.absolute())]
        subprocess.run(command, cwd=source, check=True, capture_output=True, timeout=_BUILD_SECONDS)
    return sorted(path for path in folder.iterdir() if path.suffix in (".whl", ".gz"))
