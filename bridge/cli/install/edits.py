"""The edits of a host's file: adds a server, adds agents to a server, and removes servers or agents."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bridge.cli.install import checks, from_file
from bridge.errors import UsageError
from bridge.hosts import edit, entry, files, places, secrets
from bridge.text.jsonvalues import JsonObject
from bridge.text.safe_text import shell_line, shell_word

if TYPE_CHECKING:
    from bridge.cli.install.command import AskedSecret


@dataclass
class _Draft:
    """A host's file with its changes, and the messages to print after they are written."""

    host: places.Host
    file: files.HostFile
    text: str
    messages: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, file: files.HostFile, host: places.Host) -> _Draft:
        return cls(host, file, file.text)

    @property
    def servers(self) -> Mapping[str, JsonObject]:
        return edit.servers_in(self.text, self.host.servers_key, comments=self.host.comments)

    def put(self, name: str, server: JsonObject) -> None:
        self.text = edit.with_server(self.text, self._slot(name), server)

    def remove(self, name: str) -> None:
        """Remove a server, and the inputs that the host asks its user for only because of it."""
        asked = secrets.inputs_in(self.servers.get(name, {}))
        self.text = edit.without_server(self.text, self._slot(name))
        others = {used for server in self.servers.values() for used in secrets.inputs_in(server).values()}
        if self.host.inputs_key:
            for unused in {*asked.values()} - others:
                self.text = edit.without_input(
                    self.text, self.host.inputs_key, unused, comments=self.host.comments
                )

    def ask_for(self, asked: JsonObject) -> None:
        self.text = edit.with_input(self.text, self.host.inputs_key, asked, comments=self.host.comments)

    def _slot(self, name: str) -> edit.ServerPlace:
        return edit.ServerPlace(self.host.servers_key, name, self.host.comments)

    def broken(self, exc: edit.BrokenFileError, pasted: JsonObject | None = None) -> UsageError:
        words = f"{self.file.path}: {exc}. Nothing was written"
        if pasted is None:
            return UsageError(words)
        whole = json.dumps({self.host.servers_key: pasted}, indent=2, ensure_ascii=False)
        return UsageError(words, detail=f"\nTo add it by hand, put this into the file:\n{whole}")


# Add a server


def add(
    options: dict[str, Any],
    host: places.Host,
    server: JsonObject,
    offers: tuple[str, ...],
    secret: AskedSecret | None = None,
) -> int:
    """Put a server into the host's file.

    Raises:
        UsageError: the file cannot be edited, or has another server with this name.
        PeerError: with `--check`, the server does not work.
    """
    from bridge.cli.install.command import name_for

    draft = _Draft.of(files.read(file_to_change(options, host)), host)
    checks.require_cards(options)
    try:
        there = draft.servers
        known = [] if options["name"] else _ours(there, offers)
        name = known[0] if known else name_for(options)
        present = there.get(name)
        _require_ours(draft, name, offers, is_named=bool(options["name"]))
        whole = {**(present or {}), **server}  # keys that the user added stay
        if isinstance(own := (present or {}).get("env"), dict) and isinstance(
            ours := server.get("env"), dict
        ):
            whole["env"] = {**own, **ours}
        draft.put(name, whole)
        if secret is not None:
            draft.ask_for(secret.asked)
    except edit.BrokenFileError as exc:
        raise draft.broken(exc, {name_for(options): server}) from exc
    checks.check_as_host(options, host, whole, secret)
    if draft.text == draft.file.text:
        draft.messages = [f"{name} is already in {draft.file.path}: nothing to change"]
    else:
        draft.messages = [f"{name} is now in {draft.file.path}", *_replaced(name, present, server)]
    return _written(options, draft)


