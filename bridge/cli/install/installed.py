"""`install --list`: shows the servers of mcp-a2a in the hosts' files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from bridge.cli import render
from bridge.errors import UsageError
from bridge.hosts import edit, entry, files, places

_AT_FAULT: Final = 2


def show(hosts: Sequence[places.Host]) -> int:
    """Show the servers of mcp-a2a in these hosts' files. The exit code is 0 if all files could be read."""
    code, is_any = 0, False
    for host in hosts:
        for path in _files_of(host):
            try:
                lines = list(_lines(host, path))
            except UsageError as exc:
                render.say(f"{path}: {exc}")
                code = _AT_FAULT
                continue
            if lines:
                is_any = True
                render.heading(f"{host.title}, {path}")
            for line in lines:
                render.result(f"  {line}")
    if not is_any and not code:
        render.say("No host has a server of mcp-a2a.")
    if any(host.is_yaml for host in hosts):
        render.say("mcp-a2a does not read Goose's YAML file.")
    return code


def _files_of(host: places.Host) -> Iterator[Path]:
    """The existing files of this user, and of the project in the current folder."""
    if host.is_yaml:
        return
    known: Iterable[Path] = (Path(place.file) for place in places.user_places(host, places.this_machine()))
    own = [Path(places.project_place(host, Path.cwd()).file)] if host.project else []
    yield from (path for path in dict.fromkeys([*known, *own]) if path.is_file())


def _lines(host: places.Host, path: Path) -> Iterator[str]:
    there = edit.servers_in(files.read(path).text, host.servers_key, comments=host.comments)
    found = {name: entry.offered_by(server) for name, server in there.items()}
    widest = max((len(name) for name, offers in found.items() if offers), default=0)
    for name, offers in found.items():
        if offers:
            yield f"{name:<{widest}}  {' '.join(offers)}"
