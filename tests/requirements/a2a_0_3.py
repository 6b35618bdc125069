"""A2A 0.3: what falls to an agent, and what to a client of agents, beside what 1.0 asks of both.

The text is that of version 0.3.0, with its JSON schema and its a2a.proto.
"""

from __future__ import annotations

from typing import Final

from tests.requirements.requirement import Requirement, Revision, Side, Source, status_of

_SPECIFICATION: Final = "https://a2a-protocol.org/v0.3.0/specification/"
_HEADINGS: Final = {
    "3.2.1": "321-json-rpc-20-transport",
    "3.2.3": "323-httpjsonrest-transport",
    "3.3": "33-streaming-transport-server-sent-events",
    "3.4.1": "341-functional-equivalence-requirements",
    "3.5.6": "356-method-mapping-reference-table",
    "5.6": "56-transport-declaration-and-url-relationships",
    "5.6.3": "563-client-transport-selection-rules",
    "6": "6-protocol-data-objects",
    "7.1": "71-messagesend",
    "7.2.2": "722-taskstatusupdateevent-object",
    "7.5": "75-taskspushnotificationconfigset",
    "7.9": "79-tasksresubscribe",
    "7.10": "710-agentgetauthenticatedextendedcard",
    "8": "8-error-handling",
}
_AGENT: Final = frozenset({Side.AGENT})
_CLIENT: Final = frozenset({Side.CLIENT})


def _entry(
    sides: frozenset[Side], name: str, section: str, sentence: str, deferred: str = "", diverges: str = ""
) -> Requirement:
    source = Source(Revision.A2A_0_3, section, f"{_SPECIFICATION}#{_HEADINGS[section]}")
    status, reason = status_of(deferred, diverges)
    return Requirement(
        id=name, sources=(source,), sentence=sentence, sides=sides, status=status, reason=reason
    )


A2A_0_3: Final = (
    _entry(
        _AGENT | _CLIENT,
        "a2a03-3.2.1-json-rpc",
        "3.2.1",
        "Over JSON-RPC the methods are `category/action`, and what is sent and answered is application/json",
    ),
    _entry(
        _AGENT | _CLIENT,
        "a2a03-3.2.3-rest",
        "3.2.3",
        "Over HTTP+JSON the verbs and paths are those below /v1, and all bodies are application/json",
    ),
    _entry(
        _AGENT,
        "a2a03-3.3-stream",
        "3.3",
        "A stream is 200 and text/event-stream; over JSON-RPC each event is a whole response",
    ),
    _entry(
        _AGENT,
        "a2a03-3.4.1-equivalent",
        "3.4.1",
        "Both bindings do the same, answer the same, refuse the same",
    ),
    _entry(
        _AGENT,
        "a2a03-3.5.6-list",
        "3.5.6",
        "Over HTTP+JSON, GET /v1/tasks lists tasks",
        diverges="0.3 has no list of tasks: neither its a2a.proto nor its SDKs have one. 1.0 has it",
    ),
    _entry(
        _AGENT,
        "a2a03-5.6-declared",
        "5.6",
        "A card has `url` and the `preferredTransport` that is there, and declares every other transport",
    ),
    _entry(
        _CLIENT,
        "a2a03-5.6.3-selected",
        "5.6.3",
        "A client parses all that is declared, prefers what is preferred, and uses each transport at its URL",
    ),
    _entry(
        _AGENT | _CLIENT,
        "a2a03-6-objects",
        "6",
        "Objects are those of the schema, and say by `kind` what they are",
    ),
    _entry(_AGENT, "a2a03-7.1-ended", "7.1", "A message to a task that has ended is an error"),
    _entry(_AGENT, "a2a03-7.2.2-final", "7.2.2", "The last event of a stream, and no other, is `final`"),
    _entry(
        _AGENT,
        "a2a03-7.5-push",
        "7.5",
        "A webhook is kept for a task",
    ),
    _entry(
        _AGENT | _CLIENT,
        "a2a03-7.9-resubscribe",
        "7.9",
        "A stream that broke off goes on by tasks/resubscribe",
    ),
    _entry(_AGENT, "a2a03-7.10-card", "7.10", "There is an extended card only where the card says so"),
    _entry(_AGENT | _CLIENT, "a2a03-8-errors", "8", "Errors have the codes of JSON-RPC and of A2A"),
)
"""What both sides have to keep."""
