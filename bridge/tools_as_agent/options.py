"""The options of an agent made of tools, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bridge.translate.confirmation import ConfirmPolicy
from bridge.translate.extension_metadata import DeclaredExtension
from bridge.translate.message_to_call import RouteRules


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """The options of one published agent."""

    route: RouteRules
    incomplete: Literal["ask", "reject"]
    """What happens when arguments are missing or wrong: the client is asked, or the task is rejected."""
    call_timeout_seconds: float
    """How long a call may take, not counting the time in which its client is asked."""
    task_timeout_seconds: float
    """The same for a call that its server makes a task of."""
    queue_timeout_seconds: float
    """How long a call may wait for a slot."""
    input_timeout_seconds: float
    """How long the client may take to answer."""
    held_answer_seconds: float
    """How long before a question a message may have come that answers it without naming it."""
    answer_tries: int
    """How many answers may not fit a question before the call ends."""
    cancel_grace_seconds: float
    """How long a call may go on after its question was not answered in time."""
    inline_limit_bytes: int
    """The most bytes of a linked resource that is read and replaces its link."""
    links_most: int
    """The most linked resources of one result that are read."""
    links_limit_bytes: int
    """The most bytes of the linked resources of one result together."""
    allow_file_links: bool
    progress_per_second: float
    """The rate of progress events; a call may send ten seconds' worth of them at once."""
    progress_in_flight: int
    """The most progress events on their way to the store. Beyond it, only the newest report waits."""
    progress_limit_bytes: int
    """The most bytes of the words of a progress event; longer words are cut."""
    confirm: ConfirmPolicy
    """Which tools are called only once their client has confirmed the call."""
    unavailable_after_seconds: float
    """How long a server has to be down before the card says so."""
    extensions: tuple[DeclaredExtension, ...] = ()
    """Declared on the card beside the bridge's own. Their metadata goes to the tools and comes from them."""
    push: bool = False
    """Whether push notifications are sent."""
    face: str = ""
    """The name of the agent in the configuration."""
    name: str | None = None
    description: str | None = None
    """None takes the description, as `name` does the name, from the servers."""
