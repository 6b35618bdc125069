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
default profile, over JSON-RPC and HTTP+JSON. The TCK is not part of this repository: `TCK` is the path of a checkout
with its own `.venv`, as the README of the TCK describes. The command fails if the failed and skipped tests differ
from those on this page.

"""
_SET_UP: Final = """
The TCK tells an agent what to do by the beginning of the messageId. A tool does not see the messageId. So a proxy
adds the name of the tool to the metadata of the request (`skillId`), and changes nothing else. One key is set: `reply
= "message"` for the tool of the scenario that asks for a Message.

The TCK uses few message ids, although each of its messages is new. The tools declare that they only read, so the
bridge takes a repeated message whose first copy was answered for a new message. For any other tool a repeated message
counts as the same message for `repeat_answered_seconds`. Then the TCK finds some tasks already answered, and skips 8
tests.
"""


def section(recorded: Outcome, expected: Expected) -> str:
    """The part."""
    passed, failed, skipped = (len(recorded.of_status(status)) for status in Status)
    return "".join(
        [
            _HEAD,
            "| TCK | MUST tests | Passed | Failed | Skipped |\n|---|---|---|---|---|\n",
            f"| {recorded.revision} | {len(recorded.tests)} | {passed} | {failed} | {skipped} |\n",
            _SET_UP,
            "\nWhat fails, and why:\n",
            *_failures(expected),
            "\nWhat is skipped, and why:\n\n",
            *_skips(recorded, expected),
        ]
    )


def _failures(expected: Expected) -> Iterator[str]:
    for entry in expected.failures:
        yield f"\n**{entry.reason[0].upper()}{entry.reason[1:]}**\n\n"
        yield from (f"- `{test}`\n" for test in entry.tests)


def _skips(recorded: Outcome, expected: Expected) -> Iterator[str]:
    skipped = recorded.of_status(Status.SKIPPED).values()
    for entry in expected.skips:
        number = sum(words.startswith(entry.says) for words in skipped)
        yield f"- {number}: {entry.reason}\n"
