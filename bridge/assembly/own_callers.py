"""For whom the bridge calls its own agents.

An MCP server that is made of an agent of the same process calls it over HTTP, with the bridge's own secret. Beside that
secret goes a header which says for whom, sealed with it. So the task belongs to the caller, and its login or its token
serves the call. What it may use was judged at the MCP server. Nobody else can write such a header.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, Final

from bridge.identity.callers.principals import Principal
from bridge.identity.tokens.caller_token import Caller, CallerToken
from bridge.seal import RecordSeal, SealedRecordError

CALLER_HEADER: Final = "mcp-a2a-caller"
"""The header that says for whom the bridge calls itself."""

_PLACE: Final = b"a call of the bridge by itself"


class UnknownCallerError(Exception):
    """A header does not say for whom a call is."""


class OwnCallers:
    """Callers as headers, and back."""

    def __init__(self, own_token: str) -> None:
        """`own_token` is the secret with which the bridge calls itself."""
        self._seal = RecordSeal([hashlib.sha256(own_token.encode()).digest()], "own callers")

    def headers(self, caller: Caller) -> Mapping[str, str]:
        """The headers of a request for a caller."""
        sealed = {CALLER_HEADER: self._seal.seal_json(asdict(replace(caller, client="")), _PLACE)}
        if not caller.client:
            return sealed
        client = "".join(character for character in caller.client if " " <= character <= "~")
        return sealed | {"User-Agent": f"{client} (over MCP)"}

    def principal_in(self, header: str) -> Principal:
        """The caller of a request. What it may use was judged by the MCP server that it called.

        Raises:
            UnknownCallerError: the header is not of this bridge.
        """
        try:
            members: dict[str, Any] = self._seal.open_json(header, _PLACE)
        except SealedRecordError as exc:
            raise UnknownCallerError from exc
        token = None if members["token"] is None else CallerToken(**members["token"])
        expires_at = None if token is None else token.expires_at
        return Principal(members["principal"], expires_at=expires_at, token=token, is_judged=True)
