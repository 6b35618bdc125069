"""The agents that everybody may find, as an ASGI application: `/.well-known/ard.json`, and the same document at
`/.well-known/ai-catalog.json`.

The document asks for no credentials, so it lists only agents that the configuration calls public. It tells nothing
that their public cards do not tell. Both formats are drafts. One document meets both: ARD ignores members at the top
that are not its own, and AI Catalog permits the terms that ARD requires.

Spec: Agentic Resource Discovery v0.91, sections 4.2 and 5.1; AI Catalog 1.0, "Catalog Entry" and "Well-Known URI".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from bridge.a2a.server.catalog import CatalogAgent, conditional, refusal
from bridge.a2a.wire.rest import CARD_PATH
from bridge.http.request_checks import FaceAddress, RefusedError
from bridge.text.jsonvalues import JsonObject

ARD_PATH: Final = "/.well-known/ard.json"
AI_CATALOG_PATH: Final = "/.well-known/ai-catalog.json"

CARD_TYPE: Final = "application/a2a-agent-card+json"

_MEDIA_TYPES: Final = {ARD_PATH: "application/json", AI_CATALOG_PATH: "application/ai-catalog+json"}
_QUERIES: Final = (2, 5)
"""The fewest and the most `representativeQueries`. ARD v0.91 section 4.2: "SHOULD contain 2-5 examples"."""


class DiscoveryApp:
    """The application. It serves both paths."""

    def __init__(
        self, agents: Callable[[], Iterable[CatalogAgent]], address: FaceAddress, max_age_seconds: int
    ) -> None:
        """`agents` gives the public agents. `max_age_seconds` is as in `CatalogApp`."""
        self._agents = agents
        self._address = address
        self._max_age_seconds = max_age_seconds

    @property
    def is_empty(self) -> bool:
        """Whether no agent is public, so that neither path exists."""
        return not any(True for _ in self._agents())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        await self._answer(scope)(scope, receive, send)

    def _answer(self, scope: Scope) -> Response:
        headers = Headers(scope=scope)
        try:
            self._address.require_own(headers)
            if scope["method"] not in ("GET", "HEAD"):
                raise RefusedError(405, "The catalog is read with GET", {"Allow": "GET, HEAD"})
        except RefusedError as exc:
            return refusal(exc)
        media_type = _MEDIA_TYPES[scope["path"].removeprefix(scope.get("root_path", ""))]
        document = self._document(self._address.base_url(scope, headers))
        text = json.dumps(document, ensure_ascii=False).encode()
        return conditional(text, headers, f"public, max-age={self._max_age_seconds}", media_type)

    def _document(self, root_url: str) -> JsonObject:
        publisher = (urlsplit(root_url).hostname or "").replace(":", "-")
        agents = sorted(self._agents(), key=lambda agent: agent.name)
        return {
            "specVersion": "1.0",
            "host": {"displayName": publisher},
            "entries": [_entry(agent, publisher, root_url) for agent in agents],
        }


def _entry(agent: CatalogAgent, publisher: str, root_url: str) -> JsonObject:
    base_url = root_url + agent.base_path
    card = agent.card(base_url)
    fewest, most = _QUERIES
    queries = [query for skill in card.skills for query in skill.examples or () if _is_sentence(query)][:most]
    entry: JsonObject = {
        "identifier": f"urn:air:{publisher}:agent:{agent.name}",
        "displayName": card.name,
        "type": CARD_TYPE,
        "url": base_url + CARD_PATH,
        "description": card.description,
        "tags": [*sorted({tag for skill in card.skills for tag in skill.tags})],
        "capabilities": [skill.id for skill in card.skills],
        "version": card.version,
    }
    if len(queries) >= fewest:
        entry["representativeQueries"] = [*queries]
    return entry


def _is_sentence(example: str) -> bool:
    """Whether an example is a sentence that a person may say, and no JSON of a tool call."""
    return bool(example.strip()) and not example.lstrip().startswith(("{", "["))
