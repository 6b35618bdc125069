"""How a change of a file is noticed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bridge.local.file_stamps import file_stamp
from bridge.local.private_files import HAS_MODES


@pytest.mark.skipif(not HAS_MODES, reason="modes say nothing here")
def test_a_change_of_permissions_changes_the_stamp(tmp_path: Path) -> None:
    file = tmp_path / "key.pem"
    file.write_text("a key")
    file.chmod(0o600)
    before = file_stamp(file)
    assert file_stamp(file) == before
    file.chmod(0o644)
    assert file_stamp(file) != before


def test_another_file_with_the_same_size_and_time_changes_the_stamp(tmp_path: Path) -> None:
    file, other = tmp_path / "key.pem", tmp_path / "new.pem"
    for one in (file, other):
        one.write_text("a key")
        os.utime(one, ns=(10**18, 10**18))
    before = file_stamp(file)
    other.replace(file)
    assert file_stamp(file) != before


def test_a_missing_file_has_no_stamp(tmp_path: Path) -> None:
    assert file_stamp(tmp_path / "none") is None
