"""The contestant for idle streams: Starlette alone. One event, then a heartbeat as often as the bridge sends one."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator

import anyio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.benchmarks.like_bridge import serve
from tests.benchmarks.messages import CARD_PATH


def application(heartbeat_seconds: float) -> Starlette:
    """The streams, and what the benchmark takes as a sign that they are served."""

    async def events() -> AsyncIterator[bytes]:
        yield b'data: {"hello": "world"}\n\n'
        while True:
            await anyio.sleep(heartbeat_seconds)
            yield b": \n\n"

    async def stream(request: Request) -> Response:
        await request.body()
        return StreamingResponse(events(), media_type="text/event-stream")

    async def card(_: Request) -> Response:
        return JSONResponse({})

    return Starlette(routes=[Route(CARD_PATH, card), Route("/", stream, methods=["POST"])])


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(prog="tests.benchmarks.bare_streams", description="Bare streams.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--heartbeat-seconds", type=float, required=True)
    options = parser.parse_args()
    anyio.run(serve, application(options.heartbeat_seconds), options.port)


if __name__ == "__main__":
    main()
