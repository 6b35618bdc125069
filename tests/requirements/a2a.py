"""A2A 1.0: what falls to an agent, and what to a client of agents.

The text is that of version 1.0.1, with section 7.6.4, which was added since.
"""

from __future__ import annotations

from typing import Final

from tests.requirements.requirement import Requirement, Revision, Side, Source, status_of

_SPECIFICATION: Final = "https://a2a-protocol.org/latest/specification/"
_HEADINGS: Final = {
    "3.1.1": "311-send-message",
    "3.1.2": "312-send-streaming-message",
    "3.1.3": "313-get-task",
    "3.1.4": "314-list-tasks",
    "3.1.5": "315-cancel-task",
    "3.1.6": "316-subscribe-to-task",
    "3.1.7": "317-create-push-notification-config",
    "3.1.8": "318-get-push-notification-config",
    "3.1.9": "319-list-push-notification-configs",
    "3.1.10": "3110-delete-push-notification-config",
    "3.1.11": "3111-get-extended-agent-card",
    "3.2.2": "322-sendmessageconfiguration",
    "3.2.4": "324-history-length-semantics",
    "3.3.1": "331-idempotency",
    "3.3.2": "332-error-handling",
    "3.3.4": "334-capability-validation",
    "3.4.1": "341-context-identifier-semantics",
    "3.4.2": "342-task-identifier-semantics",
    "3.4.3": "343-multi-turn-conversation-patterns",
    "3.5.2": "352-streaming-event-delivery",
    "3.6": "36-versioning",
    "3.6.1": "361-client-responsibilities",
    "3.6.2": "362-server-responsibilities",
    "3.6.3": "363-tooling-support",
    "3.7": "37-messages-and-artifacts",
    "4": "4-protocol-data-model",
    "4.1.6": "416-part",
    "4.3.3": "433-push-notification-payload",
    "4.4.1": "441-agentcard",
    "4.6": "46-extensions",
    "4.6.3": "463-extension-versioning-and-compatibility",
    "5.1": "51-functional-equivalence-requirements",
    "5.2": "52-protocol-selection-and-negotiation",
    "5.4": "54-error-code-mappings",
    "5.5": "55-json-field-naming-convention",
    "5.6.1": "561-timestamps",
    "5.7": "57-field-presence-and-optionality",
    "7.1": "71-protocol-security",
    "7.4": "74-server-authentication-responsibilities",
    "7.6.1": "761-in-task-authorization-agent-responsibilities",
    "7.6.4": "764-in-task-authorization-scope",
    "8.1": "81-purpose",
    "8.3": "83-protocol-declaration-requirements",
    "8.3.2": "832-client-protocol-selection",
    "8.4.1": "841-canonicalization-requirements",
    "8.4.2": "842-signature-format",
    "8.4.3": "843-signature-verification",
    "8.6": "86-caching",
    "9.1": "91-protocol-requirements",
    "9.2": "92-service-parameter-transmission",
    "9.3": "93-base-request-structure",
    "9.5": "95-error-handling",
    "10": "10-grpc-protocol-binding",
    "10.1": "101-protocol-requirements",
    "10.2": "102-service-parameter-transmission",
    "10.6": "106-error-handling",
    "10.7": "107-streaming",
    "11.1": "111-protocol-requirements",
    "11.2": "112-service-parameter-transmission",
    "11.3": "113-url-patterns-and-http-methods",
    "11.5": "115-query-parameter-naming-for-request-parameters",
    "11.6": "116-error-handling",
    "11.7": "117-streaming",
    "13.1": "131-data-access-and-authorization-scoping",
    "13.2": "132-push-notification-security",
    "13.3": "133-extended-agent-card-access-control",
    "13.4": "134-general-security-best-practices",
    "14.1.1": "1411-applicationa2ajson",
    "14.2.1": "1421-a2a-version-header",
    "14.3": "143-well-known-uri-registration",
}
"""Section by section, what the specification's page calls its heading in a link."""

_EXTENDED: Final = (
    "The bridge never requests the extended card of an agent: it calls the skills on the public card"
)
_TLS: Final = (
    "The bridge serves HTTPS if its file names a certificate. Otherwise it serves plain HTTP, on loopback or"
    " behind a proxy (docs/guides/let-colleagues-in.md). As a client it calls the given URL, also over plain HTTP"
)


def _entry(
    sides: frozenset[Side], name: str, section: str, sentence: str, deferred: str, diverges: str
) -> Requirement:
    source = Source(Revision.A2A_1_0, section, f"{_SPECIFICATION}#{_HEADINGS[section]}")
    status, reason = status_of(deferred, diverges)
    return Requirement(
        id=name, sources=(source,), sentence=sentence, sides=sides, status=status, reason=reason
    )


