"""The ids of a remote agent and our own, and messages and artifacts with the ids of the other side. Pure.

Our ids of messages and artifacts are derived from the remote ones, so that a task that is read again after a restart
has the same ids. The ids that a remote agent sees are derived from the client's, so that a message that a client sends
again arrives with the same id. No derived id tells the id that it was made of.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit
from uuid import UUID

from bridge.a2a.model.objects import Artifact, Message, Part, Role
from bridge.a2a.model.operators import OPERATOR_URI
from bridge.http.private_addresses import is_private_host
from bridge.text.jsonvalues import JsonObject

HOPS: Final = "urn:mcp-a2a:hops:v1"
"""The key of message metadata that counts the bridges through which a message has come as a message of an agent made of
agents."""
HOPS_MOST: Final = 8
"""The most bridges on the way of a message. More are taken for a loop."""

_WITHHELD: Final = (
    "[A file is withheld: its address, on the private network of the agent, cannot be opened from here]"
)


def derived_id(*values: str) -> str:
    """An id, as a UUID, that is the same for the same values."""
    digest = hashlib.sha256("\0".join(values).encode()).digest()
    return str(UUID(bytes=digest[:16], version=4))


def hops_in(message: Message) -> int:
    """The number of bridges on the way of a message so far. Anything but a count counts as too many."""
    hops = (message.metadata or {}).get(HOPS, 0)
    if isinstance(hops, bool) or not isinstance(hops, int | float) or hops != hops // 1 or hops < 0:
        return HOPS_MOST
    return int(min(hops, HOPS_MOST))  # JSON of protobuf has no integers


def message_to_agent(
    message: Message,
    *,
    message_id: str,
    task_id: str | None,
    context_id: str | None,
    references: Sequence[str],
    skill: Mapping[str, str],
) -> Message:
    """A client's message as a remote agent gets it, with the ids of that agent. `skill` are the keys of metadata that
    name a skill, with the remote id of the skill."""
    known = {
        key: value for key, value in (message.metadata or {}).items() if not key.startswith(OPERATOR_URI)
    }
    metadata: JsonObject = {**known, **skill, HOPS: hops_in(message) + 1}
    return message.changed(
        message_id=message_id,
        task_id=task_id,
        context_id=context_id,
        reference_task_ids=tuple(references) or None,
        metadata=metadata,
    )


@dataclass(frozen=True, slots=True)
class OwnIds:
    """Our ids of one task, for what its remote agent sends."""

    agent: str
    """The key of the remote agent."""
    task_id: str
    context_id: str
    shows_private: bool
    """Whether addresses on a private network are passed on."""

    def of_message(self, message: Message, far_task_id: str | None) -> Message:
        """A message of the remote agent as a client gets it. References to other remote tasks are left out: which tasks
        of ours they are is not known."""
        metadata = {key: value for key, value in (message.metadata or {}).items() if key != HOPS}
        references = [self.task_id for other in message.reference_task_ids or () if other == far_task_id]
        return message.changed(
            message_id=derived_id("message", self.agent, self.task_id, message.message_id),
            task_id=self.task_id,
            context_id=self.context_id,
            role=Role.AGENT,
            parts=self.of_parts(message.parts),
            metadata=metadata or None,
            reference_task_ids=tuple(references) or None,
        )

    def of_artifact(self, artifact: Artifact) -> Artifact:
        """An artifact of the remote agent as a client gets it."""
        return artifact.changed(
            artifact_id=derived_id("artifact", self.agent, self.task_id, artifact.artifact_id),
            parts=self.of_parts(artifact.parts),
        )

    def of_parts(self, parts: Sequence[Part]) -> tuple[Part, ...]:
        """Parts of the remote agent as a client gets them."""
        return tuple(parts) if self.shows_private else tuple(map(_without_private, parts))


def _without_private(part: Part) -> Part:
    if part.kind != "url" or part.url is None or not leads_to_private(part.url):
        return part
    name = f" ({part.filename})" if part.filename else ""
    return Part(text=f"{_WITHHELD}{name}")


def leads_to_private(url: str) -> bool:
    """Whether a URL names a host on a private network, or a file of a machine. Names are not resolved."""
    try:
        split = urlsplit(url)
        host = split.hostname
    except ValueError:
        return True
    if split.scheme.lower() not in ("http", "https"):
        return split.scheme.lower() == "file"
    return host is None or is_private_host(host)
