"""Which message went to which task, and whose a context is: what makes a message sent twice one message.

The store answers for what it has kept; what was accepted and is still on its way there is remembered here.

Spec: A2A 1.0 sections 3.3.1 (idempotency), 3.4.1 (contexts).
"""

from __future__ import annotations

from bridge.a2a.commit import Commit
from bridge.a2a.errors import Violation, invalid_params
from bridge.store.records import MessageKey, Origin, Store


class MessageBook:
    """The messages and contexts of one store."""

    def __init__(self, store: Store, repeat_seconds: float) -> None:
        """`repeat_seconds` is how long the same message sent again finds its task."""
        self._store = store
        self._repeat_ms = repeat_seconds * 1000
        self._messages: dict[tuple[str, str], tuple[str, MessageKey]] = {}
        self._contexts: dict[str, str] = {}

    async def task_of(self, owner: str, key: MessageKey) -> str | None:
        """The task of this very message, when it was sent before; None for a new one.

        Raises:
            A2AError: INVALID_PARAMS, when another message had this id.
        """
        known = self._messages.get((owner, key.message_id))
        if known is None:
            stored = await self._store.find_message(owner, key.message_id)
            known = None if stored is None else (stored.task_id, stored.key)
        if known is None or key.accepted_ms - known[1].accepted_ms > self._repeat_ms:
            return None
        if known[1].digest != key.digest:
            raise invalid_params(
                Violation("message.messageId", "was used for another message; every message has its own")
            )
        return known[0]

    async def owner_of_context(self, context_id: str) -> str | None:
        """Whose a context is, or None when no task is in it."""
        return self._contexts.get(context_id) or await self._store.context_owner(context_id)

    def note(self, task_id: str, origin: Origin, key: MessageKey, stored: Commit) -> None:
        """Remember a message that was accepted, until the store answers for it."""
        place = origin.owner, key.message_id
        self._messages[place] = task_id, key
        self._contexts[origin.context_id] = origin.owner

        def forget() -> None:
            self._messages.pop(place, None)
            self._contexts.pop(origin.context_id, None)

        stored.when_settled(forget)
