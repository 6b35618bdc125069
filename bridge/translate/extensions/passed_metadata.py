"""Passes the metadata of configured extensions unchanged between A2A metadata and the `_meta` of MCP. Pure.

An extension's metadata has its URI as key, or a key that begins with the URI and a slash or a number sign. For the
bridge's own extension see `extension.py`.

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
    """An extension that an agent's card declares, in addition to the bridge's own."""

    uri: str
    description: str | None = None
    params: JsonObject | None = None
    required: bool = False
    """Whether clients that do not activate the extension are refused."""


def metadata_of(uris: Iterable[str], metadata: Mapping[str, JsonValue] | None) -> JsonObject:
    """The entries of metadata that belong to these extensions."""
    chosen = tuple(uris)
    return {key: value for key, value in (metadata or {}).items() if _extension_of(key, chosen) is not None}


def extensions_in(uris: Iterable[str], metadata: Mapping[str, JsonValue] | None) -> tuple[str, ...]:
    """Of these extensions, the ones with an entry in the metadata."""
    chosen = tuple(uris)
    used = {_extension_of(key, chosen) for key in metadata or ()}
    return tuple(uri for uri in chosen if uri in used)


def metadata_of_messages(
    uris: Iterable[str], active: Collection[str], messages: Iterable[Message]
) -> JsonObject:
    """The metadata of these extensions in a client's messages. An extension counts if it is active, or if the message
    lists it in `extensions`.

    For each key, the last message takes precedence.
    """
    chosen = tuple(uris)
    metadata: JsonObject = {}
    for message in messages:
        if message.role is Role.USER:
            used = {*active, *(message.extensions or ())}
            metadata |= metadata_of((uri for uri in chosen if uri in used), message.metadata)
    return metadata


def with_extension_metadata(message: Message, uris: Iterable[str], meta: Mapping[str, JsonValue]) -> Message:
    """A message with the entries of `meta` that belong to these extensions, and with their URIs in `extensions`."""
    chosen = tuple(uris)
    if not (metadata := metadata_of(chosen, meta)):
        return message
    named = (*(message.extensions or ()), *extensions_in(chosen, metadata))
    return message.changed(
        metadata={**metadata, **(message.metadata or {})}, extensions=tuple(dict.fromkeys(named))
    )


def metadata_of_outcome(uris: Sequence[str], outcome: Task | Message) -> JsonObject:
    """The metadata of these extensions in an agent's answer: in the task, its artifacts, and its final message.

    Of equal keys, the last in this order takes precedence. The blocks of an artifact also carry the artifact's own
    metadata.
    """
    if isinstance(outcome, Message):
        return metadata_of(uris, outcome.metadata)
    holders: list[Artifact | Message] = [*(outcome.artifacts or ())]
    if outcome.status.message is not None:
        holders.append(outcome.status.message)
    metadata = metadata_of(uris, outcome.metadata)
    for holder in holders:
        metadata |= metadata_of(uris, holder.metadata)
    return metadata


def _extension_of(key: str, uris: Iterable[str]) -> str | None:
    return next((uri for uri in uris if key == uri or key.startswith((f"{uri}/", f"{uri}#"))), None)
