"""Asks a model over HTTP: within its bounds of time, size, requests at once and tokens, and over the guarded client.

The answer is read whole. No redirect is followed, so the key goes to the configured URL only.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from types import ModuleType
from typing import Final
from urllib.parse import urlsplit

import anyio
import httpx2

from bridge.config.tables.models import ModelTable
from bridge.http.documents import DocumentError, DocumentLimits, fetched_json
from bridge.http.private_addresses import AddressGuard, RebindingJudge
from bridge.identity.callers.principals import Principal
from bridge.model import anthropic_api, openai_api
from bridge.model.budget import TokenBudget
from bridge.model.dialogue import Dialogue, ModelError, ModelReply

_ANSWER_BYTES: Final = 1_048_576
"""The most bytes of an answer. An answer of 4,000 tokens has about 20,000."""
_BYTES_PER_TOKEN: Final = 4
"""About how many bytes a token has, to reserve tokens before they are counted."""
_ANTHROPIC: Final = "anthropic.com"
_APIS: Final[dict[str, ModuleType]] = {"openai": openai_api, "anthropic": anthropic_api}


class ModelClient:
    """Asks one model."""

    def __init__(self, table: ModelTable, http: httpx2.AsyncClient, now: Callable[[], float]) -> None:
        """`now` is the time in seconds, of a clock that never goes back."""
        self.table = table
        host = urlsplit(table.url).hostname or ""
        self.host = urlsplit(table.url).netloc
        """The host that gets the texts."""
        is_anthropic = host == _ANTHROPIC or host.endswith(f".{_ANTHROPIC}")
        self._api = _APIS[table.api or ("anthropic" if is_anthropic else "openai")]
        self._http = http
        self._guard = AddressGuard(
            RebindingJudge().judge(host, "write the private address into `url` of [model]")
        )
        self._places = anyio.CapacityLimiter(table.concurrency)
        self._budget = TokenBudget(table.hourly_tokens, table.hourly_tokens_shared, now)

    async def reply(self, dialogue: Dialogue, principal: Principal) -> ModelReply:
        """The next answer in a dialogue. The caller bounds the time.

        Raises:
            ModelError: there is no usable answer, or the principal has no tokens left.
        """
        table = self.table
        body = json.dumps(
            self._api.request_of(dialogue, table.model, table.answer_tokens, table.url)
        ).encode()
        most = len(body) // _BYTES_PER_TOKEN + table.answer_tokens
        async with self._places:
            settle = self._budget.reserve(principal, most)
            if settle is None:
                raise ModelError("no_tokens", f"{principal.name} has used the tokens of this hour")
            reply: ModelReply = self._api.reply_from(await self._answer(body))
            settle(most if reply.tokens is None else reply.tokens)
        if reply.is_cut:
            raise ModelError("broken", "the answer was cut off before its end")
        return reply

    async def _answer(self, body: bytes) -> object:
        key = self.table.api_key
        headers = {"Content-Type": "application/json", **self._api.headers_of(key.value if key else None)}
        request = self._http.build_request(
            "POST", self._api.url_of(self.table.url), content=body, headers=headers
        )
        limits = DocumentLimits(_ANSWER_BYTES, self.table.seconds)
        try:
            return await fetched_json(self._http, request, limits, self._guard)
        except DocumentError as exc:
            raise ModelError("failed", str(exc)) from exc
