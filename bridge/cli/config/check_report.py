"""The output of `check`: its progress, then the findings as text for a person or as JSON for a program."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bridge.cli import render
from bridge.config.text.wording import listed
from bridge.errors import counted

if TYPE_CHECKING:
    from bridge.mcp.client.upstream import Upstream
    from bridge.process.peer_findings import PeerFindings
    from bridge.process.place_findings import RedirectUri
    from bridge.process.preview import FaceFindings, Findings

_KINDS: Final = {
    "tool_servers": "Tool servers",
    "agents": "Agents",
    "catalogs": "Catalogs",
    "tools_as_agent": "an A2A agent",
    "agents_as_agent": "an A2A agent made of agents",
    "agents_as_tools": "an MCP server",
}

_OF_TABLE: Final = re.compile(r"([a-z_]+)\.([^\s:.]+)((?::| ).*)", re.DOTALL)
"""A finding about a table: the section, the name, and the words."""

_NAMED_MOST: Final = 5
"""The most names that a line writes out where many tables have the same finding."""


class CheckProgress:
    """Shows the progress, but only at a terminal."""

    def connecting(self, key: str, target: object) -> None:
        """Report that the bridge starts or calls a server."""
        self._say(f"connecting to {key}: {target}")

    def connected(self, key: str, upstream: Upstream) -> None:
        """Report that a server is up."""
        self._say(f"{key} is up, {counted(len(upstream.listing.tools), 'tool')}")

    def failed(self, key: str, why: str) -> None:
        """Report that a server is down."""
        self._say(f"{key} is down: {why}")

    def _say(self, line: str) -> None:
        if render.err.is_terminal:
            render.say(line)


def print_json(path: Path, found: Findings, places: Sequence[str]) -> None:
    """Print the findings as JSON. `places` are the files and lines of the faults; "" for a fault without a place."""
    findings = {
        "file": str(path),
        "ok": not found.faults,
        "faults": [fault.words for fault in found.faults],
        "places": places,
        "notes": found.all_notes,
        "not_looked_at": found.unseen,
        "redirect_uris": [asdict(one) for one in found.redirect_uris],
        "peers": [asdict(peer) for peer in found.peers],
        "faces": [_as_json(face) for face in found.faces],
    }
    render.write_document(json.dumps(findings, indent=2, ensure_ascii=False) + "\n")


def _as_json(face: FaceFindings) -> dict[str, Any]:
    members = {**asdict(face), "faults": [fault.words for fault in face.faults]}
    return members if face.shared else {name: members[name] for name in members if name != "shared"}


def print_text(path: Path, found: Findings, places: Sequence[str]) -> None:
    """Print the findings as text. `places` as for `print_json`."""
    for kind in ("tool_servers", "agents", "catalogs"):
        peers = [peer for peer in found.peers if peer.kind == kind]
        _section(_KINDS[kind], _peer_lines(peers, is_seen=not found.unseen))
    for face in found.faces:
        named = f": {face.says}" if face.says else ""
        _section(f"{face.path}, {_KINDS[face.kind]}{named}", _face_lines(face, is_seen=not found.unseen))
    _section("Redirect URIs to register", _redirect_lines(found.redirect_uris))
    _section("Not checked", found.unseen, render.sentence)
    _section(
        "Notes", (words for words, _ in _grouped((note, "") for note in found.all_notes)), render.sentence
    )
    faults = _grouped((fault.words, place) for fault, place in zip(found.faults, places, strict=True))
    lines = (f"{place}: {words}" if place else words for words, place in faults)
    _section("Faults", lines, render.sentence)
    render.result(f"{path}: {_verdict(found)}")


def _grouped(findings: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Merge faults or notes that have the same words for tables of one section; the first gives the place."""
    groups: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for words, place in findings:
        match = _OF_TABLE.match(words)
        section, name, rest = match.groups() if match else ("", "", words)
        groups.setdefault((section, rest), []).append((name, place))
    for (section, rest), named in groups.items():
        names = _some([f"{section}.{name}" for name, _ in named]) if section else ""
        yield f"{names}{rest}", named[0][1]


def _some(names: Sequence[str]) -> str:
    """Some names as a list: the first are written out, and the rest are counted."""
    shown, more = names[:_NAMED_MOST], len(names) - _NAMED_MOST
    return f"{', '.join(shown)} and {more} more" if more > 0 else listed(shown, "and")


def _verdict(found: Findings) -> str:
    if found.faults:
        return counted(len(found.faults), "fault")
    return "no faults in what was checked" if found.unseen else "all is well"


def _peer_lines(peers: Sequence[PeerFindings], *, is_seen: bool) -> Iterable[str]:
    rows = [(_mark(peer, is_seen=is_seen), peer.key, _says(peer)) for peer in peers]
    widest = max((len(key) for _, key, _ in rows), default=0)
    for mark, key, says in rows:
        yield f"{mark}{key:<{widest}}  {says}"


def _says(peer: PeerFindings) -> str:
    ready = f", with the ready mapping {peer.ready_mapping}" if peer.ready_mapping else ""
    return f"{peer.says or peer.where}{ready}"


def _mark(peer: PeerFindings, *, is_seen: bool) -> str:
    return "" if not is_seen else "✗ " if peer.down else "✓ "


def _face_lines(face: FaceFindings, *, is_seen: bool) -> Iterable[str]:
    yield f"from {', '.join(face.sources)}"
    if not is_seen:
        return
    noun = "tool" if face.kind == "agents_as_tools" else "skill"
    if not face.rows:
        yield f"no {noun}s"
    names = [f"{noun} {row.name}" for row in face.rows]
    behind = [f"{row.source}: {row.stands_for}".removesuffix(": ") for row in face.rows]
    widest = (max(map(len, names), default=0), max(map(len, behind), default=0))
    for row, name, source in zip(face.rows, names, behind, strict=True):
        title = row.title if row.title not in (row.name, row.stands_for) else ""
        yield f"{name:<{widest[0]}}  <->  {source:<{widest[1]}}  {title}".rstrip()
    if face.own:
        yield f"and the bridge's own: {', '.join(face.own)}"
    yield from face.shared
    people: dict[tuple[str, ...], list[str]] = {}
    for principal, usable in face.usable.items():
        people.setdefault(usable, []).append(principal)
    for usable, principals in people.items():
        yield f"{_some(principals)} may use {_usable(face, usable)}"


def _redirect_lines(uris: Sequence[RedirectUri]) -> Iterable[str]:
    widest = max((len(one.client) for one in uris), default=0)
    for one in uris:
        yield f"{one.client:<{widest}}  {one.uri}  for {one.what_for}"


def _usable(face: FaceFindings, usable: tuple[str, ...]) -> str:
    if len(usable) == len(face.rows):
        return "all of them"
    return f"{len(usable)} of {len(face.rows)}: {', '.join(usable)}" if usable else "none of them"


def _line(line: str) -> None:
    render.result(f"  {line}")


def _section(title: str, lines: Iterable[str], show: Callable[[str], None] = _line) -> None:
    lines = list(lines)
    if not lines:
        return
    render.heading(title)
    for line in lines:
        show(line)
    render.result("")
