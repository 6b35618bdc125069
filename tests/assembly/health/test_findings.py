"""What a plan and a machine tell: ends of certificates and tokens, tokens to take out, disk, audit and clock."""

from __future__ import annotations

import base64
import json
import math
import os
import shutil
from collections import namedtuple
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bridge.assembly.health.findings import Grade, HealthFinding, machine_findings, peer_mend
from bridge.assembly.plan import AuditPlan, Plan, ProcessPlan, RemotePlan
from bridge.audit.file import AuditFile
from bridge.config.tables.profile import load_profile
from bridge.http.tls import TlsFiles
from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import Credential
from tests.support.certificates import Authority

NOW = datetime.now(UTC)
GOOD, WARN, BAD = Grade


def found(area: str, folder: Path, now: datetime = NOW, **plan: Any) -> list[HealthFinding]:
    """The findings of one area about a plan."""
    place = plan.pop("place", ProcessPlan(state=folder))
    return [one for one in machine_findings(Plan(load_profile(), place, **plan), now) if one.area == area]


def token(**said: object) -> str:
    """A JSON Web Token that says this."""
    return f"e30.{base64.urlsafe_b64encode(json.dumps(said).encode()).decode().rstrip('=')}.c2ln"


@pytest.mark.parametrize(
    ("days", "grade", "words"),
    [(-1, BAD, "expired on "), (1, WARN, "in 1 day"), (20, WARN, "in 20 days"), (22, GOOD, "in 22 days")],
)
def test_a_token_for_a_peer_that_says_when_it_ends_is_told_of_before(
    days: int, grade: Grade, words: str, tmp_path: Path
) -> None:
    end = (NOW + timedelta(days=days, hours=1)).timestamp()
    agents = {"far": RemotePlan("https://far.example", bearer=token(exp=end))}
    (one,) = found("credentials", tmp_path, agents=agents)
    assert (one.name, one.grade) == ("agents.far", grade)
    assert words in one.words
    assert bool(one.mend) is (grade is not GOOD)


@pytest.mark.parametrize(
    "secret",
    [
        "opaque",
        "a.b.c",
        "a.!!.c",
        token(exp="soon"),
        token(exp=math.inf),
        token(exp=math.nan),
        token(),
        "e30.W10.c2ln",
        "..",
        "",
    ],
)
def test_a_token_that_does_not_say_when_it_ends_is_not_told_of(secret: str, tmp_path: Path) -> None:
    agents = {"far": RemotePlan("https://far.example", bearer=secret)}
    assert found("credentials", tmp_path, agents=agents) == []


@pytest.mark.parametrize("end", [1_735_689_600_000, 1e300, 253_402_300_800])
def test_a_token_that_ends_later_than_any_day_is_told_of_all_the_same(end: float, tmp_path: Path) -> None:
    agents = {"far": RemotePlan("https://far.example", bearer=token(exp=end))}
    (one,) = found("credentials", tmp_path, agents=agents)
    assert (one.grade, one.words.startswith("ends on 9999-12-31")) == (GOOD, True)


def test_whoever_has_two_tokens_is_told_with_the_command_that_takes_the_old_one_out(tmp_path: Path) -> None:
    ann, bob = Principal("ann"), Principal("bob")
    tokens = [Credential(ann, "one"), Credential(ann, "", sha256="0" * 64), Credential(bob, "two")]
    (one,) = found("credentials", tmp_path, credentials=tokens)
    assert (one.name, one.grade, one.mend) == ("principals.ann", WARN, "mcp-a2a people rotate ann --finish")


def test_the_end_of_the_certificate_is_told_and_one_that_has_ended_is_broken(tmp_path: Path) -> None:
    made = Authority(tmp_path).issues("bridge")
    tls = TlsFiles(made.certificate, made.key)
    place = ProcessPlan(state=tmp_path, tls=tls)
    (now,) = found("certificates", tmp_path, place=place)
    (later,) = found("certificates", tmp_path, NOW + timedelta(days=40_000), place=place)
    assert (now.name, later.grade) == ("bridge.tls", BAD)
    assert now.words.startswith("ends on ")
    assert "expired on " in later.words
    assert str(made.certificate) in later.mend


_Usage = namedtuple("_Usage", "total used free")


@pytest.mark.parametrize(("free", "grade"), [(1 << 20, BAD), (500 << 20, WARN), (50 << 30, GOOD)])
def test_a_disk_that_is_nearly_full_is_told(
    free: int, grade: Grade, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: _Usage(100 << 30, 0, free))
    (one,) = found("disk", tmp_path)
    assert (one.grade, bool(one.mend)) == (grade, grade is not GOOD)
    assert f"{free >> 20:,} MiB free" in one.words


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write everywhere")
def test_an_audit_that_cannot_be_written_is_broken(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o500)
    audit = AuditPlan(tmp_path / "closed" / "audit.jsonl", 1, 1)
    (one,) = found("audit", tmp_path, place=ProcessPlan(state=tmp_path, audit=audit))
    assert one.grade is BAD


def test_an_audit_whose_chain_is_broken_is_told(tmp_path: Path) -> None:
    audit = AuditPlan(tmp_path / "audit.jsonl", 1, 1)

    def told() -> HealthFinding:
        (one,) = found("audit", tmp_path, place=ProcessPlan(state=tmp_path, audit=audit))
        return one

    assert (told().grade, told().words) == (GOOD, "has no lines yet")
    with AuditFile(audit.file, 1 << 30) as file:
        file.append([{"event": "start"}, {"event": "call"}], lasting=False)
    assert (told().grade, told().words) == (GOOD, "is whole: 2 lines")
    audit.file.write_bytes(audit.file.read_bytes().replace(b"call", b"cull"))
    assert told().grade is BAD
    assert "is not whole: " in told().words
    assert told().mend == f"mcp-a2a audit verify {audit.file}*"
    with AuditFile(tmp_path / "long.jsonl", 1 << 30) as file:
        file.append([{"event": "x" * 400}] * 1000, lasting=False)
    audit = AuditPlan(tmp_path / "long.jsonl", 1, 1)
    assert told().grade is GOOD
    assert "lines are whole, of " in told().words


def test_a_clock_that_was_set_back_is_told_by_files_from_the_future(tmp_path: Path) -> None:
    assert [one.grade for one in found("clock", tmp_path)] == [GOOD]
    (tmp_path / "servers.json").write_text("{}")
    os.utime(tmp_path / "servers.json", times=(NOW.timestamp() + 86_400,) * 2)
    (one,) = found("clock", tmp_path)
    assert one.grade is WARN
    assert "written 86,400 s later" in one.words


def test_a_peer_that_does_not_take_the_credentials_wants_others() -> None:
    mend = peer_mend("agents", "far", "https://far.example", needs_login=False, is_unauthorized=True)
    assert mend.startswith("put valid credentials into [agents.far]")


@pytest.mark.parametrize(
    ("kind", "where", "needs_login", "mend"),
    [
        ("tool_servers", "https://crm.example/mcp", True, "mcp-a2a login crm"),
        ("tool_servers", "https://crm.example/mcp", False, "curl -si https://crm.example/mcp"),
        ("tool_servers", "npx -y crm", False, "npx -y crm"),
        ("agents", "https://crm.example", False, "mcp-a2a card https://crm.example"),
    ],
)
def test_each_peer_that_is_down_has_a_command(kind: str, where: str, needs_login: bool, mend: str) -> None:
    assert peer_mend(kind, "crm", where, needs_login=needs_login) == mend