def _replaced(name: str, present: JsonObject | None, server: JsonObject) -> Sequence[str]:
    """The message about a replaced entry, if it differs from the new one."""
    before, now = _words(present or {}), _words(server)
    if present is None or [*map(_key, before)] == [*map(_key, now)]:
        return ()
    kept = _keys(entry.offered_by(server) or ())
    gone = [one for one in entry.offered_by(present) or () if _key(one) not in kept]
    words = shell_line(before)
    lost = f", and no longer offers {' '.join(gone)}" if gone else ""
    return (f"It replaces another {name}{lost}. The old server was started with: {words}",)


def _words(server: JsonObject) -> list[str]:
    arguments = server.get("args")
    return [str(word) for word in arguments] if isinstance(arguments, list) else []


def _require_ours(draft: _Draft, name: str, offers: tuple[str, ...], *, is_named: bool) -> None:
    """Refuse to change a server that is not ours, or one of ours with other offers that has the generated name."""
    present = draft.servers.get(name)
    if present is None:
        return
    there = entry.offered_by(present)
    if there is None:
        raise UsageError(f"{name} in {draft.file.path} is a server of another kind: give another --name")
    if _keys(there) != _keys(offers) and not is_named:
        raise UsageError(
            f"{name} in {draft.file.path} exposes {', '.join(there)}: "
            f"--name {name} replaces that server, --add --name {name} adds to it, and another --name adds a new server"
        )


def _ours(there: Mapping[str, JsonObject], offers: Sequence[str]) -> list[str]:
    """The names of our servers with exactly these offers."""
    wanted = _keys(offers)
    return [name for name, server in there.items() if _keys(entry.offered_by(server) or ()) == wanted]


def _keys(offers: Sequence[str]) -> frozenset[str]:
    return frozenset(map(_key, offers))


def _key(offer: str) -> str:
    """An offer in the form for comparison: the URLs of an agent and its card are equal, with or without a slash."""
    from bridge.cli.install.command import agent_of

    return agent_of(offer).rstrip("/") if "://" in offer else offer


# Add agents to a server


def add_agents(options: dict[str, Any], host: places.Host) -> int:
    """Add agents to a server that the host's file has.

    Raises:
        UsageError: it is not clear which server is meant, or the new agents would get credentials without consent.
        PeerError: with `--check`, an agent or the server does not work.
    """
    from bridge.cli.install.command import absolute, exposed_from

    draft = _Draft.of(files.read(file_to_change(options, host)), host)
    try:
        name = _server_to_add_to(draft, options)
    except edit.BrokenFileError as exc:
        raise draft.broken(exc) from exc
    server = draft.servers[name]
    exposed = exposed_from(options, host)
    given = exposed.arguments(absolute)[1 : -len(exposed.urls)]
    _require_same_options(name, server, given)
    checks.require_cards(options)
    known = _keys(entry.urls_of(server) or ())
    more = [url for url in dict.fromkeys(exposed.urls) if _key(url) not in known]
    if not more:
        draft.messages = [
            f"{name} in {draft.file.path} has {' '.join(exposed.urls)} already: nothing to change"
        ]
        return _written(options, draft)
    whole = entry.with_urls(server, more)
    draft.put(name, whole)
    checks.check_as_host(options, host, whole)
    draft.messages = [f"{name} in {draft.file.path} now also offers {' '.join(more)}"]
    return _written(options, draft)


def _server_to_add_to(draft: _Draft, options: Mapping[str, Any]) -> str:
    there, name, path = draft.servers, options["name"], draft.file.path
    ours = [one for one, server in there.items() if entry.urls_of(server) is not None]
    if name is None:
        if len(ours) == 1:
            return ours[0]
        if not ours:
            raise UsageError(f"{path} has no server of agents to add to: leave out --add to make a server")
        raise UsageError(f"{path} has {', '.join(ours)}: name one with --name")
    if name in ours:
        return str(name)
    if name not in there:
        raise UsageError(f"{name} is not in {path}: leave out --add to make the server")
    if (served := entry.file_of(there[name])) is not None:
        raise UsageError(f"{name} in {path} serves {served[0]}: add the agent in that file")
    raise UsageError(f"{name} in {path} is a server of another kind: nothing is added to it")


