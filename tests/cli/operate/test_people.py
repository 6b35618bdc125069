"""`mcp-a2a people`: a token for a person. The file has only the hash of the token."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import httpx2
import pytest

from tests.support.command import run_here
from tests.support.files import DEVTOOLS, RAW, TEAM, started, written

HEAD = "# Ours\n[bridge]\npublic_url = 'https://desk.example.com'  # kept\n"
OPS = "[principals.ops]\nbearer = { env = 'OPS' }\n"
GROUP = "[groups.team]\nskills = ['echo']\n"


def people(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return run_here("people", *words, state=folder / "state", folder=folder, OPS="ops-token")


def test_a_person_is_added_and_the_file_has_the_hash_of_the_token_alone(tmp_path: Path) -> None:
    path = written(tmp_path, HEAD, GROUP, RAW, DEVTOOLS, TEAM, OPS)
    before = path.read_text()
    done = people(tmp_path, "add", "ann", "--group", "team")
    assert done.returncode == 0, done.stderr
    (token,) = done.stdout.splitlines()
    digest = hashlib.sha256(token.encode()).hexdigest()
    added = f'\n[principals.ann]\ngroup = "team"\nbearer = {{ sha256 = "{digest}" }}\n'
    assert path.read_text() == before + added
    assert token not in done.stderr
    assert "mcp-a2a install claude-code --bearer file:~/.mcp-a2a-token" in done.stderr
    assert "https://desk.example.com/agents/devtools" in done.stderr
    assert "claude mcp add --transport http team https://desk.example.com/mcp/team" in done.stderr


def test_a_running_bridge_accepts_the_new_token(tmp_path: Path) -> None:
    path = written(tmp_path, GROUP, RAW, DEVTOOLS, OPS)
    with started(
        "serve", str(path), "--port", state=tmp_path / "state", until="Try it", OPS="ops-token"
    ) as bridge:

        def status(token: str) -> int:
            url = f"http://127.0.0.1:{bridge.port}/agents"
            return httpx2.get(url, headers={"authorization": f"Bearer {token}"}).status_code

        first = people(tmp_path, "add", "ann", "--group", "team").stdout.strip()
        bridge.read_until("added principals.ann")
        assert status(first) == 200
        second = people(tmp_path, "rotate", "ann").stdout.strip()
        bridge.read_until("changed principals.ann")
        assert (status(first), status(second)) == (200, 200)
        assert people(tmp_path, "rotate", "ann", "--finish").returncode == 0
        bridge.read_until("changed principals.ann")
        assert (status(first), status(second)) == (401, 200)


def test_a_token_is_kept_in_a_file_where_that_is_asked_for(tmp_path: Path) -> None:
    path = written(tmp_path, RAW, DEVTOOLS, OPS)
    done = people(tmp_path, "add", "ci", "--to", "ci.token")
    kept = tmp_path / "ci.token"
    assert done.stdout == kept.read_text()
    assert kept.stat().st_mode & 0o077 == 0
    assert path.read_text().endswith(f'[principals.ci]\nbearer = {{ file = "{kept}" }}\n')
    again = people(tmp_path, "add", "cd", "--to", "ci.token")
    assert again.returncode == 2
    assert "is not replaced" in again.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("add", "ops"), "there is a table [principals.ops] already"),
        (("add", "Ann"), "is no name for a table"),
        (("add", "ann", "--group", "taem"), "there is no group `taem`"),
        (("add", "ann", "--group", "taem", "--to", "ann.token"), "there is no group `taem`"),
        (("rotate", "ann"), "there is no table [principals.ann]"),
        (("rotate", "ops", "--finish"), "fewer than two tokens"),
        (("rotate", "ops", "--finish", "--to", "x"), "does not go with --to"),
    ],
)
def test_an_impossible_edit_is_refused_and_nothing_is_written(
    words: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    path = written(tmp_path, GROUP, RAW, DEVTOOLS, OPS)
    before = path.read_text()
    done = people(tmp_path, *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stdout == ""
    assert path.read_text() == before
    assert [one.name for one in tmp_path.iterdir() if one.name != "state"] == ["bridge.toml"]
