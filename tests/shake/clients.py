"""Clients of the agent that is shaken, and a record of all that they were told."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final
from uuid import UUID

import anyio
import httpx2

from tests.shake.balancer import PATIENCE_SECONDS, NoAnswerError
from tests.shake.history import Listed, Seen, Shown, Told
from tests.shake.marks import ends, mark_of_event, view_of
from tests.support.drivers import Driver, Events, state_of
from tests.support.running import call_part

Json = Any

_AGAIN: Final = {"UNAVAILABLE", "OVERLOADED"}
"""The reasons of refusals after which a client asks again."""
_FOR_ENDED: Final = {"TASK_NOT_CANCELABLE", "UNSUPPORTED_OPERATION"}
"""The reasons of refusals that a task gives that has ended meanwhile."""
_SILENT_SECONDS: Final = 8.0
"""After so long without a heartbeat a stream is taken for broken."""
_NEVER_TWICE: Final = {"quick", "slow", "steps", "word"}
_PAGE: Final = 50
_WITH_WEBHOOK: Final = 0.25


class RefusedError(Exception):
    """The agent refused a request, in a way that trying again does not help."""


@dataclass
class Record:
    """What all clients were told."""

    seen: list[Seen] = field(default_factory=list)
    lists: list[Listed] = field(default_factory=list)
    answered: list[tuple[str, str]] = field(default_factory=list)
    owners: dict[str, str] = field(default_factory=dict)
    never_twice: set[str] = field(default_factory=set)
    """The messages whose work must not be done twice. Others may be new messages once they were answered."""
    faults: list[str] = field(default_factory=list)
    """What no client may be told."""
    done: Counter[str] = field(default_factory=Counter)
    """How many operations of each kind were done."""
    streams: count[int] = field(default_factory=count)
    webhooks: dict[str, str] = field(default_factory=dict)
    """The path of the webhook that each of these messages named."""

    def show(
        self, task: Json, began: float, stream: int | None = None, *, with_artifacts: bool = True
    ) -> None:
        """Note a task in an answer."""
        view = view_of(task, with_artifacts=with_artifacts)
        self.seen.append(Shown(task["id"], view, began, time.monotonic(), stream))


@dataclass
class ShakenClient:
    """One client of one principal, by one binding."""

    driver: Driver
    owner: str
    record: Record
    chance: random.Random
    hooks_url: str
    """Where its webhooks are."""

    async def run(self, over: anyio.Event) -> None:
        """Do one thing after another until it is over."""
        while not over.is_set():
            ((name, act),) = self.chance.choices(
                list(_ACTS.items()), weights=[_WEIGHTS[name] for name in _ACTS]
            )
            await self._try(name, act(self))
            if self.chance.random() < 0.3:
                await self._try("list", self._list())

    async def _try(self, name: str, act: Awaitable[None]) -> None:
        try:
            await act
        except RefusedError as refused:
            self.record.faults.append(f"{name} was refused: {refused}")
        except NoAnswerError as exc:
            self.record.faults.append(f"{name} was not answered within {PATIENCE_SECONDS:g} s: {exc}")
        else:
            self.record.done[name] += 1

    # What it does

    async def quick(self) -> None:
        """Wait for the result of a quick call."""
        await self._until_ended(await self._send("quick"))

    async def slow(self) -> None:
        """Begin a slow call, and look at it until it ends."""
        await self._until_ended(await self._send("slow", seconds=self.chance.uniform(0.2, 2), at_once=True))

    async def watch(self) -> None:
        """Read a call's stream, and subscribe again where it breaks."""
        message = self._message("steps", steps=self.chance.randint(2, 12))
        await self._follow("SendStreamingMessage", message)

    async def subscribe(self) -> None:
        """Begin a call, and subscribe to it later."""
        task = await self._send("steps", steps=self.chance.randint(2, 12), at_once=True)
        await anyio.sleep(self.chance.random())
        await self._follow("SubscribeToTask", {"id": task["id"]}, task["id"])

    async def cancel(self) -> None:
        """Cancel a slow call. A task that ended before is refused in words."""
        task = await self._send("slow", seconds=self.chance.uniform(0.5, 3), at_once=True)
        with _unless_ended():
            await self._task("CancelTask", {"id": task["id"]})
        await self._until_ended(task)

    async def answer(self) -> None:
        """Answer the question of an open call."""
        await self._answer(await self._send("word"), {"word": "yes"})

    async def answer_at_rest(self) -> None:
        """Answer a question that waits without a call."""
        await self._answer(await self._send("ask", with_key=False), {"name": "Ann"})

    async def job(self) -> None:
        """Wait for a task that the tool server keeps by itself."""
        task = await self._send("task-job", with_key=False, steps=3, seconds=1.5, at_once=True)
        await self._until_ended(task)

    async def _answer(self, task: Json, data: Json) -> None:
        if state_of(task) == "INPUT_REQUIRED":
            await anyio.sleep(self.chance.random())
            said = {"messageId": self._id(), "role": "ROLE_USER", "taskId": task["id"]}
            self.record.never_twice.add(said["messageId"])
            with _unless_ended():
                await self._task("SendMessage", {"message": {**said, "parts": [{"data": data}]}})
                mark = f"message {said['messageId']}"
                self.record.seen.append(Told(task["id"], mark, time.monotonic()))
            task = await self._task("GetTask", {"id": task["id"]})
        await self._until_ended(task)

    async def _list(self) -> None:
        began = time.monotonic()
        page = await self._call("ListTasks", {"pageSize": _PAGE})
        times = [task["status"]["timestamp"] for task in page["tasks"]]
        for task in page["tasks"]:
            self.record.show(task, began, with_artifacts=False)
        if times != sorted(times, reverse=True):
            self.record.faults.append(f"a list is out of order: {times}")
        oldest = times[-1] if page.get("nextPageToken") else ""
        self.record.lists.append(
            Listed(self.owner, tuple(task["id"] for task in page["tasks"]), oldest, began)
        )

    async def look(self, task_id: str) -> None:
        """Read a task."""
        await self._try("look", self._look(task_id))

    async def _look(self, task_id: str) -> None:
        await self._task("GetTask", {"id": task_id})

    # Its requests

    def _id(self) -> str:
        return str(UUID(int=self.chance.getrandbits(128)))

    def _message(self, tool: str, *, with_key: bool = True, at_once: bool = False, **arguments: Json) -> Json:
        message_id = self._id()
        if with_key:
            arguments["key"] = message_id
        if tool in _NEVER_TWICE:
            self.record.never_twice.add(message_id)
        said = {"messageId": message_id, "role": "ROLE_USER", "parts": [call_part(tool, **arguments)]}
        configuration: Json = {"returnImmediately": True} if at_once else {}
        if self.chance.random() < _WITH_WEBHOOK:
            path = self.record.webhooks[message_id] = f"/{message_id}"
            configuration["taskPushNotificationConfig"] = {"url": self.hooks_url + path}
        return {"message": said, **({"configuration": configuration} if configuration else {})}

    async def _send(self, tool: str, **arguments: Any) -> Json:
        return await self._task("SendMessage", self._message(tool, **arguments))

    async def _task(self, operation: str, params: Json) -> Json:
        began = time.monotonic()
        result = await self._call(operation, params)
        task = result["task"] if operation == "SendMessage" else result
        self._note(task, began, params)
        return task

    def _note(self, task: Json, began: float, params: Json, stream: int | None = None) -> None:
        self.record.owners[task["id"]] = self.owner
        self.record.show(task, began, stream)
        if "message" in params:
            self.record.answered.append((params["message"]["messageId"], task["id"]))

    async def _call(self, operation: str, params: Json) -> Json:
        ends_at = anyio.current_time() + PATIENCE_SECONDS
        while True:
            response = await self.driver.client.send(self.driver.request(operation, params))
            answer = self.driver.answer_from(response)
            if answer.fault is None:
                return answer.result
            if answer.fault.reason not in _AGAIN or anyio.current_time() > ends_at:
                raise RefusedError(f"{operation}: {answer.fault.reason}: {answer.fault.message}")
            self.record.done[f"again after {answer.fault.reason}"] += 1
            await anyio.sleep(0.2)

    async def _until_ended(self, task: Json) -> None:
        pause, ends_at = 0.05, anyio.current_time() + PATIENCE_SECONDS
        while not ends(view_of(task).status) and state_of(task) != "INPUT_REQUIRED":
            if anyio.current_time() > ends_at:
                raise RefusedError(f"{task['id']} does not end: {task['status']}")
            await anyio.sleep(pause)
            pause = min(1.0, pause * 2)
            task = await self._task("GetTask", {"id": task["id"]})

    # Its streams

    async def _follow(self, operation: str, params: Json, task_id: str | None = None) -> None:
        """Read streams until the task ends."""
        ends_at = anyio.current_time() + PATIENCE_SECONDS
        while anyio.current_time() < ends_at:
            stream, began = next(self.record.streams), time.monotonic()
            response = await self.driver.client.send(self.driver.request(operation, params), stream=True)
            try:
                if response.headers["content-type"] != "text/event-stream":
                    await response.aread()
                    if await self._is_over(response, operation, task_id):
                        return
                    continue
                with suppress(httpx2.TransportError, TimeoutError):
                    task_id, is_over = await self._read(Events(self.driver, response), stream, began, params)
                    if is_over:
                        return
            finally:
                await response.aclose()
            self.record.done["streams broken"] += 1
            if task_id is not None:
                operation, params = "SubscribeToTask", {"id": task_id}
        raise RefusedError(f"{task_id} does not end on its stream")

    async def _is_over(self, response: httpx2.Response, operation: str, task_id: str | None) -> bool:
        """Whether a refusal to stream says that the task has ended."""
        fault = self.driver.answer_from(response).fault
        if fault is None:
            raise RefusedError(f"{operation}: {response.text}")
        if fault.reason in _AGAIN:
            await anyio.sleep(0.2)
            return False
        if task_id is None or fault.reason not in _FOR_ENDED:
            raise RefusedError(f"{operation}: {fault.reason}: {fault.message}")
        await self._until_ended(await self._task("GetTask", {"id": task_id}))
        return True

    async def _read(self, events: Events, stream: int, began: float, params: Json) -> tuple[str, bool]:
        """Read a stream to its end. Returns the id of its task, and whether the task ended."""
        task_id, is_over = "", False
        while True:
            try:
                with anyio.fail_after(_SILENT_SECONDS):
                    event = await events.next()
            except (httpx2.TransportError, TimeoutError, AssertionError):
                if not task_id:
                    raise TimeoutError from None
                return task_id, False
            if event is None:
                if not is_over and task_id:
                    self.record.done["streams ended early"] += 1
                return task_id, is_over
            task = event.get("task")
            if task is not None:
                task_id = task["id"]
                self._note(task, began, params, stream)
                is_over = ends(view_of(task).status)
            else:
                ((_, said),) = event.items()
                self.record.seen.append(Told(said["taskId"], mark_of_event(event), time.monotonic(), stream))
                is_over = is_over or ("status" in said and ends(mark_of_event(event)))


