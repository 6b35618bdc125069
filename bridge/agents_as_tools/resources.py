"""The resources of an MCP server made of agents: the agents' cards, and parts of artifacts that are too large for a
result.

The URI of a part names its task by a sealed handle, so no state is kept here. Reading the part fetches it from the
agent. Only the principal that received the link can read the part.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from pydantic import JsonValue

from bridge.a2a.model.objects import AgentCard, AgentExtension, Part, Task
from bridge.agents_as_tools.handles import FarTask, Handles
from bridge.errors import echoed
from bridge.identity.tokens.caller_token import Caller, CallerToken
from bridge.local.file_names import named_by_type, safe_file_name
from bridge.mcp.server.face import INVALID_PARAMS, McpRefusal
from bridge.remotes.remote_agent import RemoteAgent
from bridge.seal import HandleError, HandleTooLongError
from bridge.text.jsonvalues import JsonObject
from bridge.text.safe_text import without_hidden_characters
from bridge.translate.blocks import joined, pieces_in
from bridge.translate.extensions.availability import AVAILABILITY_URI
from bridge.translate.extensions.bridge import URI as TOOL_URI

SCHEME: Final = "a2a://"
_NUMBERS: Final = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)

TEMPLATE: Final[JsonObject] = {
    "uriTemplate": "a2a://{agent}/tasks/{handle}/{artifact}/{part}{/name}",
    "name": "artifact part",
    "title": "A part of what an agent gave",
    "description": "A part that was too large for a result, under the link that stood in its place",
}


def card_resource(agent: RemoteAgent) -> JsonObject:
    """An agent's card, as resources/list shows it."""
    return {
        "uri": f"{SCHEME}{agent.key}/card",
        "name": f"{agent.key} card",
        "title": f"The card of {without_hidden_characters(agent.card.name)}",
        "mimeType": "application/json",
    }


def read_card(agent: RemoteAgent, uri: str, skills: Container[str] | None) -> JsonObject:
    """An agent's card, as resources/read returns it. `skills` are the ids of the skills that the caller may see; None
    for all."""
    card = agent.card if skills is None else card_with_skills(agent.card, skills)
    return {"contents": [{"uri": uri, "mimeType": "application/json", "text": card.to_json().decode()}]}


def card_with_skills(card: AgentCard, ids: Container[str]) -> AgentCard:
    """A card with only these skills. It has no signatures, since they are for the whole card."""
    extensions = card.capabilities.extensions
    changed = extensions and tuple(_of_skills(extension, ids) for extension in extensions)
    return card.changed(
        skills=tuple(skill for skill in card.skills if skill.id in ids),
        capabilities=card.capabilities.changed(extensions=changed),
        signatures=None,
    )


def _of_skills(extension: AgentExtension, ids: Container[str]) -> AgentExtension:
    """An extension reduced to these skills, if it is one of the bridge's own; any other extension stays as it is."""
    params = extension.params or {}
    if extension.uri == TOOL_URI and isinstance(tools := params.get("tools"), dict):
        return extension.changed(params={**params, "tools": {key: tools[key] for key in tools if key in ids}})
    if extension.uri == AVAILABILITY_URI and isinstance(listed := params.get("unavailable"), list):
        return extension.changed(params={**params, "unavailable": [*_unavailable(listed, ids)]})
    return extension


def _unavailable(listed: Iterable[JsonValue], ids: Container[str]) -> Iterator[JsonValue]:
    for entry in listed:
        if isinstance(entry, dict) and isinstance(skills := entry.get("skills"), list):
            left = [skill for skill in skills if skill in ids]
            yield from [{**entry, "skills": left}] if left else []


