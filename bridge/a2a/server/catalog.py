"""The catalog of the agents that a bridge publishes, as an ASGI application: `GET /agents`.

The catalog knows only the names and cards of agents. A2A mentions catalogs that clients query by skills and tags, but
prescribes no interface. This catalog serves whole cards, page by page, so that a client needs no further request.

Spec: A2A 1.0 section 8.2; its guide on discovery, "Curated Registries". Pages as in section 3.1.4 (ListTasks).
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from starlette.datastructures import Headers, QueryParams
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from bridge.a2a.model.objects import AgentCard
from bridge.a2a.wire.rest import CARD_PATH
from bridge.http.request_checks import API_KEY_HEADER, FaceAddress, RefusedError, etags_in
from bridge.identity.callers.verifiers import Access

logger = logging.getLogger(__name__)

DEFAULT_PAGE_SIZE: Final = 50
MAX_QUERY_CHARACTERS: Final = 200
"""The bound on `query`, since each of its words is searched for in every card."""
PAGE_BYTES: Final = 4 * 1024 * 1024
"""The bound on the cards of a page. The card of an agent with a thousand tools has several megabytes."""

_PAGE_SIZE: Final = re.compile(r"[1-9][0-9]?|100")
_JSON: Final = "application/json"
_VARY: Final = (
    f"Host, X-Forwarded-Host, X-Forwarded-Proto, X-Forwarded-Prefix, Authorization, {API_KEY_HEADER}"
)


@dataclass(frozen=True, slots=True)
class CatalogAgent:
    """A published agent."""

    name: str
    base_path: str
    """The agent's path below the bridge's address: `/agents/devtools`."""
    card: Callable[[str], AgentCard]
    """The card for a base URL. The same object is returned as long as nothing has changed."""


class CatalogApp:
    """The application. It serves any path that is routed to it."""

    def __init__(
        self,
        agents: Callable[[], Iterable[CatalogAgent]],
        access: Access,
        address: FaceAddress,
        max_age_seconds: int,
    ) -> None:
        """`max_age_seconds` is how long a client may keep an answer without revalidation."""
        self._agents = agents
        self._access = access
        self._address = address
        self._max_age_seconds = max_age_seconds
        self._last: dict[str, _Listed] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http":
            answer = await self._answer(scope)
            await answer(scope, receive, send)

    async def _answer(self, scope: Scope) -> Response:
        headers = Headers(scope=scope)
        try:
            self._address.require_own(headers)
            path = scope["path"].removeprefix(scope.get("root_path", "")).rstrip("/")
            await self._access.principal_of(headers, path)
            if scope["method"] not in ("GET", "HEAD"):
                raise RefusedError(405, "The catalog is read with GET", {"Allow": "GET, HEAD"})
            request = _CatalogRequest.in_query(QueryParams(scope["query_string"]))
            page = request.page_of(self._listed(self._address.base_url(scope, headers)))
        except RefusedError as exc:
            return refusal(exc)
        except Exception:
            logger.exception("the catalog could not be read")
            return refusal(RefusedError(500, "The bridge failed to answer; its log says why"))
        reach = "private" if self._access.needs_token else "public"
        return conditional(page, headers, f"{reach}, max-age={self._max_age_seconds}")

    def _listed(self, root_url: str) -> list[_Listed]:
        """All agents, sorted by name. An entry is kept for as long as its card is the same."""
        listed: dict[str, _Listed] = {}
        for agent in sorted(self._agents(), key=lambda agent: agent.name):
            base_url = root_url + agent.base_path
            card, last = agent.card(base_url), self._last.get(agent.name)
            is_same = last is not None and last.card is card and last.url == base_url
            listed[agent.name] = last if last and is_same else _Listed(agent.name, base_url, card)
        self._last = listed
        return list(listed.values())


@dataclass(frozen=True, eq=False)
class _Listed:
    """The catalog's entry of an agent, for one base URL."""

    name: str
    url: str
    card: AgentCard

    @cached_property
    def text(self) -> bytes:
        """The entry as JSON."""
        head = {"name": self.name, "url": self.url, "cardUrl": self.url + CARD_PATH}
        return json.dumps(head, ensure_ascii=False)[:-1].encode() + b', "card": ' + self.card.to_json() + b"}"

    @cached_property
    def tags(self) -> frozenset[str]:
        """The tags of the agent's skills, case-folded."""
        return frozenset(tag.casefold() for skill in self.card.skills for tag in skill.tags)

    @cached_property
    def words(self) -> str:
        """The searchable text of the entry, case-folded."""
        card = self.card
        texts = [self.name, card.name, card.description, *self.tags]
        texts += [words for skill in card.skills for words in (skill.id, skill.name, skill.description)]
        return "\n".join(texts).casefold()


