"""What we claim to do, each with the sentence of the specification or of our design that asks for it.

A test is marked `@pytest.mark.proves("id", ...)`. A requirement that no test proves fails the suite, and so
does a mark that names no requirement.
"""

from __future__ import annotations

from typing import Final

REQUIREMENTS: Final[dict[str, str]] = {
    # The data model
    "a2a-4.1.6-part": "4.1.6: a part holds exactly one of text, raw, url and data; data is any JSON value, null too",
    "a2a-5.5-names": "5.5: JSON names are camelCase and enum values are the proto's names",
    "a2a-5.6.1-time": "5.6.1: timestamps are ISO 8601 in UTC with Z, in milliseconds",
    "a2a-5.7-required": "5.7: a message without a required field, or with an empty required array, is refused",
    "a2a-5.7-unknown": "5.7: fields that are not known are passed over, and kept",
    # Sending
    "a2a-3.1.1-send": "3.1.1: SendMessage answers with a task whose id the server made",
    "a2a-3.1.2-stream": "3.1.2: a stream begins with the Task, then its updates, and closes at a terminal state",
    "a2a-3.2.2-blocking": "3.2.2: SendMessage waits for a terminal or interrupted state",
    "a2a-3.2.2-return-immediately": "3.2.2: with returnImmediately it answers once the task is made",
    "a2a-3.2.4-history": "3.2.4: historyLength unset, 0 and n",
    "a2a-3.3.1-idempotent": "3.3.1: the same message again finds the same task; another with its id is refused",
    "a2a-11.7-input-closes": "11.7: a stream closes when the task becomes INPUT_REQUIRED",
    "a2a-7.6.1-auth-open": "7.6.1: a stream stays open at AUTH_REQUIRED",
    "a2a-accepted-modes": "3.2.2: acceptedOutputModes that a skill cannot meet are refused before it runs",
    "a2a-reference-tasks": "3.4.3: referenceTaskIds are kept",
    # Tasks
    "a2a-3.1.3-get": "3.1.3: GetTask gives the current state, or TaskNotFound",
    "a2a-3.1.4-list": "3.1.4: ListTasks is scoped, filtered, paged by cursor, newest first; nextPageToken always there",
    "a2a-3.1.4-artifacts": "3.1.4: ListTasks leaves artifacts out unless asked for",
    "a2a-3.1.5-cancel": "3.1.5: CancelTask ends a task; on one that has ended it is TaskNotCancelable",
    "a2a-3.1.6-subscribe": "3.1.6: SubscribeToTask begins with the Task; on an ended one it is UnsupportedOperation",
    "a2a-3.5.2-order": "3.5.2: every stream of a task gets the same events in the same order; closing one affects none",
    "a2a-3.4.1-context": "3.4.1: a generated contextId is returned, a client's is kept or refused, never replaced",
    "a2a-3.4.2-task-id": "3.4.2: a taskId has to exist; TaskNotFound otherwise",
    "a2a-3.4.3-infer": "3.4.3: taskId alone infers the context; a mismatch is refused",
    "a2a-3.1.1-terminal": "3.1.1: a message to a task that has ended is UnsupportedOperation",
    "a2a-13.1-scope": "13.1: tasks and contexts belong to their principal; not found and not yours look the same",
    # Errors, versions, extensions, capabilities
    "a2a-3.3.4-push": "3.3.4: without the capability, push operations are PushNotificationNotSupported",
    "a2a-3.3.4-extended": "3.3.4: without the capability, GetExtendedAgentCard is UnsupportedOperation",
    "a2a-3.6.2-version": "3.6.2: a version that is not served, also an empty one (0.3), is VersionNotSupported",
    "a2a-3.6.1-version-query": "3.6.1: the version may come as a query parameter; patch numbers are passed over",
    "a2a-4.6-extensions": "4.6: an extension is active only when asked for, and is echoed then",
    "a2a-9.5-errors": "9.5: JSON-RPC errors carry the code, and details with @type",
    "a2a-11.6-errors": "11.6: HTTP errors are a google.rpc.Status with ErrorInfo and the mapped status",
    "a2a-11.3-paths": "11.3: the paths and verbs of HTTP+JSON; subscribe takes GET and POST",
    "a2a-9.1-jsonrpc": "9.1: JSON-RPC 2.0; batches and notifications are refused",
    # The card
    "a2a-4.4.1-card": "4.4.1: the card has its required fields, none of them an empty array",
    "a2a-8.3-interfaces": "8.3: the card declares each binding, with Major.Minor versions",
    "a2a-8.6-cache": "8.6: the card has Cache-Control and ETag, and answers 304",
    "card-base": "The card advertises public_url, or a forwarded prefix, never an alias",
    "card-changes": "The card follows the server's list of tools",
    # The wire's hygiene
    "sse-heartbeat": "A silent stream says at most every 3 s that it lives",
    "sse-escapes": "U+0085, U+2028 and U+2029 are escaped in streams",
    "sse-gone": "A client that goes away never affects the task",
    "sse-slow": "A slow reader is cut off, and the task goes on",
    "web-host": "A Host that is not ours, or an Origin of someone else, is refused",
    "web-json": "Only JSON is taken, bounded in size, depth and parts",
    "web-auth": "Beyond loopback: with a token, or explicitly without; 401 says which scheme",
    # The store
    "store-contract": "(task, seq) is unique without gaps, the first end wins, owners and messages are unique",
    "store-kill": "No acknowledged event is lost when the process is killed",
    "store-owner": "One process owns a file",
    "store-retention": "Retention deletes only tasks that have ended",
    "store-visible": "An event is stored before anyone sees it",
    "restart-fails-running": "After a restart, a task that was running is FAILED and says so",
    "restart-keeps-waiting": "After a restart, a task that waits for arguments goes on",
    # Tools as agent
    "map-skill": "One skill per tool, with its name, description, tags, examples and modes",
    "map-extension-card": "The card's extension lists every tool as its server does",
    "map-route": "Which tool a message means: rules 1 to 5 and 7, never a guess",
    "map-files": "A file fills the property that asks for one; one that fits nothing is ContentTypeNotSupported",
    "map-arguments": "Missing or wrong arguments are asked for by name, and the answer is merged",
    "map-arguments-extension": "With the extension active, arguments are passed through",
    "map-refuse": "A question is refused only explicitly: by metadata, or by the exact shape",
    "map-content": "Every kind of content block becomes a part, in order, for sends and for streams",
    "map-block": "With the extension active, the original block can be made again exactly",
    "map-is-error": "isError is FAILED, with all that the tool said",
    "map-mcp-error": "A JSON-RPC error is FAILED with its code; -32602 is REJECTED",
    "map-progress": "Progress is WORKING with the message, the numbers in metadata; a flood keeps its last",
    "map-timeout": "A call that takes too long is cancelled on the server and FAILED",
    "map-cancel": "Cancelling a task cancels the call on the wire",
    "map-lost": "A server that dies fails its calls with a clear message, and the next call works",
    "map-overload": "When too many calls wait, one more is refused with 503 and Retry-After",
    # The MCP client
    "mcp-pages": "All pages of tools/list are read",
    "mcp-bad-tool": "One bad tool is left out with a warning that names it; the others stay",
    "mcp-eras": "Both eras are spoken, found out, remembered, or set",
    "mcp-changed": "list_changed is followed in both eras",
    "mcp-no-leak": "No child process outlives the bridge",
    # The command
    "cli-usage": "Bad input is one clear message, exit code 2 (usage) or 1 (peer), no traceback, nothing left running",
    "cli-stop": "Ctrl+C drains, a second stops",
    "cli-call": "call streams a task's events, and asks at a terminal",
    "profile": "A profile is whole or refused, with every fault named",
}
