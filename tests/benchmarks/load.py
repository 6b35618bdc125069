"""The load generator: raw sockets and no parsing while the clock runs, in a process of its own.

It takes one plan as a line of JSON on stdin and prints what it found as another. `kind` says what to do:

send    so many SendMessage requests, so many at once
stream  so many SendStreamingMessage requests, one after the other
hold    so many streams open at once, then nothing for a while: what they cost the server

The CPU time in an answer is that of the server, the process `pid`.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from typing import Final

from tests.benchmarks.load_calls import send
from tests.benchmarks.load_streams import hold, stream
from tests.benchmarks.messages import LIMIT_SECONDS, Plan

KINDS: Final = {"send": send, "stream": stream, "hold": hold}


async def carry_out(plan: Plan) -> Plan:
    """Do what a plan says, within the limit."""
    return await asyncio.wait_for(KINDS[plan["kind"]](plan), LIMIT_SECONDS)


def main() -> None:
    """Carry out the one plan on stdin."""
    plan = json.loads(sys.stdin.readline())
    gc.disable()  # a pause of ours would stand in the latencies of others
    print(json.dumps(asyncio.run(carry_out(plan))), flush=True)


if __name__ == "__main__":
    main()
