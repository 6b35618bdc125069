"""Connects to every server and agent of a plan, and finds what the bridge would serve. It serves and stores nothing.

The preview waits for a server that is down, up to a limit. It then goes on without the server, and tells the observer
why.

The findings say which peers are up, which skills and tools would be served, and who may use them. A fault means that
something does not work: a peer is down, a tool cannot be served, a rule has no effect. A note is only information.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import anyio

from bridge.a2a.client.http import redacted_url
from bridge.assembly.bridge import Bridge
from bridge.assembly.offered_server import OfferedServer
from bridge.assembly.parts import catalogs_of, remotes_in, servers_of
from bridge.assembly.plan import Plan, PublishedPlan, for_preview
from bridge.assembly.published_agent import PublishedAgent
from bridge.assembly.routes import MCP
from bridge.assembly.stores import store_faults
from bridge.assembly.tool_servers import StartObserver
from bridge.identity.callers.principals import OfferedNames, Principal
from bridge.identity.tokens.token_exchange import CallerTokens
from bridge.mcp.client.transports.streamable_http import HttpTarget
from bridge.mcp.client.upstream import Upstream
from bridge.pinned.oddities import oddities
from bridge.process.peer_definitions import read_definitions
from bridge.process.peer_findings import (
    PeerFindings,
    agent_findings,
    catalog_findings,
    name_of,
    release_advice,
    server_findings,
    with_definitions,
)
from bridge.process.place_findings import FindingFault, RedirectUri, place_faults, redirect_uris
from bridge.process.serve import unannounced_bridge
from bridge.seal import key_in
from bridge.tools_as_agent.skills import Skill
from bridge.translate.extensions.mcp_requests import Shared, shared_of

WAIT_SECONDS: Final = 30.0
"""How long servers and agents may take by default. It is the connect timeout of the default profile."""

_KEY_BYTES: Final = 32

_UNSETTLED_MOST: Final = 50
"""The most tools that one note names."""


@asynccontextmanager
async def previewed(
    plan: Plan, watching: StartObserver | None = None, within_seconds: float = WAIT_SECONDS
) -> AsyncIterator[Bridge]:
    """Run a bridge that has connected to every server and agent that it can reach, while the context is open.

    Raises:
        UsageError: an existing key of handles cannot be used.
    """
    _require_keys(plan)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        plan = for_preview(plan, Path(folder), secrets.token_hex(_KEY_BYTES), within_seconds)
        settled = _Settled(servers_of(plan), watching)
        async with unannounced_bridge(plan, settled, over_http=True) as (bridge, here):
            # In two steps, because an agent's card has its tools only once all its servers have listed theirs.
            await bridge.apply(replace(here, offered={}))
            with anyio.move_on_after(within_seconds):
                await settled.all.wait()
            await bridge.apply(here)
            yield bridge


def _require_keys(plan: Plan) -> None:
    for key in plan.place.keys:
        if isinstance(key, Path) and key.exists():
            key_in(key.parent, key.name)


class _Settled:
    """Notes when every server has connected or failed, and passes each event on to another observer."""

    def __init__(self, keys: Iterable[str], other: StartObserver | None) -> None:
        self.all = anyio.Event()
        self._left = set(keys)
        self._other = other
        self._finish_if_all_known()

    def connecting(self, key: str, target: object) -> None:
        if self._other:
            self._other.connecting(key, target)

    def connected(self, key: str, upstream: Upstream) -> None:
        if self._other:
            self._other.connected(key, upstream)
        self._left.discard(key)
        self._finish_if_all_known()

    def failed(self, key: str, why: str) -> None:
        if self._other:
            self._other.failed(key, why)
        self._left.discard(key)
        self._finish_if_all_known()

    def _finish_if_all_known(self) -> None:
        if not self._left:
            self.all.set()


@dataclass(frozen=True)
class FaceRow:
    """A skill or tool that is served, and the tool or skill that it stands for."""

    name: str
    source: str
    stands_for: str
    title: str
    names: OfferedNames
    """The names by which rights hold."""


_GrantedGlobs = tuple[tuple[str | int, ...], str, Sequence[str]]
"""Globs of somebody's rights: their place in the file, their title in messages, and the globs."""


