"""The A2A 1.0 data model, which is also the inner model of the bridge.

Every class is one message of the specification's `a2a.proto`, frozen, with its JSON names. The rules of the protocol
are checked when an object is made, so that an illegal object cannot exist. Fields that the model does not know are
kept and written out again. Dialects convert other wire versions to and from this model.

Absent and null: an optional field that is None is absent on the wire. The exception is `Part.data`, where null is a
value; `Part.kind` says which of the four fields a part holds.

Spec: A2A 1.0 section 4 (objects), 5.5 to 5.7 (names, types, presence).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Final, Literal, ParamSpec, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    GetCoreSchemaHandler,
    JsonValue,
    SerializeAsAny,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema
from pydantic_core.core_schema import simple_ser_schema

from bridge.text.jsonvalues import JsonObject

_BASE64: Final = re.compile(r"[A-Za-z0-9+/]*={0,2}|[A-Za-z0-9_-]*={0,2}")
_TIMESTAMP: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)")


def timestamp(milliseconds: int) -> str:
    """Milliseconds since the epoch as a timestamp of the wire: UTC, three decimals, `Z` (section 5.6.1)."""
    return f"{_second(milliseconds // 1000)}.{milliseconds % 1000:03d}Z"


@lru_cache(maxsize=16)
def _second(seconds: int) -> str:
    """The timestamp up to its seconds, cached because many events come in one second."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


@lru_cache(maxsize=1024)
def milliseconds(text: str) -> int:
    """The reverse of `timestamp`, for any RFC 3339 time.

    Raises:
        ValueError: the text is not an RFC 3339 time with a zone, or is outside the dates that `timestamp` can write.
    """
    if len(text) == 24 and text[19] == "." and text[23] == "Z" and text[20:23].isdecimal():
        return _moment(f"{text[:19]}Z") + int(text[20:23])  # as `timestamp` writes it
    return _moment(text)


