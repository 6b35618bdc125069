"""What every peer of the matrix keeps to. Runs in a peer's own environment, with the standard library alone.

As a client, `client.py URL` calls the wrapped MCP server whose agent is at URL, and prints one JSON line for each
scenario:

    {"scenario": "text", "outcome": "pass" | "fail" | "cannot", "words": "why it is not a pass"}

`play` does that, given a coroutine function for each scenario: one that returns has passed, one that raises `Cannot`
says that the framework has no way to do it, and one that raises anything else, or is not done in time, has failed.
What the scenarios are, as text that a person would type (the bridge reads it as a call of a tool), and what has to
come back:

    card    read the card, and find the skills of `SKILLS` on it
    text    `TEXT` gives `TEXT_GIVES`
    plain   the sentence `PLAIN` gives `PLAIN_GIVES`; a script without it has not tried it
    data    the data part `DATA` gives a data part that is `DATA_GIVES`
    file    a file part with `FILE_BYTES` beside metadata or data that names the skill `copy` gives a file part with
            the same bytes
    stream  `STREAM` gives the words of `STEPS` one after the other, then `STREAM_GIVES`
    ask     `ASK` gives a question with `QUESTION` in it; the answer `ANSWER` gives `ASK_GIVES`
    fail    `FAIL` gives a failure, that is one by the framework's own lights, with `FAIL_GIVES` in it
    cancel  `CANCEL` works until it is cancelled; the task is canceled then
    turns   `TURNS` one after the other in one context; the runner sees in the bridge whether it was one

As an agent, `agent.py` serves on loopback until it is ended, and prints one JSON line when it does:

    {"url": "http://127.0.0.1:1234", "cannot": {"ask": "why the framework has no way to do it"}}

`serve` does that for an ASGI application. An agent whose words are its own, or those of the model of `MODEL`, which
is an endpoint for chat completions of the test, answers:

    ask     asks `QUESTION`; the answer to that is given back
    fail    fails with `FAIL_GIVES`
    wait    works until it is cancelled
    recall  gives back all that was said in this context
    (else)  gives back all that is in the message: words, the data as JSON, and of a file its text
"""

import asyncio
import base64
import json
import os
import socket
import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

WORDS = json.loads(Path(__file__).with_name("words.json").read_text("utf-8"))
"""Shared with the scripts for Node.js."""
SECONDS = WORDS["scenario_seconds"]
"""How long one scenario may take."""
MODEL = os.environ.get("MATRIX_MODEL", "")
"""The base URL of the model, with `/v1`; any key will do."""

SKILLS = set(WORDS["skills"])
TEXT, TEXT_GIVES = WORDS["text"], WORDS["text_gives"]
PLAIN, PLAIN_GIVES = WORDS["plain"], WORDS["plain_gives"]
DATA, DATA_GIVES = WORDS["data"], WORDS["data_gives"]
FILE_SKILL, FILE_NAME, FILE_TYPE = WORDS["file_skill"], WORDS["file_name"], WORDS["file_type"]
FILE_BYTES = base64.b64decode(WORDS["file_base64"])
STREAM, STEPS, STREAM_GIVES = WORDS["stream"], WORDS["steps"], WORDS["stream_gives"]
ASK, QUESTION, ANSWER, ASK_GIVES = WORDS["ask"], WORDS["question"], WORDS["answer"], WORDS["ask_gives"]
FAIL, FAIL_GIVES = WORDS["fail"], WORDS["fail_gives"]
CANCEL = WORDS["cancel"]
TURNS, TURNS_GIVE = tuple(WORDS["turns"]), tuple(WORDS["turns_give"])


_STREAMS = {"all": 0}

UNTRIED = "not tried: its script sends no sentence"

_SAID = os.fdopen(os.dup(1), "w", buffering=1)
"""What the runner reads. All that a framework prints goes to stderr instead, and into the log of the run."""
os.dup2(2, 1)


class Cannot(Exception):
    """The framework has no way to do it; the message says which way is missing."""


def check(is_so: object, words: object) -> None:
    """Fail the scenario with these words unless something is so."""
    if not is_so:
        raise AssertionError(str(words))


