"""Private files where modes say nothing, and files that another program has open for a moment."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath

import pytest

from bridge.private_files import doubt_of, may_others_use, patiently, private_folder, write_privately

HOME = PureWindowsPath(r"C:\Users\ada")
OUTSIDE = PureWindowsPath(r"D:\data\tasks.db")


@pytest.mark.parametrize(
    ("file", "doubt"),
    [
        (PureWindowsPath(r"C:\Users\ada\AppData\Local\mcp-a2a\handle.key"), None),
        (PureWindowsPath(r"c:\users\ADA\tasks.db"), None),
        (
            OUTSIDE,
            rf"{OUTSIDE} can be read by whom its folder is open to: {HOME} and the folders below are yours alone",
        ),
    ],
)
def test_a_file_outside_the_profile_is_said_to_have_the_rights_of_its_folder(
    file: PureWindowsPath, doubt: str | None
) -> None:
    assert doubt_of(file, HOME) == doubt


@pytest.mark.parametrize(("has_modes", "may"), [(True, True), (False, False)], ids=["posix", "windows"])
def test_a_mode_says_who_may_use_a_file_only_where_there_are_modes(has_modes: bool, may: bool) -> None:
    found = os.stat_result((0o100666, *range(9)))
    assert may_others_use(found, has_modes=has_modes) is may


@dataclass
class OpenElsewhere:
    """A file that Windows refuses to replace while another program has it open."""

    refusals_left: int

    def replace(self) -> str:
        """Replace it, unless it is open."""
        self.refusals_left -= 1
        if self.refusals_left >= 0:
            raise PermissionError(13, "Access is denied")
        return "replaced"


def test_a_file_that_is_open_elsewhere_is_tried_again() -> None:
    assert patiently(OpenElsewhere(3).replace) == "replaced"


def test_a_file_that_stays_refused_is_not_tried_for_ever() -> None:
    file = OpenElsewhere(1000)
    with pytest.raises(PermissionError, match="Access is denied"):
        patiently(file.replace)
    assert file.refusals_left == 1000 - 6


@pytest.mark.windows
def test_windows_lets_only_the_user_and_administrators_into_a_new_folder(tmp_path: Path) -> None:
    private_folder(tmp_path / "state")
    done = subprocess.run(
        ["cacls", str(tmp_path / "state"), "/s"], capture_output=True, text=True, check=True
    )
    assert "D:P(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)(A;OICI;FA;;;OW)" in done.stdout


@pytest.mark.windows
def test_windows_replaces_a_file_that_was_read_a_moment_ago(tmp_path: Path) -> None:
    file = tmp_path / "state" / "servers.json"
    write_privately(file, b"{}")
    file.read_bytes()
    write_privately(file, b'{"a": "b"}')
    assert file.read_bytes() == b'{"a": "b"}'