def _require_same_options(name: str, server: JsonObject, given: Sequence[str]) -> None:
    """Refuse options that differ from the server's, as the options of a server are for all its agents. Credentials must
    be given again, so that no agent gets a secret by accident."""
    has, pairs = entry.options_of(server), entry.options_in(given)
    other = [option for option, value in pairs if (option, value) not in has]
    arguments = server["args"]
    assert isinstance(arguments, list)
    other += [flag for flag in given if flag == "--allow-private" and flag not in arguments]
    if other:
        raise UsageError(
            f"{name} was installed without {', '.join(dict.fromkeys(other))}, or with another value, and options hold"
            " for all agents of a server: install the agent as a server of its own"
        )
    if unsaid := [pair for pair in has if pair[0] in entry.SECRET_OPTIONS and pair not in pairs]:
        words = " ".join(f"{option} {shell_word(value)}" for option, value in unsaid)
        raise UsageError(
            f"{name} has {words}, and would send it to the new agent, too: give it again to allow this, or"
            " install the agent as a server of its own"
        )


# Remove servers and agents


def remove(options: dict[str, Any], host: places.Host) -> int:
    """Remove servers from the host's file, or agents from their server. A name that the file lacks is no error.

    Raises:
        UsageError: the file cannot be edited, it is not clear which server is meant, or the server is not ours.
    """
    from bridge.cli import render

    path = _existing_file(options, host)
    if path is None:
        render.say(f"{host.title} has no file of servers here: nothing to change")
        return 0
    draft = _Draft.of(files.read(path), host)
    words = options["urls"]
    urls = [word for word in words if "://" in word]
    file = from_file.is_meant(options)
    names = [] if file else [word for word in words if "://" not in word]
    if options["name"] and not urls and not file:
        names.append(options["name"])
    try:
        for name in dict.fromkeys(names):
            _remove_named(draft, name)
        if file:
            _remove_file(draft, options)
        if urls:
            _remove_agents(draft, urls, options["name"])
    except edit.BrokenFileError as exc:
        raise draft.broken(exc) from exc
    return _written(options, draft, removes=True)


def _remove_named(draft: _Draft, name: str) -> None:
    server, path = draft.servers.get(name), draft.file.path
    if server is None:
        ours = [one for one, other in draft.servers.items() if entry.offered_by(other)]
        there = f" (servers of mcp-a2a: {', '.join(ours)})" if ours else ""
        draft.messages.append(f"{name} is not in {path}: nothing to change{there}")
        return
    if entry.offered_by(server) is None:
        raise UsageError(f"{name} in {path} is a server of another kind: only servers of mcp-a2a are removed")
    _remove_whole(draft, name, server)


def _remove_whole(draft: _Draft, name: str, server: JsonObject) -> None:
    draft.remove(name)
    draft.messages.append(f"{name} is no longer in {draft.file.path}")
    for option, value in entry.options_of(server):
        if (
            option in ("--bearer", "--api-key")
            and Path(value.removeprefix("file:")).parent == checks.token_folder()
        ):
            draft.messages.append(
                f"Its token is still in {value.removeprefix('file:')}: delete that file, unless another server uses it"
            )


def _remove_file(draft: _Draft, options: Mapping[str, Any]) -> None:
    path, face = from_file.path_of(options), options["face"]
    found = {name: served for name, one in draft.servers.items() if (served := entry.file_of(one))}
    meant = [
        name
        for name, served in found.items()
        if served[0] == path and face in (None, served[1]) and options["name"] in (None, name)
    ]
    if len(meant) > 1:
        words = ", ".join(f"{name} (--face {found[name][1]})" for name in meant)
        raise UsageError(f"{draft.file.path} has it as {words}: name one with --face or --name")
    if not meant:
        if options["name"]:
            _remove_named(draft, options["name"])
            return
        draft.messages.append(
            f"nothing in {draft.file.path} offers {path}{f' {face}' if face else ''}: nothing to change"
        )
        return
    _remove_whole(draft, meant[0], draft.servers[meant[0]])


