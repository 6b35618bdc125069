"""What is known to fail, and why: by a2a-sdk 1.3.0's own server, over every binding that a check has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

KNOWN_FAILURES: Final[Mapping[str, str]] = {
    "card-max-age": "its card comes with an ETag, without Cache-Control",
    "rpc-parse-error": "a body that is not UTF-8 gets -32603 instead of -32700",
    "rpc-bad-request": "the invalid fields are in the metadata of an ErrorInfo, not in a BadRequest",
    "http-bad-request": "as for rpc-bad-request",
    "http-content-type": "it answers with application/json",
    "http-accept": "it answers with application/a2a+json, and errors with application/json, whatever Accept says",
    "error-domain": "INVALID_PARAMS and other reasons of the SDK have the domain of A2A",
    "http-invalid-queries": "includeArtifacts=perhaps counts as false",
    "history-final": "the last message of a task is only in its status, as section 3.7 allows",
    "send-validates": "a configuration that is a string counts as no configuration",
    "send-one-content": "a part without content is accepted",
    "send-content-type": "the author of the agent has to check media types",
    "list-unknown-status": "a list with an unknown status is empty, and is not refused",
    "stream-auth-open": "a stream ends when the agent's function returns, which it does after it has asked for"
    " credentials",
    "stream-answer": "the stream after an answer begins with an update, not with the task",
    "message-id-at-work": "a message that is repeated while its task works starts another task",
    "turn-while-working": "a message to a working task is answered when the task ends, and is in no history",
    "version-unknown": "1.9 counts as 1.0: only the major version is compared",
    "version-query": "the version is read only from the header",
    "push-undeclared-send": "a push configuration in a message is ignored if the card does not declare push",
    "json-milliseconds": "timestamps have microseconds",
}
"""Check id to reason. Whatever else fails, or does not fail any more, is a change of one side or the other."""
