"""The protocol buffers of A2A as tables: the messages with the numbers of their fields, and the services.

A line is a message: its name, and the number, name and type of each field. `*` is a repeated field, `?` an `optional`
field, `NAME|` a member of a oneof, `{TYPE}` a map from texts. If the JSON name of a field is not its name in camelCase,
it follows after a colon. Types are those of protocol buffers, of the same table, or of `google.protobuf`.

Spec: A2A 1.0 specification/a2a.proto and section 5.3; A2A 0.3.0 a2a.proto, as in a2a-sdk 1.3.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from bridge.a2a.model import operations
from bridge.a2a.model.objects import TaskState
from bridge.a2a.model.operations import AnyOperation


@dataclass(frozen=True, slots=True)
class Method:
    """A method of a service."""

    name: str
    operation: AnyOperation
    request: str
    """The message of its request."""
    answer: str
    """The message of its answer, or of each event."""


@dataclass(frozen=True, slots=True)
class MessageTable:
    """The messages of a package."""

    package: str
    messages: str
    """The table."""
    enums: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The names of the values of each enumeration, from 0 on."""


@dataclass(frozen=True, slots=True)
class ProtobufService:
    """A service of A2A."""

    version: str
    """The version of A2A."""
    table: MessageTable
    methods: tuple[Method, ...]

    @property
    def name(self) -> str:
        """The full name of the service."""
        return f"{self.table.package}.{SERVICE_NAME}"


SERVICE_NAME: Final = "A2AService"


_ROLES: Final = ("ROLE_UNSPECIFIED", "ROLE_USER", "ROLE_AGENT")
_STATES: Final = (
    "TASK_STATE_UNSPECIFIED",
    *(TaskState.SUBMITTED, TaskState.WORKING, TaskState.COMPLETED, TaskState.FAILED),
    *(TaskState.CANCELED, TaskState.INPUT_REQUIRED, TaskState.REJECTED, TaskState.AUTH_REQUIRED),
)
_EMPTY: Final = "Empty"

