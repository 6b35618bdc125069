"""Foreign programs that the tests drive or are driven by, none of them written by this project.

Knows what is common to all of them: the surface of an A2A client (`PeerClient`) and the one way in which
a call can be refused (`PeerRefused`). `py_client` and `js_client` put the two official SDKs behind it, so
that one test runs over [py, js] x [JSONRPC, HTTP+JSON]; `node` names the programs that run on Node.js;
`echo_agent` is an agent built on the official SDK. Must not import `bridge`: a peer is a stranger.

Requests and results are A2A 1.0 JSON in the spelling of the wire, but as an SDK saw it: a field that holds
its default (`nextPageToken: ""`) and a field the SDK does not know are gone. Bytes are a raw client's job.
"""

from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final, Literal, Protocol, Self, TypeAlias
from uuid import uuid4

Json: TypeAlias = dict[str, Any]
Transport: TypeAlias = Literal["JSONRPC", "HTTP+JSON"]

WAIT_SECONDS: Final = 30.0
"""How long a peer may stay silent in one call; far above any heartbeat, so that only a hang reaches it."""


class PeerRefused(Exception):
    """A peer's client raised instead of returning a result.

    `code` is the A2A error code (-32001 and so on, also over HTTP+JSON, where it follows from the reason)
    if the client recognised one, else the HTTP status, else None: the client itself gave up, for example
    because the card offers no such transport. `data` is the metadata of `google.rpc.ErrorInfo`, the only
    part of the details that every client keeps, or None.
    """

    def __init__(self, code: int | None, message: str, data: Any = None) -> None:
        super().__init__(code, message, data)
        self.code = code
        self.message = message
        self.data = data


class PeerClient(Protocol):
    """An A2A 1.0 client: `async with Client(base_url, "HTTP+JSON", headers={...}) as client`.

    Entering fetches the card. Every method raises PeerRefused if the agent or the client's own SDK said no,
    and TimeoutError if the peer was silent for `wait_seconds`. `headers` go with every request, the
    card's too; `A2A-Extensions` among them activates extensions. Close a stream that is not read to its end
    with `contextlib.aclosing`: that drops the connection.
    """

    def __init__(
        self,
        base_url: str,
        transport: Transport = "JSONRPC",
        *,
        headers: Mapping[str, str] | None = None,
        wait_seconds: float = WAIT_SECONDS,
    ) -> None: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *exc_info: object) -> None: ...

    async def card(self) -> Json:
        """Return the agent's card: the extended one, fetched anew, if the public one declares it."""

    async def send(self, request: Json) -> Json:
        """Send a SendMessageRequest; return {"task": ...} or {"message": ...}."""

    def stream(self, request: Json) -> AsyncGenerator[Json]:
        """Send a SendMessageRequest; yield each StreamResponse, as {"task" | "statusUpdate" | ...: ...}."""

    async def get(self, task_id: str, *, history_length: int | None = None) -> Json:
        """Return the Task."""

    async def list(self, query: Json | None = None) -> Json:
        """Send a ListTasksRequest; return the ListTasksResponse."""

    async def cancel(self, task_id: str) -> Json:
        """Return the Task after it was cancelled."""

    def subscribe(self, task_id: str) -> AsyncGenerator[Json]:
        """Yield the Task as it is now, then each further StreamResponse."""


def user_message(text: str, **fields: Any) -> Json:
    """Return a SendMessageRequest with one text part; `fields` join the message: `taskId="..."`."""
    message = {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [{"text": text}], **fields}
    return {"message": message}
