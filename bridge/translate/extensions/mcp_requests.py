"""MCP requests that cross A2A: the extension with which an agent answers requests of MCP other than tools/call. Pure.

An agent that shares resources or prompts of its tool servers declares the extension, with what each server can do. A
request is a message for the skill `URI` with one data part, `{"server"?, "method", "params"}`. The answer is a Message
with one data part, `{"result"}` or `{"error"}`. `params`, `result` and `error` are MCP's own, to the letter.

`subscriptions/listen` is answered with a task. Each status update has a message with one data part,
`{"notifications": [...]}`. The first notification is `notifications/subscriptions/acknowledged`, with the part of the
request that the agent obeys. The task is COMPLETED when the server ends the subscription.

Spec: A2A 1.0 section 4.6 (extensions); MCP 2026-07-28 server/resources, server/prompts, server/utilities/completion,
basic/patterns/subscriptions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from pydantic import JsonValue

from bridge.a2a.model.errors import EXTENSION_SUPPORT_REQUIRED, A2AError, Violation, invalid_params
from bridge.a2a.model.objects import AgentExtension, Message, Part, Role, made
from bridge.errors import PeerError
from bridge.text.jsonvalues import JsonObject
from bridge.translate.extensions.bridge import SKILL

URI: Final = "urn:mcp-a2a:requests:v1"
"""The extension, and in the place of a skill's id: the message is a request of MCP. A bridge that does not know this id
has no skill of that name, and runs nothing."""

Shared = Literal["resources", "prompts"]
"""What an agent may share of a tool server, by the name of the server's capability."""

LISTEN: Final = "subscriptions/listen"
COMPLETE: Final = "completion/complete"

METHODS: Final[Mapping[str, tuple[Shared, ...]]] = {
    "resources/list": ("resources",),
    "resources/templates/list": ("resources",),
    "resources/read": ("resources",),
    "prompts/list": ("prompts",),
    "prompts/get": ("prompts",),
    COMPLETE: ("resources", "prompts"),
    LISTEN: ("resources", "prompts"),
}
"""The methods of requests, each with what the agent has to share: one of these is enough."""

_COMPLETIONS: Final = "completions"

ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
"""The first notification of a subscription."""
UPDATED: Final = "notifications/resources/updated"
LIST_CHANGES: Final[Mapping[str, str]] = {
    "resourcesListChanged": "notifications/resources/list_changed",
    "promptsListChanged": "notifications/prompts/list_changed",
}
"""The notifications that a subscription may ask for, by their fields in the filter. Changes of tools are not among
them: the tools are on the agent's card."""
_LISTED_KINDS: Final[Mapping[str, Shared]] = {
    "resourcesListChanged": "resources",
    "promptsListChanged": "prompts",
}
_RESOURCES: Final = "resourceSubscriptions"


@dataclass(frozen=True, slots=True)
class McpRequest:
    """A request of MCP to a tool server of an agent."""

    method: str
    params: JsonObject
    server: str = ""
    """The server's key on the card; "" if the card declares only one server."""


@dataclass(frozen=True, slots=True)
class McpError:
    """The error with which a server answered, to the letter."""

    code: int
    message: str
    data: JsonValue = None


@dataclass(frozen=True, slots=True)
class Subscription:
    """The changes that a subscription is about."""

    lists: frozenset[str] = frozenset()
    """The fields of the filter that ask for changes of a list."""
    uris: tuple[str, ...] = field(default=())
    """The resources whose updates are wanted, each once, in their order."""

    def __bool__(self) -> bool:
        return bool(self.lists or self.uris)

    @property
    def kinds(self) -> frozenset[Shared]:
        """What the agent has to share for it."""
        of_lists = (_LISTED_KINDS[name] for name in self.lists)
        return frozenset((*of_lists, *(("resources",) if self.uris else ())))

    def limited_to(self, kinds: Collection[Shared], may_read: Callable[[str], bool]) -> Subscription:
        """The part of it about these kinds, and about resources that its subscriber may use."""
        lists = frozenset(name for name in self.lists if _LISTED_KINDS[name] in kinds)
        uris = tuple(uri for uri in self.uris if may_read(uri)) if "resources" in kinds else ()
        return Subscription(lists, uris)

    def to_filter(self) -> JsonObject:
        """The `notifications` of MCP's request or acknowledgment."""
        wanted: JsonObject = {name: True for name in LIST_CHANGES if name in self.lists}
        return {**wanted, _RESOURCES: list(self.uris)} if self.uris else wanted


def declaration(servers: Mapping[str, JsonObject]) -> AgentExtension:
    """The declaration on the card. `servers` are the capabilities of each server, by its key; see `shared_of`."""
    declared: JsonObject = {key: {"capabilities": capabilities} for key, capabilities in servers.items()}
    return AgentExtension(
        uri=URI,
        description="Resources and prompts of the MCP servers behind this agent",
        required=False,
        params={"servers": declared},
    )


def declared_servers(extensions: Iterable[AgentExtension] | None) -> dict[str, JsonObject]:
    """The capabilities that a card declares, by the keys of the servers. Any agent may have written the card, so
    entries in another form are skipped."""
    params = next((extension.params for extension in extensions or () if extension.uri == URI), None) or {}
    servers = params.get("servers")
    capabilities_by_key: dict[str, JsonObject] = {}
    for key, server in servers.items() if isinstance(servers, dict) else ():
        capabilities = server.get("capabilities") if isinstance(server, dict) else None
        if isinstance(capabilities, dict) and capabilities:
            capabilities_by_key[key] = capabilities
    return capabilities_by_key