SERVICE_1_0: Final = ProtobufService(
    "1.0",
    MessageTable(
        "lf.a2a.v1",
        """
SendMessageConfiguration: 1 accepted_output_modes *string; 2 task_push_notification_config
    TaskPushNotificationConfig; 3 history_length ?int32; 4 return_immediately bool
Task: 1 id string; 2 context_id string; 3 status TaskStatus; 4 artifacts *Artifact; 5 history
    *Message; 6 metadata Struct
TaskStatus: 1 state TaskState; 2 message Message; 3 timestamp Timestamp
Part: 1 text content|string; 2 raw content|bytes; 3 url content|string; 4 data content|Value; 5
    metadata Struct; 6 filename string; 7 media_type string
Message: 1 message_id string; 2 context_id string; 3 task_id string; 4 role Role; 5 parts *Part; 6
    metadata Struct; 7 extensions *string; 8 reference_task_ids *string
Artifact: 1 artifact_id string; 2 name string; 3 description string; 4 parts *Part; 5 metadata
    Struct; 6 extensions *string
TaskStatusUpdateEvent: 1 task_id string; 2 context_id string; 3 status TaskStatus; 4 metadata Struct
TaskArtifactUpdateEvent: 1 task_id string; 2 context_id string; 3 artifact Artifact; 4 append bool;
    5 last_chunk bool; 6 metadata Struct
AuthenticationInfo: 1 scheme string; 2 credentials string
AgentInterface: 1 url string; 2 protocol_binding string; 3 tenant string; 4 protocol_version string
AgentCard: 1 name string; 2 description string; 3 supported_interfaces *AgentInterface; 4 provider
    AgentProvider; 5 version string; 6 documentation_url ?string; 7 capabilities AgentCapabilities;
    8 security_schemes {SecurityScheme}; 9 security_requirements *SecurityRequirement; 10
    default_input_modes *string; 11 default_output_modes *string; 12 skills *AgentSkill; 13
    signatures *AgentCardSignature; 14 icon_url ?string
AgentProvider: 1 url string; 2 organization string
AgentCapabilities: 1 streaming ?bool; 2 push_notifications ?bool; 3 extensions *AgentExtension; 4
    extended_agent_card ?bool
AgentExtension: 1 uri string; 2 description string; 3 required bool; 4 params Struct
AgentSkill: 1 id string; 2 name string; 3 description string; 4 tags *string; 5 examples *string; 6
    input_modes *string; 7 output_modes *string; 8 security_requirements *SecurityRequirement
AgentCardSignature: 1 protected string; 2 signature string; 3 header Struct
TaskPushNotificationConfig: 1 tenant string; 2 id string; 3 task_id string; 4 url string; 5 token
    string; 6 authentication AuthenticationInfo
StringList: 1 list *string
SecurityRequirement: 1 schemes {StringList}
SecurityScheme: 1 api_key_security_scheme scheme|APIKeySecurityScheme; 2 http_auth_security_scheme
    scheme|HTTPAuthSecurityScheme; 3 oauth2_security_scheme scheme|OAuth2SecurityScheme; 4
    open_id_connect_security_scheme scheme|OpenIdConnectSecurityScheme; 5 mtls_security_scheme
    scheme|MutualTlsSecurityScheme
APIKeySecurityScheme: 1 description string; 2 location string; 3 name string
HTTPAuthSecurityScheme: 1 description string; 2 scheme string; 3 bearer_format string
OAuth2SecurityScheme: 1 description string; 2 flows OAuthFlows; 3 oauth2_metadata_url string
OpenIdConnectSecurityScheme: 1 description string; 2 open_id_connect_url string
MutualTlsSecurityScheme: 1 description string
OAuthFlows: 1 authorization_code flow|AuthorizationCodeOAuthFlow; 2 client_credentials
    flow|ClientCredentialsOAuthFlow; 3 implicit flow|ImplicitOAuthFlow; 4 password
    flow|PasswordOAuthFlow; 5 device_code flow|DeviceCodeOAuthFlow
AuthorizationCodeOAuthFlow: 1 authorization_url string; 2 token_url string; 3 refresh_url string; 4
    scopes {string}; 5 pkce_required bool
ClientCredentialsOAuthFlow: 1 token_url string; 2 refresh_url string; 3 scopes {string}
ImplicitOAuthFlow: 1 authorization_url string; 2 refresh_url string; 3 scopes {string}
PasswordOAuthFlow: 1 token_url string; 2 refresh_url string; 3 scopes {string}
DeviceCodeOAuthFlow: 1 device_authorization_url string; 2 token_url string; 3 refresh_url string; 4
    scopes {string}
SendMessageRequest: 1 tenant string; 2 message Message; 3 configuration SendMessageConfiguration; 4
    metadata Struct
GetTaskRequest: 1 tenant string; 2 id string; 3 history_length ?int32
ListTasksRequest: 1 tenant string; 2 context_id string; 3 status TaskState; 4 page_size ?int32; 5
    page_token string; 6 history_length ?int32; 7 status_timestamp_after Timestamp; 8
    include_artifacts ?bool
ListTasksResponse: 1 tasks *Task; 2 next_page_token string; 3 page_size int32; 4 total_size int32
CancelTaskRequest: 1 tenant string; 2 id string; 3 metadata Struct
GetTaskPushNotificationConfigRequest: 1 tenant string; 2 task_id string; 3 id string
DeleteTaskPushNotificationConfigRequest: 1 tenant string; 2 task_id string; 3 id string
SubscribeToTaskRequest: 1 tenant string; 2 id string
ListTaskPushNotificationConfigsRequest: 1 task_id string; 2 page_size int32; 3 page_token string; 4
    tenant string
GetExtendedAgentCardRequest: 1 tenant string
SendMessageResponse: 1 task payload|Task; 2 message payload|Message
StreamResponse: 1 task payload|Task; 2 message payload|Message; 3 status_update
    payload|TaskStatusUpdateEvent; 4 artifact_update payload|TaskArtifactUpdateEvent
ListTaskPushNotificationConfigsResponse: 1 configs *TaskPushNotificationConfig; 2 next_page_token
    string
""",
        {"TaskState": tuple(map(str, _STATES)), "Role": _ROLES},
    ),
    (
        Method("SendMessage", operations.SEND_MESSAGE, "SendMessageRequest", "SendMessageResponse"),
        Method(
            "SendStreamingMessage", operations.SEND_STREAMING_MESSAGE, "SendMessageRequest", "StreamResponse"
        ),
        Method("GetTask", operations.GET_TASK, "GetTaskRequest", "Task"),
        Method("ListTasks", operations.LIST_TASKS, "ListTasksRequest", "ListTasksResponse"),
        Method("CancelTask", operations.CANCEL_TASK, "CancelTaskRequest", "Task"),
        Method("SubscribeToTask", operations.SUBSCRIBE_TO_TASK, "SubscribeToTaskRequest", "StreamResponse"),
        Method(
            "CreateTaskPushNotificationConfig",
            operations.CREATE_PUSH_CONFIG,
            "TaskPushNotificationConfig",
            "TaskPushNotificationConfig",
        ),
        Method(
            "GetTaskPushNotificationConfig",
            operations.GET_PUSH_CONFIG,
            "GetTaskPushNotificationConfigRequest",
            "TaskPushNotificationConfig",
        ),
        Method(
            "ListTaskPushNotificationConfigs",
            operations.LIST_PUSH_CONFIGS,
            "ListTaskPushNotificationConfigsRequest",
            "ListTaskPushNotificationConfigsResponse",
        ),
        Method(
            "DeleteTaskPushNotificationConfig",
            operations.DELETE_PUSH_CONFIG,
            "DeleteTaskPushNotificationConfigRequest",
            _EMPTY,
        ),
        Method(
            "GetExtendedAgentCard",
            operations.GET_EXTENDED_AGENT_CARD,
            "GetExtendedAgentCardRequest",
            "AgentCard",
        ),
    ),
)

