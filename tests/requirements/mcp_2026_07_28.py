"""MCP 2026-07-28: what this revision alone asks of a server and of a client of tools."""

from __future__ import annotations

from typing import Final

from tests.requirements.mcp import BOTH, CLIENT, SERVER, at_2026, of
from tests.requirements.mcp_2025_11_25 import OAUTH

_HTTP: Final = "basic/transports/streamable-http#"
_MRTR: Final = "basic/patterns/mrtr#"
_SUBSCRIPTIONS: Final = "basic/patterns/subscriptions#"
_AUTHORIZATION: Final = "basic/authorization"

MCP_2026_07_28: Final = (
    # Messages
    *of(
        SERVER,
        (at_2026("basic#result-responses"),),
        {"mcp26-result-type": "Every result says its type"},
    ),
    *of(
        CLIENT,
        (at_2026("basic#resulttype"),),
        {
            "mcp26-result-unknown": "A result of a type that is not known is no valid one",
            "mcp26-result-untyped": "A result that says no type is complete",
        },
    ),
    *of(
        SERVER,
        (at_2026("basic#error-codes"),),
        {
            "mcp26-codes": (
                "No code is used that MCP reserves and does not define, nor one of an earlier revision"
            ),
        },
    ),
    *of(
        CLIENT,
        (at_2026("basic#error-codes"),),
        {
            "mcp26-codes-meaningless": (
                "A code of -32000 to -32019 means nothing but that a request was refused"
            ),
        },
    ),
    *of(
        SERVER,
        (at_2026("basic#statelessness"),),
        {
            "mcp26-stateless": "What a client declared with one request counts for no other",
            "mcp26-explicit-state": "What outlives a request is named by the next one",
        },
    ),
    *of(
        BOTH,
        (at_2026("basic#ref-resolution"),),
        {"mcp26-ref": "No schema makes the bridge fetch anything"},
    ),
    *of(
        CLIENT,
        (at_2026("basic#_meta"),),
        {"mcp26-meta-sent": "Every request of the client says its version and capabilities"},
    ),
    *of(
        SERVER,
        (at_2026("basic#_meta"),),
        {
            "mcp26-meta-required": (
                "A request without its version or capabilities is refused with -32602, over HTTP with 400"
            ),
            "mcp26-capability": (
                "What needs a capability that was not declared is refused with -32021, over HTTP with 400"
            ),
        },
    ),
    *of(
        BOTH,
        (at_2026("basic#_meta"),),
        {
            "trace-context": (
                "A trace goes through both ways, as W3C Trace Context and Baggage; malformed parts do not"
            ),
        },
    ),
    *of(
        SERVER,
        (at_2026("basic/patterns"),),
        {"mcp26-no-requests": "The server sends no requests"},
    ),
    *of(
        CLIENT,
        (at_2026("basic/transports/stdio#sending-messages"), at_2026(f"{_HTTP}sending-messages")),
        {"mcp26-no-answers": "The client sends no answers"},
    ),
    # Versions and discovery
    *of(
        SERVER,
        (at_2026("basic/versioning#protocol-version-negotiation"), at_2026("server/discover")),
        {
            "mcp26-version": "A version that is not served is refused with -32022 and those that are",
            "mcp26-discover": "server/discover says versions, capabilities and name",
        },
    ),
    *of(
        BOTH,
        (at_2026("basic/versioning#extension-negotiation"),),
        {
            "mcp26-extension-names": "The names of extensions have a prefix",
            "mcp26-extension-absent": "Towards a peer without an extension the core protocol is spoken",
        },
    ),
    *of(
        CLIENT,
        (at_2026("basic/transports/stdio#backward-compatibility"),),
        {"mcp26-fallback": "Any error that is not of this revision leads to initialize, whatever its code"},
    ),
    # Subscriptions
    *of(
        SERVER,
        (at_2026(f"{_SUBSCRIPTIONS}opening-a-stream"),),
        {"mcp26-listen-granted": "A stream brings only what was asked for"},
    ),
    *of(
        SERVER,
        (at_2026(f"{_SUBSCRIPTIONS}acknowledgment"),),
        {"mcp26-listen-first": "The first that a stream brings is its acknowledgment"},
    ),
    *of(
        SERVER,
        (at_2026("basic#_meta"),),
        {"mcp26-listen-id": "Everything on a stream names its subscription"},
    ),
    *of(
        CLIENT,
        (at_2026(f"{_SUBSCRIPTIONS}receiving-notifications"),),
        {"mcp26-listen-told-apart": "Notifications are told apart by their subscription"},
        diverges=(
            "The client has one subscription for the list of tools and one for each task that it follows. A"
            " notification itself says which subscription it belongs to"
        ),
    ),
    *of(
        CLIENT,
        (at_2026(f"{_SUBSCRIPTIONS}graceful-closure"),),
        {
            "mcp26-listen-again": "A subscription is opened again on a new connection",
            "mcp26-listen-ended": "A subscription that the server ended with a notification has ended",
        },
    ),
    *of(
        SERVER,
        (at_2026("basic/patterns/cancellation"),),
        {"mcp26-listen-cancelled": "A stream that the server ends is ended with notifications/cancelled"},
        diverges=(
            "The bridge ends a stream with only its response, as the page on subscriptions requires. The schema"
            " has the notification only for stdio, where the bridge ends no stream before the connection ends"
        ),
    ),
    *of(
        SERVER,
        (at_2026("basic/patterns/cancellation"),),
        {"mcp26-server-cancels": "The server cancels nothing but subscriptions"},
    ),
    # Cancellation
    *of(
        SERVER,
        (
            at_2026("basic/patterns/cancellation#transport-specific-cancellation"),
            at_2026(f"{_HTTP}cancellation"),
        ),
        {"mcp26-cancel-http": "A response that is closed cancels its request, of which nothing more is said"},
    ),
    *of(
        CLIENT,
        (at_2026("basic/transports/stdio#cancellation"),),
        {"mcp26-cancel-stdio": "Over stdio a request is cancelled with a notification"},
    ),
    *of(
        SERVER,
        (at_2026("basic/transports/stdio#cancellation"),),
        {"mcp26-cancelled-stdio": "Over stdio nothing more is said of a request that was cancelled"},
    ),
    # Questions in rounds
    *of(
        SERVER,
        (at_2026(f"{_MRTR}server-requirements-basic-workflow"),),
        {
            "mcp26-rounds-shape": "A round has questions under keys of their own, a state, or both",
            "mcp26-rounds-declared": "A round asks only what the client can be asked",
            "mcp26-rounds-unsure": "A round that is never answered holds nothing up",
            "mcp26-state-checked": (
                "A state is sealed, and refused unless it is whole and for this request and principal"
            ),
        },
    ),
    *of(
        SERVER,
        (at_2026(f"{_MRTR}server-requirements-basic-workflow"),),
        {"mcp26-state-once": "A state that may be used once is used once"},
    ),
    *of(
        SERVER,
        (at_2026(f"{_MRTR}supported-requests"),),
        {"mcp26-rounds-where": "Only calls of tools are answered with a round"},
    ),
    *of(
        CLIENT,
        (at_2026(f"{_MRTR}client-requirements-basic-workflow"),),
        {
            "mcp26-rounds-answered": "Everything that a round asks is answered before the call is made again",
            "mcp26-state-returned": "A state goes back as it came, and none where none came",
            "mcp26-rounds-id": "A call that is made again has another id",
            "mcp26-rounds-apart": "What a round asks and gives is for its own call alone",
        },
    ),
    # Streamable HTTP
    *of(
        CLIENT,
        (at_2026(f"{_HTTP}protocol-version-header"), at_2026(f"{_HTTP}standard-request-headers")),
        {
            "mcp26-headers": "Every request names its version, method and tool in its headers",
            "mcp26-headers-encoded": "A name that no header can hold is encoded",
        },
    ),
    *of(
        CLIENT,
        (at_2026(f"{_HTTP}custom-headers-from-tool-parameters"), at_2026("server/tools#x-mcp-header")),
        {
            "mcp26-params": (
                "An argument that a tool wants in a header is there too, encoded, and not where it is null"
                " or absent"
            ),
            "mcp26-params-wrong": "A tool that wants a header which cannot be is left out",
        },
    ),
    *of(
        SERVER,
        (at_2026(f"{_HTTP}server-validation"), at_2026(f"{_HTTP}server-behavior-for-custom-headers")),
        {
            "mcp26-headers-checked": "Headers that are not as the body says are refused with 400 and -32020",
            "mcp26-params-checked": "So are those of arguments, once they are decoded",
        },
    ),
    *of(
        BOTH,
        (at_2026(f"{_HTTP}case-sensitivity"),),
        {"mcp26-header-case": "The names of headers may be of any case"},
    ),
    *of(
        SERVER,
        (at_2026(f"{_HTTP}protocol-version-header"),),
        {
            "mcp26-version-http": "A version that is not served is answered with 400",
            "mcp26-method-unknown": "A method that is not known is answered with 404 and -32601",
        },
    ),
    *of(
        SERVER,
        (at_2026(f"{_HTTP}protocol-version-header"),),
        {
            "mcp26-version-mismatch": (
                "A version in the header that is not the body's is refused with 400 and -32020"
            ),
        },
        diverges=(
            "The header names the revision. If it names 2025-11-25 or older, the bridge reads the body by that"
            " revision, and ignores another revision in `_meta`. Without a session it refuses the request with"
            " 400 and -32600"
        ),
    ),
    *of(
        SERVER,
        (at_2026(f"{_HTTP}receiving-messages"),),
        {"mcp26-stream-own": "The stream of a request brings only what belongs to that request"},
    ),
    # Tools, lists, log messages
    *of(
        SERVER,
        (at_2026("server/tools#capabilities"),),
        {"mcp26-list-same": "The list of tools is the same on every connection of a principal"},
    ),
    *of(
        SERVER,
        (at_2026("server/utilities/caching"),),
        {
            "mcp26-cache-hints": (
                "Lists and discovery say how long they may be kept, and by whom: the same on all pages"
            ),
            "mcp26-cache-access": "What may be used is checked whatever a cache holds",
        },
    ),
    *of(
        CLIENT,
        (at_2026("server/utilities/caching"),),
        {"mcp26-cache-kept": "No answer is kept for another request, another principal, or a call"},
    ),
    *of(
        SERVER,
        (at_2026("server/utilities/logging#per-request-log-level"),),
        {"mcp26-log-level": "No log message is sent to a client that asks for none"},
    ),
    # Authorization, which is optional: 87 sentences, by what they are about
    *of(
        SERVER,
        (at_2026(f"{_AUTHORIZATION}/authorization-server-discovery"),),
        {
            "mcp26-oauth-resource": (
                "The server says in its metadata, and with 401, which authorization servers it trusts"
            ),
        },
    ),
    *of(
        SERVER,
        (at_2026(f"{_AUTHORIZATION}#token-handling"),),
        {"mcp26-oauth-audience": "The server takes only access tokens that were issued for it"},
    ),
    *of(
        SERVER,
        (at_2026(f"{_AUTHORIZATION}#error-handling"),),
        {"mcp26-oauth-errors": "401, 403 and 400 stand for what OAuth means by them"},
    ),
    *of(
        CLIENT,
        (at_2026(f"{_AUTHORIZATION}/authorization-server-discovery"),),
        {"mcp26-oauth-discovery": "The client finds authorization servers by all the ways there are"},
        deferred=OAUTH,
    ),
    *of(
        CLIENT,
        (at_2026(f"{_AUTHORIZATION}/client-registration"),),
        {
            "mcp26-oauth-registration": (
                "The client has an id that is a URL, or registers, with each authorization server"
            ),
        },
        deferred=OAUTH,
    ),
    *of(
        CLIENT,
        (at_2026(f"{_AUTHORIZATION}#authorization-response-validation"),),
        {"mcp26-oauth-issuer": "The client checks who an authorization response is from"},
        deferred=OAUTH,
    ),
    *of(
        CLIENT,
        (at_2026(f"{_AUTHORIZATION}#resource-parameter-implementation"),),
        {"mcp26-oauth-for-resource": "The client asks for tokens for the very server that it calls"},
        deferred=OAUTH,
    ),
    *of(
        CLIENT,
        (at_2026(f"{_AUTHORIZATION}#scope-selection-strategy"),),
        {
            "mcp26-oauth-scopes": (
                "The client asks for the scopes that are named to it, and for more when it has to"
            ),
        },
        deferred=OAUTH,
    ),
    *of(
        CLIENT,
        (at_2026(f"{_AUTHORIZATION}#refresh-tokens"),),
        {"mcp26-oauth-refresh": "The client keeps refresh tokens, and does without where it is given none"},
        deferred=OAUTH,
    ),
    *of(
        CLIENT,
        (at_2026(f"{_AUTHORIZATION}/security-considerations"),),
        {"mcp26-oauth-secure": "The client uses PKCE and state, and redirects only where it registered"},
        deferred=OAUTH,
    ),
    *of(
        CLIENT,
        (at_2026(f"{_AUTHORIZATION}#token-requirements"),),
        {
            "mcp26-token-header": (
                "A token stands in the Authorization header of every request, and never in a URL"
            ),
        },
    ),
    *of(
        BOTH,
        (at_2026(f"{_AUTHORIZATION}/security-considerations#token-theft"),),
        {"mcp26-tokens-kept": "Tokens are kept where nobody else reads them"},
    ),
)
"""Every sentence, in the order of its matter."""
