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
FASTMCP_ELSE: Final = [FASTMCP.splitlines()[line] for line in (1, 11, 12)]
"""What is shown of the page when it is not about the probe."""

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
    log.end()
    return last_words


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (LOWLEVEL, ["starting", "ready"]),
        (FASTMCP, ["starting", *(FASTMCP.splitlines()[line] for line in (11, 12)), "ready"]),
        (FASTMCP.replace("server/discover", "tools/lits"), ["starting", *FASTMCP_ELSE, "ready"]),
    ],
    ids=["lowlevel", "fastmcp", "no-probe"],
)
async def test_the_validation_error_of_a_python_server_at_the_probe_is_not_shown(
    text: str, shown: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "bridge.mcp.client.stderr")
    last_words = fed(text)
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]
    assert said == [f"tools: {line}" for line in shown]
    logged = [line for record in caplog.records for line in record.getMessage().splitlines()]
    assert len(logged) == len(text.splitlines())
    assert list(last_words.lines) == shown[-5:]


async def test_an_endless_validation_error_is_not_hidden(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "bridge.mcp.client.stderr")
    fed("Failed to validate request: x\n" + "  more\n" * 401)
    assert [record.getMessage() for record in caplog.records][1:] == ["tools:   more"]


async def test_a_validation_error_at_which_a_server_dies_is_in_its_last_words() -> None:
    assert "Failed to validate request: x" in str(fed("Failed to validate request: x\n  more\n"))


async def test_an_error_before_the_usage_text_is_in_the_last_words() -> None:
    lines = COBRA.splitlines()
    assert str(fed(COBRA)) == f"; its last words: {' | '.join([lines[0], *lines[-5:]])}"


NPM: Final = """\
npm warn exec The following package was not found and will be installed: nosuch@1.0.0
npm error code E404
npm error 404 Not Found - GET https://registry.example/nosuch-server
npm error 404
npm error 404  The requested resource 'nosuch-server@*' could not be found or you do not have permission to access it.
npm error 404
npm error 404 Note that you can also install from a
npm error 404 tarball, folder, http url, or git url.
npm notice
npm notice New major version of npm available! 10.9.0 -> 11.6.2
npm notice Changelog: https://github.com/npm/cli/releases/tag/v11.6.2
npm notice To update run: npm install -g npm@11.6.2
npm notice
npm error A complete log of this run can be found in: /home/ada/.npm/_logs/debug-0.log
"""
"""npm 11, with the notice of a newer version; older ones write ERR! in place of error."""


@pytest.mark.parametrize("prefix", ["npm error", "npm ERR!"])
async def test_the_last_words_of_npm_are_its_error_and_not_its_news(prefix: str) -> None:
    words = str(fed(NPM.replace("npm error", prefix)))
    assert words == (
        f"; its last words: {prefix} code E404 | {prefix} 404 Not Found - GET https://registry.example/nosuch-server"
        f" | {prefix} 404  The requested resource 'nosuch-server@*' could not be found or you do not have permission to"
        " access it.; is the name of the package right?"
    )


async def test_notices_of_npm_are_shown_if_there_is_no_other_text() -> None:
    assert (
        str(fed("npm notice\nnpm warn deprecated x\n"))
        == "; its last words: npm notice | npm warn deprecated x"
    )
