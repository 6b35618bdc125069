"""The TCK's part of docs/conformance.md, made of what was recorded and of what is expected."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tests.conformance.tck.expected import Expected
from tests.conformance.tck.outcome import Outcome, Status

_HEAD: Final = """
## A2A: the official TCK

`make tck TCK=path/to/a2a-tck` runs the MUST tests of the
[A2A Technology Compatibility Kit](https://github.com/a2aproject/a2a-tck) (branch 1.0-dev) against an MCP server wrapped
by the bridge, with the default profile, over JSON-RPC and HTTP+JSON. The TCK is not part of this repository: the path
is that of a checkout with its own `.venv`, which its README says how to make. The command fails when a test fails or is
skipped that is not told of here, and when one passes that is.

"""
_SET_UP: Final = """
The TCK tells an agent by the beginning of the messageId what to do, which a tool does not get to see. So the request is
given the tool's name in its metadata (`skillId`) on the way to the bridge, and nothing else is changed. One key is set:
`reply = "message"` for the tool of the scenario that asks for a Message.

The TCK uses few message ids, and means a new message each time. The tools say that they only read, so that a message
which was answered is a new one when it comes again. For a tool that does not say so it stays the same message for
`repeat_answered_seconds`: the TCK then finds some of its tasks answered already, and skips 8 of its tests.
"""


def section(recorded: Outcome, expected: Expected) -> str:
    """The part."""
    passed, failed, skipped = (len(recorded.of_status(status)) for status in Status)
    return "".join(
        [
            _HEAD,
            "| TCK | MUST tests | Passed | Failed | Not made |\n|---|---|---|---|---|\n",
            f"| {recorded.revision} | {len(recorded.tests)} | {passed} | {failed} | {skipped} |\n",
            _SET_UP,
            "\nWhat fails, and why:\n",
            *_failures(expected),
            "\nWhat is not made, and why:\n\n",
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
