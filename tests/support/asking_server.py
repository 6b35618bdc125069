"""An MCP server that asks back, in both eras, over stdio and over HTTP, without any library.

Run as `python asking_server.py --era legacy|modern [--http PORT] [--key WORD] [--expire] [--jobs FILE]`.
With `--http 0` it takes a free port; its URL is the line it prints. It refuses, in words, what a client sends
against the specification. L: in 2025-11-25 only; M: in 2026-07-28 only. Its tools:

ask           a form of name, age, color, tags      ask-unsafe    the same, with destructiveHint
ask-one       a form of one boolean, without mode   ask-twice     `first`, then `second`
ask-url       a URL (M: `times` times)              ask-progress  progress, a boolean, progress
need-url    L refuses with -32042 `times` times     ask-both    L two forms at the same time
ask-withdraw L takes a form back after `seconds`    ask-two     M two forms in one result
ask-form-and-url M a form and a URL in one result   ask-stateless M a boolean, without requestState
state-only  M only requestState, `times` times      ask-expired M a boolean; see --expire and forget
ask-again   M asks for what an answer lacks         pending     L how many questions are open
sample, roots  ask for what nobody declares         job         L a task: steps, seconds, ask, fail
task-job    M a task, see asking_jobs.py            optional-job L the same, also without a task
ask-noisy   L progress while its form is open
echo, add, wait  as the raw server's                cancelled     how many tool calls were cancelled
answers       all answers so far, as JSON           requests      how many of each method, as JSON
log           a log message                         grow          adds a tool, and says so
forget        L: the sessions of HTTP; M: what was asked so far has expired
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

from asking_jobs import Jobs
from asking_legacy import Legacy, Session
from asking_modern import Modern
from asking_shapes import INVALID_REQUEST, PARSE_ERROR, AskingServer, Call, Json, Refused, is_request, pass_on


def main() -> None:
    """Serve until stdin ends, or over HTTP until killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--era", choices=["legacy", "modern"], required=True)
    parser.add_argument("--http", type=int)
    parser.add_argument("--key", default="asking")
    parser.add_argument("--expire", action="store_true")
    parser.add_argument("--jobs", type=Path)
    options = parser.parse_args()
    server: AskingServer = Legacy()
    if options.era == "modern":
        server = Modern(jobs=Jobs(options.jobs), key=options.key.encode(), is_expiring=options.expire)
    if options.http is None:
        serve_stdio(server)
    else:
        from asking_http import serve_http  # here, as it takes as long to import as all the rest

        serve_http(server, options.http)


# -- stdio


def serve_stdio(server: AskingServer) -> None:
    """One message a line, each request in a thread of its own."""
    lock = threading.Lock()

    def send(message: Json) -> None:
        with lock:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            sys.stdout.flush()

    session = Session() if isinstance(server, Legacy) else None
    print("asking server up", file=sys.stderr, flush=True)
    for line in sys.stdin:
        try:
            _take_line(server, session, line, send)
        except Refused as refused:
            send({"id": None, "error": refused.error})
    os._exit(0)


def _take_line(server: AskingServer, session: Any, line: str, send: Any) -> None:
    try:
        message = json.loads(line)
    except ValueError:
        raise Refused("no JSON", PARSE_ERROR) from None
    if not is_request(message):
        return pass_on(server, session, message)
    if message["id"] in [call.id for call in server.calls]:
        raise Refused(f"the id {message['id']!r} belongs to a request without a response", INVALID_REQUEST)
    call = Call(message, send, session=session)
    server.enter(call)
    return threading.Thread(target=server.take, args=(call,), daemon=True).start()


if __name__ == "__main__":
    main()
