"""Secrets by reference, and only by reference."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bridge.config.text.secrets import Secret, child_variable_in, header_from, principal_in, secret_from
from bridge.errors import UsageError

pytestmark = pytest.mark.proves("config-secrets")

SECRET = "s3cret value"


@pytest.fixture(autouse=True)
def _secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOKEN", SECRET)
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.setenv("LINES", "a\r\nX-Other: b")
    monkeypatch.delenv("GONE", raising=False)
    Path("token").write_text(f"{SECRET}\n")
    Path("empty").write_text(" \n")
    Path("bytes").write_bytes(b"\xff")


@pytest.mark.parametrize("reference", ["env:TOKEN", "file:token"])
def test_a_secret_is_read_from_its_reference(reference: str) -> None:
    assert secret_from(reference) == SECRET


@pytest.mark.parametrize("text", ["plain", "https://example.com", "", "ENV:TOKEN", "environment:TOKEN"])
def test_a_text_that_is_no_reference_gives_none(text: str) -> None:
    assert secret_from(text) is None


@pytest.mark.proves("cli-usage")
@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("env:GONE", "the environment variable GONE is not set"),
        ("env:EMPTY", "the environment variable EMPTY is not set"),
        ("file:gone", "cannot read the secret in gone: No such file or directory"),
        ("file:empty", "the file empty is empty"),
        ("file:bytes", "cannot read the secret in bytes: it is not UTF-8"),
        ("file:.", "cannot read the secret in .: Is a directory"),
    ],
)
def test_a_reference_to_nothing_says_what_is_missing(reference: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        secret_from(reference)
    assert str(refused.value) == said


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("Authorization=env:TOKEN", ("Authorization", SECRET)),
        ("X-Api-Key=file:token", ("X-Api-Key", SECRET)),
        ("X-Tenant=blue", ("X-Tenant", "blue")),
        ("X-Tenant=a=b", ("X-Tenant", "a=b")),
        ("X-Home=https://example.com", ("X-Home", "https://example.com")),
        ("X-Empty=", ("X-Empty", "")),
    ],
)
def test_a_header_has_a_name_and_a_value_or_a_reference(text: str, header: tuple[str, str]) -> None:
    assert header_from(text) == header


@pytest.mark.proves("mcp25-tokens-kept", "mcp26-tokens-kept", "a2a-13.4-secrets")
@pytest.mark.parametrize(
    "name",
    [
        "Authorization",
        "cookie",
        "Proxy-Authorization",
        "X-API-KEY",
        "x-token",
        "X-Secret",
        "My-Password",
        "X-Auth",
    ],
)
def test_a_secret_header_in_plain_is_refused_without_repeating_it(name: str) -> None:
    with pytest.raises(UsageError, match="not in plain") as refused:
        header_from(f"{name}=hunter2")
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "X-Tenant",
        "=value",
        "X Tenant=a",
        "X-Tenant: a=b",
        "X-Ä=a",
        "X-Lines=env:LINES",
        "X-L=a\nb",
        "X=env:GONE",
    ],
)
def test_a_text_that_is_no_header_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        header_from(text)


@pytest.mark.proves("web-auth")
@pytest.mark.parametrize(
    ("text", "principal", "reference"),
    [
        ("bearer:env:TOKEN", "client", {"env": "TOKEN"}),
        ("bearer:file:token", "client", {"file": "token"}),
        ("alice=bearer:env:TOKEN", "alice", {"env": "TOKEN"}),
    ],
)
def test_auth_names_a_principal_and_the_reference_of_its_token(
    text: str, principal: str, reference: dict[str, str]
) -> None:
    absolute = {key: os.path.abspath(place) if key == "file" else place for key, place in reference.items()}
    assert principal_in(text) == (principal, absolute)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "env:TOKEN",
        "bearer:TOKEN",
        "bearer:",
        "basic:env:TOKEN",
        "=bearer:env:TOKEN",
        "alice=",
        f"bearer:{SECRET}",
    ],
)
def test_a_text_that_is_no_credential_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(UsageError, match="--auth takes") as refused:
        principal_in(text)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "variable"),
    [
        ("A=b=c", ("A", "b=c")),
        ("A=", ("A", "")),
        ("TOKEN", ("TOKEN", Secret(SECRET, "env:TOKEN"))),
        ("EMPTY", ("EMPTY", Secret("", "env:EMPTY"))),
        ("A_TOKEN=b", ("A_TOKEN", Secret("b", "env:A_TOKEN"))),
    ],
)
def test_a_childs_variable_is_given_or_passed_on(text: str, variable: tuple[str, str | Secret]) -> None:
    assert child_variable_in(text) == variable


def test_a_childs_variable_that_is_not_set_is_refused() -> None:
    with pytest.raises(UsageError, match="GONE"):
        child_variable_in("GONE")