@lru_cache(maxsize=64)
def _moment(text: str) -> int:
    """See `milliseconds`; cached because many events come in one second."""
    if not _TIMESTAMP.fullmatch(text):
        raise ValueError("not an RFC 3339 time such as 2026-01-31T12:00:00.000Z")
    at_ms = round(datetime.fromisoformat(text.upper()).timestamp() * 1000)
    _second(at_ms // 1000)
    return at_ms


def _checked_base64(text: str) -> str:
    """The base64 text without line breaks, which MIME puts in."""
    if not _BASE64.fullmatch(text):
        text = "".join(text.split())
    if not _BASE64.fullmatch(text) or len(text.rstrip("=")) % 4 == 1:
        raise ValueError("not base64")
    return text


def _checked_timestamp(text: str) -> str:
    milliseconds(text)
    return text


def _checked_id(text: str) -> str:
    if "\0" in text:
        raise ValueError("holds the character U+0000")
    if not text.isascii() and len(text.encode(errors="surrogatepass")) > ID_BYTES:
        raise ValueError(f"has more than {ID_BYTES} bytes in UTF-8")
    return text


def is_id(text: str) -> bool:
    """Whether a text is a possible identifier in a store."""
    try:
        return 0 < len(_checked_id(text)) <= ID_CHARACTERS
    except ValueError:
        return False


class _FirstFault(FailFast):
    """pydantic's FailFast with a hash, because annotations are compared."""

    __hash__ = object.__hash__


_ItemT = TypeVar("_ItemT")
Several = Annotated[tuple[_ItemT, ...], _FirstFault()]
"""An array. Validation stops at its first invalid item, since the report of an error is a hundred times larger than the
item."""

PlainJson = SerializeAsAny[JsonValue]
PlainObject = SerializeAsAny[JsonObject]
"""JSON of any shape. It is validated when it is read, and not again each time it is written."""

Base64 = Annotated[str, AfterValidator(_checked_base64)]
Timestamp = Annotated[str, AfterValidator(_checked_timestamp)]
ID_CHARACTERS: Final = 512
"""The longest identifier, in characters."""
ID_BYTES: Final = 1024
"""The longest identifier, in bytes of UTF-8. Two identifiers, or an identifier and the name of a principal, form the
key of a PostgreSQL index, which is limited to 2,704 bytes."""
Id = Annotated[str, Field(min_length=1, max_length=ID_CHARACTERS), AfterValidator(_checked_id)]
"""An identifier that one side makes and the other repeats. It is bounded because it becomes a key in the store, and
must not contain NUL, which PostgreSQL cannot store."""
IdOrNone = Annotated[str, Field(max_length=ID_CHARACTERS), AfterValidator(_checked_id)]
"""An identifier, or "" where that has a meaning of its own."""
MaybeId = Annotated[Id | None, BeforeValidator(lambda value: None if value == "" else value)]
"""An optional identifier. "" is read as absent, as protocol buffers write it."""


UNNAMED: Final = "urn:mcp-a2a:unnamed"
"""Stands for an id that an agent left out. It is never sent."""


class Model(BaseModel):
    """The base of all messages of the protocol: frozen, camelCase on the wire, unknown fields kept."""

    model_config = ConfigDict(
        frozen=True, extra="allow", alias_generator=to_camel, validate_by_name=True, defer_build=True
    )

    absent: ClassVar[Mapping[str, object]] = {}
    """The value of each field that an object leaves out, in the order of the wire; None for a required field."""

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        fields = cls.model_fields.items()
        cls.absent = {name: None if field.is_required() else field.default for name, field in fields}

    def to_json(self) -> bytes:
        """This object as the JSON of the wire."""
        return self.__pydantic_serializer__.to_json(self, by_alias=True, exclude_none=True)

    def changed(self, **fields: object) -> Self:
        """A copy with other values of declared fields. The values are not validated again.

        Each call to a tool makes several copies. `model_copy` does the same, but takes three times as long."""
        copy = type(self).__new__(type(self))
        object.__setattr__(copy, "__dict__", {**self.__dict__, **fields})
        object.__setattr__(copy, "__pydantic_fields_set__", self.__pydantic_fields_set__ | fields.keys())
        object.__setattr__(copy, "__pydantic_extra__", self.__pydantic_extra__)
        object.__setattr__(copy, "__pydantic_private__", self.__pydantic_private__)
        return copy

    def to_object(self) -> JsonObject:
        """This object as plain JSON values."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


_Fields = ParamSpec("_Fields")
_ModelT = TypeVar("_ModelT", bound=Model)


def made(model: Callable[_Fields, _ModelT], *_: _Fields.args, **fields: _Fields.kwargs) -> _ModelT:
    """An object of values that the bridge itself has made, and of valid objects. The values are not validated.

    The values have the types of the fields: arrays are tuples, and an absent value is None. A value from a peer, a
    client, the store or the configuration that was not validated before goes to the class itself. Validation would take
    most of the time in which the bridge makes its objects. The tests validate each object that is made here."""
    kind: type[_ModelT] = model  # type: ignore[assignment]  # a class, whose parameters are the fields
    new = kind.__new__(kind)
    _set_values(new, {**new.absent, **fields})
    _set_names(new, set(fields))
    _set_extra(new, {})
    _set_private(new, None)
    return new


_SLOTS: Final = vars(BaseModel)
_set_values: Final = _SLOTS["__dict__"].__set__
_set_names: Final = _SLOTS["__pydantic_fields_set__"].__set__
_set_extra: Final = _SLOTS["__pydantic_extra__"].__set__
_set_private: Final = _SLOTS["__pydantic_private__"].__set__
"""Set what a frozen model consists of. `object.__setattr__` does the same, and looks each of them up first."""


class _WireWord(StrEnum):
    """A set of words of the wire. pydantic writes each as the text that it is; else it asks Python for its value."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        schema["serialization"] = simple_ser_schema("str")  # type: ignore[index]  # a union of typed dictionaries
        return schema

    __hash__ = str.__hash__


class TaskState(_WireWord):
    """Section 4.1.3. UNSPECIFIED is left out: no valid task is in that state."""

    SUBMITTED = "TASK_STATE_SUBMITTED"
    WORKING = "TASK_STATE_WORKING"
    COMPLETED = "TASK_STATE_COMPLETED"
    FAILED = "TASK_STATE_FAILED"
    CANCELED = "TASK_STATE_CANCELED"
    INPUT_REQUIRED = "TASK_STATE_INPUT_REQUIRED"
    REJECTED = "TASK_STATE_REJECTED"
    AUTH_REQUIRED = "TASK_STATE_AUTH_REQUIRED"

    @property
    def word(self) -> str:
        """The state for people, metrics and traces, such as `input_required`."""
        return self.value.removeprefix("TASK_STATE_").lower()


class Role(_WireWord):
    """Section 4.1.5."""

    USER = "ROLE_USER"
    AGENT = "ROLE_AGENT"


PartKind = Literal["text", "raw", "url", "data"]
_KINDS: Final[Several[PartKind]] = ("text", "raw", "url")
_EMPTY: Final[tuple[JsonValue, ...]] = (None, "", {}, [])
"""The values of an empty field of a part."""


class Part(Model):
    """Exactly one of text, raw (base64), url and data, with its media type. Section 4.1.6."""

    model_config = ConfigDict(
        defer_build=False
    )  # `AnyPart` looks for the serializer of each object's own class

    text: str | None = None
    raw: Base64 | None = None
    url: str | None = None
    data: PlainJson = None
    metadata: PlainObject | None = None
    filename: str | None = None
    media_type: str | None = None

    @property
    def kind(self) -> PartKind:
        """The field that this part holds."""
        for kind in _KINDS:
            if getattr(self, kind) is not None:
                return kind
        return "data"

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        named = self.__pydantic_fields_set__
        held = [kind for kind in _KINDS if getattr(self, kind) is not None]
        if "data" in named:
            held.append("data")
        if len(held) != 1:
            held = self._without_empty(held)
        elif held == ["data"] and self.data is None and not named.isdisjoint(_KINDS):
            held = []  # all four fields are null
        if len(held) != 1:
            names = " and ".join(held) or "none of them"
            raise ValueError(f"a part holds exactly one of text, raw, url and data; found {names}")
        if held == ["data"] and self.data is None:
            object.__setattr__(self, "__class__", _NullPart)
        return self

    def _without_empty(self, held: list[PartKind]) -> list[PartKind]:
        """The fields of this part that are not empty. Some writers set every field, so empty fields are removed. If all
        fields are empty, the first is kept."""
        full = [kind for kind in held if getattr(self, kind) not in _EMPTY]
        filled = full or held[:1]
        for kind in held:
            if kind not in filled:
                self.__dict__[kind] = None
                self.__pydantic_fields_set__.discard(kind)
        return filled


class _NullPart(Part):
    """A part whose data is null. It alone is written by Python, because null is absent everywhere else."""

    @model_serializer(mode="wrap")
    def _keep_null(self, write: SerializerFunctionWrapHandler) -> Any:
        return write(self) | {"data": None}


AnyPart = SerializeAsAny[Part]
"""A part, written as its own class says."""


class AppendedText(Part):
    """A text part that continues the text part before it, because an event with `append` brought it.

    Only a client that received the event knows this. On the wire, the part is an ordinary text part. It is equal to a
    text part of the same content.
    """

    __hash__ = Part.__hash__

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Part):
            return NotImplemented
        return self.__dict__ == other.__dict__ and self.model_extra == other.model_extra


