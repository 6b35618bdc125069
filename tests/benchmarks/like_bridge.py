"""uvicorn as the bridge runs it (see bridge/process/serve.py), for the contestants that are compared with it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import uvicorn


async def serve(app: Any, port: int) -> None:
    """Serve an application on loopback until SIGTERM comes."""
    server = _Server(
        uvicorn.Config(
            app,
            host="127.0.0.1",
            port=port,
            lifespan="off",
            ws="none",
            http="httptools",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=1,
        )
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_stop_on_signal, server)
        await server.serve()
        tasks.cancel_scope.cancel()


class _Server(uvicorn.Server):
    """uvicorn without its own signal handlers, so that what is open around it is closed."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _stop_on_signal(server: uvicorn.Server) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM) as signals:
        async for _ in signals:
            server.should_exit = True
            return
