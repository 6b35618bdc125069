"""What a check is: one sentence of the specification, and a small coroutine that sees whether an agent keeps it.

A check returns when it is kept, raises `Failed` when it is not, and `NotTried` when this agent gives no occasion.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

JSONRPC: Final = "JSONRPC"
HTTP_JSON: Final = "HTTP+JSON"
BOTH: Final = (JSONRPC, HTTP_JSON)
ONLY_JSONRPC: Final = (JSONRPC,)
ONLY_HTTP_JSON: Final = (HTTP_JSON,)
ONCE: Final = ("card",)
"""In place of a binding: what is looked at once an agent."""


class Level(StrEnum):
    """How binding a sentence is (RFC 2119)."""

    MUST = "MUST"
    SHOULD = "SHOULD"


class Section(StrEnum):
    """What a check is about."""

    CARD = "Card and discovery"
    JSONRPC = "JSON-RPC"
    HTTP_JSON = "HTTP+JSON"
    OPERATIONS = "Operations"
    SKILLS = "Skills"
    LISTING = "Listing tasks"
    STREAMING = "Streaming"
    TURNS = "Multi-turn"
    VERSIONS = "Versioning"
    EXTENSIONS = "Extensions"
    OPTIONAL = "Push notifications and extended card"
    ACCESS = "Authentication"
    JSON = "JSON"


class Need(StrEnum):
    """What an agent has to do, or to declare, for a check to be tried."""

    TASK = "a message that becomes a task"
    ARTIFACT = "a message whose task completes with an artifact"
    SAYS = "a message that is answered with a Message"
    ASKS = "a message whose task asks for input"
    ANSWERS = "an answer to what it asks"
    ANSWERS_IN_PART = "an answer after which it asks again"
    LONG = "a message whose task works until it is canceled"
    OPEN = "a task that does not end by itself: one that asks, or one that works long"
    LOGIN = "a message whose task asks for a login"
    CALLS = "a message in words that calls a skill"
    CALLS_ANOTHER = "a message in words that calls another skill"
    GIVES_DATA = "a message whose result can be said as a text and as data"
    STREAMS = "capabilities.streaming"
    NO_STREAMS = "no capabilities.streaming"
    PUSH = "capabilities.pushNotifications"
    NO_PUSH = "no capabilities.pushNotifications"
    EXTENDED = "capabilities.extendedAgentCard"
    NO_EXTENDED = "no capabilities.extendedAgentCard"
    EXTENSION = "an extension in the card"
    EXAMPLES = "an example of a skill that says arguments, and an extension that gives their schema"
    REQUIRED_EXTENSION = "a required extension in the card"
    SIGNATURES = "signatures in the card"
    CREDENTIAL = "a card that requires authentication, and a token"
    OTHER_CALLER = "a card that requires authentication, and the tokens of two callers"
    HOOK = "a webhook that the agent may post to"
    BOTH_BINDINGS = "both bindings"
    NO_OLDER_VERSION = "an interface that is not declared for 0.3 too"
    OLDER_VERSION = "an interface that is declared for 0.3 too"
    SOME_MODES = "input modes that do not take everything"
    ETAG = "an ETag on the card"


class Failed(Exception):
    """The agent does something else than the specification says."""

    def __init__(self, expected: str, came: str) -> None:
        super().__init__(f"expected {expected}; came: {came}")
        self.expected = expected
        self.came = came


class NotTried(Exception):
    """This agent gives no occasion to see it; `str()` of it says why."""


@dataclass(frozen=True, slots=True)
class Check:
    """One requirement, and how to see whether it is met."""

    id: str
    section: Section
    spec: str
    """The section of the A2A 1.0 specification."""
    level: Level
    sentence: str
    run: Callable[..., Awaitable[None]]
    """Takes a Talk and its Occasions; of what is looked at once an agent, a Look."""
    needs: tuple[Need, ...] = ()
    bindings: tuple[str, ...] = BOTH


def require(is_so: bool, expected: str, came: object) -> None:
    """Fail the check unless it is so."""
    if not is_so:
        raise Failed(expected, shown(came))


def need(is_so: bool, why: str) -> None:
    """Leave the check untried unless it is so."""
    if not is_so:
        raise NotTried(why)


def shown(value: object, limit: int = 300) -> str:
    """A value in few characters."""
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= limit else f"{text[: limit - 4]} ..."
