"""The systemd units of the examples."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import socket
import sys
from pathlib import Path
from typing import Final

import pytest

from bridge.assembly.plan_from_file import plan_from_file
from bridge.config.load import SettingOverride, load_text
from bridge.config.tables.profile import load_profile
from bridge.process.shared_listener import SharedListener
from tests.deploy.files import SYSTEMD, end_seconds, ran
from tests.support.command import run_here

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the examples of deployments are for Linux")

UNIT: Final = SYSTEMD / "mcp-a2a.service"
SOCKET: Final = SYSTEMD / "mcp-a2a.socket"
INSTANCE: Final = SYSTEMD / "mcp-a2a@.service"
PROGRAMS: Final = "/opt/mcp-a2a/bin/"
_EXPOSED_MOST: Final = 20
"""In tenths, of 100."""


def analyze() -> str:
    """The path of systemd-analyze, or a skip by name."""
    found = shutil.which("systemd-analyze")
    if found is None:
        pytest.skip("systemd-analyze is not installed")
    return found


def setting(name: str, unit: Path = UNIT) -> str:
    """What a unit says of something."""
    (found,) = re.findall(rf"^{name}=((?:.*\\\n)*.*)$", unit.read_text(), re.MULTILINE)
    return str(found)


def with_programs_here(folder: Path, source: Path = UNIT, name: str = "") -> Path:
    """A unit, with the programs of this installation."""
    unit = folder / (name or source.name)
    unit.write_text(source.read_text().replace(PROGRAMS, f"{Path(sys.executable).parent}/"))
    return unit


def test_systemd_finds_nothing_in_the_unit(tmp_path: Path) -> None:
    done = ran(analyze(), "verify", "--man=no", str(with_programs_here(tmp_path)))
    assert (done.returncode, done.stderr) == (0, "")


def test_systemd_finds_nothing_in_the_units_of_several_processes(tmp_path: Path) -> None:
    shared = with_programs_here(tmp_path, SOCKET)
    first = with_programs_here(tmp_path, INSTANCE, "mcp-a2a@1.service")
    done = ran(analyze(), "verify", "--man=no", str(shared), str(first))
    said = [line for line in done.stderr.splitlines() if "mcp-a2a" in line]
    assert (done.returncode, said) == (0, [])


def test_systemd_would_find_a_misspelt_key(tmp_path: Path) -> None:
    unit = with_programs_here(tmp_path)
    unit.write_text(unit.read_text().replace("DynamicUser=", "DynamicUsers="))
    assert "DynamicUsers" in ran(analyze(), "verify", "--man=no", str(unit)).stderr


def test_the_unit_is_exposed_to_little(tmp_path: Path) -> None:
    unit = str(with_programs_here(tmp_path))
    done = ran(analyze(), "security", "--no-pager", "--offline=true", f"--threshold={_EXPOSED_MOST}", unit)
    if "unrecognized option" in done.stderr:
        pytest.skip("this systemd-analyze judges no file: it is older than 250")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("unit", [UNIT, INSTANCE], ids=lambda unit: unit.name)
def test_a_bridge_may_end_in_its_time_and_ends_its_tool_servers_itself(unit: Path) -> None:
    profile = load_profile()
    assert int(setting("TimeoutStopSec", unit)) > profile.run.drain_seconds + end_seconds(profile)
    assert setting("KillMode", unit) == "mixed"


def test_the_processes_share_a_socket_and_each_has_its_own_addresses_and_audit(tmp_path: Path) -> None:
    assert setting("Sockets", INSTANCE) == SOCKET.name
    words = shlex.split(setting("ExecStart", INSTANCE).replace("\\\n", " "))
    assert words[:3] == [f"{PROGRAMS}mcp-a2a", "serve", "/etc/mcp-a2a/bridge.toml"]
    given = dict(zip(words[3::2], words[4::2], strict=True))
    assert given.keys() == {"--replica-url", "--metrics", "--audit-file"}
    assert all("%i" in value for value in given.values())
    # What they serve may be served by several processes, at the addresses of the first.
    folder = tmp_path / "secrets"
    folder.mkdir()
    for name in ("handle_key", "ops_token"):
        (folder / name).write_text(name[0] * 40)
        (folder / name).chmod(0o600)
    text = (SYSTEMD / "replicas.toml").read_text().replace("/etc/mcp-a2a/secrets", str(folder))
    loaded = load_text(text, {"DATABASE_URL": setting("Environment=DATABASE_URL", INSTANCE)})
    changes = {
        name: SettingOverride(given[f"--{name.replace('_', '-')}"].replace("%i", "1"), name)
        for name in ("replica_url", "metrics")
    }
    with socket.create_server(("127.0.0.1", 0)) as listener:
        plan = SharedListener(listener, "LISTEN_FDS").placed(plan_from_file(loaded.given(**changes)))
    assert plan.published.keys() == plan.offered.keys() == {"demo"}


def test_the_file_of_the_unit_is_right_with_its_secret_and_its_folder(tmp_path: Path) -> None:
    credential, place = setting("LoadCredential").split(
        ":"
    )  # a folder, whose files are named CREDENTIAL_FILE
    folders = {
        f"/run/credentials/{UNIT.name}/": tmp_path / "credentials",
        f"/var/lib/{setting('StateDirectory')}/": tmp_path / "state",
    }
    text = (SYSTEMD / "bridge.toml").read_text().replace(f"{PROGRAMS}python", sys.executable)
    for before, folder in folders.items():
        assert before in text
        folder.mkdir()
        text = text.replace(before, f"{folder}/")
    assert place.startswith(setting("WorkingDirectory"))
    (tmp_path / "credentials" / f"{credential}_ops_token").write_text("a-token")
    file = tmp_path / "bridge.toml"
    file.write_text(text)
    shutil.copy(SYSTEMD.parents[1] / "demo_server.py", tmp_path)
    done = run_here("check", str(file), "--json", state=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["faults"] == []