@dataclass(frozen=True, slots=True)
class _CatalogRequest:
    """The search and the page that a client asks for."""

    words: tuple[str, ...]
    tags: frozenset[str]
    skills: frozenset[str]
    page_size: int
    page_token: str

    @classmethod
    def in_query(cls, query: QueryParams) -> _CatalogRequest:
        """The known parameters of a request; others are ignored.

        Raises:
            RefusedError: 400, a parameter is out of range.
        """
        words, size = query.get("query", ""), query.get("pageSize") or str(DEFAULT_PAGE_SIZE)
        if len(words) > MAX_QUERY_CHARACTERS:
            raise RefusedError(400, f"query has more than {MAX_QUERY_CHARACTERS} characters")
        if not _PAGE_SIZE.fullmatch(size):
            raise RefusedError(400, "pageSize is a number from 1 to 100")
        return cls(
            tuple(words.casefold().split()),
            frozenset(tag.casefold() for tag in query.getlist("tag") if tag),
            frozenset(skill for skill in query.getlist("skill") if skill),
            int(size),
            query.get("pageToken", ""),
        )

    def page_of(self, listed: Sequence[_Listed]) -> bytes:
        """A page as JSON.

        Raises:
            RefusedError: 400, the page token is not from this search.
        """
        matching = [agent for agent in listed if self._finds(agent)]
        after = self._last_of_page_before()
        rest = [agent for agent in matching if agent.name > after]
        page = _fitting(rest[: self.page_size])
        token = self._token_after(page[-1].name) if len(page) < len(rest) else ""
        agents = b", ".join(agent.text for agent in page)
        return b'{"agents": [' + agents + b'], "nextPageToken": "' + token.encode() + b'"}'

    def _finds(self, agent: _Listed) -> bool:
        return (
            all(word in agent.words for word in self.words)
            and self.tags <= agent.tags
            and self.skills <= {skill.id for skill in agent.card.skills}
        )

    def _token_after(self, name: str) -> str:
        return base64.urlsafe_b64encode(f"{self._mark}:{name}".encode()).decode().rstrip("=")

    def _last_of_page_before(self) -> str:
        """The name after which the page begins. So pages do not shift when an agent is added or removed."""
        if not self.page_token:
            return ""
        padded = self.page_token + "=" * (-len(self.page_token) % 4)
        try:
            mark, _, name = base64.b64decode(padded, altchars=b"-_", validate=True).decode().partition(":")
        except ValueError:
            mark = name = ""
        if mark != self._mark or not name:
            raise RefusedError(400, "pageToken does not belong to this search")
        return name

    @property
    def _mark(self) -> str:
        """A hash that identifies this search."""
        content = [[*self.words], sorted(self.tags), sorted(self.skills)]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def _fitting(agents: Sequence[_Listed]) -> Sequence[_Listed]:
    """The first agents that fit into `PAGE_BYTES`, and at least one."""
    weight = 0
    for number, agent in enumerate(agents):
        weight += len(agent.text)
        if weight > PAGE_BYTES and number:
            return agents[:number]
    return agents


def conditional(
    text: bytes, request_headers: Headers, cache_control: str, media_type: str = _JSON
) -> Response:
    """The response with a text; 304 if the client has the same text already (RFC 9110 section 13.1.2)."""
    etag = f'"{hashlib.sha256(text).hexdigest()[:32]}"'
    headers = {"ETag": etag, "Cache-Control": cache_control, "Vary": _VARY}
    if etag in etags_in(request_headers):
        return Response(status_code=304, headers=headers)
    return Response(text, media_type=media_type, headers=headers)


def refusal(refused: RefusedError) -> Response:
    """The response to a request that is refused."""
    body = json.dumps({"error": {"message": str(refused)}})
    return Response(body, refused.status, headers=refused.headers, media_type=_JSON)
