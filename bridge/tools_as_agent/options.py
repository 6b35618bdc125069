"""The options of an agent whose skills are tools, as plain values."""

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
    """How long a call may take, not counting the time in which it waits for its client's answer."""
    task_timeout_seconds: float
    """The same for a call that its server turned into a task."""
    queue_timeout_seconds: float
    """How long a call may wait for a slot."""
    input_timeout_seconds: float
    """How long the client may take to answer."""
    held_answer_seconds: float
    """How far back a message that names no question still counts as the answer to a new question."""
    answer_tries: int
    """The call ends after this many answers that do not fit the question."""
    cancel_grace_seconds: float
    """How long the call may go on after the client did not answer in time."""
    inline_limit_bytes: int
    """The most bytes of a linked resource that replaces its link."""
    links_most: int
    """The most linked resources of one result that are read."""
    links_limit_bytes: int
    """The most bytes of all linked resources of one result together."""
    allow_file_links: bool
    progress_per_second: float
    """The rate of progress events; a call may send ten seconds' worth of them at once."""
    progress_in_flight: int
    """The most progress events on their way to the store. Beyond that number, only the newest report waits."""
    progress_limit_bytes: int
    """The most bytes of a progress event's text; longer text is cut."""
    confirm: ConfirmPolicy
    """Which tools are called only once their client has confirmed the call."""
    unavailable_after_seconds: float
    """How long a server has to be down before the card says so."""
    extensions: tuple[DeclaredExtension, ...] = ()
    """Extensions that the card declares besides the bridge's own. Their metadata is passed to the tools and back."""
    push: bool = False
    """Whether push notifications are sent."""
    face: str = ""
    """The name of the agent in the configuration."""
    name: str | None = None
    description: str | None = None
    """With None, the description comes from the servers, and so does the name for `name`."""
