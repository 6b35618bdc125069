"""The metadata of extensions that a configuration names, which passes between A2A and `_meta` of MCP untouched. Pure.

Metadata of an extension stands under its URI, or under a key that begins with the URI and a slash or a number sign.
The bridge's own extension is another matter (`extension.py`).

Spec: A2A 1.0 section 4.6.2.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from bridge.a2a.model.objects import Artifact, Message, Role, Task
from bridge.text.jsonvalues import JsonObject


@dataclass(frozen=True, slots=True)
class DeclaredExtension:
    """An extension that the card of an agent declares beside the bridge's own."""

    uri: str
    description: str | None = None
    params: JsonObject | None = None
    required: bool = False
    """Whether clients that do not activate it are refused."""


def metadata_of(uris: Iterable[str], metadata: Mapping[str, JsonValue] | None) -> JsonObject:
    """What metadata holds of these extensions."""
    chosen = tuple(uris)
    return {key: value for key, value in (metadata or {}).items() if _extension_of(key, chosen) is not None}


def extensions_in(uris: Iterable[str], metadata: Mapping[str, JsonValue] | None) -> tuple[str, ...]:
    """Those of these extensions of which metadata holds something."""
    chosen = tuple(uris)
    found = {_extension_of(key, chosen) for key in metadata or ()}
    return tuple(uri for uri in chosen if uri in found)


def metadata_of_messages(
    uris: Iterable[str], active: Collection[str], messages: Iterable[Message]
) -> JsonObject:
    """What a client's messages hold of these extensions, if it is active or the message says that it uses it.

    Of one key, what the last message says is taken.
    """
    chosen = tuple(uris)
    found: JsonObject = {}
    for message in messages:
        if message.role is Role.USER:
            used = {*active, *(message.extensions or ())}
            found |= metadata_of((uri for uri in chosen if uri in used), message.metadata)
    return found


def with_extension_metadata(message: Message, uris: Iterable[str], meta: Mapping[str, JsonValue]) -> Message:
    """A message with what `meta` holds of these extensions, and their URIs."""
    chosen = tuple(uris)
    if not (found := metadata_of(chosen, meta)):
        return message
    named = (*(message.extensions or ()), *extensions_in(chosen, found))
    return message.changed(
        metadata={**found, **(message.metadata or {})}, extensions=tuple(dict.fromkeys(named))
    )


def metadata_of_outcome(uris: Sequence[str], outcome: Task | Message) -> JsonObject:
    """What an agent's answer holds of these extensions: the task, its artifacts, and its final message.

    Where two of them hold the same key, the later of this order is taken; each artifact's own stay beside its blocks.
    """
    if isinstance(outcome, Message):
        return metadata_of(uris, outcome.metadata)
    holders: list[Artifact | Message] = [*(outcome.artifacts or ())]
    if outcome.status.message is not None:
        holders.append(outcome.status.message)
    found = metadata_of(uris, outcome.metadata)
    for holder in holders:
        found |= metadata_of(uris, holder.metadata)
    return found


def _extension_of(key: str, uris: Iterable[str]) -> str | None:
    return next((uri for uri in uris if key == uri or key.startswith((f"{uri}/", f"{uri}#"))), None)
