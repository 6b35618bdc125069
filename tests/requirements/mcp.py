"""MCP, what both revisions ask of a server and of a client of tools, and how the other two files name their sources.

Resources, prompts, completion, roots and sampling are not about tools, and are left out. Where a page says the same
in both revisions it is one requirement with two sources.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.requirements.requirement import Requirement, Revision, Side, Source, status_of

SERVER: Final = frozenset({Side.SERVER})
CLIENT: Final = frozenset({Side.CLIENT})
BOTH: Final = SERVER | CLIENT

_SPECIFICATION: Final = "https://modelcontextprotocol.io/specification"


def at_2025(page: str) -> Source:
    """A page of 2025-11-25, with its heading."""
    return Source(Revision.MCP_2025_11_25, page, f"{_SPECIFICATION}/2025-11-25/{page}")


def at_2026(page: str) -> Source:
    """A page of 2026-07-28, with its heading."""
    return Source(Revision.MCP_2026_07_28, page, f"{_SPECIFICATION}/2026-07-28/{page}")


def of(
    sides: frozenset[Side],
    sources: tuple[Source, ...],
    sentences: Mapping[str, str],
    *,
    deferred: str = "",
    diverges: str = "",
) -> tuple[Requirement, ...]:
    """What one place asks of some sides."""
    status, reason = status_of(deferred, diverges)
    return tuple(
        Requirement(id=name, sources=sources, sentence=sentence, sides=sides, status=status, reason=reason)
        for name, sentence in sentences.items()
    )


def _same(page: str) -> tuple[Source, ...]:
    return at_2025(page), at_2026(page)


_STDIO: Final = (at_2025("basic/transports#stdio"), at_2026("basic/transports/stdio"))
_HTTP: Final = (
    at_2025("basic/transports#sending-messages-to-the-server"),
    at_2026("basic/transports/streamable-http#sending-messages"),
)
_PROGRESS: Final = (at_2025("basic/utilities/progress"), at_2026("basic/patterns/progress"))
_CANCELLATION: Final = (at_2025("basic/utilities/cancellation"), at_2026("basic/patterns/cancellation"))
_ELICITATION: Final = _same("client/elicitation")
_SAFE_URLS: Final = _same("client/elicitation#safe-url-handling")
_A_STRANGERS_URL: Final = (
    "The URL and its page belong to the agent. The bridge passes the URL on unchanged, and cannot know what it"
    " contains or who opens it"
)

MCP: Final = (
    # Messages
    *of(
        CLIENT,
        _same("basic#requests"),
        {
            "mcp-request-id": (
                "A request has an id of its own: a text or a whole number, never one that is in use"
            ),
        },
    ),
    *of(
        SERVER,
        _same("basic#result-responses"),
        {"mcp-response-id": "An answer has the id of its request, and null only where none could be read"},
    ),
    *of(
        SERVER,
        _same("basic#error-responses"),
        {"mcp-error-shape": "An error has a whole number for a code, and a message"},
    ),
    *of(
        SERVER,
        _same("basic#notifications"),
        {"mcp-notification-server": "The server answers no notification, known or not"},
    ),
    *of(
        CLIENT,
        _same("basic#notifications"),
        {"mcp-notification-client": "The client answers no notification, known or not"},
    ),
    *of(
        BOTH,
        (at_2025("basic/transports"), at_2026("basic/transports#messages")),
        {"mcp-utf8": "Messages are UTF-8, whatever they quote"},
    ),
    # Schemas, metadata, icons
    *of(
        CLIENT,
        _same("basic#implementation-requirements"),
        {
            "mcp-schema-dialect": "A schema is read as 2020-12, or as the dialect that it names",
            "mcp-schema-unknown": "A dialect that is not known is told, and the schema read as 2020-12",
        },
    ),
    *of(
        SERVER,
        _same("basic#schema-validation"),
        {"mcp-schema-made": "The schemas that the bridge makes are valid"},
    ),
    *of(
        SERVER,
        _same("server/tools#tool"),
        {"mcp-schema-listed": "The schemas of all listed tools are valid"},
        diverges=(
            "The bridge lists a tool of an MCP server behind an agent as the server lists it, even with an"
            " invalid schema: a host can still call the tool, and the server checks the arguments"
        ),
    ),
    *of(
        BOTH,
        _same("basic#_meta"),
        {
            "mcp-meta-names": (
                "The bridge's own keys of `_meta` have its prefix, in the form that is asked for"
            ),
            "mcp-meta-reserved": "Nobody sets a reserved key of `_meta` for another through the bridge",
        },
    ),
    *of(
        CLIENT,
        _same("basic#icons"),
        {"mcp-icons": "An icon of a scheme that is not safe to open is left out"},
    ),
    *of(
        CLIENT,
        _same("basic#icons"),
        {"mcp-icons-https": "An icon is of HTTPS or holds its data"},
        diverges=(
            "The bridge passes on icons of plain HTTP, too. It opens no icon itself, and hosts decide what they "
            "show"
        ),
    ),
    # stdio
    *of(
        SERVER,
        _STDIO,
        {
            "mcp-stdio-server-lines": "Each message of the server is one line",
            "mcp-stdio-stdout": "Nothing but messages is on stdout",
        },
    ),
    *of(
        CLIENT,
        _STDIO,
        {
            "mcp-stdio-client-lines": "Each message of the client is one line",
            "mcp-stdio-stdin": "Nothing but messages is written to a child's stdin",
        },
    ),
    # Streamable HTTP
    *of(
        SERVER,
        (
            at_2025("basic/transports#streamable-http"),
            at_2026("basic/transports/streamable-http"),
        ),
        {"mcp-http-endpoint": "One path serves all of MCP"},
    ),
    *of(
        SERVER,
        (
            at_2025("basic/transports#security-warning"),
            at_2026("basic/transports/streamable-http#security-endpoint"),
        ),
        {"mcp-http-origin": "A request with an Origin of someone else is answered with 403"},
    ),
    *of(
        SERVER,
        _HTTP,
        {
            "mcp-http-accepted": "A notification is answered with 202 and no body, or with an error status",
            "mcp-http-answered": "A request is answered with one JSON object or a stream of events",
        },
    ),
    *of(
        CLIENT,
        _HTTP,
        {
            "mcp-http-post": (
                "Each message of the client is a POST of its own, which accepts JSON and event streams"
            ),
            "mcp-http-read": "The client reads answers that are JSON and answers that are streams",
        },
    ),
    # Progress and cancellation
    *of(
        CLIENT,
        _PROGRESS,
        {"mcp-progress-token": "Each request that asks for progress has a token of its own"},
    ),
    *of(
        SERVER,
        _PROGRESS,
        {
            "mcp-progress-grows": "The numbers of progress grow from one report to the next",
            "mcp-progress-active": "Progress names a token that was given, and ends with its call",
        },
    ),
    *of(
        CLIENT,
        _CANCELLATION,
        {
            "mcp-cancel-own": "The client cancels only what it has sent and still waits for",
            "mcp-cancel-late-answer": "An answer that comes after its cancellation harms nothing",
        },
    ),
    *of(
        SERVER,
        _CANCELLATION,
        {"mcp-cancel-late": "A cancellation of what has ended, or never was, harms nothing"},
    ),
    # Elicitation, as tools ask for it: the server's side
    *of(
        SERVER,
        _same("client/elicitation#user-interaction-model"),
        {"mcp-elicit-secrets": "No form asks for credentials: who has to sign in is sent to a URL"},
    ),
    *of(
        SERVER,
        _same("client/elicitation#capabilities"),
        {"mcp-elicit-modes": "A client is asked only in the modes that it declared"},
    ),
    *of(
        SERVER,
        _same("client/elicitation#elicitation-requests"),
        {"mcp-elicit-params": "A question has its message, and its form or its valid URL"},
    ),
    *of(
        SERVER,
        _same("client/elicitation#error-handling"),
        {"mcp-elicit-outcome": "A question that is declined, cancelled or fails is dealt with"},
    ),
    *of(
        SERVER,
        _same("client/elicitation#security-considerations"),
        {"mcp-elicit-bound": "A question belongs to the client and the principal that it was asked of"},
    ),
    *of(
        SERVER,
        _same("client/elicitation#statefulness"),
        {"mcp-elicit-state": "Who a question belongs to is known by credentials, where there are any"},
    ),
    *of(
        SERVER,
        _same("client/elicitation#identifying-the-user"),
        {"mcp-elicit-identity": "What a client says of its user counts for nothing"},
    ),
    *of(
        SERVER,
        _same("client/elicitation#url-mode-elicitation-for-oauth-flows"),
        {"mcp-elicit-own-login": "The bridge lets nobody in through a URL that is asked for"},
    ),
    *of(
        SERVER,
        _same("client/elicitation#understanding-the-distinction"),
        {"mcp-token-passthrough": "What a client is let in with is never sent to an agent"},
    ),
    *of(
        SERVER,
        _SAFE_URLS,
        {"mcp-elicit-url-plain": "A URL holds nothing of the user, and opens nothing by itself"},
        diverges=_A_STRANGERS_URL,
    ),
    *of(
        SERVER,
        _same("client/elicitation#phishing"),
        {"mcp-elicit-same-user": "Who opens a URL is the one who was sent there"},
        diverges=_A_STRANGERS_URL,
    ),
    # The client's side
    *of(
        CLIENT,
        _same("client/elicitation#capabilities"),
        {"mcp-elicit-declared": "The client declares elicitation, with both of its modes"},
    ),
    *of(
        CLIENT,
        _same("client/elicitation#elicitation-requests"),
        {"mcp-elicit-default-form": "A question without a mode is a form"},
    ),
    *of(
        CLIENT,
        _same("client/elicitation#user-interaction-model"),
        {
            "mcp-elicit-refusable": "Every question can be declined, and a task that asks canceled",
        },
    ),
    *of(
        CLIENT,
        _same("client/elicitation#user-interaction-model"),
        {"mcp-elicit-whose": "Who is asked is told which server asks"},
        diverges=(
            "The tool writes the text of a question. The question belongs to a task of the agent. If the agent"
            " has several servers, only the caller of the skill knows which server asks"
        ),
    ),
    *of(
        CLIENT,
        _same("client/elicitation#user-interaction-model"),
        {"mcp-elicit-review": "What was typed into a form can be looked through before it is sent"},
        diverges=(
            "`mcp-a2a call` asks for each field, asks again for an invalid value, and then sends the answer;"
            " Ctrl+D declines. Another A2A client decides itself how it asks"
        ),
    ),
    *of(
        CLIENT,
        _SAFE_URLS,
        {
            "mcp-elicit-url-shown": "A URL is shown whole, with its host, before anybody goes there",
            "mcp-elicit-url-unopened": (
                "The bridge opens no URL that it is asked to send someone to, and reads nothing of it"
            ),
        },
    ),
    # Tools
    *of(
        SERVER,
        _same("server/tools#capabilities"),
        {"mcp-tools-declared": "The server declares its tools"},
    ),
    *of(
        SERVER,
        _same("server/tools#output-schema"),
        {"mcp-tools-output": "A structured result conforms to the output schema of its tool"},
    ),
    *of(
        SERVER,
        _same("server/tools#security-considerations"),
        {
            "mcp-tools-input": "The arguments of every call are checked",
            "mcp-tools-access": "A tool is there only for whoever may use it",
            "mcp-tools-rate": "Calls of a tool are bounded",
        },
    ),
    *of(
        SERVER,
        _same("server/tools#security-considerations"),
        {"mcp-tools-sanitized": "What a tool gives is sanitized"},
        diverges=(
            "A result is passed on unchanged. The bridge removes invisible characters, and links that no host"
            " should open, only from the descriptions of an agent"
        ),
    ),
    *of(
        CLIENT,
        _same("server/tools#tool"),
        {"mcp-tools-untrusted": "What a server says of its tools' effects is not believed"},
        diverges=(
            "The operator chooses the servers of the bridge, so the bridge trusts their annotations: to repeat a call,"
            ' and with `confirm = "destructive"`. With `confirm = "strict"` it trusts only the annotation that a tool'
            " only reads"
        ),
    ),
    *of(
        CLIENT,
        _same("server/utilities/pagination#implementation-guidelines"),
        {"mcp-cursor": "A cursor goes back as it came, an empty one too; no size of a page is assumed"},
    ),
    *of(
        SERVER,
        _same("server/utilities/logging#capabilities"),
        {"mcp-logging": "The server declares log messages if it may send some, and else sends none"},
    ),
)
"""Every sentence of both, in the order of its matter."""