def _agent(name: str, section: str, sentence: str, *, deferred: str = "", diverges: str = "") -> Requirement:
    return _entry(frozenset({Side.AGENT}), name, section, sentence, deferred, diverges)


def _client(name: str, section: str, sentence: str, *, deferred: str = "", diverges: str = "") -> Requirement:
    return _entry(frozenset({Side.CLIENT}), name, section, sentence, deferred, diverges)


def _both(name: str, section: str, sentence: str, *, deferred: str = "", diverges: str = "") -> Requirement:
    return _entry(frozenset({Side.AGENT, Side.CLIENT}), name, section, sentence, deferred, diverges)


A2A: Final = (
    # The data model
    _agent("a2a-4-equivalent", "4", "Both bindings say the same of the same objects"),
    _both(
        "a2a-4.1.6-part",
        "4.1.6",
        "A part holds exactly one of text, raw, url and data; data is any JSON value, null too",
    ),
    _both("a2a-5.5-names", "5.5", "JSON names are camelCase and enum values are the proto's names"),
    _both("a2a-5.6.1-time", "5.6.1", "Timestamps are ISO 8601 in UTC with Z, in milliseconds"),
    _both(
        "a2a-5.7-required",
        "5.7",
        "A message without a required field, or with an empty required array, is refused",
    ),
    _agent(
        "a2a-5.7-sent", "5.7", "What the agent sends has every required field, none of them an empty array"
    ),
    _both("a2a-5.7-unknown", "5.7", "Fields that are not known are passed over, and kept"),
    # Sending
    _agent(
        "a2a-3.1.1-send", "3.1.1", "SendMessage answers with a task whose id the agent made, or a Message"
    ),
    _agent("a2a-3.1.1-terminal", "3.1.1", "A message to a task that has ended is UnsupportedOperation"),
    _agent(
        "a2a-3.1.2-stream",
        "3.1.2",
        "A stream begins with the Task, then its updates, and closes at a terminal state",
    ),
    _agent("a2a-3.1.2-message", "3.1.2", "The stream of a Message holds that alone, and closes"),
    _agent("a2a-3.1.2-progress", "3.1.2", "A stream tells of progress and of artifacts as they come"),
    _client(
        "a2a-3.1.2-read",
        "3.1.2",
        "A client reads both kinds of stream, and tells one that breaks off from one that has ended",
    ),
    _agent("a2a-3.2.2-blocking", "3.2.2", "SendMessage waits for a terminal or interrupted state"),
    _agent(
        "a2a-3.2.2-return-immediately", "3.2.2", "With returnImmediately it answers once the task is made"
    ),
    _agent(
        "a2a-accepted-modes",
        "3.2.2",
        "acceptedOutputModes that a skill cannot meet are refused before it runs",
    ),
    _agent("a2a-3.2.4-history", "3.2.4", "historyLength unset, 0 and n: never more than is asked for"),
    _agent(
        "a2a-3.3.1-idempotent",
        "3.3.1",
        "The same message again finds the same task; another with its id is refused",
    ),
    _agent("a2a-3.7-final", "3.7", "What a task ended with stands in its history as it is shown, once"),
    _client("a2a-3.7-unreliable", "3.7", "A client relies on no message being in the history of a task"),
    _agent("a2a-11.7-input-closes", "11.7", "A stream closes when the task becomes INPUT_REQUIRED"),
    # Tasks
    _agent("a2a-3.1.3-get", "3.1.3", "GetTask gives the current state, or TaskNotFound"),
    _agent(
        "a2a-3.1.4-list",
        "3.1.4",
        "ListTasks is scoped, filtered, paged by cursor, newest first; nextPageToken is always there",
    ),
    _agent("a2a-3.1.4-artifacts", "3.1.4", "ListTasks leaves artifacts out unless asked for"),
    _agent(
        "a2a-3.1.5-cancel",
        "3.1.5",
        "CancelTask ends a task; on one that has ended it is TaskNotCancelable",
    ),
    _agent(
        "a2a-3.1.6-subscribe",
        "3.1.6",
        "SubscribeToTask begins with the Task and closes at its end; on an ended one it is UnsupportedOperation",
    ),
    _agent(
        "a2a-3.5.2-order",
        "3.5.2",
        "Every stream of a task gets the same events in the same order; closing one affects none",
    ),
    _agent(
        "a2a-3.4.1-context",
        "3.4.1",
        "A generated contextId is returned, a client's is kept or refused, never replaced",
    ),
    _agent(
        "a2a-3.4.2-unique", "3.4.2", "Each new task has an id of its own, which the agent makes and returns"
    ),
    _agent("a2a-3.4.2-task-id", "3.4.2", "A taskId has to exist; TaskNotFound otherwise"),
    _client("a2a-3.4.2-existing", "3.4.2", "A client names only tasks that the agent has told it of"),
    _agent("a2a-3.4.3-infer", "3.4.3", "taskId alone infers the context; a mismatch is refused"),
    _agent("a2a-reference-tasks", "3.4.3", "referenceTaskIds are kept"),
    _agent(
        "a2a-13.1-scope",
        "13.1",
        "Tasks and contexts belong to their principal; not found and not yours look the same",
    ),
    _agent("a2a-13.1-first", "13.1", "Who asks is checked before anything is looked up"),
    # Errors
    _agent(
        "a2a-3.3.2-errors", "3.3.2", "Every error has a code and a message, and each detail names its @type"
    ),
    _agent("a2a-3.3.2-authentication", "3.3.2", "A request with wrong or missing credentials is refused"),
    _agent(
        "a2a-3.3.2-authorization",
        "3.3.2",
        "An authenticated client that lacks a permission is answered with an authorization error",
        diverges=(
            "For a principal, a skill that it may not use and a task of another principal do not exist: the same"
            " section requires that nothing is revealed about resources that a client may not access"
        ),
    ),
    _agent(
        "a2a-3.3.2-unrevealed", "3.3.2", "Nothing tells whether something exists that a client may not access"
    ),
    _agent("a2a-3.3.2-validation", "3.3.2", "Every parameter is checked before anything is done"),
    _agent("a2a-3.3.2-not-found", "3.3.2", "What does not exist, or is not the client's, is not found"),
    _agent("a2a-5.4-codes", "5.4", "Each error of A2A has the code that the table gives it in each binding"),
    _agent("a2a-9.5-errors", "9.5", "JSON-RPC errors carry the code, and details with @type"),
    _agent(
        "a2a-11.6-errors", "11.6", "HTTP errors are a google.rpc.Status with ErrorInfo and the mapped status"
    ),
    _client("a2a-5.4-read", "5.4", "An error of an agent is told by its code and reason, in each binding"),
    # Capabilities
    _agent(
        "a2a-3.3.4-push", "3.3.4", "Without the capability, push operations are PushNotificationNotSupported"
    ),
    _agent(
        "a2a-3.3.4-streaming", "3.3.4", "The card declares streaming, and both operations that stream work"
    ),
    _agent(
        "a2a-3.3.4-extended",
        "3.3.4",
        "Without the capability, GetExtendedAgentCard is UnsupportedOperation",
    ),
    _agent(
        "a2a-3.3.4-extensions",
        "3.3.4",
        "A client that does not activate what the card requires is refused; the bridge's own extension is not"
        " required",
    ),
    # Push notifications and the extended card
    _agent(
        "a2a-3.1.7-push",
        "3.1.7",
        "A push configuration is kept until its task ends or it is deleted",
    ),
    _agent("a2a-3.1.8-push", "3.1.8", "A push configuration is read, or not found"),
    _agent("a2a-3.1.9-push", "3.1.9", "All push configurations of a task are listed"),
    _agent("a2a-3.1.10-push", "3.1.10", "A push configuration is deleted, twice as well as once"),
    _agent(
        "a2a-4.3.3-push",
        "4.3.3",
        "An update is posted at least once, with the credentials that were given",
    ),
    _client(
        "a2a-4.3.3-received",
        "4.3.3",
        "A posted update is answered with 2xx, and its task is checked",
    ),
    _agent("a2a-13.2-push", "13.2", "Posts to a webhook carry the credentials that were given"),
    _client(
        "a2a-13.2-received",
        "13.2",
        "Posts to a webhook are taken only with the right credentials",
    ),
    _client(
        "a2a-3.1.11-extended",
        "3.1.11",
        "The extended card is asked for with credentials of a scheme that the card declares",
        deferred=_EXTENDED,
    ),
    _agent(
        "a2a-13.3-extended",
        "13.3",
        "The extended card is given to authenticated clients, as far as they may see it",
    ),
    # Versions and extensions
    _both("a2a-3.6-patch", "3.6", "Patch numbers count for nothing when a version is chosen"),
    _agent(
        "a2a-3.6.1-version-query",
        "3.6.1",
        "The version may come as a query parameter; patch numbers are passed over",
    ),
    _client("a2a-3.6.1-version-sent", "3.6.1", "Every request of a client says A2A-Version"),
    _client("a2a-14.2.1-version", "14.2.1", "A2A-Version is Major.Minor"),
    _agent(
        "a2a-3.6.2-version",
        "3.6.2",
        "An empty version is 0.3; one that is not served is VersionNotSupported",
    ),
    _client("a2a-3.6.3-negotiation", "3.6.3", "Binding and version are chosen from what the card offers"),
    _agent("a2a-4.6-extensions", "4.6", "An extension is active only when asked for, and is echoed then"),
    _agent(
        "a2a-4.6.3-version",
        "4.6.3",
        "Another version of an extension is another extension: none stands in for it",
    ),
    _agent("a2a-4.6.3-new-uri", "4.6.3", "The URI of the bridge's own extension names its version"),
    # The card
    _agent("a2a-8.1-card", "8.1", "The agent makes a card available"),
    _agent("a2a-14.3-well-known", "14.3", "The well-known URI gives the card"),
    _agent("a2a-4.4.1-card", "4.4.1", "The card has its required fields, none of them an empty array"),
    _agent("a2a-5.2-declared", "5.2", "The card declares every binding that is served"),
    _agent(
        "a2a-8.3-interfaces", "8.3", "The card declares each binding and its URL, with Major.Minor versions"
    ),
    _client("a2a-8.3.2-first", "8.3.2", "The first interface that the client speaks is called, at its URL"),
    _client(
        "a2a-8.3.2-tenant",
        "8.3.2",
        "Every request names the tenant of its interface, or none where that has none",
    ),
    _agent("a2a-8.4.1-canonical", "8.4.1", "A card is canonicalized before it is signed"),
    _agent("a2a-8.4.2-format", "8.4.2", "A signature names its algorithm and its key"),
    _client(
        "a2a-8.4.3-verified",
        "8.4.3",
        "A signature is verified over the canonical card, never by a key that has expired or was revoked",
    ),
    _agent("a2a-8.6-cache", "8.6", "The card has Cache-Control and ETag, and answers 304"),
    _client("a2a-8.6-kept", "8.6", "A card is kept as HTTP says, and asked for again with its validators"),
    # The bindings
    _agent(
        "a2a-5.1-equivalent",
        "5.1",
        "Every operation is there in both bindings, and does and refuses the same",
    ),
    _agent("a2a-9.1-jsonrpc", "9.1", "JSON-RPC 2.0; batches and notifications are refused"),
    _both("a2a-9.2-headers", "9.2", "Service parameters of JSON-RPC are HTTP headers, by names of any case"),
    _client("a2a-9.3-request", "9.3", "Requests of a client are JSON-RPC 2.0"),
    _agent(
        "a2a-11.1-accept",
        "11.1",
        "HTTP+JSON answers with application/a2a+json, or application/json where that is asked for",
    ),
    _both(
        "a2a-11.2-headers", "11.2", "Service parameters of HTTP+JSON are HTTP headers, by names of any case"
    ),
    _agent("a2a-11.3-paths", "11.3", "The paths and verbs of HTTP+JSON; subscribe takes GET and POST"),
    _both(
        "a2a-11.5-query",
        "11.5",
        "Parameters of GET and DELETE stand in the path and the query, in camelCase, encoded",
    ),
    _agent("a2a-10.1-grpc", "10.1", "gRPC has the services, messages and numbers of the official proto file"),
    _agent("a2a-10.2-metadata", "10.2", "Service parameters of gRPC are its metadata"),
    _agent(
        "a2a-10.6-errors", "10.6", "Errors of gRPC have an ErrorInfo, and a BadRequest for invalid fields"
    ),
    _agent("a2a-10.7-streaming", "10.7", "Streams of gRPC are server streams, and end with the task"),
    _client("a2a-10-called", "10", "The bridge calls agents that offer only gRPC"),
    # Security
    _both("a2a-7.1-tls", "7.1", "Production deployments use TLS", deferred=_TLS),
    _agent("a2a-7.4-authenticated", "7.4", "Every request is authenticated as the card declares"),
    _agent(
        "a2a-7.6.1-auth-required",
        "7.6.1",
        "What needs an authorization is a task in AUTH_REQUIRED that says what for",
    ),
    _agent("a2a-7.6.1-auth-open", "7.6.1", "A stream stays open at AUTH_REQUIRED"),
    _agent(
        "a2a-7.6.1-out-of-band",
        "7.6.1",
        "Credentials never come in a message: who has to sign in is given a URL",
    ),
    _agent(
        "a2a-7.6.4-scope",
        "7.6.4",
        "A yes at AUTH_REQUIRED is for the call that was shown, once, and for nothing after",
    ),
    _both("a2a-13.4-secrets", "13.4", "Credentials are secrets: no message, repr or listing shows them"),
    _both("a2a-13.4-logs", "13.4", "No log shows credentials"),
    _agent(
        "a2a-13.4-privacy",
        "13.4",
        "Data protection regulations are complied with",
        deferred="This is the task of the operator: `[store]` bounds which data is kept, and for how long",
    ),
    _both("a2a-14.1.1-utf8", "14.1.1", "JSON is UTF-8"),
    _agent("a2a-14.1.1-validated", "14.1.1", "What comes is checked against the schema of A2A first"),
    _both("a2a-14.1.1-injection", "14.1.1", "What a peer says steers no terminal and no log"),
    _agent("a2a-14.1.1-files", "14.1.1", "A file reference in a message makes the agent fetch nothing"),
)
"""Every sentence, in the order of its matter."""
