"""Notices: reports besides hops, about token requests, logins, push notifications, answers in open calls, questions to
a model, and definitions that are not as in the lock.

The code that does such a thing then calls a function with a notice. The function never waits. Without a listener it is
`ignore_notice`. No notice holds a token, an argument, or a message of a peer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

TokenOutcome = Literal["given", "refused", "failed"]
"""`refused`: the authorization server refused. `failed`: it could not be reached, or its answer is unusable."""

TokenGrantType = Literal["client_credentials", "jwt_bearer", "refresh_token", "token_exchange", "id_jag"]
"""`id_jag` is an exchange in two steps, at the issuer of the caller and at the authorization server of the peer."""


@dataclass(frozen=True, slots=True)
class TokenNotice:
    """The bridge has asked an authorization server for a token for a peer."""

    peer: str
    grant: TokenGrantType
    outcome: TokenOutcome
    seconds: float
    principal: str = ""
    """The principal that the token is for; empty for the bridge itself."""


LoginEvent = Literal["begun", "stored", "declined", "refused", "failed", "lost", "deleted"]
"""`refused`: somebody else opened or answered the login. `failed`: its page or its answer could not be fetched. `lost`:
it can no longer be renewed."""


@dataclass(frozen=True, slots=True)
class LoginNotice:
    """An event in the login of a person at a peer."""

    peer: str
    """The peer; empty if it is not known."""
    event: LoginEvent
    principal: str = ""
    """The principal that logs in; empty for the operator, or if it is not known."""


@dataclass(frozen=True, slots=True)
class LoginTaken:
    """The bridge uses a login of the operator, made by `mcp-a2a login`, for the first time."""

    peer: str
    since: float
    """When the operator logged in, in seconds since the epoch."""


PushOutcome = Literal["delivered", "failed", "given_up"]
"""`failed`: the bridge will retry. `given_up`: the bridge sends nothing more to this webhook."""


@dataclass(frozen=True, slots=True)
class PushAttempt:
    """An attempt to send a push notification."""

    face: str
    outcome: PushOutcome
    task: str
    target: str = ""
    """`host:port` of the receiver; empty if it is no longer known."""


@dataclass(frozen=True, slots=True)
class WebhookAsked:
    """A message has asked for push notifications about its task."""

    face: str
    principal: str
    task: str
    target: str
    """`host:port` of the receiver."""


@dataclass(frozen=True, slots=True)
class PushReceived:
    """A push notification from a remote agent has arrived."""

    peer: str
    """The agent; empty if its token belongs to no known agent."""
    outcome: Literal["taken", "repeated", "refused", "too_many"]
    status: int
    """The HTTP status of the answer."""


@dataclass(frozen=True, slots=True)
class AnswerTaken:
    """A host has answered questions within its open call, and the answers are passed on to the agent."""

    face: str
    principal: str
    skill: str
    peer: str
    trace: str
    intent: int = 0
    """The number of its intent line in the audit; 0 if there is none."""


ModelOutcome = Literal[
    "chosen", "answered", "no_choice", "unfit", "timed_out", "failed", "broken", "no_tokens", "canceled"
]
"""`answered`: the model answered in its own words, from results. `no_choice`: it chose no tool, or several. `unfit`:
its call does not fit the tool. `broken`: its answer cannot be read."""


@dataclass(frozen=True, slots=True)
class ModelAsked:
    """A model was asked what a text means."""

    face: str
    principal: str
    task: str
    model: str
    host: str
    skill: str
    """The skill that the model chose; empty if it chose none."""
    outcome: ModelOutcome
    tokens: int
    seconds: float
    began_ns: int
    """In nanoseconds since the epoch."""
    traceparent: str


@dataclass(frozen=True, slots=True)
class DefinitionDiffers:
    """A tool server or an agent shows an item that is not as in the lock, or no longer shows it."""

    peer: str
    """The title in the configuration, such as `tool_servers.github`."""
    kind: str
    name: str
    change: Literal["new", "changed", "gone"]
    is_offered: bool


Notice = (
    TokenNotice
    | LoginNotice
    | LoginTaken
    | PushAttempt
    | WebhookAsked
    | PushReceived
    | AnswerTaken
    | ModelAsked
    | DefinitionDiffers
)

Notify = Callable[[Notice], None]
"""Takes a notice."""


def ignore_notice(_: Notice) -> None:
    """Ignore a notice."""


@dataclass(frozen=True, slots=True)
class TokenListener:
    """The listener for the tokens of a peer."""

    peer: str = ""
    """The key of the peer in the plan."""
    notify: Notify = ignore_notice


NO_LISTENER: Final = TokenListener()
"""A listener that ignores the tokens."""
