"""A receiver of push notifications that fails now and then, and what has to hold of all that came to it.

Of each webhook:

- *Everything arrives*: each event that streams tell comes, once it is stored.
- *In order*: an event comes for the first time only after the event before it was taken.
- *The same again*: what comes twice has the same id and the same body, and nothing else has that id.
- *No redirect is followed.*

A message that is sent again once it was answered may be a second task, which has the same webhook. So all of this is
of the notifications of one task.
"""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import anyio
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tests.shake.history import Stored
from tests.shake.marks import mark_of_event, task_of_event
from tests.support.running import listening

ATTEMPT_SECONDS: Final = 3
"""How long the replicas wait for an answer."""
_ELSEWHERE: Final = "/elsewhere"
_AWAY_EACH_SECONDS: Final = 25.0
_AWAY_SECONDS: Final = 3.0
_ANSWERS: Final[Mapping[str, int]] = {"taken": 80, "slow": 6, "500": 6, "429": 4, "302": 3, "too slow": 1}
"""How often each answer is given, of a hundred."""


class Arrived(NamedTuple):
    """One notification."""

    path: str
    task_id: str
    webhook_id: str
    mark: str
    digest: bytes
    """Of the body."""
    is_taken: bool


@dataclass
class ShakenHooks:
    """Takes notifications, or does not."""

    chance: random.Random
    root_url: str = ""
    arrived: list[Arrived] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    """How often each answer was given."""
    began: float = field(default_factory=time.monotonic)
    is_over: bool = False
    """Whether everything is taken from now on."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take a notification."""
        request = Request(scope, receive)
        try:
            body = await request.body()
        except ClientDisconnect:  # the replica was killed while it sent
            return
        what = self._answer(request.url.path)
        self.done[what] += 1
        event = None if what == "elsewhere" else json.loads(body)
        headers = {"302": {"location": _ELSEWHERE}, "429": {"retry-after": "1"}}.get(what, {})
        status = {"302": 302, "429": 429, "500": 500, "away": 503}.get(what, 204)
        # What is taken too late was taken all the same: the sender cannot know, and sends it again.
        self.arrived.append(
            Arrived(
                request.url.path,
                "" if event is None else task_of_event(event),
                request.headers.get("webhook-id", ""),
                "" if event is None else mark_of_event(event),
                hashlib.sha256(body).digest(),
                status == 204,
            )
        )
        if what in ("slow", "too slow"):
            await anyio.sleep(0.3 if what == "slow" else ATTEMPT_SECONDS + 1)
        await Response(status_code=status, headers=headers)(scope, receive, send)

    def _answer(self, path: str) -> str:
        if path == _ELSEWHERE:
            return "elsewhere"
        if self.is_over:
            return "taken"
        if (time.monotonic() - self.began) % _AWAY_EACH_SECONDS > _AWAY_EACH_SECONDS - _AWAY_SECONDS:
            return "away"
        (what,) = self.chance.choices(list(_ANSWERS), weights=list(_ANSWERS.values()))
        return what

    @property
    def repeats(self) -> int:
        """How many notifications came again that had been taken."""
        taken = Counter((one.path, one.webhook_id) for one in self.arrived if one.is_taken)
        return sum(number - 1 for number in taken.values())


@asynccontextmanager
async def hooks_of(chance: random.Random) -> AsyncIterator[ShakenHooks]:
    """Listen on a free port."""
    hooks = ShakenHooks(chance)
    async with listening(hooks) as root_url:
        hooks.root_url = root_url
        yield hooks


def faults_of_webhooks(arrived: Sequence[Arrived], stored: Stored, paths: Mapping[str, str]) -> Iterator[str]:
    """What is wrong with what arrived. `paths` has the path of the webhook of each task that has one."""
    at_path: defaultdict[tuple[str, str], list[Arrived]] = defaultdict(list)
    for one in arrived:
        if one.path == _ELSEWHERE:
            yield "a redirect of a webhook was followed"
        else:
            at_path[one.path, one.task_id].append(one)
    for task_id, path in paths.items():
        told = [event.mark for event in stored.get(task_id, ()) if event.is_told]
        yield from _faults_at(task_id, at_path.pop((path, task_id), []), told)
    for path, task_id in at_path:
        yield f"something of the task {task_id} came to {path}, which is not its webhook"


def _faults_at(task_id: str, arrived: Sequence[Arrived], told: Sequence[str]) -> Iterator[str]:
    first: dict[str, Arrived] = {}
    taken: set[str] = set()
    for one in arrived:
        before = first.setdefault(one.webhook_id, one)
        if before.digest != one.digest:
            yield f"the webhook of {task_id} got {one.webhook_id} twice with different bodies"
        if before is one and (open_ids := [each for each in first if each not in taken | {one.webhook_id}]):
            yield f"the webhook of {task_id} got {one.mark} before it had taken {open_ids}"
        if one.is_taken:
            taken.add(one.webhook_id)
    marks = [one.mark for one in first.values()]
    if marks != [*told] or len(taken) != len(first):
        missing = [mark for mark in told if mark not in marks]
        yield f"the webhook of {task_id} took {len(taken)} of {len(told)} events, without {missing}: {marks}"
