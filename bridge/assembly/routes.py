"""Dispatches requests by their paths, and answers those about health.

The routes may change at any time; a request in flight keeps its application.

/agents/NAME     an agent made of tools          /agents     the catalog of them
/mcp/NAME        an MCP server made of agents    /healthz    whether the process lives
/login/...       the pages of a caller's login   /push       where remote agents notify the bridge of their tasks
/NAME            pages for people, see `Router.mount`
/, /mcp          the only face of its kind       /readyz     whether it can do its work; /readyz/NAME for one face
/healthz/findings   for operators: what the bridge lacks, and its newest failed tasks
/.well-known/oauth-protected-resource/mcp/NAME   who gives tokens for an MCP server
/.well-known/jwks.json                           the public keys with which the bridge signs
/.well-known/ard.json, /.well-known/ai-catalog.json   the agents that everybody may find
"""

from __future__ import annotations

import hmac
import json
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from bridge.a2a.model.errors import A2AError
from bridge.a2a.model.objects import timestamp
from bridge.a2a.server.discovery import AI_CATALOG_PATH, ARD_PATH, DiscoveryApp
from bridge.a2a.wire.rest import CARD_PATH
from bridge.agents_as_tools.push_hints import PUSH_PATH
from bridge.assembly.health.findings import Health
from bridge.assembly.parts import Parts
from bridge.assembly.published_agent import PublishedAgent
from bridge.errors import StoreAwayError
from bridge.http.request_checks import (
    ASKED_PATH,
    IDENTITIES,
    NO_PROXIES,
    OUTER_PATH,
    SHOWN_HEADER,
    FaceAddress,
    RefusedError,
    TrustedProxies,
    is_asked_here,
    is_from_here,
)
from bridge.http.web_origins import WebOrigins
from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import FORWARDED, Access
from bridge.identity.pages.login_links import LOGIN_PATH
from bridge.mcp.client.call_queue import SlotHold
from bridge.mcp.client.upstream import Upstream
from bridge.mcp.server.resource_metadata import METADATA_PATH, resource_metadata
from bridge.source_state import SourceState
from bridge.text.jsonvalues import JsonObject

AGENTS: Final = "/agents"
MCP: Final = "/mcp"

OWN_DOOR_HEADER: Final = "X-MCP-A2A-Own"
"""The header that opens an `OwnDoor`."""

KEYS_PATH: Final = "/.well-known/jwks.json"
"""The path of the public keys of the bridge (RFC 7517)."""

HEALTH_PATH: Final = "/healthz"
FINDINGS_PATH: Final = "/healthz/findings"
READY_PATH: Final = "/readyz"

_JSON: Final = "application/json"
_AGAIN_SECONDS: Final = "1"
_METADATA_SECONDS: Final = 60
"""How long a client may keep the metadata of an MCP server, or the keys."""

_HELP: Final = (
    "A task that waits for an answer keeps its server from other calls: answer it or cancel it. With a larger"
    " `sessions`, in [tool_servers.NAME] or in [server] of the mapping profile, other calls run beside it"
)


class OwnDoor:
    """The application for calls of the bridge by itself, at a socket of its own where other clients need TLS. It lets
    in nobody else who finds the socket."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a request that shows the token."""
        token = Headers(scope=scope).get(OWN_DOOR_HEADER, "")
        is_own = hmac.compare_digest(token.encode(), self._token)
        app = (
            self._app
            if is_own
            else _json_answer(403, {"error": {"message": "Only the bridge itself may call this"}})
        )
        await app(scope, receive, send)


@dataclass(frozen=True)
class RoutingTable:
    """The applications that are served now."""

    agents: Mapping[str, ASGIApp] = field(default_factory=dict)
    """The published agents, by path."""
    faces: Mapping[str, ASGIApp] = field(default_factory=dict)
    """The MCP servers, by path."""
    starting: bool = False
    """Whether the bridge is still starting, so that more routes will follow."""


