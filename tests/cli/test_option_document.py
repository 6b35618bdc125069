"""Options as a document: it is checked like a file, and its faults name the option."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from bridge.cli import expose, option_document, proxy, wrap
from bridge.config.text.secrets import Secret
from bridge.errors import UsageError
from bridge.mcp.client.transports.stdio import StdioTarget
from bridge.mcp.client.transports.streamable_http import HttpTarget
from tests.support.command import run_here

URL = "https://tools.example.com/mcp"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOKEN", "T0k3n")
    monkeypatch.setenv("OTHER", "another")
    monkeypatch.setenv("EMPTY", "")
    (tmp_path / "key").write_text("in-a-file")


_DOCUMENTS = {
    "wrap": option_document.wrapped,
    "expose": option_document.exposed,
    "proxy": option_document.proxied,
}


def options_of(command: Any, *words: str) -> dict[str, Any]:
    with command.make_context(command.name, list(words)) as context:
        return dict(context.params)


def as_read(value: Any) -> Any:
    """A value of a document as it is read from the file that is printed."""
    match value:
        case dict():
            inner = {key: as_read(one) for key, one in value.items() if one is not None}
            return {key: one for key, one in inner.items() if one not in ({}, [])}
        case Secret():
            source, _, place = value.reference.partition(":")
            return {source: place}
        case _:
            return value


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (
            wrap.wrap,
            ["--auth", "bearer:env:TOKEN", "--env", "TOKEN", "--env", "A=b", "--port", "1", "--", "x", "y"],
        ),
        (wrap.wrap, ["--call-timeout-seconds", "5", "--header", "X-Key=file:key", "--store", "t.db", URL]),
        (wrap.wrap, ["--push", URL]),
        (wrap.wrap, ["--console", URL]),
        (wrap.wrap, ["--push-allow", "127.0.0.1:9000", "--push-allow", "hooks.internal:8443", URL]),
        (expose.expose, ["--http", "--bearer", "env:TOKEN", "--answer-within-seconds", "7", URL, f"{URL}/2"]),
        (
            proxy.proxy,
            ["--bearer", "env:TOKEN", "--push", "--store", "t.db", "--name", "Front desk", URL, f"{URL}/2"],
        ),
        (proxy.proxy, ["--auth", "bearer:env:TOKEN", "--console", "--grpc", "127.0.0.1:1", URL]),
    ],
)
def test_the_printed_document_is_the_served_document(command: Any, words: list[str], tmp_path: Path) -> None:
    options = options_of(command, *words)
    made = _DOCUMENTS[command.name]
    done = run_here(command.name, "--print-toml", *words, state=tmp_path, folder=tmp_path)
    assert tomllib.loads(done.stdout) == as_read(made(options).data)


@pytest.mark.proves("cli-usage")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["wrap", "--call-timeout-seconds", "inf", URL], "--call-timeout-seconds takes a finite number"),
        (["wrap", "--public-url", "ftp://b.example", URL], "--public-url takes a URL that begins with http"),
        (["wrap", "--public-url", "https://b.example/?x", URL], "--public-url takes a base URL"),
        (["wrap", "--allow-host", "https://b.example", URL], "--allow-host: `hosts[0]` takes names of hosts"),
        (["wrap", "--push-allow", "http://x", URL], "--push-allow: `allow[0]` takes receivers as"),
        (["wrap", "--auth", "bearer:env:GONE", URL], "--auth: the environment variable GONE is not set"),
        (["wrap", "--header", "X-Key=env:GONE", URL], "--header: the environment variable GONE is not set"),
        (["wrap", "--mapping", "nope", URL], "--mapping: there is no mapping profile 'nope'; there is"),
        (["expose", "--answer-within-seconds", "nan", URL], "--answer-within-seconds takes"),
        (
            ["expose", "--bearer", "env:TOKEN", "--header", "Authorization=env:OTHER", URL],
            "--header: the header Authorization appears twice",
        ),
        (["wrap", "--header", "X-A=b", "--header", "x-a=c", URL], "--header: the header x-a appears twice"),
        (["expose", "--trust", "nonsense", URL], "'nonsense' has no host"),
        (["proxy", "agent.example.com"], "an agent is named by its http(s) URL"),
        (["proxy", "--public-url", "ftp://b.example", URL], "--public-url takes a URL that begins with http"),
        (["proxy", "--port", "9000", "http://127.0.0.1:9000"], "AGENT_URL"),
        (
            ["call", "--bearer", "env:TOKEN", "tool", "--", "x"],
            "--bearer is for a URL; a command takes --env",
        ),
        (["expose", "--bearer", "file:gone", URL, f"{URL}/2"], "--bearer: cannot read the secret in"),
    ],
)
def test_a_fault_is_reported_once_with_its_option(words: list[str], said: str, tmp_path: Path) -> None:
    done = run_here(*words, state=tmp_path, folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"mcp-a2a: {said}")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "allowed"),
    [
        ([], None),
        (["--push"], frozenset()),
        (["--push-allow", "127.0.0.1:9000"], frozenset({"127.0.0.1:9000"})),
    ],
)
def test_push_notifications_are_sent_when_an_option_asks_for_them(
    words: list[str], allowed: frozenset[str] | None
) -> None:
    push = option_document.wrapped(options_of(wrap.wrap, *words, URL)).plan().place.push
    assert (None if push is None else push.allow) == allowed


def test_a_principal_may_have_a_name_that_no_file_takes_and_several_tokens() -> None:
    names = ["Ada@example.com=bearer:env:TOKEN", "ada=bearer:env:OTHER"]
    asked = option_document.wrapped(options_of(wrap.wrap, *(w for n in names for w in ("--auth", n)), URL))
    assert [one.principal.name for one in asked.plan().credentials] == ["Ada@example.com", "ada"]
    twice = ["--auth", "ada=bearer:env:TOKEN", "--auth", "ada=bearer:env:OTHER", URL]
    asked = option_document.wrapped(options_of(wrap.wrap, *twice))
    assert [(one.principal.name, one.token) for one in asked.plan().credentials] == [
        ("ada", "T0k3n"),
        ("ada", "another"),
    ]
    with pytest.raises(UsageError, match="one token in a file"):
        asked.write()


def test_only_the_command_line_takes_a_user_in_a_url() -> None:
    url = "https://ada:hunter2@tools.example.com/mcp"
    asked = option_document.wrapped(options_of(wrap.wrap, url))
    (server,) = asked.plan().servers.values()
    assert isinstance(server.target, HttpTarget)
    assert server.target.url == url
    with pytest.raises(UsageError, match="may have no user or password"):
        asked.write()


def test_a_variable_is_passed_on_as_it_is_also_when_it_is_empty() -> None:
    words = ("--env", "EMPTY", "--env", "TOKEN", "--env", "MY_TOKEN=in plain", "--", "x")
    (server,) = option_document.wrapped(options_of(wrap.wrap, *words)).plan().servers.values()
    assert isinstance(server.target, StdioTarget)
    assert server.target.env == {"EMPTY": "", "TOKEN": "T0k3n", "MY_TOKEN": "in plain"}
