"""File names that Windows does not treat as files, checked on any system."""

from __future__ import annotations

from pathlib import PurePosixPath, PureWindowsPath

import pytest

from bridge.local.file_names import (
    fit_for_every_system,
    is_device,
    length_hint,
    named_by_type,
    refusal_of,
    safe_file_name,
)

DEVICES = ["con", "NUL.txt", "com1.tar.gz", "LPT¹", "aux ", "prn.", "CONIN$", "nul:stream", "com0"]
FILES = ["console", "null.txt", "com10", "a.con", "tasks.con.db", "lpt", "-con", "con-8080.db", "", "cøn"]


@pytest.mark.parametrize(("names", "are_devices"), [(DEVICES, True), (FILES, False)])
def test_device_names_are_recognized(names: list[str], are_devices: bool) -> None:
    assert {name: is_device(name) for name in names} == dict.fromkeys(names, are_devices)


@pytest.mark.parametrize(
    ("name", "written_as"),
    [("report.txt", "report.txt"), ("aux.c", "_aux.c"), ("notes. ", "notes"), ("nul...", "_nul"), ("..", "")],
)
def test_a_name_from_a_peer_becomes_a_file_name_for_every_system(name: str, written_as: str) -> None:
    assert fit_for_every_system(name) == written_as


@pytest.mark.parametrize(
    ("given", "safe"),
    [
        ("../../a b.txt", "a_b.txt"),
        ("C:\\x\\NUL.txt", "_NUL.txt"),
        ("dir/", "dir"),
        (".hidden", "hidden"),
        ("..", ""),
    ],
)
def test_a_name_from_a_peer_loses_its_folders(given: str, safe: str) -> None:
    assert safe_file_name(given) == safe


@pytest.mark.parametrize(
    ("stem", "media_type", "name"),
    [
        ("my sketch", "image/png; q=1", "my_sketch.png"),
        ("a", "application/x-odd", "a.odd"),
        ("a", "", "a.bin"),
        ("..", "image/png", ""),
    ],
)
def test_a_stem_gets_the_suffix_of_its_media_type(stem: str, media_type: str, name: str) -> None:
    assert named_by_type(stem, media_type) == name


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (
            PureWindowsPath(r"C:\stores\CON.research.db"),
            "Windows takes CON.research.db for a device: give it another name",
        ),
        (PureWindowsPath(r"C:\con\tasks.db"), None),
        (PurePosixPath("/stores/con.db"), None),
    ],
)
def test_a_device_name_is_refused_on_windows_only(
    path: PurePosixPath | PureWindowsPath, said: str | None
) -> None:
    assert refusal_of(path) == said


LONG = "; Windows takes 259 characters, unless long paths are switched on (LongPathsEnabled)"


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        (PureWindowsPath("C:\\" + "a" * 243), ""),
        (PureWindowsPath("C:\\" + "a" * 244), LONG),
        (PurePosixPath("/" + "a" * 4000), ""),
    ],
)
def test_a_path_too_long_for_windows_gets_a_hint(path: PurePosixPath | PureWindowsPath, hint: str) -> None:
    assert length_hint(path, 13) == hint
