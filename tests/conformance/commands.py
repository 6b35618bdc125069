"""The commands with which a user logs in at a server and serves it, each in a process of its own.

By URL: `mcp-a2a login URL` and `mcp-a2a wrap URL`. What has no option (a secret, a grant without a person) is in a
file: `mcp-a2a login NAME FILE` and `mcp-a2a serve FILE`. Knows nothing of the suites.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import httpx2

from tests.support.command import environment, process_of
from tests.support.files import started
from tests.support.forked import Forked
from tests.support.lines import Lines

_PAGE: Final = "Log in at this page: "
_NEEDLESS: Final = "asks for no login"
_LOGIN_NEEDED: Final = "Run `mcp-a2a login"
_NAME: Final = "suite"
_HERE: Final = "--allow-private"
"""What a user says whose server and issuer are both on this machine."""


class NoLoginError(Exception):
    """`mcp-a2a login` ended without a login. The message is what it said."""

    def __init__(self, code: int, said: str) -> None:
        super().__init__(f"exit code {code}: {said}")
        self.is_needless = _NEEDLESS in said
        """Whether the server wants none."""


class NotServingError(Exception):
    """A bridge ended before it served. The message is what it said."""

    @property
    def needs_login(self) -> bool:
        """Whether it asked for a login."""
        return _LOGIN_NEEDED in str(self)


@dataclass(frozen=True)
class Commands:
    """How somebody logs in at one server and serves it. Each state folder is one user's."""

    state: Path
    login: tuple[str, ...]
    """The words after `mcp-a2a login`."""
    serve: tuple[str, ...]
    """The words after `mcp-a2a`, but for the port."""
    serves: str
    """What it says once it serves."""
    agent: str = ""
    """The path of the agent."""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The environment."""

    async def log_in(self, http: httpx2.AsyncClient, seconds: float) -> None:
        """Run the login, and open its page as a browser does.

        Raises:
            NoLoginError: there is none.
        """
        words = [sys.executable, "-P", "-m", "bridge", "login", *self.login, "--no-browser"]
        with Forked(
            words,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            env=environment(self.state, **self.secrets),
        ) as process:
            try:
                lines = Lines(process, process.stderr)
                if page := await anyio.to_thread.run_sync(_page_in, lines, seconds):
                    await http.get(page, follow_redirects=True)
                await anyio.to_thread.run_sync(lines.rest, seconds)
                code = await anyio.to_thread.run_sync(process.wait)
            finally:
                process.kill()
        if code:
            raise NoLoginError(code, "".join(lines.said))

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Serve, and end by a signal; the URL of the agent.

        Raises:
            NotServingError: it ended before.
        """
        bridge = started(*self.serve, "--port", state=self.state, until=self.serves, **self.secrets)
        async with AsyncExitStack() as stack:
            try:
                running = await stack.enter_async_context(process_of(bridge))
            except AssertionError as exc:
                raise NotServingError(str(exc)) from exc
            yield f"{running.url}{self.agent}"
            code = await anyio.to_thread.run_sync(running.stop, signal.SIGTERM)
            assert code == 0, f"it ended with {code}:\n{''.join(running.lines)}"


def _page_in(lines: Lines, seconds: float) -> str:
    """The page that a login names; "" if it ends without one."""
    try:
        return lines.until(_PAGE, seconds).partition(_PAGE)[2].strip()
    except AssertionError:
        return ""


def by_url(url: str, state: Path, *options: str) -> Commands:
    """By the URL alone; `options` are those of the login."""
    return Commands(state, (url, _HERE, *options), ("wrap", url, _HERE), "Card ")


def by_file(url: str, state: Path, oauth2: Mapping[str, str], **secrets: str) -> Commands:
    """By a file, with what it says of OAuth; each secret is in the environment under the name of its key."""
    given = [f"{key} = {json.dumps(value)}" for key, value in oauth2.items()]
    given += [f'{key} = {{ env = "{key.upper()}" }}' for key in secrets]
    text = f"""\
[tool_servers.{_NAME}]
url = {json.dumps(url)}
allow_private = true

[tool_servers.{_NAME}.auth.oauth2]
{chr(10).join(given)}

[tools_as_agent.{_NAME}]
from = ["{_NAME}"]
"""
    (file := state / "bridge.toml").write_text(text, "utf-8")
    agent = f"/agents/{_NAME}"
    known = {key.upper(): value for key, value in secrets.items()}
    return Commands(state, (_NAME, str(file)), ("serve", str(file)), agent, agent, known)
