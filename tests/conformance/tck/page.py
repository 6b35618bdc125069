"""The TCK's part of docs/conformance.md, made of what was recorded and of what is expected."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tests.conformance.tck.expected import Expected
from tests.conformance.tck.outcome import Outcome, Status

_HEAD: Final = """
## A2A: the official TCK

`make tck TCK=path/to/a2a-tck` runs the MUST tests of the [A2A Technology Compatibility
Kit](https://github.com/a2aproject/a2a-tck) (branch 1.0-dev) against an MCP server wrapped by the bridge, with the
default profile, over JSON-RPC, HTTP+JSON and gRPC. The TCK is not part of this repository: `TCK` is the path of a
checkout with its own `.venv`, as the README of the TCK describes. The command fails if the failed and skipped tests
differ from those on this page. `make conformance TCK=path/to/a2a-tck` runs it after all other checks.

"""
_SET_UP: Final = """
The TCK tells an agent what to do by the beginning of the messageId. A tool does not see the messageId. So a proxy for
HTTP and one for gRPC add the name of the tool to the metadata of the request (`skillId`), and change nothing else.
One key is set: `reply = "message"` for the tool of the scenario that asks for a Message.

The TCK uses few message ids, although each of its messages is new. The tools declare that they only read, so the
bridge takes a repeated message whose first copy was answered for a new message. For any other tool a repeated message
counts as the same message for `repeat_answered_seconds`. Then the TCK finds some tasks already answered, and skips 8
tests.
"""
_BINDINGS: Final = {
    "JSON-RPC": ("jsonrpc", "JsonRpc"),
    "HTTP+JSON": ("http_json", "_rest", "TestRest"),
    "gRPC": ("grpc", "Grpc"),
}
"""The words in the name of a test that name its binding."""
_NO_BINDING: Final = "no binding of its own"


def section(recorded: Outcome, expected: Expected) -> str:
    """The part."""
    return "".join(
        [
            _HEAD,
            f"| TCK {recorded.revision} | MUST tests | Passed | Failed | Skipped |\n|---|---|---|---|---|\n",
            *_counts(recorded),
            _SET_UP,
            "\nWhat fails, and why:\n",
            *_failures(expected),
            "\nWhat is skipped, and why:\n\n",
            *_skips(recorded, expected),
        ]
    )


def _counts(recorded: Outcome) -> Iterator[str]:
    statuses = {name: test.status for name, test in recorded.tests.items()}
    rows = {
        binding: [status for name, status in statuses.items() if binding_of(name) == binding]
        for binding in (*_BINDINGS, _NO_BINDING)
    }
    for title, listed in {**rows, "all": [*statuses.values()]}.items():
        counted = " | ".join(str(listed.count(status)) for status in Status)
        yield f"| {title} | {len(listed)} | {counted} |\n"


def binding_of(test: str) -> str:
    """The binding of a test, which the name of the test says."""
    found = (binding for binding, words in _BINDINGS.items() if any(word in test for word in words))
    return next(found, _NO_BINDING)


def _failures(expected: Expected) -> Iterator[str]:
    for entry in expected.failures:
        yield f"\n**{entry.reason[0].upper()}{entry.reason[1:]}**\n\n"
        yield from (f"- `{test}`\n" for test in entry.tests)


def _skips(recorded: Outcome, expected: Expected) -> Iterator[str]:
    skipped = recorded.of_status(Status.SKIPPED).values()
    for entry in expected.skips:
        number = sum(words.startswith(entry.says) for words in skipped)
        yield f"- {number}: {entry.reason}\n"
