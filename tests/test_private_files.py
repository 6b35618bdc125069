"""Private files where modes say nothing, and files that another program has open for a moment."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath

import pytest

from bridge.private_files import doubt_of, may_others_use, patiently, private_folder, write_privately

HOME = PureWindowsPath(r"C:\Users\ada")
OUTSIDE = PureWindowsPath(r"D:\data")


@pytest.mark.parametrize(
    ("folder", "doubt"),
    [
        (PureWindowsPath(r"C:\Users\ada\AppData\Local\mcp-a2a"), None),
        (PureWindowsPath(r"c:\users\ADA"), None),
        (
            OUTSIDE,
            rf"what is kept in {OUTSIDE} has the rights of that folder; only {HOME} is sure to be yours alone",
        ),
        (
            PureWindowsPath(r"C:\Users\adam"),
            rf"what is kept in C:\Users\adam has the rights of that folder; only {HOME} is sure to be yours alone",
        ),
    ],
)
def test_a_folder_outside_the_profile_is_said_to_have_rights_of_its_own(
    folder: PureWindowsPath, doubt: str | None
) -> None:
    assert doubt_of(folder, HOME) == doubt


def test_where_modes_say_nothing_a_folder_that_was_there_is_doubted_and_a_new_one_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tmp_path.chmod(0o777)
    private_folder(tmp_path, has_modes=False)
    private_folder(tmp_path / "new", has_modes=False)
    assert [record.message for record in caplog.records] == [doubt_of(tmp_path, Path.home())]


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
