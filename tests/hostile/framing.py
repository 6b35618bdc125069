"""How streams of bytes are cut into events and lines, however they arrive, and handles, however they were changed."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any, Final

from mcp.shared.message import SessionMessage

from bridge.agents_as_tools.handles import FarContext, FarQuestion, FarTask, Handles
from bridge.http.sse import SseEvent, SseReader
from bridge.mcp.client.faults import answer_to_overlong, id_of_cut_message
from bridge.mcp.messages import LineSplitter, OverlongLine, line_of, messages_in
from bridge.seal import (
    MAX_HANDLE_CHARACTERS,
    HandleError,
    HandlePurpose,
    HandleTooLongError,
    Seal,
    agent_mark,
)
from tests.hostile.json_grammar import text
from tests.hostile.mutations import cut, hostile_json, mutated_text
from tests.hostile.target import Target, alone

_MESSAGES: Final[list[Any]] = [
    {"jsonrpc": "2.0", "id": 7, "result": {"content": [{"type": "text", "text": "hello"}]}},
    {"jsonrpc": "2.0", "id": "a", "error": {"code": -32000, "message": "no", "data": {"a": 1}}},
    {"jsonrpc": "2.0", "id": 1, "method": "elicitation/create", "params": {"message": "?"}},
    {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1, "progress": 2}},
    {"result": {"a": "b" * 700}, "jsonrpc": "2.0", "id": 9},
]
_SSE: Final = (
    b"data: ",
    b"data:",
    b"data",
    b"event: x",
    b"event:",
    b"id: 1",
    b"retry: 9",
    b": beat",
    b"\xef\xbb\xbf",
    b"\n",
    b"\n",
    b"\n\n",
    b"\r",
    b"\r\n",
    b"\r\n\r\n",
    b"{}",
    b"\x00\xff",
    b"\xc2\x85",
    b"x" * 90,
    b"x" * 700,
)
_LIMIT_BYTES: Final = 1000
_ENDS_BYTES: Final = 50


def sse_case(chance: Random) -> tuple[bytes, list[bytes], bool]:
    """A stream of events, whole and in pieces, and whether the ends of what is too large are kept."""
    if chance.random() < 0.3:
        said = b"".join(b"data: " + hostile_json(_MESSAGES, chance)[:3000] + b"\n\n" for _ in range(3))
        said = mutated_text(said, chance)[:20_000]
    else:
        said = b"".join(chance.choice(_SSE) for _ in range(chance.randint(0, 30)))
    return said, cut(said, chance), chance.random() < 0.5


def _events(chunks: list[bytes], ends_bytes: int | None) -> tuple[list[SseEvent], bool]:
    """The events up to where the reader refuses more, and whether it did."""
    reader, found = SseReader(_LIMIT_BYTES, ends_bytes), []
    try:
        for chunk in chunks:
            found += reader.feed(chunk)
    except ValueError:
        return found, True
    return found, False


async def check_sse(case: tuple[bytes, list[bytes], bool]) -> None:
    """The same events whatever the pieces, and none above the limit."""
    said, pieces, keeps_ends = case
    ends_bytes = _ENDS_BYTES if keeps_ends else None
    whole, in_pieces = _events([said], ends_bytes), _events(pieces, ends_bytes)
    assert [_known(event) for event in whole[0]] == [_known(event) for event in in_pieces[0]]
    assert whole[1] == in_pieces[1]
    for event in (*whole[0], *in_pieces[0]):
        if event.tail is None:
            assert len(event.data) <= _LIMIT_BYTES
        else:
            assert len(event.data) <= _ENDS_BYTES
            assert len(event.tail) <= 2 * _ENDS_BYTES + _LIMIT_BYTES


def _known(event: SseEvent) -> Any:
    """What does not depend on where a piece ended: of an event that is too large, that it is."""
    return event if event.tail is None else "too large"


def lines_case(chance: Random) -> tuple[bytes, list[bytes]]:
    """Lines as a server writes them, whole and in pieces."""
    lines = [hostile_json(_MESSAGES, chance)[:5000] for _ in range(chance.randint(1, 4))]
    said = chance.choice([b"\n", b"\r\n", b"\n\n", b""]).join(lines)
    said = mutated_text(said, chance) if chance.random() < 0.5 else said
    return said, cut(said + chance.choice([b"\n", b""]), chance)


async def check_lines(case: tuple[bytes, list[bytes]]) -> None:
    """The same lines whatever the pieces; each is a message, or a reason why it is none."""
    _, pieces = case
    whole, in_pieces = LineSplitter(_LIMIT_BYTES), LineSplitter(_LIMIT_BYTES)
    found = list(whole.feed(b"".join(pieces)))
    assert found == [line for piece in pieces for line in in_pieces.feed(piece)]
    for line in found:
        if isinstance(line, OverlongLine):
            assert len(line.head) <= 256
            assert len(line.tail) <= 256
            message = answer_to_overlong(line, _LIMIT_BYTES)
        else:
            assert len(line) <= _LIMIT_BYTES
            id_of_cut_message(line[:200], line[-200:])
            for read in messages_in(line):
                check_written(read)
            continue
        check_written(message)


def check_written(read: SessionMessage | ValueError) -> None:
    """A message that was read can be written as one line."""
    assert isinstance(read, SessionMessage | ValueError)
    if isinstance(read, SessionMessage):
        written = line_of(read)
        assert written.endswith(b"\n")
        assert b"\n" not in written[:-1]


_HANDLES: Final = Handles(Seal([b"k" * 32, b"old" * 16]), lambda: 1_000_000.0)
_OTHERS: Final = Handles(Seal([b"other" * 8]), lambda: 1_000_000.0)
_LATER: Final = Handles(Seal([b"k" * 32]), lambda: 1e9)
_TASK: Final = FarTask(agent_mark("https://example.com/"), "6e0fb7d0-3d5b-4c7a-9a53-8a1f1f5f2f10")
_OPENERS: Final = {
    HandlePurpose.REQUEST_STATE: lambda said, who: _HANDLES.question(said, who, b"request").task,
    HandlePurpose.FOLLOW_UP: lambda said, who: _HANDLES.task(said, who),
    HandlePurpose.CONTEXT: lambda said, who: _HANDLES.context(said, who),
}


def _sealed(handles: Handles, purpose: HandlePurpose, task: FarTask) -> str:
    match purpose:
        case HandlePurpose.REQUEST_STATE:
            return handles.of_question(FarQuestion(task, "0a1b2c3d"), "alice", b"request")
        case HandlePurpose.FOLLOW_UP:
            return handles.of_task(task, "alice")
        case _:
            return handles.of_context(FarContext(task.agent, task.task_id, None), "alice")


def handle_case(chance: Random) -> tuple[Any, ...]:
    """How a handle was made, what was done to it, and for what it is given."""
    made = chance.choice(list(_OPENERS))
    issuer = chance.choice(["ours", "ours", "ours", "others", "later"])
    change = chance.choice(["none", "text", "bytes", "case", "pad", "space", "cut"])
    task_id = _TASK.task_id if chance.random() < 0.7 else text(chance)[:300]
    return (
        made,
        issuer,
        change,
        chance.choice(list(_OPENERS)),
        chance.choice(["alice", "bob"]),
        chance.random(),
        task_id,
    )


async def check_handle(case: tuple[Any, ...]) -> None:
    """It opens as what it was sealed as, or not at all; and then with one answer for every reason."""
    made, issuer, change, asked, who, seed, task_id = case
    handles = {"ours": _HANDLES, "others": _OTHERS, "later": _HANDLES}[issuer]
    try:
        whole = _sealed(handles, made, FarTask(_TASK.agent, task_id))
    except (HandleTooLongError, UnicodeEncodeError):
        return  # (no wire brings half a character this far)
    assert len(whole) <= MAX_HANDLE_CHARACTERS
    given = _changed(whole, change, Random(seed))
    is_right = (given, made, issuer, who) == (whole, asked, "ours", "alice")
    opened, refusal = None, None
    try:
        opened = _LATER.task(given, who) if issuer == "later" else _OPENERS[asked](given, who)
    except HandleError as exc:
        refusal = exc
    assert (opened is not None) == is_right, (given, opened)
    assert refusal is None or (str(refusal), refusal.__cause__) == (str(HandleError()), None)
    assert opened is None or task_id in (
        getattr(opened, "task_id", None),
        getattr(opened, "context_id", None),
    )


def _changed(handle: str, change: str, chance: Random) -> str:
    match change:
        case "text":
            return handle[: (at := chance.randrange(len(handle)))] + text(chance) + handle[at:]
        case "bytes":
            return mutated_text(handle.encode(), chance).decode("latin-1")
        case "case":
            return handle.swapcase()
        case "pad":
            return handle + "=" * chance.randint(1, 3)
        case "space":
            return f" {handle}\n"
        case "cut":
            return handle[: chance.randrange(len(handle))]
        case _:
            return handle


TARGETS: Final = (
    Target("sse", sse_case, partial(alone, check_sse), share=150, examples=400),
    Target("lines", lines_case, partial(alone, check_lines), share=130, examples=400),
    Target("handles", handle_case, partial(alone, check_handle), share=90, examples=400),
)
