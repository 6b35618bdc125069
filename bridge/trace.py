"""Which call the running code works for, in the only context variables of the bridge, and who watches its hops.

A face sets them once for a request; whatever runs on its behalf, in whichever task, inherits them.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")

OnHop = Callable[[str, str], None]
"""Takes what passes between the bridge and a peer: `>` and what was sent, or `<` and what came, as JSON. What a
message travels in is left out: headers, and what credentials add to a URL."""

call_id: ContextVar[str] = ContextVar("call_id", default="-")
"""A short random name for one request, in every log line about it."""

traceparent: ContextVar[str | None] = ContextVar("traceparent", default=None)
"""The W3C trace context that the request came with, passed on to the other side."""


def begin(header: str | None) -> None:
    """A request has come in; `header` is its `traceparent`, if any. A malformed one is not passed on."""
    call_id.set(secrets.token_hex(4))
    traceparent.set(header if header is not None and _TRACEPARENT.fullmatch(header) else None)