class Message(Model):
    """One unit of communication between client and agent. Section 4.1.4."""

    message_id: Id
    context_id: MaybeId = None
    task_id: MaybeId = None
    role: Role
    parts: Annotated[Several[AnyPart], Field(min_length=1)]
    metadata: PlainObject | None = None
    extensions: Several[str] | None = None
    reference_task_ids: Several[str] | None = None


class TaskStatus(Model):
    """Section 4.1.2."""

    state: TaskState
    message: Message | None = None
    timestamp: Timestamp | None = None


class Artifact(Model):
    """An output of a task. Section 4.1.7."""

    artifact_id: Id
    name: str | None = None
    description: str | None = None
    parts: Annotated[Several[AnyPart], Field(min_length=1)]
    metadata: PlainObject | None = None
    extensions: Several[str] | None = None


class Task(Model):
    """The unit of work. Section 4.1.1."""

    id: Id
    context_id: MaybeId = None
    status: TaskStatus
    artifacts: Several[Artifact] | None = None
    history: Several[Message] | None = None
    metadata: PlainObject | None = None


class TaskStatusUpdateEvent(Model):
    """Section 4.2.1."""

    task_id: Id
    context_id: Id
    status: TaskStatus
    metadata: PlainObject | None = None


class TaskArtifactUpdateEvent(Model):
    """Section 4.2.2. `append` adds the parts to the artifact of the same id, instead of replacing it."""

    task_id: Id
    context_id: Id
    artifact: Artifact
    append: bool | None = None
    last_chunk: bool | None = None
    metadata: PlainObject | None = None


class StreamResponse(Model):
    """One event of a stream: exactly one of the four fields is set. Section 3.2.3."""

    task: Task | None = None
    message: Message | None = None
    status_update: TaskStatusUpdateEvent | None = None
    artifact_update: TaskArtifactUpdateEvent | None = None

    @property
    def payload(self) -> Task | Message | TaskStatusUpdateEvent | TaskArtifactUpdateEvent:
        """The one field that is set."""
        payload = self.task or self.message or self.status_update or self.artifact_update
        assert payload is not None
        return payload

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if [self.task, self.message, self.status_update, self.artifact_update].count(None) != 3:
            raise ValueError("a stream event is exactly one of task, message, statusUpdate, artifactUpdate")
        return self


class AuthenticationInfo(Model):
    """Section 4.3.2."""

    scheme: str
    credentials: str | None = None


