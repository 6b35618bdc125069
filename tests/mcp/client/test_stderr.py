"""What is logged and kept of what a child writes to its stderr. The lines of Python servers are a transcript."""

from __future__ import annotations

import logging
from typing import Final

import pytest

from bridge.mcp.client.stderr import LastWords, StderrLog

pytestmark = pytest.mark.proves("mcp-child")

LOWLEVEL: Final = """\
starting
WARNING:root:Failed to validate request: 31 validation errors for ClientRequest
PingRequest.method
  Input should be 'ping' [type=literal_error, input_value='server/discover', input_type=str]
    For further information visit https://errors.pydantic.dev/2.14/v/literal_error
InitializeRequest.params.protocolVersion
  Field required [type=missing, input_value={'_meta': {'io.modelconte...form': {}, 'url': {}}}}}, input_type=dict]
    For further information visit https://errors.pydantic.dev/2.14/v/missing
ready
"""
"""mcp 1.30.0, its low-level server."""

FASTMCP: Final = """\
starting
[11/22/26 12:44:40] WARNING  Failed to validate request: 31       session.py:383
                             validation errors for ClientRequest
                             PingRequest.method
                               Input should be 'ping'
                               [type=literal_error,
                               input_value='server/discover',
                               input_type=str]
                                 For further information visit
                                 https://errors.pydantic.dev/2.14/v/l
                                 iteral_error
                    INFO     Processing request of type            server.py:727
                             ListToolsRequest
ready
"""
"""mcp 1.30.0, its FastMCP with rich 15.0.0; the next record is of the same second."""

COBRA: Final = """\
Error: unknown flag: --read-onlyy
Usage:
  github-mcp-server stdio [flags]

Flags:
  -h, --help   help for stdio

Global Flags:
      --dynamic-toolsets             Enable dynamic toolsets
      --enable-command-logging       When enabled, the server will log all command requests
      --gh-host string               Specify the GitHub hostname (for GitHub Enterprise etc.)
      --log-file string              Path to log file
      --read-only                    Restrict the server to read-only operations
"""
"""In the shape that Cobra gives it, of which many servers in Go are made: the error, and below it the usage."""


def fed(text: str) -> LastWords:
    last_words = LastWords()
    log = StderrLog("tools", last_words)
    for at in range(0, len(text), 7):
        log.feed(text[at : at + 7].encode())
    return last_words


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (LOWLEVEL, ["starting", LOWLEVEL.splitlines()[1], "ready"]),
        (
            FASTMCP,
            ["starting", *(FASTMCP.splitlines()[line] for line in (1, 11, 12)), "ready"],
        ),
    ],
    ids=["lowlevel", "fastmcp"],
)
async def test_the_page_that_a_python_server_writes_at_the_probe_is_one_line(
    text: str, shown: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "bridge.mcp.client.stderr")
    last_words = fed(text)
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]
    assert said == [f"tools: {line}" for line in shown]
    assert len(caplog.records) == len(text.splitlines())
    assert list(last_words.lines) == shown[-5:]


async def test_a_page_that_never_ends_is_not_hidden(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "bridge.mcp.client.stderr")
    fed("Failed to validate request: x\n" + "  more\n" * 401)
    assert [record.getMessage() for record in caplog.records][1:] == ["tools:   more"]


async def test_an_error_stands_among_the_last_words_though_the_usage_follows_it() -> None:
    lines = COBRA.splitlines()
    assert str(fed(COBRA)) == f"; its last words: {' | '.join([lines[0], *lines[-5:]])}"
