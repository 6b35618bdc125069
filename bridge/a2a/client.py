"""A client of A2A agents: performs operations over JSON-RPC 1.0.

It knows the wire and nothing of what the messages are for. It is strict in what it sends and liberal in what
it reads. Whatever the other side does wrong becomes a PeerError that names the URL and the fault.

Spec: A2A 1.0 sections 9 (JSON-RPC), 3.2.6 (service parameters).
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Final, TypeVar

import httpx2
from pydantic import JsonValue, ValidationError

from bridge.a2a import models
from bridge.a2a.card import interface_of
from bridge.a2a.errors import INTERNAL, Violation
from bridge.a2a.fetch import body_of, exchange, faults_of, json_from, short, shown, status_words
from bridge.a2a.gating import EXTENSIONS_HEADER
from bridge.a2a.models import AgentCard, Message, StreamResponse, Task
from bridge.a2a.operations import Operation
from bridge.a2a.versions import CURRENT, HEADER
from bridge.errors import PeerError
from bridge.sse import EventReader

ANSWER_LIMIT_BYTES: Final = 64 * 1024 * 1024
"""What one answer, or one event of a stream, may weigh: as much as a tool's result may."""

_M = TypeVar("_M", bound=models.Model)


class AgentRefusedError(PeerError):
    """The agent answered with an error."""

    def __init__(
        self, code: int, message: str, reason: str | None = None, violations: tuple[Violation, ...] = ()
    ) -> None:
        more = "".join(f"\n  {one.field}: {one.description}" for one in violations)
        super().__init__(f"the agent refused: {message} ({reason or code}){more}")
        self.code = code
        self.message = message
        self.reason = reason
        """The reason of its ErrorInfo, such as TASK_NOT_FOUND."""
        self.violations = violations


class AgentClient:
    """Performs operations on one agent."""

    def __init__(
        self,
        http: httpx2.AsyncClient,
        card: AgentCard,
        extensions: Iterable[str] = (),
        limit_bytes: int = ANSWER_LIMIT_BYTES,
    ) -> None:
        """`extensions` are the URIs to activate; those that the card does not declare are left out.

        Raises:
            PeerError: the card has no interface that this client speaks.
        """
        declared = {extension.uri for extension in card.capabilities.extensions or ()}
        self.interface = interface_of(card)
        self._http = http
        self._limit_bytes = limit_bytes
        self._numbers = itertools.count(1)
        self._headers = {HEADER: CURRENT}
        if active := [uri for uri in dict.fromkeys(extensions) if uri in declared]:
            self._headers[EXTENSIONS_HEADER] = ", ".join(active)

    async def send(self, request: models.SendMessageRequest) -> Task | Message:
        """Send a message and wait for what the agent answers with (section 3.1.1).

        Raises:
            AgentRefusedError: the agent answered with an error.
            PeerError: it cannot be reached, or its answer is no answer. (Both hold for every operation.)
        """
        result = await self._perform(Operation.SEND_MESSAGE, request)
        payload = self._read(StreamResponse, result).payload
        if not isinstance(payload, Task | Message):
            raise PeerError(f"{self} answered a message with an update, not with a task or a message")
        return payload

    def stream(self, request: models.SendMessageRequest) -> AsyncGenerator[StreamResponse, None]:
        """Send a message and give each event as it comes (section 3.1.2). Close what is not read to its end."""
        return self._events(Operation.SEND_STREAMING_MESSAGE, request)

    def subscribe(self, task_id: str) -> AsyncGenerator[StreamResponse, None]:
        """The task as it is now, then each further event (section 3.1.6)."""
        return self._events(Operation.SUBSCRIBE_TO_TASK, models.SubscribeToTaskRequest(id=task_id))

    async def get(self, task_id: str, history_length: int | None = None) -> Task:
        """The task as it is now (section 3.1.3)."""
        request = models.GetTaskRequest(id=task_id, history_length=history_length)
        return self._read(Task, await self._perform(Operation.GET_TASK, request))

    async def cancel(self, task_id: str) -> Task:
        """Cancel a task; the task as it is then (section 3.1.5)."""
        request = models.CancelTaskRequest(id=task_id)
        return self._read(Task, await self._perform(Operation.CANCEL_TASK, request))

    def __str__(self) -> str:
        return shown(self.interface.url)

    async def _perform(self, operation: Operation, request: models.Model) -> JsonValue:
        async with self._call(operation, request) as response:
            return self._result(await body_of(response, self._limit_bytes), response)

    async def _events(
        self, operation: Operation, request: models.Model
    ) -> AsyncGenerator[StreamResponse, None]:
        async with self._call(operation, request, accept="text/event-stream") as response:
            if not response.headers.get("content-type", "").startswith("text/event-stream"):
                # An error, or an agent that has all to say at once.
                result = self._result(await body_of(response, self._limit_bytes), response)
                yield self._read(StreamResponse, result)
                return
            events = EventReader(self._limit_bytes)
            async for chunk in response.aiter_bytes():
                try:
                    texts = [event.data for event in events.feed(chunk)]
                except ValueError as exc:
                    raise PeerError(f"{self} sent {exc}") from exc
                for text in texts:
                    yield self._read(StreamResponse, self._result(text, response))

    @asynccontextmanager
    async def _call(
        self, operation: Operation, request: models.Model, accept: str = "application/json"
    ) -> AsyncIterator[httpx2.Response]:
        tenant = {"tenant": self.interface.tenant} if self.interface.tenant else {}
        call = {
            "jsonrpc": "2.0",
            "id": next(self._numbers),
            "method": operation.value,
            "params": {**request.to_object(), **tenant},
        }
        headers = {**self._headers, "Accept": accept}
        async with exchange(self._http, "POST", self.interface.url, headers, call) as response:
            yield response

    def _result(self, text: bytes, response: httpx2.Response) -> JsonValue:
        """The result in a JSON-RPC answer, whatever the HTTP status is."""
        try:
            answer = json_from(text, str(self))
        except PeerError:
            if response.is_success:
                raise
            raise PeerError(status_words(response)) from None
        if isinstance(answer, dict) and isinstance(error := answer.get("error"), dict):
            raise _refusal(error)
        if not response.is_success:
            raise PeerError(status_words(response))
        if not isinstance(answer, dict) or "result" not in answer:
            raise PeerError(f"{self} answered with something that is no JSON-RPC answer: {short(answer)}")
        return answer["result"]

    def _read(self, model: type[_M], value: JsonValue) -> _M:
        try:
            return model.model_validate(value)
        except ValidationError as exc:
            faults = "; ".join(faults_of(exc))
            raise PeerError(f"{self} answered with something that is no {model.__name__}: {faults}") from exc


def _refusal(error: dict[str, JsonValue]) -> AgentRefusedError:
    code, message, data = error.get("code"), error.get("message"), error.get("data")
    reason: str | None = None
    violations: list[Violation] = []
    for detail in data if isinstance(data, list) else ():
        if not isinstance(detail, dict):
            continue
        if isinstance(said := detail.get("reason"), str):
            reason = said
        found = detail.get("fieldViolations")
        for one in found if isinstance(found, list) else ():
            if isinstance(one, dict):
                violations.append(Violation(str(one.get("field", "")), str(one.get("description", ""))))
    return AgentRefusedError(
        code if isinstance(code, int) else INTERNAL.jsonrpc_code,
        message if isinstance(message, str) and message else short(error),
        reason,
        tuple(violations),
    )