@dataclass(frozen=True)
class FaceFindings:
    """The findings about one agent or MCP server that would be served."""

    kind: str
    """The section of the face's table: `tools_as_agent`, `agents_as_agent` or `agents_as_tools`."""
    name: str
    path: str
    sources: tuple[str, ...]
    says: str = ""
    """The name that the face gives itself."""
    rows: tuple[FaceRow, ...] = ()
    own: tuple[str, ...] = ()
    """The bridge's own tools, which everyone may use."""
    usable: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The skills or tools that each principal may use; empty without principals."""
    faults: tuple[FindingFault, ...] = ()
    shared: tuple[str, ...] = ()
    """What the face shares besides skills, and who may use it, in words."""


@dataclass(frozen=True)
class Findings:
    """The findings about all peers and faces."""

    peers: tuple[PeerFindings, ...]
    faces: tuple[FaceFindings, ...]
    notes: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()
    """The checks that the preview did not make."""

    useless: tuple[FindingFault, ...] = ()
    """Globs in the skills of principals, and of scopes, that match nothing."""
    left_out: tuple[FindingFault, ...] = ()
    """Agents of imported files that the bridge cannot call."""
    of_place: tuple[FindingFault, ...] = ()
    """Faults of the certificate that the bridge shows, and of its key."""
    redirect_uris: tuple[RedirectUri, ...] = ()
    of_stores: tuple[FindingFault, ...] = ()
    """Faults of the stores, which a start could not use."""
    untrusted: tuple[FindingFault, ...] = ()
    """Issuers that the bridge does not trust although the callers of an agent need their tokens."""

    @property
    def faults(self) -> tuple[FindingFault, ...]:
        """All faults, those of peers first."""
        down = [
            FindingFault((peer.kind, peer.key), f"{peer.title} cannot be called: {peer.down}")
            for peer in self.peers
            if peer.down
        ]
        return (
            *self.left_out,
            *self.of_place,
            *self.of_stores,
            *self.untrusted,
            *down,
            *(FindingFault.at((peer.kind, peer.key), fault) for peer in self.peers for fault in peer.faults),
            *(fault for face in self.faces for fault in face.faults),
            *(() if down else self.useless),  # known only when all peers are up
        )

    @property
    def all_notes(self) -> tuple[str, ...]:
        """All notes, those of peers first."""
        return (*(f"{peer.title}: {note}" for peer in self.peers for note in peer.notes), *self.notes)


async def findings_of(plan: Plan, bridge: Bridge) -> Findings:
    """The findings about a bridge that has connected to all peers within reach."""
    servers = [
        server_findings(key, upstream, plan.servers[key].ready, is_needed=plan.fails_closed(key))
        for key, upstream in bridge.upstreams.items()
    ]
    read = await read_definitions(plan, bridge)
    odd = tuple(oddities(read.definitions))
    catalogs = [await catalog_findings(key, source) for key, source in bridge.catalogs.items()]
    remote = {
        (agent.key, agent.url): await agent_findings(agent, plan.agents.get(agent.key))
        for offered in bridge.offered
        for agent in offered.remote_agents
        if agent.key not in plan.published
    }
    principals = {credential.principal.name: credential.principal for credential in plan.credentials}
    faces = (
        *(_published(published, plan, principals.values()) for published in bridge.published),
        *(_offered(offered, plan, principals.values(), _incomplete(bridge)) for offered in bridge.offered),
    )
    return Findings(
        tuple(with_definitions(peer, plan, read, odd) for peer in (*servers, *remote.values(), *catalogs)),
        faces,
        (
            *_unused(plan),
            *_on_claims(plan),
            *_on_cards(plan),
            *_on_model(plan),
            *_on_grpc(plan),
            *_without_token(faces, plan),
            *_on_unannotated(bridge.published),
        ),
        useless=(*_useless(faces, _granted(plan)), *_rules_for_nothing_shared(plan)),
        left_out=tuple(_left_out(plan)),
        of_place=tuple(place_faults(plan)),
        redirect_uris=tuple(redirect_uris(plan)),
        of_stores=tuple(FindingFault.at(path, words) for path, words in await store_faults(plan)),
        untrusted=tuple(_untrusted(plan)),
    )


def _on_model(plan: Plan) -> Iterator[str]:
    """Where texts of callers go."""
    faces = [name for name, published in plan.published.items() if published.language == "model"]
    if (model := plan.place.model) is not None and faces:
        results = ", results of calls" if model.rounds > 1 else ""
        words = f"texts that no rule understands{results} and descriptions of tools are sent to the model"
        yield f"tools_as_agent: of {', '.join(faces)}, {words} {model.model} at {urlsplit(model.url).netloc}"


def _on_grpc(plan: Plan) -> Iterator[str]:
    """The agents that clients without tenants do not reach over gRPC, and certificates that do not count there."""
    place = plan.place
    if (
        place.grpc_addresses
        and place.tls
        and place.tls.client_ca
        and place.tls.client_certificate == "optional"
    ):
        words = "gRPC asks for no certificates, since it cannot leave them to the clients"
        yield f'bridge.tls.client_certificate: {words}; "required" asks for them over HTTP and gRPC'
    if place.grpc is None or len(plan.published) < 2:
        return
    if without := [name for name in plan.published if name not in place.grpc_agents]:
        words = "over gRPC, clients that know no tenants do not reach agents that share an address"
        yield f"bridge.grpc: {words}: {', '.join(without)}; `grpc_agents` gives an agent an address of its own"


def offline_findings(plan: Plan) -> Findings:
    """The findings without any connection, and a list of what remains unknown."""
    servers, agents, catalogs = servers_of(plan), _agents_of(plan), catalogs_of(plan)
    peers = (
        *(
            PeerFindings(
                "tool_servers",
                key,
                str(plan.servers[key].target),
                notes=tuple(release_advice(plan.servers[key].target)),
                ready_mapping=name_of(ready),
            )
            for key, ready in ((key, plan.servers[key].ready) for key in servers)
        ),
        *(PeerFindings("agents", key, redacted_url(plan.agents[key].url)) for key in agents),
        *(PeerFindings("catalogs", key, redacted_url(plan.catalogs[key].url)) for key in catalogs),
    )
    faces = (
        *(
            FaceFindings(published.table, name, f"/agents/{name}", published.agents or published.servers)
            for name, published in plan.published.items()
        ),
        *(
            FaceFindings("agents_as_tools", name, f"{MCP}/{name}", offered.sources)
            for name, offered in plan.offered.items()
        ),
    )
    unseen = (
        f"whether {', '.join(peer.title for peer in peers)} can be called, and whether versions fit",
        "the tools and skills that they list: names, collisions, rules without effect",
        *(("whether the store can be used",) if plan.published or plan.place.shared_store else ()),
        *(("which of them each principal may use",) if plan.credentials else ()),
    )
    notes = (*_unused(plan), *_on_claims(plan), *_on_cards(plan), *_on_model(plan), *_on_grpc(plan))
    return Findings(
        peers,
        faces,
        notes,
        unseen,
        left_out=tuple(_left_out(plan)),
        of_place=tuple(place_faults(plan)),
        redirect_uris=tuple(redirect_uris(plan)),
        untrusted=tuple(_untrusted(plan)),
    )


def _published(published: PublishedAgent, plan: Plan, principals: Iterable[Principal]) -> FaceFindings:
    rows = tuple(
        FaceRow(skill.id, skill.source_key, skill.tool.name, skill.shown.name, skill.names)
        if isinstance(skill, Skill)
        else FaceRow(skill.id, skill.agent, skill.remote_id, skill.shown.name, skill.names)
        for skill in published.agent.published
    )
    made_of = plan.published[published.name]
    return FaceFindings(
        published.table,
        published.name,
        published.path,
        made_of.agents or made_of.servers,
        published.agent.card("").name,
        rows,
        usable=_usable(published.name, rows, principals),
        faults=tuple(
            FindingFault.at((published.table, published.name, *remark.path), remark.words)
            for remark in published.agent.remarks
        ),
        shared=(
            *_shared(published, plan.published[published.name].share, principals),
            *_shared_beside_requests(published, plan.published[published.name]),
        ),
    )


def _on_unannotated(agents: Iterable[PublishedAgent]) -> Iterator[str]:
    """Notes that name the tools without an annotation or rule that says whether they only read."""
    for published in agents:
        agent = published.tools
        skills = agent.published if agent and agent.options.route.language != "strict" else ()
        if unsettled := [skill.id for skill in skills if skill.only_reads is None]:
            more = f" and {len(unsettled) - _UNSETTLED_MOST} more" if len(unsettled) > _UNSETTLED_MOST else ""
            yield (
                f"tools_as_agent.{published.name}: nothing says whether these tools only read, so a sentence asks"
                f" before it runs one: {', '.join(unsettled[:_UNSETTLED_MOST])}{more}. A line"
                " `skills.NAME.read_only = true`, or `false`, settles it for a tool"
            )


def _incomplete(bridge: Bridge) -> frozenset[str]:
    """The agents published here that lack tools, because one of their servers is down."""
    return frozenset(
        published.name
        for published in bridge.published
        if any(state.down for state in published.agent.sources)
    )


def _offered(
    offered: OfferedServer, plan: Plan, principals: Iterable[Principal], incomplete: frozenset[str]
) -> FaceFindings:
    face = offered.face
    is_whole = incomplete.isdisjoint(plan.offered[offered.name].sources)
    remarks = [remark for remark in face.remarks if is_whole or not remark.is_of_nothing]
    rows = tuple(
        FaceRow(
            tool.name, tool.agent_key, tool.skill_id or "", str(tool.listed.get("title") or ""), tool.names
        )
        for tool in face.published
    )
    names = {row.name for row in rows}
    return FaceFindings(
        "agents_as_tools",
        offered.name,
        f"{MCP}/{offered.name}",
        plan.offered[offered.name].sources,
        face.title or face.name,
        rows,
        tuple(str(tool["name"]) for tool in face.tools() if tool["name"] not in names),
        _usable(offered.name, rows, principals),
        (
            *_own_that_are_down(offered, plan),
            *(
                FindingFault.at(("agents_as_tools", offered.name, *remark.path), remark.words)
                for remark in remarks
            ),
        ),
    )


def _own_that_are_down(offered: OfferedServer, plan: Plan) -> Iterator[FindingFault]:
    for agent in offered.remote_agents:
        if agent.key in plan.published and agent.down is not None:
            words = f"{agent.key}, which is published here, cannot be called: {agent.down}"
            yield FindingFault.at(("agents_as_tools", offered.name), words)


def _usable(
    face: str, rows: Iterable[FaceRow], principals: Iterable[Principal]
) -> dict[str, tuple[str, ...]]:
    here = {principal.name: principal.in_face(face) for principal in principals}
    return {
        name: tuple(row.name for row in rows if principal.may_use(row.names))
        for name, principal in here.items()
    }


def _useless(faces: Iterable[FaceFindings], rights: Iterable[_GrantedGlobs]) -> Iterator[FindingFault]:
    """Yield the globs in the rights of callers that match nothing."""
    served = [
        (face.name, (*(row.names for row in face.rows), *map(OfferedNames, face.own)))
        for face in faces
        if face.rows
    ]
    for where, title, globs in rights if served else ():
        for number, glob in enumerate(globs):
            principal = Principal("", skills=(glob,))
            here = ((principal.in_face(face), names) for face, names in served)
            if not any(there.may_use(name) for there, names in here for name in names):
                yield FindingFault((*where, number), f"{title}: `{glob}` matches nothing that is served")


def _shared(
    published: PublishedAgent, share: Sequence[Shared], principals: Iterable[Principal]
) -> Iterator[str]:
    """What an agent shares, and which principals may use what of it."""
    if not share or published.tools is None:
        return
    declared = {
        key: shared_of(upstream.greeting.capabilities, share)
        for key, upstream in published.tools.upstreams.items()
        if upstream.greeting is not None
    }
    for key, capabilities in declared.items():
        yield f"shares {', '.join(capabilities) or 'nothing, as the server has none'} of {key}"
    for principal in principals:
        here = principal.in_face(published.name)
        globs = {"resources": here.resource_globs, "prompts": here.prompt_globs}
        rights = (f"{kind} {', '.join(globs[kind]) or '(none)'}" for kind in share)
        yield f"{principal.name} may use {'; '.join(rights)}"


def _shared_beside_requests(published: PublishedAgent, plan: PublishedPlan) -> Iterator[str]:
    """Whether an agent shares MCP Apps, and which of its tools are not for models; and whether it shares log
    messages and tasks."""
    if plan.shares_apps:
        skills = (skill for skill in published.agent.published if isinstance(skill, Skill))
        names = [skill.id for skill in skills if skill.is_for_apps]
        yield f"shares MCP Apps; only apps call: {', '.join(names) or '(no tool)'}"
    if plan.shares_logs:
        yield "shares the log messages of its servers"
    if plan.shares_tasks:
        yield "leaves it to hosts whether their calls may become tasks of its servers"


def _rules_for_nothing_shared(plan: Plan) -> Iterator[FindingFault]:
    """Yield the rules for resources and prompts that no agent shares."""
    shared = {kind for published in plan.published.values() for kind in published.share}
    for principal in dict.fromkeys(credential.principal for credential in plan.credentials):
        where = ("groups", principal.group) if principal.group else ("principals", principal.name)
        for kind, globs in (("resources", principal.resources), ("prompts", principal.prompts)):
            if globs and kind not in shared:
                yield FindingFault((*where, kind), f"{'.'.join(where)}: {kind}: no agent shares {kind}")


def _granted(plan: Plan) -> Iterator[_GrantedGlobs]:
    """The globs of each group, of each principal with rights of its own, and of each scope of an issuer."""
    owners = {
        ("groups", credential.principal.group)
        if credential.principal.group
        else ("principals", credential.principal.name): credential.principal.skills
        for credential in plan.credentials
    }
    for (section, name), globs in owners.items():
        yield (section, name, "skills"), f"{section}.{name}: skills", globs
    for name, issuer in plan.issuers.items():
        for scope, globs in issuer.scopes:
            yield ("issuers", name, "scopes", scope), f"issuers.{name}: scopes.{scope}", globs


def _on_claims(plan: Plan) -> Iterator[str]:
    """Notes on issuers whose principals are named by a claim other than the subject (`sub`)."""
    for name, issuer in plan.issuers.items():
        if (claim := issuer.principal_claim) != "sub":
            yield (
                f"issuers.{name}: `{claim}` tells its principals apart: a person who gets the same value later gets the"
                " tasks of the earlier person; `sub` is never used again"
            )


def _untrusted(plan: Plan) -> Iterator[FindingFault]:
    trusted = {issuer.place.issuer for issuer in plan.issuers.values()}
    used = {("tool_servers", key) for key in servers_of(plan)} | {("agents", key) for key in _agents_of(plan)}
    for (section, key), callers in _acting_for_callers(plan).items():
        if (section, key) in used and callers.issuer not in trusted:
            words = f"no caller can show a token of {callers.issuer}: no table of `issuers` trusts it"
            yield FindingFault.at((section, key, "auth", "oauth2", "issuer"), words)


def _acting_for_callers(plan: Plan) -> Mapping[tuple[str, str], CallerTokens]:
    """How peers are called on behalf of callers, by section and key: the tokens that the callers need."""
    by_place = {("agents", key): remote.callers for key, remote in plan.agents.items()}
    for key, server in plan.servers.items():
        if isinstance(server.target, HttpTarget):
            by_place["tool_servers", key] = server.target.callers
    return {place: callers for place, callers in by_place.items() if callers is not None}


def _on_cards(plan: Plan) -> Iterator[str]:
    """Notes on issuers for which the card of an agent does not say where a client gets a token."""
    for name, issuer in plan.issuers.items():
        if issuer.place.jwks_url is not None and plan.published:
            yield (
                f"issuers.{name}: its metadata is not read, since `jwks_url` is set: cards ask for a token"
                " of it (`http`, Bearer), and do not say where to get one (`oauth2`, `openIdConnect`)"
            )


def _without_token(faces: Iterable[FaceFindings], plan: Plan) -> Iterator[str]:
    """Notes on principals of the file that may use a peer that is called on their behalf, but have no token for it."""
    acting = _acting_for_callers(plan)
    for face in faces:
        section = "tool_servers" if face.kind == "tools_as_agent" else "agents"
        for name, usable in face.usable.items():
            for key in dict.fromkeys(row.source for row in face.rows if row.name in usable):
                if (callers := acting.get((section, key))) is not None:
                    yield (
                        f"principals.{name}: its calls of {section}.{key} in {face.name} are refused (403): they take"
                        f" an access token of {callers.issuer}"
                    )


def _left_out(plan: Plan) -> Iterator[FindingFault]:
    for name, agent in plan.left_out.items():
        yield FindingFault(("agents", name), f"agents.{name} is left out: {agent.words}")


def _unused(plan: Plan) -> Iterator[str]:
    named = {"tool_servers": plan.servers, "agents": plan.agents, "catalogs": plan.catalogs}
    used = {*servers_of(plan), *_agents_of(plan), *catalogs_of(plan)}
    for kind, ones in named.items():
        for key in ones:
            if key not in used:
                yield f"{kind}.{key} is in no `from`: it is not started"


def _agents_of(plan: Plan) -> tuple[str, ...]:
    return tuple(dict.fromkeys(source for source in remotes_in(plan) if source in plan.agents))