class _unless_ended(suppress):
    """Go on where a task refuses since it has ended."""

    def __init__(self) -> None:
        super().__init__(RefusedError)

    def __exit__(self, kind: Any, exc: Any, trace: Any) -> bool:
        is_refused = isinstance(exc, RefusedError)
        return is_refused and any(reason in str(exc) for reason in _FOR_ENDED)


_ACTS: Final[Mapping[str, Callable[[ShakenClient], Awaitable[None]]]] = {
    "quick": ShakenClient.quick,
    "slow": ShakenClient.slow,
    "watch": ShakenClient.watch,
    "subscribe": ShakenClient.subscribe,
    "cancel": ShakenClient.cancel,
    "answer": ShakenClient.answer,
    "answer at rest": ShakenClient.answer_at_rest,
    "job": ShakenClient.job,
}
_WEIGHTS: Final = {
    "quick": 6,
    "slow": 2,
    "watch": 3,
    "subscribe": 2,
    "cancel": 2,
    "answer": 2,
    "answer at rest": 2,
    "job": 1,
}


def copies_noted(record: Record) -> Callable[[httpx2.Request, httpx2.Response], None]:
    """Notes the task that the second one of two equal messages was answered with."""

    def note(request: httpx2.Request, response: httpx2.Response) -> None:
        sent = json.loads(request.content)
        message = sent.get("params", sent)["message"]
        for line in response.text.splitlines():
            body = json.loads(line.removeprefix("data: ")) if line[:1] in "{d" and line else {}
            task = body.get("result", body).get("task") if isinstance(body, dict) else None
            if task is not None:
                record.answered.append((message["messageId"], task["id"]))

    return note
