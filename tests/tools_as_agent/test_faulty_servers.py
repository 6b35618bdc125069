"""How a task ends when the connection to its tool server fails, with real servers behind a proxy that can lose, cut and
delay traffic. Whatever happens, a call that the server may have is not sent twice.
"""

from __future__ import annotations

import logging
import random
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import anyio
import httpx2
import pytest

from tests.support.faults import RESET, RESET_AFTER_HEAD, SILENT, SWALLOWED, Fault, cut_after, slow
from tests.support.places import CALL, PLACES, Json, wrapped_at
from tests.support.running import profile_with, texts

pytestmark = pytest.mark.proves("map-lost")

MEGABYTE: Final = 1024 * 1024

Reference = Mapping[str, str]

each_place = pytest.mark.parametrize("place", PLACES)
each_that_answers_posts = pytest.mark.parametrize("place", [n for n in PLACES if PLACES[n].answers_posts])
each_that_only_streams = pytest.mark.parametrize("place", [n for n in PLACES if not PLACES[n].answers_posts])


@pytest.fixture(scope="module")
async def reference() -> AsyncIterator[Reference]:
    """The URLs of the reference server, by transport. It is started once, since its sessions are independent."""
    async with PLACES["everything"].start() as url, PLACES["everything-sse"].start() as sse_url:
        yield {"everything": url, "everything-sse": sse_url}


def words_of(task: Json) -> str:
    """The words of a failed task."""
    assert task["status"]["state"] == "TASK_STATE_FAILED", task
    return " ".join(texts(task["status"]["message"]["parts"]))


@each_that_answers_posts
@pytest.mark.proves("map-lost")
@pytest.mark.parametrize(
    ("fault", "calls"),
    [(RESET, 1), (RESET_AFTER_HEAD, 1), (cut_after(20), 1), (SWALLOWED, 0)],
    ids=["reset", "reset after the head", "half", "swallowed"],
)
@pytest.mark.smoke("reset-*", "half-modern")
async def test_a_lost_answer_fails_its_task_and_the_call_is_not_sent_again(
    place: str, fault: Fault, calls: int, reference: Reference
) -> None:
    async with wrapped_at(place, started=reference) as there:
        await there.works()
        there.proxy.on(CALL, fault)
        words = words_of(await there.echo("lost"))
        assert re.match(
            r"The connection to (sdk|mcp-servers/everything) ended before its answer \(.+\)", words
        )
        assert there.proxy.met == [fault]
        assert there.calls == 1 + calls
        await there.works()


@each_that_only_streams
@pytest.mark.proves("map-lost")
@pytest.mark.parametrize("fault", [RESET, SWALLOWED], ids=["reset", "swallowed"])
async def test_over_http_sse_a_lost_receipt_is_a_lost_call_unless_the_answer_came_first(
    place: str, fault: Fault, reference: Reference
) -> None:
    async with wrapped_at(place, started=reference) as there:
        await there.works()
        there.proxy.on(CALL, fault)
        task = await there.echo("lost")
        if task["status"]["state"] == "TASK_STATE_COMPLETED":
            assert fault.is_delivered
        else:
            assert "ended before its answer" in words_of(task)
        assert there.calls == 1 + fault.is_delivered
        await there.works()


@each_place
@pytest.mark.proves("map-lost")
async def test_when_every_connection_drops_the_running_calls_fail_and_the_next_call_works(
    place: str, reference: Reference
) -> None:
    skill, arguments = PLACES[place].lasting
    failed: list[str] = []

    async with wrapped_at(place, started=reference) as there:

        async def call() -> None:
            failed.append(words_of(await there.call(skill, **arguments)))

        there.proxy.on(CALL, SILENT, times=5)
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(call)
            await there.proxy.until(lambda: len(there.proxy.met) == 5)
            there.proxy.drop_all()
        assert there.calls == 5
        assert all("ended before its answer" in words for words in failed)
        await there.works()


@pytest.mark.long
@each_place
@pytest.mark.proves("map-lost")
async def test_calls_during_an_outage_fail_with_the_servers_fault_and_later_calls_work(
    place: str, reference: Reference
) -> None:
    profile = profile_with(server={"connect_seconds": 1.5, "longest_pause_seconds": 0.1})
    async with wrapped_at(place, profile, reference) as there:
        await there.works()
        there.proxy.refuse()
        there.proxy.drop_all()
        words_of(await there.echo("the first to notice"))
        for _ in range(2):
            words = words_of(await there.echo("nobody is there"))
            assert re.fullmatch(r".+ is down: http://127\.0\.0\.1:\d+/\w+ cannot be reached: .+", words)
        assert there.calls == 1
        await there.proxy.accept()
        await there.works()