def play(
    scenarios: Mapping[str, Callable[[str], Awaitable[None]]], cannot: Mapping[str, str] | None = None
) -> None:
    """Run each scenario against the URL of the command line, and end the process."""

    async def every() -> None:
        for name in WORDS["scenarios"]:
            if name in scenarios:
                say({"scenario": name, **await _came_of(scenarios[name])})
            elif name == "plain":
                say({"scenario": name, "outcome": "untried", "words": UNTRIED})
            else:
                say({"scenario": name, "outcome": "cannot", "words": (cannot or {})[name]})

    asyncio.run(every())
    # What a framework left at work behind a cancelled scenario does not hold up the end.
    os._exit(0)


async def _came_of(scenario: Callable[[str], Awaitable[None]]) -> dict[str, str]:
    try:
        async with asyncio.timeout(SECONDS):
            await scenario(sys.argv[1])
    except Cannot as exc:
        return {"outcome": "cannot", "words": str(exc)}
    except TimeoutError:
        return {"outcome": "fail", "words": f"not done within {SECONDS} s"}
    except Exception as exc:  # noqa: BLE001 - whatever a framework raises is what came of it
        traceback.print_exc()
        return {"outcome": "fail", "words": f"{type(exc).__name__}: {_innermost(exc)}"[:300]}
    return {"outcome": "pass", "words": ""}


def _innermost(exc: BaseException) -> BaseException:
    while isinstance(exc, BaseExceptionGroup):
        exc = exc.exceptions[0]
    return exc


def say(line: Mapping[str, Any]) -> None:
    """Tell the runner something."""
    _SAID.write(json.dumps(line) + "\n")


def listener() -> socket.socket:
    """A socket on a free port of loopback."""
    return socket.create_server(("127.0.0.1", 0))


def url_of(bound: socket.socket) -> str:
    """Where a socket listens."""
    return f"http://127.0.0.1:{bound.getsockname()[1]}"


def serve(app: Any, bound: socket.socket, cannot: Mapping[str, str] | None = None, path: str = "") -> None:
    """Serve an ASGI application whose agent is at a path, and say so."""
    import uvicorn

    say({"url": url_of(bound) + path, "cannot": dict(cannot or {})})
    config = uvicorn.Config(watched(app), log_level="warning", ws="none", timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[bound])


def serve_by(run: Callable[[], None], url: str, cannot: Mapping[str, str] | None = None) -> None:
    """Let a framework serve that starts uvicorn itself, and say so: the runner waits until it answers."""
    import uvicorn

    class Watched(uvicorn.Config):
        def load(self) -> None:
            super().load()
            self.loaded_app = watched(self.loaded_app)

    sys.modules["uvicorn.main"].Config = Watched  # the attribute of that name is a function
    say({"url": url, "cannot": dict(cannot or {})})
    run()


def watched(app: Any) -> Any:
    """The application, which also says at `/_streams` how many streams it has answered with, also over gRPC."""

    async def seen(scope: Any, receive: Any, send: Any) -> None:
        async def send_seen(message: Any) -> None:
            headers = dict(message.get("headers", ()))
            _STREAMS["all"] += headers.get(b"content-type", b"").startswith(b"text/event-stream")
            await send(message)

        if scope["type"] == "http" and scope["path"] == "/_streams":
            body = json.dumps(_STREAMS["all"]).encode()
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": body})
            return
        await app(scope, receive, send_seen if scope["type"] == "http" else send)

    return seen


class GrpcBeside:
    """A server of gRPC beside the HTTP server of the card. `run` is a lifespan of Starlette."""

    def __init__(self) -> None:
        with listener() as bound:
            self.place = f"127.0.0.1:{bound.getsockname()[1]}"

    def run(self, add_service: Callable[[Any], None]) -> Callable[[Any], Any]:
        """Serve what `add_service` adds to the server."""
        from contextlib import asynccontextmanager

        from grpc import aio

        class Counting(aio.ServerInterceptor):
            async def intercept_service(self, continuation: Any, details: Any) -> Any:
                handler = await continuation(details)
                _STREAMS["all"] += handler is not None and handler.response_streaming
                return handler

        @asynccontextmanager
        async def lifespan(_: Any) -> Any:
            server = aio.server(interceptors=[Counting()])
            add_service(server)
            server.add_insecure_port(self.place)
            await server.start()
            yield
            await server.stop(1)

        return lifespan
