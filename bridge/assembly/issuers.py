"""The issuers of a bridge's callers: the audiences of each face, and the keys, which stay across changes of the plan.

The parts that check tokens are imported only when a plan names an issuer: PyJWT takes as long to import as a tenth of
a start, and most bridges need it not.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import anyio

from bridge.assembly.plan import Plan
from bridge.assembly.published_agent import path_of
from bridge.assembly.routes import AGENTS, MCP, READY_PATH
from bridge.concurrency import Backoff, border
from bridge.http.client import GuardedClient
from bridge.identity.callers.issuers import Issuer, IssuerPlace
from bridge.identity.callers.verifiers import Verifier
from bridge.settings import IssuerSettings

if TYPE_CHECKING:
    from bridge.identity.callers.introspection import TokenQuestions
    from bridge.identity.callers.issuer_login import IssuerLogin
    from bridge.identity.callers.key_sets import KeySource

logger = logging.getLogger(__name__)


class Issuers:
    """The keys of all issuers that the plans of a bridge have named."""

    def __init__(self, limits: IssuerSettings) -> None:
        self._limits = limits
        self._sources: dict[tuple[str, IssuerPlace], KeySource] = {}
        self._questions: dict[str, TokenQuestions] = {}
        self._withheld: set[bytes] = set()
        """The digests of all secrets that any plan had: a secret that was taken out is still known somewhere."""
        self._looked: set[KeySource] = set()
        self._http: GuardedClient | None = None

    def withhold(self, digests: Iterable[bytes]) -> None:
        """Ask no issuer about the secrets with these digests, from now on for good."""
        self._withheld.update(digests)

    def verifiers(self, issuers: Mapping[str, Issuer]) -> Sequence[Verifier]:
        """The verifiers of the tokens of these issuers. The keys of all others are forgotten, and what others said."""
        wanted = {(issuer.name, issuer.place) for issuer in issuers.values()}
        self._sources = {key: source for key, source in self._sources.items() if key in wanted}
        self._questions = {
            name: client for name, client in self._questions.items() if issuers.get(name) == client.issuer
        }
        if not issuers:
            return ()
        from bridge.identity.callers.issuer_verifier import IssuerVerifier  # see the module's docstring

        return [
            IssuerVerifier(issuer, self._source(issuer), self._limits, self._questions_to(issuer))
            for issuer in issuers.values()
        ]

    def login_at(self, issuer: Issuer) -> IssuerLogin:
        """How people show in a browser who they are, at an issuer that has a client for it."""
        from bridge.identity.callers.issuer_login import IssuerLogin  # see the module's docstring

        return IssuerLogin(issuer, self._source(issuer), self._limits.leeway_seconds)

    def _questions_to(self, issuer: Issuer) -> TokenQuestions | None:
        from bridge.identity.callers.introspection import TokenQuestions  # see the module's docstring

        if issuer.client is None:
            return None
        if issuer.name not in self._questions:
            source = self._source(issuer)
            assert self._http is not None, "the source has it, too"
            self._questions[issuer.name] = TokenQuestions(
                issuer, source, self._http, self._limits, self._withheld
            )
        return self._questions[issuer.name]

    def _source(self, issuer: Issuer) -> KeySource:
        from bridge.identity.callers.key_sets import KeySource  # see the module's docstring

        key = issuer.name, issuer.place
        if key not in self._sources:
            self._http = self._http or GuardedClient(timeout=None)
            self._sources[key] = KeySource(issuer.name, issuer.place, self._http, self._limits)
        return self._sources[key]

    async def fetch_new_keys(self) -> None:
        """Fetch the keys of the issuers that were not asked yet, until they are known: cards say what metadata says."""
        fresh = [source for source in self._sources.values() if source not in self._looked]
        self._looked = {*self._sources.values()}
        async with anyio.create_task_group() as group:
            for source in fresh:
                group.start_soon(self._look_at, source)

    async def _look_at(self, source: KeySource) -> None:
        pauses = Backoff(self._limits.retry_seconds, self._limits.keys_seconds)
        while source in self._sources.values():
            with border(logger, "an issuer of tokens"):
                if await source.prefetch():
                    return
            await anyio.sleep(pauses.next())

    async def close(self) -> None:
        """Close the connections to the issuers."""
        if self._http is not None:
            await self._http.aclose()


def issuers_of(plan: Plan) -> dict[str, Issuer]:
    """The issuers of a plan, with the audiences of its faces by their paths."""
    return {name: issuer.with_audiences(_audiences(issuer, plan)) for name, issuer in plan.issuers.items()}


def _audiences(issuer: Issuer, plan: Plan) -> dict[str, frozenset[str]]:
    agents = {path_of(name): _of_face(issuer, name, plan, path_of(name)) for name in plan.published}
    servers: dict[str, frozenset[str]] = {}
    for name in plan.offered:
        path = f"{MCP}/{name}"
        # The only server is at /mcp, too, and a client asks for a token for the URL that it was given.
        alias = [MCP] if len(plan.offered) == 1 else []
        servers[path] = _of_face(issuer, name, plan, path, *alias)
    pages = {path: _of_face(issuer, path.strip("/"), plan, path) for path in plan.place.pages}
    faces = {**agents, **servers, **pages}
    return {
        **faces,
        AGENTS: frozenset().union(*agents.values()),
        READY_PATH: frozenset().union(*faces.values()),
    }


def _of_face(issuer: Issuer, name: str, plan: Plan, *paths: str) -> frozenset[str]:
    """The audiences of a face: the configured ones, or its public URLs. The address of a request is no audience, since
    whoever sends a request can choose its Host."""
    return issuer.audiences[name] if name in issuer.audiences else _of_public_url(plan, *paths)


def _of_public_url(plan: Plan, *paths: str) -> frozenset[str]:
    root = plan.place.public_url
    return frozenset() if root is None else frozenset(f"{root}{path}" for path in paths)
