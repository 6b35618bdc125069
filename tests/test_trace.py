"""What a request says of its trace: what is well-formed, how much of it goes on, and who is told of its baggage."""

from __future__ import annotations

from contextvars import copy_context
from typing import Any, Final

import pytest

from bridge import trace
from bridge.trace import NO_TRACE, TraceContext, context_from

IDS: Final = "0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331"
PARENT: Final = f"00-{IDS}-01"
STATES: Final = [f"k{number}=v" for number in range(33)]

pytestmark = pytest.mark.proves("trace-context")


@pytest.mark.parametrize(
    ("parent", "is_taken"),
    [
        (PARENT, True),
        (f" {PARENT}\t", True),
        (f"00-{IDS}-ff", True),
        (f"cc-{IDS}-01", True),
        (f"cc-{IDS}-01-what-the-future-will-be-like", True),
        ("", False),
        (f"00-{IDS}-01-more", False),
        (f"00-{IDS}-01-", False),
        (f"cc-{IDS}-01.more", False),
        (f"cc-{IDS}-01-\n", False),
        (f"ff-{IDS}-01", False),
        (PARENT.upper(), False),
        (f"00-{'0' * 32}-b7ad6b7169203331-01", False),
        (f"00-0af7651916cd43dd8448eb211c80319c-{'0' * 16}-01", False),
        (f"00-{IDS}", False),
        (f"{PARENT},{PARENT}", False),
        (f"{PARENT}\r\nx: y", False),
    ],
)
def test_a_malformed_traceparent_is_dropped_and_its_tracestate_with_it(parent: str, is_taken: bool) -> None:
    told = {"traceparent": parent, "tracestate": "a=b", "baggage": "c=d"}
    expected = TraceContext(parent.strip(), "a=b", "c=d") if is_taken else TraceContext(baggage="c=d")
    assert context_from(told) == expected


@pytest.mark.parametrize(
    ("state", "taken"),
    [
        ("vendor=opaque value,t61rcwkgmze@vendor=x", "vendor=opaque value,t61rcwkgmze@vendor=x"),
        (" a=1 ,, b=2\t,", "a=1,b=2"),
        ("0a/b*c-d_e@f=~", "0a/b*c-d_e@f=~"),
        (",".join(STATES[:32]), ",".join(STATES[:32])),
        (",".join(STATES), None),
        ("", None),
        ("a", None),
        ("a=", None),
        ("A=1", None),
        ("a=1=2", None),
        ("a=1,b", None),
        ("a=gr\u00fc\u00dfe", None),
        ("a" * 257 + "=1", None),
        ("a=" + "v" * 256, "a=" + "v" * 256),
        ("a=" + "v" * 257, None),
    ],
)
def test_a_malformed_tracestate_is_dropped_alone(state: str, taken: str | None) -> None:
    assert context_from({"traceparent": PARENT, "tracestate": state}) == TraceContext(PARENT, taken)


def test_a_tracestate_that_is_too_long_loses_its_long_members_first_and_then_its_last() -> None:
    long, short = (
        [f"l{number}={'v' * 150}" for number in range(3)],
        [f"s{number}={'v' * 97}" for number in range(3)],
    )
    kept = context_from(
        {"traceparent": PARENT, "tracestate": ",".join([long[0], *short, *long[1:]])}
    ).tracestate
    assert kept == ",".join([long[0], *short])
    many = [f"m{number}={'v' * 100}" for number in range(6)]
    assert context_from({"traceparent": PARENT, "tracestate": ",".join(many)}).tracestate == ",".join(
        many[:4]
    )


@pytest.mark.parametrize(
    ("baggage", "taken"),
    [
        ("userId=alice,serverNode=DF%2028", "userId=alice,serverNode=DF%2028"),
        (" a = 1 ; p ; q = 2 , b=", "a = 1 ; p ; q = 2,b="),
        ("a=1,broken,b=2 3,c=3", "a=1,c=3"),
        ('a="1"', None),
        ("a=gr\u00fc\u00dfe", None),
        ("a=1\r\nx: y", None),
        ("=1", None),
        ("", None),
        (",".join(f"k{number}=v" for number in range(70)), ",".join(f"k{number}=v" for number in range(64))),
        (f"a={'v' * 4000},b={'v' * 4000},c={'v' * 300}", f"a={'v' * 4000},b={'v' * 4000}"),
        ("a=" + "v" * 8190, "a=" + "v" * 8190),
        ("a=" + "v" * 8191, None),
    ],
)
def test_of_a_baggage_the_well_formed_members_are_taken_as_far_as_they_fit(
    baggage: str, taken: str | None
) -> None:
    assert context_from({"baggage": baggage}) == TraceContext(baggage=taken)


@pytest.mark.parametrize("odd", [None, 7, True, [], {}, b"x"])
def test_what_is_no_text_says_nothing(odd: Any) -> None:
    assert context_from({"traceparent": odd, "baggage": odd}) == NO_TRACE
    assert context_from({"traceparent": PARENT, "tracestate": odd}) == TraceContext(PARENT)


def test_headers_that_come_in_several_lines_are_one_list() -> None:
    lines = [(b"traceparent", PARENT.encode()), (b"tracestate", b"a=1"), (b"host", b"x")]
    lines += [(b"baggage", b"c=3"), (b"tracestate", b"b=2"), (b"baggage", b"d=4")]
    found = trace.in_headers(lines)
    assert context_from(found) == TraceContext(PARENT, "a=1,b=2", "c=3,d=4")
    assert context_from(trace.in_headers([(b"traceparent", PARENT.encode())] * 2)) == NO_TRACE
    assert trace.in_headers([(b"host", b"x")]) == {}


def told(is_local: bool, *keys: str) -> dict[str, str]:
    return trace.told_to_peer(is_local=is_local, baggage_keys=frozenset(keys))


def test_what_stands_far_behind_in_a_trace_context_is_not_looked_at() -> None:
    far = "," * 40_000
    said = {"traceparent": PARENT, "tracestate": f"a=1{far}b=2", "baggage": f"c=3{far}d=4"}
    assert context_from(said) == TraceContext(PARENT, None, "c=3")
    assert context_from({"baggage": "a=1" + ";b" * 20_000}) == NO_TRACE


def test_a_peer_beyond_this_machine_is_told_only_the_baggage_that_is_named() -> None:
    def run() -> None:
        baggage = "tenant=a;p=1,user = alice,tenant=b,Tenant=c"
        trace.begin({"traceparent": PARENT, "tracestate": "v=1", "baggage": baggage})
        of_trace = {"traceparent": PARENT, "tracestate": "v=1"}
        assert told(True) == {**of_trace, "baggage": baggage}
        assert told(False) == of_trace
        assert told(False, "tenant") == {**of_trace, "baggage": "tenant=a;p=1,tenant=b"}
        assert told(False, "user", "other") == {**of_trace, "baggage": "user = alice"}

    copy_context().run(run)


def test_a_request_goes_on_with_an_earlier_trace_unless_it_names_one() -> None:
    before = TraceContext(PARENT, "v=1", "a=1")
    other = f"00-{'1' * 32}-{'2' * 16}-00"

    def going_on(**said: str) -> TraceContext:
        trace.begin(said)
        trace.go_on(before)
        return trace.context.get()

    def run() -> None:
        assert going_on() == before
        assert going_on(traceparent="broken", tracestate="x=1") == before
        assert going_on(baggage="b=2") == TraceContext(PARENT, "v=1", "b=2")
        assert going_on(traceparent=other) == TraceContext(other)

    copy_context().run(run)
