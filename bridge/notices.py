"""What a bridge tells beside its hops: tokens that it asks for, logins, push notifications, and answers in open calls.

Whoever does one of these has a function that takes notices, and calls it once that is done. The function never waits.
Without a listener it is `unheard`. No notice holds a token, an argument, or words of a peer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

TokenOutcome = Literal["given", "refused", "failed"]
"""`refused`: the authorization server said no. `failed`: it could not be reached, or gave nothing that can be used."""

TokenGrantType = Literal["client_credentials", "jwt_bearer", "refresh_token", "token_exchange", "id_jag"]
"""`id_jag` is an exchange of two steps, at the issuer of the caller and at the authorization server of the peer."""


@dataclass(frozen=True, slots=True)
class TokenNotice:
    """The bridge has asked an authorization server for a token for a peer."""

    peer: str
    grant: TokenGrantType
    outcome: TokenOutcome
    seconds: float
    principal: str = ""
    """In whose name; empty for the bridge's own."""


LoginEvent = Literal["begun", "stored", "declined", "refused", "failed", "lost", "deleted"]
"""`refused`: somebody else opened or answered it. `failed`: its page or its answer could not be had. `lost`: it cannot
be renewed any more."""


@dataclass(frozen=True, slots=True)
class LoginNotice:
    """Something has happened to the login of a person at a peer."""

    peer: str
    """Empty if it is not known which one."""
    event: LoginEvent
    principal: str = ""
    """Whose login; empty for the operator's, or if it is not known."""


@dataclass(frozen=True, slots=True)
class LoginTaken:
    """The bridge uses a login of the operator at a peer that it has not used before, as `mcp-a2a login` has made it."""

    peer: str
    since: float
    """When the operator logged in, in seconds since the epoch."""


PushOutcome = Literal["delivered", "failed", "given_up"]
"""`failed`: it is tried again. `given_up`: nothing more is sent to this webhook."""


@dataclass(frozen=True, slots=True)
class PushAttempt:
    """A push notification was sent, or not."""

    face: str
    outcome: PushOutcome
    task: str
    target: str = ""
    """`host:port` of the receiver; empty if it cannot be known any more."""


@dataclass(frozen=True, slots=True)
class WebhookAsked:
    """A message has asked for push notifications of its task."""

    face: str
    principal: str
    task: str
    target: str
    """`host:port` of the receiver."""


@dataclass(frozen=True, slots=True)
class PushReceived:
    """A notification of a remote agent has come."""

    peer: str
    """Empty if its token is of no agent that is known."""
    outcome: Literal["taken", "repeated", "refused", "too_many"]
    status: int
    """The HTTP status of the answer."""


@dataclass(frozen=True, slots=True)
class AnswerTaken:
    """A host has answered questions while its own call is open, and the answers go on to the agent."""

    face: str
    principal: str
    skill: str
    peer: str
    trace: str
    intent: int = 0
    """The number under which it was written down before; 0 without."""


Notice = TokenNotice | LoginNotice | LoginTaken | PushAttempt | WebhookAsked | PushReceived | AnswerTaken

Tell = Callable[[Notice], None]
"""Takes a notice."""


def unheard(_: Notice) -> None:
    """Nobody listens."""


@dataclass(frozen=True, slots=True)
class TokenListener:
    """Who is told of the tokens for a peer."""

    peer: str = ""
    """The key of the peer in the plan."""
    tell: Tell = unheard


NOBODY: Final = TokenListener()
"""Nobody listens to the tokens of a peer."""
