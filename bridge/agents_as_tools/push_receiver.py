"""Receives the push notifications of agents. Only the token says which task a notification is for.

Every bad token gets the same answer, whether it is forged, too old, or for an agent that this bridge does not call. The
body is read up to its limit and thrown away: the task's state is read from its agent.

Spec: A2A 1.0 section 4.3.3; Standard Webhooks 1.0.0 for `webhook-id` and `webhook-timestamp`, which most agents do not
send. `webhook-signature` is not checked: the bridge has no key of the agent, and the token is a secret already.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from bridge.agents_as_tools.handles import FarWebhook, Handles
from bridge.agents_as_tools.push_hints import PushHints
from bridge.bounded_map import BoundedMap
from bridge.http.request_checks import RefusedError, request_body
from bridge.notices import Notify, PushReceived, ignore_notice
from bridge.seal import HandleError

logger = logging.getLogger(__name__)

_TOKEN: Final = "x-a2a-notification-token"  # noqa: S105 - the name of a header
_BEARER: Final = "bearer "
_SKEW_SECONDS: Final = 300
"""How far a notification's timestamp may be from the bridge's clock. Standard Webhooks recommends a tolerance, and its
libraries use five minutes."""
_SEEN_MOST: Final = 4096
"""How many ids of notifications are remembered. Repeating a forgotten notification causes only one more hint."""
_ID_CHARACTERS: Final = 256
_AGAIN_SECONDS: Final = "1"
_TOO_MANY: Final = 429


@dataclass(frozen=True, slots=True)
class ReceiverBounds:
    """The limits for notifications."""

    body_bytes: int
    each_second: int
    """The most notifications of one agent in a second."""


class PushReceiver:
    """The ASGI application that receives the notifications of agents."""

    def __init__(
        self,
        handles: Handles,
        hints: PushHints,
        knows: Callable[[str], bool],
        bounds: ReceiverBounds,
        now_seconds: Callable[[], float] = time.time,
        key_of: Callable[[str], str] = lambda _: "",
        notify: Notify = ignore_notice,
    ) -> None:
        """`knows` says whether the agent with a mark may send notifications. `notify` gets a notice of each
        notification, with the agent's key from `key_of`, which gives the key for a mark ("" for an unknown mark)."""
        self._key_of = key_of
        self._notify = notify
        self._handles = handles
        self._hints = hints
        self._knows = knows
        self._bounds = bounds
        self._now_seconds = now_seconds
        self._second = 0
        self._taken: dict[str, int] = {}
        """How many notifications of each agent were taken in this second."""
        self._seen = BoundedMap[tuple[str, str], None](_SEEN_MOST)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take a notification, or refuse it."""
        headers, peer = Headers(scope=scope), ""
        try:
            webhook = self._known(scope["method"], headers)
            peer = self._key_of(webhook.agent)
            self._count(webhook.agent)
            await request_body(receive, headers, self._bounds.body_bytes)
        except RefusedError as exc:
            logger.debug("a notification is refused: %s", exc)
            is_flood = exc.status == _TOO_MANY
            self._notify(PushReceived(peer, "too_many" if is_flood else "refused", exc.status))
            words = json.dumps({"error": {"message": str(exc)}})
            answer = Response(words, exc.status, headers=exc.headers, media_type="application/json")
        else:
            is_new = self._is_new(webhook, headers)
            if is_new:
                self._hints.take(webhook)
            self._notify(PushReceived(peer, "taken" if is_new else "repeated", 204))
            answer = Response(status_code=204)
        await answer(scope, receive, send)

    def _known(self, method: str, headers: Headers) -> FarWebhook:
        """The webhook that a notification is for.

        Raises:
            RefusedError: 405, the method is not POST; 404, the token or the timestamp is not valid.
        """
        if method != "POST":
            raise RefusedError(405, "Send notifications with POST", {"Allow": "POST"})
        webhook = self._webhook(headers)
        if webhook is None or not self._is_of_now(headers) or not self._knows(webhook.agent):
            raise RefusedError(404, "No task has this notification token")
        return webhook

    def _webhook(self, headers: Headers) -> FarWebhook | None:
        for token in _tokens_in(headers):
            try:
                return self._handles.webhook(token)
            except HandleError:
                continue
        return None

    def _is_of_now(self, headers: Headers) -> bool:
        sent_at = headers.get("webhook-timestamp")
        if sent_at is None:
            return True
        is_number = sent_at.isascii() and sent_at.isdigit() and len(sent_at) <= len(str(2**63))
        return is_number and abs(self._now_seconds() - int(sent_at)) <= _SKEW_SECONDS

    def _count(self, agent: str) -> None:
        """Count a notification.

        Raises:
            RefusedError: 429, the agent has sent too many in this second.
        """
        second = int(self._now_seconds())
        if second != self._second:
            self._second = second
            self._taken.clear()
        if self._taken.get(agent, 0) >= self._bounds.each_second:
            raise RefusedError(_TOO_MANY, "There are too many notifications", {"Retry-After": _AGAIN_SECONDS})
        self._taken[agent] = self._taken.get(agent, 0) + 1

    def _is_new(self, webhook: FarWebhook, headers: Headers) -> bool:
        """Whether a notification is new, as far as its id tells."""
        webhook_id = headers.get("webhook-id", "")
        if not webhook_id or len(webhook_id) > _ID_CHARACTERS:
            return True
        seen = (webhook.key, webhook_id)
        if seen in self._seen:
            return False
        self._seen[seen] = None
        return True


def _tokens_in(headers: Headers) -> Iterator[str]:
    """The values that may be the token. Agents send the token in one of these headers, or in both."""
    if (token := headers.get(_TOKEN)) is not None:
        yield token
    authorization = headers.get("authorization", "")
    if authorization[: len(_BEARER)].lower() == _BEARER:
        yield authorization[len(_BEARER) :].strip()