def _remove_agents(draft: _Draft, urls: Sequence[str], name: str | None) -> None:
    there, wanted, path = draft.servers, _keys(urls), draft.file.path
    if name is not None and name in there and entry.urls_of(there[name]) is None:
        raise UsageError(f"{name} in {path} is a server of another kind: give another --name")
    held = {one: _keys(entry.urls_of(server) or ()) for one, server in there.items() if name in (None, one)}
    whole = [one for one, keys in held.items() if keys == wanted]
    holding = {key: whole or [one for one, keys in held.items() if key in keys] for key in sorted(wanted)}
    for several in (names for names in holding.values() if len(names) > 1):
        raise UsageError(f"{path} has it as {', '.join(several)}: name one with --name")
    if missing := [url for url in urls if not holding[_key(url)]]:
        where = f"{name} in {path}" if name else path
        draft.messages.append(f"nothing in {where} offers {' '.join(missing)}: nothing to change")
    for one in dict.fromkeys(names[0] for names in holding.values() if names):
        if held[one] <= wanted:
            _remove_whole(draft, one, there[one])
            continue
        left = entry.without_urls(there[one], lambda url: _key(url) in wanted)
        draft.put(one, left)
        gone = " ".join(url for url in urls if _key(url) in held[one])
        draft.messages.append(
            f"{one} in {path} no longer offers {gone}. It still offers {' '.join(entry.urls_of(left) or ())}"
        )


# The file


def _written(options: Mapping[str, Any], draft: _Draft, *, removes: bool = False) -> int:
    """Write the file, and say what was done."""
    from bridge.cli import render

    is_same = draft.text == draft.file.text
    if options["dry_run"] and not is_same:
        render.write(_diff(draft.file.text, draft.text, str(draft.file.path)))
        for line in draft.messages[1:] if not removes else ():
            render.say(line)
        return 0
    shared = options["scope"] == places.InstallScope.PROJECT
    backup = None
    if not is_same:
        backup = files.write(draft.file, draft.text, datetime.now().astimezone(), shared=shared)
    for line in draft.messages:
        render.say(line)
    if is_same:
        return 0
    if backup:
        render.say(f"The previous file is in {backup}")
    if removes:
        render.say(f"Restart {draft.host.title}: until then its started servers go on.")
        return 0
    if shared:
        render.say("The entry has a path of this machine: install it on every other machine, too")
    if draft.host.afterwards:
        render.say(f"{draft.host.afterwards}.")
    return 0


def _diff(before: str, after: str, path: str) -> str:
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), path, f"{path} (new)"
    )
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )


def file_to_change(options: Mapping[str, Any], host: places.Host) -> Path:
    """The host's file to change.

    Raises:
        UsageError: the host or the file's folder does not exist, and `--create` is not given.
    """
    from bridge.cli.install.command import absolute

    if options["path"]:
        path = Path(absolute(options["path"]))
        if not path.parent.is_dir() and not options["create"]:
            raise UsageError(f"there is no folder {path.parent}: --create makes it")
        return path
    if options["scope"] == places.InstallScope.PROJECT:
        return Path(places.project_place(host, Path.cwd()).file)
    machine = places.this_machine()
    found = places.found_place(host, machine, lambda path: Path(path).exists())
    if found is not None:
        return Path(found.file)
    known = places.user_places(host, machine)
    if options["create"]:
        return Path(known[-1].file)
    looked = " and ".join(str(sign) for place in known for sign in place.signs)
    raise UsageError(
        f"{host.title} is not found here (looked for {looked}): start it once, "
        f"or give --create to write {known[-1].file} anyway"
    )


def _existing_file(options: Mapping[str, Any], host: places.Host) -> Path | None:
    """The existing file of a host; None if the host has none."""
    if options["path"] or options["scope"] == places.InstallScope.PROJECT:
        path = file_to_change({**options, "create": True}, host)
        return path if path.exists() else None
    known = (Path(place.file) for place in places.user_places(host, places.this_machine()))
    return next((path for path in known if path.exists()), None)
