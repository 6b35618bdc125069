"""A client of A2A agents: reads their cards, and speaks JSON-RPC 1.0 with them over HTTP.

It knows the wire and nothing of what the messages are for. It is strict in what it sends and liberal in what
it reads: a card that lacks what one can do without is read, and says what it lacks. Whatever the other side
does wrong becomes a PeerError that names the URL and the fault.

Credentials are the HTTP client's. They stay with the origin that they were given for: a redirect to another
one is not followed.

Spec: A2A 1.0 sections 8 (card), 9 (JSON-RPC), 3.2.6 (service parameters).
"""

from __future__ import annotations

import itertools
import json
import os
import re
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

import httpx2
from pydantic import JsonValue, ValidationError

from bridge.a2a import models
from bridge.a2a.errors import INTERNAL, A2AError, Violation
from bridge.a2a.jsontext import parse
from bridge.a2a.models import AgentCard, AgentInterface, Message, StreamResponse, Task
from bridge.a2a.operations import Operation
from bridge.a2a.versions import CURRENT, HEADER, require_served
from bridge.errors import PeerError

CARD_PATH: Final = "/.well-known/agent-card.json"
EXTENSIONS_HEADER: Final = "A2A-Extensions"
BINDING: Final = "JSONRPC"

CARD_LIMIT_BYTES: Final = 16 * 1024 * 1024
"""What a card may weigh: one that lists a thousand tools with their schemas has a few megabytes."""

ANSWER_LIMIT_BYTES: Final = 64 * 1024 * 1024
"""What one answer, or one event of a stream, may weigh: as much as a tool's result may."""

_REDIRECTS: Final = 5
_ABSENT: Final = (404, 405, 410)
"""The statuses that say that there is nothing to read here, so that the next place may be tried."""

_LINE_END: Final = re.compile(rb"\r\n|\r|\n")
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


@dataclass(frozen=True)
class FoundCard:
    """A card, where it was found, and its text as it was received."""

    url: str
    text: bytes
    card: AgentCard
    deviations: tuple[str, ...] = ()
    """What in it is not as the specification asks, field by field, though it can be read."""


async def fetch_card(http: httpx2.AsyncClient, url: str) -> FoundCard:
    """The card of the agent at `url`: below it at the well-known path, or, when there is none, `url` itself.

    Raises:
        PeerError: it cannot be reached, or what is there is no card.
    """
    places = _card_places(url)
    for place in places:
        text = await _card_text(http, place)
        if text is not None:
            card, deviations = card_from(text, shown(place))
            return FoundCard(place, text, card, deviations)
    raise PeerError(f"there is no agent card at {' or '.join(map(shown, places))}")


def card_from(text: bytes, where: str) -> tuple[AgentCard, tuple[str, ...]]:
    """A card, and what in it is not as the specification asks.

    Raises:
        PeerError: it cannot be read as a card of A2A 1.0.
    """
    value = _parsed(text, where)
    try:
        return AgentCard.model_validate(value), ()
    except ValidationError as strict:
        if isinstance(value, dict) and "supportedInterfaces" not in value and "url" in value:
            version = value.get("protocolVersion", "0.3 or older")
            raise PeerError(
                f"the card at {where} is of A2A {version}, and this client speaks {CURRENT}: "
                "supportedInterfaces is missing"
            ) from strict
        try:
            return _CardAsRead.model_validate(value), _faults(strict)
        except ValidationError as exc:
            raise PeerError(f"what is at {where} is no agent card: {'; '.join(_faults(exc))}") from exc