@dataclass(frozen=True)
class MountedPages:
    """Pages for people, at a path and below."""

    title: str
    """What a start calls them."""
    path: str
    app: ASGIApp


_FOR_ALL: Final = ("status", "access")
"""What `/readyz` says to everybody. The rest names peers, and what is wrong with them."""


class Router:
    """The ASGI application of a bridge."""

    def __init__(
        self,
        place: FaceAddress,
        access: Access,
        catalog: ASGIApp,
        readiness: Callable[[str], JsonObject | None],
        proxies: TrustedProxies = NO_PROXIES,
        logins: ASGIApp | None = None,
        *,
        health: Callable[[Principal, str], Awaitable[Health]],
        is_local: bool = False,
        origins: Sequence[str] = (),
    ) -> None:
        """`readiness` gives the state of the bridge, or of the faces of a name; None is for a name that no face has.
        `logins` are the pages of callers' logins, where there may be any. `health` gives what an operator may know of
        the health of the bridge at this address. `is_local` says that only this machine reaches the bridge, unless a
        proxy stands between. `origins` are those of pages that may call MCP servers."""
        self.routes = RoutingTable(starting=True)
        self.key_sources: list[Callable[[], Sequence[JsonObject]]] = []
        """What gives the public keys of the bridge as JWKs, each for what it signs."""
        self.pages: tuple[MountedPages, ...] = ()
        """The pages for people that `mount` was given."""
        self.notified: ASGIApp | None = None
        """What takes the notifications of remote agents, where they may notify the bridge."""
        self.discovery: DiscoveryApp | None = None
        """What lists the agents that everybody may find."""
        self._place = place
        self._access = access
        self._catalog = catalog
        self._readiness = readiness
        self._health_for = health
        self._proxies = proxies
        self._logins = logins
        self._is_local = is_local
        self._web_origins = WebOrigins(origins, place)

    def mount(self, pages: MountedPages) -> None:
        """Serve these pages. They replace those at the same path."""
        self.pages = (*(other for other in self.pages if other.path != pages.path), pages)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Dispatch a request by its path."""
        if scope["type"] != "http":
            return
        try:
            inner: Scope = {**scope, **_outer(scope, self._proxies)}
        except RefusedError as exc:
            await _json_answer(exc.status, {"error": {"message": str(exc)}})(scope, receive, send)
            return
        app, inner = self._app_for(inner)
        await app(inner, receive, send)

    def _app_for(self, scope: Scope) -> tuple[ASGIApp, Scope]:
        path: str = scope["path"].removeprefix(scope.get("root_path", ""))
        routes = self.routes
        if path in (HEALTH_PATH, FINDINGS_PATH, READY_PATH) or path.startswith(f"{READY_PATH}/"):
            return self._health(path, scope), scope
        if path.rstrip("/") == AGENTS:
            return self._catalog, scope
        if path in (ARD_PATH, AI_CATALOG_PATH) and self.discovery and not self.discovery.is_empty:
            return self.discovery, scope
        if path == KEYS_PATH and (keys := [key for source in self.key_sources for key in source()]):
            return self._keys(scope, keys), scope
        if self._logins is not None and path.startswith(f"{LOGIN_PATH}/"):
            return self._logins, scope
        for pages in self.pages:
            if path == pages.path or path.startswith((f"{pages.path}/", f"{pages.path}.")):
                return pages.app, scope
        if self.notified is not None and routes.faces and path.rstrip("/") == PUSH_PATH:
            return self.notified, scope
        if path == METADATA_PATH or path.startswith(f"{METADATA_PATH}/"):
            return self._web_origins.around(_judged_later(self._metadata, path)), scope
        for base, app in routes.agents.items():
            if path == base or path.startswith(f"{base}/"):
                return app, {**scope, "root_path": scope.get("root_path", "") + base}
        for base, app in routes.faces.items():
            if path.rstrip("/") == base:
                return self._web_origins.around(app), scope
        return self._alias(path, scope)

    def _alias(self, path: str, scope: Scope) -> tuple[ASGIApp, Scope]:
        """Serve the only agent at the root, too, and the only MCP server at /mcp."""
        routes = self.routes
        if path.rstrip("/") == MCP and len(routes.faces) == 1:
            ((base, face),) = routes.faces.items()
            return self._web_origins.around(face), {
                **scope,
                "path": scope.get("root_path", "") + base,
                ASKED_PATH: MCP,
            }
        is_elsewhere = path.startswith((f"{MCP}/", f"{AGENTS}/")) or path.rstrip("/") == MCP
        if len(routes.agents) == 1 and not is_elsewhere:
            return next(iter(routes.agents.values())), scope
        return self._nothing(path), scope

    def _metadata(self, path: str, scope: Scope) -> ASGIApp:
        """The metadata of an MCP server, for clients that need a token of an issuer."""
        headers = Headers(scope=scope)
        base_url = self._place.base_url(scope, headers)
        face_path = self._face_in(path.removeprefix(METADATA_PATH).rstrip("/"), urlsplit(base_url).path)
        if face_path is None or not self._access.issuers:
            return self._nothing(path)
        if (refused := self._read_only(scope, headers)) is not None:
            return refused
        metadata = resource_metadata(f"{base_url}{face_path}", self._access)
        return _json_answer(200, metadata, {"Cache-Control": f"max-age={_METADATA_SECONDS}"})

    def _face_in(self, requested: str, prefix: str) -> str | None:
        """The path of an MCP server whose metadata is asked for; None if there is none. `prefix` is that of a proxy.

        A client puts the well-known part before the whole path of the URL, the prefix included. The bridge itself names
        the place behind the prefix, and a path of the bridge may begin as the prefix does.
        """
        faces = self.routes.faces
        is_below = requested == prefix or requested.startswith(f"{prefix}/")
        for path in [requested, requested.removeprefix(prefix)] if is_below else [requested]:
            if path in faces or (path == MCP and len(faces) == 1):
                return path
            if path == "" and len(faces) == 1:
                return next(iter(faces))
        return None

    def _keys(self, scope: Scope, keys: Sequence[JsonObject]) -> ASGIApp:
        """The public keys of the bridge. They are no secret, and the same for every Host and Origin."""
        if scope["method"] not in ("GET", "HEAD"):
            return _json_answer(405, {"error": {"message": "This is read with GET"}}, {"Allow": "GET, HEAD"})
        return _json_answer(200, {"keys": [*keys]}, {"Cache-Control": f"max-age={_METADATA_SECONDS}"})

    def _nothing(self, path: str) -> ASGIApp:
        if self.routes.starting:
            words = "The bridge is starting: this is not served yet"
            return _json_answer(503, {"error": {"message": words}}, {"Retry-After": _AGAIN_SECONDS})
        words = f"There is nothing at {path[:200]}."
        if path == CARD_PATH and self.routes.agents:
            words = f"There are several agents here, each with its own card; {AGENTS} lists them."
        elif path.rstrip("/") == MCP and self.routes.faces:
            words = f"There are several MCP servers here: {', '.join(self.routes.faces)}"
        return _json_answer(404, {"error": {"message": words}})

    def _read_only(self, scope: Scope, headers: Headers) -> ASGIApp | None:
        """The refusal of a request that a foreign web page may have sent, or that does not read."""
        try:
            self._place.require_own(headers)
        except RefusedError as exc:
            return _json_answer(exc.status, {"error": {"message": str(exc)}})
        if scope["method"] not in ("GET", "HEAD"):
            return _json_answer(405, {"error": {"message": "This is read with GET"}}, {"Allow": "GET, HEAD"})
        return None

    def _health(self, path: str, scope: Scope) -> ASGIApp:
        if (refused := self._read_only(scope, Headers(scope=scope))) is not None:
            return refused
        if path == HEALTH_PATH:
            return _json_answer(200, {"status": "ok"})
        if path == FINDINGS_PATH:
            return self._tell_health
        state = self._readiness(path.removeprefix(READY_PATH).strip("/"))
        return self._nothing(path) if state is None else partial(self._tell_readiness, state)

    async def _tell_readiness(self, state: JsonObject, scope: Scope, receive: Receive, send: Send) -> None:
        """Say whether the bridge, or a face of it, is ready, and to those who run it why not."""
        status = 503 if state["status"] == Fitness.NOT_READY else 200
        try:
            await self._operator(scope)
        except RefusedError:
            state = {name: state[name] for name in _FOR_ALL if name in state}
        await _json_answer(status, state)(scope, receive, send)

    async def _tell_health(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Tell those who run the bridge what it lacks."""
        try:
            asker = await self._operator(scope)
            health = await self._health_for(asker, self._place.base_url(scope, Headers(scope=scope)))
            answer = _json_answer(200, health.to_object(), {"Cache-Control": "no-store"})
        except RefusedError as exc:
            answer = _json_answer(exc.status, {"error": {"message": str(exc)}}, exc.headers)
        except (A2AError, StoreAwayError):
            words = "The bridge cannot reach its stored tasks at the moment"
            answer = _json_answer(503, {"error": {"message": words}}, {"Retry-After": _AGAIN_SECONDS})
        await answer(scope, receive, send)

    async def _operator(self, scope: Scope) -> Principal:
        """The principal that asks, if it runs the bridge: an operator, or whoever is at this machine if the bridge asks
        for no credentials.

        Raises:
            RefusedError: 401 or 503, see `Access.principal_of`; 403, the asker does not run the bridge.
        """
        headers = Headers(scope=scope)
        if self._access.needs_token:
            principal = await self._access.principal_of(headers, READY_PATH)
            if principal.operator is None:
                raise RefusedError(403, "This is for operators: set `operator` of a principal")
            return principal
        if self._is_local and is_from_here(scope) and is_asked_here(scope, headers):
            return await self._access.principal_of({})
        raise RefusedError(403, "A bridge without credentials tells this only to its own machine")


