"""Private files on systems without modes, and files that another program has open for a moment."""

from __future__ import annotations

import os
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath

import pytest

from bridge.audit.file import AuditFile
from bridge.config.load import load
from bridge.config.text.secrets import secret_from
from bridge.errors import UsageError
from bridge.http.tls import load_authorities, load_own
from bridge.local.file_lock import is_database, own_file
from bridge.local.private_files import (
    doubt_of,
    may_others_use,
    patiently,
    private_file,
    private_folder,
    read_regular,
    write_privately,
)
from bridge.seal import key_in

HOME = PureWindowsPath(r"C:\Users\ada")
OUTSIDE = PureWindowsPath(r"D:\data")


@pytest.mark.parametrize(
    ("folder", "doubt"),
    [
        (PureWindowsPath(r"C:\Users\ada\AppData\Local\mcp-a2a"), None),
        (PureWindowsPath(r"c:\users\ADA"), None),
        (
            OUTSIDE,
            rf"other users may be able to read files in {OUTSIDE}; only {HOME} is certainly private",
        ),
        (
            PureWindowsPath(r"C:\Users\adam"),
            rf"other users may be able to read files in C:\Users\adam; only {HOME} is certainly private",
        ),
    ],
)
def test_a_folder_outside_the_profile_gets_a_warning(folder: PureWindowsPath, doubt: str | None) -> None:
    assert doubt_of(folder, HOME) == doubt


def test_without_modes_an_existing_folder_gets_a_warning_and_a_new_one_does_not(
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


def test_an_action_on_a_file_that_is_open_elsewhere_is_tried_again() -> None:
    assert patiently(OpenElsewhere(3).replace) == "replaced"


def test_the_tries_end_when_a_file_stays_refused() -> None:
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


pipes = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names")


@pipes
def test_a_file_is_read_only_if_it_is_regular_and_within_the_limit(tmp_path: Path) -> None:
    pipe, sparse, sound = tmp_path / "pipe", tmp_path / "sparse", tmp_path / "sound"
    os.mkfifo(pipe)
    with sparse.open("wb") as file:
        file.truncate(3 * 1024**3)
    sound.write_text("all of it")
    assert read_regular(sound, 9) == b"all of it"
    for odd in (pipe, Path("/dev/zero"), Path("/dev/null")):
        with pytest.raises(OSError, match="not a regular file"):
            read_regular(odd, 9)
    with pytest.raises(OSError, match="larger than 4,096 bytes"):
        read_regular(sparse, 4096)
    with pytest.raises(IsADirectoryError):
        read_regular(tmp_path, 9)
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "none", 9)


def _configured(odd: Path) -> dict[str, str]:
    """Configurations that name the file `odd`, by what they use it for."""
    served = "[tool_servers.one]\nurl = 'http://127.0.0.1:9/mcp'\n[tools_as_agent.a]\nfrom = ['one']\n"
    return {
        "secret": f"[bridge]\n[principals.ada]\nbearer = {{ file = '{odd}' }}\n{served}",
        "servers of a host": f"[import]\nmcp_json = '{odd}'\n{served}",
        "known agents": f"[import]\nknown_agents = '{odd}'\n{served}",
        "profile": f"[bridge]\nmapping = '{odd}'\n{served}",
    }


@pipes
@pytest.mark.parametrize("kind", ["pipe", "zero", "sparse", "long text"])
def test_no_file_in_a_configuration_blocks_the_bridge_or_is_read_without_limit(
    tmp_path: Path, kind: str
) -> None:
    odd = tmp_path / "odd.toml"
    match kind:
        case "pipe":
            os.mkfifo(odd)
        case "zero":
            odd = Path("/dev/zero")
        case "sparse":
            with odd.open("wb") as file:
                file.truncate(3 * 1024**3)
        case _:
            odd.write_text(f'a = "{"x" * 50_000_000}"\n')
    file = tmp_path / "bridge.toml"
    for place, text in _configured(odd).items():
        file.write_text(text)
        with pytest.raises(UsageError) as caught:
            load(file, {})
        assert any(
            words in str(caught.value)
            for words in ("not a regular file", "larger than", "there is no file", "no such file")
        ), (
            place,
            str(caught.value),
        )
    with pytest.raises(UsageError, match=r"not a regular file|larger than"):
        load(odd, {})


@pipes
def test_keys_certificates_and_stores_are_regular_files(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(UsageError, match="not a regular file"):
        key_in(tmp_path, "pipe")
    for files in ((pipe, tmp_path / "none"), (tmp_path / "none", pipe)):
        with pytest.raises(UsageError, match="cannot be read"):
            load_own(ssl.create_default_context(), *files)
    with pytest.raises(UsageError, match="not a regular file"):
        load_authorities(ssl.create_default_context(), pipe)
    with pytest.raises(UsageError, match="not a regular file"), own_file(pipe):
        pass
    assert not is_database(pipe)
    with pytest.raises(UsageError, match="is not a file"), AuditFile(pipe, 1000):
        pass


def test_only_a_regular_file_of_this_user_gets_another_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.stat(os.devnull).st_mode
    private_file(Path(os.devnull))
    with pytest.raises(UsageError), AuditFile(Path(os.devnull), 1000):
        pass
    assert os.stat(os.devnull).st_mode == before
    open_to_all = tmp_path / "open"
    open_to_all.write_text("")
    open_to_all.chmod(0o664)
    private_file(open_to_all)
    assert open_to_all.stat().st_mode & 0o777 == 0o660
    open_to_all.chmod(0o664)
    # Others' files are seen as this user's are by another one.
    monkeypatch.setattr("bridge.local.private_files._own_id", lambda: os.geteuid() + 1)
    with pytest.raises(UsageError, match=r"chmod it to 660\. It belongs to another user"):
        private_file(open_to_all)
    tmp_path.chmod(0o777)
    with pytest.raises(UsageError, match="belongs to another user"):
        private_folder(tmp_path)
    assert (open_to_all.stat().st_mode & 0o777, tmp_path.stat().st_mode & 0o777) == (0o664, 0o777)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="root alone gives files away")
def test_a_key_or_secret_that_another_user_put_into_a_shared_folder_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    key = tmp_path / "key"
    key.write_text("k" * 64)
    key.chmod(0o600)
    assert key_in(tmp_path, "key") == b"k" * 64
    os.chown(key, 12345, 12345)
    with pytest.raises(UsageError, match="belongs to another user, in a folder that everyone can write to"):
        key_in(tmp_path, "key")
    with pytest.raises(UsageError, match="belongs to another user"):
        secret_from(f"file:{key}")