def interface_of(card: AgentCard) -> AgentInterface:
    """The first interface of a card that this client speaks.

    Raises:
        PeerError: there is none; it says what the card offers.
    """
    for interface in card.supported_interfaces:
        if interface.protocol_binding.upper() == BINDING and _is_current(interface.protocol_version):
            return interface
    offered = ", ".join(f"{one.protocol_binding} {one.protocol_version}" for one in card.supported_interfaces)
    raise PeerError(f"{card.name} offers {offered}, and this client speaks {BINDING} {CURRENT}")


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
        async with self._exchange(operation, request) as response:
            return self._result(await _body(response, self._limit_bytes), response)

    async def _events(
        self, operation: Operation, request: models.Model
    ) -> AsyncGenerator[StreamResponse, None]:
        async with self._exchange(operation, request, accept="text/event-stream") as response:
            if not response.headers.get("content-type", "").startswith("text/event-stream"):
                # An error, or an agent that has all to say at once.
                result = self._result(await _body(response, self._limit_bytes), response)
                yield self._read(StreamResponse, result)
                return
            events = EventReader(self._limit_bytes)
            async for chunk in response.aiter_bytes():
                try:
                    texts = list(events.feed(chunk))
                except ValueError as exc:
                    raise PeerError(f"{self} sent {exc}") from exc
                for text in texts:
                    yield self._read(StreamResponse, self._result(text, response))

    @asynccontextmanager
    async def _exchange(
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
        async with _exchange(self._http, "POST", self.interface.url, headers, call) as response:
            yield response

    def _result(self, text: bytes, response: httpx2.Response) -> JsonValue:
        """The result in a JSON-RPC answer, whatever the HTTP status is."""
        try:
            answer = _parsed(text, str(self))
        except PeerError:
            if response.is_success:
                raise
            raise PeerError(_status_words(response)) from None
        if isinstance(answer, dict) and isinstance(error := answer.get("error"), dict):
            raise _refusal(error)
        if not response.is_success:
            raise PeerError(_status_words(response))
        if not isinstance(answer, dict) or "result" not in answer:
            raise PeerError(f"{self} answered with something that is no JSON-RPC answer: {_short(answer)}")
        return answer["result"]

    def _read(self, model: type[_M], value: JsonValue) -> _M:
        try:
            return model.model_validate(value)
        except ValidationError as exc:
            faults = "; ".join(_faults(exc))
            raise PeerError(f"{self} answered with something that is no {model.__name__}: {faults}") from exc


class EventReader:
    """Server-sent events out of chunks of bytes, however they are cut. Comments are passed over.

    Spec: HTML, "server-sent events", interpreting an event stream.
    """

    def __init__(self, limit_bytes: int) -> None:
        """`limit_bytes` is what one event may weigh."""
        self._limit_bytes = limit_bytes
        self._line: list[bytes] = []
        self._line_bytes = 0
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._after_return = False

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The data of each event that ends in this chunk.

        Raises:
            ValueError: an event is too large.
        """
        if not chunk:
            return
        if self._after_return:
            chunk = chunk.removeprefix(b"\n")  # the second half of a line end that was cut in two
            self._after_return = False
        self._after_return = chunk.endswith(b"\r")
        *ended, rest = _LINE_END.split(chunk)
        for piece in ended:
            self._grow(piece)
            line = b"".join(self._line)
            self._line, self._line_bytes = [], 0
            if (data := self._event_at(line)) is not None:
                yield data
        self._grow(rest)

    def _grow(self, piece: bytes) -> None:
        self._line.append(piece)
        self._line_bytes += len(piece)
        if self._line_bytes + self._data_bytes > self._limit_bytes:
            raise ValueError(f"an event of more than {self._limit_bytes} bytes")

    def _event_at(self, line: bytes) -> bytes | None:
        """The event that this line ends, if it does."""
        if not line:
            data, self._data, self._data_bytes = self._data, [], 0
            return b"\n".join(data) if data else None
        field, _, value = line.removeprefix(b"\xef\xbb\xbf").partition(b":")
        if field == b"data":
            self._data.append(value.removeprefix(b" "))
            self._data_bytes += len(value) + 1
        return None


class _SkillAsRead(models.AgentSkill):
    """A skill of which no more is asked than that it can be called."""

    description: str = ""
    tags: tuple[str, ...] = ()


class _CardAsRead(AgentCard):
    """A card of which no more is asked than that its agent can be called."""

    description: str = ""
    version: str = ""
    capabilities: models.AgentCapabilities = models.AgentCapabilities()
    default_input_modes: tuple[str, ...] = ()
    default_output_modes: tuple[str, ...] = ()
    skills: tuple[_SkillAsRead, ...] = ()


def shown(url: str) -> str:
    """A URL as it may be said aloud: without credentials and query."""
    try:
        place = httpx2.URL(url)
        return str(place.copy_with(userinfo=b"", query=None, fragment=None))
    except httpx2.InvalidURL:
        return url.partition("?")[0].rpartition("@")[2]


def origin_of(url: str) -> str:
    """Scheme, host and port of a URL: whom it leads to.

    Raises:
        PeerError: it is no URL.
    """
    place = _url(url)
    port = place.port or {"http": 80, "https": 443}.get(place.scheme)
    return f"{place.scheme}://{place.host}:{port}"


def _card_places(url: str) -> tuple[str, ...]:
    place = _url(url).copy_with(fragment=None)
    if place.path.endswith(".json"):
        return (str(place),)
    below = place.copy_with(path=place.path.rstrip("/") + CARD_PATH)
    return str(below), str(place)


async def _card_text(http: httpx2.AsyncClient, url: str) -> bytes | None:
    """What is at a URL; None when nothing is."""
    place = url
    for _ in range(_REDIRECTS + 1):
        headers = {HEADER: CURRENT, "Accept": "application/json"}
        async with _exchange(http, "GET", place, headers) as response:
            if response.has_redirect_location:
                place = _next_place(place, response.headers["location"])
                continue
            if response.status_code in _ABSENT:
                return None
            if not response.is_success:
                raise PeerError(_status_words(response))
            return await _body(response, CARD_LIMIT_BYTES)
    raise PeerError(f"{shown(url)} redirects more than {_REDIRECTS} times")


def _next_place(url: str, location: str) -> str:
    following = str(_url(url).join(_url(location)))
    if origin_of(following) != origin_of(url):
        raise PeerError(
            f"{shown(url)} redirects to another origin, {shown(following)}, which is not followed: "
            "give that URL itself if you trust it"
        )
    return following


@asynccontextmanager
async def _exchange(
    http: httpx2.AsyncClient, method: str, url: str, headers: dict[str, str], content: object = None
) -> AsyncIterator[httpx2.Response]:
    """One request and its response, whose body is still to be read."""
    request = http.build_request(method, _url(url), headers=headers, json=content)
    response: httpx2.Response | None = None
    try:
        response = await http.send(request, stream=True, follow_redirects=False)
        yield response
    except (httpx2.HTTPError, httpx2.StreamError) as exc:
        fault = "cannot be reached" if response is None else "broke off its answer"
        raise PeerError(f"{shown(url)} {fault}: {_reason(exc)}") from exc
    finally:
        if response is not None:
            await response.aclose()


async def _body(response: httpx2.Response, limit_bytes: int) -> bytes:
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > limit_bytes:
            raise PeerError(f"{shown(str(response.url))} answered with more than {limit_bytes} bytes")
    return bytes(body)


def _url(url: str) -> httpx2.URL:
    try:
        return httpx2.URL(url)
    except httpx2.InvalidURL as exc:
        raise PeerError(f"{shown(url)!r} is no URL: {exc}") from exc


def _parsed(text: bytes, where: str) -> JsonValue:
    try:
        return parse(text)
    except A2AError as exc:
        raise PeerError(f"{where} answered with something that is no JSON: {exc}") from exc


def _is_current(version: str) -> bool:
    try:
        return require_served(version) == CURRENT
    except A2AError:
        return False


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
        message if isinstance(message, str) and message else _short(error),
        reason,
        tuple(violations),
    )


def _status_words(response: httpx2.Response) -> str:
    said = (
        f"{shown(str(response.url))} answered HTTP {response.status_code} {response.reason_phrase}".rstrip()
    )
    scheme = response.headers.get("www-authenticate", "").partition(" ")[0]
    return f"{said} (it asks for credentials: {scheme})" if scheme else said


def _faults(exc: ValidationError) -> tuple[str, ...]:
    """Which fields are at fault, and what was found there."""
    found = []
    for error in exc.errors(include_url=False, include_context=False):
        field = ".".join(str(step) for step in error["loc"])
        if error["type"] == "missing":
            found.append(f"{field} is missing")
        else:
            words = error["msg"].removeprefix("Value error, ")
            found.append(f"{field or 'the whole'}: {words}; found {_short(error['input'])}")
    return tuple(found[:10])


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else f"{text[:70]} ..."


def _reason(exc: BaseException) -> str:
    """Why a connection failed, in the words of the system where there are some."""
    words, step = str(exc) or type(exc).__name__, exc.__cause__ or exc.__context__
    while step is not None:
        words = str(step) or words
        if isinstance(step, OSError) and not isinstance(step, ssl.SSLError) and step.errno:
            words = os.strerror(step.errno) if step.errno > 0 else step.strerror or words
        step = step.__cause__ or step.__context__
    return words
