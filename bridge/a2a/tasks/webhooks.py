"""The webhooks of tasks: which webhooks a client may register, and how they are stored.

A webhook is a TaskPushNotificationConfig. It is stored encrypted (sealed), and its secrets are never shown again. Its
notifications are in the outbox of the store. This module does not know how they are sent.

Spec: A2A 1.0 sections 3.1.7 to 3.1.10, 4.3 and 13.2.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final
from urllib.parse import SplitResult, urlsplit

from bridge.a2a.model.errors import OVERLOADED, A2AError, Violation, invalid_params, task_not_found
from bridge.a2a.model.life import IdsAndClock
from bridge.a2a.model.objects import StreamResponse, TaskPushNotificationConfig, made
from bridge.a2a.model.push_objects import (
    GETS_TASKS,
    DeleteTaskPushNotificationConfigRequest,
    Empty,
    GetTaskPushNotificationConfigRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
)
from bridge.a2a.tasks.rows import folded
from bridge.errors import StoreConflictError
from bridge.http.private_addresses import is_private_host
from bridge.http.request_checks import is_ip_address, is_loopback
from bridge.notices import Notify, WebhookAsked, ignore_notice
from bridge.seal import RecordSeal, SealedRecordError
from bridge.store.contract import Store
from bridge.store.outbox import OutboxRow, Webhook, WebhookKey, WebhookLimitError, WebhookLimits
from bridge.text.jsonvalues import JsonObject

SEALED_AS: Final = "webhook"
"""The purpose for which the keys of the records are derived."""

MAX_URL: Final = 2048
MAX_SECRET: Final = 4096
"""The most characters of a token or of credentials. They become headers, which receivers bound."""

_PORTS: Final = {"http": 80, "https": 443}
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_NUMBER: Final = re.compile(r"(^|\.)(\d+|0[xX][0-9a-fA-F]*)$")
"""The end of a host that resolvers read as an IPv4 address, in any of its forms. No host name ends like this."""
_VISIBLE: Final = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")
"""A valid header value (RFC 9110 section 5.5), in ASCII. It has no line break, so it cannot add headers."""

DELIVERY: Final = "delivery"
"""The field of a config that describes failed attempts. A2A does not define this field."""


@dataclass(frozen=True)
class SealedWebhook:
    """The encrypted content of a webhook."""

    config: TaskPushNotificationConfig
    mark: str
    """A text that distinguishes its notifications from those of all other webhooks."""
    extensions: frozenset[str] = frozenset()
    """The extensions that its client activated."""
    gets_tasks: bool = False
    """Whether its client speaks 0.3, so that it gets tasks instead of events."""


@dataclass(frozen=True)
class WebhookRules:
    """The allowed receivers, and the bounds on webhooks."""

    limits: WebhookLimits
    allow: frozenset[str] = frozenset()
    """`host:port` of receivers that may be in private networks."""


@dataclass(frozen=True)
class AskedWebhook:
    """A checked webhook that a message asks for."""

    config: TaskPushNotificationConfig
    extensions: frozenset[str] = field(default_factory=frozenset)
    gets_tasks: bool = False


def place_of(url: SplitResult) -> str:
    """`host:port` of a URL."""
    host = (url.hostname or "").rstrip(".")
    return f"{f'[{host}]' if ':' in host else host}:{url.port or _PORTS.get(url.scheme, 0)}"


def target_of(text: str) -> str:
    """`host:port` of a client's URL of a webhook; empty if it has none. The path, the query and the user are left out,
    since they may be secrets."""
    try:
        url = urlsplit(text)
        return place_of(url) if url.hostname else ""
    except ValueError:
        return ""


class WebhookRecords:
    """Webhooks as sealed bytes, and back."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        """The first key seals webhooks, and all keys open them."""
        self._seal = RecordSeal(keys, SEALED_AS)

    def sealed(self, key: WebhookKey, webhook: SealedWebhook) -> bytes:
        """A webhook as sealed bytes. They can be opened only with its task and its id."""
        text = {
            "config": webhook.config.to_object(),
            "mark": webhook.mark,
            "extensions": sorted(webhook.extensions),
            "gets_tasks": webhook.gets_tasks,
        }
        return self._seal.seal(json.dumps(text).encode(), "\n".join(key).encode())

    def opened(self, webhook: Webhook) -> SealedWebhook:
        """The reverse of `sealed`.

        Raises:
            SealedRecordError: the key that sealed the webhook is gone, or its bytes are damaged.
        """
        content = json.loads(self._seal.open(webhook.config, "\n".join(webhook.key).encode()))
        config = TaskPushNotificationConfig.model_validate(content["config"])
        gets_tasks = content.get("gets_tasks", False)  # earlier releases do not have this field
        return SealedWebhook(config, content["mark"], frozenset(content["extensions"]), gets_tasks)


class Webhooks:
    """The webhooks of an agent's tasks."""

    def __init__(
        self,
        store: Store,
        records: WebhookRecords,
        rules: WebhookRules,
        ids: IdsAndClock,
        new_mark: Callable[[], str] = lambda: secrets.token_hex(12),
        notify: Notify = ignore_notice,
        face: str = "",
    ) -> None:
        """`notify` is called with each webhook that a message asks for, in which `face` is the name of the agent."""
        self._notify = notify
        self._face = face
        self._store = store
        self._records = records
        self._rules = rules
        self._ids = ids
        self._new_mark = new_mark
        self._of_ended = _EndedTasks()

    # In a message

    async def requested(
        self,
        config: TaskPushNotificationConfig,
        owner: str,
        task_id: str | None,
        extensions: frozenset[str],
    ) -> AskedWebhook:
        """A webhook that a message asks for, if there is room for it.

        Raises:
            A2AError: INVALID_PARAMS, or OVERLOADED if there are too many.
        """
        gets_tasks = _gets_tasks(config)
        config = self._checked(config, "configuration.taskPushNotificationConfig.")
        limits, there = self._rules.limits, await self._store.outbox.of_task(task_id) if task_id else ()
        others = [
            webhook for webhook in there if not webhook.is_given_up and webhook.key.webhook_id != config.id
        ]
        if len(others) >= limits.each_task or await self._store.outbox.count_of(owner) >= limits.each_owner:
            raise _too_many(limits)
        return AskedWebhook(config, extensions, gets_tasks)

    def made(self, request: AskedWebhook, task_id: str, owner: str) -> Webhook:
        """A webhook of a task, to be stored with an event of the task."""
        key = WebhookKey(task_id, request.config.id or "")
        config = request.config.changed(task_id=task_id)
        webhook = SealedWebhook(config, self._new_mark(), request.extensions, request.gets_tasks)
        sealed = self._records.sealed(key, webhook)
        return Webhook(key, owner, self._ids.now_ms(), sealed)

    def made_of_message(self, request: AskedWebhook, task_id: str, owner: str) -> Webhook:
        """See `made`. This webhook is asked for by a message."""
        self._notify(WebhookAsked(self._face, owner, task_id, target_of(request.config.url)))
        return self.made(request, task_id, owner)

    # Operations

    async def create(
        self, config: TaskPushNotificationConfig, task_id: str, owner: str, extensions: frozenset[str]
    ) -> TaskPushNotificationConfig:
        """Add a webhook to a task, or replace the webhook of the same id. A webhook of an ended task gets the task, but
        not more than once a minute.

        Raises:
            A2AError: INVALID_PARAMS; or OVERLOADED, if there are too many webhooks, or too much was sent of ended
                tasks.
        """
        checked, now_ms = self._checked(config), self._ids.now_ms()
        webhook = self.made(AskedWebhook(checked, extensions, _gets_tasks(config)), task_id, owner)
        if not self._of_ended.has_room(
            owner, self._rules.limits.ended_bytes, now_ms
        ) and await self._has_ended(task_id):
            raise _too_much_of_ended()
        try:
            has_ended = await self._store.outbox.add(webhook, self._rules.limits)
        except WebhookLimitError as exc:
            raise _too_many(self._rules.limits) from exc
        except StoreConflictError as exc:
            raise task_not_found(task_id) from exc
        mark = blake2b(checked.model_dump_json().encode(), digest_size=12).digest()
        is_due = has_ended and not self._of_ended.was_sent(webhook.key, mark, now_ms)
        if is_due and (row := await self.row_of(task_id)) is not None:
            if not self._of_ended.has_room(owner, self._rules.limits.ended_bytes, now_ms):
                # Other requests may have used up the room since the first look.
                await self._store.outbox.remove(webhook.key)
                raise _too_much_of_ended()
            self._of_ended.sends(webhook.key, mark, owner, len(row.event), now_ms)
            await self._store.outbox.put(webhook.key, row)
        return self._without_secrets(webhook)

    async def _has_ended(self, task_id: str) -> bool:
        stored = await self._store.load(task_id)
        return stored is not None and stored.head.ended

    async def row_of(self, task_id: str) -> OutboxRow | None:
        """The present task, as a row; None if it is gone."""
        stored = await self._store.load(task_id)
        if stored is None:
            return None
        task, _ = folded(stored)
        return OutboxRow(stored.seq, made(StreamResponse, task=task).to_json())

    async def get(
        self, task_id: str, request: GetTaskPushNotificationConfigRequest
    ) -> TaskPushNotificationConfig:
        """A webhook of a task; without an id, the newest webhook.

        Raises:
            A2AError: TASK_NOT_FOUND, the task has no such webhook.
        """
        webhooks = await self._store.outbox.of_task(task_id)
        wanted = [webhook for webhook in webhooks if request.id in ("", webhook.key.webhook_id)]
        if not wanted:
            raise _no_such_webhook(request.task_id)
        return self._without_secrets(wanted[-1])

    async def list(
        self, task_id: str, request: ListTaskPushNotificationConfigsRequest
    ) -> ListTaskPushNotificationConfigsResponse:
        """A page of the webhooks of a task, the oldest first. The token of a page is the id of the last webhook before
        the page.

        Raises:
            A2AError: INVALID_PARAMS for a foreign page token.
        """
        webhooks = list(await self._store.outbox.of_task(task_id))
        if request.page_token:
            ids = [webhook.key.webhook_id for webhook in webhooks]
            if request.page_token not in ids:
                raise invalid_params(
                    Violation("pageToken", "is not a token that was given out for this task")
                )
            webhooks = webhooks[ids.index(request.page_token) + 1 :]
        page = webhooks[: request.page_size]
        token = page[-1].key.webhook_id if len(page) < len(webhooks) else None
        return ListTaskPushNotificationConfigsResponse(
            configs=tuple(map(self._without_secrets, page)), next_page_token=token
        )

    async def delete(self, task_id: str, request: DeleteTaskPushNotificationConfigRequest) -> Empty:
        """Delete a webhook and its waiting notifications. A missing webhook counts as deleted."""
        key = WebhookKey(task_id, request.id)
        await self._store.outbox.remove(key)
        self._of_ended.forget(key)
        return Empty()

    def _without_secrets(self, webhook: Webhook) -> TaskPushNotificationConfig:
        """A webhook without its secrets."""
        try:
            config = self._records.opened(webhook).config
        except SealedRecordError:
            config = TaskPushNotificationConfig(id=webhook.key.webhook_id, url="")
            webhook_failure: str | None = "the key that sealed this config is gone: create it again"
        else:
            webhook_failure = webhook.failure
        authentication = config.authentication and config.authentication.changed(credentials=None)
        visible = config.changed(task_id=webhook.key.task_id, token=None, authentication=authentication)
        if webhook_failure is None:
            return visible
        delivery: JsonObject = {
            "failure": webhook_failure,
            "attempts": webhook.attempts,
            "givenUp": webhook.is_given_up,
        }
        return visible.model_copy(update={DELIVERY: delivery})

    def _checked(self, config: TaskPushNotificationConfig, above: str = "") -> TaskPushNotificationConfig:
        """The config, checked and with an id. A missing id is derived from the URL, so that the same URL twice is one
        webhook.

        Raises:
            A2AError: INVALID_PARAMS, with every invalid field.
        """
        authentication = config.authentication
        faults = [
            ("url", self._fault_of_url(config.url)),
            ("token", _fault_of_secret(config.token)),
            ("authentication.scheme", _fault_of_scheme(authentication.scheme if authentication else None)),
            (
                "authentication.credentials",
                _fault_of_secret(authentication.credentials if authentication else None),
            ),
            ("id", "is too long" if config.id and len(config.id) > MAX_SECRET // 8 else None),
        ]
        if violations := [Violation(f"{above}{name}", fault) for name, fault in faults if fault]:
            raise invalid_params(*violations)
        webhook_id = config.id or blake2b(config.url.encode(), digest_size=12).hexdigest()
        return TaskPushNotificationConfig(
            id=webhook_id, url=config.url, token=config.token or None, authentication=authentication
        )

    def _fault_of_url(self, text: str) -> str | None:
        try:
            url = urlsplit(text)
            place = place_of(url)
        except ValueError:
            return "is not a URL"
        if url.scheme not in _PORTS or not url.hostname or len(text) > MAX_URL or not text.isprintable():
            return "must be an http or https URL with a host"
        if url.username is not None or url.password is not None or " " in text:
            return "must not hold a user, a password or spaces"
        if _NUMBER.search(url.hostname.rstrip(".")) and not is_ip_address(url.hostname):
            return "must not hold an address in another form than four numbers"
        if is_private_host(url.hostname) and place not in self._rules.allow:
            return f'leads to this machine or its network; the operator may allow it by `push.allow = ["{place}"]`'
        if url.scheme == "http" and not is_loopback(url.hostname):
            return "must be https beyond this machine"
        return None


class _EndedTasks:
    """The ended tasks that were sent to webhooks created after the task's end. Each such request of a client sends a
    whole task, which may be a thousand times as large as the request, to a URL of the client's choice."""

    def __init__(self) -> None:
        self._sent: dict[WebhookKey, tuple[bytes, int]] = {}
        """The mark of the config that last got its task, and the time."""
        self._bytes: dict[str, tuple[int, int]] = {}
        """By owner: the beginning of the present minute, and the bytes sent in it."""

    def has_room(self, owner: str, most_bytes: int, now_ms: int) -> bool:
        """Whether more may be sent for an owner. The last task of a minute may go beyond the bound."""
        since, sent = self._bytes.get(owner, (now_ms, 0))
        return sent < most_bytes or not 0 <= now_ms - since < _MINUTE_MS

    def was_sent(self, key: WebhookKey, mark: bytes, now_ms: int) -> bool:
        """Whether the same config got its task within the last minute."""
        sent, sent_ms = self._sent.get(key, (b"", 0))
        return sent == mark and 0 <= now_ms - sent_ms < _MINUTE_MS

    def forget(self, key: WebhookKey) -> None:
        """Forget a deleted config, whose waiting notifications are gone. If it is created again, it gets its task
        again."""
        self._sent.pop(key, None)

    def sends(self, key: WebhookKey, mark: bytes, owner: str, size: int, now_ms: int) -> None:
        """Note that a task is being sent."""
        since, sent = self._bytes.get(owner, (now_ms, 0))
        is_new = not 0 <= now_ms - since < _MINUTE_MS
        self._bytes[owner] = (now_ms, size) if is_new else (since, sent + size)
        self._sent[key] = mark, now_ms
        if len(self._sent) > _MARKS_MOST:
            self._sent = dict([*self._sent.items()][_MARKS_MOST // 2 :])
            self._bytes = {other: at for other, at in self._bytes.items() if 0 <= now_ms - at[0] < _MINUTE_MS}


_MINUTE_MS: Final = 60_000
_MARKS_MOST: Final = 2_000


def _fault_of_secret(text: str | None) -> str | None:
    if not text or (len(text) <= MAX_SECRET and _VISIBLE.fullmatch(text)):
        return None
    return f"must be at most {MAX_SECRET} visible ASCII characters, without line breaks"


def _fault_of_scheme(text: str | None) -> str | None:
    if text is None or (len(text) <= MAX_SECRET and _TOKEN.fullmatch(text)):
        return None
    return "must be the name of a scheme, such as Bearer"


def _too_many(limits: WebhookLimits) -> A2AError:
    return A2AError(
        OVERLOADED,
        f"There are too many push notification configs: at most {limits.each_task} a task and {limits.each_owner} of"
        " all tasks of yours; delete some",
        headers={"Retry-After": "5"},
    )


def _too_much_of_ended() -> A2AError:
    return A2AError(
        OVERLOADED,
        "The push notification configs that you created on ended tasks have used up their limit: try again in a minute,"
        " or read the task",
        headers={"Retry-After": "60"},
    )


def _gets_tasks(config: TaskPushNotificationConfig) -> bool:
    return (config.model_extra or {}).get(GETS_TASKS) is True


def _no_such_webhook(task_id: str) -> A2AError:
    error = task_not_found(task_id)
    return A2AError(error.kind, "The task has no such push notification config", metadata=error.metadata)
