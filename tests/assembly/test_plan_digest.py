"""The digest of a plan, by which replicas see whether they serve the same."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bridge.assembly.plan import Plan
from bridge.assembly.plan_digest import plan_bytes
from bridge.assembly.plan_from_file import plan_from_file
from bridge.config.load import load
from bridge.proofs import ProofPurpose, Proofs
from tests.support.command import ROOT

FILE = """
[bridge]
public_url = "https://agents.example.com"
store = { env = "DATABASE_URL" }
keys = [{ env = "KEY" }]
hosts = ["b.example", "a.example"]
[principals.ops]
bearer = { env = "OPS" }
[tool_servers.files]
command = ["server", "--all"]
env = { TOKEN = { env = "OPS" } }
[tool_servers.web]
url = "https://tools.example.com/mcp"
[agents.helper]
card = "https://agents.example.org"
[tools_as_agent.first]
from = ["files", "web"]
[tools_as_agent.first.skills."echo*"]
hidden = true
arguments.text = { default = { a = [1, 2.5, "x"] } }
[agents_as_tools.desk]
from = ["helper"]
title = "Desk"
"""
TRUSTED = """
[issuers.corp]
issuer = "https://login.example.com"
audience = { first = ["api://first"], desk = ["api://desk"] }
[bridge]"""
ENVIRONMENT = {"DATABASE_URL": "postgresql:///a", "KEY": "k" * 40, "OPS": "hunter2-token"}


def plan_of(folder: Path, text: str = FILE, **environment: str) -> Plan:
    """The plan of a file."""
    file = folder / "bridge.toml"
    file.write_text(text)
    return plan_from_file(load(file, {**ENVIRONMENT, **environment}))


@pytest.mark.parametrize(
    "line",
    ["host = 'localhost'", "port = 9000", "replica_url = 'http://10.0.0.7:9000'", "log_level = 'debug'"],
)
def test_what_is_each_replicas_own_changes_no_digest(tmp_path: Path, line: str) -> None:
    other = plan_of(
        tmp_path, FILE.replace("[bridge]", f"[bridge]\n{line}"), KEY="n" * 40, DATABASE_URL="postgresql:///b"
    )
    assert plan_bytes(other) == plan_bytes(plan_of(tmp_path))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("agents.example.com", "other.example.com"),
        ("--all", "--some"),
        ("hidden = true", "hidden = false"),
        ("2.5", "2"),
        ('title = "Desk"', 'title = "Table"'),
        ("principals.ops", "principals.dev"),
        ("agents.example.org", "agents.example.net"),
        ('["files", "web"]', '["web", "files"]'),
        ("[bridge]", "[bridge]\nallow_unauthenticated = true"),
        ('title = "Desk"', 'mapping = "strict"'),
    ],
)
def test_what_clients_see_changes_the_digest(tmp_path: Path, old: str, new: str) -> None:
    assert plan_bytes(plan_of(tmp_path, FILE.replace(old, new))) != plan_bytes(plan_of(tmp_path))


ISSUER = 'issuer = "https://login.example.com", client_id = "bridge", client_secret = { env = "SECRET" }'


@pytest.mark.parametrize(
    "grant",
    [
        'grant = "client_credentials"',
        'grant = "authorization_code"',
        'grant = "token_exchange", audience = "api://peer"',
    ],
)
@pytest.mark.parametrize(
    "peer", ['[tool_servers.web]\nurl = "https://tools', '[agents.helper]\ncard = "https://agents']
)
def test_a_peer_that_is_shown_tokens_is_part_of_the_digest(tmp_path: Path, peer: str, grant: str) -> None:
    assert peer in FILE
    table, url = peer.split("\n")
    auth = f"auth = {{ oauth2 = {{ {grant}, {ISSUER} }} }}"
    text = FILE.replace("[bridge]", TRUSTED).replace(peer, f"{table}\n{auth}\n{url}")
    plan, same = (plan_bytes(plan_of(tmp_path, text, SECRET="a" * 20)) for _ in range(2))
    assert plan == same
    assert plan != plan_bytes(plan_of(tmp_path, text, SECRET="b" * 20))
    without = text.replace(f"{auth}\n", "")
    assert plan != plan_bytes(plan_of(tmp_path, without))


def test_another_secret_changes_the_digest_and_none_can_be_read_from_it(tmp_path: Path) -> None:
    plan, other = plan_of(tmp_path), plan_of(tmp_path, OPS="hunter3-token")
    assert plan_bytes(plan) != plan_bytes(other)
    mine, theirs = (Proofs([key * 40]) for key in (b"k", b"n"))
    (digest,) = mine.proofs(ProofPurpose.PLAN, plan_bytes(plan))
    assert b"hunter2" not in digest
    # Without the key nobody can try secrets against it.
    assert theirs.proofs(ProofPurpose.PLAN, plan_bytes(plan)) != {digest}


def test_a_digest_is_the_same_in_every_process(tmp_path: Path) -> None:
    plan_of(tmp_path)
    script = """if True:
        import json, sys
        from pathlib import Path
        from bridge.assembly.plan_digest import plan_bytes
        from bridge.assembly.plan_from_file import plan_from_file
        from bridge.config.load import load
        sys.stdout.buffer.write(plan_bytes(plan_from_file(load(Path(sys.argv[1]), json.loads(sys.argv[2])))))
    """
    made = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "bridge.toml"), json.dumps(ENVIRONMENT)],
        cwd=ROOT,
        env={"PYTHONHASHSEED": "1"},
        capture_output=True,
        check=True,
    )
    assert made.stdout == plan_bytes(plan_of(tmp_path))


def test_a_value_of_a_kind_that_is_not_known_is_refused_and_not_left_out() -> None:
    with pytest.raises(TypeError, match="a plan holds a object"):
        plan_bytes(replace(Plan(None), servers={"a": object()}))  # type: ignore[arg-type, dict-item]