def shared_of(capabilities: Mapping[str, JsonValue], share: Collection[str]) -> JsonObject:
    """The capabilities of a server, cut to what its agent shares. Completion belongs to prompts and templates."""
    both = ("resources", "prompts")
    shared: JsonObject = {name: capabilities[name] for name in both if name in share and name in capabilities}
    if shared and _COMPLETIONS in capabilities:
        shared[_COMPLETIONS] = capabilities[_COMPLETIONS]
    return shared


# A request


def message_of_request(request: McpRequest, message_id: str) -> Message:
    """The message that carries a request. The client activates `URI` in the header as well."""
    content: JsonObject = {"method": request.method, "params": request.params}
    if request.server:
        content = {"server": request.server, **content}
    return made(
        Message,
        message_id=message_id,
        role=Role.USER,
        parts=(Part(data=content),),
        metadata={SKILL: URI},
        extensions=(URI,),
    )


def is_request(message: Message, metadata: Mapping[str, JsonValue]) -> bool:
    """Whether a message is a request of MCP. `metadata` is that of the A2A request."""
    return (message.metadata or {}).get(SKILL, metadata.get(SKILL)) == URI


def request_from_message(message: Message, activated: Collection[str]) -> McpRequest:
    """The request in a message. `activated` are the extensions that the client activated.

    Raises:
        A2AError: EXTENSION_SUPPORT_REQUIRED; INVALID_PARAMS, the message has another form, or the method is not among
            `METHODS`.
    """
    if URI not in activated:
        words = f"A request of MCP needs the extension {URI}: activate it in the header A2A-Extensions"
        raise A2AError(EXTENSION_SUPPORT_REQUIRED, words, metadata={"extension": URI})
    data = message.parts[0].data if len(message.parts) == 1 else None
    if not isinstance(data, dict):
        raise invalid_params(
            Violation("message.parts", "a request of MCP is exactly one data part, an object")
        )
    method, params, server = data.get("method"), data.get("params", {}), data.get("server", "")
    where = "message.parts[0].data."
    if not isinstance(method, str) or method not in METHODS:
        raise invalid_params(Violation(f"{where}method", f"is one of {', '.join(METHODS)}"))
    if not isinstance(params, dict):
        raise invalid_params(Violation(f"{where}params", "is an object"))
    if not isinstance(server, str):
        raise invalid_params(Violation(f"{where}server", "is the key of a server on the card"))
    return McpRequest(method, params, server)


# An answer


def part_of_answer(answer: JsonObject | McpError) -> Part:
    """The data part of an answer: a result, or an error."""
    if not isinstance(answer, McpError):
        return Part(data={"result": answer})
    error: JsonObject = {"code": answer.code, "message": answer.message}
    if answer.data is not None:
        error["data"] = answer.data
    return Part(data={"error": error})


def answer_from_parts(parts: Sequence[Part]) -> JsonObject | McpError:
    """The answer in the parts of an agent's message: a result, or an error.

    Raises:
        PeerError: the parts hold no answer.
    """
    data = next((part.data for part in parts if part.kind == "data"), None)
    match data:
        case {"result": dict(result)}:
            return result
        case {"error": {"code": int(code), "message": str(message)} as error} if isinstance(error, dict):
            return McpError(code, message, error.get("data"))
        case {"error": {"code": float(code), "message": str(message)} as error} if isinstance(error, dict):
            return McpError(int(code), message, error.get("data"))  # over gRPC, every number is a float
    raise PeerError("The agent answered an MCP request with a message that holds no result and no error")


# A subscription


def subscription_from(params: Mapping[str, JsonValue]) -> Subscription:
    """The changes that the params of subscriptions/listen, or of its acknowledgment, ask for. Fields in another form,
    and changes of tools, count as not asked for."""
    wanted = params.get("notifications")
    if not isinstance(wanted, dict):
        return Subscription()
    uris = wanted.get(_RESOURCES)
    named = [uri for uri in uris if isinstance(uri, str)] if isinstance(uris, list) else []
    lists = frozenset(name for name in LIST_CHANGES if wanted.get(name) is True)
    return Subscription(lists, tuple(dict.fromkeys(named)))


def acknowledgment(obeyed: Subscription) -> JsonObject:
    """The first notification of a subscription: the part of the request that is obeyed."""
    return {"method": ACKNOWLEDGED, "params": {"notifications": obeyed.to_filter()}}


def part_of_notifications(notifications: Iterable[JsonObject]) -> Part:
    """The data part of a status update of a subscription."""
    return Part(data={"notifications": list(notifications)})


def notifications_from_parts(parts: Sequence[Part]) -> tuple[JsonObject, ...]:
    """The notifications in the parts of a status update's message; none for a message of another form."""
    data = next((part.data for part in parts if part.kind == "data"), None)
    listed = data.get("notifications") if isinstance(data, dict) else None
    return (
        tuple(notification for notification in listed if isinstance(notification, dict))
        if isinstance(listed, list)
        else ()
    )
