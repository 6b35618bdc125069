"""MCP 2025-11-25: what this revision alone asks of a server and of a client of tools."""

from __future__ import annotations

from typing import Final

from tests.requirements.mcp import BOTH, CLIENT, SERVER, at_2025, of

OAUTH: Final = (
    "A person logs in through the client of the SDK (`mcp-a2a login`), which the official suite tests. We have no"
    " test of our own for this sentence"
)
_NO_TASKS: Final = (
    "The server does not support tasks of this revision, and does not declare them. It answers a long call with a"
    " handle, or for a newer client with a task of the tasks extension"
)
_TRANSPORTS: Final = "basic/transports#"
_TASKS: Final = "basic/utilities/tasks#"
_AUTHORIZATION: Final = "basic/authorization#"

MCP_2025_11_25: Final = (
    # Lifecycle
    *of(
        CLIENT,
        (at_2025("basic/lifecycle#initialization"),),
        {
            "mcp25-initialize": (
                "The client initializes first, with its version, capabilities and name, and says when it has"
            ),
        },
    ),
    *of(
        SERVER,
        (at_2025("basic/lifecycle#initialization"),),
        {"mcp25-initialized": "The server answers with its version, capabilities and name"},
    ),
    *of(
        SERVER,
        (at_2025("basic/lifecycle#version-negotiation"),),
        {"mcp25-version": "A version that is served is answered with, and any other with one that is"},
    ),
    *of(
        CLIENT,
        (at_2025("basic/lifecycle#version-negotiation"),),
        {
            "mcp25-version-offered": (
                "The client offers a version that it speaks, and leaves a server with none of those"
            ),
        },
    ),
    *of(
        BOTH,
        (at_2025("basic/lifecycle#operation"),),
        {"mcp25-negotiated": "Only what was negotiated is used"},
    ),
    *of(
        SERVER,
        (at_2025("basic#requests"),),
        {"mcp25-question-id": "What the server asks has an id of its own"},
    ),
    *of(
        CLIENT,
        (at_2025("basic#result-responses"),),
        {"mcp25-answer-id": "What the client answers has the id of what was asked"},
    ),
    *of(
        SERVER,
        (at_2025("basic/utilities/ping#behavior-requirements"),),
        {"mcp25-ping-server": "The server answers a ping with an empty result"},
    ),
    *of(
        CLIENT,
        (at_2025("basic/utilities/ping#behavior-requirements"),),
        {"mcp25-ping-client": "The client answers a ping with an empty result"},
    ),
    *of(
        CLIENT,
        (at_2025("basic/utilities/cancellation#behavior-requirements"),),
        {
            "mcp25-cancel-initialize": "The client never cancels initialize",
            "mcp25-cancel-task": "A task is cancelled with tasks/cancel, and not with a notification",
        },
    ),
    # Streamable HTTP
    *of(
        CLIENT,
        (at_2025(f"{_TRANSPORTS}listening-for-messages-from-the-server"),),
        {"mcp25-get-accept": "A GET of the client accepts event streams"},
    ),
    *of(
        SERVER,
        (at_2025(f"{_TRANSPORTS}listening-for-messages-from-the-server"),),
        {"mcp25-get": "A GET is answered with a stream of events, on which no answers come"},
    ),
    *of(
        SERVER,
        (at_2025(f"{_TRANSPORTS}multiple-connections"),),
        {"mcp25-one-stream": "A message goes out on one stream alone"},
    ),
    *of(
        CLIENT,
        (at_2025(f"{_TRANSPORTS}sending-messages-to-the-server"),),
        {
            "mcp25-retry": (
                "A stream that its server closed is taken up again after the time that the server names"
            ),
        },
    ),
    *of(
        SERVER,
        (at_2025(f"{_TRANSPORTS}resumability-and-redelivery"),),
        {
            "mcp25-event-ids": (
                "The ids of events are unique, and only the events of a stream are sent on it again"
            ),
        },
    ),
    *of(
        SERVER,
        (at_2025(f"{_TRANSPORTS}session-management"),),
        {
            "mcp25-session-id": "The id of a session is of visible ASCII characters",
            "mcp25-session-ended": "A session that has ended is answered with 404",
        },
    ),
    *of(
        CLIENT,
        (at_2025(f"{_TRANSPORTS}session-management"),),
        {
            "mcp25-session-sent": "Every request of a session names it",
            "mcp25-session-again": (
                "A session that is answered with 404 is followed by another, which names none"
            ),
            "mcp25-session-secret": "No log shows the id of a session",
        },
    ),
    *of(
        CLIENT,
        (at_2025(f"{_TRANSPORTS}protocol-version-header"),),
        {"mcp25-version-header": "Every request after initialize names the version in its header"},
    ),
    *of(
        SERVER,
        (at_2025(f"{_TRANSPORTS}protocol-version-header"),),
        {"mcp25-version-unknown": "A version that is not served is answered with 400"},
    ),
    # Elicitation
    *of(
        CLIENT,
        (at_2025("client/elicitation#completion-notifications-for-url-mode-elicitation"),),
        {"mcp25-elicit-complete": "That something unknown is completed is passed over"},
    ),
    *of(
        SERVER,
        (at_2025("client/elicitation#completion-notifications-for-url-mode-elicitation"),),
        {"mcp25-elicit-completed": "That a URL was visited is said only to the client that was sent there"},
        deferred=(
            "The server does not learn when a URL was visited, so it reports this to no client (the report is "
            "optional)"
        ),
    ),
    *of(
        SERVER,
        (at_2025("client/elicitation#url-elicitation-required-error"),),
        {
            "mcp25-url-required": (
                "-32042 stands only for URLs that have to be visited: the server never answers with it"
            ),
        },
    ),
    *of(
        CLIENT,
        (at_2025("client/elicitation#error-handling"),),
        {"mcp25-elicit-mode": "A question of a mode that was not declared is answered with -32602"},
    ),
    *of(
        SERVER,
        (at_2025("client/elicitation#statefulness"),),
        {"mcp25-state-session": "Nothing of a question is known by the id of a session alone"},
    ),
    # Tasks: those of a tool server
    *of(
        CLIENT,
        (at_2025(f"{_TASKS}tool-level-negotiation"),),
        {
            "mcp25-task-declared": "No tool of a server that declares no tasks is called as one",
            "mcp25-task-support": (
                "A tool is called as a task where it has to be, and where it must not be, plainly"
            ),
        },
    ),
    *of(
        CLIENT,
        (at_2025(f"{_TASKS}task-notifications"),),
        {"mcp25-task-polled": "A task is looked at also while its server notifies of nothing"},
    ),
    *of(
        CLIENT,
        (at_2025(f"{_TASKS}associating-task-related-messages"),),
        {"mcp25-task-related": "An answer to what a task asks names that task"},
    ),
    # Tasks: our own
    *of(
        SERVER,
        (at_2025(f"{_TASKS}task-support-and-handling"),),
        {"mcp25-task-ignored": "A call that asks to be a task is answered as any other"},
    ),
    *of(
        SERVER,
        (at_2025(f"{_TASKS}task-id-requirements"),),
        {"mcp25-task-ids": "The id of a task is a unique text, which the server makes"},
        deferred=_NO_TASKS,
    ),
    *of(
        SERVER,
        (at_2025(f"{_TASKS}task-status-lifecycle"),),
        {"mcp25-task-life": "A task begins as working, and has ended for good once it has ended"},
        deferred=_NO_TASKS,
    ),
    *of(
        SERVER,
        (at_2025(f"{_TASKS}ttl-and-resource-management"),),
        {"mcp25-task-times": "A task says when it was made and changed, and how long it is kept"},
        deferred=_NO_TASKS,
    ),
    *of(
        SERVER,
        (at_2025(f"{_TASKS}result-retrieval"),),
        {"mcp25-task-result": "tasks/result waits for the end, and gives what the call would have given"},
        deferred=_NO_TASKS,
    ),
    *of(
        SERVER,
        (at_2025(f"{_TASKS}associating-task-related-messages"),),
        {"mcp25-task-meta": "Everything about a task names it"},
        deferred=_NO_TASKS,
    ),
    *of(
        SERVER,
        (at_2025(f"{_TASKS}task-listing"),),
        {"mcp25-task-list": "Every task that can be got is listed, page by page"},
        deferred=_NO_TASKS,
    ),
    *of(
        SERVER,
        (at_2025(f"{_TASKS}task-cancellation"),),
        {
            "mcp25-task-cancel": (
                "A task that is cancelled is so at once, and stays so; one that has ended is not"
            ),
        },
        deferred=_NO_TASKS,
    ),
    *of(
        SERVER,
        (at_2025(f"{_TASKS}task-isolation-and-access-control"),),
        {"mcp25-task-owner": "A task is there for whoever made it, and for nobody else"},
        deferred=_NO_TASKS,
    ),
    *of(
        SERVER,
        (at_2025(f"{_TASKS}protocol-errors"),),
        {"mcp25-task-errors": "What is wrong with a request about a task is a standard error"},
        deferred=_NO_TASKS,
    ),
    *of(
        SERVER,
        (at_2025("basic/utilities/progress#behavior-requirements"),),
        {"mcp25-task-progress": "The progress of a task keeps its token until the task has ended"},
        deferred=_NO_TASKS,
    ),
    # Authorization, which is optional: 66 sentences, by what they are about
    *of(
        SERVER,
        (at_2025(f"{_AUTHORIZATION}protected-resource-metadata-discovery-requirements"),),
        {
            "mcp25-oauth-resource": (
                "The server says in its metadata, and with 401, which authorization servers it trusts"
            ),
        },
    ),
    *of(
        SERVER,
        (at_2025(f"{_AUTHORIZATION}token-handling"),),
        {"mcp25-oauth-audience": "The server takes only access tokens that were issued for it"},
    ),
    *of(
        SERVER,
        (at_2025(f"{_AUTHORIZATION}error-handling"),),
        {"mcp25-oauth-errors": "401, 403 and 400 stand for what OAuth means by them"},
    ),
    *of(
        CLIENT,
        (at_2025(f"{_AUTHORIZATION}authorization-server-metadata-discovery"),),
        {"mcp25-oauth-discovery": "The client finds authorization servers by all the ways there are"},
        deferred=OAUTH,
    ),
    *of(
        CLIENT,
        (at_2025(f"{_AUTHORIZATION}implementation-requirements"),),
        {"mcp25-oauth-registration": "The client has an id that is a URL, or registers"},
        deferred=OAUTH,
    ),
    *of(
        CLIENT,
        (at_2025(f"{_AUTHORIZATION}resource-parameter-implementation"),),
        {"mcp25-oauth-for-resource": "The client asks for tokens for the very server that it calls"},
        deferred=OAUTH,
    ),
    *of(
        CLIENT,
        (at_2025(f"{_AUTHORIZATION}authorization-code-protection"),),
        {"mcp25-oauth-pkce": "The client uses PKCE, and leaves servers that do not"},
        deferred=OAUTH,
    ),
    *of(
        CLIENT,
        (at_2025(f"{_AUTHORIZATION}open-redirection"),),
        {"mcp25-oauth-redirects": "Redirects are registered, and checked against their state"},
        deferred=OAUTH,
    ),
    *of(
        CLIENT,
        (at_2025(f"{_AUTHORIZATION}token-requirements"),),
        {
            "mcp25-token-header": (
                "A token stands in the Authorization header of every request, and never in a URL"
            ),
        },
    ),
    *of(
        BOTH,
        (at_2025(f"{_AUTHORIZATION}token-theft"),),
        {"mcp25-tokens-kept": "Tokens are kept where nobody else reads them"},
    ),
)
"""Every sentence, in the order of its matter."""
