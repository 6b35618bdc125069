"""The digest of a plan, by which replicas see whether they serve the same."""

from __future__ import annotations

import json
import subprocess
import sys
import typing
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from types import UnionType
from typing import Any, Final

import pytest
from mcp.server import MCPServer
from pydantic import BaseModel

import bridge
from bridge.a2a.client.agent_card import OwnCard
from bridge.assembly.own_callers import OwnCallers
from bridge.assembly.plan import Plan
from bridge.assembly.plan_digest import plan_bytes
from bridge.assembly.plan_from_file import plan_from_file
from bridge.config.load import load
from bridge.identity.tokens.oauth import TokenSource
from bridge.mcp.client.transports.in_process import InProcessTarget
from bridge.replicas.proofs import ProofPurpose, Proofs
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
    [
        "host = 'localhost'",
        "port = 9000",
        "replica_url = 'http://10.0.0.7:9000'",
        "log_level = 'debug'",
        "log_calls = true",
        "metrics = '127.0.0.1:9464'",
        "traces = 'http://127.0.0.1:4318'",
        "audit = { file = '/var/log/other.jsonl', required = true }",
    ],
)
def test_what_is_each_replicas_own_changes_no_digest(tmp_path: Path, line: str) -> None:
    # A table of its own is written in one line, in front of all others.
    text = f"{line}\n{FILE}" if line.startswith("audit") else FILE.replace("[bridge]", f"[bridge]\n{line}")
    other = plan_of(tmp_path, text, KEY="n" * 40, DATABASE_URL="postgresql:///b")
    assert plan_bytes(other) == plan_bytes(plan_of(tmp_path))


def with_tls(certificate: str, more: str = "") -> str:
    """The file of a bridge that serves HTTPS with this certificate."""
    tls = f"tls = {{ certificate = '{certificate}', key = '{certificate}.key'{more} }}"
    return FILE.replace("[bridge]", f"[bridge]\n{tls}")


def test_each_replica_has_a_certificate_of_its_own_and_all_ask_for_the_same(tmp_path: Path) -> None:
    asked = ", client_ca = '{}'".format
    one, other = (plan_bytes(plan_of(tmp_path, with_tls(name))) for name in ("a.pem", "b.pem"))
    assert one == other != plan_bytes(plan_of(tmp_path))
    asking, alike = (plan_bytes(plan_of(tmp_path, with_tls("a.pem", asked(name)))) for name in ("c", "d"))
    assert asking == alike != one


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


@pytest.mark.long
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


OF_BYTES: Final = (
    *(bool, int, float, str, type(None), Enum, Path, IPv4Network, IPv6Network),
    *(Mapping, Set, Sequence, TokenSource),
)
NO_CLASSES: Final = (typing.Annotated, typing.Literal, typing.Union, UnionType)
OF_ONE_PROCESS: Final = (OwnCard, OwnCallers)
"""What a plan gets when it is served: its digest is taken before."""


def test_bytes_are_known_of_every_kind_of_value_that_a_plan_may_hold() -> None:
    kinds = {
        kind
        for kind in kinds_in(Plan, {InProcessTarget})
        if not issubclass(kind, (*OF_BYTES, *OF_ONE_PROCESS))
    }
    assert kinds == set()


def test_a_server_object_counts_by_its_name() -> None:
    """What an object does, nobody can compare: the replicas of an application run the same code."""
    tables = {"bridge": {"store": "memory:"}, "tools_as_agent": {"demo": {"from": ["demo"]}}}
    found = {
        plan_bytes(plan_from_file(bridge.loads(tables, servers={"demo": server})))
        for server in (MCPServer("one"), MCPServer("two"))
    }
    assert len(found) == 1


def test_the_networks_of_proxies_are_part_of_the_digest(tmp_path: Path) -> None:
    lines = [f'trusted_proxies = ["{one}"]\nprincipal_header = "X-User"' for one in ("192.0.2.0/24", "::1")]
    found = {plan_bytes(plan_of(tmp_path, FILE.replace("[bridge]", f"[bridge]\n{line}"))) for line in lines}
    assert len({*found, plan_bytes(plan_of(tmp_path))}) == 3


def kinds_in(hint: Any, seen: set[Any]) -> Iterator[type]:
    """The classes of the values below a type that are no dataclasses and no tables of the configuration."""
    origin = typing.get_origin(hint)
    if origin is not None:
        inside = () if origin is typing.Literal else typing.get_args(hint)
        for one in inside if origin in NO_CLASSES else (*inside, origin):
            yield from kinds_in(one, seen)
    elif isinstance(hint, type) and hint not in seen:
        seen.add(hint)
        inner = inner_hints(hint)
        for one in inner or ():
            yield from kinds_in(one, seen)
        if inner is None:
            yield hint


def inner_hints(kind: type) -> list[Any] | None:
    """The types of the fields of a class that count; None if it has none."""
    if is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return [hints[one.name] for one in fields(kind) if one.compare]
    if issubclass(kind, BaseModel):
        return [one.annotation for one in kind.model_fields.values()]
    return None
