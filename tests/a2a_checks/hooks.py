"""A webhook: keeps what is posted to it, and answers that it has it.

Knows HTTP, and nothing of A2A.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import anyio
import httpx2

MAX_POSTED: Final = 10_000
"""What is kept of all checks together; more is answered and forgotten."""
_LOOK_SECONDS: Final = 0.01


@dataclass(frozen=True, slots=True)
class Posted:
    """One request."""

    path: str
    headers: httpx2.Headers
    body: bytes


SpoilPosted = Callable[[Posted], Posted | None]
"""What becomes of a request before it is kept; None loses it."""


def as_it_came(posted: Posted) -> Posted:
    """Spoils nothing."""
    return posted


class Hooks:
    """Listens on one address, with a path for each webhook."""

    def __init__(self, root_url: str, spoil: SpoilPosted) -> None:
        self.root_url = root_url
        self._spoil = spoil
        self._numbers = itertools.count(1)
        self._posted: list[Posted] = []

    def new_path(self) -> str:
        """A path that no other webhook has."""
        return f"/hooks/{next(self._numbers)}"

    def take(self, posted: Posted) -> None:
        """Keep a request; called from any thread."""
        kept = self._spoil(posted)
        if kept is not None and len(self._posted) < MAX_POSTED:
            self._posted.append(kept)

    def at(self, path: str) -> list[Posted]:
        """What has come to one path, in its order."""
        return [one for one in self._posted if one.path == path]

    async def once(self, path: str, holds: Callable[[Sequence[Posted]], bool]) -> list[Posted]:
        """What has come to one path, once this holds; the caller's deadline bounds the wait."""
        while not holds(posted := self.at(path)):
            await anyio.sleep(_LOOK_SECONDS)
        return posted


@contextmanager
def hooks_at(host: str = "127.0.0.1", port: int = 0, *, spoil: SpoilPosted = as_it_came) -> Iterator[Hooks]:
    """Webhooks on this address; port 0 takes a free one. `spoil` makes of an agent one that posts something else.

    Raises:
        OSError: nobody can listen there.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            hooks.take(Posted(self.path, httpx2.Headers(list(self.headers.items())), body))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Nothing: standard error is the command's."""

    with ThreadingHTTPServer((host, port), Handler) as server:
        hooks = Hooks(f"http://{host}:{server.server_port}", spoil)
        listener = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        listener.start()
        try:
            yield hooks
        finally:
            server.shutdown()
            listener.join()