@each_place
@pytest.mark.proves("map-lost")
async def test_a_call_that_is_refused_is_sent_once_a_connection_can_be_made_again(
    place: str, reference: Reference
) -> None:
    async with wrapped_at(place, started=reference) as there:
        await there.works()
        there.proxy.refuse()
        there.proxy.drop_all()
        with logged("cannot be reached: Connection refused") as refused, anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                if not there.place.answers_posts:
                    await refused.wait()  # the stream tells that the server is gone; else a call does
                tasks.start_soon(there.works)
                await refused.wait()
                await there.proxy.accept()
        assert there.calls == 2


@pytest.mark.parametrize("place", ["legacy", "everything"])
@pytest.mark.proves("map-lost")
async def test_a_call_in_a_session_that_the_server_ended_is_made_in_a_new_session(
    place: str, reference: Reference
) -> None:
    async with wrapped_at(place, started=reference) as there, httpx2.AsyncClient() as other:
        await there.works()
        session = re.search(rb"mcp-session-id: (\S+)", there.proxy.delivered[-1], re.IGNORECASE)
        assert session
        headers = {"mcp-session-id": session[1].decode(), "mcp-protocol-version": "2025-11-25"}
        ended = await other.delete(there.proxy.url("/mcp"), headers=headers)
        assert ended.is_success
        assert texts((await there.echo("anew"))["artifacts"][0]["parts"])[0].endswith("anew")
        assert there.calls == 3, "the one that was refused was sent again"
        assert there.proxy.count(b'"initialize"') == 2
        await there.works()


async def test_a_broken_stream_is_resumed_if_the_server_keeps_its_events(
    reference: Reference,
) -> None:
    """The reference server numbers them; the call itself is not repeated."""
    async with wrapped_at("everything", started=reference) as there:
        there.proxy.on(CALL, cut_after(150))
        task = await there.call("trigger-long-running-operation", duration=0.5, steps=2)
        assert there.proxy.met
        assert task["status"]["state"] == "TASK_STATE_COMPLETED", task
        assert there.calls == 1
        assert there.proxy.count(b"last-event-id") == 1


@each_that_answers_posts
@pytest.mark.proves("map-timeout")
async def test_a_server_that_stays_silent_is_waited_for_as_long_as_a_call_may_take(
    place: str, reference: Reference
) -> None:
    async with wrapped_at(place, profile_with(run={"call_timeout_seconds": 2}), reference) as there:
        there.proxy.on(CALL, SILENT)
        words = words_of(await there.echo("hello?"))
        assert words == "The tool gave no answer in 2 s and was cancelled"
        assert there.calls == 1
        await there.works()


@each_place
async def test_an_answer_that_arrives_byte_by_byte_is_complete(place: str, reference: Reference) -> None:
    async with wrapped_at(place, started=reference) as there:
        there.proxy.on(CALL, slow(7, 0.001))
        await there.works("grüße 🎈\u2028" * 20)
        assert there.proxy.met


@each_place
@pytest.mark.smoke("modern", "sse")
async def test_a_large_result_is_complete(place: str, reference: Reference) -> None:
    size = 5 * MEGABYTE if place in ("legacy", "modern") else MEGABYTE  # of a request, the others take 4 MB
    letters = random.Random(5).choices('abcdefgh grüße🎈\u2028\n"\\', k=997)
    async with wrapped_at(place, started=reference) as there:
        await there.works("".join(letters) * (size // 2 // len(letters)))


async def test_a_large_result_over_http_sse_is_complete() -> None:
    async with wrapped_at("sse") as there:
        task = await there.call("big", bytes=5 * MEGABYTE)
        assert texts(task["artifacts"][0]["parts"]) == ["x" * (5 * MEGABYTE)]


async def test_concurrent_callers_meet_only_their_own_faults() -> None:
    async with wrapped_at("modern") as there:
        for _ in range(8):
            there.proxy.on(b"bad", RESET)
            there.proxy.on(b"bad", cut_after(9))
        ended: dict[str, set[str]] = {"good": set(), "bad": set()}

        async def call(kind: str) -> None:
            ended[kind].add((await there.echo(kind))["status"]["state"])

        async with anyio.create_task_group() as tasks:
            for kind in ["good", "bad"] * 16:
                tasks.start_soon(call, kind)
        assert ended == {"good": {"TASK_STATE_COMPLETED"}, "bad": {"TASK_STATE_FAILED"}}
        assert there.calls == 32


@contextmanager
def logged(words: str) -> Iterator[anyio.Event]:
    """Set once something with these words is logged."""
    heard = anyio.Event()

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if words in record.getMessage():
                heard.set()

    listener = Listener()
    logging.getLogger("bridge").addHandler(listener)
    try:
        yield heard
    finally:
        logging.getLogger("bridge").removeHandler(listener)
