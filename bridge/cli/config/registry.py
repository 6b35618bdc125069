"""`init --from-registry`: reads an entry of an MCP registry, shows what it becomes, and asks before it is written.

A registry is read here only. No start and no reload of the bridge asks one.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlsplit

from bridge.errors import PeerError, UsageError, counted

if TYPE_CHECKING:
    from pydantic import JsonValue

    from bridge.config.registry_entry import Ask, EntryChoice, EntryQuestion, Proposal, RegistryEntry

REGISTRY: Final = "https://registry.modelcontextprotocol.io"
"""The official registry."""

_API_PATHS: Final = ("/v0.1", "/v0")
"""The versions of the API, the newer one first. Both have the same path for one version of a server."""

_SECONDS: Final = 30.0
"""How long a registry may take to answer."""

_LIMIT_BYTES: Final = 1024 * 1024
"""The bound on an entry. Real entries have some kilobytes."""


@dataclass(frozen=True)
class FoundServer:
    """A tool server from a registry, as somebody confirmed it."""

    name: str
    """Its name in the file."""
    keys: Mapping[str, Any]
    remark: str
    """Where it is from, for a comment in the file."""


def server_from_registry(options: Mapping[str, Any]) -> FoundServer:
    """The server that the options of `init` name, once a person or `--yes` has confirmed it.

    Raises:
        UsageError: the name is not the name of a server, the entry cannot be used, or nobody confirmed it.
        PeerError: the registry does not answer with the entry.
    """
    import anyio

    from bridge.config.registry_entry import NAME, entry_from, proposed
    from bridge.text.short_names import slug

    name, _, version = options["from_registry"].partition("@")
    if not NAME.fullmatch(name):
        raise UsageError(
            f"--from-registry takes the name of a server such as io.github.owner/server, not {name!r}"
        )
    registry = (options["registry"] or REGISTRY).rstrip("/")
    entry = entry_from(anyio.run(_read, registry, name, version or "latest"), name)
    if version and entry.version != version:
        raise PeerError(f"the registry answered with version {entry.version} in place of {version}")
    choice = _chosen(entry, options["pick"])
    answers = _answers(options["inputs"])
    proposal = proposed(choice, _asking(answers))
    if answers:
        raise UsageError(f"the entry asks for no {', '.join(answers)}: take --input out")
    _require_outside(registry, proposal)
    _confirm(entry, choice, proposal, registry, is_confirmed=options["yes"])
    host = urlsplit(registry).netloc
    remark = f"{name} {entry.version} of {host}, entry sha256:{entry.sha256}; {proposal.digest}."
    return FoundServer(slug(name.rpartition("/")[2]), proposal.keys, remark)


async def _read(registry: str, name: str, version: str) -> JsonValue:
    from bridge.a2a.client.http import (
        OutgoingRequest,
        exchange,
        json_from,
        redacted_url,
        response_body,
        status_words,
    )
    from bridge.http.client import GuardedClient

    tail = f"/servers/{quote(name, safe='')}/versions/{quote(version, safe='')}"
    async with GuardedClient(timeout=_SECONDS) as http:
        for path in _API_PATHS:
            url = f"{registry}{path}{tail}"
            request = OutgoingRequest("GET", url, {"Accept": "application/json"})
            async with exchange(http, request) as response:
                if response.status_code == HTTPStatus.NOT_FOUND:
                    continue
                if response.status_code != HTTPStatus.OK:
                    raise PeerError(f"{redacted_url(url)} answered {status_words(response)}")
                return json_from(await response_body(response, _LIMIT_BYTES), redacted_url(url))
    of_version = "" if version == "latest" else f" {version}"
    raise PeerError(f"the registry at {redacted_url(registry)} has no {name}{of_version}")


def _chosen(entry: RegistryEntry, pick: int | None) -> EntryChoice:
    """The package or remote server to take: the picked one, else the first that the bridge can use."""
    from bridge.cli import render

    render.say(f"{entry.name} {entry.version}: {entry.description}")
    if entry.status == "deprecated":
        render.say("  The registry says that this version is deprecated")
    for number, choice in enumerate(entry.choices, 1):
        render.say(f"  {number}. {choice.words}{f': no, {choice.obstacle}' if choice.obstacle else ''}")
    if pick is not None:
        if not 1 <= pick <= len(entry.choices):
            raise UsageError(f"--pick takes a number from 1 to {len(entry.choices)}")
        if obstacle := entry.choices[pick - 1].obstacle:
            raise UsageError(f"the bridge cannot use number {pick}: {obstacle}")
        return entry.choices[pick - 1]
    for choice in entry.choices:
        if not choice.obstacle:
            return choice
    listed = counted(len(entry.choices), "package or remote server", "packages and remote servers")
    raise UsageError(f"the bridge can use none of its {listed}")


def _answers(given: Sequence[str]) -> dict[str, list[str]]:
    answers: dict[str, list[str]] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UsageError(f"--input takes NAME=VALUE, not {key!r}")
        answers.setdefault(key, []).append(value)
    return answers


def _asking(answers: dict[str, list[str]]) -> Ask:
    """Answer from the options, which are used up; else ask the person at the terminal; else take the default."""
    from bridge.cli import render

    def ask(question: EntryQuestion) -> Sequence[str]:
        if (given := answers.pop(question.key, None)) is not None:
            return given
        default = [] if question.default is None else [question.default]
        if not render.can_ask() or not (question.is_required or question.default is not None):
            return default
        words = f" ({question.description})" if question.description else ""
        among = f" [{', '.join(question.choices)}]" if question.choices else ""
        answer = render.ask(f"{question.key}{words}{among} ({question.default or 'none'}):")
        return [answer.strip()] if answer and answer.strip() else default

    return ask


def _require_outside(registry: str, proposal: Proposal) -> None:
    """Refuse a remote server at a private address in an entry of a public registry."""
    from bridge.a2a.client.http import redacted_url
    from bridge.http.private_addresses import is_private_host

    url = str(proposal.keys.get("url", ""))
    host, of_registry = urlsplit(url).hostname or "", urlsplit(registry).hostname or ""
    if url and is_private_host(host) and not is_private_host(of_registry):
        raise UsageError(
            f"the registry is public, and its entry names {redacted_url(url)}, a private address"
        )


def _confirm(
    entry: RegistryEntry, choice: EntryChoice, proposal: Proposal, registry: str, *, is_confirmed: bool
) -> None:
    from bridge.cli import render
    from bridge.config.toml_text import toml_value

    render.say(f"From {registry}, entry sha256:{entry.sha256}")
    render.say(f"The file would get this {choice.words.partition(' ')[0]} server; {proposal.digest}:")
    for key, value in proposal.keys.items():
        words = shlex.join(value) if key == "command" else toml_value(value)
        render.say(f"  {key}: {words}")
    for variable in proposal.variables:
        render.say(f"  {variable} is a secret: set this variable of the environment before a start")
    if is_confirmed:
        return
    if not render.can_ask():
        raise UsageError("nobody confirmed this: add --yes, or call init at a terminal")
    answer = render.ask("A stranger wrote this entry, and the bridge will run it. Write it? (y/N):")
    if (answer or "").strip().lower() not in ("y", "yes"):
        raise UsageError("nothing was written")