SERVICE_0_3: Final = ProtobufService(
    "0.3",
    MessageTable(
        "a2a.v1",
        """
SendMessageConfiguration: 1 accepted_output_modes *string; 2 push_notification
    PushNotificationConfig; 3 history_length int32; 4 blocking bool
Task: 1 id string; 2 context_id string; 3 status TaskStatus; 4 artifacts *Artifact; 5 history
    *Message; 6 metadata Struct
TaskStatus: 1 state TaskState; 2 update:message Message; 3 timestamp Timestamp
Part: 1 text part|string; 2 file part|FilePart; 3 data part|DataPart; 4 metadata Struct
FilePart: 1 file_with_uri file|string; 2 file_with_bytes file|bytes; 3 mime_type string; 4 name
    string
DataPart: 1 data Struct
Message: 1 message_id string; 2 context_id string; 3 task_id string; 4 role Role; 5 content *Part; 6
    metadata Struct; 7 extensions *string
Artifact: 1 artifact_id string; 3 name string; 4 description string; 5 parts *Part; 6 metadata
    Struct; 7 extensions *string
TaskStatusUpdateEvent: 1 task_id string; 2 context_id string; 3 status TaskStatus; 4 final bool; 5
    metadata Struct
TaskArtifactUpdateEvent: 1 task_id string; 2 context_id string; 3 artifact Artifact; 4 append bool;
    5 last_chunk bool; 6 metadata Struct
PushNotificationConfig: 1 id string; 2 url string; 3 token string; 4 authentication
    AuthenticationInfo
AuthenticationInfo: 1 schemes *string; 2 credentials string
AgentInterface: 1 url string; 2 transport string
AgentCard: 1 name string; 2 description string; 3 url string; 4 provider AgentProvider; 5 version
    string; 6 documentation_url string; 7 capabilities AgentCapabilities; 8 security_schemes
    {SecurityScheme}; 9 security *Security; 10 default_input_modes *string; 11 default_output_modes
    *string; 12 skills *AgentSkill; 13 supports_authenticated_extended_card bool; 14
    preferred_transport string; 15 additional_interfaces *AgentInterface; 16 protocol_version
    string; 17 signatures *AgentCardSignature; 18 icon_url string
AgentProvider: 1 url string; 2 organization string
AgentCapabilities: 1 streaming bool; 2 push_notifications bool; 3 extensions *AgentExtension
AgentExtension: 1 uri string; 2 description string; 3 required bool; 4 params Struct
AgentSkill: 1 id string; 2 name string; 3 description string; 4 tags *string; 5 examples *string; 6
    input_modes *string; 7 output_modes *string; 8 security *Security
AgentCardSignature: 1 protected string; 2 signature string; 3 header Struct
TaskPushNotificationConfig: 1 name string; 2 push_notification_config PushNotificationConfig
StringList: 1 list *string
Security: 1 schemes {StringList}
SecurityScheme: 1 api_key_security_scheme scheme|APIKeySecurityScheme; 2 http_auth_security_scheme
    scheme|HTTPAuthSecurityScheme; 3 oauth2_security_scheme scheme|OAuth2SecurityScheme; 4
    open_id_connect_security_scheme scheme|OpenIdConnectSecurityScheme; 5 mtls_security_scheme
    scheme|MutualTlsSecurityScheme
APIKeySecurityScheme: 1 description string; 2 location string; 3 name string
HTTPAuthSecurityScheme: 1 description string; 2 scheme string; 3 bearer_format string
OAuth2SecurityScheme: 1 description string; 2 flows OAuthFlows; 3 oauth2_metadata_url string
OpenIdConnectSecurityScheme: 1 description string; 2 open_id_connect_url string
MutualTlsSecurityScheme: 1 description string
OAuthFlows: 1 authorization_code flow|AuthorizationCodeOAuthFlow; 2 client_credentials
    flow|ClientCredentialsOAuthFlow; 3 implicit flow|ImplicitOAuthFlow; 4 password
    flow|PasswordOAuthFlow
AuthorizationCodeOAuthFlow: 1 authorization_url string; 2 token_url string; 3 refresh_url string; 4
    scopes {string}
ClientCredentialsOAuthFlow: 1 token_url string; 2 refresh_url string; 3 scopes {string}
ImplicitOAuthFlow: 1 authorization_url string; 2 refresh_url string; 3 scopes {string}
PasswordOAuthFlow: 1 token_url string; 2 refresh_url string; 3 scopes {string}
SendMessageRequest: 1 request:message Message; 2 configuration SendMessageConfiguration; 3 metadata
    Struct
GetTaskRequest: 1 name string; 2 history_length int32
CancelTaskRequest: 1 name string
GetTaskPushNotificationConfigRequest: 1 name string
DeleteTaskPushNotificationConfigRequest: 1 name string
CreateTaskPushNotificationConfigRequest: 1 parent string; 2 config_id string; 3 config
    TaskPushNotificationConfig
TaskSubscriptionRequest: 1 name string
ListTaskPushNotificationConfigRequest: 1 parent string; 2 page_size int32; 3 page_token string
GetAgentCardRequest:
SendMessageResponse: 1 task payload|Task; 2 msg:message payload|Message
StreamResponse: 1 task payload|Task; 2 msg:message payload|Message; 3 status_update
    payload|TaskStatusUpdateEvent; 4 artifact_update payload|TaskArtifactUpdateEvent
ListTaskPushNotificationConfigResponse: 1 configs *TaskPushNotificationConfig; 2 next_page_token
    string
""",
        {
            "TaskState": tuple(str(name).replace("CANCELED", "CANCELLED") for name in _STATES),
            "Role": _ROLES,
        },
    ),
    (
        Method("SendMessage", operations.SEND_MESSAGE, "SendMessageRequest", "SendMessageResponse"),
        Method(
            "SendStreamingMessage", operations.SEND_STREAMING_MESSAGE, "SendMessageRequest", "StreamResponse"
        ),
        Method("GetTask", operations.GET_TASK, "GetTaskRequest", "Task"),
        Method("CancelTask", operations.CANCEL_TASK, "CancelTaskRequest", "Task"),
        Method("TaskSubscription", operations.SUBSCRIBE_TO_TASK, "TaskSubscriptionRequest", "StreamResponse"),
        Method(
            "CreateTaskPushNotificationConfig",
            operations.CREATE_PUSH_CONFIG,
            "CreateTaskPushNotificationConfigRequest",
            "TaskPushNotificationConfig",
        ),
        Method(
            "GetTaskPushNotificationConfig",
            operations.GET_PUSH_CONFIG,
            "GetTaskPushNotificationConfigRequest",
            "TaskPushNotificationConfig",
        ),
        Method(
            "ListTaskPushNotificationConfig",
            operations.LIST_PUSH_CONFIGS,
            "ListTaskPushNotificationConfigRequest",
            "ListTaskPushNotificationConfigResponse",
        ),
        Method(
            "DeleteTaskPushNotificationConfig",
            operations.DELETE_PUSH_CONFIG,
            "DeleteTaskPushNotificationConfigRequest",
            _EMPTY,
        ),
        Method("GetAgentCard", operations.GET_EXTENDED_AGENT_CARD, "GetAgentCardRequest", "AgentCard"),
    ),
)

SERVICES: Final = (SERVICE_1_0, SERVICE_0_3)
"""The services of A2A. The preferred one is first."""

STATUS: Final = MessageTable(
    "google.rpc",
    """
Status: 1 code int32; 2 message string; 3 details *Any
ErrorInfo: 1 reason string; 2 domain string; 3 metadata {string}
BadRequest: 1 field_violations *FieldViolation
FieldViolation: 1 field string; 2 description string
""",
)
"""The details of an error. Spec: A2A 1.0 section 10.6."""

HEALTH: Final = MessageTable(
    "grpc.health.v1",
    """
HealthCheckRequest: 1 service string
HealthCheckResponse: 1 status ServingStatus
""",
    {"ServingStatus": ("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")},
)
"""The health protocol of gRPC: github.com/grpc/grpc/blob/master/doc/health-checking.md."""

TENANTS: Final = MessageTable(
    "mcp_a2a",
    """
TenantAt1: 1 tenant string
TenantAt4: 4 tenant string
""",
)
"""Readers of the tenant of a request, by its number there. The rest of the request is not parsed."""