def links_of(
    task: Task, agent: RemoteAgent, handles: Handles, principal: str
) -> Callable[[Part], str] | None:
    """A function that gives the URI of each part of a task. The URI ends with the part's file name. None if the task's
    ids are too long for a handle."""
    try:
        handle = handles.of_task(FarTask(agent.mark, task.id), principal)
    except HandleTooLongError:
        return None
    places = {
        id(artifact.parts[first]): (artifact, _numbers(first, end))
        for artifact in task.artifacts or ()
        for first, end in pieces_in(artifact.parts)
    }

    def link_for(part: Part) -> str:
        artifact, numbers = places.get(id(part), (None, "0"))
        holder = "status" if artifact is None else quote(artifact.artifact_id, safe="")
        name = _file_name(part, (artifact and artifact.name) or "")
        return f"{SCHEME}{agent.key}/tasks/{handle}/{holder}/{numbers}{name and '/'}{quote(name, safe='')}"

    return link_for


def _file_name(part: Part, artifact: str) -> str:
    """The part's file name: the agent's own name, or for bytes without a name, a name made from the artifact's name."""
    name = safe_file_name(part.filename or "")
    if name or part.kind != "raw":
        return name
    return named_by_type(artifact, part.media_type or "") or named_by_type("file", part.media_type or "")


class PartPlace(NamedTuple):
    """The parts of an artifact that a URI names."""

    far: FarTask
    artifact_id: str
    first: int
    end: int


def part_place(uri: str, handles: Handles, principal: str) -> PartPlace | None:
    """The place that a URI of `links_of` names; None for any other URI, and for a URI of another principal."""
    steps = uri.removeprefix(SCHEME).split("/")
    # (The step after the numbers is the file name, which is only for people.)
    numbers = _NUMBERS.fullmatch(steps[4]) if len(steps) in (5, 6) and steps[1] == "tasks" else None
    if numbers is None:
        return None
    try:
        far = handles.task(steps[2], principal)
    except HandleError:
        return None
    return PartPlace(far, unquote(steps[3]), int(numbers[1]), int(numbers[2] or numbers[1]) + 1)


async def read_part(
    uri: str,
    agents: Mapping[str, RemoteAgent],
    handles: Handles,
    principal: str,
    caller: CallerToken | None = None,
) -> JsonObject:
    """A part of an artifact as resources/read returns it; raises as `part_at` does."""
    return {"contents": [_contents(uri, await part_at(uri, agents, handles, principal, caller))]}


async def part_at(
    uri: str,
    agents: Mapping[str, RemoteAgent],
    handles: Handles,
    principal: str,
    caller: CallerToken | None = None,
) -> Part:
    """A part of an artifact, fetched from its agent.

    Raises:
        McpRefusal: there is no such part for this principal.
        PeerError: the agent cannot be asked.
    """
    unknown = McpRefusal(INVALID_PARAMS, f"There is no resource {echoed(uri)}", {"uri": echoed(uri)})
    place = part_place(uri, handles, principal)
    agent = None if place is None else agents.get(place.far.agent)
    if place is None or agent is None:
        raise unknown
    task = await agent.client_for(Caller(principal, caller)).get(place.far.task_id)
    for artifact in task.artifacts or ():
        # An agent may have joined the pieces that it sent into one part. Then one part still is the whole text.
        pieces = artifact.parts[place.first : place.end] if artifact.artifact_id == place.artifact_id else ()
        if len(pieces) == 1 or {part.kind for part in pieces} == {"text"}:
            return joined(pieces)
    raise unknown


def _numbers(first: int, end: int) -> str:
    """The number of a part in a URI, or the numbers of the first and last piece of a text."""
    return str(first) if end - first == 1 else f"{first}-{end - 1}"


def _contents(uri: str, part: Part) -> JsonObject:
    named: JsonObject = {} if part.filename is None else {"title": part.filename}
    typed: JsonObject = {} if part.media_type is None else {"mimeType": part.media_type}
    if part.kind == "raw":
        return {"uri": uri, **named, **typed, "blob": part.raw}
    if part.kind == "text":
        return {"uri": uri, **named, **typed, "text": part.text}
    # A URL part or data part is returned as its JSON.
    return {"uri": uri, "mimeType": "application/json", "text": part.to_json().decode()}