def _outer(scope: Scope, proxies: TrustedProxies) -> Scope:
    """The path at which the bridge is mounted, and the headers without the white space that the parser leaves at
    their ends (RFC 9110 section 5.5). Who a trusted proxy says that calls, and whose certificate the connection has
    shown, stands in one header; what anyone else says of that is removed.

    Raises:
        RefusedError: 400, see `TrustedProxies.identity_in`.
    """
    identity, ours = proxies.identity_in(scope), (proxies.header.encode(), SHOWN_HEADER.encode())
    headers = [(name, value.strip(b" \t")) for name, value in scope["headers"] if name not in ours]
    identities = [*scope.get(IDENTITIES, ()), *([] if identity is None else [f"{FORWARDED}{identity}"])]
    if identities:
        headers.append((SHOWN_HEADER.encode(), json.dumps(identities).encode()))
    return {"headers": headers, OUTER_PATH: scope.get("root_path", "")}


def _judged_later(answer: Callable[[str, Scope], ASGIApp], path: str) -> ASGIApp:
    """An application that looks at a request once it is called."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await answer(path, scope)(scope, receive, send)

    return app


def _json_answer(status: int, body: JsonObject, headers: Mapping[str, str] | None = None) -> ASGIApp:
    return Response(json.dumps(body), status, headers=dict(headers or {}), media_type=_JSON)


class Fitness(StrEnum):
    """Whether something that is served can do its work."""

    READY = "ready"
    DEGRADED = "degraded"
    """It can do a part of it: some of its peers, or of the faces, can not be called."""
    NOT_READY = "not ready"

    @staticmethod
    def of(parts: Iterable[Fitness]) -> Fitness:
        """That of the whole of these parts. A whole without parts has no work, and is ready for it."""
        grades = frozenset(parts)
        if grades <= {Fitness.READY}:
            return Fitness.READY
        return Fitness.NOT_READY if grades == {Fitness.NOT_READY} else Fitness.DEGRADED


def fitness_of_faces(parts: Parts) -> dict[tuple[str, str], Fitness]:
    """That of each face, by `agents` or `mcp` and its name.

    An agent made of tools needs a store that takes writes and a server that is up; an MCP server needs an agent that is
    up. One that is published by the bridge itself is up as far as it can do its work.
    """
    fits: dict[tuple[str, str], Fitness] = {}
    for published in parts.agents:
        servers = [_fitness(state.down is None) for state in published.agent.sources]
        fits["agents", published.name] = Fitness.of(servers) if published.engine.ready else Fitness.NOT_READY
    for face in parts.faces:
        own = {key for key, agent in face.offered.agents.plans.items() if agent.own_card is not None}
        agents = [
            fits.get(("agents", state.key), Fitness.READY)
            if state.key in own and state.down is None
            else _fitness(state.down is None)
            for state in face.offered.face.sources
        ]
        catalogs = [Fitness.NOT_READY for _ in face.offered.face.unread]
        fits["mcp", face.offered.name] = Fitness.of([*agents, *catalogs])
    return fits


def _fitness(is_up: bool) -> Fitness:
    return Fitness.READY if is_up else Fitness.NOT_READY


def readiness(parts: Parts, *, starting: bool, name: str = "") -> JsonObject | None:
    """The state of the bridge as JSON, or of the faces of a name: NAME, agents/NAME or mcp/NAME. None if none has it.

    What is served is ready when all of it has started and can do its work, and not ready when none of it can.
    """
    fits = {
        (kind, face): fitness
        for (kind, face), fitness in fitness_of_faces(parts).items()
        if name in ("", face, f"{kind}/{face}")
    }
    if name and not fits and not starting:
        return None
    agents: JsonObject = {
        published.name: {
            "status": fits["agents", published.name],
            "store": "ok" if published.engine.ready else "takes no writes",
            **_peers_of(published),
        }
        for published in parts.agents
        if ("agents", published.name) in fits
    }
    offered = [face.offered for face in parts.faces if ("mcp", face.offered.name) in fits]
    faces: JsonObject = {
        server.name: {"status": fits["mcp", server.name], "agents": {**_states(server.face.sources)}}
        for server in offered
    }
    status = Fitness.NOT_READY if starting else Fitness.of(fits.values())
    return {"status": status, "agents": agents, "mcp": faces}


def _peers_of(published: PublishedAgent) -> JsonObject:
    """The states of the tool servers of an agent, or of its remote agents."""
    states = _states(published.agent.sources)
    if (agent := published.tools) is None:
        return {"agents": {**states}}
    return {"servers": {key: {**state, **_busy(agent.upstreams[key])} for key, state in states.items()}}


def _states(states: Iterable[SourceState]) -> dict[str, JsonObject]:
    return {
        state.key: {
            "up": state.down is None,
            "state": state.word,
            "since": timestamp(state.since_ms),
            **({} if state.down is None else {"why": state.down}),
        }
        for state in states
    }


def _busy(upstream: Upstream) -> JsonObject:
    """The calls that hold a server's slots while they wait for an answer, and what can be done about it."""
    if not upstream.holds:
        return {}
    held = [_held(hold) for hold in upstream.holds]
    return {"waiting": upstream.waiting, "held": [*held], "help": _HELP}


def _held(hold: SlotHold) -> JsonObject:
    task: JsonObject = {} if hold.caller.is_secret else {"task": hold.caller.task_id}
    if math.isinf(hold.ends_in_seconds):
        return task
    return {**task, "withdrawnInSeconds": round(hold.ends_in_seconds)}
