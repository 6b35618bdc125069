"""The stderr of a tool server that is a child process: lines for the log, and the last lines for error messages.

Stderr is free text for people, with three exceptions. Servers of the Python SDK 1.x write a page of validation errors
when they receive `server/discover`. This is not their fault, so the page is logged only for debugging. A line that
begins like an error is kept for error messages, even if the usage of a command follows it. The asides of npm around its
error are not kept.
"""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import anyio

logger = logging.getLogger(__name__)

_LINE_BYTES: Final = 2000
_LINES_KEPT: Final = 5
_LINES_A_BURST: Final = 200
_BURST_SECONDS: Final = 10.0

_INVALID: Final = re.compile(r"\bFailed to validate request: ")
_OF_INVALID: Final = re.compile(
    r"\s(?!\s*(DEBUG|INFO|WARNING|ERROR|CRITICAL)\s)|\w+(Request|Notification)(\.[\w.\[\]-]+)?$"
)
"""The further lines of such a page: indented lines that do not begin a record of `rich`, and lines that locate an
error."""
_PROBE: Final = "server/discover"
"""The method that a page names if the bridge's own probe caused it. Other pages are shown."""
_OF_INVALID_MOST: Final = 400
"""The most lines of a page. Such a server writes half as many through `rich`, which breaks lines at 80 characters."""

_ERROR: Final = re.compile(r"(fatal |fatal: )?error: ", re.IGNORECASE)
"""The beginning of a line with an error. Go commands (Cobra) write it above their usage."""

_ASIDE: Final = re.compile(
    r"(?i)npm (notice\b|warn\b|err\S*( \d+)?\s*$|err\S* A complete log\b|err\S* 404 (Note that|tarball, folder))"
)
"""The asides of npm: news, warnings, empty lines, and the path of its log."""

_GIVEN: Final = "a child is given few variables: pass {} with --env {}, in a file with `env`"

_LACKS: Final[Mapping[re.Pattern[str], str]] = {
    re.compile(r"(?i)npm err\S* code \w*(?:ISSUER_CERT|SELF_SIGNED|LEAF_SIGNATURE)"): _GIVEN.format(
        "the certificates of your network", "NODE_EXTRA_CA_CERTS"
    ),
    re.compile(r"(?i)npm err\S* code E404|was not found in the package registry"): (
        "is the name of the package right?"
    ),
    re.compile(r"invalid peer certificate"): _GIVEN.format(
        "the certificates of your network", "SSL_CERT_FILE"
    ),
    re.compile(
        r"(?i)npm err\S* code (?:ENOTFOUND|EAI_AGAIN|ETIMEDOUT|ECONNREFUSED|ECONNRESET|ENETUNREACH)"
        r"|error sending request for url"
    ): _GIVEN.format("the proxy of your network, if it has one,", "HTTPS_PROXY"),
}
"""The errors of npx and uvx if they cannot fetch a package, with hints about the missing variable. The patterns for
certificates come first, since uvx writes both texts for such a fault."""


@dataclass
class LastWords:
    """The newest lines on a child's stderr, and its newest line that begins like an error."""

    lines: deque[str] = field(default_factory=lambda: deque(maxlen=_LINES_KEPT))
    asides: deque[str] = field(default_factory=lambda: deque(maxlen=_LINES_KEPT))
    """Lines that matter only if there are no others."""
    error: str = ""
    hint: str = ""
    """The hint for the first line that matched a pattern of `_LACKS`."""

    def add(self, line: str) -> None:
        """Keep a line."""
        (self.asides if _ASIDE.match(line) else self.lines).append(line)
        if _ERROR.match(line):
            self.error = line
        self.hint = self.hint or next((hint for mark, hint in _LACKS.items() if mark.search(line)), "")

    def __str__(self) -> str:
        above = [self.error] if self.error and self.error not in self.lines else []
        lines = [*above, *(self.lines or self.asides)]
        words = f"; its last words: {' | '.join(lines)}" if lines else ""
        return f"{words}; {self.hint}" if self.hint else words


class StderrLog:
    """Passes stderr to the log, line by line, bounded in length and in number."""

    def __init__(self, name: str, last_words: LastWords) -> None:
        self._name = name
        self._last_words = last_words
        self._rest = b""
        self._burst_end = 0.0
        self._logged = 0
        self._of_invalid = 0
        """How many further lines may still belong to a page of validation errors."""
        self._held: str | None = None
        """The first line of a page, until the page shows its method."""

    def feed(self, chunk: bytes) -> None:
        """Take a chunk of stderr."""
        *lines, rest = (self._rest + chunk).split(b"\n")
        self._rest = rest[:_LINE_BYTES]
        for raw in lines:
            line = raw[:_LINE_BYTES].decode("utf-8", "replace").rstrip()
            if line:
                self._take(line)

    def end(self) -> None:
        """Log the held line, since stderr is closed."""
        held, self._held = self._held, None
        if held is not None:
            self._keep(held)

    def _take(self, line: str) -> None:
        if self._of_invalid and _OF_INVALID.match(line):
            self._of_invalid -= 1
            if self._held is not None and _PROBE in line:
                line, self._held = f"{self._held}\n{line}", None
            logger.debug("%s: %s", self._name, line)
            return
        self.end()
        if _INVALID.search(line):
            self._of_invalid, self._held = _OF_INVALID_MOST, line
            return
        self._of_invalid = 0
        self._keep(line)

    def _keep(self, line: str) -> None:
        self._last_words.add(line)
        self._log(line)

    def _log(self, line: str) -> None:
        if anyio.current_time() > self._burst_end:
            self._burst_end, self._logged = anyio.current_time() + _BURST_SECONDS, 0
        self._logged += 1
        if self._logged <= _LINES_A_BURST:
            logger.info("%s: %s", self._name, line)
        elif self._logged == _LINES_A_BURST + 1:
            logger.warning("%s writes so much to stderr that some lines are left out here", self._name)