class TaskPushNotificationConfig(Model):
    """Section 4.3.1."""

    tenant: str | None = None
    id: IdOrNone | None = None
    task_id: IdOrNone | None = None
    url: str
    token: str | None = None
    authentication: AuthenticationInfo | None = None


class SendMessageConfiguration(Model):
    """Section 3.2.2."""

    accepted_output_modes: Several[str] | None = None
    task_push_notification_config: TaskPushNotificationConfig | None = None
    history_length: Annotated[int, Field(ge=0)] | None = None
    return_immediately: bool | None = None


NO_CONFIGURATION: Final = SendMessageConfiguration()
"""Stands for the configuration that a request leaves out."""


class SendMessageRequest(Model):
    """Section 3.2.1."""

    tenant: str | None = None
    message: Message
    configuration: SendMessageConfiguration | None = None
    metadata: PlainObject | None = None


class SendMessageResponse(Model):
    """Exactly one of task and message. Section 3.1.1."""

    task: Task | None = None
    message: Message | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.task is None) == (self.message is None):
            raise ValueError("the answer to a message is exactly one of task and message")
        return self


class GetTaskRequest(Model):
    """Section 3.1.3."""

    tenant: str | None = None
    id: Id
    history_length: Annotated[int, Field(ge=0)] | None = None


class ListTasksRequest(Model):
    """Section 3.1.4."""

    tenant: str | None = None
    context_id: MaybeId = None
    status: TaskState | None = None
    page_size: Annotated[int, Field(ge=1, le=100)] | None = None
    page_token: str | None = None
    history_length: Annotated[int, Field(ge=0)] | None = None
    status_timestamp_after: Timestamp | None = None
    include_artifacts: bool | None = None


class ListTasksResponse(Model):
    """Section 3.1.4. `next_page_token` is "" on the last page."""

    tasks: Several[Task]
    next_page_token: str
    page_size: int
    total_size: int


class CancelTaskRequest(Model):
    """Section 3.1.5."""

    tenant: str | None = None
    id: Id
    metadata: PlainObject | None = None


class SubscribeToTaskRequest(Model):
    """Section 3.1.6."""

    tenant: str | None = None
    id: Id


JSONRPC: Final = "JSONRPC"
HTTP_JSON: Final = "HTTP+JSON"
GRPC: Final = "GRPC"
BINDINGS: Final = (JSONRPC, HTTP_JSON)
"""The protocol bindings over HTTP that are served and called, in the order of preference. Section 4.4.6. GRPC is served
at an address of its own, where the configuration asks for it, and called where a card offers nothing else."""


class AgentInterface(Model):
    """Section 4.4.6."""

    url: str
    protocol_binding: str
    tenant: str | None = None
    protocol_version: Annotated[str, Field(min_length=1)]


class AgentProvider(Model):
    """Section 4.4.2."""

    url: str
    organization: str


class AgentExtension(Model):
    """Section 4.4.4."""

    uri: str
    description: str | None = None
    required: bool | None = None
    params: PlainObject | None = None


class AgentCapabilities(Model):
    """Section 4.4.3."""

    streaming: bool | None = None
    push_notifications: bool | None = None
    extensions: Several[AgentExtension] | None = None
    extended_agent_card: bool | None = None


class SecurityRequirement(Model):
    """Schemes that are all needed together, each with its scopes as `{"list": [...]}`. Section 4.5."""

    schemes: Mapping[str, PlainObject] = {}


class AgentSkill(Model):
    """Section 4.4.5."""

    id: str
    name: str
    description: str
    tags: Annotated[Several[str], Field(min_length=1)]
    examples: Several[str] | None = None
    input_modes: Several[str] | None = None
    output_modes: Several[str] | None = None
    security_requirements: Several[SecurityRequirement] | None = None


class AgentCardSignature(Model):
    """Section 4.4.7."""

    protected: str
    signature: str
    header: PlainObject | None = None


class AgentCard(Model):
    """An agent's description of itself. Section 4.4.1."""

    name: str
    description: str
    supported_interfaces: Annotated[Several[AgentInterface], Field(min_length=1)]
    provider: AgentProvider | None = None
    version: str
    documentation_url: str | None = None
    capabilities: AgentCapabilities
    security_schemes: Mapping[str, PlainObject] | None = None
    security_requirements: Several[SecurityRequirement] | None = None
    default_input_modes: Annotated[Several[str], Field(min_length=1)]
    default_output_modes: Annotated[Several[str], Field(min_length=1)]
    skills: Annotated[Several[AgentSkill], Field(min_length=1)]
    signatures: Several[AgentCardSignature] | None = None
    icon_url: str | None = None


def text_of_parts(parts: Sequence[Part]) -> str:
    """The text parts, joined by line breaks."""
    return "\n".join(part.text for part in parts if part.text is not None)
