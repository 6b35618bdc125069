"""What can be chosen about an agent made of tools. Values only; where they come from is no matter here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bridge.translate.confirmation import ConfirmPolicy
from bridge.translate.message_to_call import RouteRules


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """The choices of one published agent."""

    route: RouteRules
    incomplete: Literal["ask", "reject"]
    """What happens when arguments are missing or wrong: the client is asked, or the task is rejected."""
    call_timeout_seconds: float
    """How long a call may take, without the time in which its client is asked something."""
    task_timeout_seconds: float
    """The same for a call that its server makes a task of."""
    queue_timeout_seconds: float
    """How long a call may wait for its turn."""
    input_timeout_seconds: float
    """How long the client may take to answer."""
    held_answer_seconds: float
    """How long before a question a message may have come that is its answer, though it does not name it."""
    cancel_grace_seconds: float
    """How long a call may go on once nobody answered what it asks."""
    inline_limit_bytes: int
    """How large a linked resource may be to be read and passed on in place of its link."""
    links_most: int
    """How many linked resources of one result are read."""
    links_limit_bytes: int
    """What those of one result may carry together."""
    allow_file_links: bool
    progress_per_second: float
    """Progress events over time; a call may have ten seconds' worth of them at once."""
    progress_in_flight: int
    """Progress events on their way to the store at once; beyond them, only the newest waits."""
    progress_limit_bytes: int
    """What the words of one of them may carry; longer ones are cut."""
    confirm: ConfirmPolicy
    """Which tools are called only once their client has confirmed the call."""
    name: str | None = None
    description: str | None = None
    """None takes both from what the servers say of themselves."""
