"""What is known to fail, and why: by a2a-sdk 1.3.0's own server, over every binding that a check has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

KNOWN_FAILURES: Final[Mapping[str, str]] = {
    "card-max-age": "its card comes with an ETag, without Cache-Control",
    "rpc-parse-error": "a body that is no UTF-8 is -32603 instead of -32700",
    "rpc-bad-request": "what is wrong stands in the metadata of an ErrorInfo of its own, not in a BadRequest",
    "http-bad-request": "likewise",
    "http-content-type": "it answers application/json",
    "http-accept": "it answers application/a2a+json, and errors application/json, whatever is accepted",
    "error-domain": "INVALID_PARAMS and other reasons of its own are said to be A2A's",
    "http-invalid-queries": "includeArtifacts=perhaps is taken for false",
    "history-final": "what a task ended with stands in its status alone, as section 3.7 allows",
    "send-validates": "a configuration that is a string is taken for none",
    "send-one-content": "a part without any content is taken",
    "send-content-type": "media types are left to the agent's author",
    "list-unknown-status": "a status that does not exist lists nothing instead of being refused",
    "stream-auth-open": "a stream ends with the agent's function, which is over once it has asked to be told",
    "stream-answer": "the stream of an answer to a task that asked begins with an update",
    "message-id-at-work": "the same message, sent again while its task works, begins another one",
    "turn-while-working": "a message to a task at work is answered once that ends, and stands in no history",
    "version-unknown": "1.9 is taken for 1.0: only the major version is compared",
    "version-query": "the version is read from the header alone",
    "push-undeclared-send": "a push configuration in a message is passed over where push is not declared",
    "json-milliseconds": "timestamps have microseconds",
}
"""Check id to reason. Whatever else fails, or does not fail any more, is a change of one side or the other."""
