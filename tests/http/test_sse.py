"""Framing and reading of server-sent events, in any chunks."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from pydantic_core import from_json, to_json

from bridge.http.sse import HEARTBEAT, SseEvent, SseReader, frame


def read(chunks: Sequence[bytes], limit_bytes: int = 1000) -> list[bytes]:
    reader = SseReader(limit_bytes)
    return [event.data for chunk in chunks for event in reader.feed(chunk)]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_events_are_read_with_any_chunks_and_line_ends(end: bytes, size: int) -> None:
    lines = [
        b"\xef\xbb\xbfdata: one",
        b"",
        b": beat",
        b"",
        b"event: x",
        b"data:two",
        b"data: three",
        b"",
        b"data: rest",
    ]
    text = end.join(lines)
    assert read([text[i : i + size] for i in range(0, len(text), size)]) == [b"one", b"two\nthree"]


def test_line_separators_of_unicode_end_no_line() -> None:
    said = "data: a\u0085b\u2028c\u2029d\n\n".encode()
    assert read([said]) == ["a\u0085b\u2028c\u2029d".encode()]


def test_an_event_that_is_too_large_is_not_collected() -> None:
    with pytest.raises(ValueError, match="more than 1000 bytes"):
        read([b"data: " + b"x" * 500, b"x" * 500])
    with pytest.raises(ValueError, match="more than 1000 bytes"):
        read([b"data: x\n"] * 1000)


def test_heartbeats_and_finished_events_do_not_count_as_size() -> None:
    assert len(read([b": \n\n"] * 1000 + [b"data: x\n\n"] * 1000)) == 1000
    assert read([b":\n"] * 1000 + [b"data: x\n\n"]) == [b"x"]


def test_an_event_has_the_type_it_names() -> None:
    reader = SseReader(1000)
    said = b"event: endpoint\ndata: /post\n\ndata: {}\n\nevent:\ndata: x\n\nevent: empty\n\ndata: y\n\n"
    assert list(reader.feed(said)) == [
        SseEvent("endpoint", b"/post"),
        SseEvent("message", b"{}"),
        SseEvent("message", b"x"),
        SseEvent("message", b"y"),
    ]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 100_000])
def test_an_event_above_the_limit_keeps_both_ends_and_the_next_event_is_complete(
    end: bytes, size: int
) -> None:
    head, tail = b'{"id":7,' + b"a" * 50, b"z" * 50 + b'"end":1'
    lines = [b"event: message", b"data: " + head + b"x" * 2000 + tail, b"data: }", b"id: 4", b""]
    text = end.join([*lines, b"data: next", b"", b""])
    reader = SseReader(1000, ends_bytes=40)
    chunks = [text[i : i + size] for i in range(0, len(text), size)]
    cut, following = (event for chunk in chunks for event in reader.feed(chunk))
    assert (cut.type, cut.data) == ("message", head[:40])
    assert cut.tail is not None
    assert cut.tail.endswith(tail[-9:] + b"\n}")
    assert following == SseEvent("message", b"next")


def test_a_comment_above_the_limit_is_no_event() -> None:
    reader = SseReader(1000, ends_bytes=40)
    assert list(reader.feed(b":" + b"x" * 2000 + b"\n\ndata: y\n\n")) == [SseEvent("message", b"y")]


def test_an_event_of_fifty_megabytes_is_read_from_small_chunks() -> None:
    reader, chunk = SseReader(60_000_000), b"x" * 65536
    pieces = [b"data: ", *[chunk] * 800, b"\n\n"]
    (event,) = (event for piece in pieces for event in reader.feed(piece))
    assert len(event.data) == 800 * 65536


TEXTS = [
    "plain",
    "a\x85b",
    "a\u2028b\u2029c",
    "line\nbreak\r\n",
    "\\\u2028",
    "é中🎈",
    "\u0085" * 3,
    "Â\x80\u2027",
]


@pytest.mark.proves("sse-escapes")
@pytest.mark.parametrize("text", TEXTS)
def test_a_frame_is_one_line_for_every_reader_and_says_the_same(text: str) -> None:
    framed = frame(to_json({"text": text}))
    assert framed.startswith(b"data: ")
    assert framed.endswith(b"\n\n")
    inner = framed[len(b"data: ") : -2]
    assert len(inner.decode().splitlines()) == 1
    assert from_json(inner) == {"text": text}


def test_a_heartbeat_is_a_comment_and_no_event() -> None:
    assert HEARTBEAT.startswith(b":")
    assert HEARTBEAT.endswith(b"\n\n")
    assert b"data" not in HEARTBEAT
