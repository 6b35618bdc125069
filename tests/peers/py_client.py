"""The official Python client, a2a-sdk, as a `PeerClient`.

Knows how a2a-sdk builds a client, that its types are protobuf, and which of its exceptions means what.
"""

import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing, contextmanager
from typing import Self, cast

import httpx
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.client.client import ClientCallContext
from a2a.client.errors import A2AClientTimeoutError, AgentCardResolutionError
from a2a.types import a2a_pb2
from a2a.utils.errors import JSON_RPC_ERROR_CODE_MAP, A2AError
from google.protobuf.json_format import MessageToDict, ParseDict

from tests.peers import WAIT_SECONDS, Json, PeerRefused, Transport


class PyClient:
    """A client built on a2a-sdk; see PeerClient."""

    def __init__(
        self,
        base_url: str,
        transport: Transport = "JSONRPC",
        *,
        headers: Mapping[str, str] | None = None,
        wait_seconds: float = WAIT_SECONDS,
    ) -> None:
        self._base_url = base_url
        self._transport = transport
        self._headers = dict(headers or {})
        self._wait_seconds = wait_seconds
        self._context = ClientCallContext(service_parameters=self._headers)
        self._http: httpx.AsyncClient
        self._sending: Client
        self._streaming: Client

    async def __aenter__(self) -> Self:
        # Without a client of ours the SDK takes one with a timeout of 5 s.
        self._http = httpx.AsyncClient(timeout=self._wait_seconds)
        try:
            # Two clients, for one that may stream never sends any other way; the first sets A2A-Version.
            sending, streaming = self._factory(streaming=False), self._factory(streaming=True)
            with refusals():
                resolver = A2ACardResolver(self._http, self._base_url)
                card = await resolver.get_agent_card(http_kwargs={"headers": self._headers})
                self._sending, self._streaming = sending.create(card), streaming.create(card)
        except BaseException:
            await self._http.aclose()
            raise
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._http.aclose()

    def _factory(self, *, streaming: bool) -> ClientFactory:
        return ClientFactory(
            ClientConfig(
                streaming=streaming,
                httpx_client=self._http,
                supported_protocol_bindings=[self._transport],
            )
        )

    async def card(self) -> Json:
        request = a2a_pb2.GetExtendedAgentCardRequest()
        with refusals():
            return MessageToDict(await self._sending.get_extended_agent_card(request, context=self._context))

    async def send(self, request: Json) -> Json:
        message = ParseDict(request, a2a_pb2.SendMessageRequest())
        (answer,) = [
            item async for item in events(self._sending.send_message(message, context=self._context))
        ]
        return answer

    def stream(self, request: Json) -> AsyncGenerator[Json]:
        message = ParseDict(request, a2a_pb2.SendMessageRequest())
        return events(self._streaming.send_message(message, context=self._context))

    async def get(self, task_id: str, *, history_length: int | None = None) -> Json:
        request = a2a_pb2.GetTaskRequest(id=task_id, history_length=history_length)
        with refusals():
            return MessageToDict(await self._sending.get_task(request, context=self._context))

    async def list(self, query: Json | None = None) -> Json:
        request = ParseDict(query or {}, a2a_pb2.ListTasksRequest())
        with refusals():
            return MessageToDict(await self._sending.list_tasks(request, context=self._context))

    async def cancel(self, task_id: str) -> Json:
        request = a2a_pb2.CancelTaskRequest(id=task_id)
        with refusals():
            return MessageToDict(await self._sending.cancel_task(request, context=self._context))

    def subscribe(self, task_id: str) -> AsyncGenerator[Json]:
        request = a2a_pb2.SubscribeToTaskRequest(id=task_id)
        return events(self._streaming.subscribe(request, context=self._context))


async def events(responses: AsyncIterator[a2a_pb2.StreamResponse]) -> AsyncGenerator[Json]:
    """Yield each response as JSON; closing this generator closes the SDK's and so the connection."""
    generator = cast("AsyncGenerator[a2a_pb2.StreamResponse]", responses)
    with refusals():
        async with aclosing(generator):
            async for response in generator:
                yield MessageToDict(response)


@contextmanager
def refusals() -> Iterator[None]:
    """Turn what a2a-sdk raises into PeerRefused, and its timeout into TimeoutError."""
    try:
        yield
    except A2AClientTimeoutError as exc:
        raise TimeoutError(f"the Python peer gave up waiting: {exc}") from exc
    except A2AError as exc:
        raise PeerRefused(code_of(exc), exc.message, exc.data) from exc
    except (ValueError, NotImplementedError) as exc:  # no common transport; streaming that the card denies
        raise PeerRefused(None, str(exc)) from exc


def code_of(error: A2AError) -> int | None:
    """Return the code of the A2A error that a2a-sdk recognised, else the HTTP status, else None."""
    if (code := JSON_RPC_ERROR_CODE_MAP.get(type(error))) is not None:
        return code
    if isinstance(error, AgentCardResolutionError):
        return error.status_code
    if isinstance(error.__cause__, httpx.HTTPStatusError):
        return error.__cause__.response.status_code
    unmapped = re.match(r"JSON-RPC Error (-?\d+): ", error.message)
    return int(unmapped[1]) if unmapped else None
